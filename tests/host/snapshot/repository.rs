//! A repository to take snapshots of, made with plain git; and what a snapshot of it holds.

use camino::{Utf8Path, Utf8PathBuf};
use crashlab::exit::Refusal;
use crashlab::interrupt::Interrupt;
use crashlab::policy::SnapshotLimits;
use crashlab::snapshot::{self, Snapshot, Source};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Far above what a test writes.
pub const WIDE: SnapshotLimits = SnapshotLimits { files: 100_000, bytes: 1 << 30, file: 256 << 20 };

/// A folder with a repository in `work`; what is beside it is outside.
pub struct Repository {
    /// Everything.
    pub outside: Utf8PathBuf,
    /// The working tree.
    pub root: Utf8PathBuf,
    _keep: tempfile::TempDir,
}

/// What lies at a path: `file`, `exec` or `link`, and the content or target.
pub type Laid = BTreeMap<Vec<u8>, (&'static str, Vec<u8>)>;

impl Repository {
    /// An empty one.
    pub fn new() -> Self {
        let made = Self::none();
        made.git(&["init", "-q", "-b", "main", "."]);
        made
    }

    /// The folder without a repository.
    pub fn none() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let outside = Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap()).unwrap();
        let root = outside.join("work");
        std::fs::create_dir(&root).unwrap();
        Self { outside, root, _keep: keep }
    }

    /// Plain git in the working tree; its output.
    pub fn git(&self, args: &[&str]) -> Vec<u8> {
        git_in(self.root.as_std_path(), args)
    }

    /// Writes a file, with its folders.
    pub fn write(&self, path: impl AsRef<OsStr>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.as_std_path().join(path.as_ref());
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Stages and commits everything.
    pub fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "a commit"]);
    }

    /// A snapshot of the whole.
    pub fn take(&self) -> Taken {
        self.taken(&self.root, &["**"], WIDE).unwrap()
    }

    /// The refusal of a snapshot of the whole.
    pub fn refusal(&self) -> Refusal {
        refusal(self.taken(&self.root, &["**"], WIDE))
    }

    /// A snapshot of a folder of it, below its own private folder.
    pub fn taken(&self, source: &Utf8Path, globs: &[&str], limits: SnapshotLimits) -> anyhow::Result<Taken> {
        self.taken_beside(None, source, globs, limits)
    }

    /// The same, where the evaluation package is known.
    pub fn taken_beside(
        &self,
        package: Option<&Utf8Path>,
        source: &Utf8Path,
        globs: &[&str],
        limits: SnapshotLimits,
    ) -> anyhow::Result<Taken> {
        let keep = tempfile::tempdir().unwrap();
        std::fs::set_permissions(keep.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let into = Utf8PathBuf::from_path_buf(keep.path().to_owned()).unwrap();
        let files: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        let snapshot = snapshot::take(
            &Source { source, package, results: None, files: &files, limits },
            &into,
            &Interrupt::never(),
        )?;
        Ok(Taken { snapshot, _keep: keep })
    }
}

/// Plain git, with a user of its own and none of the host's configuration.
pub fn git_in(folder: &Path, args: &[&str]) -> Vec<u8> {
    let output = git_command(folder, args).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The command of `git_in`, to be run as the test wants.
pub fn git_command(folder: &Path, args: &[&str]) -> assert_cmd::Command {
    let mut git = assert_cmd::Command::new("git");
    git.current_dir(folder).args(args);
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "a"),
        ("GIT_AUTHOR_EMAIL", "a@example.com"),
        ("GIT_COMMITTER_NAME", "a"),
        ("GIT_COMMITTER_EMAIL", "a@example.com"),
    ] {
        git.env(name, value);
    }
    git
}

/// The refusal of what must not be taken.
pub fn refusal(taken: anyhow::Result<Taken>) -> Refusal {
    match taken {
        Ok(taken) => panic!("taken: {:?}", taken.snapshot.manifest),
        Err(error) => error.downcast::<Refusal>().unwrap(),
    }
}

/// A snapshot and the folder that holds it.
pub struct Taken {
    /// What `take` said.
    pub snapshot: Snapshot,
    _keep: tempfile::TempDir,
}

impl std::ops::Deref for Taken {
    type Target = Snapshot;

    fn deref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl Taken {
    /// What really lies there.
    pub fn laid(&self) -> Laid {
        laid(self.folder.as_std_path())
    }

    /// The paths that really lie there, as text.
    pub fn names(&self) -> Vec<String> {
        self.laid().keys().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    /// All warnings as one text.
    pub fn warned(&self) -> String {
        self.warnings.join("\n")
    }
}

/// Every file and link below a folder; anything else is named `special`.
pub fn laid(root: &Path) -> Laid {
    let mut all = Laid::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let about = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let entry = if about.is_dir() {
                folders.push(path);
                continue;
            } else if about.is_symlink() {
                ("link", path.read_link().unwrap().as_os_str().as_bytes().to_vec())
            } else if !about.is_file() {
                ("special", Vec::new())
            } else if about.permissions().mode() & 0o111 != 0 {
                ("exec", std::fs::read(&path).unwrap())
            } else {
                ("file", std::fs::read(&path).unwrap())
            };
            all.insert(name, entry);
        }
    }
    all
}
