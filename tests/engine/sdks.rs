//! G7: the providers' own Python SDKs, unmodified, in the sandbox, through relay and gateway, in front of a provider on the
//! host's loopback that answers in the forms that their documentation gives.

use crate::support::{Package, Ran, objects_of};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a request was: its first line, its headers in lower case, its body.
struct Asked {
    line: String,
    head: String,
    body: Value,
}

/// A provider of all dialects; what it was asked is kept.
struct Provider {
    origin: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Provider {
    fn new() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || serve(stream.unwrap(), &kept));
            }
        });
        Self { origin, asked }
    }
}

fn serve(mut stream: TcpStream, kept: &Mutex<Vec<Asked>>) {
    while let Some(asked) = read(&mut stream) {
        let before = {
            let mut kept = kept.lock().unwrap();
            let before = kept.iter().filter(|earlier| earlier.body == asked.body).count();
            kept.push(Asked { line: asked.line.clone(), head: asked.head.clone(), body: asked.body.clone() });
            before
        };
        let (status, extra, kind, body, is_cut) = answer(&asked, before);
        let length = body.len() + usize::from(is_cut);
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{extra}content-length: {length}\r\n\r\n{body}");
        if stream.write_all(head.as_bytes()).is_err() || is_cut {
            return;
        }
    }
}

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let (line, head) = head.split_once("\r\n").unwrap_or((head, ""));
            let head = head.to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some(Asked {
                    line: line.to_owned(),
                    head,
                    body: serde_json::from_str(body).unwrap_or_default(),
                });
            }
        }
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            _ => return None,
        }
    }
}

fn events(events: &[Value]) -> String {
    let text = |event: &Value| match event["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    events.iter().map(text).collect()
}

type Answer = (&'static str, &'static str, &'static str, String, bool);

fn answer(asked: &Asked, before: usize) -> Answer {
    let ok = |body: Value| ("200 OK", "", "application/json", body.to_string(), false);
    let stream = |body: String| ("200 OK", "", "text/event-stream", body, false);
    let prompt = asked.body.to_string();
    let is_stream = asked.body["stream"] == true;
    let path = asked.line.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
    if prompt.contains("busy at first") && before == 0 {
        let body = json!({"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}});
        return ("429 Too Many Requests", "retry-after-ms: 10\r\n", "application/json", body.to_string(), false);
    }
    match path {
        _ if path.ends_with("/chat/completions") && is_stream => {
            let (_, extra, kind, body, _) = stream(chat_stream(asked));
            let is_cut = prompt.contains("\"cut\"");
            let body = if is_cut { body[..body.len() / 2].to_owned() } else { body };
            ("200 OK", extra, kind, body, is_cut)
        }
        _ if path.ends_with("/chat/completions") => ok(chat(asked)),
        "/v1/responses" | "/openai/v1/responses" if is_stream => stream(events(&response_events())),
        "/v1/responses" | "/openai/v1/responses" => ok(response("completed", true)),
        "/v1/models" => ok(models(asked)),
        "/v1/messages/count_tokens" => ok(json!({"input_tokens": 9})),
        "/v1/messages" if is_stream => stream(events(&message_events(prompt.contains("\"error\"")))),
        "/v1/messages" => ok(message(json!([{"type": "text", "text": "hello"}]), json!("end_turn"), 4)),
        _ if path.ends_with(":countTokens") => ok(json!({"totalTokens": 3})),
        _ if path.ends_with(":streamGenerateContent") => {
            stream(events(&[content("hel", None), content("lo", Some("STOP"))]))
        }
        _ if path.ends_with(":generateContent") => ok(content("hello", Some("STOP"))),
        _ => (
            "404 Not Found",
            "",
            "application/json",
            json!({"error": {"message": format!("no {path}")}}).to_string(),
            false,
        ),
    }
}

fn models(asked: &Asked) -> Value {
    if asked.head.contains("anthropic-version") {
        let model =
            |id: &str| json!({"id": id, "type": "model", "display_name": id, "created_at": "2026-01-01T00:00:00Z"});
        return json!({"has_more": false, "data": [model("claude-opus-5"), model("other")]});
    }
    let model = |id: &str| json!({"id": id, "object": "model", "created": 1, "owned_by": "x"});
    json!({"object": "list", "data": [model("gpt-5-mini"), model("o1"), model("whisper-1")]})
}

fn chat(asked: &Asked) -> Value {
    let call = json!([{"id": "call_1", "type": "function", "function": {"name": "refund", "arguments": "{}"}}]);
    let message = match asked.body.get("tools") {
        Some(_) => json!({"role": "assistant", "content": null, "tool_calls": call}),
        None => json!({"role": "assistant", "content": "hello"}),
    };
    json!({"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5-mini-2025-08-07",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}})
}

fn chat_stream(asked: &Asked) -> String {
    // OpenRouter sends it unasked.
    let is_asked = asked.body["stream_options"]["include_usage"] == true || asked.line.contains(" /api/v1/");
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-mini-2025-08-07", "choices": choices});
        if is_asked {
            chunk["usage"] = usage;
        }
        chunk
    };
    let delta = |text: &str| json!([{"index": 0, "delta": {"content": text}, "finish_reason": null}]);
    let mut all = vec![chunk(delta("hel"), Value::Null), chunk(delta("lo"), Value::Null)];
    if is_asked {
        all.push(chunk(json!([]), json!({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14})));
    }
    events(&all) + "data: [DONE]\n\n"
}

fn response(status: &str, is_whole: bool) -> Value {
    let output = json!([{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "hello", "annotations": []}]}]);
    let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 0}, "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 14});
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "gpt-5-mini-2025-08-07", "error": null,
        "output": if is_whole { output } else { json!([]) }, "usage": if is_whole { usage } else { Value::Null },
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": []})
}

fn response_events() -> Vec<Value> {
    let part = json!({"type": "output_text", "text": "", "annotations": []});
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "in_progress", "content": []});
    let at = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
    let with = |kind: &str, mut more: Value, number: u64| {
        more["type"] = json!(kind);
        more["sequence_number"] = json!(number);
        more
    };
    let delta = |text: &str| {
        let mut delta = at.clone();
        delta["delta"] = json!(text);
        delta
    };
    let mut added = at.clone();
    added["part"] = part;
    vec![
        with("response.created", json!({"response": response("in_progress", false)}), 0),
        with("response.output_item.added", json!({"output_index": 0, "item": item}), 1),
        with("response.content_part.added", added, 2),
        with("response.output_text.delta", delta("hel"), 3),
        with("response.output_text.delta", delta("lo"), 4),
        with("response.completed", json!({"response": response("completed", true)}), 5),
    ]
}

fn message(content: Value, stop: Value, output: u64) -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": content, "stop_reason": stop,
        "stop_sequence": null, "usage": {"input_tokens": 10, "output_tokens": output, "cache_read_input_tokens": 5}})
}

fn message_events(is_error: bool) -> Vec<Value> {
    let text =
        |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
    let mut all = vec![
        json!({"type": "message_start", "message": message(json!([]), Value::Null, 1)}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "ping"}),
        text("hel"),
    ];
    if is_error {
        all.push(json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
        return all;
    }
    all.extend([
        text("lo"),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 4}}),
        json!({"type": "message_stop"}),
    ]);
    all
}

fn content(text: &str, reason: Option<&str>) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": reason, "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14}, "modelVersion": "gemini-2.5-flash"})
}

/// A package of an agent that tries the SDKs, with these in its target.
pub fn package(agent: &str) -> Package {
    let package = Package::new(agent).file("pkg/target/common.py", include_str!("sdks/common.py"));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    // Two tests at once would install them twice.
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| {
        let script = std::process::Command::new(root.join("scripts/sdks")).status();
        assert!(script.unwrap().success(), "the SDKs are needed");
    });
    let (from, to) = (root.join("target/sdks/python"), package.path().join("pkg/target/sdks"));
    assert!(std::process::Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
    package
}

/// A file of a trial, `one/1` for example.
pub fn stored(package: &Package, trial: &str, name: &str) -> String {
    std::fs::read_to_string(package.run_folder().join("trials").join(trial).join(name)).unwrap_or_default()
}

/// What each call of the agent came to.
pub fn results(package: &Package, trial: &str, ran: &Ran) -> Value {
    let told: Value = serde_json::from_str(&stored(package, trial, "stdout"))
        .unwrap_or_else(|error| panic!("{error}\n{}\n{}", ran.json, stored(package, trial, "stderr")));
    told["results"].clone()
}

#[test]
fn unmodified_sdks_work_in_the_sandbox_and_refusals_are_their_own_errors() {
    let provider = Provider::new();
    let price = json!({"*": {"input": 1.0, "output": 2.0}});
    let keys = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AZURE_OPENAI_API_KEY", "OPENROUTER_API_KEY"];
    let origin = &provider.origin;
    let mut package = package(include_str!("sdks/agent.py")).policy(json!({
        "extends": ["provider/openai", "provider/anthropic", "provider/gemini", "provider/azure-openai", "provider/openrouter"],
        "sandbox": {"cpus": 2, "memory": "512MiB", "wall_time": "15m"},
        "gateways": {
            "openai": {"upstream": origin}, "anthropic": {"upstream": origin}, "gemini": {"upstream": origin},
            "azure-openai": {"upstream": origin, "models": ["my-deployment"], "prices": price},
            "openrouter": {"upstream": origin, "models": ["openai/gpt-5*"], "prices": price},
        },
    }));
    for key in keys {
        package = package.env(key, &format!("real-{key}-value"));
    }
    let ran = package.run();
    let (results, read) = (results(&package, "one/1", &ran), |name: &str| stored(&package, "one/1", name));
    let hello = json!(["hello", 14]);
    for (name, wanted) in [
        ("openai chat", hello.clone()),
        ("openai tools", json!("refund")),
        ("openai stream", json!(["hello", false])),
        ("openai stream with usage", json!([0, 14])),
        ("openai async stream", json!(["hello", "hello", "hello", "hello", "hello"])),
        ("openai response", hello.clone()),
        ("openai response stream", hello.clone()),
        ("openai models", json!(["gpt-5-mini"])),
        ("openai retry", json!("hello")),
        ("anthropic message", json!(["hello", 4])),
        ("anthropic stream", json!(["hello", 4])),
        ("anthropic async", json!("hello")),
        ("anthropic beta", json!("hello")),
        ("anthropic count", json!(9)),
        ("anthropic models", json!(["claude-opus-5"])),
        ("gemini content", hello.clone()),
        ("gemini stream", json!("hello")),
        ("gemini count", json!(3)),
        ("gemini async stream", json!("hello")),
        ("azure chat", json!("hello")),
        ("azure stream", json!("hello")),
        ("azure response", json!("hello")),
        ("openrouter chat", json!("hello")),
        ("openrouter stream", json!("hello")),
    ] {
        assert_eq!(results[name], wanted, "{name}: {results:#}");
    }
    for (name, error, status, words) in [
        ("openai cut", "APIConnectionError", Value::Null, "Connection error"),
        ("openai other model", "PermissionDeniedError", json!(403), "crashlab_model_not_allowed"),
        ("openai web search", "PermissionDeniedError", json!(403), "crashlab_grant_missing"),
        ("openai base without v1", "PermissionDeniedError", json!(403), "/v1 is missing"),
        ("openai bad token", "AuthenticationError", json!(401), "crashlab_"),
        ("anthropic error in a stream", "APIStatusError", json!(200), "overloaded_error"),
        ("anthropic web fetch", "PermissionDeniedError", json!(403), "crashlab_grant_missing"),
        ("gemini search", "ClientError", json!(403), "crashlab_grant_missing"),
        ("azure other deployment", "PermissionDeniedError", json!(403), "crashlab_model_not_allowed"),
        ("gemini file", "ClientError", json!(403), "crashlab_grant_missing"),
        ("openrouter web plugin", "PermissionDeniedError", json!(403), "crashlab_grant_missing"),
        ("openrouter online", "PermissionDeniedError", json!(403), "web_search"),
    ] {
        let result = &results[name];
        assert!(result.to_string().contains(words), "{name}: {result:#}");
        assert_eq!((&result["error"], &result["status"]), (&json!(error), &status), "{name}: {result:#}");
    }
    let asked = provider.asked.lock().unwrap();
    for one in asked.iter() {
        assert!(!one.line.contains("key=") && one.head.contains("real-"), "{}\n{}", one.line, one.head);
        assert!(one.head.contains("accept-encoding: identity") && !one.head.contains("x-stainless"), "{}", one.head);
    }
    let stored = asked.iter().filter(|one| one.line.contains("/responses")).map(|one| &one.body["store"]);
    assert!(stored.into_iter().all(|store| store == &json!(false)), "nothing is stored unasked");
    let all = read("stdout") + &read("stderr") + &read("gateway.jsonl") + &ran.json.to_string();
    assert!(!all.contains("real-"), "no key is anywhere");
    let usage = &ran.trial("one/1")["usage"];
    assert!(usage["input_tokens"].as_u64().unwrap() > 100 && usage["cost_usd"].as_f64().unwrap() > 0.0, "{usage}");
    assert_eq!(
        (&usage["refused"], &usage["unknown"]),
        (&json!(10), &json!(1)),
        "{usage}: the cut stream's is not known"
    );
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}
