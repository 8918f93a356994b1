//! A run as JUnit XML, for CI servers: a suite for each case and drill, a test case for each trial; failed is `<failure>`,
//! uncertain `<error>`, not run `<skipped>`. Valid XML 1.0 whatever a target says, and neutral where a server shows it: what
//! XML cannot hold, or what would make text read otherwise than it is, stands there as an escape.

use crate::report::human::outcome_words;
use crate::report::text::{entity, push_safe};
use crate::report::words;
use crate::results::record::{CaseRecord, RunRecord, TrialRecord};
use crate::verdict::{Counts, Outcome};
use anyhow::{Context as _, Result};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write;

/// Writes a run as JUnit XML.
///
/// # Errors
/// The sink's.
pub fn run(record: &RunRecord, out: &mut dyn Write) -> Result<()> {
    let mut trials: HashMap<(&str, Option<&str>), Vec<&TrialRecord>> = HashMap::new();
    for trial in &record.trials {
        trials.entry((trial.case.as_str(), trial.drill.as_deref())).or_default().push(trial);
    }
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let name = escape(&record.evaluation.name);
    let _ = writeln!(xml, "<testsuites name=\"{name}\" {}>", numbers(&record.counts, &record.trials));
    for case in &record.cases {
        let of_case = trials.get(&(case.case.as_str(), case.drill.as_deref()));
        suite(&mut xml, record, case, of_case.map(Vec::as_slice).unwrap_or_default());
    }
    xml.push_str("</testsuites>\n");
    out.write_all(xml.as_bytes()).context("failed to write")
}

fn suite(xml: &mut String, record: &RunRecord, case: &CaseRecord, trials: &[&TrialRecord]) {
    let drill = case.drill.as_deref().map_or_else(String::new, |drill| format!("@{drill}"));
    let name = escape(&format!("{}.{}{drill}", record.evaluation.name, case.case)).into_owned();
    let numbers = numbers(&case.counts(), trials.iter().copied());
    let _ = writeln!(
        xml,
        "  <testsuite name=\"{name}\" {numbers} timestamp=\"{}\">",
        escape(record.started.trim_end_matches('Z'))
    );
    for trial in trials {
        let time = seconds(trial.duration_ms.unwrap_or(0));
        let _ = write!(xml, "    <testcase classname=\"{name}\" name=\"{}\" time=\"{time}\"", escape(&trial.trial));
        match verdict(trial) {
            None => xml.push_str("/>\n"),
            Some(verdict) => {
                let _ = writeln!(xml, ">\n      {verdict}\n    </testcase>");
            }
        }
    }
    xml.push_str("  </testsuite>\n");
}

fn numbers<'a>(counts: &Counts, trials: impl IntoIterator<Item = &'a TrialRecord>) -> String {
    let time = trials.into_iter().filter_map(|trial| trial.duration_ms).fold(0, u64::saturating_add);
    let Counts { trials, failed, uncertain, not_run, .. } = counts;
    format!(
        "tests=\"{trials}\" failures=\"{failed}\" errors=\"{uncertain}\" skipped=\"{not_run}\" time=\"{}\"",
        seconds(time)
    )
}

fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

fn verdict(trial: &TrialRecord) -> Option<String> {
    let failed: Vec<&str> =
        trial.checks.iter().filter(|check| !check.passed).map(|check| check.name.as_str()).collect();
    let body = escape(&details(trial)).into_owned();
    match trial.outcome {
        Outcome::Passed => None,
        Outcome::Failed => {
            Some(format!("<failure message=\"{}\" type=\"failed\">{body}</failure>", escape(&failed.join(", "))))
        }
        Outcome::Uncertain => {
            let reason = trial.reason.map_or("uncertain", |reason| reason.as_str());
            Some(format!("<error message=\"{}\" type=\"{reason}\">{body}</error>", escape(&outcome_words(trial))))
        }
        Outcome::NotRun => Some("<skipped message=\"not run\"/>".to_owned()),
    }
}

fn details(trial: &TrialRecord) -> String {
    let checks = trial.checks.iter().filter(|check| !check.passed);
    let checks = checks.map(|check| format!("{}: {}", check.name, check.detail.as_deref().unwrap_or("failed")));
    let stop = trial.stop.map(|stop| format!("stopped: {stop}"));
    let faults = trial.faults.iter().map(words::fault);
    checks.chain(stop).chain(faults).chain(trial.diagnostics.iter().cloned()).collect::<Vec<_>>().join("\n")
}

/// Text for an attribute or an element. Line ends in an attribute would be read as spaces: they are written as references.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    let plain = |char: char| matches!(char, ' '..='~') && entity(char).is_none();
    if text.chars().all(plain) {
        return Cow::Borrowed(text);
    }
    let push = |mut out: String, char: char| {
        match (entity(char), char) {
            (Some(entity), _) => out.push_str(entity),
            (None, '\n' | '\t') => {
                let _ = write!(out, "&#{};", u32::from(char));
            }
            // Some of what is not safe XML 1.0 has no way to write, not as a reference either.
            (None, char) => return push_safe(out, char),
        }
        out
    };
    Cow::Owned(text.chars().fold(String::with_capacity(text.len() + 16), push))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_xml_cannot_hold_or_reads_otherwise_is_escaped() {
        let table = [
            ("plain é 日本 👍", "plain é 日本 👍"),
            ("<a href=\"x\">&'", "&lt;a href=&quot;x&quot;&gt;&amp;&#39;"),
            ("]]>", "]]&gt;"),
            ("\u{0}\u{1b}[31m\u{8}", "\\x00\\x1b[31m\\x08"),
            ("\u{fffe}\u{ffff}\u{1fffe}\u{85}", "\\u{fffe}\\u{ffff}\\u{1fffe}\\x85"),
            ("a\nb\r\tc", "a&#10;b\\r&#9;c"),
            ("abc\u{202e}txt\u{200b}", "abc\\u{202e}txt\\u{200b}"),
        ];
        for (text, escaped) in table {
            assert_eq!(escape(text), escaped);
        }
    }
}
