//! The `gateways` part: the only ways to a provider. Owns their rules at load; what a request may be is the gateway's
//! business, on what is checked here.

use super::forms;
use super::glob;
use super::problem::{Node, show_name};
use super::route::{self, A_ROUTE};
use super::target::reserved;
use super::{
    Auth, Binding, Dialect, GatewayLimits, GatewayRule, Grant, LongPrompt, Price, Rates, Route, SecretRule, Upstream,
};
use std::collections::BTreeMap;
use std::time::Duration;

const DIALECTS: [(&str, Dialect); 5] = [
    ("openai", Dialect::OpenAi),
    ("anthropic", Dialect::Anthropic),
    ("gemini", Dialect::Gemini),
    ("azure-openai", Dialect::AzureOpenAi),
    ("openrouter", Dialect::OpenRouter),
];
const AUTHS: [(&str, Auth); 4] = [
    ("bearer", Auth::Bearer),
    ("x-api-key", Auth::XApiKey),
    ("api-key", Auth::ApiKey),
    ("x-goog-api-key", Auth::XGoogApiKey),
];
const GRANTS: [(&str, Grant); 7] = [
    ("web_search", Grant::WebSearch),
    ("web_fetch", Grant::WebFetch),
    ("code_execution", Grant::CodeExecution),
    ("computer_use", Grant::ComputerUse),
    ("remote_mcp", Grant::RemoteMcp),
    ("remote_media", Grant::RemoteMedia),
    ("storage", Grant::Storage),
];
const MIB: u64 = 1 << 20;
const MOST: u64 = 1_000_000_000_000;

pub(super) fn check(node: &Node<'_>) -> BTreeMap<String, GatewayRule> {
    let mut gateways: BTreeMap<String, GatewayRule> = BTreeMap::new();
    for (name, node) in node.entries("an object of gateways by name ([a-z][a-z0-9_-]{0,63})") {
        if !forms::is_name(name, true) {
            node.refuse(format!("found the name {}", show_name(name)), "a gateway's name is [a-z][a-z0-9_-]{0,63}");
        }
        let rule = gateway(&node);
        for bound in rule.env.keys() {
            if let Some((other, _)) = gateways.iter().find(|(_, rule)| rule.env.contains_key(bound)) {
                let message = format!("{bound} is bound by the gateway {other:?} too");
                node.key("env").key(bound).refuse(message, "each variable bound once; null takes a binding out");
            }
        }
        gateways.insert(name.to_owned(), rule);
    }
    gateways
}

fn gateway(node: &Node<'_>) -> GatewayRule {
    node.entries("an object with dialect, upstream, routes, models and the rest");
    let dialect = dialect(&node.key("dialect"));
    let upstream = upstream(&node.key("upstream"));
    let secret = secret(&node.key("secret"));
    let target_path = node.key("target_path").text("\"\", or a normalized path such as \"/v1\"", |text| {
        route::is_target_path(text).then(|| text.to_owned())
    });
    let rule = GatewayRule {
        dialect,
        // A script needs no key, also where the piece that it stands in for names one.
        secret: secret.filter(|_| matches!(upstream, Upstream::Origin(_))),
        upstream,
        auth: node.key("auth").word(&AUTHS).unwrap_or_else(|| usual_auth(dialect)),
        target_path: target_path.unwrap_or_default(),
        routes: routes(&node.key("routes")),
        models: models(&node.key("models")),
        grants: grants(&node.key("grants")),
        limits: limits(&node.key("limits")),
        env: bindings(&node.key("env")),
        prices: prices(&node.key("prices")),
    };
    reachable(node, &rule);
    priced(node, &rule);
    rule
}

fn dialect(node: &Node<'_>) -> Dialect {
    let words = DIALECTS.map(|(word, _)| word).join(", ");
    node.require(&format!("one of {words}"));
    node.word(&DIALECTS).unwrap_or(Dialect::OpenAi)
}

fn usual_auth(dialect: Dialect) -> Auth {
    match dialect {
        Dialect::OpenAi | Dialect::OpenRouter => Auth::Bearer,
        Dialect::Anthropic => Auth::XApiKey,
        Dialect::Gemini => Auth::XGoogApiKey,
        Dialect::AzureOpenAi => Auth::ApiKey,
    }
}

fn upstream(node: &Node<'_>) -> Upstream {
    let nowhere = || Upstream::Origin(String::new());
    if !node.require(forms::AN_ORIGIN) {
        return nowhere();
    }
    if node.value().is_some_and(serde_json::Value::is_object) {
        let script = node.key("script");
        script.require("a file of replies, one a line");
        return script.text(forms::A_RELATIVE_PATH, forms::relative_path).map_or_else(nowhere, Upstream::Script);
    }
    let origin = node.text(forms::AN_ORIGIN, |text| forms::is_origin(text).then(|| text.to_owned()));
    origin.map_or_else(nowhere, Upstream::Origin)
}

fn secret(node: &Node<'_>) -> Option<SecretRule> {
    let variable =
        |node: &Node<'_>| node.text(forms::A_VARIABLE, |text| forms::is_variable(text).then(|| text.to_owned()));
    if !node.value()?.is_object() {
        return Some(SecretRule { name: variable(node)?, env_file: None });
    }
    node.key("name").require(forms::A_VARIABLE);
    let env_file = node.key("env_file").text(forms::A_RELATIVE_PATH, forms::relative_path);
    Some(SecretRule { name: variable(&node.key("name"))?, env_file })
}

fn routes(node: &Node<'_>) -> Vec<Route> {
    node.require("a non-empty list of routes");
    let routes = node.texts(A_ROUTE, route::route).unwrap_or_default();
    empty_means_nothing(node);
    let same = |a: &Route, b: &Route| a.method == b.method && a.path == b.path;
    for (i, one) in routes.iter().enumerate() {
        if routes[..i].iter().any(|other| same(one, other)) {
            node.refuse(format!("found {} {} twice", one.method, one.path), "each method and path once");
        }
    }
    routes
}

fn models(node: &Node<'_>) -> Vec<String> {
    let would_do = "a non-empty list of models or globs such as \"gpt-5*\"";
    node.require(would_do);
    let models = node.texts(would_do, |text| glob::name(text).map(|_| text.to_owned())).unwrap_or_default();
    empty_means_nothing(node);
    models
}

/// An empty list would allow nothing at all: no policy means that.
fn empty_means_nothing(node: &Node<'_>) {
    if node.value().and_then(|value| value.as_array()).is_some_and(Vec::is_empty) {
        node.refuse("found an empty list, which allows nothing", "at least one; take the whole gateway out with null");
    }
}

fn grants(node: &Node<'_>) -> Vec<Grant> {
    let items = node.items("a list of grants").unwrap_or_default();
    let mut grants: Vec<Grant> = items.iter().filter_map(|item| item.word(&GRANTS)).collect();
    grants.sort_unstable();
    grants.dedup();
    grants
}

fn limits(node: &Node<'_>) -> GatewayLimits {
    node.entries("an object of limits");
    let minute = Duration::from_secs(60);
    GatewayLimits {
        requests: node.key("requests").count(1, MOST).unwrap_or(100),
        request_size: node.key("request_size").size(1).unwrap_or(4 * MIB),
        response_size: node.key("response_size").size(1).unwrap_or(16 * MIB),
        request_time: node.key("request_time").time(),
        first_byte: node.key("first_byte").time().unwrap_or(minute),
        idle: node.key("idle").time().unwrap_or(minute),
        tokens: node.key("tokens").count(1, MOST),
        cost_usd: node.key("cost_usd").amount("a number of USD above 0", |usd| usd > 0.0),
    }
}

fn bindings(node: &Node<'_>) -> BTreeMap<String, Binding> {
    let mut bindings = BTreeMap::new();
    for (name, variable) in node.entries("an object of \"token\" or \"url\" by variable") {
        if !forms::is_variable(name) {
            variable.refuse(format!("found the name {}", show_name(name)), forms::A_VARIABLE);
        }
        if let Some(whose) = reserved(name).or((name == "PATH").then_some("where programs are found")) {
            variable.refuse(format!("{name} is {whose}"), "a variable of another name");
        }
        if let Some(binding) = variable.word(&[("token", Binding::Token), ("url", Binding::Url)]) {
            bindings.insert(name.to_owned(), binding);
        }
    }
    bindings
}

fn prices(node: &Node<'_>) -> BTreeMap<String, Price> {
    let mut prices = BTreeMap::new();
    for (model, node) in node.entries("an object of prices by model or glob") {
        if glob::name(model).is_none() {
            node.refuse(format!("found the name {}", show_name(model)), "a model, or a glob such as \"gpt-5*\"");
        }
        let price = Price { rates: rates(&node), long_prompt: long_prompt(&node.key("long_prompt")) };
        prices.insert(model.to_owned(), price);
    }
    prices
}

fn rates(node: &Node<'_>) -> Rates {
    let would_do = "an object with input, output, cached_input and cache_write in USD for a million tokens";
    node.entries(would_do);
    let usd = |key: &str| node.key(key).amount("a finite number of USD, 0 and up", |_| true);
    if node.value().is_some_and(serde_json::Value::is_object) {
        node.key("input").require(would_do);
        node.key("output").require(would_do);
    }
    Rates {
        input: usd("input").unwrap_or(0.0),
        cached_input: usd("cached_input"),
        cache_write: usd("cache_write"),
        output: usd("output").unwrap_or(0.0),
    }
}

fn long_prompt(node: &Node<'_>) -> Option<LongPrompt> {
    node.value()?;
    let above = node.key("above");
    above.require("the tokens of input above which these rates hold for the whole request");
    Some(LongPrompt { above: above.count(1, MOST).unwrap_or(1), rates: rates(node) })
}

/// The private URL ends in `target_path`: without a route below it, a client that uses the URL reaches nothing.
fn reachable(node: &Node<'_>, rule: &GatewayRule) {
    let prefix = format!("{}/", rule.target_path);
    if !rule.routes.is_empty() && !rule.routes.iter().any(|route| route.path.starts_with(&prefix)) {
        node.key("target_path").refuse(
            format!("found {:?}, and no route lies below it", rule.target_path),
            "the part that the SDK's base URL has and its requests repeat, such as \"/v1\" for \"POST /v1/responses\"",
        );
    }
}

/// A budget in USD needs a price for whatever may be asked for, the models that a glob will allow tomorrow included.
fn priced(node: &Node<'_>, rule: &GatewayRule) {
    if rule.limits.cost_usd.is_none() {
        return;
    }
    for model in &rule.models {
        if !rule.prices.keys().any(|price| glob::covers(price, model)) {
            node.key("limits").key("cost_usd").refuse(
                format!("the allowed model {model:?} has no price that covers it"),
                format!("a price for {model:?} itself or for a wider glob, or models that have one"),
            );
        }
    }
}
