//! `crashlab remove`: deletes stored runs. Owns the rule that a run whose clean-up is owed, or whose process is alive, is
//! never deleted: its journal is the only way to what it left behind. Nothing is deleted before every name was understood.

use crate::cli::{Format, Global, Remove};
use crate::commands::view::no_form;
use crate::exit::{Exit, Refusal};
use crate::report;
use crate::report::text::{plural, safe};
use crate::results::folder::Folder;
use crate::results::{list, read, story};
use crate::scope;
use anyhow::{Context as _, Result};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// What became of the runs.
#[derive(Debug, Default, Serialize)]
struct Removal {
    removed: Vec<String>,
    kept: Vec<Kept>,
}

#[derive(Debug, Serialize)]
struct Kept {
    run: String,
    reason: String,
}

/// Deletes stored runs.
///
/// # Errors
/// A refusal (unknown run, clean-up owed, no time), or the disk's.
pub fn remove(global: &Global, args: &Remove, now: SystemTime, out: &mut dyn Write) -> Result<Exit> {
    if !matches!(global.format, Format::Human | Format::Json) {
        return Err(no_form("remove", "human or json"));
    }
    let mut folders = named(global, args)?;
    let mut removal = Removal::default();
    if let Some(age) = &args.older_than {
        let age = humantime::parse_duration(age).map_err(|error| {
            Refusal::new(format!("{age:?} is no time: {error}")).at("--older-than").hint("write 30d or 12h")
        })?;
        for folder in
            older(&global.results, age, now)?.into_iter().filter(|folder| !folders.contains(folder)).collect::<Vec<_>>()
        {
            match reason_to_keep(&folder) {
                None => folders.push(folder),
                Some(reason) => removal.kept.push(Kept { run: name(&folder), reason }),
            }
        }
    }
    for folder in folders {
        delete(&folder)?;
        removal.removed.push(name(&folder));
    }
    show(global, &removal, out)?;
    Ok(Exit::Success)
}

/// The runs that were named; each may be deleted, or the whole command is refused.
fn named(global: &Global, args: &Remove) -> Result<Vec<Utf8PathBuf>> {
    let mut folders: Vec<Utf8PathBuf> = Vec::new();
    for run in &args.runs {
        let folder = read::resolve(&global.results, run)?;
        let is_link = |error: anyhow::Error| Refusal::new(format!("is not removed: {}", error.root_cause()));
        Folder::open(&folder).map_err(|error| is_link(error).at(folder.as_str()))?;
        if let Some(reason) = reason_to_keep(&folder) {
            let hint = format!("`crashlab clean {}` finishes its clean-up", name(&folder));
            return Err(Refusal::new(format!("run {} is not removed: {reason}", name(&folder))).hint(hint).into());
        }
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    Ok(folders)
}

fn reason_to_keep(folder: &Utf8Path) -> Option<String> {
    match scope::owes(folder) {
        Ok(owed) if owed.is_empty() => None,
        Ok(owed) => Some(format!("its clean-up is owed for {}", plural(owed.len() as u64, "resource"))),
        Err(error) => Some(format!("its journal cannot be read ({error:#})")),
    }
}

/// The runs that started longer ago than `age`; one whose start is not known is none of them.
fn older(results: &Utf8Path, age: Duration, now: SystemTime) -> Result<Vec<Utf8PathBuf>> {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let limit = now.saturating_sub(age).as_millis();
    let started = |run: &list::Listed| run.started.as_deref().and_then(story::moment);
    let old = |run: &list::Listed| started(run).is_some_and(|started| u128::from(started) < limit);
    let runs = list::list(results)?.into_iter().filter(old);
    Ok(runs.map(|run| results.join("runs").join(run.run)).collect())
}

fn name(folder: &Utf8Path) -> String {
    folder.file_name().unwrap_or(folder.as_str()).to_owned()
}

fn delete(folder: &Utf8Path) -> Result<()> {
    let whole = folder.canonicalize_utf8().with_context(|| format!("failed to resolve {folder}"))?;
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(Refusal::new("is no folder of a stored run").at(folder.as_str()).into());
    };
    Folder::open(parent)?.remove(name.as_ref())
}

fn show(global: &Global, removal: &Removal, out: &mut dyn Write) -> Result<()> {
    for kept in &removal.kept {
        report::note(&format!("kept {}: {}", kept.run, kept.reason));
    }
    if global.format == Format::Json {
        return report::json(removal, out);
    }
    removal.removed.iter().try_for_each(|run| writeln!(out, "{}", safe(run))).context("failed to write")
}
