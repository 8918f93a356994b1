//! Which trial when: `jobs` targets run at once, and some more are being prepared or judged meanwhile, so that what stands
//! before and after a target costs no wall time. Trials are taken in their order; there is no other limit.

use super::accept::{Accepted, Planned};
use super::attempt;
use super::lab::Lab;
use super::progress::Progress;
use super::proof;
use crate::docker::Engine;
use crate::results::record::TrialRecord;
use crate::verdict::Outcome;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// How many trials are prepared or judged beside those that run.
const AHEAD: usize = 8;

/// Runs the trials; gives one record each, in their order.
pub fn run_trials(lab: &Lab<'_>, accepted: &Accepted, engine: &Engine, progress: &Progress) -> Vec<TrialRecord> {
    let trials = &accepted.trials;
    let next = AtomicUsize::new(0);
    let halted = AtomicBool::new(false);
    let done: Vec<Mutex<Option<TrialRecord>>> = trials.iter().map(|_| Mutex::new(None)).collect();
    let workers = trials.len().min(accepted.jobs as usize + AHEAD.min(accepted.jobs as usize));
    std::thread::scope(|threads| {
        threads.spawn(|| proof::make(lab, engine));
        for _ in 0..workers {
            threads.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::SeqCst);
                    let Some(planned) = trials.get(at) else { break };
                    if accepted.stop.is_raised() || halted.load(Ordering::SeqCst) {
                        break;
                    }
                    let record = with_retries(lab, planned, accepted.retries, progress, &halted);
                    if accepted.fail_fast && matches!(record.outcome, Outcome::Failed | Outcome::Uncertain) {
                        halted.store(true, Ordering::SeqCst);
                    }
                    progress.trial(&record);
                    *done[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
                }
            });
        }
    });
    let result = |(slot, planned): (Mutex<Option<TrialRecord>>, &Planned)| {
        slot.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(|| TrialRecord::not_run(&planned.id))
    };
    done.into_iter().zip(trials).map(result).collect()
}

fn with_retries(
    lab: &Lab<'_>,
    planned: &Planned,
    retries: u32,
    progress: &Progress,
    halted: &AtomicBool,
) -> TrialRecord {
    let mut left = retries;
    loop {
        progress.started(&planned.id);
        let record = attempt::attempt(lab, planned, halted);
        if record.outcome != Outcome::Uncertain || left == 0 || lab.accepted.stop.is_raised() {
            return record;
        }
        left -= 1;
        progress.retry(&record);
    }
}
