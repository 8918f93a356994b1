//! A run in parts: killed and gone on with, or spread over shards and merged, it says what one undisturbed run says.

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
