//! The last step before anything is written or shown: secrets out, `[redacted:NAME]` in. Owns in which forms a value is
//! found (as it is, base64 at each alignment, percent-encoded, JSON-escaped), also where it is split over two writes.
//!
//! Invariant: bytes leave a [`RedactingWriter`] only once no secret can begin in them.

use crate::secret::HostSecret;
use aho_corasick::{AhoCorasick, AhoCorasickBuilder, MatchKind};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// How often each secret was taken out of each file; shared by all redactors of a run.
type Counts = Arc<Mutex<BTreeMap<(String, String), u64>>>;

/// A place where a secret was taken out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Redacted {
    /// The secret's name.
    pub name: String,
    /// The file, as the writer was told.
    pub file: String,
    /// How often.
    pub count: u64,
}

/// Takes secrets out of bytes, text and JSON. Clones share the counts.
#[derive(Clone)]
pub struct Redactor {
    secrets: Vec<HostSecret>,
    search: Option<Arc<Search>>,
    counts: Counts,
}

struct Search {
    automaton: AhoCorasick,
    patterns: Vec<Vec<u8>>,
    /// For each pattern the index of its secret.
    owners: Vec<usize>,
    /// With which bytes any pattern begins.
    firsts: [bool; 256],
    longest: usize,
}

impl Redactor {
    /// For these secrets.
    ///
    /// # Errors
    /// Where the search cannot be built (the values together are absurdly long).
    pub fn new(secrets: Vec<HostSecret>) -> Result<Self> {
        Self::build(secrets, Counts::default())
    }

    /// For these secrets too: a trial's tokens. The counts stay shared.
    ///
    /// # Errors
    /// As for [`Redactor::new`].
    pub fn with(&self, more: &[HostSecret]) -> Result<Self> {
        let secrets = self.secrets.iter().chain(more).cloned().collect();
        Self::build(secrets, Arc::clone(&self.counts))
    }

    fn build(secrets: Vec<HostSecret>, counts: Counts) -> Result<Self> {
        let mut patterns = Vec::new();
        let mut owners = Vec::new();
        for (owner, secret) in secrets.iter().enumerate() {
            for form in forms(secret.expose()) {
                patterns.push(form);
                owners.push(owner);
            }
        }
        let Some(longest) = patterns.iter().map(Vec::len).max() else {
            return Ok(Self { secrets, search: None, counts });
        };
        let mut builder = AhoCorasickBuilder::new();
        builder.match_kind(MatchKind::LeftmostLongest);
        let automaton = builder.build(&patterns).context("failed to build the search for secrets")?;
        let mut firsts = [false; 256];
        for first in patterns.iter().filter_map(|pattern| pattern.first()) {
            firsts[usize::from(*first)] = true;
        }
        let search = Search { automaton, patterns, owners, firsts, longest };
        Ok(Self { secrets, search: Some(Arc::new(search)), counts })
    }

    /// The bytes without any secret; `file` is where they go.
    pub fn bytes<'a>(&self, file: &str, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.search {
            Some(search) if search.automaton.is_match(bytes) => {
                let mut out = Vec::with_capacity(bytes.len());
                self.replace(search, file, bytes, bytes.len(), &mut out);
                Cow::Owned(out)
            }
            _ => Cow::Borrowed(bytes),
        }
    }

    /// The text without any secret.
    pub fn text(&self, file: &str, text: &str) -> String {
        match self.bytes(file, text.as_bytes()) {
            Cow::Borrowed(_) => text.to_owned(),
            // Patterns are ASCII, so what is left of UTF-8 is UTF-8.
            Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// A JSON value without any secret, in keys, strings and numbers; a number that holds one becomes a string.
    pub fn json(&self, file: &str, value: &mut Value) {
        if self.search.is_none() {
            return;
        }
        match value {
            Value::String(text) => *text = self.text(file, text),
            Value::Number(number) => {
                let text = number.to_string();
                let clean = self.text(file, &text);
                if clean != text {
                    *value = Value::String(clean);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(file, item)),
            Value::Object(entries) => {
                let taken = std::mem::take(entries);
                for (key, mut item) in taken {
                    self.json(file, &mut item);
                    entries.insert(self.text(file, &key), item);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// What is written of a value as one line of JSON, without any secret.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn line(&self, file: &str, value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
        let bytes = serde_json::to_vec(value)?;
        let is_found = |search: &Arc<Search>| search.automaton.is_match(&bytes);
        // Without escapes every key and every text stands there as it is: what is not found in all of it is in no part of it.
        if !bytes.contains(&b'\\') && !self.search.as_ref().is_some_and(is_found) {
            return Ok(bytes);
        }
        // Not read back: a target's deepest document would be too deep as part of a line, and serde_json has keys of its own.
        let mut value = serde_json::to_value(value)?;
        self.json(file, &mut value);
        serde_json::to_vec(&value)
    }

    /// A writer in front of `inner`; `file` is its name in the counts.
    pub fn writer<W: Write>(&self, file: impl Into<String>, inner: W) -> RedactingWriter<W> {
        RedactingWriter { redactor: self.clone(), file: file.into(), inner, held: Vec::new() }
    }

    /// For bytes that go on as they come; `file` is where to.
    pub fn stripped(&self, file: impl Into<String>) -> Stripped {
        Stripped { redactor: self.clone(), file: file.into(), held: Vec::new(), out: Vec::new() }
    }

    /// What was taken out so far, by name and file.
    pub fn counts(&self) -> Vec<Redacted> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |((name, file), count): (&(String, String), &u64)| Redacted {
            name: name.clone(),
            file: file.clone(),
            count: *count,
        };
        counts.iter().map(row).collect()
    }

    /// Writes `bytes` without secrets to `out` as far as `safe`; a secret that begins before it is taken whole. Gives
    /// back how many bytes were used up.
    fn replace(&self, search: &Search, file: &str, bytes: &[u8], safe: usize, out: &mut Vec<u8>) -> usize {
        let mut done = 0;
        for found in search.automaton.find_iter(bytes) {
            if found.start() >= safe {
                break;
            }
            let Some(secret) = search.owners.get(found.pattern().as_usize()).and_then(|owner| self.secrets.get(*owner))
            else {
                continue;
            };
            out.extend_from_slice(&bytes[done..found.start()]);
            out.extend_from_slice(format!("[redacted:{}]", secret.name()).as_bytes());
            done = found.end();
            self.count(secret.name(), file);
        }
        if safe > done {
            out.extend_from_slice(&bytes[done..safe]);
            done = safe;
        }
        done
    }

    fn count(&self, name: &str, file: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((name.to_owned(), file.to_owned())).or_default() += 1;
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("secrets", &self.secrets).finish_non_exhaustive()
    }
}

/// Holds back what may be the beginning of a secret. [`RedactingWriter::finish`] writes the rest; so does dropping it,
/// where an error is lost.
pub struct RedactingWriter<W: Write> {
    redactor: Redactor,
    file: String,
    inner: W,
    held: Vec<u8>,
}

impl<W: Write> RedactingWriter<W> {
    /// Writes what is held back: nothing follows.
    ///
    /// # Errors
    /// The inner writer's.
    pub fn finish(mut self) -> io::Result<()> {
        self.release(true)?;
        self.inner.flush()
    }

    fn release(&mut self, is_end: bool) -> io::Result<()> {
        let mut held = std::mem::take(&mut self.held);
        let Some(search) = self.redactor.search.clone() else {
            return self.inner.write_all(&held);
        };
        // A secret that begins before `safe` lies in `held` whole, and the longest one there is known.
        let safe = if is_end { held.len() } else { held.len().saturating_sub(search.longest - 1) };
        if safe == 0 {
            self.held = held;
            return Ok(());
        }
        let mut out = Vec::with_capacity(safe);
        let done = self.redactor.replace(&search, &self.file, &held, safe, &mut out);
        held.drain(..done);
        self.held = held;
        self.inner.write_all(&out)
    }
}

impl<W: Write> Write for RedactingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        self.release(false)?;
        Ok(bytes.len())
    }

    /// Flushes what has left; what is held back stays.
    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Drop for RedactingWriter<W> {
    fn drop(&mut self) {
        let _ = self.release(true);
        let _ = self.inner.flush();
    }
}

/// Takes secrets out of bytes that go on as they come: only what may be the beginning of a secret waits for the next.
#[derive(Debug)]
pub struct Stripped {
    redactor: Redactor,
    file: String,
    held: Vec<u8>,
    out: Vec<u8>,
}

impl Stripped {
    /// Takes what came, and gives what may go on; at the end that is everything.
    pub fn feed(&mut self, bytes: &[u8], is_end: bool) -> &[u8] {
        self.out.clear();
        let Some(search) = self.redactor.search.clone() else {
            self.out.extend_from_slice(bytes);
            return &self.out;
        };
        self.held.extend_from_slice(bytes);
        let safe = if is_end { self.held.len() } else { search.first_beginning(&self.held) };
        let done = self.redactor.replace(&search, &self.file, &self.held, safe, &mut self.out);
        self.held.drain(..done);
        &self.out
    }

    /// What [`Stripped::feed`] gave last.
    pub fn last(&self) -> &[u8] {
        &self.out
    }
}

impl Search {
    /// The first place from which the bytes may go on to be a secret.
    fn first_beginning(&self, bytes: &[u8]) -> usize {
        let from = bytes.len().saturating_sub(self.longest - 1);
        let begins = |at: &usize| {
            let rest = &bytes[*at..];
            self.firsts[usize::from(rest[0])]
                && self.patterns.iter().any(|pattern| pattern.len() > rest.len() && pattern.starts_with(rest))
        };
        (from..bytes.len()).find(begins).unwrap_or(bytes.len())
    }
}

/// Every form in which a value is looked for.
fn forms(value: &str) -> BTreeSet<Vec<u8>> {
    let mut forms = BTreeSet::new();
    if value.is_empty() {
        return forms;
    }
    forms.insert(value.as_bytes().to_vec());
    for (keeps, spaces) in [("-._~", "%20"), ("-._~/", "%20"), ("-._~", "+"), ("-._~!*'()", "%20"), ("-._*", "+")] {
        let encoded = percent(value, keeps, spaces);
        forms.insert(lower_escapes(&encoded).into_bytes());
        forms.insert(encoded.into_bytes());
    }
    for escaped in json_forms(value) {
        forms.insert(escaped.into_bytes());
    }
    forms.extend(base64_forms(value.as_bytes()));
    forms
}

/// Percent-encoded but for letters, digits and `keeps`.
fn percent(value: &str, keeps: &str, space: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in value.bytes() {
        match byte {
            b' ' => out.push_str(space),
            _ if byte.is_ascii_alphanumeric() || keeps.as_bytes().contains(&byte) => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// The same with `%2f` in place of `%2F`.
fn lower_escapes(encoded: &str) -> String {
    let mut out = String::with_capacity(encoded.len());
    let mut left = 0;
    for char in encoded.chars() {
        out.push(if left > 0 { char.to_ascii_lowercase() } else { char });
        left = if char == '%' { 2 } else { usize::saturating_sub(left, 1) };
    }
    out
}

/// As JSON writers put it in a string: plain, with `\/`, with `<>&'` as `\u00XX` in either case; and once more escaped,
/// for JSON in a string of JSON.
fn json_forms(value: &str) -> Vec<String> {
    let plain = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"");
    let once = plain(value);
    let mut unicode = once.clone();
    for char in ['<', '>', '&', '\''] {
        unicode = unicode.replace(char, &format!("\\u{:04x}", u32::from(char)));
    }
    let upper = unicode.replace("\\u003c", "\\u003C").replace("\\u003e", "\\u003E");
    vec![once.replace('/', "\\/"), plain(&once), unicode, upper, once]
}

/// The characters of base64 that depend on the value alone, for each of the three places where it can stand in a
/// longer text, in both alphabets.
fn base64_forms(value: &[u8]) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    for offset in 0..3_usize {
        let mut padded = vec![0_u8; offset];
        padded.extend_from_slice(value);
        // A character carries six bits: leave out those that share bits with a neighbour.
        let first = (offset * 8).div_ceil(6);
        let last = padded.len() * 8 / 6;
        for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            // Short remains would be found by chance.
            if let Some(stable) = encoded.as_bytes().get(first..last).filter(|stable| stable.len() >= 8) {
                forms.push(stable.to_vec());
            }
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    const KEY: &str = "sk-a/b+c\"d\\e f&1234567890";

    fn redactor() -> Redactor {
        Redactor::new(vec![
            HostSecret::generated("KEY", KEY.to_owned()),
            HostSecret::generated("LONGER", format!("{KEY}-and-more")),
            HostSecret::generated("DIGITS", "9988776655".to_owned()),
        ])
        .unwrap()
    }

    #[test]
    fn bytes_that_go_on_as_they_come_wait_only_where_a_secret_may_begin() {
        let text = format!("data: {{\"a\":1}}\n\n{KEY} sk-a/b+ {}\n\n", STANDARD.encode(KEY));
        let wanted = redactor().text("answer", &text);
        assert!(!wanted.contains(KEY) && wanted.contains("sk-a/b+ "));
        for at in 0..text.len() {
            let mut stripped = redactor().stripped("answer");
            let mut out = stripped.feed(&text.as_bytes()[..at], false).to_vec();
            out.extend_from_slice(stripped.feed(&text.as_bytes()[at..], false));
            out.extend_from_slice(stripped.feed(b"", true));
            assert_eq!(String::from_utf8(out).unwrap(), wanted, "split at {at}");
        }
        let mut stripped = redactor().stripped("answer");
        assert_eq!(stripped.feed(b"data: {}\n\n", false), b"data: {}\n\n", "nothing waits");
        assert_eq!(stripped.feed(b"the key is sk-a", false), b"the key is ");
        assert_eq!(stripped.feed(b"n", false), b"sk-an");
    }

    #[test]
    fn a_line_is_what_is_left_of_its_value() {
        let escaped = serde_json::to_string(KEY).unwrap();
        let table = [
            json!({"a": 1, "b": [null, true, 1.50, "x"]}),
            json!({"a": KEY}),
            json!({KEY: "x", "b": {"c": [format!("x{KEY}y")]}}),
            json!({"a": 9_988_776_655_u64, "b": 99, "c": 88_776_655}),
            json!({"a": STANDARD.encode(KEY)}),
            json!({"a": escaped, "b": serde_json::to_string(&escaped).unwrap()}),
            json!({"a": "sk-a/b+c\"d", "b": "\\e f&1234567890"}),
            json!({"a": "a\\b", "b": "9988776655"}),
            json!({"a": {"$serde_json::private::RawValue": "{\"x\": 1}"}, "b": "\n"}),
            json!({"a": {"$serde_json::private::RawValue": "x"}, "b": "\n"}),
            json!({"a": {"$serde_json::private::Number": "x"}, "b": "\n"}),
            (0..127).fold(json!("\n"), |value, _| json!({"a": value})),
            (0..200).fold(json!(KEY), |value, _| json!([value])),
        ];
        for mut value in table {
            let line = redactor().line("f", &value).unwrap();
            redactor().json("f", &mut value);
            assert_eq!(String::from_utf8(line).unwrap(), value.to_string());
        }
    }

    fn clean(text: &str) -> String {
        redactor().text("f", text)
    }

    #[test]
    fn a_secret_is_found_in_each_form() {
        let json = serde_json::to_string(KEY).unwrap();
        let twice = serde_json::to_string(&json).unwrap();
        let table = [
            KEY.to_owned(),
            percent(KEY, "-._~", "%20"),
            lower_escapes(&percent(KEY, "-._~/", "%20")),
            percent(KEY, "-._*", "+"),
            json.trim_matches('"').to_owned(),
            json.trim_matches('"').replace('&', "\\u0026"),
            json.trim_matches('"').replace('/', "\\/"),
        ];
        for form in table {
            assert_eq!(clean(&format!("<{form}>")), "<[redacted:KEY]>", "{form}");
        }
        assert!(!clean(&twice).contains("sk-a"), "{twice}");
    }

    #[test]
    fn base64_is_found_whatever_stands_around_it() {
        for before in ["", "x", "xy", "xyz", "Authorization: Bearer "] {
            for after in ["", "!", "!!", "\r\nHost: a"] {
                for encoded in [STANDARD.encode(format!("{before}{KEY}{after}")), {
                    URL_SAFE_NO_PAD.encode(format!("{before}{KEY}{after}"))
                }] {
                    let clean = clean(&encoded);
                    assert!(clean.contains("[redacted:KEY]"), "{before:?} {after:?} {clean}");
                    // What is left tells less than a character and a half at each end.
                    assert!(clean.len() <= encoded.len() - STANDARD_NO_PAD.encode(KEY).len() + 14 + 3, "{clean}");
                }
            }
        }
    }

    #[test]
    fn the_longer_of_two_secrets_wins() {
        assert_eq!(clean(&format!("{KEY}-and-more {KEY}-and")), "[redacted:LONGER] [redacted:KEY]-and");
    }

    #[test]
    fn a_secret_is_found_at_every_split() {
        let text = format!("before {KEY} between {KEY}-and-more after {}", STANDARD.encode(KEY));
        let whole = clean(&text);
        for split in 0..=text.len() {
            let mut out = Vec::new();
            let redactor = redactor();
            let mut writer = redactor.writer("f", &mut out);
            writer.write_all(&text.as_bytes()[..split]).unwrap();
            writer.write_all(&text.as_bytes()[split..]).unwrap();
            writer.finish().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), whole, "{split}");
        }
        let mut out = Vec::new();
        let redactor = redactor();
        {
            let mut writer = redactor.writer("f", &mut out);
            text.bytes().for_each(|byte| writer.write_all(&[byte]).unwrap());
        }
        assert_eq!(String::from_utf8(out).unwrap(), whole);
        assert_eq!(redactor.counts().iter().map(|row| row.count).sum::<u64>(), 3);
    }

    #[test]
    fn json_stays_json() {
        let mut value = serde_json::json!({"n": 9_988_776_655_u64, "m": 1.50, KEY: [KEY, null, true]});
        redactor().json("f", &mut value);
        let want =
            serde_json::json!({"n": "[redacted:DIGITS]", "m": 1.50, "[redacted:KEY]": ["[redacted:KEY]", null, true]});
        assert_eq!(value, want);
    }

    #[test]
    fn counts_are_by_name_and_file_and_shared_with_a_trials_redactor() {
        let run = redactor();
        let trial = run.with(&[HostSecret::generated("token:openai", "0123456789abcdef".to_owned())]).unwrap();
        trial.text("trials/a/1/stderr", "0123456789abcdef 0123456789abcdef");
        run.text("run.json", "0123456789abcdef 9988776655");
        let counts: Vec<_> = run.counts().into_iter().map(|row| (row.name, row.file, row.count)).collect();
        let row = |name: &str, file: &str, count| (name.to_owned(), file.to_owned(), count);
        assert_eq!(counts, [row("DIGITS", "run.json", 1), row("token:openai", "trials/a/1/stderr", 2)]);
    }

    #[test]
    fn without_secrets_everything_passes() {
        let redactor = Redactor::new(Vec::new()).unwrap();
        let mut out = Vec::new();
        redactor.writer("f", &mut out).write_all(b"as it is").unwrap();
        assert_eq!(out, b"as it is");
    }
}
