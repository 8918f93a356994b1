//! Errors as each provider writes them: by status, and of a request that is too long for the model.

use super::{Made, REQUEST};
use crate::gateway::dialect::Endpoint;
use crate::policy::Dialect;
use serde_json::{Value, json};

pub(super) fn status(dialect: Dialect, code: u16, retry_after: Option<u64>) -> Made {
    let mut body = error(dialect, code);
    if let (Dialect::Gemini, Some(seconds)) = (dialect, retry_after) {
        // Gemini says it in the body; the header stands beside it for whoever reads only that.
        let kind = "type.googleapis.com/google.rpc.RetryInfo";
        body["error"]["details"] = json!([{"@type": kind, "retryDelay": format!("{seconds}s")}]);
    }
    let mut made = Made::json(code, &body);
    made.headers.extend(retry_after.map(|seconds| ("retry-after".to_owned(), seconds.to_string())));
    made
}

fn error(dialect: Dialect, code: u16) -> Value {
    let message = words(code);
    match dialect {
        Dialect::OpenAi => openai(code, message),
        // What its own front door says; what the model's servers say has OpenAI's form.
        Dialect::AzureOpenAi => match code {
            400 | 422 => openai(code, message),
            404 => json!({"error": {"code": "DeploymentNotFound", "message": message}}),
            500.. => json!({"error": {"code": "InternalServerError", "message": message}}),
            _ => json!({"error": {"code": code.to_string(), "message": message}}),
        },
        Dialect::Anthropic => anthropic(anthropic_type(code), message),
        Dialect::Gemini => json!({"error": {"code": code, "message": message, "status": gemini_status(code)}}),
        Dialect::OpenRouter => json!({"error": {"code": code, "message": message}}),
    }
}

fn openai(code: u16, message: &str) -> Value {
    let (kind, detail) = match code {
        401 => ("invalid_request_error", json!("invalid_api_key")),
        404 => ("invalid_request_error", json!("model_not_found")),
        429 => ("requests", json!("rate_limit_exceeded")),
        500.. => ("server_error", Value::Null),
        _ => ("invalid_request_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": detail}})
}

pub(super) fn anthropic(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": REQUEST})
}

fn anthropic_type(code: u16) -> &'static str {
    match code {
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
    }
}

fn gemini_status(code: u16) -> &'static str {
    match code {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        504 => "DEADLINE_EXCEEDED",
        501.. => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

fn words(code: u16) -> &'static str {
    match code {
        401 => "Incorrect API key provided.",
        402 => "Insufficient credits.",
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

pub(super) fn too_long(dialect: Dialect, endpoint: Endpoint) -> Made {
    let body = match dialect {
        Dialect::OpenAi | Dialect::AzureOpenAi => {
            let (message, param) = match endpoint {
                Endpoint::Responses => (
                    "Your input exceeds the context window of this model. Please adjust your input and try again.",
                    "input",
                ),
                _ => (
                    "This model's maximum context length is 128000 tokens. However, your messages resulted in 128512 \
                     tokens. Please reduce the length of the messages.",
                    "messages",
                ),
            };
            json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": "context_length_exceeded"}})
        }
        Dialect::Anthropic => anthropic("invalid_request_error", "prompt is too long: 204803 tokens > 200000 maximum"),
        Dialect::Gemini => {
            json!({"error": {"code": 400, "message": "The input token count (1048832) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}})
        }
        Dialect::OpenRouter => {
            let message = "This endpoint's maximum context length is 262000 tokens. However, you requested about 263390 \
                           tokens (262658 of text input, 732 in the output). Please reduce the length of either one, or \
                           use the context-compression plugin to compress your prompt automatically.";
            json!({"error": {"message": message, "code": 400, "metadata": {"provider_name": null}}})
        }
    };
    Made::json(400, &body)
}
