//! What a target gets in place of a provider's answer when a drill strikes: the provider's own forms of errors (`errors`)
//! and of filtered answers (`filtered`), or no answer that can be read. Owns these forms; decides nothing of what strikes
//! when. The providers' SDKs raise for each what they raise in real life (`tests/engine/faults.rs`).

mod errors;
mod filtered;

use super::Reply;
use super::dialect::{self, Endpoint};
use super::exchange::{Admitted, End, Passed};
use crate::policy::{Dialect, FaultKind};
use serde_json::Value;
use std::io;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
/// As each provider's requests are called; the same for each, since nothing was really asked.
const REQUEST: &str = "req_011CSHoEeqs5C35K2UUqR7Fy";

/// What an injected answer consists of.
struct Made {
    status: u16,
    kind: &'static str,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Made {
    fn json(status: u16, body: &Value) -> Self {
        Self { status, kind: JSON, headers: Vec::new(), body: body.to_string().into_bytes() }
    }

    fn plain(kind: &'static str, body: &[u8]) -> Self {
        Self { status: 200, kind, headers: Vec::new(), body: body.to_vec() }
    }

    /// A stream of these events. Each has a name where its dialect gives one.
    fn events(data: &[Value], is_done: bool) -> Self {
        let mut body: String = data.iter().map(event).collect();
        if is_done {
            body.push_str("data: [DONE]\n\n");
        }
        Self::plain(EVENTS, body.as_bytes())
    }

    fn send(&self, dialect: Dialect, reply: &mut Reply) -> io::Result<()> {
        let mut headers = vec![("content-type".to_owned(), self.kind.to_owned())];
        headers.extend(request_id(dialect).map(|name| (name.to_owned(), REQUEST.to_owned())));
        headers.extend(self.headers.iter().cloned());
        reply.hold();
        reply.head(self.status, &headers, Some(self.body.len() as u64))?;
        reply.piece(&self.body)?;
        reply.end()
    }
}

fn event(data: &Value) -> String {
    match data["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// The header in which a provider names the request.
fn request_id(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::OpenAi | Dialect::AzureOpenAi => Some("x-request-id"),
        Dialect::Anthropic => Some("request-id"),
        Dialect::Gemini | Dialect::OpenRouter => None,
    }
}

/// Answers in the provider's place; none where the fault does not stand in for the answer.
pub(super) fn answer(kind: &FaultKind, dialect: Dialect, admitted: &Admitted, reply: &mut Reply) -> Option<Passed> {
    if *kind == FaultKind::Reset {
        reply.reset();
        return Some(Passed { end: End::Cut, ..Passed::none() });
    }
    let endpoint = dialect::forms(dialect).endpoint(&admitted.route.path);
    let made = match kind {
        FaultKind::Status { code, retry_after } => errors::status(dialect, *code, *retry_after),
        FaultKind::Malformed => malformed(dialect, endpoint, admitted),
        FaultKind::Empty => Made::plain(if is_events(admitted) { EVENTS } else { JSON }, b""),
        FaultKind::WrongType => Made::plain(
            "text/html",
            b"<html><head><title>502 Bad Gateway</title></head><body>Bad Gateway</body></html>",
        ),
        FaultKind::ContentFilter => filtered::answer(dialect, endpoint, admitted),
        FaultKind::ContextLength => errors::too_long(dialect, endpoint),
        _ => return None,
    };
    let end = if made.send(dialect, reply).is_ok() { End::Complete } else { End::ClientClosed };
    Some(Passed { status: made.status, end, response_bytes: reply.sent(), ..Passed::none() })
}

/// Whether the target waits for events; Gemini streams a JSON array unless it is asked for them.
fn is_events(admitted: &Admitted) -> bool {
    let is_gemini = admitted.path.ends_with(":streamGenerateContent");
    let asks = admitted.query.as_deref().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
    admitted.asked.stream && (!is_gemini || asks)
}

/// The beginning of an answer: a JSON document, or an event's data, that breaks off. An event has the name under which the
/// provider's SDK looks at its data.
fn malformed(dialect: Dialect, endpoint: Endpoint, admitted: &Admitted) -> Made {
    let is_events = is_events(admitted);
    let (name, start) = match (dialect, endpoint) {
        (Dialect::Anthropic, _) if is_events => {
            ("message_start", r#"{"type": "message_start", "message": {"id": "msg_"#)
        }
        (Dialect::Anthropic, _) => ("", r#"{"id": "msg_01", "type": "message", "role": "assistant", "content": ["#),
        (Dialect::Gemini, _) => ("", r#"{"candidates": [{"content": {"role": "model", "parts": ["#),
        (_, Endpoint::Responses) if is_events => {
            ("response.created", r#"{"type": "response.created", "response": {"id": "resp_"#)
        }
        (_, Endpoint::Responses) => ("", r#"{"id": "resp_01", "object": "response", "output": ["#),
        _ => ("", r#"{"id": "chatcmpl-01", "model": "", "choices": ["#),
    };
    match (is_events, name) {
        (false, _) => Made::plain(JSON, start.as_bytes()),
        (true, "") => Made::plain(EVENTS, format!("data: {start}\n\n").as_bytes()),
        (true, name) => Made::plain(EVENTS, format!("event: {name}\ndata: {start}\n\n").as_bytes()),
    }
}
