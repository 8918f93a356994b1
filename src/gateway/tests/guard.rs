//! Framing, peers, tokens, and what a hostile peer can hold open.

use super::*;
use crate::gateway::guard::in_turn;

#[test]
fn malformed_framing_is_answered_400_and_nothing_of_it_is_carried_out() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let token = bench.variable("CRASHLAB_TOKEN");
    let hidden = format!(
        "POST /operations/put HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    let lines = [
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "Content-Length: 2\r\nContent-Length: 3",
        "Content-Length: 2,3",
        "Content-Length : 2",
        "Content-Length: -2",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding: identity",
        "X: a\r\n b: c",
        "X: a\nY: b",
        "X: \u{0}",
    ];
    for line in lines {
        let request = format!(
            "POST /operations/put HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n{line}\r\n\r\n{{}}{hidden}"
        );
        let answer = bench.raw(request.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 400 ") && answer.contains("crashlab_malformed_request"),
            "{line:?}: {answer}"
        );
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{line:?}: {answer}");
    }
    assert_eq!(bench.heard(), [""; 0]);
}

#[test]
fn what_follows_a_body_is_not_a_second_request() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let one = format!(
        "POST /operations/put HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {}\r\nContent-Length: 2\r\n\r\n{{}}",
        bench.variable("CRASHLAB_TOKEN")
    );
    let answer = bench.raw(format!("{one}{one}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!((answer.matches("HTTP/1.1").count(), bench.heard().len()), (1, 1));
}

#[test]
fn a_declared_length_takes_no_memory_and_is_refused_before_the_body() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let vast = 35_184_372_088_832_u64;
    let table = [
        (format!("POST /operations/put HTTP/1.1\r\nHost: g\r\nContent-Length: {vast}\r\n\r\n"), 401),
        (format!("POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {vast}\r\n\r\n"), 401),
        (head(&bench, "CRASHLAB_TOKEN", "/operations/put", vast), 413),
        (head(&bench, "OPENAI_API_KEY", "/v1/chat/completions", vast), 413),
    ];
    for (request, status) in table {
        // Nothing of the body is ever sent: the answer comes all the same.
        let answer = bench.raw(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
    }
    assert_eq!(bench.operate("put", "{}").0, 200, "it goes on");
}

fn head(bench: &Bench, token: &str, path: &str, length: u64) -> String {
    let token = bench.variable(token);
    format!("POST {path} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n")
}

#[test]
fn a_chunked_body_is_bounded_too() {
    let gateway = gateway();
    let mut setting = Setting::default();
    setting.gateway["limits"]["request_size"] = json!("1KiB");
    let bench = Bench::ready(&gateway, setting);
    let head = head(&bench, "OPENAI_API_KEY", "/v1/chat/completions", 0)
        .replace("Content-Length: 0", "Transfer-Encoding: chunked");
    let chunk = format!("200\r\n{}\r\n", " ".repeat(512));
    let answer = bench.raw(format!("{head}{}", chunk.repeat(3)).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let inside = format!("{head}{chunk}2\r\n{{}}\r\n0\r\n\r\n");
    assert!(bench.raw(inside.as_bytes()).starts_with("HTTP/1.1 403 "), "a body without a model");
}

#[test]
fn a_token_opens_its_own_trial_and_gateway_only() {
    let gateway = gateway();
    let (mine, other) = (Bench::ready(&gateway, Setting::default()), Bench::admit(&gateway, Setting::default()));
    let good = mine.variable("OPENAI_API_KEY").to_owned();
    let changed = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    let table = [
        (format!("Authorization: Bearer {good}"), "/v1/models", 500),
        (format!("Authorization: Bearer {good}"), "/operations/put", 403),
        (format!("Authorization: Bearer {}", mine.variable("CRASHLAB_TOKEN")), "/v1/models", 404),
        ("X: none".to_owned(), "/v1/models", 401),
        (format!("Authorization: Bearer {changed}"), "/v1/models", 401),
        (format!("Authorization: {good}"), "/v1/models", 401),
        (format!("x-api-key: {good}"), "/v1/models", 401),
        // Its relay has not shown itself yet.
        (format!("Authorization: Bearer {}", other.variable("OPENAI_API_KEY")), "/v1/models", 401),
        (format!("Authorization: Bearer {SECRET}"), "/v1/models", 401),
    ];
    for (line, path, status) in table {
        let answer = mine.raw(format!("GET {path} HTTP/1.1\r\nHost: g\r\n{line}\r\n\r\n").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {path}: {answer}");
    }
}

#[test]
fn a_request_without_a_token_is_refused_in_the_form_of_what_it_was_meant_for_and_kept() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    let bare = |line: &str| status_and_body(&bench.raw(format!("{line} HTTP/1.1\r\nHost: g\r\n\r\n").as_bytes()));
    let (status, body) = bare("POST /v1/chat/completions");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["error"]["code"]), (401, &json!("crashlab_unauthorized")));
    assert!(body["error"]["type"].is_string(), "OpenAI's form: {body}");
    let (status, body) = bare("POST /operations/put");
    assert!(status == 401 && !body.contains("\"type\""), "{body}");
    let lines = bench.calls.lines();
    assert_eq!((lines.len(), &lines[0]["refusal"]["limit"], &lines[0]["end"]), (1, &json!("token"), &json!("refused")));
    assert_eq!(bench.revoke().totals.refused, 1);
}

#[test]
fn a_token_that_leaks_into_another_trial_opens_nothing_there() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let request = head(&bench, "CRASHLAB_TOKEN", "/operations/put", 2) + "{}";
    let elsewhere =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&elsewhere, &SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
    rustix::net::connect(&elsewhere, &bench.address).unwrap();
    let mut stream = TcpStream::from(elsewhere);
    stream.write_all(request.as_bytes()).unwrap();
    assert!(read_to_end(stream).starts_with("HTTP/1.1 401 "));
    assert!(bench.raw(request.as_bytes()).starts_with("HTTP/1.1 200 "));
    assert_eq!(bench.heard(), ["put"]);
}

#[test]
fn a_nonce_opens_the_way_for_the_address_that_shows_it_first() {
    let gateway = gateway();
    let bench = Bench::admit(&gateway, Setting::default());
    assert!(!bench.admission.as_ref().unwrap().wait_ready(Duration::ZERO));
    let wrong = "GET /.crashlab/ready HTTP/1.1\r\nHost: g\r\nx-crashlab-nonce: 00\r\n\r\n";
    assert!(bench.raw(wrong.as_bytes()).starts_with("HTTP/1.1 401 "));
    assert_eq!(bench.operate("put", "{}").0, 401);
    bench.show();
    assert_eq!(bench.operate("put", "{}").0, 200);
}

#[test]
fn a_revoked_token_opens_nothing_and_its_connections_end() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    let request = head(&bench, "CRASHLAB_TOKEN", "/operations/put", 2);
    let mut waiting = bench.connect();
    waiting.write_all(request.as_bytes()).unwrap();
    let silent = bench.connect();
    // An answer means that everything before it was taken up.
    assert_eq!(bench.operate("put", "{}").0, 200);
    bench.revoke();
    assert_eq!(read_to_end(silent), "");
    assert!(!read_to_end(waiting).contains("HTTP/1.1 200"));
    assert!(bench.raw(format!("{request}{{}}").as_bytes()).starts_with("HTTP/1.1 401 "));
    assert_eq!(bench.heard(), ["put"]);
}

#[test]
fn one_peer_holds_a_bounded_number_of_connections() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    let held: Vec<TcpStream> = (0..300).map(|_| bench.connect()).collect();
    let mut refused = bench.connect();
    let _ = refused.write_all((head(&bench, "CRASHLAB_TOKEN", "/operations/put", 2) + "{}").as_bytes());
    assert_eq!((read_to_end(refused), bench.heard().len()), (String::new(), 0));
    bench.revoke();
    for stream in held {
        assert_eq!(read_to_end(stream), "");
    }
}

#[test]
fn only_containers_of_the_relay_network_may_speak() {
    let rule = PeerRule::Subnet { network: [10, 9, 8, 0].into(), prefix: 24, host: [10, 9, 8, 1].into() };
    let table = [
        ("10.9.8.2", true),
        ("10.9.8.254", true),
        ("10.9.8.1", false),
        ("10.9.9.2", false),
        ("127.0.0.1", false),
        ("::1", false),
        ("192.168.1.7", false),
    ];
    for (peer, admitted) in table {
        assert_eq!(rule.admits(peer.parse().unwrap()), admitted, "{peer}");
    }
    assert!(PeerRule::Loopback.admits("127.0.0.1".parse().unwrap()));
    assert!(!PeerRule::Loopback.admits("10.9.8.2".parse().unwrap()));
}

#[test]
fn an_answer_that_comes_before_the_body_is_not_lost_by_what_follows() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let mut stream = bench.connect();
    stream.write_all(b"POST /operations/get HTTP/1.1\r\nHost: g\r\nContent-Length: 4000000\r\n\r\n").unwrap();
    // Closing over unread bytes would reset the connection.
    stream.write_all(&vec![b' '; 4_000_000]).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
}

#[test]
fn a_target_that_waits_to_be_asked_for_its_body_is_asked() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let mut stream = bench.connect();
    let request = head(&bench, "CRASHLAB_TOKEN", "/operations/put", 2);
    stream.write_all(request.replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n").as_bytes()).unwrap();
    let mut asked = [0; 25];
    stream.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"{}").unwrap();
    assert!(read_answer(&stream).starts_with("HTTP/1.1 200 "));
}

#[test]
fn large_bodies_are_read_one_at_a_time_and_no_small_one_waits_for_them() {
    let (done, turns) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        in_turn(1 << 20, || {
            for (size, name) in [(1 << 20, "large"), (1 << 10, "small")] {
                let done = done.clone();
                scope.spawn(move || in_turn(size, || done.send(name)));
            }
            assert_eq!(turns.recv().unwrap(), "small");
            assert!(turns.recv_timeout(Duration::from_millis(50)).is_err(), "its turn had not come");
        });
        assert_eq!(turns.recv().unwrap(), "large");
    });
}
