//! A run's resource scope: everything that it creates, in the order of creation. Create: intent on disk → docker call →
//! identity on disk. Remove: prove → docker call → look again → record. `close` is the path that every ending takes; it
//! collects every failure and goes on. Nothing here lists the engine's objects to decide what to remove.

pub mod journal;
mod ledger;
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
use std::time::Duration;
use subnet::Subnets;

/// How often another subnet is tried after a clash with somebody else's network.
const SUBNET_TRIES: usize = 20;

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
        Self::with_journal(run, Journal::create(run_folder)?, scopes, docker)
    }

    /// Opens a new scope for a run that is resumed, after `finish` has settled what it owed.
    ///
    /// # Errors
    /// Where the run lives, or the folder cannot be made.
    pub fn reopen(run: &RunId, run_folder: &Utf8Path, scopes: &Utf8Path, docker: &Docker) -> Result<Self> {
        let journal = Journal::take_over(run_folder)?.ok_or_else(|| anyhow!("run {run} is still alive"))?;
        Self::with_journal(run, journal, scopes, docker)
    }

    fn with_journal(run: &RunId, journal: Journal, scopes: &Utf8Path, docker: &Docker) -> Result<Self> {
        make_private(scopes)?;
        let canonical = scopes.canonicalize_utf8().with_context(|| format!("failed to resolve {scopes}"))?;
        let folder = canonical.join(run.as_str());
        let docker = docker.with_buildx_config(&folder.join("buildx"));
        let state = State { journal, held: Vec::new(), cleanup: Cleanup::default(), subnets: None, counter: 0 };
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
            let made = if relay { self.docker.create_relay(&spec) } else { self.docker.create_container(&spec) }?;
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

    /// Makes the dedicated builder: its entry, its container, its state volume, each in the journal.
    ///
    /// # Errors
    /// Where the builder cannot be made, or is not found afterwards.
    pub fn builder(&self, image: Option<&str>, network: bool, time: Duration) -> Result<String> {
        // buildx lowers the name of a builder without a word: one with capitals would not be found again.
        let name = self.name("builder").to_ascii_lowercase();
        let volume = Resource::intent(Kind::Volume, builder_volume(&name), BTreeMap::new());
        // The volume's intent comes first: it is made with the container, and removed after it.
        self.record_intent(&volume)?;
        let builder = Resource::intent(Kind::Builder, &name, BTreeMap::new());
        self.create(builder, || {
            self.docker.create_builder(&name, image, network)?;
            self.docker.bootstrap_builder(&name, time)?;
            let state = self.docker.inspect_builder(&name)?.context("buildx made no container for the builder")?;
            Ok(((), Some(state.id.to_string())))
        })?;
        if let Some(state) = self.docker.inspect_volume(&volume.name)? {
            let labels = state.labels.unwrap_or_default();
            self.record_created(Resource { created: Some(state.created_at), labels, ..volume })?;
        }
        Ok(name)
    }

    /// Intent on disk → `make` → identity on disk. Where `make` fails, the thing may exist all the same: its intent stays
    /// owed, and its removal looks for it.
    fn create<T>(&self, resource: Resource, make: impl FnOnce() -> Result<(T, Option<String>)>) -> Result<T> {
        self.record_intent(&resource)?;
        let (made, id) = make()?;
        self.record_created(Resource { id, ..resource })?;
        Ok(made)
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

    /// Removes a trial's objects behind it: containers first, then networks. Failures are kept for the report.
    pub fn release(&self, containers: &[ContainerId], networks: &[NetworkId]) {
        let ids: Vec<&str> =
            containers.iter().map(ContainerId::as_str).chain(networks.iter().map(NetworkId::as_str)).collect();
        for id in ids {
            let held = self.lock().held.iter().find(|held| held.id.as_deref() == Some(id)).cloned();
            if let Some(resource) = held {
                self.remove(&resource);
            }
        }
    }

    /// Removes everything that is left, newest first, and says what became of it.
    pub fn close(self) -> Cleanup {
        loop {
            let Some(resource) = self.lock().held.last().cloned() else { break };
            self.remove(&resource);
        }
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).cleanup
    }

    /// Whatever happens, the resource is not held afterwards: it is gone, kept, or among the failures.
    fn remove(&self, resource: &Resource) {
        let remover = Remover { run: &self.run, docker: &self.docker, scopes: &self.scopes };
        let outcome = remover.remove(resource);
        let mut state = self.lock();
        state.held.retain(|held| held != resource);
        let recorded = match outcome {
            Ok(Removal::Gone) => {
                state.cleanup.removed.push(resource.clone());
                state.journal.write(&resource.line(Step::Removed, None))
            }
            Ok(Removal::Kept(reason)) => {
                state.cleanup.kept.push((resource.clone(), reason.clone()));
                state.journal.write(&resource.line(Step::Kept, Some(reason)))
            }
            Err(error) => {
                state.cleanup.failures.push(self.failure(resource, &error));
                Ok(())
            }
        };
        if let Err(error) = recorded {
            let failure = Failure {
                reason: format!("its end could not be recorded: {error:#}"),
                ..self.failure(resource, &error)
            };
            state.cleanup.failures.push(failure);
        }
    }

    fn failure(&self, resource: &Resource, error: &anyhow::Error) -> Failure {
        Failure {
            resource: resource.clone(),
            reason: format!("{error:#}"),
            command: format!("crashlab clean {}", self.run),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere must not keep the clean-up from its work.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_private(folder: &Utf8Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("failed to make the folder {folder}"))
}
