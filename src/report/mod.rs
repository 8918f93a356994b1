//! Finished results in, text out: pure functions of records that write to a sink, the only writers of standard output.
//!
//! Invariant: what a target, a case, a world or a provider says is neutral in every form (terminal, XML, Markdown, HTML)
//! and exact in JSON. A form never changes a number: it shows what the record holds.

pub mod events;
pub mod file;
pub mod html;
pub mod human;
pub mod junit;
pub mod look;
pub mod markdown;
pub mod pipe;
pub mod raw;
pub mod table;
pub mod text;

mod words;

use crate::cli::{Format, Global};
use crate::results::record::RunRecord;
use anyhow::{Context as _, Result};
use camino::Utf8Path;
use look::Look;
use serde::Serialize;
use std::io::Write;

/// Prints a run that ended in the form that was asked for; `jsonl` has told everything as it happened. `path` is the
/// run's folder.
///
/// # Errors
/// The sink's.
pub fn run(global: &Global, record: &RunRecord, path: &Utf8Path, out: &mut dyn Write) -> Result<()> {
    match global.format {
        Format::Json => json(record, out),
        Format::Junit => junit::run(record, out),
        Format::Jsonl => Ok(()),
        Format::Human | Format::Markdown => human::run(record, path, &Look::of(global.color), out),
    }
}

/// One JSON document, as it is stored: indented, with a line end.
///
/// # Errors
/// The sink's.
pub fn json(value: &impl Serialize, out: &mut dyn Write) -> Result<()> {
    let bytes = crate::results::store::pretty(value)?;
    out.write_all(&bytes).context("failed to write to standard output")
}

/// A remark on standard error; standard output carries the result and nothing else.
pub fn note(text: &str) {
    let lines = text::safe_lines(text).join("\n");
    // Nobody is left to be told where standard error is gone.
    let _ = writeln!(std::io::stderr(), "crashlab: {lines}");
}
