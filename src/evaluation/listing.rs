//! Which files a package has: git's list where git has one, else every file below the folder. Owns what is never part of
//! a package; reads no content.
//!
//! The repository is not trusted yet: git is asked as a snapshot asks it, which runs nothing of the repository.

use crate::exit::Refusal;
use crate::interrupt::Interrupt;
use crate::snapshot::git::Repository;
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Names that are never part of a package, at any depth.
const NEVER: [&str; 4] = [".git", ".venv", "__pycache__", ".crashlabs"];

/// The package's files, relative to `root` (absolute, without links), sorted by bytes. `source` is the policy's
/// `target.source`: that folder, and the folders `target-*` beside it, are the agent's and not the package's.
pub(super) fn files(root: &Utf8Path, source: &Utf8Path) -> Result<Vec<OsString>, Refusal> {
    let targets = Targets::of(source);
    let listed = from_git(root.as_std_path())?.filter(|list| !list.is_empty());
    let mut files = BTreeSet::new();
    match listed {
        Some(list) => {
            for path in list {
                add(root.as_std_path(), Path::new(&path), &targets, &mut files)?;
            }
        }
        // No repository, or one that ignores the whole folder: then git's list would cover nothing.
        None => walk(root.as_std_path(), Path::new(""), &targets, &mut files)?,
    }
    Ok(files.into_iter().collect())
}

/// Adds a path that git lists. A folder in the list is a repository inside this one: git's list of that one counts.
fn add(root: &Path, relative: &Path, targets: &Targets, files: &mut BTreeSet<OsString>) -> Result<(), Refusal> {
    if is_left_out(root, relative, targets) {
        return Ok(());
    }
    let path = root.join(relative);
    match std::fs::symlink_metadata(&path) {
        // Deleted in the working tree: no file of it any more.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(about) if about.is_dir() => match from_git(&path)?.filter(|list| !list.is_empty()) {
            Some(list) => list.iter().try_for_each(|inner| add(root, &relative.join(inner), targets, files)),
            None => walk(root, relative, targets, files),
        },
        _ => {
            files.insert(relative.as_os_str().to_owned());
            Ok(())
        }
    }
}

fn walk(root: &Path, relative: &Path, targets: &Targets, files: &mut BTreeSet<OsString>) -> Result<(), Refusal> {
    let folder = root.join(relative);
    let unreadable = |error: std::io::Error| {
        Refusal::new(format!("cannot list this folder of the package: {error}")).at(folder.display().to_string())
    };
    for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let inner = relative.join(entry.file_name());
        if is_left_out(root, &inner, targets) {
            continue;
        }
        if entry.file_type().map_err(unreadable)?.is_dir() {
            walk(root, &inner, targets, files)?;
        } else {
            files.insert(inner.into_os_string());
        }
    }
    Ok(())
}

fn is_left_out(root: &Path, relative: &Path, targets: &Targets) -> bool {
    let never = |part: Component<'_>| NEVER.iter().any(|name| part.as_os_str() == OsStr::new(name));
    relative.components().any(never) || targets.hold(root, relative)
}

/// The folders that the policy names as targets.
struct Targets {
    source: Option<PathBuf>,
}

impl Targets {
    /// A source outside the package, or the package itself, takes nothing out of it.
    fn of(source: &Utf8Path) -> Self {
        let mut plain = Utf8PathBuf::new();
        for part in source.components() {
            match part {
                camino::Utf8Component::Normal(name) => plain.push(name),
                camino::Utf8Component::CurDir => {}
                _ => return Self { source: None },
            }
        }
        Self { source: Some(plain.into_std_path_buf()).filter(|path| !path.as_os_str().is_empty()) }
    }

    fn hold(&self, root: &Path, relative: &Path) -> bool {
        let Some(source) = &self.source else { return false };
        if relative.starts_with(source) {
            return true;
        }
        let Ok(below) = relative.strip_prefix(source.parent().unwrap_or(Path::new(""))) else { return false };
        let Some(first) = below.components().next() else { return false };
        // A file of that name is the package's: only a folder can be a target.
        let sibling = source.with_file_name(first.as_os_str());
        first.as_os_str().as_bytes().starts_with(b"target-")
            && (below.components().count() > 1 || root.join(sibling).is_dir())
    }
}

/// What git tracks or would track below `folder`, relative to it; none where git knows no repository there.
fn from_git(folder: &Path) -> Result<Option<Vec<OsString>>, Refusal> {
    let list = || Repository::find(folder, &Interrupt::never())?.map(|repository| repository.listed()).transpose();
    list().map_err(|error| match error.downcast::<Refusal>() {
        Ok(refusal) => refusal,
        Err(error) => Refusal::new(format!("{error:#}")),
    })
}
