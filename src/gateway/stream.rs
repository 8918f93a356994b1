//! Passes an answer on to the target as it comes, and reads in passing what it says of itself. Owns the end: whole, cut by
//! the provider, cut by a limit, or left by the target, and each can be told at the target too.
//!
//! Invariant: memory does not grow with the answer; nothing is held back but an event that may be the usage which the
//! target did not ask for.

use super::dialect::{self, Endpoint, Forms};
use super::exchange::{Admitted, Answer, End, Failure, Passed};
use super::hide::Veil;
use super::scan::{Progress, Scanner};
use super::sse::{Found, Splitter};
use super::usage::{self, Fault, NOT_REPORTED, Tally};
use super::{Reply, forward};
use crate::policy::GatewayRule;
use globset::GlobMatcher;
use serde_json::Value;
use std::time::Instant;

/// A list of models beyond this is not narrowed, so it is not passed on either.
const LARGEST_LIST: u64 = 16 * 1024 * 1024;
/// Data that ends a stream is no longer than this.
const LAST: usize = 16;

/// Passes an answer on. What came of it is told once it is over.
pub(super) fn pass(mut answer: Answer, admitted: &Admitted, rule: &GatewayRule, reply: &mut Reply) -> Passed {
    let forms = dialect::forms(rule.dialect);
    let endpoint = forms.endpoint(&admitted.route.path);
    if endpoint == Endpoint::Models && answer.status == 200 {
        return narrowed(answer, rule, reply);
    }
    let mut passed = Passed { status: answer.status, end: End::Complete, ..Passed::none() };
    let mut reading = Reading::new(forms, endpoint, &answer);
    if answer.body.declared().is_some() {
        // Nobody can begin with the head of one document alone.
        reply.hold();
    }
    let outcome = match reply.head(answer.status, &answer.headers, None) {
        Ok(()) => carry(&mut answer, admitted, rule, reply, &mut reading),
        Err(_) => Outcome::Left,
    };
    let outcome = match outcome {
        Outcome::Whole => reading.judge(answer.status),
        other => other,
    };
    outcome.note(reply, &mut passed);
    reading.note(&mut passed);
    passed.response_bytes = reply.sent();
    passed
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The provider ended it.
    Whole,
    /// The provider ended it, and it is no answer.
    Bad(Failure),
    /// The provider did not end it.
    Broken(Failure),
    /// A limit of the policy.
    Limit(&'static str),
    /// The target hung up.
    Left,
}

impl Outcome {
    /// Ends the target's answer so that it can tell, and says so.
    fn note(self, reply: &mut Reply, passed: &mut Passed) {
        match self {
            Outcome::Whole | Outcome::Bad(_) => {
                passed.end = if reply.end().is_ok() { End::Complete } else { End::ClientClosed };
            }
            Outcome::Broken(_) | Outcome::Limit(_) => {
                reply.cut();
                passed.end = End::Cut;
            }
            Outcome::Left => passed.end = End::ClientClosed,
        }
        passed.failure = match self {
            Outcome::Bad(failure) | Outcome::Broken(failure) => Some(failure),
            _ => None,
        };
        passed.limit = match self {
            Outcome::Limit(limit) => Some(limit),
            Outcome::Broken(Failure::RequestTime) => Some("request_time"),
            _ => None,
        };
    }
}

fn carry(
    answer: &mut Answer,
    admitted: &Admitted,
    rule: &GatewayRule,
    reply: &mut Reply,
    reading: &mut Reading,
) -> Outcome {
    let mut veil = (admitted.asked.hide_usage && reading.is_events()).then(Veil::default);
    let mut shown = Vec::new();
    let (declared, mut came) = (answer.body.declared(), 0);
    loop {
        // The target was slow to take the last piece: that is not the provider's doing.
        if admitted.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Outcome::Limit("request_time");
        }
        let (piece, is_end) = match answer.body.next() {
            Ok(Some(piece)) => (piece, false),
            Ok(None) => (&[][..], true),
            Err(failure) => return Outcome::Broken(failure),
        };
        reading.feed(piece, is_end);
        came += piece.len() as u64;
        if declared != Some(came) {
            reply.release();
        }
        let piece = match &mut veil {
            None => piece,
            Some(veil) => {
                shown.clear();
                if is_end {
                    veil.finish(&mut shown)
                } else {
                    veil.feed(piece, &mut shown)
                }
                shown.as_slice()
            }
        };
        let left = rule.limits.response_size.saturating_sub(reply.sent());
        let fits = usize::try_from(left).map_or(piece.len(), |left| piece.len().min(left));
        if reply.piece(&piece[..fits]).is_err() {
            return Outcome::Left;
        }
        if fits < piece.len() {
            return Outcome::Limit("response_size");
        }
        if is_end {
            return Outcome::Whole;
        }
    }
}

/// What an answer says of itself, as it passes.
struct Reading {
    forms: &'static dyn Forms,
    endpoint: Endpoint,
    form: Form,
    scanner: Scanner,
    splitter: Splitter,
    /// The beginning of an event's data.
    first: Vec<u8>,
    /// An event that was no JSON.
    is_broken: bool,
    /// The stream ended within an event.
    is_torn: bool,
    tally: Tally,
    is_error: bool,
}

/// In which form an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Events,
    Json,
    Other,
}

impl Reading {
    fn new(forms: &'static dyn Forms, endpoint: Endpoint, answer: &Answer) -> Self {
        let kind = answer.header("content-type").unwrap_or_default().to_ascii_lowercase();
        let form = match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Form::Events,
            "application/json" => Form::Json,
            kind if kind.ends_with("+json") => Form::Json,
            _ => Form::Other,
        };
        Self {
            forms,
            endpoint,
            form,
            scanner: Scanner::new(forms.watched()),
            splitter: Splitter::default(),
            first: Vec::new(),
            is_broken: false,
            is_torn: false,
            tally: Tally { is_free: endpoint.is_free(), ..Tally::default() },
            is_error: answer.status >= 400,
        }
    }

    fn is_events(&self) -> bool {
        self.form == Form::Events
    }

    fn feed(&mut self, bytes: &[u8], is_end: bool) {
        let Self { forms, endpoint, scanner, splitter, first, is_broken, is_torn, tally, .. } = self;
        let mut read = |seen: &Value| forms.read(*endpoint, seen, tally);
        match self.form {
            Form::Json => scanner.feed(bytes, &mut read),
            Form::Events => {
                let mut last = false;
                let mut found = |found: Found<'_>, _: usize| match found {
                    Found::Data(part) => {
                        first.extend_from_slice(&part[..part.len().min(LAST.saturating_sub(first.len()))]);
                        scanner.feed(part, &mut read);
                    }
                    Found::End { has_data } => {
                        let is_last = forms.is_last(first.trim_ascii());
                        last |= is_last;
                        let is_bad = has_data && !is_last && scanner.progress() != Progress::Whole;
                        if is_end {
                            *is_torn |= is_bad
                        } else {
                            *is_broken |= is_bad
                        }
                        first.clear();
                        scanner.reset();
                    }
                };
                if is_end {
                    splitter.finish(&mut found)
                } else {
                    splitter.feed(bytes, &mut found)
                }
                tally.is_complete |= last;
            }
            Form::Other => {}
        }
    }

    /// A body whose connection ended well may still be no answer, or none that came to its own end.
    fn judge(&self, status: u16) -> Outcome {
        if usage::is_failure(status) {
            return Outcome::Bad(Failure::Status);
        }
        if self.is_error || !self.endpoint.is_known() {
            return Outcome::Whole;
        }
        match (self.form, self.tally.fault) {
            (_, Some(Fault::Provider)) => Outcome::Bad(Failure::Status),
            (_, Some(Fault::Request)) => Outcome::Whole,
            (Form::Events, None) if self.is_torn || !self.tally.is_complete => Outcome::Broken(Failure::Cut),
            (Form::Events, None) if self.is_broken => Outcome::Bad(Failure::Malformed),
            (Form::Json, None) => match self.scanner.progress() {
                Progress::Whole => Outcome::Whole,
                Progress::Open => Outcome::Broken(Failure::Cut),
                Progress::Empty | Progress::Broken => Outcome::Bad(Failure::Malformed),
            },
            (Form::Events, None) => Outcome::Whole,
            (Form::Other, None) => Outcome::Bad(Failure::Malformed),
        }
    }

    /// What was used, or why that is not known. A call that the provider refused used nothing.
    fn note(self, passed: &mut Passed) {
        passed.served = self.tally.served;
        if self.is_error || self.tally.is_free {
            return;
        }
        let is_whole = passed.end == End::Complete || self.tally.is_complete;
        passed.usage = self.tally.counts.usage().filter(|_| is_whole);
        if passed.usage.is_none() {
            let reason = match (passed.end, passed.limit, passed.failure) {
                (_, Some(limit), _) => format!("cut by {limit}"),
                (End::ClientClosed, ..) => "the target hung up".to_owned(),
                (_, _, Some(failure)) => failure.as_str().to_owned(),
                _ => NOT_REPORTED.to_owned(),
            };
            passed.unknown = Some(reason);
        }
    }
}

/// The list of models, with those that the policy allows.
fn narrowed(mut answer: Answer, rule: &GatewayRule, reply: &mut Reply) -> Passed {
    let whole = match gathered(&mut answer, rule.limits.response_size.min(LARGEST_LIST)) {
        Ok(whole) => whole,
        Err(failure) => return forward::no_answer(rule.dialect, failure, reply),
    };
    let Some(list) = narrow(&whole, rule) else {
        return forward::no_answer(rule.dialect, Failure::Malformed, reply);
    };
    let mut passed = Passed { status: answer.status, end: End::Complete, ..Passed::none() };
    let bytes = list.to_string().into_bytes();
    reply.hold();
    let sent = reply
        .head(answer.status, &answer.headers, Some(bytes.len() as u64))
        .and_then(|()| reply.piece(&bytes))
        .and_then(|()| reply.end());
    if sent.is_err() {
        passed.end = End::ClientClosed;
    }
    passed.response_bytes = reply.sent();
    passed
}

fn gathered(answer: &mut Answer, most: u64) -> Result<Vec<u8>, Failure> {
    let mut whole = Vec::new();
    while let Some(piece) = answer.body.next()? {
        if whole.len() as u64 + piece.len() as u64 > most {
            return Err(Failure::Malformed);
        }
        whole.extend_from_slice(piece);
    }
    Ok(whole)
}

fn narrow(whole: &[u8], rule: &GatewayRule) -> Option<Value> {
    let (list, name) = dialect::forms(rule.dialect).list();
    let globs: Vec<GlobMatcher> = rule.models.iter().filter_map(|glob| crate::policy::glob::name(glob)).collect();
    let allowed = |entry: &Value| {
        let id = entry[name].as_str().unwrap_or_default();
        let id = id.strip_prefix("models/").unwrap_or(id);
        globs.iter().any(|glob| glob.is_match(id))
    };
    let mut value: Value = crate::json::parse_lenient(whole).ok()?;
    // A page after the last one may have no list.
    if let Some(entries) = value.as_object_mut()?.get_mut(list) {
        entries.as_array_mut()?.retain(allowed);
    }
    Some(value)
}
