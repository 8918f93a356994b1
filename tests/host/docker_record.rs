//! The check of the whole suite's docker calls (`scripts/check-docker-record`): that it fails where it has to.

use std::process::Command;

const RUN: &str = "20260102t030405z-k3f9";

/// One removal of each kind, as crashlab makes them.
fn allowed() -> Vec<Vec<String>> {
    let id = "0123456789abcdef".repeat(4);
    let builder = format!("crashlab-{RUN}-builder-3");
    let volume = format!("buildx_buildkit_{builder}0_state");
    [
        vec!["rm", "--force", "--volumes", &id, &id],
        vec!["network", "rm", &id],
        vec!["image", "rm", "--no-prune", "--", "crashlab/target:20260102T030405Z-k3f9"],
        vec!["volume", "rm", "--", &volume],
        vec!["buildx", "rm", "--keep-daemon", "--keep-state", &builder],
        vec!["kill", "--signal", "KILL", &id],
        vec!["create", "--name", "prune-me", "--", "image", "rm", "--force"],
    ]
    .map(|words| words.into_iter().map(str::to_owned).collect())
    .to_vec()
}

/// Exit code and output of the check over these calls.
#[expect(clippy::disallowed_methods, reason = "the test runs a script of the project; src/ starts none")]
fn checked(calls: &[Vec<String>]) -> (Option<i32>, String) {
    let record = tempfile::NamedTempFile::new().unwrap();
    let text: String = calls.iter().map(|words| words.join("\u{1f}") + "\n").collect();
    std::fs::write(record.path(), text).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/check-docker-record");
    let output = Command::new(script).arg(record.path()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn a_record_of_what_is_allowed_passes_and_one_more_call_that_is_not_fails() {
    let (code, told) = checked(&allowed());
    assert_eq!(code, Some(0), "{told}");
    let id = "0123456789abcdef".repeat(4);
    let table = [
        "system prune --force".to_owned(),
        "image prune".to_owned(),
        "buildx prune --all".to_owned(),
        "container prune".to_owned(),
        "network prune -f".to_owned(),
        "volume prune".to_owned(),
        "builder prune".to_owned(),
        "image rm --force -- mine:1".to_owned(),
        "image rm -f mine:1".to_owned(),
        "rmi mine:1".to_owned(),
        format!("image rm --no-prune -- {id}"),
        "image rm --no-prune -- mine:1 yours:1".to_owned(),
        "image rm -- mine:1".to_owned(),
        "rm --force crashlab-20260102T030405Z-k3f9-target-1".to_owned(),
        format!("rm --force {id} mine"),
        "rm --force 0123456789ab".to_owned(),
        "rm --force".to_owned(),
        "container rm mine".to_owned(),
        "kill mine".to_owned(),
        "kill --signal KILL mine".to_owned(),
        "network rm crashlab-20260102T030405Z-k3f9-net-1".to_owned(),
        "volume rm -- mine".to_owned(),
        format!("volume rm --force buildx_buildkit_crashlab-{RUN}-builder-30_state"),
        format!("buildx rm crashlab-{RUN}-builder-3"),
        "buildx rm --keep-daemon --keep-state default".to_owned(),
        "compose down".to_owned(),
    ];
    for call in table {
        let mut calls = allowed();
        calls.push(call.split(' ').map(str::to_owned).collect());
        let (code, told) = checked(&calls);
        assert_eq!((code, told.contains(&call)), (Some(1), true), "{call}: {told}");
    }
}

#[test]
fn a_record_that_lacks_a_kind_of_removal_shows_nothing_and_fails() {
    for nth in 0..5 {
        let mut calls = allowed();
        calls.remove(nth);
        let (code, told) = checked(&calls);
        assert_eq!((code, told.contains("shows nothing")), (Some(1), true), "{nth}: {told}");
    }
    assert_eq!(checked(&[]).0, Some(1));
}
