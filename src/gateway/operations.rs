//! A trial's operations: what exists for the target (declared ones only), whether its arguments fit, how often it may
//! call, and the record of each call with the change it made to the world. Owns no transport: HTTP and MCP both call here.
//!
//! Invariant: the evaluation hears only of declared operations with fitting arguments, within the budget, while the trial lives.

use super::evidence::{Lines, milliseconds, rfc3339};
use super::exchange::Life;
use super::struck;
use crate::drills::Drills;
use crate::exit::Refusal;
use crate::json::is_readable;
use crate::policy::{FaultKind, FaultPlace, OperationRule};
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How deep arguments may be nested: a world that keeps them, or a result that gives them back, stays readable around them.
const ARGUMENT_LEVELS: usize = 64;
/// What the arguments of a trial's calls may come to, refused ones too: they are kept to its end, for the verifier.
const ARGUMENTS_IN_ALL: u64 = 32 << 20;
/// What a value takes beside its text, in bytes: a list of small ones is many times as large in memory.
const VALUE: u64 = 16;
/// Refused calls that are recorded one by one; more of them are only counted, since they cost the target nothing.
const RECORDED_REFUSALS: u64 = 200;

/// The host-owned world, as far as operations reach it.
pub trait World: Send {
    /// Carries an operation out.
    ///
    /// # Errors
    /// Trouble of the evaluation itself; a world that says no is [`Called::Refused`].
    fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> anyhow::Result<Called>;

    /// The world as it is.
    ///
    /// # Errors
    /// Trouble of the evaluation itself.
    fn snapshot(&mut self) -> anyhow::Result<Value>;

    /// Puts a snapshot in the world's place (drills only).
    ///
    /// # Errors
    /// Trouble of the evaluation itself; also where it cannot.
    fn restore(&mut self, world: &Value) -> anyhow::Result<()>;
}

/// What the world says to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Called {
    /// Any JSON.
    Result(Value),
    /// The world said no; it is as it was before the call (O3).
    Refused {
        /// The evaluation's own code.
        code: String,
        /// For the agent.
        message: String,
    },
}

/// An operation that the evaluation implements.
#[derive(Debug, Clone)]
pub struct Implemented {
    /// Its name.
    pub name: String,
    /// For the target; may be empty.
    pub description: String,
    /// JSON Schema 2020-12 of its arguments.
    pub arguments: Option<Value>,
}

/// An operation that exists for the target.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// For the target; may be empty.
    pub description: String,
    /// What its arguments must fit, for the target to read.
    pub schema: Value,
    checks: Vec<Validator>,
    calls: u64,
}

/// The operations that exist for the target; made once a run.
#[derive(Debug, Default)]
pub struct OperationSet(BTreeMap<String, Operation>);

impl OperationSet {
    /// The declared operations, with the policy's argument schemas and the evaluation's.
    ///
    /// # Errors
    /// A refusal for a declared operation that is not implemented, and for a schema that is none or that points elsewhere.
    pub fn compile(rules: &BTreeMap<String, OperationRule>, implemented: &[Implemented]) -> Result<Self, Refusal> {
        let mut set = BTreeMap::new();
        for (name, rule) in rules {
            let place = format!("policy.json#/operations/{name}");
            let own = implemented.iter().find(|it| it.name == *name).ok_or_else(|| {
                Refusal::new(format!("the evaluation does not implement the operation {name}")).at(&place)
            })?;
            let schemas: Vec<&Value> = rule.arguments.iter().chain(&own.arguments).collect();
            let checks = schemas.iter().map(|schema| validator(schema, &place)).collect::<Result<_, _>>()?;
            let operation = Operation {
                name: name.clone(),
                description: rule.description.clone().unwrap_or_else(|| own.description.clone()),
                schema: schemas.first().map_or_else(|| json!({"type": "object"}), |schema| (*schema).clone()),
                checks,
                calls: rule.calls,
            };
            set.insert(name.clone(), operation);
        }
        Ok(Self(set))
    }
}

fn validator(schema: &Value, place: &str) -> Result<Validator, Refusal> {
    let refuse = |why: String| Refusal::new(format!("an argument schema is not usable: {why}")).at(place);
    crate::policy::arguments::compile(schema).map_err(refuse)
}

/// How a call came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// `POST /operations/NAME`.
    Http,
    /// A tool over the Model Context Protocol.
    Mcp,
}

/// What the target gets for a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Response {
    /// 200.
    Result(Value),
    /// 422: the world said no.
    Refused {
        /// The evaluation's own code.
        code: String,
        /// For the agent.
        message: String,
    },
    /// Any other trouble.
    Error {
        /// The HTTP status.
        status: u16,
        /// Starts with `crashlab_`.
        code: &'static str,
        /// What was wrong and what would do.
        message: String,
    },
}

impl Response {
    fn error(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Response::Error { status, code, message: message.into() }
    }

    /// The HTTP status and body.
    pub fn http(&self) -> (u16, Value) {
        match self {
            Response::Result(result) => (200, json!({"result": result})),
            Response::Refused { code, message } => (422, json!({"error": {"code": code, "message": message}})),
            Response::Error { status, code, message } => {
                (*status, json!({"error": {"code": code, "message": message}}))
            }
        }
    }
}

/// What a trial needs for its operations.
pub struct OperationsPlan {
    /// What exists.
    pub set: Arc<OperationSet>,
    /// The trial's world; whoever else holds it uses it before the target starts and after it has stopped.
    pub world: Arc<Mutex<dyn World>>,
    /// The world before the target starts.
    pub before: Value,
}

/// A trial's operations.
pub struct Operations {
    set: Arc<OperationSet>,
    used: BTreeMap<String, AtomicU64>,
    refused: AtomicU64,
    /// Bytes of arguments that are kept.
    kept: AtomicU64,
    /// Refused calls that are not recorded.
    unrecorded: AtomicU64,
    life: Life,
    drills: Arc<Drills>,
    /// Held for the whole of a call: calls are serial, and so are the changes that they made.
    ledger: Mutex<Ledger>,
}

struct Ledger {
    world: Arc<Mutex<dyn World>>,
    last: Value,
    /// Worlds after each call, the present one last; as many as a drill may ask for.
    earlier: Vec<Value>,
    seen: Vec<Value>,
    lines: Lines,
    trouble: Option<String>,
}

impl Operations {
    pub(super) fn new(plan: OperationsPlan, life: Life, lines: Lines, drills: Arc<Drills>) -> Self {
        let used = plan.set.0.keys().map(|name| (name.clone(), AtomicU64::new(0))).collect();
        let earlier = vec![plan.before.clone()];
        let ledger = Ledger { world: plan.world, last: plan.before, earlier, seen: Vec::new(), lines, trouble: None };
        let (refused, kept, unrecorded) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Self { set: plan.set, used, refused, kept, unrecorded, life, drills, ledger: Mutex::new(ledger) }
    }

    /// What exists for the target.
    pub fn list(&self) -> impl Iterator<Item = &Operation> {
        self.set.0.values()
    }

    /// One call, whatever it came over. `arguments` is what the target sent; none where that was no JSON.
    pub fn call(&self, name: &str, arguments: Option<&Value>, via: Via) -> Response {
        if !arguments.is_none_or(|arguments| self.has_room_for(arguments)) {
            self.unrecorded.fetch_add(1, Ordering::SeqCst);
            let message =
                "the arguments of all calls of one trial may have 32 MiB, with 16 bytes for each value in them";
            return Response::error(413, "crashlab_request_too_large", message);
        }
        match self.admit(name, arguments) {
            Ok(fitting) => self.carry_out(name, fitting, via),
            Err(response) => {
                self.record_refusal(name, arguments, via, &response);
                response
            }
        }
    }

    /// Whether these arguments can be kept beside those before.
    fn has_room_for(&self, arguments: &Value) -> bool {
        let size = arguments.to_string().len() as u64 + VALUE * values(arguments);
        let more = |kept: u64| Some(kept.saturating_add(size)).filter(|kept| *kept <= ARGUMENTS_IN_ALL);
        self.kept.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn admit<'a>(&self, name: &str, arguments: Option<&'a Value>) -> Result<&'a Map<String, Value>, Response> {
        let operation = self.set.0.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.set.0.keys().map(String::as_str).collect();
            let message = format!("no operation {:?} is declared; there are: {}", bounded(name), names.join(", "));
            Response::error(404, "crashlab_not_declared", message)
        })?;
        if !arguments.is_none_or(|arguments| is_readable(arguments, ARGUMENT_LEVELS)) {
            let message = "the arguments are nested too deep, or hold a number beyond the range of a double";
            return Err(Response::error(400, "crashlab_invalid_arguments", message));
        }
        let Some(arguments) = arguments.and_then(Value::as_object) else {
            return Err(Response::error(400, "crashlab_invalid_arguments", "the arguments must be one JSON object"));
        };
        operation.fits(arguments)?;
        let used = self.used.get(name);
        let spent = used.is_none_or(|used| {
            let more = |count| (count < operation.calls).then_some(count + 1);
            used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_err()
        });
        if spent {
            let message = format!("the {} calls of {name} that one trial may make are used up", operation.calls);
            return Err(Response::error(403, "crashlab_call_budget", message));
        }
        Ok(arguments)
    }

    fn carry_out(&self, name: &str, arguments: &Map<String, Value>, via: Via) -> Response {
        let kinds = self.drills.strike(&FaultPlace::Operation(name.to_owned()), None);
        let (at, started) = (SystemTime::now(), Instant::now());
        let wait: Duration = kinds.iter().map(waits).sum();
        let is_over = wait > Duration::ZERO && self.life.wait(wait);
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if is_over || self.life.is_over() {
            return Response::error(401, "crashlab_unauthorized", "the trial is over");
        }
        let (response, change) = match kinds.iter().find(|kind| !matches!(kind, FaultKind::Delay(_))) {
            // As it looks when the evaluation fails, which it does not: this is no trouble.
            Some(FaultKind::Error | FaultKind::Timeout(_)) => (failed(), json!([])),
            kind => ledger.call(name, arguments, kind),
        };
        ledger.remember(self.drills.memory());
        let mut line = json!({"at": rfc3339(at), "operation": name, "via": via.as_str(), "arguments": arguments});
        response.put_into(&mut line);
        line["duration_ms"] = json!(milliseconds(started.elapsed()));
        line["world_diff"] = change;
        ledger.record(line, name, &Value::Object(arguments.clone()), &response);
        response
    }

    fn record_refusal(&self, name: &str, arguments: Option<&Value>, via: Via, response: &Response) {
        if self.refused.fetch_add(1, Ordering::SeqCst) >= RECORDED_REFUSALS {
            self.unrecorded.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let arguments = arguments.cloned().unwrap_or_default();
        let mut line = json!({
            "at": rfc3339(SystemTime::now()), "operation": bounded(name), "via": via.as_str(), "arguments": arguments,
        });
        response.put_into(&mut line);
        line["duration_ms"] = json!(0);
        line["world_diff"] = json!([]);
        // The verifier's process must be able to read them, and the agent must not be the one who decides.
        let is_shown = is_readable(&arguments, ARGUMENT_LEVELS);
        let arguments = if is_shown { arguments } else { Value::String(arguments.to_string()) };
        ledger.record(line, bounded(name), &arguments, response);
    }

    /// Waits for a call that is being carried out, and gives what the verifier sees, the evaluation's first trouble, and
    /// how many refused calls were not recorded. The trial's life must be over, so that none starts afterwards.
    pub(super) fn finish(&self) -> (Vec<Value>, Option<String>, u64) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let unrecorded = self.unrecorded.load(Ordering::SeqCst);
        (std::mem::take(&mut ledger.seen), ledger.trouble.clone(), unrecorded)
    }
}

impl Operation {
    fn fits(&self, arguments: &Map<String, Value>) -> Result<(), Response> {
        let value = Value::Object(arguments.clone());
        for check in &self.checks {
            if let Some(error) = check.iter_errors(&value).next() {
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { "the arguments".to_owned() } else { place };
                let message = format!("{place}: {error}");
                return Err(Response::error(400, "crashlab_invalid_arguments", bounded(&message)));
            }
        }
        Ok(())
    }
}

impl Via {
    fn as_str(self) -> &'static str {
        match self {
            Via::Http => "http",
            Via::Mcp => "mcp",
        }
    }
}

impl Response {
    fn put_into(&self, line: &mut Value) {
        match self {
            Response::Result(result) => line["result"] = result.clone(),
            Response::Refused { code, message } => line["refused"] = json!({"code": code, "message": message}),
            Response::Error { code, message, .. } => line["error"] = json!({"code": code, "message": message}),
        }
    }
}

impl Ledger {
    /// Carries the call out and looks at the world afterwards.
    fn call(&mut self, name: &str, arguments: &Map<String, Value>, fault: Option<&FaultKind>) -> (Response, Value) {
        let world = Arc::clone(&self.world);
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        let called = match fault {
            Some(kind) => struck::call(&mut *world, kind, &self.earlier, name, arguments),
            None => world.call(name, arguments),
        };
        let response = match called {
            Ok(Called::Result(result)) => {
                Response::Result(fault.map_or_else(|| result.clone(), |kind| struck::answer(kind, result.clone())))
            }
            Ok(Called::Refused { code, message }) => Response::Refused { code, message },
            Err(error) => self.trouble(&format!("operation {name}: {error:#}")),
        };
        match world.snapshot() {
            Ok(now) => {
                let change = serde_json::to_value(json_patch::diff(&self.last, &now)).unwrap_or_default();
                self.last = now;
                (response, change)
            }
            // What the call did is not known: it must not look as if it had done nothing.
            Err(error) => (self.trouble(&format!("world after {name}: {error:#}")), Value::Null),
        }
    }

    /// The target hears that it failed; what the evaluation said about itself is not for the target.
    fn trouble(&mut self, what: &str) -> Response {
        self.trouble.get_or_insert_with(|| what.to_owned());
        failed()
    }

    /// Keeps the present world for stale reads.
    fn remember(&mut self, calls: u64) {
        self.earlier.push(self.last.clone());
        let most = usize::try_from(calls).unwrap_or(usize::MAX).saturating_add(1);
        let surplus = self.earlier.len().saturating_sub(most);
        self.earlier.drain(..surplus);
    }

    fn record(&mut self, line: Value, name: &str, arguments: &Value, response: &Response) {
        let mut seen = json!({"name": name, "arguments": arguments});
        response.put_into(&mut seen);
        self.seen.push(seen);
        self.lines.write(&line);
    }
}

/// How many values there are in it, itself one of them.
fn values(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(entries) => 1 + entries.values().map(values).sum::<u64>(),
        _ => 1,
    }
}

fn failed() -> Response {
    Response::error(500, "crashlab_evaluation_error", "the operation failed inside the evaluation")
}

/// How long a fault lets a call wait.
fn waits(kind: &FaultKind) -> Duration {
    match kind {
        FaultKind::Delay(time) | FaultKind::Timeout(time) => *time,
        _ => Duration::ZERO,
    }
}

/// The beginning of what a target said, for messages and records.
fn bounded(text: &str) -> &str {
    let end = text.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|end| *end <= 300).last();
    &text[..end.unwrap_or(0)]
}
