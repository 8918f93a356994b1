//! Answers in the shapes that the providers document, passed on whole, in every split and cut at every byte: what the
//! target gets, what was used, and how it is told that something is missing.

use super::super::exchange::Asked;
use super::super::stream;
use super::*;
use crate::policy::GatewayRule;
use std::collections::VecDeque;

/// One recorded shape: dialect, path, whether it is a stream of events, its body, and what it comes to.
struct Shape {
    name: &'static str,
    dialect: &'static str,
    path: &'static str,
    kind: &'static str,
    body: String,
    served: Option<&'static str>,
    usage: Option<Usage>,
}

fn usage(input: u64, cached_input: u64, cache_write: u64, output: u64, reasoning: u64) -> Option<Usage> {
    Some(Usage { input, cached_input, cache_write, output, reasoning })
}

fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn named(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

fn openai() -> Vec<Shape> {
    let shape =
        |name, path, kind, body, served, usage| Shape { name, dialect: "openai", path, kind, body, served, usage };
    let chat = "/v1/chat/completions";
    let chunk = |choices: Value, usage: Value| json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-5-mini-2025-08-07", "choices": choices, "usage": usage});
    let delta = |text: &str| json!([{"index": 0, "delta": {"content": text}, "finish_reason": null}]);
    let counts = json!({"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 5, "audio_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 3}});
    let stream =
        events(&[chunk(delta("He said \"data: [DONE]\""), Value::Null), chunk(json!([]), counts)]) + "data: [DONE]\n\n";
    let silent = events(&[chunk(delta("a"), Value::Null)]) + "data: [DONE]\n\n";
    let response = |kind: &str, usage: Value| json!({"type": kind, "response": {"id": "resp_1", "model": "gpt-5-2025-08-07", "error": null, "usage": usage}});
    let response_counts = json!({"input_tokens": 36, "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 6},
        "output_tokens": 87, "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 123});
    vec![
        shape("a chat with reasoning and a cache", chat, JSON, json!({"id": "1", "model": "gpt-5", "choices": [{"message": {"content": "{\"usage\": 1}"}}],
            "usage": {"prompt_tokens": 4740, "completion_tokens": 255, "total_tokens": 4995, "prompt_tokens_details": {"cached_tokens": 4735},
            "completion_tokens_details": {"reasoning_tokens": 200}}}).to_string(), Some("gpt-5"), usage(4740, 4735, 0, 255, 200)),
        shape("a chat of a server without details", chat, JSON, json!({"model": "m", "choices": [],
            "usage": {"prompt_tokens": 3, "completion_tokens": 4}}).to_string(), Some("m"), usage(3, 0, 0, 4, 0)),
        shape("a chat without usage", chat, JSON, json!({"model": "m", "choices": []}).to_string(), Some("m"), None),
        shape("a stream with usage", chat, EVENTS, stream, Some("gpt-5-mini-2025-08-07"), usage(19, 5, 0, 10, 3)),
        shape("a stream without usage", chat, EVENTS, silent, Some("gpt-5-mini-2025-08-07"), None),
        shape("a response", "/v1/responses", JSON, json!({"id": "resp_1", "model": "gpt-5-2025-08-07", "error": null, "output": [],
            "usage": response_counts}).to_string(), Some("gpt-5-2025-08-07"), usage(36, 4, 6, 87, 64)),
        shape("a stream of a response", "/v1/responses", EVENTS, named(&[response("response.created", Value::Null),
            json!({"type": "response.output_text.delta", "delta": "x"}), response("response.completed", response_counts.clone())]),
            Some("gpt-5-2025-08-07"), usage(36, 4, 6, 87, 64)),
        shape("a stream of a response that was cut by its own bound", "/v1/responses", EVENTS,
            named(&[response("response.incomplete", response_counts)]), Some("gpt-5-2025-08-07"), usage(36, 4, 6, 87, 64)),
        shape("vectors", "/v1/embeddings", JSON, json!({"object": "list", "data": [{"embedding": [0.1, -0.2e-3]}], "model": "text-embedding-3-small",
            "usage": {"prompt_tokens": 8, "total_tokens": 8}}).to_string(), Some("text-embedding-3-small"), usage(8, 0, 0, 0, 0)),
    ]
}

fn anthropic() -> Vec<Shape> {
    let shape = |name, kind, body, usage| Shape {
        name,
        dialect: "anthropic",
        path: "/v1/messages",
        kind,
        body,
        served: Some("claude-sonnet-5"),
        usage,
    };
    let start = |usage: Value| json!({"type": "message_start", "message": {"id": "msg_1", "model": "claude-sonnet-5", "content": [], "usage": usage}});
    let text = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "\"usage\": {\"output_tokens\": 9}"}});
    let delta = |usage: Value| json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage});
    let stop = json!({"type": "message_stop"});
    vec![
        shape("a message", JSON, json!({"type": "message", "model": "claude-sonnet-5", "content": [], "usage": {"input_tokens": 10,
            "cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000, "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}}}).to_string(),
            usage(1110, 1000, 100, 7, 2)),
        shape("a stream whose counts are cumulative", EVENTS, named(&[
            start(json!({"input_tokens": 27, "cache_read_input_tokens": 8831, "output_tokens": 1})), json!({"type": "ping"}), text.clone(),
            delta(json!({"input_tokens": 27, "cache_read_input_tokens": 8831, "output_tokens": 47})), stop.clone()]),
            usage(8858, 8831, 0, 47, 0)),
        shape("a stream that counts the cache at the end only", EVENTS, named(&[start(json!({"input_tokens": 5, "output_tokens": 1})), text.clone(),
            delta(json!({"cache_read_input_tokens": 12, "cache_creation_input_tokens": 3, "output_tokens": 4})), stop.clone()]),
            usage(20, 12, 3, 4, 0)),
        shape("a stream with nulls in its last counts", EVENTS, named(&[start(json!({"input_tokens": 5, "cache_read_input_tokens": 2, "output_tokens": 1})),
            delta(json!({"input_tokens": null, "cache_read_input_tokens": null, "output_tokens": 4})), stop.clone()]), usage(7, 2, 0, 4, 0)),
        shape("a message without usage", JSON, json!({"type": "message", "model": "claude-sonnet-5", "content": []}).to_string(), None),
        shape("a message whose counts have parts that are no sums", JSON, json!({"type": "message", "model": "claude-sonnet-5", "content": [],
            "usage": {"input_tokens": 4, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 0, "output_tokens": 9, "service_tier": "standard",
            "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}, "server_tool_use": {"web_search_requests": 3}}}).to_string(),
            usage(34, 0, 30, 9, 0)),
        shape("a stream that breaks off its counts", EVENTS, named(&[start(json!({"input_tokens": 5})), text.clone(), stop.clone()]), None),
        shape("a stream with a compaction beside it", EVENTS, named(&[start(json!({"input_tokens": 5, "output_tokens": 1})),
            delta(json!({"output_tokens": 4, "iterations": [{"type": "compaction", "input_tokens": 100, "output_tokens": 10},
                {"type": "message", "input_tokens": 5, "output_tokens": 4}]})), stop]), usage(105, 0, 0, 14, 0)),
    ]
}

fn gemini() -> Vec<Shape> {
    let shape = |name, path, kind, body, usage| Shape {
        name,
        dialect: "gemini",
        path,
        kind,
        body,
        served: Some("gemini-2.5-flash"),
        usage,
    };
    let (whole, stream) = ("/v1beta/models/{model}:generateContent", "/v1beta/models/{model}:streamGenerateContent");
    let chunk = |reason: Value, usage: Value| {
        json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": reason}],
        "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"})
    };
    let first = chunk(Value::Null, json!({"promptTokenCount": 7, "candidatesTokenCount": 2, "totalTokenCount": 9}));
    let last = chunk(
        json!("STOP"),
        json!({"promptTokenCount": 7, "candidatesTokenCount": 8, "thoughtsTokenCount": 5, "cachedContentTokenCount": 4,
        "toolUsePromptTokenCount": 3, "totalTokenCount": 23}),
    );
    let sums = || usage(10, 4, 0, 13, 5);
    vec![
        shape("content", whole, JSON, last.to_string(), sums()),
        shape("a stream of events", stream, EVENTS, events(&[first.clone(), last.clone()]), sums()),
        shape("a stream that is one list", stream, JSON, format!("[{first}\n,\r\n{last}]"), sums()),
        shape("content without usage", whole, JSON, json!({"candidates": [{"finishReason": "STOP"}], "modelVersion": "gemini-2.5-flash"}).to_string(), None),
        shape("a stream whose counts grow with each event", stream, EVENTS, events(&[
            chunk(Value::Null, json!({"promptTokenCount": 7, "candidatesTokenCount": 2})), chunk(Value::Null, json!({"promptTokenCount": 7, "candidatesTokenCount": 5})),
            chunk(json!("MAX_TOKENS"), json!({"promptTokenCount": 7, "candidatesTokenCount": 6, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 7}]}))]),
            usage(7, 0, 0, 6, 0)),
        shape("a blocked prompt", whole, JSON, json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7, "totalTokenCount": 7},
            "modelVersion": "gemini-2.5-flash"}).to_string(), usage(7, 0, 0, 0, 0)),
    ]
}

fn others() -> Vec<Shape> {
    let chunk = json!({"model": "gpt-5-2025", "choices": [{"delta": {"content": "x"}}]});
    let filter = json!({"model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]});
    let counts = json!({"model": "gpt-5-2025", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "cost": 0.01,
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1}}});
    let done = "data: [DONE]\n\n";
    let json = |name, dialect, path, body: Value, usage| Shape {
        name,
        dialect,
        path,
        kind: JSON,
        body: body.to_string(),
        served: Some("gpt-5-2025"),
        usage,
    };
    let (azure, router) = ("/openai/deployments/{model}/chat/completions", "/api/v1/chat/completions");
    let parts = json!({"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 60, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 40, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 2}});
    let chat = |usage: &Value| json!({"model": "gpt-5-2025", "choices": [], "usage": usage});
    let response = json!({"model": "gpt-5-2025", "error": null, "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 8, "output_tokens_details": {"reasoning_tokens": 7}}});
    let with_cost = json!({"prompt_tokens": 194, "completion_tokens": 2, "cost": 0.95, "cost_details": {"upstream_inference_cost": 19},
        "prompt_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 100}, "completion_tokens_details": {"reasoning_tokens": 1}});
    vec![
        json(
            "Azure's chat with cached and reasoning tokens",
            "azure-openai",
            azure,
            chat(&parts),
            usage(100, 60, 0, 50, 40),
        ),
        json("Azure's chat without usage", "azure-openai", azure, chat(&Value::Null), None),
        json("Azure's response", "azure-openai", "/openai/v1/responses", response, usage(9, 4, 0, 8, 7)),
        json(
            "OpenRouter's chat with its own cost beside",
            "openrouter",
            router,
            chat(&with_cost),
            usage(194, 10, 100, 2, 1),
        ),
        json("OpenRouter's chat without usage", "openrouter", router, chat(&Value::Null), None),
        Shape {
            name: "Azure's stream begins with a filter's results",
            dialect: "azure-openai",
            path: "/openai/deployments/{model}/chat/completions",
            kind: EVENTS,
            body: events(&[filter, chunk.clone(), counts.clone()]) + done,
            served: Some("gpt-5-2025"),
            usage: usage(9, 3, 1, 2, 0),
        },
        Shape {
            name: "OpenRouter's stream has comments",
            dialect: "openrouter",
            path: "/api/v1/chat/completions",
            kind: EVENTS,
            body: format!(": OPENROUTER PROCESSING\n\n{}{done}", events(&[chunk, counts])),
            served: Some("gpt-5-2025"),
            usage: usage(9, 3, 1, 2, 0),
        },
    ]
}

fn shapes() -> Vec<Shape> {
    [openai(), anthropic(), gemini(), others()].into_iter().flatten().collect()
}

/// Pieces that were made up.
struct Made(VecDeque<Result<Vec<u8>, Failure>>, Vec<u8>);

impl Pieces for Made {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        match self.0.pop_front() {
            Some(piece) => {
                self.1 = piece?;
                Ok(Some(&self.1))
            }
            None => Ok(None),
        }
    }
}

fn rule(dialect: &str, path: &str, limits: Value) -> GatewayRule {
    let gateway = json!({"dialect": dialect, "upstream": "http://127.0.0.1:1", "routes": [format!("POST {path}")], "models": ["*"],
        "limits": limits});
    rules(&Setting { gateway, ..Setting::default() }).gateways["openai"].clone()
}

fn admitted(rule: &GatewayRule, asked: Asked) -> Admitted {
    let route = rule.routes[0].clone();
    Admitted {
        gateway: "g".into(),
        case: "c".into(),
        method: "POST".into(),
        path: route.path.replace("{model}", "m"),
        route,
        query: None,
        headers: Vec::new(),
        body: None,
        bytes: Vec::new(),
        asked,
        deadline: None,
        life: Life::default(),
    }
}

/// Passes pieces on; gives what came of it and the target's body, with `<cut>` where it has no end.
fn pass(
    rule: &GatewayRule,
    asked: Asked,
    status: u16,
    kind: &str,
    pieces: Vec<Result<Vec<u8>, Failure>>,
) -> (Passed, String) {
    let wire = Sink::default();
    let mut reply = Reply::new(wire.clone());
    let body = Box::new(Made(pieces.into(), Vec::new()));
    let answer = Answer { status, headers: vec![("content-type".to_owned(), kind.to_owned())], body };
    let passed = stream::pass(answer, &admitted(rule, asked), rule, &mut reply);
    (passed, status_and_body(&wire.text()).1)
}

fn rule_of(shape: &Shape) -> GatewayRule {
    rule(shape.dialect, shape.path, json!({}))
}

#[test]
fn what_was_used_is_read_from_every_shape_in_every_split() {
    for shape in shapes() {
        let (bytes, rule) = (shape.body.as_bytes(), rule_of(&shape));
        let check = |pieces: Vec<&[u8]>| {
            let (passed, body) =
                pass(&rule, Asked::default(), 200, shape.kind, pieces.iter().map(|piece| Ok(piece.to_vec())).collect());
            assert_eq!(body, shape.body, "{}", shape.name);
            assert_eq!((passed.end, passed.failure, passed.limit), (End::Complete, None, None), "{}", shape.name);
            assert_eq!((passed.usage, passed.served.as_deref()), (shape.usage, shape.served), "{}", shape.name);
            let reason = shape.usage.is_none().then(|| "the provider reported no usage".to_owned());
            assert_eq!(passed.unknown, reason, "{}", shape.name);
            assert_eq!(passed.response_bytes, bytes.len() as u64);
        };
        check(vec![bytes]);
        check(bytes.chunks(1).collect());
        for at in 1..bytes.len() {
            check(vec![&bytes[..at], &bytes[at..]]);
        }
    }
}

#[test]
fn an_answer_that_is_cut_at_any_byte_is_never_taken_for_a_whole_one() {
    for shape in shapes() {
        let rule = rule_of(&shape);
        let whole = |pieces| pass(&rule, Asked::default(), 200, shape.kind, pieces);
        for at in 0..shape.body.len() {
            let (before, name) = (shape.body.as_bytes()[..at].to_vec(), shape.name);
            let (passed, body) = whole(vec![Ok(before.clone()), Err(Failure::Cut)]);
            assert_eq!((passed.end, passed.failure), (End::Cut, Some(Failure::Cut)), "{name} at {at}");
            assert_eq!(body, format!("{}<cut>", String::from_utf8_lossy(&before)), "{name} at {at}");
            assert!(passed.usage.is_none_or(|used| Some(used) == shape.usage), "{name} at {at}: {passed:?}");
            assert_eq!(passed.unknown.is_some(), passed.usage.is_none(), "{name} at {at}");
            // The same, where the connection's end is all that tells the end.
            let (passed, body) = whole(vec![Ok(before)]);
            match passed.failure {
                None => {
                    assert_eq!((passed.usage, passed.end), (shape.usage, End::Complete), "{name} at {at}");
                    let rest = shape.body[at..].trim();
                    let is_extra = matches!(rest, "" | "data: [DONE]" | "[DONE]") || shape.dialect == "gemini";
                    assert!(is_extra, "{name} at {at}: {rest:?} is missing");
                }
                Some(Failure::Cut) => assert!(body.ends_with("<cut>") && passed.end == End::Cut, "{name} at {at}"),
                Some(Failure::Malformed) => assert_eq!(at, 0, "{name}: {body:?}"),
                Some(other) => panic!("{name} at {at}: {other:?}"),
            }
        }
    }
}

/// The statuses that interface.md counts as the provider's failure, and others.
const STATUSES: [u16; 19] =
    [200, 201, 202, 400, 401, 402, 403, 404, 407, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529];

#[test]
fn each_status_at_every_byte_and_in_every_split_is_told_as_what_it_is() {
    let one_each =
        [openai().swap_remove(1), openai().swap_remove(4), anthropic().swap_remove(0), gemini().swap_remove(3)];
    for shape in one_each.into_iter().chain(others().pop()) {
        let (bytes, rule, name) = (shape.body.as_bytes(), rule_of(&shape), shape.name);
        for status in STATUSES {
            let told =
                |pieces: Vec<Result<Vec<u8>, Failure>>| pass(&rule, Asked::default(), status, shape.kind, pieces);
            let is_failing = matches!(status, 401 | 402 | 403 | 407 | 408 | 429 | 500..);
            let failure = is_failing.then_some(Failure::Status);
            for at in 0..=bytes.len() {
                let before = || Ok(bytes[..at].to_vec());
                let (cut, body) = told(vec![before(), Err(Failure::Cut)]);
                assert_eq!(
                    (cut.status, cut.end, cut.failure),
                    (status, End::Cut, Some(Failure::Cut)),
                    "{name} {status} at {at}"
                );
                assert_eq!(body, format!("{}<cut>", String::from_utf8_lossy(&bytes[..at])), "{name} {status} at {at}");
                let (split, body) = told(vec![before(), Ok(bytes[at..].to_vec())]);
                assert_eq!(
                    (split.status, split.end, split.failure),
                    (status, End::Complete, failure),
                    "{name} {status} at {at}"
                );
                assert_eq!(body, shape.body, "{name} {status} at {at}");
                // What a provider refused, it did not charge.
                let wanted = if status < 400 { shape.usage } else { None };
                let is_gap = status < 400 && wanted.is_none();
                assert_eq!((split.usage, split.unknown.is_some()), (wanted, is_gap), "{name} {status} at {at}");
                if status >= 400 {
                    let (ended, body) = told(vec![before()]);
                    assert_eq!(
                        (ended.end, ended.failure, ended.usage),
                        (End::Complete, failure, None),
                        "{name} {status}"
                    );
                    assert_eq!(body.as_bytes(), &bytes[..at], "an error's text has no form of its own");
                }
            }
        }
    }
}

#[test]
fn an_error_within_a_stream_is_the_providers_failure_unless_the_request_caused_it() {
    let cases = [
        (
            "anthropic",
            "/v1/messages",
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "x"}}),
            true,
        ),
        (
            "anthropic",
            "/v1/messages",
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}),
            false,
        ),
        (
            "openai",
            "/v1/chat/completions",
            json!({"error": {"message": "x", "type": "server_error", "code": null}}),
            true,
        ),
        ("openai", "/v1/responses", json!({"type": "error", "code": "rate_limit_exceeded", "message": "x"}), true),
        (
            "openai",
            "/v1/responses",
            json!({"type": "response.failed", "response": {"error": {"code": "server_error"}}}),
            true,
        ),
        (
            "openai",
            "/v1/responses",
            json!({"type": "response.failed", "response": {"error": {"code": "invalid_prompt"}}}),
            false,
        ),
        (
            "gemini",
            "/v1beta/models/{model}:streamGenerateContent",
            json!({"error": {"code": 503, "status": "UNAVAILABLE"}}),
            true,
        ),
        (
            "openrouter",
            "/api/v1/chat/completions",
            json!({"error": {"code": 502, "message": "x"}, "choices": [{"finish_reason": "error"}]}),
            true,
        ),
    ];
    for (dialect, path, event, is_failure) in cases {
        let rule = rule(dialect, path, json!({}));
        let (passed, body) =
            pass(&rule, Asked::default(), 200, EVENTS, vec![Ok(events(std::slice::from_ref(&event)).into_bytes())]);
        assert_eq!(passed.failure, is_failure.then_some(Failure::Status), "{event}");
        assert_eq!(passed.end, End::Complete, "the provider ended it: {body}");
    }
}

#[test]
fn a_status_is_passed_on_and_judged() {
    let rule = rule("openai", "/v1/chat/completions", json!({}));
    for (status, failure) in [
        (400, None),
        (401, Some(Failure::Status)),
        (402, Some(Failure::Status)),
        (403, Some(Failure::Status)),
        (404, None),
        (408, Some(Failure::Status)),
        (413, None),
        (422, None),
        (429, Some(Failure::Status)),
        (500, Some(Failure::Status)),
        (529, Some(Failure::Status)),
    ] {
        let (passed, body) =
            pass(&rule, Asked::default(), status, JSON, vec![Ok(br#"{"error": {"message": "x"}}"#.to_vec())]);
        assert_eq!((passed.status, passed.failure, passed.usage), (status, failure, None));
        assert_eq!((passed.unknown, passed.end), (None, End::Complete), "a refused call used nothing");
        assert_eq!(body, r#"{"error": {"message": "x"}}"#);
    }
}

#[test]
fn what_is_not_what_its_headers_say_is_malformed() {
    let rule = rule("openai", "/v1/chat/completions", json!({}));
    for (kind, body) in
        [(JSON, "<html>"), (JSON, ""), ("text/html", "<html>"), ("", "{}"), (EVENTS, "data: <x>\n\ndata: [DONE]\n\n")]
    {
        let (passed, _) = pass(&rule, Asked::default(), 200, kind, vec![Ok(body.as_bytes().to_vec())]);
        assert_eq!((passed.failure, passed.end), (Some(Failure::Malformed), End::Complete), "{kind} {body}");
        assert_eq!((passed.usage, passed.unknown.as_deref()), (None, Some("malformed")));
    }
}

#[test]
fn a_limit_cuts_the_answer_so_that_it_can_be_seen() {
    let rule = rule("openai", "/v1/chat/completions", json!({"response_size": "1KiB"}));
    let piece = || Ok(vec![b'x'; 700]);
    let (passed, body) = pass(&rule, Asked::default(), 200, JSON, vec![piece(), piece(), piece()]);
    assert_eq!((passed.end, passed.limit, passed.failure), (End::Cut, Some("response_size"), None));
    assert_eq!((passed.response_bytes, body.len()), (1024, 1024 + "<cut>".len()));
    assert_eq!(passed.unknown.as_deref(), Some("cut by response_size"));
    let exact = pass(&rule, Asked::default(), 500, JSON, vec![Ok(vec![b'x'; 1024])]).0;
    assert_eq!((exact.end, exact.limit), (End::Complete, None), "what just fits passes");
}

#[test]
fn usage_that_the_target_did_not_ask_for_is_read_and_not_shown() {
    let shape = openai().swap_remove(3);
    let asked = || Asked { hide_usage: true, stream: true, ..Asked::default() };
    let rule = rule(shape.dialect, shape.path, json!({}));
    for size in [1, 7, 10_000] {
        let pieces = shape.body.as_bytes().chunks(size).map(|piece| Ok(piece.to_vec())).collect();
        let (passed, body) = pass(&rule, asked(), 200, shape.kind, pieces);
        assert_eq!((passed.usage, passed.end), (shape.usage, End::Complete));
        assert!(!body.contains("usage") && !body.contains("\"choices\":[]"), "{body}");
        assert!(body.ends_with("data: [DONE]\n\n") && body.contains("He said"), "{body}");
    }
}

#[test]
fn the_list_of_models_has_those_that_are_allowed() {
    let reserved = json!({"$serde_json::private::RawValue": "[[1]]"});
    for (dialect, path, list, wanted) in [
        (
            "openai",
            "/v1/models",
            json!({"object": "list", "data": [{"id": "gpt-5"}, {"id": "o1"}]}),
            json!({"object": "list", "data": [{"id": "gpt-5"}]}),
        ),
        (
            "anthropic",
            "/v1/models",
            json!({"data": [{"id": "gpt-5"}, {"id": "claude"}], "has_more": false}),
            json!({"data": [{"id": "gpt-5"}], "has_more": false}),
        ),
        (
            "gemini",
            "/v1beta/models",
            json!({"models": [{"name": "models/gpt-5"}, {"name": "models/x"}]}),
            json!({"models": [{"name": "models/gpt-5"}]}),
        ),
        ("gemini", "/v1beta/models", json!({}), json!({})),
        ("openai", "/v1/models", json!({"error": "x"}), json!({"error": "x"})),
        ("openai", "/v1/models", reserved.clone(), reserved),
    ] {
        let mut rule = rule(dialect, path, json!({}));
        rule.models = vec!["gpt-5*".to_owned()];
        let bytes = list.to_string().into_bytes();
        let (passed, body) =
            pass(&rule, Asked::default(), 200, JSON, bytes.chunks(5).map(|piece| Ok(piece.to_vec())).collect());
        assert_eq!(body, wanted.to_string(), "{dialect}");
        assert_eq!((passed.end, passed.usage, passed.unknown), (End::Complete, None, None), "nothing is charged");
    }
    let rule = rule("openai", "/v1/models", json!({"response_size": "1KiB"}));
    for pieces in [vec![Ok(b"<html>".to_vec())], vec![Ok(vec![b' '; 2000])], vec![Ok(b"{\"data\": {}}".to_vec())]] {
        let (passed, body) = pass(&rule, Asked::default(), 200, JSON, pieces);
        assert_eq!((passed.status, passed.failure), (502, Some(Failure::Malformed)), "{body}");
    }
}

#[test]
fn a_target_that_hangs_up_is_told_from_a_provider_that_does() {
    struct Gone;
    impl super::super::reply::Connection for Gone {
        fn reset(&self) {}
    }

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let shape = anthropic().swap_remove(1);
    let rule = rule(shape.dialect, shape.path, json!({}));
    let answer = Answer {
        status: 200,
        headers: Vec::new(),
        body: Box::new(Made(VecDeque::from([Ok(b"data: {}\n\n".to_vec())]), Vec::new())),
    };
    let passed = stream::pass(answer, &admitted(&rule, Asked::default()), &rule, &mut Reply::new(Gone));
    assert_eq!((passed.end, passed.failure), (End::ClientClosed, None));
    assert_eq!(passed.unknown.as_deref(), Some("the target hung up"));
}
