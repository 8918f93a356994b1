//! Which paths a snapshot is made of, as git says: the repository's own, then those of the submodules and repositories
//! inside it. Owns that recursion and what of it differs from the commit; looks at no file's content.

use super::folders::{Folders, split};
use super::git::Repository;
use super::index::{self, IndexStat, Indexed};
use super::names::some;
use crate::exit::Refusal;
use crate::interrupt::Interrupt;
use anyhow::{Context, Result, anyhow};
use camino::Utf8Path;
use rustix::fs::{AtFlags, FileType};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;

/// Git's mode of a submodule.
const GITLINK: u32 = 0o160_000;
/// Repositories inside one another; more is no project but a trap.
const DEEPEST: usize = 16;
/// Repositories in all; each costs a few calls of git.
const MOST: usize = 1000;
/// Stored runs: their own ignore rule keeps them out, except in a folder that crashlab did not make.
const RESULTS: &[u8] = b".crashlabs";

/// Everything that git says about a folder.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// HEAD; none before the first commit.
    pub(super) commit: Option<String>,
    /// Ascending by path, each path once.
    pub(super) paths: Vec<Listed>,
    /// Paths that differ from the commit whatever the working tree holds.
    pub(super) differing: Vec<Vec<u8>>,
    /// For the user.
    pub(super) warnings: Vec<String>,
}

/// A path that git lists.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    /// Relative to the source folder.
    pub(super) path: Vec<u8>,
    /// What the index knows of it; none for an untracked path.
    pub(super) tracked: Option<Tracked>,
}

/// What a path must be to be the same as in the commit.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    /// Git's mode.
    pub(super) mode: u32,
    /// Its blob, hexadecimal.
    pub(super) oid: Vec<u8>,
    /// The index and the commit agree about it.
    pub(super) committed: bool,
    /// Its absence is no deletion.
    pub(super) sparse: bool,
    /// The stat data that vouches for the content; none where it cannot.
    pub(super) stat: Option<IndexStat>,
    /// Executable bits mean something here.
    pub(super) modes: bool,
    /// Links are links here.
    pub(super) links: bool,
}

/// Lists the folder `root` (absolute, without links).
pub(super) fn list(root: &Utf8Path, stop: &Interrupt) -> Result<Listing> {
    let found = Repository::find(root.as_std_path(), stop)?;
    let repository = found.ok_or_else(|| {
        Refusal::new("the target is not in a git repository, so nothing says which of its files are meant")
            .at(root.as_str())
            .hint(format!("run `git init {root}` (nothing has to be committed), or name a folder of a repository"))
    })?;
    if root.components().any(|part| part.as_str() == ".git") {
        return Err(Refusal::new("the target is a folder of git's own, not of a working tree")
            .at(root.as_str())
            .into());
    }
    let folders = Folders::to_read(root).with_context(|| format!("cannot open {root}"))?;
    let mut lister = Lister {
        root,
        folders,
        stop,
        listing: Listing::default(),
        repositories: 0,
        results: false,
        absent: Vec::new(),
        empty: Vec::new(),
        unread: Vec::new(),
        complaint: String::new(),
        told: Vec::new(),
    };
    lister.listing.commit = lister.add(&repository, b"", 0)?;
    Ok(lister.finish())
}

struct Lister<'a> {
    root: &'a Utf8Path,
    folders: Folders,
    stop: &'a Interrupt,
    listing: Listing,
    repositories: usize,
    results: bool,
    /// Submodules without files.
    absent: Vec<Vec<u8>>,
    /// Folders that git lists, and lists nothing in.
    empty: Vec<Vec<u8>>,
    /// Repositories whose commit cannot be read, and why the first cannot.
    unread: Vec<Vec<u8>>,
    complaint: String,
    /// What git warned about while it looked for untracked files.
    told: Vec<Vec<u8>>,
}

impl Lister<'_> {
    /// Adds what a repository lists, below `prefix` (empty, or ending in `/`). Its commit comes out.
    fn add(&mut self, repository: &Repository, prefix: &[u8], depth: usize) -> Result<Option<String>> {
        self.repositories += 1;
        if depth > DEEPEST || self.repositories > MOST {
            let message = format!("more than {MOST} repositories, or {DEEPEST} inside one another");
            return Err(Refusal::new(message).at(self.root.as_str()).into());
        }
        let answers = ask(repository)?;
        let entries = index::tracked(&answers.tracked)?;
        let mut head = match &answers.committed {
            Ok(list) => index::committed(list)?,
            Err(complaint) => {
                if self.unread.is_empty() {
                    self.complaint.clone_from(complaint);
                }
                self.unread.push(if prefix.is_empty() { b".".to_vec() } else { prefix.to_vec() });
                HashMap::new()
            }
        };
        let index_time = std::fs::metadata(&repository.index).ok().map(|about| (about.mtime(), about.mtime_nsec()));
        let mut previous: &[u8] = b"";
        for entry in &entries {
            // A path in conflict has up to three entries.
            if entry.path == previous {
                continue;
            }
            previous = &entry.path;
            let agreed = head.remove(entry.path.as_slice()).is_some_and(|it| it == (entry.mode, entry.oid.as_slice()));
            let tracked = Tracked {
                mode: entry.mode,
                oid: entry.oid.clone(),
                committed: agreed && entry.merged,
                sparse: entry.sparse,
                stat: entry.stat.filter(|stat| index_time.is_some_and(|time| is_older(stat.mtime, time))),
                modes: answers.modes,
                links: answers.links,
            };
            self.entry([prefix, &entry.path].concat(), entry, tracked, depth)?;
        }
        self.listing.differing.extend(head.into_keys().map(|path| [prefix, path].concat()));
        let (untracked, told) = &answers.untracked;
        self.told.extend(told.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec));
        for path in index::untracked(untracked)? {
            self.untracked([prefix, path].concat(), depth)?;
        }
        Ok(answers.commit)
    }

    fn entry(&mut self, path: Vec<u8>, entry: &Indexed, tracked: Tracked, depth: usize) -> Result<()> {
        let kind = if entry.mode == GITLINK { self.kind(&path) } else { None };
        if entry.mode != GITLINK || !matches!(kind, None | Some(FileType::Directory)) {
            self.listing.paths.push(Listed { path, tracked: Some(tracked) });
            return Ok(());
        }
        let same = match kind {
            None => entry.sparse,
            Some(_) => {
                let inside = self.inside(&path, depth)?;
                if inside.is_none() {
                    self.absent.push(path.clone());
                }
                let is_it = |commit: Option<String>| commit.is_some_and(|commit| commit.as_bytes() == entry.oid);
                tracked.committed && inside.is_none_or(is_it)
            }
        };
        if !same {
            self.listing.differing.push(path);
        }
        Ok(())
    }

    fn untracked(&mut self, path: Vec<u8>, depth: usize) -> Result<()> {
        if path.split(|byte| *byte == b'/').any(|part| part == RESULTS) {
            self.results = true;
            return Ok(());
        }
        let Some(folder) = path.strip_suffix(b"/") else {
            self.listing.paths.push(Listed { path, tracked: None });
            return Ok(());
        };
        self.listing.differing.push(folder.to_vec());
        if self.kind(folder) == Some(FileType::Directory) && self.inside(folder, depth)?.is_none() {
            self.empty.push(folder.to_vec());
        }
        Ok(())
    }

    /// Adds the repository at a folder of the tree, if there is one: then its commit.
    fn inside(&mut self, path: &[u8], depth: usize) -> Result<Option<Option<String>>> {
        if self.kind(&[path, b"/.git"].concat()).is_none() {
            return Ok(None);
        }
        let folder = self.root.as_std_path().join(OsStr::from_bytes(path));
        let Some(repository) = Repository::open(&folder, &folder, self.stop)? else { return Ok(None) };
        self.add(&repository, &[path, b"/"].concat(), depth + 1).map(Some)
    }

    /// What lies at a path; none where nothing does, or where a link is on the way.
    fn kind(&mut self, path: &[u8]) -> Option<FileType> {
        let (folder, name) = split(path);
        let about = rustix::fs::statat(self.folders.at(folder).ok()?, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(FileType::from_raw_mode(about.st_mode))
    }

    fn finish(self) -> Listing {
        let unread = format!("git cannot read the commit's tree, so it counts as changed ({})", self.complaint);
        let told = [
            (self.absent, "submodules that are not checked out, so none of their files is taken"),
            (self.empty, "folders that git lists without anything in them, left out"),
            (self.unread, &unread),
            (self.told, "git did not see everything, so untracked files may be missing"),
        ];
        let mut listing = self.listing;
        for (paths, what) in told.iter().filter(|(paths, _)| !paths.is_empty()) {
            listing.warnings.push(format!("{what}: {}", some(paths.iter().map(Vec::as_slice))));
        }
        if self.results {
            listing.warnings.push("stored runs (.crashlabs) are not ignored by git here: they are left out".to_owned());
        }
        listing.paths.sort_by(|one, other| one.path.cmp(&other.path));
        listing.paths.dedup_by(|one, other| one.path == other.path);
        listing
    }
}

struct Answers {
    commit: Option<String>,
    tracked: Vec<u8>,
    untracked: (Vec<u8>, Vec<u8>),
    committed: Result<Vec<u8>, String>,
    modes: bool,
    links: bool,
}

/// All questions to a repository, the slow ones at the same time.
fn ask(repository: &Repository) -> Result<Answers> {
    std::thread::scope(|scope| {
        let tracked = scope.spawn(|| repository.tracked());
        let untracked = scope.spawn(|| repository.untracked());
        let commit = repository.head()?;
        let committed = commit.as_deref().map_or(Ok(Ok(Vec::new())), |commit| repository.committed(commit))?;
        let (modes, links) = repository.means()?;
        Ok(Answers { commit, tracked: joined(tracked)?, untracked: joined(untracked)?, committed, modes, links })
    })
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the thread that asks git ended early")))
}

/// Whether a file was last written before the index: else a later write could have left the same time stamp. File systems
/// without nanoseconds are compared by seconds.
fn is_older(file: (i64, i64), index: (i64, i64)) -> bool {
    if file.1 == 0 || index.1 == 0 { file.0 < index.0 } else { file < index }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_data_vouches_only_for_what_was_written_before_the_index() {
        let table = [
            ((5, 1), (6, 1), true),
            ((5, 1), (5, 2), true),
            ((5, 1), (5, 1), false),
            ((5, 2), (5, 1), false),
            ((6, 1), (5, 1), false),
            // Either one without nanoseconds: only seconds tell.
            ((5, 0), (5, 1), false),
            ((5, 1), (5, 0), false),
            ((5, 0), (6, 0), true),
        ];
        for (file, index, older) in table {
            assert_eq!(is_older(file, index), older, "{file:?} {index:?}");
        }
    }
}
