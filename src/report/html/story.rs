//! The story of a trial as data for the page's script: words that are neutral already, bounded, in time order. Terminal
//! and page say the same, by the same words; here they are in pieces, so that the page can set them apart.

use crate::report::text::{plural, safe, safe_lines};
use crate::report::words::{self, Answer};
use crate::results::story::{Change, Kind, Story, changes};
use serde_json::{Value, json};

/// At most so many events, changes, and characters of a text; `--raw` has everything.
const EVENTS: usize = 400;
const CHANGES: usize = 200;
const CHARACTERS: usize = 20_000;
/// Of the world's changes by one operation.
const CHANGES_OF_ONE: usize = 12;

/// A story as the script reads it. `command` shows the same on a terminal.
pub(super) fn data(story: &Story, command: &str) -> Value {
    let events = story.events();
    let more = events.len().saturating_sub(EVENTS);
    let shown: Vec<Value> = events.iter().take(EVENTS).map(|event| {
        let (kind, tone, title, notes) = match event.kind {
            Kind::Model(line) => model(line),
            Kind::Operation(line) => operation(line),
        };
        json!({"at": event.at_ms, "took": event.duration_ms, "kind": kind, "tone": tone, "title": title, "notes": notes})
    }).collect();
    let (changed, more_changes) = world(story);
    json!({
        "command": command, "checks": checks(story), "notes": notes(story),
        "length": story.length_ms(), "events": shown, "more_events": more,
        "changes": changed, "more_changes": more_changes, "texts": texts(story),
    })
}

/// In the place of a story whose files cannot be read.
pub(super) fn unreadable(error: &anyhow::Error, command: &str) -> Value {
    let words = cut(&safe(&format!("{error:#}")));
    json!({
        "command": command, "checks": [], "notes": [["bad", words]], "length": 0, "events": [], "more_events": 0,
        "changes": null, "more_changes": 0, "texts": [],
    })
}

fn texts(story: &Story) -> Vec<Value> {
    let texts =
        [("Answer", &story.stdout), ("Standard error", &story.stderr), ("Evaluation log", &story.evaluation_log)];
    texts.into_iter().filter_map(|(heading, text)| Some(json!([heading, bounded(text.as_deref()?)]))).collect()
}

/// Kind, tone, title, and lines with a tone each.
type Line = (&'static str, &'static str, String, Vec<(&'static str, String)>);

fn torn(kind: &'static str, text: &str) -> Line {
    (kind, "doubt", cut(&format!("a line that is no JSON: {}", safe(text))), Vec::new())
}

fn model(line: &Value) -> Line {
    if let Value::String(text) = line {
        return torn("model", text);
    }
    let tone = if words::is_complete(line) { "" } else { "bad" };
    let title =
        words::model(line).map_or_else(|| words::gateway(line), |model| format!("{}: {model}", words::gateway(line)));
    let call = format!("{}: {}", words::route(line), words::model_end(line));
    let note = match words::refusal(line) {
        Some(refusal) => ("bad", refusal),
        None => ("faint", words::usage_words(line)),
    };
    ("model", tone, cut(&title), vec![("faint", cut(&call)), (note.0, cut(&note.1))])
}

fn operation(line: &Value) -> Line {
    if let Value::String(text) = line {
        return torn("operation", text);
    }
    let arguments = line.get("arguments").map(|arguments| ("", words::one_line(arguments)));
    let answers = words::answers(line);
    let tone = match answers.last().map(|(answer, _)| *answer) {
        Some(Answer::Error) => "bad",
        Some(Answer::Refused) => "doubt",
        _ => "",
    };
    let answers = answers.into_iter().map(|(answer, text)| {
        let tone = match answer {
            Answer::Result => "faint",
            Answer::Refused => "doubt",
            Answer::Error => "bad",
        };
        (tone, text)
    });
    let changed = line.get("world_diff").map(|diff| changes(diff, None)).unwrap_or_default();
    let changed =
        changed.iter().take(CHANGES_OF_ONE).map(|change| ("good", format!("world {}", words::change_words(change))));
    let notes = arguments.into_iter().chain(answers).chain(changed).map(|(tone, text)| (tone, cut(&text))).collect();
    ("operation", tone, cut(&words::operation(line)), notes)
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

/// The changes from the first world to the last, and how many are left out; null where the end is not known.
fn world(story: &Story) -> (Value, usize) {
    let Some(diff) = &story.world_diff else { return (Value::Null, 0) };
    let changes = changes(diff, story.world_before.as_ref());
    let shown: Vec<Value> = changes.iter().take(CHANGES).map(change).collect();
    (Value::Array(shown), changes.len().saturating_sub(CHANGES))
}

fn change(change: &Change) -> Value {
    let (tone, sign) = match (&change.before, &change.after) {
        (None, Some(_)) => ("good", "+"),
        (_, None) => ("bad", "-"),
        (Some(_), Some(_)) => ("doubt", "~"),
    };
    let words = |value: &Option<Value>| value.as_ref().map(|value| cut(&words::one_line(value)));
    let (before, after) = (words(&change.before), words(&change.after));
    json!({"tone": tone, "sign": sign, "path": cut(&words::place(change)), "before": before, "after": after})
}

/// What did not pass first.
fn checks(story: &Story) -> Vec<Value> {
    let line = |check: &crate::verdict::Check| {
        let (sign, tone) = if check.passed { ("✓", "good") } else { ("✗", "bad") };
        let detail = check.detail.as_deref().map_or_else(String::new, |detail| format!(": {}", safe(detail)));
        json!([tone, cut(&format!("{sign} {}{detail}", safe(&check.name)))])
    };
    let (passed, failed): (Vec<_>, Vec<_>) = story.trial.checks.iter().partition(|check| check.passed);
    failed.into_iter().chain(passed).map(line).collect()
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
