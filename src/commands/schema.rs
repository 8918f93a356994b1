//! `crashlab schema`: prints the JSON Schema of a file format. The registry of which room describes which format.

use crate::cli::{Schema, SchemaName};
use crate::exit::Exit;
use crate::policy;
use crate::report;
use crate::results::schema;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::io::Write;

/// Prints a schema, whatever `--format` says: it is JSON.
///
/// # Errors
/// The sink's.
pub fn schema(args: &Schema, out: &mut dyn Write) -> Result<Exit> {
    report::json(&find(args.name)?, out)?;
    Ok(Exit::Success)
}

/// The schema of a format.
///
/// # Errors
/// None in a binary that passed its tests.
pub fn find(name: SchemaName) -> Result<Value> {
    match name {
        SchemaName::Run => schema::run(),
        SchemaName::Event => schema::event(),
        SchemaName::Journal => schema::journal(),
        SchemaName::Policy => parse(policy::schema_text()),
        SchemaName::Case => parse(policy::case_schema_text()),
    }
}

fn parse(text: &str) -> Result<Value> {
    serde_json::from_str(text).context("a published schema is no JSON")
}
