//! Tokens: 256 random bits, one for each trial and gateway, and one for the trial's operations. Owns making one, finding
//! whom one opens for (in constant time: every live token is compared whole), and forgetting one at once.

use crate::policy::Auth;
use crate::secret::HostSecret;
use anyhow::{Context as _, Result};
use std::fmt::Write as _;
use std::sync::{PoisonError, RwLock};
use subtle::{Choice, ConstantTimeEq as _};

/// Makes a token; `name` is what stands in its place where it is redacted.
///
/// # Errors
/// Where the system gives no random bytes.
pub(super) fn generate(name: &str) -> Result<HostSecret> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).context("failed to read random bytes for a token")?;
    let mut value = String::from("crashlab_");
    for byte in bytes {
        let _ = write!(value, "{byte:02x}");
    }
    Ok(HostSecret::generated(name, value))
}

/// The live tokens, and what each opens.
pub(super) struct Ring<T> {
    entries: RwLock<Vec<Entry<T>>>,
}

struct Entry<T> {
    token: HostSecret,
    auth: Auth,
    opens: T,
}

impl<T: Clone> Ring<T> {
    pub(super) fn new() -> Self {
        Self { entries: RwLock::new(Vec::new()) }
    }

    /// From now on `token`, presented as `auth` says, opens this.
    pub(super) fn add(&self, token: HostSecret, auth: Auth, opens: T) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).push(Entry { token, auth, opens });
    }

    /// Forgets every token whose `opens` fits: from here on none of them is found.
    pub(super) fn revoke(&self, fits: impl Fn(&T) -> bool) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).retain(|entry| !fits(&entry.opens));
    }

    /// What the presented credentials open. The time taken tells how many tokens there are, and nothing of any.
    pub(super) fn find(&self, presented: &[(Auth, &str)]) -> Option<T> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for (auth, value) in presented {
            for entry in entries.iter() {
                let same = entry.token.expose().as_bytes().ct_eq(value.as_bytes());
                let fits: Choice = same & Choice::from(u8::from(entry.auth == *auth));
                if bool::from(fits) {
                    found = Some(entry.opens.clone());
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Row<'a> = (&'a [(Auth, &'a str)], Option<i32>);

    #[test]
    fn a_token_opens_what_it_was_made_for_as_its_gateway_wants_it_presented_until_it_is_revoked() {
        let ring = Ring::new();
        let (one, two) = (generate("one").unwrap(), generate("two").unwrap());
        ring.add(one.clone(), Auth::Bearer, 1);
        ring.add(two.clone(), Auth::XApiKey, 2);
        let flipped = format!("{}0", &one.expose()[..one.expose().len() - 1]);
        let flipped = if flipped == one.expose() { flipped.replace("0", "1") } else { flipped };
        let table: [Row<'_>; 8] = [
            (&[(Auth::Bearer, one.expose())], Some(1)),
            (&[(Auth::XApiKey, two.expose())], Some(2)),
            (&[(Auth::Bearer, "mine"), (Auth::XApiKey, two.expose())], Some(2)),
            (&[(Auth::XApiKey, one.expose())], None),
            (&[(Auth::Bearer, &flipped)], None),
            (&[(Auth::Bearer, &one.expose()[1..])], None),
            (&[(Auth::Bearer, "")], None),
            (&[], None),
        ];
        for (presented, opens) in table {
            assert_eq!(ring.find(presented), opens, "{:?}", presented.iter().map(|(auth, _)| auth).collect::<Vec<_>>());
        }
        ring.revoke(|opens| *opens == 1);
        assert_eq!(ring.find(&[(Auth::Bearer, one.expose())]), None);
        assert_eq!(ring.find(&[(Auth::XApiKey, two.expose())]), Some(2));
    }

    #[test]
    fn a_token_has_256_random_bits() {
        let tokens = [generate("a").unwrap(), generate("a").unwrap()];
        assert_ne!(tokens[0].expose(), tokens[1].expose());
        assert_eq!(tokens[0].expose().len(), "crashlab_".len() + 64);
    }
}
