//! What a target sends before anything is judged: a request's framing, a message of the Model Context Protocol; and the
//! files that a user writes.

use super::super::mcp::{self, Posted, Tool};
use super::super::operations::Response;
use super::Dice;
use crate::relay::framing::{Body, Fault, Head, Incoming};
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Bytes that arrive in pieces.
struct Arriving<'a>(std::vec::IntoIter<&'a [u8]>);

impl Read for Arriving<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(piece) = self.0.next() else { return Ok(0) };
        // Pieces are smaller than what a reader leaves free, but for the last bytes of a head that is too large.
        let count = piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&piece[..count]);
        Ok(count)
    }
}

/// A head, the body as far as it came, and how it ended.
type Received = Result<(Head, Vec<u8>, Result<(), String>), String>;

/// One request out of these bytes.
pub(super) fn receive(source: impl Read) -> Received {
    let mut incoming = Incoming::new(source);
    let head = incoming.head().map_err(|fault| said(&fault))?;
    let mut bytes = Vec::new();
    let mut body = incoming.body(head.body);
    let end = loop {
        match body.piece() {
            Ok(Some(piece)) => bytes.extend_from_slice(piece),
            Ok(None) => break Ok(()),
            Err(fault) => break Err(said(&fault)),
        }
    };
    Ok((head, bytes, end))
}

fn said(fault: &Fault) -> String {
    fault.to_string()
}

/// A request has one reading, however it arrives, and what the relay writes of it is read as the same request.
pub fn framing(data: &[u8]) {
    let whole = receive(data);
    let pieces = Dice::of(data).split(data);
    let split = receive(Arriving(pieces.into_iter()));
    // A head that is too large is cut wherever the buffer ends: that it is refused is what counts.
    match (&whole, &split) {
        (Err(_), Err(_)) => return,
        _ => assert_eq!(whole, split, "another reading in pieces"),
    }
    let Ok((head, body, Ok(()))) = whole else { return };
    if let Body::Length(length) = head.body {
        assert_eq!(length, body.len() as u64);
    }
    let is_kept = Dice::of(data).below(2) == 0;
    let mut again = head.write(is_kept);
    match head.body {
        Body::Chunked if body.is_empty() => again.extend_from_slice(b"0\r\n\r\n"),
        Body::Chunked => {
            again.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
            again.extend_from_slice(&body);
            again.extend_from_slice(b"\r\n0\r\n\r\n");
        }
        Body::None | Body::Length(_) => again.extend_from_slice(&body),
    }
    again.extend_from_slice(b"GET /second HTTP/1.1\r\n\r\n");
    let (mut second, second_body, end) = receive(again.as_slice()).unwrap();
    assert_eq!(second.is_kept(), is_kept && !matches!(head.method.as_str(), "HEAD" | "CONNECT"), "kept, or not");
    second.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("connection"));
    let mut first = head;
    first.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("connection"));
    assert_eq!((first, body, Ok(())), (second, second_body, end), "another reading after the relay");
}

/// A message is answered with one JSON-RPC answer that has its id, or with none; at most one operation is called, and only
/// where that is what it asks for.
pub fn mcp(data: &[u8]) {
    const VERSIONS: [Option<&str>; 4] = [None, Some("2025-06-18"), Some("2026-07-28"), Some("never")];
    let mut dice = Dice::of(data);
    let message = serde_json::from_slice::<Value>(data).ok();
    let said = |key: &str| message.as_ref().and_then(|message| message[key].as_str());
    let name = message.as_ref().and_then(|message| message["params"]["name"].as_str());
    let posted = Posted {
        http_method: if dice.below(8) == 0 { "GET" } else { "POST" },
        origin: if dice.below(8) == 0 { Some("http://elsewhere") } else { None },
        version: VERSIONS[dice.below(VERSIONS.len())],
        method: said("method").filter(|_| dice.below(8) > 0),
        name: name.filter(|_| dice.below(8) > 0),
        body: data,
    };
    let schema = json!({"properties": {"key": {"type": "string"}}});
    let tools = [Tool { name: "get", description: "gives a value", schema: &schema }];
    let calls = Cell::new(0);
    let (status, answer) = mcp::answer(&posted, tools.into_iter(), |called, arguments| {
        calls.set(calls.get() + 1);
        assert!(name == Some(called) && arguments.is_object(), "{called}");
        match called.len() % 3 {
            0 => Response::Result(arguments.clone()),
            1 => Response::Refused { code: "no".to_owned(), message: "not today".to_owned() },
            _ => Response::Error { status: 404, code: "unknown_operation", message: "none".to_owned() },
        }
    });
    assert!(matches!(status, 200 | 202 | 400 | 403 | 404 | 405), "{status}");
    assert_eq!(answer.is_none(), status == 202);
    assert!(calls.get() == 0 || (calls.get() == 1 && said("method") == Some("tools/call")));
    let Some(answer) = answer else { return };
    assert_eq!(answer["jsonrpc"], "2.0");
    assert!(answer["result"].is_object() != answer["error"].is_object(), "{answer}");
    if let Some(id) = answer.get("id") {
        assert_eq!(Some(id), message.as_ref().map(|message| &message["id"]), "another request's answer");
    }
}

/// What a user wrote is taken, or refused in words; what is taken, the published schema takes too, and the gateway can use.
pub fn policy(data: &[u8]) {
    static SCHEMAS: OnceLock<[jsonschema::Validator; 2]> = OnceLock::new();
    let [policies, cases] = SCHEMAS.get_or_init(|| {
        [crate::policy::schema_text(), crate::policy::case_schema_text()].map(|text| {
            let schema: Value = serde_json::from_str(text).unwrap();
            jsonschema::draft202012::new(&schema).unwrap()
        })
    });
    match crate::policy::parse(data) {
        Ok(policy) => {
            let document: Value = serde_json::from_slice(data).unwrap();
            let errors: Vec<String> = policies.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "only the loader takes it: {errors:?}");
            for rule in policy.gateways.values() {
                assert!(!rule.routes.is_empty() && !rule.models.is_empty());
                // What the gateway makes of it must be possible, or be refused in words too.
                let _ = super::super::GatewayPlan::script("g", rule, b"{\"body\": {}}", "replies.jsonl");
            }
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
    if crate::policy::parse_cases("cases.jsonl", data).is_ok() {
        for line in data.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            let case: Value = serde_json::from_slice(line).unwrap();
            assert!(cases.is_valid(&case), "only the loader takes the case {case}");
        }
    }
}
