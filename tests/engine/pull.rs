//! Images by reference (contract C5): what was there stays, what a run pulled because it was missing goes with the run.
//! The registry is Debian's `docker-registry`, on loopback, started by the test.

use crate::chain::interrupt;
use crate::scope_endings::{running, wait_until_running};
use crate::support::{BUSYBOX, PATIENCE, Package, Ran, docker, objects_of};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

struct Registry {
    server: Child,
    name: String,
    _folder: tempfile::TempDir,
}

impl Registry {
    fn start() -> Self {
        // The port was free a moment ago: where somebody else has it meanwhile, the registry ends at once.
        (0..5).find_map(|_| Self::try_start()).expect("a registry that listens")
    }

    fn try_start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.path().join("config.yml");
        let data = folder.path().join("data");
        let text = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:{port}\n",
            data.display()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        let command =
            command.arg("serve").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = command.spawn().expect("this test needs Debian's docker-registry");
        let begun = Instant::now();
        loop {
            let is_open = TcpStream::connect(("127.0.0.1", port)).is_ok();
            if server.try_wait().unwrap().is_some() {
                return None;
            }
            if is_open {
                return Some(Self { server, name: format!("127.0.0.1:{port}/agent:1"), _folder: folder });
            }
            assert!(begun.elapsed() < PATIENCE, "the registry did not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn there(reference: &str) -> bool {
    Command::new("docker")
        .args(["image", "inspect", reference])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
}

fn package(name: &str, pull: &str, command: &[&str]) -> Package {
    let command = [&["/bin/busybox"], command].concat();
    Package::new("").policy(json!({"target": {"image": {"reference": name, "pull": pull}, "command": command}}))
}

#[test]
fn an_image_that_was_there_stays_and_one_that_a_run_pulled_goes() {
    let registry = Registry::start();
    let name = registry.name.clone();
    let name = name.as_str();
    docker(&["tag", BUSYBOX, name]);
    docker(&["push", "--quiet", name]);
    let package = |pull: &str| package(name, pull, &["echo", "{\"ok\": true}"]);
    let ran = package("missing").run();
    assert_eq!((ran.exit, &ran.json["target"]["image"]["origin"]), (0, &json!("provided")), "{}", ran.stderr);
    assert!(there(name), "an image that was there was removed");
    docker(&["image", "rm", "--no-prune", name]);
    let ran = package("missing").run();
    assert_eq!((ran.exit, &ran.json["target"]["image"]["origin"]), (0, &json!("pulled")), "{}", ran.stderr);
    assert!(!there(name), "what the run pulled is still there");
    let ran = package("never").run();
    assert_eq!((ran.exit, &ran.json["counts"]["uncertain"]), (3, &json!(1)), "{}", ran.json);
    assert!(ran.json.to_string().contains("docker pull"), "{}", ran.json);
    drop(registry);
    let ran = package("missing").run();
    assert_eq!((ran.exit, &ran.json["trials"][0]["reason"]), (3, &json!("engine_error")), "{}", ran.json);
}

/// Puts an image of this test's own (another id than any that is there) into the registry, and only there.
fn published(registry: &Registry) -> &str {
    let name = registry.name.as_str();
    let container = docker(&["create", BUSYBOX, "/bin/busybox", "true"]);
    docker(&["commit", "--message", name, &container, name]);
    docker(&["push", "--quiet", name]);
    docker(&["image", "rm", "--no-prune", name]);
    docker(&["rm", &container]);
    name
}

#[test]
fn a_run_that_ends_first_takes_no_image_away_that_it_pulled_and_another_still_uses() {
    let registry = Registry::start();
    let name = published(&registry);
    let (first, second) = (package(name, "missing", &["sleep", "280"]), package(name, "missing", &["sleep", "280"]));
    let start = |package: &Package| {
        let child = package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until_running(package);
        child
    };
    let (one, other) = (start(&first), start(&second));
    // As between its trials: nothing of the second run's is made of the image but what holds it.
    interrupt(&other, "STOP");
    docker(&["rm", "--force", &running(&second.run_id())[0]]);
    interrupt(&one, "INT");
    let ran = Ran::new(one.wait_with_output().unwrap());
    assert_eq!((ran.exit, &ran.json["target"]["image"]["origin"]), (130, &json!("pulled")), "{}", ran.stderr);
    assert!(there(name), "the image was taken away: {}", ran.json["cleanup"]);
    let kept = &ran.json["cleanup"]["kept"][0];
    assert_eq!((kept["kind"].as_str(), kept["name"].as_str()), (Some("image"), Some(name)), "{}", ran.json["cleanup"]);
    assert!(kept["reason"].as_str().unwrap().contains(&second.run_id()), "{kept}");
    interrupt(&other, "CONT");
    let ran_other = Ran::new(other.wait_with_output().unwrap());
    assert_eq!((ran_other.exit, &ran_other.json["target"]["image"]["origin"]), (3, &json!("provided")));
    for ran in [&ran, &ran_other] {
        assert_eq!(
            (objects_of(ran.run()), &ran.json["cleanup"]["failures"]),
            (Vec::new(), &json!([])),
            "{}",
            ran.stderr
        );
    }
    docker(&["image", "rm", "--no-prune", name]);
}

#[test]
fn two_runs_that_pull_the_same_missing_image_at_once_both_pass_and_the_last_one_takes_it_away() {
    let registry = Registry::start();
    let name = published(&registry);
    let packages =
        [1, 2].map(|_| package(name, "missing", &["echo", "{\"ok\": true}"]).args(&["--repeat", "3", "--jobs", "1"]));
    let children =
        packages.each_ref().map(|it| it.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let runs = children.map(|child| Ran::new(child.wait_with_output().unwrap()));
    let kept = runs.iter().filter(|ran| ran.json["cleanup"]["kept"] != json!([])).count();
    for ran in &runs {
        assert_eq!((ran.exit, &ran.json["cleanup"]["failures"]), (0, &json!([])), "{}\n{}", ran.json, ran.stderr);
        assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    }
    // Where the other one found it there, it is told that it stays.
    assert_eq!(
        there(name),
        kept > 0 && runs.iter().any(|ran| ran.json["target"]["image"]["origin"] == json!("provided"))
    );
    if there(name) {
        docker(&["image", "rm", "--no-prune", name]);
    }
}

#[test]
fn an_image_that_somebody_elses_container_is_made_of_is_kept_and_told() {
    let registry = Registry::start();
    let name = published(&registry);
    let package = package(name, "missing", &["sleep", "280"]);
    let child = package.command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until_running(&package);
    let users = docker(&["create", name, "/bin/busybox", "true"]);
    docker(&["kill", &running(&package.run_id())[0]]);
    let ran = Ran::new(child.wait_with_output().unwrap());
    let kept = &ran.json["cleanup"]["kept"][0];
    assert_eq!((kept["kind"].as_str(), kept["name"].as_str()), (Some("image"), Some(name)), "{}", ran.json["cleanup"]);
    assert!(kept["reason"].as_str().unwrap().contains(&users), "{kept}");
    assert!((ran.exit, there(name)) == (1, true) && ran.stderr.contains("kept image"), "{}", ran.stderr);
    docker(&["rm", &users]);
    docker(&["image", "rm", "--no-prune", name]);
}

#[test]
fn a_registry_that_has_had_enough_is_asked_once_and_costs_the_measure() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("127.0.0.1:{}/agent:1", listener.local_addr().unwrap().port());
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            let body = r#"{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit"}]}"#;
            let head = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nConnection: close";
            let _ = write!(&stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            log.lock().unwrap().push(first);
        }
    });
    let package = package(&name, "missing", &["true"]).args(&["--repeat", "3"]);
    let ran = package.run();
    assert_eq!((ran.exit, &ran.json["counts"]["uncertain"]), (3, &json!(3)), "{}", ran.json);
    assert_eq!(ran.trial("one/1")["reason"], "engine_error");
    let told = ran.trial("one/1")["diagnostics"].to_string();
    assert!(told.contains(&name) && (told.contains("rate limit") || told.contains("toomanyrequests")), "{told}");
    // Said once, also beside a document; no other image instead.
    assert_eq!(ran.stderr.matches("failed to pull").count(), 1, "{}", ran.stderr);
    assert_eq!(ran.json["target"]["image"], json!(null));
    assert_eq!((objects_of(ran.run()), &ran.json["cleanup"]["failures"]), (Vec::new(), &json!([])));
    let manifests = asked.lock().unwrap().iter().filter(|line| line.contains("/manifests/")).count();
    assert!(manifests <= 2, "asked {manifests} times: {:?}", asked.lock().unwrap());
}
