//! The journal's format and its file: what a run owes the machine, one JSON line a step, on disk before the next step.
//!
//! `intent` (before a creation) → `created` (with the identity) → `removed`, or `kept` (with the reason). The process that
//! writes holds a lock on the file, so that nobody takes a live run for a dead one: a pid may be somebody else's by now.

use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::{Duration, Instant, SystemTime};

/// The journal's name in a run's folder.
pub const FILE: &str = "journal.jsonl";
/// No journal of a sane run is larger; a larger file is not read.
const LARGEST: u64 = 256 << 20;
/// Whoever only looks whether a run lives holds the lock for a moment: for that long it is tried again.
const MOMENT: Duration = Duration::from_millis(300);

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// RFC 3339, UTC.
    pub at: String,
    /// Which step.
    pub step: Step,
    /// Of what.
    pub kind: Kind,
    /// Unique to the scope; a folder's path.
    pub name: String,
    /// Container, network and image by id; a builder by its container's.
    pub id: Option<String>,
    /// The engine's time of creation, where it is part of the identity.
    pub created: Option<String>,
    /// With which the object was made.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Why it was kept, or that it never came to be.
    pub reason: Option<String>,
}

/// The steps of a resource's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// About to be created.
    Intent,
    /// It exists, and this is its identity.
    Created,
    /// A fresh look-up did not find it any more.
    Removed,
    /// It is not (or cannot be proven to be) the scope's own any more.
    Kept,
}

/// What a scope creates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The dedicated buildx builder.
    Builder,
    /// The builder's state.
    Volume,
    /// An image that was built, imported or pulled.
    Image,
    /// A target's network, or the relays'.
    Network,
    /// A target, a relay, an attestation.
    Container,
    /// What lives on the host only as long as the scope.
    Folder,
}

impl Kind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Builder => "builder",
            Kind::Volume => "volume",
            Kind::Image => "image",
            Kind::Network => "network",
            Kind::Container => "container",
            Kind::Folder => "folder",
        }
    }
}

/// The open journal of a live run.
#[derive(Debug)]
pub struct Journal {
    path: Utf8PathBuf,
    file: File,
}

impl Journal {
    /// Makes a new run's journal, and holds its lock from then on.
    ///
    /// # Errors
    /// Where the file cannot be made, or exists.
    pub fn create(run_folder: &Utf8Path) -> Result<Self> {
        let path = run_folder.join(FILE);
        let file = OpenOptions::new().create_new(true).read(true).append(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("failed to make the journal {path}"))?;
        anyhow::ensure!(lock(&file, &path)?, "somebody else holds the new journal {path}");
        // The entry in the folder must survive a power cut as well as the lines do.
        File::open(run_folder)
            .and_then(|folder| folder.sync_all())
            .with_context(|| format!("failed to flush {run_folder}"))?;
        Ok(Self { path, file })
    }

    /// Takes over the journal of a run whose process is gone; none while that process lives.
    ///
    /// # Errors
    /// Where the file cannot be opened.
    pub fn take_over(run_folder: &Utf8Path) -> Result<Option<Self>> {
        let path = run_folder.join(FILE);
        let file = open_no_follow(&path)?;
        Ok(lock(&file, &path)?.then_some(Self { path, file }))
    }

    /// Writes one line and flushes it to disk.
    ///
    /// # Errors
    /// Where the disk does not take it: then the step must not be taken either.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        self.write_all(std::slice::from_ref(line))
    }

    /// Writes lines and flushes them to disk together.
    ///
    /// # Errors
    /// As [`Journal::write`].
    pub fn write_all(&mut self, lines: &[Line]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let torn = self.is_torn().with_context(|| format!("failed to read the journal {}", self.path))?;
        let mut text = if torn { vec![b'\n'] } else { Vec::new() };
        for line in lines {
            serde_json::to_writer(&mut text, line).context("failed to encode a journal line")?;
            text.push(b'\n');
        }
        let written = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        written.with_context(|| format!("failed to write the journal {}", self.path))
    }

    /// As a disk that takes nothing any more.
    #[cfg(test)]
    pub fn break_for_writing(&mut self) {
        self.file = File::open(&self.path).unwrap();
    }

    /// Half a line, left by a power cut, a kill or a disk that was full for a while, must not swallow the next one.
    fn is_torn(&mut self) -> std::io::Result<bool> {
        if self.file.seek(SeekFrom::End(0))? == 0 {
            return Ok(false);
        }
        let mut last = [0_u8];
        self.file.seek(SeekFrom::End(-1))?;
        self.file.read_exact(&mut last)?;
        Ok(last != *b"\n")
    }
}

/// Whether the lock is ours now; not while somebody else holds it for longer than a moment.
fn lock(file: &File, path: &Utf8Path) -> Result<bool> {
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(std::fs::TryLockError::WouldBlock) if begun.elapsed() > MOMENT => return Ok(false),
            Err(std::fs::TryLockError::WouldBlock) => std::thread::sleep(MOMENT / 20),
            Err(std::fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("failed to lock the journal {path}"));
            }
        }
    }
}

/// A planted link would have us write through it, a planted pipe wait for ever.
fn open_no_follow(path: &Utf8Path) -> Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).append(true).custom_flags(flags).open(path);
    let file = opened.with_context(|| format!("failed to open the journal {path}"))?;
    let about = file.metadata().with_context(|| format!("failed to look at the journal {path}"))?;
    anyhow::ensure!(about.is_file(), "the journal {path} is no regular file");
    Ok(file)
}

impl Drop for Journal {
    /// A child that is being started at this moment shares the file until it is another program: closing it here would not
    /// end the lock.
    fn drop(&mut self) {
        drop(self.file.unlock());
    }
}

/// Whether the process of this run is there (it holds the journal's lock).
///
/// # Errors
/// Where the journal cannot be opened.
pub fn is_live(run_folder: &Utf8Path) -> Result<bool> {
    let file = open_no_follow(&run_folder.join(FILE))?;
    Ok(matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Reads a journal, whatever state it is in: a line that cannot be read is left out (the last one may be torn).
///
/// # Errors
/// Where the file cannot be read, or is larger than any journal.
pub fn read(run_folder: &Utf8Path) -> Result<Vec<Line>> {
    let text = bytes(run_folder)?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// Whether every resource of a journal has come to its end: the same question as whether nothing is owed, without building
/// what a removal would need. A list of stored runs asks it of each.
///
/// # Errors
/// As [`read`].
pub fn is_settled(run_folder: &Utf8Path) -> Result<bool> {
    let text = bytes(run_folder)?;
    let mut open: HashSet<(Kind, Cow<'_, str>)> = HashSet::new();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Brief<'_>>(line).ok());
    for line in lines {
        match line.step {
            Step::Intent | Step::Created => open.insert((line.kind, line.name)),
            Step::Removed | Step::Kept => open.remove(&(line.kind, line.name)),
        };
    }
    Ok(open.is_empty())
}

/// A line, read for [`is_settled`]: the same keys as [`Line`], so that the two take the same lines for lines.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Brief<'a> {
    #[serde(rename = "at")]
    _at: IgnoredAny,
    step: Step,
    kind: Kind,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "created")]
    _created: Option<IgnoredAny>,
    #[serde(default, rename = "labels")]
    _labels: IgnoredAny,
    #[serde(rename = "reason")]
    _reason: Option<IgnoredAny>,
}

fn bytes(run_folder: &Utf8Path) -> Result<Vec<u8>> {
    let path = run_folder.join(FILE);
    let file = open_no_follow(&path)?;
    // Its size is known: one read, where a growing buffer takes a dozen.
    let size = file.metadata().map_or(0, |about| about.len().min(LARGEST));
    let mut text = Vec::with_capacity(usize::try_from(size).unwrap_or_default().saturating_add(1));
    (&file).take(LARGEST).read_to_end(&mut text).with_context(|| format!("failed to read the journal {path}"))?;
    Ok(text)
}

/// Now, as the journal writes it.
pub fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Resource;

    fn line(name: &str) -> Line {
        Resource::intent(Kind::Network, name, BTreeMap::new()).line(Step::Intent, None)
    }

    fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        (folder, path)
    }

    #[test]
    fn half_a_line_swallows_neither_the_line_before_nor_the_one_after_it() {
        let (_folder, path) = folder();
        let mut journal = Journal::create(&path).unwrap();
        journal.write(&line("one")).unwrap();
        // As a full disk leaves it, also in the middle of a character.
        let mut half = OpenOptions::new().append(true).open(path.join(FILE)).unwrap();
        half.write_all(b"{\"at\": \"2026\xc3").unwrap();
        journal.write(&line("two")).unwrap();
        journal.write_all(&[line("three"), line("four")]).unwrap();
        let names: Vec<String> = read(&path).unwrap().into_iter().map(|line| line.name).collect();
        assert_eq!(names, ["one", "two", "three", "four"]);
    }

    #[test]
    fn a_quick_look_says_what_the_ledger_says() {
        let (_folder, path) = folder();
        let end = |name: &str, step| Resource::intent(Kind::Network, name, BTreeMap::new()).line(step, None);
        let (made, gone, kept) = (Step::Created, Step::Removed, Step::Kept);
        let journals: [(&[Line], bool); 8] = [
            (&[], true),
            (&[line("a")], false),
            (&[line("a"), end("a", made)], false),
            (&[line("a"), end("a", made), end("a", gone)], true),
            (&[line("a"), line("\u{e9}\"b"), end("\u{e9}\"b", kept)], false),
            (&[line("a"), end("a", gone), line("a")], false),
            (&[end("other", gone), line("a"), end("a", kept), end("a", gone)], true),
            (&[line("a"), Line { kind: Kind::Image, ..end("a", gone) }], false),
        ];
        for (lines, settled) in journals {
            let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
            // Neither half a line nor one of another version is a line.
            for end in [
                "",
                "{\"at\": \"2026",
                "{\"at\":\"\",\"step\":\"intent\",\"kind\":\"network\",\"name\":\"x\",\"new\":1}",
            ] {
                std::fs::write(path.join(FILE), format!("{text}{end}")).unwrap();
                assert_eq!(is_settled(&path).unwrap(), settled, "{text}{end}");
                assert_eq!(crate::scope::owes(&path).unwrap().is_empty(), settled, "{text}{end}");
            }
        }
        assert!(is_settled(&path.join("missing")).is_err());
    }

    #[test]
    fn a_run_lives_while_its_process_holds_the_journal_and_a_look_hinders_nobody() {
        let (_folder, path) = folder();
        let journal = Journal::create(&path).unwrap();
        assert!(is_live(&path).unwrap());
        assert!(Journal::take_over(&path).unwrap().is_none());
        // As a child has it that is not another program yet.
        let shared = journal.file.try_clone().unwrap();
        drop(journal);
        assert!(!is_live(&path).unwrap());
        drop(shared);
        // Somebody who only looks holds a shared lock for a moment.
        let looking = File::open(path.join(FILE)).unwrap();
        looking.try_lock_shared().unwrap();
        let waiting = std::thread::spawn(move || {
            std::thread::sleep(MOMENT / 4);
            looking.unlock().unwrap();
        });
        assert!(Journal::take_over(&path).unwrap().is_some());
        waiting.join().unwrap();
    }
}
