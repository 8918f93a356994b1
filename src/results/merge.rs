//! One run out of shards. Owns which mixes are refused (another package, policy, snapshot, repetitions or seed; a shard twice
//! or missing; a trial twice), and that trials come in the order in which one undivided run would have had them.

use crate::exit::Refusal;
use crate::results::folder::{EntryKind, Folder};
use crate::results::read::{StoredRun, trial_folder};
use crate::results::record::{Cleanup, Redaction, RunOutcome, RunRecord, SandboxRecord, Shortfall, TrialRecord};
use crate::results::store::Store;
use crate::verdict::exit_of;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Shards that fit together, in shard order.
#[derive(Debug)]
pub struct Shards {
    runs: Vec<(u64, StoredRun)>,
    of: u64,
}

/// Checks that runs are shards of one run.
///
/// # Errors
/// A refusal that names the run and what does not fit.
pub fn fit(runs: Vec<StoredRun>, partial: bool) -> Result<Shards, Refusal> {
    let mut shards: BTreeMap<u64, StoredRun> = BTreeMap::new();
    let mut of = None;
    for run in runs {
        let id = run.record.run.clone();
        let (k, n) = shard(&run.record)?;
        if *of.get_or_insert(n) != n {
            return Err(Refusal::new(format!("run {id} is shard {k}/{n}, others are of {}", of.unwrap_or(n))));
        }
        if !run.finished && !partial {
            return Err(Refusal::new(format!("run {id} has not come to its end"))
                .hint(format!("`crashlab run … --resume {id}` finishes it; --partial takes what is there")));
        }
        if let Some(first) = shards.values().next() {
            same(&first.record, &run.record)?;
        }
        if let Some(twice) = shards.insert(k, run) {
            return Err(Refusal::new(format!("runs {} and {id} are both shard {k}/{n}", twice.record.run)));
        }
    }
    let of = of.ok_or_else(|| Refusal::new("no run to merge"))?;
    let missing: Vec<String> =
        (1..=of).filter(|k| !shards.contains_key(k)).map(|k| format!("{k}/{of}")).take(10).collect();
    if !missing.is_empty() && !partial {
        return Err(
            Refusal::new(format!("shard {} is missing", missing.join(", "))).hint("--partial merges without it")
        );
    }
    let shards = Shards { runs: shards.into_iter().collect(), of };
    shards.no_overlap()?;
    Ok(shards)
}

fn shard(record: &RunRecord) -> Result<(u64, u64), Refusal> {
    let parse = |text: &str| {
        let (k, n) = text.split_once('/')?;
        let (k, n) = (k.parse::<u64>().ok()?, n.parse::<u64>().ok()?);
        (1..=n).contains(&k).then_some((k, n))
    };
    let shard = record.shard.as_deref().and_then(parse);
    shard.ok_or_else(|| {
        Refusal::new(format!("run {} is no shard", record.run)).hint("shards are made with run --shard K/N")
    })
}

/// Everything that a verdict depends on, beside the shard.
fn same(first: &RunRecord, other: &RunRecord) -> Result<(), Refusal> {
    let snapshot = |run: &RunRecord| run.target.as_ref().map(|target| target.snapshot.clone());
    let table = [
        (first.evaluation.name == other.evaluation.name, "evaluation"),
        (first.evaluation.digest == other.evaluation.digest, "evaluation package (digest)"),
        (first.evaluation.policy == other.evaluation.policy, "policy"),
        (snapshot(first) == snapshot(other), "target (snapshot)"),
        (first.repeat == other.repeat, "number of repetitions"),
        (first.seed == other.seed, "seed"),
    ];
    match table.into_iter().find(|(is_same, _)| !is_same) {
        None => Ok(()),
        Some((_, what)) => Err(Refusal::new(format!("runs {} and {} have not the same {what}", first.run, other.run))),
    }
}

impl Shards {
    fn no_overlap(&self) -> Result<(), Refusal> {
        let mut seen: BTreeMap<String, &StoredRun> = BTreeMap::new();
        for (_, run) in &self.runs {
            for trial in &run.record.trials {
                // On a file system that tells no case apart, two such folders would be one.
                if let Some(other) = seen.insert(trial.trial.to_ascii_lowercase(), run) {
                    let (a, b) = (&other.record.run, &run.record.run);
                    return Err(Refusal::new(format!("runs {a} and {b} both have the trial {}", trial.trial)));
                }
            }
        }
        Ok(())
    }

    /// Trials in the order of an undivided run: trial i belongs to shard (i mod N) + 1.
    fn trials(&self) -> Vec<TrialRecord> {
        let mut numbered: Vec<(u64, &TrialRecord)> = Vec::new();
        for (k, run) in &self.runs {
            let trials = run.record.trials.iter().zip(0_u64..);
            numbered.extend(trials.map(|(trial, index)| (index.saturating_mul(self.of).saturating_add(k - 1), trial)));
        }
        numbered.sort_by_key(|(number, _)| *number);
        numbered.into_iter().map(|(_, trial)| trial.clone()).collect()
    }

    /// Writes the merged run into a new store: the files of each trial as they are, then `run.json`.
    ///
    /// # Errors
    /// Where a file is a link, or the disk refuses.
    pub fn write(&self, store: &mut Store, record: RunRecord) -> Result<RunRecord> {
        for (_, run) in &self.runs {
            for trial in &run.record.trials {
                if let Some(from) = trial_folder(run.folder(), &trial.id())? {
                    copy(&from, &store.trial_place(&trial.id())?, 0)?;
                }
            }
        }
        store.count_redactions(&self.redactions());
        store.write_run(record)
    }

    fn redactions(&self) -> Vec<Redaction> {
        self.runs.iter().flat_map(|(_, run)| run.record.redactions.clone()).collect()
    }

    /// The record of the merged run, under a new id. What the shards do not agree on is null.
    ///
    /// # Errors
    /// None for shards that fit.
    pub fn record(&self, run: crate::ids::RunId) -> Result<RunRecord> {
        let records: Vec<&RunRecord> = self.runs.iter().map(|(_, run)| &run.record).collect();
        let Some(first) = records.first() else { bail!("no run to merge") };
        let mut merged = (*first).clone();
        merged.run = run;
        merged.started = records.iter().map(|record| record.started.clone()).min().unwrap_or_default();
        merged.finished = records.iter().filter_map(|record| record.finished.clone()).max();
        merged.jobs = records.iter().map(|record| record.jobs).max().unwrap_or(1);
        merged.tag = agreed(&records, |record| record.tag.clone()).flatten();
        merged.engine = agreed(&records, |record| record.engine.clone()).flatten();
        let image = agreed(&records, |record| record.target.as_ref().and_then(|target| target.image.clone())).flatten();
        if let Some(target) = &mut merged.target {
            target.image = image;
        }
        merged.sandbox.attested = agreed(&records, |record| record.sandbox.attested.clone()).unwrap_or_default();
        merged.sandbox.shortfalls = shortfalls(records.iter().map(|record| &record.sandbox));
        (merged.shard, merged.resumed) = (None, 0);
        merged.merged_from = records.iter().map(|record| record.run.clone()).collect();
        merged.cleanup = cleanup(&records);
        merged.set_trials(self.trials());
        merged.outcome = RunOutcome::of(&merged.counts, false);
        merged.exit = Some(exit_of(&merged.counts, None, !merged.cleanup.failures.is_empty()).code());
        Ok(merged)
    }
}

/// What all say, where they say the same.
fn agreed<T: Serialize>(records: &[&RunRecord], of: impl Fn(&RunRecord) -> T) -> Option<T> {
    let mut all = records.iter().map(|record| of(record));
    let first = all.next()?;
    let text = serde_json::to_string(&first).ok()?;
    all.all(|other| serde_json::to_string(&other).is_ok_and(|other| other == text)).then_some(first)
}

fn shortfalls<'a>(sandboxes: impl Iterator<Item = &'a SandboxRecord>) -> Vec<Shortfall> {
    let mut all: Vec<Shortfall> = Vec::new();
    for shortfall in sandboxes.flat_map(|sandbox| &sandbox.shortfalls) {
        if !all.contains(shortfall) {
            all.push(shortfall.clone());
        }
    }
    all
}

fn cleanup(records: &[&RunRecord]) -> Cleanup {
    let mut all = Cleanup::default();
    for record in records {
        all.removed.extend(record.cleanup.removed.iter().cloned());
        all.kept.extend(record.cleanup.kept.iter().cloned());
        all.failures.extend(record.cleanup.failures.iter().cloned());
    }
    all
}

/// A trial's folder holds files and the folders of earlier attempts, nothing deeper.
const DEEPEST: usize = 2;

fn copy(from: &Folder, to: &Folder, depth: usize) -> Result<()> {
    let names: BTreeSet<_> = from.entries()?.into_iter().collect();
    for entry in names {
        match entry.kind {
            EntryKind::Folder if depth < DEEPEST => {
                copy(&from.folder(&entry.name)?, &to.make(&entry.name)?, depth + 1)?
            }
            EntryKind::File => {
                let Some((mut file, _)) = from.open_file(&entry.name)? else { continue };
                let mut copy = to.create(&entry.name)?;
                std::io::copy(&mut file, &mut copy).with_context(|| format!("failed to copy {:?}", entry.name))?;
            }
            _ => bail!("{} holds {:?}, which is no file of a trial", from.path().display(), entry.name),
        }
    }
    Ok(())
}
