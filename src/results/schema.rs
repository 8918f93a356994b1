//! The published JSON Schemas (2020-12) of what this room stores and tells: `run.json`, events, the journal. Each is
//! complete in itself; the event schema shares the definitions of the run's.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Of `run.json`.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn run() -> Result<Value> {
    parse(include_str!("schema/run.json"))
}

/// Of a line of `run --format jsonl`.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn event() -> Result<Value> {
    let mut event = parse(include_str!("schema/event.json"))?;
    let definitions = run()?.get("$defs").cloned().unwrap_or_default();
    if let Some(event) = event.as_object_mut() {
        event.insert("$defs".to_owned(), definitions);
    }
    Ok(event)
}

/// Of a line of `journal.jsonl`.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn journal() -> Result<Value> {
    parse(include_str!("schema/journal.json"))
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).context("a published schema is no JSON")
}
