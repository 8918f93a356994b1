//! OpenAI's API, and that of the many servers that speak it: chat completions, completions, responses, embeddings, models.
//! What of it reaches out is in `openai_chat` and `openai_responses`.

use super::super::exchange::{Asked, Denied};
use super::super::grants::Ways;
use super::super::scan::Path;
use super::super::usage::{Counts, Fault, Tally, fault};
use super::{Endpoint, Forms, bound, is_said, model, openai_chat, openai_responses, shown, stream, unknown_fields};
use crate::policy::Grant;
use serde_json::{Map, Value, json};

/// OpenAI itself.
pub(super) struct OpenAi;

/// What all servers of this API share.
pub(super) const HEADERS: &[&str] = &["accept", "idempotency-key", "openai-beta"];

pub(super) const WATCHED: &[Path] = &[
    &["model"],
    &["usage"],
    &["error"],
    &["type"],
    &["code"],
    &["response", "model"],
    &["response", "usage"],
    &["response", "error"],
];

impl Forms for OpenAi {
    fn endpoint(&self, path: &str) -> Endpoint {
        endpoint(path)
    }

    fn asked(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>) -> Result<Asked, Denied> {
        let model = named.map_or_else(|| model(body), |named| Ok(named.to_owned()));
        let mut asked = asked(endpoint, model, body)?;
        ask_for_usage(endpoint, &mut asked, body)?;
        Ok(asked)
    }

    fn reach(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>, ways: &mut Ways<'_>) {
        let model = named.or_else(|| body.get("model").and_then(Value::as_str)).unwrap_or_default();
        if model.contains("-search-preview") || model.contains("-search-api") {
            ways.need(Grant::WebSearch, &format!("the model {:?}, which searches by itself,", shown(model)));
        }
        reach(endpoint, body, &[], ways);
    }

    fn error(&self, denied: &Denied) -> Value {
        error(denied)
    }

    fn request_headers(&self) -> &'static [&'static str] {
        HEADERS
    }

    fn watched(&self) -> &'static [Path] {
        WATCHED
    }

    fn read(&self, endpoint: Endpoint, seen: &Value, tally: &mut Tally) {
        read(endpoint, seen, tally);
    }

    fn is_last(&self, data: &[u8]) -> bool {
        data == b"[DONE]"
    }
}

/// By the end of the path, since each server has its own beginning.
pub(super) fn endpoint(path: &str) -> Endpoint {
    const ENDS: [(&str, Endpoint); 7] = [
        ("/chat/completions", Endpoint::Chat),
        ("/completions", Endpoint::Completions),
        ("/responses", Endpoint::Responses),
        ("/responses/input_tokens", Endpoint::Count),
        ("/embeddings", Endpoint::Embeddings),
        ("/models", Endpoint::Models),
        ("/models/{model}", Endpoint::Model),
    ];
    ENDS.iter().find(|(end, _)| path.ends_with(end)).map_or(Endpoint::Other, |(_, endpoint)| *endpoint)
}

/// Model, stream and the most output, as every server of this API reads them.
pub(super) fn asked(
    endpoint: Endpoint,
    model: Result<String, Denied>,
    body: &Map<String, Value>,
) -> Result<Asked, Denied> {
    let model = match model {
        Err(_) if endpoint == Endpoint::Other => None,
        model => Some(model?),
    };
    let max_output = match endpoint {
        Endpoint::Chat => bound(body, &["max_completion_tokens", "max_tokens"], "n"),
        Endpoint::Completions => bound(body, &["max_tokens"], "best_of").max(bound(body, &["max_tokens"], "n")),
        Endpoint::Responses => bound(body, &["max_output_tokens"], ""),
        Endpoint::Embeddings | Endpoint::Count => Some(0),
        _ => None,
    };
    Ok(Asked { model, stream: stream(body)?, max_output, ..Asked::default() })
}

/// Without `include_usage` a stream of completions has no usage: asks for it, and notes that the target did not.
pub(super) fn ask_for_usage(
    endpoint: Endpoint,
    asked: &mut Asked,
    body: &mut Map<String, Value>,
) -> Result<(), Denied> {
    if !asked.stream || !matches!(endpoint, Endpoint::Chat | Endpoint::Completions) {
        return Ok(());
    }
    let options = body.entry("stream_options").or_insert(Value::Null);
    if options.is_null() {
        *options = json!({});
    }
    let Value::Object(options) = options else {
        let message = "\"stream_options\" must be an object or null";
        return Err(Denied::new("body", "crashlab_body_not_allowed", message));
    };
    asked.hide_usage = options.get("include_usage") != Some(&Value::Bool(true));
    options.insert("include_usage".to_owned(), Value::Bool(true));
    Ok(())
}

/// Fields that reach out, by endpoint; `more` are further known ones.
pub(super) fn reach(endpoint: Endpoint, body: &mut Map<String, Value>, more: &[&str], ways: &mut Ways<'_>) {
    match endpoint {
        Endpoint::Chat | Endpoint::Completions => openai_chat::reach(body, more, ways),
        Endpoint::Responses | Endpoint::Count => openai_responses::reach(endpoint, body, more, ways),
        Endpoint::Embeddings => {
            const KNOWN: &[&str] =
                &["model", "input", "encoding_format", "dimensions", "user", "input_type", "truncate", "stream"];
            unknown_fields(body, &[KNOWN, more], "the field ", ways);
            openai_chat::vectors(body.get("input"), ways);
        }
        _ => {}
    }
    if body.get("store").is_some_and(|store| !matches!(store, Value::Null | Value::Bool(false))) {
        ways.need_or(Grant::Storage, "\"store\"", "leave it out");
    }
    if is_said(body.get("file_ids")) {
        ways.need(Grant::Storage, "\"file_ids\"");
    }
}

pub(super) fn error(denied: &Denied) -> Value {
    let kind = match denied.status {
        401 => "authentication_error",
        403 => "permission_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": denied.message, "type": kind, "param": null, "code": denied.code}})
}

pub(super) fn read(endpoint: Endpoint, seen: &Value, tally: &mut Tally) {
    let response = &seen["response"];
    for model in [&seen["model"], &response["model"]] {
        tally.serve(model);
    }
    for usage in [&seen["usage"], &response["usage"]] {
        counts(endpoint, usage, &mut tally.counts);
    }
    let kind = seen["type"].as_str().unwrap_or_default();
    match kind {
        "response.completed" | "response.incomplete" | "response.failed" => tally.is_complete = true,
        // Its fields stand in the event itself.
        "error" => tally.fail(if seen["error"].is_null() { fault(seen) } else { fault(&seen["error"]) }),
        _ => {}
    }
    if kind != "error" && !seen["error"].is_null() {
        tally.fail(fault(&seen["error"]));
    }
    if kind == "response.failed" {
        tally.fail(if response["error"].is_null() { Fault::Provider } else { fault(&response["error"]) });
    }
}

fn counts(endpoint: Endpoint, usage: &Value, counts: &mut Counts) {
    if !usage.is_object() {
        return;
    }
    let (input, output) = ("prompt_tokens", "completion_tokens");
    Counts::set(&mut counts.input, &usage[input]);
    Counts::set(&mut counts.input, &usage["input_tokens"]);
    Counts::set(&mut counts.output, &usage[output]);
    Counts::set(&mut counts.output, &usage["output_tokens"]);
    for details in [&usage["prompt_tokens_details"], &usage["input_tokens_details"]] {
        Counts::set(&mut counts.cached, &details["cached_tokens"]);
        Counts::set(&mut counts.written, &details["cache_write_tokens"]);
    }
    for details in [&usage["completion_tokens_details"], &usage["output_tokens_details"]] {
        Counts::set(&mut counts.reasoning, &details["reasoning_tokens"]);
    }
    // Vectors have no output, and most servers do not say so.
    if endpoint == Endpoint::Embeddings && counts.output.is_none() {
        counts.output = Some(0);
    }
}
