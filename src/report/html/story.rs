//! The story of a trial as data for the page's script: words that are neutral already, bounded, in time order.

use crate::report::text::{plural, safe, safe_lines};
use crate::report::words::{self, Answer};
use crate::results::story::{Kind, Story, changes};
use serde_json::{Value, json};

/// At most so many events, changes, and characters of a text; `--raw` has everything.
const EVENTS: usize = 400;
const CHANGES: usize = 200;
const CHARACTERS: usize = 20_000;

/// A story as the script reads it.
pub(super) fn data(story: &Story) -> Value {
    let events = story.events();
    let more = events.len().saturating_sub(EVENTS);
    let shown: Vec<Value> = events.iter().take(EVENTS).map(|event| {
        let (kind, tone, title, notes) = match event.kind {
            Kind::Model(line) => model(line),
            Kind::Operation(line) => operation(line),
        };
        json!({"at": event.at_ms, "took": event.duration_ms, "kind": kind, "tone": tone, "title": title, "notes": notes})
    }).collect();
    let texts =
        [("Answer", &story.stdout), ("Standard error", &story.stderr), ("Evaluation log", &story.evaluation_log)];
    let texts: Vec<Value> =
        texts.into_iter().filter_map(|(heading, text)| Some(json!([heading, bounded(text.as_deref()?)]))).collect();
    json!({
        "length": story.length_ms(), "events": shown, "more_events": more,
        "notes": notes(story), "changes": world(story), "checks": checks(story), "texts": texts,
    })
}

/// In the place of a story whose files cannot be read.
pub(super) fn unreadable(error: &anyhow::Error) -> Value {
    let words = cut(&safe(&format!("{error:#}")));
    json!({"length": 0, "events": [], "more_events": 0, "notes": [["bad", words]], "changes": [], "checks": [], "texts": []})
}

type Line = (&'static str, &'static str, String, Vec<String>);

fn model(line: &Value) -> Line {
    if let Value::String(torn) = line {
        return ("model", "doubt", cut(&format!("a line that is no JSON: {}", safe(torn))), Vec::new());
    }
    let tone = if words::is_complete(line) { "" } else { "bad" };
    let note = words::refusal(line).unwrap_or_else(|| words::usage_words(line));
    ("model", tone, words::model_call(line), vec![note])
}

fn operation(line: &Value) -> Line {
    if let Value::String(torn) = line {
        return ("operation", "doubt", cut(&format!("a line that is no JSON: {}", safe(torn))), Vec::new());
    }
    let answers = words::answers(line);
    let tone = match answers.last().map(|(answer, _)| *answer) {
        Some(Answer::Error) => "bad",
        Some(Answer::Refused) => "doubt",
        _ => "",
    };
    let changed = line.get("world_diff").map(|diff| changes(diff, None)).unwrap_or_default();
    let changed = changed.iter().take(12).map(|change| format!("world {}", words::change_words(change)));
    let notes = answers.into_iter().map(|(_, text)| text).chain(changed).map(|text| cut(&text)).collect();
    ("operation", tone, cut(&words::operation_call(line)), notes)
}

fn notes(story: &Story) -> Vec<Value> {
    let trial = &story.trial;
    let diagnostics = trial.diagnostics.iter().map(|words| json!(["doubt", cut(&safe(words))]));
    let faults = trial.faults.iter().map(|fault| json!(["doubt", words::fault(fault)]));
    let stop = trial.stop.map(|stop| json!(["", format!("stopped: {stop}")]));
    let earlier = u64::from(trial.attempt.saturating_sub(1));
    let earlier = (earlier > 0)
        .then(|| json!(["faint", format!("{} kept: crashlab view --raw", plural(earlier, "earlier attempt"))]));
    diagnostics.chain(faults).chain(stop).chain(earlier).collect()
}

fn world(story: &Story) -> Vec<Value> {
    let Some(diff) = &story.world_diff else { return Vec::new() };
    let changes = changes(diff, story.world_before.as_ref());
    if changes.is_empty() {
        return vec![json!(["faint", "unchanged"])];
    }
    let more = changes.len().saturating_sub(CHANGES);
    let line = |change: &crate::results::story::Change| {
        let tone = match (&change.before, &change.after) {
            (None, _) => "good",
            (_, None) => "bad",
            _ => "doubt",
        };
        json!([tone, cut(&words::change_words(change))])
    };
    let more = (more > 0).then(|| json!(["faint", format!("… {more} more: crashlab view --raw")]));
    changes.iter().take(CHANGES).map(line).chain(more).collect()
}

fn checks(story: &Story) -> Vec<Value> {
    let line = |check: &crate::verdict::Check| {
        let (sign, tone) = if check.passed { ("✓", "good") } else { ("✗", "bad") };
        let detail = check.detail.as_deref().map_or_else(String::new, |detail| format!(": {}", safe(detail)));
        json!([tone, cut(&format!("{sign} {}{detail}", safe(&check.name)))])
    };
    story.trial.checks.iter().map(line).collect()
}

fn bounded(text: &str) -> String {
    if text.is_empty() {
        return "(nothing)".to_owned();
    }
    cut(&safe_lines(text).join("\n"))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CHARACTERS) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}\n… more: crashlab view --raw", &text[..at]),
    }
}
