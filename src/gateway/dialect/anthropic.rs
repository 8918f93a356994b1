//! Anthropic's API: messages, token counts, models. Counts in a stream are cumulative: the last one given stands.
//!
//! Client-side tools (bash, text editor, memory) run in the target, which is where they belong. Header `anthropic-beta` goes
//! on: it only lets fields be used, and each field is judged.

use super::super::exchange::{Asked, Denied};
use super::super::grants::Ways;
use super::super::scan::Path;
use super::super::usage::{Counts, Tally, count, fault};
use super::{Endpoint, Forms, bound, each, is_said, model, shown, stream, type_of, unknown_fields};
use crate::policy::Grant;
use serde_json::{Map, Value, json};

/// Anthropic.
pub(super) struct Anthropic;

/// Fields that reach nowhere, or that are looked at below.
const KNOWN: &[&str] = &[
    "cache_control",
    "compaction",
    "container",
    "context_management",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "thread",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

impl Forms for Anthropic {
    fn endpoint(&self, path: &str) -> Endpoint {
        const ENDS: [(&str, Endpoint); 4] = [
            ("/messages", Endpoint::Messages),
            ("/messages/count_tokens", Endpoint::Count),
            ("/models", Endpoint::Models),
            ("/models/{model}", Endpoint::Model),
        ];
        ENDS.iter().find(|(end, _)| path.ends_with(end)).map_or(Endpoint::Other, |(_, endpoint)| *endpoint)
    }

    fn asked(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>) -> Result<Asked, Denied> {
        let model = match named.map_or_else(|| model(body), |named| Ok(named.to_owned())) {
            Err(_) if endpoint == Endpoint::Other => None,
            model => Some(model?),
        };
        let max_output = if endpoint == Endpoint::Count { Some(0) } else { bound(body, &["max_tokens"], "") };
        let others = others(body)?;
        let tries = others.len() as u64 + 1;
        let max_output = max_output.map(|most| most.saturating_mul(tries));
        Ok(Asked { model, others, stream: stream(body)?, max_output, hide_usage: false })
    }

    fn reach(&self, _: Endpoint, _: Option<&str>, body: &mut Map<String, Value>, ways: &mut Ways<'_>) {
        unknown_fields(body, &[KNOWN], "the field ", ways);
        if is_said(body.get("mcp_servers")) {
            ways.need(Grant::RemoteMcp, "\"mcp_servers\"");
        }
        if let Some(container) = body.get("container").filter(|container| !container.is_null()) {
            ways.need(Grant::CodeExecution, "\"container\"");
            if container.is_string() || is_said(container.get("id")) || is_said(container.get("skills")) {
                ways.need(Grant::Storage, "a container or skills by id");
            }
        }
        if is_said(body.get("thread")) {
            ways.need_or(Grant::Storage, "\"thread\"", "send all messages");
        }
        if is_said(body.get("diagnostics").and_then(|diagnostics| diagnostics.get("previous_message_id"))) {
            ways.need(Grant::Storage, "\"previous_message_id\"");
        }
        if body.get("fallbacks").is_some_and(Value::is_string) {
            ways.unknown("\"fallbacks\" that names no model");
        }
        each(body.get("tools")).for_each(|tool| self::tool(tool, ways));
        blocks(body.get("system"), ways);
        each(body.get("messages")).for_each(|message| blocks(message.get("content"), ways));
    }

    fn error(&self, denied: &Denied) -> Value {
        let kind = match denied.status {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            500.. => "api_error",
            _ => "invalid_request_error",
        };
        json!({"type": "error", "error": {"type": kind, "message": denied.message, "code": denied.code}})
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &["accept", "anthropic-version", "anthropic-beta"]
    }

    fn watched(&self) -> &'static [Path] {
        &[&["type"], &["model"], &["usage"], &["error"], &["message", "model"], &["message", "usage"]]
    }

    fn read(&self, _: Endpoint, seen: &Value, tally: &mut Tally) {
        let message = &seen["message"];
        for model in [&seen["model"], &message["model"]] {
            tally.serve(model);
        }
        for usage in [&message["usage"], &seen["usage"]] {
            counts(usage, &mut tally.counts);
        }
        match seen["type"].as_str() {
            Some("message_stop") => tally.is_complete = true,
            Some("error") => tally.fail(fault(&seen["error"])),
            _ => {}
        }
    }
}

fn counts(usage: &Value, counts: &mut Counts) {
    if !usage.is_object() {
        return;
    }
    counts.is_fresh = true;
    Counts::set(&mut counts.input, &usage["input_tokens"]);
    Counts::set(&mut counts.cached, &usage["cache_read_input_tokens"]);
    Counts::set(&mut counts.written, &usage["cache_creation_input_tokens"]);
    Counts::set(&mut counts.output, &usage["output_tokens"]);
    Counts::set(&mut counts.reasoning, &usage["output_tokens_details"]["thinking_tokens"]);
    if let Some(iterations) = usage["iterations"].as_array() {
        counts.beside = beside(iterations);
    }
}

/// Sub-requests whose tokens the sums above leave out.
fn beside(iterations: &[Value]) -> (u64, u64) {
    let left_out = iterations.iter().filter(|one| matches!(type_of(one), "compaction" | "advisor_message"));
    left_out.fold((0, 0), |(input, output), one| {
        let of = |key: &str| count(&one[key]).unwrap_or(0);
        let inputs = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"];
        let input = inputs.iter().fold(input, |sum: u64, key| sum.saturating_add(of(key)));
        (input, output.saturating_add(of("output_tokens")))
    })
}

/// Models that may answer in the first one's place, or advise it: each must be allowed.
fn others(body: &Map<String, Value>) -> Result<Vec<String>, Denied> {
    let named = |entry: &Value| {
        let denied = || Denied::new("model", "crashlab_body_not_allowed", "a further model must be a text");
        entry["model"].as_str().or_else(|| entry.as_str()).map(str::to_owned).ok_or_else(denied)
    };
    // A text alone names no model but a choice of the provider's: that is what `reach` refuses.
    let fallbacks = each(body.get("fallbacks").filter(|fallbacks| !fallbacks.is_string()));
    let advisors = each(body.get("tools")).filter(|tool| type_of(tool).starts_with("advisor"));
    fallbacks.chain(advisors).map(named).collect()
}

fn tool(tool: &Value, ways: &mut Ways<'_>) {
    let kind = type_of(tool);
    let what = format!("a tool of type {:?}", shown(kind));
    let is = |start: &str| kind.starts_with(start);
    match kind {
        "" if tool.get("type").is_none_or(Value::is_null) => {}
        "custom" | "tool_reference" => {}
        "tool_definition" => self::tool(&tool["definition"], ways),
        _ if is("bash_2") || is("text_editor_2") || is("memory_2") || is("tool_search_tool_") => {}
        _ if is("web_search_2") => ways.need(Grant::WebSearch, &what),
        _ if is("web_fetch_2") => ways.need(Grant::WebFetch, &what),
        _ if is("code_execution_2") => ways.need(Grant::CodeExecution, &what),
        _ if is("computer_") || is("browser_toolset_") => ways.need(Grant::ComputerUse, &what),
        _ if is("mcp_") => ways.need(Grant::RemoteMcp, &what),
        _ => ways.unknown(&what),
    }
}

/// A text, or a list of blocks.
fn blocks(content: Option<&Value>, ways: &mut Ways<'_>) {
    each(content).filter(|block| block.is_object()).for_each(|block| self::block(block, ways));
}

fn block(block: &Value, ways: &mut Ways<'_>) {
    let kind = type_of(block);
    let what = format!("a block of type {:?}", shown(kind));
    match kind {
        "text"
        | "thinking"
        | "redacted_thinking"
        | "tool_use"
        | "tool_reference"
        | "compaction"
        | "fallback"
        | "tool_removal"
        | "tool_search_tool_result" => {}
        "tool_result" | "search_result" => blocks(block.get("content"), ways),
        "image" | "document" => source(&block["source"], ways),
        "tool_addition" => tool(&block["tool"], ways),
        "server_tool_use" => used(&block["name"], ways),
        "container_upload" => {
            ways.need(Grant::CodeExecution, &what);
            ways.need(Grant::Storage, &what);
        }
        "browser_state" => ways.need(Grant::ComputerUse, &what),
        _ if kind.starts_with("web_search_") => ways.need(Grant::WebSearch, &what),
        _ if kind.starts_with("web_fetch_") => ways.need(Grant::WebFetch, &what),
        _ if kind.ends_with("code_execution_tool_result") => ways.need(Grant::CodeExecution, &what),
        _ if kind.starts_with("mcp_") => ways.need(Grant::RemoteMcp, &what),
        _ => ways.unknown(&what),
    }
}

/// A server's tool that an earlier answer used: only a request that may use it has one.
fn used(name: &Value, ways: &mut Ways<'_>) {
    let name = name.as_str().unwrap_or_default();
    let what = format!("a use of the server's tool {:?}", shown(name));
    match name {
        "web_search" => ways.need(Grant::WebSearch, &what),
        "web_fetch" => ways.need(Grant::WebFetch, &what),
        _ if name.ends_with("code_execution") => ways.need(Grant::CodeExecution, &what),
        _ if name.starts_with("tool_search_tool_") => {}
        _ => ways.unknown(&what),
    }
}

/// Where an image or a document comes from.
fn source(source: &Value, ways: &mut Ways<'_>) {
    match type_of(source) {
        "base64" | "text" => {}
        "content" => blocks(source.get("content"), ways),
        "url" => ways.need_or(Grant::RemoteMedia, "a source of type \"url\"", "send the content itself, as base64"),
        "file" => ways.need_or(Grant::Storage, "a source of type \"file\"", "send the content itself, as base64"),
        kind => ways.unknown(&format!("a source of type {:?}", shown(kind))),
    }
}
