//! Operations over HTTP: what exists, what fits, how often, what is kept.

use super::*;

#[test]
fn each_answer_has_the_status_that_the_interface_fixes() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    let table = [
        ("put", r#"{"a":1}"#, 200, json!({"result": {"put": 1}})),
        ("get", r#"{"key":"a"}"#, 200, json!({"result": 1})),
        ("refuse", "{}", 422, json!({"error": {"code": "over_limit", "message": "ask a supervisor"}})),
    ];
    for (name, body, status, answer) in table {
        assert_eq!(bench.operate(name, body), (status, answer), "{name}");
    }
    let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(1 << 20));
    let nested = |levels| format!(r#"{{"a":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    let digits = |count| format!(r#"{{"a":[-{}]}}"#, "1".repeat(count));
    for body in [nested(63), digits(300), r#"{"a":1e308}"#.to_owned()] {
        assert_eq!(bench.operate("put", &body).0, 200, "{body}");
    }
    let table = [
        ("get", r#"{"key":5}"#, 400, "crashlab_invalid_arguments"),
        ("get", "{}", 400, "crashlab_invalid_arguments"),
        ("put", "[]", 400, "crashlab_invalid_arguments"),
        ("put", "{", 400, "crashlab_invalid_arguments"),
        ("put", r#"{"a":1,"\u0061":2}"#, 400, "crashlab_invalid_arguments"),
        ("put", "", 400, "crashlab_invalid_arguments"),
        ("put", &nested(64), 400, "crashlab_invalid_arguments"),
        ("put", &digits(5000), 400, "crashlab_invalid_arguments"),
        ("put", r#"{"a":{"b":1e999}}"#, 400, "crashlab_invalid_arguments"),
        ("hidden", "{}", 404, "crashlab_not_declared"),
        ("hidden", &digits(5000), 404, "crashlab_not_declared"),
        ("get/x", "{}", 404, "crashlab_not_declared"),
        ("put", &large, 413, "crashlab_request_too_large"),
        ("fail", "{}", 500, "crashlab_evaluation_error"),
    ];
    for (name, body, status, code) in table {
        let (got, answer) = bench.operate(name, body);
        assert_eq!((got, &answer["error"]["code"]), (status, &json!(code)), "{name} {}", &body[..body.len().min(40)]);
        assert!(!answer.to_string().contains("private detail"));
    }
    assert_eq!(
        bench.heard(),
        ["put", "get", "refuse", "put", "put", "put", "fail"],
        "the evaluation hears of nothing else"
    );
    let traffic = bench.revoke();
    let is_readable = |call| crate::json::is_readable(call, 70);
    assert!(traffic.operations.iter().all(is_readable), "the verifier could not read them");
    assert_eq!(traffic.evaluation_error.as_deref(), Some("operation fail: KeyError: 'private detail'"));
}

#[test]
fn the_call_budget_holds_under_concurrency_and_refused_calls_cost_nothing() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    assert_eq!(bench.operate("get", "{}").0, 400);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..12).map(|_| scope.spawn(|| bench.operate("get", r#"{"key":"a"}"#).0)).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 403).count(), 9, "{statuses:?}");
    assert_eq!(bench.heard().len(), 3);
}

#[test]
fn what_is_kept_of_all_calls_is_bounded_however_they_end() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    // Small on the wire, and 16 bytes for each zero in memory: 9 MB.
    let list = format!(r#"{{"a":[{}0]}}"#, "0,".repeat(500_000));
    let statuses = ["hidden", "hidden", "hidden", "hidden", "put"].map(|name| bench.operate(name, &list).0);
    assert_eq!(statuses, [404, 404, 404, 413, 413]);
    assert_eq!(bench.operate("put", r#"{"a":1}"#).0, 200, "what fits is taken");
    assert_eq!(bench.heard(), ["put"]);
    let traffic = bench.revoke();
    assert_eq!(traffic.operations.len(), 4);
    assert_eq!(traffic.diagnostics, ["2 more refused operation calls are not listed"]);
}

#[test]
fn every_call_is_kept_with_what_it_changed() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    bench.operate("put", r#"{"a":1.50}"#);
    bench.operate("put", r#"{"a":2,"b":null}"#);
    bench.operate("refuse", r#"{"why":"x"}"#);
    bench.operate("hidden", "{}");
    let lines = bench.operations.lines();
    let kept: Vec<Value> =
        lines.iter().map(|line| json!([line["operation"], line["arguments"], line["world_diff"]])).collect();
    let want = [
        r#"["put",{"a":1.50},[{"op":"add","path":"/a","value":1.50}]]"#,
        r#"["put",{"a":2,"b":null},[{"op":"replace","path":"/a","value":2},{"op":"add","path":"/b","value":null}]]"#,
        r#"["refuse",{"why":"x"},[]]"#,
        r#"["hidden",{},[]]"#,
    ];
    assert_eq!(kept.iter().map(ToString::to_string).collect::<Vec<_>>(), want);
    assert_eq!(lines[0]["via"], "http");
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["at", "operation", "via", "arguments", "result", "duration_ms", "world_diff"]);
    assert!(lines.iter().all(|line| line["at"].as_str().unwrap().ends_with('Z') && line["duration_ms"].is_number()));
    let seen = bench.revoke().operations;
    assert_eq!(seen[1], json!({"name": "put", "arguments": {"a": 2, "b": null}, "result": {"put": 2}}));
    assert_eq!(seen[2]["refused"], json!({"code": "over_limit", "message": "ask a supervisor"}));
    assert_eq!(seen[3]["error"]["code"], "crashlab_not_declared");
}

#[test]
fn what_is_kept_holds_no_secret_and_no_token_though_the_target_gets_what_was_said() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let token = bench.variable("OPENAI_API_KEY").to_owned();
    let (_, answer) = bench.operate("secret", &json!({"token": token, "twice": base64_of(&token)}).to_string());
    assert_eq!(answer["result"]["leak"], SECRET);
    let kept = bench.operations.text();
    for hidden in [SECRET, &token, &base64_of(SECRET)[..20], &base64_of(&token)[..20]] {
        assert!(!kept.contains(hidden), "{hidden} is in {kept}");
    }
    assert!(kept.contains("[redacted:A_KEY]") && kept.contains("[redacted:token:openai]"), "{kept}");
    let counts = bench.admission.as_ref().unwrap().redactor().counts();
    assert!(counts.iter().all(|row| row.file == "trials/a-case/1/operations.jsonl" && row.count == 2), "{counts:?}");
}

#[test]
fn an_operation_that_is_declared_must_be_implemented() {
    let policy = rules(&Setting::default());
    let refusal = OperationSet::compile(&policy.operations, &[]).unwrap_err();
    assert!(refusal.to_string().starts_with("policy.json#/operations/"), "{refusal}");
}

#[test]
fn the_evaluations_own_schema_is_checked_too() {
    let policy = rules(&Setting { operations: json!({"get": {}}), ..Setting::default() });
    let own = json!({"type": "object", "additionalProperties": false});
    let implemented = [Implemented { name: "get".into(), description: "reads".into(), arguments: Some(own.clone()) }];
    let set = OperationSet::compile(&policy.operations, &implemented).unwrap();
    let desk = Desk { values: Map::new(), heard: Arc::default() };
    let plan = OperationsPlan { set: Arc::new(set), world: Arc::new(Mutex::new(desk)), before: json!({}) };
    let lines = Lines::new(Box::new(Sink::default()), "f".into(), Redactor::new(Vec::new()).unwrap());
    let operations = Operations::new(plan, Life::default(), lines, Arc::default());
    let listed = operations.list().next().unwrap();
    assert_eq!((listed.description.as_str(), &listed.schema), ("reads", &own));
    assert_eq!(operations.call("get", Some(&json!({"other": 1})), Via::Mcp).http().0, 400);
}
