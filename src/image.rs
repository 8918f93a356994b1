//! The target's image: taken as it is, pulled where it is missing, or built from the snapshot; an image id comes out, and
//! trials run by it. What an image says of itself is data: it is checked here, and cannot widen a sandbox.
//!
//! A build is untrusted too: its context is the snapshot and the declared images only, and neither its steps nor the
//! builder itself have a network unless the policy says so.

mod layout;

use crate::docker::args::BuildSpec;
use crate::docker::{DockerError, ImageState};
use crate::exit::Refusal;
use crate::ids::ImageId;
use crate::policy::{BuildNetwork, BuildRule, ImageSource, Pull, Writable};
use crate::scope::Scope;
use crate::snapshot::Contents;
use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use std::collections::BTreeMap;
use std::time::Duration;

/// What buildx starts where no image is named.
pub const DEFAULT_BUILDKIT: &str = "moby/buildkit:buildx-stable-1";
/// How long a pull may take.
const PULL: Duration = Duration::from_secs(30 * 60);
/// How long the builder may take to start: its image may have to be pulled.
const BUILDER_START: Duration = Duration::from_secs(10 * 60);
/// How often an image that another run takes away meanwhile is asked for.
const TRIES: usize = 3;
/// How much of a failed build is shown.
const COMPLAINT_LINES: usize = 30;

/// The image that trials run in.
#[derive(Debug, Clone)]
pub struct TargetImage {
    /// What trials run by.
    pub id: ImageId,
    /// What it is named.
    pub reference: String,
    /// Where it came from.
    pub origin: Origin,
    /// Its own environment, `NAME=VALUE`.
    pub env: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// Where an image came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By this scope, from the snapshot.
    Built,
    /// By this scope, since it was missing.
    Pulled,
    /// It was there; never removed.
    Provided,
}

/// Gets the image of the policy.
///
/// # Errors
/// Where it is missing, cannot be pulled or built, or says something of itself that the sandbox does not allow.
pub fn obtain(
    scope: &Scope,
    source: &ImageSource,
    writable: &[Writable],
    snapshot: &Utf8Path,
    buildkit: Option<&str>,
) -> Result<TargetImage> {
    match source {
        ImageSource::Reference { reference, pull } => by_reference(scope, reference, *pull, writable),
        ImageSource::Build(rule) => built(scope, rule, snapshot, writable, buildkit),
    }
}

/// An image that somebody else may take away at any moment, a run that pulled it above all: it counts once it is held.
fn by_reference(scope: &Scope, reference: &str, pull: Pull, writable: &[Writable]) -> Result<TargetImage> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (state, origin) = present_or_pulled(scope, reference, pull)?;
        check_volumes(&state, writable)?;
        match scope.hold(&state.id) {
            Ok(()) => return Ok(image(state, reference, origin, Vec::new())),
            Err(error) if tries < TRIES && error.downcast_ref().is_some_and(DockerError::is_not_found) => {}
            Err(error) => return Err(error).with_context(|| format!("failed to hold the image {reference}")),
        }
    }
}

fn present_or_pulled(scope: &Scope, reference: &str, pull: Pull) -> Result<(ImageState, Origin)> {
    if let Some(state) = scope.docker().inspect_image(reference)? {
        return Ok((state, Origin::Provided));
    }
    if pull == Pull::Never {
        bail!(
            "the engine has no image {reference}, and the policy says never to pull it\nhint: docker pull {reference}"
        );
    }
    let mut state = None;
    let pulled = scope.image(reference, || {
        scope.docker().pull(reference, PULL)?;
        let found = scope.docker().inspect_image(reference)?.context("the engine pulled it and does not have it")?;
        let id = found.id.clone();
        state = Some(found);
        Ok(id)
    });
    pulled.map_err(|error| {
        anyhow::anyhow!(
            "failed to pull {reference}: {error:#}\nhint: target.image may name an image that the engine has"
        )
    })?;
    Ok((state.context("the engine pulled it and does not have it")?, Origin::Pulled))
}

fn image(state: ImageState, reference: &str, origin: Origin, warnings: Vec<String>) -> TargetImage {
    let env = state.config.and_then(|config| config.env).unwrap_or_default();
    TargetImage { id: state.id, reference: reference.to_owned(), origin, env, warnings }
}

fn built(
    scope: &Scope,
    rule: &BuildRule,
    snapshot: &Utf8Path,
    writable: &[Writable],
    buildkit: Option<&str>,
) -> Result<TargetImage> {
    let network = rule.network == BuildNetwork::Default;
    let mut warnings = Vec::new();
    if network {
        warnings.push("the build's steps have the engine's default network (target.image.build.network)".to_owned());
    }
    let dockerfile = dockerfile(scope.folder(), rule, snapshot, &mut warnings)?;
    let contexts = contexts(scope, rule)?;
    let builder = scope.builder(buildkit, network, BUILDER_START).map_err(|error| {
        anyhow::anyhow!(
            "failed to start the dedicated builder: {error:#}\nhint: --buildkit-image or CRASHLAB_BUILDKIT_IMAGE names a BuildKit image that the engine has"
        )
    })?;
    let tag = format!("crashlab/target:{}", scope.run());
    let spec = BuildSpec {
        builder,
        tag: tag.clone(),
        labels: scope.labels("image"),
        dockerfile: dockerfile.into_string(),
        args: rule.args.clone(),
        contexts,
        network,
        context: snapshot.as_str().to_owned(),
    };
    let mut state = None;
    scope.image(&tag, || {
        scope.docker().build(&spec, rule.time).map_err(|error| build_failure(rule, &error))?;
        // The id file holds a config, manifest or index digest, by driver and store: the engine is asked instead.
        let found =
            scope.docker().inspect_image(&tag)?.context("the build ended well and the engine has no image of it")?;
        let id = found.id.clone();
        state = Some(found);
        Ok(id)
    })?;
    let state = state.context("the build ended well and the engine has no image of it")?;
    check_volumes(&state, writable)?;
    Ok(image(state, &tag, Origin::Built, warnings))
}

/// Refuses a build whose Dockerfile a snapshot of the target's folder would not hold. It may be a link, or lie behind one, as
/// long as a file of the snapshot is at its end.
///
/// # Errors
/// A [`Refusal`] that names it.
pub fn require_dockerfile(source: &ImageSource, target: &Utf8Path, contents: &Contents) -> Result<(), Refusal> {
    let ImageSource::Build(rule) = source else { return Ok(()) };
    let real = || {
        let (root, real) = (target.canonicalize_utf8().ok()?, target.join(&rule.dockerfile).canonicalize_utf8().ok()?);
        real.is_file().then_some(real.strip_prefix(root).ok()?.to_owned())
    };
    let is_taken = |real: Utf8PathBuf| contents.files.iter().any(|(path, _)| path == real.as_str().as_bytes());
    if real().is_some_and(is_taken) {
        return Ok(());
    }
    Err(Refusal::new(format!("the snapshot of {target} has no file {}", rule.dockerfile))
        .at("policy.json#/target/image/build/dockerfile")
        .hint("write it, name another, or let target.files take it in; an image needs none that is given by reference"))
}

/// The Dockerfile below the snapshot; without a `syntax` line, which would have BuildKit fetch and run another frontend.
fn dockerfile(
    own: &Utf8Path,
    rule: &BuildRule,
    snapshot: &Utf8Path,
    warnings: &mut Vec<String>,
) -> Result<Utf8PathBuf> {
    let path = snapshot.join(&rule.dockerfile);
    let real = path.canonicalize_utf8().with_context(|| {
        format!(
            "the snapshot has no {}\nhint: target.image.build.dockerfile names it, target.files may leave it out",
            rule.dockerfile
        )
    })?;
    let root = snapshot.canonicalize_utf8().with_context(|| format!("failed to resolve {snapshot}"))?;
    if !real.starts_with(&root) || !real.is_file() {
        bail!("{} is not a file of the snapshot", rule.dockerfile);
    }
    let text = std::fs::read(&real).with_context(|| format!("failed to read {real}"))?;
    let Some(plain) = without_syntax(&text) else { return Ok(real) };
    warnings
        .push(format!("the syntax line of {} is not followed: builds use the builder's own frontend", rule.dockerfile));
    let copy = own.join("Dockerfile");
    std::fs::write(&copy, plain).with_context(|| format!("failed to write {copy}"))?;
    Ok(copy)
}

/// The text without its `# syntax=…` directive; none where there is none. Directives end at the first other line.
fn without_syntax(text: &[u8]) -> Option<Vec<u8>> {
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    let directive = |line: &[u8]| {
        let line = String::from_utf8_lossy(line);
        let (name, _) = line.trim().strip_prefix('#')?.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        name.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(name)
    };
    let at = lines.iter().map_while(|line| directive(line)).position(|name| name == "syntax")?;
    lines.remove(at);
    Some(lines.concat())
}

/// Each declared context as a folder that the builder can read: a docker-container builder does not see the engine's images.
fn contexts(scope: &Scope, rule: &BuildRule) -> Result<BTreeMap<String, String>> {
    let mut contexts = BTreeMap::new();
    for (number, (name, reference)) in rule.contexts.iter().enumerate() {
        let state = scope.docker().inspect_image(reference)?.with_context(|| {
            format!("the engine has no image {reference} for the build context {name}\nhint: docker pull {reference}")
        })?;
        let folder = scope.folder().join(format!("context-{number}"));
        let digest = layout::write(scope.docker(), &state, &folder)
            .with_context(|| format!("failed to hand the image {reference} to the builder"))?;
        contexts.insert(name.clone(), format!("oci-layout://{folder}@{digest}"));
    }
    Ok(contexts)
}

fn build_failure(rule: &BuildRule, error: &crate::docker::DockerError) -> anyhow::Error {
    if error.is_out_of_time() {
        return anyhow::anyhow!("the build took longer than {:?}\nhint: target.image.build.time bounds it", rule.time);
    }
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(COMPLAINT_LINES)..].join("\n");
    let hint = if rule.network == BuildNetwork::None {
        "\nhint: builds have no network: name base images under target.image.build.contexts, or set its network to \"default\""
    } else {
        ""
    };
    anyhow::anyhow!("the build failed: {tail}{hint}")
}

/// A declared volume would become an anonymous one: writable host disk under a read-only root.
fn check_volumes(state: &ImageState, writable: &[Writable]) -> Result<()> {
    let volumes = state.config.as_ref().and_then(|config| config.volumes.as_ref());
    let open: Vec<&str> = volumes
        .into_iter()
        .flat_map(BTreeMap::keys)
        .map(String::as_str)
        .filter(|place| !writable.iter().any(|it| it.path.trim_end_matches('/') == place.trim_end_matches('/')))
        .collect();
    if open.is_empty() {
        return Ok(());
    }
    bail!(
        "the image declares volumes, which would be writable disk of the host: {}\n\
         hint: give each a size under sandbox.writable, or take VOLUME out of the image",
        open.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_line_is_taken_out_and_nothing_else() {
        let table = [
            ("# syntax=docker/dockerfile:1\nFROM base\n", Some("FROM base\n")),
            ("# escape=`\n#Syntax = evil\nFROM base", Some("# escape=`\nFROM base")),
            ("FROM base\n# syntax=late\n", None),
            ("# a comment\n# syntax=late\nFROM base", None),
            ("FROM base", None),
            ("", None),
        ];
        for (text, plain) in table {
            assert_eq!(without_syntax(text.as_bytes()), plain.map(|it| it.as_bytes().to_vec()), "{text}");
        }
    }

    /// The second line: a snapshot has no such link, and a policy no such path.
    #[test]
    fn a_dockerfile_is_a_file_of_the_snapshot_wherever_its_path_leads() {
        let keep = tempfile::tempdir().unwrap();
        let base = Utf8Path::from_path(keep.path()).unwrap().canonicalize_utf8().unwrap();
        let snapshot = base.join("snapshot");
        std::fs::create_dir_all(snapshot.join("docker")).unwrap();
        std::fs::write(base.join("outside"), "FROM the-host").unwrap();
        std::fs::write(snapshot.join("docker/real"), "# syntax=x\nFROM base").unwrap();
        for (name, to) in [
            ("inside", "docker/real"),
            ("folder", "docker"),
            ("outside", "../outside"),
            ("absolute", "/etc/passwd"),
            ("up", ".."),
            ("gone", "nowhere"),
            ("loop", "loop"),
        ] {
            std::os::unix::fs::symlink(to, snapshot.join(name)).unwrap();
        }
        let rule = |path: &str| BuildRule {
            dockerfile: path.into(),
            args: BTreeMap::new(),
            contexts: BTreeMap::new(),
            network: BuildNetwork::None,
            time: Duration::from_secs(1),
        };
        let found = |path: &str| dockerfile(&base, &rule(path), &snapshot, &mut Vec::new());
        for path in ["docker/real", "inside", "folder/real"] {
            assert_eq!(std::fs::read_to_string(found(path).unwrap()).unwrap(), "FROM base", "{path}");
        }
        for path in ["outside", "absolute", "up/outside", "../outside", "/etc/passwd", "gone", "loop", "docker", "."] {
            assert!(found(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_volume_needs_a_sized_place() {
        let state = |volumes: &str| -> ImageState {
            let text = format!(r#"{{"Id":"sha256:{}","Config":{{"Volumes":{volumes}}}}}"#, "0".repeat(64));
            serde_json::from_str(&text).unwrap()
        };
        let data = [Writable { path: "/data".to_owned(), size: 1, exec: false }];
        assert!(check_volumes(&state("null"), &[]).is_ok());
        assert!(check_volumes(&state(r#"{"/data/":{}}"#), &data).is_ok());
        assert!(check_volumes(&state(r#"{"/data":{},"/more":{}}"#), &data).unwrap_err().to_string().contains("/more"));
    }
}
