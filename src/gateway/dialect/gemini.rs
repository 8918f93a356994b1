//! Google's Gemini API: generateContent, streamGenerateContent (events, or one JSON array), countTokens, embedContent. The
//! model stands in the path.
//!
//! Invariant: each key is judged in the one form that both of its spellings have, `fileData` and `file_data`: the provider
//! reads either.

use super::super::exchange::{Asked, Denied};
use super::super::grants::Ways;
use super::super::scan::Path;
use super::super::usage::{Counts, Tally, count, fault};
use super::{Endpoint, Forms, each, shown};
use crate::policy::Grant;
use serde_json::{Map, Value, json};

/// Gemini.
pub(super) struct Gemini;

/// Fields of a request that reach nowhere, or that are looked at below.
const KNOWN: &[&str] = &[
    "contents",
    "content",
    "systemInstruction",
    "tools",
    "toolConfig",
    "safetySettings",
    "generationConfig",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
    "model",
    "generateContentRequest",
    "requests",
    "taskType",
    "title",
    "outputDimensionality",
    "embedContentConfig",
];

/// Fields of a part that reach nowhere, or that are looked at below.
const PARTS: &[&str] = &[
    "text",
    "thought",
    "thoughtSignature",
    "inlineData",
    "functionCall",
    "functionResponse",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
    "videoMetadata",
    "mediaResolution",
    "mediaProcessing",
    "partMetadata",
    "audioTranscription",
    "speechMetadata",
    "documentMetadata",
    "spreadsheetMetadata",
    "audioMetadata",
];

impl Forms for Gemini {
    fn endpoint(&self, path: &str) -> Endpoint {
        const ENDS: [(&str, Endpoint); 7] = [
            (":generateContent", Endpoint::Generate),
            (":streamGenerateContent", Endpoint::GenerateStream),
            (":countTokens", Endpoint::Count),
            (":embedContent", Endpoint::Embeddings),
            (":batchEmbedContents", Endpoint::Embeddings),
            ("/models", Endpoint::Models),
            ("/models/{model}", Endpoint::Model),
        ];
        ENDS.iter().find(|(end, _)| path.ends_with(end)).map_or(Endpoint::Other, |(_, endpoint)| *endpoint)
    }

    fn asked(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>) -> Result<Asked, Denied> {
        if named.is_none() && endpoint != Endpoint::Other {
            let message = "the path of this endpoint names no model: the declared route must have {model} in it";
            return Err(Denied::new("model", "crashlab_model_missing", message));
        }
        let mut others = Vec::new();
        other_models(body, &mut others)?;
        others.retain(|other| Some(other.as_str()) != named);
        let max_output = match endpoint {
            Endpoint::Count | Endpoint::Embeddings => Some(0),
            _ => most(body),
        };
        let stream = endpoint == Endpoint::GenerateStream;
        Ok(Asked { model: named.map(str::to_owned), others, stream, max_output, hide_usage: false })
    }

    fn reach(&self, _: Endpoint, _: Option<&str>, body: &mut Map<String, Value>, ways: &mut Ways<'_>) {
        request(body, ways);
    }

    fn error(&self, denied: &Denied) -> Value {
        let status = match denied.status {
            401 => "UNAUTHENTICATED",
            403 => "PERMISSION_DENIED",
            404 => "NOT_FOUND",
            504 => "DEADLINE_EXCEEDED",
            500.. => "UNAVAILABLE",
            _ => "INVALID_ARGUMENT",
        };
        let reason =
            json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": denied.code, "domain": "crashlab"});
        json!({"error": {"code": denied.status, "message": denied.message, "status": status, "details": [reason]}})
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &["accept"]
    }

    fn watched(&self) -> &'static [Path] {
        &[&["modelVersion"], &["usageMetadata"], &["error"], &["candidates", "*", "finishReason"], &["promptFeedback"]]
    }

    fn read(&self, endpoint: Endpoint, seen: &Value, tally: &mut Tally) {
        tally.serve(&seen["modelVersion"]);
        let usage = &seen["usageMetadata"];
        if usage.is_object() && endpoint != Endpoint::Count {
            counts(usage, &mut tally.counts);
        }
        let is_blocked = seen["promptFeedback"].get("blockReason").is_some();
        if is_blocked || !seen["candidates"]["*"]["finishReason"].is_null() {
            tally.is_complete = true;
        }
        if !seen["error"].is_null() {
            tally.fail(fault(&seen["error"]));
        }
    }

    fn list(&self) -> (&'static str, &'static str) {
        ("models", "name")
    }
}

/// Zeros are left out of the provider's JSON: beside a prompt's count, what is missing is 0. Thoughts and what tools put in
/// stand beside the sums.
fn counts(usage: &Value, counts: &mut Counts) {
    let Some(prompt) = count(&usage["promptTokenCount"]) else { return };
    let of = |key: &str| count(&usage[key]).unwrap_or(0);
    counts.input = Some(prompt.saturating_add(of("toolUsePromptTokenCount")));
    counts.cached = Some(of("cachedContentTokenCount"));
    counts.output = Some(of("candidatesTokenCount"));
    counts.reasoning = Some(of("thoughtsTokenCount"));
    counts.is_extra = true;
}

/// A key in the form that both of its spellings have.
fn camel(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    let mut is_next = false;
    for char in key.chars() {
        match char {
            '_' => is_next = true,
            _ if is_next => {
                out.push(char.to_ascii_uppercase());
                is_next = false;
            }
            _ => out.push(char),
        }
    }
    out
}

/// The values of a field, in either spelling.
fn field<'a>(object: &'a Value, name: &'a str) -> impl Iterator<Item = &'a Value> {
    let entries = object.as_object().into_iter().flatten();
    entries.filter(move |(key, value)| camel(key) == name && !value.is_null()).map(|(_, value)| value)
}

/// Models that the body names: `models/` before a name is part of the path that it stands for.
fn other_models(body: &Map<String, Value>, found: &mut Vec<String>) -> Result<(), Denied> {
    for (key, value) in body {
        match (camel(key).as_str(), value) {
            ("model", Value::String(model)) => found.push(model.strip_prefix("models/").unwrap_or(model).to_owned()),
            ("model", Value::Null) => {}
            ("model", _) => {
                return Err(Denied::new("model", "crashlab_body_not_allowed", "\"model\" must be a text"));
            }
            ("generateContentRequest" | "requests", value) => {
                for nested in each(Some(value)).filter_map(Value::as_object) {
                    other_models(nested, found)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The most tokens that may be generated, over all candidates.
fn most(body: &Map<String, Value>) -> Option<u64> {
    let mut configs = body.iter().filter(|(key, _)| camel(key) == "generationConfig").map(|(_, config)| config);
    let config = configs.next()?;
    let most = field(config, "maxOutputTokens").filter_map(count).max()?;
    let candidates = field(config, "candidateCount").filter_map(count).max().unwrap_or(1);
    Some(most.saturating_mul(candidates.max(1)))
}

fn request(body: &Map<String, Value>, ways: &mut Ways<'_>) {
    for (key, value) in body {
        let name = camel(key);
        match name.as_str() {
            _ if value.is_null() => {}
            "contents" | "content" | "systemInstruction" => {
                each(Some(value)).for_each(|content| self::content(content, ways))
            }
            "tools" => each(Some(value)).for_each(|tool| self::tool(tool, ways)),
            "cachedContent" => ways.need(Grant::Storage, "\"cachedContent\""),
            "store" if value != &Value::Bool(false) => ways.need_or(Grant::Storage, "\"store\"", "leave it out"),
            "generateContentRequest" | "requests" => {
                each(Some(value)).filter_map(Value::as_object).for_each(|nested| request(nested, ways));
            }
            "generationConfig" => {
                for routed in ["routingConfig", "modelSelectionConfig"] {
                    if field(value, routed).next().is_some() {
                        ways.unknown(&format!("{routed:?}, which chooses another model,"));
                    }
                }
            }
            _ if KNOWN.contains(&name.as_str()) => {}
            _ => ways.unknown(&format!("the field {}", shown(key))),
        }
    }
}

fn tool(tool: &Value, ways: &mut Ways<'_>) {
    for (key, value) in tool.as_object().into_iter().flatten() {
        let name = camel(key);
        let what = format!("the tool {}", shown(key));
        match name.as_str() {
            _ if value.is_null() => {}
            "functionDeclarations" => {}
            "googleSearch"
            | "googleSearchRetrieval"
            | "enterpriseWebSearch"
            | "googleMaps"
            | "parallelAiSearch"
            | "exaAiSearch" => ways.need(Grant::WebSearch, &what),
            "urlContext" => ways.need(Grant::WebFetch, &what),
            "codeExecution" => ways.need(Grant::CodeExecution, &what),
            "computerUse" => ways.need(Grant::ComputerUse, &what),
            "mcpServers" => ways.need(Grant::RemoteMcp, &what),
            "fileSearch" => ways.need(Grant::Storage, &what),
            "retrieval" => {
                ways.need(Grant::Storage, &what);
                ways.need(Grant::WebFetch, &what);
            }
            _ => ways.unknown(&what),
        }
    }
}

/// A content with parts, a part by itself, or a text: SDKs and the provider take each.
fn content(content: &Value, ways: &mut Ways<'_>) {
    let mut is_content = false;
    for parts in field(content, "parts") {
        is_content = true;
        each(Some(parts)).for_each(|part| self::part(part, ways));
    }
    if !is_content && content.is_object() && content.get("role").is_none() {
        part(content, ways);
    }
}

fn part(part: &Value, ways: &mut Ways<'_>) {
    for (key, value) in part.as_object().into_iter().flatten() {
        let name = camel(key);
        let what = format!("a part with {}", shown(key));
        match name.as_str() {
            _ if value.is_null() => {}
            "fileData" => file(value, ways),
            "executableCode" | "codeExecutionResult" => ways.need(Grant::CodeExecution, &what),
            "toolCall" | "toolResponse" => {
                let mut kinds = field(value, "toolType").peekable();
                if kinds.peek().is_none() {
                    ways.unknown(&what);
                }
                kinds.for_each(|kind| used(kind, ways));
            }
            "functionResponse" => {
                field(value, "parts").flat_map(|parts| each(Some(parts))).for_each(|nested| self::part(nested, ways));
            }
            _ if PARTS.contains(&name.as_str()) => {}
            _ => ways.unknown(&what),
        }
    }
}

/// A file that was uploaded before, or anything that an address leads to.
fn file(file: &Value, ways: &mut Ways<'_>) {
    const UPLOADED: &str = "https://generativelanguage.googleapis.com/";
    let instead = "send the content itself as inlineData";
    let mut uris = field(file, "fileUri").peekable();
    let is_uploaded =
        uris.peek().is_some() && uris.all(|uri| uri.as_str().is_some_and(|uri| uri.starts_with(UPLOADED)));
    let grant = if is_uploaded { Grant::Storage } else { Grant::RemoteMedia };
    ways.need_or(grant, "a part with fileData", instead);
}

/// A server's tool that an earlier answer used.
fn used(kind: &Value, ways: &mut Ways<'_>) {
    let kind = kind.as_str().unwrap_or_default();
    let what = format!("a use of the server's tool {:?}", shown(kind));
    match kind {
        "URL_CONTEXT" => ways.need(Grant::WebFetch, &what),
        "FILE_SEARCH" => ways.need(Grant::Storage, &what),
        "MEDIA_PROCESSING" => {}
        _ if kind.starts_with("GOOGLE_") => ways.need(Grant::WebSearch, &what),
        _ => ways.unknown(&what),
    }
}
