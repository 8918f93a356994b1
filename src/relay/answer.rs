//! Follows an answer of the gateway as its bytes pass to the target, and tells where it ends if the connection goes on after
//! it. Changes nothing of it: the gateway writes the answers, and what cannot be followed ends with the connection.

use super::framing::HEAD_BYTES;

/// An answer, as far as it has passed.
#[derive(Debug)]
pub struct Answer {
    state: State,
    /// The head, or a chunk's size line, as far as it has come.
    line: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    /// So many bytes of a body without chunks.
    Length(u64),
    Size,
    /// So many bytes of a chunk, its line end among them.
    Data(u64),
    /// The line that ends the chunks.
    Last,
    /// Whole, and the connection is kept.
    Over,
    /// It ends with the connection.
    ToTheEnd,
}

impl Answer {
    /// Of which nothing has come yet.
    pub fn new() -> Self {
        Self { state: State::Head, line: Vec::new() }
    }

    /// Whether it is whole, and the connection is kept after it.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Takes what has come.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while let Some(&first) = bytes.first() {
            let count = match self.state {
                State::ToTheEnd => return,
                // The gateway answers what it was asked, and nothing more.
                State::Over => return self.state = State::ToTheEnd,
                State::Length(left) => {
                    let count = fits(bytes, left);
                    self.state = length(left - count as u64);
                    count
                }
                State::Data(left) => {
                    let count = fits(bytes, left);
                    self.state = if left == count as u64 { State::Size } else { State::Data(left - count as u64) };
                    count
                }
                State::Head | State::Size | State::Last => {
                    self.line.push(first);
                    self.line_grown();
                    1
                }
            };
            bytes = &bytes[count..];
        }
    }

    fn line_grown(&mut self) {
        let line = self.line.as_slice();
        self.state = match self.state {
            State::Head if line.ends_with(b"\r\n\r\n") => after_head(line),
            State::Size if line.ends_with(b"\r\n") => after_size(line),
            State::Last if line == b"\r\n" => State::Over,
            State::Last if line.len() >= 2 => State::ToTheEnd,
            _ if line.len() >= HEAD_BYTES => State::ToTheEnd,
            _ => return,
        };
        self.line.clear();
    }
}

fn fits(bytes: &[u8], left: u64) -> usize {
    bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))
}

fn length(left: u64) -> State {
    if left == 0 { State::Over } else { State::Length(left) }
}

/// How the body is framed; the gateway writes names in lower case, each once.
fn after_head(head: &[u8]) -> State {
    let Ok(head) = std::str::from_utf8(head) else { return State::ToTheEnd };
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).unwrap_or_default();
    if status.starts_with("100 ") {
        return State::Head;
    }
    let mut framing = State::ToTheEnd;
    for line in lines {
        match line.split_once(": ") {
            Some(("connection", _)) => return State::ToTheEnd,
            Some(("content-length", text)) => framing = text.parse().map_or(State::ToTheEnd, length),
            Some(("transfer-encoding", "chunked")) => framing = State::Size,
            _ => {}
        }
    }
    framing
}

fn after_size(line: &[u8]) -> State {
    let size = std::str::from_utf8(line).ok().and_then(|text| u64::from_str_radix(text.trim_end(), 16).ok());
    match size {
        Some(0) => State::Last,
        Some(size) => size.checked_add(2).map_or(State::ToTheEnd, State::Data),
        None => State::ToTheEnd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_it_says_however_it_is_cut() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: a\r\n";
        let table = [
            (format!("{head}content-length: 3\r\n\r\nabc"), true),
            (format!("{head}content-length: 0\r\n\r\n"), true),
            (
                format!("{head}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1f\r\n{}\r\n0\r\n\r\n", "\n".repeat(31)),
                true,
            ),
            (format!("HTTP/1.1 100 Continue\r\n\r\n{head}content-length: 1\r\n\r\na"), true),
            (format!("{head}content-length: 3\r\nconnection: close\r\n\r\nabc"), false),
            (format!("{head}\r\nabc"), false),
            (format!("{head}content-length: x\r\n\r\nabc"), false),
            (format!("{head}transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n"), false),
            (format!("{head}transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n"), false),
            (format!("{head}x: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(HEAD_BYTES)), false),
        ];
        for (text, is_kept) in table {
            for piece in [1, 2, 7, text.len()] {
                let mut answer = Answer::new();
                let mut pieces = text.as_bytes().chunks(piece).peekable();
                while let Some(bytes) = pieces.next() {
                    answer.feed(bytes);
                    assert!(pieces.peek().is_none() || !answer.is_over(), "{text:?} by {piece}");
                }
                assert_eq!(answer.is_over(), is_kept, "{text:?} by {piece}");
                answer.feed(b"more");
                assert!(!answer.is_over(), "more than an answer");
            }
        }
    }

    #[test]
    fn a_cut_answer_is_not_over() {
        let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for end in 0..text.len() {
            let mut answer = Answer::new();
            answer.feed(&text.as_bytes()[..end]);
            assert!(!answer.is_over(), "{end}");
        }
    }
}
