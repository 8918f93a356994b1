//! `crashlab check`: what it says of a package, what it refuses, and what it never does.

use crate::traps::Traps;
use assert_cmd::Command;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A package in a repository of its own.
struct Package {
    folder: tempfile::TempDir,
}

const EVALUATION: &str = r#"
import pathlib
pathlib.Path("was-started").write_text("yes")
from crashlab import Check, Evaluation
evaluation = Evaluation()

@evaluation.world
def world(case): return {"orders": {}}

@evaluation.operation
def get_order(world, order_id: str) -> dict: return {"id": order_id}

@evaluation.verify
def verify(trial): yield Check("fine", True, "")

if __name__ == "__main__":
    evaluation.serve()
"#;

impl Drop for Package {
    fn drop(&mut self) {
        assert!(
            std::thread::panicking() || !self.folder.path().join("docker-was-called").exists(),
            "docker was called"
        );
    }
}

impl Package {
    fn new(more: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut policy = json!({
            "version": 1, "name": "refund-desk",
            "target": {"image": {"reference": "a/b:1"}, "command": ["python3", "/target/agent.py"]},
            "operations": {"get_order": {}},
            "evaluation": {"command": ["python3", "evaluation.py"]}
        });
        json_patch::merge(&mut policy, more);
        let package = Self { folder };
        package.write("policy.json", &policy.to_string());
        package.write("cases.jsonl", "{\"id\": \"double-refund\", \"input\": 1}\n{\"id\": \"plain\", \"input\": 2}\n");
        package.write("evaluation.py", EVALUATION);
        package.write("target/agent.py", "print(1)\n");
        package.git(&["init", "--quiet"]);
        package
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("package")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn git(&self, args: &[&str]) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]);
        git.args(args).current_dir(self.path()).assert().success();
    }

    /// `crashlab check PACKAGE`, in an environment that holds nothing but a search path.
    fn check(&self, args: &[&str]) -> Command {
        let mut command = Command::cargo_bin("crashlab").unwrap();
        command.env_clear().env("PATH", tools(self.folder.path())).arg("check").arg(self.path()).args(args);
        command.current_dir(self.folder.path());
        command
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.check(args).args(["--format", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }

    fn was_started(&self) -> bool {
        self.path().join("was-started").exists()
    }
}

/// A search path on which docker is a stand-in that leaves a mark: a check never calls it.
fn tools(beside: &Path) -> std::ffi::OsString {
    let bin = beside.join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        let stand_in = format!("#!/bin/sh\necho called > {}\n", beside.join("docker-was-called").display());
        std::fs::write(bin.join("docker"), stand_in).unwrap();
        std::fs::set_permissions(bin.join("docker"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = std::env::var_os("PATH").unwrap();
    std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&path))).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_package_is_described_without_docker_and_without_starting_its_code() {
    let package = Package::new(&json!({"repeat": 3}));
    let report = package.json(&[]);
    let digest = report["digest"].as_str().unwrap();
    assert_eq!(digest.len(), "sha256:".len() + 64);
    assert_eq!(report["accepted"], true);
    assert_eq!(report["trust"], json!({"started": false, "flag": format!("--trust-evaluation-code={digest}")}));
    assert_eq!(report["evaluation"]["command"], json!(["python3", "evaluation.py"]));
    assert_eq!(report["evaluation"]["lock"], Value::Null);
    assert_eq!(report["cases"]["ids"], json!(["double-refund", "plain"]));
    assert_eq!(report["cases"]["trials"], 6);
    assert_eq!((&report["target"]["files"], &report["target"]["bytes"]), (&json!(1), &json!(9)));
    assert_eq!(report["operations"], json!([{"name": "get_order", "calls": 100}]));
    let files: Vec<&str> = report["files"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(files, ["cases.jsonl", "evaluation.py", "policy.json"], "the target's folder is not the package's");
    assert!(!package.was_started());
}

#[test]
fn people_are_told_what_to_review_and_which_flag_to_paste() {
    let package = Package::new(&json!({}));
    let output = package.check(&[]).assert().success().get_output().clone();
    let (told, digest) = (text(&output.stdout), package.json(&[])["digest"].as_str().unwrap().to_owned());
    for wanted in [
        "refund-desk would be accepted",
        "python3 evaluation.py",
        "double-refund, plain",
        "get_order",
        "not reproducible",
        "review it",
        &format!("--trust-evaluation-code={digest}"),
    ] {
        assert!(told.contains(wanted), "{told}\nlacks {wanted}");
    }
    assert!(!package.was_started());
}

#[test]
fn people_are_told_what_to_do_about_env_files_and_keys() {
    let told = text(&Package::new(&json!({})).check(&[]).output().unwrap().stdout);
    for wanted in [
        "to .gitignore before a value is in it",
        "names and empty placeholders in .env.example",
        "restrict .env to your user",
        "git check-ignore .env",
        "leaves an ignored .env out; a .env that git tracks goes in",
        "committed, copied into an image or printed",
        "rotate it",
        "cannot prove that files that you wrote are free of secrets",
    ] {
        assert!(told.contains(wanted), "{told}\nlacks {wanted}");
    }
}

#[test]
fn trusted_code_is_started_and_heard() {
    let package = Package::new(&json!({}));
    let report = package.json(&["--trust-evaluation-code"]);
    assert_eq!(report["trust"]["started"], true, "{report}");
    assert!(package.was_started());
    let other = Package::new(&json!({"operations": {"refund": {}}}));
    let output = other.check(&["--trust-evaluation-code"]).assert().code(2).get_output().clone();
    assert!(text(&output.stderr).contains("does not implement the operation refund"), "{output:?}");
}

#[test]
fn a_digest_that_was_reviewed_is_the_only_one_that_passes() {
    let package = Package::new(&json!({}));
    let flag = package.json(&[])["trust"]["flag"].as_str().unwrap().to_owned();
    package.write("evaluation.py", &format!("{EVALUATION}# one more line\n"));
    let output = package.check(&[&flag]).assert().code(2).get_output().clone();
    assert!(text(&output.stderr).contains("not the one that was reviewed"), "{output:?}");
    assert!(!package.was_started());
    let flag = package.json(&[])["trust"]["flag"].as_str().unwrap().to_owned();
    package.check(&[&flag]).assert().success();
}

#[test]
fn a_missing_credential_is_named_and_one_that_is_there_is_never_shown() {
    let gateway = json!({"extends": ["provider/openai"]});
    let package = Package::new(&gateway);
    let output = package.check(&[]).assert().code(2).get_output().clone();
    let told = text(&output.stdout);
    assert!(told.contains("would be refused: 1 credential missing"), "{told}");
    assert!(
        told.contains("OPENAI_API_KEY (gateway openai): missing: the environment variable OPENAI_API_KEY is not set"),
        "{told}"
    );
    let key = "sk-check-0123456789";
    for format in ["human", "json"] {
        let output =
            package.check(&["--format", format]).env("OPENAI_API_KEY", key).assert().success().get_output().clone();
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
        assert!(told.contains("OPENAI_API_KEY") && !told.contains(key), "{told}");
    }
}

#[test]
fn env_files_are_told_with_what_git_makes_of_them_and_never_opened() {
    let package = Package::new(&json!({}));
    package.write(".gitignore", ".env.local\nignored/\n");
    for (name, mode) in [
        ("target/.env", 0o600),
        (".env.local", 0o644),
        ("ignored/.env", 0o600),
        (".env.example", 0o644),
        ("deep/.env", 0o600),
    ] {
        package.write(name, "KEY=canary-0123456789\n");
        std::fs::set_permissions(package.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }
    package.git(&["add", "--force", "target/.env"]);
    let output = package.check(&["--format", "json"]).output().unwrap();
    assert!(!text(&output.stdout).contains("canary"), "content was read");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let known: Vec<(String, &str)> = report["env_files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            let path = Path::new(file["path"].as_str().unwrap());
            let root = package.path().canonicalize().unwrap();
            (path.strip_prefix(root).unwrap().display().to_string(), file["git"].as_str().unwrap())
        })
        .collect();
    let wanted = [
        (".env.local", "ignored"),
        ("deep/.env", "untracked"),
        ("ignored/.env", "ignored"),
        ("target/.env", "tracked"),
    ];
    assert_eq!(known, wanted.map(|(path, git)| (path.to_owned(), git)));
    let warnings = report["warnings"].to_string();
    for wanted in ["target/.env is tracked by git", "deep/.env is not ignored", ".env.local can be read by other users"]
    {
        assert!(warnings.contains(wanted), "{warnings} lacks {wanted}");
    }
    assert!(!warnings.contains("ignored/.env can be read"), "{warnings}");
}

#[test]
fn asking_git_about_env_files_runs_nothing_of_the_repository() {
    let package = Package::new(&json!({}));
    package.write(".env", "");
    let marker = package.folder.path().join("marker");
    let script = package.folder.path().join("evil");
    std::fs::write(&script, format!("#!/bin/sh\necho run > {}\n", marker.display())).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    package.git(&["config", "core.fsmonitor", script.to_str().unwrap()]);
    package.check(&[]).assert().success();
    assert!(!marker.exists(), "a check ran the repository's program");
    package.git(&["status"]);
    assert!(marker.exists(), "the control: plain git runs it");
    // Nor a program of the folder, for whom a relative entry of PATH finds it there.
    std::fs::remove_file(&marker).unwrap();
    std::fs::copy(&script, package.path().join("git")).unwrap();
    let mut path = std::ffi::OsString::from(".:");
    path.push(tools(package.folder.path()));
    package.check(&[]).env("PATH", &path).assert().success();
    assert!(!marker.exists(), "a check ran the folder's program");
    Command::new("/bin/sh").args(["-c", "git"]).env("PATH", &path).current_dir(package.path()).output().unwrap();
    assert!(marker.exists(), "the control: a shell runs it");
}

#[test]
fn what_is_refused_is_refused_with_its_place_in_one_document() {
    let table = [
        (json!({"sandbox": {"memory": "256MB"}}), "policy.json#/sandbox/memory"),
        (json!({"target": {"env": {"MY_API_KEY": "x"}}}), "policy.json#/target/env/MY_API_KEY"),
        (json!({"evaluation": {"lock": "uv.lock"}}), "policy.json#/evaluation/lock"),
        (json!({"cases": "none.jsonl"}), "none.jsonl"),
        (json!({"target": {"source": "none"}}), "policy.json#/target/source"),
        (json!({"target": {"image": {"reference": null, "build": {}}}}), "policy.json#/target/image/build/dockerfile"),
        (json!({"target": {"limits": {"files": 1, "bytes": "1B"}}}), ""),
    ];
    for (more, place) in table {
        let package = Package::new(&more);
        let output = package.check(&["--format", "json"]).assert().code(2).get_output().clone();
        let error: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&error["schema"], &error["exit"]), (&json!("crashlab.error/1"), &json!(2)));
        assert!(place.is_empty() || error["where"] == place, "{error}");
        assert!(!error["hint"].is_null(), "{error}");
    }
}

#[test]
fn a_script_of_replies_that_the_digest_would_not_cover_is_refused() {
    let package = Package::new(
        &json!({"extends": ["provider/openai"], "gateways": {"openai": {"upstream": {"script": "r.jsonl"}}}}),
    );
    package.write("r.jsonl", "{}\n");
    package.check(&[]).assert().success();
    package.write(".gitignore", "r.jsonl\n");
    let output = package.check(&[]).assert().code(2).get_output().clone();
    assert!(
        text(&output.stderr)
            .contains("r.jsonl: the policy names this file, and the package's digest does not cover it"),
        "{output:?}"
    );
}

#[test]
fn an_overlay_is_merged_and_named_in_its_errors() {
    let package = Package::new(&json!({}));
    package.write("../ci.json", r#"{"repeat": 5}"#);
    assert_eq!(package.json(&["--policy", "ci.json"])["cases"]["repeat"], 5);
    package.write("../ci.json", r#"{"repeat": 0}"#);
    let output = package.check(&["--policy", "ci.json"]).assert().code(2).get_output().clone();
    assert!(text(&output.stderr).contains("ci.json#/repeat: found 0"), "{output:?}");
}

#[test]
fn the_published_schema_is_printed() {
    let schema = |name: &str| {
        let output =
            Command::cargo_bin("crashlab").unwrap().args(["schema", name]).assert().success().get_output().clone();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    assert_eq!(schema("policy"), serde_json::from_str::<Value>(crashlab::policy::schema_text()).unwrap());
    assert_eq!(schema("case"), serde_json::from_str::<Value>(crashlab::policy::case_schema_text()).unwrap());
}

/// F2: neither the package's repository nor the target's, which is another one inside it, runs anything.
#[test]
fn no_command_without_an_engine_runs_what_a_repository_configures() {
    let package = Package::new(&json!({}));
    let target = package.path().join("target");
    crate::traps::plain(&target, &["init", "-q", "."]);
    let traps = [(target, "of-target"), (package.path(), "of-package")]
        .map(|(tree, name)| Traps::set(&tree, &package.folder.path().join(name)));
    // Setting the second ones may have sprung some of the first.
    traps.iter().for_each(|traps| drop(traps.fired()));
    for args in [[].as_slice(), &["--format", "json"], &["--trust-evaluation-code"]] {
        package.check(args).assert().success();
    }
    let mut plan = Command::cargo_bin("crashlab").unwrap();
    plan.arg("plan").arg(package.path()).assert().success();
    for traps in traps {
        assert_eq!(traps.fired().into_iter().collect::<Vec<_>>(), [""; 0]);
        traps.control();
    }
}

/// F5: a Dockerfile may be a link, as long as a file of the snapshot is at its end; nothing outside is opened for one.
#[test]
fn a_dockerfile_behind_a_link_is_one_of_the_snapshot_or_none() {
    type Plant = fn(&Path);
    let table: [(&str, &str, Plant, Option<&str>); 10] = [
        ("a link inside", "Dockerfile", |at| link_to("docker/real", &at.join("Dockerfile")), None),
        ("a folder's link inside", "build/real", |at| link_to("docker", &at.join("build")), None),
        (
            "a link outside",
            "Dockerfile",
            |at| link_to("../../outside", &at.join("Dockerfile")),
            Some("leaves the target"),
        ),
        (
            "an absolute link",
            "Dockerfile",
            |at| link_to("/etc/passwd", &at.join("Dockerfile")),
            Some("leaves the target"),
        ),
        ("a folder's link outside", "up/outside", |at| link_to("../..", &at.join("up")), Some("leaves the target")),
        ("a dangling link", "Dockerfile", |at| link_to("gone", &at.join("Dockerfile")), Some("has no file Dockerfile")),
        ("a loop", "Dockerfile", |at| link_to("Dockerfile", &at.join("Dockerfile")), Some("has no file Dockerfile")),
        ("a folder", "docker", |_| {}, Some("has no file docker")),
        ("git's own", "Dockerfile", |at| link_to(".git/HEAD", &at.join("Dockerfile")), Some("has no file Dockerfile")),
        (
            "an ignored file",
            "Dockerfile",
            |at| link_to("own.log", &at.join("Dockerfile")),
            Some("has no file Dockerfile"),
        ),
    ];
    for (name, dockerfile, plant, refused) in table {
        let build = json!({"reference": null, "build": {"dockerfile": dockerfile}});
        let package = Package::new(&json!({"target": {"image": build}}));
        package.write("../outside", "FROM the-host");
        package.write("target/docker/real", "FROM base");
        package.write("target/own.log", "FROM the-host");
        package.write("target/.gitignore", "*.log\n");
        plant(&package.path().join("target"));
        let target = package.path().join("target");
        crate::traps::plain(&target, &["init", "-q", "."]);
        let report = package.check(&[]).output().unwrap();
        let told = text(&report.stderr);
        match refused {
            None => assert!(report.status.success(), "{name}: {told}"),
            Some(why) => {
                assert_eq!(report.status.code(), Some(2), "{name}: {told}");
                assert!(told.contains(why) && !told.contains("the-host"), "{name}: {told}");
                // A run says the same, before the engine is asked for anything.
                let mut run = Command::cargo_bin("crashlab").unwrap();
                run.env_clear().env("PATH", tools(package.folder.path())).current_dir(package.folder.path());
                let ran = run.arg("run").arg(package.path()).arg("--trust-evaluation-code").output().unwrap();
                assert_eq!((ran.status.code(), text(&ran.stderr)), (Some(2), told), "{name}");
            }
        }
    }
}

fn link_to(to: &str, from: &Path) {
    std::os::unix::fs::symlink(to, from).unwrap();
}

/// A git that writes down how it was called, and answers as the real one.
const GIT: &str = r#"#!/bin/sh
{ printf '%s\0' "$@"; printf '\001\0'; env -0; } >>"@CALLS@/$$"
exec @REAL@ "$@"
"#;

/// The exact settings and environment of every question to git. To change one is a decision: what each is for stands beside
/// it in the code, and most are a second line, whose want no other test would notice.
#[test]
fn git_is_asked_only_these_questions_with_exactly_these_settings_and_this_environment() {
    let package = Package::new(&json!({}));
    package.write(".env", "");
    package.git(&["add", "."]);
    package.git(&["commit", "--quiet", "-m", "one"]);
    let bin = tools(package.folder.path());
    let (calls, bin_folder) = (package.folder.path().join("calls"), package.folder.path().join("bin"));
    std::fs::create_dir(&calls).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let real = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|git| git.is_file()).unwrap();
    let script = GIT.replace("@CALLS@", calls.to_str().unwrap()).replace("@REAL@", real.to_str().unwrap());
    std::fs::write(bin_folder.join("git"), script).unwrap();
    std::fs::set_permissions(bin_folder.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut check = package.check(&[]);
    for name in ["HOME", "LANG", "LANGUAGE", "GIT_DIR", "GIT_ASKPASS", "SSH_ASKPASS", "SSH_AUTH_SOCK", "HTTPS_PROXY"] {
        check.env(name, "/nowhere");
    }
    check.assert().success();
    let settings = [
        "core.fsmonitor=false",
        "core.hooksPath=/dev/null",
        "core.untrackedCache=false",
        "core.attributesFile=/dev/null",
        "core.sshCommand=false",
        "core.askPass=",
        "credential.helper=",
        "submodule.recurse=false",
        "maintenance.auto=false",
    ];
    let mut wanted: Vec<String> =
        settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect();
    wanted.extend(["--no-pager".to_owned(), "-C".to_owned()]);
    let mut verbs = std::collections::BTreeSet::new();
    for call in std::fs::read_dir(&calls).unwrap() {
        let call = text(&std::fs::read(call.unwrap().path()).unwrap());
        let (args, environment) = call.split_once("\u{1}\0").unwrap();
        let args: Vec<&str> = args.split_terminator('\0').collect();
        let (head, question) = args.split_at(wanted.len());
        assert_eq!(head, wanted);
        verbs.insert(question[1].to_owned());
        let folder = Path::new(question[0]);
        let variable = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut environment: BTreeMap<String, String> =
            environment.split_terminator('\0').filter_map(variable).collect();
        // What a shell adds by itself.
        environment.retain(|name, _| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()));
        let top = environment["GIT_WORK_TREE"].clone();
        assert!(
            folder.starts_with(&top) && folder.starts_with(package.folder.path().canonicalize().unwrap()),
            "{args:?}"
        );
        let exactly = [
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_DIR", &format!("{top}/.git")),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_WORK_TREE", &top),
            ("HOME", "/nowhere"),
            ("LC_ALL", "C"),
            ("PATH", bin.to_str().unwrap()),
        ];
        let exactly = exactly.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(environment.into_iter().collect::<Vec<_>>(), exactly);
    }
    assert_eq!(verbs.into_iter().collect::<Vec<_>>(), ["config", "ls-files", "ls-tree", "rev-parse"]);
}
