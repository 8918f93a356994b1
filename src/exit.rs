//! The exit codes, and the one error type that chooses one. Owns the table of `crashlab --help`; knows no room.
//!
//! A verdict is never an error: `run` hands its own code back as a value. What comes here as an error ended the command.

use std::fmt;

/// What the process tells its caller. A signal stands over 3, 3 over 1, 1 over 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Every trial passed; and every other command that did its work.
    Success,
    /// At least one behavioural failure and nothing uncertain.
    Failed,
    /// Refused before anything was provisioned.
    Refused,
    /// Infrastructure uncertainty.
    Uncertain,
    /// Every trial passed and the clean-up failed.
    CleanupFailed,
    /// Interrupted by this signal number, after the clean-up.
    Signal(i32),
}

impl Exit {
    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Refused => 2,
            Exit::Uncertain => 3,
            Exit::CleanupFailed => 4,
            Exit::Signal(number) => u8::try_from(128 + number).unwrap_or(255),
        }
    }
}

/// A refusal: bad input, found before anything was provisioned. Shown as `message`, `where` and `hint`; exit 2.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Refusal {
    /// What was wrong: lowercase, no full stop.
    pub message: String,
    /// Where: a file with a JSON pointer (`policy.json#/sandbox/memory`), or a flag.
    #[serde(rename = "where")]
    pub place: Option<String>,
    /// What would do.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal that says only what was wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), place: None, hint: None }
    }

    /// Adds where it was found.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\nhint: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exit_has_the_number_that_the_interface_fixes() {
        let table = [
            (Exit::Success, 0),
            (Exit::Failed, 1),
            (Exit::Refused, 2),
            (Exit::Uncertain, 3),
            (Exit::CleanupFailed, 4),
            (Exit::Signal(2), 130),
            (Exit::Signal(15), 143),
            (Exit::Signal(1), 129),
        ];
        for (exit, code) in table {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
