//! F2: a repository cannot run anything on the host, nor see anything written. Each trap is also shown to fire with plain
//! git, else the test would prove nothing.

use super::Repository;
use super::repository::{WIDE, git_command, git_in};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A program that leaves a marker, and reads nothing: what waits for its input would hang the test.
struct Trap {
    it: Repository,
    marker: PathBuf,
    script: String,
}

impl Trap {
    fn new() -> Self {
        let it = Repository::new();
        let marker = it.outside.join("marker").into_std_path_buf();
        let script = it.outside.join("trap");
        std::fs::write(&script, format!("#!/bin/sh\n: > '{}'\n", marker.display())).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        it.write("file.txt", "one");
        it.write("folder/inner.txt", "two");
        it.commit();
        Self { it, marker, script: script.into_string() }
    }

    fn config(&self, name: &str, value: &str) {
        self.it.git(&["config", name, value]);
    }

    /// Stat data that vouches for nothing: git would look at the content.
    fn touch(&self) {
        self.it.write("file.txt", "two");
    }

    fn fired(&self) -> bool {
        let fired = self.marker.exists();
        let _ = std::fs::remove_file(&self.marker);
        fired
    }

    /// The snapshot and the list leave no marker; then plain git does.
    fn check(&self, name: &str, control: &[&str]) {
        self.fired();
        self.it.take();
        let all = ["**".to_owned()];
        let source = crashlab::snapshot::Source {
            source: &self.it.root,
            package: None,
            results: None,
            files: &all,
            limits: WIDE,
        };
        crashlab::snapshot::list(&source).unwrap();
        assert!(!self.fired(), "{name} was run by the snapshot");
        // Whatever else it says; with a terminal on standard output, for a pager.
        let terminal = "import pty, subprocess, sys; subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=pty.openpty()[1])";
        let mut command = assert_cmd::Command::new("python3");
        command.current_dir(&self.it.root).args(["-c", terminal, "git"]).args(control);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("TERM", "dumb").output().unwrap();
        assert!(self.fired(), "{name}: plain git {control:?} did not fire, so nothing is proven");
    }
}

#[test]
fn configured_commands_are_not_run() {
    type Set = fn(&Trap);
    let table: [(&str, Set, &[&str]); 13] = [
        ("core.fsmonitor", |trap| trap.config("core.fsmonitor", &trap.script), &["status"]),
        (
            "core.hooksPath",
            |trap| {
                std::fs::create_dir(trap.it.outside.join("hooks")).unwrap();
                std::fs::copy(&trap.script, trap.it.outside.join("hooks/post-index-change")).unwrap();
                trap.config("core.hooksPath", trap.it.outside.join("hooks").as_str());
            },
            &["add", "."],
        ),
        (
            "a hook",
            |trap| {
                std::fs::create_dir_all(trap.it.root.join(".git/hooks")).unwrap();
                std::fs::copy(&trap.script, trap.it.root.join(".git/hooks/post-index-change")).unwrap();
            },
            &["add", "."],
        ),
        (
            "filter.clean of .gitattributes",
            |trap| {
                trap.it.write(".gitattributes", "* filter=x\n");
                trap.config("filter.x.clean", &trap.script);
            },
            &["status"],
        ),
        (
            "filter.process of .gitattributes",
            |trap| {
                trap.it.write(".gitattributes", "* filter=x\n");
                trap.config("filter.x.process", &trap.script);
            },
            &["status"],
        ),
        (
            "filter.clean of info/attributes",
            |trap| {
                trap.it.write(".git/info/attributes", "* filter=x\n");
                trap.config("filter.x.clean", &trap.script);
            },
            &["status"],
        ),
        (
            "filter.clean of core.attributesFile",
            |trap| {
                std::fs::write(trap.it.outside.join("attributes"), "* filter=x\n").unwrap();
                trap.config("core.attributesFile", trap.it.outside.join("attributes").as_str());
                trap.config("filter.x.clean", &trap.script);
            },
            &["status"],
        ),
        ("diff.external", |trap| trap.config("diff.external", &trap.script), &["diff"]),
        (
            "textconv",
            |trap| {
                trap.it.write(".gitattributes", "*.txt diff=x\n");
                trap.config("diff.x.textconv", &trap.script);
            },
            &["diff"],
        ),
        ("core.pager", |trap| trap.config("core.pager", &trap.script), &["log"]),
        (
            "pager of ls-files",
            |trap| {
                for verb in ["ls-files", "ls-tree", "rev-parse", "config"] {
                    trap.config(&format!("pager.{verb}"), &trap.script);
                }
            },
            &["ls-files"],
        ),
        (
            "aliases",
            |trap| {
                for verb in ["ls-files", "ls-tree", "rev-parse", "config", "own"] {
                    trap.config(&format!("alias.{verb}"), &format!("!{}", trap.script));
                }
            },
            // An alias with a built-in's name is never looked at, by plain git either; one with its own name is.
            &["own"],
        ),
        (
            "include",
            |trap| {
                let included = trap.it.outside.join("included");
                std::fs::write(&included, format!("[core]\n\tfsmonitor = {}\n", trap.script)).unwrap();
                trap.config("include.path", included.as_str());
            },
            &["status"],
        ),
    ];
    for (name, set, control) in table {
        let trap = Trap::new();
        set(&trap);
        trap.touch();
        trap.check(name, control);
    }
}

#[test]
fn a_partial_clone_fetches_nothing() {
    type Set = fn(&Trap);
    let table: [(&str, Set); 3] = [
        ("ext", |trap| {
            trap.config("remote.origin.url", &format!("ext::sh -c {}", trap.script));
            trap.config("protocol.ext.allow", "always");
        }),
        ("ssh", |trap| {
            trap.config("remote.origin.url", "ssh://host.invalid/a");
            trap.config("core.sshCommand", &trap.script);
        }),
        ("uploadpack", |trap| {
            trap.config("remote.origin.url", trap.it.outside.as_str());
            trap.config("remote.origin.uploadpack", &trap.script);
        }),
    ];
    for (name, set) in table {
        let trap = Trap::new();
        let tree = String::from_utf8(trap.it.git(&["rev-parse", "HEAD:folder"])).unwrap();
        std::fs::remove_file(trap.it.root.join(format!(".git/objects/{}/{}", &tree[..2], tree[2..].trim()))).unwrap();
        trap.config("core.repositoryFormatVersion", "1");
        trap.config("extensions.partialClone", "origin");
        trap.config("remote.origin.promisor", "true");
        set(&trap);
        let taken = trap.it.take();
        assert!(
            taken.dirty && taken.warned().contains("git cannot read the commit's tree"),
            "{name}: {}",
            taken.warned()
        );
        assert_eq!(taken.names(), ["file.txt", "folder/inner.txt"]);
        trap.check(name, &["ls-tree", "-r", "HEAD"]);
    }
}

#[test]
fn a_submodules_own_configuration_runs_nothing() {
    let trap = Trap::new();
    let inner = Repository::new();
    inner.write("in.txt", "one");
    inner.commit();
    trap.it.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", inner.root.as_str(), "sub"]);
    trap.it.commit();
    let sub = trap.it.root.join("sub");
    git_in(sub.as_std_path(), &["config", "core.fsmonitor", &trap.script]);
    trap.check("core.fsmonitor of a submodule", &["status"]);
    git_in(sub.as_std_path(), &["config", "--unset", "core.fsmonitor"]);
    trap.config("submodule.sub.update", &format!("!{}", trap.script));
    git_in(sub.as_std_path(), &["commit", "--quiet", "--allow-empty", "-m", "another"]);
    trap.check("submodule.update", &["submodule", "update"]);
}

#[test]
fn nothing_of_the_hosts_git_variables_and_no_relative_path_entry_counts() {
    let trap = Trap::new();
    let other = Repository::new();
    other.write("other", "x");
    other.commit();
    std::fs::copy(&trap.script, trap.it.root.join("git")).unwrap();
    let path = format!(".:{}", std::env::var_os("PATH").unwrap().into_string().unwrap());
    let variables = [
        ("PATH", path.as_str()),
        ("GIT_DIR", other.root.as_str()),
        ("GIT_WORK_TREE", other.root.as_str()),
        ("GIT_INDEX_FILE", "/nowhere"),
        ("GIT_EXTERNAL_DIFF", &trap.script),
        ("GIT_SSH_COMMAND", &trap.script),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
        ("GIT_CONFIG_VALUE_0", &trap.script),
        ("CRASHLAB_TEST_SOURCE", trap.it.root.as_str()),
        // What is the user's own does count: a global ignore rule.
        ("HOME", trap.it.outside.as_str()),
        ("XDG_CONFIG_HOME", trap.it.outside.as_str()),
    ];
    std::fs::create_dir(trap.it.outside.join("git")).unwrap();
    std::fs::write(trap.it.outside.join("git/ignore"), "*.local\n").unwrap();
    trap.it.write("secret.local", "x");
    let mut again = assert_cmd::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "--ignored", "snapshot::hostile::in_a_process_of_its_own"]).current_dir(&trap.it.root);
    again.envs(variables).assert().success().stdout(predicates::str::contains("1 passed"));
    assert!(!trap.fired());
    // The control: the same variables, and plain git by the name.
    for (control, variable) in [(vec!["diff"], "GIT_EXTERNAL_DIFF"), (vec!["status"], "GIT_CONFIG_COUNT")] {
        trap.touch();
        let mut git = git_command(trap.it.root.as_std_path(), &control);
        git.envs(variables.into_iter().filter(|(name, _)| *name == variable || name.starts_with("GIT_CONFIG_")));
        git.output().unwrap();
        assert!(trap.fired(), "{variable}");
    }
}

#[test]
#[ignore = "a part of the test above, in a process whose environment is hostile"]
fn in_a_process_of_its_own() {
    let Some(source) = std::env::var_os("CRASHLAB_TEST_SOURCE") else { return };
    let source = camino::Utf8PathBuf::try_from(PathBuf::from(source)).unwrap();
    let taken = Repository::none().taken(&source, &["**"], WIDE).unwrap();
    assert_eq!(taken.names(), ["file.txt", "folder/inner.txt", "git"]);
}

#[test]
fn neither_the_repository_nor_the_working_tree_is_changed() {
    let it = Repository::new();
    for path in ["a", "b", "folder/c", "stashed"] {
        it.write(path, "one");
    }
    it.commit();
    it.write("stashed", "two");
    it.git(&["stash", "-q"]);
    it.git(&["config", "core.untrackedCache", "true"]);
    it.git(&["config", "core.fsmonitor", "true"]);
    it.git(&["config", "feature.manyFiles", "true"]);
    it.git(&["branch", "other"]);
    it.write("a", "two");
    it.write("new/d", "x");
    // Stat data that git would like to refresh.
    it.write("b", "one");
    let before = state(it.root.as_std_path());
    it.take();
    assert_eq!(state(it.root.as_std_path()), before);
    // The control: plain git does refresh.
    it.git(&["-c", "core.fsmonitor=false", "status"]);
    assert_ne!(state(it.root.as_std_path()), before);
}

#[test]
fn a_replaced_commit_is_compared_as_it_was_made() {
    let it = Repository::new();
    it.write("a", "one");
    it.commit();
    let first = String::from_utf8(it.git(&["rev-parse", "HEAD"])).unwrap();
    it.write("a", "two");
    it.commit();
    let second = String::from_utf8(it.git(&["rev-parse", "HEAD"])).unwrap();
    it.git(&["reset", "-q", "--soft", first.trim()]);
    it.git(&["replace", first.trim(), second.trim()]);
    assert!(it.git(&["status", "--porcelain"]).is_empty(), "plain git is not deceived, so nothing is proven");
    let taken = it.take();
    assert_eq!((taken.commit.as_deref(), taken.dirty), (Some(first.trim()), true));
}

/// Everything below a folder, `.git` too: kind, mode, content and the time of the last write.
fn state(root: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(path) = ahead.pop() {
        let about = path.symlink_metadata().unwrap();
        let mut content = Vec::new();
        if about.is_dir() {
            ahead.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            content = std::fs::read(&path).unwrap();
        }
        all.insert(path, (about.mode(), about.mtime(), about.mtime_nsec(), content));
    }
    all
}

#[test]
fn git_history_is_not_in_it() {
    let it = Repository::new();
    it.write("code", "buggy");
    it.commit();
    it.git(&["checkout", "-q", "-b", "fix"]);
    it.write("code", "THE-FIX");
    it.commit();
    it.git(&["tag", "solution"]);
    it.git(&["checkout", "-q", "main"]);
    it.write("code", "THE-FIX in a stash");
    it.git(&["stash", "-q"]);
    it.write("nested/code", "x");
    git_in(it.root.join("nested").as_std_path(), &["init", "-q"]);
    let laid = it.take().laid();
    assert_eq!(laid.keys().collect::<Vec<_>>(), [&b"code".to_vec(), &b"nested/code".to_vec()]);
    assert!(laid.values().all(|(_, content)| !String::from_utf8_lossy(content).contains("THE-FIX")));
}
