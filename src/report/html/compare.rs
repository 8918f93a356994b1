//! A comparison as a page: the verdict, warnings, both runs side by side, each case as a row that opens.

use super::{Page, chart, escape};
use crate::report::text::{count, duration, money, percent};
use crate::report::words;
use crate::results::compare::{CaseChange, CaseSide, Change, Comparison, Side, Winner};
use anyhow::Result;
use std::io::Write;

/// Writes a comparison as a page.
///
/// # Errors
/// The sink's.
pub fn compare(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let (base, candidate) = (&comparison.base, &comparison.candidate);
    let mut page = Page::begin(out, &format!("{} against {}", candidate.run, base.run))?;
    let tone = match comparison.winner {
        Winner::Base => "bad",
        Winner::Candidate => "good",
        Winner::Mixed | Winner::UnequalSets => "doubt",
        Winner::NotDistinguishable => "",
    };
    page.put(&format!(
        "<div class=\"title\"><h1>Comparison</h1><span class=\"pill {tone}\">{}</span></div>\n\
         <p class=\"faint\">candidate <span class=\"mono\">{}</span> against base <span class=\"mono\">{}</span></p>\n</header>\n\
         <main>\n<p class=\"card notice {tone}\">{}</p>\n",
        short(comparison.winner),
        escape(candidate.run.as_str()),
        escape(base.run.as_str()),
        escape(&words::verdict(comparison))
    ))?;
    for warning in &comparison.warnings {
        page.put(&format!("<p class=\"card notice doubt\">Warning: {}</p>\n", escape(warning)))?;
    }
    cases(&mut page, comparison)?;
    one_sided(&mut page, comparison)?;
    totals(&mut page, base, candidate)?;
    page.put("</main>\n")?;
    page.end()
}

/// The verdict in a word or two; the sentence below it says the rest.
fn short(winner: Winner) -> &'static str {
    match winner {
        Winner::Base => "worse",
        Winner::Candidate => "better",
        Winner::Mixed => "better and worse",
        Winner::NotDistinguishable => "not distinguishable",
        Winner::UnequalSets => "no winner named",
    }
}

fn ms(value: Option<f64>) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds, not negative")]
    value.map_or_else(|| "–".to_owned(), |ms| duration(ms.round() as u64))
}

fn totals(page: &mut Page<'_>, base: &Side, candidate: &Side) -> Result<()> {
    page.put(
        "<h2>Both runs</h2>\n<div class=\"wide card\" role=\"region\" aria-label=\"both runs\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\"></th>\
         <th scope=\"col\" class=\"number\">Base</th><th scope=\"col\" class=\"number\">Candidate</th></tr></thead>\n<tbody>\n",
    )?;
    let passed =
        |side: &Side| format!("{} of {}", count(Some(side.counts.passed)), count(Some(side.counts.measured())));
    let rows = [
        ("Outcome", base.outcome.as_str().to_owned(), candidate.outcome.as_str().to_owned()),
        ("Tag", base.tag.clone().unwrap_or_default(), candidate.tag.clone().unwrap_or_default()),
        ("Passed", passed(base), passed(candidate)),
        ("Not measured", count(Some(base.counts.unmeasured())), count(Some(candidate.counts.unmeasured()))),
        ("Time, median", ms(base.time.p50_ms), ms(candidate.time.p50_ms)),
        ("Time, 95th percentile", ms(base.time.p95_ms), ms(candidate.time.p95_ms)),
        ("Requests", count(Some(base.usage.requests)), count(Some(candidate.usage.requests))),
        ("Input tokens", count(base.usage.input_tokens), count(candidate.usage.input_tokens)),
        ("Output tokens", count(base.usage.output_tokens), count(candidate.usage.output_tokens)),
        ("Cost", money(base.usage.cost_usd), money(candidate.usage.cost_usd)),
        ("Calls of unknown cost", count(Some(base.usage.unknown)), count(Some(candidate.usage.unknown))),
    ];
    for (label, left, right) in rows {
        let (left, right) = (escape(&left), escape(&right));
        let class = if label == "Tag" { "number foreign" } else { "number" };
        page.put(&format!(
            "<tr><th scope=\"row\">{label}</th><td class=\"{class}\">{left}</td><td class=\"{class}\">{right}</td></tr>\n"
        ))?;
    }
    page.put("</tbody>\n</table></div>\n")
}

/// The class that stands for a change.
fn kind(change: Change) -> &'static str {
    match change {
        Change::Regressed => "regressed",
        Change::Improved => "improved",
        Change::NotDistinguishable => "not_distinguishable",
        Change::NotMeasured => "not_measured",
    }
}

fn cases(page: &mut Page<'_>, comparison: &Comparison) -> Result<()> {
    page.put(
        "<h2>Cases</h2>\n<p class=\"faint\">Pass rate and 95 % interval, from 0 to 100 %: base above, candidate below.</p>\n",
    )?;
    let all = [Change::Regressed, Change::Improved, Change::NotDistinguishable, Change::NotMeasured];
    let kinds = all.map(|change| (kind(change), words::change(change), comparison.count(change) as u64));
    page.filter(&kinds)?;
    page.put("<div class=\"rows card\">\n")?;
    comparison.cases.iter().try_for_each(|case| row(page, case))?;
    page.put("</div>\n")
}

fn row(page: &mut Page<'_>, case: &CaseChange) -> Result<()> {
    let kind = kind(case.change);
    let rate = |side: &CaseSide| {
        let counts = side.record.counts();
        let unmeasured = match counts.unmeasured() {
            0 => String::new(),
            number => format!(", {} not measured", count(Some(number))),
        };
        let (passed, measured) = (count(Some(counts.passed)), count(Some(counts.measured())));
        format!("{} ({passed} of {measured}{unmeasured})", percent(side.record.pass_rate))
    };
    page.put(&format!(
        "<details class=\"row both\" data-kind=\"{kind}\"><summary><span class=\"badge {kind}\">{}</span> \
         <span class=\"name\">{}</span> {} <span class=\"facts\"><span>{} → {}</span></span></summary><div class=\"story\">\n",
        words::change(case.change),
        escape(&words::case(&case.case, case.drill.as_deref())),
        chart::ranges(&[(&case.base.record, "before"), (&case.candidate.record, chart::tone(&case.candidate.record))]),
        rate(&case.base),
        rate(&case.candidate)
    ))?;
    let interval = |side: &CaseSide| {
        side.record
            .interval
            .as_ref()
            .map_or_else(|| "–".to_owned(), |i| format!("{:.0}–{:.0} %", i.low * 100.0, i.high * 100.0))
    };
    let (all, any) = words::passes(case);
    let pairs = case.pairs;
    let test = case.test.map_or_else(
        || "none: a side measured nothing".to_owned(),
        |test| format!("{test}, p {}, with Holm {}", escape(&words::p(case.p)), escape(&words::p(case.p_holm))),
    );
    page.facts(&[
        ("95 % interval", format!("{} → {}", interval(&case.base), interval(&case.candidate))),
        ("Exact test", test),
        (
            "Repetitions that both measured",
            format!(
                "{} passed on both, {} failed on both, {} worse, {} better",
                pairs.both_passed, pairs.both_failed, pairs.worse, pairs.better
            ),
        ),
        ("pass^k", all.unwrap_or_else(|| "–".to_owned())),
        ("pass@k", any.unwrap_or_else(|| "–".to_owned())),
        ("Time, median", format!("{} → {}", ms(case.base.time.p50_ms), ms(case.candidate.time.p50_ms))),
        ("Cost", escape(&format!("{} → {}", money(case.base.usage.cost_usd), money(case.candidate.usage.cost_usd)))),
    ])?;
    page.put("</div></details>\n")
}

fn one_sided(page: &mut Page<'_>, comparison: &Comparison) -> Result<()> {
    let cases = |cases: &[crate::results::record::CaseRecord]| -> Vec<String> {
        cases.iter().map(|case| words::case(&case.case, case.drill.as_deref())).collect()
    };
    let lists = [
        ("Cases only in base", cases(&comparison.only_base)),
        ("Cases only in candidate", cases(&comparison.only_candidate)),
        ("Trials measured only in base", comparison.unpaired.base.clone()),
        ("Trials measured only in candidate", comparison.unpaired.candidate.clone()),
    ];
    for (heading, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        page.put(&format!("<h3>{heading}</h3>\n<ul>\n"))?;
        for name in names {
            page.put(&format!("<li>{}</li>\n", escape(&name)))?;
        }
        page.put("</ul>\n")?;
    }
    Ok(())
}
