//! One trial's machinery: its sandbox prepared (network, relay, container, the engine's word compared with the policy), the
//! target run to its confirmed end, an observation out. It judges nothing and stores nothing.

pub mod attest;
mod explain;
mod output;
pub mod relay;
pub mod sandbox;
pub mod target;

pub use explain::explain;
pub use output::{Captured, Sink};
pub use sandbox::{Shape, Shortfall};
pub use target::{Created, Exited, Watch};

use crate::docker::args::{Attachment, ContainerSpec};
use crate::ids::{ContainerId, NetworkId};
use crate::policy::Policy;
use crate::scope::{Scope, Subnet};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// What all trials of a run share.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Who creates, records and removes.
    pub scope: &'a Scope,
    /// What is asked for.
    pub policy: &'a Policy,
    /// The image's id.
    pub image: String,
    /// The image's own environment.
    pub image_env: Vec<String>,
    /// The snapshot's content on the host.
    pub source: String,
}

/// The engine's objects of one trial.
#[derive(Debug, Default)]
pub struct Objects {
    /// Target and relay.
    pub containers: Vec<ContainerId>,
    /// What is to be taken off a shared network before it is removed.
    pub shared: Vec<(NetworkId, ContainerId)>,
    /// The target's network.
    pub networks: Vec<NetworkId>,
    /// Given back once the network is gone.
    pub subnets: Vec<Subnet>,
}

impl Objects {
    /// These and the others.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.containers.extend(others.containers);
        self.shared.extend(others.shared);
        self.networks.extend(others.networks);
        self.subnets.extend(others.subnets);
        self
    }

    /// Removes them behind the trial; what is not gone after this is tried again, and told, at the scope's end.
    pub fn release(self, scope: &Scope) {
        for (network, container) in &self.shared {
            // Whatever it says: the container's removal takes it off as well.
            let _ = scope.docker().disconnect(network, container);
        }
        if scope.release(&self.containers, &self.networks) {
            self.subnets.into_iter().for_each(|subnet| scope.give_back(subnet));
        }
    }
}

/// The container of a target of this run, attached and with this environment beside the policy's.
pub fn target_spec(
    ground: &Ground<'_>,
    network: Attachment,
    environment: BTreeMap<String, String>,
    environment_file: Option<(String, Vec<String>)>,
) -> ContainerSpec {
    let (image, source) = (ground.image.as_str(), ground.source.as_str());
    let furnishing = sandbox::Furnishing { image, source, network, environment, environment_file };
    sandbox::spec(ground.policy, furnishing)
}

/// Creates the target's container and compares what the engine says of it with the policy; where it differs the target is
/// not to be run.
///
/// # Errors
/// What the engine says.
pub fn prepare(ground: &Ground<'_>, objects: &mut Objects, spec: &ContainerSpec) -> Result<(Created, Vec<Shortfall>)> {
    let made = ground.scope.container("target", spec.clone(), false)?;
    objects.containers.push(made.id.clone());
    let state =
        ground.scope.docker().inspect_containers(&[&made.id])?.pop().context("the target's container is gone")?;
    let shortfalls = sandbox::compare(spec, &state, &made.warnings, &ground.image_env);
    Ok((Created { id: made.id, shape: Shape::of(spec) }, shortfalls))
}
