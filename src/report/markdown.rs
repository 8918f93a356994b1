//! A comparison as Markdown, for a comment on a pull request. Foreign text stands in code spans, where neither mention,
//! link, image nor HTML works, without the characters that would end one.

use crate::report::text::{count, money, percent, safe};
use crate::report::words;
use crate::results::compare::{CaseSide, Change, Comparison};
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::io::Write;

/// Writes a comparison.
///
/// # Errors
/// The sink's.
pub fn compare(comparison: &Comparison, out: &mut dyn Write) -> Result<()> {
    let (base, candidate) = (&comparison.base, &comparison.candidate);
    let mut page = format!("### CrashLab: {} against {}\n\n", code(candidate.run.as_str()), code(base.run.as_str()));
    let _ = writeln!(page, "**{}**\n", words::verdict(comparison));
    for warning in &comparison.warnings {
        let _ = writeln!(page, "> ⚠ {warning}\n");
    }
    if !comparison.cases.is_empty() {
        page.push_str(
            "| case | base | candidate | pass^k | p (Holm) | change |\n| --- | ---: | ---: | ---: | ---: | --- |\n",
        );
    }
    for case in &comparison.cases {
        let name = code(&words::case(&case.case, case.drill.as_deref()));
        let sign = match case.change {
            Change::Regressed => "🔴 ",
            Change::Improved => "🟢 ",
            Change::NotMeasured => "⚪ ",
            Change::NotDistinguishable => "",
        };
        let (all, _) = words::passes(case);
        let (p, change, all) = (words::p(case.p_holm), words::change(case.change), all.unwrap_or_default());
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {all} | {p} | {sign}{change} |",
            rate(&case.base),
            rate(&case.candidate)
        );
    }
    page.push('\n');
    one_sided(&mut page, comparison);
    let row = |page: &mut String, label: &str, left: String, right: String| {
        let _ = writeln!(page, "| {label} | {left} | {right} |");
    };
    page.push_str("| | base | candidate |\n| --- | ---: | ---: |\n");
    row(&mut page, "not measured", count(Some(base.counts.unmeasured())), count(Some(candidate.counts.unmeasured())));
    let ms = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0} ms"));
    row(&mut page, "time, median", ms(base.time.p50_ms), ms(candidate.time.p50_ms));
    row(&mut page, "time, 95th percentile", ms(base.time.p95_ms), ms(candidate.time.p95_ms));
    row(&mut page, "input tokens", count(base.usage.input_tokens), count(candidate.usage.input_tokens));
    row(&mut page, "output tokens", count(base.usage.output_tokens), count(candidate.usage.output_tokens));
    row(&mut page, "cost", money(base.usage.cost_usd), money(candidate.usage.cost_usd));
    out.write_all(page.as_bytes()).context("failed to write")
}

fn rate(side: &CaseSide) -> String {
    let record = &side.record;
    let not_measured = match record.counts().unmeasured() {
        0 => String::new(),
        number => format!(", {number} not measured"),
    };
    format!("{} ({} of {}{not_measured})", percent(record.pass_rate), record.passed, record.counts().measured())
}

fn one_sided(page: &mut String, comparison: &Comparison) {
    let lists = [("only in base", &comparison.only_base), ("only in candidate", &comparison.only_candidate)];
    for (label, cases) in lists.into_iter().filter(|(_, cases)| !cases.is_empty()) {
        let names: Vec<String> =
            cases.iter().map(|case| code(&words::case(&case.case, case.drill.as_deref()))).collect();
        let _ = writeln!(page, "- {label}: {}", names.join(", "));
    }
    let unpaired = [("base", &comparison.unpaired.base), ("candidate", &comparison.unpaired.candidate)];
    for (label, names) in unpaired.into_iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<String> = names.iter().map(|name| code(name)).collect();
        let _ = writeln!(page, "- measured only in {label}: {}", names.join(", "));
    }
    if !page.ends_with("\n\n") {
        page.push('\n');
    }
}

/// A code span that its content cannot leave, also in a table.
pub(crate) fn code(text: &str) -> String {
    let inner: String = safe(text)
        .chars()
        .map(|char| match char {
            '`' => 'ˋ',
            '|' => '¦',
            char => char,
        })
        .collect();
    // A space on both sides is taken off again; alone it keeps an empty or a bare-space span together.
    if inner.trim().is_empty() { "` `".to_owned() } else { format!("`{inner}`") }
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn a_code_span_keeps_what_is_in_it() {
        let table = [
            ("plain", "`plain`"),
            ("a`b``c", "`aˋbˋˋc`"),
            ("@everyone [x](http://e) <img src=x>", "`@everyone [x](http://e) <img src=x>`"),
            ("a|b\n# head", "`a¦b\\n# head`"),
            ("", "` `"),
        ];
        for (text, span) in table {
            assert_eq!(code(text), span);
        }
    }
}
