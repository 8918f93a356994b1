//! What passes between the files of this room: a request that was admitted, a provider's answer on its way (real or
//! scripted), what came of it, and a refusal. Plain data; no file here reads a socket or a policy by itself.
//!
//! Invariant: an [`Admitted`] is the one reading of a request. What goes to the provider is made from it and from nothing else.

use crate::policy::Route;
use serde::Serialize;
use serde_json::Value;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A request that every check has passed.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The gateway's name in the policy.
    pub gateway: String,
    /// The case of the trial that asks.
    pub case: String,
    /// As received.
    pub method: String,
    /// The declared route that it fits.
    pub route: Route,
    /// As received, without the query; nothing that normalizing would change.
    pub path: String,
    /// As received, without the `?`; declared keys only.
    pub query: Option<String>,
    /// The dialect's forwardable headers, names in lower case. Neither credentials nor framing.
    pub headers: Vec<(String, String)>,
    /// Parsed once, without duplicate keys.
    pub body: Option<Value>,
    /// `body` written again: what is forwarded.
    pub bytes: Vec<u8>,
    /// What the dialect read in it.
    pub asked: Asked,
    /// When the policy's `request_time` runs out.
    pub deadline: Option<Instant>,
    /// The trial that asked.
    pub life: Life,
}

/// What a dialect reads in a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The model by name; none for a route that names none (a list of models).
    pub model: Option<String>,
    /// Further models that may answer in its place, or beside it: each must be allowed too.
    pub others: Vec<String>,
    /// Whether the answer is to come as a stream.
    pub stream: bool,
    /// The most tokens that may be generated, where the request says so.
    pub max_output: Option<u64>,
    /// A usage event was asked for that the target did not ask for: it must not see it.
    pub hide_usage: bool,
}

/// A provider's answer whose head has arrived.
pub struct Answer {
    /// As the provider gave it.
    pub status: u16,
    /// Allowlisted, names in lower case; neither framing nor cookies.
    pub headers: Vec<(String, String)>,
    /// What follows, decoded from any transfer or content coding.
    pub body: Box<dyn Pieces>,
}

impl Answer {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A body as it arrives: from a provider's connection, or from a script.
pub trait Pieces: Send {
    /// The next bytes as soon as there are any; none is the clean end.
    ///
    /// # Errors
    /// How the provider failed; nothing follows.
    fn next(&mut self) -> Result<Option<&[u8]>, Failure>;

    /// How long the provider says that the body is. What is passed on may be longer or shorter where the key was taken out.
    fn declared(&self) -> Option<u64> {
        None
    }
}

/// How a provider failed to answer (G9: never the agent's doing).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// No connection: refused, no such name, TLS.
    Unreachable,
    /// An answer that is not HTTP, or not what its headers say.
    Malformed,
    /// Ended before its own end.
    Cut,
    /// `limits.first_byte` ran out.
    FirstByte,
    /// `limits.idle` ran out between two pieces.
    Idle,
    /// `limits.request_time` ran out while waiting for the provider.
    RequestTime,
    /// Still open when the target ended.
    StillOpen,
    /// An error status, or an error event in a stream.
    Status,
    /// The script has no line left that fits: the evaluation's fault, not the provider's.
    ScriptExhausted,
}

impl Failure {
    /// As evidence and diagnostics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Failure::Unreachable => "unreachable",
            Failure::Malformed => "malformed",
            Failure::Cut => "cut",
            Failure::FirstByte => "first_byte",
            Failure::Idle => "idle",
            Failure::RequestTime => "request_time",
            Failure::StillOpen => "still_open",
            Failure::Status => "status",
            Failure::ScriptExhausted => "script exhausted",
        }
    }
}

/// What came of an answer that was passed on.
#[derive(Debug, Clone, PartialEq)]
pub struct Passed {
    /// The status that the target got.
    pub status: u16,
    /// The model that the provider says it used.
    pub served: Option<String>,
    /// What the provider says was used; none where it says nothing.
    pub usage: Option<Usage>,
    /// Why `usage` is none.
    pub unknown: Option<String>,
    /// Bytes of the body that the target got.
    pub response_bytes: u64,
    /// How it ended.
    pub end: End,
    /// The provider's failure, where there was one (an error status that interface.md counts is one).
    pub failure: Option<Failure>,
    /// The policy's limit that cut it (`response_size`, `request_time`).
    pub limit: Option<&'static str>,
}

/// How a call ended, as evidence names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Whole.
    Complete,
    /// The target's answer ends without its end.
    Cut,
    /// The target hung up.
    ClientClosed,
    /// Not forwarded.
    Refused,
    /// The provider gave no answer.
    Failed,
}

/// Tokens of one call. `cached_input` and `cache_write` are parts of `input`, `reasoning` is part of `output`: each
/// token is in `input` or `output` once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// All input, cached included.
    pub input: u64,
    /// Of `input`, read from a cache.
    pub cached_input: u64,
    /// Of `input`, written to a cache.
    pub cache_write: u64,
    /// All output, reasoning included.
    pub output: u64,
    /// Of `output`, reasoning.
    pub reasoning: u64,
}

/// A refusal by policy. It is never a status that SDKs retry, is not forwarded, and costs nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// 400, 401, 403, 404 or 413 (502 and 504 where the provider gave no answer).
    pub status: u16,
    /// Starts with `crashlab_`.
    pub code: &'static str,
    /// Which rule or limit it was, for the evidence.
    pub limit: &'static str,
    /// What was received and what would do. Never a prompt or a header's value.
    pub message: String,
}

impl Denied {
    /// A refusal by policy: 403.
    pub fn new(limit: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { status: 403, code, limit, message: message.into() }
    }

    /// With this status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

/// Whether a trial's tokens still open anything; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Life(Arc<(Mutex<bool>, Condvar)>);

impl Life {
    /// Whether the trial is over: no call of it goes on, none starts.
    pub fn is_over(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it, and wakes whoever waits.
    pub fn end(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// Waits so long, or until it is over; true where it is over.
    pub fn wait(&self, time: Duration) -> bool {
        let over = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.1.wait_timeout_while(over, time, |over| !*over);
        let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *over
    }
}
