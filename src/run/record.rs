//! The run's record: what is known at its start, what provisioning adds, what the end makes of it. Translates the rooms'
//! own types into the stored form; decides nothing.

use super::accept::Accepted;
use crate::docker::Engine;
use crate::ids::{RunId, TrialId};
use crate::image::{Origin, TargetImage};
use crate::interrupt::Interrupt;
use crate::policy::{GatewayRule, Upstream};
use crate::results::record::{
    Cleanup, EngineRecord, EvaluationRecord, GatewayRecord, ImageOrigin, ImageRecord, Kept, Removed, RunOutcome,
    RunRecord, SCHEMA, SandboxRecord, Shortfall, TargetRecord, TrialRecord, timestamp,
};
use crate::scope;
use crate::snapshot::Snapshot;
use crate::totals::Totals;
use crate::trial;
use crate::verdict::{Counts, Outcome, Reason};
use std::time::SystemTime;

/// The record of a run that starts.
pub fn begin(run: &RunId, accepted: &Accepted, engine: &Engine) -> RunRecord {
    let policy = &accepted.policy;
    let mut record = RunRecord {
        schema: SCHEMA.to_owned(),
        run: run.clone(),
        started: timestamp(SystemTime::now()),
        finished: None,
        outcome: RunOutcome::Running,
        exit: None,
        crashlab: env!("CARGO_PKG_VERSION").to_owned(),
        tag: accepted.tag.clone(),
        repeat: accepted.repeat,
        jobs: accepted.jobs,
        shard: accepted.shard.clone(),
        resumed: 0,
        merged_from: Vec::new(),
        seed: accepted.seed,
        evaluation: evaluation(accepted),
        target: None,
        engine: Some(engine_record(engine, accepted)),
        sandbox: SandboxRecord { requested: trial::sandbox::requested(policy), ..SandboxRecord::default() },
        gateways: policy.gateways.iter().map(|(name, rule)| (name.clone(), gateway(rule))).collect(),
        counts: Counts::default(),
        cases: Vec::new(),
        trials: Vec::new(),
        usage: Totals::default(),
        redactions: Vec::new(),
        cleanup: Cleanup::default(),
    };
    // The plan: whoever reads an unfinished run knows what is missing.
    record.set_trials(accepted.trials.iter().map(|planned| TrialRecord::not_run(&planned.id)).collect());
    record
}

fn evaluation(accepted: &Accepted) -> EvaluationRecord {
    EvaluationRecord {
        name: accepted.policy.name.clone(),
        digest: accepted.package.digest.clone(),
        policy: accepted.policy.digest.clone(),
        lock: accepted.package.lock.clone(),
        reproducible: accepted.package.reproducible,
        command: accepted.policy.evaluation.command.clone(),
    }
}

fn engine_record(engine: &Engine, accepted: &Accepted) -> EngineRecord {
    let runtime = accepted.policy.sandbox.runtime.as_ref().unwrap_or(&engine.runtime);
    EngineRecord {
        version: Some(engine.version.clone()),
        api: Some(engine.api.clone()),
        endpoint: Some(engine.endpoint.address.clone()),
        os: Some(engine.os.clone()),
        cgroup: Some(engine.cgroup),
        runtime: Some(runtime.clone()),
        buildx: engine.buildx.clone(),
    }
}

fn gateway(rule: &GatewayRule) -> GatewayRecord {
    let limits = &rule.limits;
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    GatewayRecord {
        dialect: rule.dialect.as_str().to_owned(),
        upstream: match &rule.upstream {
            Upstream::Origin(origin) => origin.clone(),
            Upstream::Script(path) => format!("script:{path}"),
        },
        target_path: rule.target_path.clone(),
        routes: rule.routes.iter().map(ToString::to_string).collect(),
        models: rule.models.clone(),
        limits: serde_json::json!({
            "requests": limits.requests,
            "request_size": limits.request_size,
            "response_size": limits.response_size,
            "request_time_ms": limits.request_time.map(millis),
            "first_byte_ms": millis(limits.first_byte),
            "idle_ms": millis(limits.idle),
            "tokens": limits.tokens,
            "cost_usd": limits.cost_usd,
        }),
        grants: rule.grants.iter().map(|grant| grant.as_str().to_owned()).collect(),
    }
}

/// What the snapshot says of the target.
pub fn target(accepted: &Accepted, snapshot: &Snapshot) -> TargetRecord {
    TargetRecord {
        source: accepted.target_named.clone(),
        commit: snapshot.commit.clone(),
        dirty: Some(snapshot.dirty),
        snapshot: snapshot.digest.clone(),
        files: snapshot.files,
        bytes: snapshot.bytes,
        image: None,
        command: accepted.policy.target.command.clone(),
    }
}

/// What the image is.
pub fn set_image(record: &mut RunRecord, image: &TargetImage) {
    if let Some(target) = &mut record.target {
        target.image = Some(ImageRecord {
            id: image.id.clone(),
            reference: Some(image.reference.clone()),
            origin: match image.origin {
                Origin::Built => ImageOrigin::Built,
                Origin::Pulled => ImageOrigin::Pulled,
                Origin::Provided => ImageOrigin::Provided,
            },
        });
    }
}

/// A trial of a run whose provisioning failed: not measured, or not run where that was an interruption.
pub fn unprovisioned(id: &TrialId, error: &anyhow::Error, stop: &Interrupt) -> TrialRecord {
    let blank = TrialRecord::not_run(id);
    if stop.is_raised() {
        return blank;
    }
    let outcome = Outcome::Uncertain;
    TrialRecord { outcome, reason: Some(Reason::EngineError), diagnostics: vec![format!("{error:#}")], ..blank }
}

/// What the engine does not enforce.
pub fn shortfall(of: &trial::Shortfall) -> Shortfall {
    Shortfall {
        requirement: of.requirement.clone(),
        requested: of.requested.clone(),
        observed: of.observed.clone(),
        hint: of.hint.clone(),
    }
}

/// Adds the trials, their sums and the clean-up.
pub fn finish(record: &mut RunRecord, trials: Vec<TrialRecord>, cleanup: &scope::Cleanup, stop: &Interrupt) {
    record.finished = Some(timestamp(SystemTime::now()));
    record.set_trials(trials);
    record.outcome = RunOutcome::of(&record.counts, stop.is_raised());
    record.cleanup = cleaned(cleanup);
}

fn cleaned(cleanup: &scope::Cleanup) -> Cleanup {
    let removed = |resource: &scope::Resource| Removed {
        kind: resource.kind.as_str().to_owned(),
        id: resource.handle().to_owned(),
    };
    let kept = |resource: &scope::Resource, reason: &str| Kept {
        kind: resource.kind.as_str().to_owned(),
        id: resource.id.clone(),
        name: Some(resource.name.clone()),
        reason: reason.to_owned(),
    };
    Cleanup {
        removed: cleanup.removed.iter().map(removed).collect(),
        kept: cleanup.kept.iter().map(|(resource, reason)| kept(resource, reason)).collect(),
        failures: cleanup.failures.iter().map(|failure| kept(&failure.resource, &failure.reason)).collect(),
    }
}
