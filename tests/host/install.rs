//! What a user or a packager gets: `make install` into a folder, the Debian package, manual pages, completions, help. The
//! package is made from the binary under test: what is in it does not depend on the profile. Without cargo-deb the package
//! is not looked at, unless CRASHLAB_DEB=required.

use assert_cmd::Command;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The commands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = Command::cargo_bin("crashlab").unwrap().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let (list, _) = rest.split_once("\n\n").unwrap();
    let first = |line: &str| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')).map(str::to_owned);
    list.lines().filter_map(first).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

/// The pages that there should be: the command's own, and one for each command.
fn manual(folder: &str) -> Vec<String> {
    let each = commands().into_iter().map(|command| format!("{folder}/crashlab-{command}.1"));
    std::iter::once(format!("{folder}/crashlab.1")).chain(each).collect()
}

fn make(args: &[&str]) -> std::process::Output {
    // A make above this one would hand its own variables down.
    let mut command = Command::new("make");
    command.current_dir(ROOT).env_remove("MAKEFLAGS").env_remove("MAKELEVEL").args(args);
    let output = command.output().unwrap();
    assert!(output.status.success(), "make {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The installed binary is the one that was tested, and runs from where it is.
fn assert_runs(binary: &Path) {
    assert_eq!(binary.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| Command::new(binary).env_clear().current_dir(folder.path()).args(args).output().unwrap();
    let version = String::from_utf8(run(&["--version"]).stdout).unwrap();
    assert_eq!(version.trim(), concat!("crashlab ", env!("CARGO_PKG_VERSION")));
    assert!(run(&["init", "desk"]).status.success());
    let checked = Command::new(binary).current_dir(folder.path()).args(["check", "desk"]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn make_install_and_the_debian_package_hold_all_that_a_user_needs_and_nothing_else() {
    let binary = assert_cmd::cargo::cargo_bin("crashlab");
    let binary = format!("BINARY={}", binary.display());
    let scratch = tempfile::tempdir().unwrap();
    let (installed, share) = (scratch.path().join("image"), scratch.path().join("share"));
    let (image, share) = (format!("DESTDIR={}", installed.display()), format!("SHARE={}", share.display()));
    make(&["install", &binary, &image, &share, "PREFIX=/usr"]);
    let mut expected: BTreeSet<String> = [
        "usr/bin/crashlab",
        "usr/share/bash-completion/completions/crashlab",
        "usr/share/fish/vendor_completions.d/crashlab.fish",
        "usr/share/zsh/site-functions/_crashlab",
    ]
    .map(str::to_owned)
    .into();
    expected.extend(manual("usr/share/man/man1"));
    assert_eq!(files(&installed), expected);
    assert_runs(&installed.join("usr/bin/crashlab"));
    let page = std::fs::read_to_string(installed.join("usr/share/man/man1/crashlab-run.1")).unwrap();
    assert!(page.contains("\\-\\-trust\\-evaluation\\-code") && page.contains("Examples:"), "{page}");
    package(&binary, scratch.path());
}

fn package(binary: &str, scratch: &Path) {
    let there = Command::new("cargo").args(["deb", "--version"]).output().unwrap().status.success();
    if !there {
        let required = std::env::var_os("CRASHLAB_DEB").is_some_and(|value| value == "required");
        assert!(!required, "CRASHLAB_DEB=required, and there is no cargo-deb");
        eprintln!("no cargo-deb: the package was not looked at");
        return;
    }
    let deb = scratch.join("crashlab.deb");
    let how = format!("CARGO_DEB=--profile dev --fast --no-strip --output {}", deb.display());
    make(&["deb", binary, &how]);
    let unpacked = scratch.join("unpacked");
    Command::new("dpkg-deb").arg("--extract").args([&deb, &unpacked]).assert().success();
    let found = files(&unpacked);
    let compressed = manual("usr/share/man/man1").into_iter().map(|page| format!("{page}.gz"));
    let named =
        ["usr/bin/crashlab", "usr/share/bash-completion/completions/crashlab", "usr/share/doc/crashlab/copyright"];
    for file in compressed.chain(named.map(str::to_owned)) {
        assert!(found.contains(&file), "{file} of {found:?}");
    }
    for file in found.iter().filter(|file| !file.starts_with("usr/share/")) {
        assert_eq!(file, "usr/bin/crashlab");
    }
    assert_runs(&unpacked.join("usr/bin/crashlab"));
    let control = Command::new("dpkg-deb").arg("--field").arg(&deb).output().unwrap();
    let control = String::from_utf8(control.stdout).unwrap();
    for line in ["Package: crashlab", concat!("Version: ", env!("CARGO_PKG_VERSION")), "Recommends: docker.io"] {
        assert!(control.contains(line), "{line}: {control}");
    }
    let depends = control.lines().find(|line| line.starts_with("Depends:")).unwrap();
    assert!(depends.contains("git"), "{depends}");
}

#[test]
fn each_command_has_help_with_an_example_that_it_takes() {
    let commands = commands();
    assert!(commands.len() >= 14, "{commands:?}");
    for command in &commands {
        let help = Command::cargo_bin("crashlab").unwrap().args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        let (options, examples) = help.split_once("Examples:\n").unwrap_or_else(|| panic!("{command} has no example"));
        let own: Vec<&str> = examples.lines().filter(|line| line.trim_start().starts_with("crashlab ")).collect();
        assert!(!own.is_empty(), "{command}");
        for line in own {
            let mut words = line.split_whitespace().skip(1);
            assert_eq!(words.next(), Some(command.as_str()), "{line}");
            // What follows a pipe is somebody else's.
            for word in words.take_while(|word| !matches!(*word, "|" | ">")).filter(|word| word.starts_with("--")) {
                let option = word.split('=').next().unwrap();
                assert!(options.contains(option), "{line}: no {option}");
            }
        }
    }
}

#[test]
fn completions_know_every_command_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Command::cargo_bin("crashlab").unwrap().args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(script.stdout).unwrap();
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
    let script = Command::cargo_bin("crashlab").unwrap().args(["completions", "bash"]).output().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("crashlab.bash");
    std::fs::write(&file, script.stdout).unwrap();
    // As a user presses Tab: `crashlab com<Tab>`, and an option behind a command.
    let ask = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
               _crashlab crashlab \"${COMP_WORDS[-1]}\" \"${COMP_WORDS[-2]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    for (words, wanted) in [(["crashlab", "com"].as_slice(), "compare"), (&["crashlab", "run", "--sh"], "--shard")] {
        let output = Command::new("bash").args(["-c", ask, "bash"]).arg(&file).args(words).output().unwrap();
        let replies = String::from_utf8(output.stdout).unwrap();
        assert!(replies.lines().any(|line| line == wanted), "{words:?}: {replies}");
    }
}
