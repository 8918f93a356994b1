//! Which files look like `.env`, what git makes of them, and who may read them: by name and mode, never by content (S4, S8).
//! git is asked as a snapshot asks it, which runs nothing of the repository's choosing.

use crate::exit::Refusal;
use crate::interrupt::Interrupt;
use crate::snapshot::git::Repository;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

/// Folders that are passed over: git's own, and what package managers fill.
const PASSED_OVER: [&str; 5] = [".git", ".venv", "node_modules", "__pycache__", ".crashlabs"];
/// Names that hold placeholders only.
const PLACEHOLDERS: [&str; 4] = ["example", "sample", "template", "dist"];
/// Deeper, and beyond so many entries, nobody keeps a .env; the search ends rather than the patience.
const DEEPEST: usize = 8;
const MOST_ENTRIES: usize = 50_000;

/// A file that looks like `.env`.
#[derive(Debug, Serialize)]
pub(super) struct EnvFile {
    pub(super) path: Utf8PathBuf,
    pub(super) git: Known,
    /// Whether others than its owner may read it.
    pub(super) readable_by_others: bool,
}

/// What git makes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Known {
    /// Out of a snapshot.
    Ignored,
    /// In a snapshot, whatever `.gitignore` says.
    Tracked,
    /// Not ignored: in a snapshot.
    Untracked,
    /// Nothing ignores it.
    NoRepository,
}

impl EnvFile {
    /// What is wrong with it, and what to do.
    pub(super) fn warning(&self) -> Option<String> {
        let path = &self.path;
        match self.git {
            Known::Tracked => Some(format!(
                "{path} is tracked by git: a snapshot of its folder holds it; git rm --cached it, take it out of the history, rotate its keys"
            )),
            Known::Untracked => {
                Some(format!("{path} is not ignored: a snapshot of its folder holds it; add it to .gitignore"))
            }
            Known::NoRepository => {
                Some(format!("{path} lies in no git repository: nothing keeps it out of a snapshot"))
            }
            Known::Ignored if self.readable_by_others => {
                Some(format!("{path} can be read by other users of this machine: chmod 600 it"))
            }
            Known::Ignored => None,
        }
    }
}

/// The files that look like `.env` below these folders, each once.
pub(super) fn find(folders: &[Utf8PathBuf]) -> Result<Vec<EnvFile>, Refusal> {
    let mut found: BTreeMap<Utf8PathBuf, EnvFile> = BTreeMap::new();
    for folder in folders {
        let folder = folder.canonicalize_utf8().unwrap_or_else(|_| folder.clone());
        let (mut paths, mut seen) = (Vec::new(), 0);
        walk(&folder, 0, &mut seen, &mut paths);
        for path in paths {
            if let Some(file) = examine(&path)? {
                found.insert(path, file);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn walk(folder: &Utf8Path, depth: usize, seen: &mut usize, paths: &mut Vec<Utf8PathBuf>) {
    // A folder that cannot be listed is told by whoever needs it; here it only holds nothing.
    let Ok(entries) = folder.read_dir_utf8() else { return };
    for entry in entries.flatten() {
        *seen += 1;
        let Ok(kind) = entry.file_type() else { continue };
        if *seen > MOST_ENTRIES {
            return;
        }
        if kind.is_dir() && depth < DEEPEST && !PASSED_OVER.contains(&entry.file_name()) {
            walk(entry.path(), depth + 1, seen, paths);
        } else if !kind.is_dir() && looks_like_env(entry.file_name()) {
            paths.push(entry.path().to_owned());
        }
    }
}

fn looks_like_env(name: &str) -> bool {
    let variant =
        name.strip_prefix(".env.").is_some_and(|rest| !rest.split('.').any(|part| PLACEHOLDERS.contains(&part)));
    name == ".env" || variant || (name.ends_with(".env") && !PLACEHOLDERS.iter().any(|word| name.starts_with(word)))
}

fn examine(path: &Utf8Path) -> Result<Option<EnvFile>, Refusal> {
    let Ok(about) = path.symlink_metadata() else { return Ok(None) };
    let readable_by_others = about.permissions().mode() & 0o044 != 0;
    Ok(Some(EnvFile { path: path.to_owned(), git: known(path)?, readable_by_others }))
}

fn known(path: &Utf8Path) -> Result<Known, Refusal> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Known::NoRepository) };
    let cannot = |error: anyhow::Error| {
        error.downcast().unwrap_or_else(|error| Refusal::new(format!("cannot ask git about {path}: {error:#}")))
    };
    let repository = Repository::find(folder.as_std_path(), &Interrupt::never()).map_err(cannot)?;
    let Some(repository) = repository else { return Ok(Known::NoRepository) };
    let list = repository.listed_as(name).map_err(cannot)?;
    Ok(match list.first() {
        None => Known::Ignored,
        Some(b'?') => Known::Untracked,
        Some(_) => Known::Tracked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_looks_like_env_unless_it_says_that_it_holds_placeholders() {
        for name in [".env", ".env.local", ".env.production.local", "prod.env"] {
            assert!(looks_like_env(name), "{name}");
        }
        for name in
            [".env.example", ".env.sample", ".env.local.template", "example.env", ".environment", "env", "environ.py"]
        {
            assert!(!looks_like_env(name), "{name}");
        }
    }
}
