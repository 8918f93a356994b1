//! W1, W3, W5 on the engine: what the sandbox's user reads of a snapshot through its mount is what the manifest says.

use super::support::{PYTHON, docker};
use crashlab::interrupt::Interrupt;
use crashlab::policy::SnapshotLimits;
use crashlab::snapshot::{Source, take};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
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
