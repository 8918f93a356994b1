//! The `sandbox` part: the bounds of the target. Owns their ranges and defaults; there is no key that loosens a promise.

use super::forms;
use super::problem::Node;
use super::units::show_size;
use super::{Sandbox, User, Writable};
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Counts that the kernel and the engine take.
const MOST_COUNT: u64 = i32::MAX as u64;
/// The smallest place: one page. tmpfs takes `size=0` for "no limit".
const PAGE: u64 = 4096;

pub(super) fn check(node: &Node<'_>, mount: &str) -> Sandbox {
    node.entries("an object with user, cpus, memory and the other bounds");
    let user = node.key("user").text("UID:GID such as \"65534:65534\", neither of them 0", forms::user);
    let sandbox = Sandbox {
        user: user.unwrap_or(User { uid: 65534, gid: 65534 }),
        milli_cpus: cpus(&node.key("cpus")),
        memory: node.key("memory").size(16 * MIB).unwrap_or(512 * MIB),
        processes: node.key("processes").count(1, MOST_COUNT).unwrap_or(128),
        open_files: node.key("open_files").count(16, MOST_COUNT).unwrap_or(1024),
        shared_memory: node.key("shared_memory").size(0).unwrap_or(16 * MIB),
        wall_time: node.key("wall_time").time().unwrap_or(Duration::from_secs(120)),
        output: node.key("output").size(1).unwrap_or(MIB),
        writable: writable(&node.key("writable"), mount),
        runtime: node.key("runtime").text("one of the engine's runtimes, such as \"runsc\"", runtime),
    };
    fits_in_memory(node, &sandbox);
    sandbox
}

fn cpus(node: &Node<'_>) -> u64 {
    let Some(value) = node.value() else { return 1000 };
    let milli = value.as_number().and_then(super::units::thousandths).filter(|milli| (100..=4_096_000).contains(milli));
    if milli.is_none() {
        node.wrong("a number from 0.1 to 4096, with at most three decimals");
    }
    milli.unwrap_or(1000)
}

fn runtime(text: &str) -> Option<String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let fits = text.len() <= 128 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(plain);
    fits.then(|| text.to_owned())
}

fn writable(node: &Node<'_>, mount: &str) -> Vec<Writable> {
    let Some(items) = node.items("a list of {path, size, exec}") else {
        return vec![Writable { path: "/tmp".to_owned(), size: 64 * MIB, exec: false }];
    };
    if items.len() > 64 {
        node.refuse(format!("found {} writable places", items.len()), "at most 64");
    }
    let mut places: Vec<Writable> = Vec::new();
    for item in &items {
        let Some(place) = writable_place(item) else { continue };
        let overlap = |other: &str| forms::is_within(&place.path, other) || forms::is_within(other, &place.path);
        if overlap(mount) {
            item.key("path").refuse(
                format!("found {:?}, which overlaps the target's read-only {mount:?}", place.path),
                "a path outside target.mount that does not hold it",
            );
        }
        if let Some(other) = places.iter().find(|other| overlap(&other.path)) {
            let message = format!("found {:?}, which overlaps {:?}", place.path, other.path);
            item.key("path").refuse(message, "each writable place once, none inside another");
        }
        places.push(place);
    }
    places
}

fn writable_place(node: &Node<'_>) -> Option<Writable> {
    let (path, size) = (node.key("path"), node.key("size"));
    node.entries("an object with path, size and exec");
    let would_do = "a normalized absolute path other than /, of letters, digits and ._-+@~; not in /proc, /sys or /dev \
                    (shared_memory sizes /dev/shm), not over what the engine keeps in /etc";
    if !node.value()?.is_object() || !path.require(would_do) | !size.require(super::units::A_SIZE) {
        return None;
    }
    let path = path.text(would_do, forms::container_path)?;
    Some(Writable { path, size: size.size(PAGE)?, exec: node.key("exec").flag(false) })
}

/// Full places count as memory: a target that fills them must get "no space left", not be killed.
fn fits_in_memory(node: &Node<'_>, sandbox: &Sandbox) {
    let places = sandbox.writable.iter().fold(sandbox.shared_memory, |sum, place| sum.saturating_add(place.size));
    if places < sandbox.memory {
        return;
    }
    let parts = ["memory", "writable", "shared_memory"].map(|key| node.key(key));
    let own = parts.iter().find(|part| part.is_given() && !part.is_built_in()).unwrap_or(&parts[0]);
    own.refuse(
        format!(
            "writable places and shared_memory together are {}, memory is {}",
            show_size(places),
            show_size(sandbox.memory)
        ),
        "together below memory: they are held in it",
    );
}
