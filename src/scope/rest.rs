//! Finishing what a dead run owes, from its journal, under the same rules as a live one. Started by a person only
//! (`crashlab clean`) or by resuming that very run; `run` and `list` only mention it.

use super::journal::{self, Journal, Step};
use super::ledger::{Resource, owed};
use super::remove::{Removal, Remover};
use super::{Cleanup, Failure};
use crate::docker::Docker;
use crate::ids::RunId;
use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};

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

/// The runs below `runs` that owe a clean-up, oldest first. A folder that cannot be read is left out.
pub fn leftovers(runs: &Utf8Path) -> Vec<Leftover> {
    let Ok(folders) = runs.read_dir_utf8() else { return Vec::new() };
    let mut found: Vec<Leftover> = folders.flatten().filter_map(|entry| leftover(entry.path())).collect();
    found.sort_by(|a, b| a.run.cmp(&b.run));
    found
}

fn leftover(folder: &Utf8Path) -> Option<Leftover> {
    let run = RunId::try_from(folder.file_name()?.to_owned()).ok()?;
    let owed = owes(folder).ok().filter(|owed| !owed.is_empty())?;
    let live = journal::is_live(folder).ok()?;
    Some(Leftover { run, folder: folder.to_owned(), live, owed })
}

/// Removes what a dead run owes, newest first. None where the run lives (or somebody else is finishing it).
///
/// # Errors
/// Where its journal cannot be taken over.
pub fn finish(run: &RunId, run_folder: &Utf8Path, scopes: &Utf8Path, docker: &Docker) -> Result<Option<Cleanup>> {
    let Some(mut journal) = Journal::take_over(run_folder)? else { return Ok(None) };
    let docker = docker.with_buildx_config(&scopes.join(run.as_str()).join("buildx"));
    let remover = Remover { run, docker: &docker, scopes };
    let mut cleanup = Cleanup::default();
    // Read again under the lock: somebody else may have finished some of it meanwhile.
    for resource in owed(&journal::read(run_folder)?).into_iter().rev() {
        settle(&remover, &mut journal, &mut cleanup, resource);
    }
    Ok(Some(cleanup))
}

fn settle(remover: &Remover<'_>, journal: &mut Journal, cleanup: &mut Cleanup, resource: Resource) {
    let failure = |resource: &Resource, reason: String| Failure {
        resource: resource.clone(),
        reason,
        command: format!("crashlab clean {}", remover.run),
    };
    let (step, reason) = match remover.remove(&resource) {
        Ok(Removal::Gone) => (Step::Removed, None),
        Ok(Removal::Kept(reason)) => (Step::Kept, Some(reason)),
        Err(error) => {
            cleanup.failures.push(failure(&resource, format!("{error:#}")));
            return;
        }
    };
    if let Err(error) = journal.write(&resource.line(step, reason.clone())) {
        cleanup.failures.push(failure(&resource, format!("its end could not be recorded: {error:#}")));
    }
    match reason {
        None => cleanup.removed.push(resource),
        Some(reason) => cleanup.kept.push((resource, reason)),
    }
}
