//! `crashlab plan`: the docker commands of a run with one trial, in order, from the same argument lists that a run uses.
//! It starts nothing: neither evaluation code nor docker. What only a run knows (ids, addresses, its own id) is a `$NAME`.

use crate::cli::{self, Format, Global};
use crate::docker::args::{self, Attachment, BuildSpec, ContainerSpec, NetworkSpec, NetworkUse, RUN_LABEL};
use crate::exit::{Exit, Refusal};
use crate::policy::{self, BuildNetwork, BuildRule, ImageSource, Policy, Pull};
use crate::trial::attest::{self, compare::Questions};
use crate::trial::{relay, sandbox};
use anyhow::Result;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Write;

/// Stands around a name that only a run knows: no policy can hold it, since it is no printable character.
const MARK: char = '\u{1}';

/// A planned command.
struct Step {
    words: Vec<String>,
    /// Which `$NAME` its output is.
    gives: Option<&'static str>,
    note: &'static str,
}

/// Prints the plan.
///
/// # Errors
/// A refusal of the policy.
pub fn plan(global: &Global, args: &cli::Plan, out: &mut dyn Write) -> Result<Exit> {
    let policy = policy::load(&args.evaluation.evaluation, &args.evaluation.policies)?;
    let steps = steps(&policy, args.buildkit_image.as_deref());
    match global.format {
        Format::Json => {
            let list: Vec<_> = steps.iter().map(as_json).collect();
            let _ = writeln!(out, "{}", serde_json::to_string_pretty(&list)?);
        }
        Format::Human => steps.iter().for_each(|step| drop(out.write_all(as_text(step).as_bytes()))),
        _ => return Err(Refusal::new("plan has no such form").at("--format").hint("human or json").into()),
    }
    Ok(Exit::Success)
}

fn as_json(step: &Step) -> serde_json::Value {
    let docker = std::iter::once("docker".to_owned());
    let words: Vec<String> = docker.chain(step.words.iter().map(|word| named(word))).collect();
    json!({"command": words, "gives": step.gives, "note": step.note})
}

fn as_text(step: &Step) -> String {
    let gives = step.gives.map(|name| format!(" → ${name}")).unwrap_or_default();
    let words: Vec<String> = step.words.iter().map(|word| quoted(word)).collect();
    format!("# {}{gives}\ndocker {}\n", step.note, words.join(" "))
}

fn var(name: &str) -> String {
    format!("{MARK}{name}{MARK}")
}

/// The word with `$NAME` for what only a run knows.
fn named(word: &str) -> String {
    word.split(MARK)
        .enumerate()
        .map(|(nth, part)| if nth % 2 == 1 { format!("${part}") } else { part.to_owned() })
        .collect()
}

/// The word for a POSIX shell; only the names that only a run knows are expanded.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if !word.contains(MARK) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let escape = |part: &str| {
        part.chars().map(|c| if "\\\"`$".contains(c) { format!("\\{c}") } else { c.to_string() }).collect::<String>()
    };
    let parts = word.split(MARK).enumerate();
    let text: String =
        parts.map(|(nth, part)| if nth % 2 == 1 { format!("${{{part}}}") } else { escape(part) }).collect();
    format!("\"{text}\"")
}

fn steps(policy: &Policy, buildkit: Option<&str>) -> Vec<Step> {
    let networked = !(policy.operations.is_empty() && policy.gateways.is_empty());
    let mut steps = Vec::new();
    let mut step = |note, gives, words: Vec<String>| steps.push(Step { words, gives, note });
    for words in [&["version"][..], &["info"], &["context", "inspect"]] {
        step(
            "who the engine is",
            None,
            [words, &["--format", "{{json .}}"]].concat().iter().map(|it| (*it).to_owned()).collect(),
        );
    }
    match &policy.target.image {
        ImageSource::Reference { reference, pull } => {
            step("the image that the engine has", Some("IMAGE"), args::inspect("image", &[reference]));
            if *pull == Pull::Missing {
                step("only where it is missing; then it is the run's own", None, args::pull(reference));
            }
            let hold = args::hold_image(&name("hold"), &labels("hold"), &var("IMAGE"));
            step("never started: it keeps the image there while the run lasts", Some("HOLD"), hold);
        }
        ImageSource::Build(rule) => build(rule, buildkit, &mut step),
    }
    if networked {
        step(
            "the relay's image, from a tar stream on standard input",
            Some("RELAY_IMAGE"),
            args::import_image(&relay_tag(), &labels("relay")),
        );
        step("which subnets are taken", None, args::list_networks());
        step("the relays' network", Some("RELAYS"), args::create_network(&network("relays", NetworkUse::Relays)));
    }
    attestation(policy, networked, &mut step);
    trial(policy, networked, &mut step);
    removal(policy, networked, &mut step);
    steps
}

fn build(
    rule: &BuildRule,
    buildkit: Option<&str>,
    step: &mut impl FnMut(&'static str, Option<&'static str>, Vec<String>),
) {
    let mut contexts = BTreeMap::new();
    for (number, (name, reference)) in rule.contexts.iter().enumerate() {
        let folder = format!("{}/context-{number}", var("SCOPE"));
        step("a build context that the engine has", Some("CONTEXT_IMAGE"), args::inspect("image", &[reference]));
        step(
            "for the builder, which does not see the engine's images",
            None,
            args::save_image(&var("CONTEXT_IMAGE"), &format!("{folder}/saved.tar")),
        );
        contexts.insert(name.clone(), format!("oci-layout://{folder}@{}", var("CONTEXT_DIGEST")));
    }
    let (builder, network) = (builder(), rule.network == BuildNetwork::Default);
    let volume = crate::docker::builder_volume(&builder);
    step("the builder's state volume, labelled", None, args::create_volume(&volume, &labels("builder")));
    step(
        "the dedicated builder, in the scope's own buildx configuration",
        None,
        args::create_builder(&builder, buildkit, network),
    );
    step("its container and its state volume", None, args::bootstrap_builder(&builder));
    let spec = BuildSpec {
        builder,
        tag: target_tag(),
        labels: labels("image"),
        dockerfile: format!("{}/{}", snapshot(), rule.dockerfile),
        args: rule.args.clone(),
        contexts,
        network,
        context: snapshot(),
    };
    step(
        "the build; with BUILDX_GIT_INFO=false and GIT_DIR=/dev/null, so that buildx asks no git about the folder",
        None,
        args::build(&spec),
    );
    step("its id, as the engine has it", Some("IMAGE"), args::inspect("image", &[&target_tag()]));
}

fn attestation(
    policy: &Policy,
    networked: bool,
    step: &mut impl FnMut(&'static str, Option<&'static str>, Vec<String>),
) {
    let network = if networked { link(step) } else { Attachment::None };
    let questions = Questions {
        outside: attest::outside(),
        names: attest::NAMES.map(str::to_owned).to_vec(),
        ..Questions::default()
    };
    let spec = attest::asking(target(policy, network, None), &var("ATTEST_PROGRAM"), &questions, &[]);
    step("the same sandbox, looked at from inside", Some("ATTEST"), args::create_container(&with_name(spec, "attest")));
    step("what the engine says of it", None, args::inspect("container", &[&var("ATTEST")]));
    step("what it sees", None, args::start_attached(&var("ATTEST"), true));
    step("", None, args::remove_containers(&[&var("ATTEST")]));
    if networked {
        unlink(step);
    }
}

fn trial(policy: &Policy, networked: bool, step: &mut impl FnMut(&'static str, Option<&'static str>, Vec<String>)) {
    let network = if networked { link(step) } else { Attachment::None };
    // The tokens go through a file (0600) that is gone once the container is created.
    let file = networked.then(|| (var("TOKENS"), Vec::new()));
    let spec = with_name(target(policy, network, file), "target");
    step("the target, not started yet", Some("TARGET"), args::create_container(&spec));
    step("what the engine says of it, compared with the policy", None, args::inspect("container", &[&var("TARGET")]));
    step(
        "the target runs: the case's input on standard input, its answer on standard output",
        None,
        args::start_attached(&var("TARGET"), true),
    );
    step("only at a limit or an interruption", None, args::kill(&var("TARGET")));
    step("whether it is dead, and how it ended", None, args::inspect("container", &[&var("TARGET")]));
    step("removed behind the trial", None, args::remove_containers(&[&var("TARGET")]));
    if networked {
        unlink(step);
    }
}

/// A trial's own network with its relay.
fn link(step: &mut impl FnMut(&'static str, Option<&'static str>, Vec<String>)) -> Attachment {
    let use_ = NetworkUse::Target { isolated_mode: false };
    step(
        "a network without a host address, for the target and its relay",
        Some("NETWORK"),
        args::create_network(&network("target", use_)),
    );
    let (address, gateway) = (var("RELAY_ADDRESS"), var("GATEWAY"));
    let spec = relay::relay_spec(&var("RELAY_IMAGE"), &var("NETWORK"), address, &gateway, &var("NONCE"));
    step("the relay, which waits for its second network", Some("RELAY"), args::run_relay(&with_name(spec, "relay")));
    step(
        "its second network, one relay at a time: engines lose count where several come or go at once",
        None,
        args::connect_network(&var("RELAYS"), &var("RELAY")),
    );
    Attachment::Network {
        network: var("NETWORK"),
        address: Some(var("TARGET_ADDRESS")),
        hosts: vec![(relay::GATEWAY_NAME.to_owned(), var("RELAY_ADDRESS"))],
    }
}

fn unlink(step: &mut impl FnMut(&'static str, Option<&'static str>, Vec<String>)) {
    step("one at a time as well", None, args::disconnect_network(&var("RELAYS"), &var("RELAY")));
    step("", None, args::remove_containers(&[&var("RELAY")]));
    step("", None, args::remove_networks(&[&var("NETWORK")]));
}

fn removal(policy: &Policy, networked: bool, step: &mut impl FnMut(&'static str, Option<&'static str>, Vec<String>)) {
    if networked {
        step("at the end, each only while it is what was recorded", None, args::remove_networks(&[&var("RELAYS")]));
        step("", None, args::remove_image(&relay_tag()));
    }
    if matches!(policy.target.image, ImageSource::Reference { .. }) {
        step("the image is let go of", None, args::remove_containers(&[&var("HOLD")]));
    }
    if matches!(policy.target.image, ImageSource::Build(_)) {
        step("while the name still points at the recorded id", None, args::remove_image(&target_tag()));
        step("the builder's container, by its full id", None, args::remove_containers(&[&var("BUILDER")]));
        step("the builder's entry, which touches nothing else", None, args::remove_builder_entry(&builder()));
        let volume = crate::docker::builder_volume(&builder());
        step("the state volume, once its creation time has been compared", None, args::remove_volume(&volume));
    }
}

fn target(policy: &Policy, network: Attachment, environment_file: Option<(String, Vec<String>)>) -> ContainerSpec {
    let environment = ["CRASHLAB_CASE", "CRASHLAB_REPETITION"].map(|name| (name.to_owned(), var(name))).into();
    let (image, source) = (var("IMAGE"), snapshot());
    let furnishing = sandbox::Furnishing { image: &image, source: &source, network, environment, environment_file };
    sandbox::spec(policy, furnishing)
}

fn with_name(mut spec: ContainerSpec, role: &str) -> ContainerSpec {
    spec.name = name(role);
    spec.labels.extend(labels(role));
    spec
}

fn network(role: &str, use_: NetworkUse) -> NetworkSpec {
    let prefix = if role == "relays" { "RELAYS_" } else { "" };
    let (subnet, gateway) = (var(&format!("{prefix}SUBNET")), var(&format!("{prefix}BRIDGE")));
    NetworkSpec { name: name(role), labels: labels(role), subnet, gateway, use_ }
}

fn labels(role: &str) -> BTreeMap<String, String> {
    [(RUN_LABEL.to_owned(), var("RUN")), ("crashlab.role".to_owned(), role.to_owned())].into()
}

fn name(role: &str) -> String {
    format!("crashlab-{}-{role}-{}", var("RUN"), var("N"))
}

fn builder() -> String {
    format!("crashlab-{}-builder-1", var("RUN_LOWER"))
}

fn relay_tag() -> String {
    format!("crashlab/relay:{}", var("RUN"))
}

fn target_tag() -> String {
    format!("crashlab/target:{}", var("RUN"))
}

fn snapshot() -> String {
    format!("{}/snapshot/content", var("SCOPE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_run_knows_is_expanded_by_a_shell() {
        let table = [
            ("--name".to_owned(), "--name"),
            ("a b".to_owned(), "'a b'"),
            (String::new(), "''"),
            ("it's".to_owned(), "'it'\\''s'"),
            ("X=$(reboot) $RUN".to_owned(), "'X=$(reboot) $RUN'"),
            (format!("X=$HOME-{}", var("RUN")), "\"X=\\$HOME-${RUN}\""),
            (format!("`x` {}", var("ID")), "\"\\`x\\` ${ID}\""),
        ];
        for (word, text) in table {
            assert_eq!(quoted(&word), text);
        }
    }
}
