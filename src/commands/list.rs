//! `crashlab list`: the stored runs, oldest first. Reads the head of each and no trial.

use crate::cli::{Format, Global};
use crate::commands::view::no_form;
use crate::exit::Exit;
use crate::report::look::Look;
use crate::report::{self, human};
use crate::results::list;
use crate::scope;
use anyhow::Result;
use std::io::Write;

/// Lists the stored runs.
///
/// # Errors
/// A refusal (a form that this command has not), or the sink's.
pub fn list(global: &Global, out: &mut dyn Write) -> Result<Exit> {
    let runs = list::list(&global.results)?;
    match global.format {
        Format::Human => {
            human::runs(&runs, &Look::of(global.color), out)?;
            if runs.is_empty() && !global.quiet {
                report::note(&format!("there is no stored run in {}", global.results));
            }
        }
        Format::Json => report::json(&runs, out)?,
        _ => return Err(no_form("list", "human or json")),
    }
    // Mentioned, and never touched: a person finishes them.
    let dead = scope::leftovers(&global.results.join("runs")).into_iter().filter(|leftover| !leftover.live);
    if !global.quiet {
        dead.for_each(|leftover| report::note(&leftover.note()));
    }
    Ok(Exit::Success)
}
