//! What the sandbox around this program really is, as seen from inside. Reports; judges nothing.

use std::process::ExitCode;

/// Refuses every question: nothing is asked of it yet.
pub(crate) fn run(_arguments: &[String]) -> ExitCode {
    eprintln!("relay: nothing is attested yet");
    ExitCode::from(crate::USAGE)
}
