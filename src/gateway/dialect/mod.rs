//! The providers' forms, a file each: where the model stands, what a stream ends with, where usage stands, how an error
//! looks, by which fields the provider reaches out. Owns what they share; sends nothing and grants nothing by itself.
//!
//! A further provider is a further implementation of [`Forms`], a variant of `policy::Dialect`, and a line in [`forms`].

mod anthropic;
mod azure_openai;
mod gemini;
mod openai;
mod openai_chat;
mod openai_responses;
mod openrouter;
#[cfg(test)]
mod tests;

use super::exchange::{Asked, Denied};
use super::grants::Ways;
use super::scan::Path;
use super::usage::{self, Tally};
use crate::policy::{Dialect, Route};
use serde_json::{Map, Value};

/// What an endpoint is for, whatever its path is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's completions, without messages.
    Completions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Gemini's generateContent.
    Generate,
    /// Gemini's streamGenerateContent.
    GenerateStream,
    /// Vectors for texts.
    Embeddings,
    /// How many tokens a request would have: nothing is generated or charged.
    Count,
    /// The list of models.
    Models,
    /// One model's description.
    Model,
    /// Another one, of which nothing is known.
    Other,
}

impl Endpoint {
    /// Whether the provider charges nothing.
    pub(super) fn is_free(self) -> bool {
        matches!(self, Endpoint::Count | Endpoint::Models | Endpoint::Model)
    }

    /// Whether it generates: answers have an end of their own, and usage.
    pub(super) fn is_known(self) -> bool {
        self != Endpoint::Other
    }
}

/// One provider's forms.
pub(super) trait Forms: Sync {
    /// What a declared path is for.
    fn endpoint(&self, path: &str) -> Endpoint;

    /// Reads model, stream and bound of output; may ask the provider for usage in the target's place.
    ///
    /// # Errors
    /// A body that can be read in more than one way, or names no model.
    fn asked(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>) -> Result<Asked, Denied>;

    /// Tells `ways` of each field by which the provider would reach out, and of each that it does not know.
    fn reach(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>, ways: &mut Ways<'_>);

    /// A refusal as this provider would put it.
    fn error(&self, denied: &Denied) -> Value;

    /// Request headers that go on, in lower case. Never credentials, never what chooses whose account is charged.
    fn request_headers(&self) -> &'static [&'static str];

    /// Where in an answer, an event or an element something stands that [`Forms::read`] looks at.
    fn watched(&self) -> &'static [Path];

    /// Reads an answer, or an event of one.
    fn read(&self, endpoint: Endpoint, seen: &Value, tally: &mut Tally);

    /// The text that ends a stream where it is no JSON.
    fn is_last(&self, data: &[u8]) -> bool {
        let _ = data;
        false
    }

    /// The list in an answer of [`Endpoint::Models`], and the name of a model in it.
    fn list(&self) -> (&'static str, &'static str) {
        ("data", "id")
    }
}

/// The forms of a dialect.
pub(super) fn forms(dialect: Dialect) -> &'static dyn Forms {
    match dialect {
        Dialect::OpenAi => &openai::OpenAi,
        Dialect::Anthropic => &anthropic::Anthropic,
        Dialect::Gemini => &gemini::Gemini,
        Dialect::AzureOpenAi => &azure_openai::AzureOpenAi,
        Dialect::OpenRouter => &openrouter::OpenRouter,
    }
}

/// What a request asks for; may change its body, which is what is judged and sent afterwards.
///
/// # Errors
/// A body that can be read in more than one way, or names no model.
pub(super) fn asked(dialect: Dialect, route: &Route, path: &str, body: Option<&mut Value>) -> Result<Asked, Denied> {
    let forms = forms(dialect);
    let named = model_in_path(route, path);
    match body {
        Some(Value::Object(body)) => forms.asked(forms.endpoint(&route.path), named, body),
        _ => Ok(Asked { model: named.map(str::to_owned), max_output: Some(0), ..Asked::default() }),
    }
}

/// A refusal in the provider's own form.
pub(super) fn error_body(dialect: Dialect, denied: &Denied) -> Value {
    forms(dialect).error(denied)
}

/// Request headers that go on, in lower case.
pub(super) fn forwardable(dialect: Dialect) -> &'static [&'static str] {
    forms(dialect).request_headers()
}

/// The model that a path names, where the declared one has a place for it.
pub(super) fn model_in_path<'a>(route: &Route, path: &'a str) -> Option<&'a str> {
    let (before, after) = route.path.split_once("{model}")?;
    path.strip_prefix(before)?.strip_suffix(after)
}

/// The body's own model.
///
/// # Errors
/// It has none, or one that is no text.
fn model(body: &Map<String, Value>) -> Result<String, Denied> {
    match body.get("model") {
        Some(Value::String(model)) if !model.is_empty() => Ok(model.clone()),
        _ => {
            Err(Denied::new("model", "crashlab_model_missing", "the request names no model: \"model\" must be a text"))
        }
    }
}

/// Whether the body asks for a stream.
///
/// # Errors
/// `stream` is neither a boolean nor null: others may take it for either.
fn stream(body: &Map<String, Value>) -> Result<bool, Denied> {
    match body.get("stream") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(stream)) => Ok(*stream),
        Some(_) => Err(Denied::new("body", "crashlab_body_not_allowed", "\"stream\" must be true, false or null")),
    }
}

/// The largest of the bounds that a body states under these keys, times `copies`.
fn bound(body: &Map<String, Value>, keys: &[&str], copies: &str) -> Option<u64> {
    let counts = |key: &&str| body.get(*key).and_then(usage::count);
    let most = keys.iter().filter_map(counts).max()?;
    match body.get(copies) {
        None | Some(Value::Null) => Some(most),
        Some(copies) => Some(most.saturating_mul(usage::count(copies)?)),
    }
}

/// Whether a value that may hold media does so itself: base64, or a `data:` URL. Everything else would be fetched.
fn is_inline(text: &str) -> bool {
    let is_data = text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"));
    is_data || text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_ \r\n".contains(&byte))
}

/// Whether a field says anything at all.
fn is_said(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Array(items)) => !items.is_empty(),
        Some(_) => true,
    }
}

/// Tells of each field that is in none of the lists. Null says nothing; a number may be a switch.
fn unknown_fields(body: &Map<String, Value>, known: &[&[&str]], place: &str, ways: &mut Ways<'_>) {
    for (key, value) in body {
        if !known.iter().any(|known| known.contains(&key.as_str())) && !value.is_null() {
            ways.unknown(&format!("{place}{}", shown(key)));
        }
    }
}

/// The beginning of a name that a target sent, fit for a message.
fn shown(name: &str) -> String {
    name.chars().filter(|char| !char.is_control()).take(64).collect()
}

/// Each element of a list; a single object stands for a list of one, since some providers take it so.
fn each<'a>(value: Option<&'a Value>) -> impl Iterator<Item = &'a Value> {
    let items: &'a [Value] = match value {
        Some(Value::Array(items)) => items,
        Some(one @ (Value::Object(_) | Value::String(_))) => std::slice::from_ref(one),
        _ => &[],
    };
    items.iter()
}

/// A value's `type`; empty where it has none.
fn type_of(value: &Value) -> &str {
    value["type"].as_str().unwrap_or_default()
}
