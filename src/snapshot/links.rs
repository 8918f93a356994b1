//! Whether a link leaves the snapshot. Owns a walk over the entries as they will lie, links of links included; looks at no
//! file system, so that nothing outside is ever touched.

use std::cell::Cell;
use std::collections::HashMap;

/// As many links in one walk as the kernel follows; a longer chain leads nowhere at all.
const MOST: usize = 40;
/// As long a path as the kernel follows.
const LONGEST: usize = 4096;
/// Bytes of paths that are looked up for all links together: far above any real tree, a few seconds at most.
const WORK: usize = 1 << 31;

/// The snapshot's links.
#[derive(Debug, Default)]
pub(super) struct Links<'a> {
    /// Path to target.
    all: HashMap<&'a [u8], &'a [u8]>,
    /// What is left of `WORK`.
    work: Cell<usize>,
}

impl<'a> Links<'a> {
    /// All links of a snapshot.
    pub(super) fn new(links: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        Self { all: links.into_iter().collect(), work: Cell::new(WORK) }
    }

    /// Whether following `target` from a link at `path` ever steps out of the snapshot: an absolute target does, and so
    /// does a `..` of the root, wherever on the way. Links so tangled that nobody can say in time count as leaving.
    pub(super) fn leaves(&self, path: &[u8], target: &[u8]) -> bool {
        let (folder, _) = super::folders::split(path);
        let mut at: Vec<u8> = folder.to_vec();
        // What is still to be walked, the next one last.
        let mut ahead: Vec<&[u8]> = target.split(|byte| *byte == b'/').rev().collect();
        if target.starts_with(b"/") {
            return true;
        }
        let mut followed = 0;
        while let Some(name) = ahead.pop() {
            match name {
                b"" | b"." => {}
                b".." if at.is_empty() => return true,
                b".." => at.truncate(at.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
                name => {
                    let before = at.len();
                    if before + name.len() > LONGEST {
                        return false;
                    }
                    let Some(left) = self.work.get().checked_sub(before + name.len() + 1) else { return true };
                    self.work.set(left);
                    if !at.is_empty() {
                        at.push(b'/');
                    }
                    at.extend_from_slice(name);
                    let Some(next) = self.all.get(at.as_slice()) else { continue };
                    followed += 1;
                    if next.starts_with(b"/") {
                        return true;
                    }
                    if followed > MOST {
                        return false;
                    }
                    at.truncate(before);
                    ahead.extend(next.split(|byte| *byte == b'/').rev());
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_multiply_end_in_time() {
        let folders = "a/../".repeat(800);
        let paths: Vec<String> = (0..40).map(|n| format!("l{n}")).collect();
        let targets: Vec<String> = (0..40).map(|n| format!("{folders}l{}", n + 1)).collect();
        let pairs = || paths.iter().zip(&targets).map(|(path, target)| (path.as_bytes(), target.as_bytes()));
        assert!(!Links::new(pairs()).leaves(b"l", b"l0"));
        let few = Links { work: Cell::new(10_000), ..Links::new(pairs()) };
        assert!(few.leaves(b"l", b"l0"));
        let long = "d/".repeat(3000);
        assert!(!Links::new([]).leaves(b"l", format!("{long}{}", "../".repeat(3001)).as_bytes()));
    }

    #[test]
    fn a_link_stays_or_leaves_by_where_it_really_leads() {
        let links: [(&str, &str); 6] = [
            ("p/q/up", "../../top"),
            ("loop-a", "loop-b"),
            ("loop-b", "loop-a"),
            ("grow", "grow/grow"),
            ("out", "/etc"),
            ("back", "p/q/../.."),
        ];
        let all = Links::new(links.iter().map(|(path, target)| (path.as_bytes(), target.as_bytes())));
        let table = [
            ("a", "b", false),
            ("a", "missing/also", false),
            ("d/a", "../b", false),
            ("d/a", "../../b", true),
            ("a", "..", true),
            ("a", "/etc/passwd", true),
            ("a", "d/../../x", true),
            ("a", "./d//e/.", false),
            ("d/a", "..", false),
            // By its text it stays; but `p/q/up` is `top`, whose second parent is outside.
            ("p/q/l", "up/../../x", true),
            ("p/q/l", "up/../x", false),
            ("a", "loop-a", false),
            ("a", "grow", false),
            ("a", "out/passwd", true),
            ("a", "back/x", false),
            ("a", "", false),
        ];
        for (path, target, leaves) in table {
            assert_eq!(all.leaves(path.as_bytes(), target.as_bytes()), leaves, "{path} -> {target}");
        }
    }
}
