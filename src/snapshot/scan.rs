//! What lies at the listed paths: looked at, never opened. Owns which kinds are refused, the limits, and whether the tree
//! differs from its commit as far as stat data can tell.

use super::folders::{Folders, split};
use super::links::Links;
use super::listing::{Listed, Listing, Tracked};
use super::manifest::Kind;
use super::names::{shown, some};
use super::select::Selection;
use crate::exit::Refusal;
use crate::policy::SnapshotLimits;
use anyhow::{Context, Result};
use camino::Utf8Path;
use rustix::fs::{AtFlags, FileType, Stat};
use rustix::io::Errno;

/// A file or link as it was seen: any difference later means that it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    inode: u64,
    pub(super) size: u64,
    mode: u32,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Seen {
    #[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between platforms")]
    pub(super) fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode as u32,
            mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            ctime: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        }
    }
}

/// An entry of the snapshot to be.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// Relative to the source folder.
    pub(super) path: Vec<u8>,
    /// A file, or a link with its target.
    pub(super) kind: Kind,
    /// As it was seen.
    pub(super) seen: Seen,
    /// Git has it in the index.
    pub(super) tracked: bool,
    /// Only the content can tell whether it is still this blob.
    pub(super) blob: Option<Vec<u8>>,
}

/// All entries, ascending by path.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Files and links.
    pub(super) found: Vec<Found>,
    /// Something differs from the commit for certain.
    pub(super) dirty: bool,
    /// Tracked files that a sparse checkout left out.
    pub(super) sparse: u64,
}

/// Looks at every listed path that the policy takes.
pub(super) fn scan(root: &Utf8Path, listing: &Listing, selection: &Selection) -> Result<Scan> {
    let mut folders = Folders::to_read(root).with_context(|| format!("cannot open {root}"))?;
    let mut scan = Scan { dirty: listing.differing.iter().any(|path| selection.takes(path)), ..Scan::default() };
    let mut special: Vec<&[u8]> = Vec::new();
    for listed in listing.paths.iter().filter(|listed| selection.takes(&listed.path)) {
        let stat = match look(&mut folders, &listed.path) {
            Ok(stat) => stat,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
                scan.absent(listed);
                continue;
            }
            Err(error) => return Err(unreadable(&listed.path, error)),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => scan.add(listed, Kind::File { executable: stat.st_mode & 0o100 != 0 }, &stat),
            FileType::Symlink => {
                let target =
                    link_target(&mut folders, &listed.path).map_err(|error| unreadable(&listed.path, error))?;
                scan.add(listed, Kind::Link { target }, &stat);
            }
            // A folder where the index has a file: git lists what is in it by itself.
            FileType::Directory => scan.absent(listed),
            _ => special.push(&listed.path),
        }
    }
    refuse_special(&special)?;
    Ok(scan)
}

impl Scan {
    fn absent(&mut self, listed: &Listed) {
        match &listed.tracked {
            Some(tracked) if tracked.sparse => self.sparse += 1,
            Some(_) => self.dirty = true,
            None => {}
        }
    }

    fn add(&mut self, listed: &Listed, kind: Kind, stat: &Stat) {
        let seen = Seen::of(stat);
        let blob = match &listed.tracked {
            Some(tracked) if tracked.committed && is_kind(tracked, &kind) => {
                (!vouches(tracked, &seen)).then(|| tracked.oid.clone())
            }
            _ => {
                self.dirty = true;
                None
            }
        };
        self.found.push(Found { path: listed.path.clone(), kind, seen, tracked: listed.tracked.is_some(), blob });
    }
}

/// Whether the working tree has the kind and the executable bit that the index says.
fn is_kind(tracked: &Tracked, kind: &Kind) -> bool {
    match (tracked.mode, kind) {
        (0o100_644 | 0o100_755, Kind::File { executable }) => {
            !tracked.modes || *executable == (tracked.mode == 0o100_755)
        }
        (0o120_000, Kind::Link { .. }) => true,
        (0o120_000, Kind::File { .. }) => !tracked.links,
        _ => false,
    }
}

/// Whether the index's stat data is this file's: then its content is the blob's, as for git itself.
fn vouches(tracked: &Tracked, seen: &Seen) -> bool {
    tracked.stat.is_some_and(|stat| {
        stat.mtime == seen.mtime
            && stat.ctime == seen.ctime
            && u64::from(stat.size) == seen.size & u64::from(u32::MAX)
            && u64::from(stat.inode) == seen.inode & u64::from(u32::MAX)
    })
}

fn look(folders: &mut Folders, path: &[u8]) -> Result<Stat, Errno> {
    let (folder, name) = split(path);
    rustix::fs::statat(folders.at(folder)?, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// A link's target, read from the folder that holds it.
pub(super) fn link_target(folders: &mut Folders, path: &[u8]) -> Result<Vec<u8>, Errno> {
    let (folder, name) = split(path);
    Ok(rustix::fs::readlinkat(folders.at(folder)?, name, Vec::new())?.into_bytes())
}

fn unreadable(path: &[u8], error: Errno) -> anyhow::Error {
    Refusal::new(format!("cannot look at {}: {error}", shown(path)))
        .hint("target.files can take it out, a rule in .gitignore an untracked one")
        .into()
}

fn refuse_special(special: &[&[u8]]) -> Result<()> {
    if special.is_empty() {
        return Ok(());
    }
    let message = format!("neither a file, a link nor a folder: {}", some(special.iter().copied()));
    Err(Refusal::new(message)
        .hint("remove what is in the tracked file's place, or take it out with target.files")
        .into())
}

/// Refuses links that leave the snapshot, by name.
pub(super) fn refuse_leaving(found: &[Found]) -> Result<()> {
    let links: Vec<(&[u8], &[u8])> = found
        .iter()
        .filter_map(|found| match &found.kind {
            Kind::Link { target } => Some((found.path.as_slice(), target.as_slice())),
            Kind::File { .. } => None,
        })
        .collect();
    let all = Links::new(links.iter().copied());
    let leaving = links.iter().filter(|(path, target)| all.leaves(path, target));
    let named: Vec<Vec<u8>> = leaving.map(|(path, target)| [path, b" -> ".as_slice(), target].concat()).collect();
    if named.is_empty() {
        return Ok(());
    }
    let message = format!("a symbolic link leaves the target's folder: {}", some(named.iter().map(Vec::as_slice)));
    Err(Refusal::new(message)
        .hint("put what it points to into the folder, name a folder that holds both, or take the link out with target.files")
        .into())
}

/// Refuses a snapshot that is larger than the policy allows, with the largest paths.
pub(super) fn refuse_large(found: &[Found], limits: &SnapshotLimits) -> Result<()> {
    let mut files: Vec<&Found> = found.iter().filter(|found| matches!(found.kind, Kind::File { .. })).collect();
    files.sort_by_key(|found| (std::cmp::Reverse(found.seen.size), &found.path));
    let sized = |found: &&Found| format!("{} ({})", shown(&found.path), size(found.seen.size)).into_bytes();
    let hint =
        "target.files takes paths out (\"!data/**\"), a rule in .gitignore untracked ones, target.limits allows more";
    let refused =
        |key: &str, message: String| Err(Refusal::new(message).at(format!("target.limits.{key}")).hint(hint).into());
    let count = found.len() as u64;
    if count > limits.files {
        let most = crowded(found);
        let message =
            format!("the snapshot would have {count} files, {} are allowed; most are in {most}", limits.files);
        return refused("files", message);
    }
    let over: Vec<Vec<u8>> = files.iter().filter(|found| found.seen.size > limits.file).map(sized).collect();
    if !over.is_empty() {
        let message = format!("larger than {}: {}", size(limits.file), some(over.iter().map(Vec::as_slice)));
        return refused("file", message);
    }
    let bytes: u64 = files.iter().map(|found| found.seen.size).sum();
    if bytes > limits.bytes {
        let largest: Vec<Vec<u8>> = files.iter().take(10).map(sized).collect();
        let named = some(largest.iter().map(Vec::as_slice));
        let message = format!(
            "the snapshot would have {}, {} are allowed; the largest are {named}",
            size(bytes),
            size(limits.bytes)
        );
        return refused("bytes", message);
    }
    Ok(())
}

/// The folders of the first two levels with the most files.
fn crowded(found: &[Found]) -> String {
    let mut counts = std::collections::BTreeMap::<&[u8], u64>::new();
    for found in found {
        let mut slashes = found.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let (first, second) = (slashes.next(), slashes.next());
        let folder = second.or(first).map_or(b".".as_slice(), |end| &found.path[..end]);
        *counts.entry(folder).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(folder, count)| (std::cmp::Reverse(*count), *folder));
    let named: Vec<_> = counts.iter().take(5).map(|(folder, count)| format!("{} ({count})", shown(folder))).collect();
    named.join(", ")
}

fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        #[allow(clippy::cast_precision_loss, reason = "for people")]
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / *unit as f64),
        None => format!("{bytes} B"),
    }
}
