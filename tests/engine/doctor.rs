//! The doctor looks at the real engine, line by line, and at one that does less than it says.

use crate::attest::liar;
use crate::support::{BUILDKIT, Wrapper, crashlab};
use serde_json::Value;

/// Every line that a good engine gets, but for notes.
const LINES: [&str; 42] = [
    "engine",
    "endpoint",
    "place",
    "cgroup",
    "runtime",
    "address_pools",
    "user",
    "groups",
    "capabilities",
    "no_new_privileges",
    "seccomp",
    "memory",
    "memory_swap",
    "cpus",
    "processes",
    "open_files",
    "core_size",
    "message_queues",
    "root",
    "source",
    "writable",
    "shared_memory",
    "processes_seen",
    "environment",
    "home",
    "masked_paths",
    "devices",
    "host_paths",
    "init",
    "network",
    "host_reach",
    "outside_reach",
    "name_resolution",
    "bridge",
    "with a way out: host_reach",
    "with a way out: outside_reach",
    "with a way out: name_resolution",
    "with a way out: neighbour_reach",
    "with a way out: relay_reach",
    "buildx",
    "builder",
    "cleanup",
];

fn doctor(path: Option<&str>) -> (i32, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crashlab(&folder.path().join("results"));
    command.args(["doctor", "--format", "json", "--buildkit-image", BUILDKIT]);
    path.map(|path| command.env("PATH", path));
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let runs = std::fs::read_dir(folder.path().join("results/runs")).unwrap().count();
    assert_eq!(runs, 0, "the doctor stores something: {report:#}");
    (output.status.code().unwrap(), report["findings"].as_array().unwrap().clone())
}

fn of<'a>(findings: &'a [Value], status: &str) -> Vec<&'a str> {
    findings.iter().filter(|it| it["status"] == status).map(|it| it["name"].as_str().unwrap()).collect()
}

#[test]
fn the_doctor_says_line_by_line_what_this_engine_enforces() {
    let (exit, findings) = doctor(None);
    assert_eq!((exit, of(&findings, "shortfall")), (0, vec![]), "{findings:#?}");
    let holds = of(&findings, "holds");
    for line in LINES {
        assert!(holds.contains(&line), "no {line} among {holds:?}");
    }
    // The host's kernel tells whether it has a handler for crashes: so does the doctor.
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    assert_eq!(of(&findings, "note").contains(&"core_handler"), pattern.starts_with(['|', '@']), "{pattern}");
}

#[test]
fn the_doctor_names_a_limit_that_the_engine_drops() {
    let engine = Wrapper::new(&liar("--pids-limit", "state['HostConfig']['PidsLimit'] = 128"));
    let (exit, findings) = doctor(Some(&engine.path()));
    assert_eq!((exit, of(&findings, "shortfall")), (3, vec!["processes"]), "{findings:#?}");
    let lack = findings.iter().find(|it| it["name"] == "processes").unwrap();
    assert_eq!((&lack["requested"], &lack["observed"]), (&"128".into(), &"max".into()), "{lack}");
    assert!(lack["hint"].as_str().unwrap().contains("pids controller"), "{lack}");
}
