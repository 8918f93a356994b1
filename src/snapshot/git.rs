//! Asking git about a repository that nobody trusts yet. Owns the environment and the settings under which git runs;
//! interprets no answer.
//!
//! Invariant: no question makes git start a program, read a file's content, or write. Only `rev-parse`, `config`,
//! `ls-files` and `ls-tree` are asked; whatever needs a filter, a diff driver, a hook or a remote is not.

use super::names::shown;
use crate::exit::Refusal;
use crate::interrupt::Interrupt;
use crate::process::{Bounds, Environment, Finished, ProcessError, Program};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A list of files takes moments; a file system that hangs is told.
const TIME: Duration = Duration::from_secs(300);
/// What a list may take: more than a million paths.
const OUTPUT: usize = 512 << 20;

/// Settings that stand over those of the repository. Each could start a program, reach a remote or leave something behind;
/// for none of today's questions does git look at more than the first two, the others are a second line.
const SETTINGS: [&str; 9] = [
    "core.fsmonitor=false",          // a command, or a daemon, at each reading of the index
    "core.hooksPath=/dev/null",      // post-index-change and its like
    "core.untrackedCache=false",     // a cache that would be written into the index
    "core.attributesFile=/dev/null", // names filters; none is asked for, so none needs to be known
    "core.sshCommand=false",         // a fetch that no protocol's rule has stopped
    "core.askPass=",                 // a program that is asked for a password
    "credential.helper=",            // another; the empty one takes back all before it
    "submodule.recurse=false",       // a submodule is asked by itself
    "maintenance.auto=false",        // work of its own after a command that writes
];

/// A repository, asked about one folder of it.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    /// The top of the working tree.
    top: PathBuf,
    /// What the answers are about: their paths are relative to it.
    folder: PathBuf,
    /// The index that git would read.
    pub(super) index: PathBuf,
    stop: Interrupt,
}

impl Repository {
    /// The repository that holds `folder` (absolute, without links).
    ///
    /// The search is ours and git is told the result: the repository's own `core.worktree` and `core.bare` then count for
    /// nothing, and neither does whose repository it is.
    pub(crate) fn find(folder: &Path, stop: &Interrupt) -> Result<Option<Self>> {
        for top in folder.ancestors() {
            if top.join(".git").symlink_metadata().is_err() {
                continue;
            }
            if let Some(found) = Self::open(top, folder, stop)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The repository whose working tree begins at `top`; none where git sees none there.
    pub(super) fn open(top: &Path, folder: &Path, stop: &Interrupt) -> Result<Option<Self>> {
        let mut found =
            Self { top: top.to_owned(), folder: folder.to_owned(), index: PathBuf::new(), stop: stop.clone() };
        let answer = found.run(&["rev-parse", "--git-path", "index"])?;
        if !answer.status.success() {
            let complaint = answer.complaint();
            if complaint.contains("not a git repository") {
                return Ok(None);
            }
            return Err(found.refused(&complaint).into());
        }
        let path = answer.stdout.strip_suffix(b"\n").unwrap_or(&answer.stdout);
        found.index = folder.join(OsString::from_vec(path.to_vec()));
        Ok(Some(found))
    }

    /// The commit of HEAD; none before the first one.
    pub(super) fn head(&self) -> Result<Option<String>> {
        let answer = self.run(&["rev-parse", "--quiet", "--verify", "HEAD^{commit}"])?;
        let text = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
        Ok(Some(text).filter(|text| answer.status.success() && !text.is_empty()))
    }

    /// The index, with the stat data that it keeps.
    pub(super) fn tracked(&self) -> Result<Vec<u8>> {
        self.ask(&["ls-files", "-z", "--cached", "--stage", "-t", "--debug"])
    }

    /// What is neither tracked nor ignored; and what git says meanwhile: a folder that it cannot open is a warning to it,
    /// no error, and what is in there is missing from the list.
    pub(super) fn untracked(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let answer = self.answer(&["ls-files", "-z", "--others", "--exclude-standard"])?;
        Ok((answer.stdout, answer.stderr))
    }

    /// What git tracks or would track below the folder, each path once.
    pub(crate) fn listed(&self) -> Result<Vec<OsString>> {
        let list = self.ask(&["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"])?;
        let paths = list.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| OsString::from_vec(path.to_vec())).collect())
    }

    /// How git lists one file of the folder, with its status tag; nothing where it ignores it.
    pub(crate) fn listed_as(&self, name: &str) -> Result<Vec<u8>> {
        let literal = format!(":(literal){name}");
        self.ask(&["ls-files", "-z", "-t", "--cached", "--others", "--exclude-standard", "--", &literal])
    }

    /// The commit's files below the folder; an error text where git cannot read its trees.
    pub(super) fn committed(&self, commit: &str) -> Result<Result<Vec<u8>, String>> {
        let answer = self.run(&["ls-tree", "-r", "-z", commit])?;
        Ok(if answer.status.success() { Ok(answer.stdout) } else { Err(shown(answer.complaint().as_bytes())) })
    }

    /// Whether modes and links of this working tree mean something (`core.fileMode`, `core.symlinks`).
    pub(super) fn means(&self) -> Result<(bool, bool)> {
        let answer = self.run(&["config", "-z", "--type=bool", "--get-regexp", r"^core\.(filemode|symlinks)$"])?.stdout;
        let last = |name: &str| {
            let of = |entry: &[u8]| entry.strip_prefix(name.as_bytes()).map(|value| value != b"\nfalse");
            answer.split(|byte| *byte == 0).filter_map(of).next_back().unwrap_or(true)
        };
        Ok((last("core.filemode"), last("core.symlinks")))
    }

    fn ask(&self, args: &[&str]) -> Result<Vec<u8>> {
        Ok(self.answer(args)?.stdout)
    }

    fn answer(&self, args: &[&str]) -> Result<Finished> {
        let answer = self.run(args)?;
        if answer.status.success() { Ok(answer) } else { Err(self.refused(&answer.complaint()).into()) }
    }

    fn refused(&self, complaint: &str) -> Refusal {
        Refusal::new(format!("git cannot list the files: {}", shown(complaint.as_bytes())))
            .at(shown(self.folder.as_os_str().as_bytes()))
    }

    fn run(&self, args: &[&str]) -> Result<Finished> {
        let mut bounds = Bounds::time(TIME).stopped_by(&self.stop);
        bounds.output = OUTPUT;
        match self.program(args).run(&bounds) {
            Ok(finished) => Ok(finished),
            Err(error @ ProcessError::NotStarted { .. }) => {
                Err(Refusal::new(error.to_string()).hint("snapshots need git 2.35 or later").into())
            }
            Err(ProcessError::Stopped { .. }) => bail!("the snapshot was interrupted"),
            Err(error) => {
                Err(error).with_context(|| format!("cannot list {}", shown(self.folder.as_os_str().as_bytes())))
            }
        }
    }

    fn program(&self, args: &[&str]) -> Program {
        let mut program = Program::new("git", environment(&self.top));
        for setting in SETTINGS {
            program = program.arg("-c").arg(setting);
        }
        // Started in `/`: a relative entry of PATH must not find a program of the repository.
        program.args(["--no-pager", "-C"]).arg(&self.folder).args(args.iter().copied()).folder("/")
    }
}

/// The whole environment of git. HOME and XDG_CONFIG_HOME find the user's own ignore rules; no GIT_* of the host enters.
///
/// A partial clone fetches what is missing: GIT_NO_LAZY_FETCH says not to begin, where git knows it; GIT_ALLOW_PROTOCOL,
/// which no setting of the repository can widen, says that there is no way to. Nobody answers a prompt. The machine's own
/// attributes are left out like the repository's, and messages are those that are compared here, also where a system takes
/// the language from elsewhere than LANG.
fn environment(top: &Path) -> Environment {
    Environment::only(&["PATH", "HOME", "XDG_CONFIG_HOME"])
        .with("LC_ALL", "C")
        .with("GIT_DIR", top.join(".git"))
        .with("GIT_WORK_TREE", OsStr::new(top))
        .with("GIT_OPTIONAL_LOCKS", "0")
        .with("GIT_NO_LAZY_FETCH", "1")
        .with("GIT_NO_REPLACE_OBJECTS", "1")
        .with("GIT_ALLOW_PROTOCOL", "none")
        .with("GIT_TERMINAL_PROMPT", "0")
        .with("GIT_ATTR_NOSYSTEM", "1")
}

#[cfg(test)]
mod tests;
