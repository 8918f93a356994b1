//! What is the same for all trials, made once a run: the snapshot, the image, the engine's facts. Owns the order of these
//! steps and what of them the run's record keeps.

use super::accept::{Accepted, snapshot_source};
use super::behind::Behind;
use super::doors::Doors;
use super::progress::Progress;
use super::proof::Proof;
use super::record;
use crate::docker::Engine;
use crate::image::{self, TargetImage};
use crate::redact::Redactor;
use crate::results::record::RunRecord;
use crate::results::store::Store;
use crate::scope::Scope;
use crate::snapshot;
use crate::trace::Trace;
use crate::trial::{Ground, Shortfall};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};

/// What all trials share.
pub struct Lab<'a> {
    /// What was accepted.
    pub accepted: &'a Accepted,
    /// What a sandbox stands on.
    pub ground: Ground<'a>,
    /// Where trials are written.
    pub store: &'a Store,
    /// The targets' ways out, where any are declared.
    pub doors: Option<Doors>,
    /// Takes the run's secrets out of what is written.
    pub redactor: Redactor,
    /// Where the time goes.
    pub trace: Trace,
    /// Takes away what trials leave.
    pub behind: Behind,
    /// How many targets may run at once: `--jobs`, and nothing else limits them.
    pub slots: Slots,
    /// How many sandboxes may be in the making at once: what the engine bears.
    pub starts: Slots,
    /// That the sandbox is what was asked for; no target starts before it is there.
    pub proof: Proof,
    /// What the engine does not enforce, over all trials.
    pub shortfalls: Mutex<BTreeSet<Shortfall>>,
}

impl Lab<'_> {
    /// What the engine does not enforce, each once.
    pub fn shortfalls(&self) -> Vec<crate::results::record::Shortfall> {
        self.shortfalls.lock().unwrap_or_else(PoisonError::into_inner).iter().map(record::shortfall).collect()
    }
}

/// Makes what all trials share, and writes into the record what is known of it.
///
/// # Errors
/// What a step says: then no trial was run.
pub fn provision<'a>(
    scope: &'a Scope,
    store: &'a Store,
    accepted: &'a Accepted,
    engine: &Engine,
    record: &mut RunRecord,
    progress: &Progress,
) -> Result<Lab<'a>> {
    let folder = scope.folder().join("snapshot");
    std::fs::create_dir(&folder).with_context(|| format!("failed to make {folder}"))?;
    let snapshot = snapshot::take(
        &snapshot_source(&accepted.target, &accepted.package, &accepted.policy, &accepted.results),
        &folder,
        &accepted.stop,
    )?;
    super::resume::check_snapshot(accepted, &snapshot.digest)?;
    progress.warn_all(&snapshot.warnings);
    record.target = Some(record::target(accepted, &snapshot));
    store.keep_manifest(&snapshot.manifest_json()?)?;
    let image = get_image(scope, accepted, &snapshot, progress)?;
    record::set_image(record, &image);
    let doors = Doors::open(scope, accepted, engine)?;
    store.write_run(record.clone())?;
    Ok(Lab {
        accepted,
        ground: Ground {
            scope,
            policy: &accepted.policy,
            image: image.id.to_string(),
            image_env: image.env,
            source: snapshot.folder.to_string(),
        },
        store,
        doors,
        trace: accepted.trace.clone(),
        redactor: store.redactor().clone(),
        behind: Behind::default(),
        slots: Slots::new(accepted.jobs),
        starts: Slots::new(starts()),
        proof: Proof::default(),
        shortfalls: Mutex::default(),
    })
}

fn get_image(
    scope: &Scope,
    accepted: &Accepted,
    snapshot: &snapshot::Snapshot,
    progress: &Progress,
) -> Result<TargetImage> {
    progress.step("image");
    let policy = &accepted.policy;
    let writable = &policy.sandbox.writable;
    let image = image::obtain(scope, &policy.target.image, writable, &snapshot.folder, accepted.buildkit.as_deref())?;
    progress.warn_all(&image.warnings);
    Ok(image)
}

/// A start is work for the CPU, mostly the engine's: many at once only make each of them late.
fn starts() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores * 2).unwrap_or(4).max(4)
}

/// How many targets may run at once; what comes before and after a target needs no slot.
#[derive(Debug)]
pub struct Slots {
    free: Mutex<u32>,
    freed: Condvar,
}

/// One running target's place; given back when dropped.
#[derive(Debug)]
pub struct Slot<'a>(&'a Slots);

impl Slots {
    fn new(count: u32) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for a place.
    pub fn take(&self) -> Slot<'_> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Slot(self)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}
