//! Drills before any engine is asked: what `check` and `run` refuse, and that nothing was provisioned for it.

use assert_cmd::Command;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// An evaluation without the SDK, whose world cannot be put back.
const EVALUATION: &str = r#"
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    operations = [{"name": name, "description": "", "arguments": {"type": "object"}} for name in ("add", "read")]
    result = {"protocol": 1, "operations": operations, "secrets": {}, "world_restore": RESTORE}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if asked["method"] == "shutdown":
        break
"#;

struct Package {
    folder: tempfile::TempDir,
}

impl Package {
    fn new(drills: &Value, can_restore: bool) -> Self {
        let policy = json!({
            "version": 1, "name": "drilled",
            "target": {"image": {"reference": "a/b:1"}, "command": ["true"]},
            "evaluation": {"command": ["env", "-u", "PYTHONPATH", "python3", "evaluation.py"]},
            "operations": {"add": {}, "read": {}},
            "gateways": {"openai": {"dialect": "openai", "upstream": {"script": "replies.jsonl"},
                "routes": ["POST /v1/chat/completions", "POST /v1/responses?beta"], "models": ["*"]}},
            "drills": drills,
        });
        let package = Self { folder: tempfile::tempdir().unwrap() };
        package.write("pkg/policy.json", &policy.to_string());
        package.write("pkg/cases.jsonl", "{\"id\": \"one\", \"input\": null}\n");
        package.write("pkg/replies.jsonl", "{\"body\": {}}\n");
        package.write("pkg/target/agent", "");
        let restore = if can_restore { "True" } else { "False" };
        package.write("pkg/evaluation.py", &EVALUATION.replace("RESTORE", restore));
        Command::new("git").args(["init", "-q"]).current_dir(package.path().join("pkg")).assert().success();
        // A stand-in docker leaves a mark, and is no engine.
        let mark = package.path().join("docker-was-called");
        package.write("bin/docker", &format!("#!/bin/sh\necho called > {}\nexit 1\n", mark.display()));
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(package.path().join("bin/docker"), mode).unwrap();
        package
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The exit, the document, and whether docker was called.
    #[expect(clippy::disallowed_methods, reason = "the stand-in goes in front of the PATH of the tests")]
    fn crashlab(&self, command: &str, args: &[&str]) -> (i32, Value, bool) {
        let path = format!("{}:{}", self.path().join("bin").display(), std::env::var("PATH").unwrap());
        let mut crashlab = Command::cargo_bin("crashlab").unwrap();
        crashlab.env_clear().env("PATH", path).current_dir(self.path());
        crashlab.arg(command).arg("pkg").args(["--format", "json", "--trust-evaluation-code"]).args(args);
        let output = crashlab.output().unwrap();
        let document = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (output.status.code().unwrap(), document, self.path().join("docker-was-called").exists())
    }
}

/// A policy with one fault, with this over what would do.
fn fault(change: &Value) -> Value {
    let mut fault = json!({"on": "gateway:openai", "kind": "reset"});
    json_patch::merge(&mut fault, change);
    json!({"busy": {"faults": [fault]}})
}

#[test]
fn a_fault_that_makes_no_sense_is_refused_with_its_place_and_what_would_do() {
    let table = [
        (json!({"nth": 0}), "nth", "found 0", "from 1"),
        (json!({"nth": 1.5}), "nth", "found 1.5", "whole number"),
        (json!({"every": "2"}), "every", "found \"2\"", "whole number"),
        (json!({"probability": 2}), "probability", "found 2", "at most 1"),
        (json!({"probability": 0}), "probability", "found 0", "above 0"),
        (json!({"nth": 1, "every": 2}), "every", "more than one", "one of them"),
        (json!({"times": 0}), "times", "found 0", "from 1"),
        (json!({"on": "gateway:gemini"}), "on", "no such gateway", "declared: openai"),
        (json!({"on": "operation:refund", "kind": "error"}), "on", "no such operation", "declared: add, read"),
        (json!({"on": "target"}), "on", "found \"target\"", "gateway:NAME"),
        (json!({"route": "POST /v1/embeddings"}), "route", "POST /v1/embeddings", "a route of the gateway"),
        (json!({"route": "post /v1/chat/completions"}), "route", "post", "a route of the gateway"),
        (json!({"kind": "explode"}), "kind", "explode", "context_length"),
        (json!({"kind": "lost_write"}), "kind", "lost_write", "status"),
        (json!({"code": 429}), "code", "reset has no", "no parameters"),
        (json!({"kind": "status", "code": 200}), "code", "found 200", "400 to 599"),
        (json!({"kind": "delay", "time": 3}), "time", "found 3", "120s"),
    ];
    for (change, key, message, hint) in table {
        let package = Package::new(&fault(&change), true);
        for command in ["check", "run"] {
            let (exit, document, docker) = package.crashlab(command, &[]);
            assert_eq!((exit, docker), (2, false), "{change}: {document}");
            let text = |key: &str| document[key].as_str().unwrap_or_default();
            assert_eq!(document["where"], format!("policy.json#/drills/busy/faults/0/{key}"), "{change}");
            assert!(text("message").contains(message) && text("hint").contains(hint), "{change}: {document}");
        }
    }
}

#[test]
fn a_drill_has_a_name_that_is_a_folder_anywhere() {
    for (name, place) in [
        ("all", "all"),
        ("Busy", "Busy"),
        ("../x", "..~1x"),
        ("a@b", "a@b"),
        ("ä", "ä"),
        ("", ""),
        ("a b", "a b"),
        ("a\n", "a\n"),
        (".", "."),
    ] {
        let package = Package::new(&json!({name: {"faults": [{"on": "gateway:*", "kind": "reset"}]}}), true);
        let (exit, document, docker) = package.crashlab("run", &["--drill", "all"]);
        assert_eq!((exit, docker), (2, false), "{name:?}: {document}");
        assert_eq!(document["where"], format!("policy.json#/drills/{place}"), "{document}");
    }
}

#[test]
fn a_drill_that_is_not_there_is_refused_with_those_that_are() {
    let package = Package::new(&fault(&json!({"route": "POST /v1/responses"})), true);
    for name in ["nope", "ALL", "", "busy ", "*", "busé"] {
        let (exit, document, docker) = package.crashlab("run", &["--drill", name]);
        assert_eq!((exit, docker), (2, false), "{document}");
        assert_eq!((&document["where"], &document["hint"]), (&json!("--drill"), &json!("declared: all, busy")));
    }
    for name in ["busy", "all"] {
        let none = Package::new(&json!({}), true).crashlab("run", &["--drill", name]);
        assert!(none.0 == 2 && none.1["hint"].as_str().unwrap().contains("drills/rate-limited"), "{name}: {}", none.1);
    }
    for args in [["--seed", "x"], ["--seed", "-1"], ["--seed", "18446744073709551616"]] {
        assert_eq!(package.crashlab("run", &[&args[..], &["--drill", "busy"]].concat()).0, 2, "{args:?}");
    }
    for more in [["--drill", "busy"], ["--seed", "7"]] {
        let (exit, document, _) = package.crashlab("run", &[&more[..], &["--resume", "x"]].concat());
        assert!(exit == 2 && document["message"].as_str().unwrap().contains("cannot be used with"), "{document}");
    }
}

#[test]
fn a_drill_that_puts_worlds_back_needs_an_evaluation_that_can() {
    let operation = |kind: &str| json!({"faults": [{"on": "operation:*", "kind": kind}]});
    let drills =
        json!({"lost": operation("lost_write"), "stale": operation("stale_read"), "twice": operation("duplicate")});
    let package = Package::new(&drills, false);
    for (drill, named) in [("lost", "lost"), ("stale", "stale"), ("all", "lost")] {
        let (exit, document, docker) = package.crashlab("run", &["--drill", drill]);
        assert_eq!((exit, docker), (2, false), "{drill}: {document}");
        assert_eq!(document["where"], format!("policy.json#/drills/{named}"), "{document}");
        assert!(document["message"].as_str().unwrap().contains("world.restore"), "{document}");
    }
    // What needs none is accepted, and so is what puts worlds back where the evaluation can: only the engine is missing.
    assert_eq!(package.crashlab("run", &["--drill", "twice"]).0, 3);
    assert_eq!(package.crashlab("run", &[]).0, 3);
    assert_eq!(Package::new(&drills, true).crashlab("run", &["--drill", "all"]).0, 3);
}

#[test]
fn check_lists_the_drills() {
    let drills = json!({"a": fault(&json!({}))["busy"], "b": fault(&json!({"on": "gateway:*"}))["busy"]});
    let (exit, document, docker) = Package::new(&drills, true).crashlab("check", &[]);
    assert_eq!((exit, docker, &document["drills"]), (0, false, &json!(["a", "b"])), "{document}");
}
