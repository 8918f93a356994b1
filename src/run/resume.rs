//! `--resume`: a stored run gone on with, in its folder and under its id. Owns what must be the same (package, policy,
//! snapshot) and which trials are still to be run: those that were not measured. What the run owes is settled first.

use super::accept::{Accepted, Planned};
use crate::docker::Docker;
use crate::exit::Refusal;
use crate::ids::Digest;
use crate::redact::Redactor;
use crate::results::read;
use crate::results::record::{RunOutcome, RunRecord, TrialRecord};
use crate::results::store::Store;
use crate::scope;
use crate::verdict::Outcome;
use anyhow::Result;
use camino::Utf8Path;
use std::collections::BTreeMap;

/// A run that is gone on with.
pub struct Resumed {
    /// As it was stored.
    pub earlier: RunRecord,
    /// Its folder.
    pub store: Store,
}

/// Opens a run to go on with it, settles what it owes, and leaves in `accepted` only the trials that are missing.
///
/// # Errors
/// A refusal where it lives, is unknown, or is of another package or policy; what the engine says.
pub fn open(
    results: &Utf8Path,
    name: &str,
    accepted: &mut Accepted,
    docker: &Docker,
    redactor: &Redactor,
) -> Result<Resumed> {
    let stored = read::find(results, name)?;
    let earlier = stored.record;
    same("the evaluation package", &earlier.evaluation.digest, &accepted.package.digest)?;
    same("the policy", &earlier.evaluation.policy, &accepted.policy.digest)?;
    let folder = read::resolve(results, name)?;
    let settled = scope::finish(&earlier.run, &folder, &results.join("scopes"), docker)?;
    if settled.is_none() {
        return Err(Refusal::new(format!("run {} is still alive", earlier.run)).at("--resume").into());
    }
    accepted.seed = earlier.seed;
    accepted.trials = missing(&earlier.trials, accepted);
    accepted.snapshot = earlier.target.as_ref().map(|target| target.snapshot.clone());
    accepted.repeat = earlier.repeat;
    accepted.shard.clone_from(&earlier.shard);
    let mut store = Store::reopen(&folder, redactor.clone())?;
    store.count_redactions(&earlier.redactions);
    Ok(Resumed { earlier, store })
}

fn same(what: &str, stored: &Digest, now: &Digest) -> Result<(), Refusal> {
    if stored == now {
        return Ok(());
    }
    let differs = format!("{what} is not the one that the run was started with: {stored} then, {now} now");
    Err(Refusal::new(differs).at("--resume").hint("start a new run"))
}

/// Refuses a snapshot that differs from the one of the run that is gone on with.
///
/// # Errors
/// The refusal.
pub fn check_snapshot(accepted: &Accepted, now: &Digest) -> Result<(), Refusal> {
    accepted.snapshot.as_ref().map_or(Ok(()), |stored| same("the target's snapshot", stored, now))
}

/// The stored trials that were not measured, with their cases.
fn missing(stored: &[TrialRecord], accepted: &Accepted) -> Vec<Planned> {
    let cases: BTreeMap<_, _> =
        accepted.trials.iter().map(|planned| (planned.id.case.clone(), planned.case.clone())).collect();
    let unmeasured = stored.iter().filter(|trial| matches!(trial.outcome, Outcome::NotRun | Outcome::Uncertain));
    // The policy is the same one, so its drills are.
    let drill = |name: &str| Some((std::sync::Arc::new(accepted.policy.drills.get(name)?.clone()), accepted.seed?));
    unmeasured
        .filter_map(|trial| {
            let drill = trial.drill.as_deref().and_then(drill);
            Some(Planned { id: trial.id(), case: cases.get(&trial.case)?.clone(), drill })
        })
        .collect()
}

/// The stored record as the beginning of what comes now.
pub fn begin(earlier: &RunRecord, now: RunRecord) -> RunRecord {
    RunRecord {
        finished: None,
        exit: None,
        outcome: RunOutcome::Running,
        resumed: earlier.resumed + 1,
        jobs: now.jobs,
        engine: now.engine,
        crashlab: now.crashlab,
        ..earlier.clone()
    }
}

/// Stored trials with what came now in the place of what was not measured.
pub fn merge(earlier: &[TrialRecord], now: Vec<TrialRecord>) -> Vec<TrialRecord> {
    let mut fresh: BTreeMap<String, TrialRecord> = now.into_iter().map(|trial| (trial.trial.clone(), trial)).collect();
    earlier.iter().map(|trial| fresh.remove(&trial.trial).unwrap_or_else(|| trial.clone())).collect()
}
