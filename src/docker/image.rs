//! Images: look, pull, import, save, and take one name away.

use super::{Docker, DockerError, args, lines};
use crate::ids::{ContainerId, ImageId};
use camino::Utf8Path;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the engine says of an image.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageState {
    /// `sha256:…`
    pub id: ImageId,
    /// RFC 3339; an image's own word, not the engine's.
    #[serde(default)]
    pub created: String,
    /// Its names.
    #[serde(default)]
    pub repo_tags: Option<Vec<String>>,
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// What it says of itself: data of whoever made it.
    #[serde(default)]
    pub config: Option<ImageConfig>,
}

/// What an image says of itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ImageConfig {
    /// `NAME=VALUE`.
    #[serde(default)]
    pub env: Option<Vec<String>>,
    /// Places that would become anonymous, writable volumes.
    #[serde(default)]
    pub volumes: Option<BTreeMap<String, serde_json::Value>>,
    /// The scope's label, where it built the image.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
}

impl Docker {
    /// What the engine says of an image by id or reference; none where it has none.
    ///
    /// # Errors
    /// A [`DockerError`] other than "not found".
    pub fn inspect_image(&self, reference: &str) -> Result<Option<ImageState>, DockerError> {
        Ok(self.inspect("image", &[reference])?.pop())
    }

    /// Pulls a reference.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn pull(&self, reference: &str, time: Duration) -> Result<(), DockerError> {
        self.long_call(args::pull(reference), time).map(drop)
    }

    /// Makes an image of a tar stream.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn import_image(
        &self,
        tar: Vec<u8>,
        reference: &str,
        labels: &BTreeMap<String, String>,
    ) -> Result<ImageId, DockerError> {
        let finished = self.call_with_input(args::import_image(reference, labels), tar)?;
        let id = lines(&finished.stdout).pop().unwrap_or_default();
        ImageId::try_from(id).map_err(|error| DockerError::unreadable("docker import", error))
    }

    /// Writes an image to a file as `docker save` does.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn save_image(&self, reference: &str, file: &Utf8Path, time: Duration) -> Result<(), DockerError> {
        self.long_call(args::save_image(reference, file.as_str()), time).map(drop)
    }

    /// Makes a container that is never started: while it is there, the engine does not let go of its image.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn hold_image(
        &self,
        name: &str,
        labels: &BTreeMap<String, String>,
        image: &ImageId,
    ) -> Result<ContainerId, DockerError> {
        let finished = self.call(args::hold_image(name, labels, image.as_str()))?;
        let id = lines(&finished.stdout).pop().unwrap_or_default();
        ContainerId::try_from(id).map_err(|error| DockerError::unreadable("docker create", error))
    }

    /// The containers that are made of an image: the id, and the run that made it, where one did.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn users_of_image(&self, image: &ImageId) -> Result<Vec<(String, Option<String>)>, DockerError> {
        let finished = self.call(args::list_users(image.as_str()))?;
        let user = |line: String| match line.split_once(' ') {
            Some((id, run)) => (id.to_owned(), Some(run.to_owned())),
            None => (line, None),
        };
        Ok(lines(&finished.stdout).into_iter().map(user).collect())
    }

    /// Takes one name of an image away; its layers go with the last one. A name that is gone is success.
    ///
    /// # Errors
    /// A [`DockerError`].
    pub fn remove_image(&self, reference: &str) -> Result<(), DockerError> {
        match self.call(args::remove_image(reference)) {
            Err(error) if error.is_not_found() => Ok(()),
            answer => answer.map(drop),
        }
    }
}
