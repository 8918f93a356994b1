//! Tests that need no engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "clippy takes only the test functions themselves for tests, not what helps them"
)]

mod check;
mod docker_record;
mod doctor;
mod drills;
mod evaluation;
mod examples;
mod init;
mod install;
mod policy;
mod relay;
mod results;
mod snapshot;
mod traps;
