//! A target's ways out: the declared operations and gateways, compiled before anything is provisioned; the listener and the
//! relays' network, made once a run; a trial's own network, relay and tokens. Where nothing is declared there is no way.

use super::accept::{Accepted, Planned};
use crate::docker::{Docker, Engine};
use crate::evaluation::{Declared, Host, Package};
use crate::exit::Refusal;
use crate::gateway::{
    Admission, Gateway, GatewayPlan, Implemented, OperationSet, OperationsPlan, PeerRule, Purse, TrialPass, World,
    nonce,
};
use crate::ids::{CaseId, TrialId};
use crate::interrupt::Interrupt;
use crate::policy::{GatewayRule, Policy, Upstream};
use crate::redact::Redactor;
use crate::scope::Scope;
use crate::secret::HostSecret;
use crate::trial::relay::{Link, RELAYS_BITS, RelayGround, base_url};
use crate::trial::{Ground, Objects, Shortfall};
use anyhow::{Context, Result, anyhow};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a relay may take to reach the gateway on a busy machine. One that a firewall keeps from it gives up before.
const RELAY_READY: Duration = Duration::from_secs(60);
/// How long a relay is waited for before it is looked at whether it still tries.
const RELAY_GLANCE: Duration = Duration::from_secs(2);
/// No script of replies is larger.
const LARGEST_SCRIPT: u64 = 64 << 20;

/// What is declared, compiled.
pub struct Declarations {
    operations: Option<Arc<OperationSet>>,
    gateways: Vec<Arc<GatewayPlan>>,
    purse: Option<Arc<Purse>>,
}

/// What the trials' ways share.
pub struct Doors {
    gateway: Gateway,
    relays: RelayGround,
}

/// Where a trial's calls are recorded.
pub struct Files {
    /// `operations.jsonl`.
    pub operations: Box<dyn Write + Send>,
    /// `gateway.jsonl`.
    pub gateway: Box<dyn Write + Send>,
}

/// One trial's way, with its tokens live.
pub struct Way {
    /// Revoked before the verifier looks.
    pub admission: Admission,
    /// Its network and its relay.
    pub link: Link,
}

impl Declarations {
    /// Compiles schemas, globs and scripts.
    ///
    /// # Errors
    /// A refusal of what cannot be used.
    pub fn compile(
        policy: &Policy,
        declared: &Declared,
        package: &Package,
        secrets: &BTreeMap<String, HostSecret>,
        max_cost: Option<f64>,
    ) -> Result<Self> {
        let implemented: Vec<Implemented> = declared.operations.iter().map(implemented).collect();
        let operations = match policy.operations.is_empty() {
            true => None,
            false => Some(Arc::new(OperationSet::compile(&policy.operations, &implemented)?)),
        };
        let plan =
            |(name, rule): (&String, &GatewayRule)| gateway_plan(name, rule, package, secrets.get(name)).map(Arc::new);
        let gateways = policy.gateways.iter().map(plan).collect::<Result<_>>()?;
        Ok(Self { operations, gateways, purse: max_cost.map(|limit| Arc::new(Purse::new(limit))) })
    }

    /// Whether a target has a network at all.
    pub fn is_empty(&self) -> bool {
        self.operations.is_none() && self.gateways.is_empty()
    }
}

fn implemented(of: &crate::evaluation::DeclaredOperation) -> Implemented {
    Implemented { name: of.name.clone(), description: of.description.clone(), arguments: Some(of.arguments.clone()) }
}

fn gateway_plan(name: &str, rule: &GatewayRule, package: &Package, secret: Option<&HostSecret>) -> Result<GatewayPlan> {
    let Upstream::Script(script) = &rule.upstream else {
        return GatewayPlan::upstream(name, rule, secret.cloned());
    };
    let path = package.root.join(script);
    let refuse = |what: String| Refusal::new(what).at(path.as_str());
    let size =
        std::fs::metadata(&path).map_err(|error| refuse(format!("cannot read the script of replies: {error}")))?.len();
    if size > LARGEST_SCRIPT {
        return Err(refuse(format!("the script of replies is larger than {LARGEST_SCRIPT} bytes")).into());
    }
    let text = std::fs::read(&path).map_err(|error| refuse(format!("cannot read the script of replies: {error}")))?;
    GatewayPlan::script(name, rule, &text, path.as_str())
}

impl Doors {
    /// Makes the relays' network and listens on its bridge's address; none where nothing is declared.
    ///
    /// # Errors
    /// What the engine says; an address that cannot be listened on, as with an engine in a virtual machine.
    pub fn open(scope: &Scope, accepted: &Accepted, engine: &Engine) -> Result<Option<Self>> {
        if accepted.declarations.is_empty() {
            return Ok(None);
        }
        Self::listen(RelayGround::make(scope, engine)?, &accepted.stop).map(Some)
    }

    /// Listens on the address of the relays' bridge.
    ///
    /// # Errors
    /// Where that address is not this machine's, as with an engine in a virtual machine.
    pub fn listen(relays: RelayGround, stop: &Interrupt) -> Result<Self> {
        let host = relays.gateway_address();
        let peers = PeerRule::Subnet { network: relays.subnet.address(0), prefix: RELAYS_BITS, host };
        let gateway = Gateway::open(SocketAddr::V4(SocketAddrV4::new(host, 0)), peers, stop.clone()).context(
            "the relays' bridge address is not this machine's\n\
             hint: a rootless engine, or one in a virtual machine, cannot be used with gateways or operations",
        )?;
        Ok(Self { gateway, relays })
    }

    /// What the engine did not do of what keeps a way's networks apart.
    ///
    /// # Errors
    /// What the engine says.
    pub fn link_shortfalls(&self, way: &Way, docker: &Docker) -> Result<Vec<Shortfall>> {
        way.link.shortfalls(docker, &self.relays)
    }

    /// Where the relays reach the gateway.
    pub fn gateway_address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// A way that opens nothing: a network and a relay that reaches the gateway, and no token.
    ///
    /// # Errors
    /// What the engine says.
    pub fn bare_way(&self, ground: &Ground<'_>, redactor: &Redactor, objects: &mut Objects) -> Result<Way> {
        let nonce = nonce()?;
        let case = CaseId::try_from("attestation".to_owned()).map_err(|error| anyhow!("{error}"))?;
        let admission = self.gateway.admit(TrialPass {
            trial: TrialId { case, drill: None, repetition: 1 },
            nonce: nonce.clone(),
            operations: None,
            gateways: Vec::new(),
            drills: Arc::default(),
            redactor: redactor.clone(),
            purse: None,
            operations_file: Box::new(std::io::sink()),
            gateway_file: Box::new(std::io::sink()),
        })?;
        let link = Link::make(ground, &self.relays, objects, self.gateway.address(), &nonce)?;
        Ok(Way { admission, link })
    }

    /// Makes a trial's tokens, its network and its relay; the relay may still be starting.
    ///
    /// # Errors
    /// What the engine says.
    pub fn make_way(
        &self,
        ground: &Ground<'_>,
        declarations: &Declarations,
        planned: &Planned,
        world: (&Arc<Mutex<Host>>, &Value),
        (files, redactor): (Files, &Redactor),
        objects: &mut Objects,
    ) -> Result<Way> {
        let nonce = nonce()?;
        let (host, before) = world;
        let operations = declarations.operations.as_ref().map(|set| OperationsPlan {
            set: set.clone(),
            world: host.clone() as Arc<Mutex<dyn World>>,
            before: before.clone(),
        });
        let admission = self.gateway.admit(TrialPass {
            trial: planned.id.clone(),
            nonce: nonce.clone(),
            operations,
            gateways: declarations.gateways.clone(),
            drills: Arc::new(planned.drills()),
            redactor: redactor.clone(),
            purse: declarations.purse.clone(),
            operations_file: files.operations,
            gateway_file: files.gateway,
        })?;
        let link = Link::make(ground, &self.relays, objects, self.gateway.address(), &nonce)?;
        Ok(Way { admission, link })
    }
}

impl Way {
    /// Waits until the relay has reached the gateway, or has given up.
    ///
    /// # Errors
    /// Which way, address and port are closed, and what does that.
    pub fn wait_ready(&self, doors: &Doors, docker: &Docker) -> Result<()> {
        let begun = Instant::now();
        // A relay that cannot get through gives up, before the time is over.
        while !self.admission.wait_ready(RELAY_GLANCE) {
            if begun.elapsed() >= RELAY_READY || self.link.has_given_up(docker)? {
                return Err(Self::unreached(doors));
            }
        }
        Ok(())
    }

    fn unreached(doors: &Doors) -> anyhow::Error {
        let address = doors.gateway.address();
        anyhow!(
            "the relay's container did not reach the gateway on this host at address {} port {}\n\
             hint: a firewall that drops packets from Docker's bridges to the host does this; let TCP from {} in",
            address.ip(),
            address.port(),
            doors.relays.subnet
        )
    }

    /// Writes the variables that hold tokens into a file for `--env-file`: never on a command line.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub fn environment_file(&self, scope: &Scope) -> Result<(String, Vec<String>)> {
        let path = scope.folder().join(scope.name("env"));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("failed to make {path}"))?;
        let variables = self.admission.environment(&base_url());
        for (name, value) in &variables {
            writeln!(file, "{name}={value}").with_context(|| format!("failed to write {path}"))?;
        }
        Ok((path.into_string(), variables.into_iter().map(|(name, _)| name).collect()))
    }
}
