//! How an HTTP/1.1 request is framed, read strictly: one reading is possible, or the request is refused. Shared by the
//! relay (a program of its own, without crates) and the guard on the host, so it uses the standard library only.
//!
//! Invariant: memory is bounded by the buffer, whatever length a peer declares, and bytes that came along behind a request
//! are told apart (`buffered`), so that nobody reads them as a second one.

use std::fmt;
use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The most bytes of a request's head.
pub const HEAD_BYTES: usize = 16 << 10;
/// The most header lines.
pub const HEADER_LINES: usize = 100;

/// For how many seconds the relay keeps a connection for its next request.
pub const KEPT_SECONDS: u64 = 60;

/// A request's head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Upper case letters.
    pub method: String,
    /// As received: visible ASCII.
    pub target: String,
    /// In order; names as received, values without white space around them, printable ASCII.
    pub headers: Vec<(String, String)>,
    /// How the body is framed.
    pub body: Body,
}

/// How a body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// In chunks, without extensions and trailers.
    Chunked,
}

/// Why a request was not read.
#[derive(Debug)]
pub enum Fault {
    /// The peer closed before its first byte.
    Closed,
    /// The peer closed in the middle.
    Cut,
    /// Too slow.
    TimedOut,
    /// Not exactly what the standard says, or more than the bounds allow.
    Malformed(&'static str),
    /// The connection failed.
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Closed => f.write_str("closed without a request"),
            Fault::Cut => f.write_str("closed in the middle of a request"),
            Fault::TimedOut => f.write_str("too slow"),
            Fault::Malformed(why) => f.write_str(why),
            Fault::Io(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Fault::TimedOut,
            _ => Fault::Io(error),
        }
    }
}

impl Head {
    /// The first value of a header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Whether the connection may serve another request after this one: any other word than `keep-alive` ends it.
    pub fn is_kept(&self) -> bool {
        let lines = self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("connection"));
        let mut words = lines.flat_map(|(_, value)| value.split(',')).map(|word| word.trim_matches([' ', '\t']));
        // The answer to a HEAD has no body whatever its head says, and after a CONNECT another protocol is spoken.
        words.all(|word| word.eq_ignore_ascii_case("keep-alive")) && !matches!(self.method.as_str(), "HEAD" | "CONNECT")
    }

    /// The head written again, in the one way that it was read; the connection is kept after it, or asked to end.
    pub fn write(&self, is_kept: bool) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in self.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("connection")) {
            out.push_str(name);
            out.push_str(": ");
            out.push_str(value);
            out.push_str("\r\n");
        }
        out.push_str(if is_kept { "\r\n" } else { "connection: close\r\n\r\n" });
        out.into_bytes()
    }
}

/// Reads a connection with two time limits: for one read, and for all of them together.
#[derive(Debug)]
pub struct Timed<'a> {
    /// The connection.
    pub stream: &'a TcpStream,
    /// Of one read.
    pub idle: Duration,
    /// Of all reads.
    pub deadline: Instant,
}

impl Timed<'_> {
    /// From now on this time for all reads together.
    pub fn within(&mut self, time: Duration) {
        (self.idle, self.deadline) = (time, Instant::now() + time);
    }

    /// What has come, without taking it; waits as a read does.
    ///
    /// # Errors
    /// As a read's.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.peek(buffer)
    }

    fn limit(&self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left.min(self.idle)))
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

/// A connection from which requests are read, one after the other.
#[derive(Debug)]
pub struct Incoming<R> {
    source: R,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

impl<R: Read> Incoming<R> {
    /// With a buffer that holds the largest head.
    pub fn new(source: R) -> Self {
        Self { source, buffer: vec![0; HEAD_BYTES], from: 0, to: 0 }
    }

    /// The source, to change its time limits.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// How many bytes have arrived beyond what was read.
    pub fn buffered(&self) -> usize {
        self.to - self.from
    }

    /// Waits for the first byte of a next request; false where the peer closed instead.
    ///
    /// # Errors
    /// A time limit, or a connection that failed.
    pub fn wait(&mut self) -> Result<bool, Fault> {
        Ok(self.buffered() > 0 || self.fill()?)
    }

    /// Reads the head of a request whose body, and that of the one before, was read to its end.
    ///
    /// # Errors
    /// Anything but one well-formed head within the bounds.
    pub fn head(&mut self) -> Result<Head, Fault> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let mut looked = 0;
        loop {
            let received = &self.buffer[..self.to];
            if let Some(at) = end_of_head(received, looked)? {
                let head = parse(&received[..at])?;
                self.from = at + 4;
                return Ok(head);
            }
            looked = self.to;
            if self.to == self.buffer.len() {
                return Err(Fault::Malformed("the head of the request is too large"));
            }
            if !self.fill()? {
                return Err(if self.to == 0 { Fault::Closed } else { Fault::Cut });
            }
        }
    }

    /// The body that follows the head.
    pub fn body(&mut self, framing: Body) -> BodyReader<'_, R> {
        let state = match framing {
            Body::None => State::Done,
            Body::Length(length) => State::Length(length),
            Body::Chunked => State::Size,
        };
        BodyReader { incoming: self, state }
    }

    /// Reads once into the buffer; false at the end of the connection.
    fn fill(&mut self) -> Result<bool, Fault> {
        if self.from > 0 && self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        if self.to == self.buffer.len() {
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        loop {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(count) => {
                    self.to += count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Makes sure that something is in the buffer.
    fn need(&mut self) -> Result<(), Fault> {
        if self.from == self.to && !self.fill()? {
            return Err(Fault::Cut);
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        self.need()?;
        self.from += 1;
        Ok(self.buffer[self.from - 1])
    }

    fn line_end(&mut self) -> Result<(), Fault> {
        if self.byte()? == b'\r' && self.byte()? == b'\n' {
            return Ok(());
        }
        Err(Fault::Malformed("a chunk does not end where it should"))
    }

    /// A chunk's size line: one to eight hexadecimal digits and nothing else.
    fn chunk_size(&mut self) -> Result<u64, Fault> {
        let mut size = 0_u64;
        for digits in 0_usize.. {
            let byte = self.byte()?;
            match char::from(byte).to_digit(16) {
                Some(digit) if digits < 8 => size = size * 16 + u64::from(digit),
                None if byte == b'\r' && digits > 0 => break,
                _ => return Err(Fault::Malformed("a chunk's size is malformed")),
            }
        }
        match self.byte()? {
            b'\n' => Ok(size),
            _ => Err(Fault::Malformed("a chunk's size is malformed")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Length(u64),
    /// A chunk's size line comes next.
    Size,
    /// So much of a chunk is left; at 0 its line end comes next.
    Data(u64),
    Done,
}

/// A body as it arrives, without its framing.
#[derive(Debug)]
pub struct BodyReader<'a, R> {
    incoming: &'a mut Incoming<R>,
    state: State,
}

impl<R: Read> BodyReader<'_, R> {
    /// The next bytes as soon as there are any; none at the declared end.
    ///
    /// # Errors
    /// The end of the connection before the declared end, malformed chunks, a time limit.
    pub fn piece(&mut self) -> Result<Option<&[u8]>, Fault> {
        let left = loop {
            self.state = match self.state {
                State::Done | State::Length(0) => return Ok(None),
                State::Length(left) | State::Data(left @ 1..) => break left,
                State::Data(0) => {
                    self.incoming.line_end()?;
                    State::Size
                }
                State::Size => match self.incoming.chunk_size()? {
                    0 => {
                        // An empty line must follow: trailers could say another thing than the head.
                        self.incoming.line_end()?;
                        State::Done
                    }
                    size => State::Data(size),
                },
            };
        };
        self.incoming.need()?;
        let count = self.incoming.buffered().min(usize::try_from(left).unwrap_or(usize::MAX));
        let start = self.incoming.from;
        self.incoming.from += count;
        let left = left - count as u64;
        self.state = if matches!(self.state, State::Data(_)) { State::Data(left) } else { State::Length(left) };
        Ok(Some(&self.incoming.buffer[start..start + count]))
    }
}

/// Reads the lines of a head, without its last empty one.
fn parse(bytes: &[u8]) -> Result<Head, Fault> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
    let text = text.ok_or(Fault::Malformed("the head of the request is not ASCII"))?;
    let mut lines = text.split("\r\n");
    let (method, target) = request_line(lines.next().unwrap_or_default())?;
    let mut headers = Vec::new();
    let mut counted = 0;
    for line in lines {
        let header = header(line)?;
        // Writing the head again takes these out and adds one: a head at the limit has to be at the limit behind the relay.
        counted += usize::from(!header.0.eq_ignore_ascii_case("connection"));
        if counted > HEADER_LINES {
            return Err(Fault::Malformed("too many header lines"));
        }
        headers.push(header);
    }
    let body = framing(&headers)?;
    Ok(Head { method, target, headers, body })
}

fn request_line(line: &str) -> Result<(String, String), Fault> {
    let malformed = Fault::Malformed("the request line is malformed");
    let mut parts = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(malformed);
    };
    let is_method = (1..=16).contains(&method.len()) && method.bytes().all(|byte| byte.is_ascii_uppercase());
    let is_target = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_method || !is_target {
        return Err(malformed);
    }
    match version {
        "HTTP/1.1" => Ok((method.to_owned(), target.to_owned())),
        _ => Err(Fault::Malformed("only HTTP/1.1 is spoken here")),
    }
}

fn header(line: &str) -> Result<(String, String), Fault> {
    // A line that begins with white space continues the one before it in some readers: it has no name here.
    let (name, value) = line.split_once(':').ok_or(Fault::Malformed("a header line is malformed"))?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(Fault::Malformed("a header's name is malformed"));
    }
    let value = value.trim_matches([' ', '\t']);
    if !value.bytes().all(|byte| byte == b'\t' || byte == b' ' || byte.is_ascii_graphic()) {
        return Err(Fault::Malformed("a header's value has a control character"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// One way to frame a body, or none: two lengths, a length beside a coding, and other codings are refused.
fn framing(headers: &[(String, String)]) -> Result<Body, Fault> {
    let all = |name: &str| {
        let name = name.to_owned();
        let fits = move |pair: &&(String, String)| pair.0.eq_ignore_ascii_case(&name);
        headers.iter().filter(fits).map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    if all("host").len() != 1 {
        return Err(Fault::Malformed("exactly one Host header is needed"));
    }
    match (all("content-length").as_slice(), all("transfer-encoding").as_slice()) {
        ([], []) => Ok(Body::None),
        ([length], []) => content_length(length),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Body::Chunked),
        ([], _) => Err(Fault::Malformed("the only transfer encoding is chunked, once")),
        (_, []) => Err(Fault::Malformed("more than one Content-Length")),
        _ => Err(Fault::Malformed("a Content-Length beside a Transfer-Encoding")),
    }
}

fn content_length(text: &str) -> Result<Body, Fault> {
    let is_number = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u64>() {
        Ok(0) if is_number => Ok(Body::None),
        Ok(length) if is_number => Ok(Body::Length(length)),
        _ => Err(Fault::Malformed("the Content-Length is malformed")),
    }
}

/// Where the empty line is that ends the head, among the bytes from `looked` on; a line end of any other kind is refused.
fn end_of_head(bytes: &[u8], looked: usize) -> Result<Option<usize>, Fault> {
    for at in looked..bytes.len() {
        if bytes[at] != b'\n' {
            continue;
        }
        if at == 0 || bytes[at - 1] != b'\r' {
            return Err(Fault::Malformed("a line of the head does not end in CR LF"));
        }
        if at >= 3 && &bytes[at - 3..at] == b"\r\n\r" {
            return Ok(Some(at - 3));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hands out the bytes in pieces of a given size.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(bytes: &[u8], piece: usize) -> Result<(Head, Vec<u8>), Fault> {
        let mut incoming = Incoming::new(Drip(bytes, piece));
        let head = incoming.head()?;
        let mut body = Vec::new();
        let mut reader = incoming.body(head.body);
        while let Some(bytes) = reader.piece()? {
            body.extend_from_slice(bytes);
        }
        Ok((head, body))
    }

    #[test]
    fn a_request_is_read_the_same_however_it_is_cut() {
        let table: [(&str, Body, &str); 5] = [
            ("GET / HTTP/1.1\r\nHost: g\r\n\r\nGET /b", Body::None, ""),
            ("POST /a?b=c HTTP/1.1\r\nhost: g\r\nContent-Length: 5\r\n\r\nhello GET", Body::Length(5), "hello"),
            ("POST / HTTP/1.1\r\nHost:g\r\ncontent-length: \t0 \r\n\r\n", Body::None, ""),
            ("POST / HTTP/1.1\r\nHost: g\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\nGET", Body::Chunked, ""),
            (
                "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n00F\r\n0123456789abcde\r\n0\r\n\r\n",
                Body::Chunked,
                "abc0123456789abcde",
            ),
        ];
        for (text, framing, body) in table {
            for piece in [1, 2, 3, 7, 1000] {
                let (head, read) = read(text.as_bytes(), piece).unwrap_or_else(|fault| panic!("{text:?}: {fault}"));
                assert_eq!((head.body, std::str::from_utf8(&read).unwrap()), (framing, body), "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn a_body_longer_than_the_buffer_passes_through_it() {
        let long = "x".repeat(3 * HEAD_BYTES + 5);
        let sized = format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {}\r\n\r\n{long}", long.len());
        let chunk = format!("{:x}\r\n{long}\r\n", long.len());
        let chunked =
            format!("POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n");
        assert_eq!(read(sized.as_bytes(), 5000).unwrap().1.len(), long.len());
        assert_eq!(read(chunked.as_bytes(), 5000).unwrap().1.len(), 2 * long.len());
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let lines = [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 5",
            "Content-Length: 5, 5",
            "Content-Length: +5",
            "Content-Length: 0x5",
            "Content-Length: ",
            "Content-Length: 99999999999999999999",
            "Content-Length : 5",
            " Content-Length: 5",
            "X: 1\r\n Transfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: \u{b}chunked",
            "X: a\nTransfer-Encoding: chunked",
            "X: a\rTransfer-Encoding: chunked",
            "X: a\0b",
            "X",
            ": a",
            "Host: other",
            "X: \u{e9}",
        ];
        for line in lines {
            let text = format!("POST / HTTP/1.1\r\nHost: g\r\n{line}\r\n\r\n0\r\n\r\n");
            assert!(matches!(read(text.as_bytes(), 1000), Err(Fault::Malformed(_))), "{line:?}");
        }
        let requests = [
            "GET / HTTP/1.0\r\nHost: g\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET  / HTTP/1.1\r\nHost: g\r\n\r\n",
            "get / HTTP/1.1\r\nHost: g\r\n\r\n",
            "GET /\t HTTP/1.1\r\nHost: g\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: g\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: g\r\n\r\n",
            "GET / HTTP/1.1\nHost: g\n\n",
            "GET /\r\nHost: g\r\n\r\n",
            "\u{16}\u{3}\u{1}\u{2}\n",
        ];
        for request in requests {
            assert!(matches!(read(request.as_bytes(), 1000), Err(Fault::Malformed(_))), "{request:?}");
        }
        for chunks in [
            "5;a=b\r\nhello\r\n0\r\n\r\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "0\r\nX: 1\r\n\r\n",
            "\r\n",
            "5\nhello",
            "000000005\r\n",
            "-1\r\n",
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
            assert!(matches!(read(text.as_bytes(), 1000), Err(Fault::Malformed(_))), "{chunks:?}");
        }
    }

    #[test]
    fn a_head_is_bounded_and_a_body_must_come_whole() {
        let endless = "GET / HTTP/1.1\r\nHost: g\r\nX: ".to_owned() + &"a".repeat(HEAD_BYTES);
        assert!(matches!(read(endless.as_bytes(), 1000), Err(Fault::Malformed(_))));
        let many = "GET / HTTP/1.1\r\nHost: g\r\n".to_owned() + &"a:b\r\n".repeat(HEADER_LINES) + "\r\n";
        assert!(matches!(read(many.as_bytes(), 1000), Err(Fault::Malformed(_))));
        let most = "GET / HTTP/1.1\r\nHost: g\r\n".to_owned() + &"a:b\r\n".repeat(HEADER_LINES - 1) + "\r\n";
        let head = read(most.as_bytes(), 1000).unwrap().0;
        assert!(read(&head.write(false), 1000).is_ok(), "what is passed on has to be passed again");
        for text in ["POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 35184372088832\r\n\r\nx", "GET / HT"] {
            assert!(matches!(read(text.as_bytes(), 1000), Err(Fault::Cut)), "{text:?}");
        }
        assert!(matches!(read(b"", 1), Err(Fault::Closed)));
    }

    #[test]
    fn a_head_is_written_as_it_was_read() {
        let text = "POST /a?b HTTP/1.1\r\nHost: g\r\nConnection: keep-alive\r\nX-A:  b c\r\nContent-Length: 1\r\n\r\nz";
        let written = String::from_utf8(read(text.as_bytes(), 9).unwrap().0.write(false)).unwrap();
        assert_eq!(
            written,
            "POST /a?b HTTP/1.1\r\nHost: g\r\nX-A: b c\r\nContent-Length: 1\r\nconnection: close\r\n\r\n"
        );
        let written = String::from_utf8(read(text.as_bytes(), 9).unwrap().0.write(true)).unwrap();
        assert_eq!(written, "POST /a?b HTTP/1.1\r\nHost: g\r\nX-A: b c\r\nContent-Length: 1\r\n\r\n");
    }

    #[test]
    fn a_connection_is_kept_unless_the_peer_says_another_word() {
        let table = [
            ("POST", "", true),
            ("GET", "Connection: keep-alive\r\n", true),
            ("POST", "connection: Keep-Alive\r\nConnection:keep-alive , KEEP-ALIVE\r\n", true),
            ("POST", "Connection: close\r\n", false),
            ("POST", "Connection: keep-alive\r\nConnection: Close\r\n", false),
            ("POST", "Connection: keep-alive, close\r\n", false),
            ("POST", "Connection: Upgrade\r\nUpgrade: h2c\r\n", false),
            ("POST", "Connection:\r\n", false),
            ("HEAD", "", false),
            ("CONNECT", "", false),
        ];
        for (method, lines, is_kept) in table {
            let text = format!("{method} / HTTP/1.1\r\nHost: g\r\n{lines}\r\n");
            assert_eq!(read(text.as_bytes(), 1000).unwrap().0.is_kept(), is_kept, "{method} {lines:?}");
        }
    }

    #[test]
    fn requests_of_one_connection_are_read_one_after_the_other() {
        let one = "POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let two = "POST /two HTTP/1.1\r\nHost: g\r\nContent-Length: 20000\r\n\r\n".to_owned() + &"x".repeat(20_000);
        let text = format!("{one}{two}GET /three HTTP/1.1\r\nHost: g\r\n\r\n");
        for piece in [1, 5, 1000, HEAD_BYTES] {
            let mut incoming = Incoming::new(Drip(text.as_bytes(), piece));
            for (target, length) in [("/", 3), ("/two", 20_000), ("/three", 0)] {
                assert!(incoming.wait().unwrap());
                let head = incoming.head().unwrap();
                let (mut body, mut read) = (incoming.body(head.body), 0);
                while let Some(bytes) = body.piece().unwrap() {
                    read += bytes.len();
                }
                assert_eq!((head.target.as_str(), read), (target, length), "by {piece}");
            }
            assert!(!incoming.wait().unwrap());
        }
    }
}
