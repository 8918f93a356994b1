//! Everything that is retained, file by file, so that it can be reviewed before it is shared (R2). Exact in a pipe, escaped
//! on a terminal; every retained byte is reachable. A link or a special file is named, never followed or opened.

use crate::report::look::Look;
use crate::report::text::safe;
use crate::results::folder::{EntryKind, Folder};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;

/// The longest piece of a line that is escaped at once.
const PIECE: u64 = 1 << 20;

/// The files below a folder in path order, and what is there that is neither file nor folder.
struct Found {
    files: Vec<Vec<OsString>>,
    others: Vec<String>,
}

/// Writes every retained file as text. Gives back what was left out, with the reason.
///
/// # Errors
/// The sink's, or a file's.
pub fn text(run: &Folder, look: &Look, out: &mut dyn Write) -> Result<Vec<String>> {
    let found = find(run)?;
    for path in &found.files {
        let Some((file, size)) = open(run, path)? else { continue };
        writeln!(out, "==> {} ({size} bytes) <==", safe(&shown(path))).context("failed to write")?;
        let mut file = file.take(size);
        if look.terminal {
            escaped(&mut BufReader::new(file), out)?;
        } else {
            std::io::copy(&mut file, out).with_context(|| format!("failed to copy {}", shown(path)))?;
        }
        writeln!(out).context("failed to write")?;
    }
    Ok(found.others)
}

fn escaped(file: &mut impl std::io::BufRead, out: &mut dyn Write) -> Result<()> {
    loop {
        let mut line = Vec::new();
        let read = file.take(PIECE).read_until(b'\n', &mut line).context("failed to read")?;
        if read == 0 {
            return Ok(());
        }
        let ended = line.last() == Some(&b'\n');
        let text = String::from_utf8_lossy(if ended { &line[..read - 1] } else { &line });
        write!(out, "{}{}", safe(&text), if ended { "\n" } else { "" }).context("failed to write")?;
    }
}

/// Writes every retained file as one JSON object, `{PATH: {"text": …} | {"base64": …}}`.
///
/// # Errors
/// The sink's, or a file's.
pub fn json(run: &Folder, out: &mut dyn Write) -> Result<Vec<String>> {
    let found = find(run)?;
    write!(out, "{{").context("failed to write")?;
    let mut between = "\n";
    for path in &found.files {
        let Some((mut file, size)) = open(run, path)? else { continue };
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        file.read_to_end(&mut bytes).with_context(|| format!("failed to read {}", shown(path)))?;
        let content = match String::from_utf8(bytes) {
            Ok(text) => serde_json::json!({"text": text}),
            Err(bytes) => {
                serde_json::json!({"base64": base64::engine::general_purpose::STANDARD.encode(bytes.as_bytes())})
            }
        };
        let key = serde_json::Value::String(shown(path));
        write!(out, "{between}  {key}: {content}").context("failed to write")?;
        between = ",\n";
    }
    writeln!(out, "\n}}").context("failed to write")?;
    Ok(found.others)
}

fn shown(path: &[OsString]) -> String {
    path.iter().map(|name| name.to_string_lossy()).collect::<Vec<_>>().join("/")
}

fn open(run: &Folder, path: &[OsString]) -> Result<Option<(std::fs::File, u64)>> {
    let Some((name, folders)) = path.split_last() else { return Ok(None) };
    let mut folder = run.again()?;
    for name in folders {
        folder = folder.folder(name)?;
    }
    folder.open_file(name)
}

fn find(run: &Folder) -> Result<Found> {
    let mut found = Found { files: Vec::new(), others: Vec::new() };
    walk(run, &mut Vec::new(), &mut found)?;
    found.files.sort_by_cached_key(|path| joined(path));
    Ok(found)
}

/// The deepest folder that is looked into: crashlab's own are four deep, a planted one must not exhaust the stack.
const DEEPEST: usize = 64;

fn walk(folder: &Folder, path: &mut Vec<OsString>, found: &mut Found) -> Result<()> {
    for entry in folder.entries()? {
        path.push(entry.name.clone());
        match entry.kind {
            EntryKind::File => found.files.push(path.clone()),
            EntryKind::Folder if path.len() < DEEPEST => walk(&folder.folder(&entry.name)?, path, found)?,
            EntryKind::Folder => found.others.push(format!("{} is too deep", shown(path))),
            EntryKind::Other => found.others.push(format!("{} is a link or a special file", shown(path))),
        }
        path.pop();
    }
    Ok(())
}

fn joined(path: &[OsString]) -> Vec<u8> {
    path.iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}
