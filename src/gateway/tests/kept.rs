//! Connections that serve more than one request, and everything that ends one.

use super::*;

/// A call of `put`, with these header lines beside the usual ones.
fn put(bench: &Bench, lines: &str) -> String {
    let token = bench.variable("CRASHLAB_TOKEN");
    format!(
        "POST /operations/put HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n{lines}Content-Length: 2\r\n\r\n{{}}"
    )
}

fn chat(bench: &Bench, model: &str) -> String {
    let (token, body) = (bench.variable("OPENAI_API_KEY"), json!({"model": model, "messages": []}).to_string());
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A connection that has served one call, and is open.
fn kept(bench: &Bench) -> TcpStream {
    let mut stream = bench.connect();
    stream.write_all(put(bench, "").as_bytes()).unwrap();
    let answer = read_answer(&stream);
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("connection"), "{answer}");
    stream
}

#[test]
fn a_connection_serves_one_request_after_the_other_until_one_asks_for_its_end() {
    let gateway = gateway();
    let reply = json!({"body": {"id": "1", "model": "gpt-5", "choices": []}}).to_string();
    let bench = Bench::ready(&gateway, Setting { script: format!("{reply}\n{reply}"), ..Setting::default() });
    let mut stream = kept(&bench);
    let table = [
        (put(&bench, "Connection: keep-alive\r\n"), 200),
        (chat(&bench, "gpt-5"), 200),
        // Refused, but read whole.
        (chat(&bench, "other"), 403),
        (chat(&bench, "gpt-5"), 200),
        (
            put(&bench, "Transfer-Encoding: chunked\r\n")
                .replace("Content-Length: 2\r\n\r\n{}", "\r\n2\r\n{}\r\n0\r\n\r\n"),
            200,
        ),
    ];
    for (request, status) in table {
        stream.write_all(request.as_bytes()).unwrap();
        let answer = read_answer(&stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")) && !answer.contains("connection"), "{answer}");
    }
    stream.write_all(put(&bench, "Connection: close\r\n").as_bytes()).unwrap();
    let answer = read_to_end(stream);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_eq!(bench.heard(), ["put"; 4]);
}

#[test]
fn nothing_is_read_behind_a_request_that_was_refused_or_has_no_clear_end() {
    let gateway = gateway();
    let bench = Bench::ready(&gateway, Setting::default());
    let good = put(&bench, "");
    let unread = |line: &str, token: &str| {
        let body = put(&bench, "").replace("POST /operations/put", line);
        body.replace(bench.variable("CRASHLAB_TOKEN"), token)
    };
    let token = bench.variable("CRASHLAB_TOKEN");
    let table = [
        (good.clone(), 200, "a second one that came along"),
        (good.replace("{}", "{}\r\n"), 200, "a line end too many"),
        (put(&bench, "Connection: Upgrade\r\n"), 200, "another protocol"),
        (put(&bench, "Content-Length: 2\r\n"), 400, "two lengths"),
        (put(&bench, "Transfer-Encoding: chunked\r\n"), 400, "a length beside a coding"),
        (put(&bench, "X: a\r\n b: c\r\n"), 400, "a folded line"),
        (good.replace("HTTP/1.1", "HTTP/1.0"), 400, "an old version"),
        (good.replace("Content-Length: 2\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n2;a\r\n"), 400, "a chunk"),
        (good.replace("Content-Length: 2", "Content-Length: 2000000"), 413, "a body that is too large"),
        (unread("POST /operations/put", "other"), 401, "a foreign token"),
        (unread("POST /other", token), 404, "another path"),
        (unread("HEAD /operations/put", token), 404, "a method whose answer has no body"),
        (unread("POST /v1/chat", bench.variable("OPENAI_API_KEY")), 403, "an undeclared path"),
    ];
    for (request, status, what) in table {
        let heard = bench.heard().len();
        let mut stream = kept(&bench);
        stream.write_all(format!("{request}{good}").as_bytes()).unwrap();
        let answer = read_to_end(stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{what}: {answer}");
        assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{what}: {answer}");
        assert_eq!(bench.heard().len(), heard + 1 + usize::from(status == 200), "{what}");
    }
}

#[test]
fn an_answer_that_has_no_end_ends_its_connection() {
    let gateway = gateway();
    let body = json!({"body": {"id": "1", "model": "gpt-5", "choices": []}});
    for kind in [json!({"kind": "cut_stream"}), json!({"kind": "reset"})] {
        let mut fault = kind.clone();
        fault["on"] = json!("gateway:openai");
        let setting = Setting { script: body.to_string(), faults: json!([fault]), ..Setting::default() };
        let bench = Bench::ready(&gateway, setting);
        let mut stream = kept(&bench);
        stream.write_all(chat(&bench, "gpt-5").as_bytes()).unwrap();
        let answer = read_to_end(stream);
        assert!(!answer.ends_with("0\r\n\r\n"), "{kind}: {answer}");
        assert_eq!(answer.is_empty(), kind["kind"] == "reset", "{kind}: {answer}");
    }
}

#[test]
fn a_kept_connection_ends_with_its_trial() {
    let gateway = gateway();
    let mut bench = Bench::ready(&gateway, Setting::default());
    let (silent, mut speaking, mut waiting) = (kept(&bench), kept(&bench), kept(&bench));
    let (request, begun) = (put(&bench, ""), put(&bench, "").replace("{}", ""));
    waiting.write_all(begun.as_bytes()).unwrap();
    bench.revoke();
    assert_eq!(read_to_end(silent), "");
    let _ = speaking.write_all(request.as_bytes());
    let _ = waiting.write_all(b"{}");
    for stream in [speaking, waiting] {
        assert!(!read_to_end(stream).contains("HTTP/1.1 200"));
    }
    assert_eq!(bench.heard(), ["put"; 3]);
}

#[test]
fn a_token_is_looked_at_for_each_request_of_a_connection() {
    let gateway = gateway();
    let (mut one, other) = (Bench::ready(&gateway, Setting::default()), Bench::ready(&gateway, Setting::default()));
    // Both trials are behind one address here, so one connection can serve both.
    let mut stream = kept(&one);
    stream.write_all(put(&other, "").as_bytes()).unwrap();
    assert!(read_answer(&stream).starts_with("HTTP/1.1 200 "));
    let request = put(&one, "");
    one.revoke();
    // It is the other trial's by now.
    stream.write_all(put(&other, "").as_bytes()).unwrap();
    assert!(read_answer(&stream).starts_with("HTTP/1.1 200 "));
    stream.write_all(request.as_bytes()).unwrap();
    assert!(read_to_end(stream).starts_with("HTTP/1.1 401 "));
    assert_eq!((one.heard().len(), other.heard().len()), (1, 2));
}

#[test]
fn a_connection_that_waits_too_long_for_its_next_request_is_ended() {
    // Below what a head may take: nothing else ends it as soon.
    let gateway = gateway_with(Room { kept: Duration::from_millis(50), ..Room::whole() });
    let bench = Bench::ready(&gateway, Setting::default());
    assert_eq!(read_to_end(kept(&bench)), "");
}

#[test]
fn connections_that_wait_leave_half_of_the_room_to_those_that_have_a_request() {
    let gateway = gateway_with(Room { connections: 4, ..Room::whole() });
    let bench = Bench::ready(&gateway, Setting::default());
    let ask = |mut stream: TcpStream| {
        stream.write_all(put(&bench, "").as_bytes()).unwrap();
        let answer = read_to_end(stream);
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
    };
    let (one, two) = (kept(&bench), kept(&bench));
    for _ in 0..3 {
        ask(bench.connect());
    }
    // One that was kept gives way too. What is turned away says that the two before it were let in.
    let held = [bench.connect(), bench.connect()];
    assert_eq!(read_to_end(bench.connect()), "");
    ask(one);
    drop((two, held));
}

#[test]
fn nothing_follows_an_answer_that_may_have_a_body_or_not() {
    let gateway = gateway();
    let reply = |status: u16| json!({"status": status, "body": "x"}).to_string();
    for (status, is_kept) in [(200, true), (201, true), (404, true), (204, false), (205, false), (304, false)] {
        let setting = Setting { script: format!("{}\n{}", reply(status), reply(200)), ..Setting::default() };
        let bench = Bench::ready(&gateway, setting);
        let mut stream = kept(&bench);
        stream.write_all(chat(&bench, "gpt-5").as_bytes()).unwrap();
        let answer = read_answer(&stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert_eq!(!answer.contains("\r\nconnection: close\r\n"), is_kept, "{answer}");
        // A second one is not answered, whatever the reader of the first takes for its end.
        let _ = stream
            .write_all(chat(&bench, "gpt-5").replace("HTTP/1.1\r\n", "HTTP/1.1\r\nConnection: close\r\n").as_bytes());
        assert_eq!(read_to_end(stream).is_empty(), !is_kept, "{status}");
    }
}
