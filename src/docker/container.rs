//! Containers: create, start, kill, look, remove. Ids only, except where an intent got no identity.

use super::{Docker, DockerError, args, lines};
use crate::ids::ContainerId;
use crate::process::Child;
use serde::Deserialize;
use std::collections::BTreeMap;

/// A container that was created, and what the client warned about meanwhile.
#[derive(Debug, Clone)]
pub struct CreatedContainer {
    /// Its full id.
    pub id: ContainerId,
    /// Each line is a wish that the engine did not grant.
    pub warnings: Vec<String>,
}

/// What the engine says of a container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ContainerState {
    /// Its full id.
    pub id: ContainerId,
    /// With a leading slash.
    pub name: String,
    /// RFC 3339.
    pub created: String,
    /// The image's id.
    pub image: String,
    /// Running or not, and how it ended.
    pub state: Life,
    /// As configured.
    pub config: Config,
    /// Bounds and isolation.
    pub host_config: HostConfig,
    /// Where it is attached.
    pub network_settings: NetworkSettings,
    /// What is mounted.
    #[serde(default)]
    pub mounts: Vec<Mount>,
}

/// Running or not, and how it ended.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Life {
    /// `created`, `running`, `exited`, …
    pub status: String,
    /// Whether its first process lives.
    pub running: bool,
    /// 128 and the signal's number where a signal ended it.
    pub exit_code: i32,
    /// Whether the kernel killed any of its processes for memory.
    #[serde(rename = "OOMKilled")]
    pub oom_killed: bool,
    /// RFC 3339; year 1 where it was never started.
    pub started_at: String,
    /// RFC 3339.
    pub finished_at: String,
    /// The engine's trouble with it.
    #[serde(default)]
    pub error: String,
}

/// As configured.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Config {
    /// `UID:GID`.
    pub user: String,
    /// `NAME=VALUE`.
    #[serde(default)]
    pub env: Option<Vec<String>>,
    /// The scope's and the image's.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// Program.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    /// Arguments.
    #[serde(default)]
    pub cmd: Option<Vec<String>>,
    /// Where it starts.
    #[serde(default)]
    pub working_dir: String,
    /// What the engine runs in it from time to time.
    #[serde(default)]
    pub healthcheck: Option<Healthcheck>,
    /// What a stop sends.
    #[serde(default)]
    pub stop_signal: String,
}

/// What the engine runs in a container from time to time.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Healthcheck {
    /// `NONE` where there is to be none, whatever the image says.
    #[serde(default)]
    pub test: Option<Vec<String>>,
}

/// Bounds and isolation as the engine kept them.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostConfig {
    /// Bytes.
    pub memory: i64,
    /// Bytes, memory included.
    pub memory_swap: i64,
    /// Billionths of a CPU.
    pub nano_cpus: i64,
    /// Processes.
    #[serde(default)]
    pub pids_limit: Option<i64>,
    /// Read-only root.
    pub readonly_rootfs: bool,
    /// Never true here.
    pub privileged: bool,
    /// `ALL`.
    #[serde(default)]
    pub cap_drop: Option<Vec<String>>,
    /// Empty.
    #[serde(default)]
    pub cap_add: Option<Vec<String>>,
    /// `no-new-privileges`.
    #[serde(default)]
    pub security_opt: Option<Vec<String>>,
    /// Network's id, or `none`.
    pub network_mode: String,
    /// `private`.
    pub ipc_mode: String,
    /// Empty.
    pub pid_mode: String,
    /// Empty.
    #[serde(rename = "UTSMode")]
    pub uts_mode: String,
    /// Empty.
    pub userns_mode: String,
    /// Bytes.
    pub shm_size: i64,
    /// Bounds of a process.
    #[serde(default)]
    pub ulimits: Option<Vec<Ulimit>>,
    /// Place and options.
    #[serde(default)]
    pub tmpfs: Option<BTreeMap<String, String>>,
    /// None.
    pub log_config: LogConfig,
    /// Which runtime.
    #[serde(default)]
    pub runtime: String,
    /// Empty.
    #[serde(default)]
    pub devices: Option<Vec<serde_json::Value>>,
    /// Empty.
    #[serde(default)]
    pub binds: Option<Vec<String>>,
    /// Whether a small init is the first process.
    #[serde(default)]
    pub init: Option<bool>,
    /// The resolvers that it is told of.
    #[serde(default)]
    pub dns: Option<Vec<String>>,
    /// `.`: the search list that names none of the host's domains.
    #[serde(default)]
    pub dns_search: Option<Vec<String>>,
    /// `gateway:10.0.0.2`.
    #[serde(default)]
    pub extra_hosts: Option<Vec<String>>,
    /// Kernel settings of its own namespaces.
    #[serde(default)]
    pub sysctls: Option<BTreeMap<String, String>>,
    /// Empty.
    #[serde(default)]
    pub group_add: Option<Vec<String>>,
    /// Empty.
    #[serde(default)]
    pub port_bindings: Option<BTreeMap<String, serde_json::Value>>,
    /// Never true here.
    #[serde(default)]
    pub publish_all_ports: bool,
    /// Empty: GPUs and their like.
    #[serde(default)]
    pub device_requests: Option<Vec<serde_json::Value>>,
    /// Empty.
    #[serde(default)]
    pub device_cgroup_rules: Option<Vec<String>>,
    /// Never true here.
    #[serde(default)]
    pub oom_kill_disable: Option<bool>,
}

/// A bound of a process.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "PascalCase")]
pub struct Ulimit {
    /// `nofile`, …
    pub name: String,
    /// The most it may be raised to.
    pub hard: i64,
    /// What it starts with.
    pub soft: i64,
}

/// Where the engine logs.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct LogConfig {
    /// `none`.
    #[serde(rename = "Type")]
    pub driver: String,
}

/// Where a container is attached.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NetworkSettings {
    /// By network name.
    #[serde(default)]
    pub networks: BTreeMap<String, Attached>,
}

/// One attachment.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Attached {
    /// The network's id.
    #[serde(rename = "NetworkID", default)]
    pub network: String,
    /// Empty before the start.
    #[serde(rename = "IPAddress", default)]
    pub address: String,
    /// What was asked for; none where the engine chooses.
    #[serde(rename = "IPAMConfig", default)]
    pub asked: Option<Asked>,
}

impl Attached {
    /// The address that was asked for, and that the engine keeps to; none where it chooses.
    pub fn fixed_address(&self) -> Option<&str> {
        self.asked.as_ref().map(|asked| asked.address.as_str()).filter(|address| !address.is_empty())
    }
}

/// The address that an attachment is to have.
#[derive(Debug, Clone, Deserialize)]
pub struct Asked {
    /// Empty where the engine chooses.
    #[serde(rename = "IPv4Address", default)]
    pub address: String,
}

/// What is mounted.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Mount {
    /// `bind`, `volume`, `tmpfs`.
    #[serde(rename = "Type")]
    pub kind: String,
    /// On the host.
    #[serde(default)]
    pub source: String,
    /// In the container.
    pub destination: String,
    /// Whether it can be written.
    #[serde(rename = "RW")]
    pub writable: bool,
}

impl Docker {
    /// Creates a container; the id is the last line that the client prints.
    ///
    /// # Errors
    /// A [`DockerError`]; the container may exist all the same (its intent resolves that).
    pub fn create_container(&self, spec: &args::ContainerSpec) -> Result<CreatedContainer, DockerError> {
        self.create(args::create_container(spec))
    }

    /// Creates a relay's container and starts it.
    ///
    /// # Errors
    /// As [`Docker::create_container`].
    pub fn run_relay(&self, spec: &args::ContainerSpec) -> Result<CreatedContainer, DockerError> {
        self.create(args::run_relay(spec))
    }

    fn create(&self, args: Vec<String>) -> Result<CreatedContainer, DockerError> {
        let finished = self.call(args)?;
        let id = lines(&finished.stdout).pop().unwrap_or_default();
        let id = ContainerId::try_from(id).map_err(|error| DockerError::unreadable("docker create", error))?;
        Ok(CreatedContainer { id, warnings: lines(&finished.stderr) })
    }

    /// Starts it and hands over its streams; the client ends when the container does.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn start_attached(&self, container: &ContainerId, interactive: bool) -> Result<Child, DockerError> {
        self.spawn(args::start_attached(container.as_str(), interactive))
    }

    /// Starts it on this process's terminal, until it ends or `until` says so.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn start_on_terminal(&self, container: &ContainerId, until: impl Fn() -> bool) -> Result<(), DockerError> {
        let program = self.program(args::start_attached(container.as_str(), true));
        let verb = super::verb_of(&program);
        program.run_on_terminal(until).map(drop).map_err(|error| DockerError::no_answer(verb, error))
    }

    /// Kills everything in it. A container that does not run is no error.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn kill(&self, container: &ContainerId) -> Result<(), DockerError> {
        match self.call(args::kill(container.as_str())) {
            Err(DockerError::Refused { complaint, .. }) if complaint.contains("is not running") => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Whether the engine told that the container had no memory left, between these moments (RFC 3339); a call that lasts
    /// until the later one.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn ran_out_of_memory(&self, container: &ContainerId, since: &str, until: &str) -> Result<bool, DockerError> {
        let finished = self.call(args::memory_events(container.as_str(), since, until))?;
        Ok(!lines(&finished.stdout).is_empty())
    }

    /// The command lines of what runs in it; none where it does not run. The engine asks the host's `ps`.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn processes_in(&self, container: &ContainerId) -> Result<Option<String>, DockerError> {
        match self.call(args::processes(container.as_str())) {
            Err(DockerError::Refused { complaint, .. }) if complaint.contains("is not running") => Ok(None),
            Err(error) if error.is_not_found() => Ok(None),
            answer => answer.map(|finished| Some(String::from_utf8_lossy(&finished.stdout).into_owned())),
        }
    }

    /// What the engine says of these containers; one that is gone is missing from the answer.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn inspect_containers(&self, ids: &[&ContainerId]) -> Result<Vec<ContainerState>, DockerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        self.inspect("container", &names)
    }

    /// One object a line; what is not there is not in the answer.
    pub(super) fn inspect<T: serde::de::DeserializeOwned>(
        &self,
        kind: &str,
        ids: &[&str],
    ) -> Result<Vec<T>, DockerError> {
        let verb = format!("docker inspect ({kind})");
        let stdout = match self.call_keeping_output(args::inspect(kind, ids)) {
            // Success means that each was found: an answer that lacks one is no word that it is gone.
            (stdout, None) if lines(&stdout).len() != ids.len() => {
                return Err(DockerError::unreadable(&verb, "it lacks an object that it found"));
            }
            (stdout, None) => stdout,
            (stdout, Some(error)) if error.is_not_found() => stdout,
            (_, Some(error)) => return Err(error),
        };
        let parse = |line: &String| serde_json::from_str(line).map_err(|error| DockerError::unreadable(&verb, error));
        lines(&stdout).iter().map(parse).collect()
    }

    /// `docker inspect` prints what it found and fails for the rest.
    fn call_keeping_output(&self, args: Vec<String>) -> (Vec<u8>, Option<DockerError>) {
        let program = self.program(args);
        let verb = super::verb_of(&program);
        let _span = self.trace.span(|| verb.clone());
        let (finished, error) = self.ended(verb, program.run(&self.bounds()));
        (finished.stdout, error)
    }

    /// Removes containers by full id, running or not. One that is gone is success.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn remove_containers(&self, ids: &[&ContainerId]) -> Result<(), DockerError> {
        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        match self.call(args::remove_containers(&names)) {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// The container of a unique name with this run's label.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn find_container(&self, name: &str, run: &str) -> Result<Option<ContainerId>, DockerError> {
        let finished = self.call(args::find_container(name, run))?;
        let found = lines(&finished.stdout).into_iter().next();
        found
            .map(|id| ContainerId::try_from(id).map_err(|error| DockerError::unreadable("docker ps", error)))
            .transpose()
    }
}
