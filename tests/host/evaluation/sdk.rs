//! The Python SDK as crashlab uses it: channel discipline (field case G4), worlds, secrets and the environment (D4, S1).

use super::lab::{Lab, arguments};
use assert_cmd::Command;
use crashlab::evaluation::Trouble;
use crashlab::evaluation::{Host, Reply, VerifyInput, introduce};
use crashlab::verdict::{Check, Stop, StopReason};
use serde_json::{Value, json};

const HEAD: &str = "from crashlab import Check, Evaluation, Refuse, load_host_secret\nevaluation = Evaluation()\n";
const VERIFY: &str = "
@evaluation.verify
def verify(trial): yield Check('one', True)
";
const SERVE: &str = "
if __name__ == '__main__':
    evaluation.serve()
";

fn evaluation(body: &str) -> Lab {
    Lab::python(&format!("{HEAD}{body}{VERIFY}{SERVE}"))
}

fn verify(host: &mut Host) -> Result<Vec<Check>, crashlab::evaluation::EvaluationError> {
    host.verify(&VerifyInput {
        case: &json!({"id": "one", "input": 1}),
        answer: &json!({"text": "done"}),
        stop: Some(Stop { reason: StopReason::Exited, code: Some(0) }),
        world_before: &json!({}),
        world: &json!({"n": 1}),
        operations: &[],
        log: "",
    })
}

#[test]
fn the_sdk_keeps_its_own_promises() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/host/evaluation");
    let sdk = concat!(env!("CARGO_MANIFEST_DIR"), "/src/evaluation/python");
    Command::new("python3")
        .args(["-W", "error", "-m", "unittest", "-q", "test_crashlab"])
        .current_dir(folder)
        .env("PYTHONPATH", sdk)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .assert()
        .success();
}

#[test]
fn a_trial_goes_from_its_world_to_its_verdict() {
    let lab = Lab::python(&format!(
        "{HEAD}
@evaluation.world
def world(case): return {{'n': case['input'], 'seen': ()}}

@evaluation.operation
def add(world, by: int = 1) -> int:
    'Adds.'
    world['n'] += by
    if world['n'] > 5: raise Refuse('too_much', 'five is enough')
    return world['n']

@evaluation.verify
def verify(trial):
    assert trial.operations[0].result == 4 and trial.operations[1].refused['code'] == 'too_much'
    assert trial.stop.reason == 'exited' and trial.stop['code'] == 0
    yield Check('at most five', trial.world['n'] <= 5, {{'n': trial.world['n']}})
{SERVE}"
    ));
    let mut host = lab.start();
    let declared = host.initialize().unwrap();
    assert_eq!(declared.operations[0].description, "Adds.");
    let by = json!({"type": "object", "properties": {"by": {"type": "integer", "default": 1}}, "required": [],
        "additionalProperties": false});
    assert_eq!(declared.operations[0].arguments, by);
    host.create_world(&json!({"id": "one", "input": 3})).unwrap();
    assert_eq!(host.snapshot().unwrap(), json!({"n": 3, "seen": []}));
    assert_eq!(host.call("add", &arguments(json!({}))).unwrap(), Reply::Result(json!(4)));
    let refused = Reply::Refused { code: "too_much".to_owned(), message: "five is enough".to_owned() };
    assert_eq!(host.call("add", &arguments(json!({"by": 7}))).unwrap(), refused);
    let world = host.snapshot().unwrap();
    assert_eq!(world["n"], json!(4), "a refusal leaves the world as it was");
    assert_eq!(host.call("add", &arguments(json!({}))).unwrap(), Reply::Result(json!(5)), "for the next call too");
    let seen = |result: Option<Value>, refused: Option<Value>| crashlab::evaluation::protocol::OperationSeen {
        name: "add".to_owned(),
        arguments: json!({}),
        result,
        refused,
        error: None,
    };
    let checks = host
        .verify(&VerifyInput {
            case: &json!({"id": "one"}),
            answer: &Value::Null,
            stop: Some(Stop { reason: StopReason::Exited, code: Some(0) }),
            world_before: &json!({}),
            world: &world,
            operations: &[seen(Some(json!(4)), None), seen(None, Some(json!({"code": "too_much", "message": ""})))],
            log: "",
        })
        .unwrap();
    assert!(checks[0].passed);
    assert_eq!(checks[0].detail.as_deref(), Some("{\"n\":4}"));
    host.restore(&json!({"n": 0})).unwrap();
    assert_eq!(host.snapshot().unwrap(), json!({"n": 0}));
}

/// Prints in every way that there is.
const NOISE: &str = "
import ctypes, logging, os, subprocess, sys
def noise(where):
    print('print', where, flush=True)
    sys.stdout.buffer.write(b'buffer ' + where.encode() + b'\\n')
    os.write(1, f'os.write {where}\\n'.encode())
    ctypes.CDLL(None).puts(f'puts {where}'.encode())
    ctypes.CDLL(None).fflush(None)
    logging.warning('logging %s', where)
    subprocess.run(['/bin/echo', 'echo', where], check=True)
    subprocess.run(['cat'], check=True)
    assert sys.stdin.read() == ''
noise('early')
";

#[test]
fn whatever_the_package_prints_ends_in_the_log() {
    // Before crashlab is imported, while it is, in each function, and from an interpreter of its own.
    let body = "
subprocess.run([sys.executable, '-c', 'print(\"inner interpreter\")'], check=True)
@evaluation.world
def world(case): noise('world'); return {}
@evaluation.operation
def get(world): noise('operation')
@evaluation.verify
def verify(trial): noise('verify'); yield Check('one', True)
";
    let lab = Lab::python(&format!("{NOISE}{HEAD}{body}{SERVE}"));
    let mut host = lab.created();
    host.call("get", &arguments(json!({}))).unwrap();
    verify(&mut host).unwrap();
    let log = String::from_utf8(host.shutdown()).unwrap();
    for how in ["print", "buffer", "os.write", "puts", "WARNING:root:logging", "echo"] {
        for place in ["early", "world", "operation", "verify"] {
            assert!(log.contains(&format!("{how} {place}\n")), "{how} {place}: {log}");
        }
    }
    assert!(log.contains("inner interpreter"), "{log}");
}

#[test]
fn an_interpreter_that_only_launches_the_package_leaves_the_streams_alone() {
    let mut lab = evaluation("");
    lab.write("launcher.py", "import os, sys\nos.execvp('python3', ['python3', 'evaluation.py'])\n");
    lab.policy.evaluation.command = ["python3", "-m", "launcher"].map(str::to_owned).to_vec();
    verify(&mut lab.created()).unwrap();
}

#[test]
fn what_json_cannot_hold_is_an_error_that_names_its_place_and_the_case() {
    let table = [
        ("{'a': [1, float('nan')]}", "world.a[1] is nan"),
        ("{'a': {'b': float('-inf')}}", "world.a.b is -inf"),
        ("{'a': {1, 2}}", "world.a is a set"),
        ("{'a': object()}", "world.a is a object"),
        ("{1: 2}", "world has the key 1"),
        ("{'a': '\\ud800'}", "world.a is text that is not Unicode"),
        ("{'a': load_host_secret('SOME_KEY')}", "world.a is a HostSecret"),
        ("{'a': (lambda x: [x.append(x), x][1])([])}", "world.a[0] holds itself"),
    ];
    for (value, words) in table {
        let lab = evaluation(&format!("@evaluation.world\ndef world(case): return {value}\n"));
        let mut host = lab.start();
        host.initialize().unwrap();
        let error = host.create_world(&json!({"id": "the-case"})).unwrap_err();
        assert_eq!(error.kind, Trouble::Raised, "{value}: {error}");
        assert!(error.to_string().contains(words), "{value}: {error}");
        assert!(error.to_string().contains("case the-case"), "{error}");
    }
}

#[test]
fn a_world_that_an_operation_spoils_is_an_error_at_the_next_look() {
    let lab = evaluation("@evaluation.operation\ndef spoil(world): world['x'] = {1}\n");
    let mut host = lab.created();
    host.call("spoil", &arguments(json!({}))).unwrap();
    let error = host.snapshot().unwrap_err().to_string();
    assert!(error.contains("after spoil: world.x is a set"), "{error}");
}

#[test]
fn a_world_of_ten_megabytes_passes() {
    let lab = evaluation("@evaluation.world\ndef world(case): return {'a': 'é' * 5_000_000}\n");
    assert_eq!(lab.created().snapshot().unwrap()["a"].as_str().unwrap().len(), 10_000_000);
}

#[test]
fn an_exception_is_told_with_its_place_and_its_traceback_is_in_the_log() {
    // Frames that Python does not fold, and a message that would push them out of what is kept.
    let body = "
def ping(n): pong(n - 1)
def pong(n): ping(n) if n else innermost()
def innermost(): raise ValueError('boom ' + 'x' * 10_000_000)
@evaluation.operation
def fail(world): ping(100)
@evaluation.operation
def leave(world): raise SystemExit(3)
";
    let lab = evaluation(body);
    let mut host = lab.created();
    let error = host.call("fail", &arguments(json!({}))).unwrap_err();
    assert_eq!(error.kind, Trouble::Raised);
    assert!(error.to_string().contains("ValueError: boom xxx"), "{error}");
    assert!(error.to_string().contains("(evaluation.py:6, in innermost)"), "{error}");
    assert!(error.to_string().len() < 5_000);
    assert_eq!(host.call("leave", &arguments(json!({}))).unwrap_err().kind, Trouble::Raised);
    verify(&mut host).unwrap();
    let log = String::from_utf8(host.shutdown()).unwrap();
    for words in ["Traceback (most recent call last)", "in fail", "in innermost"] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert!(log.len() < 100_000, "{}", log.len());
}

#[test]
fn a_verifier_that_makes_no_check_or_no_sense_gives_no_verdict() {
    let table = [
        ("def verify(trial): return []", "no check at all"),
        ("def verify(trial): pass", "no check at all"),
        ("def verify(trial): yield True", "a verifier yields Check"),
        ("def verify(trial): yield Check('a', 'False')", "passed is True or False"),
        ("def verify(trial):\n    yield Check('a', True)\n    assert 1 == 2", "AssertionError"),
    ];
    for (verifier, words) in table {
        let lab = Lab::python(&format!("{HEAD}\n@evaluation.verify\n{verifier}\n{SERVE}"));
        let error = verify(&mut lab.created()).unwrap_err();
        assert!(error.to_string().contains(words), "{verifier}: {error}");
    }
}

#[test]
fn a_broken_package_fails_at_its_start_with_its_traceback() {
    for (program, words) in [("import no_such_module\n", "ModuleNotFoundError"), ("}", "SyntaxError")] {
        let lab = Lab::python(program);
        let package = lab.package();
        let error = introduce(&lab.launch(&package, &[], None)).unwrap_err();
        assert_eq!(error.error.kind, Trouble::Ended);
        assert!(error.to_string().contains(words), "{error}");
    }
}

const SHOW_ENVIRONMENT: &str = "
import os
@evaluation.world
def world(case): return {'environment': dict(os.environ), 'at_start': open('/proc/self/environ').read()}
";

/// Each test of its own process would change its environment; a variable that every test has stands for a credential.
#[test]
fn the_process_inherits_the_environment_less_declared_secrets() {
    let lab = evaluation(SHOW_ENVIRONMENT);
    let hidden = ["CARGO_MANIFEST_DIR".to_owned()];
    let mut host = lab.start_with(&hidden, None);
    host.initialize().unwrap();
    host.create_world(&json!({"id": "one"})).unwrap();
    let world = host.snapshot().unwrap();
    let environment = world["environment"].as_object().unwrap();
    assert!(environment.contains_key("PATH") && environment.contains_key("CARGO_PKG_NAME"));
    assert_eq!(environment["PYTHONDONTWRITEBYTECODE"], json!("1"));
    assert!(environment["PYTHONPATH"].as_str().unwrap().starts_with(lab.sdk().as_str()));
    assert!(!world.to_string().contains("CARGO_MANIFEST_DIR="), "{world}");
    assert!(!environment.contains_key("CRASHLAB_EVALUATION_PROCESS"), "what the package starts inherits no marker");
}

#[test]
fn a_credential_that_only_the_evaluation_declares_is_hidden_too() {
    let body = "evaluation.provider('openai', secret=load_host_secret('CARGO_MANIFEST_DIR', env_file='keys/x'))\n";
    let lab = evaluation(&format!("{body}{SHOW_ENVIRONMENT}"));
    let package = lab.package();
    let mut introduced = introduce(&lab.launch(&package, &[], None)).unwrap();
    assert_eq!(introduced.hidden, ["CARGO_MANIFEST_DIR"]);
    let secret = &introduced.declared.secrets["openai"];
    assert_eq!((secret.name.as_str(), secret.env_file.as_ref().unwrap().as_str()), ("CARGO_MANIFEST_DIR", "keys/x"));
    introduced.host.create_world(&json!({"id": "one"})).unwrap();
    let world = introduced.host.snapshot().unwrap();
    assert!(!world.to_string().contains("CARGO_MANIFEST_DIR="), "{world}");
}

#[test]
fn python_is_the_users_choice_and_a_venv_counts_only_beside_a_lock() {
    let mut lab = evaluation("");
    let fake = "#!/bin/sh\necho \"$0 was used\" >&2\nexec python3 \"$@\"\n";
    lab.write(".venv/bin/python", fake);
    lab.write("requirements.lock", "# none\n");
    let chosen = lab.outside().join("chosen-python");
    std::fs::write(&chosen, fake).unwrap();
    for path in [&chosen, &lab.root().join(".venv/bin/python")] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let log = |lab: &Lab, python: Option<&camino::Utf8Path>| {
        let mut host = lab.start_with(&[], python);
        host.initialize().unwrap();
        String::from_utf8(host.shutdown()).unwrap()
    };
    assert_eq!(log(&lab, None), "");
    lab.policy.evaluation.lock = Some("requirements.lock".into());
    assert!(log(&lab, None).contains(".venv/bin/python was used"));
    assert!(log(&lab, Some(&chosen)).contains("chosen-python was used"));
    lab.policy.evaluation.command = ["/usr/bin/env", "python3", "evaluation.py"].map(str::to_owned).to_vec();
    assert_eq!(log(&lab, Some(&chosen)), "", "another program is not replaced");
}
