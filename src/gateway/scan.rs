//! Reads a JSON text as it arrives and keeps the few small values that are watched for (usage, model, error): memory is
//! bounded whatever the text's size, and it may be split anywhere. Owns that reading; judges nothing.
//!
//! Invariant: it never needs a byte twice, and holds at most the watched values, each up to [`LARGEST`].

use serde_json::Value;

/// Keys from the root of a value that is kept; `*` stands for any element of an array. A root array is not counted.
pub(super) type Path = &'static [&'static str];

/// A watched value beyond this is not kept.
const LARGEST: usize = 64 * 1024;
/// Keys are compared up to here: no watched one is longer.
const LONGEST_KEY: usize = 64;
/// Deeper texts are taken for broken.
const DEEPEST: usize = 1024;
/// No path that is watched is longer.
const LONGEST_PATH: usize = 4;

/// How far a text has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing but white space.
    Empty,
    /// Begun and not ended.
    Open,
    /// One whole value, and nothing after it.
    Whole,
    /// No JSON.
    Broken,
}

/// A reader of one JSON text.
pub(super) struct Scanner {
    watched: &'static [Path],
    levels: Vec<Level>,
    expect: Expect,
    token: Token,
    key: Vec<u8>,
    capture: Option<Capture>,
    seen: Value,
    is_list: bool,
}

struct Level {
    is_object: bool,
    /// The key whose value is being read; kept only as deep as paths go.
    key: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Root,
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    Nothing,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    None,
    Text { is_key: bool, is_escaped: bool },
    Plain,
}

struct Capture {
    path: Path,
    depth: usize,
    bytes: Vec<u8>,
    is_too_large: bool,
}

impl Scanner {
    pub(super) fn new(watched: &'static [Path]) -> Self {
        Self {
            watched,
            levels: Vec::new(),
            expect: Expect::Root,
            token: Token::None,
            key: Vec::new(),
            capture: None,
            seen: Value::Null,
            is_list: false,
        }
    }

    /// For the next text; what is allocated stays.
    pub(super) fn reset(&mut self) {
        self.levels.clear();
        self.expect = Expect::Root;
        self.token = Token::None;
        self.capture = None;
        self.seen = Value::Null;
        self.is_list = false;
    }

    /// How far the text has come. A number at the root is whole as soon as it is there.
    pub(super) fn progress(&self) -> Progress {
        match self.expect {
            Expect::Broken => Progress::Broken,
            Expect::Nothing => Progress::Whole,
            Expect::Root if self.token == Token::None => Progress::Empty,
            Expect::Root if self.token == Token::Plain => Progress::Whole,
            _ => Progress::Open,
        }
    }

    /// Reads on. `whole` gets what was watched, in an object of its own, at the end of a root object and of each element
    /// of a root array.
    pub(super) fn feed(&mut self, mut bytes: &[u8], whole: &mut dyn FnMut(&Value)) {
        while let Some(first) = bytes.first().copied() {
            if self.expect == Expect::Broken {
                return;
            }
            let used = match self.token {
                Token::Text { is_key, is_escaped } => self.text(bytes, is_key, is_escaped, whole),
                Token::Plain => self.plain(bytes, whole),
                Token::None => {
                    self.keep(&bytes[..1]);
                    self.sign(first, whole);
                    1
                }
            };
            bytes = &bytes[used..];
        }
    }

    fn text(&mut self, bytes: &[u8], is_key: bool, is_escaped: bool, whole: &mut dyn FnMut(&Value)) -> usize {
        let end = if is_escaped { Some(0) } else { bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')) };
        let used = end.map_or(bytes.len(), |end| end + 1);
        self.keep(&bytes[..used]);
        if is_key && self.key.len() <= LONGEST_KEY {
            self.key.extend_from_slice(&bytes[..used.min(LONGEST_KEY + 1)]);
        }
        match end.map(|end| bytes[end]) {
            _ if is_escaped => self.token = Token::Text { is_key, is_escaped: false },
            Some(b'\\') => self.token = Token::Text { is_key, is_escaped: true },
            Some(_) => {
                self.token = Token::None;
                if is_key { self.key_ends() } else { self.value_ends(whole) }
            }
            None => {}
        }
        used
    }

    fn plain(&mut self, bytes: &[u8], whole: &mut dyn FnMut(&Value)) -> usize {
        let is_end = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
        let end = bytes.iter().position(is_end).unwrap_or(bytes.len());
        self.keep(&bytes[..end]);
        if bytes[..end].iter().any(|byte| !is_plain(*byte)) {
            self.expect = Expect::Broken;
        } else if end < bytes.len() {
            self.token = Token::None;
            self.value_ends(whole);
        }
        end
    }

    fn sign(&mut self, byte: u8, whole: &mut dyn FnMut(&Value)) {
        let is_value = matches!(self.expect, Expect::Root | Expect::Value | Expect::ValueOrEnd);
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'[' if is_value => self.open(byte),
            b'"' if is_value => self.begin(byte, Token::Text { is_key: false, is_escaped: false }),
            b'"' if matches!(self.expect, Expect::Key | Expect::KeyOrEnd) => {
                self.key.clear();
                self.token = Token::Text { is_key: true, is_escaped: false };
            }
            b':' if self.expect == Expect::Colon => self.expect = Expect::Value,
            b',' if self.expect == Expect::CommaOrEnd => {
                let is_object = self.levels.last().is_some_and(|level| level.is_object);
                self.expect = if is_object { Expect::Key } else { Expect::Value };
            }
            b'}' | b']' if self.may_close(byte) => {
                self.levels.pop();
                self.value_ends(whole);
            }
            _ if is_value && is_plain(byte) => self.begin(byte, Token::Plain),
            _ => self.expect = Expect::Broken,
        }
    }

    fn may_close(&self, byte: u8) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let empty = if level.is_object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
        level.is_object == (byte == b'}') && (self.expect == Expect::CommaOrEnd || self.expect == empty)
    }

    fn open(&mut self, byte: u8) {
        if self.levels.len() >= DEEPEST {
            self.expect = Expect::Broken;
            return;
        }
        self.watch(byte);
        let is_object = byte == b'{';
        self.is_list |= self.levels.is_empty() && !is_object;
        self.levels.push(Level { is_object, key: Vec::new() });
        self.expect = if is_object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
    }

    fn begin(&mut self, byte: u8, token: Token) {
        self.watch(byte);
        self.token = token;
    }

    fn key_ends(&mut self) {
        self.expect = Expect::Colon;
        let depth = self.levels.len();
        let Some(level) = self.levels.last_mut() else { return };
        level.key.clear();
        if depth > LONGEST_PATH + 1 || self.key.len() > LONGEST_KEY {
            return;
        }
        self.key.pop();
        if self.key.contains(&b'\\') {
            let quoted = [b"\"".as_slice(), &self.key, b"\""].concat();
            let plain: String = serde_json::from_slice(&quoted).unwrap_or_default();
            level.key = plain.into_bytes();
        } else {
            level.key.extend_from_slice(&self.key);
        }
    }

    /// A value begins: if it is watched, its bytes are kept from here.
    fn watch(&mut self, first: u8) {
        if self.capture.is_some() || self.levels.len() > LONGEST_PATH + 1 {
            return;
        }
        let levels = &self.levels[usize::from(self.is_list)..];
        let fits = |path: &Path| {
            path.len() == levels.len()
                && path
                    .iter()
                    .zip(levels)
                    .all(|(part, level)| if level.is_object { level.key == part.as_bytes() } else { *part == "*" })
        };
        if let Some(path) = self.watched.iter().find(|path| !path.is_empty() && fits(path)) {
            let depth = self.levels.len();
            self.capture = Some(Capture { path, depth, bytes: vec![first], is_too_large: false });
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        if capture.bytes.len() + bytes.len() > LARGEST {
            capture.is_too_large = true;
        }
        if !capture.is_too_large {
            capture.bytes.extend_from_slice(bytes);
        }
    }

    fn value_ends(&mut self, whole: &mut dyn FnMut(&Value)) {
        let depth = self.levels.len();
        if self.capture.as_ref().is_some_and(|capture| capture.depth == depth)
            && let Some(capture) = self.capture.take()
            && !capture.is_too_large
            && let Ok(value) = crate::json::parse_lenient(&capture.bytes)
        {
            insert(&mut self.seen, capture.path, value);
        }
        self.expect = if depth == 0 { Expect::Nothing } else { Expect::CommaOrEnd };
        if depth == usize::from(self.is_list) {
            whole(&std::mem::take(&mut self.seen));
        }
    }
}

/// A null says nothing that its absence does not, and must not hide what another element said.
fn insert(seen: &mut Value, path: Path, value: Value) {
    if value.is_null() {
        return;
    }
    let mut place = seen;
    for part in path {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[*part];
    }
    *place = value;
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const WATCHED: &[Path] = &[&["usage"], &["a", "b"], &["list", "*", "end"], &["plain"]];

    fn scan(pieces: &[&[u8]]) -> (Progress, Vec<Value>) {
        let mut scanner = Scanner::new(WATCHED);
        let mut seen = Vec::new();
        for piece in pieces {
            scanner.feed(piece, &mut |value| seen.push(value.clone()));
        }
        (scanner.progress(), seen)
    }

    #[test]
    fn watched_values_are_found_wherever_the_text_is_split() {
        let text = r#" {"x":{"usage":1,"a":{"b":2}},"a":{"c":[{"b":3}],"b":"q\"}\\"},"us\u0061ge":{"in":12,"deep":[1,{"k":null}]},
            "list":[{"end":null},{"end":"stop"},{"end":null}],"plain": 5 } "#;
        let wanted = json!({"a": {"b": "q\"}\\"}, "usage": {"in": 12, "deep": [1, {"k": null}]},
            "list": {"*": {"end": "stop"}}, "plain": 5});
        for at in 0..text.len() {
            let (one, two) = text.as_bytes().split_at(at);
            assert_eq!(scan(&[one, two]), (Progress::Whole, vec![wanted.clone()]), "split at {at}");
        }
        let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(scan(&bytes), (Progress::Whole, vec![wanted]));
    }

    #[test]
    fn each_element_of_a_list_stands_for_itself() {
        let (progress, seen) = scan(&[br#"[{"usage":1,"a":{"b":2}}, {"usage":3} ,{"x":[]}]"#]);
        assert_eq!(progress, Progress::Whole);
        assert_eq!(seen, [json!({"usage": 1, "a": {"b": 2}}), json!({"usage": 3}), json!(null)]);
    }

    #[test]
    fn a_text_that_is_cut_or_no_json_is_told() {
        let table = [
            ("", Progress::Empty),
            (" \n", Progress::Empty),
            ("{", Progress::Open),
            (r#"{"a"#, Progress::Open),
            (r#"{"a":[1,2"#, Progress::Open),
            ("\"text", Progress::Open),
            ("{}", Progress::Whole),
            ("[]", Progress::Whole),
            ("12", Progress::Whole),
            ("\"text\" ", Progress::Whole),
            ("<html>", Progress::Broken),
            ("{]", Progress::Broken),
            ("{} {}", Progress::Broken),
            (r#"{"a":1,}"#, Progress::Broken),
            ("[1,]", Progress::Broken),
            (r#"{"a" 1}"#, Progress::Broken),
            ("[DONE]x", Progress::Broken),
        ];
        for (text, wanted) in table {
            assert_eq!(scan(&[text.as_bytes()]).0, wanted, "{text}");
        }
        assert_eq!(scan(&["[".repeat(5000).as_bytes()]).0, Progress::Broken);
    }

    #[test]
    fn memory_is_bounded_whatever_the_text_holds() {
        let mut scanner = Scanner::new(WATCHED);
        let mut seen = Vec::new();
        let mut on_end = |value: &Value| seen.push(value.clone());
        scanner.feed(br#"{"usage":""#, &mut on_end);
        for _ in 0..1000 {
            scanner.feed(&[b'x'; 1024], &mut on_end);
        }
        assert!(scanner.capture.as_ref().unwrap().bytes.len() <= LARGEST);
        scanner.feed(br#"","a":{"b":1},"#, &mut on_end);
        scanner.feed(&[b"\"".as_slice(), &[b'k'; 100_000]].concat(), &mut on_end);
        assert!(scanner.key.len() <= 2 * LONGEST_KEY);
        scanner.feed(br#"":1}"#, &mut on_end);
        assert_eq!(seen, [json!({"a": {"b": 1}})], "what is too large is not kept");
    }
}
