//! G10: what a provider would fetch, run or store for the target is a way out of the sandbox, and is refused unless the
//! policy grants it by name. Owns the judgement and its words; which fields are ways out is each dialect's table.
//!
//! Invariant: what no table knows needs every grant; so a provider's new tool is shut until somebody opens it.

use super::dialect::{self, Endpoint};
use super::exchange::Denied;
use crate::policy::{Dialect, Grant, Route};
use serde_json::Value;

const EVERY: [Grant; 7] = [
    Grant::WebSearch,
    Grant::WebFetch,
    Grant::CodeExecution,
    Grant::ComputerUse,
    Grant::RemoteMcp,
    Grant::RemoteMedia,
    Grant::Storage,
];

/// Collects what a request would need, against what is granted.
#[derive(Debug)]
pub(super) struct Ways<'a> {
    granted: &'a [Grant],
    denied: Option<Denied>,
}

impl<'a> Ways<'a> {
    pub(super) fn new(granted: &'a [Grant]) -> Self {
        Self { granted, denied: None }
    }

    /// Whether the policy grants it.
    pub(super) fn has(&self, grant: Grant) -> bool {
        self.granted.contains(&grant)
    }

    /// `what` needs this grant. Never a prompt: it is shown to the target as it is.
    pub(super) fn need(&mut self, grant: Grant, what: &str) {
        if self.has(grant) || self.denied.is_some() {
            return;
        }
        let message = format!(
            "{what} lets the provider reach beyond the sandbox: it needs the grant {:?}; granted: {}",
            grant.as_str(),
            self.names()
        );
        self.denied = Some(Denied::new("grants", "crashlab_grant_missing", message));
    }

    /// No table knows `what`: it may be any way out.
    pub(super) fn unknown(&mut self, what: &str) {
        if EVERY.iter().all(|grant| self.has(*grant)) || self.denied.is_some() {
            return;
        }
        let message = format!(
            "{what} is not known to this gateway, so the provider might reach beyond the sandbox by it: it needs every \
             grant; granted: {}",
            self.names()
        );
        self.denied = Some(Denied::new("grants", "crashlab_not_known", message));
    }

    /// Needs a grant, with a hint at what would do without it.
    pub(super) fn need_or(&mut self, grant: Grant, what: &str, instead: &str) {
        let was_denied = self.denied.is_some();
        self.need(grant, what);
        if let Some(denied) = self.denied.as_mut().filter(|_| !was_denied) {
            denied.message = format!("{}; without it: {instead}", denied.message);
        }
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.granted.iter().map(|grant| grant.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    fn judge(self) -> Result<(), Denied> {
        self.denied.map_or(Ok(()), Err)
    }
}

/// Judges a request. May state in its body what the provider would otherwise take the other way (`store`): what is judged
/// is what is forwarded.
///
/// # Errors
/// The first thing that is not granted.
pub(super) fn check(
    dialect: Dialect,
    route: &Route,
    path: &str,
    body: Option<&mut Value>,
    granted: &[Grant],
) -> Result<(), Denied> {
    let forms = dialect::forms(dialect);
    let endpoint = forms.endpoint(&route.path);
    let mut ways = Ways::new(granted);
    if endpoint == Endpoint::Other {
        ways.unknown(&format!("the endpoint {} {}", route.method, route.path));
    }
    if let Some(Value::Object(body)) = body {
        forms.reach(endpoint, dialect::model_in_path(route, path), body, &mut ways);
    }
    ways.judge()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_granted_is_refused_by_name() {
        let mut ways = Ways::new(&[Grant::Storage]);
        ways.need(Grant::Storage, "store");
        assert_eq!(ways.denied, None);
        ways.need(Grant::WebSearch, "tools[0]");
        ways.unknown("another");
        let denied = ways.judge().unwrap_err();
        assert_eq!((denied.status, denied.limit, denied.code), (403, "grants", "crashlab_grant_missing"));
        assert!(denied.message.contains("tools[0]") && denied.message.contains("\"web_search\""), "{}", denied.message);
        assert!(denied.message.contains("granted: storage"), "{}", denied.message);
    }

    #[test]
    fn what_nobody_knows_needs_every_grant() {
        for missing in EVERY {
            let granted: Vec<Grant> = EVERY.iter().copied().filter(|grant| *grant != missing).collect();
            let mut ways = Ways::new(&granted);
            ways.unknown("the tool \"new\"");
            assert_eq!(ways.judge().unwrap_err().code, "crashlab_not_known");
        }
        let mut ways = Ways::new(&EVERY);
        ways.unknown("the tool \"new\"");
        assert!(ways.judge().is_ok());
    }
}
