//! The way from a target to the gateway: for each trial an internal network without a host address, which holds the target
//! and its relay; for the run one internal network that holds relays only, whose bridge address is the gateway's. Owns the
//! addresses on the first and the order in which a relay gets the two; knows neither tokens nor requests.

use super::{Ground, Objects, Shortfall};
use crate::docker::args::{Attachment, ContainerBounds, ContainerSpec, FORWARDING, NetworkUse};
use crate::docker::{Attached, Docker, Engine};
use crate::ids::{ContainerId, NetworkId};
use crate::relay::PROGRAM;
use crate::scope::{Scope, Subnet};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{Ipv4Addr, SocketAddr};

/// Where a target finds its relay, and on which port.
pub const GATEWAY_NAME: &str = "gateway";
/// The relay's port on the target's network.
pub const PORT: u16 = 8080;
/// The mode of a relay that has given up (`src/relay/main.rs`).
const GAVE_UP: &str = "gave-up";
/// Prefix length of a target's network: the bridge's (inhibited) address, the relay, the target.
const TARGET_BITS: u8 = 29;
/// Prefix length of the relays' network: a thousand trials at once.
pub const RELAYS_BITS: u8 = 22;
/// The relay runs as nobody as well.
const NOBODY: (u32, u32) = (65534, 65534);

/// What all relays of a run share.
#[derive(Debug)]
pub struct RelayGround {
    image: String,
    network: NetworkId,
    /// The relays' network.
    pub subnet: Subnet,
    isolated_mode: bool,
}

/// A trial's own network, with its relay in it.
#[derive(Debug)]
pub struct Link {
    network: NetworkId,
    subnet: Subnet,
    /// Its relay.
    pub relay: ContainerId,
}

impl RelayGround {
    /// Makes the relay's image and the relays' network.
    ///
    /// # Errors
    /// What the engine says.
    pub fn make(scope: &Scope, engine: &Engine) -> Result<Self> {
        let name = format!("crashlab/relay:{}", scope.run());
        let tar = archive().context("failed to pack the relay's image")?;
        let image = scope.image(&name, || Ok(scope.docker().import_image(tar, &name, &scope.labels("relay"))?));
        let (network, subnet) = scope.network("relays", RELAYS_BITS, NetworkUse::Relays)?;
        // The isolated gateway mode came with engine 28 (API 1.48).
        let isolated_mode = engine.major_version() >= 28;
        Ok(Self { image: image?.to_string(), network, subnet, isolated_mode })
    }

    /// The id of the relay's image: a static program and nothing else.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Their network, and what it is for.
    pub fn network(&self) -> (&NetworkId, NetworkUse) {
        (&self.network, NetworkUse::Relays)
    }

    /// What a target's network is for.
    fn target_use(&self) -> NetworkUse {
        NetworkUse::Target { isolated_mode: self.isolated_mode }
    }

    /// The address that the gateway listens on: the relays' bridge, nothing else of the host.
    pub fn gateway_address(&self) -> Ipv4Addr {
        self.subnet.address(1)
    }
}

/// A tar stream with one file: the relay's program.
fn archive() -> Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(PROGRAM.len() as u64);
    header.set_mode(0o755);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, "relay", PROGRAM)?;
    Ok(archive.into_inner()?)
}

impl Link {
    /// Makes a trial's network and its relay, and starts the relay.
    ///
    /// # Errors
    /// What the engine says.
    pub fn make(
        ground: &Ground<'_>,
        relays: &RelayGround,
        objects: &mut Objects,
        gateway: SocketAddr,
        nonce: &str,
    ) -> Result<Self> {
        let scope = ground.scope;
        let (network, subnet) = scope.network("target", TARGET_BITS, relays.target_use())?;
        objects.networks.push(network.clone());
        objects.subnets.push(subnet);
        let spec = relay_spec(&relays.image, network.as_str(), subnet.address(2), &gateway.to_string(), nonce);
        let relay = scope.container("relay", spec, true)?.id;
        objects.containers.push(relay.clone());
        // The shared network comes second: engines before API 1.44 take one at create, and attaching to it has to be done
        // one at a time. The relay waits for the way that comes with it.
        objects.shared.push((relays.network.clone(), relay.clone()));
        scope.docker().connect(&relays.network, &relay)?;
        Ok(Self { network, subnet, relay })
    }

    /// What the engine did not do of what keeps the networks apart: it may leave out what it does not know. What a target
    /// can see of that is looked at from inside; that relays keep to themselves and route nothing is not.
    ///
    /// # Errors
    /// What the engine says.
    pub fn shortfalls(&self, docker: &Docker, relays: &RelayGround) -> Result<Vec<Shortfall>> {
        let (relays_network, relays_use) = relays.network();
        let mut found = Vec::new();
        for state in docker.inspect_networks(&[&self.network, relays_network])? {
            let (name, use_) = match state.id == self.network {
                true => ("target_network", relays.target_use()),
                false => ("relays_network", relays_use),
            };
            let has = |option: &&str| {
                let (name, value) = option.split_once('=').unwrap_or((option, ""));
                state.options.iter().flatten().any(|(key, its)| key == name && its == value)
            };
            let wanted = ["internal"].into_iter().chain(use_.options().iter().copied());
            let kept = wanted.clone().filter(|it| if *it == "internal" { state.internal } else { has(it) });
            found.push((name, wanted.collect::<Vec<_>>().join(" "), kept.collect::<Vec<_>>().join(" ")));
        }
        let relay = docker.inspect_containers(&[&self.relay])?.pop().context("the relay's container is gone")?;
        let networks = relay.network_settings.networks.values();
        let fixed = networks.filter_map(Attached::fixed_address).collect::<Vec<_>>().join(" ");
        found.push(("relay_address", self.subnet.address(2).to_string(), fixed));
        let forwarding = relay.host_config.sysctls.unwrap_or_default().remove(FORWARDING);
        found.push(("relay_forwarding", "0".to_owned(), forwarding.unwrap_or_else(|| "not set".to_owned())));
        let short = found.into_iter().filter(|(_, requested, observed)| requested != observed);
        Ok(short.map(|(name, requested, observed)| Shortfall::new(name, requested, observed)).collect())
    }

    /// Whether its relay has given up, or does not run any more. One that cannot reach the gateway says so by its command
    /// line, and stays until it is taken off the relays' network: those come and go one at a time.
    ///
    /// # Errors
    /// What the engine says.
    pub fn has_given_up(&self, docker: &Docker) -> Result<bool> {
        match docker.processes_in(&self.relay) {
            Ok(processes) => Ok(processes.is_none_or(|lines| lines.contains(GAVE_UP))),
            // A host without `ps`: then its time alone tells.
            Err(_) => Ok(!docker.inspect_containers(&[&self.relay])?.pop().is_some_and(|state| state.state.running)),
        }
    }

    /// Where a target finds it.
    pub fn relay_address(&self) -> SocketAddr {
        Self::on_port(self.subnet.address(2))
    }

    /// A relay's port at an address.
    pub fn on_port(address: Ipv4Addr) -> SocketAddr {
        (address, PORT).into()
    }

    /// How the target is attached: its own address, and the relay's in its hosts file; no name is ever asked for.
    pub fn attachment(&self) -> Attachment {
        Attachment::Network {
            network: self.network.to_string(),
            address: Some(self.subnet.address(3).to_string()),
            hosts: vec![(GATEWAY_NAME.to_owned(), self.subnet.address(2).to_string())],
        }
    }
}

/// Where the target's requests go.
pub fn base_url() -> String {
    format!("http://{GATEWAY_NAME}:{PORT}")
}

/// The relay's container, on its target's network under this address: no user's code, but under the same hardening.
pub fn relay_spec(image: &str, network: &str, address: impl Display, gateway: &str, nonce: &str) -> ContainerSpec {
    let (address, listen) = (address.to_string(), format!("{address}:{PORT}"));
    let command = ["/relay", "forward", "--listen", &listen, "--to", gateway, "--nonce", nonce];
    ContainerSpec {
        name: String::new(),
        labels: BTreeMap::new(),
        image: image.to_owned(),
        command: command.map(str::to_owned).to_vec(),
        interactive: false,
        terminal: false,
        user: NOBODY,
        host_name: "relay".to_owned(),
        folder: None,
        bounds: ContainerBounds {
            memory: 64 << 20,
            milli_cpus: 1000,
            processes: 1024,
            open_files: 4096,
            shared_memory: 1 << 20,
        },
        writable: Vec::new(),
        read_only: Vec::new(),
        environment: BTreeMap::new(),
        environment_file: None,
        network: Attachment::Network { network: network.to_owned(), address: Some(address), hosts: Vec::new() },
        runtime: None,
    }
}
