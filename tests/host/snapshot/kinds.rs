//! W3, F5: links, special files, limits, and files that change.

use super::Repository;
use super::repository::{WIDE, refusal};
use crashlab::interrupt::Interrupt;
use crashlab::policy::SnapshotLimits;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_link_inside_the_tree_stays_a_link() {
    let it = Repository::new();
    it.write("folder/a", "x");
    for (link, target) in [
        ("to-file", "folder/a"),
        ("to-folder", "folder"),
        ("folder/up", "../to-file"),
        ("dangling", "not/there"),
        ("loop-a", "loop-b"),
        ("loop-b", "loop-a"),
        ("self", "."),
        ("into-git", ".git/config"),
    ] {
        symlink(target, it.root.join(link)).unwrap();
    }
    it.git(&["add", "to-file", "loop-a"]);
    let taken = it.take();
    let laid = taken.laid();
    assert_eq!(laid[b"to-file".as_slice()], ("link", b"folder/a".to_vec()));
    assert_eq!(laid[b"folder/up".as_slice()], ("link", b"../to-file".to_vec()));
    assert_eq!(laid.values().filter(|(kind, _)| *kind == "link").count(), 8);
    // A link counts as a file, and its target is no content.
    assert_eq!((taken.files, taken.bytes), (9, 1));
    assert!(!taken.folder.join(".git").exists());
}

#[test]
fn a_link_that_leaves_the_tree_is_refused_by_name_and_nothing_of_the_host_is_read() {
    let outside = |target: &str, it: &Repository| target.replace("OUTSIDE", it.outside.as_str());
    for (link, target) in [
        ("a", "OUTSIDE/secret"),
        ("a", "../secret"),
        ("a", ".."),
        ("deep/er/a", "../../../secret"),
        ("a", "folder/../../secret"),
        ("a", "/etc/passwd"),
    ] {
        for tracked in [true, false] {
            let it = Repository::new();
            it.write("folder/x", "x");
            it.write("deep/er/x", "x");
            std::fs::write(it.outside.join("secret"), "of the host").unwrap();
            let target = outside(target, &it);
            symlink(&target, it.root.join(link)).unwrap();
            if tracked {
                it.git(&["add", "."]);
            }
            let refused = it.refusal();
            assert!(refused.message.contains(&format!("{link} -> {target}")), "{refused}");
            // Without it, the rest can be taken.
            let taken = it.taken(&it.root, &["**", &format!("!{link}")], WIDE).unwrap();
            assert_eq!(taken.names(), ["deep/er/x", "folder/x"]);
        }
    }
}

#[test]
fn a_link_that_leaves_a_subfolder_leaves_the_snapshot() {
    let it = Repository::new();
    it.write("shared/a", "x");
    it.write("agent/b", "x");
    symlink("../shared/a", it.root.join("agent/a")).unwrap();
    let refused = refusal(it.taken(&it.root.join("agent"), &["**"], WIDE));
    assert!(refused.message.contains("a -> ../shared/a"), "{refused}");
    assert_eq!(it.take().names(), ["agent/a", "agent/b", "shared/a"]);
}

#[test]
fn a_special_file_in_a_tracked_files_place_is_refused_by_name_without_opening_it() {
    let it = Repository::new();
    it.write("fifo", "x");
    it.write("socket", "x");
    it.commit();
    std::fs::remove_file(it.root.join("fifo")).unwrap();
    std::fs::remove_file(it.root.join("socket")).unwrap();
    rustix_mkfifo(it.root.join("fifo").as_str());
    let _listener = std::os::unix::net::UnixListener::bind(it.root.join("socket")).unwrap();
    // An opened FIFO would hang here.
    let refused = it.refusal();
    assert!(refused.message.contains("fifo, socket"), "{refused}");
    let rest = refusal(it.taken(&it.root, &["**", "!fifo", "!socket"], WIDE));
    assert!(rest.message.contains("takes no file"));
}

#[test]
fn a_special_file_that_git_does_not_list_is_not_in_it() {
    let it = Repository::new();
    it.write("a", "x");
    rustix_mkfifo(it.root.join("fifo").as_str());
    let _listener = std::os::unix::net::UnixListener::bind(it.root.join("socket")).unwrap();
    assert_eq!(it.take().names(), ["a"]);
}

fn rustix_mkfifo(path: &str) {
    assert_cmd::Command::new("mkfifo").arg(path).assert().success();
}

#[test]
fn a_folder_that_became_a_link_leads_nowhere() {
    let it = Repository::new();
    it.write("folder/secret", "own");
    it.write("a", "x");
    it.commit();
    std::fs::create_dir(it.outside.join("host")).unwrap();
    std::fs::write(it.outside.join("host/secret"), "of the host").unwrap();
    std::fs::remove_dir_all(it.root.join("folder")).unwrap();
    symlink("../host", it.root.join("folder")).unwrap();
    // As for git, the tracked file is gone and the link is new: and it leaves.
    assert!(it.refusal().message.contains("folder -> ../host"));
    let taken = it.taken(&it.root, &["**", "!folder"], WIDE).unwrap();
    assert_eq!(taken.names(), ["a"]);
    let taken = it.taken(&it.root, &["a", "folder/secret"], WIDE).unwrap();
    assert_eq!((taken.names(), taken.dirty), (vec!["a".to_owned()], true));
}

#[test]
fn a_file_that_became_a_folder_and_a_folder_that_became_a_file_are_what_they_are_now() {
    let it = Repository::new();
    it.write("file", "x");
    it.write("folder/x", "x");
    it.commit();
    std::fs::remove_file(it.root.join("file")).unwrap();
    std::fs::remove_dir_all(it.root.join("folder")).unwrap();
    it.write("file/inner", "x");
    it.write("folder", "x");
    assert_eq!(it.take().names(), ["file/inner", "folder"]);
}

#[test]
fn a_hard_link_is_a_file_with_its_content() {
    let it = Repository::new();
    let path = it.write("a", "x");
    std::fs::hard_link(path, it.root.join("b")).unwrap();
    let laid = it.take().laid();
    assert_eq!(laid[b"b".as_slice()], ("file", b"x".to_vec()));
}

#[test]
fn each_limit_refuses_with_the_largest_paths_named() {
    let it = Repository::new();
    it.write("small", "x");
    it.write("data/big.bin", vec![0; 5000]);
    it.write("data/bigger.bin", vec![0; 6000]);
    for n in 0..5 {
        it.write(format!("many/folder/{n}"), "x");
    }
    let table = [
        (
            SnapshotLimits { files: 7, ..WIDE },
            "target.limits.files",
            "have 8 files, 7 are allowed; most are in many/folder (5)",
        ),
        (SnapshotLimits { file: 5000, ..WIDE }, "target.limits.file", "larger than 4.9 KiB: data/bigger.bin (5.9 KiB)"),
        (
            SnapshotLimits { bytes: 11_005, ..WIDE },
            "target.limits.bytes",
            "have 10.7 KiB, 10.7 KiB are allowed; the largest are data/bigger.bin (5.9 KiB), data/big.bin (4.9 KiB)",
        ),
    ];
    for (limits, place, message) in table {
        let refused = refusal(it.taken(&it.root, &["**"], limits));
        assert_eq!(refused.place.as_deref(), Some(place));
        assert!(refused.message.contains(message), "{refused}");
        assert!(refused.hint.unwrap().contains("target.files"));
    }
    let exact = SnapshotLimits { files: 8, file: 6000, bytes: 11_006 };
    assert_eq!(it.taken(&it.root, &["**"], exact).unwrap().files, 8);
    // What the globs take out does not count.
    let small = SnapshotLimits { files: 1, file: 1, bytes: 1 };
    assert_eq!(it.taken(&it.root, &["small"], small).unwrap().bytes, 1);
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_noticed() {
    let it = Repository::new();
    let path = it.write("big", "");
    // Long enough to be caught in the middle; a hole takes no disk.
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(200 << 20).unwrap();
    let keep = tempfile::tempdir().unwrap();
    let into = camino::Utf8PathBuf::from_path_buf(keep.path().to_owned()).unwrap();
    let laid = into.join("content/big");
    let all = ["**".to_owned()];
    let source =
        crashlab::snapshot::Source { source: &it.root, package: None, results: None, files: &all, limits: WIDE };
    let ended = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        scope.spawn(|| {
            // As soon as its copy has begun; should none ever begin, this ends too.
            while !laid.exists() && !ended.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            std::fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .and_then(|mut file| std::io::Write::write(&mut file, b"x"))
        });
        let taken = crashlab::snapshot::take(&source, &into, &Interrupt::never());
        ended.store(true, Ordering::Relaxed);
        taken
    });
    let refused = taken.unwrap_err().downcast::<crashlab::exit::Refusal>().unwrap();
    assert!(refused.message.contains("big changed while it was copied"), "{refused}");
}

#[test]
fn an_interruption_ends_it_and_what_was_laid_can_be_removed() {
    let it = Repository::new();
    it.write("a/b", "x");
    let keep = tempfile::tempdir().unwrap();
    let into = camino::Utf8PathBuf::from_path_buf(keep.path().to_owned()).unwrap();
    let stop = Interrupt::never();
    stop.raise(2);
    let all = ["**".to_owned()];
    let source =
        crashlab::snapshot::Source { source: &it.root, package: None, results: None, files: &all, limits: WIDE };
    let error = crashlab::snapshot::take(&source, &into, &stop).unwrap_err();
    assert!(error.downcast_ref::<crashlab::exit::Refusal>().is_none() && error.to_string().contains("interrupted"));
    std::fs::remove_dir_all(&into).unwrap();
}

#[test]
fn an_unreadable_file_is_refused_by_name() {
    let it = Repository::new();
    let path = it.write("locked", "x");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if std::fs::read(&path).is_ok() {
        // Root reads everything.
        return;
    }
    assert!(it.refusal().message.contains("cannot read locked"));
}
