//! Two runs compared: pairing, the choice of the test, Holm, one-sided cases, no winner from unequal sets, the gate's exits.

use super::sample::{finish, record, scratch, store, trials};
use crashlab::cli::{self, FailOn, Format};
use crashlab::commands::compare::compare as command;
use crashlab::exit::Exit;
use crashlab::report::look::Look;
use crashlab::report::{human, markdown};
use crashlab::results::compare::{Change, Comparison, Winner, compare};
use crashlab::results::record::RunRecord;

const BASE: &str = "20260102T030405Z-base";
const CANDIDATE: &str = "20260103T030405Z-cand";

/// A run of these cases with these outcomes, repetition by repetition.
fn run(id: &str, cases: &[(&str, &str)]) -> RunRecord {
    let mut record = finish(record(id), cases.iter().flat_map(|(case, letters)| trials(case, letters)).collect());
    if let Some(target) = record.target.as_mut() {
        target.snapshot = crashlab::ids::Digest::of(id.as_bytes());
    }
    record
}

fn compared(base: &[(&str, &str)], candidate: &[(&str, &str)]) -> Comparison {
    compare(&run(BASE, base), &run(CANDIDATE, candidate))
}

#[test]
fn the_exact_test_decides_and_fewer_repetitions_prove_less() {
    let table = [
        ("pppppp", "ffffff", "mcnemar", Change::Regressed),
        ("ffffff", "pppppp", "mcnemar", Change::Improved),
        ("ppppp", "fffff", "mcnemar", Change::NotDistinguishable),
        ("ppp", "ppp", "mcnemar", Change::NotDistinguishable),
        ("ppppp", "fffffu", "mcnemar", Change::NotDistinguishable),
        ("pppppp", "fffffu", "fisher", Change::Regressed),
        ("ppppp", "fffffff", "fisher", Change::Regressed),
        ("pp", "fff", "fisher", Change::NotDistinguishable),
    ];
    for (base, candidate, test, change) in table {
        let comparison = compared(&[("a", base)], &[("a", candidate)]);
        let case = &comparison.cases[0];
        assert_eq!((case.test, case.change), (Some(test), change), "{base} {candidate} {case:?}");
    }
    let nothing = compared(&[("a", "uu")], &[("a", "pp")]);
    assert_eq!((nothing.cases[0].test, nothing.cases[0].change), (None, Change::NotMeasured));
}

#[test]
fn many_cases_raise_the_bar_for_each() {
    let alone = compared(&[("a", "pppppp")], &[("a", "ffffff")]);
    assert_eq!(alone.cases[0].change, Change::Regressed);
    let among = compared(&[("a", "pppppp"), ("b", "pppppp")], &[("a", "ffffff"), ("b", "pppppp")]);
    assert_eq!(among.cases[0].p, alone.cases[0].p);
    assert!((among.cases[0].p_holm.unwrap() - 0.0625).abs() < 1e-12);
    assert_eq!(among.cases[0].change, Change::NotDistinguishable);
}

#[test]
fn no_winner_is_named_from_unequal_sets() {
    type Cases = &'static [(&'static str, &'static str)];
    let table: [(Cases, Cases, Winner); 6] = [
        (&[("a", "ppppppp")], &[("a", "fffffff")], Winner::Base),
        (&[("a", "fffffff")], &[("a", "ppppppp")], Winner::Candidate),
        (&[("a", "ppppppp")], &[("a", "ppppppp")], Winner::NotDistinguishable),
        (&[("a", "ppppppp"), ("b", "fffffff")], &[("a", "fffffff"), ("b", "ppppppp")], Winner::Mixed),
        (&[("a", "ppppppp"), ("b", "ppppppp")], &[("a", "fffffff")], Winner::UnequalSets),
        (&[("a", "ppppppp")], &[("a", "ffffffu")], Winner::UnequalSets),
    ];
    for (base, candidate, winner) in table {
        assert_eq!(compared(base, candidate).winner, winner, "{base:?} {candidate:?}");
    }
}

/// Field case G2: 8 trials against 6 cases' worth, two of them infrastructure errors.
#[test]
fn what_only_one_side_measured_is_listed_by_name() {
    let comparison = compared(&[("a", "ppfffpuu"), ("b", "p")], &[("a", "ppffff"), ("c", "p")]);
    assert_eq!(comparison.unpaired.base, Vec::<String>::new());
    assert_eq!(comparison.only_base[0].case.as_str(), "b");
    assert_eq!(comparison.only_candidate[0].case.as_str(), "c");
    assert_eq!(comparison.base.counts.unmeasured(), 2);
    assert_eq!(comparison.cases[0].base.record.pass_rate, Some(0.5));
    let comparison = compared(&[("a", "ppu")], &[("a", "upp")]);
    assert_eq!(comparison.unpaired.base, ["a/1"]);
    assert_eq!(comparison.unpaired.candidate, ["a/3"]);
}

#[test]
fn what_differs_beside_the_target_is_warned_about() {
    let base = run(BASE, &[("a", "pppppp")]);
    let mut other = run(CANDIDATE, &[("a", "pppppp")]);
    assert_eq!(compare(&base, &other).warnings, Vec::<String>::new());
    other.evaluation.digest = crashlab::ids::Digest::of(b"another");
    other.evaluation.policy = crashlab::ids::Digest::of(b"another");
    other.target = base.target.clone();
    let warnings = compare(&base, &other).warnings.join("\n");
    for words in ["package is not the same", "policy is not the same", "snapshot is the same"] {
        assert!(warnings.contains(words), "{warnings}");
    }
}

#[test]
fn where_no_change_could_be_told_from_chance_it_says_how_many_repetitions_it_takes() {
    let warned = |base: &[(&str, &str)], candidate: &[(&str, &str)]| {
        let comparison = compare(&run(BASE, base), &run(CANDIDATE, candidate));
        let warning = comparison.warnings.into_iter().find(|words| words.contains("too few"))?;
        Some((warning.rsplit_once("--repeat ").unwrap().1.to_owned(), comparison.winner))
    };
    let says = |repeat: &str| Some((format!("{repeat} or more"), Winner::NotDistinguishable));
    assert_eq!(warned(&[("a", "p")], &[("a", "f")]), says("6"));
    assert_eq!(warned(&[("a", "ppppp")], &[("a", "fffff")]), says("6"));
    assert_eq!(warned(&[("a", "pppppp")], &[("a", "ffffff")]), None);
    let two = |letters| [("a", letters), ("b", letters)];
    assert_eq!(warned(&two("pppppp"), &two("ffffff")), says("7"));
    assert_eq!(warned(&two("ppppppp"), &two("ppppppp")), None);
    // One of them has enough.
    assert_eq!(warned(&[("a", "ppppppp"), ("b", "p")], &[("a", "ppppppp"), ("b", "p")]), None);
    assert_eq!(warned(&[("a", "uu")], &[("a", "pp")]), None);
}

#[test]
fn the_gate_fails_on_a_regression_and_does_not_pass_for_want_of_measurements() {
    let exit = |base: &str, candidate: &str, fail_on: Option<FailOn>| {
        let scratch = scratch();
        store(&scratch.results, run(BASE, &[("a", base)]));
        store(&scratch.results, run(CANDIDATE, &[("a", candidate)]));
        let global = cli::Global {
            results: scratch.results.clone(),
            format: Format::Json,
            quiet: true,
            color: cli::Color::Never,
        };
        let args = cli::Compare { base: BASE.to_owned(), candidate: "latest".to_owned(), fail_on, html: None };
        command(&global, &args, &mut Vec::new()).unwrap()
    };
    let gate = Some(FailOn::Regression);
    assert_eq!(exit("pppppp", "ffffff", None), Exit::Success);
    assert_eq!(exit("pppppp", "ffffff", gate), Exit::Failed);
    assert_eq!(exit("ffffff", "pppppp", gate), Exit::Success);
    assert_eq!(exit("pppppp", "uuuuuu", gate), Exit::Uncertain);
}

#[test]
fn a_comparison_as_it_is_seen() {
    let mut base = run(
        BASE,
        &[("double-refund", "ffffffff"), ("polite-refusal", "pppppppp"), ("slow-lookup", "ppppuuuu"), ("gone", "p")],
    );
    base.tag = Some("main | `x` @all".to_owned());
    let candidate = run(
        CANDIDATE,
        &[("double-refund", "pppppppp"), ("polite-refusal", "ppppfppp"), ("slow-lookup", "uuuupppp"), ("new", "u")],
    );
    let comparison = compare(&base, &candidate);
    for width in [80, 160] {
        let mut out = Vec::new();
        human::compare(&comparison, &Look::plain(width), &mut out).unwrap();
        insta::assert_snapshot!(format!("compare_{width}"), String::from_utf8(out).unwrap());
    }
    let mut out = Vec::new();
    markdown::compare(&comparison, &mut out).unwrap();
    insta::assert_snapshot!("compare_markdown", String::from_utf8(out).unwrap());
}
