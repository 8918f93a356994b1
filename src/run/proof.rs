//! The proof that the run's sandbox is what the policy asks for: made once a run, while the first trials are being
//! prepared; no target starts before it is there. Owns what the attesting container stands in (its own network and relay,
//! a neighbour's); judges nothing.

use super::doors::{Doors, Way};
use super::lab::Lab;
use crate::docker::Engine;
use crate::docker::args::Attachment;
use crate::interrupt::Interrupt;
use crate::redact::Redactor;
use crate::trial::attest::{self, Attestation, Surroundings};
use crate::trial::relay::Link;
use crate::trial::{Ground, Objects, Shape, Shortfall};
use anyhow::{Context, Result, anyhow};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};

/// The proof as the trials wait for it.
#[derive(Debug, Default)]
pub struct Proof {
    made: Mutex<Option<Result<Attestation, String>>>,
    told: Condvar,
}

impl Proof {
    /// Waits until the sandbox was looked at; gives what it lacks, which is everything where this is another one.
    ///
    /// # Errors
    /// Where the engine could not run the attesting container.
    pub fn wait(&self, shape: &Shape) -> Result<Vec<Shortfall>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        while made.is_none() {
            made = self.told.wait(made).unwrap_or_else(PoisonError::into_inner);
        }
        match &*made {
            Some(Ok(attestation)) => Ok(attestation.lacks(shape)),
            Some(Err(error)) => Err(anyhow!("the sandbox could not be proven: {error}")),
            None => Ok(Vec::new()),
        }
    }

    /// What was seen, for the record; nothing where nothing could be.
    pub fn attested(&self) -> Map<String, Value> {
        match &*self.made.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(attestation)) => attestation.attested.clone(),
            _ => Map::new(),
        }
    }

    /// The first word stands.
    fn set(&self, made: Result<Attestation, String>) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(made);
        self.told.notify_all();
    }
}

/// Whoever waits is told, even if the look should end in a panic.
struct Told<'a>(&'a Proof);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.set(Err("the look ended early".to_owned()));
    }
}

/// Looks at the sandbox, and tells whoever waits, whatever comes of it.
pub fn make(lab: &Lab<'_>, engine: &Engine) {
    let _told = Told(&lab.proof);
    let (mut own, mut other) = (Objects::default(), Objects::default());
    let stand = Stand {
        ground: &lab.ground,
        engine,
        doors: lab.doors.as_ref(),
        redactor: &lab.redactor,
        stop: &lab.accepted.stop,
    };
    let made = stand.look(&mut own, &mut other).map_err(|error| format!("{error:#}"));
    if let Ok(attestation) = &made {
        let mut shortfalls = lab.shortfalls.lock().unwrap_or_else(PoisonError::into_inner);
        shortfalls.extend(attestation.shortfalls.iter().cloned());
    }
    lab.proof.set(made);
    lab.behind.leave(own.and(other));
}

/// What a sandbox that is looked at stands on; without doors it has no network.
pub struct Stand<'a> {
    /// Image, policy, scope.
    pub ground: &'a Ground<'a>,
    /// Who runs it.
    pub engine: &'a Engine,
    /// The ways out, where there are any.
    pub doors: Option<&'a Doors>,
    /// The run's secrets.
    pub redactor: &'a Redactor,
    /// Ends it early.
    pub stop: &'a Interrupt,
}

impl Stand<'_> {
    /// Looks at the sandbox; the objects that it took are the caller's to release.
    ///
    /// # Errors
    /// Where the engine cannot run the attesting container, or a relay does not reach the gateway.
    pub fn look(&self, own: &mut Objects, other: &mut Objects) -> Result<Attestation> {
        let environment = ["CRASHLAB_CASE", "CRASHLAB_REPETITION"].map(|name| (name.to_owned(), String::new()));
        let blank = Surroundings {
            network: Attachment::None,
            relay: None,
            neighbour: Vec::new(),
            host: Vec::new(),
            environment: BTreeMap::from(environment),
        };
        let Some(doors) = self.doors else {
            return attest::attest(self.ground, self.engine, own, &blank, self.stop);
        };
        let (way, neighbour) = std::thread::scope(|threads| {
            let neighbour = threads.spawn(|| doors.try_out(self.ground, self.redactor, other));
            let way = doors.try_out(self.ground, self.redactor, own);
            (way, neighbour.join())
        });
        let (way, neighbour) = (way?, neighbour.map_err(|_| anyhow!("the neighbour's thread ended early"))??);
        let surroundings = Surroundings {
            network: way.link.attachment(),
            relay: Some(way.link.relay_address()),
            neighbour: self.forbidden(&way, &neighbour)?,
            host: vec![doors.gateway_address()],
            ..blank
        };
        let mut seen = attest::attest(self.ground, self.engine, own, &surroundings, self.stop)?;
        seen.shortfalls.extend(doors.link_shortfalls(&way, self.ground.scope.docker())?);
        Ok(seen)
    }

    /// The neighbour's relay on either of its networks, and our own on the one that the target is not on.
    fn forbidden(&self, way: &Way, neighbour: &Way) -> Result<Vec<std::net::SocketAddr>> {
        let docker = self.ground.scope.docker();
        let states = docker.inspect_containers(&[&way.link.relay, &neighbour.link.relay])?;
        let attached = states.iter().flat_map(|state| state.network_settings.networks.values());
        let mut addresses = Vec::new();
        for attached in attached.filter(|attached| !attached.address.is_empty()) {
            let address = Link::on_port(attached.address.parse().context("a relay's address is unreadable")?);
            if address != way.link.relay_address() {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

impl Doors {
    /// A way without tokens, for the attestation: its relay is there and passes nothing that is asked of it.
    fn try_out(&self, ground: &Ground<'_>, redactor: &Redactor, objects: &mut Objects) -> Result<Way> {
        let way = self.bare_way(ground, redactor, objects)?;
        way.wait_ready(self, ground.scope.docker())?;
        Ok(way)
    }
}
