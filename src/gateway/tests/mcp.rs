//! Operations over MCP, on the wire: the same token, budget and record as over HTTP.

use super::*;

impl Bench {
    /// A message of a client that has shaken hands.
    fn message(&self, method: &str, headers: &str, body: &str) -> String {
        let token = self.variable("CRASHLAB_TOKEN");
        let head = format!("{method} /mcp HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n{headers}");
        self.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    }

    fn call_tool(&self, name: &str, arguments: &Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        let (status, body) = status_and_body(&self.message("POST", "MCP-Protocol-Version: 2025-11-25\r\n", &message));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[test]
fn the_endpoint_lists_the_declared_operations_and_nothing_else() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let (_, body) = status_and_body(&bench.message("POST", "", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#));
    let body: Value = serde_json::from_str(&body).unwrap();
    let tools = body["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    assert_eq!(names, ["fail", "get", "put", "refuse", "secret"]);
    assert_eq!(tools[1]["inputSchema"]["required"], json!(["key"]));
    assert!(bench.heard().is_empty());
}

#[test]
fn a_call_over_mcp_has_the_same_rules_and_the_same_record() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    assert_eq!(bench.call_tool("put", &json!({"a": 1}))["result"]["structuredContent"], json!({"put": 1}));
    assert_eq!(bench.call_tool("get", &json!({"key": "a"}))["result"]["content"][0]["text"], json!("1"));
    let code = |answer: &Value| answer["result"]["structuredContent"]["error"]["code"].clone();
    let is_error = |answer: &Value| answer["result"]["isError"] == json!(true);
    for (name, arguments, right) in [
        ("refuse", json!({}), "over_limit"),
        ("get", json!({"key": 1}), "crashlab_invalid_arguments"),
        ("fail", json!({}), "crashlab_evaluation_error"),
    ] {
        let answer = bench.call_tool(name, &arguments);
        assert!(is_error(&answer) && code(&answer) == json!(right), "{answer}");
        assert!(!answer.to_string().contains("private detail"));
    }
    assert_eq!(bench.call_tool("hidden", &json!({}))["error"]["code"], json!(-32602));
    bench.operate("get", r#"{"key":"a"}"#);
    bench.call_tool("get", &json!({"key": "a"}));
    assert_eq!(code(&bench.call_tool("get", &json!({"key": "a"}))), json!("crashlab_call_budget"));
    assert_eq!(bench.heard(), ["put", "get", "refuse", "fail", "get", "get"]);
    let lines = bench.operations.lines();
    let via: Vec<&str> = lines.iter().filter_map(|line| line["via"].as_str()).collect();
    assert_eq!(via, ["mcp", "mcp", "mcp", "mcp", "mcp", "mcp", "http", "mcp", "mcp"]);
    assert_eq!(lines[0]["world_diff"], json!([{"op": "add", "path": "/a", "value": 1}]));
    assert!(bench.revoke().evaluation_error.is_some());
}

#[test]
fn what_the_transport_does_not_have_is_told_in_its_words() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let answer = bench.message("GET", "Accept: text/event-stream\r\n", "");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("\r\nallow: POST\r\n"), "{answer}");
    let taken = bench.message("POST", "", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert!(taken.starts_with("HTTP/1.1 202 ") && taken.contains("content-length: 0"), "{taken}");
    let large = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"a":"{}"}}}}"#, "x".repeat(2 << 20));
    assert!(bench.message("POST", "", &large).starts_with("HTTP/1.1 413 "));
    let without = "POST /mcp HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{}";
    assert!(bench.raw(without.as_bytes()).starts_with("HTTP/1.1 401 "));
}
