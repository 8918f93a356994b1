//! The host's side of a provider call: one agent a gateway, the real key on each request and on nothing else. Owns the
//! connection, what of a request's and an answer's head goes on, and how a call that fails is named.
//!
//! Invariant: no redirect is followed, no cookie kept, and the key leaves for the declared origin only; an answer that
//! holds the key, in any form, goes on without it.

use super::exchange::{Admitted, Answer, Failure, Pieces};
use super::resolve::Addresses;
use super::watch::{Call, WatchConnector};
use crate::policy::{Auth, GatewayLimits, GatewayRule, Upstream as Where};
use crate::redact::{Redactor, Stripped};
use crate::secret::HostSecret;
use anyhow::{Context as _, Result, bail};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::{self, BufRead as _, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::{
    ConnectProxyConnector, Connector as _, RustlsConnector, SocksConnector, TcpConnector,
};
use ureq::{Agent, Body, Error, Proxy, Timeout};

/// Bytes that are read from a connection at once.
const PIECE: usize = 16 * 1024;
/// Connections that are kept for the next call.
const KEPT: usize = 64;

/// Headers of an answer that go on to the target, by name or by how they begin. Not those that name the account.
const HEADERS: [&str; 12] = [
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-generation-id",
    "openai-processing-ms",
    "openai-version",
    "x-ms-request-id",
    "warning",
];
const BEGINNINGS: [&str; 2] = ["x-ratelimit-", "anthropic-ratelimit-"];

/// A provider as one gateway reaches it.
pub struct Upstream {
    agent: Agent,
    addresses: Addresses,
    origin: String,
    auth: Auth,
    secret: Option<HostSecret>,
    redactor: Redactor,
    limits: GatewayLimits,
}

impl Upstream {
    /// One a run, shared by all its trials.
    ///
    /// # Errors
    /// The gateway's upstream is a script.
    pub fn new(rule: &GatewayRule, secret: Option<HostSecret>) -> Result<Self> {
        let Where::Origin(origin) = &rule.upstream else { bail!("a script needs no connection") };
        let redactor = Redactor::new(secret.iter().cloned().collect())?;
        let addresses = Addresses::default();
        let agent = agent(origin, &rule.limits, addresses.clone()).with_context(|| format!("cannot reach {origin}"))?;
        let (origin, limits) = (origin.clone(), rule.limits.clone());
        Ok(Self { agent, addresses, origin, auth: rule.auth, secret, redactor, limits })
    }

    /// Sends an admitted request, and waits for the head of its answer.
    ///
    /// # Errors
    /// How the provider failed to answer; also a redirect, which is not followed.
    pub(super) fn send(&self, admitted: &Admitted) -> Result<Answer, Failure> {
        let call = Call::new(admitted.life.clone(), admitted.deadline, self.limits.first_byte);
        let watching = call.enter();
        let request = self.request(admitted).ok_or(Failure::Malformed)?;
        let sent =
            if admitted.bytes.is_empty() { self.agent.run(request.map(|_| ())) } else { self.agent.run(request) };
        drop(watching);
        let response = sent.map_err(|error| {
            self.addresses.forget();
            call.ended().unwrap_or_else(|| named(&error))
        })?;
        call.body(self.limits.idle);
        self.answer(response, call)
    }

    /// What is sent for an admitted request; none where it cannot be put so, which admission rules out.
    pub(super) fn request<'a>(&self, admitted: &'a Admitted) -> Option<Request<&'a [u8]>> {
        let query = admitted.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let mut request = Request::new(admitted.bytes.as_slice());
        *request.method_mut() = Method::from_bytes(admitted.method.as_bytes()).ok()?;
        *request.uri_mut() = format!("{}{}{query}", self.origin, admitted.path).parse().ok()?;
        let headers = request.headers_mut();
        for (name, value) in &admitted.headers {
            headers.insert(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?);
        }
        if !admitted.bytes.is_empty() {
            headers.insert("content-type", HeaderValue::from_static("application/json"));
        }
        if let Some(secret) = &self.secret {
            let (name, value) = credential(self.auth, secret.expose());
            let mut value = HeaderValue::from_str(&value).ok()?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Some(request)
    }

    fn answer(&self, response: Response<Body>, call: Arc<Call>) -> Result<Answer, Failure> {
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        if !matches!(status, 200..=299 | 400..=599) {
            return Err(Failure::Malformed);
        }
        let headers = self.headers(&head.headers);
        let watching = call.enter();
        let declared = body.content_length().filter(|_| !head.headers.contains_key("content-encoding"));
        let reader = decoded(&head.headers, body).map_err(|error| call.ended().unwrap_or_else(|| broken(&error)))?;
        drop(watching);
        let body = Streamed {
            reader,
            call,
            buffer: vec![0; PIECE],
            stripped: self.redactor.stripped("answer"),
            declared,
            is_over: false,
        };
        Ok(Answer { status, headers, body: Box::new(body) })
    }

    fn headers(&self, headers: &HeaderMap) -> Vec<(String, String)> {
        let goes_on = |name: &str| HEADERS.contains(&name) || BEGINNINGS.iter().any(|start| name.starts_with(start));
        let clean = |value: &HeaderValue| Some(self.redactor.text("answer", value.to_str().ok()?));
        let headers = headers.iter().filter(|(name, _)| goes_on(name.as_str()));
        headers.filter_map(|(name, value)| Some((name.as_str().to_owned(), clean(value)?))).collect()
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("origin", &self.origin).field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// The key's header.
fn credential(auth: Auth, key: &str) -> (&'static str, String) {
    match auth {
        Auth::Bearer => ("authorization", format!("Bearer {key}")),
        Auth::XApiKey => ("x-api-key", key.to_owned()),
        Auth::ApiKey => ("api-key", key.to_owned()),
        Auth::XGoogApiKey => ("x-goog-api-key", key.to_owned()),
    }
}

/// The host's proxy variables hold for https alone: what is on loopback is never asked for through a proxy (C11).
fn agent(origin: &str, limits: &GatewayLimits, addresses: Addresses) -> Result<Agent> {
    let is_remote = origin.starts_with("https://") && !is_loopback(origin);
    let connect = limits.first_byte.min(Duration::from_secs(30));
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(if is_remote { Proxy::try_from_env() } else { None })
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
        .user_agent(concat!("crashlab/", env!("CARGO_PKG_VERSION")))
        .accept("")
        .accept_encoding("identity")
        .timeout_resolve(Some(connect))
        .timeout_connect(Some(connect))
        .timeout_per_write(Some(limits.first_byte))
        .max_idle_connections(KEPT)
        .max_idle_connections_per_host(KEPT)
        .build();
    let connector =
        ().chain(SocksConnector::default())
            .chain(ConnectProxyConnector::default())
            .chain(TcpConnector::default())
            .chain(WatchConnector)
            .chain(RustlsConnector::default());
    Ok(Agent::with_parts(config, connector, addresses))
}

fn is_loopback(origin: &str) -> bool {
    let uri = origin.parse::<ureq::http::Uri>().ok();
    let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// How a call failed before its answer's head was there.
fn named(error: &Error) -> Failure {
    match error {
        Error::Timeout(Timeout::Resolve | Timeout::Connect) => Failure::Unreachable,
        Error::Timeout(_) => Failure::FirstByte,
        Error::Io(error) => match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe => Failure::Cut,
            _ => Failure::Unreachable,
        },
        Error::Protocol(_) | Error::Http(_) | Error::BadUri(_) | Error::LargeResponseHeader(..) => Failure::Malformed,
        _ => Failure::Unreachable,
    }
}

/// How a body failed.
fn broken(error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match (inner, error.kind()) {
        (Some(Error::Timeout(_)), _) | (_, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Failure::Idle,
        (Some(Error::Protocol(_)), _) | (None, io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => {
            Failure::Malformed
        }
        _ => Failure::Cut,
    }
}

/// A body without its content coding; `identity` was asked for, and some send another all the same.
fn decoded(headers: &HeaderMap, body: Body) -> io::Result<Box<dyn Read + Send>> {
    let mut codings = headers.get_all("content-encoding").iter();
    let coding = codings.next().map(|coding| coding.to_str().unwrap_or("?").trim().to_ascii_lowercase());
    if codings.next().is_some() {
        return Err(unknown_coding());
    }
    decoder(coding.as_deref(), Box::new(body.into_reader()))
}

/// A reader of what stands under a content coding.
pub(super) fn decoder(coding: Option<&str>, reader: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    match coding {
        None | Some("" | "identity") => Ok(reader),
        Some("gzip" | "x-gzip") => Ok(Box::new(MultiGzDecoder::new(reader))),
        Some("deflate") => {
            let mut reader = BufReader::new(reader);
            // The coding is zlib's by its definition, and raw by some servers'.
            let is_zlib = reader.fill_buf()?.first().is_some_and(|first| first & 0x0f == 8);
            Ok(if is_zlib { Box::new(ZlibDecoder::new(reader)) } else { Box::new(DeflateDecoder::new(reader)) })
        }
        Some(_) => Err(unknown_coding()),
    }
}

fn unknown_coding() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an unknown content coding")
}

/// An answer's body from its connection.
struct Streamed {
    reader: Box<dyn Read + Send>,
    call: Arc<Call>,
    buffer: Vec<u8>,
    stripped: Stripped,
    declared: Option<u64>,
    is_over: bool,
}

impl Pieces for Streamed {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        let watching = self.call.enter();
        while !self.is_over {
            let count = match self.reader.read(&mut self.buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.call.ended().unwrap_or_else(|| broken(&error))),
            };
            self.is_over = count == 0;
            if !self.stripped.feed(&self.buffer[..count], self.is_over).is_empty() {
                drop(watching);
                return Ok(Some(self.stripped.last()));
            }
        }
        Ok(None)
    }

    fn declared(&self) -> Option<u64> {
        self.declared
    }
}
