//! The sandbox of a policy as a container: what the engine is asked for, and the comparison with what it says it did. A
//! difference is a named shortfall, and a warning of the client is one too: Docker drops some limits with only that.

use super::attest;
use crate::docker::args::{self, Attachment, ContainerBounds, ContainerSpec, NO_IPV6, NOWHERE_DNS, Tmpfs};
use crate::docker::{Attached, ContainerState};
use crate::policy::{Policy, Sandbox};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The environment that every target has beside the image's own and the declared one.
const HOST_NAME: &str = "target";

/// A requirement that the engine does not enforce.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shortfall {
    /// Its name.
    pub requirement: String,
    /// What was asked for.
    pub requested: String,
    /// What was seen.
    pub observed: Option<String>,
    /// What would help on this engine.
    pub hint: Option<String>,
}

impl Shortfall {
    /// A difference between what was asked for and what was seen.
    pub fn new(requirement: &str, requested: impl Into<String>, observed: impl Into<String>) -> Self {
        let hint = hint_for(requirement).map(str::to_owned);
        Self { requirement: requirement.to_owned(), requested: requested.into(), observed: Some(observed.into()), hint }
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requirement, requested, observed, .. } = self;
        write!(f, "{requirement}: requested {requested}, observed {}", observed.as_deref().unwrap_or("nothing"))
    }
}

/// What would help, by requirement.
fn hint_for(requirement: &str) -> Option<&'static str> {
    Some(match requirement {
        "memory" | "memory_swap" => {
            "the kernel needs the memory controller with swap accounting (cgroup_enable=memory swapaccount=1)"
        }
        "cpus" => "the kernel needs the cpu controller with CFS bandwidth control, delegated to the engine",
        "processes" => "the kernel needs the pids controller, delegated to the engine",
        "seccomp" => "the engine must run with its default seccomp profile",
        "host_reach" | "neighbour_reach" | "outside_reach" => {
            "the engine does not keep internal networks apart: it needs its own firewall rules (dockerd without --iptables=false)"
        }
        "name_resolution" => {
            "the engine passes names on from internal networks (CVE-2024-29018): use 23.0.11, 25.0.5, 26.0.0 or later"
        }
        "relay_reach" => "a firewall of the host stands between containers of one network (bridge-nf-call-iptables)",
        "environment" => {
            "the docker client or a daemon plugin adds variables of its own: see proxies in its config.json"
        }
        "engine_warning" => "see what the engine cannot do with: crashlab doctor",
        _ => return None,
    })
}

/// What a sandbox consists of beside the policy.
#[derive(Debug, Clone)]
pub struct Furnishing<'a> {
    /// The image's id.
    pub image: &'a str,
    /// The snapshot's content on the host.
    pub source: &'a str,
    /// Where it is attached.
    pub network: Attachment,
    /// Set beside the policy's: `CRASHLAB_CASE`, URLs; no secret.
    pub environment: BTreeMap<String, String>,
    /// A file (0600) that holds the tokens, and the names in it.
    pub environment_file: Option<(String, Vec<String>)>,
}

/// The container of a target under this policy; the scope gives it its name.
pub fn spec(policy: &Policy, furnishing: Furnishing<'_>) -> ContainerSpec {
    let sandbox = &policy.sandbox;
    let mut environment = policy.target.env.clone();
    environment.extend(furnishing.environment);
    environment.insert("HOME".to_owned(), home(sandbox));
    ContainerSpec {
        name: String::new(),
        labels: BTreeMap::new(),
        image: furnishing.image.to_owned(),
        command: policy.target.command.clone(),
        interactive: true,
        terminal: false,
        user: (sandbox.user.uid, sandbox.user.gid),
        host_name: HOST_NAME.to_owned(),
        folder: Some(policy.target.mount.clone()),
        bounds: bounds(sandbox),
        writable: sandbox
            .writable
            .iter()
            .map(|it| Tmpfs { path: it.path.clone(), size: it.size, exec: it.exec })
            .collect(),
        read_only: vec![(furnishing.source.to_owned(), policy.target.mount.clone())],
        environment,
        environment_file: furnishing.environment_file,
        network: furnishing.network,
        runtime: sandbox.runtime.clone(),
    }
}

fn bounds(sandbox: &Sandbox) -> ContainerBounds {
    ContainerBounds {
        memory: sandbox.memory,
        milli_cpus: sandbox.milli_cpus,
        processes: sandbox.processes,
        open_files: sandbox.open_files,
        shared_memory: sandbox.shared_memory,
    }
}

/// The first writable place; `/` where there is none.
fn home(sandbox: &Sandbox) -> String {
    sandbox.writable.first().map_or_else(|| "/".to_owned(), |place| place.path.clone())
}

/// What the policy asks of a sandbox, for the record.
pub fn requested(policy: &Policy) -> serde_json::Map<String, serde_json::Value> {
    let sandbox = &policy.sandbox;
    let writable: Vec<_> = sandbox
        .writable
        .iter()
        .map(|it| serde_json::json!({"path": it.path, "size": it.size, "exec": it.exec}))
        .collect();
    let value = serde_json::json!({
        "user": format!("{}:{}", sandbox.user.uid, sandbox.user.gid),
        "root": "read_only",
        "source": "read_only",
        "capabilities": "none",
        "no_new_privileges": true,
        "seccomp": "default",
        "cpus": format!("{}.{:03}", sandbox.milli_cpus / 1000, sandbox.milli_cpus % 1000),
        "memory": sandbox.memory,
        "memory_swap": sandbox.memory,
        "processes": sandbox.processes,
        "open_files": sandbox.open_files,
        "core_size": 0,
        "shared_memory": sandbox.shared_memory,
        "wall_time_ms": u64::try_from(sandbox.wall_time.as_millis()).unwrap_or(u64::MAX),
        "output": sandbox.output,
        "writable": writable,
        "network": if policy.operations.is_empty() && policy.gateways.is_empty() { "none" } else { "relay" },
        "runtime": sandbox.runtime,
    });
    match value {
        serde_json::Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

/// What makes two sandboxes one: every flag that the engine is told, less what is each trial's own (its name, labels and
/// addresses, the values of its variables, its tokens) and less what is run in it, a person's terminal included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(Vec<String>);

impl Shape {
    /// The shape of a container.
    pub fn of(spec: &ContainerSpec) -> Self {
        let mut spec = spec.clone();
        (spec.name, spec.labels, spec.environment_file) = (String::new(), BTreeMap::new(), None);
        (spec.command, spec.terminal) = (Vec::new(), false);
        spec.environment.values_mut().for_each(String::clear);
        spec.read_only.retain(|(_, place)| place != attest::PLACE);
        if let Attachment::Network { network, address, hosts } = &mut spec.network {
            network.clear();
            address.iter_mut().for_each(String::clear);
            hosts.iter_mut().for_each(|(_, address)| address.clear());
        }
        Self(args::create_container(&spec))
    }
}

/// Where what the engine says of a container differs from what it was asked for.
pub fn compare(
    spec: &ContainerSpec,
    state: &ContainerState,
    warnings: &[String],
    image_env: &[String],
) -> Vec<Shortfall> {
    let mut shortfalls: Vec<Shortfall> =
        warnings.iter().map(|line| Shortfall::new("engine_warning", "none", line.clone())).collect();
    let mut expect = |requirement: &str, requested: String, observed: String| {
        if requested != observed {
            shortfalls.push(Shortfall::new(requirement, requested, observed));
        }
    };
    let host = &state.host_config;
    let ContainerBounds { memory, milli_cpus, processes, open_files, shared_memory } = &spec.bounds;
    expect("user", format!("{}:{}", spec.user.0, spec.user.1), state.config.user.clone());
    expect("memory", memory.to_string(), host.memory.to_string());
    expect("memory_swap", memory.to_string(), host.memory_swap.to_string());
    expect("cpus", (milli_cpus * 1_000_000).to_string(), host.nano_cpus.to_string());
    expect("processes", processes.to_string(), host.pids_limit.unwrap_or(0).to_string());
    if *shared_memory > 0 {
        expect("shared_memory", shared_memory.to_string(), host.shm_size.to_string());
    }
    for (requirement, name, value) in
        [("open_files", "nofile", *open_files), ("core_size", "core", 0), ("message_queues", "msgqueue", 0)]
    {
        let limit = host.ulimits.iter().flatten().find(|limit| limit.name == name);
        let seen = limit.map_or_else(|| "not set".to_owned(), |limit| format!("{}:{}", limit.soft, limit.hard));
        expect(requirement, format!("{value}:{value}"), seen);
    }
    expect("root", "read_only true".to_owned(), format!("read_only {}", host.readonly_rootfs));
    expect("privileged", "false".to_owned(), host.privileged.to_string());
    expect("capabilities", "drop ALL, add none".to_owned(), capabilities(state));
    let options: Vec<&str> = host.security_opt.iter().flatten().map(String::as_str).collect();
    expect("no_new_privileges", "no-new-privileges".to_owned(), options.join(" "));
    expect("log_driver", "none".to_owned(), host.log_config.driver.clone());
    let ipc = if *shared_memory > 0 { "private" } else { "none" };
    expect("ipc", ipc.to_owned(), host.ipc_mode.clone());
    expect("init", (*processes > 1).to_string(), host.init.unwrap_or(false).to_string());
    let config = &state.config;
    // The image's own entry point, command, health check and stop signal are not used.
    expect(
        "command",
        json(&spec.command),
        json(&[config.entrypoint.clone(), config.cmd.clone()].into_iter().flatten().flatten().collect::<Vec<_>>()),
    );
    if let Some(folder) = &spec.folder {
        expect("folder", folder.clone(), config.working_dir.clone());
    }
    let health = config.healthcheck.as_ref().map(|it| it.test.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    expect("healthcheck", "NONE".to_owned(), health.unwrap_or_else(|| "the image's".to_owned()));
    expect("stop_signal", "SIGKILL".to_owned(), config.stop_signal.clone());
    expect("dns", NOWHERE_DNS.to_owned(), host.dns.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    // Without a search list of its own the container is told the host's domains.
    expect("dns_search", ".".to_owned(), host.dns_search.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    if let Attachment::Network { hosts, .. } = &spec.network {
        let no_ipv6 = host.sysctls.iter().flatten().find(|(name, _)| *name == NO_IPV6);
        expect(
            "ipv6",
            "disabled by 1".to_owned(),
            format!("disabled by {}", no_ipv6.map_or("nobody", |(_, value)| value)),
        );
        let hosts: Vec<String> = hosts.iter().map(|(name, address)| format!("{name}:{address}")).collect();
        expect("hosts", hosts.join(" "), host.extra_hosts.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    }
    expect("groups", String::new(), host.group_add.iter().flatten().cloned().collect::<Vec<_>>().join(" "));
    expect(
        "ports",
        "0".to_owned(),
        (host.port_bindings.iter().flatten().count() + usize::from(host.publish_all_ports)).to_string(),
    );
    expect("oom_kill", "true".to_owned(), (!host.oom_kill_disable.unwrap_or(false)).to_string());
    expect("namespaces", String::new(), format!("{}{}{}", host.pid_mode, host.uts_mode, host.userns_mode));
    expect("network", network(spec), host.network_mode.clone());
    expect("address", address(spec), fixed_addresses(state));
    let devices = [&host.devices, &host.device_requests].into_iter().flatten().flatten().count();
    expect("devices", "0".to_owned(), (devices + host.device_cgroup_rules.iter().flatten().count()).to_string());
    expect("writable", writable(spec), mounted_writable(state));
    expect("read_only_mounts", read_only(spec), mounted_read_only(state));
    expect("volumes", "0".to_owned(), state.mounts.iter().filter(|mount| mount.kind == "volume").count().to_string());
    if let Some(runtime) = &spec.runtime {
        expect("runtime", runtime.clone(), host.runtime.clone());
    }
    shortfalls.extend(foreign_environment(spec, state, image_env));
    shortfalls
}

fn json(words: &[String]) -> String {
    serde_json::json!(words).to_string()
}

fn capabilities(state: &ContainerState) -> String {
    let drop: Vec<&str> = state.host_config.cap_drop.iter().flatten().map(String::as_str).collect();
    let add: Vec<&str> = state.host_config.cap_add.iter().flatten().map(String::as_str).collect();
    format!("drop {}, add {}", drop.join(" "), if add.is_empty() { "none".to_owned() } else { add.join(" ") })
}

fn network(spec: &ContainerSpec) -> String {
    match &spec.network {
        Attachment::None => "none".to_owned(),
        Attachment::Network { network, .. } => network.clone(),
    }
}

fn address(spec: &ContainerSpec) -> String {
    match &spec.network {
        Attachment::Network { address: Some(address), .. } => address.clone(),
        _ => String::new(),
    }
}

/// An engine that chooses may choose the same one: what counts is that it may not.
fn fixed_addresses(state: &ContainerState) -> String {
    let networks = state.network_settings.networks.values();
    networks.filter_map(Attached::fixed_address).collect::<Vec<_>>().join(" ")
}

/// Each place with what it must be, in the order of the alphabet.
fn writable(spec: &ContainerSpec) -> String {
    let (uid, gid) = spec.user;
    let place = |Tmpfs { path, size, exec }: &Tmpfs| {
        let exec = if *exec { "exec" } else { "noexec" };
        options(path, &format!("rw,nosuid,nodev,{exec},size={size},uid={uid},gid={gid},mode=0700"))
    };
    spec.writable.iter().map(place).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// A place and what it is mounted with, whatever the order.
fn options(path: &str, options: &str) -> String {
    let options: BTreeSet<&str> = options.split(',').collect();
    format!("{path} {}", options.into_iter().collect::<Vec<_>>().join(" "))
}

fn mounted_writable(state: &ContainerState) -> String {
    let temporary = state.host_config.tmpfs.as_ref();
    let tmpfs = temporary.into_iter().flatten().map(|(path, its)| options(path, its));
    // Some engines list a temporary place among the mounts as well.
    let is_told = |place: &String| temporary.is_some_and(|tmpfs| tmpfs.contains_key(place));
    let mounts = state.mounts.iter().filter(|mount| mount.writable && !is_told(&mount.destination));
    let mounts = mounts.map(|mount| format!("{} {}", mount.destination, mount.kind));
    tmpfs.chain(mounts).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

fn read_only(spec: &ContainerSpec) -> String {
    spec.read_only
        .iter()
        .map(|(_, place)| place.as_str())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(" ")
}

fn mounted_read_only(state: &ContainerState) -> String {
    let places = state.mounts.iter().filter(|mount| !mount.writable).map(|mount| mount.destination.as_str());
    places.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
}

/// A variable that neither the policy, nor the image, nor this room put there; its value is nobody's business.
fn foreign_environment(spec: &ContainerSpec, state: &ContainerState, image_env: &[String]) -> Vec<Shortfall> {
    let name_of = |entry: &String| entry.split('=').next().unwrap_or_default().to_owned();
    let image: BTreeSet<String> = image_env.iter().map(name_of).collect();
    let known = |name: &String| {
        spec.environment.contains_key(name)
            || image.contains(name)
            || matches!(name.as_str(), "PATH" | "HOSTNAME" | "HOME")
            || spec.environment_file.as_ref().is_some_and(|(_, names)| names.contains(name))
    };
    // An entry without a value takes a variable away: that is how the client's proxies are kept out.
    let set = state.config.env.iter().flatten().filter(|entry| entry.contains('='));
    let names = set.map(name_of).filter(|name| !known(name));
    names.map(|name| Shortfall::new("environment", "declared names only", name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ContainerSpec {
        let policy = serde_json::json!({
            "version": 1, "name": "shape", "target": {"image": {"reference": "x"}, "command": ["x"]},
            "evaluation": {"command": ["x"]},
        });
        let policy = crate::policy::parse(policy.to_string().as_bytes()).unwrap();
        let network = Attachment::Network {
            network: "n".to_owned(),
            address: Some("10.0.0.3".to_owned()),
            hosts: vec![("gateway".to_owned(), "10.0.0.2".to_owned())],
        };
        let environment = BTreeMap::from([("CRASHLAB_CASE".to_owned(), "one".to_owned())]);
        let (image, source) = ("sha256:x", "/source");
        super::spec(&policy, Furnishing { image, source, network, environment, environment_file: None })
    }

    #[test]
    fn only_what_is_each_trials_own_makes_no_other_sandbox() {
        let network = |spec: &mut ContainerSpec, place: &str| {
            let Attachment::Network { network, address, hosts } = &mut spec.network else { unreachable!() };
            match place {
                "network" => "m".clone_into(network),
                "address" => *address = Some("10.0.0.11".to_owned()),
                "no address" => *address = None,
                "relay" => "10.0.0.10".clone_into(&mut hosts[0].1),
                _ => hosts.push(("another".to_owned(), "10.0.0.10".to_owned())),
            }
        };
        type Change<'a> = (&'a str, bool, &'a dyn Fn(&mut ContainerSpec));
        let table: [Change<'_>; 27] = [
            ("nothing", true, &|_| {}),
            ("name", true, &|it| it.name.push('x')),
            ("labels", true, &|it| drop(it.labels.insert("x".to_owned(), String::new()))),
            ("command", true, &|it| it.command.push("attest".to_owned())),
            ("a person's terminal", true, &|it| it.terminal = true),
            ("a variable's value", true, &|it| it.environment.values_mut().for_each(|value| value.push('x'))),
            ("tokens", true, &|it| it.environment_file = Some(("f".to_owned(), vec!["T".to_owned()]))),
            ("the looking program", true, &|it| it.read_only.push(("p".to_owned(), attest::PLACE.to_owned()))),
            ("network", true, &|it| network(it, "network")),
            ("address", true, &|it| network(it, "address")),
            ("the relay's address", true, &|it| network(it, "relay")),
            ("no address", false, &|it| network(it, "no address")),
            ("another host", false, &|it| network(it, "another")),
            ("no network", false, &|it| it.network = Attachment::None),
            ("another variable", false, &|it| drop(it.environment.insert("X".to_owned(), String::new()))),
            ("image", false, &|it| it.image.push('y')),
            ("user", false, &|it| it.user = (1000, 1000)),
            ("host name", false, &|it| it.host_name.push('x')),
            ("memory", false, &|it| it.bounds.memory += 1),
            ("cpus", false, &|it| it.bounds.milli_cpus += 1),
            ("processes", false, &|it| it.bounds.processes += 1),
            ("open files", false, &|it| it.bounds.open_files += 1),
            ("shared memory", false, &|it| it.bounds.shared_memory = 0),
            ("size", false, &|it| it.writable[0].size += 1),
            ("exec", false, &|it| it.writable[0].exec = true),
            ("source", false, &|it| it.read_only[0].0.push('x')),
            ("runtime", false, &|it| it.runtime = Some("crun".to_owned())),
        ];
        for (what, same, change) in table {
            let mut other = spec();
            change(&mut other);
            assert_eq!(Shape::of(&spec()) == Shape::of(&other), same, "{what}");
        }
    }

    #[test]
    fn a_sandbox_that_was_looked_at_proves_no_other_one() {
        let weak = Shortfall::new("memory", "1", "2");
        let seen = |shortfalls: Vec<Shortfall>| attest::Attestation {
            shape: Shape::of(&spec()),
            shortfalls,
            ..attest::Attestation::default()
        };
        let mut other = spec();
        other.bounds.processes += 1;
        assert_eq!(seen(vec![]).lacks(&Shape::of(&spec())), []);
        assert_eq!(seen(vec![weak.clone()]).lacks(&Shape::of(&spec())), [weak]);
        assert_eq!(seen(vec![]).lacks(&Shape::of(&other))[0].requirement, "attestation");
    }
}
