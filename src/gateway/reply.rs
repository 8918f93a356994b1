//! The answer to the target, written piece by piece: each piece leaves at once, and a body that did not come to its end
//! is left without one, so that a client can tell. Owns what the answer says of the connection's further life; knows no
//! provider and no policy.
//!
//! Invariant: a connection goes on only after an answer that came to its end and did not say `connection: close`.

use crate::relay::framing::HEAD_BYTES;
use std::io::{self, Write};

/// A connection that an answer goes to.
pub trait Connection: Write + Send {
    /// From now on its end is a reset, and not an orderly close.
    fn reset(&self);
}

/// Writes one HTTP/1.1 answer.
pub struct Reply {
    wire: Box<dyn Connection>,
    body: Body,
    buffer: Vec<u8>,
    sent: u64,
    /// The connection may serve another request after this answer.
    is_kept: bool,
    /// What is written waits for what follows it.
    is_held: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    /// No head was sent yet.
    Unsent,
    /// So many bytes are owed.
    Length(u64),
    Chunked,
    /// Nothing more may be sent.
    Over,
}

impl Reply {
    /// On this connection.
    pub fn new(wire: impl Connection + 'static) -> Self {
        let wire = Box::new(wire);
        Self { wire, body: Body::Unsent, buffer: Vec::new(), sent: 0, is_kept: false, is_held: false }
    }

    /// The request was read whole, and its connection may serve another one after this answer.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Whether the answer came to its end, and the connection goes on.
    pub fn is_kept(&self) -> bool {
        self.is_kept && self.body == Body::Over
    }

    /// What comes next waits for what follows it, so that they leave in one packet. Only for what follows at once, or is no
    /// use without it.
    pub fn hold(&mut self) {
        self.is_held = true;
    }

    /// What comes next leaves at once, and takes along what waits.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Whether the head has been sent: nothing but pieces can follow.
    pub fn is_started(&self) -> bool {
        self.body != Body::Unsent
    }

    /// Bytes of the body so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends the head. With a length the body must be exactly so long; without one it is chunked. Framing headers among
    /// `headers`, and what would break a line, are left out.
    ///
    /// # Errors
    /// The target hung up, or a head was sent before.
    pub fn head(&mut self, status: u16, headers: &[(String, String)], length: Option<u64>) -> io::Result<()> {
        if self.is_started() {
            return Err(io::Error::other("the head was sent before"));
        }
        // Readers disagree on whether a body, an empty one too, can follow these.
        self.is_kept &= !matches!(status, 204 | 205 | 304);
        write!(self.buffer, "HTTP/1.1 {status} {}\r\n", reason(status))?;
        for (name, value) in headers.iter().filter(|(name, value)| is_sendable(name, value)) {
            write!(self.buffer, "{name}: {value}\r\n")?;
        }
        self.body = match length {
            Some(length) => {
                write!(self.buffer, "content-length: {length}\r\n")?;
                Body::Length(length)
            }
            None => {
                self.buffer.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Body::Chunked
            }
        };
        // The relay follows no longer one to its end: a next request would wait behind it until the gateway gives up.
        self.is_kept &= self.buffer.len() + 2 <= HEAD_BYTES;
        let end: &[u8] = if self.is_kept { b"\r\n" } else { b"connection: close\r\n\r\n" };
        self.buffer.extend_from_slice(end);
        self.send()
    }

    /// Sends a piece of the body at once. An empty one sends nothing.
    ///
    /// # Errors
    /// The target hung up, or more came than the length that was announced.
    pub fn piece(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let length = bytes.len() as u64;
        match self.body {
            Body::Chunked => {
                write!(self.buffer, "{length:x}\r\n")?;
                self.buffer.extend_from_slice(bytes);
                self.buffer.extend_from_slice(b"\r\n");
            }
            Body::Length(owed) if length <= owed => {
                self.body = Body::Length(owed - length);
                self.buffer.extend_from_slice(bytes);
            }
            Body::Length(_) => return Err(io::Error::other("more than the announced length")),
            Body::Unsent | Body::Over => return Err(io::Error::other("no body is open")),
        }
        self.send()?;
        self.sent += length;
        Ok(())
    }

    /// Ends the body cleanly.
    ///
    /// # Errors
    /// The target hung up, or less came than the length that was announced.
    pub fn end(&mut self) -> io::Result<()> {
        self.is_held = false;
        let ended = match std::mem::replace(&mut self.body, Body::Over) {
            Body::Chunked => {
                self.buffer.extend_from_slice(b"0\r\n\r\n");
                self.send()
            }
            Body::Length(0) => self.send(),
            Body::Over => Ok(()),
            Body::Length(_) => Err(io::Error::other("less than the announced length")),
            Body::Unsent => Err(io::Error::other("no head was sent")),
        };
        self.is_kept &= ended.is_ok();
        ended
    }

    /// Leaves the body without its end: the target's read fails.
    pub fn cut(&mut self) {
        self.is_held = false;
        // What waited for more was meant for the target all the same.
        let _ = self.send();
        (self.body, self.is_kept) = (Body::Over, false);
    }

    /// Sends nothing more, and resets the connection.
    pub fn reset(&mut self) {
        (self.body, self.is_kept) = (Body::Over, false);
        self.wire.reset();
    }

    /// Sends a whole JSON answer.
    ///
    /// # Errors
    /// The target hung up, or a head was sent before.
    pub fn json(&mut self, status: u16, body: &serde_json::Value) -> io::Result<()> {
        let bytes = serde_json::to_vec(body)?;
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        self.hold();
        self.head(status, &[kind], Some(bytes.len() as u64))?;
        self.piece(&bytes)?;
        self.end()
    }

    fn send(&mut self) -> io::Result<()> {
        if self.is_held || self.buffer.is_empty() {
            return Ok(());
        }
        let sent = self.wire.write_all(&self.buffer).and_then(|()| self.wire.flush());
        self.buffer.clear();
        self.is_kept &= sent.is_ok();
        sent
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("body", &self.body).field("sent", &self.sent).finish_non_exhaustive()
    }
}

fn is_sendable(name: &str, value: &str) -> bool {
    let framing = ["content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "trailer"];
    let token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !name.is_empty()
        && name.bytes().all(token)
        && !framing.iter().any(|framing| name.eq_ignore_ascii_case(framing))
        && value.bytes().all(|byte| byte == b'\t' || (0x20..0x7f).contains(&byte))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Status",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Wire(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Connection for Wire {
        fn reset(&self) {}
    }

    impl Wire {
        fn writes(&self) -> Vec<String> {
            self.0.lock().unwrap().iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
        }
    }

    #[test]
    fn each_piece_leaves_in_a_write_of_its_own() {
        let wire = Wire::default();
        let mut reply = Reply::new(wire.clone());
        reply.head(200, &[("content-type".into(), "text/event-stream".into())], None).unwrap();
        reply.piece(b"data: 1\n\n").unwrap();
        reply.piece(b"").unwrap();
        reply.piece(b"data: 2\n\n").unwrap();
        reply.end().unwrap();
        let writes = wire.writes();
        assert!(writes[0].ends_with("transfer-encoding: chunked\r\nconnection: close\r\n\r\n"), "{writes:?}");
        assert_eq!(writes[1..], ["9\r\ndata: 1\n\n\r\n", "9\r\ndata: 2\n\n\r\n", "0\r\n\r\n"]);
        assert_eq!(reply.sent(), 18);
    }

    #[test]
    fn a_body_that_is_cut_has_no_end() {
        let wire = Wire::default();
        let mut reply = Reply::new(wire.clone());
        reply.head(200, &[], None).unwrap();
        reply.piece(b"half").unwrap();
        reply.cut();
        reply.end().unwrap();
        assert_eq!(wire.writes().last().unwrap(), "4\r\nhalf\r\n");
        assert!(reply.piece(b"more").is_err());
    }

    #[test]
    fn an_announced_length_is_kept_to_the_byte() {
        let mut reply = Reply::new(Wire::default());
        reply.head(200, &[], Some(4)).unwrap();
        assert!(reply.piece(b"12345").is_err());
        reply.piece(b"123").unwrap();
        assert!(reply.end().is_err(), "one byte is owed");
    }

    #[test]
    fn nothing_follows_an_answer_whose_head_is_too_long_for_the_relay() {
        let bare = "HTTP/1.1 200 OK\r\na: \r\ncontent-length: 0\r\n\r\n".len();
        for (length, is_kept) in [(HEAD_BYTES - bare, true), (HEAD_BYTES - bare + 1, false)] {
            let wire = Wire::default();
            let mut reply = Reply::new(wire.clone());
            reply.keep();
            reply.head(200, &[("a".into(), "x".repeat(length))], Some(0)).unwrap();
            reply.end().unwrap();
            assert_eq!(reply.is_kept(), is_kept, "{length}");
            assert_eq!(!wire.writes()[0].ends_with("\r\nconnection: close\r\n\r\n"), is_kept, "{length}");
        }
    }

    #[test]
    fn no_header_breaks_the_framing() {
        let wire = Wire::default();
        let headers = [("a", "1\r\nb: 2"), ("Content-Length", "9"), ("x y", "1"), ("retry-after", "3")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Reply::new(wire.clone()).head(429, &headers, Some(0)).unwrap();
        let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert_eq!(wire.writes(), [head]);
    }
}
