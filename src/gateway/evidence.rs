//! What is kept of provider calls: model, usage, latency, status, cost, how each ended. Owns `gateway.jsonl`, the sums of
//! a trial, and which provider failures were not followed by a success on their route.
//!
//! Invariant: no prompt, no generated text, no header's value comes in here; an unknown is null, never 0.

use super::exchange::{Denied, End, Failure, Passed, Usage};
use super::price;
use super::trial::ProviderDoor;
use crate::redact::Redactor;
use crate::relay::framing::Head;
use crate::totals::Totals;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Refused requests, and requests that a drill answered, that are written one by one; more of them are only counted, since
/// they cost the target nothing.
const RECORDED_FOR_NOTHING: u64 = 1000;

/// A file of JSON lines, redacted before they are written.
pub(super) struct Lines {
    file: Box<dyn Write + Send>,
    name: String,
    redactor: Redactor,
    failed: Option<String>,
}

impl Lines {
    pub(super) fn new(file: Box<dyn Write + Send>, name: String, redactor: Redactor) -> Self {
        Self { file, name, redactor, failed: None }
    }

    /// Writes one line at once. The first failure is kept for the diagnostics: a target's call does not fail by it.
    pub(super) fn write(&mut self, line: &impl Serialize) {
        let clean = self.redactor.line(&self.name, line).map_err(std::io::Error::from);
        let written = clean.and_then(|mut bytes| {
            bytes.push(b'\n');
            self.file.write_all(&bytes).and_then(|()| self.file.flush())
        });
        if let Err(error) = written {
            self.failed.get_or_insert_with(|| format!("failed to write {}: {error}", self.name));
        }
    }
}

/// A provider failure that no success on the same route followed (G9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderFailure {
    /// The gateway's name.
    pub gateway: String,
    /// The declared route.
    pub route: String,
    /// What happened.
    pub failure: Failure,
    /// The status that the target got, where it got one.
    pub status: Option<u16>,
}

/// What is known about a call before it is forwarded or refused.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) gateway: String,
    pub(super) method: String,
    /// None where none fits.
    pub(super) route: Option<String>,
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    pub(super) request_bytes: u64,
    /// A drill slowed or cut it: that it did not end in time is not the provider's doing.
    pub(super) disturbed: bool,
    pub(super) at: SystemTime,
    pub(super) started: Instant,
}

impl Call {
    /// What its head says.
    pub(super) fn of(door: &ProviderDoor, head: &Head) -> Self {
        Self {
            gateway: door.plan.name.clone(),
            method: head.method.clone(),
            route: None,
            model: None,
            stream: false,
            request_bytes: 0,
            disturbed: false,
            at: SystemTime::now(),
            started: Instant::now(),
        }
    }
}

/// A trial's provider calls.
pub(super) struct Evidence(Mutex<Book>);

struct Book {
    lines: Lines,
    next: u64,
    open: BTreeMap<u64, Open>,
    sums: Sums,
    /// The last failure of each gateway and route, until a success.
    failures: BTreeMap<(String, String), ProviderFailure>,
    exhausted: Option<String>,
    is_finished: bool,
}

struct Open {
    call: Call,
    first_byte: Option<Duration>,
}

#[derive(Debug, Default)]
struct Sums {
    requests: u64,
    refused: u64,
    /// Requests that a drill answered; how many, the list of faults says.
    injected: u64,
    usage: Usage,
    cost: f64,
    known_usage: u64,
    known_cost: u64,
    unknown: u64,
}

/// What a trial's calls came to.
pub(super) struct Finished {
    pub(super) totals: Totals,
    pub(super) failures: Vec<ProviderFailure>,
    pub(super) exhausted: Option<String>,
    pub(super) diagnostics: Vec<String>,
}

impl Evidence {
    pub(super) fn new(lines: Lines) -> Self {
        let (open, sums, failures) = (BTreeMap::new(), Sums::default(), BTreeMap::new());
        Self(Mutex::new(Book { lines, next: 0, open, sums, failures, exhausted: None, is_finished: false }))
    }

    fn book(&self) -> std::sync::MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that is not forwarded.
    pub(super) fn refused(&self, call: &Call, denied: &Denied) {
        let mut book = self.book();
        book.sums.refused += 1;
        if book.sums.refused <= RECORDED_FOR_NOTHING {
            let mut line = Line::of(call, End::Refused);
            line.status = Some(denied.status);
            line.refusal = Some(Refusal { limit: denied.limit, code: denied.code.to_owned() });
            book.lines.write(&line);
        }
    }

    /// A request that a drill answered in the provider's place: it was not forwarded, and used nothing.
    pub(super) fn injected(&self, call: &Call, passed: &Passed) {
        let mut book = self.book();
        book.sums.injected += 1;
        if book.is_finished || book.sums.injected > RECORDED_FOR_NOTHING {
            return;
        }
        let mut line = Line::of(call, passed.end);
        line.status = (passed.status > 0).then_some(passed.status);
        line.response_bytes = passed.response_bytes;
        line.cost_usd = Some(0.0);
        book.lines.write(&line);
    }

    /// A request that is forwarded from now on. Whoever ends it first, its own thread or the trial's end, ends it.
    /// None where the trial's calls were summed up already.
    pub(super) fn open(&self, call: Call) -> Option<u64> {
        let mut book = self.book();
        if book.is_finished {
            return None;
        }
        book.next += 1;
        book.sums.requests += 1;
        let id = book.next;
        book.open.insert(id, Open { call, first_byte: None });
        Some(id)
    }

    /// The provider's answer has begun.
    pub(super) fn first_byte(&self, id: u64) {
        if let Some(open) = self.book().open.get_mut(&id) {
            open.first_byte = Some(open.call.started.elapsed());
        }
    }

    /// The call is over; `cost` is USD, none where it is not known.
    pub(super) fn close(&self, id: u64, passed: &Passed, cost: Option<f64>) {
        self.book().close(id, passed, cost);
    }

    /// The script had no line for a call: the evaluation's trouble.
    pub(super) fn exhausted(&self, what: String) {
        self.book().exhausted.get_or_insert(what);
    }

    /// Ends what is still open, and sums up. Nothing is counted afterwards.
    pub(super) fn finish(&self) -> Finished {
        let mut book = self.book();
        book.is_finished = true;
        let open: Vec<u64> = book.open.keys().copied().collect();
        for id in open {
            book.close(id, &Passed::still_open(), None);
        }
        let mut diagnostics: Vec<String> = book.lines.failed.iter().cloned().collect();
        if let Some(more) = book.sums.refused.checked_sub(RECORDED_FOR_NOTHING + 1) {
            diagnostics.push(format!("{} more refused requests are counted and not listed", more + 1));
        }
        Finished {
            totals: book.sums.totals(),
            failures: book.failures.values().cloned().collect(),
            exhausted: book.exhausted.clone(),
            diagnostics,
        }
    }
}

impl Book {
    fn close(&mut self, id: u64, passed: &Passed, cost: Option<f64>) {
        let Some(Open { call, first_byte }) = self.open.remove(&id) else { return };
        let is_known = passed.usage.is_some() || passed.unknown.is_none();
        let cost = cost.or((passed.usage.is_none() && is_known).then_some(0.0));
        self.sums.add(passed.usage, is_known, cost);
        self.follow(&call, passed);
        let mut line = Line::of(&call, passed.end);
        line.first_byte_ms = first_byte.map(milliseconds);
        line.served = passed.served.as_deref();
        line.status = (passed.status > 0).then_some(passed.status);
        line.response_bytes = passed.response_bytes;
        line.usage = passed.usage;
        line.unknown = passed.unknown.as_deref();
        line.cost_usd = cost;
        line.refusal = passed.limit.map(|limit| Refusal { limit, code: format!("crashlab_{limit}") });
        self.lines.write(&line);
    }

    /// A success on a route makes good every failure before it there.
    fn follow(&mut self, call: &Call, passed: &Passed) {
        let route = call.route.clone().unwrap_or_default();
        let key = (call.gateway.clone(), route.clone());
        match passed.failure {
            // The evaluation's trouble, told apart from the provider's.
            Some(Failure::ScriptExhausted) => {}
            // A fault that a drill injected never counts.
            Some(Failure::Cut | Failure::StillOpen | Failure::Idle | Failure::RequestTime) if call.disturbed => {}
            Some(failure) => {
                let status = (passed.status > 0).then_some(passed.status);
                let gateway = call.gateway.clone();
                self.failures.insert(key, ProviderFailure { gateway, route, failure, status });
            }
            None if passed.end == End::Complete && (200..400).contains(&passed.status) => {
                self.failures.remove(&key);
            }
            None => {}
        }
    }
}

impl Sums {
    fn add(&mut self, usage: Option<Usage>, is_known: bool, cost: Option<f64>) {
        if let Some(usage) = usage {
            self.usage.input = self.usage.input.saturating_add(usage.input);
            self.usage.cached_input = self.usage.cached_input.saturating_add(usage.cached_input);
            self.usage.output = self.usage.output.saturating_add(usage.output);
        }
        self.cost += cost.unwrap_or(0.0);
        self.known_usage += u64::from(is_known);
        self.known_cost += u64::from(cost.is_some());
        self.unknown += u64::from(!is_known || cost.is_none());
    }

    fn totals(&self) -> Totals {
        let tokens = |count: u64| (self.known_usage > 0 || self.requests == 0).then_some(count);
        Totals {
            requests: self.requests,
            refused: self.refused,
            input_tokens: tokens(self.usage.input),
            cached_input_tokens: tokens(self.usage.cached_input),
            output_tokens: tokens(self.usage.output),
            cost_usd: (self.known_cost > 0 || self.requests == 0).then(|| price::tidy(self.cost)),
            unknown: self.unknown,
        }
    }
}

impl Passed {
    /// A call that the target's end found open.
    fn still_open() -> Self {
        Self {
            end: End::Cut,
            failure: Some(Failure::StillOpen),
            unknown: Some("still open at the end".into()),
            ..Self::none()
        }
    }

    /// A call of which nothing came.
    pub(super) fn none() -> Self {
        Self {
            status: 0,
            served: None,
            usage: None,
            unknown: None,
            response_bytes: 0,
            end: End::Failed,
            failure: None,
            limit: None,
        }
    }
}

/// A line of `gateway.jsonl`: its keys in their order.
#[derive(Serialize)]
struct Line<'a> {
    at: String,
    gateway: &'a str,
    method: &'a str,
    route: Option<&'a str>,
    model: Option<&'a str>,
    served: Option<&'a str>,
    stream: bool,
    status: Option<u16>,
    first_byte_ms: Option<f64>,
    duration_ms: f64,
    request_bytes: u64,
    response_bytes: u64,
    usage: Option<Usage>,
    unknown: Option<&'a str>,
    cost_usd: Option<f64>,
    end: End,
    refusal: Option<Refusal>,
}

#[derive(Serialize)]
struct Refusal {
    limit: &'static str,
    code: String,
}

impl<'a> Line<'a> {
    /// With what is known of every call.
    fn of(call: &'a Call, end: End) -> Self {
        Self {
            at: rfc3339(call.at),
            gateway: &call.gateway,
            method: &call.method,
            route: call.route.as_deref(),
            model: call.model.as_deref(),
            served: None,
            stream: call.stream,
            status: None,
            first_byte_ms: None,
            duration_ms: milliseconds(call.started.elapsed()),
            request_bytes: call.request_bytes,
            response_bytes: 0,
            usage: None,
            unknown: None,
            cost_usd: None,
            end,
            refusal: None,
        }
    }
}

/// RFC 3339, UTC, to the millisecond.
pub(super) fn rfc3339(at: SystemTime) -> String {
    humantime::format_rfc3339_millis(at).to_string()
}

/// Milliseconds, to the microsecond.
pub(super) fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}
