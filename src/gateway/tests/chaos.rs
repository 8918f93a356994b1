//! A provider that breaks off: each dialect's answer, in each framing and with the statuses that decide differently, cut at
//! every byte of its wire. Each time the target's view, the evidence and the outcome are what interface.md says.
//!
//! Every status at every byte, and every split, without a wire: `answers`.

use super::provider::read_request;
use super::*;
use crate::verdict::{Check, Facts, Outcome, Reason, Stop, StopReason, decide};
use std::net::Shutdown;

/// A provider that writes what it is given, and closes.
struct Breaking {
    origin: String,
    wire: Arc<Mutex<Vec<u8>>>,
}

impl Breaking {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let wire: Arc<Mutex<Vec<u8>>> = Arc::default();
        let its = Arc::clone(&wire);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if read_request(&mut stream).is_some() {
                    let bytes = its.lock().unwrap().clone();
                    let _ = stream.write_all(&bytes);
                    let _ = stream.shutdown(Shutdown::Both);
                }
            }
        });
        Self { origin, wire }
    }
}

/// How an answer is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
    Close,
}

/// One dialect's request, and its answer whole, as a stream and as an error.
struct Talk {
    dialect: &'static str,
    route: &'static str,
    at: &'static str,
    request: Value,
    whole: Value,
    events: String,
    error: Value,
}

fn talk(dialect: &str) -> Talk {
    let openai = |dialect, route, at, request| Talk {
        dialect,
        route,
        at,
        request,
        whole: json!({"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
        events: "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n".to_owned(),
        error: json!({"error": {"message": "x", "type": "y", "code": null}}),
    };
    match dialect {
        "openai" => openai("openai", "/v1/chat/completions", "/v1/chat/completions", json!({"model": "m"})),
        "azure-openai" => openai("azure-openai", "/d/{model}/chat/completions", "/d/m/chat/completions", json!({})),
        "openrouter" => openai("openrouter", "/v1/chat/completions", "/v1/chat/completions", json!({"model": "m"})),
        "anthropic" => Talk {
            dialect: "anthropic",
            route: "/v1/messages",
            at: "/v1/messages",
            request: json!({"model": "m", "max_tokens": 9, "messages": []}),
            whole: json!({"model": "m", "usage": {"input_tokens": 3, "output_tokens": 4}}),
            events: "data: {\"type\":\"message_delta\",\"usage\":{\"input_tokens\":3,\"output_tokens\":4}}\n\n\
                     data: {\"type\":\"message_stop\"}\n\n"
                .to_owned(),
            error: json!({"type": "error", "error": {"type": "y", "message": "x"}}),
        },
        _ => Talk {
            dialect: "gemini",
            route: "/v1/models/{model}:streamGenerateContent",
            at: "/v1/models/m:streamGenerateContent",
            request: json!({"contents": []}),
            whole: json!([{"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4}}]),
            events: "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3,\
                     \"candidatesTokenCount\":4}}\n\n"
                .to_owned(),
            error: json!({"error": {"code": 9, "message": "x", "status": "Y"}}),
        },
    }
}

/// Head and body as they go over the wire.
fn framed(status: u16, kind: &str, framing: Framing, body: &str) -> (String, String) {
    let head = format!("HTTP/1.1 {status} S\r\ncontent-type: {kind}\r\n");
    match framing {
        Framing::Length => (format!("{head}content-length: {}\r\n\r\n", body.len()), body.to_owned()),
        Framing::Close => (format!("{head}connection: close\r\n\r\n"), body.to_owned()),
        Framing::Chunks => {
            let (one, two) = body.split_at(body.len() / 2);
            let chunks: String = [one, two].map(|part| format!("{:x}\r\n{part}\r\n", part.len())).concat();
            (format!("{head}transfer-encoding: chunked\r\n\r\n"), format!("{chunks}0\r\n\r\n"))
        }
    }
}

/// What came of one exchange.
#[derive(Debug)]
struct Seen {
    status: u16,
    body: String,
    line: Value,
    failure: Option<Failure>,
    used: (Option<u64>, Option<u64>, u64),
    outcome: (Outcome, Option<Reason>),
}

/// The gateway in front of the breaking provider, as all its trials share it.
fn plan(provider: &Breaking, talk: &Talk) -> Arc<GatewayPlan> {
    let gateway = json!({
        "dialect": talk.dialect, "upstream": provider.origin, "routes": [format!("POST {}", talk.route)], "models": ["*"],
        "env": {"OPENAI_API_KEY": "token"}, "prices": {"*": {"input": 1.0, "output": 2.0}},
    });
    let rule = &rules(&Setting { gateway, operations: json!({}), ..Setting::default() }).gateways["openai"];
    Arc::new(GatewayPlan::upstream("openai", rule, Some(key())).unwrap())
}

fn key() -> HostSecret {
    HostSecret::generated("A_KEY", SECRET.to_owned())
}

/// A trial of its own for each exchange: what came of it is told at its end.
fn exchange(gateway: &Gateway, provider: &Breaking, plan: &Arc<GatewayPlan>, talk: &Talk, wire: &str) -> Seen {
    *provider.wire.lock().unwrap() = wire.as_bytes().to_vec();
    let mut bench = Bench::alone(gateway, Arc::clone(plan), Redactor::new(vec![key()]).unwrap());
    let (status, body) = bench.ask(&format!("POST {}", talk.at), &talk.request.to_string());
    let traffic = bench.revoke();
    let failure = traffic.failures.first().map(|failure| failure.failure);
    let facts = Facts {
        stop: Some(Stop { reason: StopReason::Exited, code: Some(0) }),
        checks: Some(vec![Check { name: "done".to_owned(), passed: false, detail: None }]),
        provider_error: failure.is_some(),
        ..Facts::default()
    };
    let lines = bench.calls.lines();
    assert_eq!(lines.len(), 1, "one call, one line");
    let totals = traffic.totals;
    let used = (totals.input_tokens, totals.output_tokens, totals.unknown);
    Seen { status, body, line: lines[0].clone(), failure, used, outcome: decide(&facts) }
}

/// What a target sees of these bytes of an answer's body, as far as they are whole.
fn decoded(framing: Framing, mut body: &str) -> String {
    if framing != Framing::Chunks {
        return body.to_owned();
    }
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        out.push_str(&rest[..size.min(rest.len())]);
        body = rest.get(size + 2..).unwrap_or_default();
    }
    out
}

fn every_byte(dialect: &str) {
    let (gateway, provider, talk) = (gateway(), Breaking::new(), talk(dialect));
    let plan = plan(&provider, &talk);
    let (json, stream) = ("application/json", "text/event-stream");
    let (whole, error) = (talk.whole.to_string(), talk.error.to_string());
    for (status, kind, framing, body) in [
        (200, json, Framing::Length, &whole),
        (200, stream, Framing::Chunks, &talk.events),
        (200, json, Framing::Close, &whole),
        (400, json, Framing::Chunks, &error),
        (429, json, Framing::Length, &error),
        (500, json, Framing::Length, &error),
    ] {
        let (head, rest) = framed(status, kind, framing, body);
        // A head is cut in the same places whatever follows: once for each dialect.
        let from = if (status, framing) == (200, Framing::Length) { 0 } else { head.len() };
        let end = head.len() + rest.len();
        // At every byte where the statuses decide differently; the others in between and at the end.
        let places: Vec<usize> = match status {
            200 | 429 => (from..=end).collect(),
            _ => vec![from, (from + end) / 2, end],
        };
        for at in places {
            let wire = format!("{head}{rest}");
            let seen = exchange(&gateway, &provider, &plan, &talk, &wire[..at]);
            let place = format!("{dialect} {status} {framing:?} at {at}: {seen:?}");
            let is_failing = matches!(status, 401 | 402 | 403 | 407 | 408 | 429 | 500..);
            if at < head.len() {
                assert_eq!(
                    (seen.status, &seen.line["end"], &seen.line["status"]),
                    (502, &json!("failed"), &json!(502)),
                    "{place}"
                );
                assert!(seen.body.contains("crashlab_upstream") && !seen.body.ends_with("<cut>"), "{place}");
                assert!(seen.failure.is_some() && seen.line["unknown"].is_string(), "{place}");
            } else {
                assert_eq!((seen.status, &seen.line["status"]), (status, &json!(status)), "{place}");
                let sent = decoded(framing, &rest[..at - head.len()]);
                let missing = head.len() + rest.len() - at;
                // The last chunk is there: whether the empty line after it must be, too, is the client library's affair.
                let is_either = framing == Framing::Chunks && matches!(missing, 1 | 2);
                // Nothing at all, where the connection's end is the body's: no cut, and no answer.
                let is_nothing = framing == Framing::Close && at == head.len();
                let is_whole = missing == 0 || is_nothing || (is_either && seen.line["end"] == "complete");
                let shown = seen.body.strip_suffix("<cut>");
                assert_eq!(shown.is_none(), is_whole, "{place}");
                let shown = shown.unwrap_or(&seen.body);
                // The last bytes before a cut may have been the beginning of the key: they are kept back.
                let kept_back = sent.strip_prefix(shown).unwrap_or_else(|| panic!("{place}"));
                assert!(kept_back.is_empty() || (!is_whole && kept_back.len() < SECRET.len()), "{place}");
                assert_eq!(seen.line["response_bytes"], shown.len(), "{place}");
                assert_eq!(seen.line["end"], if is_whole { "complete" } else { "cut" }, "{place}");
                let failure = match (is_whole, is_failing) {
                    _ if is_nothing => Some(Failure::Malformed),
                    (false, _) => Some(Failure::Cut),
                    (true, true) => Some(Failure::Status),
                    (true, false) => None,
                };
                assert_eq!(seen.failure, failure, "{place}");
                let is_answered = status == 200 && is_whole && !is_nothing;
                assert!(!is_answered || seen.used == (Some(3), Some(4), 0), "{place}");
                assert!(status != 200 || seen.line["usage"].is_object() != seen.line["unknown"].is_string(), "{place}");
            }
            let wanted = match seen.failure {
                Some(_) => (Outcome::Uncertain, Some(Reason::ProviderError)),
                None => (Outcome::Failed, None),
            };
            assert_eq!(seen.outcome, wanted, "{place}");
        }
    }
}

#[test]
fn openai_cut_at_every_byte() {
    every_byte("openai");
}

#[test]
fn azure_openai_cut_at_every_byte() {
    every_byte("azure-openai");
}

#[test]
fn openrouter_cut_at_every_byte() {
    every_byte("openrouter");
}

#[test]
fn anthropic_cut_at_every_byte() {
    every_byte("anthropic");
}

#[test]
fn gemini_cut_at_every_byte() {
    every_byte("gemini");
}
