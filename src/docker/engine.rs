//! What engine this is, and where: version, information, endpoint. Asked once a run, before anything is created.

use super::{Docker, DockerError};
use crate::process::Bounds;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long an engine may take to say who it is: a daemon that is down should be told within seconds.
const GREETING: Duration = Duration::from_secs(15);

/// What the engine says of itself.
#[derive(Debug, Clone)]
pub struct Engine {
    /// `20.10.24`.
    pub version: String,
    /// `1.41`.
    pub api: String,
    /// Of the machine that the engine runs on.
    pub os: String,
    /// Its kernel's release: one machine with this one, or another.
    pub kernel: String,
    /// 1 or 2.
    pub cgroup: u32,
    /// The runtime that is used where none is named.
    pub runtime: String,
    /// Every runtime that it has.
    pub runtimes: Vec<String>,
    /// `rootless`, `seccomp`, …
    pub security: Vec<String>,
    /// What it says that it cannot do.
    pub warnings: Vec<String>,
    /// Where it was reached.
    pub endpoint: Endpoint,
    /// buildx's version, where the client has it.
    pub buildx: Option<String>,
}

/// Where the engine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `unix:///var/run/docker.sock`.
    pub address: String,
    /// Which docker context says so.
    pub context: String,
}

impl Engine {
    /// The first number of its version; 0 where it has none.
    pub fn major_version(&self) -> u32 {
        self.version.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

impl Engine {
    /// The seccomp profile that containers get where none is named; none where the engine does not say.
    pub fn seccomp_profile(&self) -> Option<String> {
        let entry = self.security.iter().find(|entry| entry.starts_with("name=seccomp"))?;
        entry.split(',').find_map(|word| word.strip_prefix("profile=")).map(str::to_owned)
    }
}

/// Where an engine's containers really are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On this machine, with the host's own networks.
    Here,
    /// On this machine, in a network namespace of its own.
    Rootless,
    /// In a virtual machine on this machine.
    VirtualMachine,
    /// On another machine.
    Remote,
}

/// What names a virtual machine's kernel, operating system or context gives away.
const VIRTUAL_MACHINES: [&str; 6] =
    ["docker desktop", "desktop-linux", "linuxkit", "orbstack", "colima", "rancher-desktop"];

impl Engine {
    /// Where its containers really are, as far as it tells; whether its bridges are this host's only a try can show.
    pub fn place(&self) -> Place {
        let told = format!("{} {} {}", self.os, self.kernel, self.endpoint.context).to_ascii_lowercase();
        match () {
            () if !self.endpoint.is_local() => Place::Remote,
            () if VIRTUAL_MACHINES.iter().any(|name| told.contains(name)) => Place::VirtualMachine,
            () if self.security.iter().any(|option| option == "name=rootless") => Place::Rootless,
            () => Place::Here,
        }
    }
}

impl Endpoint {
    /// Whether the engine's networks are this host's: only then can a target's relay reach the gateway.
    pub fn is_local(&self) -> bool {
        self.address.starts_with("unix://")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    server: Option<Server>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Server {
    version: String,
    api_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Info {
    #[serde(default)]
    operating_system: String,
    #[serde(default)]
    kernel_version: String,
    #[serde(default)]
    cgroup_version: Option<String>,
    #[serde(default)]
    default_runtime: String,
    #[serde(default)]
    runtimes: Option<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    security_options: Option<Vec<String>>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Context {
    name: String,
    endpoints: BTreeMap<String, ContextEndpoint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContextEndpoint {
    #[serde(default)]
    host: String,
}

impl Docker {
    /// Asks the engine who it is.
    ///
    /// # Errors
    /// A [`DockerError`]: no client, no engine behind the endpoint, no permission.
    pub fn engine(&self) -> Result<Engine, DockerError> {
        let version: Version = self.ask(&["version", "--format", "{{json .}}"])?;
        let server = version.server.ok_or_else(|| DockerError::unreadable("docker version", "no engine answered"))?;
        let info: Info = self.ask(&["info", "--format", "{{json .}}"])?;
        Ok(Engine {
            version: server.version,
            api: server.api_version,
            os: info.operating_system,
            kernel: info.kernel_version,
            cgroup: info.cgroup_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(1),
            runtime: info.default_runtime,
            runtimes: info.runtimes.unwrap_or_default().into_keys().collect(),
            security: info.security_options.unwrap_or_default(),
            warnings: info.warnings.unwrap_or_default(),
            endpoint: self.endpoint()?,
            buildx: self.buildx_version(),
        })
    }

    /// Where the client looks for its engine; needs no engine.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn endpoint(&self) -> Result<Endpoint, DockerError> {
        let context: Context = self.ask(&["context", "inspect", "--format", "{{json .}}"])?;
        let address = context.endpoints.get("docker").map(|endpoint| endpoint.host.clone()).unwrap_or_default();
        Ok(Endpoint { address, context: context.name })
    }

    fn buildx_version(&self) -> Option<String> {
        let args = ["buildx", "version"].map(str::to_owned).to_vec();
        let finished = self.run(self.program(args), Bounds::time(GREETING)).ok()?;
        String::from_utf8_lossy(&finished.stdout).split_whitespace().nth(1).map(str::to_owned)
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, args: &[&str]) -> Result<T, DockerError> {
        let program = self.program(args.iter().map(|word| (*word).to_owned()).collect());
        let verb = super::verb_of(&program);
        let finished = self.run(program, Bounds::time(GREETING).stopped_by(&self.stop))?;
        serde_json::from_slice(&finished.stdout).map_err(|error| DockerError::unreadable(&verb, error))
    }
}
