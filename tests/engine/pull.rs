//! Images by reference (contract C5): what was there stays, what a run pulled because it was missing goes with the run.
//! The registry is Debian's `docker-registry`, on loopback, started by the test.

use crate::support::{BUSYBOX, Package, docker};
use serde_json::json;
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
        let server = command.spawn().expect("this test needs Debian's docker-registry");
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the registry did not come up");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { server, name: format!("127.0.0.1:{port}/agent:1"), _folder: folder }
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

#[test]
fn an_image_that_was_there_stays_and_one_that_a_run_pulled_goes() {
    let registry = Registry::start();
    let name = registry.name.clone();
    let name = name.as_str();
    docker(&["tag", BUSYBOX, name]);
    docker(&["push", "--quiet", name]);
    let package = |pull: &str| {
        Package::new("").policy(json!({"target": {
            "image": {"reference": name, "pull": pull}, "command": ["/bin/busybox", "echo", "{\"ok\": true}"],
        }}))
    };
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
