//! The Model Context Protocol, as far as tools go: one posted JSON-RPC message in, status and body out. Owns the
//! protocol's forms in both of its eras; carries nothing out itself (the caller's `call` does) and keeps no state.
//!
//! Eras: revision 2026-07-28, where each request says its version itself, and 2025-11-25 and 2025-06-18, which begin with
//! `initialize`. What the two share is tools; neither gets a session, a stream or a message that it did not ask for.

use super::guard::in_turn;
use super::operations::Response;
use base64::Engine as _;
use serde_json::{Map, Value, json};

/// The revision whose requests stand for themselves.
const MODERN: &str = "2026-07-28";
/// The revisions that begin with `initialize`, the newest first.
const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// Where a modern request says its version, and what its client can do.
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

/// The status of an operation that is not declared.
const NO_SUCH_TOOL: u16 = 404;

/// Hosts that the target's own pages come from: the gateway as it knows it, and itself.
const OWN_HOSTS: [&str; 4] = ["gateway", "localhost", "127.0.0.1", "[::1]"];

/// Characters of what the target sent that an error repeats.
const REPEATED: usize = 100;

/// One HTTP request to the endpoint; header values as they came.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Posted<'a> {
    /// `POST`, or what is answered with 405.
    pub(super) http_method: &'a str,
    /// `Origin`.
    pub(super) origin: Option<&'a str>,
    /// `MCP-Protocol-Version`.
    pub(super) version: Option<&'a str>,
    /// `Mcp-Method`.
    pub(super) method: Option<&'a str>,
    /// `Mcp-Name`.
    pub(super) name: Option<&'a str>,
    /// The whole body.
    pub(super) body: &'a [u8],
}

/// A declared operation, as a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tool<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// For the model; may be empty.
    pub(super) description: &'a str,
    /// JSON Schema 2020-12 of its arguments.
    pub(super) schema: &'a Value,
}

/// Answers one request. The body is none where HTTP has none (202), and 405 goes with `Allow: POST`.
pub(super) fn answer<'a>(
    posted: &Posted<'_>,
    tools: impl Iterator<Item = Tool<'a>>,
    call: impl FnOnce(&str, &Value) -> Response,
) -> (u16, Option<Value>) {
    if !posted.origin.is_none_or(is_own_origin) {
        return refusal(403, None, INVALID_REQUEST, "this origin may not call", None);
    }
    if posted.http_method != "POST" {
        return refusal(405, None, INVALID_REQUEST, "this endpoint takes POST: it has no stream and no session", None);
    }
    let message = match read(posted.body) {
        Ok(message) => message,
        Err(refused) => return refused,
    };
    match message {
        Message::Silent => (202, None),
        Message::Request(request) => match era(posted, &request) {
            Ok(era) => respond(&request, era, tools, call),
            Err(trouble) => trouble.response(&request.id, 400),
        },
    }
}

/// A page of a browser has an origin, a program has none. Only the target's own pages may call: a name that somebody else
/// resolves (DNS rebinding) may not, whatever `Host` says. The token is what protects; this is the protocol's own rule.
fn is_own_origin(origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    let host = authority.map(|authority| match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    });
    host.is_some_and(|host| OWN_HOSTS.contains(&host))
}

enum Message {
    Request(Request),
    /// A notification, or a response to a request that nobody made: taken, and not answered.
    Silent,
}

struct Request {
    id: Value,
    method: String,
    params: Map<String, Value>,
}

fn read(body: &[u8]) -> Result<Message, (u16, Option<Value>)> {
    let refuse = |code, words: &str| Err(refusal(400, None, code, words, None));
    let Ok(value) = in_turn(body.len(), || crate::json::parse(body)) else {
        return refuse(PARSE_ERROR, "the body is not one JSON value without equal keys");
    };
    let Value::Object(mut object) = value else {
        return refuse(INVALID_REQUEST, "the body is not one message: batches are not part of this protocol");
    };
    if object.get("jsonrpc") != Some(&json!("2.0")) {
        return refuse(INVALID_REQUEST, "no `\"jsonrpc\": \"2.0\"` in the message");
    }
    let method = match object.remove("method") {
        Some(Value::String(method)) => method,
        None if object.contains_key("result") || object.contains_key("error") => return Ok(Message::Silent),
        _ => return refuse(INVALID_REQUEST, "the message has no method"),
    };
    let Some(id) = object.remove("id") else { return Ok(Message::Silent) };
    if !(id.is_string() || id.is_i64() || id.is_u64()) {
        return refuse(INVALID_REQUEST, "an id is text or an integer");
    }
    match object.remove("params") {
        None => Ok(Message::Request(Request { id, method, params: Map::new() })),
        Some(Value::Object(params)) => Ok(Message::Request(Request { id, method, params })),
        Some(_) => refuse(INVALID_REQUEST, "params is not an object"),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Modern,
    Legacy,
}

/// Which rules a request goes by, and whether it keeps the headers' rules of its era.
fn era(posted: &Posted<'_>, request: &Request) -> Result<Era, Trouble> {
    let meta = request.params.get("_meta");
    let said = meta.and_then(|meta| meta.get(META_VERSION)).and_then(Value::as_str);
    let is_legacy = |version: &str| LEGACY.contains(&version);
    match (said, posted.version) {
        // The handshake negotiates; what its header says does not count yet.
        (None, _) if request.method == "initialize" => Ok(Era::Legacy),
        (None, None) => Ok(Era::Legacy),
        (None, Some(version)) if is_legacy(version) => Ok(Era::Legacy),
        (None, Some(MODERN)) => Err(Trouble::new(INVALID_PARAMS, format!("{META_VERSION} is missing in params._meta"))),
        (None, Some(version)) => Err(Trouble::unsupported(version)),
        (Some(said), header) if header != Some(said) => {
            let header = header.map_or("missing".to_owned(), |it| format!("{:?}", clip(it)));
            let words = format!("the header MCP-Protocol-Version is {header}, and the body says {:?}", clip(said));
            Err(Trouble::new(HEADER_MISMATCH, words))
        }
        (Some(said), _) if is_legacy(said) => Ok(Era::Legacy),
        (Some(MODERN), _) => keeps_modern_rules(posted, request).map(|()| Era::Modern),
        (Some(said), _) => Err(Trouble::unsupported(said)),
    }
}

fn keeps_modern_rules(posted: &Posted<'_>, request: &Request) -> Result<(), Trouble> {
    let capabilities = request.params.get("_meta").and_then(|meta| meta.get(META_CAPABILITIES));
    if !capabilities.is_some_and(Value::is_object) {
        return Err(Trouble::new(INVALID_PARAMS, format!("{META_CAPABILITIES} is missing in params._meta")));
    }
    same("Mcp-Method", posted.method.map(str::to_owned), &request.method)?;
    match (request.method.as_str(), request.params.get("name").and_then(Value::as_str)) {
        ("tools/call", Some(name)) => same("Mcp-Name", posted.name.and_then(plain), name),
        _ => Ok(()),
    }
}

fn same(header: &str, found: Option<String>, body: &str) -> Result<(), Trouble> {
    match found {
        Some(found) if found == body => Ok(()),
        Some(found) => {
            let words = format!("the header {header} is {:?}, and the body says {:?}", clip(&found), clip(body));
            Err(Trouble::new(HEADER_MISMATCH, words))
        }
        None => Err(Trouble::new(HEADER_MISMATCH, format!("the header {header} is missing or not readable"))),
    }
}

/// A header's value, decoded where it stands between the protocol's marks.
fn plain(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(encoded) => String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).ok()?).ok(),
    }
}

fn respond<'a>(
    request: &Request,
    era: Era,
    tools: impl Iterator<Item = Tool<'a>>,
    call: impl FnOnce(&str, &Value) -> Response,
) -> (u16, Option<Value>) {
    let result = match (request.method.as_str(), era) {
        ("initialize", Era::Legacy) => Ok(initialize(&request.params)),
        ("ping", Era::Legacy) => Ok(json!({})),
        ("server/discover", Era::Modern) => Ok(discover()),
        ("tools/list", _) => list(&request.params, tools, era),
        ("tools/call", _) => call_tool(&request.params, call, era),
        (method, _) => Err(Trouble::new(METHOD_NOT_FOUND, format!("there is no method {:?}", clip(method)))),
    };
    match (result, era) {
        (Ok(result), Era::Legacy) => (200, Some(json!({"jsonrpc": "2.0", "id": request.id, "result": result}))),
        (Ok(mut result), Era::Modern) => {
            result["resultType"] = json!("complete");
            result["_meta"] = json!({META_SERVER: server()});
            (200, Some(json!({"jsonrpc": "2.0", "id": request.id, "result": result})))
        }
        (Err(trouble), Era::Modern) if trouble.code == METHOD_NOT_FOUND => trouble.response(&request.id, 404),
        (Err(trouble), Era::Modern) => trouble.response(&request.id, 400),
        (Err(trouble), Era::Legacy) => trouble.response(&request.id, 200),
    }
}

fn server() -> Value {
    json!({"name": "crashlab", "version": env!("CARGO_PKG_VERSION")})
}

/// The version that the client asked for where it is one of ours, else the newest that it can have this way.
fn initialize(params: &Map<String, Value>) -> Value {
    let asked = params.get("protocolVersion").and_then(Value::as_str);
    let version = LEGACY.into_iter().find(|version| asked == Some(version)).unwrap_or(LEGACY[0]);
    json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server()})
}

fn discover() -> Value {
    json!({"supportedVersions": supported(), "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"})
}

fn supported() -> Vec<&'static str> {
    std::iter::once(MODERN).chain(LEGACY).collect()
}

fn list<'a>(params: &Map<String, Value>, tools: impl Iterator<Item = Tool<'a>>, era: Era) -> Result<Value, Trouble> {
    if params.get("cursor").is_some_and(|cursor| !cursor.is_null()) {
        return Err(Trouble::new(INVALID_PARAMS, "this cursor is unknown: the list has one page".to_owned()));
    }
    let tools: Vec<Value> = tools
        .map(|tool| {
            let mut object = json!({"name": tool.name, "inputSchema": as_object_schema(tool.schema)});
            if !tool.description.is_empty() {
                object["description"] = json!(tool.description);
            }
            object
        })
        .collect();
    let mut result = json!({"tools": tools});
    if era == Era::Modern {
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
    }
    Ok(result)
}

/// Clients insist on `"type": "object"`, which the arguments are in any case.
fn as_object_schema(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut() {
        object.entry("type").or_insert_with(|| json!("object"));
    }
    schema
}

fn call_tool(
    params: &Map<String, Value>,
    call: impl FnOnce(&str, &Value) -> Response,
    era: Era,
) -> Result<Value, Trouble> {
    let invalid = |words: &str| Err(Trouble::new(INVALID_PARAMS, words.to_owned()));
    let Some(name) = params.get("name").and_then(Value::as_str) else { return invalid("params.name is not text") };
    let none = Value::Object(Map::new());
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => &none,
        Some(arguments @ Value::Object(_)) => arguments,
        Some(_) => return invalid("params.arguments is not an object"),
    };
    match call(name, arguments) {
        Response::Result(value) => Ok(result_of(value, era)),
        Response::Refused { code, message } => Ok(failure(&code, &message)),
        Response::Error { status: NO_SUCH_TOOL, .. } => {
            Err(Trouble::new(INVALID_PARAMS, format!("Unknown tool: {}", clip(name))))
        }
        Response::Error { code, message, .. } => Ok(failure(code, &message)),
    }
}

/// What a model can act on is a result, not an error of the protocol: arguments that do not fit, a budget, a refusal.
fn failure(code: &str, message: &str) -> Value {
    json!({
        "content": [{"type": "text", "text": format!("{code}: {message}")}],
        "structuredContent": {"error": {"code": code, "message": message}},
        "isError": true,
    })
}

/// Text for the model, and the value itself for programs: before 2026-07-28 only an object may stand there.
fn result_of(value: Value, era: Era) -> Value {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": false});
    if era == Era::Modern || value.is_object() {
        result["structuredContent"] = value;
    }
    result
}

/// A JSON-RPC error.
struct Trouble {
    code: i64,
    words: String,
    data: Option<Value>,
}

impl Trouble {
    fn new(code: i64, words: String) -> Self {
        Self { code, words, data: None }
    }

    fn unsupported(version: &str) -> Self {
        let data = json!({"supported": supported(), "requested": clip(version)});
        Self { code: UNSUPPORTED_VERSION, words: "Unsupported protocol version".to_owned(), data: Some(data) }
    }

    fn response(self, id: &Value, status: u16) -> (u16, Option<Value>) {
        refusal(status, Some(id), self.code, &self.words, self.data)
    }
}

/// An error response; without an id where none could be read.
fn refusal(status: u16, id: Option<&Value>, code: i64, words: &str, data: Option<Value>) -> (u16, Option<Value>) {
    let mut body = json!({"jsonrpc": "2.0"});
    if let Some(id) = id {
        body["id"] = id.clone();
    }
    body["error"] = json!({"code": code, "message": words});
    if let Some(data) = data {
        body["error"]["data"] = data;
    }
    (status, Some(body))
}

fn clip(text: &str) -> String {
    text.chars().take(REPEATED).collect()
}

#[cfg(test)]
mod tests;
