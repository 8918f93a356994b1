//! By which fields of the Responses API the provider reaches out: hosted tools, remote MCP, media by URL, stored files and
//! answers, background jobs. Owns the tables of fields, tools and items; what is in none is unknown.
//!
//! `store` is true where it is left out, and SDKs leave it out: without the grant it is set to false here, before the
//! request is judged and forwarded. What such a request could not do (an answer's reasoning by its id) is refused with
//! the way that works.

use super::super::grants::Ways;
use super::openai_chat::media;
use super::{Endpoint, each, is_said, shown, type_of, unknown_fields};
use crate::policy::Grant;
use serde_json::{Map, Value};

/// Fields that reach nowhere, or that are looked at below.
const KNOWN: &[&str] = &[
    "access_programs",
    "background",
    "background_options",
    "context_management",
    "conversation",
    "image",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "personality",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
    "verbosity",
];

pub(super) fn reach(endpoint: Endpoint, body: &mut Map<String, Value>, more: &[&str], ways: &mut Ways<'_>) {
    unknown_fields(body, &[KNOWN, more], "the field ", ways);
    stored(body, ways);
    for tool in each(body.get("tools")) {
        self::tool(tool, ways);
    }
    choice(body.get("tool_choice"), ways);
    for list in ["input", "instructions"] {
        for item in each(body.get(list)).filter(|item| item.is_object()) {
            self::item(item, ways);
        }
    }
    if endpoint == Endpoint::Responses && body.get("store").is_none_or(Value::is_null) && !ways.has(Grant::Storage) {
        body.insert("store".to_owned(), Value::Bool(false));
    }
}

fn stored(body: &Map<String, Value>, ways: &mut Ways<'_>) {
    for key in ["previous_response_id", "conversation"] {
        if is_said(body.get(key)) {
            ways.need_or(Grant::Storage, &format!("{key:?}"), "send the earlier items in \"input\"");
        }
    }
    if body.get("background").is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false))) {
        ways.need(Grant::Storage, "\"background\"");
    }
    if is_said(body.get("background_options")) {
        ways.need(Grant::Storage, "\"background_options\"");
    }
    if is_said(body.get("prompt_cache_options").and_then(|options| options.get("comparison_response_id"))) {
        ways.need(Grant::Storage, "\"comparison_response_id\"");
    }
    // A stored template may hold any tool and any file.
    if is_said(body.get("prompt")) {
        ways.unknown("what a stored \"prompt\" holds");
    }
}

/// A tool of the Responses API or of a chat completion.
pub(super) fn tool(tool: &Value, ways: &mut Ways<'_>) {
    let kind = type_of(tool);
    let what = format!("a tool of type {:?}", shown(kind));
    match kind {
        // These run in the target, which is where they belong.
        "function" | "custom" | "local_shell" | "apply_patch" | "tool_search" => {}
        "shell" => shell(&tool["environment"], &what, ways),
        "namespace" | "tool_search_output" | "additional_tools" => {
            each(tool.get("tools")).for_each(|tool| self::tool(tool, ways));
        }
        "file_search" => ways.need(Grant::Storage, &what),
        "mcp" => ways.need(Grant::RemoteMcp, &what),
        "code_interpreter" => container(&tool["container"], &what, ways),
        "programmatic_tool_calling" => ways.need(Grant::CodeExecution, &what),
        // OpenRouter's own, the clock among them.
        "openrouter:datetime" => {}
        "openrouter:web_fetch" => ways.need(Grant::WebFetch, &what),
        "openrouter:bash" => ways.need(Grant::CodeExecution, &what),
        "openrouter:files" => ways.need(Grant::Storage, &what),
        _ if kind.starts_with("web_search") || kind == "openrouter:web_search" => ways.need(Grant::WebSearch, &what),
        _ if kind.starts_with("computer") => ways.need(Grant::ComputerUse, &what),
        _ => ways.unknown(&what),
    }
}

/// A hosted tool that is chosen must be granted too, wherever it comes from.
pub(super) fn choice(choice: Option<&Value>, ways: &mut Ways<'_>) {
    let Some(choice @ Value::Object(_)) = choice else { return };
    match type_of(choice) {
        "allowed_tools" => {
            let allowed = [choice.get("tools"), choice["allowed_tools"].get("tools")];
            allowed.into_iter().flat_map(each).for_each(|tool| named_tool(tool, ways));
        }
        _ => named_tool(choice, ways),
    }
}

/// A tool by its type alone: where it would run is said where it is defined.
fn named_tool(named: &Value, ways: &mut Ways<'_>) {
    if !matches!(type_of(named), "shell" | "code_interpreter" | "auto" | "none" | "required") {
        tool(named, ways);
    }
}

/// A shell runs in the target only where it says so.
fn shell(environment: &Value, what: &str, ways: &mut Ways<'_>) {
    if type_of(environment) == "local" {
        return;
    }
    if environment.is_null() {
        ways.need_or(Grant::CodeExecution, what, "\"environment\": {\"type\": \"local\"}");
    } else {
        container(environment, what, ways);
    }
}

/// A container of the provider: it runs code, may have a network, and may hold what was stored before.
fn container(container: &Value, what: &str, ways: &mut Ways<'_>) {
    ways.need(Grant::CodeExecution, what);
    let policy = &container["network_policy"];
    if !policy.is_null() && type_of(policy) != "disabled" {
        ways.need(Grant::WebFetch, "a container with a network");
    }
    let is_reference = container.is_string() || is_said(container.get("container_id"));
    let has_skill = each(container.get("skills")).any(|skill| type_of(skill) != "inline");
    if is_reference || has_skill || is_said(container.get("file_ids")) {
        ways.need(Grant::Storage, "a container, a skill or files by id");
    }
}

/// One item of the input.
fn item(item: &Value, ways: &mut Ways<'_>) {
    let kind = type_of(item);
    let what = format!("an item of type {:?}", shown(kind));
    match kind {
        "message" => content(&item["content"], ways),
        "" if item.get("role").is_some() => content(&item["content"], ways),
        // An item that is nothing but an id.
        "" | "item_reference" => ways.need_or(Grant::Storage, "an item by its id", "send the item itself"),
        "function_call_output" | "custom_tool_call_output" => content(&item["output"], ways),
        "function_call"
        | "custom_tool_call"
        | "local_shell_call"
        | "local_shell_call_output"
        | "shell_call"
        | "shell_call_output"
        | "apply_patch_call"
        | "apply_patch_call_output"
        | "tool_search_call"
        | "compaction"
        | "compaction_trigger"
        | "compaction_summary"
        | "configuration_update" => {}
        "tool_search_output" | "additional_tools" => tool(item, ways),
        "reasoning" => reasoning(item, ways),
        "program" | "program_output" => ways.need(Grant::CodeExecution, &what),
        "computer_call_output" => {
            ways.need(Grant::ComputerUse, &what);
            part(&item["output"], ways);
        }
        "file_search_call" => ways.need(Grant::Storage, &what),
        _ if kind.starts_with("input_") || kind.starts_with("output_") => part(item, ways),
        _ if kind.starts_with("mcp_") => ways.need(Grant::RemoteMcp, &what),
        _ if kind.starts_with("web_search") => ways.need(Grant::WebSearch, &what),
        _ if kind.starts_with("code_interpreter") => ways.need(Grant::CodeExecution, &what),
        _ if kind.starts_with("computer") => ways.need(Grant::ComputerUse, &what),
        _ => ways.unknown(&what),
    }
}

/// Reasoning goes back encrypted or in clear; by its id alone the provider must have stored it.
fn reasoning(item: &Value, ways: &mut Ways<'_>) {
    let is_whole = is_said(item.get("encrypted_content")) || is_said(item.get("content"));
    if !is_whole && is_said(item.get("id")) {
        let instead = "\"include\": [\"reasoning.encrypted_content\"], so that reasoning comes with its content";
        ways.need_or(Grant::Storage, "a reasoning item by its id", instead);
    }
}

fn content(content: &Value, ways: &mut Ways<'_>) {
    for part in each(Some(content)).filter(|part| part.is_object()) {
        self::part(part, ways);
    }
}

/// A part of a message or of a tool's output.
pub(super) fn part(part: &Value, ways: &mut Ways<'_>) {
    let kind = type_of(part);
    match kind {
        "input_text" | "output_text" | "text" | "refusal" | "summary_text" | "reasoning_text" => {}
        "input_image" | "computer_screenshot" | "input_file" => {
            if is_said(part.get("file_id")) {
                ways.need(Grant::Storage, "a file by its id");
            }
            let url = &part["image_url"];
            media(if url.is_object() { &url["url"] } else { url }, "an image by URL", ways);
            media(&part["file_url"], "a file by URL", ways);
            media(&part["file_data"], "a file by URL", ways);
        }
        "input_audio" => media(&part["input_audio"]["data"], "audio by URL", ways),
        "input_video" => media(&part["video_url"], "a video by URL", ways),
        _ => ways.unknown(&format!("a part of type {:?}", shown(kind))),
    }
}
