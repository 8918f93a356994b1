//! Words for a comparison that terminal, Markdown and page share, so that they say the same.

use crate::ids::CaseId;
use crate::results::compare::{CaseChange, Change, Comparison, Winner};

/// `CASE`, under a drill `CASE@DRILL`. Not safe yet.
pub(crate) fn case(case: &CaseId, drill: Option<&str>) -> String {
    drill.map_or_else(|| case.to_string(), |drill| format!("{case}@{drill}"))
}

/// What a case came to.
pub(crate) fn change(change: Change) -> &'static str {
    match change {
        Change::Regressed => "regressed",
        Change::Improved => "improved",
        Change::NotDistinguishable => "not distinguishable",
        Change::NotMeasured => "not measured",
    }
}

/// A p-value.
pub(crate) fn p(p: Option<f64>) -> String {
    match p {
        None => "–".to_owned(),
        Some(p) if p < 0.0005 => "<0.001".to_owned(),
        Some(p) => format!("{p:.3}"),
    }
}

/// pass^k and pass@k of both sides for the largest k that both have: `k=3: 30→100 %`.
pub(crate) fn passes(case: &CaseChange) -> (Option<String>, Option<String>) {
    let of = |k: u64| case.candidate.passes.iter().find(|passes| passes.k == k);
    let both = case.base.passes.iter().rev().find_map(|base| Some((base, of(base.k)?)));
    let text = |k: u64, base: f64, candidate: f64| format!("k={k}: {:.0}→{:.0} %", base * 100.0, candidate * 100.0);
    let all = both.map(|(base, candidate)| text(base.k, base.all, candidate.all));
    (all, both.map(|(base, candidate)| text(base.k, base.any, candidate.any)))
}

/// What the comparison says as a whole.
pub(crate) fn verdict(comparison: &Comparison) -> String {
    let counts = [
        (comparison.count(Change::Regressed), "regressed"),
        (comparison.count(Change::Improved), "improved"),
        (comparison.count(Change::NotDistinguishable), "not distinguishable"),
        (comparison.count(Change::NotMeasured), "not measured"),
    ];
    let counts: Vec<String> =
        counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, words)| format!("{count} {words}")).collect();
    let cases =
        if counts.is_empty() { "no case in common".to_owned() } else { format!("cases: {}", counts.join(", ")) };
    let winner = match comparison.winner {
        Winner::Base => "the candidate is worse",
        Winner::Candidate => "the candidate is better",
        Winner::Mixed => "the candidate is better in some cases and worse in others",
        Winner::NotDistinguishable => "the two cannot be told apart",
        Winner::UnequalSets => "no winner is named, since the two did not measure the same trials",
    };
    format!("{cases} (exact tests, Holm, level 0.05); {winner}")
}
