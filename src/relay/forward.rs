//! `relay forward`: passes requests from the target's network to the gateway on the host, and answers back as they come.
//! Owns the bounds on what a target can hold open; knows no token and no policy. Each connection of the target's has one of
//! its own to the gateway, for as long as both are kept.
//!
//! Invariant: only requests whose framing has one reading go on, exactly as long as declared, and only to one address; a next
//! one only after the whole answer to the one before.

use crate::answer::Answer;
use crate::framing::{Body, BodyReader, Fault, HEAD_BYTES, Head, Incoming, KEPT_SECONDS, Timed};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The gateway could not be reached, and not even that could be told.
const UNREACHABLE: u8 = 69;
/// The address on the target's side could not be listened on.
const NO_LISTENER: u8 = 70;
/// How long the way to the gateway may take to come.
const WAY: Duration = Duration::from_secs(60);
/// How long the gateway may take to take a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a target's unread bytes are still taken after the answer, so that closing does not destroy it.
const LINGER: Duration = Duration::from_secs(2);
const STACK: usize = 128 << 10;

struct Settings {
    listen: SocketAddr,
    to: SocketAddr,
    nonce: String,
    connections: usize,
    /// For the whole head.
    head: Duration,
    /// Between two pieces of a body, and for one write.
    idle: Duration,
    /// For a next request. The gateway waits longer: a request never meets an end of its.
    kept: Duration,
}

pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(message) => {
            eprintln!("relay: {message}");
            return ExitCode::from(crate::USAGE);
        }
    };
    // Listening comes first: the gateway takes the probe as "from now on requests come through".
    let listener = match TcpListener::bind(settings.listen) {
        Ok(listener) => listener,
        Err(error) => {
            eprintln!("relay: cannot listen on {} (the target's side): {error}", settings.listen);
            return ExitCode::from(NO_LISTENER);
        }
    };
    wait_for_way(settings.listen, settings.to);
    if let Err(error) = probe(settings.to, &settings.nonce) {
        eprintln!(
            "relay: cannot reach the gateway at address {} port {} (from the relay's container to the host): {error}; \
             a host firewall that drops packets from Docker's bridges does this",
            settings.to.ip(),
            settings.to.port()
        );
        return give_up();
    }
    serve(&listener, &Arc::new(settings))
}

/// Stays, and says by its command line that it has given up: no target may start behind it. Ending by itself it would leave
/// the network that all relays share just when others come to it or go, and the engine loses count of them then. The host
/// takes it off that network first, when it is its turn.
fn give_up() -> ExitCode {
    let error = Command::new("/proc/self/exe").arg0("relay").arg(crate::GAVE_UP).exec();
    eprintln!("relay: cannot say that it has given up: {error}");
    ExitCode::from(UNREACHABLE)
}

/// The way to the gateway comes with the relays' network, which the container is attached to a moment after its start.
/// Until then the kernel would send from the target's side, to nobody.
fn wait_for_way(listen: SocketAddr, to: SocketAddr) {
    let begun = Instant::now();
    while source(to).is_none_or(|source| source.ip() == listen.ip() && source.ip() != to.ip()) {
        if begun.elapsed() > WAY {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// From which address the kernel would send; asking sends nothing.
fn source(to: SocketAddr) -> Option<SocketAddr> {
    let unbound =
        SocketAddr::new(if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }, 0);
    let socket = UdpSocket::bind(unbound).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok()
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map(String::as_str)
    };
    let needed = |name: &str| value(name).ok_or_else(|| format!("{name} is missing"));
    let address = |name: &str| needed(name)?.parse().map_err(|_| format!("{name} wants IP:PORT"));
    let number = |name: &str, default: u64| match value(name) {
        Some(text) => {
            text.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(|| format!("{name} wants a number from 1"))
        }
        None => Ok(default),
    };
    let nonce = needed("--nonce")?.to_owned();
    if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err("--nonce wants hexadecimal digits".to_owned());
    }
    Ok(Settings {
        listen: address("--listen")?,
        to: address("--to")?,
        nonce,
        connections: usize::try_from(number("--connections", 128)?).unwrap_or(128),
        head: Duration::from_secs(number("--head-seconds", 10)?),
        idle: Duration::from_secs(number("--idle-seconds", 60)?),
        kept: Duration::from_secs(number("--kept-seconds", KEPT_SECONDS)?),
    })
}

/// Shows the gateway that this relay is there, and itself that the gateway is.
fn probe(to: SocketAddr, nonce: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT)?;
    stream.set_read_timeout(Some(CONNECT))?;
    let request = format!(
        "GET /.crashlab/ready HTTP/1.1\r\nhost: gateway\r\nx-crashlab-nonce: {nonce}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = [0_u8; 12];
    stream.read_exact(&mut answer)?;
    if answer != *b"HTTP/1.1 204" {
        return Err(io::Error::other("something else than this run's gateway answers there"));
    }
    Ok(())
}

/// How many connections are open; a target that opens more waits in the kernel's queue.
struct Slots {
    counts: Mutex<Counts>,
    freed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// The one that the next connection will have is taken before it comes.
    taken: usize,
    used: usize,
}

struct Slot {
    slots: Arc<Slots>,
    is_used: bool,
}

impl Slots {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(self: &Arc<Self>, most: usize) -> Slot {
        let full = |counts: &mut Counts| counts.taken >= most;
        let mut counts = self.freed.wait_while(self.counts(), full).unwrap_or_else(PoisonError::into_inner);
        counts.taken += 1;
        Slot { slots: Arc::clone(self), is_used: false }
    }
}

impl Slot {
    /// A connection has come for it.
    fn fill(&mut self) {
        self.slots.counts().used += 1;
        self.is_used = true;
    }

    /// Whether more than half of `most` are used: a connection that waits for a next request must not keep out one that has
    /// one already.
    fn is_scarce(&self, most: usize) -> bool {
        self.slots.counts().used * 2 > most
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.slots.counts();
        counts.taken -= 1;
        counts.used -= usize::from(self.is_used);
        self.slots.freed.notify_one();
    }
}

fn serve(listener: &TcpListener, settings: &Arc<Settings>) -> ! {
    let slots = Arc::new(Slots { counts: Mutex::default(), freed: Condvar::new() });
    loop {
        let mut slot = slots.take(settings.connections);
        let Ok((client, _)) = listener.accept() else {
            // Out of descriptors or memory: nothing tells when there are some again.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        slot.fill();
        let settings = Arc::clone(settings);
        // Where no thread can be had, the connection is dropped with the closure.
        let _ = thread::Builder::new().stack_size(STACK).spawn(move || {
            handle(&client, &settings, &slot);
        });
    }
}

/// The target's connection, read so that the last byte that came stays in the kernel until more is wanted: closing over an
/// unread byte resets a connection, and the standard library has no other way to pass a reset on.
struct Held<'a> {
    timed: Timed<'a>,
    is_held: bool,
}

impl Held<'_> {
    /// Takes the byte that was kept back: from now on closing is an orderly end.
    fn release(&mut self) -> io::Result<()> {
        if self.is_held {
            self.timed.stream.read_exact(&mut [0])?;
            self.is_held = false;
        }
        Ok(())
    }
}

impl Read for Held<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.release()?;
        let count = self.timed.peek(buffer)?;
        if let Some(rest) = count.checked_sub(1) {
            self.timed.stream.read_exact(&mut buffer[..rest])?;
            self.is_held = true;
        }
        Ok(count)
    }
}

/// What came of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Came {
    Nothing,
    Answer,
    /// A whole one, and both connections may serve another.
    Kept,
    /// The gateway reset the connection before an answer: a drill, whose reset is the target's to see.
    Reset,
}

fn handle(client: &TcpStream, settings: &Settings, slot: &Slot) {
    let _ = client.set_nodelay(true);
    let _ = client.set_write_timeout(Some(settings.idle));
    let deadline = Instant::now() + settings.head;
    let timed = Timed { stream: client, idle: settings.head, deadline };
    let mut incoming = Incoming::new(Held { timed, is_held: false });
    let mut gateway = None;
    loop {
        let head = match incoming.head() {
            Ok(head) => head,
            Err(Fault::Malformed(why)) => {
                refuse(client, 400, "crashlab_malformed_request", why);
                return linger(client);
            }
            Err(_) => {
                let _ = incoming.source().release();
                return;
            }
        };
        let Some(open) = gateway.take().or_else(|| connect(settings.to)) else {
            refuse(client, 502, "crashlab_gateway_unreachable", "the gateway on the host cannot be reached");
            return linger(client);
        };
        // What came along behind the request is not taken for a next one: the answer says that it is the last.
        let is_alone = !is_followed(&head, incoming.buffered());
        let is_kept = is_alone && head.is_kept() && !slot.is_scarce(settings.connections);
        let came = exchange(client, &open, &mut incoming, &head, is_kept, settings);
        // Nor is what came since.
        if came != Came::Kept || incoming.buffered() > 0 {
            drop(open);
            if came != Came::Reset {
                linger(client);
            }
            return;
        }
        gateway = Some(open);
        incoming.source().timed.within(settings.kept);
        if !matches!(incoming.wait(), Ok(true)) {
            let _ = incoming.source().release();
            return;
        }
        incoming.source().timed.within(settings.head);
    }
}

/// Whether more has come than the request, as far as its head tells where that ends.
fn is_followed(head: &Head, buffered: usize) -> bool {
    match head.body {
        Body::None => buffered > 0,
        Body::Length(length) => buffered as u64 > length,
        Body::Chunked => false,
    }
}

fn connect(to: SocketAddr) -> Option<TcpStream> {
    let gateway = TcpStream::connect_timeout(&to, CONNECT).ok()?;
    let _ = gateway.set_nodelay(true);
    Some(gateway)
}

/// Passes one request on, and its answer back.
fn exchange(
    client: &TcpStream,
    gateway: &TcpStream,
    incoming: &mut Incoming<Held<'_>>,
    head: &Head,
    is_kept: bool,
    settings: &Settings,
) -> Came {
    // A body may take as long as it likes in all, as long as it moves: the gateway has the last word on that.
    incoming.source().timed.idle = settings.idle;
    incoming.source().timed.deadline = Instant::now() + Duration::from_secs(24 * 3600);
    let malformed = AtomicBool::new(false);
    let is_there = match head.body {
        Body::None => true,
        Body::Length(length) => length <= incoming.buffered() as u64,
        Body::Chunked => false,
    };
    let send = |incoming: &mut Incoming<Held<'_>>| {
        if let Err(fault) = upload(gateway, head, is_kept, incoming) {
            malformed.store(matches!(fault, Fault::Malformed(_)), Ordering::SeqCst);
            // What did not come whole must not look whole; an answer that is on its way still comes.
            let _ = gateway.shutdown(if matches!(fault, Fault::Io(_)) { Shutdown::Write } else { Shutdown::Both });
        }
    };
    // A body that has arrived already needs no thread of its own.
    let came = if is_there {
        send(incoming);
        download(gateway, client)
    } else {
        let (sending, sent) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let sender = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || {
                send(incoming);
                drop(sending);
            });
            let came = if sender.is_ok() { download(gateway, client) } else { Came::Nothing };
            if came == Came::Kept {
                // The gateway keeps a connection only where it has read the whole body: the sender is done.
                return came;
            }
            let _ = gateway.shutdown(Shutdown::Both);
            if came == Came::Answer {
                let _ = client.shutdown(Shutdown::Write);
            }
            // The sender notices at its next write that nobody listens; one that gets nothing to write is woken.
            if sent.recv_timeout(LINGER) == Err(RecvTimeoutError::Timeout) {
                let _ = client.shutdown(Shutdown::Read);
            }
            came
        })
    };
    if matches!(came, Came::Nothing | Came::Reset) && malformed.load(Ordering::SeqCst) {
        refuse(client, 400, "crashlab_malformed_request", "a chunk of the body is malformed");
        return Came::Answer;
    }
    came
}

/// Sends the head and exactly the declared body.
fn upload(mut gateway: &TcpStream, head: &Head, is_kept: bool, incoming: &mut Incoming<Held<'_>>) -> Result<(), Fault> {
    let mut out = head.write(is_kept);
    let is_waiting = incoming.buffered() == 0 || head.body == Body::None;
    let mut body: BodyReader<'_, Held<'_>> = incoming.body(head.body);
    // The gateway may answer without the body; where some of it is here already, one packet is enough.
    if is_waiting {
        gateway.write_all(&out)?;
        out.clear();
    }
    while let Some(bytes) = body.piece()? {
        match head.body {
            Body::Chunked => {
                out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            _ => out.extend_from_slice(bytes),
        }
        gateway.write_all(&out)?;
        out.clear();
    }
    if head.body == Body::Chunked {
        out.extend_from_slice(b"0\r\n\r\n");
    }
    Ok(gateway.write_all(&out)?)
}

/// Passes the answer on as it comes, to its end or to the connection's.
fn download(mut gateway: &TcpStream, mut client: &TcpStream) -> Came {
    let mut buffer = vec![0_u8; HEAD_BYTES];
    let (mut came, mut answer) = (Came::Nothing, Answer::new());
    loop {
        match gateway.read(&mut buffer) {
            Ok(0) => return came,
            Ok(count) => {
                came = Came::Answer;
                if client.write_all(&buffer[..count]).is_err() {
                    // The target hung up (or does not read): the gateway must notice at its next write.
                    let _ = gateway.shutdown(Shutdown::Both);
                    return came;
                }
                answer.feed(&buffer[..count]);
                if answer.is_over() {
                    return Came::Kept;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && came == Came::Nothing => {
                return Came::Reset;
            }
            Err(_) => return came,
        }
    }
}

fn refuse(mut client: &TcpStream, status: u16, code: &str, message: &str) {
    let body = format!(r#"{{"error":{{"message":"{message}","type":"invalid_request_error","code":"{code}"}}}}"#);
    let reason = if status == 400 { "Bad Request" } else { "Bad Gateway" };
    let head =
        format!("HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    let _ = client.write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes());
}

/// Takes what the target still sends, for a short while: closing with unread bytes would reset the connection and could
/// destroy the answer before the target has read it.
fn linger(client: &TcpStream) {
    let _ = client.shutdown(Shutdown::Write);
    let deadline = Instant::now() + LINGER;
    let mut rest = Timed { stream: client, idle: LINGER, deadline };
    let mut buffer = [0_u8; 8 << 10];
    while matches!(rest.read(&mut buffer), Ok(count) if count > 0) {}
}
