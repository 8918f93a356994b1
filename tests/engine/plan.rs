//! `crashlab plan` says what a run does: each planned command is among those that a run makes, in order, and the plan by
//! hand gives the same proof.

use crate::support::{Package, Wrapper, docker};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

const AGENT: &str = "import json, sys\nprint(json.dumps({'ok': True}))\n";

fn plan(package: &Package) -> Vec<Value> {
    package.command();
    let output = package.crashlab(&["plan", package.path().join("pkg").to_str().unwrap(), "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn words(step: &Value) -> Vec<String> {
    step["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Flags with what differs from run to run taken out: the shape of a command.
fn shape(words: &[String]) -> Vec<String> {
    let volatile = |word: &str| {
        word.contains('$')
            || word.starts_with("CRASHLAB_")
            || word.len() == 64
            || word.contains("sha256:")
            || word.contains("crashlab")
            || word.contains("/tmp/")
            || word.contains("10.")
    };
    // What the attesting program is asked depends on the addresses of the host.
    let asked = words.iter().position(|word| word == "attest").map_or(words.len(), |at| at + 1);
    words[..asked]
        .iter()
        .filter(|word| !volatile(word) && !word.chars().next().is_some_and(|c| c.is_ascii_digit()))
        .cloned()
        .collect()
}

#[test]
fn every_planned_command_is_one_that_a_run_makes() {
    let wrapper = Wrapper::new("return None");
    let package = Package::new(AGENT).policy(json!({"operations": {"refund": {}}}));
    let planned = plan(&package);
    let package = package.env("PATH", &wrapper.path());
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    let made: Vec<Vec<String>> = wrapper
        .calls()
        .iter()
        .map(|call| {
            shape(
                &call["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            )
        })
        .collect();
    for step in &planned {
        let only_sometimes = step["note"].as_str().unwrap().starts_with("only ");
        let wanted = shape(&words(step)[1..]);
        assert!(only_sometimes || made.contains(&wanted), "not made: {wanted:?}\n{made:#?}");
    }
}

#[test]
fn the_plan_by_hand_gives_the_same_proof() {
    let package = Package::new(AGENT);
    let planned = plan(&package);
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    let scope = package.path().join("scope");
    let content = scope.join("snapshot/content");
    std::fs::create_dir_all(&content).unwrap();
    std::fs::copy(package.path().join("pkg/target/agent.py"), content.join("agent.py")).unwrap();
    let program = package.path().join("attest");
    std::fs::write(&program, crashlab::relay::PROGRAM).unwrap();
    Command::new("chmod").args(["755", program.to_str().unwrap()]).status().unwrap();
    Command::new("chmod").args(["711", package.path().to_str().unwrap()]).status().unwrap();
    let mut known = BTreeMap::from([
        ("SCOPE".to_owned(), scope.to_str().unwrap().to_owned()),
        ("RUN".to_owned(), format!("by-hand-{}", std::process::id())),
        ("ATTEST_PROGRAM".to_owned(), program.to_str().unwrap().to_owned()),
        ("CRASHLAB_CASE".to_owned(), "one".to_owned()),
        ("CRASHLAB_REPETITION".to_owned(), "1".to_owned()),
    ]);
    let mut report = None;
    for (number, step) in planned.iter().enumerate() {
        if step["note"].as_str().unwrap().starts_with("only ") {
            continue;
        }
        known.insert("N".to_owned(), number.to_string());
        let mut args: Vec<String> = words(step)[1..].to_vec();
        for word in &mut args {
            // The longest names first: $ATTEST_PROGRAM before $ATTEST.
            for (name, value) in known.iter().rev() {
                *word = word.replace(&format!("${name}"), value);
            }
        }
        let mut command = Command::new("docker");
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        let output = command.args(&args).stdin(Stdio::null()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        if let Some(name) = step["gives"].as_str() {
            let id = serde_json::from_str::<Value>(&told)
                .map_or_else(|_| told.trim().to_owned(), |it| it["Id"].as_str().unwrap().to_owned());
            known.insert(name.to_owned(), id);
        }
        if args[0] == "start" && report.is_none() {
            report = Some(serde_json::from_str::<Value>(&told).unwrap());
        }
    }
    let report = report.expect("the plan looks at the sandbox");
    assert_eq!(docker(&["ps", "--all", "--quiet", "--filter", &format!("label=crashlab.run={}", known["RUN"])]), "");
    let attested = &ran.json["sandbox"]["attested"];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{attested}\n{report}")).to_owned();
    assert_eq!(text(&report["identity"]["uid"]).split('\t').next(), Some("65534"));
    assert!(text(&attested["user"]).starts_with("65534:65534"), "{attested}");
    let same = [("memory", "/cgroup/memory"), ("processes", "/cgroup/processes"), ("kernel", "/namespaces/kernel")];
    for (fact, place) in same {
        assert_eq!(text(&attested[fact]), text(report.pointer(place).unwrap()), "{fact}");
    }
}
