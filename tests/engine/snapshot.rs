//! W1, W3, W5 on the engine: what the sandbox's user reads of a snapshot through its mount is what the manifest says; and
//! F1, F2: nothing else of a repository reaches a build, its image or the sandbox, and nothing of it runs on the host.

use super::support::{BUSYBOX, PYTHON, Package, Wrapper, docker, objects_of};
use super::traps::{Traps, plain};
use crashlab::interrupt::Interrupt;
use crashlab::policy::SnapshotLimits;
use crashlab::snapshot::{Source, take};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

#[test]
fn the_sandboxes_user_reads_the_whole_snapshot_and_recomputes_its_digest() {
    let keep = tempfile::tempdir().unwrap();
    let base = camino::Utf8PathBuf::from_path_buf(keep.path().canonicalize().unwrap()).unwrap();
    let (root, into) = (base.join("work"), base.join("private"));
    std::fs::create_dir_all(root.join("folder/deep")).unwrap();
    let inside: [&[u8]; 6] = [b"a", b"folder/deep/b", b"\xff\xfe", "u\u{2028}\n\"".as_bytes(), b"-n", b"folder/tool"];
    for name in inside {
        let path = root.as_std_path().join(OsStr::from_bytes(name));
        std::fs::write(&path, name).unwrap();
        let mode = if name.ends_with(b"tool") { 0o700 } else { 0o600 };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::fs::set_permissions(root.join("folder"), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink("folder/deep", root.join("link")).unwrap();
    assert!(Command::new("git").args(["init", "-q"]).current_dir(&root).status().unwrap().success());
    std::fs::create_dir(&into).unwrap();
    std::fs::set_permissions(&into, std::fs::Permissions::from_mode(0o700)).unwrap();
    let all = ["**".to_owned()];
    let limits = SnapshotLimits { files: 100, bytes: 1 << 20, file: 1 << 20 };
    let taken =
        take(&Source { source: &root, package: None, results: None, files: &all, limits }, &into, &Interrupt::never())
            .unwrap();
    let beside = base.join("beside");
    std::fs::create_dir(&beside).unwrap();
    std::fs::write(beside.join("manifest.json"), taken.manifest_json().unwrap()).unwrap();
    std::fs::write(beside.join("recompute.py"), include_str!("../corpus/snapshot/recompute.py")).unwrap();
    let seen = docker(&[
        "run",
        "--rm",
        "--network=none",
        "--read-only",
        "--cap-drop=ALL",
        "--user=65534:65534",
        &format!("--mount=type=bind,src={},dst=/target,readonly", taken.folder),
        &format!("--mount=type=bind,src={beside},dst=/beside,readonly"),
        PYTHON,
        "python3",
        "/beside/recompute.py",
        "/beside/manifest.json",
        "/target",
    ]);
    assert_eq!(seen, taken.digest.as_str());
}

/// Writes down every path of the folder that a build gets.
const CONTEXT: &str = r#"
if args[:2] == ["buildx", "build"]:
    paths = [os.path.relpath(os.path.join(at, name), args[-1]) for at, folders, files in os.walk(args[-1]) for name in folders + files]
    open(FOLDER + "/context", "w").write(json.dumps(paths))
"#;

/// Says what is in the image and in the mount, and which of it holds what no snapshot may have.
const LOOK: &str = r#"
b() { /bin/busybox "$@"; }
below() { cd "$1" && b find . | b sort | b tr '\n' ' '; }
printf '{"ok": true, "image": "%s", "mount": "%s", "found": "%s"}' \
    "$(below /all)" "$(below /target)" "$(b grep -rlE 'THE-[F]IX|IGNO[R]ED|STO[R]ED' /all /target | b tr '\n' ' ')"
"#;

/// A target that is a linked working tree (`.git` is a file) with a submodule (another such file), a repository inside it
/// (a folder), ignored files, a Dockerfile that is a link inside the tree; traps in its configuration and the package's.
fn hostile() -> (Package, [Traps; 2]) {
    let policy = json!({"target": {
        "image": {"reference": null, "pull": null, "build": {"contexts": {"base": BUSYBOX}}},
        "command": ["/bin/busybox", "sh", "/target/run.sh"],
    }});
    let package = Package::new("").policy(policy).results_in("pkg/target/out");
    let (main, target) = (package.path().join("main"), package.path().join("pkg/target"));
    std::fs::remove_dir_all(&target).unwrap();
    let package = package
        .file("main/code", "THE-FIX")
        .file("main/docker/real", "FROM base\nCOPY . /all\n")
        .file("main/run.sh", LOOK)
        .file("main/.gitignore", "*.log\n/secret/\n");
    std::os::unix::fs::symlink("docker/real", main.join("Dockerfile")).unwrap();
    plain(&main, &["init", "-q", "-b", "fix", "."]);
    for content in ["THE-FIX", "buggy"] {
        std::fs::write(main.join("code"), content).unwrap();
        plain(&main, &["add", "--all"]);
        plain(&main, &["commit", "-q", "-m", content]);
    }
    plain(&main, &["worktree", "add", "-q", target.to_str().unwrap(), "-b", "work"]);
    let package = package
        .file("pkg/target/new.txt", "untracked")
        .file("pkg/target/trace.log", "IGNORED")
        .file("pkg/target/secret/key", "IGNORED")
        .file("pkg/target/inner/b", "THE-FIX")
        .file("pkg/target/out/runs/earlier/stdout", "STORED");
    let inner = target.join("inner");
    plain(&inner, &["init", "-q", "."]);
    for content in ["THE-FIX", "buggy"] {
        std::fs::write(inner.join("b"), content).unwrap();
        plain(&inner, &["add", "b"]);
        plain(&inner, &["commit", "-q", "-m", content]);
    }
    plain(&package.path().join("pkg"), &["init", "-q", "."]);
    let traps = [("pkg/target", "of-target"), ("pkg", "of-package")]
        .map(|(tree, name)| Traps::set(&package.path().join(tree), &package.path().join(name)));
    (package, traps)
}

#[test]
fn nothing_of_a_repository_but_its_snapshot_reaches_a_build_or_a_sandbox_and_nothing_of_it_runs() {
    let (package, traps) = hostile();
    let target = package.path().join("pkg/target");
    let kind = |path: &str| target.join(path).symlink_metadata().unwrap().file_type();
    assert!(kind(".git").is_file() && kind("sub/.git").is_file() && kind("inner/.git").is_dir());
    let wrapper = Wrapper::new(CONTEXT);
    let package = package.env("PATH", &wrapper.path());
    // Setting the second ones sprang some of the first.
    traps.iter().for_each(|traps| drop(traps.fired()));
    let ran = package.run();
    for traps in &traps {
        assert_eq!(traps.fired(), BTreeSet::new(), "run by the host");
    }
    assert_eq!(ran.exit, 0, "{}\n{}", ran.stderr, ran.json);
    // buildx asks git about the folder that it builds, and git looks further up: each of the two is enough to keep it off.
    for call in wrapper.calls() {
        assert_eq!((&call["env"]["BUILDX_GIT_INFO"], &call["env"]["GIT_DIR"]), (&json!("false"), &json!("/dev/null")));
    }
    let stored = target.join("out/runs").join(ran.run());
    let said: Value = serde_json::from_slice(&std::fs::read(stored.join("trials/one/1/stdout")).unwrap()).unwrap();
    let listed = |paths: &str| -> BTreeSet<String> {
        paths.split(' ').filter_map(|path| path.strip_prefix("./")).map(str::to_owned).collect()
    };
    let context: BTreeSet<String> = serde_json::from_slice(&std::fs::read(wrapper.file("context")).unwrap()).unwrap();
    let text = |key: &str| said[key].as_str().unwrap();
    assert_eq!((&listed(text("image")), &listed(text("mount"))), (&context, &context));
    assert_eq!(text("found"), "", "{said}");
    let wanted = [
        ".gitattributes",
        ".gitignore",
        ".gitmodules",
        "Dockerfile",
        "code",
        "docker",
        "docker/real",
        "file.bin",
        "file.inc",
        "file.md",
        "file.rst",
        "file.txt",
        "inner",
        "inner/b",
        "new.txt",
        "run.sh",
        "sub",
        "sub/in.txt",
    ];
    assert_eq!(context.iter().map(String::as_str).collect::<Vec<_>>(), wanted);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    // What the run stored in the target's folder, which nobody ignores, is no other snapshot.
    assert_eq!(taken_again(&target), ran.json["target"]["snapshot"].as_str().unwrap());
    traps.iter().for_each(Traps::control);
}

/// The digest of a snapshot of the target, with its results in `out`.
fn taken_again(target: &Path) -> String {
    let target = camino::Utf8Path::from_path(target).unwrap();
    let keep = tempfile::tempdir().unwrap();
    let into = camino::Utf8Path::from_path(keep.path()).unwrap();
    let (results, all) = (target.join("out"), ["**".to_owned()]);
    let limits = SnapshotLimits { files: 100, bytes: 1 << 20, file: 1 << 20 };
    let source = Source { source: target, package: None, results: Some(&results), files: &all, limits };
    take(&source, into, &Interrupt::never()).unwrap().digest.as_str().to_owned()
}
