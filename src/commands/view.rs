//! `crashlab view`: a stored run at a glance, one trial's story, everything raw, or a page. Reads only.

use crate::cli::{Format, Global, View};
use crate::exit::{Exit, Refusal};
use crate::report::look::Look;
use crate::report::text::safe;
use crate::report::{self, human, raw};
use crate::results::read::{self, StoredRun};
use crate::results::story;
use crate::scope;
use anyhow::{Context as _, Result};
use camino::Utf8Path;
use std::io::Write;

/// Shows a stored run.
///
/// # Errors
/// A refusal (unknown run or trial, a form that this command has not), or the sink's.
pub fn view(global: &Global, args: &View, out: &mut dyn Write) -> Result<Exit> {
    let run = read::find(&global.results, &args.run)?;
    tell(global, &run);
    if let Some(file) = &args.html {
        write_page(global, file, &run, args.trial.is_some(), out)?;
    } else if args.raw {
        show_raw(global, &run, out)?;
    } else if let Some(trial) = &args.trial {
        show_trial(global, &run, trial, out)?;
    } else {
        show_run(global, &run, out)?;
    }
    Ok(Exit::Success)
}

fn tell(global: &Global, run: &StoredRun) {
    if !run.finished && !global.quiet {
        let alive = scope::journal::is_live(&run.folder().shown()).unwrap_or(false);
        let state = if alive { "is still running" } else { "has not come to its end" };
        report::note(&format!("run {} {state}: what is shown are the trials that have ended", run.record.run));
    }
    run.notes.iter().for_each(|note| report::note(note));
}

fn show_run(global: &Global, run: &StoredRun, out: &mut dyn Write) -> Result<()> {
    match global.format {
        Format::Human => human::run(&run.record, &run.folder().shown(), &Look::of(global.color), out),
        Format::Json => report::json(&run.record, out),
        Format::Junit => report::junit::run(&run.record, out),
        Format::Jsonl | Format::Markdown => Err(no_form("view", "human, json or junit")),
    }
}

fn write_page(global: &Global, file: &Utf8Path, run: &StoredRun, one_trial: bool, out: &mut dyn Write) -> Result<()> {
    if one_trial {
        return Err(Refusal::new("a page shows the whole run")
            .at("--trial")
            .hint("leave --trial or --html out")
            .into());
    }
    report::file::write(file, |page| report::html::run(run, page))?;
    match global.format {
        Format::Human => writeln!(out, "{}", safe(file.as_str())).context("failed to write"),
        _ => show_run(global, run, out),
    }
}

fn show_trial(global: &Global, run: &StoredRun, name: &str, out: &mut dyn Write) -> Result<()> {
    let story = story::read(run, run.trial(name)?)?;
    match global.format {
        Format::Human => human::story(&story, &Look::of(global.color), out),
        Format::Json => report::json(&story, out),
        _ => Err(no_form("view --trial", "human or json")),
    }
}

fn show_raw(global: &Global, run: &StoredRun, out: &mut dyn Write) -> Result<()> {
    let left_out = match global.format {
        Format::Human => raw::text(run.folder(), &Look::of(global.color), out)?,
        Format::Json => raw::json(run.folder(), out)?,
        _ => return Err(no_form("view --raw", "human or json")),
    };
    left_out.iter().for_each(|note| report::note(note));
    Ok(())
}

/// A form that a command does not have.
pub(crate) fn no_form(command: &str, forms: &str) -> anyhow::Error {
    Refusal::new(format!("{command} has no such form")).at("--format").hint(format!("use {forms}")).into()
}
