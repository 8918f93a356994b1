//! The scripted provider, plain and streamed, and what its calls leave behind.

use super::*;

const PROMPT: &str = "the prompt that nobody keeps";
const ANSWER: &str = "the answer that nobody keeps";

fn asking(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": PROMPT}]})
}

fn replies(lines: &[Value]) -> Setting {
    let script = lines.iter().map(|line| format!("{line}\n")).collect();
    Setting { script, ..Setting::default() }
}

fn completion(text: &str) -> Value {
    json!({"model": "gpt-5-mini", "choices": [{"message": {"content": text}}], "usage": {"prompt_tokens": 10, "completion_tokens": 4}})
}

#[test]
fn the_first_unused_line_that_fits_answers_once_a_trial() {
    let lines = [
        json!({"match": {"case": "other-*"}, "body": "never"}),
        json!({"match": {"case": "a-*", "model": "gpt-5-nano"}, "body": {"n": 1.5}}),
        json!({"match": {"path": "/v1/chat/*"}, "status": 201, "headers": {"x-one": "1"}, "body": {"n": 2}}),
        json!({"body": "\"as it is\""}),
    ];
    let gateway = gateway();
    let setting = || {
        let mut setting = replies(&lines);
        // A number keeps the text that it was written with.
        setting.script = setting.script.replace("1.5", "1.50");
        setting
    };
    let mut bench = Bench::ready(&gateway, setting());
    let answers = ["gpt-5-mini", "gpt-5-nano", "gpt-5"].map(|model| bench.chat(&asking(model)));
    let want = [(201, r#"{"n":2}"#), (200, r#"{"n":1.50}"#), (200, "\"as it is\"")];
    assert_eq!(answers, want.map(|(status, body)| (status, body.to_owned())));
    let (status, body) = bench.chat(&asking("gpt-5"));
    assert!(status == 500 && body.contains("crashlab_script_exhausted"), "{status} {body}");
    let again = Bench::ready(&gateway, setting());
    assert_eq!(again.chat(&asking("gpt-5")).0, 201, "each trial has its own cursor");
    let traffic = bench.revoke();
    assert!(traffic.evaluation_error.unwrap().starts_with("script exhausted"));
    assert_eq!(traffic.failures, [], "that is not the provider's failure");
}

#[test]
fn events_are_sent_as_they_are_written() {
    let events = json!([
        {"data": {"choices": [{"delta": {"content": "a"}}]}},
        {"after": "5ms", "event": "named", "data": {"n": 1.0}},
        {"data": "[DONE]"}
    ]);
    let gateway = gateway();
    let bench = Bench::ready(&gateway, replies(&[json!({"events": events})]));
    let (status, body) = bench.chat(&json!({"model": "gpt-5", "stream": true}));
    let want =
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\nevent: named\ndata: {\"n\":1.0}\n\ndata: [DONE]\n\n";
    assert_eq!((status, body.as_str()), (200, want));
    assert_eq!(bench.calls.lines()[0]["stream"], true);
}

#[test]
fn an_event_reaches_the_target_before_the_next_one_is_due() {
    let events = json!([{"data": "first"}, {"after": "1h", "data": "second"}]);
    let gateway = gateway();
    let mut setting = replies(&[json!({"events": events})]);
    setting.gateway["limits"]["idle"] = json!("2h");
    let mut bench = Bench::ready(&gateway, setting);
    let token = bench.variable("OPENAI_API_KEY");
    let body = json!({"model": "gpt-5", "stream": true}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\nContent-Length: {}",
        body.len()
    );
    let mut stream = bench.connect();
    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut seen = String::new();
    while !seen.contains("data: first\n\n") {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    // The end of the trial finds it open: it ends at once, cut, and counts as the provider's failure.
    let traffic = bench.revoke();
    assert!(!read_to_end(stream).contains("0\r\n\r\n"));
    assert_eq!(traffic.failures.len(), 1);
    assert_eq!((traffic.failures[0].failure, traffic.totals.unknown), (Failure::StillOpen, 1));
    assert_eq!((traffic.totals.requests, traffic.totals.cost_usd, traffic.totals.input_tokens), (1, None, None));
    let lines = bench.calls.lines();
    assert_eq!((&lines[0]["end"], &lines[0]["usage"], lines.len()), (&json!("cut"), &Value::Null, 1));
}

#[test]
fn a_scripted_silence_runs_into_the_limits() {
    let slow = json!([{"after": "1h", "data": "late"}]);
    let gap = json!([{"data": "first"}, {"after": "1h", "data": "late"}]);
    let gateway = gateway();
    let mut setting = replies(&[json!({"events": slow}), json!({"events": gap})]);
    setting.gateway["limits"] = json!({"first_byte": "30ms", "idle": "40ms"});
    let mut bench = Bench::ready(&gateway, setting);
    let (status, body) = bench.chat(&asking("gpt-5"));
    assert!(status == 504 && body.contains("crashlab_upstream_timeout"), "{status} {body}");
    assert_eq!(bench.chat(&asking("gpt-5")), (200, "data: first\n\n<cut>".to_owned()));
    assert_eq!(bench.revoke().failures[0].failure, Failure::Idle);
}

#[test]
fn a_failure_counts_until_a_success_on_the_same_route() {
    let limited = json!({"status": 429, "headers": {"retry-after": 3}, "body": {"error": {"message": "slow down"}}});
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, replies(&[limited.clone(), json!({"body": completion(ANSWER)})]));
    assert_eq!(bench.chat(&asking("gpt-5")).0, 429);
    assert_eq!(bench.chat(&asking("gpt-5")).0, 200);
    assert_eq!(bench.revoke().failures, []);
    let elsewhere = json!({"match": {"path": "/v1/responses"}, "body": completion(ANSWER)});
    let mut bench = Bench::ready(&gateway, replies(&[limited, elsewhere]));
    assert_eq!(bench.chat(&asking("gpt-5")).0, 429);
    assert_eq!(bench.ask("POST /v1/responses", &json!({"model": "gpt-5", "input": "hi"}).to_string()).0, 200);
    let failure = &bench.revoke().failures[0];
    assert_eq!((failure.route.as_str(), failure.status), ("POST /v1/chat/completions", Some(429)));
}

#[test]
fn evidence_is_model_usage_latency_status_and_cost_and_no_word_of_either_side() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, replies(&[json!({"body": completion(ANSWER)})]));
    bench.chat(&asking("gpt-5"));
    bench.chat(&asking("other"));
    bench.ask(&format!("POST /v1/{}", PROMPT.replace(' ', "-")), "{}");
    let text = bench.calls.text();
    for hidden in [PROMPT, ANSWER, &PROMPT.replace(' ', "-"), bench.variable("OPENAI_API_KEY")] {
        assert!(!text.contains(hidden), "{text}");
    }
    let lines = bench.calls.lines();
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    let want = [
        "at",
        "gateway",
        "method",
        "route",
        "model",
        "served",
        "stream",
        "status",
        "first_byte_ms",
        "duration_ms",
        "request_bytes",
        "response_bytes",
        "usage",
        "unknown",
        "cost_usd",
        "end",
        "refusal",
    ];
    assert_eq!(keys, want);
    assert_eq!(
        lines[0]["usage"],
        json!({"input": 10, "cached_input": 0, "cache_write": 0, "output": 4, "reasoning": 0})
    );
    assert_eq!(
        (&lines[0]["model"], &lines[0]["served"], &lines[0]["end"]),
        (&json!("gpt-5"), &json!("gpt-5-mini"), &json!("complete"))
    );
    assert_eq!(lines[1]["refusal"], json!({"limit": "model", "code": "crashlab_model_not_allowed"}));
    assert_eq!(
        (&lines[1]["end"], &lines[1]["status"], &lines[2]["route"]),
        (&json!("refused"), &json!(403), &Value::Null)
    );
    let totals = bench.revoke().totals;
    assert_eq!((totals.requests, totals.refused, totals.input_tokens, totals.unknown), (1, 2, Some(10), 0));
    assert!((totals.cost_usd.unwrap() - 18e-6).abs() < 1e-12, "{totals:?}");
}

#[test]
fn a_script_is_refused_with_its_line() {
    let table = [
        ("{}", "body or events"),
        (r#"{"body":{},"events":[]}"#, "body or events"),
        (r#"{"body":{},"body":{}}"#, "duplicate key"),
        (r#"{"body":{},"statsu":200}"#, "unknown field"),
        (r#"{"body":{},"status":100}"#, "status 100"),
        (r#"{"body":{},"match":{"cases":"a"}}"#, "unknown field"),
        (r#"{"events":[{"after":"soon","data":""}]}"#, "soon"),
        (r#"{"body":{},"headers":{"a":[]}}"#, "header a"),
    ];
    for (line, why) in table {
        let text = format!("{{\"body\":1}}\n\n{line}\n");
        let refusal = super::super::script::Script::parse(text.as_bytes(), "replies.jsonl").unwrap_err();
        assert_eq!(refusal.place.as_deref(), Some("replies.jsonl:3"));
        assert!(refusal.message.contains(why), "{line}: {refusal}");
    }
}
