//! The `target` part: what enters the sandbox. Owns the rules of source, image and environment (S5, I11); looks at no file.

use super::checked::command;
use super::forms;
use super::glob;
use super::problem::{Node, show_name};
use super::{BuildNetwork, BuildRule, GatewayRule, ImageSource, Pull, SnapshotLimits, Target, credential};
use std::collections::BTreeMap;
use std::time::Duration;

const A_MOUNT: &str = "a normalized absolute path other than /, of letters, digits and ._-+@~; not in /proc, /sys or /dev, not over what \
     the engine keeps in /etc";

pub(super) fn check(node: &Node<'_>, gateways: &BTreeMap<String, GatewayRule>) -> Target {
    node.entries("an object with source, files, mount, image, command, env and limits");
    Target {
        source: node
            .key("source")
            .text(forms::A_RELATIVE_PATH, forms::relative_path)
            .unwrap_or_else(|| "target".into()),
        files: files(&node.key("files")),
        mount: node.key("mount").text(A_MOUNT, forms::container_path).unwrap_or_else(|| "/target".to_owned()),
        image: image(&node.key("image")),
        command: command(&node.key("command")),
        env: env(&node.key("env"), gateways),
        limits: limits(&node.key("limits")),
    }
}

fn files(node: &Node<'_>) -> Vec<String> {
    let would_do = "a non-empty list of globs such as \"**\" or \"!tests/**\"";
    let fits = |text: &str| glob::path(text.strip_prefix('!').unwrap_or(text)).is_some() && !text.starts_with(['/']);
    let files = node.texts(would_do, |text| fits(text).then(|| text.to_owned()));
    if files.as_ref().is_some_and(Vec::is_empty) && node.items(would_do).is_some_and(|items| items.is_empty()) {
        node.wrong(would_do);
    }
    files.unwrap_or_else(|| vec!["**".to_owned()])
}

fn limits(node: &Node<'_>) -> SnapshotLimits {
    node.entries("an object with files, bytes and file");
    SnapshotLimits {
        files: node.key("files").count(1, 10_000_000).unwrap_or(100_000),
        bytes: node.key("bytes").size(1).unwrap_or(1 << 30),
        file: node.key("file").size(1).unwrap_or(256 << 20),
    }
}

fn image(node: &Node<'_>) -> ImageSource {
    let would_do = "{\"reference\": REF} or {\"build\": {…}}";
    node.require(would_do);
    node.entries(would_do);
    let (reference, build) = (node.key("reference"), node.key("build"));
    if node.is_given() && reference.is_given() == build.is_given() {
        node.refuse(
            if build.is_given() { "found both an image and a build" } else { "found neither an image nor a build" },
            format!("{would_do}; null takes one out"),
        );
    }
    if build.is_given() {
        if node.key("pull").is_given() {
            node.key("pull")
                .refuse("a build has no \"pull\"", "leave it out, or give a reference in place of the build");
        }
        return ImageSource::Build(build_rule(&build));
    }
    let named = reference.text(forms::AN_IMAGE, |text| forms::is_image(text).then(|| text.to_owned()));
    let pull = node.key("pull").word(&[("missing", Pull::Missing), ("never", Pull::Never)]);
    ImageSource::Reference { reference: named.unwrap_or_default(), pull: pull.unwrap_or(Pull::Missing) }
}

fn build_rule(node: &Node<'_>) -> BuildRule {
    node.entries("an object with dockerfile, args, contexts, network and time, each optional");
    let dockerfile = "a path inside the target's folder: relative, without \"..\", \".\" or \"//\"";
    BuildRule {
        dockerfile: node
            .key("dockerfile")
            .text(dockerfile, forms::relative_path)
            .map_or_else(|| "Dockerfile".to_owned(), |path| path.into_string()),
        args: build_args(&node.key("args")),
        contexts: contexts(&node.key("contexts")),
        network: node
            .key("network")
            .word(&[("none", BuildNetwork::None), ("default", BuildNetwork::Default)])
            .unwrap_or(BuildNetwork::None),
        time: node.key("time").time().unwrap_or(Duration::from_secs(600)),
    }
}

fn contexts(node: &Node<'_>) -> BTreeMap<String, String> {
    let mut contexts = BTreeMap::new();
    for (name, image) in node.entries("an object of images by the name that the Dockerfile uses") {
        if !forms::is_context_name(name) {
            image.refuse(format!("found the name {}", show_name(name)), "a name such as \"base\", or an image's name");
        }
        if let Some(reference) = image.text(forms::AN_IMAGE, |text| forms::is_image(text).then(|| text.to_owned())) {
            contexts.insert(name.to_owned(), reference);
        }
    }
    contexts
}

fn build_args(node: &Node<'_>) -> BTreeMap<String, String> {
    variables(node, "a build argument", |name, arg| {
        if name.starts_with("BUILDKIT_") {
            arg.refuse(format!("{name} steers the builder, not the Dockerfile"), "a build argument of another name");
        }
    })
}

fn env(node: &Node<'_>, gateways: &BTreeMap<String, GatewayRule>) -> BTreeMap<String, String> {
    variables(node, "an environment variable of the target", |name, variable| {
        if let Some(whose) = reserved(name) {
            variable.refuse(format!("{name} is {whose}"), "a variable of another name");
        }
        if let Some((gateway, _)) = gateways.iter().find(|(_, rule)| rule.env.contains_key(name)) {
            variable.refuse(
                format!("{name} is bound by the gateway {gateway:?}"),
                "leave it out here, or take the gateway's binding out with null",
            );
        }
    })
}

/// Why a variable is not the policy's to set.
pub(super) fn reserved(name: &str) -> Option<&'static str> {
    match name {
        "HOME" => Some("set by crashlab to the first writable place"),
        name if name.starts_with("CRASHLAB_") => Some("crashlab's own"),
        _ => None,
    }
}

/// Names and values under S5's rule: no credential among them, and none quoted.
fn variables(node: &Node<'_>, what: &str, rule: impl Fn(&str, &Node<'_>)) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for (name, variable) in node.entries("an object of texts by name") {
        if !forms::is_variable(name) {
            variable.refuse(format!("found the name {}", show_name(name)), forms::A_VARIABLE);
        }
        rule(name, &variable);
        if let Some(segment) = credential::name(name) {
            variable.refuse(
                format!("{what} has a credential-like name ({segment})"),
                "a provider's key belongs to a gateway: its \"secret\" names the host's variable, its \"env\" binds a token",
            );
        } else if let Some(like) = variable.value().and_then(|value| value.as_str()).and_then(credential::value) {
            variable.refuse(
                format!("{what} has a value that looks like {like}"),
                "a provider's key belongs to a gateway; rotate a key that was committed in a policy",
            );
        }
        let value = variable.text("a text of one line", |text| forms::is_one_line(text).then(|| text.to_owned()));
        variables.insert(name.to_owned(), value.unwrap_or_default());
    }
    variables
}
