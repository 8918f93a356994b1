//! What `check` found, as it is printed with `--format json` (`crashlab.check/1`).

use super::dotenv::EnvFile;
use crate::cli::Evaluation;
use crate::evaluation::{Declared, Package, PackageFile};
use crate::ids::Digest;
use crate::policy::{BuildNetwork, Case, FILE, ImageSource, Policy, Upstream};
use crate::snapshot::Contents;
use camino::{Utf8Path, Utf8PathBuf};
use serde::Serialize;

/// What is to be done about `.env` files and keys (S8), one sentence each.
pub(super) const ADVICE: [&str; 8] = [
    "add .env and every variant that holds a secret to .gitignore before a value is in it",
    "keep only names and empty placeholders in .env.example",
    "restrict .env to your user: chmod 600 .env",
    "run git check-ignore .env before the first evaluation: it prints .env",
    "a snapshot leaves an ignored .env out; a .env that git tracks goes in, whatever .gitignore says",
    "a key that was committed, copied into an image or printed: take it out of that history, and rotate it",
    "crashlab never searches for a .env or reads one, unless the policy or the evaluation names it for one variable",
    "crashlab cannot prove that files that you wrote are free of secrets",
];

/// The whole report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: &'static str,
    /// Whether a run would be accepted, given trust.
    pub(super) accepted: bool,
    pub(super) name: String,
    /// Of the package: what `--trust-evaluation-code=` pins.
    pub(super) digest: Digest,
    pub(super) trust: Trusted,
    pub(super) policy: PolicyPart,
    pub(super) evaluation: EvaluationPart,
    pub(super) target: TargetPart,
    pub(super) cases: CasesPart,
    pub(super) operations: Vec<Operation>,
    pub(super) gateways: Vec<Gateway>,
    pub(super) drills: Vec<String>,
    pub(super) secrets: Vec<Secret>,
    pub(super) files: Vec<PackageFile>,
    pub(super) env_files: Vec<EnvFile>,
    pub(super) warnings: Vec<String>,
    pub(super) advice: &'static [&'static str],
}

#[derive(Debug, Serialize)]
pub(super) struct Trusted {
    /// Whether the code was started for this check.
    pub(super) started: bool,
    /// The exact flag.
    pub(super) flag: String,
    /// The package as it was named.
    #[serde(skip)]
    pub(super) named: Utf8PathBuf,
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyPart {
    pub(super) digest: Digest,
    pub(super) files: Vec<Utf8PathBuf>,
}

#[derive(Debug, Serialize)]
pub(super) struct EvaluationPart {
    pub(super) folder: Utf8PathBuf,
    pub(super) command: Vec<String>,
    pub(super) lock: Option<crate::evaluation::LockRecord>,
    pub(super) reproducible: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct TargetPart {
    pub(super) folder: Utf8PathBuf,
    pub(super) command: Vec<String>,
    /// A reference, or the Dockerfile that it is built from.
    pub(super) image: String,
    /// HEAD; none before the first commit.
    pub(super) commit: Option<String>,
    /// That would be in the snapshot, with their bytes.
    pub(super) files: usize,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct CasesPart {
    pub(super) file: Utf8PathBuf,
    pub(super) count: usize,
    pub(super) repeat: u32,
    pub(super) trials: u64,
    pub(super) ids: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) calls: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Gateway {
    pub(super) name: String,
    pub(super) dialect: &'static str,
    pub(super) upstream: String,
    pub(super) models: Vec<String>,
    pub(super) routes: Vec<String>,
    pub(super) grants: Vec<&'static str>,
}

/// A declared credential: never its value.
#[derive(Debug, Serialize)]
pub(super) struct Secret {
    pub(super) gateway: String,
    pub(super) name: String,
    pub(super) env_file: Option<Utf8PathBuf>,
    pub(super) present: bool,
    pub(super) problem: Option<String>,
}

impl Report {
    #[expect(clippy::too_many_arguments, reason = "each is a part that was found on its own; they meet here only")]
    pub(super) fn new(
        named: &Evaluation,
        policy: &Policy,
        package: &Package,
        cases: &[Case],
        (target, contents): (&Utf8Path, &Contents),
        declared: Option<&Declared>,
        secrets: Vec<Secret>,
        env_files: Vec<EnvFile>,
    ) -> Self {
        let mut files = vec![package.root.join(FILE)];
        files.extend(named.policies.iter().cloned());
        Self {
            schema: "crashlab.check/1",
            accepted: secrets.iter().all(|secret| secret.present),
            name: policy.name.clone(),
            digest: package.digest.clone(),
            trust: Trusted {
                started: declared.is_some(),
                named: named.evaluation.clone(),
                flag: format!("--trust-evaluation-code={}", package.digest),
            },
            policy: PolicyPart { digest: policy.digest.clone(), files },
            evaluation: EvaluationPart {
                folder: package.root.clone(),
                command: policy.evaluation.command.clone(),
                lock: package.lock.clone(),
                reproducible: package.reproducible,
            },
            target: TargetPart {
                folder: target.to_owned(),
                command: policy.target.command.clone(),
                image: image(&policy.target.image),
                commit: contents.commit.clone(),
                files: contents.files.len(),
                bytes: contents.files.iter().map(|(_, size)| size).sum(),
            },
            cases: cases_part(policy, cases),
            operations: operations(policy),
            gateways: gateways(policy),
            drills: policy.drills.keys().cloned().collect(),
            warnings: warnings(policy, &env_files, &contents.warnings),
            secrets,
            files: package.files.clone(),
            env_files,
            advice: &ADVICE,
        }
    }
}

fn image(image: &ImageSource) -> String {
    match image {
        ImageSource::Reference { reference, .. } => reference.clone(),
        ImageSource::Build(rule) => format!("built from {}", rule.dockerfile),
    }
}

fn cases_part(policy: &Policy, cases: &[Case]) -> CasesPart {
    CasesPart {
        file: policy.cases.clone(),
        count: cases.len(),
        repeat: policy.repeat,
        trials: cases.len() as u64 * u64::from(policy.repeat),
        ids: cases.iter().map(|case| case.id.to_string()).collect(),
    }
}

fn operations(policy: &Policy) -> Vec<Operation> {
    policy.operations.iter().map(|(name, rule)| Operation { name: name.clone(), calls: rule.calls }).collect()
}

fn gateways(policy: &Policy) -> Vec<Gateway> {
    let gateway = |(name, rule): (&String, &crate::policy::GatewayRule)| Gateway {
        name: name.clone(),
        dialect: rule.dialect.as_str(),
        upstream: match &rule.upstream {
            Upstream::Origin(origin) => origin.clone(),
            Upstream::Script(file) => format!("script {file}"),
        },
        models: rule.models.clone(),
        routes: rule.routes.iter().map(ToString::to_string).collect(),
        grants: rule.grants.iter().map(|grant| grant.as_str()).collect(),
    };
    policy.gateways.iter().map(gateway).collect()
}

fn warnings(policy: &Policy, env_files: &[EnvFile], of_snapshot: &[String]) -> Vec<String> {
    let mut warnings = of_snapshot.to_vec();
    if policy.evaluation.lock.is_none() {
        warnings.push("no dependency lock is declared: a run is not reproducible".to_owned());
    }
    if matches!(&policy.target.image, ImageSource::Build(rule) if rule.network == BuildNetwork::Default) {
        warnings.push("the build's steps have the engine's default network (target.image.build.network)".to_owned());
    }
    for (name, rule) in policy.gateways.iter().filter(|(_, rule)| !rule.grants.is_empty()) {
        let grants: Vec<&str> = rule.grants.iter().map(|grant| grant.as_str()).collect();
        warnings.push(format!("gateway {name} grants {}: a way out of the sandbox", grants.join(", ")));
    }
    warnings.extend(env_files.iter().filter_map(EnvFile::warning));
    warnings
}
