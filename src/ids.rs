//! Newtypes for everything that has an identity: runs, trials, engine objects, digests. Owns how each is written and
//! what is accepted; holds no state. The name of an engine object can be made from these types only.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A run: `20260102T030405Z-k3f9` (UTC, then random).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// A new id from the clock and four random characters.
    ///
    /// # Errors
    /// Where the system gives no random bytes.
    pub fn generate(now: std::time::SystemTime) -> Result<Self> {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut bytes = [0_u8; 4];
        getrandom::fill(&mut bytes).context("failed to read random bytes")?;
        let random: String = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect();
        let stamp: String = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
        Ok(Self(format!("{stamp}-{random}")))
    }

    /// The id as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunId {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        let fits = !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !fits || text.starts_with('-') {
            bail!("{text:?} is not a run id ([A-Za-z0-9-], at most 64 characters)");
        }
        Ok(Self(text))
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A case's id: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CaseId(String);

impl CaseId {
    /// The id as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CaseId {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        let mut bytes = text.bytes();
        let first = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if !first || !rest || text.len() > 64 {
            bail!("{text:?} is not a case id ([A-Za-z0-9][A-Za-z0-9._-]{{0,63}})");
        }
        Ok(Self(text))
    }
}

impl From<CaseId> for String {
    fn from(id: CaseId) -> Self {
        id.0
    }
}

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A trial: `CASE/N`, under a drill `CASE@DRILL/N`; repetitions count from 1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrialId {
    /// The case that is tried.
    pub case: CaseId,
    /// The drill that it is tried under; none is undisturbed.
    pub drill: Option<String>,
    /// From 1.
    pub repetition: u32,
}

impl TrialId {
    /// The trial's folder below `trials/`: `CASE[@DRILL]/N`.
    pub fn folder(&self) -> String {
        self.to_string()
    }
}

impl fmt::Display for TrialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.drill {
            Some(drill) => write!(f, "{}@{drill}/{}", self.case, self.repetition),
            None => write!(f, "{}/{}", self.case, self.repetition),
        }
    }
}

impl std::str::FromStr for TrialId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, repetition) = text.rsplit_once('/').with_context(|| format!("{text:?} is not a trial (CASE/N)"))?;
        let (case, drill) = match name.split_once('@') {
            Some((case, drill)) => (case, Some(drill.to_owned())),
            None => (name, None),
        };
        let repetition = repetition.parse().ok().filter(|n| *n > 0);
        Ok(Self {
            case: CaseId::try_from(case.to_owned())?,
            drill,
            repetition: repetition.with_context(|| format!("{text:?} has no repetition from 1 after its slash"))?,
        })
    }
}

/// `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self::from_hash(sha2::Sha256::digest(bytes).as_slice())
    }

    /// The digest that a finished SHA-256 hasher gives.
    pub fn from_hash(hash: &[u8]) -> Self {
        use fmt::Write as _;
        let mut text = String::from("sha256:");
        for byte in hash {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// With the `sha256:` in front.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 digits alone.
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }
}

impl TryFrom<String> for Digest {
    type Error = anyhow::Error;

    fn try_from(text: String) -> Result<Self> {
        match text.strip_prefix("sha256:") {
            Some(digits) if is_full_hex(digits) => Ok(Self(text)),
            _ => bail!("{text:?} is not a digest (sha256: and 64 hexadecimal digits)"),
        }
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_full_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

macro_rules! engine_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The full id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = anyhow::Error;

            fn try_from(text: String) -> Result<Self> {
                if !is_full_hex(&text) {
                    bail!("{text:?} is not a full engine id (64 hexadecimal digits)");
                }
                Ok(Self(text))
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

engine_id!(
    /// A container's full id: the only handle that is ever used to stop or remove one.
    ContainerId
);
engine_id!(
    /// A network's full id.
    NetworkId
);

/// An image's id as the engine gives it: `sha256:…`. Trials run by it, never by a reference that may move.
pub type ImageId = Digest;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_id_is_one_path_segment_and_no_option() {
        for good in ["a", "double-refund", "A.b_c-9", &"x".repeat(64)] {
            assert!(CaseId::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a/b", "a b", "a@b", "ä", &"x".repeat(65)] {
            assert!(CaseId::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_trial_reads_back_as_it_was_written() {
        for text in ["a/1", "a@slow-provider/12"] {
            assert_eq!(text.parse::<TrialId>().unwrap().to_string(), text);
        }
        for bad in ["a", "a/0", "a/x", "/1", "a/1/2"] {
            assert!(bad.parse::<TrialId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_run_id_is_made_of_the_clock_and_four_random_characters() {
        let id = RunId::generate(std::time::UNIX_EPOCH).unwrap();
        assert!(id.as_str().starts_with("19700101T000000Z-"), "{id}");
        assert_eq!(id.as_str().len(), 21);
    }
}
