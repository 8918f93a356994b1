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
        self.plain_with(&[], args, "");
    }

    /// The same with these variables and this on its standard input; what it prints.
    fn plain_with(&self, variables: &[(&str, &str)], args: &[&str], input: &str) -> String {
        let mut environment = Environment::only(&["PATH"]).with("GIT_CONFIG_GLOBAL", "/dev/null").with("HOME", "/");
        for (name, value) in variables {
            environment = environment.with(*name, *value);
        }
        let user = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"];
        let git = Program::new("git", environment).args(user).args(args.iter().copied()).folder(self.root());
        String::from_utf8(git.input(input).run(&Bounds::time(TIME)).unwrap().stdout).unwrap()
    }

    /// Git as a snapshot runs it.
    fn ours(&self, args: &[&str]) -> String {
        let root = self.root();
        let answer = Repository::open(&root, &root, &Interrupt::never()).unwrap().unwrap().run(args).unwrap();
        String::from_utf8(answer.stdout).unwrap()
    }

    /// The same with this on its standard input; what it says on standard error.
    fn ours_with(&self, args: &[&str], input: &str) -> String {
        let root = self.root();
        let repository = Repository::open(&root, &root, &Interrupt::never()).unwrap().unwrap();
        repository.program(args).input(input).run(&Bounds::time(TIME)).unwrap().complaint()
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

#[test]
fn nobody_is_asked_for_a_credential() {
    let asked = "protocol=https\nhost=host.invalid\n\n";
    // The control asks no person: a second program answers it, where the first one does not.
    for (name, other) in [("credential.helper", Some("core.askPass")), ("core.askPass", None)] {
        let it = Trapped::new();
        it.config(name, &it.program("trap"));
        if let Some(other) = other {
            it.config(other, "/bin/true");
        }
        let told = it.ours_with(&["credential", "fill"], asked);
        assert!(!it.fired() && told.contains("terminal prompts disabled"), "{name}: {told}");
        it.plain_with(&[], &["credential", "fill"], asked);
        assert!(it.fired(), "{name}: plain git did not ask it, so nothing is proven");
    }
}

/// A tree that is missing and a remote that has it: git fetches, unless any one of these keeps it from that.
#[test]
fn each_line_alone_keeps_a_partial_clone_from_its_remote() {
    let it = Trapped::new();
    std::fs::create_dir(it.root().join("folder")).unwrap();
    std::fs::write(it.root().join("folder/inner"), "one").unwrap();
    it.plain(&["add", "."]);
    it.plain(&["commit", "-qm", "one"]);
    let tree = it.plain_with(&[], &["rev-parse", "HEAD:folder"], "");
    std::fs::remove_file(it.root().join(format!(".git/objects/{}/{}", &tree[..2], tree[2..].trim()))).unwrap();
    for (name, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", "ssh://host.invalid/a"),
        ("protocol.ssh.allow", "always"),
        ("core.sshCommand", &it.program("trap")),
    ] {
        it.config(name, value);
    }
    let look = ["ls-tree", "-r", "HEAD"];
    let environment = environment(&it.root());
    for name in ["GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL"] {
        let value = environment.get(name).unwrap().to_str().unwrap();
        it.plain_with(&[(name, value)], &look, "");
        assert!(!it.fired(), "{name}");
    }
    let setting = SETTINGS.iter().find(|setting| setting.starts_with("core.sshCommand=")).unwrap();
    it.plain(&[&["-c", setting], look.as_slice()].concat());
    assert!(!it.fired(), "{setting}");
    it.plain(&look);
    assert!(it.fired(), "plain git did not fetch, so nothing is proven");
}

#[test]
fn nothing_is_left_behind_by_commands_that_write_and_no_submodule_is_entered() {
    type Seen = fn(&Trapped, &str) -> bool;
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str], Seen);
    let untracked: Seen = |it, _| it.index().windows(4).any(|bytes| bytes == b"UNTR");
    let graph: Seen = |it, _| it.root().join(".git/objects/info/commit-graphs").exists();
    let entered: Seen = |_, printed| printed.contains("sub/in.txt");
    let commit = ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-aqm", "two"];
    let table: [Case<'_>; 3] = [
        ("core.untrackedCache", &[("core.untrackedCache", "true")], &["add", "."], untracked),
        (
            "maintenance.auto",
            &[
                ("maintenance.commit-graph.enabled", "true"),
                ("maintenance.commit-graph.auto", "-1"),
                ("maintenance.autoDetach", "false"),
                ("gc.autoDetach", "false"),
            ],
            &commit,
            graph,
        ),
        ("submodule.recurse", &[("submodule.recurse", "true")], &["grep", "wanted"], entered),
    ];
    for (name, settings, command, seen) in table {
        let it = Trapped::new();
        let inner = it.keep.path().join("inner");
        it.plain(&["init", "-q", inner.to_str().unwrap()]);
        std::fs::write(inner.join("in.txt"), "wanted").unwrap();
        it.plain(&["-C", inner.to_str().unwrap(), "add", "."]);
        it.plain(&["-C", inner.to_str().unwrap(), "commit", "-qm", "one"]);
        it.plain(&["submodule", "--quiet", "add", inner.to_str().unwrap(), "sub"]);
        it.plain(&["commit", "-aqm", "one"]);
        settings.iter().for_each(|(name, value)| it.config(name, value));
        std::fs::write(it.root().join("file"), "own").unwrap();
        let printed = it.ours(command);
        assert!(!seen(&it, &printed), "{name}");
        std::fs::write(it.root().join("file"), "two").unwrap();
        let printed = it.plain_with(&[], command, "");
        assert!(seen(&it, &printed), "{name}: plain git did not, so nothing is proven");
    }
}
