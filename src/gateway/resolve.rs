//! Where a provider is: addresses as they stand in its URL, and those that a name was last found to have. Owns for how long
//! a name is not asked for again; ureq asks before each call, also where a connection is open already, and in a thread of
//! its own.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Shorter than a provider leaves its old addresses in service.
const KNOWN_FOR: Duration = Duration::from_secs(30);

/// Names that were looked up, and their addresses. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Addresses(Arc<Mutex<BTreeMap<String, Known>>>);

#[derive(Debug)]
struct Known {
    until: Instant,
    addresses: Vec<SocketAddr>,
}

impl Addresses {
    /// The next call looks names up again: where they led, nobody answered.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn known(&self, name: &str, now: Instant) -> Option<Vec<SocketAddr>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(name).filter(|known| now < known.until).map(|known| known.addresses.clone())
    }

    fn learn(&self, name: String, addresses: Vec<SocketAddr>, now: Instant) {
        let known = Known { until: now + KNOWN_FOR, addresses };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, known);
    }
}

impl Resolver for Addresses {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let now = Instant::now();
        let name = uri.authority().and_then(|authority| DefaultResolver::host_and_port(uri.scheme()?, authority));
        let at_hand = literal(uri).map(|address| vec![address]);
        if let Some(addresses) = at_hand.or_else(|| self.known(name.as_deref()?, now)) {
            let mut found = self.empty();
            addresses.into_iter().for_each(|address| found.push(address));
            return Ok(found);
        }
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        if let Some(name) = name {
            self.learn(name, found.to_vec(), now);
        }
        Ok(found)
    }
}

/// The address of a URL that has one in a name's place.
fn literal(uri: &Uri) -> Option<SocketAddr> {
    let authority = uri.authority()?;
    let address: IpAddr = authority.host().trim_matches(['[', ']']).parse().ok()?;
    let named = DefaultResolver::host_and_port(uri.scheme()?, authority)?;
    let (_, port) = named.rsplit_once(':')?;
    Some(SocketAddr::new(address, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_url_is_taken_as_it_stands() {
        let table = [
            ("http://127.0.0.1:81/v1", Some("127.0.0.1:81")),
            ("https://10.0.0.1/", Some("10.0.0.1:443")),
            ("http://[::1]:8080/a", Some("[::1]:8080")),
            ("http://[fe80::1]/", Some("[fe80::1]:80")),
            ("https://api.example.com/", None),
            ("http://localhost:1/", None),
            ("http://1.2.3/", None),
        ];
        for (url, wanted) in table {
            assert_eq!(literal(&url.parse().unwrap()), wanted.map(|wanted| wanted.parse().unwrap()), "{url}");
        }
    }

    #[test]
    fn a_name_is_known_for_a_while_and_until_nobody_answered() {
        let (addresses, now) = (Addresses::default(), Instant::now());
        let found = vec!["192.0.2.1:443".parse().unwrap(), "192.0.2.2:443".parse().unwrap()];
        addresses.learn("a:443".into(), found.clone(), now);
        assert_eq!(addresses.known("a:443", now + KNOWN_FOR / 2), Some(found.clone()));
        assert_eq!((addresses.known("b:443", now), addresses.known("a:443", now + KNOWN_FOR)), (None, None));
        addresses.learn("a:443".into(), found.clone(), now + KNOWN_FOR);
        assert_eq!(addresses.known("a:443", now + KNOWN_FOR), Some(found));
        addresses.clone().forget();
        assert_eq!(addresses.known("a:443", now + KNOWN_FOR), None);
    }
}
