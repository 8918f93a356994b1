//! Three shards merged equal one run; mixes that do not fit are refused by name.

use super::sample::{demo, fill, finish, plain, record, scratch};
use camino::Utf8Path;
use crashlab::ids::{Digest, TrialId};
use crashlab::results::merge::{Shards, fit};
use crashlab::results::read;
use crashlab::results::record::{RunOutcome, RunRecord};
use crashlab::results::store::Store;
use crashlab::verdict::Outcome;
use serde_json::Value;
use std::collections::BTreeMap;

/// Stores the k-th of n shards of an undivided run.
fn shard(results: &Utf8Path, whole: &RunRecord, k: usize, n: usize, change: impl FnOnce(&mut RunRecord)) -> String {
    let id = format!("shard-{k}-of-{n}");
    let mut part = record(&id);
    part.shard = Some(format!("{k}/{n}"));
    change(&mut part);
    let trials = whole.trials.iter().enumerate().filter(|(i, _)| i % n == k - 1).map(|(_, trial)| trial.clone());
    let part = finish(part, trials.collect());
    let store = Store::create(results, &part.run, plain()).unwrap();
    for trial in part.trials.iter().filter(|trial| trial.outcome != Outcome::NotRun) {
        fill(&store.trial(&trial.id()).unwrap(), trial);
    }
    store.write_run(part).unwrap();
    id
}

fn fitted(results: &Utf8Path, runs: &[String], partial: bool) -> Result<Shards, String> {
    let runs = runs.iter().map(|run| read::find(results, run).unwrap()).collect();
    fit(runs, partial).map_err(|refusal| refusal.to_string())
}

/// Every file of a run's trials with its bytes.
fn files(run: &Utf8Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![run.join("trials")];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir_utf8().unwrap() {
            let path = entry.unwrap().path().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(run).unwrap().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn three_shards_merged_equal_one_run() {
    let scratch = scratch();
    let whole = demo(&scratch.results, "whole");
    let runs: Vec<String> = [2, 3, 1].map(|k| shard(&scratch.results, &whole, k, 3, |_| {})).into();
    // An earlier attempt goes along.
    let first: TrialId = "double-refund/1".parse().unwrap();
    let part = read::find(&scratch.results, "shard-1-of-3").unwrap();
    let earlier = part.folder().path().join("trials/double-refund/1/attempt-1");
    std::fs::create_dir(&earlier).unwrap();
    std::fs::write(earlier.join("stdout"), "first try").unwrap();

    let shards = fitted(&scratch.results, &runs, false).unwrap();
    let record = shards.record(super::sample::id("merged")).unwrap();
    let mut store = Store::create(&scratch.results, &record.run, plain()).unwrap();
    shards.write(&mut store, record).unwrap();

    let merged = read::find(&scratch.results, "merged").unwrap();
    let expected = serde_json::to_value(&whole).unwrap();
    let found = serde_json::to_value(&merged.record).unwrap();
    for key in ["trials", "cases", "counts", "usage", "outcome", "exit", "evaluation", "target", "gateways", "sandbox"]
    {
        assert_eq!(found[key], expected[key], "{key}");
    }
    let from: Vec<&str> = merged.record.merged_from.iter().map(|run| run.as_str()).collect();
    assert_eq!(from, ["shard-1-of-3", "shard-2-of-3", "shard-3-of-3"]);
    assert_eq!(found["shard"], Value::Null);
    let mut of_whole = files(&scratch.results.join("runs/whole"));
    let name = format!("trials/{}/attempt-1/stdout", first.folder());
    of_whole.insert(name, b"first try".to_vec());
    assert_eq!(files(&scratch.results.join("runs/merged")), of_whole);
}

#[test]
fn mixes_that_do_not_fit_are_refused_by_name() {
    type Change = fn(&mut RunRecord);
    let table: [(&str, Change); 8] = [
        ("package (digest)", |run| run.evaluation.digest = Digest::of(b"x")),
        ("policy", |run| run.evaluation.policy = Digest::of(b"x")),
        ("target (snapshot)", |run| run.target.as_mut().unwrap().snapshot = Digest::of(b"x")),
        ("repetitions", |run| run.repeat = 7),
        ("seed", |run| run.seed = Some(1)),
        ("is no shard", |run| run.shard = None),
        ("others are of", |run| run.shard = Some("2/3".to_owned())),
        ("both shard 1/2", |run| run.shard = Some("1/2".to_owned())),
    ];
    for (words, change) in table {
        let scratch = scratch();
        let whole = demo(&scratch.results, "whole");
        let runs = [shard(&scratch.results, &whole, 1, 2, |_| {}), shard(&scratch.results, &whole, 2, 2, change)];
        let refusal = fitted(&scratch.results, &runs, true).err().unwrap();
        assert!(refusal.contains(words) && refusal.contains("shard-2-of-2"), "{words}: {refusal}");
    }
}

#[test]
fn a_missing_or_unfinished_shard_is_refused_unless_partial() {
    let scratch = scratch();
    let whole = demo(&scratch.results, "whole");
    let runs = [shard(&scratch.results, &whole, 1, 3, |_| {}), shard(&scratch.results, &whole, 3, 3, |_| {})];
    let refusal = fitted(&scratch.results, &runs, false).err().unwrap();
    assert!(refusal.contains("2/3") && refusal.contains("--partial"), "{refusal}");
    let partial = fitted(&scratch.results, &runs, true).unwrap().record(super::sample::id("m")).unwrap();
    let kept: Vec<&str> = partial.trials.iter().map(|trial| trial.trial.as_str()).collect();
    let expected: Vec<&str> =
        whole.trials.iter().enumerate().filter(|(i, _)| i % 3 != 1).map(|(_, trial)| trial.trial.as_str()).collect();
    assert_eq!(kept, expected);

    let file = scratch.results.join("runs/shard-3-of-3/run.json");
    let mut unfinished: RunRecord = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    (unfinished.outcome, unfinished.exit) = (RunOutcome::Running, None);
    std::fs::write(&file, serde_json::to_vec(&unfinished).unwrap()).unwrap();
    let both = [runs[0].clone(), shard(&scratch.results, &whole, 2, 3, |_| {}), runs[1].clone()];
    let refusal = fitted(&scratch.results, &both, false).err().unwrap();
    assert!(refusal.contains("shard-3-of-3") && refusal.contains("not come to its end"), "{refusal}");
    assert!(fitted(&scratch.results, &both, true).is_ok());
}

#[test]
fn a_trial_twice_is_refused() {
    let scratch = scratch();
    let whole = demo(&scratch.results, "whole");
    let first = shard(&scratch.results, &whole, 1, 2, |_| {});
    let second = shard(&scratch.results, &whole, 2, 2, |_| {});
    let file = scratch.results.join("runs").join(&second).join("run.json");
    let mut changed: RunRecord = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    changed.trials[0] = whole.trials[0].clone();
    std::fs::write(&file, serde_json::to_vec(&changed).unwrap()).unwrap();
    let refusal = fitted(&scratch.results, &[first, second], false).err().unwrap();
    assert!(refusal.contains("double-refund/1"), "{refusal}");
}
