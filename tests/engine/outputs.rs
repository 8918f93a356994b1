//! What pipelines read of a real run: each line on standard output, and each file that is stored, is valid by the published
//! schema, asked of a validator that knows nothing of our types; and what a person sees meanwhile on a terminal.

use crate::support::Package;
use serde_json::Value;
use std::process::{Command, Stdio};

const AGENT: &str = r#"
import json, os, sys, urllib.request
case = json.load(sys.stdin)
request = urllib.request.Request(os.environ["CRASHLAB_URL"] + "/operations/refund",
    json.dumps({"order_id": "1", "amount_cents": 5}).encode(),
    {"Authorization": "Bearer " + os.environ["CRASHLAB_TOKEN"], "Content-Type": "application/json"})
urllib.request.urlopen(request).read()
print(json.dumps({"ok": case["id"] != "bad"}))
"#;

/// Standard error on a terminal, standard output in a pipe: as `crashlab run --format jsonl | reader` is started by hand.
const TERMINAL: &str = r"
import os, pty, subprocess, sys, threading
ours, theirs = pty.openpty()
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=theirs)
os.close(theirs)
seen = bytearray()
def read():
    try:
        while piece := os.read(ours, 65536):
            seen.extend(piece)
    except OSError:
        pass
reader = threading.Thread(target=read)
reader.start()
code = child.wait()
reader.join()
open(sys.argv[1], 'wb').write(seen)
sys.exit(code)
";

fn valid(package: &Package, name: &str, document: &str) {
    let schema: Value = serde_json::from_slice(&package.crashlab(&["schema", name]).stdout).unwrap();
    let document: Value = serde_json::from_str(document).unwrap_or_else(|error| panic!("{name}: {error}: {document}"));
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}: {document}");
}

#[test]
fn events_and_stored_files_of_a_run_are_valid_and_a_terminal_shows_how_far_it_is() {
    let package = Package::new(AGENT).cases(&["good", "bad", "broken"]);
    let package = package.policy(serde_json::json!({"operations": {"refund": {"calls": 2}}}));
    let run = package.command();
    let terminal = package.path().join("terminal");
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL]).arg(&terminal).arg(run.get_program()).args(run.get_args());
    command.args(["--format", "jsonl"]).envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // The last --format would be one too many.
    let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let json = args.windows(2).position(|pair| pair == ["--format", "json"]).unwrap();
    let args = args[..json].iter().chain(&args[json + 2..]);
    let output = Command::new("python3").args(args).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));

    let events = String::from_utf8(output.stdout).unwrap();
    assert!(events.lines().count() >= 8, "{events}");
    events.lines().for_each(|line| valid(&package, "event", line));
    let read = |path: &str| std::fs::read_to_string(package.run_folder().join(path)).unwrap();
    valid(&package, "run", &read("run.json"));
    let journal = read("journal.jsonl");
    assert!(journal.lines().count() > 10, "{journal}");
    journal.lines().for_each(|line| valid(&package, "journal", line));
    let of_package = |path: &str| std::fs::read_to_string(package.path().join("pkg").join(path)).unwrap();
    valid(&package, "policy", &of_package("policy.json"));
    of_package("cases.jsonl").lines().for_each(|line| valid(&package, "case", line));

    let seen = String::from_utf8_lossy(&std::fs::read(terminal).unwrap()).into_owned();
    for part in ["running", "1 passed", "1 failed", "1 not measured", "/3", "left"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
}
