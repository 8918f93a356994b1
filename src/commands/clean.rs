//! `crashlab clean`: finishes the clean-up of runs whose process is gone, from their journals, under the same rules as a
//! live run. A person starts it; no other command does.

use crate::cli::{Clean, Format, Global};
use crate::docker::Docker;
use crate::exit::{Exit, Refusal};
use crate::interrupt::Interrupt;
use crate::report::text::safe;
use crate::scope::{self, Cleanup, Leftover, Resource};
use crate::trace::Trace;
use anyhow::Result;
use serde_json::{Value, json};
use std::io::Write;

/// Finishes what dead runs owe, or shows it (`--dry-run`). Exit 4 where something is left.
///
/// # Errors
/// A refusal where a named run is unknown or alive.
pub fn clean(global: &Global, args: &Clean, stop: &Interrupt, out: &mut dyn Write) -> Result<Exit> {
    let chosen = choose(scope::leftovers(&global.results.join("runs")), &args.runs)?;
    let docker = Docker::new(stop, &Trace::off());
    let (mut told, mut left) = (Vec::new(), false);
    for leftover in chosen {
        if stop.is_raised() {
            break;
        }
        let cleanup = match args.dry_run {
            true => None,
            false => match finish(global, &leftover, &docker)? {
                Some(cleanup) => Some(cleanup),
                // Somebody else has begun to finish it since it was looked at.
                None if args.runs.is_empty() => continue,
                None => return Err(alive(&leftover).into()),
            },
        };
        left |= cleanup.as_ref().is_some_and(|cleanup| !cleanup.failures.is_empty());
        tell(global, &leftover, cleanup.as_ref(), out);
        told.push(as_json(&leftover, cleanup.as_ref()));
    }
    match global.format {
        Format::Json => drop(writeln!(out, "{}", Value::Array(told))),
        _ if told.is_empty() => drop(writeln!(out, "no run owes a clean-up")),
        _ => {}
    }
    Ok(match stop.signal() {
        Some(signal) => Exit::Signal(signal),
        None if left => Exit::CleanupFailed,
        None => Exit::Success,
    })
}

fn finish(global: &Global, leftover: &Leftover, docker: &Docker) -> Result<Option<Cleanup>> {
    scope::finish(&leftover.run, &leftover.folder, &global.results.join("scopes"), docker)
}

/// The dead runs among these; a live one is refused where it was named, and passed over where it was not.
fn choose(all: Vec<Leftover>, named: &[String]) -> Result<Vec<Leftover>, Refusal> {
    if named.is_empty() {
        return Ok(all.into_iter().filter(|leftover| !leftover.live).collect());
    }
    named.iter().map(|name| one(&all, name)).collect()
}

fn one(all: &[Leftover], name: &str) -> Result<Leftover, Refusal> {
    let fits: Vec<&Leftover> = all.iter().filter(|leftover| leftover.run.as_str().starts_with(name)).collect();
    match fits.as_slice() {
        [leftover] if leftover.live => Err(alive(leftover)),
        [leftover] => Ok((*leftover).clone()),
        [] => Err(Refusal::new(format!("no run {name:?} owes a clean-up")).hint("see: crashlab clean --dry-run")),
        _ => Err(Refusal::new(format!("{name:?} is the beginning of {} runs", fits.len())).hint("give more of its id")),
    }
}

/// Its process is there, or another `clean` that finishes it.
fn alive(leftover: &Leftover) -> Refusal {
    Refusal::new(format!("run {} is still alive, or is being finished by another command", leftover.run))
        .hint("interrupt it; it cleans up by itself")
}

fn tell(global: &Global, leftover: &Leftover, cleanup: Option<&Cleanup>, out: &mut dyn Write) {
    if global.format == Format::Json {
        return;
    }
    let mut text = format!("run {}\n", leftover.run);
    let mut line = |what: &str, resource: &Resource, why: &str| {
        let id = resource.id.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
        text += &format!("  {what:<12} {:<10} {}{id}{why}\n", resource.kind.as_str(), resource.name);
    };
    match cleanup {
        None => leftover.owed.iter().rev().for_each(|resource| line("would remove", resource, "")),
        Some(cleanup) => {
            cleanup.removed.iter().for_each(|resource| line("removed", resource, ""));
            cleanup.kept.iter().for_each(|(resource, why)| line("kept", resource, &format!(": {why}")));
            cleanup.failures.iter().for_each(|it| line("still there", &it.resource, &format!(": {}", it.reason)));
        }
    }
    // A journal may have been edited: what it says is neutral for a terminal.
    let text: Vec<_> = text.lines().map(safe).collect();
    let _ = writeln!(out, "{}", text.join("\n"));
}

fn as_json(leftover: &Leftover, cleanup: Option<&Cleanup>) -> Value {
    let thing = |resource: &Resource| json!({"kind": resource.kind, "id": resource.id, "name": resource.name});
    let with = |resource: &Resource, reason: &str| json!({"kind": resource.kind, "id": resource.id, "name": resource.name, "reason": reason});
    match cleanup {
        None => json!({"run": leftover.run, "would_remove": leftover.owed.iter().rev().map(thing).collect::<Vec<_>>()}),
        Some(cleanup) => json!({
            "run": leftover.run,
            "removed": cleanup.removed.iter().map(thing).collect::<Vec<_>>(),
            "kept": cleanup.kept.iter().map(|(it, reason)| with(it, reason)).collect::<Vec<_>>(),
            "failures": cleanup.failures.iter().map(|it| with(&it.resource, &it.reason)).collect::<Vec<_>>(),
        }),
    }
}
