//! `crashlab check`: whether an evaluation package would be accepted, and what is to be reviewed before it is trusted.
//! Needs no Docker; starts the package's code only where it is trusted. Files that look like `.env` are told by name and
//! never opened (S4); of a credential it says whether it is there, nothing else (S3).

mod dotenv;
mod human;
mod report;

use crate::cli::{Check, Evaluation, Format, Global};
use crate::evaluation::{self, Declared, Launch, Package, Trust};
use crate::exit::{Exit, Refusal};
use crate::image;
use crate::interrupt::Interrupt;
use crate::policy::{self, Policy, SecretRule};
use crate::report::look::Look;
use crate::secret::load_host_secret;
use crate::snapshot::{self, Contents};
use anyhow::{Context, Result};
use camino::{Utf8Path, Utf8PathBuf};
use report::{Report, Secret};
use std::collections::BTreeMap;
use std::io::Write;

/// Says whether the package would be accepted: exit 0 where it would, 2 where a run would be refused.
///
/// # Errors
/// A refusal of the policy, the package, the cases or the target; and of the evaluation's code where it is trusted.
pub fn check(global: &Global, args: &Check, stop: &Interrupt, out: &mut dyn Write) -> Result<Exit> {
    if !matches!(global.format, Format::Human | Format::Json) {
        return Err(super::view::no_form("check", "human or json"));
    }
    let report = examine(&args.evaluation, &global.results, stop)?;
    match global.format {
        Format::Json => crate::report::json(&report, out)?,
        _ => human::write(&report, &Look::of(global.color), out)?,
    }
    Ok(if report.accepted { Exit::Success } else { Exit::Refused })
}

fn examine(named: &Evaluation, results: &Utf8Path, stop: &Interrupt) -> Result<Report> {
    let policy = policy::load(&named.evaluation, &named.policies)?;
    let trust = Trust::from_flag(named.trust_evaluation_code.as_deref())?;
    let package = evaluation::open(&named.evaluation, &policy)?;
    if trust != Trust::No {
        evaluation::require_trust(&package, &policy, &trust)?;
    }
    let cases = policy::load_cases(&package.root, &policy)?;
    let target = named.target.clone().unwrap_or_else(|| package.root.join(&policy.target.source));
    let contents = look_at_target(&target, &package, &policy, results)?;
    let declared = if trust == Trust::No { None } else { Some(introduce(named, &policy, &package, stop)?) };
    let secrets = secrets(&policy, declared.as_ref(), &package.root)?;
    let env_files = dotenv::find(&[package.root.clone(), target.clone()])?;
    Ok(Report::new(named, &policy, &package, &cases, (&target, &contents), declared.as_ref(), secrets, env_files))
}

/// What of the target would reach the sandbox; the Dockerfile must be among it.
fn look_at_target(target: &Utf8Path, package: &Package, policy: &Policy, results: &Utf8Path) -> Result<Contents> {
    if !target.is_dir() {
        return Err(Refusal::new(format!("there is no folder {target} to take the target from"))
            .at("policy.json#/target/source")
            .hint("name the agent's folder with --target DIR")
            .into());
    }
    let (files, limits) = (&policy.target.files, policy.target.limits);
    let source =
        snapshot::Source { source: target, package: Some(&package.root), results: Some(results), files, limits };
    let contents = snapshot::list(&source)?;
    image::require_dockerfile(&policy.target.image, target, &contents)?;
    Ok(contents)
}

/// Starts the trusted code once, to hear what it implements and which credentials it declares.
fn introduce(named: &Evaluation, policy: &Policy, package: &Package, stop: &Interrupt) -> Result<Declared> {
    let folder = tempfile::tempdir().context("failed to make a temporary folder")?;
    let sdk = Utf8Path::from_path(folder.path()).context("the temporary folder's path is not UTF-8")?;
    evaluation::write_sdk(sdk)?;
    let python = named.python.as_deref();
    let launch = Launch { package, policy, python, secrets_to_hide: &[], sdk, stop: Some(stop) };
    let introduced =
        evaluation::introduce(&launch).map_err(|error| Refusal::new(error.to_string()).at(package.root.as_str()))?;
    introduced.host.shutdown();
    Ok(introduced.declared)
}

/// Each declared credential, and whether it could be loaded. Its value is dropped at once.
fn secrets(policy: &Policy, declared: Option<&Declared>, root: &Utf8Path) -> Result<Vec<Secret>> {
    let rules: BTreeMap<String, SecretRule> = match declared {
        Some(declared) => evaluation::agree(policy, declared)?,
        None => policy.gateways.iter().filter_map(|(name, rule)| Some((name.clone(), rule.secret.clone()?))).collect(),
    };
    let secret = |(gateway, rule): (String, SecretRule)| {
        let file: Option<Utf8PathBuf> = rule.env_file.as_ref().map(|path| root.join(path));
        let problem = load_host_secret(&rule.name, file.as_deref()).err().map(|refusal| refusal.to_string());
        Secret { gateway, name: rule.name, env_file: rule.env_file, present: problem.is_none(), problem }
    };
    Ok(rules.into_iter().map(secret).collect())
}
