//! Faults of a drill: what the target sees of each, what is recorded, and that none is anybody's failure.

use super::super::Traffic;
use super::*;

/// A trial with a script of so many plain answers, under these faults.
fn drilled(gateway: &Gateway, faults: Value, replies: usize) -> Bench {
    drilled_as(gateway, "openai", faults, &plain_reply(), replies)
}

fn drilled_as(gateway: &Gateway, dialect: &str, faults: Value, reply: &str, replies: usize) -> Bench {
    let mut setting = Setting::default();
    setting.gateway["dialect"] = json!(dialect);
    if dialect == "anthropic" {
        setting.gateway["routes"] = json!(["POST /v1/messages"]);
    }
    setting.script = format!("{reply}\n").repeat(replies);
    setting.faults = faults;
    Bench::ready(gateway, setting)
}

fn plain_reply() -> String {
    let choice =
        json!({"index": 0, "message": {"role": "assistant", "content": "hello there"}, "finish_reason": "stop"});
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    json!({"body": {"id": "c", "object": "chat.completion", "model": "gpt-5", "choices": [choice], "usage": usage}})
        .to_string()
}

fn stream_reply() -> String {
    let chunk = |text: &str| json!({"data": {"id": "c", "object": "chat.completion.chunk", "model": "gpt-5", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}});
    json!({"events": [chunk("one"), chunk("two"), chunk("three"), {"data": "[DONE]"}]}).to_string()
}

fn question() -> Value {
    json!({"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}]})
}

fn on_gateway(kind: &str) -> Value {
    json!([{"on": "gateway:openai", "kind": kind, "nth": 1}])
}

/// Kind, place and call of each fault, in order.
fn listed(traffic: &Traffic) -> Vec<(&'static str, String, u64)> {
    traffic.faults.iter().map(|fault| (fault.kind, fault.on.clone(), fault.call)).collect()
}

#[test]
fn each_fault_in_the_providers_place_is_seen_recorded_and_nobodys_failure() {
    let table = [
        ("status", 429, "rate_limit_exceeded"),
        ("malformed", 200, "choices"),
        ("empty", 200, ""),
        ("wrong_type", 200, "<html>"),
        ("content_filter", 200, "\"finish_reason\":\"content_filter\""),
        ("context_length", 400, "context_length_exceeded"),
        ("reset", 0, ""),
    ];
    for (kind, status, words) in table {
        let gateway = gateway();
        let mut bench = drilled(&gateway, on_gateway(kind), 1);
        let (got, body) = bench.chat(&question());
        assert_eq!((got, body.contains(words)), (status, true), "{kind}: {body}");
        assert_eq!(body.is_empty(), words.is_empty(), "{kind}: {body}");
        let line = bench.calls.lines().remove(0);
        assert_eq!((&line["usage"], line["status"].as_u64().unwrap_or(0)), (&Value::Null, u64::from(status)), "{line}");
        assert_eq!(bench.chat(&question()).0, 200, "{kind}: the script has kept its line");
        let traffic = bench.revoke();
        assert_eq!(listed(&traffic), [(kind, "gateway:openai".to_owned(), 1)]);
        assert_eq!(traffic.faults[0].route.as_deref(), Some("POST /v1/chat/completions"));
        assert_eq!((traffic.failures.len(), traffic.evaluation_error), (0, None), "{kind}");
        assert_eq!((traffic.totals.requests, traffic.totals.input_tokens, traffic.totals.unknown), (1, Some(3), 0));
    }
}

#[test]
fn a_reset_is_a_reset_and_no_orderly_end() {
    let gateway = gateway();
    let bench = drilled(&gateway, on_gateway("reset"), 1);
    let body = question().to_string();
    let (token, length) = (bench.variable("OPENAI_API_KEY"), body.len());
    let head =
        format!("Host: g\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    let mut ends = [(); 2].map(|()| {
        let mut stream = bench.connect();
        stream.write_all(format!("POST /v1/chat/completions HTTP/1.1\r\n{head}{body}").as_bytes()).unwrap();
        let mut answer = Vec::new();
        (stream.read_to_end(&mut answer).map_err(|error| error.kind()), answer.len())
    });
    assert_eq!(ends[0], (Err(io::ErrorKind::ConnectionReset), 0));
    let (end, length) = ends.last_mut().unwrap();
    assert!(end.is_ok() && *length > 0, "the second call is not struck: {end:?}");
}

#[test]
fn a_fault_that_ends_a_trial_is_no_failure_of_the_provider() {
    for kind in ["status", "reset", "malformed", "empty", "cut_stream"] {
        let gateway = gateway();
        let mut bench = drilled(&gateway, on_gateway(kind), 1);
        bench.chat(&question());
        let traffic = bench.revoke();
        assert_eq!((traffic.failures.len(), traffic.faults.len()), (0, 1), "{kind}");
    }
}

#[test]
fn a_status_has_its_retry_after_and_each_dialects_form() {
    let table = [
        ("openai", 503, "\"server_error\""),
        ("anthropic", 529, "\"overloaded_error\""),
        ("anthropic", 429, "\"rate_limit_error\""),
        ("openrouter", 429, "\"code\":429"),
    ];
    for (dialect, code, words) in table {
        let gateway = gateway();
        let faults = json!([{"on": "gateway:openai", "kind": "status", "code": code, "retry_after": 7}]);
        let bench = drilled_as(&gateway, dialect, faults, &plain_reply(), 1);
        let path = if dialect == "anthropic" { "/v1/messages" } else { "/v1/chat/completions" };
        let body =
            json!({"model": "gpt-5", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let token = bench.variable("OPENAI_API_KEY");
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = bench.raw(format!("{head}{body}").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{dialect}: {answer}");
        assert!(answer.contains("retry-after: 7\r\n") && answer.contains(words), "{dialect}: {answer}");
    }
}

#[test]
fn a_cut_stream_has_so_many_events_and_no_end_and_can_be_asked_for_again() {
    let gateway = gateway();
    let faults = json!([{"on": "gateway:openai", "kind": "cut_stream", "events": 2, "nth": 1}]);
    let mut bench = drilled_as(&gateway, "openai", faults, &stream_reply(), 1);
    let mut question = question();
    question["stream"] = json!(true);
    let (_, body) = bench.chat(&question);
    assert!(
        body.contains("one") && body.contains("two") && !body.contains("three") && body.ends_with("<cut>"),
        "{body}"
    );
    let (_, body) = bench.chat(&question);
    assert!(body.contains("three") && body.contains("[DONE]") && !body.ends_with("<cut>"), "{body}");
    assert_eq!(listed(&bench.revoke()), [("cut_stream", "gateway:openai".to_owned(), 1)]);
}

#[test]
fn a_slow_stream_and_a_delay_come_whole() {
    let gateway = gateway();
    let faults = json!([{"on": "gateway:openai", "kind": "delay", "time": "20ms"}, {"on": "gateway:openai", "kind": "slow_stream", "time": "10ms"}]);
    let mut bench = drilled_as(&gateway, "openai", faults, &stream_reply(), 1);
    let mut question = question();
    question["stream"] = json!(true);
    let (status, body) = bench.chat(&question);
    assert!(status == 200 && body.contains("three") && body.contains("[DONE]"), "{body}");
    let line = bench.calls.lines().remove(0);
    assert!(line["duration_ms"].as_f64().unwrap() >= 60.0, "the pauses of four events, and the delay: {line}");
    let traffic = bench.revoke();
    assert_eq!(traffic.faults.iter().map(|fault| fault.kind).collect::<Vec<_>>(), ["delay", "slow_stream"]);
    assert_eq!(traffic.failures.len(), 0);
}

#[test]
fn each_fault_of_an_operation_does_to_world_and_answer_what_it_says() {
    // The world holds a = 1, and the call puts b = 2.
    let put = json!({"put": 1});
    let table = [
        ("error", 500, Value::Null, json!({"a": 1}), 0),
        ("timeout", 500, Value::Null, json!({"a": 1}), 0),
        ("delay", 200, put.clone(), json!({"a": 1, "b": 2}), 1),
        ("lost_write", 200, put.clone(), json!({"a": 1}), 1),
        ("duplicate", 200, put.clone(), json!({"a": 1, "b": 2}), 2),
        ("partial", 200, json!({}), json!({"a": 1, "b": 2}), 1),
        ("schema_drift", 200, json!({"Put": 1}), json!({"a": 1, "b": 2}), 1),
        ("injected_text", 200, json!({"put": 1, "notice": "obey"}), json!({"a": 1, "b": 2}), 1),
        ("stale_read", 200, put, json!({"a": 1, "b": 2}), 2),
    ];
    for (kind, status, result, world, heard) in table {
        let mut fault = json!({"on": "operation:put", "kind": kind, "nth": 2});
        match kind {
            "timeout" | "delay" => fault["time"] = json!("5ms"),
            "injected_text" => fault["text"] = json!("obey"),
            _ => {}
        }
        let gateway = gateway();
        let mut bench = Bench::ready(&gateway, Setting { faults: json!([fault]), ..Setting::default() });
        bench.operate("put", r#"{"a":1}"#);
        let (got, body) = bench.operate("put", r#"{"b":2}"#);
        assert_eq!((got, &body["result"]), (status, &result), "{kind}: {body}");
        assert_eq!(bench.heard().len(), 1 + heard, "{kind}");
        let keys = ["a", "b"].map(|key| bench.operate("get", &json!({"key": key}).to_string()).1["result"].clone());
        let left = ["a", "b"].map(|key| world[key].clone());
        assert_eq!(keys, left, "{kind}: the world afterwards");
        let line = bench.operations.lines().remove(1);
        assert_eq!(line.get("result").cloned().unwrap_or_default(), result, "{kind}: {line}");
        let traffic = bench.revoke();
        assert_eq!(listed(&traffic), [(kind, "operation:put".to_owned(), 2)]);
        assert_eq!((traffic.evaluation_error, &traffic.faults[0].route), (None, &None), "{kind}");
    }
}

#[test]
fn a_stale_read_sees_the_world_as_it_was() {
    let gateway = gateway();
    let faults = json!([{"on": "operation:get", "kind": "stale_read", "calls": 1, "nth": 1}]);
    let mut bench = Bench::ready(&gateway, Setting { faults, ..Setting::default() });
    bench.operate("put", r#"{"a":1}"#);
    bench.operate("put", r#"{"a":2}"#);
    let read = || bench.operate("get", r#"{"key":"a"}"#).1["result"].clone();
    assert_eq!([read(), read()], [json!(1), json!(2)]);
    assert_eq!(bench.revoke().faults.len(), 1);
}

#[test]
fn a_tool_call_over_mcp_is_struck_too() {
    let gateway = gateway();
    let faults = json!([{"on": "operation:put", "kind": "error", "nth": 1}]);
    let mut bench = Bench::ready(&gateway, Setting { faults, ..Setting::default() });
    let trial = Arc::clone(&bench.admission.as_ref().unwrap().trial);
    let operations = trial.operations.as_ref().unwrap();
    assert_eq!(operations.call("put", Some(&json!({"a": 1})), Via::Mcp).http().0, 500);
    assert_eq!(operations.call("put", Some(&json!({"a": 1})), Via::Mcp).http().0, 200);
    assert_eq!(listed(&bench.revoke()), [("error", "operation:put".to_owned(), 1)]);
}

#[test]
fn the_same_seed_gives_equal_lists_through_the_gateway_and_another_one_another() {
    let list = |seed| {
        let gateway = gateway();
        let faults = json!([{"on": "gateway:openai", "kind": "status", "probability": 0.4}]);
        let setting = Setting { faults, seed, script: format!("{}\n", plain_reply()).repeat(24), ..Setting::default() };
        let mut bench = Bench::ready(&gateway, setting);
        (0..24).for_each(|_| drop(bench.chat(&question())));
        listed(&bench.revoke())
    };
    let first = list(7);
    assert!(!first.is_empty());
    assert_eq!(first, list(7));
    assert_ne!(first, list(8));
}
