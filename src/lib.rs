//! CrashLab: a crash-test lab for AI agents.
//!
//! The rooms stand in the order in which data flows; a room knows only the rooms above it in this list. Clippy's
//! `disallowed-methods` keeps the walls (`clippy.toml`), and each file opens with what it owns and what it must not do.

pub mod cli;
pub mod exit;
pub mod ids;
pub mod interrupt;
pub mod json;
pub mod secret;
pub mod totals;

pub mod process;
pub mod trace;

pub mod docker;
pub mod drills;
pub mod policy;

pub mod redact;

pub mod relay;

pub mod gateway;
pub mod image;
pub mod scope;
pub mod snapshot;

pub mod verdict;

pub mod evaluation;
pub mod trial;

pub mod results;

pub mod report;

pub mod commands;
pub mod run;
