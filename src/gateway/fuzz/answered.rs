//! What a provider sends: streams of events, JSON texts and arrays of them, compressed bodies. However it is cut into
//! pieces, the target gets the same bytes, and the same is read of it; what a plain parser reads of a whole text is read.

use super::super::dialect;
use super::super::exchange::{Admitted, Answer, Asked, End, Failure, Life, Passed, Pieces};
use super::super::reply::Reply;
use super::super::scan::{Path, Progress, Scanner};
use super::super::sse::{Found, Splitter};
use super::super::{stream, upstream};
use super::Dice;
use crate::policy::{Dialect, GatewayRule, Route};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, OnceLock};

/// The most that a target may get of one answer here.
const LIMIT: usize = 256 * 1024;

/// A dialect's rule, with the one route that an answer came on.
fn rules() -> &'static [GatewayRule] {
    const ROUTES: [(&str, &str); 7] = [
        ("openai", "/v1/chat/completions"),
        ("openai", "/v1/responses"),
        ("anthropic", "/v1/messages"),
        ("gemini", "/v1beta/models/{model}:streamGenerateContent"),
        ("azure-openai", "/openai/deployments/{model}/chat/completions"),
        ("openrouter", "/api/v1/chat/completions"),
        ("openai", "/v1/models"),
    ];
    static RULES: OnceLock<Vec<GatewayRule>> = OnceLock::new();
    RULES.get_or_init(|| ROUTES.iter().map(|(dialect, path)| rule(dialect, path)).collect())
}

fn rule(dialect: &str, path: &str) -> GatewayRule {
    let policy = json!({
        "version": 1, "name": "fuzz", "target": {"image": {"reference": "none:1"}, "command": ["true"]},
        "evaluation": {"command": ["true"]},
        "gateways": {"g": {"dialect": dialect, "upstream": "http://127.0.0.1:1", "routes": [format!("POST {path}")],
            "models": ["*"], "limits": {"response_size": "256KiB"}}},
    });
    let policy = crate::policy::parse(policy.to_string().as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}"));
    policy.gateways.into_values().next().unwrap()
}

fn asked_for(route: &Route, hide_usage: bool) -> Admitted {
    Admitted {
        gateway: "g".to_owned(),
        case: "c".to_owned(),
        method: "POST".to_owned(),
        path: route.path.replace("{model}", "m"),
        route: route.clone(),
        query: None,
        headers: Vec::new(),
        body: None,
        bytes: Vec::new(),
        asked: Asked { hide_usage, stream: true, ..Asked::default() },
        deadline: None,
        life: Life::default(),
    }
}

/// Pieces of an answer, and how it ends.
struct Sent(VecDeque<Vec<u8>>, Option<Failure>, Vec<u8>);

impl Pieces for Sent {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        match (self.0.pop_front(), self.1) {
            (Some(piece), _) => {
                self.2 = piece;
                Ok(Some(&self.2))
            }
            (None, Some(failure)) => Err(failure),
            (None, None) => Ok(None),
        }
    }
}

/// What was written to a target.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Vec<u8>>>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl super::super::reply::Connection for Wire {
    fn reset(&self) {}
}

/// The target's body, read as its client would; none where it has no end.
fn body(wire: &[u8]) -> (Vec<u8>, bool) {
    let at = wire.windows(4).position(|four| four == b"\r\n\r\n").map_or(wire.len(), |at| at + 4);
    let (head, mut rest) = wire.split_at(at);
    if !String::from_utf8_lossy(head).contains("chunked") {
        return (rest.to_vec(), true);
    }
    let mut out = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (out, true);
        }
        out.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    (out, false)
}

fn pass(
    rule: &GatewayRule,
    kind: &str,
    hide: bool,
    pieces: Vec<Vec<u8>>,
    failure: Option<Failure>,
) -> (Passed, Vec<u8>) {
    let wire = Wire::default();
    let headers = vec![("content-type".to_owned(), kind.to_owned())];
    let answer = Answer { status: 200, headers, body: Box::new(Sent(pieces.into(), failure, Vec::new())) };
    let mut reply = Reply::new(wire.clone());
    let passed = stream::pass(answer, &asked_for(&rule.routes[0], hide), rule, &mut reply);
    let written = wire.0.lock().unwrap().clone();
    let (body, has_end) = body(&written);
    assert_eq!(has_end, matches!(passed.end, End::Complete | End::Failed), "{passed:?}");
    // What is refused in our own words counts as no answer.
    assert!(passed.end == End::Failed || passed.response_bytes == body.len() as u64, "{passed:?}");
    assert!(body.len() <= LIMIT);
    assert!(passed.usage.is_none() || passed.unknown.is_none(), "{passed:?}");
    if let Some(usage) = passed.usage {
        assert!(usage.cached_input.saturating_add(usage.cache_write) <= usage.input && usage.reasoning <= usage.output);
    }
    (passed, body)
}

/// The same in one piece and in many; cut off, it is never taken for whole.
fn in_pieces(data: &[u8], kind: &str) {
    let mut dice = Dice::of(data);
    let split: Vec<Vec<u8>> = dice.split(data).into_iter().map(<[u8]>::to_vec).collect();
    let cut = dice.below(data.len() + 1);
    for rule in rules() {
        for hide in [false, true] {
            let (whole, shown) = pass(rule, kind, hide, vec![data.to_vec()], None);
            let pieces = pass(rule, kind, hide, split.clone(), None);
            assert_eq!((&whole, &shown), (&pieces.0, &pieces.1), "another answer in pieces");
            let is_list = rule.routes[0].path.ends_with("/models");
            let is_veiled = hide && kind.starts_with("text/event-stream");
            assert!(is_list || is_veiled || data.starts_with(&shown), "the target got something else");
            let (passed, _) = pass(rule, kind, hide, vec![data[..cut].to_vec()], Some(Failure::Cut));
            assert!(
                passed.failure == Some(Failure::Cut) || passed.limit.is_some() && passed.end == End::Cut,
                "{passed:?}"
            );
        }
    }
}

/// A stream of server-sent events.
pub fn events(data: &[u8]) {
    let data = &data[..data.len().min(LIMIT / 2)];
    let found = split_events(&[data]);
    assert_eq!(found, split_events(&Dice::of(data).split(data)), "other events in pieces");
    assert_eq!(found, plain_events(data), "other events than a plain reader finds");
    in_pieces(data, "text/event-stream");
}

fn split_events(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut events, mut data) = (Vec::new(), Vec::new());
    let mut found = |found: Found<'_>, _: usize| match found {
        Found::Data(part) => data.extend_from_slice(part),
        Found::End { has_data } => {
            let data = std::mem::take(&mut data);
            if has_data {
                events.push(data);
            }
        }
    };
    let mut splitter = Splitter::default();
    pieces.iter().for_each(|piece| splitter.feed(piece, &mut found));
    splitter.finish(&mut found);
    events
}

/// The grammar a line at a time, with the whole text in hand.
fn plain_events(data: &[u8]) -> Vec<Vec<u8>> {
    let (mut lines, mut line, mut at) = (Vec::new(), Vec::new(), 0);
    while at < data.len() {
        match data[at] {
            b'\r' | b'\n' => {
                at += usize::from(data[at..].starts_with(b"\r\n"));
                lines.push(std::mem::take(&mut line));
            }
            byte => line.push(byte),
        }
        at += 1;
    }
    // An event that the end of the stream cuts off counts here, which is stricter than the standard.
    lines.extend([line, Vec::new()]);
    let (mut events, mut values): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    for line in lines {
        if line.is_empty() && !values.is_empty() {
            events.push(std::mem::take(&mut values).join(&b'\n'));
        } else if line == b"data" {
            values.push(Vec::new());
        } else if let Some(value) = line.strip_prefix(b"data:") {
            values.push(value.strip_prefix(b" ").unwrap_or(value).to_vec());
        }
    }
    events
}

/// A JSON text, or an array of them as one stream.
pub fn array(data: &[u8]) {
    let data = &data[..data.len().min(LIMIT / 2)];
    let watched = dialect::forms(Dialect::Gemini).watched();
    let (progress, seen) = scan(watched, &[data]);
    let pieces = Dice::of(data).split(data);
    assert_eq!((progress, seen.clone()), scan(watched, &pieces), "something else is read in pieces");
    // A text that is one number may go on: it is whole, and there is nothing in it to see.
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = crate::json::parse(data) {
        assert_eq!(progress, Progress::Whole, "a text that a plain reader takes");
        let whole: Vec<&Value> = match &value {
            Value::Array(items) => items.iter().collect(),
            one => vec![one],
        };
        if !whole.iter().any(|one| one.is_array()) {
            let usages: Vec<&Value> = seen.iter().map(|one| &one["usageMetadata"]).collect();
            assert_eq!(usages, whole.iter().map(|one| &one["usageMetadata"]).collect::<Vec<_>>());
        }
    }
    in_pieces(data, "application/json");
}

fn scan(watched: &'static [Path], pieces: &[&[u8]]) -> (Progress, Vec<Value>) {
    let mut scanner = Scanner::new(watched);
    let mut seen = Vec::new();
    pieces.iter().for_each(|piece| scanner.feed(piece, &mut |value| seen.push(value.clone())));
    (scanner.progress(), seen)
}

/// A body under a content coding: what it decodes to is bounded, a cut is an error, and a whole one comes out whole.
pub fn gzip(data: &[u8]) {
    for coding in ["gzip", "deflate"] {
        let read = decode(coding, data.to_vec());
        let split = decode(coding, data.to_vec());
        assert_eq!(read.0, split.0);
        if let (plain, Ok(())) = read {
            in_pieces(&plain[..plain.len().min(4096)], "application/json");
        }
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    let coded = encoder.finish().unwrap();
    let (plain, end) = decode("gzip", coded.clone());
    assert!(end.is_ok() && plain == data[..data.len().min(LIMIT)], "a whole body came out as another");
    let cut = Dice::of(data).below(coded.len());
    let (plain, end) = decode("gzip", coded[..cut].to_vec());
    assert!(
        data.starts_with(&plain) && (end.is_err() || cut == 0 || plain.len() == LIMIT),
        "a cut body was taken for whole"
    );
}

/// Up to the limit; a longer one is cut by `stream` in the same way.
fn decode(coding: &str, coded: Vec<u8>) -> (Vec<u8>, io::Result<()>) {
    let mut reader = match upstream::decoder(Some(coding), Box::new(io::Cursor::new(coded))) {
        Ok(reader) => reader.take(LIMIT as u64),
        Err(error) => return (Vec::new(), Err(error)),
    };
    let mut plain = Vec::new();
    let end = reader.read_to_end(&mut plain).map(drop);
    (plain, end)
}
