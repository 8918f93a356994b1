//! The network as it is from here: interfaces, addresses, routes, resolvers, and what answers when it is asked. A refusal
//! counts as an answer: somebody sent it.

use super::json::Json;
use crate::kernel_text::{limit, local_v4, local_v6, routes_v4, routes_v6};
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Askers at a time.
const ASKERS: usize = 32;
/// Files that are open beside the askers' sockets.
const FILES: usize = 8;
/// How much of what is heard is reported.
const HEARD: usize = 64;

/// 1 where no interface, old or new, has an IPv6 address; absent from a kernel without IPv6.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/all/disable_ipv6";

/// What was asked for.
pub(super) struct Asked {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) names: Vec<String>,
    pub(super) patience: Duration,
}

pub(super) fn network() -> Json {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = local_v4(&read("/proc/net/fib_trie")).into_iter().map(|address| address.to_string());
    let v6 = local_v6(&read("/proc/net/if_inet6")).into_iter().map(|(address, name)| format!("{address} dev {name}"));
    let routes = [routes_v4(&read("/proc/net/route")), routes_v6(&read("/proc/net/ipv6_route"))].concat();
    Json::map([
        ("interfaces", Json::texts(interfaces())),
        ("addresses", Json::texts(v4.chain(v6))),
        ("routes", Json::texts(routes)),
        ("resolvers", Json::texts(resolvers())),
        ("ipv6_disabled", Json::from(fs::read_to_string(NO_IPV6).ok().map(|text| text.trim().to_owned()))),
    ])
}

fn interfaces() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    // Some kernels put idle tunnels into every network namespace: an interface that is not up carries nothing, and a
    // target that has no capability cannot raise one. Files such as bonding_masters, which are no interface, have no flags.
    let up = |name: &String| {
        let flags = fs::read_to_string(format!("/sys/class/net/{name}/flags")).unwrap_or_default();
        u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).is_ok_and(|flags| flags & 1 == 1)
    };
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(up).collect();
    names.sort();
    names
}

fn resolvers() -> Vec<String> {
    let text = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let server = |line: &str| line.strip_prefix("nameserver").map(|rest| rest.trim().to_owned());
    text.lines().filter_map(|line| server(line.trim())).collect()
}

enum Question {
    Connect(SocketAddr),
    Resolve(SocketAddr, String),
}

/// Asks everything at the same time where threads can be had, one after the other where they cannot.
pub(super) fn answers(asked: &Asked) -> Json {
    let mut questions: Vec<Question> = asked.addresses.iter().flat_map(scoped).map(Question::Connect).collect();
    let mut servers: Vec<IpAddr> = resolvers().iter().filter_map(|text| text.parse().ok()).collect();
    let docker: IpAddr = [127, 0, 0, 11].into();
    if !servers.contains(&docker) {
        servers.push(docker);
    }
    for name in &asked.names {
        questions.extend(servers.iter().map(|server| Question::Resolve((*server, 53).into(), name.clone())));
    }
    let open = Mutex::new(questions);
    let found = Mutex::new(Vec::new());
    let ask = || {
        while let Some(question) = open.lock().ok().and_then(|mut open| open.pop()) {
            let answer = question.ask(asked.patience);
            if let Ok(mut found) = found.lock() {
                found.push(answer);
            }
        }
    };
    std::thread::scope(|threads| {
        for _ in 1..askers() {
            // Where no thread can be had this one asks everything.
            if std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(threads, ask).is_err() {
                break;
            }
        }
        ask();
    });
    Json::List(found.into_inner().unwrap_or_default())
}

/// A sandbox may have few open files; few processes show when a thread is made.
fn askers() -> usize {
    let table = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let files = limit(&table, "Max open files").and_then(|(soft, _)| soft.parse::<usize>().ok());
    files.map_or(ASKERS, |files| files.saturating_sub(FILES).min(ASKERS))
}

/// A link-local address is one on each interface.
fn scoped(address: &SocketAddr) -> Vec<SocketAddr> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            let index = |name: &String| fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok();
            let indices = interfaces().into_iter().filter(|name| name != "lo");
            let indices = indices.filter_map(|name| index(&name)?.trim().parse().ok());
            indices.map(|index| SocketAddr::V6(SocketAddrV6::new(*v6.ip(), v6.port(), 0, index))).collect()
        }
        _ => vec![*address],
    }
}

impl Question {
    fn ask(&self, patience: Duration) -> Json {
        match self {
            Question::Connect(address) => {
                let (outcome, heard) = connected(address, patience);
                Json::map([
                    ("tcp", Json::text(address.to_string())),
                    ("outcome", outcome.into()),
                    ("heard", heard.into()),
                ])
            }
            Question::Resolve(server, name) => Json::map([
                ("name", name.as_str().into()),
                ("server", Json::text(server.to_string())),
                ("outcome", resolved(*server, name, patience).into()),
            ]),
        }
    }
}

fn connected(address: &SocketAddr, patience: Duration) -> (String, Option<String>) {
    match TcpStream::connect_timeout(address, patience) {
        Ok(mut stream) => {
            let mut heard = [0_u8; HEARD];
            let _ = stream.set_read_timeout(Some(patience));
            let count = stream.read(&mut heard).unwrap_or(0);
            ("connected".to_owned(), Some(String::from_utf8_lossy(&heard[..count]).into_owned()))
        }
        Err(error) => (outcome_of(&error), None),
    }
}

fn outcome_of(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => "refused".to_owned(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable | ErrorKind::AddrNotAvailable => {
            "unreachable".to_owned()
        }
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "silent".to_owned(),
        _ => format!("failed: {error}"),
    }
}

/// Asks one resolver for one name, once. Static programs have no resolver of their own to rely on.
fn resolved(server: SocketAddr, name: &str, patience: Duration) -> String {
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let asked = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(server)?;
        socket.send(&query(name))?;
        let deadline = Instant::now() + patience;
        let mut answer = [0_u8; 512];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok("silent".to_owned());
            }
            socket.set_read_timeout(Some(left))?;
            let count = socket.recv(&mut answer)?;
            // Number, flags (the low half of the fourth byte is the code), questions, answers.
            if count >= 12 && answer[..2] == QUERY_NUMBER {
                let answers = u16::from_be_bytes([answer[6], answer[7]]);
                return Ok(if answers > 0 { "resolved".to_owned() } else { format!("code {}", answer[3] & 15) });
            }
        }
    });
    asked.unwrap_or_else(|error| outcome_of(&error))
}

const QUERY_NUMBER: [u8; 2] = [0x43, 0x4c];

/// A question for the address of a name, recursion wanted.
fn query(name: &str) -> Vec<u8> {
    let mut bytes = [&QUERY_NUMBER[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label);
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}
