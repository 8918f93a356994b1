//! The chain: one command runs a real evaluation, from the policy to the clean-up.

use crate::support::{Package, Ran, Wrapper, eventually, objects_of};
use serde_json::json;
use std::time::Duration;

const GOOD: &str = r#"
import json, sys
case = json.load(sys.stdin)
print(json.dumps({"ok": case["id"] != "bad"}))
"#;

#[test]
fn three_cases_give_one_of_each_outcome_and_leave_nothing() {
    let package = Package::new(GOOD).cases(&["good", "bad", "broken"]);
    let ran = package.run();
    assert_eq!(ran.exit, 3, "{}", ran.stderr);
    assert_eq!(ran.json["counts"], json!({"trials": 3, "passed": 1, "failed": 1, "uncertain": 1, "not_run": 0}));
    assert_eq!(ran.trial("broken/1")["reason"], "evaluation_error");
    assert_eq!(ran.trial("bad/1")["stop"], json!({"reason": "exited", "code": 0}));
    let schema: serde_json::Value = serde_json::from_slice(&package.crashlab(&["schema", "run"]).stdout).unwrap();
    let errors: Vec<String> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&ran.json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    assert!(!package.results().join("scopes").join(ran.run()).exists());
}

#[test]
fn without_the_broken_case_the_failure_decides() {
    let package = Package::new(GOOD).cases(&["good", "bad", "broken"]).args(&["--case", "good", "--case", "ba*"]);
    let ran = package.run();
    assert_eq!((ran.exit, &ran.json["outcome"]), (1, &json!("failed")), "{}", ran.stderr);
}

#[test]
fn repetitions_run_beside_each_other_and_keep_their_order() {
    let ran = Package::new(GOOD).args(&["--repeat", "3", "--jobs", "2"]).run();
    assert_eq!(ran.exit, 0, "{}", ran.stderr);
    let trials: Vec<_> = ran.json["trials"].as_array().unwrap().iter().map(|trial| trial["trial"].clone()).collect();
    assert_eq!(trials, ["one/1", "one/2", "one/3"]);
    assert_eq!(ran.json["cases"][0]["pass_rate"], 1.0);
}

/// Prints and sends what Python's reader of JSON stops at, by case.
const UNREADABLE: &str = r#"
import json, os, urllib.error, urllib.request

def call(operation, body):
    head = {"Authorization": "Bearer " + os.environ["CRASHLAB_TOKEN"], "Content-Type": "application/json"}
    url = os.environ["CRASHLAB_URL"] + "/operations/" + operation
    try:
        urllib.request.urlopen(urllib.request.Request(url, body.encode(), head), timeout=60)
    except urllib.error.HTTPError as error:
        error.read()

digits = "1" * 5000
nested = "[" * 120 + "]" * 120
for _ in range(10):
    nested = "[" * 118 + json.dumps({"$serde_json::private::RawValue": nested}) + "]" * 118
match os.environ["CRASHLAB_CASE"]:
    case "digits":
        print("[" + digits + "]")
    case "nested":
        print(nested)
    case "argument":
        call("refund", '{"order_id": "a", "amount_cents": ' + digits + "}")
    case "refused":
        call("nothing", "[" + digits + "]")
"#;

#[test]
fn an_agent_that_failed_cannot_make_its_trial_unmeasured_by_what_it_prints_or_calls() {
    let package = Package::new(UNREADABLE).cases(&["digits", "nested", "argument", "refused"]);
    let ran = package.policy(json!({"operations": {"refund": {}}})).run();
    assert_eq!(ran.json["counts"]["failed"], 4, "{}", ran.stderr);
}

#[test]
fn operations_and_a_scripted_provider_are_the_only_ways_out() {
    let agent = r#"
import json, os, sys, urllib.error, urllib.request
def post(url, token, body):
    head = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
e = os.environ
world, token = e["CRASHLAB_URL"] + "/operations/", e["CRASHLAB_TOKEN"]
seen = [
    post(e["OPENAI_BASE_URL"] + "/chat/completions", e["OPENAI_API_KEY"], {"model": "gpt-5-mini", "messages": []}),
    post(e["OPENAI_BASE_URL"] + "/chat/completions", e["OPENAI_API_KEY"], {"model": "other", "messages": []}),
    post(e["OPENAI_BASE_URL"] + "/chat/completions", token, {"model": "gpt-5-mini", "messages": []}),
    post(world + "refund", token, {"order_id": "A1", "amount_cents": 500}),
    post(world + "refund", token, {"order_id": "A1", "amount_cents": 50000}),
    post(world + "refund", token, {"order_id": "A1"}),
    post(world + "hidden", token, {}),
    post(world + "refund", "x" + token, {"order_id": "A1", "amount_cents": 500}),
]
print(json.dumps({"ok": [status for status, _ in seen] == [200, 403, 404, 200, 422, 400, 404, 401], "seen": seen, "echo": token}))
"#;
    let reply = json!({"status": 200, "body": {
        "model": "gpt-5-mini", "choices": [{"index": 0, "message": {"role": "assistant", "content": "fine"}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
    }});
    let package = Package::new(agent).file("pkg/replies.jsonl", &format!("{reply}\n")).policy(json!({
        "operations": {"refund": {"calls": 20}},
        "gateways": {"openai": {
            "dialect": "openai", "upstream": {"script": "replies.jsonl"}, "target_path": "/v1",
            "routes": ["POST /v1/chat/completions"], "models": ["gpt-5*"],
            "env": {"OPENAI_API_KEY": "token", "OPENAI_BASE_URL": "url"},
        }},
    }));
    let ran = package.run();
    assert_eq!(ran.exit, 0, "{}\n{}", ran.json, ran.stderr);
    let usage = &ran.trial("one/1")["usage"];
    assert_eq!(
        (&usage["requests"], &usage["input_tokens"], &usage["output_tokens"]),
        (&json!(1), &json!(10), &json!(3))
    );
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    let folder = package.run_folder().join("trials/one/1");
    // Its calls lie within the trial's own time, not in its preparation.
    let operations = std::fs::read_to_string(folder.join("operations.jsonl")).unwrap();
    let first: serde_json::Value = serde_json::from_str(operations.lines().next().unwrap()).unwrap();
    let time = |text: &serde_json::Value| humantime::parse_rfc3339(text.as_str().unwrap()).unwrap();
    let trial = ran.trial("one/1");
    let (begin, length) = (time(&trial["started"]), Duration::from_millis(trial["duration_ms"].as_u64().unwrap()));
    assert!((begin..=begin + length).contains(&time(&first["at"])), "{first} in {trial}");
    let diff = std::fs::read_to_string(folder.join("world-diff.json")).unwrap();
    assert!(diff.contains("/refunds/0"), "{diff}");
    let stdout = std::fs::read_to_string(folder.join("stdout")).unwrap();
    assert!(stdout.contains("[redacted:token:operations]"), "the trial's token is stored: {stdout}");
}

#[test]
fn an_interruption_in_a_trial_ends_with_130_and_a_readable_run() {
    let package = Package::new("import time\nprint('begun', flush=True)\ntime.sleep(280)\n");
    let child =
        package.command().stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    package.wait_for("running target", |run| {
        let run = run.file_name().unwrap().to_str().unwrap();
        let filter = format!("label=crashlab.run={run}");
        !crate::support::listed(&["ps", "--quiet", "--filter", &filter, "--filter", "label=crashlab.role=target"])
            .is_empty()
    });
    interrupt(&child, "INT");
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert_eq!((ran.exit, &ran.json["outcome"]), (130, &json!("interrupted")), "{}", ran.stderr);
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
    let view = package.crashlab(&["view", "latest"]);
    assert!(view.status.success(), "{}", String::from_utf8_lossy(&view.stderr));
}

/// Sends a signal to a process that this test started, and waits until the process has got it: the kernel makes one of two
/// that are on their way at the same time.
pub fn interrupt(child: &std::process::Child, signal: &str) {
    let sent = std::process::Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let status = format!("/proc/{}/status", child.id());
    eventually("delivery of the signal", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let pending = text.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap_or("0");
        text.contains("State:\tZ") || u64::from_str_radix(pending.trim(), 16).unwrap() == 0
    });
}

#[test]
fn what_is_refused_makes_no_docker_call() {
    let wrapper = Wrapper::new("return None");
    let refused = |package: Package, args: &[&str], place: &str| {
        let package = package.env("PATH", &wrapper.path()).args(args);
        let ran = package.run();
        assert_eq!((ran.exit, &ran.json["schema"]), (2, &json!("crashlab.error/1")), "{}", ran.json);
        assert!(ran.json.to_string().contains(place), "{}", ran.json);
        assert!(!package.results().exists(), "something was stored");
    };
    let package = || Package::new(GOOD);
    refused(package().policy(json!({"sandbox": {"memory": "1GB"}})), &[], "/sandbox/memory");
    refused(package().policy(json!({"sandbox": {"user": "0:0"}})), &[], "/sandbox/user");
    refused(package().policy(json!({"target": {"env": {"MY_API_KEY": "x"}}})), &[], "MY_API_KEY");
    refused(package(), &["--case", "nobody"], "nobody");
    refused(package().policy(json!({"evaluation": {"command": ["python3", "missing.py"]}})), &[], "missing.py");
    assert_eq!(wrapper.calls().len(), 0);
}

#[test]
fn without_trust_nothing_of_the_package_runs() {
    let wrapper = Wrapper::new("return None");
    let package = Package::new(GOOD).file("pkg/evaluation.py", "open('ran', 'w')\n").env("PATH", &wrapper.path());
    let mut command = package.command();
    let args: Vec<_> =
        command.get_args().filter(|arg| *arg != "--trust-evaluation-code").map(ToOwned::to_owned).collect();
    command = std::process::Command::new(command.get_program());
    let ran = Ran::new(command.args(args).env("PATH", wrapper.path()).output().unwrap());
    assert_eq!(ran.exit, 2);
    assert!(ran.json["hint"].as_str().unwrap().contains("--trust-evaluation-code=sha256:"), "{}", ran.json);
    assert!(!package.path().join("pkg/ran").exists());
    assert_eq!(wrapper.calls().len(), 0);
}

#[test]
fn without_an_engine_the_endpoint_is_named_at_once() {
    let wrapper = Wrapper::new("return None");
    let package = Package::new(GOOD).env("DOCKER_HOST", "unix:///nonexistent/docker.sock");
    let ran = package.env("PATH", &wrapper.path()).run();
    assert_eq!(ran.exit, 3);
    let told = ran.json["message"].as_str().unwrap();
    assert!(told.contains("/nonexistent/docker.sock"), "{told}");
    // Asked once where it is and once whether it is there: nobody waits for an engine that never was.
    assert!(wrapper.calls().len() <= 2, "{:?}", wrapper.calls());
    let ran = Package::new(GOOD)
        .env("PATH", "/nonexistent")
        .policy(json!({"evaluation": {"command": ["/usr/bin/python3", "evaluation.py"]}}));
    let output = ran.command().output();
    let told = Ran::new(output.unwrap());
    assert!(matches!(told.exit, 2 | 3), "{}", told.json);
}
