//! Laying the snapshot: each file is read once, and that reading is what is hashed and what is written. Owns the threads,
//! the modes of what is laid, and the watch for a file that changes meanwhile.
//!
//! Invariant: every open is relative to a folder's descriptor, follows no link and never waits for a FIFO's other end; only
//! what turns out to be the very file that was seen is read.

use super::folders::{Folders, split};
use super::manifest::Kind;
use super::names::shown;
use super::scan::{Found, Seen};
use crate::exit::Refusal;
use crate::interrupt::Interrupt;
use anyhow::{Context, Result, anyhow};
use camino::Utf8Path;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const WRITE: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What is read at a time.
const PIECE: usize = 256 << 10;
/// Below this a reflink costs more than it saves.
const WORTH_SHARING: u64 = 128 << 10;
/// More threads than this wait for one another in the file system.
const THREADS: usize = 8;

/// What the one reading of an entry told.
#[derive(Debug, Clone)]
pub(super) struct Copied {
    /// Of the content, or of a link's target.
    pub(super) sha256: [u8; 32],
    /// It is not the blob that it was compared with.
    pub(super) differs: bool,
    /// A Git LFS pointer in place of the content.
    pub(super) pointer: bool,
}

/// Lays all entries (ascending by path) below `content`, which is empty. What was read comes out in the same order.
pub(super) fn copy(root: &Utf8Path, content: &Utf8Path, found: &[Found], stop: &Interrupt) -> Result<Vec<Copied>> {
    let work = Work {
        found,
        portions: portions(found),
        next: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        shares: AtomicBool::new(true),
        stop,
    };
    let copied = Mutex::new(vec![None; found.len()]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(work.portions.len());
    std::thread::scope(|scope| {
        let start = |_| scope.spawn(|| work.labour(root, content, &copied));
        let labourers: Vec<_> = (0..threads).map(start).collect();
        let ended = labourers.into_iter().map(|labourer| labourer.join());
        // All are joined before the first trouble is told.
        let ended: Vec<_> = ended.collect();
        ended.into_iter().try_for_each(|end| end.unwrap_or_else(|_| Err(anyhow!("a thread of the copy ended early"))))
    })?;
    let copied = copied.into_inner().unwrap_or_else(PoisonError::into_inner);
    copied.into_iter().collect::<Option<Vec<_>>>().context("an entry was left out of the copy")
}

/// Neighbours in the list that one thread lays: at most so many entries, and bytes unless it is one file. The large ones
/// come first, so that no thread is left alone with one at the end.
fn portions(found: &[Found]) -> Vec<Range<usize>> {
    const ENTRIES: usize = 64;
    const BYTES: u64 = 4 << 20;
    let mut portions: Vec<(u64, Range<usize>)> = Vec::new();
    for (index, found) in found.iter().enumerate() {
        match portions.last_mut() {
            Some((bytes, range)) if range.len() < ENTRIES && *bytes + found.seen.size <= BYTES => {
                *bytes += found.seen.size;
                range.end += 1;
            }
            _ => portions.push((found.seen.size, index..index + 1)),
        }
    }
    portions.sort_by_key(|(bytes, _)| std::cmp::Reverse((*bytes).max(BYTES)));
    portions.into_iter().map(|(_, range)| range).collect()
}

struct Work<'a> {
    found: &'a [Found],
    portions: Vec<Range<usize>>,
    next: AtomicUsize,
    over: AtomicBool,
    /// The file system has not yet refused to share blocks.
    shares: AtomicBool,
    stop: &'a Interrupt,
}

impl Work<'_> {
    fn labour(&self, root: &Utf8Path, content: &Utf8Path, copied: &Mutex<Vec<Option<Copied>>>) -> Result<()> {
        let mut from = Folders::to_read(root).with_context(|| format!("cannot open {root}"))?;
        let mut to = Folders::to_write(content).with_context(|| format!("cannot open {content}"))?;
        let mut buffer = vec![0; PIECE];
        while let Some(portion) = self.portions.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let mut laid = Vec::with_capacity(portion.len());
            for found in &self.found[portion.clone()] {
                if self.over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let entry = self.lay(&mut from, &mut to, found, &mut buffer).map_err(|trouble| {
                    self.over.store(true, Ordering::Relaxed);
                    trouble.told(&found.path)
                })?;
                laid.push(Some(entry));
            }
            let mut all = copied.lock().unwrap_or_else(PoisonError::into_inner);
            all[portion.clone()].clone_from_slice(&laid);
        }
        Ok(())
    }

    fn lay(&self, from: &mut Folders, to: &mut Folders, found: &Found, buffer: &mut [u8]) -> Result<Copied, Trouble> {
        if self.stop.is_raised() {
            return Err(Trouble::Stopped);
        }
        let (folder, name) = split(&found.path);
        let to = to.at(folder).map_err(Trouble::Write)?;
        match &found.kind {
            Kind::File { executable } => {
                let from = from.at(folder).map_err(Trouble::Read)?;
                self.file(from, to, name, *executable, found, buffer)
            }
            Kind::Link { target } => {
                let now = super::scan::link_target(from, &found.path).map_err(Trouble::Read)?;
                if now != *target {
                    return Err(Trouble::Changed);
                }
                rustix::fs::symlinkat(target.as_slice(), to, name).map_err(Trouble::Write)?;
                let mut reading = Reading::new(found);
                reading.take(target);
                Ok(reading.finish(found))
            }
        }
    }

    fn file(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &[u8],
        executable: bool,
        found: &Found,
        buffer: &mut [u8],
    ) -> Result<Copied, Trouble> {
        let source = rustix::fs::openat(from, name, READ, Mode::empty()).map_err(Trouble::Read)?;
        let unchanged = |source: BorrowedFd<'_>| match rustix::fs::fstat(source) {
            Ok(stat) if Seen::of(&stat) == found.seen => Ok(()),
            Ok(_) => Err(Trouble::Changed),
            Err(error) => Err(Trouble::Read(error)),
        };
        unchanged(source.as_fd())?;
        let mode = Mode::from_raw_mode(if executable { 0o755 } else { 0o644 });
        let made = rustix::fs::openat(to, name, WRITE, mode).map_err(Trouble::Write)?;
        // The umask may have taken bits away.
        rustix::fs::fchmod(&made, mode).map_err(Trouble::Write)?;
        let shared = self.share(source.as_fd(), made.as_fd(), found.seen.size);
        let (mut source, mut made) = (File::from(source), File::from(made));
        let mut reading = Reading::new(found);
        let mut left = found.seen.size;
        while left > 0 {
            if self.stop.is_raised() {
                return Err(Trouble::Stopped);
            }
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            // What is shared already is read where it lies: nobody else writes there.
            let input = if shared { &mut made } else { &mut source };
            let count = input.read(&mut buffer[..most]).map_err(|error| Trouble::Read(errno(&error)))?;
            if count == 0 {
                return Err(Trouble::Changed);
            }
            reading.take(&buffer[..count]);
            if !shared {
                made.write_all(&buffer[..count]).map_err(|error| Trouble::Write(errno(&error)))?;
            }
            left -= count as u64;
        }
        unchanged(source.as_fd())?;
        Ok(reading.finish(found))
    }

    /// Shares the blocks where the file system can. Whatever the reason that it does not, the bytes are copied.
    fn share(&self, source: BorrowedFd<'_>, made: BorrowedFd<'_>, size: u64) -> bool {
        if size < WORTH_SHARING || !self.shares.load(Ordering::Relaxed) {
            return false;
        }
        let shared = rustix::fs::ioctl_ficlone(made, source).is_ok()
            // The source may have grown between the look and the sharing; what is laid is what was seen.
            && rustix::fs::fstat(made).is_ok_and(|stat| u64::try_from(stat.st_size) == Ok(size));
        if !shared {
            self.shares.store(false, Ordering::Relaxed);
            let _ = rustix::fs::ftruncate(made, 0);
        }
        shared
    }
}

/// One pass over an entry's bytes.
struct Reading {
    sha256: Sha256,
    blob: Option<Blob>,
    pointer: bool,
    begun: bool,
}

/// Git's name for a content: a hash over `blob SIZE\0` and the content.
enum Blob {
    Sha1(Sha1),
    Sha256(Sha256),
}

impl Reading {
    fn new(found: &Found) -> Self {
        let size = match &found.kind {
            Kind::Link { target } => target.len() as u64,
            Kind::File { .. } => found.seen.size,
        };
        let blob = found.blob.as_ref().map(|oid| Blob::new(oid.len(), size));
        Self { sha256: Sha256::new(), blob, pointer: false, begun: false }
    }

    fn take(&mut self, bytes: &[u8]) {
        if !self.begun {
            self.pointer = bytes.starts_with(b"version https://git-lfs.github.com/spec/") && bytes.len() < 1024;
            self.begun = true;
        }
        self.sha256.update(bytes);
        match &mut self.blob {
            Some(Blob::Sha1(hash)) => hash.update(bytes),
            Some(Blob::Sha256(hash)) => hash.update(bytes),
            None => {}
        }
    }

    fn finish(self, found: &Found) -> Copied {
        let name = self.blob.map(Blob::name);
        let is_file = matches!(found.kind, Kind::File { .. });
        Copied {
            sha256: self.sha256.finalize().into(),
            differs: name.as_deref() != found.blob.as_deref(),
            pointer: self.pointer && is_file && found.seen.size < 1024,
        }
    }
}

impl Blob {
    /// The length of the hexadecimal name says which hash the repository uses.
    fn new(name: usize, size: u64) -> Self {
        let head = format!("blob {size}\0");
        if name == 64 { Blob::Sha256(Sha256::new_with_prefix(head)) } else { Blob::Sha1(Sha1::new_with_prefix(head)) }
    }

    fn name(self) -> Vec<u8> {
        let hash = match self {
            Blob::Sha1(hash) => hash.finalize().to_vec(),
            Blob::Sha256(hash) => hash.finalize().to_vec(),
        };
        hash.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
    }
}

/// Why an entry could not be laid.
#[derive(Debug)]
enum Trouble {
    Changed,
    Stopped,
    Read(Errno),
    Write(Errno),
}

impl Trouble {
    fn told(self, path: &[u8]) -> anyhow::Error {
        let path = shown(path);
        match self {
            Trouble::Stopped => anyhow!("the snapshot was interrupted"),
            // What was there a moment ago is gone, or something else is in its place.
            Trouble::Changed | Trouble::Read(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => {
                Refusal::new(format!("{path} changed while it was copied"))
                    .hint("stop what writes to the target's folder, or have git ignore what it writes")
                    .into()
            }
            Trouble::Read(error) => Refusal::new(format!("cannot read {path}: {error}"))
                .hint("target.files can take it out, a rule in .gitignore an untracked one")
                .into(),
            Trouble::Write(error) => anyhow!("failed to lay {path} in the snapshot: {error}"),
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests;
