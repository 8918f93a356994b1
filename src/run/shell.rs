//! `crashlab shell`: a person's shell in the sandbox of one trial, with the same gateway and limits. It ends in the same
//! clean-up as a run; no verdict is made, and what is left of it on disk is gone when everything else is. As in a run
//! nothing starts in a sandbox that is not proven.

use super::accept::{self, Accepted, Planned};
use super::doors::Files;
use super::lab::{self, Lab};
use super::progress::Progress;
use super::{attempt, proof, record};
use crate::cli::{Format, Global, Run, Shell};
use crate::docker::Docker;
use crate::exit::{Exit, Refusal};
use crate::ids::RunId;
use crate::interrupt::Interrupt;
use crate::redact::Redactor;
use crate::results::store::Store;
use crate::scope::Scope;
use crate::trial::{self, Objects, Shortfall};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{IsTerminal as _, sink};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

/// Opens the shell; gives 0 where it was reached, whatever was done in it.
///
/// # Errors
/// As a run's; a refusal without a terminal.
pub fn shell(global: &Global, args: &Shell, stop: &Interrupt) -> Result<Exit> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Refusal::new("a shell needs a terminal on standard input and output").at("crashlab shell").into());
    }
    if global.format != Format::Human {
        return Err(Refusal::new("a shell has no other form").at("--format").hint("leave it out").into());
    }
    let accepted = accept::accept(&as_run(args), &global.results, stop)?;
    let docker = Docker::new(stop, &accepted.trace);
    let engine = accept::engine(&docker, &accepted)?;
    let run = RunId::generate(SystemTime::now())?;
    let redactor = Redactor::new(accepted.secrets.values().cloned().collect())?;
    let store = Store::create(&global.results, &run, redactor.clone())?;
    let mut record = record::begin(&run, &accepted, &engine);
    let quiet = Global { quiet: true, ..global.clone() };
    let progress = Progress::new(&quiet, &redactor, &accepted, &run, store.path().as_str());
    let scope = Scope::open(&run, store.path(), &global.results.join("scopes"), &docker)?;
    let opened = super::guarded(|| {
        let lab = lab::provision(&scope, &store, &accepted, &engine, &mut record, &progress)?;
        let planned = accepted.trials.first().context("no trial was planned")?;
        let mut objects = Objects::default();
        let opened = std::thread::scope(|threads| {
            threads.spawn(|| proof::make(&lab, &engine));
            open(&lab, planned, &mut objects, &args.program)
        });
        objects.release(&scope);
        opened
    });
    let cleanup = scope.close();
    progress.cleaned(&cleanup);
    if cleanup.failures.is_empty() {
        std::fs::remove_dir_all(store.path()).with_context(|| format!("failed to delete {}", store.path()))?;
    }
    opened?;
    Ok(match stop.signal() {
        Some(signal) => Exit::Signal(signal),
        None if !cleanup.failures.is_empty() => Exit::CleanupFailed,
        None => Exit::Success,
    })
}

/// A shell is one trial of one case.
fn as_run(args: &Shell) -> Run {
    Run {
        evaluation: args.evaluation.clone(),
        cases: vec![globset::escape(&args.case)],
        tag: None,
        repeat: Some(1),
        jobs: Some(1),
        fail_fast: false,
        retry_uncertain: 0,
        shard: None,
        resume: None,
        drill: None,
        seed: None,
        max_cost: None,
        buildkit_image: args.buildkit_image.clone(),
        trace: None,
    }
}

fn open(lab: &Lab<'_>, planned: &Planned, objects: &mut Objects, program: &str) -> Result<()> {
    let accepted: &Accepted = lab.accepted;
    let mut host = attempt::host(lab)?;
    host.create_world(&planned.case.line)?;
    let before = host.snapshot()?;
    let host = Arc::new(Mutex::new(host));
    let files = || Files { operations: Box::new(sink()), gateway: Box::new(sink()) };
    let way = match &lab.doors {
        Some(doors) => Some(doors.make_way(
            &lab.ground,
            &accepted.declarations,
            planned,
            (&host, &before),
            (files(), &lab.redactor),
            objects,
        )?),
        None => None,
    };
    let (target, shortfalls) = attempt::with_spec(lab, planned, way.as_ref(), |spec| {
        let mut spec = spec.clone();
        (spec.command, spec.terminal) = (vec![program.to_owned()], true);
        trial::prepare(&lab.ground, objects, &spec)
    })?;
    as_asked_for(&shortfalls)?;
    if let Some((way, doors)) = way.as_ref().zip(lab.doors.as_ref()) {
        way.wait_ready(doors, lab.ground.scope.docker())?;
    }
    as_asked_for(&lab.proof.wait(&target.shape)?)?;
    let deadline = Instant::now() + accepted.policy.sandbox.wall_time;
    let docker = lab.ground.scope.docker();
    docker.start_on_terminal(&target.id, || {
        let over = accepted.stop.is_raised() || Instant::now() >= deadline;
        over && docker.kill(&target.id).is_ok()
    })?;
    Ok(())
}

fn as_asked_for(shortfalls: &[Shortfall]) -> Result<()> {
    if shortfalls.is_empty() {
        return Ok(());
    }
    let told: BTreeSet<String> = shortfalls.iter().map(Shortfall::to_string).collect();
    let hints: BTreeSet<&str> = shortfalls.iter().filter_map(|it| it.hint.as_deref()).collect();
    let hints: String = hints.iter().map(|hint| format!("\nhint: {hint}")).collect();
    bail!("the sandbox is not what was asked for: {}{hints}", told.into_iter().collect::<Vec<_>>().join("; "))
}
