//! Operations over HTTP: `POST /operations/NAME`; `/mcp` is another file's. Owns that form and nothing else.

use super::guard::{BodyFault, Request, in_turn};
use super::mcp_http;
use super::operations::{Operations, Response, Via};
use super::reply::Reply;
use crate::json;
use crate::relay::framing::Body;
use serde_json::json;

/// The most bytes of arguments.
const ARGUMENTS: u64 = 1 << 20;

/// Serves one request; false where its body was left unread.
pub(super) fn serve(operations: &Operations, request: &mut Request<'_>, reply: &mut Reply) -> bool {
    if request.head.target == mcp_http::PATH {
        return mcp_http::serve(operations, request, reply);
    }
    let name = request.head.target.strip_prefix("/operations/").map(str::to_owned);
    let (Some(name), "POST") = (name, request.head.method.as_str()) else {
        refuse(reply, 404, "crashlab_not_found", "call an operation with POST /operations/NAME");
        return request.head.body == Body::None;
    };
    let bytes = match request.body(ARGUMENTS, reply) {
        Ok(bytes) => bytes,
        Err(BodyFault::TooLarge) => {
            refuse(reply, 413, "crashlab_request_too_large", "arguments may have 1 MiB at most");
            return false;
        }
        Err(BodyFault::Broken(why)) => {
            refuse(reply, 400, "crashlab_malformed_request", &why);
            return false;
        }
    };
    let arguments = in_turn(bytes.len(), || json::parse(&bytes).ok());
    let response: Response = operations.call(&name, arguments.as_ref(), Via::Http);
    let (status, body) = response.http();
    let _ = reply.json(status, &body);
    true
}

fn refuse(reply: &mut Reply, status: u16, code: &str, message: &str) {
    let _ = reply.json(status, &json!({"error": {"code": code, "message": message}}));
}
