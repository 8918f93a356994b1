//! By which fields of a chat completion the provider reaches out: hosted search, media by URL, stored files, stored answers.
//! Owns the table of known fields and parts; what is in neither is unknown.

use super::super::grants::Ways;
use super::{each, is_inline, is_said, openai_responses, shown, type_of, unknown_fields};
use crate::policy::Grant;
use serde_json::{Map, Value};

/// Fields that reach nowhere, or that are looked at below.
const KNOWN: &[&str] = &[
    "audio",
    "best_of",
    "echo",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "suffix",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

/// Settings of other servers of this API (vLLM, SGLang, Mistral, DeepSeek, Qwen, LiteLLM) that stay inside the model.
const COMPATIBLE: &[&str] = &[
    "add_generation_prompt",
    "allowed_token_ids",
    "bad_words_ids",
    "chat_template_kwargs",
    "continue_final_message",
    "dry_allowed_length",
    "dry_base",
    "dry_multiplier",
    "enable_thinking",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "ignore_eos",
    "include_stop_str_in_output",
    "length_penalty",
    "max_new_tokens",
    "min_p",
    "min_tokens",
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "n_probs",
    "no_repeat_ngram_size",
    "num_ctx",
    "num_predict",
    "priority",
    "prompt_logprobs",
    "prompt_mode",
    "random_seed",
    "reasoning",
    "repeat_penalty",
    "repetition_penalty",
    "safe_prompt",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "structured_outputs",
    "thinking",
    "thinking_budget",
    "top_a",
    "top_k",
    "top_n_sigma",
    "truncate_prompt_tokens",
    "typical_p",
    "use_beam_search",
    "xtc_probability",
    "xtc_threshold",
];

pub(super) fn reach(body: &Map<String, Value>, more: &[&str], ways: &mut Ways<'_>) {
    unknown_fields(body, &[KNOWN, COMPATIBLE, more], "the field ", ways);
    if body.get("web_search_options").is_some_and(|options| !options.is_null()) {
        ways.need(Grant::WebSearch, "\"web_search_options\"");
    }
    for tool in each(body.get("tools")) {
        openai_responses::tool(tool, ways);
    }
    openai_responses::choice(body.get("tool_choice"), ways);
    for message in each(body.get("messages")) {
        content(&message["content"], ways);
        if is_said(message["audio"].get("id")) {
            ways.need(Grant::Storage, "an answer's audio by its id");
        }
    }
    if let Some(prediction) = body.get("prediction") {
        content(&prediction["content"], ways);
    }
}

/// A message's content: a text, or a list of parts.
fn content(content: &Value, ways: &mut Ways<'_>) {
    for part in each(Some(content)).filter(|part| part.is_object()) {
        self::part(part, ways);
    }
}

/// A part of a message, of a tool's output, of what is to be embedded.
fn part(part: &Value, ways: &mut Ways<'_>) {
    match type_of(part) {
        "text" | "refusal" | "input_text" | "output_text" | "thinking" => {}
        "input_audio" => media(&part["input_audio"]["data"], "a part of type input_audio", ways),
        kind @ ("image_url" | "video_url" | "audio_url" | "document_url" | "input_video") => {
            let what = format!("a part of type {kind} by URL");
            let value = &part[kind];
            media(if value.is_object() { &value["url"] } else { value }, &what, ways);
        }
        "file" => file(&part["file"], ways),
        "input_image" | "input_file" => openai_responses::part(part, ways),
        kind => ways.unknown(&format!("a part of type {:?}", shown(kind))),
    }
}

fn file(file: &Value, ways: &mut Ways<'_>) {
    if is_said(file.get("file_id")) {
        ways.need(Grant::Storage, "a file by its id");
    }
    for key in ["file_data", "file_url", "url"] {
        media(&file[key], "a file by URL", ways);
    }
}

/// Media that are not in the request itself would be fetched.
pub(super) fn media(value: &Value, what: &str, ways: &mut Ways<'_>) {
    match value {
        Value::Null => {}
        Value::String(text) if is_inline(text) => {}
        _ => ways.need_or(Grant::RemoteMedia, what, "send the content itself, as base64 or a data: URL"),
    }
}

/// What is to be embedded: texts, tokens, or parts.
pub(super) fn vectors(input: Option<&Value>, ways: &mut Ways<'_>) {
    for item in each(input).filter(|item| item.is_object()) {
        if item.get("content").is_some() { content(&item["content"], ways) } else { part(item, ways) }
    }
}
