//! Faults of a drill as each provider's own SDK meets them, in the sandbox: beside each injected answer stands what the
//! provider says in real life (as people report it and its documentation has it), and both come to the same exception, with
//! the same status, code and form of body.

use crate::sdks;
use crate::support::{Package, objects_of};
use serde_json::{Value, json};

/// A call under a fault: what the provider answers in real life (null where that cannot be scripted), and what the SDK
/// makes of it: the exception's class, or the value (null: whatever it makes of the real one).
struct Step {
    gateway: &'static str,
    call: &'static str,
    fault: Value,
    real: Value,
    expected: Value,
}

fn step(gateway: &'static str, call: &'static str, fault: Value, real: Value, expected: impl Into<Value>) -> Step {
    Step { gateway, call, fault, real, expected: expected.into() }
}

fn status(code: u16) -> Value {
    json!({"kind": "status", "code": code})
}

fn kind(kind: &str) -> Value {
    json!({"kind": kind})
}

fn real(status: u16, body: Value, request_id: Option<&str>) -> Value {
    let mut line = json!({"status": status, "body": body});
    if let Some(name) = request_id {
        line["headers"] = json!({name: "req_1"});
    }
    line
}

fn openai_error(kind: &str, param: Value, code: Value) -> Value {
    json!({"error": {"message": "m", "type": kind, "param": param, "code": code}})
}

fn openai() -> Vec<Step> {
    let id = Some("x-request-id");
    let error = |code: u16, body: Value| real(code, body, id);
    let limited = openai_error("requests", Value::Null, json!("rate_limit_exceeded"));
    let broken = openai_error("server_error", Value::Null, Value::Null);
    let key = openai_error("invalid_request_error", Value::Null, json!("invalid_api_key"));
    let too_long = |param: &str| openai_error("invalid_request_error", json!(param), json!("context_length_exceeded"));
    let usage = json!({"prompt_tokens": 12, "completion_tokens": 0, "total_tokens": 12});
    let choice =
        json!({"index": 0, "finish_reason": "content_filter", "message": {"role": "assistant", "content": ""}});
    let filtered = json!({"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5-mini", "choices": [choice], "usage": usage});
    let chunk = |delta: Value, reason: Value| {
        json!({"data": {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-mini",
            "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}})
    };
    let chunks = json!({"events": [chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({}), json!("content_filter")), {"data": "[DONE]"}]});
    let response = |status: &str, reason: Value| {
        json!({"id": "r", "object": "response", "created_at": 1, "status": status, "incomplete_details": reason,
            "error": null, "model": "gpt-5-mini", "output": [], "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
            "usage": {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 0,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12}})
    };
    let last = response("incomplete", json!({"reason": "content_filter"}));
    let event = |kind: &str, response: Value| json!({"event": kind, "data": {"type": kind, "sequence_number": 0, "response": response}});
    let events = json!({"events": [event("response.created", response("in_progress", Value::Null)),
        event("response.incomplete", last.clone())]});
    let (chat, stream) = ("chat", "chat stream");
    vec![
        step("openai", chat, status(429), error(429, limited.clone()), "RateLimitError"),
        step("openai", stream, status(429), error(429, limited), "RateLimitError"),
        step("openai", chat, status(500), error(500, broken.clone()), "InternalServerError"),
        step("openai", chat, status(503), error(503, broken), "InternalServerError"),
        step("openai", chat, status(401), error(401, key), "AuthenticationError"),
        step("openai", chat, kind("context_length"), error(400, too_long("messages")), "BadRequestError"),
        step("openai", "response", kind("context_length"), error(400, too_long("input")), "BadRequestError"),
        step("openai", chat, kind("content_filter"), real(200, filtered, id), json!(["content_filter", "", 12])),
        step("openai", stream, kind("content_filter"), chunks, json!(["content_filter"])),
        step(
            "openai",
            "response",
            kind("content_filter"),
            real(200, last, id),
            json!(["incomplete", "content_filter", "", 12]),
        ),
        step("openai", "response stream", kind("content_filter"), events, Value::Null),
        step("openai", chat, kind("reset"), Value::Null, "APIConnectionError"),
        step("openai", stream, kind("reset"), Value::Null, "APIConnectionError"),
        step("openai", chat, kind("malformed"), Value::Null, "JSONDecodeError"),
        step("openai", stream, kind("malformed"), Value::Null, "JSONDecodeError"),
        step("openai", "response stream", kind("malformed"), Value::Null, "JSONDecodeError"),
        step("openai", chat, kind("empty"), Value::Null, "JSONDecodeError"),
        step("openai", stream, kind("empty"), Value::Null, json!([])),
        step("openai", chat, kind("wrong_type"), Value::Null, "text"),
    ]
}

fn azure() -> Vec<Step> {
    let id = Some("x-request-id");
    let error = |code: &str| json!({"error": {"code": code, "message": "m"}});
    let safe = json!({"filtered": false, "severity": "safe"});
    let results = json!({"hate": safe, "jailbreak": {"filtered": false, "detected": false}, "self_harm": safe, "sexual": safe,
        "violence": {"filtered": true, "severity": "medium"}});
    let filtered = json!({"error": {"message": "m", "type": null, "param": "prompt", "code": "content_filter", "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": results}}});
    let too_long = openai_error("invalid_request_error", json!("messages"), json!("context_length_exceeded"));
    let gateway = "azure-openai";
    vec![
        step(gateway, "chat", status(429), real(429, error("429"), id), "RateLimitError"),
        step(gateway, "chat", status(404), real(404, error("DeploymentNotFound"), id), "NotFoundError"),
        step(gateway, "chat", status(500), real(500, error("InternalServerError"), id), "InternalServerError"),
        step(gateway, "chat", kind("content_filter"), real(400, filtered.clone(), id), "BadRequestError"),
        step(gateway, "chat stream", kind("content_filter"), real(400, filtered, id), "BadRequestError"),
        step(gateway, "chat", kind("context_length"), real(400, too_long, id), "BadRequestError"),
        step(gateway, "chat", kind("reset"), Value::Null, "APIConnectionError"),
    ]
}

fn openrouter() -> Vec<Step> {
    let gateway = "openrouter";
    let error = |code: u16| json!({"error": {"message": "m", "code": code}});
    let flagged = json!({"error": {"code": 403, "message": "m", "metadata": {"reasons": ["violence"], "flagged_input": "",
        "provider_name": "OpenAI", "model_slug": "openai/gpt-5"}}});
    let too_long = json!({"error": {"message": "m", "code": 400, "metadata": {"provider_name": null}}});
    vec![
        step(gateway, "chat", status(429), real(429, error(429), None), "RateLimitError"),
        step(gateway, "chat", status(402), real(402, error(402), None), "APIStatusError"),
        step(gateway, "chat", status(502), real(502, error(502), None), "InternalServerError"),
        step(gateway, "chat", kind("content_filter"), real(403, flagged, None), "PermissionDeniedError"),
        step(gateway, "chat", kind("context_length"), real(400, too_long, None), "BadRequestError"),
        step(gateway, "chat", kind("reset"), Value::Null, "APIConnectionError"),
    ]
}

fn anthropic() -> Vec<Step> {
    let id = Some("request-id");
    let gateway = "anthropic";
    let error = |kind: &str| json!({"type": "error", "error": {"type": kind, "message": "m"}, "request_id": "req_1"});
    let bad = || error("invalid_request_error");
    let (whole, stream) = ("message", "message stream");
    vec![
        step(gateway, whole, status(429), real(429, error("rate_limit_error"), id), "RateLimitError"),
        step(gateway, stream, status(429), real(429, error("rate_limit_error"), id), "RateLimitError"),
        step(gateway, whole, status(529), real(529, error("overloaded_error"), id), "OverloadedError"),
        step(gateway, whole, status(500), real(500, error("api_error"), id), "InternalServerError"),
        step(gateway, whole, status(401), real(401, error("authentication_error"), id), "AuthenticationError"),
        step(gateway, whole, kind("content_filter"), real(400, bad(), id), "BadRequestError"),
        step(gateway, stream, kind("content_filter"), real(400, bad(), id), "BadRequestError"),
        step(gateway, whole, kind("context_length"), real(400, bad(), id), "BadRequestError"),
        step(gateway, whole, kind("reset"), Value::Null, "APIConnectionError"),
        step(gateway, whole, kind("malformed"), Value::Null, "JSONDecodeError"),
        step(gateway, stream, kind("malformed"), Value::Null, "JSONDecodeError"),
        step(gateway, whole, kind("empty"), Value::Null, "JSONDecodeError"),
        step(gateway, whole, kind("wrong_type"), Value::Null, "text"),
    ]
}

fn gemini() -> Vec<Step> {
    let gateway = "gemini";
    let error = |code: u16, status: &str| json!({"error": {"code": code, "message": "m", "status": status}});
    let mut limited = error(429, "RESOURCE_EXHAUSTED");
    limited["error"]["details"] = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]);
    let blocked = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "gemini-2.5-flash",
        "usageMetadata": {"promptTokenCount": 12, "totalTokenCount": 12}});
    let later = json!({"kind": "status", "code": 429, "retry_after": 7});
    let value = json!([null, "PROHIBITED_CONTENT", 12]);
    let (whole, stream) = ("content", "content stream");
    vec![
        step(gateway, whole, later, real(429, limited, None), "ClientError"),
        step(gateway, whole, status(503), real(503, error(503, "UNAVAILABLE"), None), "ServerError"),
        step(gateway, stream, status(503), real(503, error(503, "UNAVAILABLE"), None), "ServerError"),
        step(gateway, whole, status(500), real(500, error(500, "INTERNAL"), None), "ServerError"),
        step(gateway, whole, kind("context_length"), real(400, error(400, "INVALID_ARGUMENT"), None), "ClientError"),
        step(gateway, whole, kind("content_filter"), real(200, blocked.clone(), None), value),
        step(
            gateway,
            stream,
            kind("content_filter"),
            json!({"events": [{"data": blocked}]}),
            json!([[null, "PROHIBITED_CONTENT"]]),
        ),
        step(gateway, whole, kind("reset"), Value::Null, "ReadError"),
        step(gateway, whole, kind("malformed"), Value::Null, "JSONDecodeError"),
        step(gateway, stream, kind("malformed"), Value::Null, "UnknownApiResponseError"),
        step(gateway, whole, kind("empty"), Value::Null, json!([null, null, null])),
        step(gateway, whole, kind("wrong_type"), Value::Null, "JSONDecodeError"),
    ]
}

/// A gateway behind a script of what is real, in the order in which it is asked for.
fn scripted(package: Package, steps: &[Step], gateway: &str) -> Package {
    let real = steps.iter().filter(|step| step.gateway == gateway && !step.real.is_null());
    let lines: String = real.map(|step| format!("{}\n", step.real)).collect();
    package.file(&format!("pkg/{gateway}.jsonl"), &lines)
}

/// The faults, each on the call that it is for; what is real beside it is a call too.
fn faults(steps: &[Step]) -> Vec<Value> {
    let mut calls: std::collections::BTreeMap<&str, u64> = std::collections::BTreeMap::new();
    let fault = |step: &Step| {
        let call = calls.entry(step.gateway).or_default();
        let mut fault = step.fault.clone();
        fault["on"] = json!(format!("gateway:{}", step.gateway));
        fault["nth"] = json!(*call + 1);
        *call += if step.real.is_null() { 1 } else { 2 };
        fault
    };
    steps.iter().map(fault).collect()
}

#[test]
fn each_sdk_raises_under_a_fault_what_it_raises_in_real_life() {
    let steps: Vec<Step> = [openai(), azure(), openrouter(), anthropic(), gemini()].into_iter().flatten().collect();
    let price = json!({"*": {"input": 1.0, "output": 2.0}});
    let script = |name: &str| json!({"upstream": {"script": format!("{name}.jsonl")}, "limits": {"requests": 200}});
    let mut gateways = json!({});
    for name in ["openai", "anthropic", "gemini", "azure-openai", "openrouter"] {
        gateways[name] = script(name);
    }
    for (name, model) in [("azure-openai", "my-deployment"), ("openrouter", "openai/gpt-5*")] {
        gateways[name]["models"] = json!([model]);
        gateways[name]["prices"] = price.clone();
    }
    let asked: Vec<Value> = steps
        .iter()
        .map(|step| json!({"gateway": step.gateway, "call": step.call, "fault": step.fault, "real": !step.real.is_null()}))
        .collect();
    let mut package = sdks::package(include_str!("sdks/faults.py"))
        .file("pkg/cases.jsonl", &json!({"id": "one", "input": {"steps": asked}}).to_string())
        .policy(json!({
            "extends": ["provider/openai", "provider/anthropic", "provider/gemini", "provider/azure-openai", "provider/openrouter"],
            "sandbox": {"cpus": 2, "memory": "512MiB", "wall_time": "15m"}, "gateways": gateways,
            "drills": {"all-kinds": {"faults": faults(&steps)}},
        }))
        .args(&["--drill", "all-kinds"]);
    for gateway in ["openai", "anthropic", "gemini", "azure-openai", "openrouter"] {
        package = scripted(package, &steps, gateway);
    }
    let ran = package.run();
    let trial = ran.trial("one@all-kinds/1");
    let results = sdks::results(&package, "one@all-kinds/1", &ran);
    let mut wrong = Vec::new();
    for (step, result) in steps.iter().zip(results.as_array().unwrap()) {
        let injected = &result["injected"];
        let fits = match (&step.expected, &injected["error"]) {
            (Value::Null, _) => true,
            (Value::String(class), Value::Array(kinds)) => kinds.contains(&json!(class)),
            (expected, _) => injected["value"] == *expected,
        };
        let with_id = |it: &Value| {
            let mut it = it.clone();
            it["request_id"] = json!(it["request_id"].is_string());
            it
        };
        if !fits || !(step.real.is_null() || with_id(injected) == with_id(&result["provider"])) {
            wrong.push(format!("wanted {}\n{result:#}", step.expected));
        }
    }
    assert!(wrong.is_empty(), "{} of {}\n{}", wrong.len(), steps.len(), wrong.join("\n"));
    assert_eq!(trial["faults"].as_array().unwrap().len(), steps.len(), "{trial}");
    assert_eq!((&trial["outcome"], ran.exit), (&json!("passed"), 0), "{trial}");
    assert_eq!(objects_of(ran.run()), [""; 0], "{}", ran.stderr);
}
