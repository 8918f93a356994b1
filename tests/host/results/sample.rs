//! Hand-made stored runs, written through the same store as real ones: what the tests of this room look at.

use camino::{Utf8Path, Utf8PathBuf};
use crashlab::ids::{Digest, RunId, TrialId};
use crashlab::redact::Redactor;
use crashlab::results::record::{
    Cleanup, EngineRecord, EvaluationRecord, FaultRecord, GatewayRecord, ImageOrigin, ImageRecord, LockRecord, Removed,
    RunOutcome, RunRecord, SCHEMA, SandboxRecord, TargetRecord, TrialRecord,
};
use crashlab::results::store::{Store, TrialFile, TrialFolder, TrialLog};
use crashlab::totals::Totals;
use crashlab::verdict::{Check, Counts, Outcome, Reason, Stop, StopReason};
use serde_json::{Value, json};

/// A folder for results that goes with the test.
pub struct Scratch {
    _folder: tempfile::TempDir,
    /// What `--results` names.
    pub results: Utf8PathBuf,
}

pub fn scratch() -> Scratch {
    let folder = tempfile::tempdir().unwrap();
    let results = Utf8Path::from_path(folder.path()).unwrap().join(".crashlabs");
    Scratch { _folder: folder, results }
}

pub fn id(text: &str) -> RunId {
    RunId::try_from(text.to_owned()).unwrap()
}

pub fn plain() -> Redactor {
    Redactor::new(Vec::new()).unwrap()
}

/// A run of nothing yet.
pub fn record(run: &str) -> RunRecord {
    let sizes = json!({"memory": 268435456, "processes": 128});
    let sandbox = SandboxRecord {
        requested: sizes.as_object().unwrap().clone(),
        attested: sizes.as_object().unwrap().clone(),
        shortfalls: vec![],
    };
    RunRecord {
        schema: SCHEMA.to_owned(),
        run: id(run),
        started: "2026-01-02T03:04:05.000Z".to_owned(),
        finished: Some("2026-01-02T03:04:17.500Z".to_owned()),
        outcome: RunOutcome::Passed,
        exit: Some(0),
        crashlab: "0.1.0".to_owned(),
        tag: None,
        repeat: 3,
        jobs: 4,
        shard: None,
        resumed: 0,
        merged_from: vec![],
        seed: None,
        evaluation: EvaluationRecord {
            name: "refund-desk".to_owned(),
            digest: Digest::of(b"package"),
            policy: Digest::of(b"policy"),
            lock: Some(LockRecord { path: "requirements.lock".into(), sha256: Digest::of(b"lock") }),
            reproducible: true,
            command: vec!["python3".to_owned(), "evaluation.py".to_owned()],
        },
        target: Some(TargetRecord {
            source: "target".to_owned(),
            commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            dirty: Some(true),
            snapshot: Digest::of(b"snapshot"),
            files: 3,
            bytes: 1234,
            image: Some(ImageRecord {
                id: Digest::of(b"image"),
                reference: Some("crashlab/20260102t030405z-k3f9:target".to_owned()),
                origin: ImageOrigin::Built,
            }),
            command: vec!["python3".to_owned(), "/target/agent.py".to_owned()],
        }),
        engine: Some(EngineRecord {
            version: Some("20.10.24".to_owned()),
            api: Some("1.41".to_owned()),
            endpoint: Some("unix:///var/run/docker.sock".to_owned()),
            os: Some("Debian GNU/Linux 12 (bookworm)".to_owned()),
            cgroup: Some(1),
            runtime: Some("runc".to_owned()),
            buildx: Some("0.13.1".to_owned()),
        }),
        sandbox,
        gateways: std::iter::once((
            "openai".to_owned(),
            GatewayRecord {
                dialect: "openai".to_owned(),
                upstream: "https://api.openai.com".to_owned(),
                target_path: "/v1".to_owned(),
                routes: vec!["POST /v1/responses".to_owned()],
                models: vec!["gpt-5*".to_owned()],
                limits: json!({"requests": 50}),
                grants: vec![],
            },
        ))
        .collect(),
        counts: Counts::default(),
        cases: vec![],
        trials: vec![],
        usage: Totals::default(),
        redactions: vec![],
        cleanup: Cleanup {
            removed: vec![Removed { kind: "container".to_owned(), id: "c".repeat(64) }],
            kept: vec![],
            failures: vec![],
        },
    }
}

/// A trial that ran, with this outcome.
pub fn trial(name: &str, outcome: Outcome) -> TrialRecord {
    let id: TrialId = name.parse().unwrap();
    let passed = outcome == Outcome::Passed;
    let mut trial = TrialRecord::not_run(&id);
    trial.outcome = outcome;
    if outcome == Outcome::NotRun {
        return trial;
    }
    trial.reason = (outcome == Outcome::Uncertain).then_some(Reason::ProviderError);
    trial.stop = Some(Stop { reason: StopReason::Exited, code: Some(0) });
    trial.checks = vec![
        Check {
            name: "refunded once".to_owned(),
            passed,
            detail: Some(if passed { "1 refund" } else { "2 refunds for order 1007" }.to_owned()),
        },
        Check { name: "clean exit".to_owned(), passed: true, detail: Some("exited 0".to_owned()) },
    ];
    trial.started = Some("2026-01-02T03:04:06.000Z".to_owned());
    trial.duration_ms = Some(812 + 10 * u64::from(id.repetition));
    trial.usage = Totals {
        requests: 3,
        refused: 0,
        input_tokens: Some(812),
        cached_input_tokens: Some(0),
        output_tokens: Some(120),
        cost_usd: Some(0.0004),
        unknown: 0,
    };
    trial
}

/// Trials `CASE/1…` from letters: p passed, f failed, u uncertain, n not run.
pub fn trials(case: &str, letters: &str) -> Vec<TrialRecord> {
    let outcome = |letter| match letter {
        'p' => Outcome::Passed,
        'f' => Outcome::Failed,
        'u' => Outcome::Uncertain,
        _ => Outcome::NotRun,
    };
    letters.chars().enumerate().map(|(n, letter)| trial(&format!("{case}/{}", n + 1), outcome(letter))).collect()
}

/// Ends a run with these trials, outcome and exit as they follow.
pub fn finish(mut record: RunRecord, trials: Vec<TrialRecord>) -> RunRecord {
    record.set_trials(trials);
    record.outcome = RunOutcome::of(&record.counts, false);
    record.exit = Some(crashlab::verdict::exit_of(&record.counts, None, false).code());
    record
}

/// Stores a run whose trials have their `trial.json` and nothing else.
pub fn store(results: &Utf8Path, record: RunRecord) -> Store {
    let store = Store::create(results, &record.run, plain()).unwrap();
    for trial in &record.trials {
        if trial.outcome != Outcome::NotRun {
            store.trial(&trial.id()).unwrap().finish(trial.clone()).unwrap();
        }
    }
    store.write_run(record).unwrap();
    store
}

/// What a refunding agent left behind.
pub fn fill(folder: &TrialFolder, trial: &TrialRecord) {
    let before = json!({"orders": {"1007": {"total_cents": 4200, "status": "paid"}}, "refunds": []});
    let refund = json!({"order_id": "1007", "amount_cents": 4200});
    let after = json!({
        "orders": {"1007": {"total_cents": 4200, "status": "refunded"}},
        "refunds": [refund.clone(), refund.clone()],
    });
    folder.write(TrialFile::Stdout, b"{\"answer\": \"refunded 42.00\"}\n").unwrap();
    folder.write(TrialFile::Stderr, b"thinking\nrefunding 1007\n").unwrap();
    folder.write(TrialFile::EvaluationLog, b"world created\n").unwrap();
    for line in gateway_lines() {
        folder.append(TrialLog::Gateway, &line).unwrap();
    }
    for line in operation_lines(&refund) {
        folder.append(TrialLog::Operations, &line).unwrap();
    }
    folder.write_worlds(&before, Some(&after)).unwrap();
    folder.finish(trial.clone()).unwrap();
}

fn gateway_lines() -> [Value; 2] {
    let call = |at: &str, duration: u64, status: u16, end: &str, refusal: Value| {
        json!({
            "at": at, "gateway": "openai", "method": "POST", "route": "POST /v1/responses", "model": "gpt-5-mini",
            "served": "gpt-5-mini-2025-08-07", "stream": true, "status": status, "first_byte_ms": 95, "duration_ms": duration,
            "request_bytes": 610, "response_bytes": 2048,
            "usage": {"input": 406, "cached_input": 0, "cache_write": null, "output": 60, "reasoning": 12},
            "unknown": null, "cost_usd": 0.0002, "end": end, "refusal": refusal,
        })
    };
    [
        call("2026-01-02T03:04:06.050Z", 210, 200, "complete", Value::Null),
        call("2026-01-02T03:04:06.600Z", 1, 403, "refused", json!({"limit": "models", "code": "crashlab_model"})),
    ]
}

fn operation_lines(refund: &Value) -> [Value; 3] {
    let diff = |index: usize| json!([{"op": "add", "path": format!("/refunds/{index}"), "value": refund}]);
    [
        json!({"at": "2026-01-02T03:04:06.300Z", "operation": "get_order", "via": "http", "arguments": {"order_id": "1007"},
               "result": {"total_cents": 4200, "status": "paid"}, "duration_ms": 4, "world_diff": []}),
        json!({"at": "2026-01-02T03:04:06.400Z", "operation": "refund", "via": "mcp", "arguments": refund,
               "result": {"ok": true}, "duration_ms": 6, "world_diff": diff(0)}),
        json!({"at": "2026-01-02T03:04:06.500Z", "operation": "refund", "via": "http",
               "arguments": {"order_id": "1007", "amount_cents": 990_000},
               "refused": {"code": "over_limit", "message": "a supervisor must approve refunds above 50.00"},
               "duration_ms": 3, "world_diff": []}),
    ]
}

/// A fault of a drill.
pub fn fault() -> FaultRecord {
    FaultRecord {
        kind: "status".to_owned(),
        on: "gateway:openai".to_owned(),
        route: Some("POST /v1/responses".to_owned()),
        call: 2,
    }
}

/// The run that the whole-output tests show: one case that fails at times, one that holds, one under a drill, one unmeasured.
pub fn demo(results: &Utf8Path, run: &str) -> RunRecord {
    let mut trials = trials("double-refund", "fpp");
    trials.extend(self::trials("polite-refusal", "ppp"));
    trials.extend(self::trials("slow-lookup", "uun"));
    for trial in trials.iter_mut().filter(|trial| trial.outcome == Outcome::Uncertain) {
        trial.diagnostics = vec!["the provider cut the stream\nafter 3 events\u{1b}[2J".to_owned()];
    }
    let mut drilled = trial("double-refund@flaky/1", Outcome::Failed);
    drilled.stop = Some(Stop { reason: StopReason::WallTime, code: None });
    drilled.faults = vec![fault()];
    drilled.diagnostics = vec!["the provider answered 429 on POST /v1/responses".to_owned()];
    drilled.usage.unknown = 1;
    trials.insert(3, drilled);
    let record = finish(self::record(run), trials);
    let store = Store::create(results, &record.run, plain()).unwrap();
    for trial in &record.trials {
        if trial.outcome != Outcome::NotRun {
            fill(&store.trial(&trial.id()).unwrap(), trial);
        }
    }
    std::fs::write(store.path().join("journal.jsonl"), JOURNAL).unwrap();
    store.write_run(record).unwrap()
}

/// A journal whose resource is gone.
pub const JOURNAL: &str = concat!(
    r#"{"at":"2026-01-02T03:04:05.100Z","step":"intent","kind":"container","name":"crashlab-x","id":null,"created":null,"labels":{},"reason":null}"#,
    "\n",
    r#"{"at":"2026-01-02T03:04:05.200Z","step":"created","kind":"container","name":"crashlab-x","id":"c0ffee","created":"2026-01-02T03:04:05.150Z","labels":{},"reason":null}"#,
    "\n",
    r#"{"at":"2026-01-02T03:04:16.200Z","step":"removed","kind":"container","name":"crashlab-x","id":"c0ffee","created":null,"labels":{},"reason":null}"#,
    "\n",
);
