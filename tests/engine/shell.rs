//! `crashlab shell` on a terminal: the sandbox, gateway and limits of a trial, nothing stored, everything removed; and no
//! shell at all in a sandbox that is not proven.

use crate::attest::{AFTER_TWO, cut_off, liar};
use crate::support::{Package, Wrapper, objects_of};
use serde_json::json;
use std::process::{Command, Output};

/// A person at a terminal, who types as soon as there is a prompt.
const PERSON: &str = r#"
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen, typed = b"", False
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    seen += data
    if not typed and seen.rstrip(b" ").endswith(b"$"):
        os.write(terminal, sys.argv[1].encode() + b"\n")
        typed = True
_, status = os.waitpid(child, 0)
sys.stdout.buffer.write(seen)
sys.exit(os.waitstatus_to_exitcode(status))
"#;

/// What is there to be found: its one operation, called.
const CALLER: &str = r#"
import json, os, urllib.request
head = {"Authorization": "Bearer " + os.environ["CRASHLAB_TOKEN"], "Content-Type": "application/json"}
request = urllib.request.Request(os.environ["CRASHLAB_URL"] + "/operations/refund", b'{"order_id": "1", "amount_cents": 7}', head)
print("answer", json.load(urllib.request.urlopen(request)))
"#;

fn shell(package: &Package, engine: &Wrapper, typed: &str) -> Output {
    let run = package.command();
    let mut command = Command::new("python3");
    command.args(["-c", PERSON, typed]).arg(run.get_program()).arg("--results").arg(package.results());
    command.arg("shell").arg(package.path().join("pkg")).args(["--trust-evaluation-code", "--case", "one"]);
    command.env("PATH", engine.path()).output().unwrap()
}

/// The run's id, from the labels that its objects got: nothing of it is stored.
fn run_of(engine: &Wrapper) -> String {
    let text = json!(engine.calls()).to_string();
    text.split("crashlab.run=").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

/// How often a container was started with its streams attached: the attesting one, and the shell's.
fn attached(engine: &Wrapper) -> usize {
    engine.calls().iter().filter(|call| call["args"][0] == "start" && call["args"][1] == "--attach").count()
}

#[test]
fn a_shell_is_in_the_sandbox_of_its_trial_and_leaves_nothing() {
    let engine = Wrapper::new("return None");
    let package = Package::new(CALLER).policy(json!({"operations": {"refund": {"calls": 1}}}));
    let typed = "echo I am $(id -u):$(id -g) for $CRASHLAB_CASE; touch /x; python3 /target/agent.py; exit 7";
    let output = shell(&package, &engine, typed);
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    // It was reached: what is done in it is no verdict.
    assert_eq!(output.status.code(), Some(0), "{seen}");
    for words in ["I am 65534:65534 for one", "Read-only file system", "{'refunded': 7}"] {
        assert!(seen.contains(words), "no {words}: {seen}");
    }
    assert_eq!(attached(&engine), 2);
    assert_eq!(objects_of(&run_of(&engine)), [""; 0]);
    let left = std::fs::read_dir(package.results().join("runs")).unwrap().count();
    assert_eq!(left, 0, "something is stored");
}

/// An engine that says of the shell's own container, and of no other, that it is in one group more.
const ONE_GROUP_MORE: &str = "if '-target-' in state['Name']: state['HostConfig']['GroupAdd'] = ['0']";

#[test]
fn no_shell_opens_in_a_sandbox_that_is_not_proven() {
    let operations = json!({"operations": {"refund": {}}});
    let table = [
        // Told by the proof from inside, by the engine of the shell's own container, and by its own relay.
        (
            liar("--cap-drop", "state['HostConfig']['CapDrop'] = ['ALL']"),
            json!({}),
            "not what was asked for: capabilities: requested none",
        ),
        (liar("--no-such-flag", ONE_GROUP_MORE), json!({}), "not what was asked for: groups: requested , observed 0"),
        (cut_off(3), operations, "did not reach the gateway on this host at address"),
    ];
    std::thread::scope(|threads| {
        for (engine, policy, told) in table {
            threads.spawn(move || {
                let engine = Wrapper::new(&engine);
                let package = Package::new("").policy(policy);
                let package =
                    if told.contains("gateway") { package.file("pkg/evaluation.py", AFTER_TWO) } else { package };
                let output = shell(&package, &engine, "exit 0");
                let seen = String::from_utf8_lossy(&output.stdout).into_owned();
                assert_eq!(output.status.code(), Some(3), "{seen}");
                assert!(seen.contains(told), "{seen}");
                assert_eq!(attached(&engine), 1, "more than the attesting container was started: {seen}");
                assert_eq!(objects_of(&run_of(&engine)), [""; 0]);
            });
        }
    });
}
