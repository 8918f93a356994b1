//! Which provider requests go on: method, path, query, headers, body, model, grants and budgets, in this one place and on
//! one reading of the request. Owns the refusals' words; opens no connection and writes no answer.
//!
//! Invariant: every byte that goes to a provider was judged here, and nothing is judged that is not what goes there.

use super::budget::{Estimate, Hold};
use super::exchange::{Admitted, Asked, Denied, Life};
use super::trial::Provider;
use super::{GatewayPlan, dialect, grants, price};
use crate::json;
use crate::policy::{GatewayRule, Route};
use crate::relay::framing::{Body, Head};
use globset::GlobMatcher;
use serde_json::Value;
use std::time::Instant;

/// What a request line and its headers ask for, judged before the body is read.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) route: Route,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: Vec<(String, String)>,
}

/// Judges the head: nothing of the body has been read.
pub(super) fn line(plan: &GatewayPlan, head: &Head) -> Result<Line, Denied> {
    let (path, query) = split(&head.target);
    normalized(path).map_err(|why| misplaced(plan, head, path, why))?;
    let route = route(&plan.rule, &head.method, path).ok_or_else(|| unknown(plan, head, path))?;
    if let Some(query) = query {
        declared_query(route, query)?;
    }
    body_headers(head)?;
    declared_length(&plan.rule, head)?;
    let forwardable = dialect::forwardable(plan.rule.dialect);
    let headers = forwardable.iter().filter_map(|name| Some(((*name).to_owned(), head.header(name)?.to_owned())));
    let headers = headers.collect();
    Ok(Line { route: route.clone(), path: path.to_owned(), query: query.map(str::to_owned), headers })
}

/// Judges the body and reserves. `asked` is filled as far as the reading came, for the evidence of a refusal.
pub(super) fn request(
    trial: &super::trial::ProviderDoor,
    line: Line,
    head: &Head,
    bytes: &[u8],
    asked: &mut Asked,
    life: &Life,
) -> Result<(Admitted, Hold), Denied> {
    let rule = &trial.plan.rule;
    let mut body = body(head, bytes)?;
    *asked = dialect::asked(rule.dialect, &line.route, &line.path, body.as_mut())?;
    for model in asked.model.iter().chain(&asked.others) {
        allowed_model(&trial.plan.models, &rule.models, model)?;
    }
    grants::check(rule.dialect, &line.route, &line.path, body.as_mut(), &rule.grants)?;
    let estimate = Estimate { request_bytes: bytes.len() as u64, max_output: asked.max_output };
    let hold = trial.budget.reserve(estimate, |input, output| {
        let usage = super::Usage { input, output, ..super::Usage::default() };
        let cost = asked.model.as_ref().map_or(Some(0.0), |model| price::cost(&rule.prices, model, &usage));
        // A script costs nobody anything: where it has no price, a limit on money does not stop it.
        cost.or(matches!(trial.plan.provider, Provider::Script(_)).then_some(0.0))
    })?;
    let admitted = Admitted {
        gateway: trial.plan.name.clone(),
        case: trial.case.clone(),
        method: head.method.clone(),
        route: line.route,
        path: line.path,
        query: line.query,
        headers: line.headers,
        bytes: body.as_ref().map(|body| body.to_string().into_bytes()).unwrap_or_default(),
        body,
        asked: asked.clone(),
        deadline: rule.limits.request_time.map(|time| Instant::now() + time),
        life: life.clone(),
    };
    Ok((admitted, hold))
}

/// The body was larger than the policy allows.
pub(super) fn too_large(limit: u64) -> Denied {
    let message = format!("the body of a request may have {limit} bytes at most");
    Denied::new("request_size", "crashlab_request_too_large", message).status(413)
}

/// Whether a request's line fits a declared route.
pub(super) fn is_route(rule: &GatewayRule, head: &Head) -> bool {
    route(rule, &head.method, split(&head.target).0).is_some()
}

fn split(target: &str) -> (&str, Option<&str>) {
    target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)))
}

/// Nothing that another reader might change: encodings, dot segments, empty segments, parameters, a whole URL.
fn normalized(path: &str) -> Result<(), &'static str> {
    let Some(segments) = path.strip_prefix('/') else { return Err("it does not start with a slash") };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@$+,/".contains(&byte);
    if path.contains("//") {
        return Err("it has an empty segment");
    }
    if segments.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Err("it has a dot segment");
    }
    match path.bytes().find(|byte| !plain(*byte)) {
        Some(b'%') => Err("it has a percent-encoding"),
        Some(_) => Err("it has a character that is not compared as it is"),
        None => Ok(()),
    }
}

fn route<'a>(rule: &'a GatewayRule, method: &str, path: &str) -> Option<&'a Route> {
    rule.routes.iter().find(|route| route.method == method && fits(&route.path, path))
}

/// Whether a declared path fits: byte by byte, `{model}` being one segment, or its part before a colon.
fn fits(declared: &str, path: &str) -> bool {
    let Some((before, after)) = declared.split_once("{model}") else { return declared == path };
    let model = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    let hidden: &[char] = if after.starts_with(':') { &['/', ':'] } else { &['/'] };
    model.is_some_and(|model| !model.is_empty() && !model.contains(hidden))
}

fn misplaced(plan: &GatewayPlan, head: &Head, path: &str, why: &str) -> Denied {
    let advice = if path.contains("//") && path.starts_with('/') {
        base_url_advice(&plan.rule.target_path)
    } else {
        format!("declared: {}", routes(&plan.rule))
    };
    let message = format!("received {} {}, which is not taken as it is: {why}; {advice}", head.method, shown(path));
    Denied::new("path", "crashlab_path_not_allowed", message)
}

/// Says what was received and what would do: a base URL that was joined wrongly is the likeliest cause (field case C1).
fn unknown(plan: &GatewayPlan, head: &Head, path: &str) -> Denied {
    let rule = &plan.rule;
    let received = format!("received {} {}", head.method, shown(path));
    let prefix = &rule.target_path;
    let would_fit = |path: &str| rule.routes.iter().any(|route| fits(&route.path, path));
    if would_fit(path) {
        let message = format!("{received}: the path is declared for another method; declared: {}", routes(rule));
        return Denied::new("method", "crashlab_method_not_allowed", message);
    }
    let advice = base_url_advice(prefix);
    if !prefix.is_empty() {
        let doubled = path.strip_prefix(prefix.as_str()).filter(|rest| rest.starts_with(&format!("{prefix}/")));
        if doubled.is_some_and(would_fit) {
            let message = format!("{received}: {prefix} is there twice; {advice}");
            return Denied::new("path", "crashlab_path_not_allowed", message);
        }
        if would_fit(&format!("{prefix}{path}")) {
            let message = format!("{received}: {prefix} is missing; {advice}");
            return Denied::new("path", "crashlab_path_not_allowed", message);
        }
    }
    if path.len() > 1 && would_fit(path.trim_end_matches('/')) {
        let message = format!("{received}: there is a slash too many at its end");
        return Denied::new("path", "crashlab_path_not_allowed", message);
    }
    Denied::new("path", "crashlab_path_not_allowed", format!("{received}; declared: {}", routes(rule)))
}

fn base_url_advice(target_path: &str) -> String {
    format!("the base URL must be the gateway's address followed by {target_path:?}, without a slash at its end")
}

fn routes(rule: &GatewayRule) -> String {
    rule.routes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The beginning of a path that a target sent: it is answered to the target alone.
fn shown(path: &str) -> &str {
    path.get(..200).unwrap_or(path)
}

fn declared_query(route: &Route, query: &str) -> Result<(), Denied> {
    let mut seen: Vec<&str> = Vec::new();
    for pair in query.split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:@$,/".contains(&byte);
        if !route.query.iter().any(|declared| declared == key) {
            let message = format!("the query key {:?} is not declared for {route}", shown(key));
            return Err(Denied::new("query", "crashlab_query_not_allowed", message));
        }
        if seen.contains(&key) || !value.bytes().all(plain) {
            let message = format!("the query key {key:?} comes twice, or its value is not plain");
            return Err(Denied::new("query", "crashlab_query_not_allowed", message));
        }
        seen.push(key);
    }
    Ok(())
}

/// A body is JSON in UTF-8, without a coding on top of it that would hide what it says.
fn body_headers(head: &Head) -> Result<(), Denied> {
    let denied = |message: &str| Err(Denied::new("body", "crashlab_body_not_allowed", message));
    let count = |name: &str| head.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).count();
    if head.header("content-encoding").is_some_and(|coding| !coding.eq_ignore_ascii_case("identity")) {
        return denied("a body with a Content-Encoding cannot be judged: send it as it is");
    }
    if count("content-type") > 1 || count("content-encoding") > 1 {
        return denied("one Content-Type and one Content-Encoding are enough");
    }
    if head.body == Body::None {
        return Ok(());
    }
    let kind = head.header("content-type").unwrap_or("application/json").to_ascii_lowercase();
    let mut parts = kind.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    let is_utf8 = parts.all(|part| matches!(part, "" | "charset=utf-8" | "charset=\"utf-8\""));
    if is_json && is_utf8 { Ok(()) } else { denied("only application/json in UTF-8 is taken") }
}

/// A declared length over the limit is refused without reading any of it.
fn declared_length(rule: &GatewayRule, head: &Head) -> Result<(), Denied> {
    match head.body {
        Body::Length(length) if length > rule.limits.request_size => Err(too_large(rule.limits.request_size)),
        _ => Ok(()),
    }
}

fn body(head: &Head, bytes: &[u8]) -> Result<Option<Value>, Denied> {
    let denied = |message: String| Err(Denied::new("body", "crashlab_body_not_allowed", message));
    if head.method == "GET" || head.method == "DELETE" {
        return if bytes.is_empty() { Ok(None) } else { denied(format!("a {} has no body", head.method)) };
    }
    match json::parse(bytes) {
        Ok(value @ Value::Object(_)) => Ok(Some(value)),
        Ok(_) => denied("the body must be a JSON object".to_owned()),
        // The position only: serde_json's words can hold a piece of the prompt.
        Err(error) => {
            let place = format!("line {} column {}", error.line(), error.column());
            denied(format!("the body is no JSON that has one reading ({place}): equal keys are refused"))
        }
    }
}

fn allowed_model(globs: &[GlobMatcher], written: &[String], model: &str) -> Result<(), Denied> {
    if globs.iter().any(|glob| glob.is_match(model)) {
        return Ok(());
    }
    let message = format!("the model {:?} is not allowed; allowed: {}", shown(model), written.join(", "));
    Err(Denied::new("model", "crashlab_model_not_allowed", message))
}
