//! What was asked for beside what was seen from inside, requirement by requirement. Pure: the same rows give the record of
//! what is attested and the list of shortfalls. What was not seen is not attested: it is a shortfall too.

use super::report::{Place, Report};
use crate::docker::args::{Attachment, ContainerSpec, NOWHERE_DNS, Tmpfs};
use crate::trial::sandbox::Shortfall;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The kernel counts memory in pages.
const PAGE: u64 = 4096;
/// The five sets that a process's capabilities may hide in.
const SETS: [&str; 5] = ["inheritable", "permitted", "effective", "bounding", "ambient"];
/// Every device that a container of a default engine has; none of them holds anything of the host.
const DEVICES: [&str; 8] = ["console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"];

/// A requirement as it was asked for and as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub requirement: &'static str,
    /// What was asked for.
    pub requested: String,
    /// What was seen; none where nothing was.
    pub observed: Option<String>,
}

/// What is compared with a report.
#[derive(Debug, Clone)]
pub struct Expected<'a> {
    /// The container.
    pub spec: &'a ContainerSpec,
    /// Names that the image brings along.
    pub image_env: &'a [String],
    /// The engine's seccomp profile, as it says itself.
    pub seccomp_profile: Option<String>,
    /// Who was asked for, by address.
    pub questions: &'a Questions,
}

/// Who is to be asked for from inside, and who should answer.
#[derive(Debug, Clone, Default)]
pub struct Questions {
    /// Addresses of this host.
    pub host: Vec<SocketAddr>,
    /// Another trial's relay, and our own on its other network.
    pub neighbour: Vec<SocketAddr>,
    /// Addresses of the world.
    pub outside: Vec<SocketAddr>,
    /// Names of the world.
    pub names: Vec<String>,
    /// The one that should answer.
    pub relay: Option<SocketAddr>,
    /// What the host's listener says.
    pub word: String,
}

impl Row {
    fn new(requirement: &'static str, requested: impl Into<String>, observed: Option<String>) -> Self {
        Self { requirement, requested: requested.into(), observed }
    }

    /// Whether what was asked for was seen.
    pub fn holds(&self) -> bool {
        self.observed.as_ref() == Some(&self.requested)
    }

    /// The difference; none where there is none.
    pub fn shortfall(&self) -> Option<Shortfall> {
        let unseen = || "not seen from inside".to_owned();
        (!self.holds()).then(|| {
            Shortfall::new(self.requirement, self.requested.clone(), self.observed.clone().unwrap_or_else(unseen))
        })
    }
}

/// Every requirement.
pub fn rows(report: &Report, expected: &Expected<'_>) -> Vec<Row> {
    let mut rows = identity(report, expected);
    rows.extend(bounds(report, expected.spec));
    rows.extend(places(report, expected.spec));
    rows.extend(surroundings(report, expected));
    rows.extend(network(report, expected));
    rows
}

fn identity(report: &Report, expected: &Expected<'_>) -> Vec<Row> {
    let identity = &report.identity;
    let (uid, gid) = expected.spec.user;
    let seccomp = match identity.seccomp.as_deref() {
        Some("2") => match expected.seccomp_profile.as_deref() {
            // The engine's own profile is called "default" up to 20.10, "builtin" later.
            Some("default" | "builtin") | None => "default".to_owned(),
            Some(other) => format!("the profile {other}"),
        },
        other => format!("mode {}", other.unwrap_or("unknown")),
    };
    vec![
        Row::new("user", format!("{uid}:{gid}"), user(report)),
        Row::new("groups", gid.to_string(), identity.groups.as_ref().map(|groups| groups_seen(groups, gid))),
        Row::new("capabilities", "none", Some(capabilities(report))),
        Row::new("no_new_privileges", "true", Some((identity.no_new_privileges.as_deref() == Some("1")).to_string())),
        Row::new("seccomp", "default", Some(seccomp)),
    ]
}

/// Real, effective, saved and file-system ids are the same, or all of them are told.
fn user(report: &Report) -> Option<String> {
    let one = |ids: &str| {
        let ids: BTreeSet<&str> = ids.split_whitespace().collect();
        ids.into_iter().collect::<Vec<_>>().join(",")
    };
    Some(format!("{}:{}", one(report.identity.uid.as_deref()?), one(report.identity.gid.as_deref()?)))
}

/// Engines list the own group or leave it out.
fn groups_seen(groups: &str, gid: u32) -> String {
    let own = gid.to_string();
    let all: BTreeSet<&str> = groups.split_whitespace().chain([own.as_str()]).collect();
    all.into_iter().collect::<Vec<_>>().join(" ")
}

fn capabilities(report: &Report) -> String {
    let identity = &report.identity;
    let sets = [&identity.inheritable, &identity.permitted, &identity.effective, &identity.bounding, &identity.ambient];
    let held = SETS.iter().zip(sets).filter_map(|(name, set)| match set.as_deref() {
        Some(set) if set.bytes().all(|digit| digit == b'0') => None,
        Some(set) => Some(format!("{name} {set}")),
        None => Some(format!("{name} unknown")),
    });
    let held: Vec<String> = held.collect();
    if held.is_empty() { "none".to_owned() } else { held.join(", ") }
}

fn bounds(report: &Report, spec: &ContainerSpec) -> Vec<Row> {
    let (bounds, cgroup, limits) = (&spec.bounds, &report.cgroup, &report.limits);
    let memory = (bounds.memory / PAGE * PAGE).to_string();
    let pair = |value: u64| format!("{value}:{value}");
    vec![
        Row::new("memory", memory.clone(), cgroup.memory.clone()),
        Row::new("memory_swap", memory, swap(report)),
        Row::new("cpus", cpus(bounds.milli_cpus), quota(report)),
        Row::new("processes", bounds.processes.to_string(), cgroup.processes.clone()),
        Row::new("open_files", pair(bounds.open_files), limits.open_files.clone()),
        Row::new("core_size", pair(0), limits.core_size.clone()),
        Row::new("message_queues", pair(0), limits.message_queues.clone()),
    ]
}

/// Memory and swap together: version 1 counts them so, version 2 counts swap alone.
fn swap(report: &Report) -> Option<String> {
    let cgroup = &report.cgroup;
    if cgroup.version == 1 {
        return cgroup.memory_and_swap.clone();
    }
    let swap = cgroup.swap.clone()?;
    match (cgroup.memory.as_deref()?.parse::<u64>(), swap.parse::<u64>()) {
        (Ok(memory), Ok(swap)) => Some(memory.saturating_add(swap).to_string()),
        _ => Some(swap),
    }
}

fn cpus(milli: u64) -> String {
    format!("{}.{:03}", milli / 1000, milli % 1000)
}

fn quota(report: &Report) -> Option<String> {
    let quota = report.cgroup.cpu_quota.as_deref()?;
    let period = report.cgroup.cpu_period.as_deref()?.parse::<u64>().ok().filter(|period| *period > 0)?;
    match quota.parse::<u64>() {
        Ok(quota) => Some(cpus(quota.saturating_mul(1000) / period)),
        Err(_) => Some("unlimited".to_owned()),
    }
}

fn places(report: &Report, spec: &ContainerSpec) -> Vec<Row> {
    // What is mounted last at a place is what is there.
    let last: BTreeMap<&str, &Place> = report.places.iter().map(|place| (place.path.as_str(), place)).collect();
    let mut rows = vec![Row::new("root", "read_only", last.get("/").map(|place| read_only(place)))];
    for (_, path) in spec.read_only.iter().filter(|(_, path)| path != super::PLACE) {
        rows.push(Row::new(
            "source",
            format!("{path} read_only"),
            last.get(path.as_str()).map(|place| format!("{path} {}", read_only(place))),
        ));
    }
    let wanted: BTreeSet<String> = spec.writable.iter().map(wanted).collect();
    let open = last.values().filter(|place| place.write == "written" && place.path != "/dev/shm");
    let open: BTreeSet<String> = open.map(|place| seen(place)).collect();
    rows.push(Row::new("writable", listed(wanted), Some(listed(open))));
    rows.push(Row::new("shared_memory", shared(spec.bounds.shared_memory), Some(shared_seen(last.get("/dev/shm")))));
    rows
}

fn listed(places: BTreeSet<String>) -> String {
    if places.is_empty() { "none".to_owned() } else { places.into_iter().collect::<Vec<_>>().join(", ") }
}

fn read_only(place: &Place) -> String {
    // The kernel says so before it looks at permissions.
    if place.has("ro") && place.write == "read-only file system" {
        "read_only".to_owned()
    } else {
        format!("not read-only: {}", place.write)
    }
}

fn whole_pages(size: u64) -> u64 {
    size.div_ceil(PAGE).saturating_mul(PAGE)
}

fn wanted(place: &Tmpfs) -> String {
    let exec = if place.exec { "exec" } else { "noexec" };
    format!("{} tmpfs {} nosuid nodev {exec}", place.path, whole_pages(place.size))
}

/// The flag and what came of trying it, where it could be tried.
fn seen(place: &Place) -> String {
    let size = place.size.map_or_else(|| "unbounded".to_owned(), |size| size.to_string());
    let flag = |name: &'static str| if place.has(name) { name.to_owned() } else { format!("no-{name}") };
    let exec = match (place.has("noexec"), place.exec.as_deref()) {
        (true, Some("permission denied") | None) => "noexec".to_owned(),
        (false, Some("run") | None) => "exec".to_owned(),
        (_, Some(other)) => format!("a program in it: {other}"),
    };
    let kind = place.kind.as_deref().unwrap_or("no mount");
    format!("{} {kind} {size} {} {} {exec}", place.path, flag("nosuid"), flag("nodev"))
}

fn shared(size: u64) -> String {
    whole_pages(size).to_string()
}

fn shared_seen(place: Option<&&Place>) -> String {
    match place {
        Some(place) if place.write == "written" => {
            place.size.map_or_else(|| "unbounded".to_owned(), |size| size.to_string())
        }
        _ => "0".to_owned(),
    }
}

fn surroundings(report: &Report, expected: &Expected<'_>) -> Vec<Row> {
    let (spec, namespaces) = (expected.spec, &report.namespaces);
    // The init and this program: more is another container's, or the host's.
    let own = if namespaces.processes <= 2 { "own".to_owned() } else { format!("{} processes", namespaces.processes) };
    let devices = report
        .devices
        .iter()
        .map(String::as_str)
        .filter(|device| !DEVICES.iter().any(|name| device.strip_suffix(" character") == Some(name)));
    let mut rows = vec![
        Row::new("processes_seen", "own", Some(own)),
        Row::new("host_name", spec.host_name.clone(), namespaces.host_name.clone()),
        Row::new("environment", "declared names only", Some(environment(report, expected))),
        Row::new("home", spec.environment.get("HOME").cloned().unwrap_or_default(), report.identity.home.clone()),
        Row::new("masked_paths", "hidden", Some(listed_or(report.open_paths.iter().map(String::as_str), "hidden"))),
        Row::new("devices", "default", Some(listed_or(devices, "default"))),
        Row::new("host_paths", "absent", Some(listed_or(report.present.iter().map(String::as_str), "absent"))),
    ];
    if spec.bounds.processes > 1 {
        let reaped = if namespaces.own_number == 1 { "none" } else { "present" };
        rows.push(Row::new("init", "present", Some(reaped.to_owned())));
    }
    rows
}

fn environment(report: &Report, expected: &Expected<'_>) -> String {
    let name = |entry: &'_ String| entry.split('=').next().unwrap_or_default().to_owned();
    let image: BTreeSet<String> = expected.image_env.iter().map(name).collect();
    let known = |name: &&String| {
        expected.spec.environment.contains_key(*name)
            || image.contains(*name)
            || matches!(name.as_str(), "PATH" | "HOSTNAME" | "HOME")
    };
    let foreign: Vec<&str> = report.environment.iter().filter(|name| !known(name)).map(String::as_str).collect();
    let missing: Vec<&str> = expected
        .spec
        .environment
        .keys()
        .filter(|name| !report.environment.contains(name))
        .map(String::as_str)
        .collect();
    match (foreign.as_slice(), missing.as_slice()) {
        ([], []) => "declared names only".to_owned(),
        ([], missing) => format!("without {}", missing.join(", ")),
        (foreign, _) => foreign.join(", "),
    }
}

fn network(report: &Report, expected: &Expected<'_>) -> Vec<Row> {
    let questions = expected.questions;
    let wanted = match &expected.spec.network {
        Attachment::None => "lo".to_owned(),
        Attachment::Network { address, .. } => format!("eth0 lo {}", address.as_deref().unwrap_or("one address")),
    };
    let mut rows = vec![
        Row::new("network", wanted, Some(interfaces(report))),
        Row::new("host_reach", "unreachable", unreached(report, &questions.host, expected)),
        Row::new("outside_reach", "unreachable", unreached(report, &questions.outside, expected)),
        Row::new("name_resolution", "fails", names(report, &questions.names)),
        Row::new("host_resolvers", "absent", Some(host_resolvers(report))),
    ];
    if matches!(expected.spec.network, Attachment::Network { .. }) {
        let disabled = matches!(report.network.ipv6_disabled.as_deref(), None | Some("1"));
        rows.push(Row::new("ipv6", "disabled", Some(if disabled { "disabled" } else { "enabled" }.to_owned())));
    }
    if let Some(relay) = questions.relay {
        rows.push(Row::new("neighbour_reach", "unreachable", unreached(report, &questions.neighbour, expected)));
        let answer = report.answers.iter().find(|answer| answer.address() == Some(relay));
        rows.push(Row::new("relay_reach", "connected", answer.map(|answer| answer.outcome.clone())));
    }
    rows
}

/// Resolvers that are neither the one that leads nowhere nor the engine's own, which was told of that one alone.
fn host_resolvers(report: &Report) -> String {
    let foreign = report.network.resolvers.iter().filter(|it| ![NOWHERE_DNS, "127.0.0.11"].contains(&it.as_str()));
    listed_or(foreign.map(String::as_str), "absent")
}

fn listed_or<'a>(list: impl Iterator<Item = &'a str>, none: &str) -> String {
    let list: Vec<&str> = list.collect();
    if list.is_empty() { none.to_owned() } else { list.join(", ") }
}

/// The interfaces that are up, and every address beside loopback's.
fn interfaces(report: &Report) -> String {
    let loopback = |address: &&String| address.starts_with("127.") || address.starts_with("::1 ");
    let addresses = report.network.addresses.iter().filter(|address| !loopback(address));
    report.network.interfaces.iter().chain(addresses).map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// `unreachable` where every address was asked and nobody answered.
fn unreached(report: &Report, addresses: &[SocketAddr], expected: &Expected<'_>) -> Option<String> {
    let mut reached = Vec::new();
    for address in addresses {
        let answers: Vec<_> = report.answers.iter().filter(|answer| answer.address() == Some(*address)).collect();
        // A link-local address is asked for on each interface: where there is none, it leads nowhere.
        let nowhere = matches!(expected.spec.network, Attachment::None) && is_link_local(address);
        if answers.is_empty() && !nowhere {
            return None;
        }
        for answer in answers.iter().filter(|answer| !answer.is_unreached()) {
            // The word tells this host's own listener from somebody else at the same address.
            let who = if answer.heard.as_ref() == Some(&expected.questions.word) { " (this host)" } else { "" };
            reached.push(format!("{} {address}{who}", answer.outcome));
        }
    }
    Some(if reached.is_empty() { "unreachable".to_owned() } else { reached.join(", ") })
}

fn is_link_local(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local())
}

fn names(report: &Report, names: &[String]) -> Option<String> {
    let asked = |name: &String| report.answers.iter().any(|answer| answer.name.as_ref() == Some(name));
    if !names.iter().all(asked) {
        return None;
    }
    let resolved = report.answers.iter().filter(|answer| answer.outcome == "resolved");
    let resolved: Vec<String> = resolved
        .map(|answer| {
            let of = |text: &Option<String>| text.clone().unwrap_or_default();
            format!("{} by {}", of(&answer.name), of(&answer.server))
        })
        .collect();
    Some(if resolved.is_empty() { "fails".to_owned() } else { resolved.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::args::ContainerBounds;
    use serde_json::{Value, json};

    fn spec(network: Attachment) -> ContainerSpec {
        ContainerSpec {
            name: String::new(),
            labels: BTreeMap::new(),
            image: String::new(),
            command: Vec::new(),
            interactive: false,
            terminal: false,
            user: (65534, 65534),
            host_name: "target".to_owned(),
            folder: None,
            bounds: ContainerBounds {
                memory: (64 << 20) + 1,
                milli_cpus: 500,
                processes: 64,
                open_files: 128,
                shared_memory: 4097,
            },
            writable: vec![Tmpfs { path: "/tmp".to_owned(), size: 4097, exec: false }],
            read_only: vec![("/host".to_owned(), "/target".to_owned())],
            environment: BTreeMap::from([("HOME".to_owned(), "/tmp".to_owned())]),
            environment_file: None,
            network,
            runtime: None,
        }
    }

    /// What the program tells of that container where everything holds, on a kernel with version 2 control groups.
    fn report() -> Value {
        let zero = "0000000000000000";
        let read_only = |path: &str| json!({"path": path, "type": "overlay", "options": "ro", "write": "read-only file system", "exec": null});
        let place = |path: &str, size: u64| {
            json!({"path": path, "type": "tmpfs", "options": "rw,nosuid,nodev,noexec", "size": size, "write": "written",
                   "exec": "permission denied"})
        };
        json!({
            "identity": {"uid": "65534\t65534\t65534\t65534", "gid": "65534\t65534\t65534\t65534", "groups": "",
                "inheritable": zero, "permitted": zero, "effective": zero, "bounding": zero, "ambient": zero,
                "no_new_privileges": "1", "seccomp": "2", "seccomp_filters": "1", "security_label": null, "home": "/tmp"},
            "limits": {"open_files": "128:128", "core_size": "0:0", "message_queues": "0:0"},
            "cgroup": {"version": 2, "memory": "67108864", "swap": "0", "cpu_quota": "50000", "cpu_period": "100000", "processes": "64"},
            "namespaces": {"own_number": 7, "first_process": "docker-init", "processes": 2, "users": null, "host_name": "target",
                "kernel": "6", "kernel_version": null},
            "environment": ["HOME", "HOSTNAME", "PATH"],
            "places": [read_only("/"), read_only("/target"), place("/tmp", 8192), place("/dev/shm", 8192)],
            "open_paths": [], "devices": ["null character", "tty character"], "present": [],
            "network": {"interfaces": ["lo"], "addresses": ["127.0.0.1", "::1 dev lo"], "routes": [], "resolvers": []},
            "answers": [
                {"tcp": "172.17.0.1:4000", "outcome": "unreachable", "heard": null},
                {"tcp": "198.51.100.1:80", "outcome": "silent", "heard": null},
                {"name": "example.com", "server": "127.0.0.11:53", "outcome": "code 2"},
            ],
        })
    }

    fn questions() -> Questions {
        Questions {
            host: vec!["172.17.0.1:4000".parse().unwrap(), "[fe80::1]:4001".parse().unwrap()],
            outside: vec!["198.51.100.1:80".parse().unwrap()],
            names: vec!["example.com".to_owned()],
            word: "a word".to_owned(),
            ..Questions::default()
        }
    }

    fn red(report: &Value, spec: &ContainerSpec, questions: &Questions, profile: &str) -> Vec<String> {
        let report: Report = serde_json::from_value(report.clone()).unwrap();
        let expected = Expected { spec, image_env: &[], seccomp_profile: Some(profile.to_owned()), questions };
        let red = rows(&report, &expected).into_iter().filter_map(|row| row.shortfall());
        red.map(|it| format!("{}: {}", it.requirement, it.observed.unwrap())).collect()
    }

    #[test]
    fn each_difference_is_one_shortfall_by_its_name_and_value() {
        let table: [(&str, Value, &[&str]); 26] = [
            ("/identity/seccomp", json!("2"), &[]),
            ("/identity/uid", json!("65534 0 0 0"), &["user: 0,65534:65534"]),
            ("/identity/groups", json!("27 65534"), &["groups: 27 65534"]),
            ("/identity/bounding", json!("00000000a80425fb"), &["capabilities: bounding 00000000a80425fb"]),
            ("/identity/ambient", json!(null), &["capabilities: ambient unknown"]),
            ("/identity/seccomp", json!("0"), &["seccomp: mode 0"]),
            ("/identity/no_new_privileges", json!(null), &["no_new_privileges: false"]),
            ("/cgroup/memory", json!("max"), &["memory: max", "memory_swap: 0"]),
            ("/cgroup/memory", json!(null), &["memory: not seen from inside", "memory_swap: not seen from inside"]),
            ("/cgroup/swap", json!("max"), &["memory_swap: max"]),
            ("/cgroup/swap", json!("4096"), &["memory_swap: 67112960"]),
            ("/cgroup/cpu_quota", json!("max"), &["cpus: unlimited"]),
            ("/cgroup/cpu_period", json!("50000"), &["cpus: 1.000"]),
            ("/cgroup/processes", json!("max"), &["processes: max"]),
            ("/limits/open_files", json!("128:1048576"), &["open_files: 128:1048576"]),
            ("/places/0/write", json!("permission denied"), &["root: not read-only: permission denied"]),
            ("/places/1/options", json!("rw"), &["source: /target not read-only: read-only file system"]),
            ("/places/2/exec", json!("run"), &["writable: /tmp tmpfs 8192 nosuid nodev a program in it: run"]),
            ("/places/2/write", json!("permission denied"), &["writable: none"]),
            ("/places/3/size", json!(null), &["shared_memory: unbounded"]),
            ("/namespaces/own_number", json!(1), &["init: none"]),
            ("/devices/0", json!("sda block"), &["devices: sda block"]),
            ("/answers/1/outcome", json!("refused"), &["outside_reach: refused 198.51.100.1:80"]),
            ("/answers/2/outcome", json!("resolved"), &["name_resolution: example.com by 127.0.0.11:53"]),
            ("/network/resolvers", json!(["127.0.0.11", "192.0.2.1"]), &[]),
            ("/network/resolvers", json!(["10.0.0.53"]), &["host_resolvers: 10.0.0.53"]),
        ];
        for (place, value, wanted) in table {
            let mut seen = report();
            *seen.pointer_mut(place).unwrap() = value;
            assert_eq!(red(&seen, &spec(Attachment::None), &questions(), "builtin"), wanted, "{place}");
        }
        let own = red(&report(), &spec(Attachment::None), &questions(), "/etc/docker/mine.json");
        assert_eq!(own, ["seccomp: the profile /etc/docker/mine.json"]);
    }

    #[test]
    fn what_was_not_asked_is_not_proven_and_the_hosts_word_is_told() {
        let network =
            Attachment::Network { network: "n".to_owned(), address: Some("10.0.0.3".to_owned()), hosts: Vec::new() };
        let mut seen = report();
        seen["network"]["interfaces"] = json!(["eth0", "lo"]);
        seen["network"]["addresses"] = json!(["127.0.0.1", "10.0.0.3"]);
        seen["network"]["ipv6_disabled"] = json!("0");
        let relay = Questions { relay: Some("10.0.0.2:8080".parse().unwrap()), ..questions() };
        // With an interface, the link-local address had to be asked for; nobody asked for the relay either.
        let unseen = ["host_reach: not seen from inside", "ipv6: enabled", "relay_reach: not seen from inside"];
        assert_eq!(red(&seen, &spec(network.clone()), &relay, "default"), unseen);
        seen["network"]["ipv6_disabled"] = json!("1");
        let answers = seen["answers"].as_array_mut().unwrap();
        answers.push(json!({"tcp": "[fe80::1%5]:4001", "outcome": "connected", "heard": "a word"}));
        answers.push(json!({"tcp": "10.0.0.2:8080", "outcome": "connected", "heard": ""}));
        let reached = ["host_reach: connected [fe80::1]:4001 (this host)"];
        assert_eq!(red(&seen, &spec(network), &relay, "default"), reached);
    }
}
