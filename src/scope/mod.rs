//! A run's resource scope: everything that it creates, in the order of creation. Create: intent on disk → docker call →
//! identity on disk. Remove: prove → docker call → look again → record. `close` is the path that every ending takes; it
//! collects every failure and goes on. Nothing here lists the engine's objects to decide what to remove.

pub mod journal;
mod ledger;
mod orphans;
mod remove;
mod rest;
mod subnet;

pub use journal::Kind;
pub use ledger::Resource;
pub use rest::{Leftover, finish, leftovers, owes};
pub use subnet::Subnet;

use crate::docker::args::{ContainerSpec, NetworkSpec, NetworkUse, RUN_LABEL};
use crate::docker::{CreatedContainer, Docker, DockerError, builder_volume};
use crate::ids::{ContainerId, ImageId, NetworkId, RunId};
use anyhow::{Context, Result, anyhow};
use camino::{Utf8Path, Utf8PathBuf};
use journal::{Journal, Step};
use remove::{Removal, Remover};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use subnet::Subnets;

/// How often another subnet is tried after a clash with somebody else's network.
const SUBNET_TRIES: usize = 20;
/// Between two looks for what may still come.
const PAUSE: Duration = Duration::from_millis(250);

/// What a clean-up did.
#[derive(Debug, Clone, Default)]
pub struct Cleanup {
    /// Gone, each confirmed.
    pub removed: Vec<Resource>,
    /// Not (provably) the scope's own any more, with the reason.
    pub kept: Vec<(Resource, String)>,
    /// Still there, with the reason and the command that finishes it.
    pub failures: Vec<Failure>,
}

/// A removal that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What is still there.
    pub resource: Resource,
    /// Why.
    pub reason: String,
    /// What finishes it.
    pub command: String,
}

/// The live scope of one command.
#[derive(Debug)]
pub struct Scope {
    run: RunId,
    docker: Docker,
    scopes: Utf8PathBuf,
    folder: Utf8PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    journal: Journal,
    held: Vec<Resource>,
    cleanup: Cleanup,
    subnets: Option<Subnets>,
    counter: u32,
}

impl Scope {
    /// Opens the scope of a run: its journal in the run's folder, its own folder below `scopes`.
    ///
    /// # Errors
    /// Where the journal or the folder cannot be made.
    pub fn open(run: &RunId, run_folder: &Utf8Path, scopes: &Utf8Path, docker: &Docker) -> Result<Self> {
        Self::with_journal(run, Journal::create(run_folder)?, 0, scopes, docker)
    }

    /// Opens a new scope for a run that is resumed, after `finish` has settled what it owed.
    ///
    /// # Errors
    /// Where the run lives, or the folder cannot be made.
    pub fn reopen(run: &RunId, run_folder: &Utf8Path, scopes: &Utf8Path, docker: &Docker) -> Result<Self> {
        let journal = Journal::take_over(run_folder)?.ok_or_else(|| anyhow!("run {run} is still alive"))?;
        // Names go on from there: none is given twice, also where an object of the earlier process is still there.
        let lines = u32::try_from(journal::read(run_folder)?.len()).unwrap_or(u32::MAX / 2);
        Self::with_journal(run, journal, lines, scopes, docker)
    }

    fn with_journal(run: &RunId, journal: Journal, counter: u32, scopes: &Utf8Path, docker: &Docker) -> Result<Self> {
        // A run may be gone on with from another results folder, which nobody has made yet.
        let results = scopes.parent().unwrap_or(scopes);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(results);
        made.with_context(|| format!("failed to make the folder {results}"))?;
        // Another run may have made it in this moment.
        if let Err(error) = make_private(scopes)
            && !is_own(scopes)
        {
            return Err(error.context("the results folder has no usable `scopes` (a symbolic link is not followed)"));
        }
        let canonical = scopes.canonicalize_utf8().with_context(|| format!("failed to resolve {scopes}"))?;
        let folder = canonical.join(run.as_str());
        let docker = docker.with_buildx_config(&folder.join("buildx"));
        let state = State { journal, held: Vec::new(), cleanup: Cleanup::default(), subnets: None, counter };
        let scope = Self { run: run.clone(), docker, scopes: canonical, folder, state: Mutex::new(state) };
        let resource = Resource::intent(Kind::Folder, scope.folder.as_str(), BTreeMap::new());
        scope.create(resource, || {
            make_private(&scope.folder)?;
            Ok(((), None))
        })?;
        Ok(scope)
    }

    /// The scope's own folder (0700), gone at its end.
    pub fn folder(&self) -> &Utf8Path {
        &self.folder
    }

    /// The client, with the scope's own buildx configuration.
    pub fn docker(&self) -> &Docker {
        &self.docker
    }

    /// The run whose scope this is.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// A name that no other object has: the run, what it is for, a number.
    pub fn name(&self, role: &str) -> String {
        let mut state = self.lock();
        state.counter += 1;
        format!("crashlab-{}-{role}-{}", self.run, state.counter)
    }

    /// The labels of an object of this scope.
    pub fn labels(&self, role: &str) -> BTreeMap<String, String> {
        [(RUN_LABEL.to_owned(), self.run.to_string()), ("crashlab.role".to_owned(), role.to_owned())].into()
    }

    /// Creates a container; `make` gets the spec with the scope's name and labels in it.
    ///
    /// # Errors
    /// What the engine says, with the container resolved (and owed) where it exists all the same.
    pub fn container(&self, role: &str, mut spec: ContainerSpec, relay: bool) -> Result<CreatedContainer> {
        spec.name = self.name(role);
        spec.labels.extend(self.labels(role));
        let resource = Resource::intent(Kind::Container, &spec.name, spec.labels.clone());
        self.create(resource, || {
            let made = if relay { self.docker.run_relay(&spec) } else { self.docker.create_container(&spec) }?;
            let id = made.id.to_string();
            Ok((made, Some(id)))
        })
    }

    /// Creates an internal network on a free subnet of this prefix length.
    ///
    /// # Errors
    /// Where no subnet is free, or what the engine says.
    pub fn network(&self, role: &str, bits: u8, use_: NetworkUse) -> Result<(NetworkId, Subnet)> {
        for _ in 0..SUBNET_TRIES {
            let subnet = self.take_subnet(bits)?;
            let spec = NetworkSpec {
                name: self.name(role),
                labels: self.labels(role),
                subnet: subnet.to_string(),
                gateway: subnet.address(1).to_string(),
                use_,
            };
            let resource = Resource::intent(Kind::Network, &spec.name, spec.labels.clone());
            let made = self.create(resource, || {
                let id = self.docker.create_network(&spec)?;
                let text = id.to_string();
                Ok((id, Some(text)))
            });
            match made {
                Ok(id) => return Ok((id, subnet)),
                // Somebody else took the block meanwhile: it stays taken, another one may do.
                Err(error) if error.downcast_ref::<DockerError>().is_some_and(DockerError::is_address_clash) => {}
                Err(error) => return Err(error),
            }
        }
        Err(anyhow!("no free subnet was found in {SUBNET_TRIES} tries\nhint: remove networks that nobody needs"))
    }

    fn take_subnet(&self, bits: u8) -> Result<Subnet> {
        let mut state = self.lock();
        if state.subnets.is_none() {
            let mut start = [0_u8; 4];
            getrandom::fill(&mut start).context("failed to read random bytes")?;
            state.subnets = Some(Subnets::new(&self.docker.taken_subnets()?, u32::from_le_bytes(start)));
        }
        let subnet = state.subnets.as_mut().and_then(|subnets| subnets.take(bits));
        subnet.context("every private address range is taken\nhint: remove networks or routes that nobody needs")
    }

    /// Gives the subnet of a network that is gone back.
    pub fn give_back(&self, subnet: Subnet) {
        if let Some(subnets) = &mut self.lock().subnets {
            subnets.give_back(subnet);
        }
    }

    /// Records an image that `make` gives the scope under this name.
    ///
    /// # Errors
    /// What `make` says.
    pub fn image(&self, name: &str, make: impl FnOnce() -> Result<ImageId>) -> Result<ImageId> {
        let resource = Resource::intent(Kind::Image, name, self.labels("image"));
        self.create(resource, || {
            let id = make()?;
            let text = id.to_string();
            Ok((id, Some(text)))
        })
    }

    /// Holds an image for as long as the scope lives, by a container that is never started: a run that pulled it may end
    /// meanwhile, or a person may remove it, and trials run by its id.
    ///
    /// # Errors
    /// What the engine says: no such image, where it is gone already.
    pub fn hold(&self, image: &ImageId) -> Result<()> {
        let (name, labels) = (self.name("hold"), self.labels("hold"));
        let resource = Resource::intent(Kind::Container, &name, labels.clone());
        self.create(resource, || {
            let id = self.docker.hold_image(&name, &labels, image)?;
            Ok(((), Some(id.to_string())))
        })
    }

    /// Makes the dedicated builder: its entry, its container, its state volume, each in the journal.
    ///
    /// # Errors
    /// Where the builder cannot be made, or is not found afterwards.
    pub fn builder(&self, image: Option<&str>, network: bool, time: Duration) -> Result<String> {
        // buildx lowers the name of a builder without a word: one with capitals would not be found again.
        let name = self.name("builder").to_ascii_lowercase();
        // The volume comes first, and is removed last. It is made here and not by buildx, which gives it no label: a volume
        // has no id, and on engines up to 20.10 its time of creation moves with what is written into it.
        self.volume(&builder_volume(&name))?;
        let builder = Resource::intent(Kind::Builder, &name, BTreeMap::new());
        self.create(builder, || {
            self.docker.create_builder(&name, image, network)?;
            self.docker.bootstrap_builder(&name, time)?;
            let state = self.docker.inspect_builder(&name)?.context("buildx made no container for the builder")?;
            Ok(((), Some(state.id.to_string())))
        })?;
        Ok(name)
    }

    /// A labelled volume; a random word among its labels is what nobody else's volume of this name has.
    fn volume(&self, name: &str) -> Result<()> {
        let mut word = [0_u8; 8];
        getrandom::fill(&mut word).context("failed to read random bytes")?;
        let mut labels = self.labels("builder");
        labels.insert("crashlab.word".to_owned(), format!("{:016x}", u64::from_le_bytes(word)));
        let volume = Resource::intent(Kind::Volume, name, labels);
        self.create(volume.clone(), || {
            self.docker.create_volume(name, &volume.labels)?;
            Ok(((), None))
        })?;
        let state = self.docker.inspect_volume(name)?.context("the volume is gone again")?;
        self.record_created(Resource { created: Some(state.created_at), ..volume })
    }

    /// Intent on disk → `make` → identity on disk. Where `make` fails, the thing may exist all the same: its intent stays
    /// owed, and its removal looks for it.
    fn create<T>(&self, resource: Resource, make: impl FnOnce() -> Result<(T, Option<String>)>) -> Result<T> {
        self.record_intent(&resource)?;
        let given_up = self.docker.given_up();
        match make() {
            Ok((made, id)) => {
                self.record_created(Resource { id, ..resource })?;
                Ok(made)
            }
            Err(error) => {
                let unanswered = error.downcast_ref().is_some_and(|error: &DockerError| !error.is_answered());
                if unanswered || self.docker.given_up() > given_up {
                    self.doubt(&resource);
                }
                Err(error)
            }
        }
    }

    /// A client that was cut off may have asked the engine for it: it may come a little later.
    fn doubt(&self, resource: &Resource) {
        let mut state = self.lock();
        if let Some(held) = state.held.iter_mut().find(|held| *held == resource) {
            *held = resource.clone().doubtful(SystemTime::now());
        }
    }

    fn record_intent(&self, resource: &Resource) -> Result<()> {
        let mut state = self.lock();
        state.journal.write(&resource.line(Step::Intent, None))?;
        state.held.push(resource.clone());
        Ok(())
    }

    fn record_created(&self, resource: Resource) -> Result<()> {
        let mut state = self.lock();
        if let Some(held) = state.held.iter_mut().find(|held| held.kind == resource.kind && held.name == resource.name)
        {
            *held = resource.clone();
        }
        state.journal.write(&resource.line(Step::Created, None))
    }

    /// Removes objects before the end: containers first, then networks, each kind in one call and one look. Says whether
    /// all are gone; what is not stays held, and is tried again at the end.
    pub fn release(&self, containers: &[ContainerId], networks: &[NetworkId]) -> bool {
        let containers = self.release_all(&containers.iter().map(ContainerId::as_str).collect::<Vec<_>>());
        self.release_all(&networks.iter().map(NetworkId::as_str).collect::<Vec<_>>()) && containers
    }

    fn release_all(&self, ids: &[&str]) -> bool {
        let is_one = |held: &&Resource| held.id.as_deref().is_some_and(|id| ids.contains(&id));
        let held: Vec<Resource> = self.lock().held.iter().filter(is_one).cloned().collect();
        let gone = self.remover().remove_together(&held);
        let all = gone.len() == held.len();
        self.settle_all(gone.into_iter().map(|(resource, removal)| (resource, Ok(removal))).collect());
        all
    }

    /// Removes everything that is left, newest first, and says what became of it. What may still come is looked for again
    /// at the end: most of the wait for it is over by then.
    pub fn close(self) -> Cleanup {
        let mut unsure = Vec::new();
        loop {
            let Some(resource) = self.lock().held.pop() else { break };
            match self.remover().remove(&resource) {
                Ok(Removal::Unsure) => unsure.push(resource),
                outcome => self.settle_all(vec![(resource, outcome)]),
            }
        }
        for resource in unsure {
            let outcome = wait_until_sure(&self.remover(), &resource);
            self.settle_all(vec![(resource, outcome)]);
        }
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).cleanup
    }

    fn remover(&self) -> Remover<'_> {
        Remover { run: &self.run, docker: &self.docker, scopes: &self.scopes, orphan: None, made_folder: true }
    }

    /// Whatever happened, these are not held afterwards: each is gone, kept, or among the failures.
    fn settle_all(&self, outcomes: Vec<(Resource, Result<Removal>)>) {
        let mut state = self.lock();
        let State { journal, held, cleanup, .. } = &mut *state;
        held.retain(|held| outcomes.iter().all(|(resource, _)| held != resource));
        settle(&self.remover(), journal, cleanup, outcomes);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not keep the clean-up from its work.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes outcomes into the journal and the account of the clean-up.
fn settle(
    remover: &Remover<'_>,
    journal: &mut Journal,
    cleanup: &mut Cleanup,
    outcomes: Vec<(Resource, Result<Removal>)>,
) {
    let mut lines = Vec::new();
    let mut recorded = Vec::new();
    for (resource, outcome) in outcomes {
        match outcome {
            Ok(Removal::Gone) => {
                lines.push(resource.line(Step::Removed, None));
                recorded.push(resource.clone());
                cleanup.removed.push(resource);
            }
            Ok(Removal::Kept(reason)) => {
                lines.push(resource.line(Step::Kept, Some(reason.clone())));
                recorded.push(resource.clone());
                cleanup.kept.push((resource, reason));
            }
            Ok(Removal::Unsure) => {
                let reason = "it was being made when its docker client was cut off, and may still come".to_owned();
                cleanup.failures.push(failure(remover, resource, reason));
            }
            Err(error) => cleanup.failures.push(failure(remover, resource, format!("{error:#}"))),
        }
    }
    if let Err(error) = journal.write_all(&lines) {
        let reason = format!("its end could not be recorded: {error:#}");
        cleanup.failures.extend(recorded.into_iter().map(|resource| failure(remover, resource, reason.clone())));
    }
}

fn failure(remover: &Remover<'_>, resource: Resource, reason: String) -> Failure {
    let results = remover.scopes.parent().unwrap_or(remover.scopes);
    Failure { resource, reason, command: format!("crashlab clean {} --results {}", remover.run, quoted(results)) }
}

/// As one word for a shell.
fn quoted(path: &Utf8Path) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if path.as_str().chars().all(plain) {
        path.to_string()
    } else {
        format!("'{}'", path.as_str().replace('\'', "'\\''"))
    }
}

/// Looks again until it is there, or cannot come any more; at once where the user asked twice to stop.
fn wait_until_sure(remover: &Remover<'_>, resource: &Resource) -> Result<Removal> {
    loop {
        match remover.remove(resource) {
            Ok(Removal::Unsure) if !remover.docker.stop().is_impatient() => std::thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
}

/// A new folder: what is there already may have been planted in the results folder, with links in it.
fn make_private(folder: &Utf8Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
    made.with_context(|| format!("failed to make the folder {folder}"))
}

/// Whether a folder lies there itself, and no link that would lead somewhere else.
fn is_own(folder: &Utf8Path) -> bool {
    folder.symlink_metadata().is_ok_and(|about| about.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;
    use crate::trace::Trace;

    fn open(folder: &Utf8Path) -> Scope {
        let run = RunId::try_from("20260102T030405Z-abcd".to_owned()).unwrap();
        std::fs::create_dir(folder.join("run")).unwrap();
        let docker = Docker::new(&Interrupt::never(), &Trace::off());
        Scope::open(&run, &folder.join("run"), &folder.join("scopes"), &docker).unwrap()
    }

    fn container() -> Resource {
        Resource::intent(Kind::Container, "crashlab-20260102T030405Z-abcd-target-1", BTreeMap::new())
    }

    #[test]
    fn a_link_or_a_folder_that_somebody_planted_in_the_scopes_place_is_not_used() {
        let keep = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(keep.path()).unwrap().canonicalize_utf8().unwrap();
        let (outside, docker) = (base.join("outside"), Docker::new(&Interrupt::never(), &Trace::off()));
        std::fs::create_dir(&outside).unwrap();
        let run = RunId::try_from("20260102T030405Z-abcd".to_owned()).unwrap();
        type Plant = fn(&Utf8Path, &Utf8Path);
        let table: [(&str, Plant); 4] = [
            ("link", |scopes, outside| std::os::unix::fs::symlink(outside, scopes).unwrap()),
            ("dangling", |scopes, outside| std::os::unix::fs::symlink(outside.join("new"), scopes).unwrap()),
            ("own-link", |scopes, outside| {
                std::fs::create_dir(scopes).unwrap();
                std::os::unix::fs::symlink(outside, scopes.join("20260102T030405Z-abcd")).unwrap();
            }),
            ("own-folder", |scopes, outside| {
                std::fs::create_dir_all(scopes.join("20260102T030405Z-abcd")).unwrap();
                std::os::unix::fs::symlink(outside, scopes.join("20260102T030405Z-abcd/Dockerfile")).unwrap();
            }),
        ];
        for (name, plant) in table {
            let folder = base.join(name);
            std::fs::create_dir_all(folder.join("run")).unwrap();
            plant(&folder.join("scopes"), &outside);
            assert!(Scope::open(&run, &folder.join("run"), &folder.join("scopes"), &docker).is_err(), "{name}");
            assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{name}");
        }
    }

    #[test]
    fn nothing_is_made_whose_intent_is_not_on_disk() {
        let folder = tempfile::tempdir().unwrap();
        let scope = open(Utf8Path::from_path(folder.path()).unwrap());
        scope.lock().journal.break_for_writing();
        let made = scope.create::<()>(container(), || panic!("it was made"));
        assert!(made.unwrap_err().to_string().contains("failed to write the journal"));
    }

    #[test]
    fn what_was_made_is_owed_also_where_its_identity_could_not_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let scope = open(Utf8Path::from_path(folder.path()).unwrap());
        let made = scope.create(container(), || {
            scope.lock().journal.break_for_writing();
            Ok(((), Some("1".repeat(64))))
        });
        assert!(made.unwrap_err().to_string().contains("failed to write the journal"));
        assert_eq!(scope.lock().held.last().and_then(|held| held.id.clone()), Some("1".repeat(64)));
    }
}
