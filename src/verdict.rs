//! Facts and checks in, outcome out. Owns what passed, failed, uncertain and not run mean, the order of the reasons, and
//! the run's exit code. Pure: it does no input or output, and a verdict is never an error.
//!
//! How a target stopped and whether the world is right are two facts; only the checks decide between passed and failed.

use crate::exit::Exit;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the target stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// What ended it.
    pub reason: StopReason,
    /// The exit code (`exited`), the signal's number (`signal`); null where neither is known.
    pub code: Option<i32>,
}

/// What ended the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// By itself, with an exit code.
    Exited,
    /// By a signal that was not ours.
    Signal,
    /// Killed at the end of its time.
    WallTime,
    /// The engine says that its memory ran out.
    OutOfMemory,
    /// Killed: one of its streams went beyond its size.
    OutputLimit,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.reason, self.code) {
            (StopReason::Exited, Some(code)) => write!(f, "exited {code}"),
            (StopReason::Exited, None) => f.write_str("exited"),
            (StopReason::Signal, Some(number)) => write!(f, "signal {number}"),
            (StopReason::Signal, None) => f.write_str("signal"),
            (StopReason::WallTime, _) => f.write_str("wall time"),
            (StopReason::OutOfMemory, _) => f.write_str("out of memory"),
            (StopReason::OutputLimit, _) => f.write_str("output limit"),
        }
    }
}

/// What a trial came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every check passed.
    Passed,
    /// At least one check failed: the agent's doing.
    Failed,
    /// Not measured; a `Reason` stands beside it.
    Uncertain,
    /// The run was interrupted, or stopped by a limit of its own, before it.
    NotRun,
}

impl Outcome {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Passed => "passed",
            Outcome::Failed => "failed",
            Outcome::Uncertain => "uncertain",
            Outcome::NotRun => "not_run",
        }
    }
}

/// Why a trial was not measured: the first that holds, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The engine did not enforce what the policy asks for.
    SandboxUnproven,
    /// The engine failed.
    EngineError,
    /// The relay, or the way to the host's gateway, failed.
    RelayError,
    /// The evaluation process failed, or gave no check.
    EvaluationError,
    /// The provider failed, and the trial neither recovered nor passed.
    ProviderError,
}

impl Reason {
    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::SandboxUnproven => "sandbox_unproven",
            Reason::EngineError => "engine_error",
            Reason::RelayError => "relay_error",
            Reason::EvaluationError => "evaluation_error",
            Reason::ProviderError => "provider_error",
        }
    }
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was checked; the evaluation's own words.
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What was found.
    pub detail: Option<String>,
}

/// What is known about a trial when it is over.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// How the target stopped; none where it never ran or its end was not seen.
    pub stop: Option<Stop>,
    /// What the evaluation's verifier said; none where it gave no answer.
    pub checks: Option<Vec<Check>>,
    /// The policy's `evaluation.require_clean_exit`.
    pub require_clean_exit: bool,
    /// A requirement of the sandbox that the engine does not enforce (I9).
    pub sandbox_unproven: bool,
    /// The engine failed in this trial.
    pub engine_error: bool,
    /// The relay failed in this trial.
    pub relay_error: bool,
    /// The evaluation process failed in this trial (an operation, the world, the verifier, an exhausted script).
    pub evaluation_error: bool,
    /// A provider failure without a later success on its route; a fault that a drill injected is none.
    pub provider_error: bool,
}

/// The name of the built-in check.
pub const CLEAN_EXIT: &str = "clean exit";

/// The built-in check: the target exited by itself, with code 0.
pub fn clean_exit(stop: Stop) -> Check {
    let passed = stop == Stop { reason: StopReason::Exited, code: Some(0) };
    Check { name: CLEAN_EXIT.to_owned(), passed, detail: Some(stop.to_string()) }
}

/// All checks of a trial in the order in which they are shown: the evaluation's own, then the built-in one where the
/// policy asks for it and the target's end is known.
pub fn checks(facts: &Facts) -> Vec<Check> {
    let mut checks = facts.checks.clone().unwrap_or_default();
    if facts.require_clean_exit {
        checks.extend(facts.stop.map(clean_exit));
    }
    checks
}

/// What a trial came to. A provider's failure turns only a trial that did not pass into an uncertain one.
pub fn decide(facts: &Facts) -> (Outcome, Option<Reason>) {
    let unanswered = facts.checks.as_ref().is_none_or(Vec::is_empty);
    let reasons = [
        (facts.sandbox_unproven, Reason::SandboxUnproven),
        (facts.engine_error || facts.stop.is_none(), Reason::EngineError),
        (facts.relay_error, Reason::RelayError),
        (facts.evaluation_error || unanswered, Reason::EvaluationError),
    ];
    // A target whose end nobody saw is the engine's trouble unless something named came before or instead.
    let named = facts.relay_error || facts.evaluation_error;
    let first = reasons
        .into_iter()
        .find(|(holds, reason)| *holds && !(*reason == Reason::EngineError && !facts.engine_error && named));
    if let Some((_, reason)) = first {
        return (Outcome::Uncertain, Some(reason));
    }
    match (checks(facts).iter().all(|check| check.passed), facts.provider_error) {
        (true, _) => (Outcome::Passed, None),
        (false, true) => (Outcome::Uncertain, Some(Reason::ProviderError)),
        (false, false) => (Outcome::Failed, None),
    }
}

/// How many trials came to what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All that were selected.
    pub trials: u64,
    /// Every check passed.
    pub passed: u64,
    /// At least one check failed.
    pub failed: u64,
    /// Not measured.
    pub uncertain: u64,
    /// Never started.
    pub not_run: u64,
}

impl Counts {
    /// Adds one trial.
    pub fn add(&mut self, outcome: Outcome) {
        self.trials += 1;
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Uncertain => self.uncertain += 1,
            Outcome::NotRun => self.not_run += 1,
        }
    }

    /// Counts outcomes.
    pub fn of(outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        let mut counts = Self::default();
        outcomes.into_iter().for_each(|outcome| counts.add(outcome));
        counts
    }

    /// Trials that were measured: what a rate is a rate of.
    pub fn measured(&self) -> u64 {
        self.passed + self.failed
    }

    /// Trials that were not: always shown beside a rate.
    pub fn unmeasured(&self) -> u64 {
        self.uncertain + self.not_run
    }
}

/// The exit code of a run: a signal stands over 3, 3 over 1, 1 over 4. A trial that was not run without a signal, and
/// without a failure that explains it, was not measured: 0 says that every trial passed.
pub fn exit_of(counts: &Counts, interrupted: Option<i32>, cleanup_failed: bool) -> Exit {
    match interrupted {
        Some(signal) => Exit::Signal(signal),
        None if counts.uncertain > 0 => Exit::Uncertain,
        None if counts.failed > 0 => Exit::Failed,
        None if counts.not_run > 0 => Exit::Uncertain,
        None if cleanup_failed => Exit::CleanupFailed,
        None => Exit::Success,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(passed: bool) -> Check {
        Check { name: "refunded once".to_owned(), passed, detail: None }
    }

    fn stop(reason: StopReason, code: Option<i32>) -> Option<Stop> {
        Some(Stop { reason, code })
    }

    fn good() -> Facts {
        let stop = stop(StopReason::Exited, Some(0));
        Facts { stop, checks: Some(vec![check(true)]), require_clean_exit: true, ..Facts::default() }
    }

    #[test]
    fn checks_decide_and_trouble_stands_over_them() {
        use Outcome::{Failed, Passed, Uncertain};
        let failing = Facts { checks: Some(vec![check(true), check(false)]), ..good() };
        let table = [
            ("all is well", good(), Passed, None),
            ("a check failed", failing.clone(), Failed, None),
            ("unproven", Facts { sandbox_unproven: true, ..good() }, Uncertain, Some(Reason::SandboxUnproven)),
            ("engine", Facts { engine_error: true, ..good() }, Uncertain, Some(Reason::EngineError)),
            ("relay", Facts { relay_error: true, ..failing.clone() }, Uncertain, Some(Reason::RelayError)),
            ("evaluation", Facts { evaluation_error: true, ..good() }, Uncertain, Some(Reason::EvaluationError)),
            ("no answer", Facts { checks: None, ..good() }, Uncertain, Some(Reason::EvaluationError)),
            ("no check", Facts { checks: Some(vec![]), ..good() }, Uncertain, Some(Reason::EvaluationError)),
            ("provider, passed all the same", Facts { provider_error: true, ..good() }, Passed, None),
            ("provider", Facts { provider_error: true, ..failing }, Uncertain, Some(Reason::ProviderError)),
            ("end not seen", Facts { stop: None, ..good() }, Uncertain, Some(Reason::EngineError)),
            (
                "never started for want of a relay",
                Facts { stop: None, checks: None, relay_error: true, ..good() },
                Uncertain,
                Some(Reason::RelayError),
            ),
            (
                "never started for want of a world",
                Facts { stop: None, checks: None, evaluation_error: true, ..good() },
                Uncertain,
                Some(Reason::EvaluationError),
            ),
        ];
        for (name, facts, outcome, reason) in table {
            assert_eq!(decide(&facts), (outcome, reason), "{name}");
        }
    }

    #[test]
    fn of_several_reasons_the_first_in_order_is_given() {
        let mut facts = Facts {
            sandbox_unproven: true,
            engine_error: true,
            relay_error: true,
            evaluation_error: true,
            provider_error: true,
            ..Facts::default()
        };
        let reason = |facts: &Facts| decide(facts).1;
        assert_eq!(reason(&facts), Some(Reason::SandboxUnproven));
        facts.sandbox_unproven = false;
        assert_eq!(reason(&facts), Some(Reason::EngineError));
        facts.engine_error = false;
        assert_eq!(reason(&facts), Some(Reason::RelayError));
        facts.relay_error = false;
        assert_eq!(reason(&facts), Some(Reason::EvaluationError));
    }

    #[test]
    fn a_clean_exit_is_code_0_within_every_limit() {
        let table = [
            (StopReason::Exited, Some(0), true, "exited 0"),
            (StopReason::Exited, Some(3), false, "exited 3"),
            (StopReason::Exited, None, false, "exited"),
            (StopReason::Signal, Some(11), false, "signal 11"),
            (StopReason::WallTime, None, false, "wall time"),
            (StopReason::OutOfMemory, Some(137), false, "out of memory"),
            (StopReason::OutputLimit, Some(0), false, "output limit"),
        ];
        for (reason, code, passed, words) in table {
            let check = clean_exit(Stop { reason, code });
            assert_eq!((check.passed, check.detail.as_deref()), (passed, Some(words)));
        }
    }

    #[test]
    fn an_agent_out_of_time_keeps_the_verdict_on_its_work_where_the_policy_says_so() {
        let late = Facts { stop: stop(StopReason::WallTime, None), ..good() };
        assert_eq!(decide(&late).0, Outcome::Failed);
        assert_eq!(decide(&Facts { require_clean_exit: false, ..late }).0, Outcome::Passed);
    }

    #[test]
    fn a_signal_stands_over_3_and_3_over_1_and_1_over_4() {
        let counts = |passed, failed, uncertain, not_run| Counts {
            trials: passed + failed + uncertain + not_run,
            passed,
            failed,
            uncertain,
            not_run,
        };
        let table = [
            (counts(2, 0, 0, 0), None, false, Exit::Success),
            (counts(2, 0, 0, 0), None, true, Exit::CleanupFailed),
            (counts(1, 1, 0, 0), None, true, Exit::Failed),
            (counts(1, 1, 0, 5), None, false, Exit::Failed),
            (counts(1, 1, 1, 0), None, true, Exit::Uncertain),
            (counts(2, 0, 0, 1), None, false, Exit::Uncertain),
            (counts(1, 1, 1, 0), Some(2), true, Exit::Signal(2)),
        ];
        for (counts, signal, cleanup_failed, exit) in table {
            assert_eq!(exit_of(&counts, signal, cleanup_failed), exit, "{counts:?}");
        }
    }

    #[test]
    fn three_buckets_are_kept_apart() {
        use Outcome::{Failed, NotRun, Passed, Uncertain};
        let counts = Counts::of([Passed, Passed, Failed, Failed, Failed, Passed, Uncertain, Uncertain, NotRun]);
        assert_eq!((counts.trials, counts.measured(), counts.unmeasured()), (9, 6, 3));
    }
}
