//! Tests that ask a real Docker engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    dead_code,
    reason = "clippy takes only the test functions themselves for tests, not what helps them"
)]

mod attest;
mod builds;
mod chain;
mod daemon;
mod docker_faults;
mod doctor;
mod drills;
mod environments;
mod evaluation;
mod faults;
mod first_steps;
mod isolation;
mod limits;
mod litellm;
mod mcp;
mod network;
mod outputs;
mod plan;
mod pull;
mod readme;
mod refund_desk;
mod resume;
mod scope;
mod scope_endings;
mod scope_foreign;
mod sdks;
mod secrets;
mod shell;
mod snapshot;
mod streams;
mod support;
#[path = "../host/traps.rs"]
mod traps;
mod wide;
