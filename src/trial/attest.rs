//! The proof of a sandbox: a container with the target's own flags, one more read-only mount and the attesting program as
//! its entry, asked once for each distinct sandbox of a run. What was asked for is compared with what the program saw, and
//! with what the engine says of that container. It changes nothing of a sandbox, and never settles for less.

pub mod compare;
mod ear;
pub mod report;

use super::output::Sink;
use super::sandbox::{self, Shape, Shortfall};
use super::{Created, Ground, Objects, Watch};
use crate::docker::Engine;
use crate::docker::args::{Attachment, ContainerSpec};
use crate::interrupt::Interrupt;
use crate::relay::PROGRAM;
use crate::relay::kernel_text::routes_v4;
use crate::scope::Scope;
use anyhow::{Context, Result, bail};
use camino::Utf8PathBuf;
use compare::{Expected, Questions};
use ear::Ear;
use report::Report;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

/// Where the attesting program stands in the container.
pub const PLACE: &str = "/crashlab-attest";
/// How long the whole look may take, a busy engine included.
const TIME: Duration = Duration::from_secs(60);
/// A report is a few KiB.
const LARGEST_REPORT: u64 = 4 << 20;
/// How long an address has to answer: all of them are on this machine, or must not be reached.
const PATIENCE_MILLIS: &str = "700";
/// Addresses of the world, of documentation (RFC 5737, RFC 3849): nobody answers there, but a route may lead there. This
/// host's own routers and resolvers are asked for beside them, so that no stranger has to be called for the proof.
const OUTSIDE: [&str; 2] = ["198.51.100.1:80", "[2001:db8::1]:80"];
/// Names of the world.
pub const NAMES: [&str; 2] = ["example.com", "crashlab-attestation.example.com"];

/// What was seen of a sandbox.
#[derive(Debug, Clone, Default)]
pub struct Attestation {
    /// By requirement, with the facts that no policy asks for.
    pub attested: Map<String, Value>,
    /// What the engine does not enforce.
    pub shortfalls: Vec<Shortfall>,
    /// Requirement by requirement, as it was asked for and as it was seen.
    pub rows: Vec<compare::Row>,
    /// Which sandbox it was.
    pub shape: Shape,
}

impl Attestation {
    /// What a sandbox of this shape lacks: the proof itself where another one was looked at.
    pub fn lacks(&self, shape: &Shape) -> Vec<Shortfall> {
        if self.shape != *shape {
            return vec![Shortfall::new("attestation", "of this sandbox", "of another one")];
        }
        self.shortfalls.clone()
    }
}

/// The network that the sandbox has, and who must not be reached through it.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// As the target's.
    pub network: Attachment,
    /// The relay that must answer.
    pub relay: Option<SocketAddr>,
    /// Another trial's relay.
    pub neighbour: Vec<SocketAddr>,
    /// Listeners of the host beside our own ear.
    pub host: Vec<SocketAddr>,
    /// What every trial's environment has beside the policy's.
    pub environment: BTreeMap<String, String>,
}

/// Runs the attesting program in the sandbox, and compares.
///
/// # Errors
/// Where the engine cannot run it at all.
pub fn attest(
    ground: &Ground<'_>,
    engine: &Engine,
    objects: &mut Objects,
    surroundings: &Surroundings,
    stop: &Interrupt,
) -> Result<Attestation> {
    let word = word()?;
    let ear = Ear::open(&word)?;
    let questions = questions(&ear, surroundings, word);
    let spec = spec(ground, surroundings, &questions)?;
    let shape = Shape::of(&spec);
    let (docker, made) = (ground.scope.docker(), ground.scope.container("attest", spec.clone(), false)?);
    objects.containers.push(made.id.clone());
    let state = docker.inspect_containers(&[&made.id])?.pop().context("the attesting container is gone")?;
    let mut shortfalls = sandbox::compare(&spec, &state, &made.warnings, &ground.image_env);
    let runtime = state.host_config.runtime;
    let watch = Watch { wall_time: TIME, output: LARGEST_REPORT, stop: stop.clone(), companion: None };
    let exited = Created { id: made.id, shape: shape.clone() }
        .start(docker, Vec::new(), &watch, [Sink::memory(), Sink::memory()])?
        .watch(docker, &watch)?;
    if stop.is_raised() {
        bail!("interrupted while the sandbox was looked at");
    }
    drop(ear);
    // The program itself says nothing there: what stands there is the client's.
    let complaints = String::from_utf8_lossy(&exited.stderr.kept).into_owned();
    let complaints = complaints.lines().map(str::trim).filter(|line| !line.is_empty());
    shortfalls.extend(complaints.map(|line| Shortfall::new("engine_warning", "none", line)));
    let report: Report = match serde_json::from_slice(&exited.stdout.kept) {
        Ok(report) => report,
        Err(error) => {
            shortfalls.push(Shortfall::new("attestation", "a report", format!("{:?}: {error}", exited.stop)));
            return Ok(Attestation { shortfalls: once(shortfalls), shape, ..Attestation::default() });
        }
    };
    let expected = Expected {
        spec: &spec,
        image_env: &ground.image_env,
        seccomp_profile: engine.seccomp_profile(),
        questions: &questions,
    };
    let rows = compare::rows(&report, &expected);
    shortfalls.extend(rows.iter().filter_map(compare::Row::shortfall));
    Ok(Attestation { attested: attested(&rows, &report, &runtime), shortfalls: once(shortfalls), rows, shape })
}

/// The engine's word and the program's may both name a requirement: the program's stands, being seen.
fn once(shortfalls: Vec<Shortfall>) -> Vec<Shortfall> {
    let by_name = |shortfall: Shortfall| (shortfall.requirement.clone(), shortfall);
    let (warnings, named): (Vec<_>, Vec<_>) =
        shortfalls.into_iter().partition(|shortfall| shortfall.requirement == "engine_warning");
    let named: BTreeMap<String, Shortfall> = named.into_iter().map(by_name).collect();
    named.into_values().chain(warnings).collect()
}

fn word() -> Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).context("failed to read random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn questions(ear: &Ear, surroundings: &Surroundings, word: String) -> Questions {
    let mut host = ear.addresses();
    if let Attachment::Network { address: Some(own), .. } = &surroundings.network
        && let Ok(own) = own.parse::<std::net::Ipv4Addr>()
    {
        // The first address of its own network would be the bridge's.
        let gateway = std::net::Ipv4Addr::from(u32::from(own) & !7 | 1);
        host.push((gateway, ear.port()).into());
    }
    host.extend(&surroundings.host);
    host.sort();
    host.dedup();
    Questions {
        host,
        neighbour: surroundings.neighbour.clone(),
        outside: outside(),
        names: NAMES.map(str::to_owned).to_vec(),
        relay: surroundings.relay,
        word,
    }
}

/// The addresses of the world that every sandbox is asked for.
pub fn outside() -> Vec<SocketAddr> {
    OUTSIDE.iter().filter_map(|text| text.parse().ok()).chain(next_hops()).collect()
}

/// This host's routers and resolvers, where a resolver would listen: the nearest machines that would answer.
fn next_hops() -> Vec<SocketAddr> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let routes = routes_v4(&read("/proc/net/route"));
    let routers =
        routes.iter().filter_map(|route| route.strip_prefix("0.0.0.0/0 via ")?.split(' ').next()?.parse().ok());
    let conf = read("/etc/resolv.conf");
    let resolvers = conf.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse().ok());
    let hops = routers.chain(resolvers).filter(|address: &IpAddr| !address.is_loopback());
    hops.map(|address| SocketAddr::from((address, 53))).collect()
}

/// The target's container, but for the entry and one mount.
fn spec(ground: &Ground<'_>, surroundings: &Surroundings, questions: &Questions) -> Result<ContainerSpec> {
    let furnishing = sandbox::Furnishing {
        image: &ground.image,
        source: &ground.source,
        network: surroundings.network.clone(),
        environment: surroundings.environment.clone(),
        environment_file: None,
    };
    let spec = sandbox::spec(ground.policy, furnishing);
    let absent = [ground.scope.folder().as_str()];
    Ok(asking(spec, program(ground.scope)?.as_str(), questions, &absent))
}

/// The same container with the attesting program (on the host at `program`) in the place of its own, asking all of this;
/// the host's paths in `absent` must not be there.
pub fn asking(mut spec: ContainerSpec, program: &str, questions: &Questions, absent: &[&str]) -> ContainerSpec {
    let mut words = vec![PLACE.to_owned(), "attest".to_owned()];
    let mut say = |name: &str, value: String| words.extend([name.to_owned(), value]);
    say("--millis", PATIENCE_MILLIS.to_owned());
    absent.iter().for_each(|path| say("--absent", (*path).to_owned()));
    for place in ["/", "/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp", "/run"] {
        say("--place", place.to_owned());
    }
    let addresses = [&questions.host, &questions.neighbour, &questions.outside].into_iter().flatten();
    addresses.chain(&questions.relay).for_each(|address| say("--tcp", address.to_string()));
    questions.names.iter().for_each(|name| say("--name", name.clone()));
    spec.read_only.push((program.to_owned(), PLACE.to_owned()));
    spec.command = words;
    spec
}

/// The program on the host's side, in the scope's own folder: that goes with the scope.
fn program(scope: &Scope) -> Result<Utf8PathBuf> {
    let path = scope.folder().join(scope.name("attest"));
    fs::write(&path, PROGRAM).with_context(|| format!("failed to write {path}"))?;
    // Readable and executable for the sandbox's user, whatever the umask: its parent is private.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("failed to set the mode of {path}"))?;
    Ok(path)
}

fn attested(rows: &[compare::Row], report: &Report, runtime: &str) -> Map<String, Value> {
    let mut map = Map::new();
    for row in rows {
        let value = row.observed.clone().map_or(Value::Null, Value::String);
        match map.get_mut(row.requirement) {
            Some(Value::Array(list)) => list.push(value),
            Some(one) => *one = json!([one.take(), value]),
            None => drop(map.insert(row.requirement.to_owned(), value)),
        }
    }
    map.insert("runtime".to_owned(), json!(runtime));
    map.insert("kernel".to_owned(), json!(report.namespaces.kernel));
    map.insert("cgroup".to_owned(), json!(report.cgroup.version));
    map.insert("security_label".to_owned(), json!(report.identity.security_label));
    map.insert("user_namespace".to_owned(), json!(report.namespaces.users));
    map.insert("resolvers".to_owned(), json!(report.network.resolvers));
    map.insert("core_handler".to_owned(), json!(report.namespaces.core_handler));
    map.insert("routes".to_owned(), json!(report.network.routes));
    map
}
