//! The policy's `files` globs. Owns their order: the last one that fits decides, a leading `!` takes out, and nothing is in
//! before one takes it in.

use crate::exit::Refusal;
use crate::policy::glob;
use anyhow::Result;
use globset::GlobMatcher;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Which paths the policy takes.
#[derive(Debug)]
pub(super) struct Selection(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    takes: bool,
    all: bool,
    path: GlobMatcher,
    /// A last component without a wildcard may name a folder: then all that is below it fits, as for git and docker.
    below: Option<GlobMatcher>,
}

impl Selection {
    /// The policy's globs in order.
    pub(super) fn new(globs: &[String]) -> Result<Self> {
        Ok(Self(globs.iter().map(|text| rule(text)).collect::<Result<_, Refusal>>()?))
    }

    /// Whether a path is taken.
    pub(super) fn takes(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        self.0.iter().rev().find(|rule| rule.fits(path)).is_some_and(|rule| rule.takes)
    }
}

impl Rule {
    fn fits(&self, path: &Path) -> bool {
        self.all || self.path.is_match(path) || self.below.as_ref().is_some_and(|below| below.is_match(path))
    }
}

fn rule(text: &str) -> Result<Rule, Refusal> {
    let pattern = text.strip_prefix('!').unwrap_or(text);
    let plain = pattern.trim_end_matches('/');
    let refused = || Refusal::new(format!("{text:?} is not a glob")).at("target.files");
    let last = plain.rsplit('/').next().unwrap_or_default();
    let below = !plain.is_empty() && !last.contains(['*', '?', '[', '{']);
    Ok(Rule {
        takes: !text.starts_with('!'),
        all: pattern == "**",
        path: glob::path(pattern).ok_or_else(refused)?,
        below: if below { Some(glob::path(&format!("{plain}/**")).ok_or_else(refused)?) } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_glob_that_fits_decides() {
        let table: [(&[&str], &[u8], bool); 19] = [
            (&["**"], b"a/b/.env", true),
            (&["**"], b"\xff/\xfe", true),
            (&["*"], b"a/b", false),
            (&["*"], b".env", true),
            (&["*"], b"\xff", true),
            (&["**", "!tests/**"], b"tests/a", false),
            (&["**", "!tests/**"], b"src/tests/a", true),
            (&["**", "!tests/**", "tests/keep/**"], b"tests/keep/a", true),
            (&["**", "!tests"], b"tests/a/b", false),
            (&["**", "!tests/"], b"tests/a/b", false),
            (&["**", "!tests"], b"tests2/a", true),
            (&["src"], b"src/a/b", true),
            (&["src"], b"other/src/a", false),
            (&["**/node_modules"], b"a/node_modules/b/c", true),
            (&["**/*.py"], b"a/b.py", true),
            (&["**/*.py"], b"b.py", true),
            (&["src/*.py"], b"src/a/b.py", false),
            (&["!tests/**"], b"src/a", false),
            (&[], b"a", false),
        ];
        for (globs, path, taken) in table {
            let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
            let shown = String::from_utf8_lossy(path);
            assert_eq!(Selection::new(&globs).unwrap().takes(path), taken, "{globs:?} {shown}");
        }
    }
}
