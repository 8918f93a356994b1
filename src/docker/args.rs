//! Docker's argument lists, all of them: pure functions from values to words. `plan` prints what these give, the verbs
//! run it. No list holds a secret: tokens go through a file that only its path is named here.

use std::collections::BTreeMap;

/// The proxy variables that the client adds to containers and builds from its configuration's `proxies`.
pub const PROXY_NAMES: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// A resolver that leads nowhere (RFC 5737, TEST-NET-1): no name can be asked of the host's own.
pub const NOWHERE_DNS: &str = "192.0.2.1";

/// Some engines give every interface an IPv6 address; others do that once their configuration says so.
pub const NO_IPV6: &str = "net.ipv6.conf.all.disable_ipv6";

/// The label that carries the run's id on every object of a scope.
pub const RUN_LABEL: &str = "crashlab.run";

/// A container in all that the engine is told about it.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Unique to the scope.
    pub name: String,
    /// On top of none.
    pub labels: BTreeMap<String, String>,
    /// The image's id.
    pub image: String,
    /// Program and arguments; the image's own are not used.
    pub command: Vec<String>,
    /// Whether standard input stays open for `start --attach --interactive`.
    pub interactive: bool,
    /// Whether it gets a terminal: for a person's shell only.
    pub terminal: bool,
    /// Numeric user and group.
    pub user: (u32, u32),
    /// What it calls itself.
    pub host_name: String,
    /// Where it starts; the image's own where none is given.
    pub folder: Option<String>,
    /// What it may use.
    pub bounds: ContainerBounds,
    /// Sized temporary file systems.
    pub writable: Vec<Tmpfs>,
    /// Read-only binds: host path and place in the container.
    pub read_only: Vec<(String, String)>,
    /// Declared, and no secret.
    pub environment: BTreeMap<String, String>,
    /// A file (0600) with further variables, the tokens, and their names.
    pub environment_file: Option<(String, Vec<String>)>,
    /// Where it is attached.
    pub network: Attachment,
    /// One of the engine's runtimes.
    pub runtime: Option<String>,
}

/// What a container may use; sizes in bytes.
#[derive(Debug, Clone)]
pub struct ContainerBounds {
    /// Swap included.
    pub memory: u64,
    /// Thousandths of a CPU.
    pub milli_cpus: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Open files of a process.
    pub open_files: u64,
    /// Size of /dev/shm.
    pub shared_memory: u64,
}

/// A sized temporary file system that belongs to the container's user.
#[derive(Debug, Clone)]
pub struct Tmpfs {
    /// In the container.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Whether programs may be run from it.
    pub exec: bool,
}

/// How a container is attached.
#[derive(Debug, Clone)]
pub enum Attachment {
    /// Only `lo`.
    None,
    /// One network, by id, with a fixed address and names in its hosts file.
    Network {
        /// The network's id.
        network: String,
        /// The container's own address.
        address: Option<String>,
        /// Name and address.
        hosts: Vec<(String, String)>,
    },
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

/// `docker create` with every flag of contract I.
pub fn create_container(spec: &ContainerSpec) -> Vec<String> {
    let mut args = words(&["create", "--pull", "never", "--name", &spec.name]);
    for (name, value) in &spec.labels {
        args.extend(["--label".to_owned(), format!("{name}={value}")]);
    }
    args.extend(isolation(spec));
    args.extend(bounds(&spec.bounds));
    args.extend(places(spec));
    args.extend(environment(spec));
    args.extend(attachment(&spec.network));
    if spec.interactive {
        args.push("--interactive".to_owned());
    }
    if spec.terminal {
        args.push("--tty".to_owned());
    }
    if let Some(runtime) = &spec.runtime {
        args.extend(["--runtime".to_owned(), runtime.clone()]);
    }
    // The image's entry point, command, health check and stop signal are not used.
    let (program, rest) = spec.command.split_first().map_or(("", &[][..]), |(program, rest)| (program.as_str(), rest));
    args.extend(["--entrypoint".to_owned(), program.to_owned(), "--".to_owned(), spec.image.clone()]);
    args.extend(rest.iter().cloned());
    args
}

/// Who it is and what it may never become.
fn isolation(spec: &ContainerSpec) -> Vec<String> {
    let (uid, gid) = spec.user;
    let mut args = vec!["--user".to_owned(), format!("{uid}:{gid}")];
    args.extend(words(&["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]));
    // A small init reaps the orphans, so that an agent's many short children do not use up its processes.
    // With room for one process only there are no children, and an init would be that process.
    if spec.bounds.processes > 1 {
        args.push("--init".to_owned());
    }
    // A size of 0 means the engine's default to Docker: no shared memory at all is another mode.
    let ipc = if spec.bounds.shared_memory == 0 { "none" } else { "private" };
    args.extend(words(&["--no-healthcheck", "--stop-signal", "SIGKILL", "--ipc", ipc]));
    // The default json-file log grows without bound on the host's disk; attaching works without one.
    args.extend(words(&["--log-driver", "none"]));
    args.extend(["--hostname".to_owned(), spec.host_name.clone()]);
    if let Some(folder) = &spec.folder {
        args.extend(["--workdir".to_owned(), folder.clone()]);
    }
    args
}

fn bounds(bounds: &ContainerBounds) -> Vec<String> {
    let ContainerBounds { memory, milli_cpus, processes, open_files, shared_memory } = bounds;
    let mut args = vec![
        "--memory".to_owned(),
        memory.to_string(),
        // The same: swap included. Without it as much again could be swapped.
        "--memory-swap".to_owned(),
        memory.to_string(),
        "--cpus".to_owned(),
        format!("{}.{:03}", milli_cpus / 1000, milli_cpus % 1000),
        "--pids-limit".to_owned(),
        processes.to_string(),
        "--ulimit".to_owned(),
        format!("nofile={open_files}:{open_files}"),
        "--ulimit".to_owned(),
        "core=0:0".to_owned(),
        // /dev/mqueue is writable even under --read-only.
        "--ulimit".to_owned(),
        "msgqueue=0:0".to_owned(),
    ];
    if *shared_memory > 0 {
        args.extend(["--shm-size".to_owned(), shared_memory.to_string()]);
    }
    args
}

fn places(spec: &ContainerSpec) -> Vec<String> {
    let (uid, gid) = spec.user;
    let mut args = Vec::new();
    for Tmpfs { path, size, exec } in &spec.writable {
        let exec = if *exec { "exec" } else { "noexec" };
        // mode=1777 is ignored by runc 1.1.5 where the image has the folder with other bits; an owner is honoured.
        let options = format!("rw,nosuid,nodev,{exec},size={size},uid={uid},gid={gid},mode=0700");
        args.extend(["--tmpfs".to_owned(), format!("{path}:{options}")]);
    }
    for (source, place) in &spec.read_only {
        let fields =
            ["type=bind".to_owned(), format!("source={source}"), format!("target={place}"), "readonly".to_owned()];
        args.extend(["--mount".to_owned(), fields.map(|field| csv_field(&field)).join(",")]);
    }
    args
}

/// `--mount` is a line of CSV: a comma or a quote in a path would break it.
fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn environment(spec: &ContainerSpec) -> Vec<String> {
    let mut args = unset_proxies("--env", &spec.environment);
    for (name, value) in &spec.environment {
        args.extend(["--env".to_owned(), format!("{name}={value}")]);
    }
    if let Some((file, _)) = &spec.environment_file {
        args.extend(["--env-file".to_owned(), file.clone()]);
    }
    args
}

/// A bare name that the client's own environment lacks is neither set nor added from the client's configuration.
fn unset_proxies(flag: &str, declared: &BTreeMap<String, String>) -> Vec<String> {
    let bare = PROXY_NAMES.iter().filter(|name| !declared.contains_key(**name));
    bare.flat_map(|name| [flag.to_owned(), (*name).to_owned()]).collect()
}

fn attachment(network: &Attachment) -> Vec<String> {
    match network {
        // Without a resolver of its own the container would be told the host's.
        Attachment::None => words(&["--network", "none", "--dns", NOWHERE_DNS, "--dns-search", "."]),
        Attachment::Network { network, address, hosts } => {
            let mut args = words(&["--network", network]);
            if let Some(address) = address {
                args.extend(["--ip".to_owned(), address.clone()]);
            }
            args.extend(words(&["--dns", NOWHERE_DNS, "--dns-search", "."]));
            args.extend(["--sysctl".to_owned(), format!("{NO_IPV6}=1")]);
            for (name, address) in hosts {
                args.extend(["--add-host".to_owned(), format!("{name}:{address}")]);
            }
            args
        }
    }
}

/// Inside a container it is 1: a relay on two networks would route packets.
pub const FORWARDING: &str = "net.ipv4.ip_forward";

/// The relay's container, made and started in one call: no user's code, but under the same hardening, and it never routes.
pub fn run_relay(spec: &ContainerSpec) -> Vec<String> {
    let mut args = create_container(spec);
    args.splice(0..1, words(&["run", "--detach", "--sysctl", &format!("{FORWARDING}=0")]));
    args
}

/// A network of the scope.
#[derive(Debug, Clone)]
pub struct NetworkSpec {
    /// Unique to the scope.
    pub name: String,
    /// With the scope's.
    pub labels: BTreeMap<String, String>,
    /// `10.83.0.0/29`.
    pub subnet: String,
    /// The bridge's own address in it.
    pub gateway: String,
    /// What it is for.
    pub use_: NetworkUse,
}

/// What a network is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkUse {
    /// Holds a target and its relay: the host has no address on it.
    Target {
        /// Engines from 28 on know the isolated gateway mode as well.
        isolated_mode: bool,
    },
    /// Holds the scope's relays: its bridge address is the gateway listener's, and relays cannot reach one another.
    Relays,
}

impl NetworkUse {
    /// What keeps the host, or one relay from another, out of it: `NAME=VALUE`.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            NetworkUse::Target { isolated_mode: false } => &["com.docker.network.bridge.inhibit_ipv4=true"],
            NetworkUse::Target { isolated_mode: true } => {
                &["com.docker.network.bridge.inhibit_ipv4=true", "com.docker.network.bridge.gateway_mode_ipv4=isolated"]
            }
            NetworkUse::Relays => &["com.docker.network.bridge.enable_icc=false"],
        }
    }
}

/// `docker network create --internal`.
pub fn create_network(spec: &NetworkSpec) -> Vec<String> {
    let mut args = words(&["network", "create", "--driver", "bridge", "--internal"]);
    args.extend(["--subnet".to_owned(), spec.subnet.clone(), "--gateway".to_owned(), spec.gateway.clone()]);
    for (name, value) in &spec.labels {
        args.extend(["--label".to_owned(), format!("{name}={value}")]);
    }
    for option in spec.use_.options() {
        args.extend(words(&["--opt", option]));
    }
    args.push(spec.name.clone());
    args
}

/// `docker network connect`: engines before API 1.44 take one network at `create`.
pub fn connect_network(network: &str, container: &str) -> Vec<String> {
    words(&["network", "connect", network, container])
}

/// `docker network disconnect`.
pub fn disconnect_network(network: &str, container: &str) -> Vec<String> {
    words(&["network", "disconnect", network, container])
}

/// `docker start --attach`: both streams and the exit code, without a log driver.
pub fn start_attached(container: &str, interactive: bool) -> Vec<String> {
    let mut args = words(&["start", "--attach"]);
    if interactive {
        args.push("--interactive".to_owned());
    }
    args.push(container.to_owned());
    args
}

/// `docker top`: the command lines of what runs in a container.
pub fn processes(container: &str) -> Vec<String> {
    words(&["top", container])
}

/// `docker kill` with SIGKILL: a stop would wait for a target that ignores TERM.
pub fn kill(container: &str) -> Vec<String> {
    words(&["kill", "--signal", "KILL", container])
}

/// What the engine told of a container's lack of memory between two moments (RFC 3339); waits where the later is to come.
pub fn memory_events(container: &str, since: &str, until: &str) -> Vec<String> {
    let filter = format!("container={container}");
    words(&["events", "--since", since, "--until", until, "--filter", &filter, "--filter", "event=oom"])
}

/// `docker rm` by full id, running or not, with its anonymous volumes.
pub fn remove_containers(containers: &[&str]) -> Vec<String> {
    [&["rm", "--force", "--volumes"], containers].concat().iter().map(|word| (*word).to_owned()).collect()
}

/// `docker network rm` by full id.
pub fn remove_networks(networks: &[&str]) -> Vec<String> {
    [&["network", "rm"], networks].concat().iter().map(|word| (*word).to_owned()).collect()
}

/// One look at several objects, whatever they are.
pub fn inspect(kind: &str, ids: &[&str]) -> Vec<String> {
    [&["inspect", "--type", kind, "--format", "{{json .}}", "--"], ids]
        .concat()
        .iter()
        .map(|word| (*word).to_owned())
        .collect()
}

/// The containers of one unique name and this run's label: for an intent that got no identity.
pub fn find_container(name: &str, run: &str) -> Vec<String> {
    let (name, label) = (format!("name=^/?{name}$"), format!("label={RUN_LABEL}={run}"));
    words(&["ps", "--all", "--no-trunc", "--quiet", "--filter", &name, "--filter", &label])
}

/// A container that is never started: while it is there, the engine does not let go of its image.
pub fn hold_image(name: &str, labels: &BTreeMap<String, String>, image: &str) -> Vec<String> {
    let mut args = words(&["create", "--pull", "never", "--name", name]);
    for (label, value) in labels {
        args.extend(["--label".to_owned(), format!("{label}={value}")]);
    }
    args.extend(words(&["--network", "none", "--read-only", "--cap-drop", "ALL", "--log-driver", "none"]));
    args.extend(words(&["--entrypoint", "hold", "--", image]));
    args
}

/// The containers of an image, with the run that made each: to keep the image, for nothing else.
pub fn list_users(image: &str) -> Vec<String> {
    let (filter, form) = (format!("ancestor={image}"), format!("{{{{.ID}}}} {{{{.Label \"{RUN_LABEL}\"}}}}"));
    words(&["ps", "--all", "--no-trunc", "--filter", &filter, "--format", &form])
}

/// The networks of one unique name and this run's label.
pub fn find_network(name: &str, run: &str) -> Vec<String> {
    let (name, label) = (format!("name=^{name}$"), format!("label={RUN_LABEL}={run}"));
    words(&["network", "ls", "--no-trunc", "--quiet", "--filter", &name, "--filter", &label])
}

/// The ids of all networks: to choose a subnet that overlaps none, for nothing else.
pub fn list_networks() -> Vec<String> {
    words(&["network", "ls", "--no-trunc", "--quiet"])
}

/// `docker pull`.
pub fn pull(reference: &str) -> Vec<String> {
    words(&["pull", "--quiet", "--", reference])
}

/// Removes one name of an image, never forced.
pub fn remove_image(reference: &str) -> Vec<String> {
    words(&["image", "rm", "--no-prune", "--", reference])
}

/// An image from a tar stream on standard input.
pub fn import_image(reference: &str, labels: &BTreeMap<String, String>) -> Vec<String> {
    let mut args = words(&["import"]);
    for (name, value) in labels {
        args.extend(["--change".to_owned(), format!("LABEL {name}={value}")]);
    }
    args.extend(["-".to_owned(), reference.to_owned()]);
    args
}

/// `docker save` of one image to a file.
pub fn save_image(reference: &str, file: &str) -> Vec<String> {
    words(&["save", "--output", file, "--", reference])
}

/// The dedicated builder: an entry in the scope's own buildx configuration. Without a network not even `ADD http://…` and
/// frontends named by a Dockerfile, which BuildKit fetches itself, reach anything.
pub fn create_builder(name: &str, image: Option<&str>, network: bool) -> Vec<String> {
    let mut args = words(&["buildx", "create", "--name", name, "--driver", "docker-container"]);
    if let Some(image) = image {
        args.extend(["--driver-opt".to_owned(), format!("image={image}")]);
    }
    args.extend(words(&["--driver-opt", if network { "network=bridge" } else { "network=none" }]));
    args
}

/// Starts the builder's container.
pub fn bootstrap_builder(name: &str) -> Vec<String> {
    words(&["buildx", "inspect", "--bootstrap", name])
}

/// Removes the builder's entry only: container and volume are removed by their own identity before.
pub fn remove_builder_entry(name: &str) -> Vec<String> {
    words(&["buildx", "rm", "--keep-daemon", "--keep-state", name])
}

/// A build in all that buildx is told about it.
#[derive(Debug, Clone)]
pub struct BuildSpec {
    /// The scope's builder.
    pub builder: String,
    /// Names the image; removed with the scope while it points at the recorded id.
    pub tag: String,
    /// On the image.
    pub labels: BTreeMap<String, String>,
    /// On the host: below the snapshot's content.
    pub dockerfile: String,
    /// Build arguments.
    pub args: BTreeMap<String, String>,
    /// Name and `oci-layout://…`.
    pub contexts: BTreeMap<String, String>,
    /// Whether steps have the engine's default network.
    pub network: bool,
    /// The only context: the snapshot's content.
    pub context: String,
}

/// `docker buildx build --load`: no attestations (each would make a new id), no network unless declared.
pub fn build(spec: &BuildSpec) -> Vec<String> {
    let mut args = words(&["buildx", "build", "--builder", &spec.builder, "--load", "--progress", "plain"]);
    args.extend(words(&["--provenance", "false", "--sbom", "false", "--tag", &spec.tag]));
    args.extend(words(&["--network", if spec.network { "default" } else { "none" }, "--file", &spec.dockerfile]));
    for (name, value) in &spec.labels {
        args.extend(["--label".to_owned(), format!("{name}={value}")]);
    }
    args.extend(unset_proxies("--build-arg", &spec.args));
    for (name, value) in &spec.args {
        args.extend(["--build-arg".to_owned(), format!("{name}={value}")]);
    }
    for (name, place) in &spec.contexts {
        args.extend(["--build-context".to_owned(), format!("{name}={place}")]);
    }
    args.extend(["--".to_owned(), spec.context.clone()]);
    args
}

/// A volume of this name with labels, for a builder's state: made before buildx does, which gives it none.
pub fn create_volume(name: &str, labels: &BTreeMap<String, String>) -> Vec<String> {
    let mut args = words(&["volume", "create"]);
    for (name, value) in labels {
        args.extend(["--label".to_owned(), format!("{name}={value}")]);
    }
    args.extend(["--".to_owned(), name.to_owned()]);
    args
}

/// Removes one volume by its name, after its creation time and label have been compared.
pub fn remove_volume(name: &str) -> Vec<String> {
    words(&["volume", "rm", "--", name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_comma_stays_one_field_of_a_mount() {
        let table =
            [("source=/a b", "source=/a b"), ("source=/a,b", "\"source=/a,b\""), ("source=/\"", "\"source=/\"\"\"")];
        for (field, written) in table {
            assert_eq!(csv_field(field), written);
        }
    }
}
