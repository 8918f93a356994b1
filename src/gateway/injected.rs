//! What a target gets in place of a provider's answer when a drill strikes: the provider's own forms of errors, filters and
//! limits, or no answer that can be read. Owns these forms; decides nothing of what strikes when.

use super::Reply;
use super::dialect::{self, Endpoint};
use super::exchange::{Admitted, End, Passed};
use crate::policy::{Dialect, FaultKind};
use serde_json::{Value, json};
use std::io;

/// What an injected answer consists of.
struct Made {
    status: u16,
    kind: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Made {
    fn json(status: u16, body: &Value) -> Self {
        Self { status, kind: "application/json", headers: Vec::new(), body: body.to_string().into_bytes() }
    }

    fn plain(kind: &'static str, body: &[u8]) -> Self {
        Self { status: 200, kind, headers: Vec::new(), body: body.to_vec() }
    }

    fn send(&self, reply: &mut Reply) -> io::Result<()> {
        let mut headers = vec![("content-type".to_owned(), self.kind.to_owned())];
        headers.extend(self.headers.iter().cloned());
        reply.head(self.status, &headers, Some(self.body.len() as u64))?;
        reply.piece(&self.body)?;
        reply.end()
    }
}

/// Answers in the provider's place; none where the fault does not stand in for the answer.
pub(super) fn answer(kind: &FaultKind, dialect: Dialect, admitted: &Admitted, reply: &mut Reply) -> Option<Passed> {
    if *kind == FaultKind::Reset {
        // Nothing was sent: the relay closes the target's connection without an answer.
        reply.cut();
        return Some(Passed { end: End::Cut, ..Passed::none() });
    }
    let endpoint = dialect::forms(dialect).endpoint(&admitted.route.path);
    let made = match kind {
        FaultKind::Status { code, retry_after } => status(dialect, *code, *retry_after),
        FaultKind::Malformed if admitted.asked.stream => Made::plain("text/event-stream", b"data: {\"choices\": [\n\n"),
        FaultKind::Malformed => Made::plain("application/json", b"{\"id\": \"resp-1\", \"choices\": ["),
        FaultKind::Empty => Made::plain("application/json", b""),
        FaultKind::WrongType => Made::plain(
            "text/html",
            b"<html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>",
        ),
        FaultKind::ContentFilter => filtered(dialect, endpoint, admitted),
        FaultKind::ContextLength => too_long(dialect, endpoint),
        _ => return None,
    };
    let end = if made.send(reply).is_ok() { End::Complete } else { End::ClientClosed };
    Some(Passed { status: made.status, end, response_bytes: reply.sent(), ..Passed::none() })
}

fn status(dialect: Dialect, code: u16, retry_after: Option<u64>) -> Made {
    let mut made = Made::json(code, &error(dialect, code));
    made.headers.extend(retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string())));
    made
}

/// An error as each provider writes it.
fn error(dialect: Dialect, code: u16) -> Value {
    let message = words(code);
    match dialect {
        Dialect::OpenAi => {
            let (kind, detail) = match code {
                401 => ("invalid_request_error", json!("invalid_api_key")),
                404 => ("invalid_request_error", json!("model_not_found")),
                429 => ("requests", json!("rate_limit_exceeded")),
                500.. => ("server_error", Value::Null),
                _ => ("invalid_request_error", Value::Null),
            };
            json!({"error": {"message": message, "type": kind, "param": null, "code": detail}})
        }
        Dialect::AzureOpenAi => json!({"error": {"code": code.to_string(), "message": message}}),
        Dialect::Anthropic => {
            let kind = match code {
                401 => "authentication_error",
                402 => "billing_error",
                403 => "permission_error",
                404 => "not_found_error",
                413 => "request_too_large",
                429 => "rate_limit_error",
                504 => "timeout_error",
                529 => "overloaded_error",
                500.. => "api_error",
                _ => "invalid_request_error",
            };
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"})
        }
        Dialect::Gemini => {
            let status = match code {
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                429 => "RESOURCE_EXHAUSTED",
                500 => "INTERNAL",
                504 => "DEADLINE_EXCEEDED",
                501.. => "UNAVAILABLE",
                _ => "INVALID_ARGUMENT",
            };
            json!({"error": {"code": code, "message": message, "status": status}})
        }
        Dialect::OpenRouter => json!({"error": {"code": code, "message": message}}),
    }
}

fn words(code: u16) -> &'static str {
    match code {
        401 => "Incorrect API key provided.",
        403 => "You do not have access to this resource.",
        404 => "The requested resource does not exist.",
        408 => "The request timed out.",
        413 => "The request is too large.",
        429 => "Rate limit reached. Please try again later.",
        503 | 529 => "The model is overloaded. Please try again later.",
        500.. => "The server had an error while processing your request.",
        _ => "The request is invalid.",
    }
}

fn too_long(dialect: Dialect, endpoint: Endpoint) -> Made {
    let words = "This model's maximum context length is 128000 tokens. However, your messages resulted in 128512 tokens. \
                 Please reduce the length of the messages.";
    let body = match dialect {
        Dialect::OpenAi | Dialect::AzureOpenAi => {
            let (message, param) = match endpoint {
                Endpoint::Responses => (
                    "Your input exceeds the context window of this model. Please adjust your input and try again.",
                    "input",
                ),
                _ => (words, "messages"),
            };
            json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": "context_length_exceeded"}})
        }
        Dialect::Anthropic => {
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 204803 tokens > 200000 maximum"}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"})
        }
        Dialect::Gemini => {
            json!({"error": {"code": 400, "message": "The input token count (1048832) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}})
        }
        Dialect::OpenRouter => {
            json!({"error": {"code": 400, "message": words, "metadata": {"provider_name": "OpenAI"}}})
        }
    };
    Made::json(400, &body)
}

/// Some providers refuse with an error, others with an answer that says so.
fn filtered(dialect: Dialect, endpoint: Endpoint, admitted: &Admitted) -> Made {
    let model = admitted.asked.model.as_deref().unwrap_or("model");
    match dialect {
        Dialect::OpenAi => openai_filtered(endpoint, model, admitted.asked.stream),
        Dialect::AzureOpenAi => Made::json(
            400,
            &json!({"error": {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy. Please modify your prompt and retry.",
                "type": null, "param": "prompt", "code": "content_filter", "status": 400,
                "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"violence": {"filtered": true, "severity": "medium"}}},
            }}),
        ),
        Dialect::Anthropic => Made::json(
            400,
            &json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}, "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy"}),
        ),
        Dialect::Gemini => {
            let body = json!({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": model});
            match (endpoint, admitted.query.as_deref().is_some_and(|query| query.contains("alt=sse"))) {
                (Endpoint::GenerateStream, true) => events(&[body.to_string()], false),
                (Endpoint::GenerateStream, false) => Made::json(200, &json!([body])),
                _ => Made::json(200, &body),
            }
        }
        Dialect::OpenRouter => Made::json(
            403,
            &json!({"error": {
                "code": 403, "message": "Your chosen model requires moderation and your input was flagged",
                "metadata": {"reasons": ["violence"], "flagged_input": "", "provider_name": "OpenAI", "model_slug": model},
            }}),
        ),
    }
}

fn openai_filtered(endpoint: Endpoint, model: &str, stream: bool) -> Made {
    if endpoint == Endpoint::Responses {
        let body = json!({"id": "resp_drill", "object": "response", "created_at": 1_767_323_045, "status": "incomplete",
            "error": null, "incomplete_details": {"reason": "content_filter"}, "model": model, "output": [],
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "usage": null});
        let event = json!({"type": "response.incomplete", "sequence_number": 0, "response": body});
        return if stream { events(&[event.to_string()], false) } else { Made::json(200, &body) };
    }
    let part = json!({"role": "assistant", "content": ""});
    let mut choice = json!({"index": 0, "finish_reason": "content_filter", "logprobs": null});
    choice[if stream { "delta" } else { "message" }] = part;
    let object = if stream { "chat.completion.chunk" } else { "chat.completion" };
    let body = json!({"id": "chatcmpl-drill", "object": object, "created": 1_767_323_045, "model": model, "choices": [choice]});
    if stream { events(&[body.to_string()], true) } else { Made::json(200, &body) }
}

fn events(data: &[String], is_done: bool) -> Made {
    let mut body: String = data.iter().map(|data| format!("data: {data}\n\n")).collect();
    if is_done {
        body.push_str("data: [DONE]\n\n");
    }
    Made::plain("text/event-stream", body.as_bytes())
}
