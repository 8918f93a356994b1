# make demo      the main job end to end: sets up what it needs, without a key and without a registry
# make test      every check: formatting, lints, all tests, those on the real engine included
# make fuzz      each fuzz target for FUZZ_TIME seconds (default 60) with libFuzzer; FUZZ_TARGETS="events mcp" for some of them
# make install   the release binary to PREFIX/bin (default /usr/local), its manual pages and shell completions
# make deb       a Debian package, target/debian/*.deb (wants cargo-deb: cargo install cargo-deb)
# make pictures  README's terminal output and pictures anew, from a run of the demo (wants chromium)
export CRASHLAB_BUILDKIT_IMAGE ?= crashlab/buildkit:1
PREFIX ?= /usr/local
BINARY ?= target/release/crashlab
SHARE ?= target/share

.PHONY: demo test test-host test-engine test-second-engine test-faults test-litellm lint build release share install deb pictures bench engine fuzz

demo: engine build
	scripts/demo

test: engine lint
	scripts/test

test-host:
	cargo test --quiet --lib --bins --test host

test-engine: engine
	cargo test --quiet --test engine

# All of the sandbox's tests on Debian 13's engine, nested in a container of this one, with containerd's image store and
# with crun as a runtime; as root. `make test` runs the attestation's and the isolation's there.
test-second-engine: engine
	scripts/second-engine

# The gateway in front of LiteLLM's proxy. Apart from `make test`: the proxy and what it wants are 430 MB, minutes to install.
test-litellm: engine
	scripts/litellm
	CRASHLAB_LITELLM=$(CURDIR)/target/litellm cargo test --test engine -- --ignored litellm:: --nocapture

test-faults: engine
	CRASHLAB_FAULTS=all cargo test --test engine -- docker_faults:: --nocapture

fuzz:
	scripts/fuzz $(FUZZ_TARGETS)

lint:
	cargo fmt --check
	rustfmt --edition 2024 --check fuzz/fuzz_targets/*.rs
	rustfmt --edition 2024 --check src/relay/main.rs
	cargo clippy --all-targets -- -D warnings
	! command -v shellcheck >/dev/null || shellcheck .ci/run scripts/engine scripts/second-engine scripts/test scripts/litellm scripts/record-docker scripts/demo scripts/fuzz scripts/bench/all \
		scripts/examples/*.sh

build:
	cargo build

release:
	cargo build --release

# Manual pages and completions, made by the binary itself; the binary is built here only where it is missing, so that
# `make release && sudo make install` needs no toolchain for root.
share:
	[ -x $(BINARY) ] || cargo build --release
	rm -rf $(SHARE)
	mkdir -p $(SHARE)/man
	$(BINARY) man $(SHARE)/man
	$(BINARY) completions bash >$(SHARE)/crashlab.bash
	$(BINARY) completions zsh >$(SHARE)/_crashlab
	$(BINARY) completions fish >$(SHARE)/crashlab.fish

install: share
	install -D $(BINARY) $(DESTDIR)$(PREFIX)/bin/crashlab
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(SHARE)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -D -m 644 $(SHARE)/crashlab.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/crashlab
	install -D -m 644 $(SHARE)/_crashlab $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_crashlab
	install -D -m 644 $(SHARE)/crashlab.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/crashlab.fish

# The tests make the same package from the debug binary (CARGO_DEB="--profile dev --fast --no-strip"), to look into it and
# to unpack it: a release build takes minutes, and what is in a package does not depend on it.
deb: $(if $(findstring dev,$(CARGO_DEB)),,release) share
	cargo deb --no-build $(CARGO_DEB)

pictures: engine build
	scripts/pictures

bench: engine release
	scripts/bench/all

engine:
	scripts/engine
