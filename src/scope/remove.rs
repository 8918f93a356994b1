//! Removal: prove that the thing is the scope's own, remove it, look again, and only then say so. One function a kind.
//!
//! The only way from a label to a removal is an intent that got no identity: unique name, the scope's label and a creation
//! time after the intent must all match. "Not found" is success; "busy" is waited for; a mismatch keeps the thing.

use super::journal::Kind;
use super::ledger::Resource;
use crate::docker::args::RUN_LABEL;
use crate::docker::{Docker, DockerError};
use crate::ids::{ContainerId, NetworkId, RunId};
use anyhow::{Context, Result, anyhow};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// How long the engine may be busy with a thing before its removal counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same once the user asked twice to stop.
const IMPATIENCE: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// How much the engine's clock may be behind ours.
const CLOCK_SLACK: Duration = Duration::from_secs(5);

/// How a removal ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// A fresh look-up does not find it (any more).
    Gone,
    /// There is something, but it is not the recorded thing.
    Kept(String),
}

/// Who removes: the run whose label proves ownership, and the client to ask.
#[derive(Debug, Clone)]
pub struct Remover<'a> {
    /// Whose things.
    pub run: &'a RunId,
    /// The client; with the scope's own buildx configuration.
    pub docker: &'a Docker,
    /// Below which folders are removed.
    pub scopes: &'a Utf8Path,
}

impl Remover<'_> {
    /// Removes one resource, if it still is what was recorded.
    ///
    /// # Errors
    /// Where the engine refuses, hangs, or still has the thing after the wait.
    pub fn remove(&self, resource: &Resource) -> Result<Removal> {
        match resource.kind {
            Kind::Container => self.container(resource),
            Kind::Network => self.network(resource),
            Kind::Image => self.image(resource),
            Kind::Builder => self.builder(resource),
            Kind::Volume => self.volume(resource),
            Kind::Folder => self.folder(resource),
        }
        .with_context(|| format!("failed to remove {} {}", resource.kind.as_str(), resource.handle()))
    }

    fn container(&self, resource: &Resource) -> Result<Removal> {
        let id = match &resource.id {
            Some(id) => Some(ContainerId::try_from(id.clone())?),
            None => self.docker.find_container(&resource.name, self.run.as_str())?,
        };
        let Some(id) = id else { return Ok(Removal::Gone) };
        let Some(state) = self.docker.inspect_containers(&[&id])?.pop() else { return Ok(Removal::Gone) };
        let named = state.name.trim_start_matches('/') == resource.name;
        if let Some(reason) = self.mismatch(resource, named, state.config.labels.as_ref(), &state.created) {
            return Ok(Removal::Kept(reason));
        }
        self.until_gone(
            || self.docker.remove_containers(&[&id]),
            || Ok(self.docker.inspect_containers(&[&id])?.is_empty()),
        )
    }

    fn network(&self, resource: &Resource) -> Result<Removal> {
        let id = match &resource.id {
            Some(id) => Some(NetworkId::try_from(id.clone())?),
            None => self.docker.find_network(&resource.name, self.run.as_str())?,
        };
        let Some(id) = id else { return Ok(Removal::Gone) };
        let Some(state) = self.docker.inspect_networks(&[&id])?.pop() else { return Ok(Removal::Gone) };
        if let Some(reason) =
            self.mismatch(resource, state.name == resource.name, state.labels.as_ref(), &state.created)
        {
            return Ok(Removal::Kept(reason));
        }
        self.until_gone(|| self.docker.remove_network(&id), || Ok(self.docker.inspect_networks(&[&id])?.is_empty()))
    }

    /// An image only while its name still points at the recorded id; other names of it are the user's.
    fn image(&self, resource: &Resource) -> Result<Removal> {
        let Some(state) = self.docker.inspect_image(&resource.name)? else { return Ok(Removal::Gone) };
        match &resource.id {
            Some(id) if id != state.id.as_str() => {
                return Ok(Removal::Kept(format!("the name points at another image now, {}", state.id)));
            }
            Some(_) => {}
            // No identity: the name is unique to the scope and the image has to carry its label.
            None => {
                let labels = state.config.and_then(|config| config.labels);
                if labels.is_none_or(|labels| labels.get(RUN_LABEL).is_none_or(|run| run != self.run.as_str())) {
                    return Ok(Removal::Kept("an image of this name lacks the scope's label".to_owned()));
                }
            }
        }
        self.until_gone(
            || self.docker.remove_image(&resource.name),
            || {
                Ok(self
                    .docker
                    .inspect_image(&resource.name)?
                    .is_none_or(|now| Some(now.id.as_str()) != resource.id.as_deref()))
            },
        )
    }

    /// The builder's container by its full id, then its entry, which touches neither container nor volume.
    fn builder(&self, resource: &Resource) -> Result<Removal> {
        let Some(state) = self.docker.inspect_builder(&resource.name)? else { return self.builder_entry(resource) };
        let recorded = resource
            .id
            .as_deref()
            .map_or_else(|| born_after(&state.created, &resource.asked), |id| id == state.id.as_str());
        if !recorded {
            self.docker.remove_builder_entry(&resource.name)?;
            return Ok(Removal::Kept(format!("the builder's container is another one now, {}", state.id)));
        }
        let look = || Ok(self.docker.inspect_containers(&[&state.id])?.is_empty());
        self.until_gone(|| self.docker.remove_containers(&[&state.id]), look)?;
        self.builder_entry(resource)
    }

    fn builder_entry(&self, resource: &Resource) -> Result<Removal> {
        self.docker.remove_builder_entry(&resource.name)?;
        Ok(Removal::Gone)
    }

    /// A volume has no id: its name is unique to the scope, and its creation time has to be the recorded one.
    fn volume(&self, resource: &Resource) -> Result<Removal> {
        let Some(state) = self.docker.inspect_volume(&resource.name)? else { return Ok(Removal::Gone) };
        let recorded = resource.created.as_deref().map_or_else(
            || born_after(&state.created_at, &resource.asked),
            |created| created == state.created_at && state.labels.unwrap_or_default() == resource.labels,
        );
        if !recorded {
            return Ok(Removal::Kept(format!("a volume of this name was made at another time, {}", state.created_at)));
        }
        self.until_gone(
            || self.docker.remove_volume(&resource.name),
            || Ok(self.docker.inspect_volume(&resource.name)?.is_none()),
        )
    }

    /// Only the scope's own folder, by its place; std's removal does not follow links.
    fn folder(&self, resource: &Resource) -> Result<Removal> {
        let path = Utf8PathBuf::from(&resource.name);
        let own = std::fs::canonicalize(self.scopes).ok().map(|scopes| scopes.join(self.run.as_str()));
        match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Removal::Gone),
            Err(error) => return Err(error).context("failed to look at it"),
            Ok(found) if !found.is_dir() => return Ok(Removal::Kept("it is no folder any more".to_owned())),
            Ok(_) => {}
        }
        if own.as_deref() != Some(path.as_std_path()) {
            return Ok(Removal::Kept("it is not this run's own folder".to_owned()));
        }
        std::fs::remove_dir_all(&path).with_context(|| format!("failed to delete {path}"))?;
        Ok(Removal::Gone)
    }

    /// Why the thing is not the recorded one; none where it is.
    fn mismatch(
        &self,
        resource: &Resource,
        named: bool,
        labels: Option<&BTreeMap<String, String>>,
        created: &str,
    ) -> Option<String> {
        if !named {
            return Some("it has another name than the recorded one".to_owned());
        }
        if labels.and_then(|labels| labels.get(RUN_LABEL)).is_none_or(|run| run != self.run.as_str()) {
            return Some("it lacks the scope's label".to_owned());
        }
        if !born_after(created, &resource.asked) {
            return Some(format!("it is older ({created}) than the intent to make it ({})", resource.asked));
        }
        None
    }

    /// Asks until a fresh look-up does not find it; "busy" is waited for.
    fn until_gone(
        &self,
        ask: impl Fn() -> Result<(), DockerError>,
        is_gone: impl Fn() -> Result<bool, DockerError>,
    ) -> Result<Removal> {
        let begun = Instant::now();
        loop {
            let answer = ask();
            if is_gone()? {
                return Ok(Removal::Gone);
            }
            let patience = if self.docker.stop().is_impatient() { IMPATIENCE } else { PATIENCE };
            match answer {
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) if begun.elapsed() > patience => return Err(error.into()),
                Ok(()) if begun.elapsed() > patience => return Err(anyhow!("the engine still has it")),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// Whether the engine's time of creation is not before the intent (both RFC 3339; an offset is allowed).
pub(super) fn born_after(created: &str, asked: &str) -> bool {
    let (Some(created), Ok(asked)) = (engine_time(created), humantime::parse_rfc3339(asked)) else { return false };
    created + CLOCK_SLACK >= asked
}

/// The engine writes volumes' times with an offset and containers' with nanoseconds and `Z`.
fn engine_time(text: &str) -> Option<SystemTime> {
    if let Ok(time) = humantime::parse_rfc3339(text) {
        return Some(time);
    }
    let at = text.len().checked_sub(6)?;
    let (clock, offset) = (text.get(..at)?, text.get(at..)?);
    let time = humantime::parse_rfc3339(&format!("{clock}Z")).ok()?;
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let offset_time = Duration::from_secs(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60);
    match offset.as_bytes().first()? {
        b'+' => time.checked_sub(offset_time),
        b'-' => time.checked_add(offset_time),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_older_than_the_intent_is_not_the_scopes_own() {
        let asked = "2026-01-02T03:04:05.000Z";
        let table = [
            ("2026-01-02T03:04:05.123456789Z", true),
            ("2026-01-02T03:04:01Z", true),
            ("2026-01-02T03:03:59Z", false),
            ("2026-01-02T05:04:06+02:00", true),
            ("2026-01-02T05:03:06+02:00", false),
            ("2026-01-01T22:04:06-05:00", true),
            ("", false),
            ("yesterday", false),
        ];
        for (created, own) in table {
            assert_eq!(born_after(created, asked), own, "{created}");
        }
    }
}
