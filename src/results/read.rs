//! Reading a stored run back, finished or not. Owns what `RUN` means and what an unfinished run is called. Every file may be
//! broken or hostile: nothing here panics, follows a link, or reads without a bound.

use crate::exit::Refusal;
use crate::ids::{RunId, TrialId};
use crate::results::folder::{EntryKind, Folder};
use crate::results::record::{RunOutcome, RunRecord, SCHEMA, TrialRecord};
use crate::verdict::Outcome;
use anyhow::Result;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// The largest `run.json` that is read: 10,000 trials take about 10 MB.
const RUN_LIMIT: u64 = 1 << 30;
/// The largest `trial.json` that is read.
const TRIAL_LIMIT: u64 = 64 << 20;
/// The largest file of a trial that is shown in a story; `--raw` streams any size.
pub const FILE_LIMIT: u64 = 256 << 20;

/// A stored run that was read.
#[derive(Debug)]
pub struct StoredRun {
    /// What `run.json` says; for an unfinished run with the trials that are there, called interrupted.
    pub record: RunRecord,
    /// Whether its command came to its end.
    pub finished: bool,
    /// What could not be read.
    pub notes: Vec<String>,
    folder: Folder,
}

/// Finds and reads a run by id, unique prefix, path, or `latest`.
///
/// # Errors
/// A refusal that says what was looked for and what there is.
pub fn find(results: &Utf8Path, name: &str) -> Result<StoredRun> {
    open(&resolve(results, name)?)
}

/// The folder that a `RUN` argument names.
///
/// # Errors
/// A refusal: none, or more than one.
pub fn resolve(results: &Utf8Path, name: &str) -> Result<Utf8PathBuf> {
    let runs = results.join("runs");
    if name.contains('/') || name == "." || name == ".." {
        return by_path(Utf8Path::new(name));
    }
    let ids = run_ids(results)?;
    if name == "latest" {
        let last = latest(&runs, &ids);
        return last.ok_or_else(|| Refusal::new("there is no stored run yet").at(runs.as_str()).into());
    }
    if let Some(id) = ids.iter().find(|id| id.as_str() == name) {
        return Ok(runs.join(id.as_str()));
    }
    let matching: Vec<&RunId> = ids.iter().filter(|id| !name.is_empty() && id.as_str().starts_with(name)).collect();
    match matching.as_slice() {
        [only] => Ok(runs.join(only.as_str())),
        [] if Utf8Path::new(name).join("run.json").exists() => Ok(Utf8PathBuf::from(name)),
        [] => Err(Refusal::new(format!("no stored run is called {name:?}"))
            .at(runs.as_str())
            .hint("`crashlab list` shows them; --results names another folder")
            .into()),
        several => {
            let first: Vec<&str> = several.iter().take(5).map(|id| id.as_str()).collect();
            let more = if several.len() > 5 { ", …" } else { "" };
            let message = format!("{name:?} is the start of {} runs: {}{more}", several.len(), first.join(", "));
            Err(Refusal::new(message).hint("give more of the id").into())
        }
    }
}

fn by_path(path: &Utf8Path) -> Result<Utf8PathBuf> {
    let folder = if path.file_name() == Some("run.json") { path.parent().unwrap_or(path) } else { path };
    if folder.join("run.json").exists() {
        return Ok(folder.to_owned());
    }
    Err(Refusal::new("there is no stored run (no run.json)").at(path.as_str()).into())
}

/// The ids of the stored runs, oldest first.
///
/// # Errors
/// Where the folder is there and cannot be read.
pub fn run_ids(results: &Utf8Path) -> Result<Vec<RunId>> {
    let runs = results.join("runs");
    if !runs.exists() {
        return Ok(Vec::new());
    }
    let entries = Folder::open(&runs)?.entries()?;
    let folders = entries.into_iter().filter(|entry| entry.kind == EntryKind::Folder);
    let names = folders.filter_map(|entry| entry.name.into_string().ok());
    Ok(names.filter_map(|name| RunId::try_from(name).ok()).collect())
}

/// The last one started. An id says the second; within the last second `run.json` says which.
fn latest(runs: &Utf8Path, ids: &[RunId]) -> Option<Utf8PathBuf> {
    let second = |id: &RunId| id.as_str().split('-').next().unwrap_or_default().to_owned();
    let there = |id: &&RunId| runs.join(id.as_str()).join("run.json").exists();
    let last = second(ids.iter().rev().find(there)?);
    let candidates: Vec<&RunId> = ids.iter().filter(|id| second(id) == last).filter(there).collect();
    let started = |id: &RunId| match candidates.len() {
        1 => None,
        _ => open(&runs.join(id.as_str())).ok().map(|run| run.record.started),
    };
    let best = candidates.iter().max_by_key(|id| (started(id), id.as_str()))?;
    Some(runs.join(best.as_str()))
}

/// Reads the run in a folder.
///
/// # Errors
/// A refusal: no `run.json`, a broken one, or one of another schema.
pub fn open(path: &Utf8Path) -> Result<StoredRun> {
    let folder = Folder::open(path)?;
    let place = path.join("run.json");
    let Some(bytes) = folder.read("run.json", RUN_LIMIT)? else {
        return Err(Refusal::new("there is no stored run (no run.json)").at(path.as_str()).into());
    };
    check_schema(&bytes, &place)?;
    let record: RunRecord = serde_json::from_slice(&bytes)
        .map_err(|error| Refusal::new(format!("is no stored run: {error}")).at(place.as_str()))?;
    let finished = record.outcome != RunOutcome::Running;
    let mut run = StoredRun { record, finished, notes: Vec::new(), folder };
    if !finished {
        run.take_trials_from_their_folders();
    }
    Ok(run)
}

/// Refuses another version's file before its keys are looked at.
pub(crate) fn check_schema(bytes: &[u8], place: &Utf8Path) -> Result<(), Refusal> {
    let mut found = Schema::default();
    let read = (&mut found).deserialize(&mut serde_json::Deserializer::from_slice(bytes));
    // It is the first key: what stands behind it is read once, as what it is.
    match read {
        Err(error) if found.0.is_none() => Err(Refusal::new(format!("is no stored run: {error}")).at(place.as_str())),
        _ => schema_fits(found.0.as_ref()).map_err(|refusal| refusal.at(place.as_str())),
    }
}

/// The `schema` of a document; nothing behind it is read.
#[derive(Debug, Default)]
struct Schema(Option<Value>);

impl<'de> DeserializeSeed<'de> for &mut Schema {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Schema {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a stored run")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            if key == "schema" {
                self.0 = Some(entries.next_value()?);
                return Ok(());
            }
            entries.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// Refuses every schema but the one that this version writes.
pub(crate) fn schema_fits(schema: Option<&Value>) -> Result<(), Refusal> {
    match schema {
        Some(Value::String(schema)) if schema == SCHEMA => Ok(()),
        Some(Value::String(schema)) => {
            Err(Refusal::new(format!("has the schema {schema:?}; this crashlab reads {SCHEMA:?}"))
                .hint("read it with the crashlab that wrote it"))
        }
        _ => Err(Refusal::new(format!("has no schema; this crashlab reads {SCHEMA:?}"))),
    }
}

impl StoredRun {
    /// The run's folder.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Whoever planned the run wrote its trials as not run; what is there since stands in their place.
    fn take_trials_from_their_folders(&mut self) {
        self.record.outcome = RunOutcome::Interrupted;
        let mut trials = std::mem::take(&mut self.record.trials);
        if trials.is_empty() {
            trials = self.trials_on_disk();
        } else {
            for trial in &mut trials {
                match read_trial(&self.folder, &trial.id()) {
                    Ok(Some(found)) => *trial = found,
                    Ok(None) => {}
                    Err(error) => self.notes.push(format!("{}: {error:#}", trial.trial)),
                }
            }
        }
        self.record.set_trials(trials);
    }

    fn trials_on_disk(&mut self) -> Vec<TrialRecord> {
        let mut found = Vec::new();
        for id in trial_ids(&self.folder) {
            match read_trial(&self.folder, &id) {
                Ok(Some(trial)) => found.push(trial),
                Ok(None) => found.push(TrialRecord::not_run(&id)),
                Err(error) => self.notes.push(format!("{id}: {error:#}")),
            }
        }
        found
    }

    /// A trial by its name.
    ///
    /// # Errors
    /// A refusal that names some that there are.
    pub fn trial(&self, name: &str) -> Result<&TrialRecord> {
        let trials = &self.record.trials;
        trials.iter().find(|trial| trial.trial == name).ok_or_else(|| {
            let near = trials.iter().filter(|trial| trial.trial.starts_with(name)).chain(trials);
            let some: Vec<&str> = near.take(3).map(|trial| trial.trial.as_str()).collect();
            let refusal = Refusal::new(format!("run {} has no trial {name:?}", self.record.run)).at("--trial");
            refusal.hint(format!("trials are CASE/N or CASE@DRILL/N, here {}, …", some.join(", "))).into()
        })
    }

    /// A file of a trial's last attempt; none where there is none.
    ///
    /// # Errors
    /// Where it is a link, no file, or larger than [`FILE_LIMIT`].
    pub fn trial_file(&self, trial: &TrialRecord, name: &str) -> Result<Option<Vec<u8>>> {
        match trial_folder(&self.folder, &trial.id())? {
            Some(folder) => folder.read(name, FILE_LIMIT),
            None => Ok(None),
        }
    }

    /// The lines of a trial's log; a line that is no JSON (the last one of a killed run) is given as its text.
    ///
    /// # Errors
    /// As [`StoredRun::trial_file`].
    pub fn trial_lines(&self, trial: &TrialRecord, name: &str) -> Result<Vec<Value>> {
        let bytes = self.trial_file(trial, name)?.unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let text = |line: &[u8]| Value::String(String::from_utf8_lossy(line).into_owned());
        Ok(lines.map(|line| crate::json::parse_lenient(line).unwrap_or_else(|_| text(line))).collect())
    }

    /// A JSON file of a trial; none where there is none or it is broken.
    ///
    /// # Errors
    /// As [`StoredRun::trial_file`].
    pub fn trial_json(&self, trial: &TrialRecord, name: &str) -> Result<Option<Value>> {
        let bytes = self.trial_file(trial, name)?;
        Ok(bytes.and_then(|bytes| crate::json::parse_lenient(&bytes).ok()))
    }
}

/// The ids of the trials that have a folder, by case, then drill, then repetition.
fn trial_ids(run: &Folder) -> Vec<TrialId> {
    let folders = |folder: &Folder| -> Vec<String> {
        let entries = folder.entries().unwrap_or_default().into_iter();
        let folders = entries.filter(|entry| entry.kind == EntryKind::Folder);
        folders.filter_map(|entry| entry.name.into_string().ok()).collect()
    };
    let Ok(trials) = run.folder("trials") else { return Vec::new() };
    let mut ids = Vec::new();
    for name in folders(&trials) {
        let Ok(case) = trials.folder(&name) else { continue };
        ids.extend(folders(&case).into_iter().filter_map(|n| format!("{name}/{n}").parse::<TrialId>().ok()));
    }
    ids.sort();
    ids
}

/// The folder of a trial's last attempt; none where there is none.
pub(crate) fn trial_folder(run: &Folder, id: &TrialId) -> Result<Option<Folder>> {
    let mut folder = run.again()?;
    let (name, repetition) = (id.folder(), id.repetition.to_string());
    let case = name.strip_suffix(&format!("/{repetition}")).unwrap_or(&name);
    for part in ["trials", case, &repetition] {
        let missing = folder.is_missing(part)?;
        if missing {
            return Ok(None);
        }
        folder = folder.folder(part)?;
    }
    Ok(Some(folder))
}

fn read_trial(run: &Folder, id: &TrialId) -> Result<Option<TrialRecord>> {
    let Some(folder) = trial_folder(run, id)? else { return Ok(None) };
    let Some(bytes) = folder.read("trial.json", TRIAL_LIMIT)? else { return Ok(None) };
    let trial: TrialRecord = serde_json::from_slice(&bytes)?;
    anyhow::ensure!(trial.id() == *id, "its trial.json is of another trial, {:?}", trial.trial);
    Ok(Some(trial))
}

/// What an unfinished trial folder says about its outcome, without the rest of it.
pub(crate) fn outcomes_on_disk(run: &Folder) -> Vec<Outcome> {
    #[derive(Deserialize)]
    struct Only {
        outcome: Outcome,
    }
    let outcome = |id: &TrialId| {
        let folder = trial_folder(run, id).ok()??;
        let bytes = folder.read("trial.json", TRIAL_LIMIT).ok()??;
        serde_json::from_slice::<Only>(&bytes).ok().map(|only| only.outcome)
    };
    trial_ids(run).iter().map(|id| outcome(id).unwrap_or(Outcome::NotRun)).collect()
}
