//! `crashlab merge`: a new stored run out of shards; prints its id. The shards stay as they are.

use crate::cli::{Format, Global, Merge};
use crate::commands::view::no_form;
use crate::exit::Exit;
use crate::ids::RunId;
use crate::redact::Redactor;
use crate::report;
use crate::results::folder::Folder;
use crate::results::merge::{Shards, fit};
use crate::results::read;
use crate::results::record::RunRecord;
use crate::results::store::Store;
use anyhow::{Context as _, Result};
use std::ffi::OsStr;
use std::io::Write;
use std::time::SystemTime;

/// Merges shards.
///
/// # Errors
/// A refusal (unknown run, runs that do not fit together), or the disk's.
pub fn merge(global: &Global, args: &Merge, out: &mut dyn Write) -> Result<Exit> {
    if !matches!(global.format, Format::Human | Format::Json) {
        return Err(no_form("merge", "human or json"));
    }
    let runs = args.runs.iter().map(|run| read::find(&global.results, run)).collect::<Result<Vec<_>>>()?;
    runs.iter().flat_map(|run| &run.notes).for_each(|note| report::note(note));
    let shards = fit(runs, args.partial)?;
    let record = store(global, &shards)?;
    match global.format {
        Format::Json => report::json(&record, out)?,
        _ => writeln!(out, "{}", record.run).context("failed to write")?,
    }
    Ok(Exit::Success)
}

/// Writes the merged run, or leaves nothing of it.
fn store(global: &Global, shards: &Shards) -> Result<RunRecord> {
    let id = RunId::generate(SystemTime::now())?;
    let record = shards.record(id.clone())?;
    // What the shards hold was redacted when it was written.
    let mut store = Store::create(&global.results, &id, Redactor::new(Vec::new())?)?;
    let written = shards.write(&mut store, record);
    if written.is_err() {
        let removed = Folder::open(&global.results.join("runs")).and_then(|runs| runs.remove(OsStr::new(id.as_str())));
        if let Err(error) = removed {
            report::note(&format!("what was written of {id} could not be removed: {error:#}"));
        }
    }
    written
}
