//! OpenRouter's API: OpenAI's forms, and beside them plugins, server tools, further models to fall back to, names that
//! search the web by themselves (`:online`), and presets stored with the account.

use super::super::exchange::{Asked, Denied};
use super::super::grants::Ways;
use super::super::scan::Path;
use super::super::usage::{Counts, Tally};
use super::{Endpoint, Forms, each, is_said, model, openai, shown};
use crate::policy::Grant;
use serde_json::{Map, Value, json};

/// OpenRouter.
pub(super) struct OpenRouter;

/// Known beside OpenAI's fields: settings of the model, of the choice among its hosts, of bookkeeping; or looked at below.
const MORE: &[&str] = &[
    "cache_control",
    "image_config",
    "include_reasoning",
    "models",
    "plugins",
    "preset",
    "provider",
    "reasoning",
    "route",
    "session_id",
    "structured_outputs",
    "stop_server_tools_when",
    "trace",
    "transforms",
    "usage",
];

impl Forms for OpenRouter {
    fn endpoint(&self, path: &str) -> Endpoint {
        openai::endpoint(path)
    }

    /// Usage comes with every stream here: nothing has to be asked for, and nothing kept back.
    fn asked(&self, endpoint: Endpoint, named: Option<&str>, body: &mut Map<String, Value>) -> Result<Asked, Denied> {
        let model = named.map_or_else(|| model(body), |named| Ok(named.to_owned()));
        let mut asked = openai::asked(endpoint, model, body)?;
        asked.others = others(body)?;
        Ok(asked)
    }

    fn reach(&self, endpoint: Endpoint, _: Option<&str>, body: &mut Map<String, Value>, ways: &mut Ways<'_>) {
        let models = body.get("model").into_iter().chain(each(body.get("models")));
        for model in models.filter_map(Value::as_str) {
            named(model, ways);
        }
        if is_said(body.get("preset")) {
            ways.unknown("what a stored \"preset\" holds");
        }
        for plugin in each(body.get("plugins")) {
            self::plugin(plugin, ways);
        }
        openai::reach(endpoint, body, MORE, ways);
    }

    fn error(&self, denied: &Denied) -> Value {
        json!({"error": {"code": denied.status, "message": denied.message, "metadata": {"error_type": denied.code}}})
    }

    fn request_headers(&self) -> &'static [&'static str] {
        &["accept"]
    }

    fn watched(&self) -> &'static [Path] {
        openai::WATCHED
    }

    fn read(&self, endpoint: Endpoint, seen: &Value, tally: &mut Tally) {
        openai::read(endpoint, seen, tally);
        // Some hosts count what was written to a cache here.
        Counts::set(&mut tally.counts.written, &seen["usage"]["cache_creation_input_tokens"]);
    }

    fn is_last(&self, data: &[u8]) -> bool {
        data == b"[DONE]"
    }
}

/// Further models that may answer in the first one's place: each must be allowed.
fn others(body: &Map<String, Value>) -> Result<Vec<String>, Denied> {
    let text = |model: &Value| {
        let denied = || Denied::new("model", "crashlab_body_not_allowed", "\"models\" must be a list of texts");
        model.as_str().map(str::to_owned).ok_or_else(denied)
    };
    match body.get("models") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(models)) => models.iter().map(text).collect(),
        Some(other) => Ok(vec![text(other)?]),
    }
}

/// What a name alone brings with it.
fn named(model: &str, ways: &mut Ways<'_>) {
    let what = format!("the model {:?}, which searches by itself,", shown(model));
    let searches = [":online", "-search-preview", "-search-api", "deep-research"];
    if searches.iter().any(|part| model.contains(part)) || model.starts_with("perplexity/") {
        ways.need(Grant::WebSearch, &what);
    }
    if model.contains("@preset/") {
        ways.unknown("what a stored preset holds");
    }
}

fn plugin(plugin: &Value, ways: &mut Ways<'_>) {
    let id = plugin["id"].as_str().or_else(|| plugin.as_str()).unwrap_or_default();
    let what = format!("the plugin {:?}", shown(id));
    if plugin["enabled"] == json!(false) {
        return;
    }
    match id {
        "web" => ways.need(Grant::WebSearch, &what),
        "web-fetch" => ways.need(Grant::WebFetch, &what),
        // They work on what the request holds.
        "file-parser" | "response-healing" | "context-compression" | "moderation" => {}
        _ => ways.unknown(&what),
    }
}
