//! A run at a glance: what it was, rates by case with what was not measured, case ×
//! drill where there are drills, the trials that want looking at and why, what
//! it cost, what became of its resources. Short whatever the number of trials.

use crate::report::human::{outcome_words, run_tone, tokens, tone};
use crate::report::look::{Look, Tone};
use crate::report::table::{Cell, Column, Table};
use crate::report::text::{count, duration, fit, money, percent, plural, safe, safe_lines, width, wrap};
use crate::results::matrix::Matrix;
use crate::results::record::{CaseRecord, Kept, RunRecord, TrialRecord};
use crate::results::story::moment;
use crate::verdict::Outcome;
use anyhow::{Context as _, Result};
use camino::Utf8Path;
use std::io::Write;

/// Up to so many trials are all shown; of more, those that did not pass.
const FEW: usize = 12;
/// Lines of one diagnostic.
const DIAGNOSTIC: usize = 7;
/// Of the trials that are shown, at most so many.
const MOST: usize = 40;

/// Writes a run at a glance; `path` is its folder.
///
/// # Errors
/// The sink's.
pub fn run(record: &RunRecord, path: &Utf8Path, look: &Look, out: &mut dyn Write) -> Result<()> {
    let mut lines = head(record, look);
    lines.push(String::new());
    write_lines(&lines, out)?;
    let matrix = Matrix::of(&record.cases);
    if let Some(matrix) = &matrix {
        super::matrix::matrix(matrix, look, out)?;
    }
    // Beside a matrix a line for each case and drill that passed would only say the same once more.
    let is_news = |case: &&CaseRecord| matrix.is_none() || case.failed > 0 || case.counts().unmeasured() > 0;
    let news: Vec<&CaseRecord> = record.cases.iter().filter(is_news).collect();
    if !news.is_empty() {
        cases(&news).write(look, out)?;
        writeln!(out).context("failed to write")?;
    }
    trials(record, look, out)?;
    write_lines(&foot(record, path, look), out)
}

fn write_lines(lines: &[String], out: &mut dyn Write) -> Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{}", line.trim_end())).context("failed to write")
}

fn head(record: &RunRecord, look: &Look) -> Vec<String> {
    let exit = record.exit.map_or_else(String::new, |exit| format!(" (exit {exit})"));
    let outcome = look.paint(run_tone(record.outcome), record.outcome.as_str());
    // Id, outcome and exit take the rest of the line.
    let name = look.paint(Tone::Strong, &fit(&safe(&record.evaluation.name), look.width.saturating_sub(50).max(12)));
    let mut lines = vec![format!("{name}  {}  {outcome}{exit}", record.run)];
    lines.extend(facts(record).into_iter().flat_map(|(label, text)| labelled(label, &text, look)));
    lines
}

/// What was tried, where, by which package; only what is known.
fn facts(record: &RunRecord) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(target) = &record.target {
        let commit = target.commit.as_deref().map(|commit| format!(" at {}", safe(&short(commit, 12))));
        let dirty = if target.dirty == Some(true) { " (changed)" } else { "" };
        let files = plural(target.files, "file");
        let snapshot = short(target.snapshot.hex(), 12);
        let text =
            format!("{}{}{dirty}, snapshot {snapshot}, {files}", safe(&target.source), commit.unwrap_or_default());
        facts.push(("target", text));
    }
    let evaluation = &record.evaluation;
    let lock = if evaluation.reproducible { "" } else { ", not reproducible: no dependency lock" };
    facts.push(("package", format!("{}{lock}", short(evaluation.digest.hex(), 12))));
    if let Some(engine) = &record.engine {
        let known = |text: &Option<String>| safe(text.as_deref().unwrap_or("?")).into_owned();
        facts.push((
            "engine",
            format!("{} on {}, {}", known(&engine.version), known(&engine.os), known(&engine.endpoint)),
        ));
    }
    facts.push(("started", started(record)));
    facts
}

fn started(record: &RunRecord) -> String {
    let took = match (moment(&record.started), record.finished.as_deref().and_then(moment)) {
        (Some(from), Some(to)) => format!(", took {}", duration(to.saturating_sub(from))),
        _ => String::new(),
    };
    let mut text = format!("{}{took}, {}", safe(&record.started), plural(u64::from(record.jobs), "job"));
    for (label, value) in [("tag", &record.tag), ("shard", &record.shard)] {
        if let Some(value) = value {
            text.push_str(&format!(", {label} {}", safe(value)));
        }
    }
    if let Some(seed) = record.seed {
        text.push_str(&format!(", seed {seed}"));
    }
    if record.resumed > 0 {
        text.push_str(&format!(", resumed {}", plural(u64::from(record.resumed), "time")));
    }
    if !record.merged_from.is_empty() {
        text.push_str(&format!(", merged from {}", plural(record.merged_from.len() as u64, "run")));
    }
    text
}

fn short(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// `label  text`, wrapped under itself.
fn labelled(label: &str, text: &str, look: &Look) -> Vec<String> {
    let lines = wrap(text, look.width.saturating_sub(10));
    let label = |index: usize| if index == 0 { label } else { "" };
    let painted = |index: usize| look.paint(Tone::Faint, &format!("{:<8}", label(index)));
    lines.iter().enumerate().map(|(index, line)| format!("{}  {line}", painted(index))).collect()
}

fn cases(cases: &[&CaseRecord]) -> Table {
    let mut table = Table::new(&[
        ("CASE", Column::Flexible),
        ("DRILL", Column::Left),
        ("PASSED", Column::Right),
        ("RATE", Column::Right),
        ("95 % INTERVAL", Column::Right),
        ("NOT MEASURED", Column::Right),
    ]);
    for case in cases {
        let counts = case.counts();
        let tone = match (counts.measured(), case.failed) {
            (0, _) => Tone::Doubt,
            (_, 0) => Tone::Good,
            _ => Tone::Bad,
        };
        let interval = case.interval.as_ref().map_or_else(
            || "–".to_owned(),
            |interval| format!("{:.0}–{:.0} %", interval.low * 100.0, interval.high * 100.0),
        );
        table.row(vec![
            Cell::plain(case.case.as_str()),
            Cell::plain(case.drill.as_deref().map_or("-".into(), safe)),
            Cell::new(tone, format!("{} of {}", count(Some(case.passed)), count(Some(counts.measured())))),
            Cell::new(tone, percent(case.pass_rate)),
            Cell::plain(interval),
            Cell::plain(if counts.unmeasured() == 0 { "0".to_owned() } else { unmeasured(case) }),
        ]);
    }
    table.without_empty("-")
}

fn unmeasured(case: &CaseRecord) -> String {
    match (case.uncertain, case.not_run) {
        (uncertain, 0) => format!("{} uncertain", count(Some(uncertain))),
        (0, not_run) => format!("{} not run", count(Some(not_run))),
        (uncertain, not_run) => format!("{} uncertain, {} not run", count(Some(uncertain)), count(Some(not_run))),
    }
}

fn trials(record: &RunRecord, look: &Look, out: &mut dyn Write) -> Result<()> {
    let all = record.trials.len() <= FEW;
    let wanted = |trial: &&TrialRecord| all || matches!(trial.outcome, Outcome::Failed | Outcome::Uncertain);
    let shown: Vec<&TrialRecord> = record.trials.iter().filter(wanted).collect();
    let widest = shown.iter().take(MOST).map(|trial| width(&safe(&trial.trial))).max().unwrap_or(0);
    let mut unsaid = 0;
    for (index, trial) in shown.iter().take(MOST).enumerate() {
        // A run that could not be provisioned would say the same of each trial.
        let before = index.checked_sub(1).and_then(|index| shown.get(index));
        let as_before = before.is_some_and(|before| before.diagnostics == trial.diagnostics);
        if as_before && never_began(trial) {
            unsaid += 1;
            continue;
        }
        write_lines(&more_of_the_same(std::mem::take(&mut unsaid)), out)?;
        write_lines(&trial_lines(trial, as_before, widest, look), out)?;
    }
    write_lines(&more_of_the_same(unsaid), out)?;
    if shown.len() > MOST {
        let more = plural((shown.len() - MOST) as u64, "more trial");
        writeln!(out, "… {more} that did not pass: --format json has them all").context("failed to write")?;
    }
    if shown.is_empty() { Ok(()) } else { writeln!(out).context("failed to write") }
}

/// Provisioning failed before it.
fn never_began(trial: &TrialRecord) -> bool {
    trial.outcome == Outcome::Uncertain && trial.started.is_none() && trial.stop.is_none()
}

fn more_of_the_same(trials: u64) -> Vec<String> {
    if trials == 0 { Vec::new() } else { vec![format!("… {} for the same reason", plural(trials, "more trial"))] }
}

fn trial_lines(trial: &TrialRecord, as_before: bool, widest: usize, look: &Look) -> Vec<String> {
    let name = safe(&trial.trial);
    // Whole wherever it can be: it is what `--trial` wants.
    let name = fit(&name, look.width.saturating_sub(20));
    let column = widest.min(look.width / 2).max(width(&name));
    let pad = " ".repeat(column - width(&name));
    let words = outcome_words(trial);
    let outcome = look.paint(tone(trial.outcome), &words);
    let facts = trial_facts(trial);
    let used = column + 2 + width(&words);
    let mut lines = if used + 2 + width(&facts) <= look.width || facts.is_empty() {
        vec![format!("{name}{pad}  {outcome}  {}", look.paint(Tone::Faint, &facts))]
    } else {
        let facts = fit(&facts, look.width.saturating_sub(4)).into_owned();
        vec![format!("{name}{pad}  {outcome}"), format!("    {}", look.paint(Tone::Faint, &facts))]
    };
    let indent = "    ";
    for check in trial.checks.iter().filter(|check| !check.passed) {
        let detail = check.detail.as_deref().map_or_else(String::new, |detail| format!(": {}", safe(detail)));
        let text = format!("✗ {}{detail}", safe(&check.name));
        lines.extend(
            wrap(&text, look.width - 4).iter().take(4).map(|line| format!("{indent}{}", look.paint(Tone::Bad, line))),
        );
    }
    if as_before && !trial.diagnostics.is_empty() {
        lines.push(format!("{indent}! as above"));
    } else {
        lines.extend(trial.diagnostics.iter().flat_map(|words| diagnostic(words, look)));
    }
    lines
}

/// A diagnostic's first lines, and its last: what a program says before it gives up is at the end, and so are hints.
fn diagnostic(words: &str, look: &Look) -> Vec<String> {
    let lines = safe_lines(words);
    let mut wrapped: Vec<String> = lines.iter().flat_map(|line| wrap(line, look.width.saturating_sub(6))).collect();
    if wrapped.len() > DIAGNOSTIC {
        wrapped.splice(2..wrapped.len() - (DIAGNOSTIC - 3), ["…".to_owned()]);
    }
    let sign = |index: usize| if index == 0 { "! " } else { "  " };
    wrapped.iter().enumerate().map(|(index, line)| format!("    {}{line}", sign(index))).collect()
}

/// Stop, duration, requests, tokens, cost.
fn trial_facts(trial: &TrialRecord) -> String {
    let mut facts = Vec::new();
    facts.extend(trial.stop.map(|stop| stop.to_string()));
    facts.extend(trial.duration_ms.map(duration));
    let usage = &trial.usage;
    if usage.requests > 0 || usage.refused > 0 {
        facts.push(plural(usage.requests, "request"));
        facts.push(format!("{} tokens", count(tokens(usage))));
        facts.push(money(usage.cost_usd));
    }
    if usage.refused > 0 {
        facts.push(format!("{} refused", usage.refused));
    }
    if trial.attempt > 1 {
        facts.push(format!("attempt {}", trial.attempt));
    }
    if !trial.faults.is_empty() {
        facts.push(format!("{} injected", plural(trial.faults.len() as u64, "fault")));
    }
    facts.join(", ")
}

fn foot(record: &RunRecord, path: &Utf8Path, look: &Look) -> Vec<String> {
    let counts = &record.counts;
    let part = |number: u64, tone, words: &str| {
        let text = format!("{} {words}", count(Some(number)));
        if number == 0 { text } else { look.paint(tone, &text) }
    };
    let mut lines = vec![format!(
        "{}: {}, {}, {}, {}",
        plural(counts.trials, "trial"),
        part(counts.passed, Tone::Good, "passed"),
        part(counts.failed, Tone::Bad, "failed"),
        part(counts.uncertain, Tone::Doubt, "uncertain"),
        part(counts.not_run, Tone::Doubt, "not run"),
    )];
    lines.extend(usage_lines(record, look));
    let mut say = |tone, text: &str| lines.extend(wrap(text, look.width).iter().map(|line| look.paint(tone, line)));
    for shortfall in &record.sandbox.shortfalls {
        let (name, asked) = (safe(&shortfall.requirement), safe(&shortfall.requested));
        let observed = safe(shortfall.observed.as_deref().unwrap_or("nothing"));
        say(Tone::Doubt, &format!("not enforced: {name} (asked for {asked}, observed {observed})"));
        if let Some(hint) = &shortfall.hint {
            say(Tone::Plain, &format!("hint: {}", safe(hint)));
        }
    }
    for redaction in &record.redactions {
        let (name, file, times) = (safe(&redaction.name), safe(&redaction.file), plural(redaction.count, "time"));
        say(Tone::Doubt, &format!("redacted: {name} in {file}, {times}"));
    }
    for kept in &record.cleanup.failures {
        say(Tone::Bad, &format!("clean-up failed: {}", kept_words(kept)));
    }
    for kept in &record.cleanup.kept {
        say(Tone::Doubt, &format!("kept: {}", kept_words(kept)));
    }
    lines.push(look.paint(Tone::Faint, &format!("stored in {}", safe(path.as_str()))));
    lines.extend(next_step(record).map(|step| look.paint(Tone::Faint, &step)));
    lines
}

fn usage_lines(record: &RunRecord, look: &Look) -> Vec<String> {
    let usage = &record.usage;
    if usage.requests == 0 && usage.refused == 0 {
        return Vec::new();
    }
    let mut text = format!(
        "usage: {}, {} input and {} output tokens, {}",
        plural(usage.requests, "request"),
        count(usage.input_tokens),
        count(usage.output_tokens),
        money(usage.cost_usd)
    );
    if usage.refused > 0 {
        text.push_str(&format!(", {} refused", count(Some(usage.refused))));
    }
    if usage.unknown > 0 {
        text.push_str(&format!(" ({} without known usage or cost)", plural(usage.unknown, "call")));
    }
    wrap(&text, look.width)
}

fn kept_words(kept: &Kept) -> String {
    let name = kept.name.as_deref().map_or_else(String::new, |name| format!(" {}", safe(name)));
    let id = kept.id.as_deref().map_or_else(String::new, |id| format!(" {}", safe(&short(id, 19))));
    format!("{}{name}{id}: {}", safe(&kept.kind), safe(&kept.reason))
}

/// The first trial that wants looking at.
fn next_step(record: &RunRecord) -> Option<String> {
    let wants = |outcome| record.trials.iter().find(|trial| trial.outcome == outcome);
    let trial = wants(Outcome::Failed).or_else(|| wants(Outcome::Uncertain))?;
    Some(format!("next: crashlab view {} --trial {}", record.run, safe(&trial.trial)))
}
