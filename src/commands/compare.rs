//! `crashlab compare`: two stored runs, case by case. Owns what `--fail-on regression` makes of it: 1 where a case got worse
//! by more than chance, 3 where nothing could be compared, since a gate must not pass for want of measurements.

use crate::cli::{Compare, Format, Global};
use crate::commands::view::no_form;
use crate::exit::Exit;
use crate::report::look::Look;
use crate::report::{self, human, markdown};
use crate::results::compare::{Change, Comparison, compare as compare_runs};
use crate::results::read;
use anyhow::Result;
use std::io::Write;

/// Compares two stored runs.
///
/// # Errors
/// A refusal (unknown run, a form that this command has not), or the sink's.
pub fn compare(global: &Global, args: &Compare, out: &mut dyn Write) -> Result<Exit> {
    let base = read::find(&global.results, &args.base)?;
    let candidate = read::find(&global.results, &args.candidate)?;
    base.notes.iter().chain(&candidate.notes).for_each(|note| report::note(note));
    let comparison = compare_runs(&base.record, &candidate.record);
    if let Some(file) = &args.html {
        report::file::write(file, |page| report::html::compare(&comparison, page))?;
    }
    match global.format {
        Format::Human => human::compare(&comparison, &Look::of(global.color), out)?,
        Format::Json => report::json(&comparison, out)?,
        Format::Markdown => markdown::compare(&comparison, out)?,
        Format::Jsonl | Format::Junit => return Err(no_form("compare", "human, json or markdown")),
    }
    Ok(if args.fail_on.is_some() { gate(&comparison) } else { Exit::Success })
}

fn gate(comparison: &Comparison) -> Exit {
    let compared = comparison.cases.iter().any(|case| case.change != Change::NotMeasured);
    match (comparison.count(Change::Regressed), compared) {
        (0, true) => Exit::Success,
        (0, false) => {
            report::note("no case was measured on both sides: whether there is a regression is not known");
            Exit::Uncertain
        }
        _ => Exit::Failed,
    }
}
