//! The Python SDK that this binary carries: writes it to a folder that goes on `PYTHONPATH`. Owns its files' names and
//! content, nothing of what they do.

use anyhow::{Context as _, Result};
use camino::Utf8Path;

/// The module as it stands in the repository.
pub const CRASHLAB_PY: &str = include_str!("python/crashlab.py");
/// Runs at the interpreter's start, before the package's first line.
const SITECUSTOMIZE_PY: &str = include_str!("python/hook/sitecustomize.py");

/// Writes the SDK into `folder`, which must exist: the value of [`super::Launch`]'s `sdk`.
///
/// # Errors
/// Where a file cannot be written.
pub fn write_sdk(folder: &Utf8Path) -> Result<()> {
    for (name, text) in [("crashlab.py", CRASHLAB_PY), ("sitecustomize.py", SITECUSTOMIZE_PY), ("py.typed", "")] {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("failed to write {path}"))?;
    }
    Ok(())
}
