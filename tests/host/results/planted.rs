//! F5: a results folder that somebody else prepared. Whatever stands in the place of a run, its journal or the scopes'
//! folder, nothing is written, removed or waited for through it.

use super::sample::{finish, record, scratch, store, trials};
use assert_cmd::Command;
use camino::{Utf8Path, Utf8PathBuf};
use crashlab::scope::journal::{FILE, Line, Step};
use crashlab::scope::{Kind, Resource};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::time::Duration;

/// A clean-up of nothing but folders asks no engine; one that waits for ever is ended.
fn run(results: &Utf8Path, args: &[&str]) -> (i32, String) {
    let mut command = Command::cargo_bin("crashlab").unwrap();
    command.env_clear().arg("--results").arg(results).args(args).timeout(Duration::from_secs(120));
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8(text).unwrap())
}

/// A run's folder whose journal owes this folder.
fn owes(runs: &Utf8Path, run: &str, folder: &Utf8Path) -> Utf8PathBuf {
    let line: Line = Resource::intent(Kind::Folder, folder.as_str(), BTreeMap::new()).line(Step::Intent, None);
    std::fs::create_dir_all(runs.join(run)).unwrap();
    std::fs::write(runs.join(run).join(FILE), serde_json::to_string(&line).unwrap() + "\n").unwrap();
    runs.join(run)
}

/// A folder of the user's, outside of the results.
fn documents(results: &Utf8Path) -> Utf8PathBuf {
    let folder = results.parent().unwrap().canonicalize_utf8().unwrap().join("home/documents");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("letter"), "of the user").unwrap();
    folder
}

#[test]
fn clean_removes_its_own_folder_and_never_one_behind_a_link() {
    let scratch = scratch();
    let (results, victim) = (scratch.results.as_path(), documents(&scratch.results));
    let letter = victim.join("letter");
    owes(&results.join("runs"), "documents", &victim);
    symlink(victim.parent().unwrap(), results.join("scopes")).unwrap();
    let (exit, text) = run(results, &["clean"]);
    assert_eq!((exit, letter.exists()), (2, true), "{text}");
    assert!(text.contains("symbolic link"), "{text}");

    // The same where the run's own folder is the link.
    std::fs::remove_file(results.join("scopes")).unwrap();
    std::fs::create_dir(results.join("scopes")).unwrap();
    let own = results.canonicalize_utf8().unwrap().join("scopes/documents");
    owes(&results.join("runs"), "documents", &own);
    symlink(&victim, &own).unwrap();
    let (exit, text) = run(results, &["clean"]);
    assert_eq!((exit, letter.exists()), (0, true), "{text}");
    assert!(text.contains("kept") && text.contains("no folder any more"), "{text}");

    // The control: a folder of its own goes, and of a link in it only the link.
    std::fs::remove_file(&own).unwrap();
    owes(&results.join("runs"), "documents", &own);
    std::fs::create_dir(&own).unwrap();
    symlink(&victim, own.join("snapshot")).unwrap();
    let (exit, text) = run(results, &["clean"]);
    assert_eq!((exit, own.exists(), letter.exists()), (0, false, true), "{text}");
    assert!(text.contains("removed"), "{text}");
}

#[test]
fn clean_finishes_no_run_behind_a_link_and_waits_for_no_pipe() {
    let scratch = scratch();
    let results = scratch.results.as_path();
    let elsewhere = documents(results);
    let journal = owes(&elsewhere, "foreign", &elsewhere.join("scopes/foreign")).join(FILE);
    let before = std::fs::read(&journal).unwrap();
    std::fs::create_dir_all(results.join("runs/pipe")).unwrap();
    Command::new("mkfifo").arg(results.join("runs/pipe").join(FILE)).assert().success();
    symlink(elsewhere.join("foreign"), results.join("runs/foreign")).unwrap();
    std::fs::create_dir_all(results.join("runs/linked")).unwrap();
    symlink(&journal, results.join("runs/linked").join(FILE)).unwrap();
    for args in [["clean"].as_slice(), &["clean", "--dry-run"], &["list"]] {
        let (exit, text) = run(results, args);
        assert_eq!((exit, text.contains("foreign")), (0, false), "{args:?}: {text}");
    }
    std::fs::remove_dir_all(results.join("runs")).unwrap();
    symlink(&elsewhere, results.join("runs")).unwrap();
    let (exit, text) = run(results, &["clean"]);
    assert_eq!((exit, text.as_str()), (0, "no run owes a clean-up\n"));
    assert_eq!(std::fs::read(&journal).unwrap(), before);
    // The control: it is owed, and through its own results folder it is settled.
    std::fs::rename(&elsewhere, results.join("runs-elsewhere")).unwrap();
    std::fs::remove_file(results.join("runs")).unwrap();
    std::fs::rename(results.join("runs-elsewhere"), results.join("runs")).unwrap();
    let (exit, text) = run(results, &["clean"]);
    assert!(exit == 0 && text.contains("run foreign"), "{text}");
}

#[test]
fn remove_takes_no_run_away_behind_a_link() {
    let scratch = scratch();
    store(&scratch.results, finish(record("real"), trials("a", "p")));
    let (real, link) = (scratch.results.join("runs/real"), scratch.results.join("runs/link"));
    symlink(&real, &link).unwrap();
    for path in [link.to_string(), format!("{link}/"), format!("{link}/."), format!("{link}/run.json")] {
        let (exit, text) = run(&scratch.results, &["remove", &path]);
        assert_eq!((exit, real.join("run.json").exists()), (2, true), "{path}: {text}");
        assert!(text.contains("symbolic link"), "{path}: {text}");
    }
    assert_eq!(run(&scratch.results, &["remove", real.as_str()]).0, 0);
    assert!(!real.exists());
}
