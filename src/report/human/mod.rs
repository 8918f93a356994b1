//! What a person reads on a terminal: a run at a glance (`glance`), the story of one trial (`story`), the stored runs
//! (`runs`), a comparison (`compare`). Every foreign text goes through `text::safe` on its way in.

mod compare;
mod glance;
mod matrix;
mod runs;
mod story;

pub use compare::compare;
pub use glance::run;
pub use runs::runs;
pub use story::story;

use crate::report::look::Tone;
use crate::results::record::{RunOutcome, TrialRecord};
use crate::verdict::Outcome;

/// The meaning of a trial's outcome.
pub(crate) fn tone(outcome: Outcome) -> Tone {
    match outcome {
        Outcome::Passed => Tone::Good,
        Outcome::Failed => Tone::Bad,
        Outcome::Uncertain => Tone::Doubt,
        Outcome::NotRun => Tone::Faint,
    }
}

/// The meaning of a run's outcome.
pub(crate) fn run_tone(outcome: RunOutcome) -> Tone {
    match outcome {
        RunOutcome::Passed => Tone::Good,
        RunOutcome::Failed => Tone::Bad,
        RunOutcome::Uncertain | RunOutcome::Interrupted | RunOutcome::Running => Tone::Doubt,
    }
}

/// An outcome in words, with the reason where it was not measured.
pub(crate) fn outcome_words(trial: &TrialRecord) -> String {
    match (trial.outcome, trial.reason) {
        (Outcome::Uncertain, Some(reason)) => format!("uncertain: {}", reason.as_str().replace('_', " ")),
        (Outcome::NotRun, _) => "not run".to_owned(),
        (outcome, _) => outcome.as_str().to_owned(),
    }
}

/// Input and output together; none where one is not known.
pub(crate) fn tokens(usage: &crate::totals::Totals) -> Option<u64> {
    Some(usage.input_tokens?.saturating_add(usage.output_tokens?))
}
