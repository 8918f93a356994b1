//! What the attesting program reports from inside a container, as values. It is our own program's word, and still data:
//! bounded where it was read, and a report that cannot be read proves nothing.

use serde::Deserialize;
use std::net::{SocketAddr, SocketAddrV6};

/// The whole report.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Who it is.
    pub identity: Identity,
    /// Of a process, as `soft:hard`.
    pub limits: Limits,
    /// Of all of them together.
    pub cgroup: Cgroup,
    /// Its place among others.
    pub namespaces: Namespaces,
    /// Names only.
    pub environment: Vec<String>,
    /// Mounted places, and what writing into each came to.
    pub places: Vec<Place>,
    /// Paths that should be hidden or read-only and are not.
    pub open_paths: Vec<String>,
    /// `null character`.
    pub devices: Vec<String>,
    /// Paths of the host or the engine that are there.
    pub present: Vec<String>,
    /// As it is from inside.
    pub network: Network,
    /// What was asked, and what came back.
    pub answers: Vec<Answer>,
}

/// Rows of `/proc/self/status`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "named as the kernel names them")]
pub struct Identity {
    pub uid: Option<String>,
    pub gid: Option<String>,
    pub groups: Option<String>,
    pub inheritable: Option<String>,
    pub permitted: Option<String>,
    pub effective: Option<String>,
    pub bounding: Option<String>,
    pub ambient: Option<String>,
    pub no_new_privileges: Option<String>,
    pub seccomp: Option<String>,
    pub seccomp_filters: Option<String>,
    pub security_label: Option<String>,
    pub home: Option<String>,
}

/// `soft:hard`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "named as in the policy")]
pub struct Limits {
    pub open_files: Option<String>,
    pub core_size: Option<String>,
    pub message_queues: Option<String>,
}

/// The control group's files.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cgroup {
    /// 1 or 2.
    pub version: u32,
    /// Bytes, or `max`.
    pub memory: Option<String>,
    /// Version 1: bytes of both.
    #[serde(default)]
    pub memory_and_swap: Option<String>,
    /// Version 2: bytes of swap alone.
    #[serde(default)]
    pub swap: Option<String>,
    /// Microseconds in each period; `max` or -1 is none.
    pub cpu_quota: Option<String>,
    /// Microseconds.
    pub cpu_period: Option<String>,
    /// Processes and threads.
    pub processes: Option<String>,
}

/// Its place among processes, users and machines.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "facts of the kernel")]
pub struct Namespaces {
    pub own_number: u32,
    pub first_process: Option<String>,
    pub processes: u32,
    pub users: Option<String>,
    pub host_name: Option<String>,
    pub kernel: Option<String>,
    pub kernel_version: Option<String>,
    pub core_handler: Option<String>,
}

/// A place, and what writing into it came to.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// In the container.
    pub path: String,
    /// `tmpfs`; none where nothing is mounted there.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// `rw,nosuid,…`
    #[serde(default)]
    pub options: Option<String>,
    /// Bytes; none where it has no bound of its own.
    #[serde(default)]
    pub size: Option<u64>,
    /// `written`, or why not.
    pub write: String,
    /// `run`, or why not; none where it was not tried.
    pub exec: Option<String>,
}

/// The network as it is from inside.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "facts of the kernel")]
pub struct Network {
    pub interfaces: Vec<String>,
    pub addresses: Vec<String>,
    pub routes: Vec<String>,
    pub resolvers: Vec<String>,
    pub ipv6_disabled: Option<String>,
}

/// What came back for one question.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// An address that was connected to.
    #[serde(default)]
    pub tcp: Option<String>,
    /// A name that was asked for.
    #[serde(default)]
    pub name: Option<String>,
    /// Of whom.
    #[serde(default)]
    pub server: Option<String>,
    /// `connected`, `refused`, `unreachable`, `silent`; `resolved`, `code 2`.
    pub outcome: String,
    /// The first bytes of who was connected to.
    #[serde(default)]
    pub heard: Option<String>,
}

impl Answer {
    /// The address that was connected to, its scope left out: a link-local address is tried on every interface.
    pub fn address(&self) -> Option<SocketAddr> {
        match self.tcp.as_deref()?.parse().ok()? {
            SocketAddr::V6(v6) => Some(SocketAddrV6::new(*v6.ip(), v6.port(), 0, 0).into()),
            v4 @ SocketAddr::V4(_) => Some(v4),
        }
    }

    /// Whether somebody was there.
    pub fn is_reached(&self) -> bool {
        matches!(self.outcome.as_str(), "connected" | "refused" | "resolved")
    }

    /// Whether the question was really asked, and nobody was there.
    pub fn is_unreached(&self) -> bool {
        matches!(self.outcome.as_str(), "silent" | "unreachable") || self.outcome.starts_with("code ")
    }
}

impl Place {
    /// Whether the mount has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().flat_map(|options| options.split(',')).any(|word| word == option)
    }
}
