//! The gateway as a peer on the relay's network sees it: raw sockets on one side, a made-up world and a script on the other.

mod admission;
mod answers;
mod chaos;
mod drills;
mod guard;
mod kept;
mod mcp;
mod operations;
mod provider;
mod script;
mod tls;

use super::*;
use crate::ids::CaseId;
use serde_json::{Map, json};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::sync::Mutex;

pub(super) const SECRET: &str = "sk-very-secret/value+1";

/// What a test changes of the plan.
pub(super) struct Setting {
    pub(super) gateway: Value,
    pub(super) operations: Value,
    pub(super) script: String,
    pub(super) purse: Option<Arc<Purse>>,
    /// The faults of a drill, as the policy has them.
    pub(super) faults: Value,
    pub(super) seed: u64,
}

impl Default for Setting {
    fn default() -> Self {
        let gateway = json!({
            "dialect": "openai", "upstream": {"script": "replies.jsonl"}, "target_path": "/v1",
            "routes": ["POST /v1/chat/completions", "GET /v1/models", "GET /v1/models/{model}", "POST /v1/responses?api-version"],
            "models": ["gpt-5*"], "limits": {"requests": 100}, "env": {"OPENAI_API_KEY": "token", "OPENAI_BASE_URL": "url"},
            "prices": {"gpt-5*": {"input": 1.0, "output": 2.0}},
        });
        let operations = json!({
            "get": {"calls": 3, "arguments": {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}},
            "put": {"calls": 100}, "refuse": {}, "fail": {}, "secret": {},
        });
        Self { gateway, operations, script: String::new(), purse: None, faults: Value::Null, seed: 1 }
    }
}

/// A file that a test can read.
#[derive(Clone, Default)]
pub(super) struct Sink(Arc<Mutex<Vec<u8>>>);

impl super::reply::Connection for Sink {
    fn reset(&self) {}
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink {
    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    pub(super) fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A world of keys and values that notes what it hears.
pub(super) struct Desk {
    values: Map<String, Value>,
    heard: Arc<Mutex<Vec<String>>>,
}

impl World for Desk {
    fn call(&mut self, name: &str, arguments: &Map<String, Value>) -> Result<Called> {
        self.heard.lock().unwrap().push(name.to_owned());
        match name {
            "get" => {
                Ok(Called::Result(self.values.get(arguments["key"].as_str().unwrap()).cloned().unwrap_or_default()))
            }
            "put" => {
                self.values.extend(arguments.clone());
                Ok(Called::Result(json!({"put": arguments.len()})))
            }
            "refuse" => Ok(Called::Refused { code: "over_limit".into(), message: "ask a supervisor".into() }),
            "secret" => Ok(Called::Result(json!({"leak": SECRET, "encoded": base64_of(SECRET)}))),
            _ => anyhow::bail!("KeyError: 'private detail'"),
        }
    }

    fn snapshot(&mut self) -> Result<Value> {
        Ok(Value::Object(self.values.clone()))
    }

    fn restore(&mut self, world: &Value) -> Result<()> {
        self.values = world.as_object().cloned().unwrap_or_default();
        Ok(())
    }
}

pub(super) fn base64_of(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// One trial behind a gateway on loopback.
pub(super) struct Bench {
    pub(super) admission: Option<Admission>,
    pub(super) address: SocketAddr,
    pub(super) nonce: String,
    pub(super) heard: Arc<Mutex<Vec<String>>>,
    pub(super) operations: Sink,
    pub(super) calls: Sink,
    environment: Vec<(String, String)>,
}

pub(super) fn gateway() -> Gateway {
    gateway_with(Room::whole())
}

pub(super) fn gateway_with(room: Room) -> Gateway {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Gateway::open_with(bind, PeerRule::Loopback, room, Interrupt::never()).unwrap()
}

pub(super) fn rules(setting: &Setting) -> crate::policy::Policy {
    let mut policy = json!({
        "version": 1, "name": "bench", "target": {"image": {"reference": "none:1"}, "command": ["true"]},
        "evaluation": {"command": ["true"]}, "gateways": {"openai": setting.gateway}, "operations": setting.operations,
    });
    if setting.faults.is_array() {
        policy["drills"] = json!({"drill": {"faults": setting.faults}});
    }
    crate::policy::parse(policy.to_string().as_bytes()).unwrap_or_else(|refusal| panic!("{refusal}"))
}

impl Bench {
    pub(super) fn admit(gateway: &Gateway, setting: Setting) -> Self {
        let policy = rules(&setting);
        let implemented: Vec<Implemented> = ["get", "put", "refuse", "fail", "secret", "hidden"]
            .map(|name| Implemented { name: name.into(), description: format!("does {name}"), arguments: None })
            .into();
        let set = Arc::new(OperationSet::compile(&policy.operations, &implemented).unwrap());
        let heard = Arc::default();
        let desk = Desk { values: Map::new(), heard: Arc::clone(&heard) };
        let rule = &policy.gateways["openai"];
        let plan = match setting.gateway["upstream"].is_string() {
            true => GatewayPlan::upstream("openai", rule, Some(HostSecret::generated("A_KEY", SECRET.to_owned()))),
            false => GatewayPlan::script("openai", rule, setting.script.as_bytes(), "replies.jsonl"),
        };
        let (operations, calls) = (Sink::default(), Sink::default());
        let drill = policy.drills.get("drill");
        let drills = drill.map(|drill| Drills::new(drill, setting.seed, "a-case@drill/1")).unwrap_or_default();
        let secret = HostSecret::generated("A_KEY", SECRET.to_owned());
        let pass = TrialPass {
            trial: TrialId { case: CaseId::try_from("a-case".to_owned()).unwrap(), drill: None, repetition: 1 },
            nonce: nonce().unwrap(),
            operations: Some(OperationsPlan { set, world: Arc::new(Mutex::new(desk)), before: json!({}) }),
            gateways: vec![Arc::new(plan.unwrap())],
            drills: Arc::new(drills),
            redactor: Redactor::new(vec![secret]).unwrap(),
            purse: setting.purse,
            operations_file: Box::new(operations.clone()),
            gateway_file: Box::new(calls.clone()),
        };
        let nonce = pass.nonce.clone();
        let admission = gateway.admit(pass).unwrap();
        let environment = admission.environment("http://gateway:8080");
        Self { admission: Some(admission), address: gateway.address(), nonce, heard, operations, calls, environment }
    }

    /// A trial with one gateway and nothing else, ready.
    pub(super) fn alone(gateway: &Gateway, plan: Arc<GatewayPlan>, redactor: Redactor) -> Self {
        let (operations, calls) = (Sink::default(), Sink::default());
        let pass = TrialPass {
            trial: TrialId { case: CaseId::try_from("a-case".to_owned()).unwrap(), drill: None, repetition: 1 },
            nonce: nonce().unwrap(),
            operations: None,
            gateways: vec![plan],
            drills: Arc::default(),
            redactor,
            purse: None,
            operations_file: Box::new(operations.clone()),
            gateway_file: Box::new(calls.clone()),
        };
        let nonce = pass.nonce.clone();
        let admission = gateway.admit(pass).unwrap();
        let environment = admission.environment("http://gateway:8080");
        let (heard, address) = (Arc::default(), gateway.address());
        let bench = Self { admission: Some(admission), address, nonce, heard, operations, calls, environment };
        bench.show();
        bench
    }

    /// Admitted, and its relay has shown itself.
    pub(super) fn ready(gateway: &Gateway, setting: Setting) -> Self {
        let bench = Self::admit(gateway, setting);
        bench.show();
        bench
    }

    pub(super) fn show(&self) {
        let request = format!("GET /.crashlab/ready HTTP/1.1\r\nHost: g\r\nx-crashlab-nonce: {}\r\n\r\n", self.nonce);
        assert!(self.raw(request.as_bytes()).starts_with("HTTP/1.1 204"));
        assert!(self.admission.as_ref().unwrap().wait_ready(Duration::ZERO));
    }

    pub(super) fn variable(&self, name: &str) -> &str {
        let found = self.environment.iter().find(|(key, _)| key == name);
        &found.unwrap_or_else(|| panic!("{name} is not bound")).1
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        // Below the time for a head: what ends only by that was not ended by us.
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        stream
    }

    /// Sends these bytes and nothing more, and reads to the end.
    pub(super) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        // An answer that leaves the connection open is followed by no request; one that was sent early may be gone already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read_to_end(stream)
    }

    /// A request with the model token.
    pub(super) fn ask(&self, line: &str, body: &str) -> (u16, String) {
        let token = self.variable("OPENAI_API_KEY");
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head = format!("{line} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n{length}\r\n");
        status_and_body(&self.raw(format!("{head}{body}").as_bytes()))
    }

    pub(super) fn chat(&self, body: &Value) -> (u16, String) {
        self.ask("POST /v1/chat/completions", &body.to_string())
    }

    /// A call of an operation.
    pub(super) fn operate(&self, name: &str, body: &str) -> (u16, Value) {
        let token = self.variable("CRASHLAB_TOKEN");
        let head = format!("POST /operations/{name} HTTP/1.1\r\nHost: g\r\nauthorization: bearer {token}\r\n");
        let (status, body) =
            status_and_body(&self.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()));
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{body:?}: {error}")))
    }

    pub(super) fn revoke(&mut self) -> Traffic {
        self.admission.take().unwrap().revoke()
    }

    pub(super) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

/// What comes until the peer closes; a reset ends it too.
pub(super) fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => panic!("nothing ends this connection"),
            Ok(_) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer, to its own end; what follows is not taken.
pub(super) fn read_answer(mut stream: &TcpStream) -> String {
    let mut answer = String::new();
    loop {
        if let Some((head, body)) = answer.split_once("\r\n\r\n") {
            let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
            let is_whole = match length {
                Some(length) => body.len() >= length.parse().unwrap(),
                None => body.ends_with("0\r\n\r\n"),
            };
            if is_whole {
                return answer;
            }
        }
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => answer.push(char::from(byte[0])),
            other => panic!("{other:?} after {answer:?}"),
        }
    }
}

pub(super) fn status_and_body(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
    let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
    (status, body)
}

/// The body's bytes; `<cut>` at their end where it has no end.
fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        match usize::from_str_radix(size, 16).unwrap() {
            0 => return out,
            size => {
                out.push_str(&rest[..size]);
                body = &rest[size + 2..];
            }
        }
    }
    out + "<cut>"
}
