//! The evaluation process: what it may do wrong, and that nothing of it is left.

use super::lab::{Lab, arguments};
use crashlab::evaluation::Trouble;
use crashlab::evaluation::{EvaluationError, Host, Reply, VerifyInput};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Answers `initialize` like an evaluation of one operation; what comes after is the test's.
const HELLO: &str = r#"
read -r request
echo '{"jsonrpc":"2.0","id":1,"result":{"protocol":1,"operations":[{"name":"get"}]}}'
read -r request
"#;

/// The trouble that the script of a lab makes in its second call, and its log afterwards.
fn trouble(script: &str) -> (EvaluationError, String) {
    let mut lab = Lab::shell(&format!("{HELLO}{script}"));
    lab.policy.evaluation.timeout = Duration::from_secs(3);
    let mut host = lab.start();
    host.initialize().unwrap();
    let error = host.create_world(&json!({"id": "one"})).unwrap_err();
    (error, String::from_utf8(host.shutdown()).unwrap())
}

#[test]
fn what_is_no_answer_is_an_evaluation_error_of_its_kind() {
    let table = [
        ("echo oops >&2; exit 3", Trouble::Ended, "exit status: 3"),
        ("kill -9 $$", Trouble::Ended, "signal: 9"),
        ("exec >&-; sleep 60", Trouble::Ended, "closed its output"),
        ("sleep 60", Trouble::OutOfTime, "no answer within 3s"),
        ("echo garbage", Trouble::Malformed, "not one JSON value"),
        ("printf '{\"jsonrpc\":\"2.0\",\"id\":2,'; exit 0", Trouble::Ended, "exit status: 0"),
        (r#"echo '{"jsonrpc":"2.0","id":1,"result":{}}'"#, Trouble::Malformed, "its id is 1 and not 2"),
        (r#"echo '{"jsonrpc":"2.0","id":2,"result":{"a":1,"a":2}}'"#, Trouble::Malformed, "duplicate key"),
        (r#"echo '{"jsonrpc":"2.0","id":2,"result":{"a":NaN}}'"#, Trouble::Malformed, "not one JSON value"),
        (r#"echo '{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"no world"}}'"#, Trouble::Raised, "no world"),
    ];
    for (script, kind, words) in table {
        let (error, _) = trouble(script);
        assert_eq!(error.kind, kind, "{script}: {error}");
        assert!(error.to_string().starts_with("world.create: "), "{error}");
        assert!(error.to_string().contains(words), "{script}: {error}");
    }
}

#[test]
fn a_message_of_a_hundred_megabytes_is_refused_and_its_memory_is_bounded() {
    let (error, _) = trouble("head -c 104857600 /dev/zero | tr '\\0' x; echo; sleep 60");
    assert_eq!(error.kind, Trouble::Malformed);
    assert!(error.to_string().contains("longer than 64 MiB"), "{error}");
}

#[test]
fn a_long_error_and_a_long_log_are_bounded_and_keep_their_ends() {
    let words = "x".repeat(100_000);
    let (error, log) = trouble(&format!(
        r#"echo first >&2; head -c 2000000 /dev/zero | tr '\0' y >&2; echo last >&2
        echo '{{"jsonrpc":"2.0","id":2,"error":{{"code":1,"message":"{words}"}}}}'"#
    ));
    assert!(error.to_string().len() < 5_000, "{}", error.to_string().len());
    assert!(log.starts_with("first") && log.ends_with("last\n"));
    assert!(log.len() < 300_000, "{}", log.len());
}

#[test]
fn after_an_answer_that_cannot_be_believed_nothing_more_is_asked() {
    let lab = Lab::shell(&format!("{HELLO} echo garbage; read -r request; echo asked >&2; sleep 60"));
    let mut host = lab.start();
    host.initialize().unwrap();
    host.create_world(&json!({})).unwrap_err();
    let error = host.snapshot().unwrap_err();
    assert!(error.to_string().contains("had failed before"), "{error}");
    assert!(!String::from_utf8(host.shutdown()).unwrap().contains("asked"));
}

/// A killed process dies a moment after the kill: waits for that moment, and not for ever.
fn dies(pid: &str) -> bool {
    let deadline = Instant::now() + Duration::from_secs(5);
    while lives(pid) && Instant::now() < deadline {
        std::thread::yield_now();
    }
    !lives(pid)
}

/// Whether a process is still there: a zombie is not.
fn lives(pid: &str) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    state.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

fn pid_in(lab: &Lab, file: &str) -> String {
    std::fs::read_to_string(lab.root().join(file)).unwrap()
}

#[test]
fn a_grandchild_that_holds_the_pipe_hangs_nobody_and_goes_with_the_group() {
    let lab = Lab::shell(&format!("{HELLO} sleep 300 & echo $! > grandchild; exit 0"));
    let mut host = lab.start();
    host.initialize().unwrap();
    let begun = Instant::now();
    let error = host.create_world(&json!({})).unwrap_err();
    assert_eq!(error.kind, Trouble::Ended, "{error}");
    host.shutdown();
    assert!(begun.elapsed() < lab.policy.evaluation.timeout, "it waited for the grandchild");
    assert!(dies(&pid_in(&lab, "grandchild")));
}

#[test]
fn a_process_that_ignores_every_good_bye_is_killed_with_its_children() {
    let script = format!("trap '' TERM INT HUP; sleep 300 & echo $! > grandchild; echo $$ > leader; {HELLO} sleep 300");
    for dropped in [true, false] {
        let mut lab = Lab::shell(&script);
        lab.policy.evaluation.timeout = Duration::from_millis(500);
        let mut host = lab.start();
        host.initialize().unwrap();
        if dropped {
            drop(host)
        } else {
            drop(host.shutdown())
        };
        assert!(dies(&pid_in(&lab, "leader")), "dropped: {dropped}");
        assert!(dies(&pid_in(&lab, "grandchild")), "dropped: {dropped}");
    }
}

#[test]
fn a_raised_flag_ends_the_wait() {
    let lab = Lab::shell(&format!("{HELLO} sleep 60"));
    let (package, stop) = (lab.package(), crashlab::interrupt::Interrupt::never());
    let launch = crashlab::evaluation::Launch { stop: Some(&stop), ..lab.launch(&package, &[], None) };
    let mut host = Host::start(&launch).unwrap();
    host.initialize().unwrap();
    stop.raise(2);
    assert_eq!(host.create_world(&json!({})).unwrap_err().kind, Trouble::Stopped);
}

#[test]
fn a_missing_program_is_named() {
    let lab = Lab::bare(&["no-such-program"]);
    let package = lab.package();
    let error = Host::start(&lab.launch(&package, &[], None)).unwrap_err();
    assert_eq!(error.kind, Trouble::NotStarted);
    assert!(error.to_string().contains("no-such-program"), "{error}");
}

#[test]
fn a_program_of_the_package_is_found_from_anywhere() {
    let lab = Lab::bare(&["./bin/start"]);
    lab.write("bin/start", &format!("#!/bin/sh\n{HELLO}"));
    let path = lab.root().join("bin/start");
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(lab.start().initialize().unwrap().operations[0].name, "get");
}

#[test]
fn a_second_language_speaks_the_same_protocol() {
    let perl = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/perl-evaluation/evaluation.pl");
    let lab = Lab::bare(&["perl", "evaluation.pl"]);
    lab.write("evaluation.pl", &std::fs::read_to_string(perl).unwrap());
    let mut host = lab.start();
    let declared = host.initialize().unwrap();
    assert_eq!(declared.operations[0].name, "add");
    assert!(declared.world_restore);
    let case = json!({"id": "one", "input": {"items": ["a"]}, "expect": {"count": 2}});
    host.create_world(&case).unwrap();
    let before = host.snapshot().unwrap();
    assert_eq!(before, json!({"items": ["a"]}));
    let answer = host.call("add", &arguments(json!({"item": "b"}))).unwrap();
    assert_eq!(answer, Reply::Result(json!({"count": 2})));
    let refused = Reply::Refused { code: "twice".to_owned(), message: "b is there already".to_owned() };
    assert_eq!(host.call("add", &arguments(json!({"item": "b"}))).unwrap(), refused);
    let world = host.snapshot().unwrap();
    let checks = |host: &mut Host, world: &Value| {
        let input = VerifyInput {
            case: &case,
            answer: &json!("done"),
            stop: None,
            world_before: &before,
            world,
            operations: &[],
            log: "",
        };
        host.verify(&input).unwrap()
    };
    assert!(checks(&mut host, &world)[0].passed);
    host.restore(&before).unwrap();
    let world = host.snapshot().unwrap();
    assert_eq!(world, before);
    assert!(!checks(&mut host, &world)[0].passed);
    assert_eq!(host.call("nothing", &arguments(json!({}))).unwrap_err().kind, Trouble::Raised);
    assert_eq!(host.snapshot().unwrap(), before, "an error ends nothing");
    host.shutdown();
}
