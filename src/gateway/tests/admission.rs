//! Attempts to make the provider read another request than the one that was judged (C9), base URLs that were joined
//! wrongly (C1), and limits.

use super::*;

fn bench(gateway: &Gateway, limits: Value) -> Bench {
    let mut setting = Setting { script: "{\"body\":{}}\n".repeat(50), ..Setting::default() };
    setting.gateway["limits"] = limits;
    Bench::ready(gateway, setting)
}

/// Status, the refusal's code, and how many requests were forwarded.
fn tried(bench: &Bench, line: &str, headers: &str, body: &str) -> (u16, String) {
    let token = bench.variable("OPENAI_API_KEY");
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let request = format!("{line} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n{headers}{length}\r\n{body}");
    let (status, answer) = status_and_body(&bench.raw(request.as_bytes()));
    let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{line}: {answer:?}: {error}"));
    (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn what_could_be_read_otherwise_is_refused_and_not_forwarded() {
    let gateway = gateway();
    let mut bench = bench(&gateway, json!({}));
    let chat = "POST /v1/chat/completions";
    let good = r#"{"model":"gpt-5"}"#;
    let deep = format!(r#"{{"model":"gpt-5","a":{}{}}}"#, "[".repeat(200), "]".repeat(200));
    let (path, query, body, model) = (
        "crashlab_path_not_allowed",
        "crashlab_query_not_allowed",
        "crashlab_body_not_allowed",
        "crashlab_model_not_allowed",
    );
    let table = [
        ("POST /v1/chat/../chat/completions", "", good, path),
        ("POST /v1/./chat/completions", "", good, path),
        ("POST /v1/chat/%63ompletions", "", good, path),
        ("POST /v1/%2e%2e/v1/chat/completions", "", good, path),
        ("POST /v1/chat%2Fcompletions", "", good, path),
        ("POST /v1//chat/completions", "", good, path),
        ("POST //v1/chat/completions", "", good, path),
        ("POST /v1\\chat\\completions", "", good, path),
        ("POST /v1/chat/completions/", "", good, path),
        ("POST /v1/chat/completions;a=b", "", good, path),
        ("POST /v1/chat/completions#a", "", good, path),
        ("POST /V1/chat/completions", "", good, path),
        ("POST http://gateway/v1/chat/completions", "", good, path),
        ("POST gateway:443", "", good, path),
        ("GET /v1/models/gpt-5/x", "", "", path),
        ("GET /v1/models/", "", "", path),
        ("GET /v1/models/gpt-5%2F..%2Ffiles", "", "", path),
        ("GET /v1/models/gpt-5%3Fa=b", "", "", path),
        ("GET /v1/models/gpt-5;a=b", "", "", path),
        ("GET /v1/chat/completions", "X-HTTP-Method-Override: POST\r\n", "", "crashlab_method_not_allowed"),
        ("DELETE /v1/models/gpt-5", "", "", "crashlab_method_not_allowed"),
        ("POST /v1/chat/completions?model=gpt-4", "", good, query),
        ("POST /v1/chat/completions?", "", good, query),
        ("POST /v1/responses?api-version=1&api-version=2", "", good, query),
        ("POST /v1/responses?api-version=1&key=x", "", good, query),
        ("POST /v1/responses?api%2Dversion=1", "", good, query),
        ("POST /v1/responses?api-version=1;key=x", "", good, query),
        ("POST /v1/responses?api-version=%31", "", good, query),
        (chat, "", r#"{"model":"gpt-5","model":"gpt-4"}"#, body),
        (chat, "", r#"{"model":"gpt-5","mod\u0065l":"gpt-4"}"#, body),
        (chat, "", r#"[{"model":"gpt-5"}]"#, body),
        (chat, "", r#"{"model":"gpt-5"}{"model":"gpt-4"}"#, body),
        (chat, "", "\u{feff}{\"model\":\"gpt-5\"}", body),
        (chat, "", &deep, body),
        (chat, "", "", body),
        ("GET /v1/models", "", good, body),
        (chat, "Content-Type: text/plain\r\n", good, body),
        (chat, "Content-Type: application/json; charset=utf-16\r\n", good, body),
        (chat, "Content-Type: application/json\r\ncontent-type: multipart/form-data\r\n", good, body),
        (chat, "Content-Encoding: gzip\r\n", good, body),
        (chat, "", r#"{"model":"openai/gpt-5"}"#, model),
        (chat, "", r#"{"model":"GPT-5"}"#, model),
        (chat, "", r#"{"model":" gpt-5"}"#, model),
    ];
    for (line, headers, body, code) in table {
        assert_eq!(
            tried(&bench, line, headers, body),
            (403, code.to_owned()),
            "{line} {headers} {}",
            &body[..body.len().min(60)]
        );
    }
    let count = bench.calls.lines().len();
    let totals = bench.revoke().totals;
    assert_eq!(
        (totals.requests, totals.refused, count),
        (0, table_len(), table_len() as usize),
        "counted, and none went on"
    );
}

/// The number of attempts in the table above.
fn table_len() -> u64 {
    43
}

#[test]
fn what_is_allowed_goes_on() {
    let gateway = gateway();
    let bench = bench(&gateway, json!({}));
    let good = r#"{"model":"gpt-5"}"#;
    let table = [
        ("POST /v1/chat/completions", "Content-Type: application/json; charset=utf-8\r\n", good),
        (
            "POST /v1/chat/completions",
            "Connection: keep-alive, X-Thing\r\nX-Thing: 1\r\nCookie: a=b\r\n",
            r#"{"model":"gpt-5-mini"}"#,
        ),
        ("POST /v1/responses?api-version=2026-01-01", "", good),
        ("POST /v1/responses", "", good),
    ];
    for (line, headers, body) in table {
        assert_eq!(tried(&bench, line, headers, body), (200, String::new()), "{line}");
    }
}

#[test]
fn a_base_url_that_was_joined_wrongly_is_told_what_came_and_what_to_set() {
    let gateway = gateway();
    let bench = bench(&gateway, json!({}));
    let table = [
        ("POST /v1/v1/chat/completions", "/v1 is there twice"),
        ("POST /chat/completions", "/v1 is missing"),
        ("POST /v1//chat/completions", "an empty segment"),
        ("POST //chat/completions", "an empty segment"),
        ("POST /v1/chat/completions/", "a slash too many"),
        ("POST /v2/chat/completions", "declared: POST /v1/chat/completions"),
    ];
    for (line, why) in table {
        let (status, answer) = bench.ask(line, r#"{"model":"gpt-5"}"#);
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!(status, 403);
        assert!(message.contains(&format!("received {line}")) && message.contains(why), "{message}");
        if !why.contains("declared") && !why.contains("too many") {
            assert!(message.contains("followed by \"/v1\""), "{message}");
        }
    }
    assert_eq!(bench.variable("OPENAI_BASE_URL"), "http://gateway:8080/v1");
}

#[test]
fn each_limit_on_a_request_stops_it_before_it_is_forwarded() {
    let gateway = gateway();
    let answered = r#"{"body":{"usage":{"prompt_tokens":60,"completion_tokens":60}}}"#;
    let table = [
        (json!({"requests": 1}), r#"{"model":"gpt-5"}"#, "requests", 403),
        (json!({"tokens": 100}), r#"{"model":"gpt-5"}"#, "tokens", 403),
        (json!({"cost_usd": 0.0001}), r#"{"model":"gpt-5"}"#, "cost_usd", 403),
        (json!({"request_size": "20B"}), r#"{"model":"gpt-5","messages":[]}"#, "request_size", 413),
    ];
    for (limits, body, limit, status) in table {
        let mut setting = Setting { script: format!("{answered}\n").repeat(9), ..Setting::default() };
        setting.gateway["limits"] = limits;
        let mut bench = Bench::ready(&gateway, setting);
        if limit != "request_size" {
            assert_eq!(bench.ask("POST /v1/chat/completions", body).0, 200, "{limit}");
        }
        assert_eq!(bench.ask("POST /v1/chat/completions", body).0, status, "{limit}");
        let refusal = bench.calls.lines().pop().unwrap()["refusal"]["limit"].clone();
        assert_eq!(refusal, json!(limit));
        assert_eq!(bench.revoke().totals.requests, u64::from(limit != "request_size"));
    }
}

#[test]
fn counts_as_large_as_they_can_be_are_used_up_and_summed() {
    let gateway = gateway();
    let most = u64::MAX;
    let answer = json!({"body": {"usage": {"prompt_tokens": most, "completion_tokens": most}}}).to_string();
    for (limits, statuses) in [(json!({"tokens": 100_000}), [200, 403]), (json!({"requests": 9}), [200, 200])] {
        let mut setting = Setting { script: format!("{answer}\n").repeat(2), ..Setting::default() };
        setting.gateway["limits"] = limits;
        let mut bench = Bench::ready(&gateway, setting);
        assert_eq!(statuses.map(|_| bench.chat(&json!({"model": "gpt-5"})).0), statuses);
        let totals = bench.revoke().totals;
        assert_eq!((totals.input_tokens, totals.output_tokens, totals.unknown), (Some(most), Some(most), 0));
    }
}

#[test]
fn the_money_of_the_run_is_one_purse_for_all_trials() {
    let gateway = gateway();
    let purse = Arc::new(Purse::new(0.0001));
    let setting = || Setting {
        script: r#"{"body":{"usage":{"prompt_tokens":100,"completion_tokens":0}}}"#.to_owned(),
        purse: Some(Arc::clone(&purse)),
        ..Setting::default()
    };
    let (one, two) = (Bench::ready(&gateway, setting()), Bench::ready(&gateway, setting()));
    assert_eq!(one.chat(&json!({"model": "gpt-5"})).0, 200);
    let (status, answer) = two.chat(&json!({"model": "gpt-5"}));
    assert!(status == 403 && answer.contains("crashlab_run_cost_limit"), "{status} {answer}");
    let mut unpriced = setting();
    unpriced.gateway["prices"] = json!({});
    let unpriced = Bench::ready(&gateway, Setting { purse: Some(Arc::new(Purse::new(0.0001))), ..unpriced });
    assert_eq!(unpriced.chat(&json!({"model": "gpt-5"})).0, 200, "a script without a price costs nothing");
}
