//! One trial as it went: its record and what its files hold, in time order. Owns how evidence lines are read leniently (a
//! line may be torn, or of a later version); shows nothing itself. Terminal and page tell the same story from it.

use crate::results::read::StoredRun;
use crate::results::record::TrialRecord;
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

/// A trial with its evidence. What is not there is null.
#[derive(Debug, Clone, Serialize)]
pub struct Story {
    /// What `trial.json` says.
    pub trial: TrialRecord,
    /// Standard output as text (UTF-8, lossy).
    pub stdout: Option<String>,
    /// Standard error as text.
    pub stderr: Option<String>,
    /// The evaluation process's log as text.
    pub evaluation_log: Option<String>,
    /// The lines of `operations.jsonl`.
    pub operations: Vec<Value>,
    /// The lines of `gateway.jsonl`.
    pub gateway: Vec<Value>,
    /// The world before the target ran.
    pub world_before: Option<Value>,
    /// The world at the end.
    pub world_after: Option<Value>,
    /// RFC 6902.
    pub world_diff: Option<Value>,
}

/// Reads the story of a trial of a run.
///
/// # Errors
/// Where a file is a link, no file, or too large.
pub fn read(run: &StoredRun, trial: &TrialRecord) -> Result<Story> {
    let text = |name: &str| -> Result<Option<String>> {
        Ok(run.trial_file(trial, name)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    Ok(Story {
        trial: trial.clone(),
        stdout: text("stdout")?,
        stderr: text("stderr")?,
        evaluation_log: text("evaluation.log")?,
        operations: run.trial_lines(trial, "operations.jsonl")?,
        gateway: run.trial_lines(trial, "gateway.jsonl")?,
        world_before: run.trial_json(trial, "world-before.json")?,
        world_after: run.trial_json(trial, "world-after.json")?,
        world_diff: run.trial_json(trial, "world-diff.json")?,
    })
}

/// Something that happened in a trial.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// Milliseconds since the trial's start; none where a time is not known.
    pub at_ms: Option<u64>,
    /// How long it took.
    pub duration_ms: Option<u64>,
    /// What it was.
    pub kind: Kind<'a>,
}

/// What happened.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'a> {
    /// A request at a gateway: the line.
    Model(&'a Value),
    /// A call of an operation: the line.
    Operation(&'a Value),
}

impl Story {
    /// Model calls and operations in the order in which they began; what has no time comes last.
    pub fn events(&self) -> Vec<Event<'_>> {
        let start = self.trial.started.as_deref().and_then(moment);
        let event = |line: &'_ Value| {
            let at = line.get("at").and_then(Value::as_str).and_then(moment);
            let at_ms = at.zip(start).map(|(at, start)| at.saturating_sub(start));
            (at_ms, line.get("duration_ms").and_then(Value::as_u64))
        };
        let of = |line, kind| {
            let (at_ms, duration_ms) = event(line);
            Event { at_ms, duration_ms, kind }
        };
        let models = self.gateway.iter().map(|line| of(line, Kind::Model(line)));
        let operations = self.operations.iter().map(|line| of(line, Kind::Operation(line)));
        let mut events: Vec<Event<'_>> = models.chain(operations).collect();
        events.sort_by_key(|event| (event.at_ms.is_none(), event.at_ms));
        events
    }

    /// The end of the time axis: the target's own time, or the end of the last event.
    pub fn length_ms(&self) -> u64 {
        let ends = self.events().into_iter().filter_map(|event| Some(event.at_ms? + event.duration_ms.unwrap_or(0)));
        ends.chain(self.trial.duration_ms).max().unwrap_or(0)
    }
}

/// One changed place of a world.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// JSON pointer; for a move or a copy the place that it came to.
    pub path: String,
    /// What was there; none where it was added.
    pub before: Option<Value>,
    /// What is there; none where it was removed.
    pub after: Option<Value>,
}

/// A JSON patch as changes that a person can read. `before` is the world that it applies to.
pub fn changes(patch: &Value, before: Option<&Value>) -> Vec<Change> {
    let steps = patch.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut world = before.cloned();
    let mut changes = Vec::new();
    for step in steps {
        let Some(path) = step.get("path").and_then(Value::as_str) else { continue };
        let there = |world: &Option<Value>, path: &str| world.as_ref().and_then(|world| world.pointer(path)).cloned();
        let op = step.get("op").and_then(Value::as_str).unwrap_or_default();
        let old = there(&world, path);
        let from = step.get("from").and_then(Value::as_str).and_then(|from| there(&world, from));
        let (before, after) = match op {
            "remove" => (old, None),
            "replace" => (old, step.get("value").cloned()),
            "add" => (None, step.get("value").cloned()),
            "move" | "copy" => (None, from),
            _ => continue,
        };
        changes.push(Change { path: path.to_owned(), before, after });
        world = world.and_then(|world| apply(world, step));
    }
    changes
}

/// Steps of a patch apply one after the other: what was there before a later one depends on the earlier ones.
fn apply(mut world: Value, step: &Value) -> Option<Value> {
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(vec![step.clone()])).ok()?;
    json_patch::patch(&mut world, &patch).ok()?;
    Some(world)
}

/// A stored time as milliseconds since 1970; none where it is no RFC 3339 time.
pub fn moment(text: &str) -> Option<u64> {
    let since = humantime::parse_rfc3339(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_is_read_step_by_step() {
        let before = json!({"a": [1, 2], "b": "x"});
        let patch = json!([
            {"op": "remove", "path": "/a/0"},
            {"op": "replace", "path": "/a/0", "value": 3},
            {"op": "add", "path": "/c", "value": null},
            {"op": "test", "path": "/c", "value": null},
            {"op": "nonsense", "path": "/c"},
            "no step",
        ]);
        let shown: Vec<_> = changes(&patch, Some(&before)).into_iter().map(|c| (c.path, c.before, c.after)).collect();
        let expected =
            [("/a/0", Some(json!(1)), None), ("/a/0", Some(json!(2)), Some(json!(3))), ("/c", None, Some(Value::Null))];
        assert_eq!(shown, expected.map(|(path, before, after)| (path.to_owned(), before, after)));
        assert_eq!(changes(&json!("hostile"), None), []);
        assert_eq!(changes(&patch, None).len(), 3);
    }
}
