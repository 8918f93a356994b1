//! `crashlab run` as a script: each line of `run` is one step, in an order that provisions nothing before every refusal
//! has had its chance, and that ends in the same clean-up whatever happened.

mod accept;
mod attempt;
mod doors;
mod lab;
mod progress;
mod record;
mod schedule;

pub use accept::Accepted;

use crate::cli::{Format, Global, Run};
use crate::commands::view::no_form;
use crate::docker::{Docker, Engine};
use crate::exit::Exit;
use crate::ids::RunId;
use crate::interrupt::Interrupt;
use crate::redact::Redactor;
use crate::results::record::{RunRecord, TrialRecord};
use crate::results::store::Store;
use crate::scope::{self, Scope};
use crate::verdict::exit_of;
use anyhow::{Context, Result};
use progress::Progress;
use std::io::Write;
use std::time::SystemTime;

/// Runs an evaluation; gives the exit code. The result goes to `out`, everything else to standard error.
///
/// # Errors
/// A refusal (exit 2), or what kept the run from its first stored byte (exit 3).
pub fn run(global: &Global, args: &Run, stop: &Interrupt, out: &mut dyn Write) -> Result<Exit> {
    if global.format == Format::Markdown {
        return Err(no_form("run", "human, json, jsonl or junit"));
    }
    let accepted = accept::accept(args, stop)?;
    let docker = Docker::new(stop, &accepted.trace);
    let engine = accept::engine(&docker, &accepted)?;
    let run = RunId::generate(SystemTime::now())?;
    let redactor = Redactor::new(accepted.secrets.values().cloned().collect())?;
    let store = Store::create(&global.results, &run, redactor.clone())?;
    let mut record = record::begin(&run, &accepted, &engine);
    store.write_run(record.clone()).context("failed to write the run's first record")?;
    let progress = Progress::new(global, &redactor, &accepted, &run, store.path().as_str());
    progress.leftovers(&scope::leftovers(&global.results.join("runs")));
    let scope = Scope::open(&run, store.path(), &global.results.join("scopes"), &docker)?;
    let tried = guarded(|| try_all(&scope, &store, &accepted, &engine, &mut record, &progress));
    progress.cleaning();
    // Whatever happened, this is the way out: nothing between opening the scope and here returns.
    let cleanup = scope.close();
    progress.cleaned(&cleanup);
    let unprovisioned = |error| accepted.trials.iter().map(|it| record::unprovisioned(&it.id, &error, stop)).collect();
    record::finish(&mut record, tried.unwrap_or_else(unprovisioned), &cleanup, stop);
    let exit = exit_of(&record.counts, stop.signal(), !cleanup.failures.is_empty());
    record.exit = Some(exit.code());
    let written = store.write_run(record)?;
    progress.end(&written);
    args.trace.as_deref().map(|file| accepted.trace.write(file)).transpose()?;
    crate::report::run(global, &written, store.path(), out)?;
    Ok(exit)
}

/// Provisions, and runs every trial.
fn try_all(
    scope: &Scope,
    store: &Store,
    accepted: &Accepted,
    engine: &Engine,
    record: &mut RunRecord,
    progress: &Progress,
) -> Result<Vec<TrialRecord>> {
    let lab = lab::provision(scope, store, accepted, engine, record, progress)?;
    let trials = schedule::run_trials(&lab, accepted, progress);
    record.sandbox.shortfalls = lab.shortfalls();
    Ok(trials)
}

/// Turns a panic into an error: the clean-up still comes.
fn guarded<T>(steps: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps)).unwrap_or_else(|_| {
        Err(anyhow::anyhow!("crashlab itself failed; what it printed on standard error says where"))
    })
}
