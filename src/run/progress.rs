//! What a run says on standard error while it goes on: a bar on a terminal, a line for each thing that matters elsewhere.
//! With `--format jsonl` the same goes to standard output as events. Everything that a target, a case or the world said is
//! redacted and neutral for a terminal before it gets here.

use super::accept::Accepted;
use crate::cli::{Color, Format, Global};
use crate::ids::{RunId, TrialId};
use crate::redact::Redactor;
use crate::report::events::{Event, Events};
use crate::report::text::{money, safe_lines};
use crate::results::record::{RunRecord, TrialRecord};
use crate::scope::{Cleanup, Leftover};
use crate::totals::Totals;
use crate::verdict::Outcome;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The voice of a run.
pub struct Progress {
    quiet: bool,
    bar: ProgressBar,
    redactor: Redactor,
    standing: Mutex<Standing>,
    events: Events,
}

/// How far the run has come.
#[derive(Default)]
struct Standing {
    running: u64,
    passed: u64,
    failed: u64,
    other: u64,
    usage: Totals,
}

impl Standing {
    /// An attempt is over.
    fn spent(&mut self, record: &TrialRecord) {
        self.running = self.running.saturating_sub(1);
        self.usage = self.usage.plus(&record.usage);
    }

    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Uncertain | Outcome::NotRun => self.other += 1,
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { running, passed, failed, other, usage } = self;
        write!(f, "{running} running, {passed} passed, {failed} failed, {other} not measured")?;
        if usage.requests > 0 {
            write!(f, ", {}", money(usage.cost_usd))?;
        }
        Ok(())
    }
}

impl Progress {
    /// Says what begins.
    pub fn new(global: &Global, redactor: &Redactor, accepted: &Accepted, run: &RunId, path: &str) -> Self {
        let terminal = std::io::stderr().is_terminal() && !global.quiet && global.color != Color::Never;
        let bar = if terminal { ProgressBar::new(accepted.trials.len() as u64) } else { ProgressBar::hidden() };
        if terminal {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            let template = "{bar:24} {pos}/{len}  {msg}  {elapsed} (left {eta})";
            bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let events = match global.format {
            Format::Jsonl => Events::stdout(run.clone()),
            _ => Events::silent(run.clone()),
        };
        let progress =
            Self { quiet: global.quiet, bar, redactor: redactor.clone(), standing: Mutex::default(), events };
        let (name, trials) = (accepted.policy.name.as_str(), accepted.trials.len() as u64);
        progress.tell(&Event::RunStarted { name, trials, jobs: accepted.jobs, path });
        progress.say(&format!("run {run}: {} trials, {} at a time", accepted.trials.len(), accepted.jobs));
        progress
    }

    /// A step before the first trial.
    pub fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// What the user should know, also with `--quiet`.
    pub fn warn_all(&self, warnings: &[String]) {
        for warning in warnings {
            self.line(&format!("warning: {warning}"));
            self.tell(&Event::Warning { message: &self.redactor.text("standard output", warning) });
        }
    }

    /// Runs whose process is gone and that owe a clean-up are mentioned, and never touched.
    pub fn leftovers(&self, leftovers: &[Leftover]) {
        for leftover in leftovers.iter().filter(|leftover| !leftover.live) {
            self.say(&format!("note: {}", leftover.note()));
        }
    }

    /// An attempt at a trial begins.
    pub fn started(&self, id: &TrialId) {
        self.tell(&Event::TrialStarted { trial: &id.to_string() });
        self.stand(|standing| standing.running += 1);
    }

    /// A trial is over.
    pub fn trial(&self, record: &TrialRecord) {
        self.tell(&Event::finished(record));
        self.bar.inc(1);
        self.stand(|standing| {
            standing.spent(record);
            standing.add(record.outcome);
        });
        let mut line = format!("{:>9}  {}", record.outcome.as_str(), record.trial);
        if let Some(reason) = record.reason {
            line = format!("{line}  ({}: {})", reason.as_str(), record.diagnostics.first().map_or("", String::as_str));
        }
        self.say(&line);
    }

    /// An uncertain trial is tried again.
    pub fn retry(&self, record: &TrialRecord) {
        self.tell(&Event::finished(record));
        self.stand(|standing| standing.spent(record));
        self.say(&format!("    again  {} (attempt {} was uncertain)", record.trial, record.attempt));
    }

    /// The clean-up begins.
    pub fn cleaning(&self) {
        self.bar.set_message("cleaning up");
    }

    /// What the clean-up could not do is told in any case: kind, name, identity, reason, and what finishes it.
    pub fn cleaned(&self, cleanup: &Cleanup) {
        for (resource, reason) in &cleanup.kept {
            self.line(&format!("kept {} {} ({}): {reason}", resource.kind.as_str(), resource.name, resource.handle()));
        }
        for failure in &cleanup.failures {
            let (resource, reason) = (&failure.resource, &failure.reason);
            let id = resource.id.as_deref().map(|id| format!(" ({id})")).unwrap_or_default();
            self.line(&format!("error: {} {}{id}: {reason}", resource.kind.as_str(), resource.name));
        }
        if let Some(failure) = cleanup.failures.first() {
            self.line(&format!("hint: finish it with: {}", failure.command));
        }
    }

    /// Nothing could be tried.
    pub fn unprovisioned(&self, error: &anyhow::Error) {
        self.line(&format!("error: {error:#}"));
    }

    /// The run's end could not be written.
    pub fn unstored(&self, error: &anyhow::Error) {
        self.line(&format!("error: the run's record could not be written: {error:#}"));
    }

    /// Takes the bar away, and tells the end as it was stored.
    pub fn end(&self, record: &RunRecord) {
        self.bar.finish_and_clear();
        for redaction in record.redactions.iter().filter(|it| !it.name.starts_with("token:")) {
            let (name, file, count) = (&redaction.name, &redaction.file, redaction.count);
            self.line(&format!(
                "warning: the value of {name} was taken out of {file} ({count} times); rotate that key"
            ));
        }
        self.tell(&Event::end(record));
    }

    fn stand(&self, change: impl FnOnce(&mut Standing)) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut standing);
        self.bar.set_message(standing.to_string());
    }

    fn tell(&self, event: &Event<'_>) {
        if let Err(error) = self.events.tell(event) {
            // A full disk behind standard output must not end a run: its clean-up and its record still come.
            self.line(&format!("warning: {error:#}"));
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            self.line(text);
        }
    }

    fn line(&self, text: &str) {
        let text = safe_lines(&self.redactor.text("standard error", text)).join("\n");
        if self.bar.is_hidden() {
            // A closed standard error must not end a run.
            let _ = writeln!(std::io::stderr(), "{text}");
        } else {
            self.bar.println(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standing_counts_attempts_that_run_and_what_they_cost_retried_ones_too() {
        let mut record = TrialRecord::not_run(&"a/1".parse().unwrap());
        (record.usage.requests, record.usage.cost_usd) = (2, Some(0.01));
        let mut standing = Standing { running: 3, ..Standing::default() };
        assert_eq!(standing.to_string(), "3 running, 0 passed, 0 failed, 0 not measured");
        standing.spent(&record);
        standing.spent(&record);
        standing.add(Outcome::Passed);
        assert_eq!(standing.to_string(), "1 running, 1 passed, 0 failed, 0 not measured, $0.0200");
    }
}
