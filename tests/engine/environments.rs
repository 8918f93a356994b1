//! Field case D4 on the real engine: whatever stands in crashlab's own environment, each program that it has anything to do
//! with gets the names that the README lists for it and no other, and none gets a provider's key.

use crate::support::{BUSYBOX, Package, Wrapper, docker, objects_of};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const README: &str = include_str!("../../README.md");
const KEY: &str = "sk-of-the-provider-0123456789";

/// Notes what docker was given; and just before a target starts, asks its relay, as the relay's own user beside it.
const RULE: &str = r#"
open(FOLDER + f"/docker-{k}", "wb").write(open("/proc/self/environ", "rb").read())
if args[:2] == ["start", "--attach"]:
    ask = lambda *words: subprocess.check_output([REAL, *words])
    target = json.loads(ask("inspect", "--format", "{{json .}}", args[-1]))
    if "-target-" in target["Name"]:
        network = "network=" + target["HostConfig"]["NetworkMode"]
        [relay] = ask("ps", "--quiet", "--no-trunc", "--filter", network).decode().split()
        beside = ["run", "--rm", "--network", "none", "--pid", "container:" + relay, "--user", "65534:65534"]
        environment = ask(*beside, "BUSYBOX", "/bin/busybox", "cat", "/proc/1/environ")
        open(FOLDER + f"/relay-{k}", "wb").write(environment)
"#;

/// Notes what it was given, and becomes the real one.
fn stand_in(place: &Path, real: &str, folder: &Path, name: &str) {
    let text = format!("#!/bin/sh\ncat /proc/$$/environ >'{}/{name}-'$$\nexec '{real}' \"$@\"\n", folder.display());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(place, text).unwrap();
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What the README lists for a process, in its table of environments.
fn documented(process: &str) -> BTreeSet<String> {
    let row = README.lines().find_map(|line| line.strip_prefix(&format!("| {process} | ")));
    let row = row.unwrap_or_else(|| panic!("the README has no row for {process}"));
    row.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The variables in what `/proc` says of an environment.
fn variables(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let pairs = text.split_terminator('\0').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The environments that were noted under a name; at least one.
fn noted(folder: &Path, name: &str) -> Vec<BTreeMap<String, String>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let its = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{name}-"));
    let all: Vec<_> = entries.filter(its).map(|path| variables(&std::fs::read(path).unwrap())).collect();
    assert!(!all.is_empty(), "{name} was never seen");
    all
}

/// Fifty names that nobody knows, and some that programs do.
fn noise() -> Vec<(String, String)> {
    let known = [
        "AWS_SECRET_ACCESS_KEY",
        "BUILDKIT_HOST",
        "BUILDX_BUILDER",
        "DOCKER_AUTH_CONFIG",
        "GIT_ASKPASS",
        "GIT_SSH_COMMAND",
        "GITHUB_TOKEN",
        "HTTPS_PROXY",
        "LD_LIBRARY_PATH",
        "NO_PROXY",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    ];
    let random = || std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_uppercase();
    let unknown = (0..50).map(|number| format!("X{number}_{}", random().replace('-', "_")));
    unknown.chain(known.map(str::to_owned)).map(|name| (name, "/of/the/host".to_owned())).collect()
}

/// Puts a git and a buildx that note what they were given in front of the real ones; gives docker's configuration.
fn stand_ins(engine: &Wrapper) -> PathBuf {
    let folder = engine.file("");
    let path = std::env::var_os("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|bin| bin.join("git")).find(|git| git.is_file()).unwrap();
    stand_in(&engine.file("git"), git.to_str().unwrap(), &folder, "git");
    let buildx =
        docker(&["info", "--format", "{{range .ClientInfo.Plugins}}{{if eq .Name \"buildx\"}}{{.Path}}{{end}}{{end}}"]);
    let configuration = engine.file("configuration");
    stand_in(&configuration.join("cli-plugins/docker-buildx"), &buildx, &folder, "buildx");
    configuration
}

/// A run that builds, with operations and a provider that nobody calls; its evaluation and its target say what they have.
fn package(engine: &Wrapper) -> Package {
    // Not python itself: what it is started by may add to its environment.
    let evaluation = "cat /proc/$$/environ >../evaluation; exec python3 evaluation.py";
    let target = "cat /proc/$$/environ >&2; echo '{\"ok\": true}'";
    crate::streams::package("", "http://127.0.0.1:9")
        .file("pkg/target/Dockerfile", "FROM base\nENV OF_THE_IMAGE=1\n")
        .env("A_KEY", KEY)
        .env("PATH", &engine.path())
        .env("DOCKER_CONFIG", stand_ins(engine).to_str().unwrap())
        .policy(json!({"operations": {"refund": {}}, "evaluation": {"command": ["sh", "-c", evaluation]}, "target": {
            "image": {"reference": null, "pull": null, "build": {"contexts": {"base": BUSYBOX}}},
            "env": {"OF_THE_POLICY": "1"}, "command": ["/bin/busybox", "sh", "-c", target],
        }}))
}

#[test]
fn each_process_has_only_its_documented_environment_and_none_has_the_key() {
    let engine = Wrapper::new(&RULE.replace("BUSYBOX", BUSYBOX));
    let (folder, noise) = (engine.file(""), noise());
    let package = noise.iter().fold(package(&engine), |package, (name, value)| package.env(name, value));
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    let target = std::fs::read(package.run_folder().join("trials/one/1/stderr")).unwrap();
    let evaluation = variables(&std::fs::read(package.path().join("evaluation")).unwrap());
    let declared = ["OF_THE_IMAGE", "OF_THE_POLICY", "KEY", "URL"].map(str::to_owned);
    // The evaluation is trusted: it has the rest of the host's.
    assert!(noise.iter().all(|(name, value)| evaluation.get(name) == Some(value)), "{evaluation:?}");
    let host = std::env::vars().map(|(name, _)| name).chain(noise.into_iter().map(|(name, _)| name));
    let host = host.chain(["CRASHLAB_BUILDKIT_IMAGE", "DOCKER_CONFIG"].map(str::to_owned));
    let table = [
        ("git", noted(&folder, "git"), BTreeSet::new()),
        ("docker", noted(&folder, "docker"), BTreeSet::new()),
        ("buildx", noted(&folder, "buildx"), documented("docker")),
        ("relay", noted(&folder, "relay"), BTreeSet::new()),
        ("target", vec![variables(&target)], BTreeSet::from(declared)),
        ("evaluation", vec![evaluation], host.filter(|name| name != "A_KEY").collect()),
    ];
    let mut unlisted = BTreeSet::new();
    for (process, environments, more) in table {
        let listed: BTreeSet<String> = documented(process).union(&more).cloned().collect();
        let wrong = |(name, value): &(String, String)| !listed.contains(name) || value.contains(KEY);
        unlisted.extend(environments.into_iter().flatten().filter(wrong).map(|variable| (process, variable)));
    }
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    assert_eq!(objects_of(ran.run()), [""; 0]);
}
