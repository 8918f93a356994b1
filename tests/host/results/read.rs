//! A stored run is found and read back, finished or not, whole or broken.

use super::sample::{demo, finish, id, plain, record, scratch, store, trial, trials};
use crashlab::exit::Refusal;
use crashlab::ids::TrialId;
use crashlab::results::record::{RunOutcome, TrialRecord};
use crashlab::results::store::Store;
use crashlab::results::{list, read};
use crashlab::verdict::Outcome;
use std::os::unix::fs::symlink;

const A: &str = "20260102T030405Z-k3f9";
const B: &str = "20260102T030405Z-k9aa";
const C: &str = "20260103T000000Z-aaaa";

fn refusal(result: anyhow::Result<impl Sized>) -> String {
    let error = result.err().unwrap();
    let refusal = error.downcast_ref::<Refusal>();
    refusal.unwrap_or_else(|| unreachable!("{error:#} should be a refusal")).to_string()
}

#[test]
fn a_run_is_found_by_id_prefix_path_and_latest() {
    let scratch = scratch();
    for run in [A, B, C] {
        store(&scratch.results, finish(record(run), trials("a", "p")));
    }
    let found = |name: &str| read::find(&scratch.results, name).unwrap().record.run.to_string();
    let path = scratch.results.join("runs").join(A);
    for (name, run) in [
        (A, A),
        ("20260102T030405Z-k9", B),
        ("20260103", C),
        (path.as_str(), A),
        (path.join("run.json").as_str(), A),
        ("latest", C),
    ] {
        assert_eq!(found(name), run, "{name}");
    }
    let ambiguous = refusal(read::find(&scratch.results, "20260102"));
    assert!(ambiguous.contains(A) && ambiguous.contains(B) && !ambiguous.contains(C), "{ambiguous}");
    for missing in ["nope", "", "./nowhere/x", "../.."] {
        refusal(read::find(&scratch.results, missing));
    }
}

#[test]
fn of_two_runs_of_one_second_the_latest_is_the_one_that_started_last() {
    let scratch = scratch();
    let mut first = finish(record(A), trials("a", "p"));
    first.started = "2026-01-02T03:04:05.900Z".to_owned();
    store(&scratch.results, first);
    store(&scratch.results, finish(record(B), trials("a", "p")));
    assert_eq!(read::find(&scratch.results, "latest").unwrap().record.run, id(A));
}

#[test]
fn an_unfinished_run_is_read_as_interrupted_with_the_trials_that_are_there() {
    let scratch = scratch();
    let mut started = record(A);
    (started.outcome, started.exit, started.finished) = (RunOutcome::Running, None, None);
    let planned = |name: &str| TrialRecord::not_run(&name.parse::<TrialId>().unwrap());
    started.set_trials(vec![planned("b/1"), planned("a/1"), planned("a/2")]);
    let store = Store::create(&scratch.results, &started.run, plain()).unwrap();
    store.write_run(started).unwrap();
    store.trial(&"b/1".parse().unwrap()).unwrap().finish(trial("b/1", Outcome::Failed)).unwrap();
    store.trial(&"a/2".parse().unwrap()).unwrap();

    let run = read::find(&scratch.results, "latest").unwrap();
    assert!(!run.finished);
    assert_eq!(run.record.outcome, RunOutcome::Interrupted);
    let outcomes: Vec<_> = run.record.trials.iter().map(|trial| (trial.trial.as_str(), trial.outcome)).collect();
    assert_eq!(outcomes, [("b/1", Outcome::Failed), ("a/1", Outcome::NotRun), ("a/2", Outcome::NotRun)]);
    assert_eq!((run.record.counts.failed, run.record.counts.not_run), (1, 2));
    let listed = list::list(&scratch.results).unwrap();
    assert_eq!(listed[0].outcome, Some(RunOutcome::Interrupted));
    assert_eq!(listed[0].counts, Some(run.record.counts));
}

#[test]
fn an_unfinished_run_without_a_plan_takes_what_has_a_folder() {
    let scratch = scratch();
    let mut started = record(A);
    (started.outcome, started.exit) = (RunOutcome::Running, None);
    let store = Store::create(&scratch.results, &started.run, plain()).unwrap();
    store.write_run(started).unwrap();
    for name in ["a/10", "a/9", "a@d/1"] {
        store.trial(&name.parse().unwrap()).unwrap().finish(trial(name, Outcome::Passed)).unwrap();
    }
    store.trial(&"a/11".parse().unwrap()).unwrap();
    let run = read::find(&scratch.results, A).unwrap();
    let names: Vec<_> = run.record.trials.iter().map(|trial| trial.trial.as_str()).collect();
    assert_eq!(names, ["a/9", "a/10", "a/11", "a@d/1"]);
    assert_eq!((run.record.counts.passed, run.record.counts.not_run), (3, 1));
}

#[test]
fn another_schema_is_refused_by_name() {
    let scratch = scratch();
    let stored = store(&scratch.results, finish(record(A), trials("a", "p")));
    let file = stored.path().join("run.json");
    let text = std::fs::read_to_string(&file).unwrap().replace("crashlab.run/1", "crashlab.run/0");
    std::fs::write(&file, text).unwrap();
    let words = refusal(read::find(&scratch.results, A));
    assert!(words.contains("crashlab.run/0") && words.contains("crashlab.run/1"), "{words}");
    assert!(list::list(&scratch.results).unwrap()[0].error.as_ref().unwrap().contains("crashlab.run/0"));
}

#[test]
fn broken_and_hostile_files_are_refused_and_hide_no_other_run() {
    let scratch = scratch();
    store(&scratch.results, finish(record(C), trials("a", "p")));
    let broken = scratch.results.join("runs").join(A);
    std::fs::create_dir(&broken).unwrap();
    let deep = "[".repeat(100_000);
    let escape = r#"{"schema":"crashlab.run/1","run":"../../x"}"#;
    for text in ["", "{", "null", "[]", "{\"schema\": 7}", "\u{0}\u{0}", &deep, escape] {
        std::fs::write(broken.join("run.json"), text).unwrap();
        refusal(read::find(&scratch.results, A));
        let listed = list::list(&scratch.results).unwrap();
        assert_eq!(listed.len(), 2);
        assert!(listed[0].error.is_some() && listed[1].error.is_none(), "{text}: {listed:?}");
    }
}

#[test]
fn a_link_in_a_stored_run_is_not_followed() {
    let scratch = scratch();
    let run = demo(&scratch.results, A);
    let trial = scratch.results.join("runs").join(A).join("trials/double-refund/1");
    std::fs::remove_file(trial.join("stdout")).unwrap();
    symlink("/etc/hostname", trial.join("stdout")).unwrap();
    let stored = read::find(&scratch.results, A).unwrap();
    let error = stored.trial_file(&run.trials[0], "stdout").unwrap_err();
    assert!(format!("{error:#}").contains("symbolic link"), "{error:#}");
    symlink(scratch.results.join("runs").join(A), scratch.results.join("runs").join(B)).unwrap();
    assert_eq!(list::list(&scratch.results).unwrap().len(), 1);
    assert!(read::find(&scratch.results, B).is_err());
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let scratch = scratch();
    let written = demo(&scratch.results, A);
    let stored = read::find(&scratch.results, "latest").unwrap();
    assert_eq!(serde_json::to_value(&stored.record).unwrap(), serde_json::to_value(&written).unwrap());
    let lines = stored.trial_lines(&stored.record.trials[0], "operations.jsonl").unwrap();
    assert_eq!(lines.len(), 3);
    assert!(stored.trial("double-refund@flaky/1").is_ok());
    assert!(refusal(stored.trial("double-refund/9")).contains("double-refund/1"));
}

/// A list of 1,000 runs must not read 10,000 trials: what stands behind the counts is not looked at.
#[test]
fn a_list_reads_only_the_head_of_each_run() {
    let scratch = scratch();
    let stored = store(&scratch.results, finish(record(A), trials("a", "pfu")));
    let file = stored.path().join("run.json");
    let text = std::fs::read_to_string(&file).unwrap();
    let (head, _) = text.split_once("\"cases\"").unwrap();
    std::fs::write(&file, format!("{head}\"cases\": [ this is not even JSON")).unwrap();
    let listed = list::list(&scratch.results).unwrap();
    assert_eq!((listed[0].error.as_deref(), listed[0].counts.unwrap().trials), (None, 3));
    refusal(read::find(&scratch.results, A));
}
