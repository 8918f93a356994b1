//! A private folder, held by its descriptor. Owns how results touch the disk: folders 0700 and files 0600 from the moment
//! that they exist, every name one segment, no link ever followed, a file replaced whole or not at all. Knows no format.
//!
//! A results folder may lie in a repository that somebody else prepared: a planted link must lead nowhere (F5).

use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

const PRIVATE_FOLDER: Mode = Mode::RWXU;
const PRIVATE_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How deep a removal goes: planted folders must not exhaust the stack or the descriptors.
const DEEPEST: usize = 100;

/// A folder of stored results.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// One segment.
    pub name: OsString,
    /// What it is; a link is a link.
    pub kind: EntryKind,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A link, a pipe, a socket, a device.
    Other,
}

impl Folder {
    /// Opens a folder; its parents may be links, it may not.
    ///
    /// # Errors
    /// Where it is missing, no folder, or a link.
    pub fn open(path: &Utf8Path) -> Result<Self> {
        // Of a path that ends in a slash the system follows the link.
        let path: Utf8PathBuf = path.components().collect();
        let fd = rustix::fs::openat(CWD, path.as_std_path(), FOLDER, Mode::empty())
            .map_err(explain)
            .with_context(|| format!("failed to open the folder {path}"))?;
        Ok(Self { fd, path: path.as_std_path().to_owned() })
    }

    /// Makes a folder (its parents too, as private) or opens the one that is there; says which.
    ///
    /// # Errors
    /// Where it cannot be made, or a link or a file has its name.
    pub fn make_at(path: &Utf8Path) -> Result<(Self, bool)> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_str().is_empty()) {
            use std::os::unix::fs::DirBuilderExt as _;
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(parent);
            made.with_context(|| format!("failed to make the folder {parent}"))?;
        }
        let made = match rustix::fs::mkdirat(CWD, path.as_std_path(), PRIVATE_FOLDER) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error).with_context(|| format!("failed to make the folder {path}")),
        };
        Ok((Self::open(path)?, made))
    }

    /// Where it is, for messages and for rooms that keep files of their own in it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path as text; what is not UTF-8 is replaced.
    pub fn shown(&self) -> Utf8PathBuf {
        Utf8PathBuf::from(self.path.to_string_lossy().into_owned())
    }

    fn below(&self, name: &OsStr) -> String {
        self.path.join(name).display().to_string()
    }

    /// Opens a folder in it.
    ///
    /// # Errors
    /// Where it is missing, no folder, or a link.
    pub fn folder(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = segment(name.as_ref())?;
        let fd = rustix::fs::openat(&self.fd, name, FOLDER, Mode::empty())
            .map_err(explain)
            .with_context(|| format!("failed to open the folder {}", self.below(name)))?;
        Ok(Self { fd, path: self.path.join(name) })
    }

    /// Makes a new folder in it.
    ///
    /// # Errors
    /// Where the name is taken.
    pub fn make(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = segment(name.as_ref())?;
        rustix::fs::mkdirat(&self.fd, name, PRIVATE_FOLDER)
            .with_context(|| format!("failed to make the folder {}", self.below(name)))?;
        self.folder(name)
    }

    /// Makes a folder in it, or opens the one that is there.
    ///
    /// # Errors
    /// Where a link or a file has its name.
    pub fn make_or_open(&self, name: impl AsRef<OsStr>) -> Result<Self> {
        let name = segment(name.as_ref())?;
        match rustix::fs::mkdirat(&self.fd, name, PRIVATE_FOLDER) {
            Ok(()) | Err(Errno::EXIST) => self.folder(name),
            Err(error) => Err(error).with_context(|| format!("failed to make the folder {}", self.below(name))),
        }
    }

    /// Creates a new file in it.
    ///
    /// # Errors
    /// Where the name is taken, by a link too.
    pub fn create(&self, name: impl AsRef<OsStr>) -> Result<File> {
        let name = segment(name.as_ref())?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, name, flags, PRIVATE_FILE)
            .with_context(|| format!("failed to create {}", self.below(name)))?;
        Ok(File::from(fd))
    }

    /// Writes a new file.
    ///
    /// # Errors
    /// Where the name is taken or the disk refuses.
    pub fn write_new(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<()> {
        let name = name.as_ref();
        let mut file = self.create(name)?;
        file.write_all(bytes).with_context(|| format!("failed to write {}", self.below(name)))
    }

    /// Puts a file in the place of another, or of none: a reader sees the one or the other whole, also after a power cut.
    /// A link of that name is replaced, not followed.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> Result<()> {
        let name = segment(name.as_ref())?;
        let mut passing = OsString::from(".");
        passing.push(name);
        passing.push(format!(".{}", random()?));
        let written = self.create(&passing).and_then(|mut file| {
            file.write_all(bytes)
                .and_then(|()| file.sync_all())
                .with_context(|| format!("failed to write {}", self.below(name)))
        });
        let placed = written.and_then(|()| {
            rustix::fs::renameat(&self.fd, &passing, &self.fd, name)
                .with_context(|| format!("failed to replace {}", self.below(name)))
        });
        if placed.is_err() {
            let _ = rustix::fs::unlinkat(&self.fd, &passing, AtFlags::empty());
        }
        placed?;
        rustix::fs::fsync(&self.fd).with_context(|| format!("failed to flush {}", self.path.display()))
    }

    /// Moves an entry into another folder, where the name must be free.
    ///
    /// # Errors
    /// Where the name is taken or the disk refuses.
    pub fn hand_over(&self, name: &OsStr, to: &Self) -> Result<()> {
        let name = segment(name)?;
        if rustix::fs::statat(&to.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            bail!("failed to move {}: {} exists", self.below(name), to.below(name));
        }
        rustix::fs::renameat(&self.fd, name, &to.fd, name)
            .with_context(|| format!("failed to move {}", self.below(name)))
    }

    /// Whether nothing has this name.
    ///
    /// # Errors
    /// Where the name is no segment, or the folder cannot be looked at.
    pub fn is_missing(&self, name: impl AsRef<OsStr>) -> Result<bool> {
        let name = segment(name.as_ref())?;
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(false),
            Err(Errno::NOENT) => Ok(true),
            Err(error) => Err(error).with_context(|| format!("failed to look at {}", self.below(name))),
        }
    }

    /// Opens a regular file for reading, with its size; none where there is none.
    ///
    /// # Errors
    /// Where it is a link, or no regular file.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> Result<Option<(File, u64)>> {
        let name = segment(name.as_ref())?;
        // NONBLOCK: opening a pipe that somebody planted must not wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(explain),
        };
        let file = File::from(opened.with_context(|| format!("failed to open {}", self.below(name)))?);
        let about = file.metadata().with_context(|| format!("failed to look at {}", self.below(name)))?;
        if !about.is_file() {
            bail!("{} is no regular file", self.below(name));
        }
        Ok(Some((file, about.len())))
    }

    /// Reads a regular file of at most `limit` bytes; none where there is none.
    ///
    /// # Errors
    /// Where it is a link, no regular file, or larger.
    pub fn read(&self, name: impl AsRef<OsStr>, limit: u64) -> Result<Option<Vec<u8>>> {
        let name = name.as_ref();
        let Some((file, size)) = self.open_file(name)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or_default());
        let read = file.take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.with_context(|| format!("failed to read {}", self.below(name)))?;
        if bytes.len() as u64 > limit {
            bail!("{} is larger than {limit} bytes", self.below(name));
        }
        Ok(Some(bytes))
    }

    /// What is in it, in the order of the names' bytes.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let listing = || format!("failed to list {}", self.path.display());
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.fd).with_context(listing)? {
            let entry = entry.with_context(listing)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                let kind = self.kind(&name, entry.file_type());
                entries.push(Entry { name, kind });
            }
        }
        entries.sort();
        Ok(entries)
    }

    fn kind(&self, name: &OsStr, listed: FileType) -> EntryKind {
        // Some file systems list no types.
        let kind = match listed {
            FileType::Unknown => rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |about| FileType::from_raw_mode(about.st_mode)),
            known => known,
        };
        match kind {
            FileType::Directory => EntryKind::Folder,
            FileType::RegularFile => EntryKind::File,
            _ => EntryKind::Other,
        }
    }

    /// Removes an entry and all below it. A link is removed, what it leads to is not.
    ///
    /// # Errors
    /// What could not be removed first.
    pub fn remove(&self, name: &OsStr) -> Result<()> {
        self.remove_below(name, 0)
    }

    fn remove_below(&self, name: &OsStr, depth: usize) -> Result<()> {
        let name = segment(name)?;
        let removing = || format!("failed to remove {}", self.below(name));
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error).with_context(removing),
        }
        if depth > DEEPEST {
            bail!("failed to remove {}: it is nested deeper than anything of crashlab's", self.below(name));
        }
        let folder = self.folder(name)?;
        for entry in folder.entries()? {
            folder.remove_below(&entry.name, depth + 1)?;
        }
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR).with_context(removing)
    }

    /// Another handle on the same folder.
    ///
    /// # Errors
    /// Where the process has no descriptor left.
    pub fn again(&self) -> Result<Self> {
        let fd =
            self.fd.as_fd().try_clone_to_owned().with_context(|| format!("failed to hold {}", self.path.display()))?;
        Ok(Self { fd, path: self.path.clone() })
    }
}

/// A name that cannot leave its folder.
fn segment(name: &OsStr) -> Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') || bytes.contains(&0) {
        bail!("{name:?} is no name of a file in a folder of results");
    }
    Ok(name)
}

/// The system's words for a link that is not followed ("too many levels of symbolic links") mislead.
fn explain(error: Errno) -> anyhow::Error {
    match error {
        Errno::LOOP => anyhow::anyhow!("it is a symbolic link, which is not followed here"),
        Errno::NOTDIR => anyhow::anyhow!("it is no folder (a symbolic link is not followed here)"),
        error => anyhow::Error::new(error),
    }
}

fn random() -> Result<String> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).context("failed to read random bytes")?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn scratch() -> (tempfile::TempDir, Folder) {
        let scratch = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(scratch.path()).unwrap().join("results");
        let (folder, made) = Folder::make_at(&path).unwrap();
        assert!(made);
        (scratch, folder)
    }

    #[test]
    fn no_planted_link_is_followed() {
        let (scratch, folder) = scratch();
        let outside = scratch.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), "host").unwrap();
        for (name, to) in [("folder", outside.clone()), ("file", outside.join("secret")), ("new", outside.join("new"))]
        {
            symlink(to, folder.path().join(name)).unwrap();
        }
        assert!(folder.folder("folder").is_err());
        assert!(folder.make_or_open("folder").is_err());
        assert!(folder.create("new").is_err());
        let error = format!("{:#}", folder.read("file", 100).unwrap_err());
        assert!(error.contains("symbolic link"), "{error}");
        for end in ["", "/", "/.", "//"] {
            let path = format!("{}/folder{end}", folder.path().display());
            assert!(Folder::make_at(Utf8Path::new(&path)).is_err(), "{path}");
        }

        folder.replace("file", b"ours").unwrap();
        folder.remove(OsStr::new("folder")).unwrap();
        assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"host");
        assert_eq!(folder.read("file", 100).unwrap().unwrap(), b"ours");
        assert!(!outside.join("new").exists());
    }

    #[test]
    fn what_is_nested_without_end_is_not_removed_and_does_no_harm() {
        let (_scratch, folder) = scratch();
        let deep: PathBuf = std::iter::repeat_n("a", 400).collect();
        std::fs::create_dir_all(folder.path().join(&deep)).unwrap();
        let error = folder.remove(OsStr::new("a")).unwrap_err().to_string();
        assert!(error.contains("deeper"), "{error}");
        folder.make("b").unwrap().make("c").unwrap().write_new("f", b"x").unwrap();
        folder.remove(OsStr::new("b")).unwrap();
        assert!(folder.is_missing("b").unwrap());
    }

    #[test]
    fn a_name_cannot_leave_its_folder() {
        let (_scratch, folder) = scratch();
        for name in ["", ".", "..", "a/b", "../x", "a\0b"] {
            assert!(folder.create(name).is_err() && folder.make(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_its_other_end() {
        let (_scratch, folder) = scratch();
        rustix::fs::mkfifoat(CWD, folder.path().join("pipe"), Mode::RWXU).unwrap();
        assert!(folder.read("pipe", 10).is_err());
        assert_eq!(folder.entries().unwrap()[0].kind, EntryKind::Other);
    }

    #[test]
    fn a_file_beyond_its_limit_is_refused_and_a_missing_one_is_none() {
        let (_scratch, folder) = scratch();
        folder.write_new("f", b"12345").unwrap();
        assert_eq!(folder.read("f", 5).unwrap().unwrap(), b"12345");
        assert!(folder.read("f", 4).is_err());
        assert_eq!(folder.read("g", 4).unwrap(), None);
        assert!(folder.write_new("f", b"again").is_err());
    }

    #[test]
    fn replacing_leaves_nothing_else_behind() {
        let (_scratch, folder) = scratch();
        folder.replace("run.json", b"1").unwrap();
        folder.replace("run.json", b"22").unwrap();
        let names: Vec<_> = folder.entries().unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["run.json"]);
        assert_eq!(folder.read("run.json", 10).unwrap().unwrap(), b"22");
    }
}
