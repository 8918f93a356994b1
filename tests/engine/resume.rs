//! A run in parts: killed and gone on with, or spread over shards and merged (by hand, and by the example for GNU parallel),
//! it says what one undisturbed run says.

use crate::support::{Package, Ran, objects_of};
use serde_json::{Value, json};
use std::process::Stdio;

const SLOW: &str = r#"
import json, os, sys, time
case = json.load(sys.stdin)
time.sleep(0.4)
print(json.dumps({"ok": case["id"] != "b" or os.environ["CRASHLAB_REPETITION"] != "2"}))
"#;

fn verdicts(run: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    run["trials"].as_array().unwrap().iter().map(|trial| (text(&trial["trial"]), text(&trial["outcome"]))).collect()
}

#[test]
fn a_killed_run_that_is_gone_on_with_says_what_an_undisturbed_one_says() {
    let package = Package::new(SLOW).cases(&["a", "b"]).args(&["--repeat", "3", "--jobs", "1"]);
    let undisturbed = package.run();
    std::fs::remove_dir_all(package.results()).unwrap();
    let mut child = package.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    package.wait_for("two finished trials", |run| {
        ["trials/a/1/trial.json", "trials/a/2/trial.json"].iter().all(|file| run.join(file).exists())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let run = package.run_id();
    let viewed = package.crashlab(&["view", &run, "--format", "json"]);
    let stored: Value = serde_json::from_slice(&viewed.stdout).unwrap();
    assert_eq!(stored["outcome"], "interrupted");
    let resume = |package: &Package| {
        let mut command = package.command();
        let args: Vec<_> =
            command.get_args().map(ToOwned::to_owned).filter(|arg| arg != "--repeat" && arg != "3").collect();
        command = std::process::Command::new(command.get_program());
        Ran::new(command.args(args).args(["--resume", &run]).stdin(Stdio::null()).output().unwrap())
    };
    let ran = resume(&package);
    assert_eq!(
        (ran.exit, ran.run(), &ran.json["resumed"]),
        (1, run.as_str(), &json!(1)),
        "{}\n{}",
        ran.json,
        ran.stderr
    );
    assert_eq!(verdicts(&ran.json), verdicts(&undisturbed.json));
    assert_eq!(ran.json["counts"], undisturbed.json["counts"]);
    assert_eq!(objects_of(&run), [""; 0]);
    // Another target is another run.
    let package = package.file("pkg/target/more.py", "x = 1\n");
    let refused = resume(&package);
    assert_eq!(refused.exit, 2, "{}", refused.json);
    assert!(refused.json["message"].as_str().unwrap().contains("snapshot"), "{}", refused.json);
    let viewed: Value = serde_json::from_slice(&package.crashlab(&["view", &run, "--format", "json"]).stdout).unwrap();
    assert_eq!(viewed["counts"], ran.json["counts"]);
}

#[test]
fn three_shards_merged_are_one_run() {
    let package = Package::new(SLOW).cases(&["a", "b"]).args(&["--repeat", "2"]);
    let whole = package.run();
    std::fs::remove_dir_all(package.results()).unwrap();
    let mut ids = Vec::new();
    for shard in ["1/3", "2/3", "3/3"] {
        let output = package.command().args(["--shard", shard]).output().unwrap();
        let ran = Ran::new(output);
        assert_eq!(ran.json["shard"], shard);
        ids.push(ran.run().to_owned());
    }
    let merged = package.crashlab(&["merge", &ids[0], &ids[1], &ids[2]]);
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
    let id = String::from_utf8(merged.stdout).unwrap().trim().to_owned();
    let viewed: Value = serde_json::from_slice(&package.crashlab(&["view", &id, "--format", "json"]).stdout).unwrap();
    assert_eq!(verdicts(&viewed), verdicts(&whole.json));
    assert_eq!(viewed["counts"], whole.json["counts"]);
    for bad in ["0/3", "4/3", "x", "1/0", "9/9"] {
        let refused = Ran::new(package.command().args(["--shard", bad]).output().unwrap());
        assert_eq!(refused.exit, 2, "{bad}");
    }
}

/// `scripts/examples/parallel.sh` as it stands, with Debian's GNU parallel.
#[test]
fn the_example_for_gnu_parallel_comes_to_what_one_run_comes_to() {
    let package = Package::new(SLOW).cases(&["a", "b"]);
    let whole = Ran::new(package.command().args(["--repeat", "2"]).output().unwrap());
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_crashlab")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let shards = package.path().join("shards");
    // A folder with a space and a quote in its name: what parallel hands to a shell must survive it.
    let odd = package.path().join("it's a package");
    std::fs::rename(package.path().join("pkg"), &odd).unwrap();
    let example = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/examples/parallel.sh");
    let mut command = std::process::Command::new(example);
    command.arg("3").arg(&odd).args(["--trust-evaluation-code", "--repeat", "2"]);
    let output = command.env("PATH", path).env("CRASHLAB_RESULTS", &shards).stdin(Stdio::null()).output().unwrap();
    let (shown, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(whole.exit), "{shown}\n{told}");
    assert_eq!(whole.exit, 1);
    let listed = crate::support::crashlab(&shards).args(["view", "latest", "--format", "json"]).output().unwrap();
    let merged: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(verdicts(&merged), verdicts(&whole.json));
    assert_eq!(merged["merged_from"].as_array().map(Vec::len), Some(3));
    assert!(shown.contains("3 passed, 1 failed"), "{shown}");
}
