//! The manifest: every entry of a snapshot, and the digest over them. Owns how both are written; reads no file.
//!
//! The digest, in words (the schema of `run.json` has them too), so that anybody can recompute it: SHA-256 over the bytes `crashlab.snapshot/1` and a line feed,
//! then for each entry, in ascending order of the paths' bytes: the mode as six digits (`100644` a file, `100755` an
//! executable one, `120000` a link), a space, the SHA-256 of the content as 64 lower-case hexadecimal digits (of a link: of
//! its target's bytes), a space, the path's bytes (relative, `/` between components), and a zero byte.

use crate::ids::Digest;
use base64::Engine as _;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The form of the manifest; also the first line of what the digest is over.
const SCHEMA: &str = "crashlab.snapshot/1";

/// One file or link of a snapshot. Folders are implied by the paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the snapshot's root, `/` between components; any bytes but zero.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes of content; for a link the length of its target.
    pub size: u64,
    /// SHA-256 of the content; for a link of its target.
    pub sha256: [u8; 32],
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File {
        /// Its owner's executable bit.
        executable: bool,
    },
    /// A symbolic link.
    Link {
        /// As it is written; relative, and inside the snapshot.
        target: Vec<u8>,
    },
}

impl Kind {
    /// Git's six digits for it.
    pub fn mode(&self) -> &'static str {
        match self {
            Kind::File { executable: false } => "100644",
            Kind::File { executable: true } => "100755",
            Kind::Link { .. } => "120000",
        }
    }
}

/// The digest of a snapshot with these entries, which are in ascending order of their paths.
pub(super) fn digest(entries: &[Entry]) -> Digest {
    let mut hash = Sha256::new();
    hash.update(format!("{SCHEMA}\n"));
    for entry in entries {
        hash.update(format!("{} {} ", entry.kind.mode(), hex(&entry.sha256)));
        hash.update(&entry.path);
        hash.update([0]);
    }
    Digest::from_hash(&hash.finalize())
}

/// The manifest as JSON: `{"schema", "digest", "files", "bytes", "entries": [{"path", "mode", "size", "sha256", "target"}]}`.
/// A path or target that is no UTF-8 stands as `{"base64": …}` in place of the text.
pub(super) fn json(digest: &Digest, bytes: u64, entries: &[Entry]) -> serde_json::Result<String> {
    let mut text = format!(
        "{{\n\"schema\": \"{SCHEMA}\",\n\"digest\": \"{digest}\",\n\"files\": {},\n\"bytes\": {bytes},\n\"entries\": [",
        entries.len()
    );
    // An entry a line, written one by one: a hundred thousand of them are never held as a tree of values.
    for (index, entry) in entries.iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.push_str(&serde_json::to_string(&value(entry))?);
    }
    text.push_str("\n]\n}\n");
    Ok(text)
}

fn value(entry: &Entry) -> Value {
    let mut object = Map::new();
    object.insert("path".to_owned(), written(&entry.path));
    object.insert("mode".to_owned(), json!(entry.kind.mode()));
    object.insert("size".to_owned(), json!(entry.size));
    object.insert("sha256".to_owned(), json!(hex(&entry.sha256)));
    if let Kind::Link { target } = &entry.kind {
        object.insert("target".to_owned(), written(target));
    }
    Value::Object(object)
}

fn written(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({"base64": base64::engine::general_purpose::STANDARD.encode(bytes)}),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(path: &[u8], kind: Kind, content: &[u8]) -> Entry {
        Entry { path: path.to_vec(), kind, size: content.len() as u64, sha256: Sha256::digest(content).into() }
    }

    #[test]
    fn the_digest_is_the_one_that_the_words_above_give() {
        let entries = [
            entry(b"a", Kind::File { executable: false }, b"one"),
            entry(b"b/\xff", Kind::File { executable: true }, b""),
            entry(b"c", Kind::Link { target: b"a".to_vec() }, b"a"),
        ];
        let mut words = b"crashlab.snapshot/1\n".to_vec();
        for (mode, content, path) in
            [("100644", "one", b"a".as_slice()), ("100755", "", b"b/\xff"), ("120000", "a", b"c")]
        {
            words.extend(format!("{mode} {} ", Digest::of(content.as_bytes()).hex()).into_bytes());
            words.extend([path, b"\0"].concat());
        }
        assert_eq!(digest(&entries), Digest::of(&words));
    }

    #[test]
    fn a_manifest_is_valid_json_and_keeps_any_bytes() {
        let entries = [
            entry(b"a\n\"\xe2\x80\xa8", Kind::File { executable: false }, b"one"),
            entry(b"b/\xff", Kind::Link { target: b"\xfe".to_vec() }, b"\xfe"),
        ];
        let text = json(&digest(&entries), 3, &entries).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["entries"][0]["path"], "a\n\"\u{2028}");
        assert_eq!(value["entries"][1]["path"]["base64"], "Yi//");
        assert_eq!(value["entries"][1]["target"]["base64"], "/g==");
        assert_eq!((value["files"].as_u64(), value["entries"][0]["size"].as_u64()), (Some(2), Some(3)));
    }
}
