//! `relay attest`: what the sandbox around this program really is, as seen from inside, as one JSON document. It looks and
//! tries; it judges nothing, and it can tell nothing that the kernel does not let it see. The host compares.

mod json;
mod kernel;
mod places;
mod reach;

use crate::kernel_text::mounts;
use json::Json;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Where an engine's socket would be.
const ENGINE_SOCKETS: [&str; 3] = ["/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"];

#[derive(Default)]
struct Settings {
    /// Looked at even where nothing is mounted.
    places: Vec<String>,
    /// Paths of the host that must not be here.
    absent: Vec<String>,
    addresses: Vec<SocketAddr>,
    names: Vec<String>,
    millis: u64,
}

/// Prints the report.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    if arguments.len() == 1 && !arguments[0].starts_with("--") {
        // As the interpreter of its own probe script: that it runs is the answer.
        return ExitCode::SUCCESS;
    }
    match settings(arguments) {
        Ok(settings) => {
            println!("{}", report(settings));
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("relay: {message}");
            ExitCode::from(crate::USAGE)
        }
    }
}

fn settings(arguments: &[String]) -> Result<Settings, String> {
    let mut settings = Settings { millis: 1000, ..Settings::default() };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} wants a value", pair[0])) };
        match name.as_str() {
            "--place" => settings.places.push(value.clone()),
            "--absent" => settings.absent.push(value.clone()),
            "--tcp" => settings.addresses.push(value.parse().map_err(|_| "--tcp wants IP:PORT".to_owned())?),
            "--name" => settings.names.push(value.clone()),
            "--millis" => settings.millis = value.parse().map_err(|_| "--millis wants a number".to_owned())?,
            _ => return Err(format!("{name} is not known")),
        }
    }
    Ok(settings)
}

fn report(settings: Settings) -> Json {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = mounts(&table);
    let mut names: Vec<String> = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    names.sort();
    let foreign = ENGINE_SOCKETS.iter().map(|path| (*path).to_owned()).chain(settings.absent);
    let present = foreign.filter(|path| std::fs::symlink_metadata(path).is_ok());
    let asked = reach::Asked {
        addresses: settings.addresses,
        names: settings.names,
        patience: Duration::from_millis(settings.millis.max(1)),
    };
    Json::map([
        ("identity", kernel::identity()),
        ("limits", kernel::limits()),
        ("cgroup", kernel::cgroup()),
        ("namespaces", kernel::namespaces()),
        ("environment", Json::texts(names)),
        ("places", places::tried(&mounts, &settings.places)),
        ("open_paths", kernel::open_paths(&mounts)),
        ("devices", kernel::devices()),
        ("present", Json::texts(present)),
        ("network", reach::network()),
        ("answers", reach::answers(&asked)),
    ])
}
