//! Writing a report to a file that the user named (`--html FILE`). It holds what the stored run holds: 0600, and in place only
//! once it is whole.

use anyhow::{Context as _, Result};
use camino::Utf8Path;
use std::io::{BufWriter, Write as _};

/// Writes a file by `write`; what was there before stays until the new one is whole.
///
/// # Errors
/// The disk's, or `write`'s.
pub fn write(path: &Utf8Path, write: impl FnOnce(&mut dyn std::io::Write) -> Result<()>) -> Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_str().is_empty()).unwrap_or(Utf8Path::new("."));
    let writing = || format!("failed to write {path}");
    // A temporary file is 0600 from its first moment.
    let file = tempfile::NamedTempFile::new_in(folder).with_context(writing)?;
    let mut out = BufWriter::new(file);
    write(&mut out)?;
    out.flush().with_context(writing)?;
    let file = out.into_inner().map_err(std::io::IntoInnerError::into_error).with_context(writing)?;
    file.persist(path).map_err(|error| error.error).with_context(writing)?;
    Ok(())
}
