//! A daemon that restarts and one that dies in mid-run: an engine of their own, nested in a privileged container, so that
//! nobody else's containers are hurt. Its state survives a restart, as a real one's does.

use crate::scope::clean;
use crate::support::{BUILDKIT, BUSYBOX, PATIENCE, Package, Ran, docker};
use serde_json::json;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Nested {
    container: String,
    socket: String,
    _folder: tempfile::TempDir,
}

impl Nested {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = format!("unix://{}/docker.sock", folder.path().display());
        // /run is new at each start: a file with the daemon's process number would keep the next one from starting.
        let container = docker(&[
            "run",
            "--detach",
            "--privileged",
            "--volume",
            "/var/lib/docker",
            "--tmpfs",
            "/run",
            "--volume",
            "/tmp:/tmp",
            "--entrypoint",
            "dockerd",
            BUILDKIT,
            "--host",
            &socket,
        ]);
        let nested = Self { container, socket, _folder: folder };
        nested.wait();
        let mut save = Command::new("docker").args(["save", BUSYBOX]).stdout(Stdio::piped()).spawn().unwrap();
        let load = nested.client(&["load", "--quiet"]).stdin(save.stdout.take().unwrap()).output().unwrap();
        assert!(load.status.success() && save.wait().unwrap().success(), "{}", String::from_utf8_lossy(&load.stderr));
        nested
    }

    fn client(&self, args: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.env("DOCKER_HOST", &self.socket).args(args);
        command
    }

    fn ask(&self, args: &[&str]) -> Output {
        self.client(args).output().unwrap()
    }

    /// Until it answers.
    fn wait(&self) {
        let begun = Instant::now();
        while !self.ask(&["version"]).status.success() {
            let log = || Command::new("docker").args(["logs", "--tail", "20", &self.container]).output().unwrap();
            assert!(begun.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&log().stderr));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// What it has of a run.
    fn objects_of(&self, run: &str) -> String {
        let output =
            self.ask(&["ps", "--all", "--filter", &format!("label=crashlab.run={run}"), "--format", "{{.Names}}"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A run on it whose target sleeps; given back once the target runs.
    fn run(&self, seconds: &str) -> (Package, Child) {
        let package = Package::new("").env("DOCKER_HOST", &self.socket).policy(json!({
            "target": {"image": {"reference": BUSYBOX}, "command": ["/bin/busybox", "sleep", seconds]},
            "sandbox": {"wall_time": "290s"},
        }));
        let child = package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        package.wait_for("running target", |run| {
            let label = format!("label=crashlab.run={}", run.file_name().unwrap().to_str().unwrap());
            let filters = ["--filter", &label, "--filter", "label=crashlab.role=target", "--filter", "status=running"];
            !self.ask(&[&["ps", "--quiet"], &filters[..]].concat()).stdout.is_empty()
        });
        (package, child)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rm", "--force", "--volumes", &self.container]).output();
    }
}

/// The run's end: its trial was not measured, for the engine's sake.
fn unmeasured(child: std::process::Child) -> Ran {
    let ran = Ran::new(child.wait_with_output().unwrap());
    let told = (ran.exit, &ran.json["trials"][0]["reason"]);
    assert_eq!(told, (3, &json!("engine_error")), "{}\n{}", ran.json, ran.stderr);
    ran
}

#[test]
fn a_daemon_that_restarts_in_mid_run_costs_the_measure_and_leaves_nothing() {
    let nested = Nested::start();
    let (package, child) = nested.run("280");
    docker(&["restart", &nested.container]);
    let ran = unmeasured(child);
    nested.wait();
    // The clean-up waits for an engine that is away, for a while; what it could not do is told, and finished by a person.
    let failures = ran.json["cleanup"]["failures"].as_array().unwrap();
    let left = nested.objects_of(ran.run());
    assert_eq!(left.is_empty(), failures.is_empty(), "{left}: {}\n{}", ran.json["cleanup"], ran.stderr);
    assert_eq!(clean(&package, &[]).0, 0);
    assert_eq!(nested.objects_of(ran.run()), "");
}

#[test]
fn a_daemon_that_dies_in_mid_run_is_told_with_what_is_left_and_clean_finishes_once_it_is_back() {
    let nested = Nested::start();
    let (package, child) = nested.run("280");
    docker(&["kill", &nested.container]);
    let ran = unmeasured(child);
    let failures = ran.json["cleanup"]["failures"].as_array().unwrap();
    assert!(!failures.is_empty(), "{}", ran.json["cleanup"]);
    for failure in failures {
        let name = failure["name"].as_str().unwrap();
        assert!(ran.stderr.contains(name) && ran.stderr.contains("crashlab clean "), "{name}: {}", ran.stderr);
    }
    assert!(package.crashlab(&["view", "latest"]).status.success());
    let (code, still) = clean(&package, &[]);
    assert_eq!(code, 4, "clean without an engine: {still}");
    docker(&["start", &nested.container]);
    nested.wait();
    assert_ne!(nested.objects_of(ran.run()), "", "the engine forgot what it had: this shows nothing");
    let (code, cleaned) = clean(&package, &[]);
    assert_eq!((code, nested.objects_of(ran.run())), (0, String::new()), "{cleaned}");
    assert_eq!(clean(&package, &["--dry-run"]).1, json!([]));
}
