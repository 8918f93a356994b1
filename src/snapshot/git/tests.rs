//! The second line: commands that a snapshot never asks, under the settings and the environment that it asks with. Should
//! another question be added one day, or a later git do more for one of ours, the traps stay shut.

use super::*;

/// A repository whose file was touched since it was staged; a program that leaves a marker beside it.
struct Trapped {
    keep: tempfile::TempDir,
}

impl Trapped {
    fn new() -> Self {
        let made = Self { keep: tempfile::tempdir().unwrap() };
        std::fs::create_dir(made.root()).unwrap();
        made.plain(&["init", "-q", "."]);
        std::fs::write(made.root().join("file"), "one").unwrap();
        made.plain(&["add", "."]);
        made.program("trap");
        std::fs::write(made.root().join("file"), "two").unwrap();
        made
    }

    fn root(&self) -> PathBuf {
        self.keep.path().join("work")
    }

    /// Writes a program beside the repository; its path.
    fn program(&self, name: &str) -> String {
        let path = self.keep.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n: > '{}'\n", self.marker().display())).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    fn marker(&self) -> PathBuf {
        self.keep.path().join("marker")
    }

    fn fired(&self) -> bool {
        std::fs::remove_file(self.marker()).is_ok()
    }

    fn config(&self, name: &str, value: &str) {
        self.plain(&["config", name, value]);
    }

    /// Git as anybody runs it.
    fn plain(&self, args: &[&str]) {
        let environment = Environment::only(&["PATH"]).with("GIT_CONFIG_GLOBAL", "/dev/null").with("HOME", "/");
        let git = Program::new("git", environment).args(args.iter().copied()).folder(self.root());
        git.run(&Bounds::time(TIME)).unwrap();
    }

    /// Git as a snapshot runs it.
    fn ours(&self, args: &[&str]) {
        let root = self.root();
        Repository::open(&root, &root, &Interrupt::never()).unwrap().unwrap().run(args).unwrap();
    }

    fn index(&self) -> Vec<u8> {
        std::fs::read(self.root().join(".git/index")).unwrap()
    }
}

#[test]
fn what_a_repository_configures_is_not_run_by_commands_that_are_not_asked_either() {
    type Set = fn(&Trapped, &str);
    let table: [(&str, Set, &[&str]); 5] = [
        ("a monitor", |it, trap| it.config("core.fsmonitor", trap), &["status"]),
        ("its own hook", |it, _| drop(it.program("work/.git/hooks/post-index-change")), &["add", "."]),
        (
            "another hook",
            |it, _| {
                it.program("hooks/post-index-change");
                it.config("core.hooksPath", it.keep.path().join("hooks").to_str().unwrap());
            },
            &["add", "."],
        ),
        (
            "a filter of its own attributes file",
            |it, trap| {
                std::fs::write(it.keep.path().join("attributes"), "* filter=x\n").unwrap();
                it.config("core.attributesFile", it.keep.path().join("attributes").to_str().unwrap());
                it.config("filter.x.clean", trap);
            },
            &["add", "."],
        ),
        (
            "a remote",
            |it, trap| {
                it.config("core.sshCommand", trap);
                it.config("remote.origin.url", "ssh://host.invalid/a");
            },
            &["fetch", "origin"],
        ),
    ];
    for (name, set, command) in table {
        let it = Trapped::new();
        set(&it, &it.program("trap"));
        it.ours(command);
        assert!(!it.fired(), "{name} was run");
        // What was added is touched again, so that plain git has as much to do.
        std::fs::write(it.root().join("file"), "three").unwrap();
        it.plain(command);
        assert!(it.fired(), "{name}: plain git did not run it, so nothing is proven");
    }
}

#[test]
fn an_index_is_not_refreshed_in_passing() {
    let it = Trapped::new();
    // The same content with other stat data: what `status` writes down where it may.
    std::fs::write(it.root().join("file"), "one").unwrap();
    let file = std::fs::File::options().write(true).open(it.root().join("file")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    let before = it.index();
    it.ours(&["status"]);
    assert_eq!(it.index(), before);
    it.plain(&["status"]);
    assert_ne!(it.index(), before, "plain git did not write it, so nothing is proven");
}
