//! Networks: create, attach, look, remove, and the subnets that are taken.

use super::{Docker, DockerError, args, lines};
use crate::ids::{ContainerId, NetworkId};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::PoisonError;

/// What the engine says of a network.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NetworkState {
    /// Its full id.
    pub id: NetworkId,
    /// As it was named.
    pub name: String,
    /// RFC 3339.
    pub created: String,
    /// Whether it has no way out.
    #[serde(default)]
    pub internal: bool,
    /// The scope's.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// The bridge driver's options.
    #[serde(default)]
    pub options: Option<BTreeMap<String, String>>,
    /// Its subnets.
    #[serde(rename = "IPAM")]
    pub ipam: Ipam,
    /// Who is attached, by container id.
    #[serde(default)]
    pub containers: Option<BTreeMap<String, serde_json::Value>>,
}

/// Address management.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Ipam {
    /// One entry a subnet.
    #[serde(default)]
    pub config: Option<Vec<Pool>>,
}

/// One subnet.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Pool {
    /// `10.83.0.0/29`.
    #[serde(default)]
    pub subnet: String,
    /// The bridge's address.
    #[serde(default)]
    pub gateway: String,
}

impl NetworkState {
    /// Its subnets as they are written.
    pub fn subnets(&self) -> impl Iterator<Item = &str> {
        self.ipam.config.iter().flatten().map(|pool| pool.subnet.as_str())
    }
}

impl Docker {
    /// Creates an internal network.
    ///
    /// # Errors
    /// A [`DockerError`]; `is_address_clash` says that another subnet may do.
    pub fn create_network(&self, spec: &args::NetworkSpec) -> Result<NetworkId, DockerError> {
        let finished = self.call(args::create_network(spec))?;
        let id = lines(&finished.stdout).pop().unwrap_or_default();
        NetworkId::try_from(id).map_err(|error| DockerError::unreadable("docker network create", error))
    }

    /// Attaches a container to a second network, which others share: one at a time. Engines keep how many are attached in a
    /// number that they lose count of where several come or go at once (libnetwork's `endpoint_cnt`, seen on 20.10); the
    /// network then "has active endpoints" until the engine is started anew, with nobody in it.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn connect(&self, network: &NetworkId, container: &ContainerId) -> Result<(), DockerError> {
        let _one_at_a_time = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        self.call(args::connect_network(network.as_str(), container.as_str())).map(drop)
    }

    /// Takes a container off a shared network, one at a time as well.
    ///
    /// # Errors
    /// A [`DockerError`], also where it is off already.
    pub fn disconnect(&self, network: &NetworkId, container: &ContainerId) -> Result<(), DockerError> {
        let _one_at_a_time = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        self.call(args::disconnect_network(network.as_str(), container.as_str())).map(drop)
    }

    /// What the engine says of these networks; one that is gone is missing from the answer.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn inspect_networks(&self, ids: &[&NetworkId]) -> Result<Vec<NetworkState>, DockerError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        self.inspect("network", &names)
    }

    /// The subnets of every network that the engine has.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn taken_subnets(&self) -> Result<Vec<String>, DockerError> {
        let ids = lines(&self.call(args::list_networks())?.stdout);
        let names: Vec<&str> = ids.iter().map(String::as_str).collect();
        let states: Vec<NetworkState> = self.inspect("network", &names)?;
        Ok(states.iter().flat_map(|state| state.subnets().map(str::to_owned).collect::<Vec<_>>()).collect())
    }

    /// Removes networks by full id. One that is gone is success.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn remove_networks(&self, ids: &[&NetworkId]) -> Result<(), DockerError> {
        let names: Vec<&str> = ids.iter().map(|id| id.as_str()).collect();
        match self.call(args::remove_networks(&names)) {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// The network of a unique name with this run's label.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn find_network(&self, name: &str, run: &str) -> Result<Option<NetworkId>, DockerError> {
        let found = lines(&self.call(args::find_network(name, run))?.stdout).into_iter().next();
        found
            .map(|id| NetworkId::try_from(id).map_err(|error| DockerError::unreadable("docker network ls", error)))
            .transpose()
    }
}
