//! A comparison on a terminal: warnings, rates and changes by case, what only one side has, what both cost, the verdict.

use crate::report::look::{Look, Tone};
use crate::report::table::{Cell, Column, Table};
use crate::report::text::{count, duration, fit, money, percent, safe, wrap};
use crate::report::words;
use crate::results::compare::{CaseChange, CaseSide, Change, Comparison, Side, Winner};
use crate::results::record::CaseRecord;
use anyhow::{Context as _, Result};
use std::io::Write;

/// Writes a comparison.
///
/// # Errors
/// The sink's.
pub fn compare(comparison: &Comparison, look: &Look, out: &mut dyn Write) -> Result<()> {
    let mut lines = Vec::new();
    for (label, side) in [("base", &comparison.base), ("candidate", &comparison.candidate)] {
        let tag = side.tag.as_deref().map_or_else(String::new, |tag| format!(", tag {}", safe(tag)));
        let text = format!("{}, {}{tag}", side.run, side.outcome.as_str());
        let text = fit(&text, look.width.saturating_sub(11));
        lines.push(format!("{}  {text}", look.paint(Tone::Faint, &format!("{label:<9}"))));
    }
    for warning in &comparison.warnings {
        lines.extend(wrap(&format!("warning: {warning}"), look.width).iter().map(|line| look.paint(Tone::Doubt, line)));
    }
    lines.push(String::new());
    write_lines(&lines, out)?;
    cases(&comparison.cases).write(look, out)?;
    write_lines(&one_sided(comparison, look), out)?;
    writeln!(out).context("failed to write")?;
    totals(&comparison.base, &comparison.candidate).write(look, out)?;
    writeln!(out).context("failed to write")?;
    let tone = match comparison.winner {
        Winner::Base => Tone::Bad,
        Winner::Candidate => Tone::Good,
        Winner::Mixed | Winner::UnequalSets => Tone::Doubt,
        Winner::NotDistinguishable => Tone::Plain,
    };
    let verdict = words::verdict(comparison);
    let lines: Vec<String> = wrap(&verdict, look.width).iter().map(|line| look.paint(tone, line)).collect();
    write_lines(&lines, out)
}

fn write_lines(lines: &[String], out: &mut dyn Write) -> Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{}", line.trim_end())).context("failed to write")
}

fn cases(cases: &[CaseChange]) -> Table {
    let mut table = Table::new(&[
        ("CASE", Column::Flexible),
        ("DRILL", Column::Left),
        ("BASE", Column::Right),
        ("CANDIDATE", Column::Right),
        ("UNMEASURED", Column::Right),
        ("PASS^K", Column::Spare),
        ("PASS@K", Column::Spare),
        ("P", Column::Right),
        ("CHANGE", Column::Left),
    ]);
    for case in cases {
        let tone = match case.change {
            Change::Regressed => Tone::Bad,
            Change::Improved => Tone::Good,
            Change::NotMeasured => Tone::Doubt,
            Change::NotDistinguishable => Tone::Plain,
        };
        let (all, any) = words::passes(case);
        table.row(vec![
            Cell::plain(case.case.as_str()),
            Cell::plain(case.drill.as_deref().map_or("-".into(), safe)),
            Cell::plain(rate(&case.base)),
            Cell::plain(rate(&case.candidate)),
            Cell::plain(unmeasured(case)),
            Cell::plain(all.unwrap_or_else(|| "-".to_owned())),
            Cell::plain(any.unwrap_or_else(|| "-".to_owned())),
            Cell::plain(words::p(case.p_holm)),
            Cell::new(tone, words::change(case.change)),
        ]);
    }
    table.without_empty("-")
}

fn rate(side: &CaseSide) -> String {
    let record = &side.record;
    let (passed, measured) = (count(Some(record.passed)), count(Some(record.counts().measured())));
    format!("{} ({passed}/{measured})", percent(record.pass_rate))
}

/// On either side: always beside a rate.
fn unmeasured(case: &CaseChange) -> String {
    let of = |side: &CaseSide| side.record.counts().unmeasured();
    match (of(&case.base), of(&case.candidate)) {
        (0, 0) => "0".to_owned(),
        (base, candidate) => format!("{base} / {candidate}"),
    }
}

/// At most so many names of what only one side has.
const NAMES: usize = 10;

fn one_sided(comparison: &Comparison, look: &Look) -> Vec<String> {
    let case = |case: &CaseRecord| words::case(&case.case, case.drill.as_deref());
    let cases = |cases: &[CaseRecord]| cases.iter().map(case).collect::<Vec<_>>();
    let lists = [
        ("only in base", cases(&comparison.only_base)),
        ("only in candidate", cases(&comparison.only_candidate)),
        ("measured only in base", comparison.unpaired.base.clone()),
        ("measured only in candidate", comparison.unpaired.candidate.clone()),
    ];
    let mut lines = Vec::new();
    for (label, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
        let first: Vec<_> = names.iter().take(NAMES).map(|name| safe(name).into_owned()).collect();
        let more = match names.len().saturating_sub(NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{label}: {}{more}", first.join(", "));
        lines.extend(wrap(&text, look.width).iter().map(|line| look.paint(Tone::Doubt, line)));
    }
    lines
}

fn totals(base: &Side, candidate: &Side) -> Table {
    let mut table = Table::new(&[("", Column::Left), ("BASE", Column::Right), ("CANDIDATE", Column::Right)]);
    let ms = |value: Option<f64>| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds, not negative")]
        value.map_or_else(|| "–".to_owned(), |ms| duration(ms.round() as u64))
    };
    type Show<'a> = Box<dyn Fn(&Side) -> String + 'a>;
    let rows: [(&str, Show<'_>); 9] = [
        (
            "passed",
            Box::new(|side| format!("{} of {}", count(Some(side.counts.passed)), count(Some(side.counts.measured())))),
        ),
        ("not measured", Box::new(|side| count(Some(side.counts.unmeasured())))),
        ("time, median", Box::new(|side| ms(side.time.p50_ms))),
        ("time, 95th percentile", Box::new(|side| ms(side.time.p95_ms))),
        ("requests", Box::new(|side| count(Some(side.usage.requests)))),
        ("input tokens", Box::new(|side| count(side.usage.input_tokens))),
        ("output tokens", Box::new(|side| count(side.usage.output_tokens))),
        ("cost", Box::new(|side| money(side.usage.cost_usd))),
        ("calls of unknown cost", Box::new(|side| count(Some(side.usage.unknown)))),
    ];
    for (label, show) in rows {
        table.row(vec![Cell::new(Tone::Faint, label), Cell::plain(show(base)), Cell::plain(show(candidate))]);
    }
    table
}
