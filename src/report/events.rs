//! `run --format jsonl`: one event a line, as it happens, flushed line by line. Owns the form of a line (its schema is
//! published: `crashlab schema event`); records that go into one were redacted by the store.

use crate::ids::RunId;
use crate::report::pipe;
use crate::results::record::{Cleanup, RunOutcome, RunRecord, TrialRecord, timestamp};
use crate::totals::Totals;
use crate::verdict::Counts;
use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Map, Value};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// The `schema` of a line.
pub const SCHEMA: &str = "crashlab.event/1";

/// What happened.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    /// Everything was accepted; nothing is provisioned yet.
    RunStarted {
        /// The policy's name.
        name: &'a str,
        /// That will run.
        trials: u64,
        /// At the same time.
        jobs: u32,
        /// The run's folder.
        path: &'a str,
    },
    /// What the user should know. Redacted by whoever tells it.
    Warning {
        /// In words.
        message: &'a str,
    },
    /// An attempt at a trial begins.
    TrialStarted {
        /// `CASE/N`.
        trial: &'a str,
    },
    /// A trial came to its end.
    TrialFinished {
        /// `CASE/N`.
        trial: &'a str,
        /// From 1.
        attempt: u32,
        /// As the store gave it back.
        record: &'a TrialRecord,
    },
    /// Everything is over: the last line.
    RunFinished {
        /// What it came to.
        outcome: RunOutcome,
        /// The exit code.
        exit: u8,
        /// All trials together.
        counts: &'a Counts,
        /// All trials together.
        usage: &'a Totals,
        /// What became of the scope's resources.
        cleanup: &'a Cleanup,
    },
}

impl<'a> Event<'a> {
    /// A trial's end.
    pub fn finished(record: &'a TrialRecord) -> Self {
        Self::TrialFinished { trial: &record.trial, attempt: record.attempt, record }
    }

    /// A run's end, from the record that was written last.
    pub fn end(record: &'a RunRecord) -> Self {
        Self::RunFinished {
            outcome: record.outcome,
            exit: record.exit.unwrap_or_default(),
            counts: &record.counts,
            usage: &record.usage,
            cleanup: &record.cleanup,
        }
    }
}

/// Where events go. Threads share it.
pub struct Events {
    out: Option<Mutex<Box<dyn Write + Send>>>,
    run: RunId,
}

impl Events {
    /// To standard output.
    pub fn stdout(run: RunId) -> Self {
        Self::to(run, Box::new(pipe::stdout()))
    }

    /// To a sink.
    pub fn to(run: RunId, out: Box<dyn Write + Send>) -> Self {
        Self { out: Some(Mutex::new(out)), run }
    }

    /// Nowhere: another form was asked for.
    pub fn silent(run: RunId) -> Self {
        Self { out: None, run }
    }

    /// Tells one event.
    ///
    /// # Errors
    /// The sink's; a closed pipe is none.
    pub fn tell(&self, event: &Event<'_>) -> Result<()> {
        let Some(out) = &self.out else { return Ok(()) };
        let line = self.line(event, SystemTime::now())?;
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, "{line}").and_then(|()| out.flush()).context("failed to write an event")
    }

    fn line(&self, event: &Event<'_>, at: SystemTime) -> Result<Value> {
        let Value::Object(event) = serde_json::to_value(event).context("failed to write an event as JSON")? else {
            anyhow::bail!("an event is no object");
        };
        let mut line = Map::new();
        line.insert("schema".to_owned(), SCHEMA.into());
        line.insert("at".to_owned(), timestamp(at).into());
        line.insert("run".to_owned(), self.run.as_str().into());
        line.extend(event);
        Ok(Value::Object(line))
    }
}
