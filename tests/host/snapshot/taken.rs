//! W1, W2, W4, W5: what is in a snapshot, how it is laid, and what is kept of it.

use super::Repository;
use super::repository::{WIDE, git_in, refusal};
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_snapshot_is_what_git_tracks_and_does_not_ignore_as_it_is_in_the_working_tree() {
    let it = Repository::new();
    for path in ["committed", "staged", "unstaged", "deleted", "renamed", "removed-from-index"] {
        it.write(path, "one");
    }
    it.write(".gitignore", "*.log\n/build/\n");
    it.write("sub/.gitignore", "!keep.log\nlocal\n");
    it.commit();
    it.write("staged", "two");
    it.git(&["add", "staged"]);
    it.write("unstaged", "two");
    std::fs::remove_file(it.root.join("deleted")).unwrap();
    it.git(&["mv", "renamed", "moved"]);
    it.git(&["rm", "-q", "--cached", "removed-from-index"]);
    it.write("untracked", "new");
    it.write("staged-then-changed", "one");
    it.git(&["add", "staged-then-changed"]);
    it.write("staged-then-changed", "three");
    for ignored in ["a.log", "build/x", "sub/local"] {
        it.write(ignored, "ignored");
    }
    it.write("sub/keep.log", "kept");
    let taken = it.take();
    let content: Vec<(String, String)> = taken
        .laid()
        .into_iter()
        .map(|(path, (_, content))| (String::from_utf8(path).unwrap(), String::from_utf8(content).unwrap()))
        .filter(|(path, _)| !path.ends_with(".gitignore"))
        .collect();
    let wanted = [
        ("committed", "one"),
        ("moved", "one"),
        ("removed-from-index", "one"),
        ("staged", "two"),
        ("staged-then-changed", "three"),
        ("sub/keep.log", "kept"),
        ("unstaged", "two"),
        ("untracked", "new"),
    ];
    assert_eq!(content, wanted.map(|(path, content)| (path.to_owned(), content.to_owned())));
    assert!(taken.dirty);
}

#[test]
fn each_single_change_makes_it_dirty() {
    type Change = fn(&Repository);
    let table: [(&str, Change); 8] = [
        ("content", |it| drop(it.write("b", "two"))),
        ("content that is staged", |it| {
            it.write("b", "two");
            it.git(&["add", "b"]);
        }),
        ("content that is staged and undone", |it| {
            it.write("b", "two");
            it.git(&["add", "b"]);
            it.write("b", "one");
        }),
        ("a file gone", |it| std::fs::remove_file(it.root.join("b")).unwrap()),
        ("a file removed, also from the index", |it| drop(it.git(&["rm", "-q", "b"]))),
        ("a new file", |it| drop(it.write("c", "one"))),
        ("a mode", |it| std::fs::set_permissions(it.root.join("b"), std::fs::Permissions::from_mode(0o755)).unwrap()),
        ("a link in its place", |it| {
            std::fs::remove_file(it.root.join("b")).unwrap();
            std::os::unix::fs::symlink("one", it.root.join("b")).unwrap();
        }),
    ];
    for (name, change) in table {
        let it = Repository::new();
        it.write("a", "one");
        it.write("b", "one");
        it.commit();
        assert!(!it.take().dirty, "{name}");
        change(&it);
        assert!(it.take().dirty, "{name}");
    }
}

#[test]
fn what_is_laid_can_be_read_by_the_sandbox_and_keeps_its_executable_bit() {
    let it = Repository::new();
    for (path, mode) in [("a/private", 0o600), ("a/tool", 0o700), ("a/open", 0o666), ("a/group", 0o610)] {
        let path = it.write(path, "x");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let taken = it.take();
    let mode = |path: &str| taken.folder.join(path).metadata().unwrap().permissions().mode() & 0o7777;
    let modes = ["", "a", "a/private", "a/tool", "a/open", "a/group"].map(mode);
    assert_eq!(modes, [0o755, 0o755, 0o644, 0o755, 0o644, 0o644]);
    let said: Vec<&str> = taken.manifest.iter().map(|entry| entry.kind.mode()).collect();
    assert_eq!(said, ["100644", "100644", "100644", "100755"]);
}

#[test]
fn a_strict_umask_takes_no_bits_away() {
    let mut again = assert_cmd::Command::new("sh");
    again.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", "--ignored", "snapshot::taken::in_a_process_with_a_strict_umask"]);
    again.assert().success().stdout(predicates::str::contains("1 passed"));
}

#[test]
#[ignore = "a part of the test above, in a process of its own"]
fn in_a_process_with_a_strict_umask() {
    let it = Repository::new();
    it.write("a/file", "x");
    std::fs::set_permissions(it.write("a/tool", "x"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let taken = it.take();
    let mode = |path: &str| taken.folder.join(path).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!(["", "a", "a/file", "a/tool"].map(mode), [0o755, 0o755, 0o644, 0o755]);
}

#[test]
fn a_deep_tree_needs_few_descriptors_and_what_git_could_not_open_is_told() {
    let it = Repository::new();
    it.write(vec!["d"; 400].join("/") + "/file", "x");
    it.git(&["add", "."]);
    let mut again = assert_cmd::Command::new("sh");
    again.args(["-c", "ulimit -n 300; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", "--ignored", "snapshot::taken::in_a_process_with_few_descriptors"]);
    // What it lays is removed here: removing takes a descriptor a level.
    again.env("CRASHLAB_TEST_SOURCE", &it.root).env("TMPDIR", &it.outside);
    again.assert().success().stdout(predicates::str::contains("1 passed"));
}

#[test]
#[ignore = "a part of the test above, in a process of its own"]
fn in_a_process_with_few_descriptors() {
    let Some(source) = std::env::var_os("CRASHLAB_TEST_SOURCE") else { return };
    let source = camino::Utf8PathBuf::try_from(std::path::PathBuf::from(source)).unwrap();
    let taken = Repository::none().taken(&source, &["**"], WIDE).unwrap();
    assert_eq!((taken.files, taken.bytes), (1, 1));
    // Git itself opens a folder a level, and goes on without those that it cannot open.
    let warned = taken.warned();
    assert!(warned.contains("git did not see everything, so untracked files may be missing: warning: "), "{warned}");
    assert!(warned.contains("could not open directory 'd/d/"), "{warned}");
}

#[test]
fn outside_a_repository_it_is_refused_with_what_to_do() {
    let it = Repository::none();
    it.write("a", "x");
    let refused = it.refusal();
    assert!(refused.message.contains("not in a git repository"), "{refused}");
    assert!(refused.hint.unwrap().contains("git init"));
}

#[test]
fn a_folder_that_is_not_there_or_holds_nothing_is_refused() {
    let it = Repository::new();
    let missing = refusal(it.taken(&it.root.join("missing"), &["**"], WIDE));
    assert!(missing.message.contains("cannot use the target's folder"), "{missing}");
    let file = it.write("file", "x");
    let file = camino::Utf8PathBuf::from_path_buf(file).unwrap();
    let refused = refusal(it.taken(&file, &["**"], WIDE));
    assert!(refused.message.contains("cannot use the target's folder") && refused.hint.is_some(), "{refused}");
    it.write("ignored/.gitignore", "*");
    it.write("ignored/x", "x");
    let ignored = refusal(it.taken(&it.root.join("ignored"), &["**"], WIDE));
    assert!(ignored.hint.unwrap().contains("git check-ignore"));
    let none = refusal(it.taken(&it.root, &["nothing/**"], WIDE));
    assert!(none.message.contains("target.files"), "{none}");
}

#[test]
fn an_ignored_credential_is_out_and_a_tracked_or_unignored_one_is_in_and_named() {
    let it = Repository::new();
    it.write(".gitignore", "/ignored/\n");
    it.write("ignored/.env", "KEY=1");
    it.write("config/.env", "KEY=1");
    it.write("server.pem", "x");
    it.git(&["add", "-f", "config/.env", "server.pem"]);
    it.write("id_rsa", "x");
    it.write(".env.example", "KEY=");
    it.write("evil\n\x1b[31m.pem", "x");
    let taken = it.take();
    let names = [".env.example", ".gitignore", "config/.env", "evil\n\x1b[31m.pem", "id_rsa", "server.pem"];
    assert_eq!(taken.names(), names);
    let warned = taken.warned();
    assert!(
        warned
            .contains("tracked by git and named like a credential: the target can read it: config/.env, server.pem\n")
    );
    assert!(warned.contains("with target.files: evil\\n\\u{1b}[31m.pem, id_rsa"), "{warned}");
    assert!(!warned.contains("ignored/.env") && !warned.contains("example"), "{warned}");
}

#[test]
fn the_users_own_ignore_rules_count_as_they_do_for_git() {
    let it = Repository::new();
    it.write("a", "x");
    it.write("secret.local", "x");
    std::fs::write(it.outside.join("rules"), "*.local\n").unwrap();
    it.git(&["config", "core.excludesFile", it.outside.join("rules").as_str()]);
    it.write("b", "x");
    it.write(".git/info/exclude", "b\n");
    assert_eq!(it.take().names(), ["a"]);
}

#[test]
fn the_globs_of_the_policy_narrow_it() {
    let it = Repository::new();
    for path in ["a.py", "src/b.py", "src/deep/.c.py", "tests/d.py", "secret/.env"] {
        it.write(path, "x");
    }
    let table: [(&[&str], &[&str]); 3] = [
        (&["**", "!tests/**", "!secret"], &["a.py", "src/b.py", "src/deep/.c.py"]),
        (&["*"], &["a.py"]),
        (&["src/**", "!src/b.py"], &["src/deep/.c.py"]),
    ];
    for (globs, wanted) in table {
        let taken = it.taken(&it.root, globs, WIDE).unwrap();
        assert_eq!(taken.names(), wanted, "{globs:?}");
        assert_eq!((taken.files, taken.bytes), (wanted.len() as u64, wanted.len() as u64));
        assert!(taken.warnings.is_empty(), "{:?}", taken.warnings);
    }
}

#[test]
fn an_evaluation_package_inside_the_target_never_enters() {
    let it = Repository::new();
    for path in ["agent.py", "evals/desk/cases.jsonl", "evals/desk/target/a", "evals/desk.md", "evals/other/x"] {
        it.write(path, "x");
    }
    it.commit();
    it.write("evals/desk/evaluation.py", "changed, but not the target");
    it.git(&["rm", "-q", "--cached", "evals/desk/cases.jsonl"]);
    let package = it.root.join("evals/desk");
    let taken = it.taken_beside(Some(&package), &it.root, &["**"], WIDE).unwrap();
    assert_eq!(taken.names(), ["agent.py", "evals/desk.md", "evals/other/x"]);
    assert!(taken.warned().contains("the evaluation package evals/desk lies in the target's folder: left out"));
    assert!(!taken.dirty);
    // A package that is a repository of its own makes nothing dirty either.
    it.git(&["rm", "-rq", "--cached", "evals/desk"]);
    it.git(&["commit", "-q", "-m", "apart"]);
    git_in(package.as_std_path(), &["init", "-q"]);
    assert!(!it.taken_beside(Some(&package), &it.root, &["**"], WIDE).unwrap().dirty);
    // Its own target is one, and so is what lies beside it.
    let own = it.taken_beside(Some(&package), &package.join("target"), &["**"], WIDE).unwrap();
    assert_eq!((own.names(), own.warnings.len()), (vec!["a".to_owned()], 0));
    assert!(
        refusal(it.taken_beside(Some(&package), &package, &["**"], WIDE)).message.contains("evaluation package itself")
    );
}
