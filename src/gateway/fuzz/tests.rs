//! The fuzz targets in the ordinary test suite: every seed, and fixed mutations of each. `make fuzz` searches on.

use super::{Dice, TARGETS};
use std::path::{Path, PathBuf};

/// Mutations of each seed.
const MUTATIONS: usize = 40;

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

/// What breaks parsers: a byte changed, a part left out, doubled, moved, or taken from another seed.
fn mutate(dice: &mut Dice, seed: &[u8], other: &[u8]) -> Vec<u8> {
    const SIGNS: &[u8] = b"{}[]\":,\\ \r\n\t0-9eEdata:%/.?#&=\x00\x7f\xc3\xff";
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let end = at + dice.below(bytes.len() - at + 1).min(1 + dice.below(64));
        match dice.below(7) {
            0 => bytes.insert(at, SIGNS[dice.below(SIGNS.len())]),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => {
                let from = dice.below(other.len() + 1);
                let part = other[from..(from + dice.below(64)).min(other.len())].to_vec();
                bytes.splice(at..end, part);
            }
            4 => bytes.truncate(at),
            _ if at < bytes.len() => bytes[at] ^= 1 << dice.below(8),
            _ => {}
        }
    }
    bytes
}

fn every_promise_holds(name: &str) {
    let (_, target) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let seeds = seeds(name);
    assert!(seeds.len() >= 5, "{name}: {} seeds", seeds.len());
    let mut dice = Dice(1);
    for (path, seed) in &seeds {
        target(Tried(path, seed.clone()).bytes());
        for _ in 0..MUTATIONS {
            let other = &seeds[dice.below(seeds.len())].1;
            target(Tried(path, mutate(&mut dice, seed, other)).bytes());
        }
    }
}

/// Says which input it was, where one breaks a promise.
struct Tried<'a>(&'a Path, Vec<u8>);

impl Tried<'_> {
    fn bytes(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("of {}: {}", self.0.display(), self.1.escape_ascii());
        }
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            every_promise_holds(stringify!($name));
        })*

        #[test]
        fn every_target_is_tried_here_and_by_libfuzzer() {
            let tried = [$(stringify!($name)),*];
            assert_eq!(tried.to_vec(), TARGETS.map(|(name, _)| name).to_vec());
            let manifest = include_str!("../../../fuzz/Cargo.toml");
            for name in tried {
                assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no binary of the fuzz package");
            }
        }
    };
}

targets!(framing admission judged events array gzip mcp policy);
