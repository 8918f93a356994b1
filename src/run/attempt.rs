//! One attempt at one trial, from its world to its verdict. Owns the order: the world is made before the target starts,
//! the target is confirmed dead before the verifier looks, and the verifier always looks. Trouble of any step makes the
//! trial uncertain with that step's reason; it never becomes a verdict on the agent.

use super::accept::Planned;
use super::lab::Lab;
use crate::evaluation::{EvaluationError, Host, Launch, VerifyInput};
use crate::results::record::{TrialRecord, timestamp};
use crate::results::store::{TrialFile, TrialFolder};
use crate::trial::{self, Exited, Objects, Watch};
use crate::verdict::{self, Facts};
use anyhow::{Context, Result};
use camino::Utf8Path;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How much of the target's log the verifier gets.
const LOG_SHOWN: usize = 256 << 10;
/// Characters of one diagnostic.
const LONGEST_DIAGNOSTIC: usize = 2000;

/// What an attempt found out.
#[derive(Default)]
struct Story {
    facts: Facts,
    diagnostics: Vec<String>,
    duration: Option<Duration>,
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
    let stored = lab.store.trial(&planned.id).and_then(|folder| {
        tell(lab, planned, &folder, &mut objects, &mut story, halted)?;
        folder.finish(record(planned, &folder, &story, started))
    });
    objects.release(lab.ground.scope);
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
    if story.not_run {
        return TrialRecord { diagnostics: story.diagnostics.clone(), ..blank };
    }
    let (outcome, reason) = verdict::decide(&story.facts);
    TrialRecord {
        outcome,
        reason,
        stop: story.facts.stop,
        checks: verdict::checks(&story.facts),
        started: Some(timestamp(started)),
        duration_ms: story.duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        diagnostics: story.diagnostics.clone(),
        ..blank
    }
}

/// The steps of an attempt. An error is a failure to store; everything else goes into the story.
fn tell(
    lab: &Lab<'_>,
    planned: &Planned,
    folder: &TrialFolder,
    objects: &mut Objects,
    story: &mut Story,
    halted: &AtomicBool,
) -> Result<()> {
    let mut host = match host(lab) {
        Ok(host) => host,
        Err(error) => {
            story.evaluation_error(&error);
            return Ok(());
        }
    };
    let played = play(lab, planned, folder, objects, story, &mut host, halted);
    folder.write(TrialFile::EvaluationLog, &host.shutdown())?;
    played
}

fn play(
    lab: &Lab<'_>,
    planned: &Planned,
    folder: &TrialFolder,
    objects: &mut Objects,
    story: &mut Story,
    host: &mut Host,
    halted: &AtomicBool,
) -> Result<()> {
    let before = match host.create_world(&planned.case.line).and_then(|()| host.snapshot()) {
        Ok(world) => world,
        Err(error) => {
            story.evaluation_error(&error);
            return Ok(());
        }
    };
    let Some(exited) = run_target(lab, planned, objects, story, halted) else {
        return folder.write_worlds(&before, None);
    };
    folder.write(TrialFile::Stdout, &exited.stdout.stored())?;
    folder.write(TrialFile::Stderr, &exited.stderr.stored())?;
    story.facts.stop = exited.stop;
    story.duration = Some(exited.duration);
    exited.diagnostics.iter().for_each(|words| story.tell(words.clone()));
    let Some(stop) = exited.stop else {
        story.not_run = true;
        story.tell("interrupted while the target ran");
        return folder.write_worlds(&before, None);
    };
    let after = host.snapshot();
    folder.write_worlds(&before, after.as_ref().ok())?;
    let checks = after.and_then(|world| {
        let log = String::from_utf8_lossy(&exited.stderr.kept[..exited.stderr.kept.len().min(LOG_SHOWN)]).into_owned();
        host.verify(&VerifyInput {
            case: &planned.case.line,
            answer: &answer(&exited.stdout.kept),
            stop: Some(stop),
            world_before: &before,
            world: &world,
            operations: &[],
            log: &log,
        })
    });
    match checks {
        Ok(checks) => story.facts.checks = Some(checks),
        Err(error) => story.evaluation_error(&error),
    }
    Ok(())
}

/// The first process is there already; later ones are started ahead of need, by the workers that wait for a slot.
fn host(lab: &Lab<'_>) -> Result<Host, EvaluationError> {
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

/// Prepares the sandbox, waits for a slot, runs the target to its confirmed end. None where it never ran.
fn run_target(
    lab: &Lab<'_>,
    planned: &Planned,
    objects: &mut Objects,
    story: &mut Story,
    halted: &AtomicBool,
) -> Option<Exited> {
    let environment = BTreeMap::from([
        ("CRASHLAB_CASE".to_owned(), planned.id.case.to_string()),
        ("CRASHLAB_REPETITION".to_owned(), planned.id.repetition.to_string()),
    ]);
    let (target, shortfalls) = match trial::prepare(&lab.ground, objects, environment) {
        Ok(prepared) => prepared,
        Err(error) => {
            story.engine_error(&error);
            return None;
        }
    };
    if !shortfalls.is_empty() {
        story.facts.sandbox_unproven = true;
        for shortfall in &shortfalls {
            let observed = shortfall.observed.as_deref().unwrap_or("nothing");
            story.tell(format!(
                "sandbox: {}: requested {}, observed {observed}",
                shortfall.requirement, shortfall.requested
            ));
        }
        lab.shortfalls.lock().unwrap_or_else(PoisonError::into_inner).extend(shortfalls);
        return None;
    }
    let slot = lab.slots.take();
    if lab.accepted.stop.is_raised() || halted.load(Ordering::SeqCst) {
        story.not_run = true;
        return None;
    }
    let policy = &lab.accepted.policy;
    let watch =
        Watch { wall_time: policy.sandbox.wall_time, output: policy.sandbox.output, stop: lab.accepted.stop.clone() };
    let docker = lab.ground.scope.docker();
    let ran = input(&planned.case.input).and_then(|input| target.start(docker, input, &watch)?.watch(docker, &watch));
    drop(slot);
    ran.map_err(|error| story.engine_error(&error)).ok()
}

/// The case's input as one JSON document, a line end, end of file.
fn input(input: &Value) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(input).context("failed to encode the case's input")?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The value where all of it is one JSON document, else the text: lossy, one trailing line end taken off.
fn answer(stdout: &[u8]) -> Value {
    serde_json::from_slice(stdout).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(stdout);
        Value::String(text.strip_suffix('\n').unwrap_or(&text).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_is_one_json_document_or_text() {
        let table: [(&[u8], Value); 7] = [
            (b"{\"a\": 1}\n", json!({"a": 1})),
            (b"  42  ", json!(42)),
            (b"done", json!("done")),
            (b"done\n", json!("done")),
            (b"done\n\n", json!("done\n")),
            (b"{\"a\": 1} {\"b\": 2}", json!("{\"a\": 1} {\"b\": 2}")),
            (b"\xff", json!("\u{fffd}")),
        ];
        for (stdout, value) in table {
            assert_eq!(answer(stdout), value);
        }
    }
}
