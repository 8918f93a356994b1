//! What containers and networks have in common for who removes them: id, name, labels, time of creation, looked at in one
//! call by ids and names together.

use super::{Docker, DockerError};
use serde::Deserialize;
use std::collections::BTreeMap;

/// An object of the engine as far as its identity goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Full.
    pub id: String,
    /// Without a leading slash.
    pub name: String,
    /// RFC 3339.
    pub created: String,
    /// The scope's and, for a container, the image's.
    pub labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Seen {
    id: String,
    name: String,
    created: String,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    config: Option<SeenConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SeenConfig {
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl Docker {
    /// The containers that have one of these ids or names, each once.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn look_for_containers(&self, ids_and_names: &[&str]) -> Result<Vec<Identity>, DockerError> {
        self.look("container", ids_and_names)
    }

    /// The networks that have one of these ids or names, each once.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn look_for_networks(&self, ids_and_names: &[&str]) -> Result<Vec<Identity>, DockerError> {
        self.look("network", ids_and_names)
    }

    fn look(&self, kind: &str, ids_and_names: &[&str]) -> Result<Vec<Identity>, DockerError> {
        let mut found: Vec<Identity> = Vec::new();
        for seen in self.inspect::<Seen>(kind, ids_and_names)? {
            if !found.iter().any(|it| it.id == seen.id) {
                found.push(Identity {
                    id: seen.id,
                    name: seen.name.trim_start_matches('/').to_owned(),
                    created: seen.created,
                    labels: seen.config.and_then(|config| config.labels).or(seen.labels).unwrap_or_default(),
                });
            }
        }
        Ok(found)
    }
}
