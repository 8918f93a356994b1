//! A repository that would run a program of its own wherever git lets it: each leaves a mark of its name. That each can
//! fire is shown with plain git, else a test of what does not fire would prove nothing. Shared with the engine's tests.

use assert_cmd::Command;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

/// The name of a trap and what of plain git springs it, besides setting it off.
const CONTROLS: [(&str, &[&str]); 15] = [
    ("fsmonitor", &["status"]),
    // Git that writes an index looks once more into what has changed in the same moment, and ends where that filter does.
    ("hook", &["-c", "filter.process.process=", "add", "file.txt"]),
    ("clean", &["status", "file.txt"]),
    ("process", &["status", "file.bin"]),
    ("info-attributes", &["status", "file.md"]),
    ("own-attributes", &["status", "file.rst"]),
    ("include", &["status", "file.inc"]),
    ("external", &["diff", "file.txt"]),
    ("textconv", &["diff", "--no-ext-diff", "file.txt"]),
    ("pager", &["log"]),
    ("pager-of-a-verb", &["ls-files"]),
    ("alias", &["own"]),
    ("ssh", &["fetch", "origin"]),
    ("submodule-fsmonitor", &["-C", "sub", "status"]),
    ("submodule-update", &["submodule", "update"]),
];

/// A trapped working tree, which may be one of several of its repository.
pub struct Traps {
    tree: PathBuf,
    beside: PathBuf,
}

impl Traps {
    /// Sets all of them in a working tree; commits what it holds, and a submodule `sub`. What else they need comes into the
    /// folder `beside`, which is made.
    pub fn set(tree: &Path, beside: &Path) -> Self {
        std::fs::create_dir_all(beside.join("fired")).unwrap();
        let traps = Self { tree: tree.to_owned(), beside: beside.to_owned() };
        let inner = beside.join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("in.txt"), "one").unwrap();
        plain(&inner, &["init", "-q", "."]);
        commit(&inner);
        traps.touch(0);
        let attributes = "*.txt filter=clean diff=x\n*.bin filter=process\n*.inc filter=include\n";
        std::fs::write(tree.join(".gitattributes"), attributes).unwrap();
        let from = inner.to_str().unwrap();
        plain(tree, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", from, "sub"]);
        commit(tree);
        commit(&tree.join("sub"));
        traps.configure();
        traps.touch(1);
        traps
    }

    /// Written into the files of git's own folder, where another of its working trees may be the first one.
    fn configure(&self) {
        let beside = |name: &str| self.beside.join(name).into_os_string().into_string().unwrap();
        let own = |name: &str| self.tree.join(plain(&self.tree, &["rev-parse", "--git-path", name]).trim());
        let info = own("info/attributes");
        std::fs::create_dir_all(info.parent().unwrap()).unwrap();
        std::fs::write(info, "*.md filter=info\n").unwrap();
        std::fs::write(beside("attributes"), "*.rst filter=own\n").unwrap();
        std::fs::write(beside("included"), format!("[filter \"include\"]\nclean = {}\n", self.program("include")))
            .unwrap();
        std::fs::create_dir(beside("hooks")).unwrap();
        std::fs::rename(self.program("hook"), beside("hooks/post-index-change")).unwrap();
        let mut config =
            format!("[core]\nattributesFile = {}\nhooksPath = {}\n", beside("attributes"), beside("hooks"));
        config +=
            &format!("[include]\npath = {}\n[remote \"origin\"]\nurl = ssh://host.invalid/a\n", beside("included"));
        for (section, key, name) in [
            ("core", "fsmonitor", "fsmonitor"),
            ("core", "pager", "pager"),
            ("core", "sshCommand", "ssh"),
            ("filter \"clean\"", "clean", "clean"),
            ("filter \"process\"", "process", "process"),
            ("filter \"info\"", "clean", "info-attributes"),
            ("filter \"own\"", "clean", "own-attributes"),
            ("diff", "external", "external"),
            ("diff \"x\"", "textconv", "textconv"),
        ] {
            config += &format!("[{section}]\n{key} = {}\n", self.program(name));
        }
        let (pager, alias) = (self.program("pager-of-a-verb"), self.program("alias"));
        for verb in ["ls-files", "ls-tree", "rev-parse", "config", "own"] {
            config += &format!("[pager]\n{verb} = {pager}\n[alias]\n{verb} = !{alias}\n");
        }
        config += &format!("[submodule \"sub\"]\nupdate = !{}\n", self.program("submodule-update"));
        let inner = plain(&self.tree.join("sub"), &["rev-parse", "--git-path", "config"]);
        append(
            &self.tree.join("sub").join(inner.trim()),
            &format!("[core]\nfsmonitor = {}\n", self.program("submodule-fsmonitor")),
        );
        append(&own("config"), &config);
        self.fired();
    }

    /// A program that leaves a mark, reads nothing, and has failed: no caller takes its silence for an answer.
    fn program(&self, name: &str) -> String {
        let path = self.beside.join(format!("trap-{name}"));
        let mark = self.beside.join("fired").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n: > '{}'\nexit 1\n", mark.display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.into_os_string().into_string().unwrap()
    }

    /// Other content of the same size: stat data says nothing, and git would look into the files.
    fn touch(&self, nth: usize) {
        for file in ["file.txt", "file.bin", "file.inc", "file.md", "file.rst"] {
            std::fs::write(self.tree.join(file), format!("{nth:03}")).unwrap();
        }
    }

    /// Those that have fired since the last look.
    pub fn fired(&self) -> BTreeSet<String> {
        let marks = std::fs::read_dir(self.beside.join("fired")).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: PathBuf| {
            std::fs::remove_file(&path).unwrap();
            path.file_name().unwrap().to_str().unwrap().to_owned()
        };
        marks.map(name).collect()
    }

    /// Springs each with plain git; panics where one does not fire.
    pub fn control(&self) {
        for (nth, (name, args)) in CONTROLS.into_iter().enumerate() {
            self.touch(nth + 2);
            let quiet = ["-c", if name.ends_with("fsmonitor") { "a.b=c" } else { "core.fsmonitor=false" }];
            // Whatever else it says; with a terminal on standard output, for a pager.
            let terminal = "import pty, subprocess, sys; subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=pty.openpty()[1])";
            let mut git = Command::new(if name.starts_with("pager") { "python3" } else { "git" });
            if name.starts_with("pager") {
                git.args(["-c", terminal, "git"]);
            }
            git.current_dir(&self.tree).args(quiet).args(args);
            let said = git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("TERM", "dumb").output().unwrap();
            let fired = self.fired();
            assert!(
                fired.contains(name),
                "{name}: plain git {args:?} did not fire it, so nothing is proven: {fired:?}\n{said:?}"
            );
        }
    }
}

fn append(file: &Path, text: &str) {
    let mut file = std::fs::File::options().append(true).open(file).unwrap();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
}

fn commit(folder: &Path) {
    plain(folder, &["add", "--all"]);
    plain(folder, &["commit", "-q", "--allow-empty", "-m", "a commit"]);
}

/// Plain git with none of the host's configuration; its output.
pub fn plain(folder: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=a", "-c", "user.email=a@example.com"]).args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let Output { status, stdout, stderr } = git.output().unwrap();
    assert!(status.success(), "git {args:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}
