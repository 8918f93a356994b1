//! A run as a page: summary, rates by case and by drill, filterable trials with their stories, redactions, clean-up. Each story is
//! written as it is read, so that memory does not grow with the number of trials.

use super::{Page, data, escape, story};
use crate::report::human::{outcome_words, tokens};
use crate::report::text::{count, duration, money, percent, plural, safe};
use crate::results::matrix::Matrix;
use crate::results::read::StoredRun;
use crate::results::record::{CaseRecord, RunRecord, TrialRecord};
use crate::results::story as evidence;
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
    let outcome = record.outcome.as_str();
    page.put(&format!(
        "<header>\n<h1>{} <span class=\"{outcome}\">{outcome}</span></h1>\n<p class=\"faint mono\">{}</p>\n</header>\n<main>\n",
        escape(&record.evaluation.name),
        escape(record.run.as_str())
    ))?;
    summary(&mut page, record)?;
    cases(&mut page, &record.cases)?;
    if let Some(matrix) = Matrix::of(&record.cases) {
        drills(&mut page, &matrix)?;
    }
    page.put("<h2>Trials</h2>\n")?;
    let counts = &record.counts;
    page.filter(&[
        ("failed", "failed", counts.failed),
        ("uncertain", "uncertain", counts.uncertain),
        ("passed", "passed", counts.passed),
        ("not_run", "not run", counts.not_run),
    ])?;
    for (index, trial) in record.trials.iter().enumerate() {
        row(&mut page, index, trial)?;
        // A planted link in one trial's folder must not hide the others.
        let told = evidence::read(run, trial);
        let data = data(&told.map_or_else(|error| story::unreadable(&error), |told| story::data(&told)));
        page.put(&format!("<script type=\"application/json\" id=\"story-{index}\">{data}</script>\n"))?;
    }
    kept(&mut page, record)?;
    page.put("</main>\n")?;
    page.end()
}

fn summary(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    let counts = &record.counts;
    let usage = &record.usage;
    let mut facts = vec![(
        "Trials",
        format!(
            "{}: <span class=\"passed\">{} passed</span>, <span class=\"failed\">{} failed</span>, \
             <span class=\"uncertain\">{} uncertain</span>, {} not run",
            count(Some(counts.trials)),
            count(Some(counts.passed)),
            count(Some(counts.failed)),
            count(Some(counts.uncertain)),
            count(Some(counts.not_run))
        ),
    )];
    let exit = record.exit.map_or_else(|| "none yet".to_owned(), |exit| exit.to_string());
    facts.push(("Exit", exit));
    let finished = record.finished.as_deref().unwrap_or("not finished");
    facts.push(("Time", format!("{} to {}", escape(&record.started), escape(finished))));
    if let Some(target) = &record.target {
        let commit =
            target.commit.as_deref().map_or_else(String::new, |commit| format!(" at <code>{}</code>", escape(commit)));
        let dirty = if target.dirty == Some(true) { " (changed)" } else { "" };
        facts.push(("Target", format!("{}{commit}{dirty}", escape(&target.source))));
        facts.push(("Snapshot", format!("<code>{}</code>", target.snapshot)));
        if let Some(image) = &target.image {
            facts.push(("Image", format!("<code>{}</code>", image.id)));
        }
    }
    let evaluation = &record.evaluation;
    let lock = if evaluation.reproducible { "" } else { " (not reproducible: no dependency lock)" };
    facts.push(("Package", format!("<code>{}</code>{lock}", evaluation.digest)));
    facts.push(("Policy", format!("<code>{}</code>", evaluation.policy)));
    if let Some(engine) = &record.engine {
        let known = |text: &Option<String>| escape(text.as_deref().unwrap_or("?"));
        facts.push((
            "Engine",
            format!("{} on {}, runtime {}", known(&engine.version), known(&engine.os), known(&engine.runtime)),
        ));
    }
    if let Some(tag) = &record.tag {
        facts.push(("Tag", escape(tag)));
    }
    if let Some(seed) = record.seed {
        facts.push(("Seed", seed.to_string()));
    }
    let unknown = if usage.unknown > 0 {
        format!(" ({} without known usage or cost)", plural(usage.unknown, "call"))
    } else {
        String::new()
    };
    facts.push((
        "Usage",
        format!(
            "{}, {} refused, {} input and {} output tokens, {}{unknown}",
            plural(usage.requests, "request"),
            count(Some(usage.refused)),
            count(usage.input_tokens),
            count(usage.output_tokens),
            escape(&money(usage.cost_usd))
        ),
    ));
    page.facts(&facts)?;
    for shortfall in &record.sandbox.shortfalls {
        let observed = escape(shortfall.observed.as_deref().unwrap_or("nothing"));
        let (name, asked) = (escape(&shortfall.requirement), escape(&shortfall.requested));
        page.put(&format!("<p class=\"doubt\">Not enforced: {name} (asked for {asked}, observed {observed})</p>\n"))?;
    }
    Ok(())
}

fn cases(page: &mut Page<'_>, cases: &[CaseRecord]) -> Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    page.put(
        "<h2>Cases</h2>\n<div class=\"wide\" role=\"region\" aria-label=\"cases\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">Case</th><th scope=\"col\">Drill</th>\
         <th scope=\"col\" class=\"number\">Passed</th><th scope=\"col\" class=\"number\">Rate</th>\
         <th scope=\"col\" class=\"number\">95 % interval</th><th scope=\"col\" class=\"number\">Not measured</th></tr></thead>\n<tbody>\n",
    )?;
    for case in cases {
        let counts = case.counts();
        let tone = tone(case);
        let interval = case.interval.as_ref().map_or_else(
            || "–".to_owned(),
            |interval| format!("{:.0}–{:.0} %", interval.low * 100.0, interval.high * 100.0),
        );
        page.put(&format!(
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{} of {}</td><td class=\"number {tone}\">{}</td>\
             <td class=\"number\">{interval}</td><td class=\"number\">{}</td></tr>\n",
            escape(case.case.as_str()),
            escape(case.drill.as_deref().unwrap_or("")),
            count(Some(case.passed)),
            count(Some(counts.measured())),
            percent(case.pass_rate),
            count(Some(counts.unmeasured()))
        ))?;
    }
    page.put("</tbody>\n</table></div>\n")
}

fn tone(case: &CaseRecord) -> &'static str {
    match (case.counts().measured(), case.failed) {
        (0, _) => "doubt",
        (_, 0) => "good",
        _ => "bad",
    }
}

/// Case × drill: the pass rates, undisturbed ones first.
fn drills(page: &mut Page<'_>, matrix: &Matrix<'_>) -> Result<()> {
    page.put(
        "<h2>Drills</h2>\n<div class=\"wide\" role=\"region\" aria-label=\"pass rates by case and drill\" tabindex=\"0\">\
         <table id=\"drills\">\n<thead><tr><th scope=\"col\">Case</th>",
    )?;
    for drill in &matrix.columns {
        let heading = drill.map_or_else(|| "Undisturbed".to_owned(), escape);
        page.put(&format!("<th scope=\"col\" class=\"number\">{heading}</th>"))?;
    }
    page.put("</tr></thead>\n<tbody>\n")?;
    for (id, places) in &matrix.rows {
        page.put(&format!("<tr><th scope=\"row\">{}</th>", escape(id.as_str())))?;
        places.iter().try_for_each(|place| page.put(&place.map_or_else(|| "<td></td>".to_owned(), drilled)))?;
        page.put("</tr>\n")?;
    }
    page.put("</tbody>\n</table></div>\n")
}

/// A rate, always with what was not measured.
fn drilled(place: &CaseRecord) -> String {
    let counts = place.counts();
    let unmeasured = match counts.unmeasured() {
        0 => String::new(),
        unmeasured => format!(" <span class=\"doubt\">({} not measured)</span>", count(Some(unmeasured))),
    };
    let of = format!("{} of {} passed", count(Some(place.passed)), count(Some(counts.measured())));
    let (tone, rate) = (tone(place), percent(place.pass_rate));
    format!("<td class=\"number\" title=\"{of}\"><span class=\"{tone}\">{rate}</span>{unmeasured}</td>")
}

fn row(page: &mut Page<'_>, index: usize, trial: &TrialRecord) -> Result<()> {
    let kind = trial.outcome.as_str();
    let mut facts: Vec<String> = Vec::new();
    facts.extend(trial.stop.map(|stop| stop.to_string()));
    facts.extend(trial.duration_ms.map(duration));
    if trial.usage.requests > 0 {
        facts.push(plural(trial.usage.requests, "request"));
        facts.push(format!("{} tokens", count(tokens(&trial.usage))));
        facts.push(money(trial.usage.cost_usd));
    }
    if !trial.faults.is_empty() {
        facts.push(format!("{} injected", plural(trial.faults.len() as u64, "fault")));
    }
    page.put(&format!(
        "<details class=\"row\" data-kind=\"{kind}\" data-story=\"{index}\"><summary><span class=\"badge {kind}\">{}</span>\
         <span class=\"name\">{}</span><span class=\"faint\">{}</span>",
        escape(&outcome_words(trial)),
        escape(&trial.trial),
        escape(&facts.join(", "))
    ))?;
    for check in trial.checks.iter().filter(|check| !check.passed).take(5) {
        let detail = check.detail.as_deref().map_or_else(String::new, |detail| format!(": {}", first_line(detail)));
        page.put(&format!("<span class=\"why bad\">✗ {}{}</span>", escape(&check.name), escape(&detail)))?;
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

fn kept(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    page.put("<h2>Redactions</h2>\n")?;
    if record.redactions.is_empty() {
        page.put("<p>No declared secret was found in what was stored.</p>\n")?;
    }
    for redaction in &record.redactions {
        let (name, file) = (escape(&redaction.name), escape(&redaction.file));
        let times = plural(redaction.count, "time");
        page.put(&format!("<p class=\"doubt\">{name} in <code>{file}</code>, {times}: rotate it</p>\n"))?;
    }
    let cleanup = &record.cleanup;
    let removed = plural(cleanup.removed.len() as u64, "resource");
    page.put(&format!("<h2>Clean-up</h2>\n<p>{removed} removed.</p>\n"))?;
    for (kept, tone, words) in cleanup
        .failures
        .iter()
        .map(|kept| (kept, "bad", "failed"))
        .chain(cleanup.kept.iter().map(|kept| (kept, "doubt", "kept")))
    {
        let name = escape(kept.name.as_deref().or(kept.id.as_deref()).unwrap_or("?"));
        page.put(&format!(
            "<p class=\"{tone}\">{words}: {} <code>{name}</code>: {}</p>\n",
            escape(&kept.kind),
            escape(&kept.reason)
        ))?;
    }
    Ok(())
}
