//! Secrets of the host. Owns how one is loaded (by one name, from the environment or from one named file) and how its
//! value is kept from everything that is written or shown. Only the gateway's upstream side may expose a value.

use crate::exit::Refusal;
use camino::Utf8Path;
use secrecy::{ExposeSecret, SecretString};
use std::fmt;

/// A named value that cannot be printed: formatting shows its name only.
#[derive(Clone)]
pub struct HostSecret {
    name: String,
    value: SecretString,
}

impl HostSecret {
    /// The variable's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value, for the header of a provider call and for redaction; for nothing else.
    pub(crate) fn expose(&self) -> &str {
        self.value.expose_secret()
    }

    /// A secret made by crashlab itself: a trial's token.
    pub(crate) fn generated(name: impl Into<String>, value: String) -> Self {
        Self { name: name.into(), value: SecretString::from(value) }
    }
}

impl fmt::Debug for HostSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostSecret({})", self.name)
    }
}

impl fmt::Display for HostSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostSecret({})", self.name)
    }
}

/// Reads one named value from the environment of this process, or from `env_file` alone where one is given.
///
/// # Errors
/// A refusal that names the variable (and the file), never any value: missing, shorter than 8 bytes, or with a
/// character outside printable ASCII.
pub fn load_host_secret(name: &str, env_file: Option<&Utf8Path>) -> Result<HostSecret, Refusal> {
    let value = match env_file {
        Some(path) => from_env_file(name, path)?,
        None => from_environment(name)?,
    };
    if value.len() < 8 {
        return Err(Refusal::new(format!("the value of {name} is shorter than 8 bytes")).hint("give the whole key"));
    }
    if !value.bytes().all(|b| (0x20..=0x7e).contains(&b)) {
        return Err(Refusal::new(format!("the value of {name} has a line end or a character outside printable ASCII"))
            .hint("export it again, without a trailing line end"));
    }
    Ok(HostSecret { name: name.to_owned(), value: SecretString::from(value) })
}

#[expect(clippy::disallowed_methods, reason = "this is the one place where a credential is read from the environment")]
fn from_environment(name: &str) -> Result<String, Refusal> {
    let missing = || {
        Refusal::new(format!("the environment variable {name} is not set"))
            .hint(format!("export {name} before starting crashlab"))
    };
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => Ok(value),
        Err(std::env::VarError::NotUnicode(_)) => Err(Refusal::new(format!("the value of {name} is not UTF-8"))),
        _ => Err(missing()),
    }
}

/// `NAME=VALUE`, optional `export`, single or double quotes, no expansion, the last one wins; other lines are not parsed.
fn from_env_file(name: &str, path: &Utf8Path) -> Result<String, Refusal> {
    let bytes = std::fs::read(path)
        .map_err(|error| Refusal::new(format!("cannot read the env file for {name}: {error}")).at(path.as_str()))?;
    let mut found = None;
    for line in bytes.split(|b| *b == b'\n') {
        if let Some(value) = value_on_line(name, line.strip_suffix(b"\r").unwrap_or(line)) {
            found = Some(value);
        }
    }
    let value = found.ok_or_else(|| Refusal::new(format!("{name} is not in the env file")).at(path.as_str()))?;
    String::from_utf8(value).map_err(|_| Refusal::new(format!("the value of {name} is not UTF-8")).at(path.as_str()))
}

fn value_on_line(name: &str, line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii_start();
    let line = match line.strip_prefix(b"export") {
        Some(rest) if rest.first().is_some_and(u8::is_ascii_whitespace) => rest.trim_ascii_start(),
        _ => line,
    };
    let rest = line.strip_prefix(name.as_bytes())?.trim_ascii_start();
    let value = rest.strip_prefix(b"=")?.trim_ascii();
    let quoted = |quote: u8| value.len() >= 2 && value[0] == quote && value[value.len() - 1] == quote;
    if quoted(b'"') || quoted(b'\'') {
        return Some(value[1..value.len() - 1].to_vec());
    }
    Some(value.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_file(text: &str) -> Result<HostSecret, Refusal> {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().join("keys");
        std::fs::write(&path, text).unwrap();
        load_host_secret("A_KEY", Some(&path))
    }

    #[test]
    fn a_secret_shows_its_name_and_nothing_else() {
        let secret = in_file("A_KEY=0123456789").unwrap();
        assert_eq!(format!("{secret} {secret:?}"), "HostSecret(A_KEY) HostSecret(A_KEY)");
    }

    #[test]
    fn an_env_file_gives_that_name_alone() {
        let table = [
            ("A_KEY=0123456789", "0123456789"),
            ("export A_KEY='01234 56789'", "01234 56789"),
            ("A_KEY=first-one\nOTHER\n= broken\nA_KEY=\"$second-one\"\r\n", "$second-one"),
            ("XA_KEY=no-not-me\nA_KEY = spaced-value \nA_KEY_2=nor-me-neither", "spaced-value"),
        ];
        for (text, value) in table {
            assert_eq!(in_file(text).unwrap().expose(), value, "{text}");
        }
    }

    #[test]
    fn a_refusal_names_the_variable_and_no_value() {
        for text in ["B=1", "A_KEY=tiny77", "A_KEY=", "A_KEY=kéykéykéy"] {
            let refusal = in_file(text).unwrap_err().to_string();
            assert!(refusal.contains("A_KEY"), "{refusal}");
            assert!(!refusal.contains("tiny77") && !refusal.contains("kéy"), "{refusal}");
        }
    }
}
