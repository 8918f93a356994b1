//! A new user's path, as the README's "Use" writes it: make a package, check it, run it as it was reviewed, look at the run
//! and at one trial, change the agent, run again, compare, make pages. Each command does what the next one builds on.

use crate::support::{PYTHON, crashlab};
use std::path::Path;
use std::process::Output;

struct User {
    folder: tempfile::TempDir,
}

impl User {
    /// As it is typed, in a folder of one's own.
    fn types(&self, args: &[&str]) -> Output {
        let mut command = crashlab(Path::new(".crashlabs"));
        command.current_dir(self.folder.path()).args(args).output().unwrap()
    }

    /// The same, with the exit that it should have: what it shows.
    fn sees(&self, exit: i32, args: &[&str]) -> String {
        let output = self.types(args);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(exit), "{args:?}\n{stdout}\n{stderr}");
        stdout
    }
}

#[test]
fn from_init_over_a_run_a_look_and_a_changed_agent_to_a_comparison() {
    let user = User { folder: tempfile::tempdir().unwrap() };
    user.sees(0, &["init", "my-evaluation", "--image", PYTHON]);
    let checked = user.sees(0, &["check", "my-evaluation", "--format", "json"]);
    let checked: serde_json::Value = serde_json::from_str(&checked).unwrap();
    let trust = format!("--trust-evaluation-code={}", checked["digest"].as_str().unwrap());

    let run = ["run", "my-evaluation", &trust, "--repeat", "2"];
    let ran = user.sees(0, &run);
    let next = ran.lines().last().unwrap();
    assert!(ran.contains(" passed (exit 0)"), "{ran}");
    let base = ran.lines().next().unwrap().split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(user.sees(0, &["view", "latest"]), ran);
    assert!(next.starts_with("stored in ") || next.starts_with("next: crashlab "), "{next}");
    let cases = std::fs::read_to_string(user.folder.path().join("my-evaluation/cases.jsonl")).unwrap();
    let case: serde_json::Value = serde_json::from_str(cases.lines().next().unwrap()).unwrap();
    let trial = format!("{}/1", case["id"].as_str().unwrap());
    let story = user.sees(0, &["view", "latest", "--trial", &trial]);
    for part in ["what happened", "world", "answer", "checks"] {
        assert!(story.contains(part), "{part}: {story}");
    }

    let agent = user.folder.path().join("my-evaluation/target/agent.py");
    std::fs::write(&agent, "print('I did it, trust me')\n").unwrap();
    let failed = user.sees(1, &run);
    assert!(failed.contains("✗"), "{failed}");
    // The last line of what was shown is the command to go on with.
    let next = failed.lines().last().unwrap().strip_prefix("next: crashlab ").unwrap();
    let story = user.sees(0, &next.split(' ').collect::<Vec<_>>());
    assert!(story.contains("I did it, trust me") && story.contains("✗"), "{story}");

    let compared = user.sees(0, &["compare", &base, "latest"]);
    assert!(compared.contains("100 %") && compared.contains("0 %"), "{compared}");
    let listed = user.sees(0, &["list"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    for args in [&["view", "latest", "--html", "run.html"][..], &["compare", &base, "latest", "--html", "change.html"]]
    {
        user.sees(0, args);
        let page = std::fs::read_to_string(user.folder.path().join(args.last().unwrap())).unwrap();
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    }
    user.sees(0, &["remove", &base]);
    assert_eq!(user.sees(0, &["list"]).lines().count(), 2);
}
