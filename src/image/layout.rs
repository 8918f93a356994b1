//! A local image as an OCI layout, for the dedicated builder. Engines from 25 on save one; what older ones save is turned
//! into one: the layers' archives are moved to the places that their digests name, nothing is hashed again.

use crate::docker::{Docker, ImageState};
use crate::ids::Digest;
use anyhow::{Context, Result, bail};
use camino::{Utf8Path, Utf8PathBuf};
use serde::Deserialize;
use serde_json::json;
use std::fs;
use std::time::Duration;

/// How long saving may take: gigabytes of layers on a slow disk.
const SAVE: Duration = Duration::from_secs(20 * 60);

/// Writes the layout into a new folder; gives the manifest's digest.
pub(super) fn write(docker: &Docker, image: &ImageState, folder: &Utf8Path) -> Result<Digest> {
    fs::create_dir(folder).with_context(|| format!("failed to make {folder}"))?;
    let archive = folder.join("saved.tar");
    docker.save_image(image.id.as_str(), &archive, SAVE)?;
    let saved = folder.join("saved");
    let file = fs::File::open(&archive).with_context(|| format!("failed to open {archive}"))?;
    tar::Archive::new(file).unpack(&saved).context("failed to unpack the saved image")?;
    fs::remove_file(&archive).with_context(|| format!("failed to delete {archive}"))?;
    if saved.join("oci-layout").exists() {
        return adopt(&saved, folder);
    }
    convert(&saved, folder)
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: Digest,
}

/// What the engine saved is a layout already.
fn adopt(saved: &Utf8Path, folder: &Utf8Path) -> Result<Digest> {
    let index: Index = read(&saved.join("index.json"))?;
    let [manifest] = index.manifests.as_slice() else {
        bail!("the saved image has {} manifests", index.manifests.len())
    };
    for name in ["oci-layout", "index.json", "blobs"] {
        fs::rename(saved.join(name), folder.join(name)).with_context(|| format!("failed to move {name}"))?;
    }
    Ok(manifest.digest.clone())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

#[derive(Deserialize)]
struct Config {
    rootfs: RootFs,
}

#[derive(Deserialize)]
struct RootFs {
    diff_ids: Vec<Digest>,
}

fn convert(saved: &Utf8Path, folder: &Utf8Path) -> Result<Digest> {
    let saved_images: Vec<Saved> = read(&saved.join("manifest.json"))?;
    let [image] = saved_images.as_slice() else { bail!("the archive holds {} images", saved_images.len()) };
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).with_context(|| format!("failed to make {blobs}"))?;
    let config_bytes = fs::read(inside(saved, &image.config)?).context("failed to read the image's configuration")?;
    let config: Config = serde_json::from_slice(&config_bytes).context("the image's configuration is unreadable")?;
    if config.rootfs.diff_ids.len() != image.layers.len() {
        bail!("the image has {} layers and {} digests", image.layers.len(), config.rootfs.diff_ids.len());
    }
    let mut layers = Vec::new();
    for (layer, digest) in image.layers.iter().zip(&config.rootfs.diff_ids) {
        let (from, to) = (inside(saved, layer)?, blobs.join(digest.hex()));
        let size = fs::metadata(&from).with_context(|| format!("failed to look at {layer}"))?.len();
        // Equal layers are saved once and linked to: a copy, unless it is the last use.
        if !to.exists() {
            fs::hard_link(&from, &to).with_context(|| format!("failed to place {layer}"))?;
        }
        layers.push(json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": size}));
    }
    let config = json!({
        "mediaType": "application/vnd.oci.image.config.v1+json", "digest": place(&blobs, &config_bytes)?, "size": config_bytes.len(),
    });
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers,
    }))?;
    let digest = place(&blobs, &manifest)?;
    let entry = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": manifest.len(),
    });
    let index = serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": [entry]}))?;
    fs::write(folder.join("index.json"), index).context("failed to write the layout's index")?;
    fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).context("failed to write the layout")?;
    Ok(digest)
}

fn place(blobs: &Utf8Path, bytes: &[u8]) -> Result<Digest> {
    let digest = Digest::of(bytes);
    fs::write(blobs.join(digest.hex()), bytes).context("failed to write a blob of the layout")?;
    Ok(digest)
}

/// A path of the archive, links followed, still inside the archive.
fn inside(saved: &Utf8Path, name: &str) -> Result<Utf8PathBuf> {
    let root = saved.canonicalize_utf8().with_context(|| format!("failed to resolve {saved}"))?;
    let path = root.join(name).canonicalize_utf8().with_context(|| format!("the saved image lacks {name}"))?;
    if !path.starts_with(&root) {
        bail!("{name} leads out of the saved image");
    }
    Ok(path)
}

fn read<T: serde::de::DeserializeOwned>(path: &Utf8Path) -> Result<T> {
    let bytes = fs::read(path).with_context(|| format!("the saved image lacks {path}"))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{path} is unreadable"))
}
