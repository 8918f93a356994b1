//! What can go wrong with an evaluation process, in the words that a trial's record shows: always bounded, since the text
//! is the package's own. Judges nothing: such a trial is uncertain, never failed.

use crate::evaluation::protocol::clip;
use std::fmt;

/// Characters of an error that are shown.
pub const LONGEST_MESSAGE_SHOWN: usize = 4_000;

/// What went wrong with an evaluation process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It cannot be started.
    NotStarted,
    /// It raised: a JSON-RPC error. The process lives on.
    Raised,
    /// It ended.
    Ended,
    /// It gave no answer in time.
    OutOfTime,
    /// What it said cannot be understood.
    Malformed,
    /// The command was interrupted: nobody's fault.
    Stopped,
}

/// Why a call of the evaluation process gave nothing: the trial is uncertain, never failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationError {
    /// What kind of trouble.
    pub kind: Trouble,
    /// Which call: `initialize`, `verify`, …; `start` before any.
    pub method: &'static str,
    /// What happened; shown bounded.
    pub message: String,
}

impl fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.method, clip(&self.message, LONGEST_MESSAGE_SHOWN))
    }
}

impl std::error::Error for EvaluationError {}
