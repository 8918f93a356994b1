//! Two runs, case by case. Owns how trials are paired (case, drill, repetition), which exact test fits, Holm's correction
//! over all cases, and when no winner may be named. Trials that were not measured are counted, never guessed.

use crate::ids::{CaseId, Digest, RunId};
use crate::results::record::{CaseRecord, RunOutcome, RunRecord, TrialRecord};
use crate::results::statistics::{fisher, holm, mcnemar, pass_all, pass_any, percentile};
use crate::totals::Totals;
use crate::verdict::{Counts, Outcome};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// The `schema` of a comparison.
pub const SCHEMA: &str = "crashlab.comparison/1";
/// The level of the tests, after correction.
pub const LEVEL: f64 = 0.05;

/// Two runs, compared.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The run to compare with.
    pub base: Side,
    /// The run that may have changed.
    pub candidate: Side,
    /// What keeps the two from being alike beside the target, and what keeps a change from being seen.
    pub warnings: Vec<String>,
    /// 0.05, after Holm's correction over all tested cases.
    pub level: f64,
    /// Cases that both have, in the base's order.
    pub cases: Vec<CaseChange>,
    /// Cases that only the base has.
    pub only_base: Vec<CaseRecord>,
    /// Cases that only the candidate has.
    pub only_candidate: Vec<CaseRecord>,
    /// Measured trials without a measured partner on the other side.
    pub unpaired: Unpaired,
    /// Whom the cases speak for.
    pub winner: Winner,
}

/// One of the two runs.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Its id.
    pub run: RunId,
    /// When it started.
    pub started: String,
    /// What it came to.
    pub outcome: RunOutcome,
    /// `--tag`.
    pub tag: Option<String>,
    /// The target's snapshot.
    pub snapshot: Option<Digest>,
    /// All its trials.
    pub counts: Counts,
    /// All its trials.
    pub usage: Totals,
    /// Of its measured trials.
    pub time: Time,
}

/// The target's own time, over measured trials; null where none is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Time {
    /// Median, milliseconds.
    pub p50_ms: Option<f64>,
    /// 95th percentile, milliseconds.
    pub p95_ms: Option<f64>,
}

/// Measured trials without a measured partner.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Unpaired {
    /// Names of trials that only the base measured.
    pub base: Vec<String>,
    /// Names of trials that only the candidate measured.
    pub candidate: Vec<String>,
}

/// Whom the cases speak for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Winner {
    /// At least one case regressed, none improved.
    Base,
    /// At least one case improved, none regressed.
    Candidate,
    /// Some of each.
    Mixed,
    /// No case changed by more than chance.
    NotDistinguishable,
    /// The two did not measure the same trials: no winner is named.
    UnequalSets,
}

/// A case under a drill, on both sides.
#[derive(Debug, Clone, Serialize)]
pub struct CaseChange {
    /// The case.
    pub case: CaseId,
    /// The drill; null is undisturbed.
    pub drill: Option<String>,
    /// The base's trials.
    pub base: CaseSide,
    /// The candidate's trials.
    pub candidate: CaseSide,
    /// Repetitions that both measured.
    pub pairs: Pairs,
    /// `mcnemar` where every measured repetition has its pair, `fisher` where not; null where a side measured nothing.
    pub test: Option<&'static str>,
    /// Two-sided, exact.
    pub p: Option<f64>,
    /// After Holm's correction.
    pub p_holm: Option<f64>,
    /// What it comes to.
    pub change: Change,
}

/// What a case's change comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Worse by more than chance.
    Regressed,
    /// Better by more than chance.
    Improved,
    /// No more than chance.
    NotDistinguishable,
    /// A side measured nothing.
    NotMeasured,
}

/// One side of a case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseSide {
    /// Counts, rate and interval.
    #[serde(rename = "trials")]
    pub record: CaseRecord,
    /// pass@k and pass^k, for some k up to the measured trials.
    pub passes: Vec<Passes>,
    /// Of its measured trials.
    pub time: Time,
    /// All its trials.
    pub usage: Totals,
}

/// The chance that any, and that all, of `k` trials pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Passes {
    /// How many trials.
    pub k: u64,
    /// pass@k.
    pub any: f64,
    /// pass^k.
    pub all: f64,
}

/// Repetitions that both sides measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Pairs {
    /// Passed on both.
    pub both_passed: u64,
    /// Failed on both.
    pub both_failed: u64,
    /// Passed in the base, failed in the candidate.
    pub worse: u64,
    /// Failed in the base, passed in the candidate.
    pub better: u64,
}

impl Comparison {
    /// How many cases came to this.
    pub fn count(&self, change: Change) -> usize {
        self.cases.iter().filter(|case| case.change == change).count()
    }
}

type Key<'a> = (&'a CaseId, Option<&'a str>);
type ByCase<'a> = HashMap<Key<'a>, Vec<&'a TrialRecord>>;

/// Compares two runs.
pub fn compare(base: &RunRecord, candidate: &RunRecord) -> Comparison {
    let (of_base, of_candidate) = (by_case(base), by_case(candidate));
    let none = Vec::new();
    let mut unpaired = Unpaired::default();
    let mut cases = Vec::new();
    let records: HashMap<Key<'_>, &CaseRecord> = candidate.cases.iter().map(|case| (key(case), case)).collect();
    for record in &base.cases {
        let Some(other) = records.get(&key(record)).copied() else { continue };
        let left = of_base.get(&key(record)).unwrap_or(&none);
        let right = of_candidate.get(&key(other)).unwrap_or(&none);
        cases.push(case_change((record, left), (other, right), &mut unpaired));
    }
    correct(&mut cases);
    let (only_base, only_candidate) = (only(base, &of_candidate), only(candidate, &of_base));
    let equal = only_base.is_empty() && only_candidate.is_empty() && unpaired.is_empty();
    let winner = winner(&cases, equal);
    let mut warnings = warnings(base, candidate);
    warnings.extend(too_few(&cases));
    Comparison {
        schema: SCHEMA,
        base: side(base),
        candidate: side(candidate),
        warnings,
        level: LEVEL,
        cases,
        only_base,
        only_candidate,
        unpaired,
        winner,
    }
}

/// The cases of a run that the other one has not.
fn only(run: &RunRecord, other: &ByCase<'_>) -> Vec<CaseRecord> {
    run.cases.iter().filter(|case| !other.contains_key(&key(case))).cloned().collect()
}

impl Unpaired {
    /// Whether both sides measured the same trials.
    pub fn is_empty(&self) -> bool {
        self.base.is_empty() && self.candidate.is_empty()
    }
}

fn key(case: &CaseRecord) -> Key<'_> {
    (&case.case, case.drill.as_deref())
}

fn by_case(run: &RunRecord) -> ByCase<'_> {
    let mut cases: ByCase<'_> = HashMap::new();
    for trial in &run.trials {
        cases.entry((&trial.case, trial.drill.as_deref())).or_default().push(trial);
    }
    cases
}

fn side(run: &RunRecord) -> Side {
    Side {
        run: run.run.clone(),
        started: run.started.clone(),
        outcome: run.outcome,
        tag: run.tag.clone(),
        snapshot: run.target.as_ref().map(|target| target.snapshot.clone()),
        counts: run.counts,
        usage: run.usage,
        time: time(run.trials.iter()),
    }
}

/// Passed or failed; none where it was not measured.
fn measured(trial: &TrialRecord) -> Option<bool> {
    match trial.outcome {
        Outcome::Passed => Some(true),
        Outcome::Failed => Some(false),
        Outcome::Uncertain | Outcome::NotRun => None,
    }
}

fn time<'a>(trials: impl Iterator<Item = &'a TrialRecord>) -> Time {
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a trial are far below 2^52")]
    let of = |trial: &TrialRecord| measured(trial).and(trial.duration_ms).map(|ms| ms as f64);
    let times: Vec<f64> = trials.filter_map(of).collect();
    Time { p50_ms: percentile(&times, 50.0), p95_ms: percentile(&times, 95.0) }
}

fn case_change(
    base: (&CaseRecord, &Vec<&TrialRecord>),
    candidate: (&CaseRecord, &Vec<&TrialRecord>),
    unpaired: &mut Unpaired,
) -> CaseChange {
    let outcomes = |trials: &[&TrialRecord]| -> BTreeMap<u32, (bool, String)> {
        let one = |trial: &&TrialRecord| Some((trial.repetition, (measured(trial)?, trial.trial.clone())));
        trials.iter().filter_map(one).collect()
    };
    let (left, right) = (outcomes(base.1), outcomes(candidate.1));
    let mut pairs = Pairs::default();
    for (repetition, (before, _)) in &left {
        match right.get(repetition).map(|(after, _)| (*before, *after)) {
            Some((true, true)) => pairs.both_passed += 1,
            Some((false, false)) => pairs.both_failed += 1,
            Some((true, false)) => pairs.worse += 1,
            Some((false, true)) => pairs.better += 1,
            None => {}
        }
    }
    let alone = |these: &BTreeMap<u32, (bool, String)>, those: &BTreeMap<u32, (bool, String)>| -> Vec<String> {
        these.iter().filter(|(n, _)| !those.contains_key(n)).map(|(_, (_, name))| name.clone()).collect()
    };
    let (only_left, only_right) = (alone(&left, &right), alone(&right, &left));
    let paired = only_left.is_empty() && only_right.is_empty();
    unpaired.base.extend(only_left);
    unpaired.candidate.extend(only_right);
    let (test, p) = test(base.0, candidate.0, pairs, paired);
    CaseChange {
        case: base.0.case.clone(),
        drill: base.0.drill.clone(),
        base: case_side(base.0, base.1),
        candidate: case_side(candidate.0, candidate.1),
        pairs,
        test,
        p,
        p_holm: None,
        change: Change::NotMeasured,
    }
}

fn test(base: &CaseRecord, candidate: &CaseRecord, pairs: Pairs, paired: bool) -> (Option<&'static str>, Option<f64>) {
    if base.counts().measured() == 0 || candidate.counts().measured() == 0 {
        return (None, None);
    }
    if paired {
        return (Some("mcnemar"), Some(mcnemar(pairs.worse, pairs.better)));
    }
    (Some("fisher"), Some(fisher((base.passed, base.failed), (candidate.passed, candidate.failed))))
}

fn case_side(record: &CaseRecord, trials: &[&TrialRecord]) -> CaseSide {
    let n = record.counts().measured();
    let mut ks: Vec<u64> = [2, 3, 5, 10, n].into_iter().filter(|k| *k > 1 && *k <= n).collect();
    ks.sort_unstable();
    ks.dedup();
    let passes = ks
        .into_iter()
        .filter_map(|k| Some(Passes { k, any: pass_any(n, record.passed, k)?, all: pass_all(n, record.passed, k)? }));
    CaseSide {
        record: record.clone(),
        passes: passes.collect(),
        time: time(trials.iter().copied()),
        usage: Totals::sum(trials.iter().map(|trial| &trial.usage)),
    }
}

/// Holm's correction over every case that has a test, and what each comes to.
fn correct(cases: &mut [CaseChange]) {
    let p: Vec<f64> = cases.iter().filter_map(|case| case.p).collect();
    let mut adjusted = holm(&p).into_iter();
    for case in cases.iter_mut().filter(|case| case.p.is_some()) {
        case.p_holm = adjusted.next();
        let rate = |record: &CaseRecord| (record.passed, record.counts().measured());
        let ((before, n), (after, m)) = (rate(&case.base.record), rate(&case.candidate.record));
        let beyond_chance = case.p_holm.is_some_and(|p| p <= LEVEL);
        // after / m against before / n, in whole numbers.
        case.change = match (after * n).cmp(&(before * m)) {
            std::cmp::Ordering::Less if beyond_chance => Change::Regressed,
            std::cmp::Ordering::Greater if beyond_chance => Change::Improved,
            _ => Change::NotDistinguishable,
        };
    }
}

fn winner(cases: &[CaseChange], equal: bool) -> Winner {
    let any = |change| cases.iter().any(|case| case.change == change);
    match (equal, any(Change::Regressed), any(Change::Improved)) {
        (false, _, _) => Winner::UnequalSets,
        (true, true, false) => Winner::Base,
        (true, false, true) => Winner::Candidate,
        (true, true, true) => Winner::Mixed,
        (true, false, false) => Winner::NotDistinguishable,
    }
}

/// Whether no change could have been told from chance, had every repetition changed: then "not distinguishable" says nothing.
fn too_few(cases: &[CaseChange]) -> Option<String> {
    let tested = || cases.iter().filter(|case| case.test.is_some());
    let number = u32::try_from(tested().count()).ok().filter(|number| *number > 0)?;
    // Holm's first step: the smallest p counts as often as there are tests.
    let can_tell = |p: f64| p * f64::from(number) <= LEVEL;
    if tested().any(|case| can_tell(smallest_p(case))) {
        return None;
    }
    let wanted = (1..64_u64).find(|n| can_tell(mcnemar(*n, 0)))?;
    let cases = if number == 1 { "1 case".to_owned() } else { format!("{number} cases") };
    Some(format!(
        "too few repetitions: no change could be told from chance; with {cases} it takes --repeat {wanted} or more"
    ))
}

/// The p-value if everything that was measured had changed.
fn smallest_p(case: &CaseChange) -> f64 {
    let (n, m) = (case.base.record.counts().measured(), case.candidate.record.counts().measured());
    if case.test == Some("mcnemar") { mcnemar(n, 0) } else { fisher((n, 0), (0, m)) }
}

/// What differs beside the target: then a change may not be the agent's.
fn warnings(base: &RunRecord, candidate: &RunRecord) -> Vec<String> {
    let snapshot = |run: &RunRecord| run.target.as_ref().map(|target| target.snapshot.clone());
    let ended = |run: &RunRecord| !matches!(run.outcome, RunOutcome::Interrupted | RunOutcome::Running);
    let table = [
        (base.run == candidate.run, "the two are the same run"),
        (base.evaluation.name != candidate.evaluation.name, "the two are of different evaluations"),
        (base.evaluation.digest != candidate.evaluation.digest, "the evaluation package is not the same"),
        (base.evaluation.policy != candidate.evaluation.policy, "the policy is not the same"),
        (
            base.run != candidate.run && snapshot(base).is_some() && snapshot(base) == snapshot(candidate),
            "the target's snapshot is the same on both sides: a difference is chance, or comes from the provider",
        ),
        (
            base.seed.zip(candidate.seed).is_some_and(|(base, candidate)| base != candidate),
            "the drills' seed is not the same: not the same calls were struck",
        ),
        (!ended(base), "the base did not come to its end"),
        (!ended(candidate), "the candidate did not come to its end"),
        (!base.sandbox.shortfalls.is_empty(), "the base's sandbox was not proven"),
        (!candidate.sandbox.shortfalls.is_empty(), "the candidate's sandbox was not proven"),
    ];
    table.into_iter().filter(|(holds, _)| *holds).map(|(_, words)| words.to_owned()).collect()
}
