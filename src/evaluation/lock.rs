//! The dependency lock that a package declares (T3): recognized by its form, digested, kept with the run. A lock makes a
//! run reproducible; it is no sandbox. Installs nothing.

use crate::evaluation::package::digest_of_file;
use crate::exit::Refusal;
use crate::ids::Digest;
use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

/// A dependency lock as it is kept with the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// Relative to the package.
    pub path: Utf8PathBuf,
    /// Of its content.
    pub sha256: Digest,
}

/// Reads the lock at `path` (relative to `root`).
///
/// # Errors
/// Where there is none, or what is there pins nothing.
pub fn read(root: &Utf8Path, path: &Utf8Path) -> Result<LockRecord, Refusal> {
    let refuse = |what: String| Refusal::new(what).at(path.as_str());
    let whole = root.join(path);
    let text = std::fs::read_to_string(&whole).map_err(|error| {
        refuse(format!("cannot read the dependency lock that the policy names: {error}"))
            .hint("write it, or take `evaluation.lock` out: the run then says that it is not reproducible")
    })?;
    complaint(path.file_name().unwrap_or_default(), &text).map_or(Ok(()), |what| {
        Err(refuse(what).hint(
            "a lock is requirements with --hash on each (`pip-compile --generate-hashes`, \
             `uv pip compile --generate-hashes`), uv.lock, poetry.lock or pylock.toml",
        ))
    })?;
    let (_, sha256) = digest_of_file(whole.as_std_path()).map_err(|error| refuse(error.to_string()))?;
    Ok(LockRecord { path: path.to_owned(), sha256 })
}

/// Why this text is no lock; none where it is one. Other ecosystems' locks are taken as they are.
fn complaint(name: &str, text: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let is_pylock = lower == "pylock.toml" || (lower.starts_with("pylock.") && lower.ends_with(".toml"));
    if is_pylock {
        return missing(text, "lock-version");
    }
    match lower.as_str() {
        "uv.lock" => missing(text, "version"),
        "poetry.lock" => missing(text, "content-hash").and_then(|_| missing(text, "lock-version")),
        _ if lower.contains("requirements") || lower.ends_with(".txt") => unpinned(text),
        _ => None,
    }
}

/// A TOML lock that lacks the key that its format requires was cut, or is something else.
fn missing(text: &str, key: &str) -> Option<String> {
    let has = text
        .lines()
        .any(|line| line.trim_start().strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('=')));
    (!has).then(|| format!("this is no lock of its format: the key {key} is missing"))
}

/// The first requirement without an exact version or without a hash. A file without any requirement pins all of nothing.
fn unpinned(text: &str) -> Option<String> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    joined.lines().map(without_comment).filter(|line| !line.is_empty()).find_map(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        if ["-r", "-c", "-e", "--requirement", "--constraint", "--editable"].iter().any(|flag| first.starts_with(flag))
        {
            return Some(format!("`{first}` brings in what this file does not pin"));
        }
        if first.starts_with('-') {
            return None;
        }
        let pinned = line.contains("==") || line.contains(" @ ");
        let hashed = line.contains("--hash=sha") || line.contains("--hash sha") || line.contains("#sha256=");
        (!pinned || !hashed).then(|| format!("`{first}` has no exact version with a hash: this is no lock"))
    })
}

fn without_comment(line: &str) -> &str {
    let line = line.trim();
    if line.starts_with('#') {
        return "";
    }
    line.split(" #").next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_what_pins_every_dependency() {
        let hashed = "a==1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n# via b\n--index-url https://x\n";
        let table = [
            ("requirements.lock", hashed, true),
            ("requirements.lock", "# nothing is needed\n", true),
            ("requirements.txt", "a==1.0\n", false),
            ("requirements.txt", "a>=1.0 --hash=sha256:00\n", false),
            ("requirements.txt", "-r other.txt\n", false),
            ("requirements.txt", "b @ https://x/b.whl --hash=sha256:00\n", true),
            ("uv.lock", "version = 1\n[[package]]\n", true),
            ("uv.lock", "", false),
            ("poetry.lock", "[metadata]\nlock-version = \"2.0\"\ncontent-hash = \"00\"\n", true),
            ("poetry.lock", "[metadata]\n", false),
            ("pylock.toml", "lock-version = \"1.0\"\n", true),
            ("pylock.ci.toml", "created-by = \"x\"\n", false),
            ("package-lock.json", "{}", true),
        ];
        for (name, text, good) in table {
            assert_eq!(complaint(name, text).is_none(), good, "{name}: {text}: {:?}", complaint(name, text));
        }
    }
}
