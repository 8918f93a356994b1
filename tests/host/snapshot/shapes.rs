//! The shapes that working trees have: worktrees, submodules, monorepos, states between two commits, odd names.

use super::Repository;
use super::repository::{WIDE, git_command, git_in, refusal};
use camino::Utf8PathBuf;
use crashlab::interrupt::Interrupt;
use crashlab::snapshot::{Source, take};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// A repository with one submodule `sub` (a tracked file `in.txt`), all committed.
fn with_submodule() -> (Repository, Repository) {
    let inner = Repository::new();
    inner.write("in.txt", "one");
    inner.write(".gitignore", "*.log");
    inner.commit();
    let it = Repository::new();
    it.write("a", "x");
    it.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.root.as_str(), "sub"]);
    it.commit();
    (it, inner)
}

#[test]
fn a_clean_submodule_is_taken_as_its_checked_out_files() {
    let (it, _inner) = with_submodule();
    let taken = it.take();
    assert_eq!(taken.names(), [".gitmodules", "a", "sub/.gitignore", "sub/in.txt"]);
    assert!(!taken.dirty && taken.warnings.is_empty(), "{:?}", taken.warnings);
}

#[test]
fn a_submodule_makes_dirty_by_its_files_and_by_its_commit() {
    type Change = fn(&Repository);
    let table: [(&str, Change, &str); 4] = [
        ("a changed file", |it| drop(it.write("sub/in.txt", "two")), "sub/in.txt"),
        ("a new file", |it| drop(it.write("sub/new.txt", "two")), "sub/new.txt"),
        (
            "another commit",
            |it| drop(git_in(&it.root.join("sub").into_std_path_buf(), &["commit", "-q", "--allow-empty", "-m", "x"])),
            "sub/in.txt",
        ),
        ("its folder gone", |it| std::fs::remove_dir_all(it.root.join("sub")).unwrap(), "a"),
    ];
    for (name, change, path) in table {
        let (it, _inner) = with_submodule();
        it.write("sub/ignored.log", "x");
        assert!(!it.take().dirty);
        change(&it);
        let taken = it.take();
        assert!(taken.dirty, "{name}");
        assert!(taken.names().contains(&path.to_owned()), "{name}: {:?}", taken.names());
        assert!(!taken.names().contains(&"sub/ignored.log".to_owned()));
    }
}

#[test]
fn a_submodule_that_is_not_checked_out_is_warned_about() {
    let (it, _inner) = with_submodule();
    let clone = it.outside.join("clone");
    it.git(&["clone", "-q", ".", clone.as_str()]);
    let taken = it.taken(&clone, &["**"], WIDE).unwrap();
    assert_eq!(taken.names(), [".gitmodules", "a"]);
    assert!(taken.warned().contains("not checked out, so none of their files is taken: sub"), "{:?}", taken.warnings);
    assert!(!taken.dirty);
}

#[test]
fn a_folder_of_a_submodule_is_a_target_too() {
    let (it, _inner) = with_submodule();
    it.write("sub/deep/new", "x");
    let taken = it.taken(&it.root.join("sub/deep"), &["**"], WIDE).unwrap();
    assert_eq!(taken.names(), ["new"]);
    let commit = git_in(it.root.join("sub").as_std_path(), &["rev-parse", "HEAD"]);
    assert_eq!(taken.commit.as_deref(), Some(String::from_utf8(commit).unwrap().trim()));
}

#[test]
fn a_repository_inside_is_taken_as_its_files_without_its_git_folder() {
    let it = Repository::new();
    it.write("a", "x");
    it.write("inner/.gitignore", "*.log");
    it.write("inner/b", "x");
    it.write("inner/c.log", "x");
    git_in(it.root.join("inner").as_std_path(), &["init", "-q"]);
    it.write("inner/deeper/d", "x");
    git_in(it.root.join("inner/deeper").as_std_path(), &["init", "-q"]);
    assert_eq!(it.take().names(), ["a", "inner/.gitignore", "inner/b", "inner/deeper/d"]);
}

#[test]
fn a_repository_inside_is_new_even_where_it_has_everything_committed() {
    let it = Repository::new();
    it.write("a", "x");
    it.commit();
    it.write("inner/b", "x");
    for args in [["init", "-q", "."].as_slice(), &["add", "."], &["commit", "-q", "-m", "x"]] {
        git_in(it.root.join("inner").as_std_path(), args);
    }
    let taken = it.take();
    assert_eq!((taken.names(), taken.dirty), (vec!["a".to_owned(), "inner/b".to_owned()], true));
}

#[test]
fn a_submodule_that_became_a_link_is_a_link() {
    let (it, inner) = with_submodule();
    std::fs::remove_dir_all(it.root.join("sub")).unwrap();
    std::os::unix::fs::symlink(&inner.root, it.root.join("sub")).unwrap();
    assert!(it.refusal().message.contains("sub -> /"));
    std::fs::remove_file(it.root.join("sub")).unwrap();
    std::os::unix::fs::symlink("a", it.root.join("sub")).unwrap();
    let taken = it.take();
    assert_eq!((taken.names(), taken.dirty), ([".gitmodules", "a", "sub"].map(str::to_owned).to_vec(), true));
}

#[test]
fn a_linked_worktree_is_its_own_tree() {
    let it = Repository::new();
    it.write("a", "one");
    it.commit();
    let linked = it.outside.join("linked");
    it.git(&["worktree", "add", "-q", linked.as_str(), "-b", "other"]);
    std::fs::write(linked.join("b"), "two").unwrap();
    it.write("c", "only in the main one");
    let taken = it.taken(&linked, &["**"], WIDE).unwrap();
    assert_eq!((taken.names(), taken.dirty), (vec!["a".to_owned(), "b".to_owned()], true));
    std::fs::remove_file(linked.join("b")).unwrap();
    let taken = it.taken(&linked, &["**"], WIDE).unwrap();
    assert!(!taken.dirty && taken.commit.is_some());
}

#[test]
fn a_subfolder_of_a_monorepo_is_only_that_folder() {
    let it = Repository::new();
    it.write(".gitignore", "*.log\n");
    it.write("agents/one/a", "x");
    it.write("agents/two/b", "x");
    it.commit();
    it.write("agents/one/x.log", "ignored by the top's rule");
    it.write("agents/two/b", "changed elsewhere");
    let taken = it.taken(&it.root.join("agents/one"), &["**"], WIDE).unwrap();
    assert_eq!((taken.names(), taken.dirty), (vec!["a".to_owned()], false));
    let taken = it.taken(&it.root.join("agents/two"), &["**"], WIDE).unwrap();
    assert!(taken.dirty);
    // Also by a path with links and dots in it.
    std::os::unix::fs::symlink(it.root.join("agents"), it.outside.join("way")).unwrap();
    let taken = it.taken(&it.outside.join("way/./one"), &["**"], WIDE).unwrap();
    assert_eq!(taken.names(), ["a"]);
}

#[test]
fn whoever_owns_the_repository_it_can_be_taken() {
    let it = Repository::new();
    it.write("a", "x");
    it.commit();
    let foreign = |path: &str| std::os::unix::fs::chown(it.root.join(path), Some(12_345), Some(12_345));
    if ["", ".git", "a"].into_iter().any(|path| foreign(path).is_err()) {
        // Only root can give a file away.
        return;
    }
    let control = git_command(it.root.as_std_path(), &["status"]).env("SUDO_UID", "0").output().unwrap();
    assert!(String::from_utf8_lossy(&control.stderr).contains("dubious ownership"));
    assert_eq!((it.take().names(), it.take().dirty), (vec!["a".to_owned()], false));
}

#[test]
fn before_the_first_commit_there_is_none() {
    let it = Repository::new();
    it.write("staged", "x");
    it.git(&["add", "staged"]);
    it.write("new", "x");
    let taken = it.take();
    assert_eq!((taken.names(), taken.commit.clone(), taken.dirty), (vec!["new".into(), "staged".into()], None, true));
}

#[test]
fn in_the_middle_of_a_merge_the_working_trees_content_is_taken() {
    let it = Repository::new();
    it.write("a", "base\n");
    it.commit();
    it.git(&["checkout", "-q", "-b", "other"]);
    it.write("a", "theirs\n");
    it.write("b", "theirs\n");
    it.commit();
    it.git(&["checkout", "-q", "main"]);
    it.write("a", "ours\n");
    it.commit();
    assert!(!git_command(it.root.as_std_path(), &["merge", "other"]).output().unwrap().status.success());
    let taken = it.take();
    assert_eq!((taken.names(), taken.dirty), (vec!["a".to_owned(), "b".to_owned()], true));
    assert!(String::from_utf8_lossy(&taken.laid()[b"a".as_slice()].1).contains("<<<<<<<"));
}

#[test]
fn a_conflict_makes_dirty_even_where_the_content_is_the_commits() {
    let it = Repository::new();
    it.commit();
    it.git(&["checkout", "-q", "-b", "other"]);
    it.write("both", "theirs");
    it.commit();
    it.git(&["checkout", "-q", "main"]);
    it.write("both", "ours");
    it.commit();
    assert!(!git_command(it.root.as_std_path(), &["merge", "other"]).output().unwrap().status.success());
    it.git(&["checkout", "--ours", "both"]);
    let taken = it.take();
    assert_eq!((taken.laid()[b"both".as_slice()].1.as_slice(), taken.dirty), (b"ours".as_slice(), true));
}

#[test]
fn an_intended_addition_is_there_and_makes_dirty() {
    let it = Repository::new();
    it.write("a", "x");
    it.commit();
    it.write("meant", "");
    it.git(&["add", "-N", "meant"]);
    let taken = it.take();
    assert_eq!((taken.names(), taken.dirty), (vec!["a".to_owned(), "meant".to_owned()], true));
}

#[test]
fn a_sparse_checkout_is_what_is_checked_out() {
    for index in ["--no-sparse-index", "--sparse-index"] {
        let it = Repository::new();
        it.write("in/a", "x");
        it.write("out/b", "x");
        it.write("out/c", "x");
        it.commit();
        it.git(&["sparse-checkout", "set", "--cone", index, "in"]);
        let taken = it.take();
        assert_eq!((taken.names(), taken.dirty), (vec!["in/a".to_owned()], false), "{index}");
        assert!(taken.warned().contains("2 tracked files are outside the sparse checkout"), "{:?}", taken.warnings);
    }
}

#[test]
fn a_pointer_of_git_lfs_in_place_of_the_content_is_warned_about() {
    let it = Repository::new();
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12345\n", "ab".repeat(32));
    it.write("model.bin", &pointer);
    it.write("about-lfs.md", format!("See:\n{pointer}"));
    let warned = it.take().warned();
    assert!(warned.contains("Git LFS pointers in place of the content") && warned.ends_with(": model.bin"), "{warned}");
}

#[test]
fn odd_names_are_all_there_byte_for_byte() {
    let it = Repository::new();
    let long = "n".repeat(255);
    let mut names: Vec<&[u8]> = vec![
        "ä".as_bytes(),
        b"a b",
        b"quote\"'",
        b"back\\slash",
        b"tab\t",
        b"line\nend",
        "u\u{2028}s".as_bytes(),
        b"-dash",
        b"trailing ",
        b"\xff\xfe",
        b":(glob)*",
        b"#hash",
        b"!bang",
        b"*",
        b"README",
        b"readme",
        b"ReadMe",
        b"...",
        b"  ctime: 0:0",
        b".gitx",
        b"con",
        long.as_bytes(),
        b"\x01\x7f",
    ];
    for name in &names {
        it.write(OsStr::from_bytes(name), name);
        it.write(OsStr::from_bytes(&[b"folder/", *name, b"/x"].concat()), name);
    }
    // Half of them tracked, half not.
    let tracked: Vec<_> = names.iter().step_by(2).collect();
    let list = tracked.iter().map(|name| [**name, b"\0"].concat()).collect::<Vec<_>>().concat();
    std::fs::write(it.outside.join("list"), list).unwrap();
    let from = format!("--pathspec-from-file={}", it.outside.join("list"));
    it.git(&["--literal-pathspecs", "add", "--pathspec-file-nul", &from]);
    let taken = it.take();
    let laid = taken.laid();
    assert_eq!(laid.len(), 2 * names.len());
    for (path, (_, content)) in &laid {
        assert!(path == content || *path == [b"folder/", content.as_slice(), b"/x"].concat(), "{path:?}");
    }
    // And the manifest says the same, in ascending order.
    names.sort_unstable();
    let said: Vec<&[u8]> = taken.manifest.iter().map(|entry| entry.path.as_slice()).collect();
    assert!(said.is_sorted() && names.iter().all(|name| said.contains(name)));
}

#[test]
fn where_the_repository_says_its_tree_is_does_not_count() {
    type Set = fn(&Repository);
    let table: [(&str, Set); 4] = [
        ("core.worktree", |it| drop(it.git(&["config", "core.worktree", "/etc"]))),
        ("core.bare", |it| drop(it.git(&["config", "core.bare", "true"]))),
        ("a split index", |it| drop(it.git(&["update-index", "--split-index"]))),
        ("assume-unchanged", |it| drop(it.git(&["update-index", "--assume-unchanged", "a"]))),
    ];
    for (name, set) in table {
        let it = Repository::new();
        it.write("a", "x");
        it.commit();
        set(&it);
        it.write("b", "x");
        assert_eq!(it.take().names(), ["a", "b"], "{name}");
    }
}

#[test]
fn dirty_is_what_git_says_in_a_repository_of_either_hash() {
    for hash in ["sha1", "sha256"] {
        let it = Repository::none();
        it.git(&["init", "-q", &format!("--object-format={hash}"), "."]);
        it.write("a", "one");
        std::os::unix::fs::symlink("a", it.root.join("link")).unwrap();
        it.commit();
        assert!(!it.take().dirty, "{hash}");
        // Other stat data, the same content.
        std::fs::remove_file(it.root.join("a")).unwrap();
        it.write("a", "one");
        assert!(!it.take().dirty, "{hash}: the same content");
        // The same size, in the same moment as the index.
        it.git(&["add", "a"]);
        it.write("a", "two");
        assert!(it.take().dirty, "{hash}: another content");
    }
}

#[test]
fn executable_bits_make_dirty_only_where_they_mean_something() {
    let it = Repository::new();
    let path = it.write("a", "one");
    it.commit();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert!(it.take().dirty);
    it.git(&["config", "core.fileMode", "false"]);
    assert!(!it.take().dirty);
}

#[test]
fn where_links_are_checked_out_as_files_such_a_file_is_no_change() {
    let it = Repository::new();
    std::os::unix::fs::symlink("a", it.root.join("link")).unwrap();
    it.commit();
    it.git(&["config", "core.symlinks", "false"]);
    std::fs::remove_file(it.root.join("link")).unwrap();
    it.git(&["checkout", "--", "link"]);
    let taken = it.take();
    assert_eq!((taken.laid()[b"link".as_slice()].clone(), taken.dirty), (("file", b"a".to_vec()), false));
    it.write("link", "b");
    assert!(it.take().dirty);
    it.write("link", "a");
    it.git(&["config", "core.symlinks", "true"]);
    assert!(it.take().dirty);
}

#[test]
fn what_lies_around_a_repository_is_found_as_git_finds_it() {
    let it = Repository::new();
    it.write("folder/a", "x");
    // An empty folder named .git makes no repository; the one above counts.
    std::fs::create_dir(it.root.join("folder/.git")).unwrap();
    assert_eq!(it.taken(&it.root.join("folder"), &["**"], WIDE).unwrap().names(), ["a"]);
    // Git's own folder is no target.
    let inside = refusal(it.taken(&it.root.join(".git"), &["**"], WIDE));
    assert!(inside.message.contains("git's own"), "{inside}");
}

#[test]
fn a_broken_repository_is_refused_with_gits_own_words() {
    let it = Repository::new();
    it.write("a", "x");
    it.write(".git/index", "broken");
    let refused = it.refusal();
    assert!(refused.message.contains("git cannot list the files") && refused.message.contains("index"), "{refused}");
    let it = Repository::new();
    it.write(".git/config", "[core\n\x1b[31m");
    assert!(it.refusal().message.contains("bad config"));
}

#[test]
fn an_index_with_a_path_that_leads_out_is_refused() {
    let it = Repository::new();
    it.write("aa/secret", "x");
    it.git(&["add", "."]);
    let index = std::fs::read(it.root.join(".git/index")).unwrap();
    let at = index.windows(9).position(|bytes| bytes == b"aa/secret").unwrap();
    let mut forged = index.clone();
    forged[at..at + 2].copy_from_slice(b"..");
    // The index ends in the SHA-1 of what is before it; git takes zeros for "not computed".
    let end = forged.len() - 20;
    forged[end..].fill(0);
    std::fs::write(it.root.join(".git/index"), forged).unwrap();
    std::fs::write(it.outside.join("secret"), "of the host").unwrap();
    let refused = it.refusal();
    assert!(refused.message.contains("../secret") || refused.message.contains("git cannot"), "{refused}");
}

#[test]
fn an_index_that_names_a_submodules_file_once_more_takes_it_once() {
    let (it, _inner) = with_submodule();
    it.write("suc/in.txt", "x");
    it.git(&["add", "suc"]);
    std::fs::remove_dir_all(it.root.join("suc")).unwrap();
    let mut index = std::fs::read(it.root.join(".git/index")).unwrap();
    let at = index.windows(10).position(|bytes| bytes == b"suc/in.txt").unwrap();
    index[at + 2] = b'b';
    let end = index.len() - 20;
    index[end..].fill(0);
    std::fs::write(it.root.join(".git/index"), index).unwrap();
    assert_eq!(it.take().names(), [".gitmodules", "a", "sub/.gitignore", "sub/in.txt"]);
}

#[test]
fn repositories_without_end_are_refused() {
    let it = Repository::new();
    let mut folder = it.root.clone();
    for _ in 0..20 {
        folder.push("r");
        std::fs::create_dir(&folder).unwrap();
        git_in(folder.as_std_path(), &["init", "-q"]);
        std::fs::write(folder.join("a"), "x").unwrap();
    }
    assert!(it.refusal().message.contains("repositories"));
}

#[test]
fn stored_runs_in_the_tree_are_left_out() {
    let it = Repository::new();
    it.write("a", "x");
    it.write(".crashlabs/runs/1/run.json", "{}");
    let taken = it.take();
    assert_eq!(taken.names(), ["a"]);
    assert!(taken.warned().contains(".crashlabs"));
}

#[test]
fn a_results_folder_of_any_name_in_the_tree_is_left_out_and_it_cannot_be_the_target() {
    let it = Repository::new();
    it.write("a", "x");
    it.write("out/runs/1/run.json", "{}");
    it.git(&["add", "--all"]);
    let all = ["**".to_owned()];
    let list = |results: &camino::Utf8Path| {
        let (source, results) = (it.root.as_path(), Some(results));
        let limits = super::repository::WIDE;
        crashlab::snapshot::list(&crashlab::snapshot::Source { source, package: None, results, files: &all, limits })
    };
    let names = |results: &str| -> Vec<String> {
        let taken = list(&it.root.join(results)).unwrap().files.into_iter();
        taken.map(|(path, _)| String::from_utf8(path).unwrap()).collect()
    };
    assert_eq!(names("out"), ["a"]);
    assert_eq!(names("./out/../out"), ["a"]);
    assert_eq!(names("not-there-yet"), ["a", "out/runs/1/run.json"]);
    assert!(list(&it.root).unwrap_err().to_string().contains("results folder itself"));
}

#[test]
fn a_target_by_a_relative_path_is_the_same() {
    let it = Repository::new();
    it.write("a", "x");
    let here = Utf8PathBuf::try_from(std::env::current_dir().unwrap()).unwrap();
    let up: Utf8PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(it.root.strip_prefix("/").unwrap());
    let taken = it.taken(&relative, &["**"], WIDE).unwrap();
    assert_eq!((taken.names(), &taken.digest), (vec!["a".to_owned()], &it.take().digest));
}

/// What a run stored is no part of what the next one tries, however git sees it.
#[test]
fn stored_runs_change_neither_the_digest_nor_what_is_dirty() {
    type Store = fn(&Repository);
    let table: [(&str, Store); 4] = [
        ("not ignored", |it| drop(it.write("out/runs/1/stdout", "one"))),
        ("tracked and changed", |it| {
            it.write("out/runs/1/stdout", "one");
            it.git(&["add", "out"]);
            it.git(&["commit", "-q", "-m", "stored"]);
            it.write("out/runs/1/stdout", "two");
            it.write("out/runs/2/stdout", "two");
        }),
        ("a repository of its own", |it| {
            it.write("out/runs/1/stdout", "one");
            git_in(it.root.join("out").as_std_path(), &["init", "-q"]);
        }),
        ("with links and pipes", |it| {
            it.write("out/runs/1/stdout", "one");
            std::os::unix::fs::symlink("/etc/passwd", it.root.join("out/runs/1/stderr")).unwrap();
            assert_cmd::Command::new("mkfifo").arg(it.root.join("out/runs/pipe")).assert().success();
        }),
    ];
    let keep = tempfile::tempdir().unwrap();
    let taken = |it: &Repository, nth: usize| {
        let (results, all) = (it.root.join("out"), ["**".to_owned()]);
        let into = camino::Utf8Path::from_path(keep.path()).unwrap().join(nth.to_string());
        std::fs::create_dir(&into).unwrap();
        let source = Source { source: &it.root, package: None, results: Some(&results), files: &all, limits: WIDE };
        let taken = take(&source, &into, &Interrupt::never()).unwrap();
        (taken.digest, taken.dirty, taken.files)
    };
    for (nth, (name, store)) in table.into_iter().enumerate() {
        let it = Repository::new();
        it.write("a", "x");
        it.commit();
        let before = taken(&it, 2 * nth);
        assert_eq!((before.1, before.2), (false, 1));
        store(&it);
        assert_eq!(taken(&it, 2 * nth + 1), before, "{name}");
    }
}

#[test]
fn results_are_not_written_through_a_link_of_the_target() {
    let it = Repository::new();
    it.write("a", "x");
    it.write("folder/b", "x");
    std::fs::create_dir(it.outside.join("elsewhere")).unwrap();
    let link = |to: &str, from: &camino::Utf8Path| std::os::unix::fs::symlink(to, from).unwrap();
    link("folder", &it.root.join("out"));
    link("work", &it.outside.join("own"));
    link("elsewhere", &it.outside.join("big-disk"));
    let all = ["**".to_owned()];
    let behind = |results: &str| {
        let results = it.outside.join(results);
        let source = Source { source: &it.root, package: None, results: Some(&results), files: &all, limits: WIDE };
        crashlab::snapshot::list(&source).err().map(|error| error.to_string())
    };
    for results in
        ["work/out", "work/out/", "work/out/.", "work/out/deep/er", "own/out/deep", "work/folder/../out/deep"]
    {
        let told = behind(results).unwrap_or_default();
        assert!(told.contains("behind a symbolic link of the target"), "{results}: {told}");
    }
    // The user's own links lead where the user wants.
    for results in ["own/results", "own/folder/results", "big-disk/results", "work/folder/results"] {
        assert_eq!(behind(results), None, "{results}");
    }
}
