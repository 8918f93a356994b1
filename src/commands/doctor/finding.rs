//! What the doctor found, line by line: whether it holds, what was seen, and what would help.

use crate::exit::Exit;
use crate::report::text::safe;
use crate::trial::Shortfall;
use crate::trial::attest::compare::Row;
use serde::Serialize;
use std::io::{self, Write};

/// How it stands with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// It was tried, and it is so.
    Holds,
    /// What a run needs is not so.
    Shortfall,
    /// Good to know.
    Note,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) requested: Option<String>,
    pub(super) observed: String,
    pub(super) hint: Option<String>,
}

impl Finding {
    fn new(name: &str, status: Status, observed: impl Into<String>) -> Self {
        Self { name: name.to_owned(), status, requested: None, observed: observed.into(), hint: None }
    }

    pub(super) fn holds(name: &str, observed: impl Into<String>) -> Self {
        Self::new(name, Status::Holds, observed)
    }

    pub(super) fn note(name: &str, observed: impl Into<String>) -> Self {
        Self::new(name, Status::Note, observed)
    }

    pub(super) fn shortfall(name: &str, observed: impl Into<String>, hint: &str) -> Self {
        Self { hint: Some(hint.to_owned()), ..Self::new(name, Status::Shortfall, observed) }
    }

    /// An error; the lines that begin with `hint: ` are its hint.
    pub(super) fn trouble(name: &str, error: &anyhow::Error) -> Self {
        let text = format!("{error:#}");
        let (hints, words): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("hint: "));
        let hint = hints.first().map(|line| line.trim_start_matches("hint: ").to_owned());
        Self { hint, ..Self::new(name, Status::Shortfall, words.join(" ")) }
    }

    /// A requirement as it was seen from inside; a difference comes with the hint that a run would give.
    pub(super) fn row(prefix: &str, row: &Row) -> Self {
        let name = format!("{prefix}{}", row.requirement);
        match row.shortfall() {
            None => Self::holds(&name, row.requested.clone()),
            Some(shortfall) => Self::difference(&name, shortfall),
        }
    }

    pub(super) fn difference(name: &str, shortfall: Shortfall) -> Self {
        let observed = shortfall.observed.unwrap_or_else(|| "nothing".to_owned());
        let told = Self::new(name, Status::Shortfall, observed);
        Self { requested: Some(shortfall.requested), hint: shortfall.hint, ..told }
    }
}

/// 3 where anything that a run needs is missing.
pub(super) fn exit_of(findings: &[Finding]) -> Exit {
    let short = findings.iter().any(|finding| finding.status == Status::Shortfall);
    if short { Exit::Uncertain } else { Exit::Success }
}

/// A line each, and what would help below it.
pub(super) fn human(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    for finding in findings {
        let status = match finding.status {
            Status::Holds => "ok  ",
            Status::Shortfall => "LACK",
            Status::Note => "note",
        };
        let requested = finding.requested.as_ref().map(|text| format!("asked for {}, got ", safe(text)));
        let (requested, observed) = (requested.unwrap_or_default(), safe(&finding.observed));
        writeln!(out, "{status}  {:width$}  {requested}{observed}", finding.name)?;
        if let Some(hint) = &finding.hint {
            writeln!(out, "      {:width$}  hint: {}", "", safe(hint))?;
        }
    }
    let short = findings.iter().filter(|finding| finding.status == Status::Shortfall).count();
    match short {
        0 => writeln!(out, "\nthis engine enforces what a run asks for"),
        _ => writeln!(out, "\n{short} of what a run needs is missing: its trials would be uncertain (exit 3)"),
    }
}
