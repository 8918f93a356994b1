//! Packages: what the digest covers, what trust asks for, which lock is kept (T1, T2, T3).

use super::lab::Lab;
use assert_cmd::Command;
use crashlab::evaluation::{Package, Trust, open, require_trust};
use crashlab::exit::Refusal;
use crashlab::ids::Digest;

fn lab() -> Lab {
    Lab::python("open('it-ran', 'w')\n")
}

fn paths(package: &Package) -> Vec<&str> {
    package.files.iter().map(|file| file.path.as_str()).collect()
}

fn git(lab: &Lab, args: &[&str]) {
    Command::new("git").args(args).current_dir(lab.root()).assert().success();
}

#[test]
fn without_a_repository_every_file_counts_but_what_is_never_part() {
    let lab = lab();
    for path in [
        ".venv/bin/python",
        "__pycache__/a.pyc",
        "sub/__pycache__/a.pyc",
        ".crashlabs/runs/x",
        "target/agent.py",
        "target-careless/agent.py",
        "target-notes",
        "sub/target/x",
        "sub/.hidden",
    ] {
        lab.write(path, "x");
    }
    let package = lab.package();
    let right = ["cases.jsonl", "evaluation.py", "policy.json", "sub/.hidden", "sub/target/x", "target-notes"];
    assert_eq!(paths(&package), right);
    assert!(!package.reproducible && package.lock.is_none());
    assert!(!lab.root().join("it-ran").exists(), "nothing of a package runs when it is opened");
}

#[test]
fn in_a_repository_what_git_tracks_or_would_track_counts() {
    let lab = lab();
    git(&lab, &["init", "--quiet"]);
    lab.write(".gitignore", ".env\nignored-*\n");
    lab.write(".env", "KEY=x");
    lab.write("ignored-untracked", "x");
    lab.write("ignored-tracked", "x");
    lab.write("deleted", "x");
    git(&lab, &["add", "--force", "ignored-tracked", "deleted"]);
    std::fs::remove_file(lab.root().join("deleted")).unwrap();
    lab.write("name with\nline end", "x");
    let right = [".gitignore", "cases.jsonl", "evaluation.py", "ignored-tracked", "name with\nline end", "policy.json"];
    assert_eq!(paths(&lab.package()), right);
}

#[test]
fn the_digest_is_the_same_with_and_without_a_repository_and_in_another_place() {
    let lab = lab();
    lab.write("target/agent.py", "x");
    let outside = lab.package().digest;
    git(&lab, &["init", "--quiet"]);
    assert_eq!(lab.package().digest, outside);
    assert_eq!(super::package::lab_copy(&lab).digest, outside);
}

/// The same package below another folder, inside a repository that ignores it.
fn lab_copy(lab: &Lab) -> Package {
    let above = lab.outside().join("above");
    std::fs::create_dir_all(above.join("copy")).unwrap();
    Command::new("git").args(["init", "--quiet"]).current_dir(&above).assert().success();
    std::fs::write(above.join(".gitignore"), "copy\n").unwrap();
    for name in ["policy.json", "cases.jsonl", "evaluation.py"] {
        std::fs::copy(lab.root().join(name), above.join("copy").join(name)).unwrap();
    }
    open(&above.join("copy"), &lab.policy).unwrap()
}

#[test]
fn every_change_of_what_is_covered_is_another_digest() {
    let lab = lab();
    lab.write("data/a", "1");
    let mut seen = vec![lab.package().digest];
    let mut changed = |what: &str, change: &dyn Fn()| {
        change();
        let digest = lab.package().digest;
        assert!(!seen.contains(&digest), "{what}");
        seen.push(digest);
    };
    let root = lab.root();
    changed("a byte", &|| lab.write("data/a", "2"));
    changed("a name", &|| std::fs::rename(root.join("data/a"), root.join("data/b")).unwrap());
    changed("an empty file", &|| lab.write("data/c", ""));
    changed("a mode", &|| {
        std::fs::set_permissions(root.join("data/b"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    });
    changed("a link", &|| std::os::unix::fs::symlink("b", root.join("data/link")).unwrap());
    changed("where it points", &|| {
        std::fs::remove_file(root.join("data/link")).unwrap();
        std::os::unix::fs::symlink("c", root.join("data/link")).unwrap();
    });
}

#[test]
fn what_the_target_or_the_interpreter_leaves_behind_changes_nothing() {
    let lab = lab();
    let before = lab.package().digest;
    lab.write("target/agent.py", "x");
    lab.write("target-careless/agent.py", "x");
    lab.write("__pycache__/evaluation.pyc", "x");
    lab.write(".crashlabs/runs/x/run.json", "x");
    assert_eq!(lab.package().digest, before);
}

#[test]
fn a_hostile_repository_runs_nothing_when_it_is_listed() {
    let lab = lab();
    git(&lab, &["init", "--quiet"]);
    lab.write("hook.sh", "#!/bin/sh\necho ran > ../it-ran\n");
    let hook = lab.root().join("hook.sh");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for key in ["core.fsmonitor", "core.sshCommand", "core.pager", "diff.external"] {
        git(&lab, &["config", key, hook.as_str()]);
    }
    lab.package();
    assert!(!lab.outside().join("it-ran").exists());
}

fn refused(lab: &Lab) -> Refusal {
    open(&lab.root(), &lab.policy).unwrap_err()
}

#[test]
fn what_the_digest_cannot_cover_is_refused_by_name() {
    let leaving = lab();
    std::os::unix::fs::symlink("../elsewhere", leaving.root().join("out")).unwrap();
    assert!(refused(&leaving).to_string().starts_with("out: this link leaves the package"), "{}", refused(&leaving));

    let special = lab();
    Command::new("mkfifo").arg(special.root().join("pipe")).assert().success();
    assert!(refused(&special).to_string().starts_with("pipe: this is neither"), "{}", refused(&special));

    let ignored = lab();
    git(&ignored, &["init", "--quiet"]);
    ignored.write(".gitignore", "evaluation.py\n");
    let words = refused(&ignored).to_string();
    assert!(words.starts_with("evaluation.py: ") && words.contains("does not cover it"), "{words}");
}

#[test]
fn a_link_inside_the_package_stays() {
    let lab = lab();
    lab.write("data/a", "1");
    std::os::unix::fs::symlink("../evaluation.py", lab.root().join("data/link")).unwrap();
    assert!(paths(&lab.package()).contains(&"data/link"));
}

#[test]
fn trust_is_asked_for_with_what_would_run_and_the_flag_to_paste() {
    let lab = lab();
    let package = lab.package();
    let flag = format!("--trust-evaluation-code={}", package.digest);
    let words = require_trust(&package, &lab.policy, &Trust::No).unwrap_err().to_string();
    for part in ["python3 evaluation.py", package.root.as_str(), package.digest.as_str(), flag.as_str()] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(require_trust(&package, &lab.policy, &Trust::Yes).is_ok());
    let pinned = Trust::from_flag(flag.split_once('=').map(|(_, digest)| digest)).unwrap();
    assert!(require_trust(&package, &lab.policy, &pinned).is_ok());
}

#[test]
fn one_changed_byte_refuses_a_pinned_package() {
    let lab = lab();
    let pinned = Trust::Pinned(lab.package().digest);
    lab.write("evaluation.py", "open('it-ran', 'w')\n ");
    let package = lab.package();
    let words = require_trust(&package, &lab.policy, &pinned).unwrap_err().to_string();
    assert!(words.contains("not the one that was reviewed"), "{words}");
    assert!(words.contains(&format!("--trust-evaluation-code={}", package.digest)), "{words}");
}

#[test]
fn a_pin_that_is_no_digest_is_refused() {
    assert_eq!(Trust::from_flag(None), Ok(Trust::No));
    assert_eq!(Trust::from_flag(Some("")), Ok(Trust::Yes));
    for bad in ["sha256:12", "yes", &format!("sha512:{}", "0".repeat(64)), &format!("sha256:{}", "A".repeat(64))] {
        assert!(Trust::from_flag(Some(bad)).is_err(), "{bad}");
    }
}

#[test]
fn a_declared_lock_is_kept_and_one_that_pins_nothing_is_refused() {
    let mut lab = lab();
    lab.policy.evaluation.lock = Some("requirements.lock".into());
    assert!(refused(&lab).to_string().starts_with("requirements.lock: cannot read the dependency lock"));
    lab.write("requirements.lock", "requests\n");
    assert!(refused(&lab).to_string().contains("no exact version with a hash"), "{}", refused(&lab));
    lab.write("requirements.lock", "# no dependencies\n");
    let package = lab.package();
    let lock = package.lock.unwrap();
    assert_eq!((lock.path.as_str(), lock.sha256), ("requirements.lock", Digest::of(b"# no dependencies\n")));
    assert!(package.reproducible);
}

#[test]
fn git_hears_nothing_of_the_hosts_environment() {
    let lab = lab();
    git(&lab, &["init", "--quiet"]);
    let bin = lab.outside().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let seen = lab.outside().join("seen");
    let path = "/usr/local/bin:/usr/bin:/bin";
    let script = format!("#!/bin/sh\nenv >> {seen}\necho \"ARGS=$*\" >> {seen}\nPATH='{path}' exec git \"$@\"\n");
    std::fs::write(bin.join("git"), script).unwrap();
    std::fs::set_permissions(bin.join("git"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    lab.write("policy.json", &json_policy());
    lab.write("target/agent.py", "x");
    let mut check = Command::new(assert_cmd::cargo::cargo_bin!("crashlab"));
    check.args(["check", lab.root().as_str()]).env("PATH", format!("{bin}:{path}"));
    for n in 0..50 {
        check.env(format!("HOST_VARIABLE_{n}"), "host-value");
    }
    check.env("OPENAI_API_KEY", "host-value-of-the-key").env("GIT_DIR", "/host-value");
    check.output().unwrap();
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("ARGS=") && seen.contains("ls-files"), "git was not asked: {seen}");
    assert!(!seen.contains("host-value"), "{seen}");
}

fn json_policy() -> String {
    serde_json::json!({
        "version": 1, "name": "lab", "target": {"image": {"reference": "x:1"}, "command": ["true"]},
        "evaluation": {"command": ["python3", "evaluation.py"]},
    })
    .to_string()
}
