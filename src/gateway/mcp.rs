//! The Model Context Protocol, as far as tools go: one posted JSON-RPC message in, status and body out. Owns the
//! protocol's forms in both of its eras; carries nothing out itself (the caller's `call` does) and keeps no state.
//!
//! Eras: revision 2026-07-28, where each request says its version itself, and 2025-11-25 and 2025-06-18, which begin with
//! `initialize`. What the two share is tools; neither gets a session, a stream or a message that it did not ask for.

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

/// Characters of what the target sent that an error repeats.
const REPEATED: usize = 100;

/// One HTTP request to the endpoint; header values as they came.
#[derive(Debug, Clone, Copy, Default)]
pub struct Posted<'a> {
    /// `POST`, or what is answered with 405.
    pub http_method: &'a str,
    /// `Origin`.
    pub origin: Option<&'a str>,
    /// `Host`.
    pub host: Option<&'a str>,
    /// `MCP-Protocol-Version`.
    pub version: Option<&'a str>,
    /// `Mcp-Method`.
    pub method: Option<&'a str>,
    /// `Mcp-Name`.
    pub name: Option<&'a str>,
    /// The whole body.
    pub body: &'a [u8],
}

/// A declared operation, as a tool.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    /// Its name.
    pub name: &'a str,
    /// For the model; may be empty.
    pub description: &'a str,
    /// JSON Schema 2020-12 of its arguments.
    pub schema: &'a Value,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Called {
    /// It answered.
    Result(Value),
    /// It did not: the arguments, the budget, the world's refusal, or trouble of the evaluation.
    Failed {
        /// For programs.
        code: String,
        /// For the model.
        message: String,
    },
    /// There is no such tool.
    Unknown,
}

/// Answers one request. The body is none where HTTP has none (202), and 405 goes with `Allow: POST`.
pub fn answer<'a>(
    posted: &Posted<'_>,
    tools: impl Iterator<Item = Tool<'a>>,
    call: impl FnOnce(&str, &Value) -> Called,
) -> (u16, Option<Value>) {
    if !is_own_origin(posted) {
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

/// A page of a browser has an origin, a program has none. The token is what protects; this is the protocol's own wish.
fn is_own_origin(posted: &Posted<'_>) -> bool {
    let Some(origin) = posted.origin else { return true };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some() && authority == posted.host
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
    let Ok(value) = crate::json::parse(body) else {
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
    call: impl FnOnce(&str, &Value) -> Called,
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
    call: impl FnOnce(&str, &Value) -> Called,
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
        Called::Result(value) => Ok(result_of(value, era)),
        Called::Failed { code, message } => Ok(json!({
            "content": [{"type": "text", "text": format!("{code}: {message}")}],
            "structuredContent": {"error": {"code": code, "message": message}},
            "isError": true,
        })),
        Called::Unknown => Err(Trouble::new(INVALID_PARAMS, format!("Unknown tool: {}", clip(name)))),
    }
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
mod tests {
    use super::*;

    fn tools() -> Vec<(&'static str, &'static str, Value)> {
        vec![
            ("refund", "Gives money back.", json!({"type": "object", "properties": {"order": {"type": "string"}}})),
            ("tell", "", json!({})),
        ]
    }

    /// Answers what `posted` says; the tool `refund` gives back its arguments, `tell` refuses.
    fn ask(posted: &Posted<'_>) -> (u16, Option<Value>) {
        let tools = tools();
        let list = tools.iter().map(|(name, description, schema)| Tool { name, description, schema });
        answer(posted, list, |name, arguments| match name {
            "refund" => Called::Result(arguments.clone()),
            "tell" => Called::Failed { code: "over_limit".to_owned(), message: "ask a supervisor".to_owned() },
            "text" => Called::Result(json!("plain")),
            _ => Called::Unknown,
        })
    }

    fn legacy(message: &Value) -> (u16, Option<Value>) {
        let body = message.to_string();
        ask(&Posted { http_method: "POST", version: Some("2025-11-25"), body: body.as_bytes(), ..Posted::default() })
    }

    fn modern_message(method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({META_VERSION: MODERN, META_CAPABILITIES: {}});
        json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params})
    }

    fn modern(method: &str, name: Option<&str>, params: Value) -> (u16, Option<Value>) {
        let body = modern_message(method, params).to_string();
        ask(&Posted {
            http_method: "POST",
            version: Some(MODERN),
            method: Some(method),
            name,
            body: body.as_bytes(),
            ..Posted::default()
        })
    }

    fn result(answer: (u16, Option<Value>)) -> Value {
        assert_eq!(answer.0, 200, "{answer:?}");
        answer.1.unwrap()["result"].take()
    }

    fn error(answer: &(u16, Option<Value>)) -> (u16, i64) {
        (answer.0, answer.1.as_ref().unwrap()["error"]["code"].as_i64().unwrap())
    }

    fn request(method: &str, params: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    }

    #[test]
    fn a_handshake_gets_the_version_it_asked_for_or_the_newest_of_its_era() {
        for (asked, given) in [
            ("2025-11-25", "2025-11-25"),
            ("2025-06-18", "2025-06-18"),
            ("2024-11-05", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
        ] {
            let message = request("initialize", json!({"protocolVersion": asked, "capabilities": {}}));
            let found = result(legacy(&message));
            assert_eq!(found["protocolVersion"], json!(given), "{asked}");
            assert_eq!(found["capabilities"], json!({"tools": {}}));
            assert_eq!(found["serverInfo"]["name"], json!("crashlab"));
        }
        assert_eq!(result(legacy(&request("ping", json!({})))), json!({}));
    }

    #[test]
    fn tools_are_listed_in_both_eras() {
        let of_legacy = result(legacy(&request("tools/list", json!({}))));
        let of_modern = result(modern("tools/list", None, json!({})));
        for list in [&of_legacy, &of_modern] {
            assert_eq!(list["tools"][0]["description"], json!("Gives money back."));
            assert_eq!(list["tools"][1], json!({"name": "tell", "inputSchema": {"type": "object"}}));
        }
        assert!(of_legacy.get("resultType").is_none());
        assert_eq!((&of_modern["resultType"], &of_modern["cacheScope"]), (&json!("complete"), &json!("private")));
        assert!(of_modern["ttlMs"].is_u64() && of_modern["_meta"][META_SERVER].is_object());
        assert_eq!(error(&legacy(&request("tools/list", json!({"cursor": "x"})))), (200, INVALID_PARAMS));
    }

    #[test]
    fn a_server_tells_a_modern_client_which_versions_it_speaks() {
        let found = result(modern("server/discover", None, json!({})));
        assert_eq!(found["supportedVersions"], json!(["2026-07-28", "2025-11-25", "2025-06-18"]));
        assert_eq!(found["capabilities"], json!({"tools": {}}));
    }

    #[test]
    fn a_call_gives_text_and_value_and_a_refusal_is_a_result_that_says_so() {
        let params = json!({"name": "refund", "arguments": {"order": "A-1"}});
        for found in [
            result(legacy(&request("tools/call", params.clone()))),
            result(modern("tools/call", Some("refund"), params)),
        ] {
            assert_eq!(found["content"], json!([{"type": "text", "text": "{\"order\":\"A-1\"}"}]));
            assert_eq!((&found["structuredContent"], &found["isError"]), (&json!({"order": "A-1"}), &json!(false)));
        }
        let refused = result(legacy(&request("tools/call", json!({"name": "tell"}))));
        assert_eq!(refused["isError"], json!(true));
        assert_eq!(refused["content"][0]["text"], json!("over_limit: ask a supervisor"));
        let text = json!({"name": "text"});
        assert!(result(legacy(&request("tools/call", text.clone()))).get("structuredContent").is_none());
        assert_eq!(result(modern("tools/call", Some("text"), text))["structuredContent"], json!("plain"));
    }

    #[test]
    fn a_tool_that_is_not_there_is_an_error_of_the_protocol() {
        let params = json!({"name": "nothing", "arguments": {}});
        assert_eq!(error(&legacy(&request("tools/call", params.clone()))), (200, INVALID_PARAMS));
        assert_eq!(error(&modern("tools/call", Some("nothing"), params)), (400, INVALID_PARAMS));
        for bad in [json!({}), json!({"name": 1}), json!({"name": "refund", "arguments": []})] {
            assert_eq!(error(&legacy(&request("tools/call", bad))), (200, INVALID_PARAMS));
        }
    }

    #[test]
    fn each_era_has_only_its_own_methods() {
        for method in ["server/discover", "resources/list", "prompts/list", "logging/setLevel"] {
            assert_eq!(error(&legacy(&request(method, json!({})))), (200, METHOD_NOT_FOUND), "{method}");
        }
        for method in ["ping", "initialize", "subscriptions/listen", "resources/list"] {
            assert_eq!(error(&modern(method, None, json!({}))), (404, METHOD_NOT_FOUND), "{method}");
        }
    }

    #[test]
    fn what_wants_no_answer_gets_none() {
        for message in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
            json!({"jsonrpc": "2.0", "id": 5, "result": {}}),
        ] {
            assert_eq!(legacy(&message), (202, None), "{message}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (body, code) in [
            ("", PARSE_ERROR),
            ("{", PARSE_ERROR),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#, PARSE_ERROR),
            (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, INVALID_REQUEST),
            (r#"{"id":1,"method":"ping"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, INVALID_REQUEST),
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, INVALID_REQUEST),
        ] {
            let posted = Posted { http_method: "POST", body: body.as_bytes(), ..Posted::default() };
            assert_eq!(error(&ask(&posted)), (400, code), "{body}");
        }
        for http_method in ["GET", "DELETE", "PUT"] {
            assert_eq!(ask(&Posted { http_method, ..Posted::default() }).0, 405, "{http_method}");
        }
    }

    #[test]
    fn a_version_that_is_not_spoken_is_refused_with_those_that_are() {
        let plain = request("tools/list", json!({})).to_string();
        for version in ["1900-01-01", "not-a-version", "2025-03-26"] {
            let posted =
                Posted { http_method: "POST", version: Some(version), body: plain.as_bytes(), ..Posted::default() };
            let found = ask(&posted);
            assert_eq!(error(&found), (400, UNSUPPORTED_VERSION), "{version}");
            assert_eq!(found.1.unwrap()["error"]["data"]["requested"], json!(version));
        }
        let mut future = modern_message("tools/list", json!({}));
        future["params"]["_meta"][META_VERSION] = json!("2031-01-01");
        let body = future.to_string();
        let posted =
            Posted { http_method: "POST", version: Some("2031-01-01"), body: body.as_bytes(), ..Posted::default() };
        assert_eq!(error(&ask(&posted)), (400, UNSUPPORTED_VERSION));
    }

    #[test]
    fn headers_that_say_something_else_than_the_body_are_refused() {
        let body = modern_message("tools/call", json!({"name": "refund", "arguments": {}})).to_string();
        let right = Posted {
            http_method: "POST",
            version: Some(MODERN),
            method: Some("tools/call"),
            name: Some("refund"),
            body: body.as_bytes(),
            ..Posted::default()
        };
        assert_eq!(ask(&right).0, 200);
        assert_eq!(ask(&Posted { name: Some("=?base64?cmVmdW5k?="), ..right }).0, 200);
        for wrong in [
            Posted { version: None, ..right },
            Posted { version: Some("2025-11-25"), ..right },
            Posted { method: None, ..right },
            Posted { method: Some("tools/list"), ..right },
            Posted { name: None, ..right },
            Posted { name: Some("Refund"), ..right },
            Posted { name: Some("=?base64?!?="), ..right },
        ] {
            assert_eq!(error(&ask(&wrong)), (400, HEADER_MISMATCH), "{wrong:?}");
        }
        for missing in [META_VERSION, META_CAPABILITIES] {
            let mut message = modern_message("tools/list", json!({}));
            message["params"]["_meta"].as_object_mut().unwrap().remove(missing);
            let body = message.to_string();
            let posted = Posted { method: Some("tools/list"), body: body.as_bytes(), ..right };
            assert_eq!(error(&ask(&posted)), (400, INVALID_PARAMS), "{missing}");
        }
    }

    #[test]
    fn a_page_of_another_origin_may_not_call() {
        let body = request("ping", json!({})).to_string();
        let own =
            Posted { http_method: "POST", host: Some("gateway:8080"), body: body.as_bytes(), ..Posted::default() };
        assert_eq!(ask(&own).0, 200);
        assert_eq!(ask(&Posted { origin: Some("http://gateway:8080"), ..own }).0, 200);
        for origin in ["http://evil.example", "null", "gateway:8080", "http://gateway:8080.evil.example"] {
            assert_eq!(ask(&Posted { origin: Some(origin), ..own }).0, 403, "{origin}");
        }
    }
}
