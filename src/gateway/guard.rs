//! The door on the host: one listener for a run. Owns who may connect, how much anybody can hold open, the framing, and
//! that a token is looked at before a body is read. Judges no request beyond that.
//!
//! A thread for each connection and our own framing is all there is: handing checked requests on to tiny_http over a Unix
//! socket was measured at twice the latency and half the throughput, and puts a second parser on the same bytes.
//!
//! Invariant: a request without a live token of the peer's own trial starts nothing: no host process, no provider call.

use super::evidence::Call;
use super::exchange::Denied;
use super::reply::Reply;
use super::token::Ring;
use super::trial::{Door, Opens, Trial};
use super::{forward, operations_http};
use crate::policy::Auth;
use crate::relay::framing::{Body, Fault, Head, Incoming, KEPT_SECONDS, Timed};
use rustix::net::sockopt::set_socket_linger;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, Read as _, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// For the whole head.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Between two pieces of a body.
const BODY_IDLE: Duration = Duration::from_secs(30);
/// For the whole body.
const BODY_TIME: Duration = Duration::from_secs(120);
/// How long a connection waits for its next request. Longer than the relay does, so that it is the relay that ends it: no
/// request is on its way then.
const KEPT_TIME: Duration = Duration::from_secs(KEPT_SECONDS + 30);
/// For one write: a target that does not read holds its call open no longer.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// How long, and how much of, an unread body is still taken after an answer, so that closing does not destroy it.
const DRAIN_TIME: Duration = Duration::from_secs(2);
const DRAIN_BYTES: u64 = 16 << 20;
/// Connections of one relay (which allows its target fewer).
const PEER_CONNECTIONS: usize = 160;
/// Connections of a run, where there are descriptors for twice as many.
const ALL_CONNECTIONS: u64 = 4096;
/// A body beyond this is read as JSON in its turn: lists of small values take fifty times as much memory as bytes.
const LARGE_BODY: usize = 64 << 10;
/// Whose turn it is.
static TURN: Mutex<()> = Mutex::new(());
/// Address space only: what is not touched takes no memory.
const STACK: usize = 1 << 20;
/// The path that relays ask at their start.
const READY: &str = "/.crashlab/ready";

/// Whose connections are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerRule {
    /// The relay network's containers: inside the subnet, and not the address that the host itself has there.
    Subnet {
        /// The network's address.
        network: Ipv4Addr,
        /// Its prefix length.
        prefix: u8,
        /// The bridge's own address: the source of connections of host processes.
        host: Ipv4Addr,
    },
    /// This machine, over loopback: for tests.
    Loopback,
}

impl PeerRule {
    /// Whether a peer with this address may speak.
    pub fn admits(&self, peer: IpAddr) -> bool {
        match (self, peer) {
            (PeerRule::Subnet { network, prefix, host }, IpAddr::V4(peer)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from((*prefix).min(32))).unwrap_or(0);
                peer.to_bits() & mask == network.to_bits() & mask && peer != *host
            }
            (PeerRule::Subnet { .. }, IpAddr::V6(_)) => false,
            (PeerRule::Loopback, peer) => peer.is_loopback(),
        }
    }
}

/// What all connections of a run share.
pub(super) struct Shared {
    pub(super) ring: Ring<Opens>,
    pub(super) trials: RwLock<Vec<Arc<Trial>>>,
    pub(super) closed: AtomicBool,
    peers: PeerRule,
    room: Room,
    connections: Mutex<HashMap<u64, Connection>>,
    next: AtomicU64,
}

/// What the connections of a run may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// How many there are at once.
    pub(super) connections: u64,
    /// How long one waits for its next request.
    pub(super) kept: Duration,
}

impl Room {
    /// As much as this process has.
    pub(super) fn whole() -> Self {
        Self { connections: most_connections(), kept: KEPT_TIME }
    }
}

struct Connection {
    peer: IpAddr,
    /// The nonce of the trial whose token it showed.
    trial: Option<String>,
    stream: Arc<TcpStream>,
}

impl Shared {
    pub(super) fn new(peers: PeerRule, room: Room) -> Self {
        Self {
            ring: Ring::new(),
            trials: RwLock::default(),
            closed: AtomicBool::new(false),
            peers,
            room,
            connections: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    fn connections(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends every connection of a trial, and those of its relay that showed no token yet.
    pub(super) fn hang_up(&self, trial: &Trial) {
        let relay = trial.relay.get();
        for connection in self.connections().values() {
            let is_its = match &connection.trial {
                Some(nonce) => *nonce == trial.nonce,
                None => Some(connection.peer) == relay,
            };
            if is_its {
                let _ = connection.stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Ends every connection.
    pub(super) fn hang_up_all(&self) {
        for connection in self.connections().values() {
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
    }

    /// Registers a connection, unless there are too many.
    fn enter(&self, peer: IpAddr, stream: &Arc<TcpStream>) -> Option<u64> {
        let mut connections = self.connections();
        let of_peer = connections.values().filter(|connection| connection.peer == peer).count();
        if of_peer >= PEER_CONNECTIONS || connections.len() as u64 >= self.room.connections {
            return None;
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        connections.insert(id, Connection { peer, trial: None, stream: Arc::clone(stream) });
        Some(id)
    }

    /// Notes whose connection it is. False where too many are open for one to be kept that serves nobody: connections that
    /// wait for a next request must never take the place of those that have one.
    fn belongs_to(&self, id: u64, trial: &Trial) -> bool {
        let mut connections = self.connections();
        let is_roomy = connections.len() as u64 * 2 <= self.room.connections;
        if let Some(connection) = connections.get_mut(&id)
            && connection.trial.as_ref() != Some(&trial.nonce)
        {
            connection.trial = Some(trial.nonce.clone());
        }
        is_roomy
    }

    fn leave(&self, id: u64) {
        self.connections().remove(&id);
    }
}

/// Half of this process's descriptors: hostile targets must not take those that files and docker clients need. The soft
/// limit is often 1,024 for programs that use select; it is raised as far as needed.
fn most_connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = 2 * ALL_CONNECTIONS;
    let allowed = limit.maximum.unwrap_or(wanted).min(wanted);
    let now = limit.current.unwrap_or(wanted);
    let raised = Rlimit { current: Some(allowed), maximum: limit.maximum };
    let descriptors = if now < allowed && setrlimit(Resource::Nofile, raised).is_ok() { allowed } else { now };
    (descriptors / 2).min(ALL_CONNECTIONS)
}

/// Takes connections until the gateway is closed.
pub(super) fn listen(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.closed.load(Ordering::SeqCst) {
        let Ok((stream, peer)) = listener.accept() else {
            // Out of descriptors: nothing tells when there are some again.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let (peer, stream) = (peer.ip().to_canonical(), Arc::new(stream));
        if !shared.peers.admits(peer) {
            continue;
        }
        let Some(id) = shared.enter(peer, &stream) else { continue };
        let (its_shared, its_stream) = (Arc::clone(shared), stream);
        let serve = move || {
            handle(&its_shared, &its_stream, peer, id);
            its_shared.leave(id);
        };
        if std::thread::Builder::new().name("gateway".to_owned()).stack_size(STACK).spawn(serve).is_err() {
            shared.leave(id);
        }
    }
}

/// A request whose head was read, and whose body can be.
pub(super) struct Request<'a> {
    pub(super) head: Head,
    incoming: Incoming<Timed<'a>>,
    /// Its connection may serve another one.
    is_kept: bool,
}

/// Why a body was not read.
#[derive(Debug)]
pub(super) enum BodyFault {
    /// Beyond the limit.
    TooLarge,
    /// Malformed, cut or too slow.
    Broken(String),
}

/// Does what makes JSON of a body of so many bytes; of large ones one at a time, whatever arrives at once. It must not wait.
pub(super) fn in_turn<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let _turn = (bytes > LARGE_BODY).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
    work()
}

impl Request<'_> {
    /// Reads the whole body, at most `limit` bytes. Memory grows with what arrives, not with what is declared. Only an answer
    /// after this can leave the connection open, and not where something came along behind the body.
    pub(super) fn body(&mut self, limit: u64, reply: &mut Reply) -> Result<Vec<u8>, BodyFault> {
        if matches!(self.head.body, Body::Length(length) if length > limit) {
            return Err(BodyFault::TooLarge);
        }
        if self.head.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
            let mut stream = self.incoming.source().stream;
            let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        self.incoming.source().idle = BODY_IDLE;
        self.incoming.source().deadline = Instant::now() + BODY_TIME;
        let mut bytes = Vec::new();
        let mut body = self.incoming.body(self.head.body);
        while let Some(piece) = body.piece().map_err(|fault| BodyFault::Broken(fault.to_string()))? {
            if (bytes.len() + piece.len()) as u64 > limit {
                return Err(BodyFault::TooLarge);
            }
            bytes.extend_from_slice(piece);
        }
        if self.is_kept && self.incoming.buffered() == 0 {
            reply.keep();
        }
        Ok(bytes)
    }
}

fn handle(shared: &Shared, stream: &Arc<TcpStream>, peer: IpAddr, id: u64) {
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(WRITE_TIME));
    let timed = Timed { stream, idle: HEAD_TIME, deadline: Instant::now() + HEAD_TIME };
    let mut incoming = Incoming::new(timed);
    loop {
        let mut reply = Reply::new(Wire(Arc::clone(stream)));
        let head = match incoming.head() {
            Ok(head) => head,
            Err(Fault::Malformed(why)) => {
                let body = json!({"error": {"code": "crashlab_malformed_request", "message": why}});
                let _ = reply.json(400, &body);
                return drain(stream);
            }
            Err(_) => return,
        };
        let mut request = Request { head, incoming, is_kept: false };
        let is_read = serve(shared, peer, id, &mut request, &mut reply);
        incoming = request.incoming;
        if !is_read || incoming.buffered() > 0 {
            return drain(stream);
        }
        if !reply.is_kept() || !is_followed(&mut incoming, shared.room.kept) {
            return;
        }
    }
}

/// Waits for a next request on a connection that was kept.
fn is_followed(incoming: &mut Incoming<Timed<'_>>, time: Duration) -> bool {
    incoming.source().within(time);
    let is_there = matches!(incoming.wait(), Ok(true));
    incoming.source().within(HEAD_TIME);
    is_there
}

/// Serves one request; false where a body may be left unread.
fn serve(shared: &Shared, peer: IpAddr, id: u64, request: &mut Request<'_>, reply: &mut Reply) -> bool {
    if request.head.target == READY {
        return ready(shared, peer, &request.head, reply);
    }
    let opens = shared.ring.find(&presented(&request.head));
    // A token opens only behind its own trial's relay: one that leaks into another trial opens nothing there.
    let Some(Opens { trial, door }) = opens.filter(|opens| opens.trial.relay.get() == Some(peer)) else {
        unauthorized(shared, peer, &request.head, reply);
        return request.head.body == Body::None;
    };
    request.is_kept = shared.belongs_to(id, &trial) && request.head.is_kept();
    if trial.life.is_over() {
        return false;
    }
    match door {
        Door::Operations => match &trial.operations {
            Some(operations) => operations_http::serve(operations, request, reply),
            None => false,
        },
        Door::Provider(index) => match trial.providers.get(index) {
            Some(door) => forward::serve(&trial, door, request, reply),
            None => false,
        },
    }
}

/// A relay shows the nonce of its trial: from now on its address is the trial's.
fn ready(shared: &Shared, peer: IpAddr, head: &Head, reply: &mut Reply) -> bool {
    let nonce = head.header("x-crashlab-nonce").unwrap_or_default().as_bytes();
    let trials = shared.trials.read().unwrap_or_else(PoisonError::into_inner);
    let known = trials.iter().find(|trial| bool::from(trial.nonce.as_bytes().ct_eq(nonce)));
    let status = if known.is_some_and(|trial| trial.relay.set(peer)) { 204 } else { 401 };
    let _ = reply.head(status, &[], Some(0));
    head.body == Body::None
}

/// The credentials that a request presents, in each of the ways that a gateway may want.
fn presented(head: &Head) -> Vec<(Auth, &str)> {
    let mut found = Vec::new();
    for (name, value) in &head.headers {
        let auth = match name.to_ascii_lowercase().as_str() {
            "authorization" => Auth::Bearer,
            "x-api-key" => Auth::XApiKey,
            "api-key" => Auth::ApiKey,
            "x-goog-api-key" => Auth::XGoogApiKey,
            _ => continue,
        };
        let value = match auth {
            Auth::Bearer => match value.split_once(' ') {
                Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim_start(),
                _ => continue,
            },
            _ => value.as_str(),
        };
        found.push((auth, value));
    }
    found
}

/// Whether a request presents anything in this way.
pub(super) fn shows(head: &Head, auth: Auth) -> bool {
    presented(head).iter().any(|(shown, _)| *shown == auth)
}

/// 401 in the form of whatever the request seems to be meant for, without a look at its body.
fn unauthorized(shared: &Shared, peer: IpAddr, head: &Head, reply: &mut Reply) {
    let message = "the token is missing, is not one of this trial, or is not presented as this gateway wants it";
    let denied = Denied::new("token", "crashlab_unauthorized", message).status(401);
    let trials = shared.trials.read().unwrap_or_else(PoisonError::into_inner);
    let trial = trials.iter().find(|trial| trial.relay.get() == Some(peer)).cloned();
    drop(trials);
    match trial.as_ref().and_then(|trial| Some((trial, trial.meant(head)?))) {
        Some((trial, door)) => {
            trial.evidence.refused(&Call::of(door, head), &denied);
            forward::deny(door.plan.dialect(), &denied, reply);
        }
        None => {
            let _ = reply.json(401, &json!({"error": {"code": denied.code, "message": denied.message}}));
        }
    }
}

fn drain(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut rest = Timed { stream, idle: DRAIN_TIME, deadline: Instant::now() + DRAIN_TIME };
    let mut buffer = vec![0_u8; 16 << 10];
    let mut taken = 0;
    while let Ok(count @ 1..) = rest.read(&mut buffer) {
        taken += count as u64;
        if taken > DRAIN_BYTES {
            return;
        }
    }
}

/// The writing half of a shared connection.
struct Wire(Arc<TcpStream>);

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl super::reply::Connection for Wire {
    fn reset(&self) {
        // Closing without lingering discards what is unsent and sends a reset. Where the option cannot be set, the target
        // still gets no answer.
        let _ = set_socket_linger(&*self.0, Some(Duration::ZERO));
    }
}
