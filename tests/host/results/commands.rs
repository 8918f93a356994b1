//! The commands through the binary: exits, channels, raw, list, remove, a closed pipe, private modes under any umask.

use super::sample::{JOURNAL, demo, finish, record, scratch, store, trials};
use assert_cmd::Command;
use camino::Utf8Path;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;

const RUN: &str = "20260102T030405Z-k3f9";

fn crashlab(results: &Utf8Path, args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("crashlab").unwrap();
    command.env_clear().arg("--results").arg(results).args(args);
    command
}

fn run(results: &Utf8Path, args: &[&str]) -> (i32, String, String) {
    let output = crashlab(results, args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_cannot_be_found_is_exit_2_and_one_json_document_where_asked_for() {
    let scratch = scratch();
    demo(&scratch.results, RUN);
    let table: [&[&str]; 9] = [
        &["view", "nope"],
        &["view", RUN, "--trial", "nope/1"],
        &["view", RUN, "--format", "markdown"],
        &["compare", RUN, "nope"],
        &["remove", "nope"],
        &["remove", "--older-than", "soon"],
        &["merge", RUN, "nope"],
        &["merge", RUN],
        &["list", "--format", "junit"],
    ];
    for args in table {
        let (exit, stdout, stderr) = run(&scratch.results, args);
        assert_eq!((exit, stdout.as_str()), (2, ""), "{args:?}");
        assert!(stderr.starts_with("error: "), "{args:?} {stderr}");
        if !args.contains(&"--format") {
            let (exit, stdout, _) = run(&scratch.results, &[args, &["--format", "json"]].concat());
            let document: Value = serde_json::from_str(&stdout).unwrap();
            assert_eq!((exit, &document["schema"], &document["exit"]), (2, &json!("crashlab.error/1"), &json!(2)));
        }
    }
    let [view, _] =
        [run(&scratch.results, &["view", "latest"]), run(&scratch.results, &["list"])].map(|(exit, stdout, stderr)| {
            assert_eq!((exit, stderr.as_str()), (0, ""));
            stdout
        });
    assert!(view.contains("5 passed, 2 failed, 2 uncertain, 1 not run"), "{view}");
}

#[test]
fn json_is_one_exact_document_also_where_a_target_was_hostile() {
    let scratch = scratch();
    let mut record = demo(&scratch.results, "first");
    record.run = super::sample::id(RUN);
    record.trials[0].checks[0].detail = Some("\u{1b}]0;x\u{7}</script>\u{202e}\0 \"".to_owned());
    store(&scratch.results, record.clone());
    let (_, stdout, _) = run(&scratch.results, &["view", RUN, "--format", "json"]);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(document["trials"][0]["checks"][0]["detail"], json!("\u{1b}]0;x\u{7}</script>\u{202e}\0 \""));
    assert_eq!(stdout, std::fs::read_to_string(scratch.results.join("runs").join(RUN).join("run.json")).unwrap());
    for args in [&["view", RUN, "--color", "never"][..], &["view", RUN, "--trial", "double-refund/1"]] {
        let (_, stdout, _) = run(&scratch.results, args);
        assert!(!stdout.contains(|c: char| c.is_control() && c != '\n') && !stdout.contains('\u{202e}'), "{stdout:?}");
    }
    let (_, story, _) = run(&scratch.results, &["view", "first", "--trial", "double-refund/1", "--format", "json"]);
    let story: Value = serde_json::from_str(&story).unwrap();
    assert_eq!(story["operations"].as_array().map(Vec::len), Some(3));
}

#[test]
fn colour_is_where_it_is_asked_for() {
    let scratch = scratch();
    demo(&scratch.results, RUN);
    let colored = |color: &str, no_color: Option<&str>| {
        let mut command = crashlab(&scratch.results, &["view", RUN, "--color", color]);
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        String::from_utf8(command.output().unwrap().stdout).unwrap().contains("\u{1b}[")
    };
    assert_eq!((colored("auto", None), colored("never", None)), (false, false));
    assert_eq!((colored("always", None), colored("always", Some("1"))), (true, true));
}

/// Every retained byte: the raw view holds each file, whole, in path order, exact in a pipe.
#[test]
fn raw_shows_every_retained_byte_in_path_order() {
    let scratch = scratch();
    demo(&scratch.results, RUN);
    let folder = scratch.results.join("runs").join(RUN);
    std::fs::write(folder.join("trials/double-refund/1/odd name\n"), b"\xff\x00no line end").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("trials/link")).unwrap();
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir_utf8().unwrap() {
            let path = entry.unwrap().path().to_owned();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((path.strip_prefix(&folder).unwrap().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    assert!(files.len() > 60, "{}", files.len());
    let mut expected = Vec::new();
    for (path, bytes) in &files {
        let path = path.replace('\n', "\\n");
        expected.extend_from_slice(format!("==> {path} ({} bytes) <==\n", bytes.len()).as_bytes());
        expected.extend_from_slice(bytes);
        expected.push(b'\n');
    }
    let output = crashlab(&scratch.results, &["view", RUN, "--raw"]).output().unwrap();
    assert!(output.stdout == expected, "the raw view is not what the folder holds");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("trials/link is a link"), "{stderr}");

    let (_, stdout, _) = run(&scratch.results, &["view", RUN, "--raw", "--format", "json"]);
    let document: Value = serde_json::from_str(&stdout).unwrap();
    let found = document.as_object().unwrap();
    assert_eq!(found.len(), files.len());
    for (path, bytes) in &files {
        match std::str::from_utf8(bytes) {
            Ok(text) => assert_eq!(found[path], json!({"text": text})),
            Err(_) => assert_eq!(found[path], json!({"base64": "/wBubyBsaW5lIGVuZA=="})),
        }
    }
}

#[test]
fn a_closed_pipe_ends_output_quietly() {
    let scratch = scratch();
    let stored = store(&scratch.results, finish(record(RUN), trials("a", "p")));
    // More than a pipe holds.
    std::fs::write(stored.path().join("big"), vec![b'x'; 4 << 20]).unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let crashlab = assert_cmd::cargo::cargo_bin("crashlab");
    #[expect(clippy::disallowed_methods, reason = "the test holds the pipe's other end itself")]
    let mut child = std::process::Command::new(crashlab)
        .args(["--results", scratch.results.as_str(), "view", RUN, "--raw"])
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    reader.read_exact(&mut [0; 16]).unwrap();
    drop(reader);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn junit_says_failed_uncertain_and_not_run_apart() {
    let scratch = scratch();
    let mut record = demo(&scratch.results, "first");
    record.run = super::sample::id(RUN);
    record.trials[0].checks[0].detail = Some("]]>\u{1b}\u{0}<x a='b'>&amp;\u{ffff}\nsecond".to_owned());
    store(&scratch.results, record);
    let (_, xml, _) = run(&scratch.results, &["view", RUN, "--format", "junit"]);
    let count = |tag: &str| xml.matches(tag).count();
    assert_eq!((count("<testcase "), count("<failure "), count("<error "), count("<skipped ")), (10, 2, 2, 1));
    assert!(xml.contains(r#"tests="10" failures="2" errors="2" skipped="1""#), "{xml}");
    insta::assert_snapshot!("junit", xml);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(xml.as_bytes()).unwrap();
    let parse = "import sys, xml.dom.minidom as dom; dom.parse(sys.argv[1])";
    Command::new("python3").args(["-c", parse]).arg(file.path()).assert().success();
}

#[test]
fn a_run_whose_clean_up_is_owed_is_never_removed() {
    let scratch = scratch();
    for run in ["owed", "done", "intent", "broken"] {
        store(&scratch.results, finish(record(run), trials("a", "p")));
    }
    let folder = |run: &str| scratch.results.join("runs").join(run);
    let lines: Vec<&str> = JOURNAL.lines().collect();
    std::fs::write(folder("owed").join("journal.jsonl"), lines[..2].join("\n")).unwrap();
    std::fs::write(folder("intent").join("journal.jsonl"), lines[0]).unwrap();
    std::fs::write(folder("done").join("journal.jsonl"), JOURNAL).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder("broken").join("journal.jsonl")).unwrap();
    for run in ["owed", "intent", "broken"] {
        let (exit, stdout, stderr) = self::run(&scratch.results, &["remove", "done", run]);
        assert_eq!((exit, stdout.as_str()), (2, ""), "{run} {stderr}");
        assert!(folder(run).exists() && folder("done").exists(), "{run}");
    }
    let (exit, stdout, stderr) = self::run(&scratch.results, &["remove", "--older-than", "1d", "--format", "json"]);
    let removal: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((exit, &removal["removed"]), (0, &json!(["done"])), "{stderr}");
    assert!(!folder("done").exists() && folder("owed").exists() && folder("intent").exists());
    assert!(stderr.contains("owed") && stderr.contains("clean-up is owed"), "{stderr}");
}

#[test]
fn remove_deletes_the_named_run_and_follows_no_link() {
    let scratch = scratch();
    for run in ["first", "second"] {
        demo(&scratch.results, run);
    }
    let outside = scratch.results.parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "host").unwrap();
    std::os::unix::fs::symlink(&outside, scratch.results.join("runs/first/trials/link")).unwrap();
    assert_eq!(run(&scratch.results, &["remove", "first"]), (0, "first\n".to_owned(), String::new()));
    assert!(!scratch.results.join("runs/first").exists() && scratch.results.join("runs/second").exists());
    assert_eq!(std::fs::read_to_string(outside.join("file")).unwrap(), "host");
    let (exit, stdout, _) = run(&scratch.results, &["remove", "--older-than", "36500d"]);
    assert_eq!((exit, stdout.as_str()), (0, ""));
    assert!(scratch.results.join("runs/second").exists());
}

#[test]
fn what_is_stored_is_private_under_any_umask() {
    let scratch = scratch();
    for k in [1, 2] {
        let mut part = record(&format!("part-{k}"));
        part.shard = Some(format!("{k}/2"));
        store(&scratch.results, finish(part, trials(&format!("case-{k}"), "p")));
    }
    let elsewhere = scratch.results.parent().unwrap().join("elsewhere/results");
    let runs = scratch.results.join("runs");
    let binary = assert_cmd::cargo::cargo_bin("crashlab");
    Command::new("sh")
        .args(["-c", "umask 000; exec \"$@\"", "sh"])
        .arg(binary)
        .args(["--results", elsewhere.as_str(), "merge"])
        .args([runs.join("part-1"), runs.join("part-2")])
        .assert()
        .success();
    let mut folders = vec![elsewhere.clone()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        let mode = |path: &Utf8Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700, "{folder}");
        for entry in folder.read_dir_utf8().unwrap() {
            let path = entry.unwrap().path().to_owned();
            seen += 1;
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{path}");
            }
        }
    }
    assert!(seen > 6);
    assert_eq!(std::fs::read_to_string(elsewhere.join(".gitignore")).unwrap(), "*\n");
}

#[test]
fn an_unfinished_run_is_shown_and_told_apart() {
    let scratch = scratch();
    let mut started = record(RUN);
    (started.outcome, started.exit, started.finished) = (crashlab::results::record::RunOutcome::Running, None, None);
    started.set_trials(trials("a", "pf"));
    store(&scratch.results, started);
    let (exit, stdout, stderr) = run(&scratch.results, &["view", RUN]);
    assert_eq!(exit, 0);
    assert!(stdout.contains("interrupted") && stdout.contains("1 passed, 1 failed"), "{stdout}");
    assert!(stderr.contains("has not come to its end"), "{stderr}");
    let journal = crashlab::scope::journal::Journal::create(&scratch.results.join("runs").join(RUN)).unwrap();
    let (_, _, stderr) = run(&scratch.results, &["view", RUN]);
    assert!(stderr.contains("is still running"), "{stderr}");
    drop(journal);
    let (_, stdout, _) = run(&scratch.results, &["list", "--format", "json"]);
    let listed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&listed[0]["run"], &listed[0]["outcome"]), (&json!(RUN), &json!("interrupted")));
}

#[test]
fn every_schema_is_printed_and_is_a_schema() {
    let scratch = scratch();
    for name in ["policy", "case", "run", "event", "journal"] {
        let (exit, stdout, _) = run(&scratch.results, &["schema", name]);
        let schema: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(exit, 0);
        assert!(jsonschema::meta::is_valid(&schema), "{name}");
        assert_eq!(schema["$schema"], json!("https://json-schema.org/draft/2020-12/schema"), "{name}");
    }
}
