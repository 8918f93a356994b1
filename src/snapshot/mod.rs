//! The snapshot of the target's working tree: what git tracks and what it would track, narrowed by the policy, laid where
//! the sandbox can read it. Owns the order of the steps and what of them is kept with the run.
//!
//! The tree is hostile: nothing of it is executed, no link of it is followed, and nothing of it is written.

mod copy;
mod folders;
pub(crate) mod git;
mod index;
mod links;
mod listing;
mod manifest;
mod names;
mod scan;
mod select;

pub use manifest::{Entry, Kind};

use crate::exit::Refusal;
use crate::ids::Digest;
use crate::interrupt::Interrupt;
use crate::policy::SnapshotLimits;
use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use listing::Listing;
use names::some;
use scan::Scan;
use select::Selection;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};

/// What a snapshot is taken of.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The target's folder, anywhere in a git repository.
    pub source: &'a Utf8Path,
    /// The evaluation package: where it lies inside the target's folder, nothing of it is taken (the world and the verifier
    /// never enter a sandbox).
    pub package: Option<&'a Utf8Path>,
    /// Where stored runs are kept: where that lies inside the target's folder, nothing of it is taken either (a target is
    /// not to read what the verifier said of the last one).
    pub results: Option<&'a Utf8Path>,
    /// The policy's globs, in order: the last one that fits decides, a leading `!` takes out.
    pub files: &'a [String],
    /// The policy's bounds.
    pub limits: SnapshotLimits,
}

/// A snapshot that was taken.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its root: folders 0755, files 0644 or 0755, for a read-only mount.
    pub folder: Utf8PathBuf,
    /// Over the manifest; see `manifest.rs` and the schema of `run.json` for how.
    pub digest: Digest,
    /// Files and links.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// HEAD of the repository; none before its first commit.
    pub commit: Option<String>,
    /// What was taken is not what the commit has there. A content that only one of the repository's own filters could show
    /// to be the same counts as changed, where git's stat data does not vouch for it.
    pub dirty: bool,
    /// Every entry, ascending by path.
    pub manifest: Vec<Entry>,
    /// For the user: credential-like names, Git LFS pointers, what was left out.
    pub warnings: Vec<String>,
}

impl Snapshot {
    /// The manifest as it is kept with the run; any bytes of a path survive.
    ///
    /// # Errors
    /// Where JSON cannot be written.
    pub fn manifest_json(&self) -> Result<String> {
        manifest::json(&self.digest, self.bytes, &self.manifest).context("failed to write the snapshot's manifest")
    }
}

/// What a snapshot would hold.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Path and bytes of each file and link, ascending by path.
    pub files: Vec<(Vec<u8>, u64)>,
    /// HEAD of the repository; none before its first commit.
    pub commit: Option<String>,
    /// For the user.
    pub warnings: Vec<String>,
}

/// Says what a snapshot would hold, copying nothing and opening no file.
///
/// # Errors
/// A [`Refusal`] for everything that `take` would refuse without reading contents.
pub fn list(source: &Source<'_>) -> Result<Contents> {
    let plan = plan(source, &Interrupt::never())?;
    let files = plan.scan.found.into_iter().map(|found| (found.path, found.seen.size)).collect();
    Ok(Contents { files, commit: plan.listing.commit, warnings: plan.warnings })
}

/// Takes a snapshot: lays it in a new folder `content` below `into`, which exists, is empty and private.
///
/// # Errors
/// A [`Refusal`] for what the user can mend: no repository, a link that leaves, a special file, a limit, a file that changed
/// meanwhile. Else what the system says. What was laid until then can be removed with its folder.
pub fn take(source: &Source<'_>, into: &Utf8Path, stop: &Interrupt) -> Result<Snapshot> {
    let plan = plan(source, stop)?;
    let folder = into.join("content");
    std::fs::DirBuilder::new().mode(0o755).create(&folder).with_context(|| format!("failed to make {folder}"))?;
    // The umask may have taken bits away.
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))
        .with_context(|| format!("failed to open up {folder}"))?;
    let found = plan.scan.found;
    let copied = copy::copy(&plan.root, &folder, &found, stop)?;
    let mut warnings = plan.warnings;
    let pointers =
        found.iter().zip(&copied).filter(|(_, copied)| copied.pointer).map(|(found, _)| found.path.as_slice());
    warn(&mut warnings, pointers, "Git LFS pointers in place of the content (`git lfs pull` fetches it)");
    let dirty = plan.scan.dirty || copied.iter().any(|copied| copied.differs);
    let entry = |(found, copied): (scan::Found, copy::Copied)| Entry {
        size: found.seen.size,
        path: found.path,
        kind: found.kind,
        sha256: copied.sha256,
    };
    let manifest: Vec<Entry> = found.into_iter().zip(copied).map(entry).collect();
    let files = manifest.iter().filter(|entry| matches!(entry.kind, Kind::File { .. }));
    Ok(Snapshot {
        digest: manifest::digest(&manifest),
        files: manifest.len() as u64,
        bytes: files.map(|entry| entry.size).sum(),
        commit: plan.listing.commit,
        folder,
        dirty,
        manifest,
        warnings,
    })
}

/// Everything that is known before a file is opened.
struct Plan {
    root: Utf8PathBuf,
    listing: Listing,
    scan: Scan,
    warnings: Vec<String>,
}

fn plan(source: &Source<'_>, stop: &Interrupt) -> Result<Plan> {
    let unusable = |error: std::io::Error| {
        let hint = "--target or target.source names a folder of a git repository";
        Refusal::new(format!("cannot use the target's folder: {error}")).at(source.source.as_str()).hint(hint)
    };
    let root = source.source.canonicalize_utf8().map_err(unusable)?;
    if !root.is_dir() {
        return Err(unusable(std::io::ErrorKind::NotADirectory.into()).into());
    }
    let selection = Selection::new(source.files)?;
    let mut listing = listing::list(&root, stop)?;
    if let Some(package) = source.package {
        let own = "the target's folder is the evaluation package itself, which never enters a sandbox";
        let hint = "name the agent's own folder with --target, or put the agent into the package's folder target";
        leave_out(("the evaluation package", package), &root, &mut listing, (own, hint))?;
    }
    if let Some(results) = source.results {
        refuse_behind_link(results, &root)?;
    }
    // A results folder that is not there yet holds nothing.
    if let Some(results) = source.results.filter(|results| results.is_dir()) {
        let own = "the target's folder is the results folder itself, which never enters a sandbox";
        leave_out(("the results folder", results), &root, &mut listing, (own, "name another with --results"))?;
    }
    let scan = scan::scan(&root, &listing, &selection)?;
    refuse_empty(&root, &listing, &scan)?;
    scan::refuse_leaving(&scan.found)?;
    scan::refuse_large(&scan.found, &source.limits)?;
    let mut warnings = std::mem::take(&mut listing.warnings);
    if scan.sparse > 0 {
        warnings.push(format!("{} tracked files are outside the sparse checkout: not taken", scan.sparse));
    }
    let credentials = |tracked: bool| {
        let named =
            scan.found.iter().filter(move |found| found.tracked == tracked && names::is_credential(&found.path));
        named.map(|found| found.path.as_slice())
    };
    let ignore = "have git ignore it, or take it out with target.files";
    warn(&mut warnings, credentials(true), "tracked by git and named like a credential: the target can read it");
    warn(&mut warnings, credentials(false), &format!("not ignored by git and named like a credential: {ignore}"));
    Ok(Plan { root, listing, scan, warnings })
}

/// Takes a folder that no sandbox may hold out of the list, where it lies in the target's folder; where it is that folder,
/// that is refused in these words.
fn leave_out(
    (what, folder): (&str, &Utf8Path),
    root: &Utf8Path,
    listing: &mut Listing,
    (own, hint): (&str, &str),
) -> Result<()> {
    let folder = folder.canonicalize_utf8().with_context(|| format!("failed to resolve {folder}"))?;
    let Ok(inside) = folder.strip_prefix(root) else { return Ok(()) };
    if inside.as_str().is_empty() {
        return Err(Refusal::new(own).at(root.as_str()).hint(hint).into());
    }
    let below = format!("{inside}/");
    let before = listing.paths.len();
    listing.paths.retain(|listed| !listed.path.starts_with(below.as_bytes()));
    listing.differing.retain(|path| !path.starts_with(below.as_bytes()) && path != inside.as_str().as_bytes());
    if listing.paths.len() < before {
        listing.warnings.push(format!("{what} {inside} lies in the target's folder: left out"));
    }
    Ok(())
}

/// Refuses results that would be written through a link of the target's folder: whoever made the target chose where it
/// leads. Links elsewhere on the way are the user's own.
fn refuse_behind_link(results: &Utf8Path, root: &Utf8Path) -> Result<()> {
    // Component by component: of a path that ends in a slash the system follows the link.
    let whole: Utf8PathBuf =
        camino::absolute_utf8(results).with_context(|| format!("failed to resolve {results}"))?.components().collect();
    let is_in_target = |place: &Utf8Path| place.canonicalize_utf8().is_ok_and(|place| place.starts_with(root));
    let is_planted = |place: &&Utf8Path| {
        let is_link = place.symlink_metadata().is_ok_and(|about| about.is_symlink());
        is_link && place.parent().is_some_and(is_in_target)
    };
    let Some(link) = whole.ancestors().find(is_planted) else { return Ok(()) };
    let refusal = Refusal::new("the results folder lies behind a symbolic link of the target's folder");
    Err(refusal.at(link.as_str()).hint("name another with --results").into())
}

fn warn<'a>(warnings: &mut Vec<String>, paths: impl Iterator<Item = &'a [u8]>, what: &str) {
    let named = some(paths);
    if !named.is_empty() {
        warnings.push(format!("{what}: {named}"));
    }
}

fn refuse_empty(root: &Utf8Path, listing: &Listing, scan: &Scan) -> Result<()> {
    if !scan.found.is_empty() {
        return Ok(());
    }
    let refusal = if listing.paths.is_empty() {
        Refusal::new("git lists no file in the target's folder").hint(format!(
            "a snapshot is what git tracks and what it does not ignore: `git check-ignore -v {root}` says which rule ignores it"
        ))
    } else {
        Refusal::new("target.files takes no file of the target's folder")
            .hint("its globs count in order, the last one that fits decides; \"**\" takes all")
    };
    Err(refusal.at(root.as_str()).into())
}
