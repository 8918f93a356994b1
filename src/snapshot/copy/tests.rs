//! What happens between the look and the copy: the same steps as a snapshot's, with somebody's work in the middle.

use super::super::listing::{Listed, Listing};
use super::super::scan::scan;
use super::super::select::Selection;
use super::*;
use camino::Utf8PathBuf;
use std::os::unix::fs::{MetadataExt as _, symlink};

/// A tree that was looked at, and an empty folder for its copy.
struct Looked {
    keep: tempfile::TempDir,
    found: Vec<Found>,
}

impl Looked {
    fn new() -> Self {
        let keep = tempfile::tempdir().unwrap();
        let mut made = Self { keep, found: Vec::new() };
        for folder in ["host", "content", "work/folder"] {
            std::fs::create_dir_all(made.at(folder)).unwrap();
        }
        for (path, content) in [("host/file", "of the host"), ("work/a", "one"), ("work/folder/file", "own")] {
            std::fs::write(made.at(path), content).unwrap();
        }
        symlink("a", made.at("work/link")).unwrap();
        let listed = |path: &str| Listed { path: path.into(), tracked: None };
        let listing = Listing { paths: ["a", "folder/file", "link"].map(listed).into(), ..Listing::default() };
        made.found = scan(&made.at("work"), &listing, &Selection::new(&["**".to_owned()]).unwrap()).unwrap().found;
        made
    }

    fn at(&self, path: &str) -> Utf8PathBuf {
        Utf8PathBuf::from_path_buf(self.keep.path().canonicalize().unwrap().join(path)).unwrap()
    }

    fn copy(&self) -> Result<Vec<Copied>> {
        copy(&self.at("work"), &self.at("content"), &self.found, &Interrupt::never())
    }
}

#[test]
fn what_is_no_longer_what_was_seen_is_refused_by_name_and_leads_nowhere() {
    type Change = fn(&Looked);
    let table: [(&str, Change, &str); 9] = [
        ("longer", |it| std::fs::write(it.at("work/a"), "one and more").unwrap(), "a"),
        ("shorter", |it| std::fs::write(it.at("work/a"), "").unwrap(), "a"),
        (
            "as long, and with the old time of writing",
            |it| {
                let time = std::fs::metadata(it.at("work/a")).unwrap().modified().unwrap();
                // Until the clock of the file system shows it: it counts in ticks.
                let changed = |it: &Looked| {
                    let about = std::fs::metadata(it.at("work/a")).unwrap();
                    (about.ctime(), about.ctime_nsec())
                };
                let before = changed(it);
                while changed(it) == before {
                    let mut file = std::fs::File::create(it.at("work/a")).unwrap();
                    file.write_all(b"two").unwrap();
                    file.set_modified(time).unwrap();
                }
            },
            "a",
        ),
        (
            "another file",
            |it| {
                std::fs::write(it.at("work/new"), "two").unwrap();
                std::fs::rename(it.at("work/new"), it.at("work/a")).unwrap();
            },
            "a",
        ),
        ("gone", |it| std::fs::remove_file(it.at("work/a")).unwrap(), "a"),
        (
            "a link to the host",
            |it| {
                std::fs::remove_file(it.at("work/a")).unwrap();
                symlink(it.at("host/file"), it.at("work/a")).unwrap();
            },
            "a",
        ),
        (
            "a FIFO, whose other end never comes",
            |it| {
                std::fs::remove_file(it.at("work/a")).unwrap();
                let mode = Mode::from_raw_mode(0o600);
                rustix::fs::mknodat(
                    rustix::fs::CWD,
                    it.at("work/a").as_std_path(),
                    rustix::fs::FileType::Fifo,
                    mode,
                    0,
                )
                .unwrap();
            },
            "a",
        ),
        (
            "its folder a link to the host",
            |it| {
                std::fs::rename(it.at("work/folder"), it.at("work/was")).unwrap();
                symlink(it.at("host"), it.at("work/folder")).unwrap();
            },
            "folder/file",
        ),
        (
            "a link elsewhere",
            |it| {
                std::fs::remove_file(it.at("work/link")).unwrap();
                symlink("../host/file", it.at("work/link")).unwrap();
            },
            "link",
        ),
    ];
    for (name, change, path) in table {
        let it = Looked::new();
        change(&it);
        let refused = it.copy().unwrap_err().downcast::<Refusal>().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(refused.message, format!("{path} changed while it was copied"), "{name}");
        // Nothing was read of what is there now.
        assert!(it.at("content").join(path).symlink_metadata().is_err(), "{name}");
    }
}

#[test]
fn what_stays_as_it_was_seen_is_copied() {
    let it = Looked::new();
    assert_eq!(it.copy().unwrap().len(), 3);
    assert_eq!(std::fs::read(it.at("content/a")).unwrap(), b"one");
    assert_eq!(std::fs::read(it.at("content/folder/file")).unwrap(), b"own");
    assert_eq!(std::fs::read_link(it.at("content/link")).unwrap(), std::path::Path::new("a"));
}
