//! Writing a run as it goes. Owns the layout below `DIR/runs/<run>` and that nothing gets there unredacted. A trial's files
//! are new files in a folder of its own, so writing does not become slower with the number of trials, and a run that is
//! killed leaves every finished trial readable. The journal in the same folder is the scope's.

use crate::ids::{RunId, TrialId};
use crate::results::folder::{EntryKind, Folder};
use crate::results::record::{Redaction, RunRecord, TrialRecord};
use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

/// Takes secrets out of bytes: what is left, and how often each name was found. Text that is JSON comes here string by
/// string, unescaped.
pub type Redact = dyn Fn(&[u8]) -> (Vec<u8>, Vec<(String, u64)>) + Send + Sync;

/// The files of a trial that are written whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialFile {
    /// The target's standard output, bounded.
    Stdout,
    /// The target's standard error, bounded.
    Stderr,
    /// The evaluation process's standard error, bounded.
    EvaluationLog,
}

impl TrialFile {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::EvaluationLog => "evaluation.log",
        }
    }
}

/// The files of a trial that grow line by line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialLog {
    /// `operations.jsonl`.
    Operations,
    /// `gateway.jsonl`.
    Gateway,
}

impl TrialLog {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Operations => "operations.jsonl",
            Self::Gateway => "gateway.jsonl",
        }
    }
}

/// The stored run that a command writes.
pub struct Store {
    run: Folder,
    path: Utf8PathBuf,
    redact: Arc<Redact>,
    redactions: Arc<Redactions>,
}

type Redactions = Mutex<BTreeMap<(String, String), u64>>;

impl Store {
    /// Makes the folder of a new run below `results`, and `results` itself where it is missing.
    ///
    /// # Errors
    /// Where a folder cannot be made, or a link has the name of one.
    pub fn create(results: &Utf8Path, run: &RunId, redact: Arc<Redact>) -> Result<Self> {
        let (folder, made) = Folder::make_at(results)?;
        if made {
            folder.write_new(".gitignore", b"*\n")?;
        }
        let run_folder = folder.make_or_open("runs")?.make(run.as_str())?;
        Ok(Self::over(run_folder, results.join("runs").join(run.as_str()), redact))
    }

    /// Opens a stored run to go on with it (`--resume`).
    ///
    /// # Errors
    /// Where it is no folder.
    pub fn reopen(path: &Utf8Path, redact: Arc<Redact>) -> Result<Self> {
        Ok(Self::over(Folder::open(path)?, path.to_owned(), redact))
    }

    fn over(run: Folder, path: Utf8PathBuf, redact: Arc<Redact>) -> Self {
        Self { run, path, redact, redactions: Arc::default() }
    }

    /// The run's folder.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// Takes over the redactions that an earlier process of this run recorded (`--resume`, `merge`).
    pub fn count_redactions(&self, earlier: &[Redaction]) {
        let mut all = self.redactions.lock().unwrap_or_else(PoisonError::into_inner);
        for Redaction { name, file, count } in earlier {
            *all.entry((name.clone(), file.clone())).or_default() += count;
        }
    }

    /// Where secrets were taken out until now, by name and file.
    pub fn redactions(&self) -> Vec<Redaction> {
        let all = self.redactions.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .map(|((name, file), count)| Redaction { name: name.clone(), file: file.clone(), count: *count })
            .collect()
    }

    /// Writes `run.json`, whole, in the place of the last one. Gives back what was written: redacted, with the redactions
    /// of the whole run; that is what is printed.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn write_run(&self, record: RunRecord) -> Result<RunRecord> {
        let cleaner = self.cleaner(String::new());
        let mut record: RunRecord = cleaner.record("run.json", record)?;
        record.redactions = self.redactions();
        self.run.replace("run.json", &pretty(&record)?)?;
        Ok(record)
    }

    /// The folder of a trial, empty. What an earlier attempt left there is kept in `attempt-K/`.
    ///
    /// # Errors
    /// Where a link has the name of one of its folders, or the disk refuses.
    pub fn trial(&self, id: &TrialId) -> Result<TrialFolder> {
        let name = match &id.drill {
            Some(drill) => format!("{}@{drill}", id.case),
            None => id.case.to_string(),
        };
        let repetition = id.repetition.to_string();
        let folder = self.run.make_or_open("trials")?.make_or_open(&name)?.make_or_open(&repetition)?;
        let attempt = set_aside(&folder)?;
        let cleaner = self.cleaner(format!("trials/{name}/{repetition}/"));
        Ok(TrialFolder { folder, attempt, cleaner, logs: Mutex::default() })
    }

    fn cleaner(&self, folder: String) -> Cleaner {
        Cleaner { redact: Arc::clone(&self.redact), redactions: Arc::clone(&self.redactions), folder }
    }
}

/// Moves what is there into `attempt-K/`; gives the number of the attempt that comes.
fn set_aside(folder: &Folder) -> Result<u32> {
    let earlier = |name: &OsStr| name.to_str().and_then(|name| name.strip_prefix("attempt-")?.parse::<u32>().ok());
    let entries = folder.entries()?;
    let last = entries.iter().filter_map(|entry| earlier(&entry.name)).max().unwrap_or(0);
    let left: Vec<_> = entries.iter().filter(|entry| earlier(&entry.name).is_none()).collect();
    if left.is_empty() {
        return Ok(last + 1);
    }
    let aside = folder.make(format!("attempt-{}", last + 1))?;
    for entry in left {
        if entry.kind == EntryKind::Other {
            bail!("{} holds {:?}, which is neither file nor folder", folder.path().display(), entry.name);
        }
        folder.hand_over(&entry.name, &aside)?;
    }
    Ok(last + 2)
}

/// The folder of one attempt of one trial. Threads may share it.
pub struct TrialFolder {
    folder: Folder,
    attempt: u32,
    cleaner: Cleaner,
    logs: Mutex<BTreeMap<&'static str, File>>,
}

impl TrialFolder {
    /// From 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Writes a file whole, once.
    ///
    /// # Errors
    /// Where it was written before or the disk refuses.
    pub fn write(&self, file: TrialFile, bytes: &[u8]) -> Result<()> {
        self.folder.write_new(file.as_str(), &self.cleaner.bytes(file.as_str(), bytes))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Where the line is no JSON or the disk refuses.
    pub fn append(&self, log: TrialLog, line: &impl Serialize) -> Result<()> {
        let line = self.cleaner.value(log.as_str(), to_value(line)?);
        let mut bytes = serde_json::to_vec(&line).context("failed to write a line as JSON")?;
        bytes.push(b'\n');
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match logs.entry(log.as_str()) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(place) => place.insert(self.folder.create(log.as_str())?),
        };
        file.write_all(&bytes).with_context(|| format!("failed to write {}", log.as_str()))
    }

    /// Writes `world-before.json`, and `world-after.json` with `world-diff.json` (RFC 6902) where the world's end is known.
    ///
    /// # Errors
    /// Where they were written before or the disk refuses.
    pub fn write_worlds(&self, before: &Value, after: Option<&Value>) -> Result<()> {
        let before = self.cleaner.value("world-before.json", before.clone());
        self.folder.write_new("world-before.json", &pretty(&before)?)?;
        if let Some(after) = after {
            let after = self.cleaner.value("world-after.json", after.clone());
            self.folder.write_new("world-after.json", &pretty(&after)?)?;
            self.folder.write_new("world-diff.json", &pretty(&json_patch::diff(&before, &after))?)?;
        }
        Ok(())
    }

    /// Writes `trial.json`: the trial counts from now on. Gives back what was written, redacted: what goes on to `run.json`
    /// and to events.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn finish(&self, record: TrialRecord) -> Result<TrialRecord> {
        let record: TrialRecord = self.cleaner.record("trial.json", record)?;
        self.folder.replace("trial.json", &pretty(&record)?)?;
        Ok(record)
    }
}

/// Redacts, and counts what it took out by file.
struct Cleaner {
    redact: Arc<Redact>,
    redactions: Arc<Redactions>,
    folder: String,
}

impl Cleaner {
    fn bytes(&self, file: &str, bytes: &[u8]) -> Vec<u8> {
        let (clean, found) = (self.redact)(bytes);
        if !found.is_empty() {
            let mut all = self.redactions.lock().unwrap_or_else(PoisonError::into_inner);
            for (name, count) in found {
                *all.entry((name, format!("{}{file}", self.folder))).or_default() += count;
            }
        }
        clean
    }

    fn text(&self, file: &str, text: String) -> String {
        let clean = self.bytes(file, text.as_bytes());
        if clean == text.as_bytes() { text } else { String::from_utf8_lossy(&clean).into_owned() }
    }

    /// Keys, strings and the text of numbers: a secret may stand in each.
    fn value(&self, file: &str, value: Value) -> Value {
        match value {
            Value::Number(number) => {
                let text = self.text(file, number.to_string());
                if text == number.to_string() { Value::Number(number) } else { Value::String(text) }
            }
            other => self.strings(file, other, &Self::value),
        }
    }

    fn strings(&self, file: &str, value: Value, each: &dyn Fn(&Self, &str, Value) -> Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(file, text)),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| each(self, file, item)).collect()),
            Value::Object(entries) => Value::Object(
                entries.into_iter().map(|(key, item)| (self.text(file, key), each(self, file, item))).collect(),
            ),
            other => other,
        }
    }

    /// A record of ours: its numbers are ours and keep their type.
    fn record<T: Serialize + serde::de::DeserializeOwned>(&self, file: &str, record: T) -> Result<T> {
        fn each(cleaner: &Cleaner, file: &str, value: Value) -> Value {
            cleaner.strings(file, value, &each)
        }
        serde_json::from_value(each(self, file, to_value(&record)?)).context("failed to redact a record")
    }
}

fn to_value(value: &impl Serialize) -> Result<Value> {
    serde_json::to_value(value).context("failed to write a record as JSON")
}

/// JSON as it is stored and printed: indented, with a line end.
///
/// # Errors
/// Where a value has no JSON form.
pub fn pretty(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value).context("failed to write a record as JSON")?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn redact_hush() -> Arc<Redact> {
        Arc::new(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let count = text.matches("hush-hush").count() as u64;
            let found = if count > 0 { vec![("A_KEY".to_owned(), count)] } else { vec![] };
            (text.replace("hush-hush", "[redacted:A_KEY]").into_bytes(), found)
        })
    }

    fn run_id() -> RunId {
        RunId::try_from("20260102T030405Z-k3f9".to_owned()).unwrap()
    }

    fn scratch() -> (tempfile::TempDir, Utf8PathBuf, Store) {
        let scratch = tempfile::tempdir().unwrap();
        let results = Utf8Path::from_path(scratch.path()).unwrap().join("deep/results");
        let store = Store::create(&results, &run_id(), redact_hush()).unwrap();
        (scratch, results, store)
    }

    fn everything_below(path: &std::path::Path) -> Vec<std::path::PathBuf> {
        let mut all = vec![path.to_owned()];
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                all.extend(everything_below(&entry.unwrap().path()));
            }
        }
        all
    }

    fn fill(store: &Store) -> TrialFolder {
        let id: TrialId = "double-refund@slow/2".parse().unwrap();
        let folder = store.trial(&id).unwrap();
        folder.write(TrialFile::Stdout, b"the key is hush-hush").unwrap();
        folder.append(TrialLog::Operations, &json!({"arguments": {"hush-hush": ["x hush-hush"]}, "n": 1.50})).unwrap();
        folder.append(TrialLog::Operations, &json!({"second": true})).unwrap();
        folder.write_worlds(&json!({"a": "hush-hush", "n": 1}), Some(&json!({"a": "hush-hush", "n": 2}))).unwrap();
        let mut record = TrialRecord::not_run(&id);
        record.diagnostics = vec!["hush-hush".to_owned()];
        folder.finish(record).unwrap();
        folder
    }

    #[test]
    fn folders_are_0700_and_files_0600() {
        let (_scratch, results, store) = scratch();
        fill(&store);
        for path in everything_below(results.as_std_path()) {
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        }
    }

    #[test]
    fn nothing_is_written_unredacted_and_each_place_is_counted() {
        let (_scratch, results, store) = scratch();
        fill(&store);
        for path in everything_below(results.as_std_path()) {
            if path.is_file() {
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!text.contains("hush-hush"), "{}: {text}", path.display());
            }
        }
        let places: Vec<_> = store.redactions().into_iter().map(|r| (r.file, r.count)).collect();
        let folder = "trials/double-refund@slow/2";
        let expected = [
            ("operations.jsonl", 2),
            ("stdout", 1),
            ("trial.json", 1),
            ("world-after.json", 1),
            ("world-before.json", 1),
        ];
        assert_eq!(places, expected.map(|(file, count)| (format!("{folder}/{file}"), count)));
        let trial = results.join("runs").join(run_id().as_str()).join(folder);
        let lines = std::fs::read_to_string(trial.join("operations.jsonl")).unwrap();
        assert_eq!(
            lines,
            "{\"arguments\":{\"[redacted:A_KEY]\":[\"x [redacted:A_KEY]\"]},\"n\":1.5}\n{\"second\":true}\n"
        );
        let diff = std::fs::read_to_string(trial.join("world-diff.json")).unwrap();
        let diff: Value = serde_json::from_str(&diff).unwrap();
        assert_eq!(diff, json!([{"op": "replace", "path": "/n", "value": 2}]));
    }

    #[test]
    fn the_ignore_rule_is_written_only_into_a_folder_that_was_made_here() {
        let (_scratch, results, _store) = scratch();
        assert_eq!(std::fs::read_to_string(results.join(".gitignore")).unwrap(), "*\n");
        std::fs::write(results.join(".gitignore"), "mine\n").unwrap();
        let other = RunId::try_from("other".to_owned()).unwrap();
        Store::create(&results, &other, redact_hush()).unwrap();
        assert_eq!(std::fs::read_to_string(results.join(".gitignore")).unwrap(), "mine\n");
        std::fs::remove_file(results.join(".gitignore")).unwrap();
        Store::create(&results, &RunId::try_from("third".to_owned()).unwrap(), redact_hush()).unwrap();
        assert!(!results.join(".gitignore").exists());
    }

    #[test]
    fn a_second_attempt_keeps_the_first() {
        let (_scratch, _results, store) = scratch();
        assert_eq!(fill(&store).attempt(), 1);
        assert_eq!(fill(&store).attempt(), 2);
        let third = fill(&store);
        assert_eq!(third.attempt(), 3);
        let kept = |name: &str| third.folder.path().join(name).exists();
        for name in ["trial.json", "attempt-1/trial.json", "attempt-1/stdout", "attempt-2/operations.jsonl"] {
            assert!(kept(name), "{name}");
        }
    }

    #[test]
    fn a_planted_link_in_the_place_of_a_trial_stops_the_trial() {
        let (scratch, results, store) = scratch();
        let outside = scratch.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        let trials = results.join("runs").join(run_id().as_str()).join("trials");
        std::fs::create_dir(&trials).unwrap();
        symlink(&outside, trials.join("a")).unwrap();
        std::fs::create_dir(trials.join("b")).unwrap();
        symlink(&outside, trials.join("b/1")).unwrap();
        for id in ["a/1", "b/1"] {
            let error = store.trial(&id.parse().unwrap()).err().map(|error| format!("{error:#}"));
            assert!(error.as_ref().is_some_and(|error| error.contains("symbolic link")), "{error:?}");
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn a_drill_name_cannot_lead_out() {
        let (_scratch, _results, store) = scratch();
        let mut id: TrialId = "a/1".parse().unwrap();
        id.drill = Some("/../../../x".to_owned());
        assert!(store.trial(&id).is_err());
    }

    #[test]
    fn a_run_is_never_written_over_another() {
        let (_scratch, results, _store) = scratch();
        assert!(Store::create(&results, &run_id(), redact_hush()).is_err());
    }
}
