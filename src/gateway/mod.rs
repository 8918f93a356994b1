//! The gateway on the host: everything that a target may ask for goes through here. Owns the listener, the tokens, the
//! one admission path and the evidence; knows nothing of Docker and of scopes.
//!
//! The way of a request: `guard` (peer, framing, token) → `forward` (`admission`, then `upstream` or `script` gives an
//! [`Answer`], `stream` passes it on, `evidence` keeps what it came to), or `operations`.

mod admission;
mod budget;
mod dialect;
mod disturbed;
mod evidence;
mod exchange;
mod forward;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod grants;
mod guard;
mod hide;
mod injected;
mod mcp;
mod mcp_http;
mod operations;
mod operations_http;
mod price;
mod reply;
mod resolve;
mod scan;
mod script;
mod sse;
mod stream;
mod struck;
mod token;
mod trial;
mod upstream;
mod usage;
mod watch;

pub use budget::Purse;
pub use evidence::ProviderFailure;
pub use exchange::{Admitted, Answer, Asked, Denied, End, Failure, Life, Passed, Pieces, Usage};
pub use guard::PeerRule;
pub use operations::{Called, Implemented, Operation, OperationSet, Operations, OperationsPlan, Response, Via, World};
pub use reply::Reply;
pub use trial::GatewayPlan;

use crate::drills::{Drills, Injected};
use crate::ids::TrialId;
use crate::interrupt::Interrupt;
use crate::policy::{Auth, Binding};
use crate::redact::Redactor;
use crate::secret::HostSecret;
use crate::totals::Totals;
use anyhow::{Context as _, Result};
use evidence::{Evidence, Lines};
use guard::{Room, Shared};
use serde_json::Value;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trial::{Door, Opens, ProviderDoor, Trial};

/// The listener of a run.
pub struct Gateway {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    stop: Interrupt,
}

/// What a trial may ask for, and where the record of it goes.
pub struct TrialPass {
    /// Which trial.
    pub trial: TrialId,
    /// What its relay shows at its start; see [`nonce`].
    pub nonce: String,
    /// Its operations, where any are declared.
    pub operations: Option<OperationsPlan>,
    /// Its ways to providers.
    pub gateways: Vec<Arc<GatewayPlan>>,
    /// The faults that it is tried under.
    pub drills: Arc<Drills>,
    /// The run's secrets; the trial's tokens are added to it.
    pub redactor: Redactor,
    /// The money of the whole run, where it is limited.
    pub purse: Option<Arc<Purse>>,
    /// `operations.jsonl`, unredacted on this side.
    pub operations_file: Box<dyn Write + Send>,
    /// `gateway.jsonl`, likewise.
    pub gateway_file: Box<dyn Write + Send>,
}

/// A trial whose tokens are live. Revoking it is the path; dropping it revokes too, and loses what it came to.
pub struct Admission {
    shared: Arc<Shared>,
    trial: Arc<Trial>,
    bindings: Vec<Bound>,
    redactor: Redactor,
    stop: Interrupt,
}

/// A token, and the variables that are bound to it.
struct Bound {
    token: HostSecret,
    target_path: String,
    /// None for the operations' own variables.
    env: Option<Vec<(String, Binding)>>,
}

/// What a trial's calls came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Requests, tokens and money.
    pub totals: Totals,
    /// Provider failures that no success on the same route followed.
    pub failures: Vec<ProviderFailure>,
    /// The evaluation's first trouble: an operation that raised, or a script without a reply left.
    pub evaluation_error: Option<String>,
    /// What the verifier sees: `{name, arguments, result | refused | error}`, in order.
    pub operations: Vec<Value>,
    /// Faults that a drill injected, in the order of admission.
    pub faults: Vec<Injected>,
    /// What else should be known.
    pub diagnostics: Vec<String>,
}

/// What a relay shows at its start: 256 random bits in hexadecimal digits.
///
/// # Errors
/// Where the system gives no random bytes.
pub fn nonce() -> Result<String> {
    let token = token::generate("nonce")?;
    Ok(token.expose().trim_start_matches("crashlab_").to_owned())
}

impl Gateway {
    /// Listens on `bind` (port 0 takes any) for peers that `peers` admits.
    ///
    /// # Errors
    /// Where the address cannot be listened on.
    pub fn open(bind: SocketAddr, peers: PeerRule, stop: Interrupt) -> Result<Self> {
        Self::open_with(bind, peers, Room::whole(), stop)
    }

    fn open_with(bind: SocketAddr, peers: PeerRule, room: Room, stop: Interrupt) -> Result<Self> {
        let listener = TcpListener::bind(bind).with_context(|| format!("failed to listen on {bind} for the relays"))?;
        let address = listener.local_addr().context("failed to read the listener's address")?;
        let shared = Arc::new(Shared::new(peers, room));
        let its = Arc::clone(&shared);
        let listen = move || guard::listen(&listener, &its);
        let thread = std::thread::Builder::new().name("guard".to_owned()).spawn(listen);
        let thread = Some(thread.context("failed to start the gateway's thread")?);
        Ok(Self { shared, address, thread, stop })
    }

    /// Where relays connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a trial's tokens and lets them in, as soon as the trial's relay has shown its nonce.
    ///
    /// # Errors
    /// Where the system gives no random bytes, or the redactor cannot be built.
    pub fn admit(&self, pass: TrialPass) -> Result<Admission> {
        let mut bindings = Vec::new();
        if pass.operations.is_some() {
            let token = token::generate("token:operations")?;
            bindings.push(Bound { token, target_path: String::new(), env: None });
        }
        for plan in &pass.gateways {
            let token = token::generate(&format!("token:{}", plan.name))?;
            let env = plan.rule.env.iter().map(|(name, binding)| (name.clone(), *binding)).collect();
            bindings.push(Bound { token, target_path: plan.rule.target_path.clone(), env: Some(env) });
        }
        let tokens: Vec<HostSecret> = bindings.iter().map(|bound| bound.token.clone()).collect();
        let redactor = pass.redactor.with(&tokens)?;
        let trial = Arc::new(new_trial(pass, &redactor));
        self.shared.trials.write().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&trial));
        self.let_in(&trial, &bindings);
        let (shared, stop) = (Arc::clone(&self.shared), self.stop.clone());
        Ok(Admission { shared, trial, bindings, redactor, stop })
    }

    fn let_in(&self, trial: &Arc<Trial>, bindings: &[Bound]) {
        let mut providers = trial.providers.iter().enumerate();
        for bound in bindings {
            let (auth, door) = match bound.env {
                None => (Auth::Bearer, Door::Operations),
                Some(_) => match providers.next() {
                    Some((index, door)) => (door.plan.rule.auth, Door::Provider(index)),
                    None => continue,
                },
            };
            let opens = Opens { trial: Arc::clone(trial), door };
            // SDKs change how they present a key (Anthropic's sends a bearer now): it opens the same door.
            if auth != Auth::Bearer {
                self.shared.ring.add(bound.token.clone(), Auth::Bearer, opens.clone());
            }
            self.shared.ring.add(bound.token.clone(), auth, opens);
        }
    }
}

fn new_trial(pass: TrialPass, redactor: &Redactor) -> Trial {
    let folder = format!("trials/{}", pass.trial.folder());
    let life = Life::default();
    let lines = |file, name: &str| Lines::new(file, format!("{folder}/{name}"), redactor.clone());
    let operations_lines = lines(pass.operations_file, "operations.jsonl");
    let operations =
        pass.operations.map(|plan| Operations::new(plan, life.clone(), operations_lines, Arc::clone(&pass.drills)));
    let case = pass.trial.case.as_str();
    let door = |plan: Arc<GatewayPlan>| ProviderDoor::new(plan, case.to_owned(), pass.purse.clone());
    Trial {
        nonce: pass.nonce,
        operations,
        providers: pass.gateways.into_iter().map(door).collect(),
        drills: pass.drills,
        evidence: Evidence::new(lines(pass.gateway_file, "gateway.jsonl")),
        relay: trial::Seen::default(),
        life,
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.hang_up_all();
        // The listener's thread looks at the flag at its next connection.
        let woken = TcpStream::connect_timeout(&self.address, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

impl Admission {
    /// The variables that the target gets. `base_url` is where it sees its relay: `http://gateway:8080`.
    pub fn environment(&self, base_url: &str) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for bound in &self.bindings {
            let token = bound.token.expose();
            let Some(env) = &bound.env else {
                variables.push(("CRASHLAB_URL".to_owned(), base_url.to_owned()));
                variables.push(("CRASHLAB_MCP_URL".to_owned(), format!("{base_url}/mcp")));
                variables.push(("CRASHLAB_TOKEN".to_owned(), token.to_owned()));
                continue;
            };
            for (name, binding) in env {
                let value = match binding {
                    Binding::Token => token.to_owned(),
                    Binding::Url => format!("{base_url}{}", bound.target_path),
                };
                variables.push((name.clone(), value));
            }
        }
        variables
    }

    /// The run's secrets and this trial's tokens: for what the trial writes and shows.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Waits until the trial's relay has shown its nonce; false where it did not in this time, or the run was stopped.
    pub fn wait_ready(&self, timeout: Duration) -> bool {
        self.trial.relay.wait(Instant::now() + timeout, || self.stop.is_raised())
    }

    /// Revokes the trial's tokens at once, ends its connections, waits for an operation that is being carried out, and
    /// says what everything came to. Afterwards nothing of the trial changes: the verifier may look.
    pub fn revoke(self) -> Traffic {
        self.shut();
        let (operations, trouble, unrecorded) =
            self.trial.operations.as_ref().map(Operations::finish).unwrap_or_default();
        let finished = self.trial.evidence.finish();
        let mut diagnostics = finished.diagnostics;
        if unrecorded > 0 {
            diagnostics.push(format!("{unrecorded} more refused operation calls are not listed"));
        }
        let unlisted = self.trial.drills.unlisted();
        if unlisted > 0 {
            diagnostics.push(format!("{unlisted} more injected faults are not listed"));
        }
        Traffic {
            totals: finished.totals,
            failures: finished.failures,
            evaluation_error: trouble.or(finished.exhausted),
            operations,
            faults: self.trial.drills.injected(),
            diagnostics,
        }
    }

    fn shut(&self) {
        self.trial.life.end();
        self.shared.ring.revoke(|opens| Arc::ptr_eq(&opens.trial, &self.trial));
        self.shared.hang_up(&self.trial);
        let mut trials = self.shared.trials.write().unwrap_or_else(PoisonError::into_inner);
        trials.retain(|trial| !Arc::ptr_eq(trial, &self.trial));
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.shut();
    }
}

#[cfg(test)]
mod tests;
