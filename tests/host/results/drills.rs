//! Stored runs under drills: the matrix on a terminal and as a page, and what each other form says of a drill.

use super::sample::{fault, finish, record, scratch, store, trials};
use camino::Utf8Path;
use crashlab::report::look::Look;
use crashlab::report::{html, human, junit};
use crashlab::results::compare::{Comparison, Winner, compare};
use crashlab::results::record::{RunRecord, TrialRecord};
use crashlab::results::{merge, read};
use crashlab::verdict::Outcome;

const RUN: &str = "20260102T030405Z-k3f9";

fn text(write: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Three cases under four drills, some places failed, unmeasured or not there at all.
fn drilled(results: &Utf8Path, run: &str, change: impl Fn(&mut Vec<TrialRecord>)) -> RunRecord {
    let table = [
        ("damaged-item", ["pp", "pp", "pf", "ff", "pu"]),
        ("Partial.refund", ["pp", "pp", "uu", "pp", "pp"]),
        ("only-a-question", ["pp", "pp", "", "pp", "pp"]),
    ];
    let drills = ["", "@cut-stream", "@duplicate-delivery", "@injected-instructions", "@rate-limited"];
    let mut all = Vec::new();
    for (case, letters) in table {
        for (drill, letters) in drills.iter().zip(letters) {
            all.extend(trials(&format!("{case}{drill}"), letters));
        }
    }
    for trial in all.iter_mut().filter(|trial| trial.drill.is_some() && trial.outcome != Outcome::NotRun) {
        trial.faults = vec![fault()];
    }
    change(&mut all);
    let mut record = record(run);
    record.seed = Some(7);
    record.repeat = 2;
    let record = finish(record, all);
    store(results, record.clone());
    record
}

fn shown(record: &RunRecord, width: usize) -> String {
    text(|out| human::run(record, "runs/x".into(), &Look::plain(width), out))
}

/// The part of a glance between the cases and the trials.
fn matrix(shown: &str) -> String {
    let parts: Vec<&str> =
        shown.split("\n\n").filter(|part| part.contains("UNDISTURBED") || part.contains("(N ?)")).collect();
    parts.join("\n\n")
}

#[test]
fn the_matrix_of_a_run_is_whole_at_any_width() {
    let scratch = scratch();
    let record = drilled(&scratch.results, RUN, |_| {});
    let wide = "\
CASE             UNDISTURBED  cut-stream  duplicate-delivery  injected-instructions  rate-limited
damaged-item           100 %       100 %                50 %                    0 %   100 % (1 ?)
Partial.refund         100 %       100 %             – (2 ?)                  100 %         100 %
only-a-question        100 %       100 %                                      100 %         100 %

(N ?): so many trials were not measured and do not count";
    assert_eq!(matrix(&shown(&record, 120)), wide);
    for width in [60, 80, 100] {
        let shown = shown(&record, width);
        let parts = shown.matches("UNDISTURBED").count();
        assert!(parts > 1 || width == 100, "{shown}");
        for drill in ["cut-stream", "duplicate-delivery", "injected-instructions", "rate-limited"] {
            let headings = shown.lines().filter(|line| line.contains("UNDISTURBED") && line.contains(drill));
            assert_eq!(headings.count(), 1, "{drill} at {width}:\n{shown}");
        }
        let lines = shown.lines().skip_while(|line| !line.contains("UNDISTURBED")).take(parts * 5);
        assert!(lines.clone().all(|line| line.chars().count() <= width), "{width}:\n{shown}");
    }
    assert!(shown(&record, 100).contains("seed 7"));
}

#[test]
fn a_run_without_drills_has_no_matrix() {
    let scratch = scratch();
    let record = finish(record(RUN), trials("one", "pf"));
    store(&scratch.results, record.clone());
    assert!(!shown(&record, 100).contains("UNDISTURBED"));
    let stored = read::find(&scratch.results, RUN).unwrap();
    assert!(!text(|out| html::run(&stored, out)).contains("<table id=\"drills\">"));
}

#[test]
fn the_page_has_the_matrix_the_seed_and_the_faults() {
    let scratch = scratch();
    drilled(&scratch.results, RUN, |_| {});
    let page = text(|out| html::run(&read::find(&scratch.results, RUN).unwrap(), out));
    let table = page.split("<table id=\"drills\">").nth(1).unwrap().split("</table>").next().unwrap();
    let heads: Vec<&str> =
        table.split("<th scope=\"col\" class=\"number\">").skip(1).map(|it| it.split('<').next().unwrap()).collect();
    assert_eq!(heads, ["Undisturbed", "cut-stream", "duplicate-delivery", "injected-instructions", "rate-limited"]);
    for cell in [
        "<td class=\"number\" title=\"1 of 2 passed\"><span class=\"bad\">50 %</span></td>",
        "<td class=\"number\" title=\"1 of 1 passed\"><span class=\"good\">100 %</span> <span class=\"doubt\">(1 not measured)</span></td>",
        "<td class=\"number\" title=\"0 of 0 passed\"><span class=\"doubt\">–</span> <span class=\"doubt\">(2 not measured)</span></td>",
        "<th scope=\"row\">Partial.refund</th>",
        "<td></td>",
    ] {
        assert!(table.contains(cell), "{cell}\n{table}");
    }
    assert!(page.contains("<dt>Seed</dt><dd>7</dd>") && page.contains("1 fault injected"));
    assert!(page.contains("injected: status on gateway:openai POST /v1/responses, call 2"));
}

#[test]
fn a_suite_of_junit_is_a_case_under_a_drill_and_says_what_was_injected() {
    let scratch = scratch();
    let record = drilled(&scratch.results, RUN, |_| {});
    let xml = text(|out| junit::run(&record, out));
    let name = "refund-desk.damaged-item@injected-instructions";
    let suite =
        xml.split(&format!("<testsuite name=\"{name}\" tests=\"2\" failures=\"2\" errors=\"0\" skipped=\"0\"")).nth(1);
    let suite = suite.unwrap().split("</testsuite>").next().unwrap();
    assert!(suite.contains(&format!("classname=\"{name}\" name=\"damaged-item@injected-instructions/1\"")), "{suite}");
    assert!(suite.contains("injected: status on gateway:openai POST /v1/responses, call 2"), "{suite}");
    assert_eq!(xml.matches("<testsuite ").count(), 14, "a case under a drill without trials has no suite");
}

#[test]
fn a_comparison_pairs_by_case_drill_and_repetition() {
    let scratch = scratch();
    let base = drilled(&scratch.results, "base", |_| {});
    let all_passed = |trials: &mut Vec<TrialRecord>| {
        // The same trials, in another order.
        trials.reverse();
        for trial in trials.iter_mut().filter(|trial| trial.drill.as_deref() == Some("injected-instructions")) {
            trial.outcome = Outcome::Passed;
        }
    };
    let candidate = drilled(&scratch.results, "candidate", all_passed);
    let comparison = compare(&base, &candidate);
    let pairs = |case: &str, drill: Option<&str>| {
        let found = comparison.cases.iter().find(|it| it.case.as_str() == case && it.drill.as_deref() == drill);
        let pairs = found.unwrap().pairs;
        (pairs.both_passed, pairs.both_failed, pairs.worse, pairs.better)
    };
    assert_eq!(pairs("damaged-item", None), (2, 0, 0, 0));
    assert_eq!(pairs("damaged-item", Some("injected-instructions")), (0, 0, 0, 2));
    assert_eq!(pairs("damaged-item", Some("duplicate-delivery")), (1, 1, 0, 0));
    assert_eq!(pairs("damaged-item", Some("rate-limited")), (1, 0, 0, 0));
    assert!(comparison.unpaired.base.is_empty() && comparison.only_base.is_empty());
    let mut other = candidate.clone();
    other.seed = Some(8);
    let warned = |comparison: &Comparison| comparison.warnings.iter().any(|words| words.contains("seed"));
    assert!(!warned(&comparison) && warned(&compare(&base, &other)));
    // A drill that only one side has is listed, and no winner is named.
    let undisturbed = drilled(&scratch.results, "plain", |trials| trials.retain(|trial| trial.drill.is_none()));
    let comparison = compare(&base, &undisturbed);
    assert_eq!((comparison.cases.len(), comparison.only_base.len(), comparison.winner), (3, 11, Winner::UnequalSets));
}

#[test]
fn shards_of_a_drilled_run_merge_into_its_order_and_only_with_the_same_seed() {
    let scratch = scratch();
    let whole = drilled(&scratch.results, "whole", |_| {});
    let shard = |name: &str, k: usize, seed: u64| {
        let mut record = record(name);
        (record.seed, record.repeat, record.shard) = (Some(seed), 2, Some(format!("{k}/3")));
        let own = whole.trials.iter().skip(k - 1).step_by(3).cloned().collect();
        store(&scratch.results, finish(record, own));
    };
    (1..=3).for_each(|k| shard(&format!("shard-{k}"), k, 7));
    shard("other-seed", 3, 8);
    let fitted = |last: &str| {
        let runs = ["shard-2", last, "shard-1"].map(|run| read::find(&scratch.results, run).unwrap());
        merge::fit(runs.into(), false)
    };
    let refused = fitted("other-seed").err().unwrap();
    assert!(refused.to_string().contains("seed"), "{refused}");
    let merged = fitted("shard-3").unwrap().record(super::sample::id("merged")).unwrap();
    let what = |record: &RunRecord| serde_json::to_value((&record.trials, &record.cases, record.seed)).unwrap();
    assert_eq!(what(&merged), what(&whole));
}
