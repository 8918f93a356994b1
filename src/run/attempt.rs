//! One attempt at one trial, from its world to its verdict. Owns the order: the world is made before the target starts,
//! the target is confirmed dead before the verifier looks, and the verifier always looks. Trouble of any step makes the
//! trial uncertain with that step's reason; it never becomes a verdict on the agent.

use super::accept::Planned;
use super::doors::{Files, Way};
use super::lab::{Lab, Slot};
use crate::docker::args::{Attachment, ContainerSpec};
use crate::drills::Injected;
use crate::evaluation::protocol::OperationSeen;
use crate::evaluation::{self, EvaluationError, Host, Launch, VerifyInput};
use crate::json;
use crate::results::record::{FaultRecord, TrialRecord, timestamp};
use crate::results::store::{TrialFile, TrialFolder, TrialLog};
use crate::totals::Totals;
use crate::trial::{self, Created, Exited, Objects, Shortfall, Sink, Watch};
use crate::verdict::{self, Facts};
use anyhow::{Context, Result};
use camino::Utf8Path;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// How much of the target's log the verifier gets.
const LOG_SHOWN: u64 = 256 << 10;
/// How deep an answer may be nested: as deep as it can be read.
const ANSWER_LEVELS: usize = 128;
/// Characters of one diagnostic.
const LONGEST_DIAGNOSTIC: usize = 2000;

/// What an attempt found out.
#[derive(Default)]
struct Story {
    facts: Facts,
    diagnostics: Vec<String>,
    started: Option<SystemTime>,
    duration: Option<Duration>,
    faults: Vec<FaultRecord>,
    usage: Totals,
    not_run: bool,
}

impl Story {
    fn tell(&mut self, words: impl Into<String>) {
        let words: String = words.into();
        self.diagnostics.push(words.chars().take(LONGEST_DIAGNOSTIC).collect());
    }

    fn evaluation_error(&mut self, error: &EvaluationError) {
        self.facts.evaluation_error = true;
        self.tell(format!("evaluation: {error}"));
    }

    fn relay_error(&mut self, error: &anyhow::Error) {
        self.facts.relay_error = true;
        self.tell(format!("relay: {error:#}"));
    }

    fn engine_error(&mut self, error: &anyhow::Error) {
        self.facts.engine_error = true;
        self.tell(format!("engine: {error:#}"));
    }
}

/// Runs a trial once, and stores it.
pub fn attempt(lab: &Lab<'_>, planned: &Planned, halted: &AtomicBool) -> TrialRecord {
    let started = SystemTime::now();
    let mut story = Story::default();
    story.facts.require_clean_exit = lab.accepted.policy.evaluation.require_clean_exit;
    let mut objects = Objects::default();
    let stored = lab.store.trial(&planned.id).and_then(|mut folder| {
        tell(lab, planned, &mut folder, &mut objects, &mut story, halted)?;
        folder.finish(record(planned, &folder, &story, started))
    });
    lab.behind.leave(objects);
    stored.unwrap_or_else(|error| {
        // What cannot be written was not measured: a later reader would not find it.
        story.engine_error(&error.context("failed to store the trial"));
        unstored(planned, &story, started)
    })
}

fn record(planned: &Planned, folder: &TrialFolder, story: &Story, started: SystemTime) -> TrialRecord {
    TrialRecord { attempt: folder.attempt(), ..unstored(planned, story, started) }
}

fn unstored(planned: &Planned, story: &Story, started: SystemTime) -> TrialRecord {
    let blank = TrialRecord::not_run(&planned.id);
    let (diagnostics, usage, faults) = (story.diagnostics.clone(), story.usage, story.faults.clone());
    if story.not_run {
        return TrialRecord { diagnostics, usage, faults, ..blank };
    }
    let (outcome, reason) = verdict::decide(&story.facts);
    TrialRecord {
        outcome,
        reason,
        stop: story.facts.stop,
        checks: verdict::checks(&story.facts),
        // Where the target ran, its own begin: times and durations of a trial count from there.
        started: Some(timestamp(story.started.unwrap_or(started))),
        duration_ms: story.duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        faults,
        diagnostics,
        usage,
        ..blank
    }
}

/// The steps of an attempt. An error is a failure to store; everything else goes into the story.
fn tell(
    lab: &Lab<'_>,
    planned: &Planned,
    folder: &mut TrialFolder,
    objects: &mut Objects,
    story: &mut Story,
    halted: &AtomicBool,
) -> Result<()> {
    let span = lab.trace.span(|| format!("evaluation process {}", planned.id));
    let host = match host(lab) {
        Ok(host) => Arc::new(Mutex::new(host)),
        Err(error) => {
            story.evaluation_error(&error);
            return Ok(());
        }
    };
    drop(span);
    let played = play(lab, planned, folder, objects, story, &host, halted);
    // The trial's tokens are revoked: nobody else holds the process any more.
    if let Some(host) = Arc::into_inner(host) {
        let log = host.into_inner().unwrap_or_else(PoisonError::into_inner).shutdown();
        folder.write(TrialFile::EvaluationLog, &log)?;
    }
    played
}

fn play(
    lab: &Lab<'_>,
    planned: &Planned,
    folder: &mut TrialFolder,
    objects: &mut Objects,
    story: &mut Story,
    host: &Arc<Mutex<Host>>,
    halted: &AtomicBool,
) -> Result<()> {
    let created = {
        let mut host = locked(host);
        host.create_world(&planned.case.line).and_then(|()| host.snapshot())
    };
    let before = match created {
        Ok(world) => world,
        Err(error) => {
            story.evaluation_error(&error);
            return Ok(());
        }
    };
    let permit = lab.starts.take();
    let span = lab.trace.span(|| format!("network and relay {}", planned.id));
    let way = match make_way(lab, planned, folder, objects, (host, &before)) {
        Ok(way) => way,
        Err(error) => {
            story.engine_error(&error);
            return folder.write_worlds(&before, None);
        }
    };
    drop(span);
    if let Some(way) = &way {
        folder.redact_with(way.admission.redactor());
    }
    let exited = run_target(lab, (planned, folder), objects, story, way.as_ref(), permit, halted);
    let operations = revoke(way, story);
    let Some(exited) = exited else {
        return folder.write_worlds(&before, None);
    };
    story.facts.stop = exited.stop;
    (story.started, story.duration) = (exited.started, Some(exited.duration));
    exited.diagnostics.iter().for_each(|words| story.tell(words.clone()));
    trial::explain(&exited, &lab.accepted.policy.sandbox).into_iter().for_each(|words| story.tell(words));
    let Some(stop) = exited.stop else {
        story.not_run = true;
        story.tell("interrupted while the target ran");
        return folder.write_worlds(&before, None);
    };
    let _span = lab.trace.span(|| format!("verify {}", planned.id));
    let mut host = locked(host);
    let after = host.snapshot();
    folder.write_worlds(&before, after.as_ref().ok())?;
    let checks = after.and_then(|world| {
        let log = String::from_utf8_lossy(&exited.stderr.kept).into_owned();
        host.verify(&VerifyInput {
            case: &planned.case.line,
            answer: &answer(exited.stdout.kept),
            stop: Some(stop),
            world_before: &before,
            world: &world,
            operations: &operations,
            log: &log,
        })
    });
    match checks {
        Ok(checks) => story.facts.checks = Some(checks),
        Err(error) => story.evaluation_error(&error),
    }
    Ok(())
}

fn locked(host: &Mutex<Host>) -> MutexGuard<'_, Host> {
    host.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first process is there already; later ones are started ahead of need, by the workers that wait for a slot.
pub fn host(lab: &Lab<'_>) -> Result<Host, EvaluationError> {
    let first = lab.accepted.first.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(host) = first {
        return Ok(host);
    }
    let accepted = lab.accepted;
    let sdk = Utf8Path::from_path(accepted.sdk.path()).unwrap_or(Utf8Path::new("."));
    let launch = Launch {
        package: &accepted.package,
        policy: &accepted.policy,
        python: accepted.python.as_deref(),
        secrets_to_hide: &accepted.hidden,
        sdk,
        stop: Some(&accepted.stop),
    };
    let mut host = Host::start(&launch)?;
    host.initialize()?;
    Ok(host)
}

/// The trial's network, relay and tokens, where anything is declared.
fn make_way(
    lab: &Lab<'_>,
    planned: &Planned,
    folder: &TrialFolder,
    objects: &mut Objects,
    world: (&Arc<Mutex<Host>>, &Value),
) -> Result<Option<Way>> {
    let declarations = &lab.accepted.declarations;
    let Some(doors) = &lab.doors else { return Ok(None) };
    let files = Files {
        operations: Box::new(folder.open_log(TrialLog::Operations)?),
        gateway: Box::new(folder.open_log(TrialLog::Gateway)?),
    };
    doors.make_way(&lab.ground, declarations, planned, world, (files, &lab.redactor), objects).map(Some)
}

/// Revokes the tokens, and takes what the calls came to into the story; gives the calls as the verifier sees them.
fn revoke(way: Option<Way>, story: &mut Story) -> Vec<OperationSeen> {
    let Some(way) = way else { return Vec::new() };
    let traffic = way.admission.revoke();
    story.usage = traffic.totals;
    for failure in &traffic.failures {
        story.facts.provider_error = true;
        let status = failure.status.map(|status| format!(" ({status})")).unwrap_or_default();
        story.tell(format!("provider: {} {}: {}{status}", failure.gateway, failure.route, failure.failure.as_str()));
    }
    if let Some(trouble) = traffic.evaluation_error {
        story.facts.evaluation_error = true;
        story.tell(format!("evaluation: {trouble}"));
    }
    let fault = |it: Injected| FaultRecord { kind: it.kind.to_owned(), on: it.on, route: it.route, call: it.call };
    story.faults = traffic.faults.into_iter().map(fault).collect();
    traffic.diagnostics.into_iter().for_each(|words| story.tell(words));
    traffic.operations.into_iter().map(evaluation::seen).collect()
}

/// Prepares the sandbox, waits for a slot, runs the target to its confirmed end. None where it never ran.
fn run_target(
    lab: &Lab<'_>,
    (planned, folder): (&Planned, &TrialFolder),
    objects: &mut Objects,
    story: &mut Story,
    way: Option<&Way>,
    permit: Slot<'_>,
    halted: &AtomicBool,
) -> Option<Exited> {
    let target = match prepare(lab, planned, objects, way) {
        Ok((target, shortfalls)) if shortfalls.is_empty() => target,
        Ok((_, shortfalls)) => {
            unproven(lab, story, shortfalls);
            return None;
        }
        Err(error) => {
            story.engine_error(&error);
            return None;
        }
    };
    if let Some(Err(error)) =
        way.zip(lab.doors.as_ref()).map(|(way, doors)| way.wait_ready(doors, lab.ground.scope.docker()))
    {
        story.not_run = lab.accepted.stop.is_raised();
        story.relay_error(&error);
        return None;
    }
    drop(permit);
    match lab.proof.wait(&target.shape) {
        Ok(shortfalls) if shortfalls.is_empty() => {}
        Ok(shortfalls) => {
            unproven(lab, story, shortfalls);
            return None;
        }
        Err(error) => {
            story.not_run = lab.accepted.stop.is_raised();
            story.engine_error(&error);
            return None;
        }
    }
    let span = lab.trace.span(|| format!("wait for a slot {}", planned.id));
    let slot = lab.slots.take();
    drop(span);
    if lab.accepted.stop.is_raised() || halted.load(Ordering::SeqCst) {
        story.not_run = true;
        return None;
    }
    let policy = &lab.accepted.policy;
    let watch = Watch {
        wall_time: policy.sandbox.wall_time,
        output: policy.sandbox.output,
        stop: lab.accepted.stop.clone(),
        companion: way.map(|way| way.link.relay.clone()),
    };
    let docker = lab.ground.scope.docker();
    let _span = lab.trace.span(|| format!("target {}", planned.id));
    let ran = input(&planned.case.input).and_then(|input| {
        // The answer is taken whole, as far as the policy lets it be printed.
        let out = Sink::file(folder.stream(TrialFile::Stdout)?, policy.sandbox.output);
        let err = Sink::file(folder.stream(TrialFile::Stderr)?, LOG_SHOWN);
        target.start(docker, input, &watch, [out, err])?.watch(docker, &watch)
    });
    drop(slot);
    let exited = ran.map_err(|error| story.engine_error(&error)).ok()?;
    if let Some(words) = &exited.forsaken {
        story.relay_error(&anyhow::anyhow!("{words}"));
    }
    Some(exited)
}

fn prepare(
    lab: &Lab<'_>,
    planned: &Planned,
    objects: &mut Objects,
    way: Option<&Way>,
) -> Result<(Created, Vec<Shortfall>)> {
    with_spec(lab, planned, way, |spec| trial::prepare(&lab.ground, objects, spec))
}

/// Hands the target's container over as it is to be created; the file with its tokens is there only meanwhile.
pub fn with_spec<T>(
    lab: &Lab<'_>,
    planned: &Planned,
    way: Option<&Way>,
    create: impl FnOnce(&ContainerSpec) -> Result<T>,
) -> Result<T> {
    let environment = BTreeMap::from([
        ("CRASHLAB_CASE".to_owned(), planned.id.case.to_string()),
        ("CRASHLAB_REPETITION".to_owned(), planned.id.repetition.to_string()),
    ]);
    let Some(way) = way else {
        return create(&trial::target_spec(&lab.ground, Attachment::None, environment, None));
    };
    let file = way.environment_file(lab.ground.scope)?;
    let path = file.0.clone();
    let created = create(&trial::target_spec(&lab.ground, way.link.attachment(), environment, Some(file)));
    // The engine has read it: the tokens stay in the container's environment only.
    std::fs::remove_file(&path).with_context(|| format!("failed to delete {path}"))?;
    created
}

fn unproven(lab: &Lab<'_>, story: &mut Story, shortfalls: Vec<Shortfall>) {
    story.facts.sandbox_unproven = true;
    for shortfall in &shortfalls {
        story.tell(format!("sandbox: {shortfall}"));
    }
    lab.shortfalls.lock().unwrap_or_else(PoisonError::into_inner).extend(shortfalls);
}

/// The case's input as one JSON document, a line end, end of file.
fn input(input: &Value) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(input).context("failed to encode the case's input")?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The value where all of it is one JSON document that an evaluation can read, else the text: lossy, one trailing line end
/// taken off. What the verifier's process cannot read would make the trial uncertain, whatever the agent did.
fn answer(stdout: Vec<u8>) -> Value {
    let value = json::parse_lenient(&stdout).ok().filter(|value| json::is_readable(value, ANSWER_LEVELS));
    value.unwrap_or_else(|| {
        let mut text =
            String::from_utf8(stdout).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        if text.ends_with('\n') {
            text.pop();
        }
        Value::String(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_one_json_document_or_text() {
        let reserved = br#"{"$serde_json::private::RawValue":"[[1]]"}"#;
        let digits = "1".repeat(5000);
        let table: [(&[u8], Value); 12] = [
            (b"{\"a\": 1}\n", json!({"a": 1})),
            (b"  42  ", json!(42)),
            (b"done", json!("done")),
            (b"done\n", json!("done")),
            (b"done\n\n", json!("done\n")),
            (b"{\"a\": 1} {\"b\": 2}", json!("{\"a\": 1} {\"b\": 2}")),
            (b"\xff", json!("\u{fffd}")),
            (b"{\"a\": 1, \"a\": 2}", json!({"a": 2})),
            (digits.as_bytes(), json!(digits)),
            (b"[1e999]", json!("[1e999]")),
            (
                b"[0.1e-999, 12345678901234567890123]",
                serde_json::from_str("[0.1e-999, 12345678901234567890123]").unwrap(),
            ),
            (reserved, json!({"$serde_json::private::RawValue": "[[1]]"})),
        ];
        for (stdout, value) in table {
            assert_eq!(answer(stdout.to_vec()), value);
        }
    }
}
