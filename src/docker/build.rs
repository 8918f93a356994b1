//! The dedicated builder and what it builds. Its entry stands in the scope's own buildx configuration; its container and
//! its state volume are the engine's, and removed by their own identity.

use super::{Docker, DockerError, args};
use crate::ids::ContainerId;
use crate::process::Finished;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the engine says of a builder's container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BuilderState {
    /// Its full id.
    pub id: ContainerId,
    /// With a leading slash.
    pub name: String,
    /// RFC 3339.
    pub created: String,
}

/// What the engine says of a volume.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct VolumeState {
    /// Its name: a volume has no other identity.
    pub name: String,
    /// RFC 3339.
    pub created_at: String,
    /// Who made it.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}

/// The container that buildx makes for a builder of this name.
pub fn builder_container(builder: &str) -> String {
    format!("buildx_buildkit_{builder}0")
}

/// The volume that buildx makes for a builder of this name.
pub fn builder_volume(builder: &str) -> String {
    format!("buildx_buildkit_{builder}0_state")
}

impl Docker {
    /// Makes the builder's entry; starts nothing.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn create_builder(&self, name: &str, image: Option<&str>, network: bool) -> Result<(), DockerError> {
        self.call(args::create_builder(name, image, network)).map(drop)
    }

    /// Starts the builder's container.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn bootstrap_builder(&self, name: &str, time: Duration) -> Result<(), DockerError> {
        self.long_call(args::bootstrap_builder(name), time).map(drop)
    }

    /// The containers of this id and of the name that buildx gives the builder's; each once.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn look_for_builder(&self, name: &str, id: Option<&str>) -> Result<Vec<BuilderState>, DockerError> {
        let container = builder_container(name);
        let asked: Vec<&str> = id.into_iter().chain([container.as_str()]).collect();
        let mut found: Vec<BuilderState> = self.inspect("container", &asked)?;
        found.dedup_by(|a, b| a.id == b.id);
        Ok(found)
    }

    /// The builder's container, by the name that buildx gives it.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn inspect_builder(&self, name: &str) -> Result<Option<BuilderState>, DockerError> {
        Ok(self.inspect("container", &[&builder_container(name)])?.pop())
    }

    /// A volume by name.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn inspect_volume(&self, name: &str) -> Result<Option<VolumeState>, DockerError> {
        Ok(self.inspect("volume", &[name])?.pop())
    }

    /// Makes a volume with these labels.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn create_volume(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), DockerError> {
        self.call(args::create_volume(name, labels)).map(drop)
    }

    /// Removes a volume by name. One that is gone is success.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn remove_volume(&self, name: &str) -> Result<(), DockerError> {
        match self.call(args::remove_volume(name)) {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Removes the builder's entry, and touches neither its container nor its volume.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn remove_builder_entry(&self, name: &str) -> Result<(), DockerError> {
        match self.call(args::remove_builder_entry(name)) {
            Err(DockerError::Refused { complaint, .. }) if complaint.contains("no builder") => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Builds and loads an image; its plain progress is on standard error.
    ///
    /// # Errors
    /// A [`DockerError`]: refused where a step failed, no answer past its time.
    pub fn build(&self, spec: &args::BuildSpec, time: Duration) -> Result<Finished, DockerError> {
        self.long_call(args::build(spec), time)
    }
}
