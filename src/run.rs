//! `crashlab run` as a script: each line of `run` is one step, in an order that provisions nothing before every refusal
//! has had its chance, and that ends in the same clean-up whatever happened.

mod accept;
mod attempt;
mod behind;
pub mod doors;
mod lab;
mod progress;
pub mod proof;
mod record;
mod resume;
mod schedule;
mod shell;

pub use accept::Accepted;
pub use shell::shell;

use crate::cli::{Format, Global, Run};
use crate::commands::view::no_form;
use crate::docker::{Docker, Engine};
use crate::exit::{Exit, Refusal};
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
    let mut accepted = accept::accept(args, &global.results, stop)?;
    let docker = Docker::new(stop, &accepted.trace);
    let engine = accept::engine(&docker, &accepted)?;
    let redactor = Redactor::new(accepted.secrets.values().cloned().collect())?;
    let Begun { run, store, mut record, earlier } = begin(global, args, &mut accepted, &docker, &engine, &redactor)?;
    store.write_run(record.clone()).context("failed to write the run's first record")?;
    let progress = Progress::new(global, &redactor, &accepted, &run, store.path().as_str());
    progress.leftovers(&scope::leftovers(&global.results.join("runs")));
    let scopes = global.results.join("scopes");
    let open = if earlier.is_some() { Scope::reopen } else { Scope::open };
    let scope = open(&run, store.path(), &scopes, &docker)?;
    let tried = guarded(|| try_all(&scope, &store, &accepted, &engine, &mut record, &progress));
    progress.cleaning();
    // Whatever happened, this is the way out: nothing between opening the scope and here returns.
    let cleanup = scope.close();
    progress.cleaned(&cleanup);
    let tried = match (tried, &earlier) {
        // A run that may not be gone on with stays as it was.
        (Err(error), Some(earlier)) if error.is::<Refusal>() => {
            store.write_run(earlier.clone())?;
            return Err(error);
        }
        (Err(error), _) => {
            // Standard output says it to a person; beside a document for a program it is said here, once.
            if global.format != Format::Human {
                progress.unprovisioned(&error);
            }
            accepted.trials.iter().map(|it| record::unprovisioned(&it.id, &error, stop)).collect()
        }
        (Ok(trials), _) => trials,
    };
    let trials = match &earlier {
        Some(earlier) => resume::merge(&earlier.trials, tried),
        None => tried,
    };
    record::finish(&mut record, trials, &cleanup, stop);
    let exit = exit_of(&record.counts, stop.signal(), !cleanup.failures.is_empty());
    let (written, exit) = store_end(&store, record, exit, &progress)?;
    progress.end(&written);
    args.trace.as_deref().map(|file| accepted.trace.write(file)).transpose()?;
    crate::report::run(global, &written, store.path(), out)?;
    Ok(exit)
}

/// Stores the run's last record. Where the disk does not take it, the result still goes to standard output, and the run
/// counts as not measured: a later reader will not find its end.
fn store_end(store: &Store, mut record: RunRecord, exit: Exit, progress: &Progress) -> Result<(RunRecord, Exit)> {
    record.exit = Some(exit.code());
    let error = match store.write_run(record.clone()) {
        Ok(written) => return Ok((written, exit)),
        Err(error) => error,
    };
    progress.unstored(&error);
    let exit = if matches!(exit, Exit::Signal(_)) { exit } else { Exit::Uncertain };
    record.exit = Some(exit.code());
    Ok((store.redacted(record)?, exit))
}

/// A run that has an id, a folder and a record.
struct Begun {
    run: RunId,
    store: Store,
    record: RunRecord,
    /// As it was stored, where it is gone on with.
    earlier: Option<RunRecord>,
}

fn begin(
    global: &Global,
    args: &Run,
    accepted: &mut Accepted,
    docker: &Docker,
    engine: &Engine,
    redactor: &Redactor,
) -> Result<Begun> {
    if let Some(name) = &args.resume {
        let resume::Resumed { earlier, store } = resume::open(&global.results, name, accepted, docker, redactor)?;
        let record = resume::begin(&earlier, record::begin(&earlier.run, accepted, engine));
        return Ok(Begun { run: earlier.run.clone(), store, record, earlier: Some(earlier) });
    }
    let run = RunId::generate(SystemTime::now())?;
    let store = Store::create(&global.results, &run, redactor.clone())?;
    let record = record::begin(&run, accepted, engine);
    Ok(Begun { run, store, record, earlier: None })
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
    let trials = schedule::run_trials(&lab, accepted, engine, progress);
    record.sandbox.attested = lab.proof.attested();
    record.sandbox.shortfalls = lab.shortfalls();
    Ok(trials)
}

/// Turns a panic into an error: the clean-up still comes.
fn guarded<T>(steps: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(steps)).unwrap_or_else(|_| {
        Err(anyhow::anyhow!("crashlab itself failed; what it printed on standard error says where"))
    })
}
