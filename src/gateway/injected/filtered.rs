//! How each provider says that a filter held an answer back: some with an error, others with an answer that says so. Such
//! an answer names what it used, since agents read that; what a drill made up is in no evidence.

use super::{Made, errors, is_events};
use crate::gateway::dialect::Endpoint;
use crate::gateway::exchange::Admitted;
use crate::policy::Dialect;
use serde_json::{Value, json};

/// When a made-up answer was made: 2026-01-02.
const CREATED: u64 = 1_767_323_045;
/// Tokens of a made-up input.
const INPUT: u64 = 12;

pub(super) fn answer(dialect: Dialect, endpoint: Endpoint, admitted: &Admitted) -> Made {
    let model = admitted.asked.model.as_deref().unwrap_or("model");
    match dialect {
        Dialect::OpenAi if endpoint == Endpoint::Responses => responses(model, admitted.asked.stream),
        Dialect::OpenAi => chat(model, admitted),
        Dialect::AzureOpenAi => azure(),
        Dialect::Anthropic => {
            Made::json(400, &errors::anthropic("invalid_request_error", "Output blocked by content filtering policy"))
        }
        Dialect::Gemini => gemini(model, endpoint, is_events(admitted)),
        Dialect::OpenRouter => Made::json(
            403,
            &json!({"error": {
                "code": 403, "message": "Your chosen model requires moderation and your input was flagged",
                "metadata": {"reasons": ["violence"], "flagged_input": "", "provider_name": "OpenAI", "model_slug": model},
            }}),
        ),
    }
}

fn azure() -> Made {
    let safe = json!({"filtered": false, "severity": "safe"});
    Made::json(
        400,
        &json!({"error": {
            "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry. To learn more about our content filtering policies please read our documentation: https://go.microsoft.com/fwlink/?linkid=2198766",
            "type": null, "param": "prompt", "code": "content_filter", "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {
                "hate": safe, "jailbreak": {"filtered": false, "detected": false}, "self_harm": safe, "sexual": safe,
                "violence": {"filtered": true, "severity": "medium"},
            }},
        }}),
    )
}

fn gemini(model: &str, endpoint: Endpoint, is_events: bool) -> Made {
    let usage = json!({"promptTokenCount": INPUT, "totalTokenCount": INPUT});
    let body =
        json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": usage, "modelVersion": model});
    match endpoint {
        Endpoint::GenerateStream if is_events => Made::events(&[body], false),
        Endpoint::GenerateStream => Made::json(200, &json!([body])),
        _ => Made::json(200, &body),
    }
}

fn responses(model: &str, stream: bool) -> Made {
    let usage = json!({"input_tokens": INPUT, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": INPUT});
    let response = |status: &str, details: Value, usage: Value| {
        json!({"id": "resp_drill", "object": "response", "created_at": CREATED, "status": status, "error": null,
            "incomplete_details": details, "instructions": null, "metadata": {}, "model": model, "output": [],
            "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage})
    };
    let last = response("incomplete", json!({"reason": "content_filter"}), usage);
    if !stream {
        return Made::json(200, &last);
    }
    let first = response("in_progress", Value::Null, Value::Null);
    let event = |kind: &str, number: u64, response: &Value| json!({"type": kind, "sequence_number": number, "response": response});
    let events = [
        event("response.created", 0, &first),
        event("response.in_progress", 1, &first),
        event("response.incomplete", 2, &last),
    ];
    Made::events(&events, false)
}

fn chat(model: &str, admitted: &Admitted) -> Made {
    let usage = json!({"prompt_tokens": INPUT, "completion_tokens": 0, "total_tokens": INPUT});
    let body = |kind: &str, choices: Value| json!({"id": "chatcmpl-drill", "object": kind, "created": CREATED, "model": model, "choices": choices});
    if !admitted.asked.stream {
        let message = json!({"role": "assistant", "content": "", "refusal": null});
        let choice = json!({"index": 0, "message": message, "finish_reason": "content_filter", "logprobs": null});
        let mut whole = body("chat.completion", json!([choice]));
        whole["usage"] = usage;
        return Made::json(200, &whole);
    }
    let chunk = |delta: Value, reason: Value| {
        body("chat.completion.chunk", json!([{"index": 0, "delta": delta, "finish_reason": reason, "logprobs": null}]))
    };
    let mut chunks = vec![
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({}), json!("content_filter")),
    ];
    if asks_for_usage(admitted) {
        let mut last = body("chat.completion.chunk", json!([]));
        last["usage"] = usage;
        chunks.push(last);
    }
    Made::events(&chunks, true)
}

/// Whether the target itself asked for the usage of a stream.
fn asks_for_usage(admitted: &Admitted) -> bool {
    let asked = admitted.body.as_ref().and_then(|body| body["stream_options"]["include_usage"].as_bool());
    asked == Some(true) && !admitted.asked.hide_usage
}
