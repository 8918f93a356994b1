//! What can be written, found out by writing: every place of the mount table and those that were asked for. Leaves nothing
//! behind that it made.

use super::json::Json;
use crate::kernel_text::Mount;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A program of one line whose interpreter is this one: it fits into the smallest place.
const SCRIPT: &str = concat!("#!/crashlab-attest attest", "\n");

/// Each mounted place, and each that was asked for beside them: type, options, size, and what writing came to.
pub(super) fn tried(mounts: &[Mount], asked: &[String]) -> Json {
    let unmounted = asked.iter().filter(|place| !mounts.iter().any(|mount| mount.place == **place));
    let entries = mounts.iter().map(of_mount).chain(unmounted.map(|place| of_place(place, Vec::new())));
    Json::List(entries.collect())
}

fn of_mount(mount: &Mount) -> Json {
    let facts = vec![
        ("type".to_owned(), mount.kind.as_str().into()),
        ("options".to_owned(), mount.options.as_str().into()),
        ("size".to_owned(), mount.size().into()),
    ];
    of_place(&mount.place, facts)
}

fn of_place(place: &str, facts: Vec<(String, Json)>) -> Json {
    let path = Path::new(place);
    let write = written(path);
    let exec = if write == "written" { executed(path).into() } else { Json::Null };
    let mut entries = vec![("path".to_owned(), place.into())];
    entries.extend(facts);
    entries.extend([("write".to_owned(), write.into()), ("exec".to_owned(), exec)]);
    Json::Map(entries)
}

/// `written`, or why not. A read-only file system says so before it looks at permissions.
pub(super) fn written(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => written_into(path),
        // A device takes what is written to it: that is no place to keep anything.
        Ok(found) if !found.is_file() => "no folder or file".to_owned(),
        // Opening to append neither makes nor changes it.
        Ok(_) => outcome(OpenOptions::new().append(true).open(path).map(drop)),
        Err(error) => told(&error),
    }
}

fn written_into(folder: &Path) -> String {
    let name = folder.join(format!(".crashlab-probe-{}", std::process::id()));
    let tried = OpenOptions::new().write(true).create_new(true).open(&name).and_then(|mut file| {
        // The mqueue file system makes a queue of a file, and takes no bytes: made is enough.
        let _ = file.write_all(b"probe");
        fs::remove_file(&name)
    });
    outcome(tried)
}

fn outcome(tried: std::io::Result<()>) -> String {
    tried.map_or_else(|error| told(&error), |()| "written".to_owned())
}

fn told(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => "read-only file system".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        ErrorKind::NotFound => "absent".to_owned(),
        _ => error.to_string(),
    }
}

/// `run`, or why not; none where no process could be made (a sandbox of one process).
fn executed(folder: &Path) -> Option<String> {
    let name = folder.join(format!(".crashlab-script-{}", std::process::id()));
    let made = fs::write(&name, SCRIPT).and_then(|()| fs::set_permissions(&name, fs::Permissions::from_mode(0o700)));
    let ran = made.and_then(|()| Command::new(&name).status());
    let _ = fs::remove_file(&name);
    match ran {
        Ok(status) if status.success() => Some("run".to_owned()),
        Ok(status) => Some(status.to_string()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => Some(told(&error)),
    }
}
