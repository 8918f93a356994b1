//! What git's lists say, parsed: the index with its stat data, the commit's tree, untracked paths. Pure functions over
//! bytes that the repository's owner chose: nothing here panics, and no path that could lead out of the tree comes through.

use super::names::shown;
use crate::exit::Refusal;
use anyhow::{Context, Result};
use std::collections::HashMap;

/// A path of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Indexed {
    /// Relative to the folder that was asked about.
    pub(super) path: Vec<u8>,
    /// `100644`, `100755`, `120000` or `160000`, as a number in base 8.
    pub(super) mode: u32,
    /// The blob's name, hexadecimal.
    pub(super) oid: Vec<u8>,
    /// No conflict about it.
    pub(super) merged: bool,
    /// Outside a sparse checkout.
    pub(super) sparse: bool,
    /// The file as git last found it equal to the blob.
    pub(super) stat: Option<IndexStat>,
}

/// The index's memory of a file. Seconds and nanoseconds; size and inode are cut to 32 bits by git.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct IndexStat {
    pub(super) ctime: (i64, i64),
    pub(super) mtime: (i64, i64),
    pub(super) inode: u32,
    pub(super) size: u32,
}

/// `git ls-files -z --cached --stage -t --debug`: for each entry `TAG MODE OID STAGE\tPATH\0` and five indented lines.
pub(super) fn tracked(list: &[u8]) -> Result<Vec<Indexed>> {
    let mut entries = Vec::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0).context("git's list of the index is cut short")?;
        let (entry, after) = (&rest[..end], &rest[end + 1..]);
        let (debug, next) = after.split_at(indented(after));
        entries.push(indexed(entry, debug).context("git's list of the index has a form that crashlab does not know")?);
        rest = next;
    }
    entries.iter().try_for_each(|entry| check(&entry.path))?;
    Ok(entries)
}

/// How many bytes of `text` are whole lines that begin with two spaces. An entry never does.
fn indented(text: &[u8]) -> usize {
    let mut length = 0;
    while text[length..].starts_with(b"  ") {
        match text[length..].iter().position(|byte| *byte == b'\n') {
            Some(end) => length += end + 1,
            None => return text.len(),
        }
    }
    length
}

fn indexed(entry: &[u8], debug: &[u8]) -> Option<Indexed> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let mut words = entry[..tab].split(|byte| *byte == b' ');
    let (tag, mode, oid, stage) = (words.next()?, words.next()?, words.next()?, words.next()?);
    Some(Indexed {
        path: entry[tab + 1..].to_vec(),
        mode: u32::from_str_radix(std::str::from_utf8(mode).ok()?, 8).ok()?,
        oid: oid.to_vec(),
        merged: stage == b"0",
        sparse: tag.eq_ignore_ascii_case(b"S"),
        stat: stat(debug),
    })
}

/// A form that is not known costs only the short cut: the content is then compared.
fn stat(debug: &[u8]) -> Option<IndexStat> {
    let text = std::str::from_utf8(debug).ok()?;
    let fields: HashMap<&str, &str> =
        text.split(['\n', '\t']).filter_map(|field| field.trim_start().split_once(": ")).collect();
    let time = |name: &str| {
        let (seconds, nanoseconds) = fields.get(name)?.split_once(':')?;
        Some((seconds.parse().ok()?, nanoseconds.parse().ok()?))
    };
    Some(IndexStat {
        ctime: time("ctime")?,
        mtime: time("mtime")?,
        inode: fields.get("ino")?.parse().ok()?,
        size: fields.get("size")?.parse().ok()?,
    })
}

/// A commit's files: path to mode and blob.
pub(super) type Committed<'a> = HashMap<&'a [u8], Blob<'a>>;

/// A mode, and a blob's name in hexadecimal.
type Blob<'a> = (u32, &'a [u8]);

/// `git ls-tree -r -z`: `MODE TYPE OID\tPATH\0`.
pub(super) fn committed(list: &[u8]) -> Result<Committed<'_>> {
    let mut all = Committed::new();
    for entry in list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let (path, of) = in_commit(entry).context("git's list of the commit has a form that crashlab does not know")?;
        all.insert(path, of);
    }
    Ok(all)
}

fn in_commit(entry: &[u8]) -> Option<(&[u8], Blob<'_>)> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let mut words = entry[..tab].split(|byte| *byte == b' ');
    let mode = u32::from_str_radix(std::str::from_utf8(words.next()?).ok()?, 8).ok()?;
    let _type = words.next()?;
    Some((&entry[tab + 1..], (mode, words.next()?)))
}

/// `git ls-files -z --others`: paths; one that ends in `/` is a repository inside this one.
pub(super) fn untracked(list: &[u8]) -> Result<Vec<&[u8]>> {
    let paths: Vec<&[u8]> = list.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
    paths.iter().try_for_each(|path| check(path.strip_suffix(b"/").unwrap_or(path)))?;
    Ok(paths)
}

/// Git makes no such path; an index can be written by hand.
fn check(path: &[u8]) -> Result<()> {
    let fits = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.eq_ignore_ascii_case(b".git");
    if path.split(|byte| *byte == b'/').all(fits) {
        return Ok(());
    }
    Err(Refusal::new(format!("git lists {:?}, which is no path of a working tree", shown(path)))
        .hint("the repository's index is broken or was made by hand; `git fsck` says more")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEBUG: &str = "  ctime: 7:8\n  mtime: 5:6\n  dev: 65024\tino: 12\n  uid: 0\tgid: 0\n  size: 3\tflags: 0\n";

    #[test]
    fn the_index_is_read_with_its_stat_data_whatever_the_names() {
        let mut list = Vec::new();
        for (head, path) in
            [("H 100644 aa 0", b"a\n  b".as_slice()), ("S 120000 bb 0", b"\xff\t"), ("M 100755 cc 2", b"c")]
        {
            list.extend([head.as_bytes(), b"\t", path, b"\0", DEBUG.as_bytes()].concat());
        }
        let entries = tracked(&list).unwrap();
        let stat = Some(IndexStat { ctime: (7, 8), mtime: (5, 6), inode: 12, size: 3 });
        let entry = |path: &[u8], mode, oid: &[u8], merged, sparse| Indexed {
            path: path.to_vec(),
            mode,
            oid: oid.to_vec(),
            merged,
            sparse,
            stat,
        };
        let wanted = [
            entry(b"a\n  b", 0o100_644, b"aa", true, false),
            entry(b"\xff\t", 0o120_000, b"bb", true, true),
            entry(b"c", 0o100_755, b"cc", false, false),
        ];
        assert_eq!(entries, wanted);
    }

    #[test]
    fn stat_data_in_another_form_is_none_at_all() {
        let entries = tracked(b"H 100644 aa 0\ta\0  something: else\nH 100644 aa 0\tb\0").unwrap();
        assert_eq!(entries.iter().map(|entry| entry.stat).collect::<Vec<_>>(), [None, None]);
    }

    #[test]
    fn a_list_that_is_cut_short_or_strange_is_an_error() {
        for list in [b"H 100644 aa 0\ta".as_slice(), b"\0", b"H\0", b"H 100644 aa 0 a\0", b"H 9 aa 0\ta\0"] {
            assert!(tracked(list).is_err(), "{list:?}");
        }
        assert!(committed(b"100644 blob\ta\0").is_err());
    }

    #[test]
    fn a_path_that_could_lead_out_is_refused_by_name() {
        for path in ["../a", "a/../../b", "/etc/passwd", "a//b", ".git/config", "sub/.GIT/x", "a/.", "a/"] {
            let list = format!("H 100644 aa 0\t{path}\0{DEBUG}");
            let error = tracked(list.as_bytes()).unwrap_err();
            assert!(error.downcast_ref::<Refusal>().unwrap().message.contains(path), "{error}");
        }
        for path in [".gitignore", "a/.github/b", "..a", ".git-blame"] {
            assert!(tracked(format!("H 100644 aa 0\t{path}\0{DEBUG}").as_bytes()).is_ok(), "{path}");
        }
    }

    #[test]
    fn the_commit_is_read() {
        let list = b"100644 blob aabb\ta\nb\x00160000 commit cc\tsub\0";
        let map = committed(list).unwrap();
        assert_eq!(map[b"a\nb".as_slice()], (0o100_644, b"aabb".as_slice()));
        assert_eq!(map[b"sub".as_slice()], (0o160_000, b"cc".as_slice()));
    }
}
