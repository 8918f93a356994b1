//! Finishing what a dead run owes, from its journal, under the same rules as a live one. Started by a person only
//! (`crashlab clean`) or by resuming that very run; `run` and `list` only mention it.

use super::journal::{self, Journal, Kind};
use super::ledger::{Resource, owed};
use super::remove::{Removal, Remover};
use super::{Cleanup, is_own, orphans, settle, wait_until_sure};
use crate::docker::Docker;
use crate::exit::Refusal;
use crate::ids::RunId;
use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use std::time::SystemTime;

/// A run that still owes a clean-up.
#[derive(Debug, Clone)]
pub struct Leftover {
    /// Which run.
    pub run: RunId,
    /// Its folder.
    pub folder: Utf8PathBuf,
    /// Whether its process is there: then it is not ours to finish.
    pub live: bool,
    /// What it owes, in the order of creation.
    pub owed: Vec<Resource>,
}

impl Leftover {
    /// What a person is told of it.
    pub fn note(&self) -> String {
        format!("run {} ended without its clean-up; finish it with: crashlab clean {0}", self.run)
    }
}

/// What a stored run still owes; nothing where it has no journal.
///
/// # Errors
/// Where the journal cannot be read.
pub fn owes(run_folder: &Utf8Path) -> Result<Vec<Resource>> {
    if !run_folder.join(journal::FILE).exists() {
        return Ok(Vec::new());
    }
    Ok(owed(&journal::read(run_folder)?))
}

/// The runs below `runs` that owe a clean-up, oldest first. A folder that cannot be read is left out, and so is a link: it
/// may have been planted, and what it leads to is not this results folder's.
pub fn leftovers(runs: &Utf8Path) -> Vec<Leftover> {
    let Some(folders) = is_own(runs).then(|| runs.read_dir_utf8().ok()).flatten() else { return Vec::new() };
    let mut found: Vec<Leftover> = folders.flatten().filter_map(|entry| leftover(entry.path())).collect();
    found.sort_by(|a, b| a.run.cmp(&b.run));
    found
}

fn leftover(folder: &Utf8Path) -> Option<Leftover> {
    let run = RunId::try_from(folder.file_name()?.to_owned()).ok()?;
    if !is_own(folder) {
        return None;
    }
    if journal::is_settled(folder).ok()? {
        return None;
    }
    let owed = owes(folder).ok().filter(|owed| !owed.is_empty())?;
    let live = journal::is_live(folder).ok()?;
    Some(Leftover { run, folder: folder.to_owned(), live, owed })
}

/// Removes what a dead run owes, newest first. None where the run lives (or somebody else is finishing it). A signal ends it
/// between two removals: the rest stays owed.
///
/// # Errors
/// Where its journal cannot be taken over; a refusal where a link stands in the place of the scopes' folder: what it leads
/// to was never ours to remove.
pub fn finish(run: &RunId, run_folder: &Utf8Path, scopes: &Utf8Path, docker: &Docker) -> Result<Option<Cleanup>> {
    if scopes.symlink_metadata().is_ok() && !is_own(scopes) {
        return Err(Refusal::new("is no folder (a symbolic link is not followed here)").at(scopes.as_str()).into());
    }
    let Some(mut journal) = Journal::take_over(run_folder)? else { return Ok(None) };
    let scopes = scopes.canonicalize_utf8().unwrap_or_else(|_| scopes.to_owned());
    let config = scopes.join(run.as_str()).join("buildx");
    let docker = docker.with_buildx_config(&config);
    // Read again under the lock: somebody else may have finished some of it meanwhile.
    let owed: Vec<Resource> = owed(&journal::read(run_folder)?).into_iter().rev().map(since_it_was_asked).collect();
    let unborn = owed.iter().any(|resource| resource.doubt.is_some());
    let orphan = if unborn { orphans::wait_for_none(&config, docker.stop()) } else { None };
    let remover = Remover { run, docker: &docker, scopes: &scopes, orphan, made_folder: false };
    let mut cleanup = Cleanup::default();
    let mut unsure = Vec::new();
    for resource in owed {
        if docker.stop().is_raised() {
            return Ok(Some(cleanup));
        }
        match remover.remove(&resource) {
            Ok(Removal::Unsure) => unsure.push(resource),
            outcome => settle(&remover, &mut journal, &mut cleanup, vec![(resource, outcome)]),
        }
    }
    for resource in unsure {
        let outcome = wait_until_sure(&remover, &resource);
        settle(&remover, &mut journal, &mut cleanup, vec![(resource, outcome)]);
    }
    Ok(Some(cleanup))
}

/// When the process ended is not known; that its docker clients are gone is looked at, and what they had asked the engine
/// for comes soon after it was asked for.
fn since_it_was_asked(resource: Resource) -> Resource {
    let without_identity = match resource.kind {
        Kind::Volume => resource.created.is_none(),
        Kind::Folder => false,
        _ => resource.id.is_none(),
    };
    match humantime::parse_rfc3339(&resource.asked) {
        Ok(asked) if without_identity => resource.doubtful(asked.min(SystemTime::now())),
        _ => resource,
    }
}
