//! A run as a page: head, figures, rates by case and by drill, filterable trials with their stories, then what was kept, and where it
//! all came from. Each story is written as it is read, so that memory does not grow with the number of trials.

use super::{Page, data, escape, matrix, origin, story, summary};
use crate::report::human::{outcome_words, tokens};
use crate::report::text::{count, duration, money, plural, safe};
use crate::results::matrix::Matrix;
use crate::results::read::StoredRun;
use crate::results::record::{RunRecord, TrialRecord};
use crate::results::story as evidence;
use crate::verdict::{Stop, StopReason};
use anyhow::Result;
use std::io::Write;

/// Writes a run as a page.
///
/// # Errors
/// The sink's.
pub fn run(run: &StoredRun, out: &mut dyn Write) -> Result<()> {
    let record = &run.record;
    let mut page =
        Page::begin(out, &format!("{} {}: {}", record.evaluation.name, record.run, record.outcome.as_str()))?;
    summary::head(&mut page, record)?;
    summary::tiles(&mut page, record)?;
    summary::warnings(&mut page, record)?;
    summary::cases(&mut page, &record.cases)?;
    if let Some(matrix) = Matrix::of(&record.cases) {
        matrix::drills(&mut page, &matrix)?;
    }
    trials(&mut page, run)?;
    origin::kept(&mut page, record)?;
    origin::origin(&mut page, record)?;
    page.put("</main>\n")?;
    page.end()
}

fn trials(page: &mut Page<'_>, run: &StoredRun) -> Result<()> {
    let record = &run.record;
    page.put("<h2 id=\"trials\">Trials</h2>\n")?;
    let counts = &record.counts;
    page.filter(&[
        ("failed", "failed", counts.failed),
        ("uncertain", "uncertain", counts.uncertain),
        ("passed", "passed", counts.passed),
        ("not_run", "not run", counts.not_run),
    ])?;
    page.put("<div class=\"rows card\">\n")?;
    for (index, trial) in record.trials.iter().enumerate() {
        row(page, index, trial)?;
    }
    page.put("</div>\n")?;
    for (index, trial) in record.trials.iter().enumerate() {
        story_of(page, run, index, trial)?;
    }
    Ok(())
}

fn story_of(page: &mut Page<'_>, run: &StoredRun, index: usize, trial: &TrialRecord) -> Result<()> {
    let command = command(&run.record, trial);
    // A planted link in one trial's folder must not hide the others.
    let told = evidence::read(run, trial);
    let story = told.map_or_else(|error| story::unreadable(&error, &command), |told| story::data(&told, &command));
    page.put(&format!("<script type=\"application/json\" id=\"story-{index}\">{}</script>\n", data(&story)))
}

fn command(record: &RunRecord, trial: &TrialRecord) -> String {
    format!("crashlab view {} --trial {}", record.run, safe(&trial.trial))
}

/// How it stopped, where that is worth a word: nearly all exit with 0.
fn stop_words(stop: Stop) -> Option<String> {
    let clean = stop.reason == StopReason::Exited && stop.code == Some(0);
    (!clean).then(|| stop.to_string())
}

fn row(page: &mut Page<'_>, index: usize, trial: &TrialRecord) -> Result<()> {
    let kind = trial.outcome.as_str();
    let mut facts: Vec<String> = Vec::new();
    facts.extend(trial.stop.and_then(stop_words));
    if !trial.faults.is_empty() {
        facts.push(format!("{} injected", plural(trial.faults.len() as u64, "fault")));
    }
    facts.extend(trial.duration_ms.map(duration));
    if trial.usage.requests > 0 {
        facts.push(plural(trial.usage.requests, "request"));
        facts.push(format!("{} tokens", count(tokens(&trial.usage))));
        facts.push(money(trial.usage.cost_usd));
    }
    let facts: String = facts.iter().map(|fact| format!("<span>{}</span> ", escape(fact))).collect();
    page.put(&format!(
        "<details class=\"row\" data-kind=\"{kind}\" data-story=\"{index}\"><summary><span class=\"badge {kind}\">{}</span> \
         <span class=\"name\">{}</span> <span class=\"facts\">{facts}</span>",
        escape(&outcome_words(trial)),
        escape(&trial.trial),
    ))?;
    for check in trial.checks.iter().filter(|check| !check.passed).take(5) {
        let detail = check.detail.as_deref().map_or_else(String::new, |detail| format!(": {}", first_line(detail)));
        let (name, detail) = (escape(&check.name), escape(&detail));
        page.put(&format!(" <span class=\"why bad\">✗ {name}<span>{detail}</span></span>"))?;
    }
    page.put("</summary><div class=\"story\"></div></details>\n")
}

/// The closed row shows little; the story has the rest.
fn first_line(text: &str) -> String {
    let line = safe(text.lines().next().unwrap_or_default());
    if line.chars().count() > 300 {
        format!("{}…", line.chars().take(300).collect::<String>())
    } else {
        line.into_owned()
    }
}
