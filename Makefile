# make demo      the main job end to end: sets up what it needs, without a key and without a registry
# make test      every check: formatting, lints, all tests, those on the real engine included
# make install   the release binary to PREFIX/bin (default /usr/local), its manual page and shell completions
export CRASHLAB_BUILDKIT_IMAGE ?= crashlab/buildkit:1
PREFIX ?= /usr/local

.PHONY: demo test test-host test-engine test-faults lint build release install bench engine

demo: engine build
	scripts/demo

test: engine lint
	scripts/test

test-host:
	cargo test --quiet --lib --bins --test host

test-engine: engine
	cargo test --quiet --test engine

test-faults: engine
	CRASHLAB_FAULTS=all cargo test --test engine -- faults --nocapture

lint:
	cargo fmt --check
	rustfmt --edition 2024 --check src/relay/main.rs
	cargo clippy --all-targets -- -D warnings
	! command -v shellcheck >/dev/null || shellcheck .ci/run scripts/engine scripts/test scripts/demo scripts/bench/all

build:
	cargo build

release:
	cargo build --release

# Built here only where it is missing, so that `make release && sudo make install` needs no toolchain for root.
install:
	[ -x target/release/crashlab ] || cargo build --release
	install -D target/release/crashlab $(DESTDIR)$(PREFIX)/bin/crashlab
	target/release/crashlab man >target/crashlab.1
	install -D -m 644 target/crashlab.1 $(DESTDIR)$(PREFIX)/share/man/man1/crashlab.1
	target/release/crashlab completions bash >target/crashlab.bash
	install -D -m 644 target/crashlab.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/crashlab

bench: engine release
	scripts/bench/all

engine:
	scripts/engine
