//! One trial at the gateway: its tokens' doors, its budgets, its evidence, and its end. Owns what is shared between the
//! trial's connections; opens no socket.

use super::budget::{Budget, Limits};
use super::evidence::Evidence;
use super::exchange::Life;
use super::operations::Operations;
use super::script::{Cursor, Script};
use super::upstream::Upstream;
use crate::drills::Drills;
use crate::exit::Refusal;
use crate::policy::{Dialect, GatewayRule};
use crate::relay::framing::Head;
use crate::secret::HostSecret;
use anyhow::{Context as _, Result};
use globset::GlobMatcher;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A gateway of the policy, ready for use; made once a run and shared by its trials.
pub struct GatewayPlan {
    /// Its name in the policy.
    pub name: String,
    /// Its rules.
    pub rule: GatewayRule,
    pub(super) models: Vec<GlobMatcher>,
    pub(super) provider: Provider,
}

/// Who answers.
pub(super) enum Provider {
    Upstream(Box<Upstream>),
    Script(Script),
}

impl GatewayPlan {
    /// A gateway in front of a real provider, with the key that it gets.
    ///
    /// # Errors
    /// A model glob that is none; an upstream that cannot be used.
    pub fn upstream(name: &str, rule: &GatewayRule, secret: Option<HostSecret>) -> Result<Self> {
        let upstream = Upstream::new(rule, secret).with_context(|| format!("gateway {name}"))?;
        Self::new(name, rule, Provider::Upstream(Box::new(upstream)))
    }

    /// A gateway that answers from a script (its file's content; `place` names it in refusals).
    ///
    /// # Errors
    /// A refusal of the script; a model glob that is none.
    pub fn script(name: &str, rule: &GatewayRule, text: &[u8], place: &str) -> Result<Self> {
        Self::new(name, rule, Provider::Script(Script::parse(text, place)?))
    }

    fn new(name: &str, rule: &GatewayRule, provider: Provider) -> Result<Self> {
        let glob = |glob: &String| {
            let refuse =
                || Refusal::new(format!("{glob:?} is no glob")).at(format!("policy.json#/gateways/{name}/models"));
            crate::policy::glob::name(glob).ok_or_else(refuse)
        };
        let models = rule.models.iter().map(glob).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), rule: rule.clone(), models, provider })
    }

    /// The provider's forms.
    pub fn dialect(&self) -> Dialect {
        self.rule.dialect
    }
}

impl std::fmt::Debug for GatewayPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayPlan").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What one trial may ask of one provider.
pub(super) struct ProviderDoor {
    pub(super) plan: Arc<GatewayPlan>,
    pub(super) case: String,
    pub(super) budget: Budget,
    pub(super) cursor: Cursor,
}

/// A trial as its connections share it.
pub(super) struct Trial {
    pub(super) nonce: String,
    pub(super) life: Life,
    pub(super) operations: Option<Operations>,
    pub(super) providers: Vec<ProviderDoor>,
    pub(super) drills: Arc<Drills>,
    pub(super) evidence: Evidence,
    pub(super) relay: Seen,
}

/// What a token opens.
#[derive(Clone)]
pub(super) struct Opens {
    pub(super) trial: Arc<Trial>,
    pub(super) door: Door,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Operations,
    /// The index among the trial's providers.
    Provider(usize),
}

impl Trial {
    /// The provider that a request without a token seems to be meant for; none for an operation.
    pub(super) fn meant(&self, head: &Head) -> Option<&ProviderDoor> {
        if self.operations.is_some() && (head.target.starts_with("/operations/") || head.target.starts_with("/mcp")) {
            return None;
        }
        let shown = |door: &&ProviderDoor| super::guard::shows(head, door.plan.rule.auth);
        let routed = |door: &&ProviderDoor| super::admission::is_route(&door.plan.rule, head);
        let door = self.providers.iter().find(routed).or_else(|| self.providers.iter().find(shown));
        door.or_else(|| self.providers.first())
    }
}

impl ProviderDoor {
    pub(super) fn new(plan: Arc<GatewayPlan>, case: String, purse: Option<Arc<super::Purse>>) -> Self {
        let limits = &plan.rule.limits;
        let limits = Limits { requests: limits.requests, tokens: limits.tokens, cost_usd: limits.cost_usd };
        Self { plan, case, budget: Budget::new(limits, purse), cursor: Cursor::default() }
    }
}

/// The address of a trial's relay, once it has shown its nonce. Only from there do the trial's tokens open anything.
#[derive(Default)]
pub(super) struct Seen(Mutex<Option<IpAddr>>, Condvar);

impl Seen {
    /// The first one stays.
    pub(super) fn set(&self, address: IpAddr) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = seen.is_none_or(|known| known == address);
        if is_first {
            *seen = Some(address);
            self.1.notify_all();
        }
        is_first
    }

    pub(super) fn get(&self) -> Option<IpAddr> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for it, but not beyond `deadline` nor when `stop` says so.
    pub(super) fn wait(&self, deadline: Instant, stop: impl Fn() -> bool) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if seen.is_some() || left.is_zero() || stop() {
                return seen.is_some();
            }
            let glance = left.min(Duration::from_millis(50));
            seen = self.1.wait_timeout(seen, glance).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
