//! Removal: prove that the thing is the scope's own, remove it, look again, and only then say so. One function a kind.
//!
//! The only way from a label to a removal is an intent that got no identity: unique name, the scope's label and a creation
//! time after the intent must all match. "Not found" is success; "busy" is waited for; a mismatch keeps the thing, and so
//! does another thing that has its name now. Where nothing is found but something may still come, that is said as well.

use super::journal::Kind;
use super::ledger::Resource;
use crate::docker::args::RUN_LABEL;
use crate::docker::{Docker, DockerError, Identity, builder_volume};
use crate::ids::{ContainerId, NetworkId, RunId};
use anyhow::{Context, Result, anyhow, bail};
use camino::{Utf8Path, Utf8PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long the engine may be busy with a thing, or away, before its removal counts as failed.
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
    /// Nothing is there, and it may still come: whoever was making it had no time to say so.
    Unsure,
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
    /// A docker client of the (dead) run that still works: what it makes may still come.
    pub orphan: Option<u32>,
    /// Whether this process made the scope's folder. In one that it found, buildx's entries may be anybody's: buildx would
    /// reach for whatever engine they name, by `ssh` or by a program of a cluster's configuration.
    pub made_folder: bool,
}

impl Remover<'_> {
    /// Removes one resource, if it still is what was recorded. An engine that is away may come back meanwhile.
    ///
    /// # Errors
    /// Where the engine refuses, hangs, or still has the thing after the wait.
    pub fn remove(&self, resource: &Resource) -> Result<Removal> {
        loop {
            let outcome = self.attempt(resource);
            let away = |error: &anyhow::Error| error.downcast_ref().is_some_and(DockerError::is_unreachable);
            if outcome.as_ref().is_err_and(away) && self.docker.unreachable_for() < Some(self.patience()) {
                std::thread::sleep(PAUSE);
                continue;
            }
            return outcome
                .with_context(|| format!("failed to remove {} {}", resource.kind.as_str(), resource.handle()));
        }
    }

    fn attempt(&self, resource: &Resource) -> Result<Removal> {
        if !resource.intended {
            return Ok(Removal::Kept("the journal has no intent to make it".to_owned()));
        }
        if !self.is_own_name(resource) {
            return Ok(Removal::Kept("it has a name that this run does not give".to_owned()));
        }
        match resource.kind {
            Kind::Container | Kind::Network => self.by_id(resource),
            Kind::Image => self.image(resource),
            Kind::Builder => self.builder(resource),
            Kind::Volume => self.volume(resource),
            Kind::Folder => self.folder(resource),
        }
    }

    /// A journal may have been edited: whatever it says, only names that this run gives are removed by name.
    fn is_own_name(&self, resource: &Resource) -> bool {
        let (name, own) = (resource.name.as_str(), format!("crashlab-{}-", self.run));
        let builder = format!("{}builder-", own.to_ascii_lowercase());
        match resource.kind {
            Kind::Container | Kind::Network => name.starts_with(&own),
            Kind::Builder => name.starts_with(&builder),
            Kind::Volume => {
                let (head, end) = (builder_volume(&builder), "0_state");
                name.ends_with(end) && name.starts_with(head.trim_end_matches(end))
            }
            // A pulled image has the name that the policy gives it, a folder is compared by its place.
            Kind::Image | Kind::Folder => true,
        }
    }

    /// Containers or networks of this process, by the ids that the engine gave it itself: removed in one call, looked at in
    /// one. Gives those that are gone.
    pub fn remove_together(&self, resources: &[Resource]) -> Vec<(Resource, Removal)> {
        let ids: Vec<&str> = resources.iter().filter_map(|resource| resource.id.as_deref()).collect();
        let [first, ..] = resources else { return Vec::new() };
        let names = resources.iter().map(|resource| resource.name.as_str());
        let asked: Vec<&str> = ids.iter().copied().chain(names).collect();
        // What it says does not matter, the look does.
        let _ = self.ask(first.kind, &ids);
        let Ok(found) = self.look(first.kind, &asked) else { return Vec::new() };
        let is_gone = |resource: &&Resource| found.iter().all(|it| Some(it.id.as_str()) != resource.id.as_deref());
        resources.iter().filter(is_gone).map(|resource| (resource.clone(), gone(resource, &found))).collect()
    }

    fn by_id(&self, resource: &Resource) -> Result<Removal> {
        let id = match &resource.id {
            Some(id) => Some(id.clone()),
            None => self.find(resource)?,
        };
        let Some(id) = id else { return self.absent(resource) };
        if ContainerId::try_from(id.clone()).is_err() {
            return Ok(Removal::Kept("what the journal has for its id is no full id".to_owned()));
        }
        let found = self.look(resource.kind, &[&id, &resource.name])?;
        let Some(own) = found.iter().find(|it| it.id == id) else { return Ok(gone(resource, &found)) };
        if let Some(reason) = self.mismatch(resource, own) {
            return Ok(Removal::Kept(reason));
        }
        let look = || self.look(resource.kind, &[&id, &resource.name]);
        let is_gone = |found: &Vec<Identity>| found.iter().all(|it| it.id != id);
        let found = self.until(|| self.ask(resource.kind, &[&id]), look, is_gone);
        Ok(gone(resource, &found.map_err(|error| self.explain(error, &id))?))
    }

    /// A network that nobody is attached to and that is "in use" has to wait for the engine's next start.
    fn explain(&self, error: anyhow::Error, id: &str) -> anyhow::Error {
        let in_use = error.downcast_ref().is_some_and(DockerError::is_network_in_use);
        let state = || self.docker.inspect_networks(&[&NetworkId::try_from(id.to_owned()).ok()?]).ok()?.pop();
        match in_use.then(state).flatten().and_then(|state| state.containers) {
            Some(attached) if attached.is_empty() => error.context(
                "nobody is attached to it, but the engine has lost count: it goes once the engine was started anew",
            ),
            _ => error,
        }
    }

    fn find(&self, resource: &Resource) -> Result<Option<String>> {
        let (name, run) = (resource.name.as_str(), self.run.as_str());
        Ok(match resource.kind {
            Kind::Network => self.docker.find_network(name, run)?.map(|id| id.to_string()),
            _ => self.docker.find_container(name, run)?.map(|id| id.to_string()),
        })
    }

    fn look(&self, kind: Kind, asked: &[&str]) -> Result<Vec<Identity>, DockerError> {
        match kind {
            Kind::Network => self.docker.look_for_networks(asked),
            _ => self.docker.look_for_containers(asked),
        }
    }

    /// By full id only: what is no full id is not asked for.
    fn ask(&self, kind: Kind, ids: &[&str]) -> Result<(), DockerError> {
        if kind == Kind::Network {
            let ids: Vec<NetworkId> = ids.iter().filter_map(|id| NetworkId::try_from((*id).to_owned()).ok()).collect();
            return self.docker.remove_networks(&ids.iter().collect::<Vec<_>>());
        }
        let ids: Vec<ContainerId> = ids.iter().filter_map(|id| ContainerId::try_from((*id).to_owned()).ok()).collect();
        self.docker.remove_containers(&ids.iter().collect::<Vec<_>>())
    }

    /// Nothing is there. That is final once whoever was making it is gone, and a moment has passed since.
    fn absent(&self, resource: &Resource) -> Result<Removal> {
        if resource.doubt.is_some()
            && let Some(pid) = self.orphan
        {
            bail!("a docker client of that run, process {pid}, may still make it");
        }
        let still = resource.doubt.is_some_and(|until| SystemTime::now() < until);
        Ok(if still { Removal::Unsure } else { Removal::Gone })
    }

    /// An image only while its name still points at the recorded id; other names of it are the user's.
    fn image(&self, resource: &Resource) -> Result<Removal> {
        let Some(state) = self.docker.inspect_image(&resource.name)? else { return self.absent(resource) };
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
        let begun = Instant::now();
        loop {
            let removed = self.until(
                || self.docker.remove_image(&resource.name),
                || self.docker.inspect_image(&resource.name),
                |now| now.as_ref().is_none_or(|now| now.id != state.id),
            );
            let in_use = |error: &anyhow::Error| error.downcast_ref().is_some_and(DockerError::is_image_in_use);
            match removed {
                Ok(_) => return Ok(Removal::Gone),
                Err(error) if !in_use(&error) => return Err(error),
                Err(error) => match self.docker.users_of_image(&state.id)?.as_slice() {
                    // Whoever it was has let go of it meanwhile.
                    [] if begun.elapsed() < self.patience() => std::thread::sleep(PAUSE),
                    // A container of this very run is still there: the image is owed until it is gone.
                    users if users.iter().any(|user| self.is_own(user)) => return Err(error),
                    [(container, run), ..] => {
                        let whose = run.as_deref().map(|run| format!(" of run {run}")).unwrap_or_default();
                        return Ok(Removal::Kept(format!("the container {container}{whose} is made of it")));
                    }
                    [] => return Err(error),
                },
            }
        }
    }

    /// Of the containers that are made of an image.
    fn is_own(&self, (_, run): &(String, Option<String>)) -> bool {
        run.as_deref() == Some(self.run.as_str())
    }

    /// The builder's container by its full id, then its entry, which touches neither container nor volume.
    fn builder(&self, resource: &Resource) -> Result<Removal> {
        let found = self.docker.look_for_builder(&resource.name, resource.id.as_deref())?;
        let own = |id: &ContainerId, created: &str| match &resource.id {
            Some(recorded) => recorded == id.as_str(),
            None => born_after(created, &resource.asked),
        };
        let (own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|it| own(&it.id, &it.created));
        for state in &own {
            let look = || self.docker.look_for_containers(&[state.id.as_str()]);
            self.until(|| self.docker.remove_containers(&[&state.id]), look, Vec::is_empty)?;
        }
        // The entry is a file of the scope's folder, and goes with it at the latest; without that folder there is none, and
        // asking for it would make the folder.
        if self.made_folder && self.scopes.join(self.run.as_str()).join("buildx").exists() {
            self.docker.remove_builder_entry(&resource.name)?;
        }
        match others.first() {
            Some(other) => Ok(Removal::Kept(format!("the builder's container is another one now, {}", other.id))),
            None if own.is_empty() => self.absent(resource),
            None => Ok(Removal::Gone),
        }
    }

    /// A volume has no id. Its name is unique to the scope, its labels hold a random word, and it is no older than the intent
    /// to make it; the recorded time of creation says no more, since an engine may move it forward.
    fn volume(&self, resource: &Resource) -> Result<Removal> {
        let Some(state) = self.docker.inspect_volume(&resource.name)? else { return self.absent(resource) };
        let not_before = resource.created.as_deref().unwrap_or(&resource.asked);
        if state.labels.unwrap_or_default() != resource.labels || !born_after(&state.created_at, not_before) {
            return Ok(Removal::Kept(format!("another volume has its name now, made {}", state.created_at)));
        }
        self.until(
            || self.docker.remove_volume(&resource.name),
            || self.docker.inspect_volume(&resource.name),
            Option::is_none,
        )?;
        Ok(Removal::Gone)
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
    fn mismatch(&self, resource: &Resource, found: &Identity) -> Option<String> {
        let Identity { name, created, labels, .. } = found;
        if *name != resource.name {
            return Some("it has another name than the recorded one".to_owned());
        }
        if labels.get(RUN_LABEL).is_none_or(|run| run != self.run.as_str()) {
            return Some("it lacks the scope's label".to_owned());
        }
        if !born_after(created, &resource.asked) {
            return Some(format!("it is older ({created}) than the intent to make it ({})", resource.asked));
        }
        None
    }

    fn patience(&self) -> Duration {
        if self.docker.stop().is_impatient() { IMPATIENCE } else { PATIENCE }
    }

    /// Asks until a fresh look finds it gone, and gives that look; "busy" is waited for.
    fn until<T>(
        &self,
        ask: impl Fn() -> Result<(), DockerError>,
        look: impl Fn() -> Result<T, DockerError>,
        is_gone: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let begun = Instant::now();
        loop {
            let answer = ask();
            let found = look()?;
            if is_gone(&found) {
                return Ok(found);
            }
            match answer {
                Err(error) if !error.is_transient() => return Err(error.into()),
                Err(error) if begun.elapsed() > self.patience() => return Err(error.into()),
                Ok(()) if begun.elapsed() > self.patience() => return Err(anyhow!("the engine still has it")),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// It is gone; what has its name now, if anything, is somebody else's and stays.
fn gone(resource: &Resource, found: &[Identity]) -> Removal {
    let other = found.iter().find(|it| it.name == resource.name);
    other.map_or(Removal::Gone, |it| {
        Removal::Kept(format!("another {} has its name now, {}", resource.kind.as_str(), it.id))
    })
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
