//! Writing a run as it goes. Owns the layout below `DIR/runs/<run>` and that nothing gets there unredacted. A trial's files
//! are new files in a folder of its own, so writing does not become slower with the number of trials, and a run that is
//! killed leaves every finished trial readable. The journal in the same folder is the scope's.

use crate::ids::{RunId, TrialId};
use crate::redact::{RedactingWriter, Redactor};
use crate::results::folder::{EntryKind, Folder};
use crate::results::record::{Redaction, RunRecord, TrialRecord};
use crate::secret::HostSecret;
use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

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
    redactor: Redactor,
    earlier: Vec<Redaction>,
}

impl Store {
    /// Makes the folder of a new run below `results`, and `results` itself where it is missing.
    ///
    /// # Errors
    /// Where a folder cannot be made, or a link has the name of one.
    pub fn create(results: &Utf8Path, run: &RunId, redactor: Redactor) -> Result<Self> {
        let (folder, made) = Folder::make_at(results)?;
        if made {
            folder.write_new(".gitignore", b"*\n")?;
        }
        let run_folder = folder.make_or_open("runs")?.make(run.as_str())?;
        Ok(Self::over(run_folder, results.join("runs").join(run.as_str()), redactor))
    }

    /// Opens a stored run to go on with it (`--resume`).
    ///
    /// # Errors
    /// Where it is no folder.
    pub fn reopen(path: &Utf8Path, redactor: Redactor) -> Result<Self> {
        Ok(Self::over(Folder::open(path)?, path.to_owned(), redactor))
    }

    fn over(run: Folder, path: Utf8PathBuf, redactor: Redactor) -> Self {
        Self { run, path, redactor, earlier: Vec::new() }
    }

    /// The run's folder.
    pub fn path(&self) -> &Utf8Path {
        &self.path
    }

    /// What takes the run's secrets out.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Takes over the redactions that an earlier process of this run recorded (`--resume`), or its shards (`merge`).
    pub fn count_redactions(&mut self, earlier: &[Redaction]) {
        self.earlier.extend_from_slice(earlier);
    }

    /// Where secrets were taken out until now, by name and file.
    pub fn redactions(&self) -> Vec<Redaction> {
        let mut all = BTreeMap::<(String, String), u64>::new();
        for Redaction { name, file, count } in self.earlier.iter().cloned() {
            *all.entry((name, file)).or_default() += count;
        }
        for found in self.redactor.counts() {
            *all.entry((found.name, found.file)).or_default() += found.count;
        }
        all.into_iter().map(|((name, file), count)| Redaction { name, file, count }).collect()
    }

    /// Writes `run.json`, whole, in the place of the last one. Gives back what was written: redacted, with the redactions
    /// of the whole run; that is what is printed.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn write_run(&self, record: RunRecord) -> Result<RunRecord> {
        let record = self.redacted(record)?;
        self.run.replace("run.json", &pretty(&record)?)?;
        Ok(record)
    }

    /// What would be written, for a disk that does not take it.
    ///
    /// # Errors
    /// Where the record has no JSON form.
    pub fn redacted(&self, record: RunRecord) -> Result<RunRecord> {
        let mut record = redact_record(&self.redactor, "run.json", record)?;
        record.redactions = self.redactions();
        Ok(record)
    }

    /// Keeps the manifest of the target's snapshot with the run.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn keep_manifest(&self, manifest: &str) -> Result<()> {
        self.run.replace("snapshot.json", &self.redactor.bytes("snapshot.json", manifest.as_bytes()))
    }

    /// The folder of a trial, empty. What an earlier attempt left there is kept in `attempt-K/`.
    ///
    /// # Errors
    /// Where a link has the name of one of its folders, or the disk refuses.
    pub fn trial(&self, id: &TrialId) -> Result<TrialFolder> {
        let folder = self.trial_place(id)?;
        let attempt = set_aside(&folder)?;
        let (redactor, place) = (self.redactor.clone(), format!("trials/{}", id.folder()));
        Ok(TrialFolder { folder, place, attempt, redactor, logs: Mutex::default() })
    }

    /// The folder of a trial, with whatever is in it.
    pub(crate) fn trial_place(&self, id: &TrialId) -> Result<Folder> {
        let name = match &id.drill {
            Some(drill) => format!("{}@{drill}", id.case),
            None => id.case.to_string(),
        };
        self.run.make_or_open("trials")?.make_or_open(name)?.make_or_open(id.repetition.to_string())
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
    /// Relative to the run's folder: how redactions name its files.
    place: String,
    attempt: u32,
    redactor: Redactor,
    logs: Mutex<BTreeMap<&'static str, File>>,
}

impl TrialFolder {
    /// From 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// With these taken out too: the trial's tokens.
    ///
    /// # Errors
    /// Where the search for them cannot be built.
    pub fn redacting(mut self, tokens: &[HostSecret]) -> Result<Self> {
        self.redactor = self.redactor.with(tokens)?;
        Ok(self)
    }

    /// With another redactor from now on: the run's, with the trial's tokens.
    pub fn redact_with(&mut self, redactor: &Redactor) {
        self.redactor = redactor.clone();
    }

    /// Opens a file that grows line by line; whoever writes it redacts.
    ///
    /// # Errors
    /// Where it was opened before.
    pub fn open_log(&self, log: TrialLog) -> Result<File> {
        self.folder.create(log.as_str())
    }

    fn below(&self, file: &str) -> String {
        format!("{}/{file}", self.place)
    }

    /// Writes a file whole, once.
    ///
    /// # Errors
    /// Where it was written before or the disk refuses.
    pub fn write(&self, file: TrialFile, bytes: &[u8]) -> Result<()> {
        self.folder.write_new(file.as_str(), &self.redactor.bytes(&self.below(file.as_str()), bytes))
    }

    /// Opens a file to be written piece by piece; the caller bounds it and calls `finish`.
    ///
    /// # Errors
    /// Where it was written before.
    pub fn stream(&self, file: TrialFile) -> Result<RedactingWriter<Box<dyn Write + Send>>> {
        Ok(self.redactor.writer(self.below(file.as_str()), Box::new(self.folder.create(file.as_str())?)))
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Where the line is no JSON or the disk refuses.
    pub fn append(&self, log: TrialLog, line: &impl Serialize) -> Result<()> {
        let mut line = to_value(line)?;
        self.redactor.json(&self.below(log.as_str()), &mut line);
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
        let before = self.write_world("world-before.json", before.clone())?;
        if let Some(after) = after {
            let after = self.write_world("world-after.json", after.clone())?;
            self.folder.write_new("world-diff.json", &pretty(&json_patch::diff(&before, &after))?)?;
        }
        Ok(())
    }

    fn write_world(&self, file: &str, mut world: Value) -> Result<Value> {
        self.redactor.json(&self.below(file), &mut world);
        self.folder.write_new(file, &pretty(&world)?)?;
        Ok(world)
    }

    /// Writes `trial.json`: the trial counts from now on. Gives back what was written, redacted: what goes on to `run.json`
    /// and to events.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn finish(&self, record: TrialRecord) -> Result<TrialRecord> {
        let record = redact_record(&self.redactor, &self.below("trial.json"), record)?;
        self.folder.replace("trial.json", &pretty(&record)?)?;
        Ok(record)
    }
}

/// Redacts a record of ours: its keys and numbers are ours and keep their form.
fn redact_record<T: Serialize + DeserializeOwned>(redactor: &Redactor, file: &str, record: T) -> Result<T> {
    fn each(redactor: &Redactor, file: &str, value: &mut Value) {
        match value {
            Value::String(text) => *text = redactor.text(file, text),
            Value::Array(items) => items.iter_mut().for_each(|item| each(redactor, file, item)),
            Value::Object(entries) => entries.values_mut().for_each(|item| each(redactor, file, item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    let mut value = to_value(&record)?;
    each(redactor, file, &mut value);
    serde_json::from_value(value).context("failed to redact a record")
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

    fn redact_hush() -> Redactor {
        Redactor::new(vec![HostSecret::generated("A_KEY", "hush-hush".to_owned())]).unwrap()
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
        let token = HostSecret::generated("A_TOKEN", "token-token".to_owned());
        let folder = folder.redacting(&[token]).unwrap();
        folder.write(TrialFile::Stdout, b"the key is hush-hush").unwrap();
        let mut stderr = folder.stream(TrialFile::Stderr).unwrap();
        stderr.write_all(b"hush-").and_then(|()| stderr.write_all(b"hush token-to")).unwrap();
        stderr.write_all(b"ken").and_then(|()| stderr.finish()).unwrap();
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
                assert!(!text.contains("hush-hush") && !text.contains("token-token"), "{}: {text}", path.display());
            }
        }
        let places: Vec<_> = store.redactions().into_iter().map(|r| (r.file, r.count)).collect();
        let folder = "trials/double-refund@slow/2";
        let expected = [
            ("operations.jsonl", 2),
            ("stderr", 1),
            ("stdout", 1),
            ("trial.json", 1),
            ("world-after.json", 1),
            ("world-before.json", 1),
            ("stderr", 1),
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
    fn a_planted_link_in_the_place_of_any_folder_above_a_trial_is_not_followed() {
        let (scratch, results, _store) = scratch();
        let outside = Utf8Path::from_path(scratch.path()).unwrap().join("outside");
        std::fs::create_dir_all(outside.join("runs")).unwrap();
        let link = |path: &Utf8Path| symlink(&outside, path).unwrap();
        let create = |results: &Utf8Path| Store::create(results, &run_id(), redact_hush()).err();
        let planted = results.parent().unwrap().join("planted");
        link(&planted);
        std::fs::create_dir(results.parent().unwrap().join("other")).unwrap();
        link(&results.parent().unwrap().join("other/runs"));
        let run = results.join("runs/linked");
        link(&run);
        let told = [
            create(&planted),
            create(&Utf8PathBuf::from(format!("{planted}/"))),
            create(&results.parent().unwrap().join("other")),
            Store::reopen(&run, redact_hush()).err(),
            Store::reopen(&Utf8PathBuf::from(format!("{run}/")), redact_hush()).err(),
        ];
        for told in told.map(|error| format!("{:#}", error.unwrap())) {
            assert!(told.contains("symbolic link"), "{told}");
        }
        let store = Store::reopen(&results.join("runs").join(run_id().as_str()), redact_hush()).unwrap();
        link(&store.path().join("trials"));
        assert!(store.trial(&"a/1".parse().unwrap()).is_err());
        assert_eq!(everything_below(outside.as_std_path()).len(), 2);
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
