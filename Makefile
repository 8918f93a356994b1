# make demo    sets up and runs the main job end to end, without a key and without a registry
# make test    runs every test, the real engine's included
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

build:
	cargo build

release:
	cargo build --release

install: release
	install -D target/release/crashlab $(DESTDIR)$(PREFIX)/bin/crashlab

bench: engine release
	scripts/bench/all

engine:
	scripts/engine
