//! The story of one trial in time order: start, model calls, operations with arguments and results, world changes, answer,
//! checks, logs. Bounded: long texts end with how much more there is and where.

use crate::report::human::{outcome_words, tokens, tone};
use crate::report::look::{Look, Tone};
use crate::report::text::{count, duration, money, plural, safe, safe_lines, wrap};
use crate::report::words::{self, Answer, change_words, usage_words};
use crate::results::story::{Event, Kind, Story, changes};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::io::Write;

/// Lines of a log, and of one JSON value, that are shown.
const LOG_LINES: usize = 200;
const VALUE_LINES: usize = 12;
/// Where the text beside a time begins.
const INDENT: usize = 12;

/// Writes the story of a trial.
///
/// # Errors
/// The sink's.
pub fn story(story: &Story, look: &Look, out: &mut dyn Write) -> Result<()> {
    let mut page = Page { look, lines: Vec::new() };
    page.head(story);
    // Not run, or something failed before it could start.
    if story.events().is_empty() && story.trial.started.is_none() && story.trial.stop.is_none() {
        return page.write(out);
    }
    page.timeline(story);
    page.world(story);
    page.text("answer", story.stdout.as_deref());
    page.checks(story);
    page.text("standard error", story.stderr.as_deref());
    page.text("evaluation log", story.evaluation_log.as_deref());
    page.write(out)
}

struct Page<'a> {
    look: &'a Look,
    lines: Vec<String>,
}

impl Page<'_> {
    fn write(&self, out: &mut dyn Write) -> Result<()> {
        self.lines.iter().try_for_each(|line| writeln!(out, "{}", line.trim_end())).context("failed to write")
    }

    fn push(&mut self, tone: Tone, indent: usize, text: &str) {
        for line in wrap(text, self.look.width.saturating_sub(indent)) {
            self.lines.push(format!("{}{}", " ".repeat(indent), self.look.paint(tone, &line)));
        }
    }

    fn heading(&mut self, text: &str) {
        self.lines.push(String::new());
        self.push(Tone::Strong, 0, text);
    }

    fn head(&mut self, story: &Story) {
        let trial = &story.trial;
        let outcome = self.look.paint(tone(trial.outcome), &outcome_words(trial));
        let name = self.look.paint(Tone::Strong, &safe(&trial.trial));
        self.lines.push(format!("{name}  {outcome}"));
        let mut facts: Vec<String> = Vec::new();
        facts.extend(trial.started.as_deref().map(|at| format!("started {}", safe(at))));
        facts.extend(trial.duration_ms.map(duration));
        let usage = &trial.usage;
        if usage.requests + usage.refused > 0 {
            facts.push(plural(usage.requests, "request"));
            facts.push(format!("{} tokens", count(tokens(usage))));
            facts.push(money(usage.cost_usd));
        }
        if trial.attempt > 1 {
            let earlier = plural(u64::from(trial.attempt - 1), "earlier attempt");
            facts.push(format!("attempt {} ({earlier} kept: --raw)", trial.attempt));
        }
        if !facts.is_empty() {
            self.push(Tone::Faint, 0, &facts.join(", "));
        }
        for line in trial.diagnostics.iter().flat_map(|words| safe_lines(&format!("! {words}"))) {
            self.push(Tone::Doubt, 0, &line);
        }
    }

    fn timeline(&mut self, story: &Story) {
        self.heading("what happened");
        let events = story.events();
        if story.trial.started.is_some() {
            self.at(Some(0), Tone::Plain, "start");
        }
        for event in &events {
            match event.kind {
                Kind::Model(line) => self.model(event, line),
                Kind::Operation(line) => self.operation(event, line),
            }
        }
        for fault in &story.trial.faults {
            self.push(Tone::Doubt, INDENT, &words::fault(fault));
        }
        if let Some(stop) = story.trial.stop {
            let clean = stop.reason == crate::verdict::StopReason::Exited && stop.code == Some(0);
            self.at(story.trial.duration_ms, if clean { Tone::Plain } else { Tone::Bad }, &format!("stopped: {stop}"));
        }
    }

    /// A line with its time before it.
    fn at(&mut self, at_ms: Option<u64>, tone: Tone, text: &str) {
        let time = at_ms.map_or_else(|| "?".to_owned(), |at| format!("+{}", duration(at)));
        let first = self.lines.len();
        self.push(tone, INDENT, text);
        if let Some(line) = self.lines.get_mut(first) {
            let rest = line.get(INDENT..).unwrap_or_default().to_owned();
            *line = format!("{}{rest}", self.look.paint(Tone::Faint, &format!("{time:<INDENT$}")));
        }
    }

    fn model(&mut self, event: &Event<'_>, line: &Value) {
        if let Value::String(torn) = line {
            return self.at(None, Tone::Doubt, &format!("a line that is no JSON: {}", safe(torn)));
        }
        let tone = if words::is_complete(line) { Tone::Plain } else { Tone::Bad };
        self.at(event.at_ms, tone, &words::model_call(line));
        if let Some(refusal) = words::refusal(line) {
            return self.push(Tone::Bad, INDENT + 2, &refusal);
        }
        self.push(Tone::Faint, INDENT + 2, &usage_words(line));
    }

    fn operation(&mut self, event: &Event<'_>, line: &Value) {
        if let Value::String(torn) = line {
            return self.at(None, Tone::Doubt, &format!("a line that is no JSON: {}", safe(torn)));
        }
        self.bounded(Some(event.at_ms), Tone::Plain, &words::operation_call(line));
        for (answer, text) in words::answers(line) {
            let tone = match answer {
                Answer::Result => Tone::Good,
                Answer::Refused => Tone::Doubt,
                Answer::Error => Tone::Bad,
            };
            self.bounded(None, tone, &text);
        }
        let changed = line.get("world_diff").map(|diff| changes(diff, None)).unwrap_or_default();
        for change in changed.iter().take(VALUE_LINES) {
            self.bounded(None, Tone::Faint, &format!("world {}", change_words(change)));
        }
    }

    /// A text of a few lines at most; what is left out can be seen.
    fn bounded(&mut self, at: Option<Option<u64>>, tone: Tone, text: &str) {
        let indent = if at.is_some() { INDENT } else { INDENT + 2 };
        let lines = wrap(text, self.look.width.saturating_sub(indent + 2));
        let cut = lines.len() > VALUE_LINES;
        let mut text = lines.into_iter().take(VALUE_LINES).collect::<Vec<_>>().join(" ");
        if cut {
            text.push_str(" …");
        }
        match at {
            Some(at) => self.at(at, tone, &text),
            None => self.push(tone, indent, &text),
        }
    }

    fn world(&mut self, story: &Story) {
        let Some(diff) = &story.world_diff else { return };
        self.heading("world");
        let changes = changes(diff, story.world_before.as_ref());
        if changes.is_empty() {
            self.push(Tone::Plain, 2, "unchanged");
        }
        for change in changes.iter().take(LOG_LINES) {
            let tone = match (&change.before, &change.after) {
                (None, _) => Tone::Good,
                (_, None) => Tone::Bad,
                _ => Tone::Doubt,
            };
            self.push(tone, 2, &change_words(change));
        }
        self.more(changes.len(), "more change");
    }

    fn more(&mut self, all: usize, words: &str) {
        if all > LOG_LINES {
            let more = plural((all - LOG_LINES) as u64, words);
            self.push(Tone::Faint, 2, &format!("… {more}: --raw has everything"));
        }
    }

    fn text(&mut self, heading: &str, text: Option<&str>) {
        let Some(text) = text else { return };
        self.heading(heading);
        if text.is_empty() {
            return self.push(Tone::Faint, 2, "(nothing)");
        }
        let lines = safe_lines(text);
        for line in lines.iter().take(LOG_LINES) {
            self.push(Tone::Plain, 2, line);
        }
        self.more(lines.len(), "more line");
    }

    fn checks(&mut self, story: &Story) {
        self.heading("checks");
        if story.trial.checks.is_empty() {
            self.push(Tone::Faint, 2, "(none)");
        }
        for check in &story.trial.checks {
            let (sign, tone) = if check.passed { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
            let detail = check.detail.as_deref().map_or_else(String::new, |detail| format!(": {}", safe(detail)));
            self.push(tone, 2, &format!("{sign} {}{detail}", safe(&check.name)));
        }
    }
}
