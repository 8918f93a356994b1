//! What each message is answered with, in both eras.

use super::*;

fn tools() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("refund", "Gives money back.", json!({"type": "object", "properties": {"order": {"type": "string"}}})),
        ("tell", "", json!({})),
    ]
}

/// Answers what `posted` says; the tool `refund` gives back its arguments, `tell` refuses.
fn ask(posted: &Posted<'_>) -> (u16, Option<Value>) {
    let tools = tools();
    let list = tools.iter().map(|(name, description, schema)| Tool { name, description, schema });
    answer(posted, list, |name, arguments| match name {
        "refund" => Response::Result(arguments.clone()),
        "tell" => Response::Refused { code: "over_limit".to_owned(), message: "ask a supervisor".to_owned() },
        "text" => Response::Result(json!("plain")),
        "spent" => Response::Error { status: 403, code: "crashlab_call_budget", message: "used up".to_owned() },
        _ => Response::Error { status: 404, code: "crashlab_not_declared", message: String::new() },
    })
}

fn legacy(message: &Value) -> (u16, Option<Value>) {
    let body = message.to_string();
    ask(&Posted { http_method: "POST", version: Some("2025-11-25"), body: body.as_bytes(), ..Posted::default() })
}

fn modern_message(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({META_VERSION: MODERN, META_CAPABILITIES: {}});
    json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params})
}

fn modern(method: &str, name: Option<&str>, params: Value) -> (u16, Option<Value>) {
    let body = modern_message(method, params).to_string();
    ask(&Posted {
        http_method: "POST",
        version: Some(MODERN),
        method: Some(method),
        name,
        body: body.as_bytes(),
        ..Posted::default()
    })
}

fn result(answer: (u16, Option<Value>)) -> Value {
    assert_eq!(answer.0, 200, "{answer:?}");
    answer.1.unwrap()["result"].take()
}

fn error(answer: &(u16, Option<Value>)) -> (u16, i64) {
    (answer.0, answer.1.as_ref().unwrap()["error"]["code"].as_i64().unwrap())
}

fn request(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

#[test]
fn a_handshake_gets_the_version_it_asked_for_or_the_newest_of_its_era() {
    for (asked, given) in [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2024-11-05", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
    ] {
        let message = request("initialize", json!({"protocolVersion": asked, "capabilities": {}}));
        let found = result(legacy(&message));
        assert_eq!(found["protocolVersion"], json!(given), "{asked}");
        assert_eq!(found["capabilities"], json!({"tools": {}}));
        assert_eq!(found["serverInfo"]["name"], json!("crashlab"));
    }
    assert_eq!(result(legacy(&request("ping", json!({})))), json!({}));
}

#[test]
fn tools_are_listed_in_both_eras() {
    let of_legacy = result(legacy(&request("tools/list", json!({}))));
    let of_modern = result(modern("tools/list", None, json!({})));
    for list in [&of_legacy, &of_modern] {
        assert_eq!(list["tools"][0]["description"], json!("Gives money back."));
        assert_eq!(list["tools"][1], json!({"name": "tell", "inputSchema": {"type": "object"}}));
    }
    assert!(of_legacy.get("resultType").is_none());
    assert_eq!((&of_modern["resultType"], &of_modern["cacheScope"]), (&json!("complete"), &json!("private")));
    assert!(of_modern["ttlMs"].is_u64() && of_modern["_meta"][META_SERVER].is_object());
    assert_eq!(error(&legacy(&request("tools/list", json!({"cursor": "x"})))), (200, INVALID_PARAMS));
}

#[test]
fn a_server_tells_a_modern_client_which_versions_it_speaks() {
    let found = result(modern("server/discover", None, json!({})));
    assert_eq!(found["supportedVersions"], json!(["2026-07-28", "2025-11-25", "2025-06-18"]));
    assert_eq!(found["capabilities"], json!({"tools": {}}));
}

#[test]
fn a_call_gives_text_and_value_and_a_refusal_is_a_result_that_says_so() {
    let params = json!({"name": "refund", "arguments": {"order": "A-1"}});
    for found in
        [result(legacy(&request("tools/call", params.clone()))), result(modern("tools/call", Some("refund"), params))]
    {
        assert_eq!(found["content"], json!([{"type": "text", "text": "{\"order\":\"A-1\"}"}]));
        assert_eq!((&found["structuredContent"], &found["isError"]), (&json!({"order": "A-1"}), &json!(false)));
    }
    let refused = result(legacy(&request("tools/call", json!({"name": "tell"}))));
    assert_eq!(refused["isError"], json!(true));
    assert_eq!(refused["content"][0]["text"], json!("over_limit: ask a supervisor"));
    let spent = result(legacy(&request("tools/call", json!({"name": "spent"}))));
    assert_eq!(spent["structuredContent"]["error"]["code"], json!("crashlab_call_budget"));
    let text = json!({"name": "text"});
    assert!(result(legacy(&request("tools/call", text.clone()))).get("structuredContent").is_none());
    assert_eq!(result(modern("tools/call", Some("text"), text))["structuredContent"], json!("plain"));
}

#[test]
fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
    let params = json!({"name": "nothing", "arguments": {}});
    assert_eq!(error(&legacy(&request("tools/call", params.clone()))), (200, INVALID_PARAMS));
    assert_eq!(error(&modern("tools/call", Some("nothing"), params)), (400, INVALID_PARAMS));
    for bad in [json!({}), json!({"name": 1}), json!({"name": "refund", "arguments": []})] {
        assert_eq!(error(&legacy(&request("tools/call", bad))), (200, INVALID_PARAMS));
    }
}

#[test]
fn each_era_has_only_its_own_methods() {
    for method in ["server/discover", "resources/list", "prompts/list", "logging/setLevel"] {
        assert_eq!(error(&legacy(&request(method, json!({})))), (200, METHOD_NOT_FOUND), "{method}");
    }
    for method in ["ping", "initialize", "subscriptions/listen", "resources/list"] {
        assert_eq!(error(&modern(method, None, json!({}))), (404, METHOD_NOT_FOUND), "{method}");
    }
}

#[test]
fn what_wants_no_answer_gets_none() {
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
    ] {
        assert_eq!(legacy(&message), (202, None), "{message}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for (body, code) in [
        ("", PARSE_ERROR),
        ("{", PARSE_ERROR),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#, PARSE_ERROR),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, INVALID_REQUEST),
        (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, INVALID_REQUEST),
    ] {
        let posted = Posted { http_method: "POST", body: body.as_bytes(), ..Posted::default() };
        assert_eq!(error(&ask(&posted)), (400, code), "{body}");
    }
    for http_method in ["GET", "DELETE", "PUT"] {
        assert_eq!(ask(&Posted { http_method, ..Posted::default() }).0, 405, "{http_method}");
    }
}

#[test]
fn a_version_that_is_not_spoken_is_refused_with_those_that_are() {
    let plain = request("tools/list", json!({})).to_string();
    for version in ["1900-01-01", "not-a-version", "2025-03-26"] {
        let posted =
            Posted { http_method: "POST", version: Some(version), body: plain.as_bytes(), ..Posted::default() };
        let found = ask(&posted);
        assert_eq!(error(&found), (400, UNSUPPORTED_VERSION), "{version}");
        assert_eq!(found.1.unwrap()["error"]["data"]["requested"], json!(version));
    }
    let mut future = modern_message("tools/list", json!({}));
    future["params"]["_meta"][META_VERSION] = json!("2031-01-01");
    let body = future.to_string();
    let posted =
        Posted { http_method: "POST", version: Some("2031-01-01"), body: body.as_bytes(), ..Posted::default() };
    assert_eq!(error(&ask(&posted)), (400, UNSUPPORTED_VERSION));
}

#[test]
fn headers_that_say_something_else_than_the_body_are_refused() {
    let body = modern_message("tools/call", json!({"name": "refund", "arguments": {}})).to_string();
    let right = Posted {
        http_method: "POST",
        version: Some(MODERN),
        method: Some("tools/call"),
        name: Some("refund"),
        body: body.as_bytes(),
        ..Posted::default()
    };
    assert_eq!(ask(&right).0, 200);
    assert_eq!(ask(&Posted { name: Some("=?base64?cmVmdW5k?="), ..right }).0, 200);
    for wrong in [
        Posted { version: None, ..right },
        Posted { version: Some("2025-11-25"), ..right },
        Posted { method: None, ..right },
        Posted { method: Some("tools/list"), ..right },
        Posted { name: None, ..right },
        Posted { name: Some("Refund"), ..right },
        Posted { name: Some("=?base64?!?="), ..right },
    ] {
        assert_eq!(error(&ask(&wrong)), (400, HEADER_MISMATCH), "{wrong:?}");
    }
    for missing in [META_VERSION, META_CAPABILITIES] {
        let mut message = modern_message("tools/list", json!({}));
        message["params"]["_meta"].as_object_mut().unwrap().remove(missing);
        let body = message.to_string();
        let posted = Posted { method: Some("tools/list"), body: body.as_bytes(), ..right };
        assert_eq!(error(&ask(&posted)), (400, INVALID_PARAMS), "{missing}");
    }
}

#[test]
fn a_page_of_another_origin_may_not_call() {
    let body = request("ping", json!({})).to_string();
    let none = Posted { http_method: "POST", body: body.as_bytes(), ..Posted::default() };
    assert_eq!(ask(&none).0, 200);
    for origin in
        ["http://gateway:8080", "http://localhost", "http://localhost:3000", "https://127.0.0.1:1", "http://[::1]"]
    {
        assert_eq!(ask(&Posted { origin: Some(origin), ..none }).0, 200, "{origin}");
    }
    for origin in
        ["http://evil.example", "null", "gateway", "http://gateway:8080.evil.example", "http://gateway.evil.example"]
    {
        assert_eq!(ask(&Posted { origin: Some(origin), ..none }).0, 403, "{origin}");
    }
}
