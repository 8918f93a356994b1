//! The wire form of a stored run: `run.json` and `trial.json`, key by key as the interface fixes them. Holds no rule
//! beyond sums and rates. What is not known is null, never 0 and never an empty string; unknown keys are accepted, since a
//! later version may have written them.

pub use crate::evaluation::LockRecord;
use crate::ids::{CaseId, Digest, RunId, TrialId};
use crate::results::statistics::wilson;
use crate::totals::Totals;
use crate::verdict::{Check, Counts, Outcome, Reason, Stop};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::SystemTime;

/// The `schema` of a `run.json` that this version writes and reads.
pub const SCHEMA: &str = "crashlab.run/1";

/// A moment as it is stored: RFC 3339, UTC, milliseconds.
pub fn timestamp(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// `run.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run's id.
    pub run: RunId,
    /// When it started.
    pub started: String,
    /// When it ended, clean-up included.
    pub finished: Option<String>,
    /// What it came to.
    pub outcome: RunOutcome,
    /// The exit code; null while it runs.
    pub exit: Option<u8>,
    /// The version of crashlab.
    pub crashlab: String,
    /// `--tag`.
    pub tag: Option<String>,
    /// Repetitions of each case.
    pub repeat: u32,
    /// Trials at the same time.
    pub jobs: u32,
    /// `K/N`.
    pub shard: Option<String>,
    /// How often it was resumed.
    pub resumed: u32,
    /// The runs that `merge` made it from.
    pub merged_from: Vec<RunId>,
    /// The seed of the drills.
    pub seed: Option<u64>,
    /// The package.
    pub evaluation: EvaluationRecord,
    /// What was tried; null until the snapshot is taken.
    pub target: Option<TargetRecord>,
    /// Where it ran; null until the engine answered.
    pub engine: Option<EngineRecord>,
    /// What was asked for and what was proven.
    pub sandbox: SandboxRecord,
    /// The ways to a provider.
    pub gateways: BTreeMap<String, GatewayRecord>,
    /// All trials together.
    pub counts: Counts,
    /// By case and drill, in trial order.
    pub cases: Vec<CaseRecord>,
    /// In case, then drill, then repetition order.
    pub trials: Vec<TrialRecord>,
    /// All trials together.
    pub usage: Totals,
    /// Where secrets were taken out.
    pub redactions: Vec<Redaction>,
    /// What became of the scope's resources.
    pub cleanup: Cleanup,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// Every trial passed.
    Passed,
    /// At least one failed, none is uncertain.
    Failed,
    /// At least one trial was not measured, or provisioning failed.
    Uncertain,
    /// A signal, or the end of its process, came before its end.
    Interrupted,
    /// Not finished.
    Running,
}

impl RunOutcome {
    /// Of a run that ended: by its counts, a signal over all.
    pub fn of(counts: &Counts, interrupted: bool) -> Self {
        match () {
            () if interrupted => Self::Interrupted,
            () if counts.uncertain > 0 => Self::Uncertain,
            () if counts.failed > 0 => Self::Failed,
            () if counts.not_run > 0 => Self::Uncertain,
            () => Self::Passed,
        }
    }

    /// As it is stored.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Uncertain => "uncertain",
            Self::Interrupted => "interrupted",
            Self::Running => "running",
        }
    }
}

/// The package that judged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct EvaluationRecord {
    /// The policy's name.
    pub name: String,
    /// Over the package's files.
    pub digest: Digest,
    /// Over the merged policy.
    pub policy: Digest,
    /// The declared dependency lock.
    pub lock: Option<LockRecord>,
    /// Whether a lock was declared (T3).
    pub reproducible: bool,
    /// The host process.
    pub command: Vec<String>,
}

/// What was tried.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TargetRecord {
    /// The folder, as it was named.
    pub source: String,
    /// Git's commit; null outside a repository.
    pub commit: Option<String>,
    /// Whether the tree differed from it; null outside a repository.
    pub dirty: Option<bool>,
    /// The snapshot's digest.
    pub snapshot: Digest,
    /// Number of files.
    pub files: u64,
    /// Size of all files.
    pub bytes: u64,
    /// The image; null until there is one.
    pub image: Option<ImageRecord>,
    /// What runs in it.
    pub command: Vec<String>,
}

/// The image that trials ran in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ImageRecord {
    /// What trials ran by.
    pub id: Digest,
    /// What it was named; null for an image that has only its id.
    pub reference: Option<String>,
    /// `built`, `pulled` or `provided`.
    pub origin: ImageOrigin,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageOrigin {
    /// By this run, from the snapshot.
    Built,
    /// By this run, since it was missing.
    Pulled,
    /// It was there.
    Provided,
}

/// The engine as it describes itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EngineRecord {
    /// The engine's version.
    pub version: Option<String>,
    /// The API's version.
    pub api: Option<String>,
    /// Where it was reached.
    pub endpoint: Option<String>,
    /// Its operating system.
    pub os: Option<String>,
    /// 1 or 2.
    pub cgroup: Option<u32>,
    /// The runtime of the trials.
    pub runtime: Option<String>,
    /// The version of buildx.
    pub buildx: Option<String>,
}

/// What the sandbox was to be, and what it was seen to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SandboxRecord {
    /// By requirement.
    pub requested: serde_json::Map<String, Value>,
    /// By requirement, as seen from inside and from the engine.
    pub attested: serde_json::Map<String, Value>,
    /// What the engine does not enforce; each makes the trials uncertain.
    pub shortfalls: Vec<Shortfall>,
}

/// A requirement that is not enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortfall {
    /// Its name.
    pub requirement: String,
    /// What was asked for.
    pub requested: String,
    /// What was seen; null where nothing was.
    pub observed: Option<String>,
    /// What would help.
    pub hint: Option<String>,
}

/// A gateway's secret-free facts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GatewayRecord {
    /// As the policy names it.
    pub dialect: String,
    /// The origin, or the script's path.
    pub upstream: String,
    /// What the private URL ended in.
    pub target_path: String,
    /// `METHOD /path`.
    pub routes: Vec<String>,
    /// Globs.
    pub models: Vec<String>,
    /// As checked.
    pub limits: Value,
    /// What the provider was allowed to do by itself.
    pub grants: Vec<String>,
}

/// The trials of one case under one drill.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseRecord {
    /// The case.
    pub case: CaseId,
    /// The drill; null is undisturbed.
    pub drill: Option<String>,
    /// All that were selected.
    pub trials: u64,
    /// Every check passed.
    pub passed: u64,
    /// At least one check failed.
    pub failed: u64,
    /// Not measured.
    pub uncertain: u64,
    /// Never started.
    pub not_run: u64,
    /// passed / (passed + failed), three decimals; null where nothing was measured.
    pub pass_rate: Option<f64>,
    /// Null where nothing was measured.
    pub interval: Option<Interval>,
}

impl CaseRecord {
    /// A case's rates from its counts.
    pub fn new(case: CaseId, drill: Option<String>, counts: &Counts) -> Self {
        let Counts { trials, passed, failed, uncertain, not_run } = *counts;
        let pass_rate = rate(passed, counts.measured());
        let interval = wilson(passed, counts.measured()).map(|(low, high)| Interval::wilson(low, high));
        Self { case, drill, trials, passed, failed, uncertain, not_run, pass_rate, interval }
    }

    /// The counts again.
    pub fn counts(&self) -> Counts {
        let Self { trials, passed, failed, uncertain, not_run, .. } = *self;
        Counts { trials, passed, failed, uncertain, not_run }
    }

    /// By case and drill, in the order in which the trials come.
    pub fn of(trials: &[TrialRecord]) -> Vec<Self> {
        let mut order: Vec<(&CaseId, &Option<String>)> = Vec::new();
        let mut counts: BTreeMap<(&CaseId, &Option<String>), Counts> = BTreeMap::new();
        for trial in trials {
            let key = (&trial.case, &trial.drill);
            counts.entry(key).or_insert_with(|| {
                order.push(key);
                Counts::default()
            });
            if let Some(counts) = counts.get_mut(&key) {
                counts.add(trial.outcome);
            }
        }
        let of = |key: &(&CaseId, &Option<String>)| counts.get(key).copied().unwrap_or_default();
        order.iter().map(|key| Self::new(key.0.clone(), key.1.clone(), &of(key))).collect()
    }
}

/// A confidence interval of a rate, three decimals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// 0.95.
    pub level: f64,
    /// `wilson`.
    pub method: String,
}

impl Interval {
    fn wilson(low: f64, high: f64) -> Self {
        Self { low: thousandths(low), high: thousandths(high), level: 0.95, method: "wilson".to_owned() }
    }
}

/// `part / whole` to three decimals; none of nothing.
pub fn rate(part: u64, whole: u64) -> Option<f64> {
    #[expect(clippy::cast_precision_loss, reason = "counts of trials are far below 2^52")]
    (whole > 0).then(|| thousandths(part as f64 / whole as f64))
}

fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// A trial: `trial.json`, and an entry of `run.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrialRecord {
    /// `CASE/N`, under a drill `CASE@DRILL/N`.
    pub trial: String,
    /// The case.
    pub case: CaseId,
    /// The drill; null is undisturbed.
    pub drill: Option<String>,
    /// From 1.
    pub repetition: u32,
    /// From 1; earlier attempts are kept in `attempt-K/` of the trial's folder.
    pub attempt: u32,
    /// What it came to.
    pub outcome: Outcome,
    /// Why it was not measured.
    pub reason: Option<Reason>,
    /// How the target stopped; null where it never ran.
    pub stop: Option<Stop>,
    /// The evaluation's own, then the built-in one.
    pub checks: Vec<Check>,
    /// When the trial started; null for one that was not run.
    pub started: Option<String>,
    /// The target's own time; null where it never ran.
    pub duration_ms: Option<u64>,
    /// Faults that a drill injected, in order.
    pub faults: Vec<FaultRecord>,
    /// Bounded words on what went wrong beside the checks.
    pub diagnostics: Vec<String>,
    /// What it cost.
    pub usage: Totals,
}

impl TrialRecord {
    /// A trial that was not run.
    pub fn not_run(id: &TrialId) -> Self {
        Self {
            trial: id.to_string(),
            case: id.case.clone(),
            drill: id.drill.clone(),
            repetition: id.repetition,
            attempt: 1,
            outcome: Outcome::NotRun,
            reason: None,
            stop: None,
            checks: Vec::new(),
            started: None,
            duration_ms: None,
            faults: Vec::new(),
            diagnostics: Vec::new(),
            usage: Totals::default(),
        }
    }

    /// Its identity.
    pub fn id(&self) -> TrialId {
        TrialId { case: self.case.clone(), drill: self.drill.clone(), repetition: self.repetition }
    }
}

/// A fault that a drill injected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// The fault's kind, as the policy names it.
    pub kind: String,
    /// `gateway:NAME` or `operation:NAME`.
    pub on: String,
    /// The route that was struck; null for an operation.
    pub route: Option<String>,
    /// Which call, from 1.
    pub call: u64,
}

/// A place where a secret was taken out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redaction {
    /// The secret's name.
    pub name: String,
    /// Relative to the run's folder.
    pub file: String,
    /// How often.
    pub count: u64,
}

/// What became of the scope's resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleanup {
    /// What is gone.
    pub removed: Vec<Removed>,
    /// What was left on purpose.
    pub kept: Vec<Kept>,
    /// What should have gone and did not.
    pub failures: Vec<Kept>,
}

/// A resource that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// `container`, `network`, `image`, …
    pub kind: String,
    /// Its full id, or its name where it has none.
    pub id: String,
}

/// A resource that is still there, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// `container`, `network`, `image`, …
    pub kind: String,
    /// Its full id; null where it is not known.
    pub id: Option<String>,
    /// Its name; null where it has none.
    pub name: Option<String>,
    /// Why.
    pub reason: String,
}

impl RunRecord {
    /// Puts trials in, with the counts, cases and usage that follow from them.
    pub fn set_trials(&mut self, trials: Vec<TrialRecord>) {
        self.counts = Counts::of(trials.iter().map(|trial| trial.outcome));
        self.cases = CaseRecord::of(&trials);
        self.usage = Totals::sum(trials.iter().map(|trial| &trial.usage));
        self.trials = trials;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_without_a_measured_trial_has_no_rate() {
        let case = || CaseId::try_from("double-refund".to_owned()).unwrap();
        let none = Counts::of([Outcome::Uncertain, Outcome::NotRun]);
        let record = CaseRecord::new(case(), None, &none);
        assert_eq!((record.pass_rate, record.interval), (None, None));
        let two_of_three = Counts::of([Outcome::Passed, Outcome::Passed, Outcome::Failed, Outcome::Uncertain]);
        let record = CaseRecord::new(case(), None, &two_of_three);
        assert_eq!(record.pass_rate, Some(0.667));
        let text = serde_json::to_string(&record.interval).unwrap();
        assert_eq!(text, r#"{"low":0.208,"high":0.939,"level":0.95,"method":"wilson"}"#);
    }
}
