//! An evaluation package as it lies on disk: its files, its digest, its lock, and whether it is trusted. Reads files and
//! asks git for a list; never runs anything of the package.
//!
//! Invariant: every file that the policy names inside the package is covered by the digest, or the package is refused.

use crate::evaluation::listing;
use crate::evaluation::lock::{self, LockRecord};
use crate::exit::Refusal;
use crate::ids::Digest;
use crate::policy::{Policy, Upstream};
use camino::{Utf8Path, Utf8PathBuf};
use sha2::{Digest as _, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What a digest of this form begins with: another form is another digest.
const FORM: &[u8] = b"crashlab.package/1\n";

/// An evaluation package that was read and digested.
#[derive(Debug, Clone)]
pub struct Package {
    /// Its folder: absolute, without links.
    pub root: Utf8PathBuf,
    /// What the digest covers, in the order of the bytes of the paths.
    pub files: Vec<PackageFile>,
    /// Over path, kind and content of each file.
    pub digest: Digest,
    /// The dependency lock that the policy names.
    pub lock: Option<LockRecord>,
    /// Whether a dependency lock is kept with the run (T3).
    pub reproducible: bool,
}

/// One file that the digest covers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PackageFile {
    /// Relative to the package; bytes that are not UTF-8 are shown as `�`.
    pub path: Utf8PathBuf,
    /// Bytes; of a link, the length of where it points.
    pub size: u64,
    /// Of its content; of a link, of where it points.
    pub sha256: Digest,
}

/// What the user said about trusting a package's code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Nothing.
    No,
    /// `--trust-evaluation-code`: as it is now.
    Yes,
    /// `--trust-evaluation-code=sha256:…`: only as it was reviewed.
    Pinned(Digest),
}

impl Trust {
    /// From the flag: absent, empty, or a digest.
    ///
    /// # Errors
    /// Where the value is no digest.
    pub fn from_flag(flag: Option<&str>) -> Result<Self, Refusal> {
        match flag {
            None => Ok(Trust::No),
            Some("") => Ok(Trust::Yes),
            Some(text) => Digest::try_from(text.to_owned()).map(Trust::Pinned).map_err(|error| {
                Refusal::new(format!("{error:#}"))
                    .at("--trust-evaluation-code")
                    .hint("paste the digest that `crashlab check` prints")
            }),
        }
    }
}

/// Reads a package: lists its files, digests them, and looks at its lock.
///
/// # Errors
/// Where a file cannot be read or is no file, a link leaves the package, the policy names a file that is missing or that
/// the digest would not cover, or the lock pins nothing.
pub fn open(root: &Utf8Path, policy: &Policy) -> Result<Package, Refusal> {
    let root = root
        .canonicalize_utf8()
        .map_err(|error| Refusal::new(format!("cannot open the evaluation package: {error}")).at(root.as_str()))?;
    let paths = listing::files(&root, &policy.target.source)?;
    let mut hasher = Sha256::new();
    hasher.update(FORM);
    let mut files = Vec::with_capacity(paths.len());
    for path in &paths {
        let (kind, file) = examine(&root, path)?;
        for part in [path.as_bytes(), kind, file.sha256.as_str().as_bytes()] {
            hasher.update(part);
            hasher.update(b"\0");
        }
        files.push(file);
    }
    let digest = Digest::from_hash(hasher.finalize().as_slice());
    for named in named_files(&root, policy) {
        require_covered(&files, &named)?;
    }
    let lock = policy.evaluation.lock.as_deref().map(|path| lock::read(&root, path)).transpose()?;
    Ok(Package { root, files, digest, reproducible: lock.is_some(), lock })
}

/// Kind (`file`, `program`, `link`) and content digest of one listed path.
fn examine(root: &Utf8Path, relative: &OsStr) -> Result<(&'static [u8], PackageFile), Refusal> {
    let path = root.as_std_path().join(relative);
    let shown = Utf8PathBuf::from(relative.to_string_lossy().into_owned());
    let refuse = |what: String| Refusal::new(what).at(shown.as_str());
    let unreadable = |error: std::io::Error| refuse(format!("cannot read this file of the package: {error}"));
    let about = std::fs::symlink_metadata(&path).map_err(unreadable)?;
    if about.is_symlink() {
        let to = std::fs::read_link(&path).map_err(unreadable)?;
        if leaves(Path::new(relative), &to) {
            return Err(refuse(format!("this link leaves the package (it points to {})", to.display()))
                .hint("copy what it points to into the package, so that the digest covers it"));
        }
        let bytes = to.as_os_str().as_bytes();
        return Ok((b"link", PackageFile { path: shown, size: bytes.len() as u64, sha256: Digest::of(bytes) }));
    }
    if !about.is_file() {
        return Err(refuse("this is neither a file, a link nor a folder".to_owned()).hint("take it out of the package"));
    }
    let kind: &[u8] = if about.permissions().mode() & 0o111 == 0 { b"file" } else { b"program" };
    let (size, sha256) = digest_of_file(&path).map_err(unreadable)?;
    Ok((kind, PackageFile { path: shown, size, sha256 }))
}

/// Whether a link at `from` (relative to the root) with this target points outside the root.
fn leaves(from: &Path, to: &Path) -> bool {
    use std::path::Component;
    let mut depth = from.components().count() - 1;
    for component in to.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::CurDir => {}
            _ => return true,
        }
    }
    false
}

/// Size and digest of a file's content, read in pieces.
pub(super) fn digest_of_file(path: &Path) -> std::io::Result<(u64, Digest)> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0_u8; 64 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((size, Digest::from_hash(hasher.finalize().as_slice()))),
            count => {
                hasher.update(&buffer[..count]);
                size += count as u64;
            }
        }
    }
}

/// The files inside the package that the policy names: itself, the cases, the lock, scripts of replies, and the arguments of
/// the evaluation's command that are files there.
fn named_files(root: &Utf8Path, policy: &Policy) -> Vec<Utf8PathBuf> {
    let mut named = vec![Utf8PathBuf::from("policy.json"), policy.cases.clone()];
    named.extend(policy.evaluation.lock.clone());
    named.extend(policy.evaluation.command.iter().map(Utf8PathBuf::from));
    named.extend(policy.gateways.values().filter_map(|rule| match &rule.upstream {
        Upstream::Script(file) => Some(file.clone()),
        Upstream::Origin(_) => None,
    }));
    named.retain(|path| path.is_relative() && root.join(path).is_file());
    named
}

/// What git ignores is not covered: where the policy names such a file, the digest would promise too much.
fn require_covered(files: &[PackageFile], named: &Utf8Path) -> Result<(), Refusal> {
    let plain: Utf8PathBuf = named.components().filter(|part| part.as_str() != ".").collect();
    if plain.components().any(|part| part.as_str() == "..") || files.iter().any(|file| file.path == plain) {
        return Ok(());
    }
    Err(Refusal::new("the policy names this file, and the package's digest does not cover it")
        .at(plain.as_str())
        .hint("git ignores it, or it lies in a folder that is never part of a package: move it, or track it"))
}

/// Passes only a package whose code may run on this host (T1, T2).
///
/// # Errors
/// Without trust, and where the digest is not the one that was reviewed. Says what would run, where, the digest, and the
/// flag to paste.
pub fn require_trust(package: &Package, policy: &Policy, trust: &Trust) -> Result<(), Refusal> {
    let flag = format!("--trust-evaluation-code={}", package.digest);
    let what = format!(
        "would run: {}\n  in folder: {}\n  digest: {} ({} files)",
        shell_words(&policy.evaluation.command),
        package.root,
        package.digest,
        package.files.len()
    );
    match trust {
        Trust::Yes => Ok(()),
        Trust::Pinned(digest) if *digest == package.digest => Ok(()),
        Trust::No => Err(Refusal::new(format!("the package's code is not trusted to run on this host\n  {what}"))
            .at(package.root.as_str())
            .hint(format!("review the package (it runs with your rights, outside the sandbox), then pass {flag}"))),
        Trust::Pinned(digest) => {
            Err(Refusal::new(format!("the package is not the one that was reviewed\n  reviewed: {digest}\n  {what}"))
                .at("--trust-evaluation-code")
                .hint(format!("review what changed, then pass {flag}")))
        }
    }
}

/// Words as a shell would take them, for people.
fn shell_words(words: &[String]) -> String {
    let plain =
        |word: &&str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&b));
    let quote = |word: &String| match Some(word.as_str()).filter(plain) {
        Some(word) => word.to_owned(),
        None => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}
