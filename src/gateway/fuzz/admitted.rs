//! Admission against a second reading of the same bytes: what was judged is what is sent, byte for byte as parsed, and
//! nothing of it is on a list of what must not pass.

use super::super::exchange::{Admitted, Asked, Life};
use super::super::trial::{Provider, ProviderDoor};
use super::super::{GatewayPlan, admission};
use super::received::receive;
use crate::json;
use crate::policy::{Dialect, Upstream};
use crate::relay::framing::{Body, Head};
use crate::secret::HostSecret;
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};

/// The real key, which no target has.
const KEY: &str = "sk-the-real-key-of-the-host";

/// Every built-in provider, with an upstream of its own kind and without any grant.
fn plans() -> &'static [Arc<GatewayPlan>] {
    static PLANS: OnceLock<Vec<Arc<GatewayPlan>>> = OnceLock::new();
    PLANS.get_or_init(|| {
        let policy = json!({
            "version": 1, "name": "fuzz", "target": {"image": {"reference": "none:1"}, "command": ["true"]},
            "evaluation": {"command": ["true"]},
            "extends": ["provider/openai", "provider/anthropic", "provider/gemini", "provider/azure-openai", "provider/openrouter"],
            "gateways": {
                "azure-openai": {"upstream": "https://resource.openai.azure.com", "models": ["gpt-5*"]},
                "openrouter": {"models": ["openai/gpt-5*"]},
                "anthropic": {"routes": ["POST /v1/messages?beta", "POST /v1/messages/count_tokens?beta"]},
            },
        });
        let policy = crate::policy::parse(policy.to_string().as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}"));
        let key = || Some(HostSecret::generated("A_KEY", KEY.to_owned()));
        let plan = |(name, rule): (&String, _)| Arc::new(GatewayPlan::upstream(name, rule, key()).unwrap());
        policy.gateways.iter().map(plan).collect()
    })
}

/// A whole request as a target sends it, at every provider's door.
pub fn admission(data: &[u8]) {
    let Ok((head, body, Ok(()))) = receive(data) else { return };
    for plan in plans() {
        if let Some(admitted) = admit(plan, &head, &body) {
            check(plan, &head, &body, &admitted);
        }
    }
}

/// A body on every route that takes one.
pub fn judged(data: &[u8]) {
    for plan in plans() {
        for route in plan.rule.routes.iter().filter(|route| route.method == "POST") {
            let head = head(&route.path.replace("{model}", model(plan.dialect())), data);
            if let Some(admitted) = admit(plan, &head, data) {
                check(plan, &head, data, &admitted);
            }
        }
    }
}

fn model(dialect: Dialect) -> &'static str {
    if dialect == Dialect::Gemini { "gemini-2.5-flash" } else { "gpt-5" }
}

fn head(path: &str, body: &[u8]) -> Head {
    let headers = vec![("content-length".to_owned(), body.len().to_string())];
    Head { method: "POST".to_owned(), target: path.to_owned(), headers, body: Body::Length(body.len() as u64) }
}

fn admit(plan: &Arc<GatewayPlan>, head: &Head, body: &[u8]) -> Option<Admitted> {
    let door = ProviderDoor::new(Arc::clone(plan), "case".to_owned(), None);
    let line = admission::line(plan, head).ok()?;
    let (admitted, hold) = admission::request(&door, line, head, body, &mut Asked::default(), &Life::default()).ok()?;
    door.budget.give_back(hold);
    Some(admitted)
}

fn check(plan: &Arc<GatewayPlan>, head: &Head, body: &[u8], admitted: &Admitted) {
    on_the_wire(plan, head, admitted);
    if admitted.bytes.is_empty() {
        assert!(body.is_empty() && admitted.body.is_none(), "a body was dropped");
        return;
    }
    let sent = json::parse(&admitted.bytes).unwrap();
    assert_eq!(Some(&sent), admitted.body.as_ref(), "another body is sent than was judged");
    // The second reading: the last of equal keys wins there, so it would differ if there were any.
    let given: Value = serde_json::from_slice(body).unwrap();
    let (Value::Object(given), Value::Object(sent)) = (given, sent) else { panic!("no object was admitted") };
    let mut undone = sent.clone();
    undo(&given, &mut undone);
    let as_text = |object: &Map<String, Value>| Value::Object(object.clone()).to_string();
    assert_eq!(as_text(&undone), as_text(&given), "more than the documented was changed");
    models(plan, &sent);
    nothing_reaches_out(plan.dialect(), &sent);
    let again = admit(plan, &self::head(&head.target, &admitted.bytes), &admitted.bytes).unwrap();
    assert_eq!(again.bytes, admitted.bytes, "what is sent would be judged as another request");
    let asked = Asked { hide_usage: again.asked.hide_usage, ..admitted.asked.clone() };
    assert_eq!(again.asked, asked, "what is sent asks for something else");
}

/// Takes back what admission states in the target's place: usage with a stream, and that nothing is stored.
fn undo(given: &Map<String, Value>, sent: &mut Map<String, Value>) {
    let is_left_out = |key: &str| given.get(key).is_none_or(Value::is_null);
    let put_back = |sent: &mut Map<String, Value>, key: &str| match given.get(key) {
        Some(value) => drop(sent.insert(key.to_owned(), value.clone())),
        None => drop(sent.shift_remove(key)),
    };
    if is_left_out("store") && sent.get("store") == Some(&json!(false)) {
        put_back(sent, "store");
    }
    match (given.get("stream_options"), sent.get_mut("stream_options")) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => match before.get("include_usage") {
            Some(value) => drop(after.insert("include_usage".to_owned(), value.clone())),
            None if after.get("include_usage") == Some(&json!(true)) => drop(after.shift_remove("include_usage")),
            None => {}
        },
        (_, Some(after)) if *after == json!({"include_usage": true}) => put_back(sent, "stream_options"),
        _ => {}
    }
}

/// The request that would go to the provider: its line byte for byte, its body, and the key in one header alone.
fn on_the_wire(plan: &GatewayPlan, head: &Head, admitted: &Admitted) {
    let Provider::Upstream(upstream) = &plan.provider else { panic!("a script") };
    let request = upstream.request(admitted).unwrap_or_else(|| panic!("an admitted request that cannot be sent"));
    assert_eq!(request.method().as_str(), head.method);
    assert_eq!(request.uri().path_and_query().map(|line| line.as_str()), Some(head.target.as_str()));
    let Upstream::Origin(origin) = &plan.rule.upstream else { panic!("a script") };
    assert_eq!(request.uri().to_string(), format!("{origin}{}", head.target));
    assert_eq!(*request.body(), admitted.bytes.as_slice());
    let allowed = ["accept", "content-type", "idempotency-key", "openai-beta", "anthropic-version", "anthropic-beta"];
    let mut keys = 0;
    for (name, value) in request.headers() {
        let holds_key = value.as_bytes().windows(KEY.len()).any(|part| part == KEY.as_bytes());
        keys += u32::from(holds_key);
        assert!(holds_key || allowed.contains(&name.as_str()), "{name}");
    }
    assert_eq!(keys, 1);
}

/// Every model that a provider could read at the top of a body is allowed.
fn models(plan: &GatewayPlan, sent: &Map<String, Value>) {
    // Azure reads the deployment in the path; where there is one, the body's model is not read.
    if plan.dialect() == Dialect::AzureOpenAi {
        return;
    }
    let is_allowed = |model: &str| plan.models.iter().any(|glob| glob.is_match(model));
    for key in ["model", "models", "fallbacks"] {
        for value in
            sent.get(key).into_iter().flat_map(|value| value.as_array().map_or(vec![value], |all| all.iter().collect()))
        {
            let named = value.as_str().or_else(|| value["model"].as_str());
            let named =
                named.map(
                    |model| if plan.dialect() == Dialect::Gemini { model.trim_start_matches("models/") } else { model },
                );
            assert!(named.is_none_or(is_allowed), "{key}: {value}");
        }
    }
}

/// Kept apart from the dialects' tables, and shorter: forms that no request without a grant may have.
fn nothing_reaches_out(dialect: Dialect, sent: &Map<String, Value>) {
    let hosted = [
        "web_search",
        "web_fetch",
        "file_search",
        "mcp",
        "code_interpreter",
        "code_execution",
        "image_generation",
        "computer",
        "googleSearch",
        "google_search",
        "urlContext",
        "url_context",
        "codeExecution",
        "fileSearch",
    ];
    for tool in sent.get("tools").into_iter().filter_map(Value::as_array).flatten() {
        let kind = tool["type"].as_str().unwrap_or_default();
        assert!(!hosted.iter().any(|name| kind.starts_with(name)), "{tool}");
        if dialect == Dialect::Gemini {
            assert!(!hosted.iter().any(|name| tool.get(name).is_some_and(|value| !value.is_null())), "{tool}");
        }
    }
    let stored = [
        "previous_response_id",
        "conversation",
        "mcp_servers",
        "container",
        "cachedContent",
        "cached_content",
        "plugins",
    ];
    for key in stored {
        let of_another = (key == "container" || key == "mcp_servers") && dialect != Dialect::Anthropic
            || key.starts_with("cached") && dialect != Dialect::Gemini
            || key == "plugins"
            || matches!(key, "previous_response_id" | "conversation")
                && matches!(dialect, Dialect::Anthropic | Dialect::Gemini);
        assert!(of_another || sent.get(key).is_none_or(|value| value.is_null() || *value == json!([])), "{key}");
    }
    assert!(!matches!(sent.get("store"), Some(Value::Bool(true) | Value::String(_))));
    for list in ["messages", "input", "contents"] {
        for message in sent.get(list).into_iter().filter_map(Value::as_array).flatten() {
            for part in message["content"].as_array().or_else(|| message["parts"].as_array()).into_iter().flatten() {
                is_inline(part);
            }
        }
    }
}

fn is_inline(part: &Value) {
    let addresses = [
        &part["image_url"]["url"],
        &part["image_url"],
        &part["file_url"],
        &part["source"]["url"],
        &part["fileData"]["fileUri"],
    ];
    let is_known = part["type"].as_str().is_some() || part.get("fileData").is_some();
    for address in addresses.into_iter().filter(|_| is_known).filter_map(Value::as_str) {
        let read =
            matches!(part["type"].as_str(), Some("image_url" | "input_image" | "input_file" | "image" | "document"))
                || part.get("fileData").is_some();
        assert!(!read || !(address.starts_with("http://") || address.starts_with("https://")), "{part}");
    }
}
