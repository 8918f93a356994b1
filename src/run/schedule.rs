//! Which trial when: `jobs` targets run at once, and some more are being prepared or judged meanwhile, so that what stands
//! before and after a target costs no wall time. Trials are taken in their order; there is no other limit.

use super::accept::{Accepted, Planned};
use super::attempt;
use super::lab::Lab;
use super::progress::Progress;
use super::{guarded, proof, record};
use crate::docker::Engine;
use crate::ids::TrialId;
use crate::interrupt::Interrupt;
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
        // A panic is told by whoever waits for the proof; it must not take the trials that are over with it.
        let proof = threads.spawn(|| {
            guarded(|| {
                proof::make(lab, engine);
                Ok(())
            })
        });
        threads.spawn(|| {
            guarded(|| {
                lab.behind.work(lab.ground.scope, &lab.trace);
                Ok(())
            })
        });
        let work = |_| {
            threads.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::SeqCst);
                    let Some(planned) = trials.get(at) else { break };
                    if accepted.stop.is_raised() || halted.load(Ordering::SeqCst) {
                        break;
                    }
                    let record = or_uncertain(&planned.id, &accepted.stop, || {
                        with_retries(lab, planned, accepted.retries, progress, &halted)
                    });
                    if accepted.fail_fast && matches!(record.outcome, Outcome::Failed | Outcome::Uncertain) {
                        halted.store(true, Ordering::SeqCst);
                    }
                    progress.trial(&record);
                    *done[at].lock().unwrap_or_else(PoisonError::into_inner) = Some(record);
                }
            })
        };
        // A thread that ended in a panic is over as well.
        let workers: Vec<_> = (0..workers).map(work).collect();
        workers.into_iter().for_each(|worker| drop(worker.join()));
        drop(proof.join());
        lab.behind.end();
    });
    let result = |(slot, planned): (Mutex<Option<TrialRecord>>, &Planned)| {
        slot.into_inner().unwrap_or_else(PoisonError::into_inner).unwrap_or_else(|| TrialRecord::not_run(&planned.id))
    };
    done.into_iter().zip(trials).map(result).collect()
}

/// A panic in a trial makes that trial uncertain; the others, those that are over above all, stay what they are. What it
/// had made is the scope's to remove.
fn or_uncertain(id: &TrialId, stop: &Interrupt, trial: impl FnOnce() -> TrialRecord) -> TrialRecord {
    guarded(|| Ok(trial())).unwrap_or_else(|error| record::unprovisioned(id, &error, stop))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Reason;

    #[test]
    fn a_panic_in_a_trial_makes_that_trial_uncertain_and_goes_no_further() {
        let id: TrialId = "one/1".parse().unwrap();
        let record = or_uncertain(&id, &Interrupt::never(), || panic!("in a worker"));
        assert_eq!((record.outcome, record.reason), (Outcome::Uncertain, Some(Reason::EngineError)));
        assert!(record.diagnostics[0].contains("crashlab itself failed"), "{:?}", record.diagnostics);
    }
}
