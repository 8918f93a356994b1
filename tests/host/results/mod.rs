//! Stored runs as a user meets them: read back, listed, shown, compared. No engine is asked.

mod browser;
mod commands;
mod compare;
mod drills;
mod growth;
mod look;
mod merge;
mod odd;
mod planted;
mod read;
mod sample;
mod schema;
mod statistics;
