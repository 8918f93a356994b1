//! `crashlab doctor`: says line by line what this engine enforces, by trying it: the sandbox that a run would have, with
//! and without a way out, looked at from inside. It stores nothing, and cleans up as a run does.

mod finding;

use crate::cli::{Doctor, Format, Global};
use crate::commands::view::no_form;
use crate::docker::{Docker, DockerError, Engine, Place};
use crate::exit::Exit;
use crate::ids::RunId;
use crate::image::DEFAULT_BUILDKIT;
use crate::interrupt::Interrupt;
use crate::policy::{self, Policy};
use crate::redact::Redactor;
use crate::report;
use crate::results::store::Store;
use crate::run::doors::Doors;
use crate::run::proof::Stand;
use crate::scope::{Cleanup, Scope};
use crate::trace::Trace;
use crate::trial::relay::RelayGround;
use crate::trial::{Ground, Objects};
use anyhow::{Context, Result, bail};
use finding::Finding;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// How long a builder may take to start, its image being there.
const BUILDER_START: Duration = Duration::from_secs(120);
/// Where a network exists these requirements are others than without one.
const OF_NETWORK: [&str; 6] =
    ["network", "host_reach", "outside_reach", "name_resolution", "neighbour_reach", "relay_reach"];

/// Looks at the engine; exit 3 where something that a run needs is missing.
///
/// # Errors
/// A refusal of the command line, or what kept it from looking at all.
pub fn doctor(global: &Global, args: &Doctor, stop: &Interrupt, out: &mut dyn Write) -> Result<Exit> {
    if !matches!(global.format, Format::Human | Format::Json) {
        return Err(no_form("doctor", "human or json"));
    }
    let docker = Docker::new(stop, &Trace::off());
    let mut findings = Vec::new();
    let mut cleaned = true;
    match docker.engine() {
        Ok(engine) => {
            findings.extend(told(&engine));
            if engine.place() != Place::Remote {
                cleaned = try_out(global, args, &docker, &engine, stop, &mut findings)?;
            }
        }
        Err(error) => findings.push(no_engine(&docker, &error)),
    }
    let exit = match (stop.signal(), finding::exit_of(&findings)) {
        (Some(signal), _) => Exit::Signal(signal),
        (None, Exit::Success) if !cleaned => Exit::CleanupFailed,
        (None, exit) => exit,
    };
    if global.format == Format::Json {
        report::json(&json!({"schema": "crashlab.doctor/1", "exit": exit.code(), "findings": findings}), out)?;
    } else {
        finding::human(&findings, out).context("failed to write to standard output")?;
    }
    Ok(exit)
}

/// Why nobody answers, where it was looked for, and what to do.
fn no_engine(docker: &Docker, error: &DockerError) -> Finding {
    let text = error.to_string();
    let place = docker.endpoint().map(|endpoint| format!(" at {} (context {})", endpoint.address, endpoint.context));
    Finding::shortfall("engine", format!("no engine answers{}: {text}", place.unwrap_or_default()), error.advice())
}

/// What the engine says of itself.
fn told(engine: &Engine) -> Vec<Finding> {
    let endpoint = &engine.endpoint;
    let mut findings = vec![
        Finding::holds(
            "engine",
            format!("{} (API {}) on {}, kernel {}", engine.version, engine.api, engine.os, engine.kernel),
        ),
        Finding::holds("endpoint", format!("{} (context {})", endpoint.address, endpoint.context)),
        place(engine),
        Finding::holds("cgroup", format!("version {}", engine.cgroup)),
        Finding::holds("runtime", format!("{} of {}", engine.runtime, engine.runtimes.join(", "))),
    ];
    findings.extend(engine.warnings.iter().map(|warning| match is_of_a_limit(warning) {
        true => Finding::shortfall("engine_warning", warning, "the kernel or the cgroup lacks a controller"),
        false => Finding::note("engine_warning", warning),
    }));
    findings
}

/// Whether an engine's warning is of a limit that sandboxes have; they have no set of CPUs, no shares, and none for the
/// kernel's own memory.
fn is_of_a_limit(warning: &str) -> bool {
    let warning = warning.to_ascii_lowercase();
    let ours = ["memory limit", "swap limit", "cpu cfs", "pids limit"];
    ours.iter().any(|word| warning.contains(word)) && !warning.contains("kernel memory")
}

fn place(engine: &Engine) -> Finding {
    match engine.place() {
        Place::Here => Finding::holds("place", "this machine, with the host's own networks"),
        Place::Remote => Finding::shortfall(
            "place",
            "another machine: its containers cannot reach the gateway on this host, and it cannot mount this host's \
             snapshot; nothing was tried there",
            "use a local engine: docker context use default, or unset DOCKER_HOST",
        ),
        Place::VirtualMachine => Finding::shortfall(
            "place",
            "a virtual machine: its bridges are not this host's, so that no gateway and no operation can be reached from \
             a target, and only folders that it shares can be mounted",
            "run crashlab inside the virtual machine, or on Linux with an engine of its own",
        ),
        Place::Rootless => Finding::shortfall(
            "place",
            "rootless: its bridges are in a network namespace of their own, so that no gateway and no operation can be \
             reached from a target; limits hold only where cgroup version 2 is delegated to the user",
            "use an engine that runs as root for evaluations with operations or gateways",
        ),
    }
}

/// Makes what a run makes, and looks at it from inside. False where something of it could not be removed.
fn try_out(
    global: &Global,
    args: &Doctor,
    docker: &Docker,
    engine: &Engine,
    stop: &Interrupt,
    findings: &mut Vec<Finding>,
) -> Result<bool> {
    let run = RunId::generate(SystemTime::now())?;
    let redactor = Redactor::new(Vec::new())?;
    let store = Store::create(&global.results, &run, redactor.clone())?;
    let scope = Scope::open(&run, store.path(), &global.results.join("scopes"), docker)?;
    let patient = Patient { args, engine, stop, scope: &scope, redactor: &redactor };
    if let Err(error) = patient.examine(findings) {
        findings.push(Finding::trouble("trial", &error));
    }
    let cleanup = scope.close();
    findings.extend(cleaned(&cleanup));
    if !cleanup.failures.is_empty() {
        return Ok(false);
    }
    std::fs::remove_dir_all(store.path()).with_context(|| format!("failed to delete {}", store.path()))?;
    Ok(true)
}

fn cleaned(cleanup: &Cleanup) -> Vec<Finding> {
    let failed = cleanup.failures.iter().map(|failure| {
        let what = format!("{} {}: {}", failure.resource.kind.as_str(), failure.resource.name, failure.reason);
        Finding::shortfall("cleanup", what, &failure.command)
    });
    let failed: Vec<Finding> = failed.collect();
    if failed.is_empty() {
        return vec![Finding::holds("cleanup", format!("{} objects made and removed", cleanup.removed.len()))];
    }
    failed
}

/// The engine while it is looked at.
struct Patient<'a> {
    args: &'a Doctor,
    engine: &'a Engine,
    stop: &'a Interrupt,
    scope: &'a Scope,
    redactor: &'a Redactor,
}

impl Patient<'_> {
    fn examine(&self, findings: &mut Vec<Finding>) -> Result<()> {
        let relays = RelayGround::make(self.scope, self.engine)?;
        findings.push(Finding::holds("address_pools", format!("a network on {} could be made", relays.subnet)));
        let policy = default_policy()?;
        let ground = self.ground(&policy, &relays)?;
        findings.extend(self.look(&ground, None, "")?);
        match Doors::listen(relays, self.stop) {
            Ok(doors) => {
                let address = doors.gateway_address().ip();
                findings.push(Finding::holds("bridge", format!("its address {address} is this machine's")));
                let seen = self.look(&ground, Some(&doors), "with a way out: ");
                findings.extend(seen.unwrap_or_else(|error| vec![Finding::trouble("with a way out", &error)]));
            }
            Err(error) => findings.push(Finding::trouble("bridge", &error)),
        }
        findings.extend(self.builder());
        Ok(())
    }

    /// The image that was named, or the relay's own: that one needs no registry.
    fn ground<'a>(&'a self, policy: &'a Policy, relays: &RelayGround) -> Result<Ground<'a>> {
        let image = self.args.image.as_deref().unwrap_or(relays.image());
        let Some(state) = self.scope.docker().inspect_image(image)? else {
            bail!("the engine has no image {image}\nhint: docker pull {image}")
        };
        let source = self.scope.folder().join("source");
        std::fs::create_dir(&source).with_context(|| format!("failed to make {source}"))?;
        Ok(Ground {
            scope: self.scope,
            policy,
            image: state.id.to_string(),
            image_env: state.config.and_then(|config| config.env).unwrap_or_default(),
            source: source.into_string(),
        })
    }

    fn look(&self, ground: &Ground<'_>, doors: Option<&Doors>, prefix: &str) -> Result<Vec<Finding>> {
        let stand = Stand { ground, engine: self.engine, doors, redactor: self.redactor, stop: self.stop };
        let (mut own, mut other) = (Objects::default(), Objects::default());
        let seen = stand.look(&mut own, &mut other);
        own.release(self.scope);
        other.release(self.scope);
        let seen = seen?;
        let chosen = |requirement: &str| doors.is_none() || OF_NETWORK.contains(&requirement);
        let rows = seen.rows.iter().filter(|row| chosen(row.requirement)).map(|row| Finding::row(prefix, row));
        // What only the engine said, or the client printed.
        let known = |name: &str| seen.rows.iter().any(|row| row.requirement == name && !row.holds());
        let others = seen.shortfalls.iter().filter(|shortfall| !known(&shortfall.requirement));
        let others = others.map(|it| Finding::difference(&format!("{prefix}{}", it.requirement), it.clone()));
        let crashes = seen.attested.get("core_handler").and_then(|it| it.as_str()).filter(|_| doors.is_none());
        Ok(rows.chain(others).chain(crashes.map(core_handler)).collect())
    }

    /// Building images: without it a run can use images by reference.
    fn builder(&self) -> Vec<Finding> {
        let Some(buildx) = &self.engine.buildx else {
            return vec![Finding {
                hint: Some("install docker-buildx-plugin (docker-buildx)".to_owned()),
                ..Finding::note("buildx", "the client has none: targets can be run by image reference, not built")
            }];
        };
        let mut findings = vec![Finding::holds("buildx", buildx)];
        let image = self.args.buildkit_image.as_deref().unwrap_or(DEFAULT_BUILDKIT);
        match self.scope.docker().inspect_image(image) {
            Ok(Some(_)) => findings.push(match self.scope.builder(Some(image), false, BUILDER_START) {
                Ok(_) => Finding::holds("builder", format!("{image} starts, without a network")),
                Err(error) => Finding::trouble("builder", &error),
            }),
            Ok(None) => findings.push(Finding::note("builder", format!("the first build would pull {image}"))),
            Err(error) => findings.push(Finding::trouble("builder", &error.into())),
        }
        findings
    }
}

/// The kernel asks no target's limit before it starts a handler (core(5)); the sandbox's memory bounds what it is handed.
fn core_handler(pattern: &str) -> Finding {
    let seen = format!("the host's kernel hands each crash of a target to {pattern}, although its core size is 0");
    let hint = "handlers such as systemd-coredump keep nothing at size 0; sysctl kernel.core_pattern=core starts none";
    Finding { hint: Some(hint.to_owned()), ..Finding::note("core_handler", seen) }
}

/// A policy that says nothing of its sandbox: what everybody gets.
fn default_policy() -> Result<Policy> {
    let document = json!({
        "version": 1, "name": "doctor", "target": {"image": {"reference": "none"}, "command": ["none"]},
        "evaluation": {"command": ["none"]},
    });
    Ok(policy::parse(document.to_string().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::is_of_a_limit;

    #[test]
    fn only_warnings_of_limits_that_sandboxes_have_are_shortfalls() {
        let table = [
            ("WARNING: No memory limit support", true),
            ("WARNING: No swap limit support", true),
            ("WARNING: No cpu cfs quota support", true),
            ("WARNING: No cpu cfs period support", true),
            ("WARNING: No pids limit support", true),
            // Seen with control groups of version 2 on a kernel without that controller.
            ("WARNING: No cpuset support", false),
            ("WARNING: No cpu shares support", false),
            ("WARNING: No kernel memory limit support", false),
            ("WARNING: No kernel memory TCP limit support", false),
            ("WARNING: No oom kill disable support", false),
            ("WARNING: No blkio weight support", false),
            ("WARNING: bridge-nf-call-iptables is disabled", false),
        ];
        for (warning, ours) in table {
            assert_eq!(is_of_a_limit(warning), ours, "{warning}");
        }
    }
}
