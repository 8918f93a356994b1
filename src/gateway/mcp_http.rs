//! The Model Context Protocol's streamable HTTP transport, stateless: one posted message, one JSON answer. Owns which
//! headers `mcp` gets to see and how its answer is sent; the protocol itself is `mcp`'s.

use super::guard::{BodyFault, Request};
use super::mcp::{self, Posted, Tool};
use super::operations::{Operations, Via};
use super::reply::Reply;
use crate::relay::framing::Body;
use serde_json::Value;

/// The endpoint.
pub(super) const PATH: &str = "/mcp";
/// The most bytes of a message: arguments of 1 MiB, and what is around them.
const MESSAGE: u64 = (1 << 20) + (64 << 10);

/// Serves one request; false where its body was left unread.
pub(super) fn serve(operations: &Operations, request: &mut Request<'_>, reply: &mut Reply) -> bool {
    let (body, read) = match request.head.method.as_str() {
        "POST" => match request.body(MESSAGE, reply) {
            Ok(body) => (body, true),
            Err(BodyFault::TooLarge) => {
                send(reply, 413, None);
                return false;
            }
            Err(BodyFault::Broken(_)) => {
                send(reply, 400, None);
                return false;
            }
        },
        _ => (Vec::new(), request.head.body == Body::None),
    };
    let head = &request.head;
    let posted = Posted {
        http_method: &head.method,
        origin: head.header("origin"),
        version: head.header("mcp-protocol-version"),
        method: head.header("mcp-method"),
        name: head.header("mcp-name"),
        body: &body,
    };
    let tools = operations.list().map(|operation| Tool {
        name: &operation.name,
        description: &operation.description,
        schema: &operation.schema,
    });
    let (status, body) =
        mcp::answer(&posted, tools, |name, arguments| operations.call(name, Some(arguments), Via::Mcp));
    send(reply, status, body.as_ref());
    read
}

fn send(reply: &mut Reply, status: u16, body: Option<&Value>) {
    let mut headers = Vec::new();
    if status == 405 {
        headers.push(("allow".to_owned(), "POST".to_owned()));
    }
    let bytes = body.map(Value::to_string).unwrap_or_default();
    if body.is_some() {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    reply.hold();
    // A target that has hung up is not told anything.
    let _ = reply
        .head(status, &headers, Some(bytes.len() as u64))
        .and_then(|()| reply.piece(bytes.as_bytes()))
        .and_then(|()| reply.end());
}
