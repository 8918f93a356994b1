//! `crashlab plan` says what a run does: each planned command is among those that a run makes, in order, and the plan by
//! hand gives the same proof.

use crate::support::{Package, Wrapper, objects_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
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

/// Keeps what the attesting program of a run said.
const KEEP: &str = r#"
if args[:2] == ["start", "--attach"]:
    done = subprocess.run([REAL, *args], stdout=subprocess.PIPE)
    os.write(1, done.stdout)
    if b'"identity"' in done.stdout:
        open(FOLDER + "/report", "wb").write(done.stdout)
    return done.returncode
"#;

/// What a report says of the sandbox alone: neither how many processes there were just then, nor whom it was asked for.
fn of_the_sandbox(report: &Value) -> Value {
    let mut report = report.clone();
    for name in ["own_number", "processes"] {
        report["namespaces"].as_object_mut().unwrap().remove(name);
    }
    for name in ["addresses", "routes"] {
        report["network"].as_object_mut().unwrap().remove(name);
    }
    report.as_object_mut().unwrap().remove("answers");
    // Engines mount in no order of their own.
    report["places"].as_array_mut().unwrap().sort_by_key(|place| place["path"].to_string());
    report
}

/// A gateway that says yes to its relays.
fn gateway(address: &str) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind((address, 0)).unwrap();
    let its = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    its
}

fn relay_image() -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_size(crashlab::relay::PROGRAM.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "relay", crashlab::relay::PROGRAM).unwrap();
    archive.into_inner().unwrap()
}

/// Everything that only a run knows, filled in by hand: folders, names, addresses.
fn filled_in(package: &Package) -> BTreeMap<String, String> {
    let scope = package.path().join("scope");
    let content = scope.join("snapshot/content");
    std::fs::create_dir_all(&content).unwrap();
    std::fs::copy(package.path().join("pkg/target/agent.py"), content.join("agent.py")).unwrap();
    let (program, tokens) = (package.path().join("attest"), package.path().join("tokens"));
    std::fs::write(&program, crashlab::relay::PROGRAM).unwrap();
    std::fs::write(&tokens, "CRASHLAB_TOKEN=by-hand\n").unwrap();
    Command::new("chmod").args(["755", program.to_str().unwrap()]).status().unwrap();
    Command::new("chmod").args(["711", package.path().to_str().unwrap()]).status().unwrap();
    let (number, text) = (std::process::id() % 200, |path: &std::path::Path| path.to_str().unwrap().to_owned());
    let known = [
        ("SCOPE", text(&scope)),
        ("RUN", format!("by-hand-{}", std::process::id())),
        ("ATTEST_PROGRAM", text(&program)),
        ("TOKENS", text(&tokens)),
        ("NONCE", "0123456789abcdef".to_owned()),
        ("CRASHLAB_CASE", "one".to_owned()),
        ("CRASHLAB_REPETITION", "1".to_owned()),
        // Ranges that no run takes its own from.
        ("RELAYS_SUBNET", format!("10.101.{number}.0/24")),
        ("RELAYS_BRIDGE", format!("10.101.{number}.1")),
        ("SUBNET", format!("10.102.{number}.0/29")),
        ("BRIDGE", format!("10.102.{number}.1")),
        ("RELAY_ADDRESS", format!("10.102.{number}.2")),
        ("TARGET_ADDRESS", format!("10.102.{number}.3")),
    ];
    known.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Runs a step by hand; gives what it prints.
fn by_hand(args: &[String]) -> String {
    let mut command = Command::new("docker");
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "no_proxy"] {
        command.env_remove(name);
    }
    let mut child =
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    if args[0] == "import" {
        input.write_all(&relay_image()).unwrap();
    }
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs the plan by hand, and gives what the attesting program said.
fn report_by_hand(package: &Package, planned: &[Value]) -> Value {
    let mut known = filled_in(package);
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
            assert!(!word.contains('$'), "nothing is known of {word}");
        }
        let told = by_hand(&args);
        if let Some(name) = step["gives"].as_str() {
            let id = serde_json::from_str::<Value>(&told)
                .map_or_else(|_| told.trim().to_owned(), |it| it["Id"].as_str().unwrap().to_owned());
            if name == "RELAYS" {
                known.insert("GATEWAY".to_owned(), gateway(&known["RELAYS_BRIDGE"]).to_string());
            }
            known.insert(name.to_owned(), id);
        }
        if args[..2] == ["start", "--attach"] && report.is_none() {
            report = Some(serde_json::from_str::<Value>(&told).unwrap());
        }
    }
    // Its last steps removed what its first ones made.
    assert_eq!(objects_of(&known["RUN"]), [""; 0]);
    report.expect("the plan looks at the sandbox")
}

#[test]
fn the_plan_by_hand_gives_the_same_attestation() {
    let open = json!({"operations": {"refund": {}}});
    for policy in [json!({}), open] {
        let wrapper = Wrapper::new(KEEP);
        let package = Package::new(AGENT).policy(policy.clone());
        let planned = plan(&package);
        let package = package.env("PATH", &wrapper.path());
        let ran = package.run();
        assert_eq!(ran.exit, 0, "{}", ran.stderr);
        let seen: Value = serde_json::from_slice(&std::fs::read(wrapper.file("report")).unwrap()).unwrap();
        let by_hand = report_by_hand(&package, &planned);
        assert_eq!(of_the_sandbox(&by_hand), of_the_sandbox(&seen));
        let reached = |report: &Value| -> Vec<String> {
            let answers = report["answers"].as_array().unwrap().iter().filter(|it| it["outcome"] == "connected");
            answers.map(|it| it["tcp"].as_str().unwrap().split(':').nth(1).unwrap().to_owned()).collect()
        };
        let relay: &[&str] = if policy == json!({}) { &[] } else { &["8080"] };
        assert_eq!((reached(&seen), reached(&by_hand).len()), (relay.iter().map(|it| (*it).to_owned()).collect(), 0));
    }
}
