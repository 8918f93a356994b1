//! What the doctor tells of engines that cannot hold a run, from what docker says of them (canned, by a stand-in on PATH).

use assert_cmd::Command;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;

/// What `docker` answers.
struct Canned {
    host: &'static str,
    context: &'static str,
    info: Value,
    /// What it says in place of every answer of the engine.
    refusal: Option<&'static str>,
}

fn plain() -> Canned {
    let info = json!({
        "OperatingSystem": "Debian GNU/Linux 12 (bookworm)", "KernelVersion": "6.1.0-18-amd64", "CgroupVersion": "2",
        "DefaultRuntime": "runc", "Runtimes": {"runc": {}}, "SecurityOptions": ["name=seccomp,profile=builtin"], "Warnings": null,
    });
    Canned { host: "unix:///var/run/docker.sock", context: "default", info, refusal: None }
}

fn with(mut canned: Canned, key: &str, value: Value) -> Canned {
    canned.info[key] = value;
    canned
}

/// Runs the doctor with this engine; the stand-in fails every command that would make something.
fn doctor(canned: &Canned) -> (i32, Value, String) {
    let folder = stand_in(canned);
    ask(&format!("{}:/usr/bin:/bin", folder.path().display()), folder.path())
}

/// A folder with a `docker` that answers so.
fn stand_in(canned: &Canned) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let context = json!({"Name": canned.context, "Endpoints": {"docker": {"Host": canned.host}}});
    let version = json!({"Server": {"Version": "27.3.1", "ApiVersion": "1.47"}});
    let refusal = canned.refusal.map_or(String::new(), |words| format!("echo '{words}' >&2; exit 1;"));
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\ncontext) echo '{context}';;\nversion) {refusal} echo '{version}';;\n\
         info) {refusal} echo '{}';;\nbuildx) exit 1;;\n*) echo \"$@\" >> {}/made; echo 'no such thing here' >&2; exit 1;;\nesac\n",
        canned.info,
        folder.path().display()
    );
    let path = folder.path().join("docker");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn ask(path: &str, folder: &std::path::Path) -> (i32, Value, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crashlab"));
    command.arg("--results").arg(folder.join("results")).args(["doctor", "--format", "json"]);
    let output = command.env("PATH", path).env_remove("DOCKER_HOST").output().unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let made = std::fs::read_to_string(folder.join("made")).unwrap_or_default();
    (output.status.code().unwrap(), json, made)
}

fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["findings"].as_array().unwrap().iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {report}"))
}

#[test]
fn engines_elsewhere_are_recognized_and_told_why_they_cannot_be_used() {
    let table = [
        (Canned { host: "tcp://build.example:2376", ..plain() }, "another machine", "docker context use default"),
        (Canned { host: "ssh://me@build.example", context: "far", ..plain() }, "another machine", "DOCKER_HOST"),
        (with(plain(), "OperatingSystem", json!("Docker Desktop")), "virtual machine", "on Linux"),
        (with(plain(), "KernelVersion", json!("6.10.14-linuxkit")), "virtual machine", "on Linux"),
        (Canned { context: "colima", ..plain() }, "virtual machine", "on Linux"),
        (
            with(plain(), "SecurityOptions", json!(["name=seccomp,profile=builtin", "name=rootless"])),
            "rootless",
            "as root",
        ),
    ];
    for (canned, observed, hint) in table {
        let (exit, report, made) = doctor(&canned);
        assert_eq!((exit, &report["exit"]), (3, &json!(3)), "{report}");
        let place = finding(&report, "place");
        assert_eq!(place["status"], "shortfall", "{place}");
        assert!(place["observed"].as_str().unwrap().contains(observed), "{place}");
        assert!(place["hint"].as_str().unwrap().contains(hint), "{place}");
        assert!(finding(&report, "endpoint")["observed"].as_str().unwrap().contains(canned.host), "{report}");
        if observed == "another machine" {
            assert_eq!(made, "", "something was asked of another machine's engine");
        }
    }
    let (_, report, _) = doctor(&plain());
    assert_eq!(finding(&report, "place")["status"], "holds", "{report}");
}

#[test]
fn an_engine_that_does_not_answer_is_told_with_its_endpoint_and_what_to_do() {
    let table = [
        (
            "Cannot connect to the Docker daemon at unix:///x.sock. Is the docker daemon running?",
            "systemctl start docker",
        ),
        ("permission denied while trying to connect to the Docker daemon socket", "usermod"),
    ];
    for (words, hint) in table {
        let canned = Canned { host: "unix:///x.sock", context: "mine", refusal: Some(words), ..plain() };
        let (exit, report, _) = doctor(&canned);
        assert_eq!(exit, 3, "{report}");
        let engine = finding(&report, "engine");
        let observed = engine["observed"].as_str().unwrap();
        assert!(observed.contains("unix:///x.sock (context mine)") && observed.contains(words), "{engine}");
        assert!(engine["hint"].as_str().unwrap().contains(hint), "{engine}");
    }
    let empty = tempfile::tempdir().unwrap();
    let (exit, report, _) = ask(empty.path().to_str().unwrap(), empty.path());
    assert_eq!(exit, 3);
    assert!(finding(&report, "engine")["hint"].as_str().unwrap().contains("install"), "{report}");
}

#[test]
fn what_the_engine_says_that_it_cannot_do_is_a_shortfall() {
    let canned = with(
        plain(),
        "Warnings",
        json!(["WARNING: No swap limit support", "WARNING: bridge-nf-call-iptables is disabled"]),
    );
    let (exit, report, _) = doctor(&canned);
    assert_eq!(exit, 3);
    let warnings = report["findings"].as_array().unwrap().iter().filter(|finding| finding["name"] == "engine_warning");
    let statuses: Vec<&str> = warnings.map(|finding| finding["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["shortfall", "note"]);
}

/// G6: a run says which endpoint was used, why it fails and what to do, before anything is made.
#[test]
fn a_run_refuses_an_engine_that_it_cannot_use_before_anything_is_made() {
    let refused = |words| Canned { host: "unix:///x.sock", context: "mine", refusal: Some(words), ..plain() };
    let table = [
        (
            Canned { host: "tcp://build.example:2376", context: "far", ..plain() },
            ["tcp://build.example:2376 (context far) is not this machine's", "docker context use default"],
        ),
        (refused("permission denied while trying to connect"), ["at unix:///x.sock (context mine)", "usermod"]),
        (
            refused("Cannot connect to the Docker daemon"),
            ["at unix:///x.sock (context mine)", "systemctl start docker"],
        ),
    ];
    for (canned, words) in table {
        let folder = stand_in(&canned);
        told(folder.path(), &format!("{}:/usr/bin:/bin", folder.path().display()), words);
    }
    // No client at all: the programs that a run needs beside it are there.
    let folder = tempfile::tempdir().unwrap();
    for name in ["python3", "git"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{name}"), folder.path().join(name)).unwrap();
    }
    told(folder.path(), folder.path().to_str().unwrap(), ["no Docker engine answers", "install Docker's client"]);
}

fn told(folder: &std::path::Path, path: &str, words: [&str; 2]) {
    let crashlab = || Command::new(env!("CARGO_BIN_EXE_crashlab"));
    let package = folder.join("package");
    crashlab().arg("init").arg(&package).assert().success();
    let mut run = crashlab();
    run.arg("--results").arg(folder.join("results")).arg("run").arg(&package);
    let output = run
        .args(["--trust-evaluation-code", "--format", "json"])
        .env("PATH", path)
        .env_remove("DOCKER_HOST")
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!((output.status.code(), &json["exit"]), (Some(3), &json!(3)), "{json}");
    for words in words {
        assert!(json.to_string().contains(words), "no {words:?}: {json}");
    }
    assert!(!folder.join("made").exists(), "something was asked of that engine");
    assert!(!folder.join("results").exists(), "something is stored");
}
