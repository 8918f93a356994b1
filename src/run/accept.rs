//! Everything that can refuse a run, in the order of what it costs: policy, trust, cases, target; then the first process of
//! the evaluation, its credentials; last the engine. Nothing is written and no docker object exists when one refuses.

use super::doors::Declarations;
use crate::cli;
use crate::docker::{Docker, Engine};
use crate::drills::{self, Drills};
use crate::evaluation::{self, Declared, Host, Launch, Package, Trust};
use crate::exit::Refusal;
use crate::ids::TrialId;
use crate::image;
use crate::interrupt::Interrupt;
use crate::policy::{self, Case, Drill, Policy};
use crate::secret::HostSecret;
use crate::snapshot;
use crate::trace::Trace;
use anyhow::{Context, Result};
use camino::Utf8PathBuf;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A run that was accepted: all that it needs to know.
pub struct Accepted {
    /// Checked whole.
    pub policy: Policy,
    /// Trusted and digested.
    pub package: Package,
    /// The agent's folder.
    pub target: Utf8PathBuf,
    /// Where runs are stored: no part of a snapshot.
    pub results: camino::Utf8PathBuf,
    /// As it was named.
    pub target_named: String,
    /// In case, then drill, then repetition order.
    pub trials: Vec<Planned>,
    /// Repetitions of each case.
    pub repeat: u32,
    /// Of the drills' chances; none where no trial is drilled.
    pub seed: Option<u64>,
    /// Trials at the same time.
    pub jobs: u32,
    /// `--fail-fast`.
    pub fail_fast: bool,
    /// `--retry-uncertain`.
    pub retries: u32,
    /// `--tag`.
    pub tag: Option<String>,
    /// Image of the dedicated builder.
    pub buildkit: Option<String>,
    /// `--python`.
    pub python: Option<Utf8PathBuf>,
    /// What the evaluation says of itself.
    pub declared: Declared,
    /// Variables that no evaluation process may have.
    pub hidden: Vec<String>,
    /// The first process, for the first trial that asks.
    pub first: Mutex<Option<Host>>,
    /// Each gateway's credential.
    pub secrets: BTreeMap<String, HostSecret>,
    /// Operations and gateways, compiled.
    pub declarations: Declarations,
    /// Holds the evaluation's SDK as long as the run.
    pub sdk: tempfile::TempDir,
    /// `--shard`, as it was written.
    pub shard: Option<String>,
    /// The snapshot that it has to be, where a run is gone on with.
    pub snapshot: Option<crate::ids::Digest>,
    /// Where the time goes.
    pub trace: Trace,
    /// Raised by a signal.
    pub stop: Interrupt,
}

/// A trial that is to be run.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Which.
    pub id: TrialId,
    /// Its case.
    pub case: std::sync::Arc<Case>,
    /// The drill that it is tried under, with the run's seed.
    pub drill: Option<(std::sync::Arc<Drill>, u64)>,
}

impl Planned {
    /// The faults of one attempt at it.
    pub fn drills(&self) -> Drills {
        self.drill.as_ref().map(|(drill, seed)| Drills::new(drill, *seed, &self.id.to_string())).unwrap_or_default()
    }
}

/// The drills that a run's trials are tried under, none being undisturbed, and the seed.
struct Chosen {
    drills: Vec<Option<String>>,
    seed: Option<u64>,
}

/// `all` is undisturbed and under each drill; a name is that drill alone. All of none is a mistake: a run that was to be
/// disturbed and is not would say more than it has tried.
fn choose(policy: &Policy, args: &cli::Run) -> Result<Chosen> {
    let drills: Vec<Option<String>> = match args.drill.as_deref() {
        None => vec![None],
        Some("all") if !policy.drills.is_empty() => {
            std::iter::once(None).chain(policy.drills.keys().cloned().map(Some)).collect()
        }
        Some(name) if policy.drills.contains_key(name) => vec![Some(name.to_owned())],
        Some(name) => {
            let known: Vec<&str> = policy.drills.keys().map(String::as_str).collect();
            let hint = if known.is_empty() {
                "the policy declares none; \"extends\" can take the built-in ones, such as drills/rate-limited"
                    .to_owned()
            } else {
                format!("declared: all, {}", known.join(", "))
            };
            return Err(Refusal::new(format!("there is no drill {name:?}")).at("--drill").hint(hint).into());
        }
    };
    let seed = match args.seed {
        _ if drills.iter().all(Option::is_none) => None,
        Some(seed) => Some(seed),
        // The shards of one run are started apart, and must be under the same faults.
        None if args.shard.is_some() => Some(shared_seed(policy)),
        None => Some(generated_seed()?),
    };
    Ok(Chosen { drills, seed })
}

/// The same for each shard of a run.
fn shared_seed(policy: &Policy) -> u64 {
    u64::from_str_radix(policy.digest.hex().get(..8).unwrap_or_default(), 16).unwrap_or_default()
}

/// Short enough to be typed again, and a number that every JSON reader keeps whole.
fn generated_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).context("failed to read random bytes for a seed")?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// Refuses a chosen drill that puts earlier worlds back where the evaluation cannot.
fn restorable(policy: &Policy, chosen: &Chosen, declared: &Declared) -> Result<(), Refusal> {
    let needs = |name: &&String| policy.drills.get(*name).is_some_and(drills::needs_restore);
    match chosen.drills.iter().flatten().find(needs) {
        Some(name) if !declared.world_restore => {
            let what = format!("the drill {name} needs world.restore, which the evaluation does not have");
            Err(Refusal::new(what)
                .at(format!("policy.json#/drills/{name}"))
                .hint("implement world.restore, or choose other drills"))
        }
        _ => Ok(()),
    }
}

/// Checks everything that needs no engine.
///
/// # Errors
/// A [`Refusal`] for everything that the user can mend.
pub fn accept(args: &cli::Run, results: &camino::Utf8Path, stop: &Interrupt) -> Result<Accepted> {
    let named = &args.evaluation;
    let policy = policy::load(&named.evaluation, &named.policies)?;
    let trust = Trust::from_flag(named.trust_evaluation_code.as_deref())?;
    let package = evaluation::open(&named.evaluation, &policy)?;
    evaluation::require_trust(&package, &policy, &trust)?;
    let cases = policy::select(policy::load_cases(&package.root, &policy)?, &args.cases)?;
    let repeat = args.repeat.unwrap_or(policy.repeat);
    let chosen = choose(&policy, args)?;
    let trials = sharded(planned(&policy, cases, repeat, &chosen), args.shard.as_deref())?;
    let target_named = named.target.as_ref().unwrap_or(&policy.target.source).to_string();
    let target = named.target.clone().unwrap_or_else(|| package.root.join(&policy.target.source));
    let contents = snapshot::list(&snapshot_source(&target, &package, &policy, results))?;
    image::require_dockerfile(&policy.target.image, &target, &contents)?;
    let sdk = sdk_folder()?;
    let introduced = introduce(&policy, &package, args, &sdk, stop)?;
    restorable(&policy, &chosen, &introduced.declared)?;
    let secrets = evaluation::secrets(&policy, &introduced.declared, &package.root)?;
    let declarations = Declarations::compile(&policy, &introduced.declared, &package, &secrets, args.max_cost)?;
    Ok(Accepted {
        target,
        results: results.to_owned(),
        target_named,
        trials,
        repeat,
        seed: chosen.seed,
        jobs: args.jobs.unwrap_or_else(default_jobs),
        fail_fast: args.fail_fast,
        retries: args.retry_uncertain,
        tag: args.tag.clone(),
        buildkit: args.buildkit_image.clone(),
        python: named.python.clone(),
        declared: introduced.declared,
        hidden: introduced.hidden,
        first: Mutex::new(Some(introduced.host)),
        secrets,
        declarations,
        sdk,
        shard: args.shard.clone(),
        snapshot: None,
        trace: if args.trace.is_some() { Trace::on() } else { Trace::off() },
        stop: stop.clone(),
        policy,
        package,
    })
}

fn introduce(
    policy: &Policy,
    package: &Package,
    args: &cli::Run,
    sdk: &tempfile::TempDir,
    stop: &Interrupt,
) -> Result<evaluation::Introduced> {
    let sdk = camino::Utf8Path::from_path(sdk.path()).context("the temporary folder's path is not UTF-8")?;
    let python = args.evaluation.python.as_deref();
    let launch = Launch { package, policy, python, secrets_to_hide: &[], sdk, stop: Some(stop) };
    evaluation::introduce(&launch).map_err(|error| Refusal::new(error.to_string()).at(package.root.as_str()).into())
}

fn sdk_folder() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
    let path = camino::Utf8Path::from_path(folder.path()).context("the temporary folder's path is not UTF-8")?;
    evaluation::write_sdk(path)?;
    Ok(folder)
}

/// What the snapshot is taken of.
pub fn snapshot_source<'a>(
    target: &'a camino::Utf8Path,
    package: &'a Package,
    policy: &'a Policy,
    results: &'a camino::Utf8Path,
) -> snapshot::Source<'a> {
    let target_rule = &policy.target;
    snapshot::Source {
        source: target,
        package: Some(&package.root),
        results: Some(results),
        files: &target_rule.files,
        limits: target_rule.limits,
    }
}

/// In case, then drill, then repetition order.
fn planned(policy: &Policy, cases: Vec<Case>, repeat: u32, chosen: &Chosen) -> Vec<Planned> {
    let mut trials = Vec::new();
    let drill = |name: &Option<String>| {
        let drill = policy.drills.get(name.as_ref()?)?;
        Some((std::sync::Arc::new(drill.clone()), chosen.seed?))
    };
    let drills: Vec<_> = chosen.drills.iter().map(|name| (name.clone(), drill(name))).collect();
    for case in cases {
        let case = std::sync::Arc::new(case);
        for (name, drill) in &drills {
            for repetition in 1..=repeat {
                let id = TrialId { case: case.id.clone(), drill: name.clone(), repetition };
                trials.push(Planned { id, case: case.clone(), drill: drill.clone() });
            }
        }
    }
    trials
}

/// Trial number i (from 0) belongs to shard (i mod N) + 1.
fn sharded(trials: Vec<Planned>, shard: Option<&str>) -> Result<Vec<Planned>, Refusal> {
    let Some(text) = shard else { return Ok(trials) };
    let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
    let parsed = text.split_once('/').and_then(|(k, n)| Some((number(k)?, number(n)?))).filter(|(k, n)| k <= n);
    let refuse = |what: String| Refusal::new(what).at("--shard").hint("K/N, with K from 1 to N, such as 2/3");
    let (k, n) = parsed.ok_or_else(|| refuse(format!("{text:?} is no shard")))?;
    let of = trials.len();
    let own: Vec<Planned> = trials.into_iter().skip(k - 1).step_by(n).collect();
    if own.is_empty() {
        return Err(refuse(format!("shard {text} of {of} trials holds none")));
    }
    Ok(own)
}

/// Agents wait on a provider, not on the CPU: more than the cores of a small machine.
fn default_jobs() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cores).unwrap_or(4).max(4)
}

/// Asks the engine who it is, and whether it can hold this run at all.
///
/// # Errors
/// No client, no engine behind the endpoint, a runtime that it does not have, a remote engine where a gateway is needed.
pub fn engine(docker: &Docker, accepted: &Accepted) -> Result<Engine> {
    let engine = docker.engine().map_err(|error| no_engine(docker, &error))?;
    if let Some(runtime) = &accepted.policy.sandbox.runtime
        && !engine.runtimes.contains(runtime)
    {
        let known = engine.runtimes.join(", ");
        return Err(Refusal::new(format!("the engine has no runtime {runtime:?}"))
            .at("sandbox.runtime")
            .hint(format!("it has: {known}"))
            .into());
    }
    if !engine.endpoint.is_local() {
        anyhow::bail!(
            "the engine at {} (context {}) is not this machine's: its containers cannot reach the host's gateway, \
             and it cannot mount the snapshot\nhint: use a local engine: docker context use default, or unset DOCKER_HOST",
            engine.endpoint.address,
            engine.endpoint.context
        );
    }
    Ok(engine)
}

fn no_engine(docker: &Docker, error: &crate::docker::DockerError) -> anyhow::Error {
    let place = match docker.endpoint() {
        Ok(endpoint) => format!("no Docker engine answers at {} (context {})", endpoint.address, endpoint.context),
        Err(_) => "no Docker engine answers".to_owned(),
    };
    anyhow::anyhow!("{place}: {error}\nhint: {}", error.advice())
}
