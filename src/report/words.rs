//! Words that terminal, Markdown and page share, so that they say the same: for a comparison, and for the evidence of a
//! trial. Foreign text comes out safe.

use crate::ids::CaseId;
use crate::report::text::{count, duration, money, safe};
use crate::results::compare::{CaseChange, Change, Comparison, Winner};
use crate::results::record::FaultRecord;
use crate::results::story;
use serde_json::Value;

/// `CASE`, under a drill `CASE@DRILL`. Not safe yet.
pub(crate) fn case(case: &CaseId, drill: Option<&str>) -> String {
    drill.map_or_else(|| case.to_string(), |drill| format!("{case}@{drill}"))
}

/// What a case came to.
pub(crate) fn change(change: Change) -> &'static str {
    match change {
        Change::Regressed => "regressed",
        Change::Improved => "improved",
        Change::NotDistinguishable => "not distinguishable",
        Change::NotMeasured => "not measured",
    }
}

/// A p-value.
pub(crate) fn p(p: Option<f64>) -> String {
    match p {
        None => "–".to_owned(),
        Some(p) if p < 0.0005 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// pass^k and pass@k of both sides for the largest k that both have: `k=3: 30→100 %`.
pub(crate) fn passes(case: &CaseChange) -> (Option<String>, Option<String>) {
    let of = |k: u64| case.candidate.passes.iter().find(|passes| passes.k == k);
    let both = case.base.passes.iter().rev().find_map(|base| Some((base, of(base.k)?)));
    let text = |k: u64, base: f64, candidate: f64| format!("k={k}: {:.0}→{:.0} %", base * 100.0, candidate * 100.0);
    let all = both.map(|(base, candidate)| text(base.k, base.all, candidate.all));
    (all, both.map(|(base, candidate)| text(base.k, base.any, candidate.any)))
}

/// What the comparison says as a whole.
pub(crate) fn verdict(comparison: &Comparison) -> String {
    let counts = [
        (comparison.count(Change::Regressed), "regressed"),
        (comparison.count(Change::Improved), "improved"),
        (comparison.count(Change::NotDistinguishable), "not distinguishable"),
        (comparison.count(Change::NotMeasured), "not measured"),
    ];
    let counts: Vec<String> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}")).collect();
    let cases =
        if counts.is_empty() { "no case in common".to_owned() } else { format!("cases: {}", counts.join(", ")) };
    let winner = match comparison.winner {
        Winner::Base => "the candidate is worse",
        Winner::Candidate => "the candidate is better",
        Winner::Mixed => "the candidate is better in some cases and worse in others",
        Winner::NotDistinguishable => "the two cannot be told apart",
        Winner::UnequalSets => "no winner is named, since the two did not measure the same trials",
    };
    format!("{cases} (exact tests, Holm, level 0.05); {winner}")
}

fn text<'a>(line: &'a Value, key: &str) -> Option<std::borrow::Cow<'a, str>> {
    line.get(key).and_then(Value::as_str).map(safe)
}

/// A fault that a drill injected.
pub(crate) fn fault(fault: &FaultRecord) -> String {
    let route = fault.route.as_deref().map_or_else(String::new, |route| format!(" {}", safe(route)));
    format!("injected: {} on {}{route}, call {}", safe(&fault.kind), safe(&fault.on), fault.call)
}

/// Whether a model call came to its end.
pub(crate) fn is_complete(line: &Value) -> bool {
    line.get("end").and_then(Value::as_str) == Some("complete")
}

/// A line of `gateway.jsonl`.
pub(crate) fn model_call(line: &Value) -> String {
    let model = model(line).map_or_else(String::new, |model| format!(", {model}"));
    format!("model call at {}: {}{model}: {}", gateway(line), route(line), model_end(line))
}

/// The gateway of a model call, safe.
pub(crate) fn gateway(line: &Value) -> String {
    text(line, "gateway").unwrap_or("?".into()).into_owned()
}

/// What was asked for: method and path, safe.
pub(crate) fn route(line: &Value) -> String {
    text(line, "route").or_else(|| text(line, "method")).unwrap_or("a request".into()).into_owned()
}

/// The model of a call, safe; where another one served it, both.
pub(crate) fn model(line: &Value) -> Option<String> {
    match (text(line, "model"), text(line, "served")) {
        (Some(asked), Some(served)) if asked != served => Some(format!("{asked} (served {served})")),
        (Some(model), _) | (None, Some(model)) => Some(model.into_owned()),
        (None, None) => None,
    }
}

/// Status, end and time of a model call.
pub(crate) fn model_end(line: &Value) -> String {
    let status = line.get("status").and_then(Value::as_u64).map_or_else(|| "no answer".to_owned(), |s| s.to_string());
    let end = text(line, "end").unwrap_or("?".into());
    let took = line.get("duration_ms").and_then(Value::as_u64);
    let took = took.map_or_else(String::new, |took| format!(", {}", duration(took)));
    format!("{status}, {end}{took}")
}

/// Which limit refused a model call.
pub(crate) fn refusal(line: &Value) -> Option<String> {
    let refusal = line.get("refusal").filter(|refusal| !refusal.is_null())?;
    let of = |key: &str| text(refusal, key).unwrap_or("?".into());
    Some(format!("refused by {} ({})", of("limit"), of("code")))
}

/// A line of `operations.jsonl`: name and arguments.
pub(crate) fn operation_call(line: &Value) -> String {
    let arguments = line.get("arguments").map_or_else(String::new, |value| format!(" {}", one_line(value)));
    format!("{}{arguments}", operation(line))
}

/// The operation of a call, and by what it was called where that is not plain HTTP; safe.
pub(crate) fn operation(line: &Value) -> String {
    let name = text(line, "operation").unwrap_or("?".into());
    let via = text(line, "via").filter(|via| via != "http").map_or_else(String::new, |via| format!(" (via {via})"));
    format!("{name}{via}")
}

/// How an operation answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Result,
    Refused,
    Error,
}

/// What an operation answered.
pub(crate) fn answers(line: &Value) -> Vec<(Answer, String)> {
    let kinds =
        [("result", Answer::Result, "→"), ("refused", Answer::Refused, "refused"), ("error", Answer::Error, "error")];
    let there = |key: &str, answer| line.get(key).filter(|value| answer == Answer::Result || !value.is_null());
    let one = |(key, answer, words)| Some((answer, format!("{words} {}", answer_words(there(key, answer)?))));
    kinds.into_iter().filter_map(one).collect()
}

/// A JSON value on one safe line.
pub(crate) fn one_line(value: &Value) -> String {
    safe(&value.to_string()).into_owned()
}

/// `{code, message}` as words, anything else as JSON.
fn answer_words(value: &Value) -> String {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(safe);
    match (text("code"), text("message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => one_line(value),
    }
}

/// What a model call used.
pub(crate) fn usage_words(line: &Value) -> String {
    let usage = line.get("usage").filter(|usage| usage.is_object());
    let Some(usage) = usage else {
        let why = line.get("unknown").and_then(Value::as_str).map_or("usage unknown".into(), safe);
        return why.into_owned();
    };
    let tokens = |key: &str| count(usage.get(key).and_then(Value::as_u64));
    let cost = money(line.get("cost_usd").and_then(Value::as_f64));
    format!("{} input ({} cached), {} output tokens, {cost}", tokens("input"), tokens("cached_input"), tokens("output"))
}

/// The place of a change, safe.
pub(crate) fn place(change: &story::Change) -> std::borrow::Cow<'_, str> {
    if change.path.is_empty() { "(whole)".into() } else { safe(&change.path) }
}

/// A changed place of a world.
pub(crate) fn change_words(change: &story::Change) -> String {
    let path = place(change);
    match (&change.before, &change.after) {
        (None, Some(after)) => format!("+ {path}: {}", one_line(after)),
        (Some(before), None) => format!("- {path}: {}", one_line(before)),
        (Some(before), Some(after)) => format!("~ {path}: {} → {}", one_line(before), one_line(after)),
        (None, None) => format!("- {path}"),
    }
}
