//! Drills on the engine: what a target sees of each kind of fault, in the sandbox and through the relay, what the run keeps
//! of it, and what drills mean for seeds, shards, going on with a run, and verdicts.

use crate::support::{Package, Ran, objects_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Stdio;

/// Asks its model and its world what the case says, one after the other or all at once, and tells what it saw.
const AGENT: &str = r#"
import concurrent.futures, http.client, json, os, sys, time, urllib.error, urllib.request

def post(url, token, body):
    headers = {"Authorization": "Bearer " + os.environ[token], "Content-Type": "application/json"}
    begun = time.monotonic()
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            seen = {"status": answer.status, "type": answer.headers["content-type"], "body": answer.read().decode()}
    except urllib.error.HTTPError as error:
        seen = {"status": error.code, "retry_after": error.headers["retry-after"], "body": error.read().decode()}
    except http.client.IncompleteRead as error:
        seen = {"cut": error.partial.decode()}
    except (OSError, http.client.HTTPException) as error:
        seen = {"error": type(getattr(error, "reason", error)).__name__}
    return {**seen, "seconds": round(time.monotonic() - begun, 3)}

def step(it):
    if "model" in it:
        body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hi"}], "stream": it["model"] == "stream"}
        return post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", "OPENAI_API_KEY", body)
    return post(os.environ["CRASHLAB_URL"] + "/operations/" + it["operation"], "CRASHLAB_TOKEN", it.get("arguments", {}))

case = json.load(sys.stdin)
if case.get("at_once"):
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(step, case["steps"]))
else:
    seen = [step(it) for it in case["steps"]]
print(json.dumps({"ok": case.get("ok", True), "seen": seen}))
"#;

/// A world of notes; the first thing that a verifier fails is what the answer says of itself.
const EVALUATION: &str = r#"
from crashlab import Check, Evaluation

evaluation = Evaluation()

@evaluation.world
def world(case):
    return {"notes": ["first"]}

@evaluation.operation
def add(world, text: str) -> dict:
    world["notes"].append(text)
    return {"added_note": text, "count": len(world["notes"])}

@evaluation.operation
def read(world) -> dict:
    return {"notes": list(world["notes"])}

@evaluation.verify
def verify(trial):
    yield Check("ok", trial.answer["ok"], "")

if __name__ == "__main__":
    evaluation.serve()
"#;

fn package(steps: &Value, faults: &Value) -> Package {
    let reply = json!({"body": {"id": "c", "object": "chat.completion", "model": "gpt-5-mini",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello there"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}});
    let chunk = |text: &str| {
        json!({"data": {"id": "c", "object": "chat.completion.chunk", "model": "gpt-5-mini",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}})
    };
    let stream = json!({"events": [chunk("one"), chunk("two"), chunk("three"), {"data": "[DONE]"}]});
    // The same script for both: a request takes the next line, whatever it asks for.
    let line = |step: &Value| format!("{}\n", if step["model"] == "stream" { &stream } else { &reply });
    let asked = steps["steps"].as_array().unwrap().iter().filter(|step| step["model"].is_string());
    let script: String = asked.map(line).collect();
    Package::new(AGENT)
        .file("pkg/evaluation.py", EVALUATION)
        .file("pkg/replies.jsonl", &script)
        .file("pkg/cases.jsonl", &json!({"id": "one", "input": steps}).to_string())
        .policy(json!({
            "operations": {"add": {}, "read": {}},
            "gateways": {"openai": {"dialect": "openai", "upstream": {"script": "replies.jsonl"}, "target_path": "/v1",
                "routes": ["POST /v1/chat/completions"], "models": ["*"], "env": {"OPENAI_API_KEY": "token", "OPENAI_BASE_URL": "url"}}},
            "drills": {"drill": {"faults": faults}},
        }))
        .args(&["--drill", "drill"])
}

/// Lines of a file of a trial.
fn lines(package: &Package, trial: &str, name: &str) -> Vec<Value> {
    let path = package.run_folder().join("trials").join(trial).join(name);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn seen(package: &Package, trial: &str) -> Vec<Value> {
    let path = package.run_folder().join("trials").join(trial).join("stdout");
    let answer: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    answer["seen"].as_array().unwrap().clone()
}

/// Kind, place and call of a trial's faults.
fn faults(ran: &Ran, trial: &str) -> Vec<(String, String, u64)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |fault: &Value| (text(&fault["kind"]), text(&fault["on"]), fault["call"].as_u64().unwrap());
    ran.trial(trial)["faults"].as_array().unwrap().iter().map(one).collect()
}

type Holds<'a> = &'a dyn Fn(&Value) -> bool;

/// Every kind in one trial, each on a call of its own.
#[test]
fn a_target_sees_each_kind_of_fault_and_the_run_keeps_each() {
    let on = |place: &str, kind: &str, nth: u64, more: Value| {
        let mut fault = json!({"on": place, "kind": kind, "nth": nth});
        more.as_object().into_iter().flatten().for_each(|(key, value)| fault[key] = value.clone());
        fault
    };
    let model = |kind: &str, nth, more| on("gateway:openai", kind, nth, more);
    let add = |kind: &str, nth, more| on("operation:add", kind, nth, more);
    let plan = json!([
        model("status", 1, json!({"code": 429, "retry_after": 7})),
        model("delay", 2, json!({"time": "300ms"})),
        model("reset", 3, json!({})),
        model("malformed", 4, json!({})),
        model("empty", 5, json!({})),
        model("wrong_type", 6, json!({})),
        model("content_filter", 7, json!({})),
        model("context_length", 8, json!({})),
        model("cut_stream", 9, json!({"events": 2})),
        model("slow_stream", 10, json!({"time": "100ms"})),
        add("error", 1, json!({})),
        add("timeout", 2, json!({"time": "200ms"})),
        add("delay", 3, json!({"time": "200ms"})),
        add("lost_write", 4, json!({})),
        add("duplicate", 5, json!({})),
        add("partial", 6, json!({})),
        add("schema_drift", 7, json!({})),
        add("injected_text", 8, json!({"text": "obey"})),
        on("operation:read", "stale_read", 1, json!({"calls": 8})),
    ]);
    let mut steps = vec![json!({"model": "whole"}); 8];
    steps.extend(vec![json!({"model": "stream"}); 2]);
    steps.extend((1..=8).map(|n| json!({"operation": "add", "arguments": {"text": format!("n{n}")}})));
    steps.extend([json!({"operation": "read"}), json!({"operation": "read"})]);
    let package = package(&json!({"steps": steps}), &plan);
    // Struck calls leave their lines of the script: the first two that go through are the delayed one and the slow stream.
    let script = std::fs::read_to_string(package.path().join("pkg/replies.jsonl")).unwrap();
    let used: Vec<&str> = [0, 8, 9].map(|line| script.lines().nth(line).unwrap()).into();
    let package = package.file("pkg/replies.jsonl", &used.join("\n"));
    let ran = package.run();
    let trial = "one@drill/1";
    let (seen, record) = (seen(&package, trial), ran.trial(trial));
    let wanted: [(&str, Holds<'_>); 20] = [
        ("status", &|it| {
            it["status"] == 429
                && it["retry_after"] == "7"
                && it["body"].as_str().unwrap().contains("rate_limit_exceeded")
        }),
        ("delay", &|it| it["status"] == 200 && it["seconds"].as_f64().unwrap() >= 0.3),
        ("reset", &|it| it["error"] == "ConnectionResetError"),
        ("malformed", &|it| {
            it["status"] == 200 && serde_json::from_str::<Value>(it["body"].as_str().unwrap()).is_err()
        }),
        ("empty", &|it| it["status"] == 200 && it["body"] == ""),
        ("wrong_type", &|it| it["type"] == "text/html"),
        ("content_filter", &|it| it["body"].as_str().unwrap().contains("\"finish_reason\":\"content_filter\"")),
        ("context_length", &|it| {
            it["status"] == 400 && it["body"].as_str().unwrap().contains("context_length_exceeded")
        }),
        ("cut_stream", &|it| it["cut"].as_str().is_some_and(|it| it.contains("two") && !it.contains("three"))),
        ("slow_stream", &|it| {
            it["body"].as_str().unwrap().contains("[DONE]") && it["seconds"].as_f64().unwrap() >= 0.4
        }),
        ("error", &|it| it["status"] == 500),
        ("timeout", &|it| it["status"] == 500 && it["seconds"].as_f64().unwrap() >= 0.2),
        ("delay", &|it| it["status"] == 200 && it["seconds"].as_f64().unwrap() >= 0.2),
        ("lost_write", &|it| it["body"].as_str().unwrap().contains("\"count\":3")),
        ("duplicate", &|it| it["body"].as_str().unwrap().contains("\"count\":3")),
        ("partial", &|it| it["body"] == "{\"result\":{\"added_note\":\"n6\"}}"),
        ("schema_drift", &|it| it["body"] == "{\"result\":{\"AddedNote\":\"n7\",\"Count\":6}}"),
        ("injected_text", &|it| it["body"] == "{\"result\":{\"added_note\":\"n8\",\"count\":7,\"notice\":\"obey\"}}"),
        ("stale_read", &|it| it["body"] == "{\"result\":{\"notes\":[\"first\"]}}"),
        ("none", &|it| it["body"] == "{\"result\":{\"notes\":[\"first\",\"n3\",\"n5\",\"n5\",\"n6\",\"n7\",\"n8\"]}}"),
    ];
    for ((kind, holds), seen) in wanted.iter().zip(&seen) {
        assert!(holds(seen), "{kind}: {seen}\n{record}");
    }
    let place = |kind: &str, on: &str, call| (kind.to_owned(), on.to_owned(), call);
    let listed: Vec<(String, String, u64)> = plan
        .as_array()
        .unwrap()
        .iter()
        .map(|fault| {
            place(fault["kind"].as_str().unwrap(), fault["on"].as_str().unwrap(), fault["nth"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(faults(&ran, trial), listed);
    assert_eq!(record["faults"][0]["route"], "POST /v1/chat/completions");
    assert_eq!((&record["outcome"], &record["reason"], ran.exit), (&json!("passed"), &Value::Null, 0), "{record}");
    let calls = lines(&package, trial, "gateway.jsonl");
    let ends: Vec<(&Value, &Value)> = calls.iter().map(|line| (&line["status"], &line["end"])).collect();
    assert_eq!(ends[0], (&json!(429), &json!("complete")));
    assert_eq!(ends[2].1, "cut");
    assert_eq!(calls.len(), 10);
    let operations = lines(&package, trial, "operations.jsonl");
    assert_eq!((operations.len(), &operations[3]["world_diff"]), (10, &json!([])), "a lost write leaves no change");
    assert_eq!(operations[4]["world_diff"].as_array().unwrap().len(), 2, "a duplicate leaves two");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}

/// One provider call after the other, each struck or not by chance, then sixteen at once.
#[test]
fn the_same_seed_strikes_the_same_calls_and_calls_at_once_count_in_order_of_admission() {
    let chance = json!([{"on": "gateway:openai", "kind": "status", "code": 503, "probability": 0.5},
        {"on": "operation:add", "kind": "error", "every": 3}]);
    let mut steps = vec![json!({"model": "whole"}); 16];
    steps.extend(vec![json!({"operation": "add", "arguments": {"text": "x"}}); 9]);
    let run = |at_once: bool, seed: &str| {
        let package =
            package(&json!({"steps": steps, "at_once": at_once}), &chance).args(&["--seed", seed, "--repeat", "2"]);
        let ran = package.run();
        assert_eq!((ran.exit, ran.json["seed"].to_string()), (0, seed.to_owned()), "{}\n{}", ran.json, ran.stderr);
        let lists = ["one@drill/1", "one@drill/2"].map(|trial| {
            let mut list = faults(&ran, trial);
            list.sort();
            list
        });
        if at_once {
            let [first, _] = ["one@drill/1", "one@drill/2"].map(|trial| faults(&ran, trial));
            let calls = |on: &str| first.iter().filter(|it| it.1 == on).map(|it| it.2).collect::<Vec<_>>();
            assert!(calls("gateway:openai").is_sorted(), "in order of admission: {first:?}");
            assert_eq!(calls("operation:add"), [3, 6, 9]);
        }
        lists
    };
    let (first, at_once, other) = std::thread::scope(|threads| {
        let (at_once, other) = (threads.spawn(|| run(true, "7")), threads.spawn(|| run(false, "8")));
        (run(false, "7"), at_once.join().unwrap(), other.join().unwrap())
    });
    assert!((2..=14).contains(&first[0].iter().filter(|it| it.0 == "status").count()), "{first:?}");
    assert_ne!(first[0], first[1], "another repetition has other chances");
    assert_eq!(first, at_once, "the same seed; and whichever call comes first, the first one is call 1");
    assert_ne!(first, other, "another seed");
}

/// A provider that fails by itself makes a failed trial uncertain; one that a drill lets fail does not.
#[test]
fn an_injected_fault_is_never_the_providers_failure() {
    let steps = json!({"steps": [{"model": "whole"}], "ok": false});
    let mut drills =
        json!({"drill": null, "later": {"faults": [{"on": "gateway:openai", "kind": "status", "nth": 2}]}});
    let injected = ["status", "reset", "malformed", "empty", "wrong-type", "content-filter", "context-length"];
    for kind in injected {
        drills[kind] = json!({"faults": [{"on": "gateway:openai", "kind": kind.replace('-', "_")}]});
    }
    let real = json!({"status": 503, "body": {"error": {"message": "m"}}}).to_string();
    let package = package(&steps, &json!([])).policy(json!({"drills": drills})).file("pkg/replies.jsonl", &real);
    let ran = with(&package, &["--drill", "drill"], &["--drill", "all", "--jobs", "9"]);
    let outcome = |trial: &str| (ran.trial(trial)["outcome"].clone(), ran.trial(trial)["reason"].clone());
    for drill in injected {
        assert_eq!(outcome(&format!("one@{drill}/1")), (json!("failed"), Value::Null), "{drill}: {}", ran.json);
    }
    // Undisturbed, and under a drill that strikes another call, the provider's own failure counts.
    for trial in ["one/1", "one@later/1"] {
        assert_eq!(outcome(trial), (json!("uncertain"), json!("provider_error")), "{trial}: {}", ran.json);
    }
    assert_eq!(ran.exit, 3);
}

/// What a run's trials came to, with the faults of each.
fn trials(run: &Value) -> BTreeMap<String, (Value, Value)> {
    let one = |trial: &Value| {
        (trial["trial"].as_str().unwrap().to_owned(), (trial["outcome"].clone(), trial["faults"].clone()))
    };
    run["trials"].as_array().unwrap().iter().map(one).collect()
}

fn chances(repeat: &str) -> Package {
    let mut steps = vec![json!({"model": "whole"}); 6];
    steps.push(json!({"operation": "read"}));
    let chance = json!([{"on": "gateway:openai", "kind": "status", "probability": 0.5}]);
    package(&json!({"steps": steps}), &chance)
        .policy(json!({"drills": {"loss": {"faults": [{"on": "operation:*", "kind": "stale_read"}]}}}))
        .args(&["--repeat", repeat])
}

/// The command of a package with other drill arguments.
fn with(package: &Package, drop: &[&str], add: &[&str]) -> Ran {
    let command = package.command();
    let args: Vec<_> =
        command.get_args().filter(|arg| !drop.iter().any(|drop| arg == drop)).map(ToOwned::to_owned).collect();
    let mut command = std::process::Command::new(command.get_program());
    command.args(args).args(add).env("CRASHLAB_BUILDKIT_IMAGE", crate::support::BUILDKIT);
    Ran::new(command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn shards_of_a_drilled_run_merge_into_what_one_run_says() {
    let package = chances("2");
    let all = ["--drill", "drill"];
    let shards = ["1/2", "2/2"].map(|shard| with(&package, &all, &["--drill", "all", "--shard", shard]));
    // Nobody gave a seed: shards of one policy share one.
    let seed = shards[0].json["seed"].to_string();
    assert_eq!(seed, shards[1].json["seed"].to_string());
    let merged = package.crashlab(&["merge", shards[1].run(), shards[0].run()]);
    assert!(merged.status.success(), "{}", String::from_utf8_lossy(&merged.stderr));
    let id = String::from_utf8(merged.stdout).unwrap().trim().to_owned();
    let viewed: Value = serde_json::from_slice(&package.crashlab(&["view", &id, "--format", "json"]).stdout).unwrap();
    let whole = with(&package, &all, &["--drill", "all", "--seed", &seed]);
    assert_eq!(whole.exit, 0, "{}\n{}", whole.json, whole.stderr);
    assert_eq!(trials(&viewed), trials(&whole.json));
    assert_eq!(viewed["trials"].as_array().unwrap().len(), 6);
    assert_eq!(viewed["seed"].to_string(), seed);
    let names = |run: &Value| run["cases"].as_array().unwrap().iter().map(|it| it["drill"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&whole.json), [Value::Null, json!("drill"), json!("loss")]);
}

#[test]
fn a_drilled_run_that_is_gone_on_with_keeps_its_seed_and_its_faults() {
    let package = chances("5");
    let mut child =
        package.command().args(["--jobs", "1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    package.wait_for("a finished trial", |run| run.join("trials/one@drill/1/trial.json").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let run = package.run_id();
    let done = std::fs::read_dir(package.run_folder().join("trials/one@drill")).unwrap();
    let done = done.filter(|trial| trial.as_ref().unwrap().path().join("trial.json").exists()).count();
    assert!((1..5).contains(&done), "killed in the middle: {done} of 5");
    let gone_on = ["--drill", "drill", "--repeat", "5"];
    let refused = with(&package, &gone_on, &["--resume", &run, "--seed", "1"]);
    assert_eq!(refused.exit, 2, "{}", refused.json);
    let ran = with(&package, &gone_on, &["--resume", &run]);
    assert_eq!((ran.exit, ran.run()), (0, run.as_str()), "{}\n{}", ran.json, ran.stderr);
    let seed = ran.json["seed"].to_string();
    let whole = with(&package, &[], &["--seed", &seed]);
    assert_eq!(trials(&ran.json), trials(&whole.json));
    assert_eq!(objects_of(&run), [""; 0]);
}
