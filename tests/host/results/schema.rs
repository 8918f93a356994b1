//! What is printed and stored is valid by the published schemas, asked of a real validator; and the schemas leave nothing
//! out and let nothing slip.

use super::sample::{JOURNAL, demo, finish, id, record, scratch, trials};
use crashlab::cli::SchemaName;
use crashlab::commands::schema::find;
use crashlab::report::events::{Event, Events};
use crashlab::results::record::{Kept, LockRecord, Redaction, RunOutcome, RunRecord, Shortfall};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// The schema, and the same with every unknown key refused: what shows that no key is left out.
fn validators(name: SchemaName) -> [jsonschema::Validator; 2] {
    let schema = find(name).unwrap();
    let mut closed = schema.clone();
    close(&mut closed);
    [&schema, &closed].map(|schema| jsonschema::draft202012::new(schema).unwrap())
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            if entries.contains_key("properties") && entries.contains_key("type") {
                entries.insert("additionalProperties".to_owned(), false.into());
            }
            entries.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

fn assert_valid(name: SchemaName, value: &Value) {
    for validator in validators(name) {
        let errors: Vec<String> = validator.iter_errors(value).map(|e| format!("{} {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{errors:?}: {value}");
    }
}

fn full(results: &camino::Utf8Path) -> RunRecord {
    let mut run = demo(results, "20260102T030405Z-k3f9");
    run.tag = Some("nightly".to_owned());
    run.shard = Some("1/3".to_owned());
    run.merged_from = vec![id("a"), id("b")];
    run.seed = Some(u64::MAX);
    run.sandbox.shortfalls = vec![Shortfall {
        requirement: "memory".to_owned(),
        requested: "268435456".to_owned(),
        observed: None,
        hint: Some("enable the memory controller".to_owned()),
    }];
    run.redactions =
        vec![Redaction { name: "OPENAI_API_KEY".to_owned(), file: "trials/a/1/stderr".to_owned(), count: 1 }];
    let kept = Kept { kind: "image".to_owned(), id: None, name: Some("x:y".to_owned()), reason: "moved".to_owned() };
    run.cleanup.kept = vec![kept.clone()];
    run.cleanup.failures = vec![kept];
    run
}

#[test]
fn run_json_is_valid_with_everything_known_and_with_nothing_known() {
    let scratch = scratch();
    let full = full(&scratch.results);
    assert_valid(SchemaName::Run, &serde_json::to_value(&full).unwrap());
    let mut bare = full;
    (bare.target, bare.engine, bare.finished, bare.exit) = (None, None, None, None);
    bare.outcome = RunOutcome::Running;
    bare.evaluation.lock = None::<LockRecord>;
    bare.set_trials(trials("a", "nu"));
    for trial in &mut bare.trials {
        (trial.usage.input_tokens, trial.usage.cost_usd) = (None, None);
    }
    assert_valid(SchemaName::Run, &serde_json::to_value(&bare).unwrap());
}

#[test]
fn the_run_schema_refuses_what_is_no_run() {
    let good = serde_json::to_value(finish(record("a"), trials("a", "pf"))).unwrap();
    let [open, _] = validators(SchemaName::Run);
    assert!(open.is_valid(&good));
    let table = [
        ("/schema", json!("crashlab.run/2")),
        ("/exit", json!("0")),
        ("/trials/0/outcome", json!("errored")),
        ("/trials/0/trial", json!("a/0")),
        ("/trials/0/stop/reason", json!("oom")),
        ("/trials/0/usage/requests", json!(-1)),
        ("/cases/0/interval/method", json!("wald")),
        ("/evaluation/digest", json!("sha256:12")),
        ("/counts", json!({"trials": 2})),
        ("/run", json!("../x")),
    ];
    for (pointer, bad) in table {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = bad;
        assert!(!open.is_valid(&changed), "{pointer}");
    }
}

/// A sink that a test can look into while events are told.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_event_is_one_valid_line() {
    let record = finish(record("a"), trials("a", "p"));
    let sink = Shared::default();
    let events = Events::to(record.run.clone(), Box::new(sink.clone()));
    let told = [
        Event::RunStarted { name: "refund-desk", trials: 1, jobs: 4, path: ".crashlabs/runs/a" },
        Event::Warning { message: "two\nlines" },
        Event::TrialStarted { trial: "a/1" },
        Event::finished(&record.trials[0]),
        Event::end(&record),
    ];
    for (count, event) in told.iter().enumerate() {
        events.tell(event).unwrap();
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), count + 1);
        assert_valid(SchemaName::Event, &serde_json::from_str(text.lines().last().unwrap()).unwrap());
    }
    let error = json!({"schema": "crashlab.error/1", "exit": 2, "message": "m", "where": null, "hint": null});
    assert_valid(SchemaName::Event, &error);
    let [open, _] = validators(SchemaName::Event);
    assert!(!open.is_valid(&json!({"schema": "crashlab.event/1", "event": "nonsense"})));
}

#[test]
fn every_line_of_a_journal_is_valid() {
    for line in JOURNAL.lines() {
        assert_valid(SchemaName::Journal, &serde_json::from_str(line).unwrap());
    }
    let [open, _] = validators(SchemaName::Journal);
    let bad = JOURNAL.lines().next().unwrap().replace("intent", "guess");
    assert!(!open.is_valid(&serde_json::from_str(&bad).unwrap()));
}
