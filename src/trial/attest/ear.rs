//! An ear on every address of this host, for as long as a sandbox is asked whether it can reach one: whoever connects hears
//! a random word and nothing else. Owns the host's list of its own addresses.

use crate::relay::kernel_text::{local_v4, local_v6};
use anyhow::{Context, Result};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long somebody who does not read may hold the ear up.
const PATIENCE: Duration = Duration::from_millis(200);

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Ear {
    v4: u16,
    v6: Option<u16>,
    closed: Arc<AtomicBool>,
    threads: Vec<(SocketAddr, JoinHandle<()>)>,
}

impl Ear {
    /// Listens on every address of both families; without the second where this host has none.
    ///
    /// # Errors
    /// Where the system refuses a listener.
    pub fn open(word: &str) -> Result<Self> {
        let mut ear = Self { v4: 0, v6: None, closed: Arc::default(), threads: Vec::new() };
        ear.v4 = ear.listen(Ipv4Addr::UNSPECIFIED.into(), word)?;
        ear.v6 = ear.listen(Ipv6Addr::UNSPECIFIED.into(), word).ok();
        Ok(ear)
    }

    fn listen(&mut self, address: IpAddr, word: &str) -> Result<u16> {
        let listener = TcpListener::bind((address, 0)).with_context(|| format!("failed to listen on {address}"))?;
        let port = listener.local_addr().context("failed to read a listener's address")?.port();
        let (closed, word) = (self.closed.clone(), word.to_owned());
        let thread = std::thread::Builder::new().name("ear".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if closed.load(Ordering::SeqCst) {
                    break;
                }
                let _ = stream.set_write_timeout(Some(PATIENCE));
                let _ = (&stream).write_all(word.as_bytes());
            }
        });
        let here: IpAddr = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        self.threads.push(((here, port).into(), thread.context("failed to start a listener's thread")?));
        Ok(port)
    }

    /// Every address of this host that leads to it, loopback left out: inside a container that is the container's own.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let v4 = local_v4(&read("/proc/net/fib_trie")).into_iter().filter(|address| !address.is_loopback());
        let v4 = v4.map(|address| SocketAddr::from((address, self.v4)));
        let v6 = local_v6(&read("/proc/net/if_inet6")).into_iter().map(|(address, _)| address);
        let v6 = v6.filter(|address| !address.is_loopback()).zip(self.v6.into_iter().cycle());
        v4.chain(v6.map(SocketAddr::from)).collect()
    }

    /// The port of the first family.
    pub fn port(&self) -> u16 {
        self.v4
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        for (address, thread) in self.threads.drain(..) {
            // A listener looks at the flag at its next connection.
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn the_word_is_heard_at_every_address_of_the_host_and_nowhere_afterwards() {
        let ear = Ear::open("a word").unwrap();
        let addresses = ear.addresses();
        let heard = |address: &SocketAddr| {
            let mut text = String::new();
            TcpStream::connect_timeout(address, Duration::from_secs(5)).ok()?.read_to_string(&mut text).ok()?;
            Some(text)
        };
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, ear.port()));
        assert_eq!(heard(&here).as_deref(), Some("a word"));
        for address in addresses.iter().filter(|address| address.is_ipv4()) {
            assert_eq!(heard(address).as_deref(), Some("a word"), "{address}");
        }
        drop(ear);
        assert_eq!(heard(&here), None);
    }
}
