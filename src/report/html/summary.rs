//! The top of a run's page, read in five seconds: what it was and came to, the figures, what was not enforced, and the rate
//! of each case with its interval. A case's name finds its trials.

use super::{Page, chart, escape};
use crate::report::text::{count, duration, money, percent, plural};
use crate::report::words;
use crate::results::record::{CaseRecord, RunRecord};
use crate::results::statistics::percentile;
use crate::results::story::moment;
use anyhow::Result;

/// Brand, name, outcome, when.
pub(super) fn head(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    let outcome = record.outcome.as_str();
    let exit = record.exit.map_or_else(String::new, |exit| format!(" · exit {exit}"));
    let tag = record.tag.as_deref().map_or_else(String::new, |tag| format!(" · tag {}", escape(tag)));
    let shard = record.shard.as_deref().map_or_else(String::new, |shard| format!(" · shard {}", escape(shard)));
    let jobs = plural(u64::from(record.jobs), "job");
    page.put(&format!(
        "<div class=\"title\"><h1>{}</h1><span class=\"pill {outcome}\">{outcome}</span></div>\n\
         <p class=\"faint\"><span class=\"mono\">{}</span>{exit} · {}{tag}{shard} · {jobs}</p>\n</header>\n<main>\n",
        escape(&record.evaluation.name),
        escape(record.run.as_str()),
        escape(&record.started),
    ))
}

/// The figures.
pub(super) fn tiles(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    let counts = &record.counts;
    page.put(&format!(
        "<ul class=\"tiles\">\n<li class=\"card\"><div class=\"label\">Trials passed</div><div class=\"value\">{} of {}</div>{}\
         <div class=\"more\"><span class=\"passed\">{} passed</span>, <span class=\"failed\">{} failed</span>, \
         <span class=\"uncertain\">{} uncertain</span>, {} not run</div></li>\n",
        count(Some(counts.passed)),
        count(Some(counts.trials)),
        chart::outcomes(counts),
        count(Some(counts.passed)),
        count(Some(counts.failed)),
        count(Some(counts.uncertain)),
        count(Some(counts.not_run)),
    ))?;
    for (label, value, more) in [time(record), requests(record), used(record), cost(record)] {
        page.put(&format!(
            "<li class=\"card\"><div class=\"label\">{label}</div><div class=\"value\">{value}</div><div class=\"more\">{more}</div></li>\n"
        ))?;
    }
    page.put("</ul>\n")
}

type Tile = (&'static str, String, String);

fn time(record: &RunRecord) -> Tile {
    let took = moment(&record.started).zip(record.finished.as_deref().and_then(moment));
    let took = took.map_or_else(|| "–".to_owned(), |(from, to)| duration(to.saturating_sub(from)));
    #[expect(clippy::cast_precision_loss, reason = "milliseconds are far below 2^52")]
    let each: Vec<f64> = record.trials.iter().filter_map(|trial| Some(trial.duration_ms? as f64)).collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds, not negative")]
    let median = percentile(&each, 50.0).map(|ms| format!("median trial {}", duration(ms.round() as u64)));
    ("Time", took, median.unwrap_or_else(|| "no trial ran".to_owned()))
}

fn requests(record: &RunRecord) -> Tile {
    let usage = &record.usage;
    ("Model requests", count(Some(usage.requests)), format!("{} refused by policy", count(Some(usage.refused))))
}

fn used(record: &RunRecord) -> Tile {
    let usage = &record.usage;
    let both = usage.input_tokens.zip(usage.output_tokens).map(|(input, output)| input.saturating_add(output));
    let more = format!("{} in, {} out", count(usage.input_tokens), count(usage.output_tokens));
    ("Tokens", count(both), more)
}

fn cost(record: &RunRecord) -> Tile {
    let usage = &record.usage;
    let more = match usage.unknown {
        0 => "known for every call".to_owned(),
        unknown => format!("<span class=\"doubt\">{} of unknown usage or cost</span>", plural(unknown, "call")),
    };
    ("Cost", escape(&money(usage.cost_usd)), more)
}

/// What must not be overlooked.
pub(super) fn warnings(page: &mut Page<'_>, record: &RunRecord) -> Result<()> {
    for shortfall in &record.sandbox.shortfalls {
        let observed = escape(shortfall.observed.as_deref().unwrap_or("nothing"));
        let (name, asked) = (escape(&shortfall.requirement), escape(&shortfall.requested));
        let hint = shortfall.hint.as_deref().map_or_else(String::new, |hint| format!(" {}", escape(hint)));
        page.put(&format!(
            "<p class=\"card notice doubt\">Not enforced: {name} (asked for {asked}, observed {observed}).{hint}</p>\n"
        ))?;
    }
    for failure in &record.cleanup.failures {
        let name = escape(failure.name.as_deref().or(failure.id.as_deref()).unwrap_or("?"));
        let (kind, reason) = (escape(&failure.kind), escape(&failure.reason));
        page.put(&format!("<p class=\"card notice bad\">Not removed: {kind} <code>{name}</code>: {reason}</p>\n"))?;
    }
    Ok(())
}

/// Rates by case.
pub(super) fn cases(page: &mut Page<'_>, cases: &[CaseRecord]) -> Result<()> {
    if cases.is_empty() {
        return Ok(());
    }
    page.put(
        "<h2>Cases</h2>\n<div class=\"wide card\" role=\"region\" aria-label=\"cases\" tabindex=\"0\"><table>\n<thead><tr>\
         <th scope=\"col\">Case</th><th scope=\"col\" class=\"number\">Passed</th><th scope=\"col\" class=\"number\">Rate</th>\
         <th scope=\"col\" class=\"drawn\">0–100 %</th><th scope=\"col\" class=\"number\">95 % interval</th>\
         <th scope=\"col\" class=\"number\">Not measured</th></tr></thead>\n<tbody>\n",
    )?;
    cases.iter().try_for_each(|case| case_row(page, case))?;
    page.put("</tbody>\n</table></div>\n")
}

fn case_row(page: &mut Page<'_>, case: &CaseRecord) -> Result<()> {
    let counts = case.counts();
    let tone = chart::tone(case);
    let name = escape(&words::case(&case.case, case.drill.as_deref()));
    let interval = case.interval.as_ref().map_or_else(
        || "–".to_owned(),
        |interval| format!("{:.0}–{:.0} %", interval.low * 100.0, interval.high * 100.0),
    );
    page.put(&format!(
        "<tr><td><button class=\"find\" data-find=\"{name}/\">{name}</button></td><td class=\"number {tone}\">{} of {}</td>\
         <td class=\"number {tone}\">{}</td><td class=\"drawn\">{}</td><td class=\"number\">{interval}</td><td class=\"number\">{}</td></tr>\n",
        count(Some(case.passed)),
        count(Some(counts.measured())),
        percent(case.pass_rate),
        chart::ranges(&[(case, tone)]),
        count(Some(counts.unmeasured()))
    ))
}
