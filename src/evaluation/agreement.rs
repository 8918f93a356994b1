//! The first process of a run, and what package and policy must agree on before anything is provisioned: operations,
//! credentials, `world.restore`. Owns the order: no declared credential stays in an evaluation process's environment.

use crate::evaluation::host::{Host, Launch};
use crate::evaluation::protocol::{Declared, clip};
use crate::evaluation::trouble::EvaluationError;
use crate::exit::Refusal;
use crate::policy::{self, Policy, SecretRule};
use crate::secret::{HostSecret, load_host_secret};
use camino::Utf8Path;
use std::collections::BTreeMap;
use std::fmt;

/// Lines of the log's end that an error shows.
const LINES_SHOWN: usize = 12;

/// The first process of a run, initialized, and what every later one is started with.
#[derive(Debug)]
pub struct Introduced {
    /// Ready for the first trial.
    pub host: Host,
    /// What the evaluation says of itself.
    pub declared: Declared,
    /// Variables that no evaluation process may have: for [`Launch::secrets_to_hide`].
    pub hidden: Vec<String>,
}

/// Why there is no first process, with what it said on standard error.
#[derive(Debug)]
pub struct NotIntroduced {
    /// What went wrong.
    pub error: EvaluationError,
    /// Its standard error, bounded.
    pub log: Vec<u8>,
}

impl fmt::Display for NotIntroduced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the evaluation could not be started: {}", self.error)?;
        let log = String::from_utf8_lossy(&self.log);
        let lines: Vec<&str> = log.lines().collect();
        for line in &lines[lines.len().saturating_sub(LINES_SHOWN)..] {
            write!(f, "\n  {}", clip(line, 200))?;
        }
        Ok(())
    }
}

impl std::error::Error for NotIntroduced {}

/// Starts and initializes the first process. Where the evaluation declares a credential that the policy does not name,
/// that process has seen it: it is ended, and a second one is started without it.
///
/// # Errors
/// As [`Host::start`] and [`Host::initialize`]; the log comes with it.
pub fn introduce(launch: &Launch<'_>) -> Result<Introduced, NotIntroduced> {
    let mut hidden: Vec<String> = launch.secrets_to_hide.to_vec();
    hidden.extend(launch.policy.gateways.values().filter_map(|gateway| Some(gateway.secret.as_ref()?.name.clone())));
    let (host, declared) = initialized(&Launch { secrets_to_hide: &hidden, ..*launch })?;
    let known = hidden.len();
    for secret in declared.secrets.values() {
        if !hidden.contains(&secret.name) {
            hidden.push(secret.name.clone());
        }
    }
    if hidden.len() == known {
        return Ok(Introduced { host, declared, hidden });
    }
    host.shutdown();
    let (host, declared) = initialized(&Launch { secrets_to_hide: &hidden, ..*launch })?;
    Ok(Introduced { host, declared, hidden })
}

fn initialized(launch: &Launch<'_>) -> Result<(Host, Declared), NotIntroduced> {
    let mut host = Host::start(launch).map_err(|error| NotIntroduced { error, log: Vec::new() })?;
    match host.initialize() {
        Ok(declared) => Ok((host, declared)),
        Err(error) => Err(NotIntroduced { error, log: host.shutdown() }),
    }
}

/// Which credential each gateway uses: the policy's, or the evaluation's where the policy names none.
///
/// # Errors
/// Where the two differ, a gateway is not in the policy, the policy's operations are not all implemented, or the schema of
/// one is none.
pub fn agree(policy: &Policy, declared: &Declared) -> Result<BTreeMap<String, SecretRule>, Refusal> {
    for name in policy.operations.keys() {
        let place = format!("policy.json#/operations/{name}");
        let Some(operation) = declared.operations.iter().find(|operation| operation.name == *name) else {
            let implemented: Vec<&str> = declared.operations.iter().map(|it| it.name.as_str()).collect();
            return Err(Refusal::new(format!("the evaluation does not implement the operation {name}"))
                .at(place)
                .hint(format!("it implements: {}", list_or_none(&implemented))));
        };
        policy::arguments::compile(&operation.arguments).map_err(|why| {
            Refusal::new(format!("the evaluation's argument schema of {name} is not usable: {why}")).at(place)
        })?;
    }
    let mut rules = BTreeMap::new();
    for (gateway, secret) in &declared.secrets {
        let Some(rule) = policy.gateways.get(gateway) else {
            let names: Vec<&str> = policy.gateways.keys().map(String::as_str).collect();
            return Err(Refusal::new(format!("the evaluation has a credential for {gateway}, which is no gateway"))
                .hint(format!("the policy's gateways: {}", list_or_none(&names))));
        };
        if rule.secret.as_ref().is_some_and(|of_policy| of_policy != secret) {
            return Err(Refusal::new(format!("policy and evaluation name different credentials for {gateway}"))
                .at(format!("policy.json#/gateways/{gateway}/secret"))
                .hint("name it in one of them"));
        }
        rules.insert(gateway.clone(), secret.clone());
    }
    for (gateway, rule) in &policy.gateways {
        if let Some(secret) = &rule.secret {
            rules.insert(gateway.clone(), secret.clone());
        }
    }
    Ok(rules)
}

fn list_or_none(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Loads the credential of each gateway that has one (S1, S3, S4).
///
/// # Errors
/// As [`agree`]; and a refusal that names the variable where a credential is missing, and nothing of any value.
pub fn secrets(policy: &Policy, declared: &Declared, root: &Utf8Path) -> Result<BTreeMap<String, HostSecret>, Refusal> {
    let load = |(gateway, rule): (String, SecretRule)| {
        let file = rule.env_file.as_ref().map(|path| root.join(path));
        let secret = load_host_secret(&rule.name, file.as_deref()).map_err(|refusal| match refusal.place {
            Some(_) => refusal,
            None => refusal.at(format!("gateway {gateway}")),
        })?;
        Ok((gateway, secret))
    };
    agree(policy, declared)?.into_iter().map(load).collect()
}
