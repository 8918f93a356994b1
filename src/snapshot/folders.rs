//! Folders of a tree, opened one component at a time from the tree's root and never through a link: a component that is
//! swapped for a link leads nowhere. Owns the open descriptors; knows nothing of git.

use camino::Utf8Path;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Levels that stay open; what is deeper is opened again each time, so that no depth uses up the descriptors.
const KEPT: usize = 12;

/// A tree with the folder that was used last still open: neighbours in a sorted list cost nothing.
#[derive(Debug)]
pub(super) struct Folders {
    root: OwnedFd,
    path: Vec<u8>,
    kept: Vec<OwnedFd>,
    deep: Option<OwnedFd>,
    /// Folders that are not there are made.
    make: bool,
}

impl Folders {
    /// An existing tree, to read. The root itself is opened without following a link.
    pub(super) fn to_read(root: &Utf8Path) -> Result<Self, Errno> {
        let root = rustix::fs::openat(CWD, root.as_std_path(), FOLDER, Mode::empty())?;
        Ok(Self { root, path: Vec::new(), kept: Vec::new(), deep: None, make: false })
    }

    /// A tree of ours: folders that are not there are made, readable by all.
    pub(super) fn to_write(root: &Utf8Path) -> Result<Self, Errno> {
        Ok(Self { make: true, ..Self::to_read(root)? })
    }

    /// The folder at a relative path (`/` between components, empty for the root).
    pub(super) fn at(&mut self, path: &[u8]) -> Result<BorrowedFd<'_>, Errno> {
        if self.path != path {
            self.go(path)?;
        }
        Ok(self.current())
    }

    fn go(&mut self, path: &[u8]) -> Result<(), Errno> {
        let wanted: Vec<&[u8]> = components(path).collect();
        let common = components(&self.path).zip(&wanted).take_while(|(have, want)| have == *want).count();
        self.kept.truncate(common);
        self.deep = None;
        let gone = wanted[self.kept.len()..].iter().try_for_each(|name| {
            let next = self.step(name)?;
            if self.kept.len() < KEPT {
                self.kept.push(next)
            } else {
                self.deep = Some(next)
            }
            Ok(())
        });
        if gone.is_err() {
            // The levels that were reached stay open, and the path says which.
            self.deep = None;
            self.path = wanted[..self.kept.len()].join(&b'/');
        } else {
            self.path = path.to_vec();
        }
        gone
    }

    fn step(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        if self.make {
            match rustix::fs::mkdirat(self.current(), name, Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let made = rustix::fs::openat(self.current(), name, FOLDER, Mode::empty())?;
                    // The umask may have taken bits away.
                    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
                    return Ok(made);
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        rustix::fs::openat(self.current(), name, FOLDER, Mode::empty())
    }

    fn current(&self) -> BorrowedFd<'_> {
        self.deep.as_ref().or(self.kept.last()).unwrap_or(&self.root).as_fd()
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !part.is_empty())
}

/// A path's folder (empty for the root) and its name.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::AtFlags;

    fn tree() -> (tempfile::TempDir, camino::Utf8PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let root = camino::Utf8PathBuf::from_path_buf(folder.path().canonicalize().unwrap()).unwrap();
        (folder, root)
    }

    fn inode(fd: BorrowedFd<'_>) -> u64 {
        rustix::fs::fstat(fd).unwrap().st_ino
    }

    #[test]
    fn each_folder_is_the_one_that_its_path_names_in_any_order_and_at_any_depth() {
        let (_keep, root) = tree();
        let deep = vec!["d"; 40].join("/");
        let paths = ["a", "a/b/c", "a/b", "", "x/y", "a/b/c", &deep, &deep[..60], "x", &deep];
        let mut write = Folders::to_write(&root).unwrap();
        let mut read = Folders::to_read(&root).unwrap();
        for path in paths {
            let made = inode(write.at(path.as_bytes()).unwrap());
            assert_eq!(made, inode(read.at(path.as_bytes()).unwrap()), "{path}");
            let real = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(root.join(path)).unwrap());
            assert_eq!(made, real, "{path}");
        }
    }

    #[test]
    fn a_component_that_is_a_link_leads_nowhere() {
        let (_keep, root) = tree();
        std::fs::create_dir_all(root.join("real/inner")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        let mut folders = Folders::to_read(&root).unwrap();
        for path in ["link", "link/inner", "link/inner", "real/inner/missing", "real/inner/missing"] {
            assert!(folders.at(path.as_bytes()).is_err(), "{path}");
        }
        // And a failure does not spoil what comes after it.
        let real = folders.at(b"real").unwrap();
        assert!(rustix::fs::statat(real, "inner", AtFlags::SYMLINK_NOFOLLOW).is_ok());
    }
}
