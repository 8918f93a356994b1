//! Writing does not become slower with the number of trials, by counts: what the 600th trial writes is what the first one
//! wrote, and nothing that was there before is touched again. Reading a list does not look behind the head of a run.

use super::sample::{fill, plain, record, scratch, trial};
use camino::{Utf8Path, Utf8PathBuf};
use crashlab::results::record::{RunOutcome, TrialRecord};
use crashlab::results::store::Store;
use crashlab::verdict::Outcome;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

const TRIALS: u32 = 600;

/// Every file below a folder: which one it is, its size, and when it was last changed in any way.
fn files(folder: &Utf8Path) -> BTreeMap<Utf8PathBuf, (u64, u64, i64, i64)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in next.read_dir_utf8().unwrap() {
            let path = entry.unwrap().path().to_owned();
            let about = path.symlink_metadata().unwrap();
            if about.is_dir() {
                folders.push(path);
            } else {
                found.insert(path, (about.ino(), about.len(), about.ctime(), about.ctime_nsec()));
            }
        }
    }
    found
}

#[test]
fn the_last_trial_writes_what_the_first_one_wrote_and_touches_nothing_else() {
    let scratch = scratch();
    let mut run = record("20260102T030405Z-grow");
    (run.outcome, run.exit, run.finished) = (RunOutcome::Running, None, None);
    let names: Vec<String> = (1..=TRIALS).map(|n| format!("case-{:03}/{}", n % 50, n / 50 + 1)).collect();
    run.set_trials(names.iter().map(|name| TrialRecord::not_run(&name.parse().unwrap())).collect());
    let store = Store::create(&scratch.results, &run.run, plain()).unwrap();
    store.write_run(run).unwrap();
    let mut written = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let looked = [0, 1, names.len() / 2, names.len() - 1].contains(&index).then(|| files(store.path()));
        let record = trial(name, Outcome::Passed);
        fill(&store.trial(&record.id()).unwrap(), &record);
        let Some(before) = looked else { continue };
        let after = files(store.path());
        let changed: Vec<_> = after.iter().filter(|(path, about)| before.get(*path) != Some(about)).collect();
        let own = store.path().join("trials").join(name);
        for (path, _) in &changed {
            assert!(path.starts_with(&own), "{name} wrote {path}");
        }
        assert!(before.keys().all(|path| after.contains_key(path)), "{name} removed something");
        let kinds: Vec<&str> = changed.iter().filter_map(|(path, _)| path.file_name()).collect();
        written.push((kinds.len(), kinds.into_iter().map(str::to_owned).collect::<Vec<_>>()));
    }
    assert_eq!(written.len(), 4);
    assert!(written.iter().all(|each| *each == written[0]), "{written:?}");
    assert_eq!(written[0].0, 9, "{written:?}");
}
