//! The policy as written: the files, read strictly, and their merge (JSON Merge Patch, RFC 7396) over the built-in pieces.
//! Owns which file each value came from. Checks no value: that is the business of the files beside it.

use super::builtin;
use super::credential;
use super::problem::{Problems, refuse_all};
use super::shape::{self, join};
use crate::exit::Refusal;
use camino::{Utf8Path, Utf8PathBuf};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::Read as _;

/// The package's policy.
pub const FILE: &str = "policy.json";
/// No policy is larger: it is read whole.
const MOST_BYTES: u64 = 1 << 20;

/// The merged document.
#[derive(Debug)]
pub(super) struct Written {
    /// Without `$schema` and `extends`.
    pub(super) value: Value,
    /// JSON pointer to the file that wrote, or deleted, what is there.
    origins: BTreeMap<String, String>,
}

/// One file, before merging.
struct Source {
    file: String,
    value: Value,
}

impl Written {
    /// Reads the package's policy and what is merged over it.
    pub(super) fn read(package: &Utf8Path, overlays: &[Utf8PathBuf]) -> Result<Self, Refusal> {
        let own = source(FILE, &read_bounded(&package.join(FILE), FILE)?)?;
        let mut over = Vec::new();
        for path in overlays {
            over.push(source(path.as_str(), &read_bounded(path, path.as_str())?)?);
        }
        Self::merge(own, over)
    }

    /// A policy from its text alone, as if it were the package's.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Refusal> {
        Self::merge(source(FILE, text)?, Vec::new())
    }

    fn merge(own: Source, overlays: Vec<Source>) -> Result<Self, Refusal> {
        let mut problems = Vec::new();
        let extends = extends(&own, &mut problems);
        let mut sources = Vec::new();
        for name in std::iter::once(builtin::BASE).chain(extends.iter().map(String::as_str)) {
            if let Some(text) = builtin::text(name) {
                sources.push(source(name, text.as_bytes())?);
            }
        }
        for overlay in &overlays {
            if overlay.value.get("extends").is_some() {
                problems.push(
                    Refusal::new("\"extends\" is not allowed here")
                        .at(format!("{}#/extends", overlay.file))
                        .hint(format!("only {FILE} extends; write the keys themselves")),
                );
            }
        }
        sources.push(own);
        sources.extend(overlays);
        let mut written = Self { value: Value::Object(Map::new()), origins: BTreeMap::new() };
        for source in sources {
            problems.extend(unknown_keys(&source));
            written.lay_over(source, &mut problems);
        }
        refuse_all(problems)?;
        Ok(written)
    }

    fn lay_over(&mut self, source: Source, problems: &mut Problems) {
        let Source { file, value } = source;
        let Value::Object(mut patch) = value else { return };
        patch.shift_remove("$schema");
        patch.shift_remove("extends");
        let mut lost = Vec::new();
        patch_object(&mut self.value, patch, "", &file, &mut self.origins, &mut lost);
        for pointer in lost.iter().filter(|pointer| inside_arguments(pointer)) {
            problems.push(
                Refusal::new("a null that deletes nothing (policies are merged: null deletes)")
                    .at(place(&file, pointer))
                    .hint("write {\"enum\": [null]} or {\"type\": \"null\"} for a JSON null in a schema"),
            );
        }
    }

    /// `FILE#POINTER` of a value, or of the place where one is missing.
    pub(super) fn place(&self, pointer: &str) -> String {
        place(self.file(pointer), pointer)
    }

    /// The file that wrote, or deleted, what is at `pointer`.
    pub(super) fn file(&self, pointer: &str) -> &str {
        let mut at = pointer;
        loop {
            if let Some(file) = self.origins.get(at) {
                return file;
            }
            match at.rfind('/') {
                Some(slash) if slash > 0 => at = &at[..slash],
                _ => return FILE,
            }
        }
    }
}

/// `FILE#POINTER`; a key that is very long, or that is a credential itself, is not repeated.
fn place(file: &str, pointer: &str) -> String {
    let plain =
        |key: &str| if key.len() > 80 || credential::value(key).is_some() { "…".to_owned() } else { key.to_owned() };
    format!("{file}#{}", pointer.split('/').map(plain).collect::<Vec<_>>().join("/"))
}

/// RFC 7396, remembering who wrote what; `lost` gets the pointers of nulls that deleted nothing.
fn patch_object(
    target: &mut Value,
    patch: Map<String, Value>,
    pointer: &str,
    file: &str,
    origins: &mut BTreeMap<String, String>,
    lost: &mut Vec<String>,
) {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(object) = target else { return };
    for (key, value) in patch {
        let below = join(pointer, &key);
        match value {
            Value::Null => {
                if object.shift_remove(&key).is_none() {
                    lost.push(below.clone());
                }
                forget_below(origins, &below);
            }
            Value::Object(inner) => {
                let slot = object.entry(key).or_insert(Value::Null);
                patch_object(slot, inner, &below, file, origins, lost);
            }
            other => {
                forget_below(origins, &below);
                object.insert(key, other);
            }
        }
        origins.insert(below, file.to_owned());
    }
}

/// What stood below a replaced value is gone, and so is who wrote it.
fn forget_below(origins: &mut BTreeMap<String, String>, pointer: &str) {
    let below = format!("{pointer}/");
    let gone: Vec<String> =
        origins.range(below.clone()..).map(|(key, _)| key).take_while(|key| key.starts_with(&below)).cloned().collect();
    for key in gone {
        origins.remove(&key);
    }
}

/// `/operations/NAME/arguments/…`: the one place where somebody else's JSON, with nulls of its own, is merged.
fn inside_arguments(pointer: &str) -> bool {
    let mut parts = pointer.split('/').skip(1);
    parts.next() == Some("operations") && parts.nth(1) == Some("arguments") && parts.next().is_some()
}

fn unknown_keys(source: &Source) -> Problems {
    shape::unknown_keys(&shape::POLICY, &source.value)
        .into_iter()
        .map(|(pointer, key, advice)| {
            let name = super::problem::show_name(&key);
            Refusal::new(format!("unknown key {name}")).at(place(&source.file, &pointer)).hint(advice)
        })
        .collect()
}

fn extends(own: &Source, problems: &mut Problems) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut wrong = |pointer: String, message: String| {
        problems.push(
            Refusal::new(message)
                .at(format!("{}#{pointer}", own.file))
                .hint(format!("a list of these, each once: {}", builtin::names())),
        );
    };
    match own.value.get("extends") {
        None | Some(Value::Null) => {}
        Some(Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                let pointer = format!("/extends/{i}");
                match item.as_str() {
                    Some(name) if names.iter().any(|known| known == name) => {
                        wrong(pointer, format!("{name:?} stands here twice"));
                    }
                    Some(name) if builtin::text(name).is_some() => names.push(name.to_owned()),
                    _ => wrong(pointer, format!("found {}, which is no built-in policy", super::problem::show(item))),
                }
            }
        }
        Some(other) => wrong("/extends".to_owned(), format!("found {}", super::problem::show(other))),
    }
    names
}

fn source(file: &str, bytes: &[u8]) -> Result<Source, Refusal> {
    let value = crate::json::parse(bytes)
        .map_err(|error| Refusal::new(format!("is not strict JSON: {error}")).at(file).hint("mend the file there"))?;
    if !value.is_object() {
        return Err(Refusal::new(format!("found {}", super::problem::show(&value)))
            .at(format!("{file}#"))
            .hint("a policy is a JSON object"));
    }
    Ok(Source { file: file.to_owned(), value })
}

/// Reads a regular file of at most [`MOST_BYTES`]; anything else could hang, or fill the memory.
fn read_bounded(path: &Utf8Path, shown: &str) -> Result<Vec<u8>, Refusal> {
    read_file(path, MOST_BYTES).map_err(|why| match why {
        Unreadable::Missing => Refusal::new(format!("there is no {path}"))
            .at(shown)
            .hint("an evaluation package has a policy.json; crashlab init DIR writes one"),
        other => Refusal::new(other.to_string()).at(shown),
    })
}

/// Why a file of the package was not read.
pub(super) enum Unreadable {
    Missing,
    NoFile,
    TooLarge(u64),
    Failed(std::io::Error),
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing => f.write_str("does not exist"),
            Self::NoFile => f.write_str("is not a regular file"),
            Self::TooLarge(most) => write!(f, "is larger than {}", super::units::show_size(*most)),
            Self::Failed(error) => write!(f, "cannot be read: {error}"),
        }
    }
}

pub(super) fn read_file(path: &Utf8Path, most: u64) -> Result<Vec<u8>, Unreadable> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Unreadable::Missing,
        _ => Unreadable::Failed(error),
    };
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(Unreadable::NoFile);
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(Unreadable::TooLarge(most));
    }
    Ok(bytes)
}
