//! The relay's program between a target and a real gateway, over loopback: what it passes, what it refuses, what it bounds.

use crashlab::drills::Drills;
use crashlab::gateway::{
    Admission, Called, Gateway, Implemented, OperationSet, OperationsPlan, PeerRule, Traffic, TrialPass, World, nonce,
};
use crashlab::ids::{CaseId, TrialId};
use crashlab::interrupt::Interrupt;
use crashlab::process::{Bounds, Child, Environment, Program};
use crashlab::redact::Redactor;
use serde_json::{Map, Value, json};
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempPath;

/// Long enough that only what hangs runs into it.
const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> TempPath {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(crashlab::relay::PROGRAM).unwrap();
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o700)).unwrap();
    // Closed for writing, or starting it fails with "text file busy".
    file.into_temp_path()
}

/// An address that nobody has, of a block of loopback that no connection starts from: a port that was free a moment ago
/// stays so.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., third, fourth] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, third | 128, fourth, NEXT.fetch_add(1, Ordering::SeqCst));
    TcpListener::bind((address, 0)).unwrap().local_addr().unwrap()
}

fn relay(program: &TempPath, to: SocketAddr, listen: SocketAddr, nonce: &str) -> Program {
    let (to, listen) = (to.to_string(), listen.to_string());
    let arguments = ["forward", "--listen", &listen, "--to", &to, "--nonce", nonce, "--head-seconds", "30"];
    Program::new(program.to_path_buf(), Environment::empty()).args(arguments)
}

/// Starts a program that was just written: a process that another test forks meanwhile may hold it open for writing until
/// it is another program itself.
fn started(program: &Program) -> Child {
    loop {
        match program.spawn() {
            Err(error) if error.to_string().contains("busy") => std::thread::yield_now(),
            started => return started.unwrap(),
        }
    }
}

/// Notes what it hears, and gives back what it got.
struct Echo(Arc<Mutex<Vec<Value>>>);

impl World for Echo {
    fn call(&mut self, _name: &str, arguments: &Map<String, Value>) -> anyhow::Result<Called> {
        self.0.lock().unwrap().push(Value::Object(arguments.clone()));
        Ok(Called::Result(Value::Object(arguments.clone())))
    }

    fn snapshot(&mut self) -> anyhow::Result<Value> {
        Ok(Value::Null)
    }

    fn restore(&mut self, _world: &Value) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A trial behind its own relay.
struct Trial {
    admission: Option<Admission>,
    relay: Child,
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Value>>>,
    token: String,
    model_token: String,
    _program: TempPath,
}

const BIG: usize = 4 << 20;

impl Trial {
    fn start(gateway: &Gateway) -> Self {
        Self::start_with(gateway, &[])
    }

    fn start_with(gateway: &Gateway, arguments: &[&str]) -> Self {
        Self::start_under(gateway, arguments, &json!([]))
    }

    fn start_under(gateway: &Gateway, arguments: &[&str], faults: &Value) -> Self {
        let mut policy = json!({
            "version": 1, "name": "bench", "target": {"image": {"reference": "none:1"}, "command": ["true"]},
            "evaluation": {"command": ["true"]}, "operations": {"echo": {}},
            "gateways": {"openai": {
                "dialect": "openai", "upstream": {"script": "replies.jsonl"}, "routes": ["POST /v1/chat/completions"],
                "models": ["*"], "limits": {"requests": 1000, "idle": "2h"}, "env": {"MODEL": "token"},
            }},
        });
        if faults != &json!([]) {
            policy["drills"] = json!({"drill": {"faults": faults}});
        }
        let policy = crashlab::policy::parse(policy.to_string().as_bytes()).unwrap();
        let drills = policy.drills.get("drill").map(|drill| Drills::new(drill, 1, "c@drill/1")).unwrap_or_default();
        let implemented = [Implemented { name: "echo".into(), description: String::new(), arguments: None }];
        let set = Arc::new(OperationSet::compile(&policy.operations, &implemented).unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let events =
            json!({"match": {"model": "events"}, "events": [{"data": "first"}, {"after": "1h", "data": "late"}]});
        let big = json!({"match": {"model": "big"}, "body": "x".repeat(BIG)});
        let script = format!("{events}\n{}", format!("{big}\n").repeat(3));
        let rule = &policy.gateways["openai"];
        let plan = crashlab::gateway::GatewayPlan::script("openai", rule, script.as_bytes(), "replies.jsonl").unwrap();
        let nonce = nonce().unwrap();
        let pass = TrialPass {
            trial: TrialId { case: CaseId::try_from("c".to_owned()).unwrap(), drill: None, repetition: 1 },
            nonce: nonce.clone(),
            operations: Some(OperationsPlan {
                set,
                world: Arc::new(Mutex::new(Echo(heard.clone()))),
                before: Value::Null,
            }),
            gateways: vec![Arc::new(plan)],
            drills: Arc::new(drills),
            redactor: Redactor::new(Vec::new()).unwrap(),
            purse: None,
            operations_file: Box::new(std::io::sink()),
            gateway_file: Box::new(std::io::sink()),
        };
        let admission = gateway.admit(pass).unwrap();
        let (program, address) = (program(), free_address());
        let relay = started(&relay(&program, gateway.address(), address, &nonce).args(arguments.iter().copied()));
        assert!(admission.wait_ready(PATIENCE), "the relay shows its nonce");
        let environment = admission.environment("http://gateway:8080");
        let token = |name: &str| environment.iter().find(|(key, _)| key == name).unwrap().1.clone();
        let (token, model_token) = (token("CRASHLAB_TOKEN"), token("MODEL"));
        Self { admission: Some(admission), relay, address, heard, token, model_token, _program: program }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends these bytes, of which the first request is to be the last, and reads to the end.
    fn raw(&self, bytes: &[u8]) -> String {
        let text = std::str::from_utf8(bytes).unwrap();
        let mut stream = self.connect();
        stream.write_all(text.replacen("Host: g\r\n", "Host: g\r\nConnection: close\r\n", 1).as_bytes()).unwrap();
        read_to_end(stream)
    }

    /// A connection that has served one call, and is open.
    fn kept(&self) -> TcpStream {
        let mut stream = self.connect();
        stream.write_all((self.echo_head("Content-Length: 2") + "{}").as_bytes()).unwrap();
        let answer = read_answer(&stream);
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection"), "{answer}");
        stream
    }

    fn echo_head(&self, lines: &str) -> String {
        format!("POST /operations/echo HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {}\r\n{lines}\r\n\r\n", self.token)
    }

    fn chat(&self, model: &str) -> String {
        let body = json!({"model": model, "stream": true}).to_string();
        let token = &self.model_token;
        let length = body.len();
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    }

    fn heard(&self) -> usize {
        self.heard.lock().unwrap().len()
    }

    fn revoke(&mut self) -> Traffic {
        self.admission.take().unwrap().revoke()
    }
}

fn open() -> Gateway {
    Gateway::open((Ipv4Addr::LOCALHOST, 0).into(), PeerRule::Loopback, Interrupt::never()).unwrap()
}

fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing ends this connection"),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One answer, to its own end; what follows is not taken.
fn read_answer(mut stream: &TcpStream) -> String {
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

/// The host takes it off the network that relays share, before it ends: it must not end by itself.
#[test]
fn a_relay_that_cannot_reach_the_gateway_says_what_and_where_and_waits_to_be_removed() {
    let (program, closed, gateway) = (program(), free_address(), open());
    let complaint = given_up(&program, closed);
    for word in ["from the relay's container to the host", "127.", &closed.port().to_string()] {
        assert!(complaint.contains(word), "{complaint}");
    }
    let complaint = given_up(&program, gateway.address());
    assert!(complaint.contains("something else"), "a nonce that no trial has: {complaint}");
}

/// What it says, once its command line tells that it has given up.
#[expect(clippy::disallowed_methods, reason = "its number is asked for; src/ starts none")]
fn given_up(program: &TempPath, to: SocketAddr) -> String {
    let planned = relay(program, to, free_address(), "00");
    let mut command = std::process::Command::new(program);
    command.args(planned.arguments()).stderr(std::process::Stdio::piped());
    let mut relay = loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            started => break started.unwrap(),
        }
    };
    let mut complaint = String::new();
    BufReader::new(relay.stderr.as_mut().unwrap()).read_line(&mut complaint).unwrap();
    let (line, begun) = (format!("/proc/{}/cmdline", relay.id()), Instant::now());
    while std::fs::read(&line).unwrap() != b"relay\0gave-up\0" {
        assert!(begun.elapsed() < PATIENCE && relay.try_wait().unwrap().is_none(), "{complaint}");
        std::thread::sleep(Duration::from_millis(5));
    }
    relay.kill().unwrap();
    relay.wait().unwrap();
    complaint
}

#[test]
fn a_relay_that_is_called_wrongly_says_so() {
    let program = program();
    for arguments in
        [&[][..], &["other"], &["forward"], &["forward", "--listen", "x", "--to", "127.0.0.1:1", "--nonce", "0"]]
    {
        let relay = Program::new(program.to_path_buf(), Environment::empty()).args(arguments.iter().copied());
        assert_eq!(relay.run(&Bounds::time(PATIENCE)).unwrap().status.code(), Some(64), "{arguments:?}");
    }
}

#[test]
fn ambiguous_framing_ends_at_the_relay() {
    let gateway = open();
    let mut trial = Trial::start(&gateway);
    let hidden = trial.echo_head("Content-Length: 2") + "{}";
    let lines = [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Content-Length: 2\r\nContent-Length: 2",
        "Content-Length : 2",
        "Content-Length: 2,2",
        "Content-Length: 0x2",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: x",
        " folded: line\r\nContent-Length: 2",
        "X: a\nContent-Length: 2",
        "Host: other\r\nContent-Length: 2",
    ];
    for line in lines {
        let answer = trial.raw(format!("{}{{}}{hidden}", trial.echo_head(line)).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{line:?}: {answer}");
    }
    let chunked = trial.echo_head("Transfer-Encoding: chunked");
    for chunks in ["2;x=y\r\n{}\r\n0\r\n\r\n", "2\r\n{}X\r\n0\r\n\r\n", "2\r\n{}\r\n0\r\nX: trailer\r\n\r\n", "zz\r\n"]
    {
        let answer = trial.raw(format!("{chunked}{chunks}{hidden}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400 "), "{chunks:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{chunks:?}: {answer}");
    }
    assert_eq!(trial.heard(), 0);
    assert_eq!(trial.revoke().operations, [] as [Value; 0], "no call came through");
}

#[test]
fn exactly_the_declared_body_passes() {
    let gateway = open();
    let trial = Trial::start(&gateway);
    let long = json!({"text": "é".repeat(200_000)});
    let text = long.to_string();
    let sized = trial.echo_head(&format!("Content-Length: {}", text.len())) + &text;
    let chunks: String = text
        .chars()
        .collect::<Vec<_>>()
        .chunks(70_001)
        .map(String::from_iter)
        .collect::<Vec<_>>()
        .iter()
        .map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len()))
        .collect();
    let chunked = trial.echo_head("Transfer-Encoding: chunked") + &chunks + "0\r\n\r\n";
    for request in [sized, chunked] {
        // What follows is not taken for a second request.
        let answer = trial.raw(format!("{request}{}{{}}", trial.echo_head("Content-Length: 2")).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{}", &answer[..200]);
        assert_eq!(answer.matches("HTTP/1.1").count(), 1);
    }
    assert_eq!(*trial.heard.lock().unwrap(), [long.clone(), long]);
    let empty = trial.echo_head("Transfer-Encoding: chunked") + "0\r\n\r\n";
    assert!(trial.raw(empty.as_bytes()).contains("crashlab_invalid_arguments"));
}

#[test]
fn an_answer_that_comes_before_the_body_reaches_the_target() {
    let gateway = open();
    let trial = Trial::start(&gateway);
    let vast = "POST /operations/echo HTTP/1.1\r\nHost: g\r\nContent-Length: 35184372088832\r\n\r\n";
    assert!(trial.raw(vast.as_bytes()).starts_with("HTTP/1.1 401 "));
    let large = trial.echo_head("Content-Length: 3000000") + &" ".repeat(3_000_000);
    assert!(trial.raw(large.as_bytes()).starts_with("HTTP/1.1 413 "));
    assert_eq!(trial.heard(), 0);
}

#[test]
fn an_event_passes_before_the_next_one_is_due() {
    let gateway = open();
    let mut trial = Trial::start(&gateway);
    let mut stream = trial.connect();
    stream.write_all(trial.chat("events").as_bytes()).unwrap();
    let mut seen = String::new();
    while !seen.contains("data: first\n\n") {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    assert_eq!(trial.revoke().failures.len(), 1);
    assert!(!read_to_end(stream).contains("0\r\n\r\n"), "the end of the trial cuts it");
}

#[test]
fn connections_beyond_the_bound_wait_until_one_is_free() {
    let gateway = open();
    let trial = Trial::start_with(&gateway, &["--connections", "2"]);
    let held = [trial.connect(), trial.connect()];
    let mut third = trial.connect();
    third.write_all((trial.echo_head("Content-Length: 2") + "{}").as_bytes()).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(third.read(&mut [0]).is_err(), "nobody has taken it");
    assert_eq!(trial.heard(), 0);
    drop(held);
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(read_answer(&third).starts_with("HTTP/1.1 200 "));
}

#[test]
fn a_target_that_holds_hundreds_of_connections_disturbs_no_other_trial_and_all_end_with_it() {
    let gateway = open();
    let (mut hostile, other) = (Trial::start(&gateway), Trial::start(&gateway));
    let mut held = Vec::new();
    for number in 0..300 {
        let mut stream = hostile.connect();
        match number % 3 {
            // No body, an answer that is not read (the large ones while there are some), nothing at all.
            0 => stream.write_all(hostile.echo_head("Content-Length: 100").as_bytes()).unwrap(),
            1 => stream.write_all(hostile.chat("big").as_bytes()).unwrap(),
            _ => {}
        }
        held.push(stream);
    }
    for _ in 0..20 {
        let answer = other.raw((other.echo_head("Content-Length: 2") + "{}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let big = other.raw(other.chat("big").as_bytes());
    assert!(big.ends_with("0\r\n\r\n") && big.len() > BIG);
    hostile.revoke();
    hostile.relay.kill();
    for stream in held {
        read_to_end(stream);
    }
    assert_eq!(other.heard(), 20);
}

#[test]
fn a_reset_of_the_gateway_is_a_reset_at_the_target_and_every_other_end_is_none() {
    let gateway = open();
    let faults = json!([{"on": "gateway:openai", "kind": "reset", "times": 2}]);
    let trial = Trial::start_under(&gateway, &[], &faults);
    let ends = |pieces: &[&str]| {
        let mut stream = trial.connect();
        for piece in pieces {
            stream.write_all(piece.as_bytes()).unwrap();
        }
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        (answer, end.map_err(|error| error.kind()))
    };
    let request = trial.chat("big");
    let (answer, end) = ends(&[&request]);
    assert_eq!((answer.len(), end), (0, Err(ErrorKind::ConnectionReset)));
    // With a body that comes after the head, and in two pieces.
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (answer, end) = ends(&[&format!("{head}\r\n\r\n"), &body[..5], &body[5..]]);
    assert_eq!((answer.len(), end), (0, Err(ErrorKind::ConnectionReset)));
    // The script has kept its lines, and this connection ends in order, after a whole answer.
    let (answer, end) = ends(&[&request]);
    assert!(answer.len() > BIG && end == Ok(answer.len()), "{} {end:?}", answer.len());
    for text in ["nonsense\r\n\r\n", "POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 3\r\n\r\nabcdef"] {
        let (answer, end) = ends(&[text]);
        assert!(answer.starts_with(b"HTTP/1.1 4") && end.is_ok(), "{text}: {end:?}");
    }
}

#[test]
fn a_connection_serves_one_request_after_the_other_however_their_bodies_come() {
    let gateway = open();
    let trial = Trial::start(&gateway);
    let mut stream = trial.kept();
    let chunked = trial.echo_head("Transfer-Encoding: chunked");
    let long = json!({"text": "x".repeat(100_000)}).to_string();
    let table = [
        vec![trial.echo_head("Content-Length: 2"), "{".into(), "}".into()],
        vec![chunked.clone() + "2\r\n{}\r\n0\r\n\r\n"],
        vec![chunked, "1\r\n{".into(), "\r\n1\r\n}\r\n0\r\n".into(), "\r\n".into()],
        vec![trial.echo_head(&format!("Content-Length: {}", long.len())), long.clone()],
        vec![trial.echo_head("Content-Length: 2\r\nConnection: keep-alive") + "{}"],
    ];
    for pieces in table {
        for piece in &pieces {
            stream.write_all(piece.as_bytes()).unwrap();
        }
        let answer = read_answer(&stream);
        assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection"), "{pieces:?}: {answer}");
    }
    // A long answer in chunks, and then the one that asks for the end.
    stream.write_all(trial.chat("big").as_bytes()).unwrap();
    let mut passed = Vec::new();
    while !passed.ends_with(b"\r\n0\r\n\r\n") {
        let mut buffer = [0; 64 << 10];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "cut after {}", passed.len());
        passed.extend_from_slice(&buffer[..count]);
    }
    assert!(passed.len() > BIG);
    stream.write_all((trial.echo_head("Content-Length: 2\r\nConnection: close") + "{}").as_bytes()).unwrap();
    let answer = read_to_end(stream);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(trial.heard(), 7);
}

#[test]
fn nothing_is_read_behind_a_request_that_has_no_clear_end() {
    let gateway = open();
    let trial = Trial::start(&gateway);
    let good = trial.echo_head("Content-Length: 2") + "{}";
    let chunked = trial.echo_head("Transfer-Encoding: chunked");
    let table = [
        (good.clone(), 200, "a second one that came along"),
        (good.clone() + "\r\n", 200, "a line end too many"),
        (trial.echo_head("Content-Length: 2\r\nConnection: close") + "{}", 200, "asked to end"),
        (trial.echo_head("Content-Length: 2\r\nTransfer-Encoding: chunked"), 400, "a length beside a coding"),
        (trial.echo_head("Content-Length : 2"), 400, "a space"),
        (good.replace("HTTP/1.1", "HTTP/1.0"), 400, "an old version"),
        (chunked.clone() + "2;x=y\r\n{}\r\n0\r\n\r\n", 400, "a chunk's extension"),
        (chunked + "2\r\n{}\r\n0\r\nX: y\r\n\r\n", 400, "a trailer"),
        (good.replace(&trial.token, "other"), 401, "a foreign token"),
        (good.replace("Content-Length: 2", "Content-Length: 3000000"), 413, "a body that is too large"),
    ];
    for (request, status, what) in table {
        let heard = trial.heard();
        let mut stream = trial.kept();
        stream.write_all(format!("{request}{good}").as_bytes()).unwrap();
        let answer = read_to_end(stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
        // The target can tell that what followed was not taken.
        assert!(answer.contains("\r\nconnection: close\r\n"), "{what}: {answer}");
        assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{what}: {answer}");
        assert_eq!(trial.heard(), heard + 1 + usize::from(status == 200), "{what}");
    }
}

#[test]
fn a_kept_connection_that_waits_too_long_is_ended() {
    let gateway = open();
    let trial = Trial::start_with(&gateway, &["--kept-seconds", "1"]);
    assert_eq!(read_to_end(trial.kept()), "");
}

#[test]
fn an_answer_that_says_so_is_the_last_of_its_connection() {
    let gateway = open();
    // Only the answer ends it as soon.
    let trial = Trial::start_with(&gateway, &["--kept-seconds", "3600"]);
    for request in [
        trial.echo_head("X: y").replace(&trial.token, "other"),
        trial.echo_head("Content-Length: 2").replace(&trial.token, "other") + "{}",
        trial.echo_head("Content-Length: 2\r\nConnection: close") + "{}",
    ] {
        let mut stream = trial.kept();
        stream.write_all(request.as_bytes()).unwrap();
        let answer = read_to_end(stream);
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
}

#[test]
fn a_kept_connection_carries_nothing_after_its_trial() {
    let gateway = open();
    let mut trial = Trial::start(&gateway);
    let request = trial.echo_head("Content-Length: 2") + "{}";
    let mut stream = trial.kept();
    trial.revoke();
    // The gateway has ended its side: not even a refusal comes, and the relay opens no other way.
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(read_to_end(stream), "");
    assert_eq!(trial.heard(), 1);
}

#[test]
fn kept_connections_leave_room_for_those_that_have_a_request() {
    let gateway = open();
    let trial = Trial::start_with(&gateway, &["--connections", "4"]);
    let kept = [trial.kept(), trial.kept()];
    for _ in 0..6 {
        let mut stream = trial.connect();
        stream.write_all((trial.echo_head("Content-Length: 2") + "{}").as_bytes()).unwrap();
        let answer = read_to_end(stream);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
    drop(kept);
}

#[test]
fn an_answer_that_is_cut_or_reset_is_so_on_a_kept_connection_too() {
    let gateway = open();
    for kind in ["reset", "cut_stream"] {
        let faults = json!([{"on": "gateway:openai", "kind": kind}]);
        let trial = Trial::start_under(&gateway, &[], &faults);
        let mut stream = trial.kept();
        stream.write_all(trial.chat("big").as_bytes()).unwrap();
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer).map_err(|error| error.kind());
        match kind {
            "reset" => assert_eq!((answer.len(), end), (0, Err(ErrorKind::ConnectionReset))),
            _ => assert!(end.is_ok() && !answer.is_empty() && !answer.ends_with(b"0\r\n\r\n"), "{end:?}"),
        }
    }
}
