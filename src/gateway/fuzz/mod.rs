//! What untrusted bytes must never do, as functions of the bytes: the fuzz targets in `fuzz/` call them with whatever
//! libFuzzer finds, the test suite with the seeds in `fuzz/seeds` and fixed mutations of them. Compiled for these two only.
//!
//! Invariant: a function here returns for every input; what it asserts is a promise of the file that it tries.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a broken promise ends the run: these are tests")]

mod admitted;
mod answered;
mod received;
#[cfg(test)]
mod tests;

pub use admitted::{admission, judged};
pub use answered::{array, events, gzip};
pub use received::{framing, mcp, policy};

/// A target, and the name of its folder in `fuzz/seeds`.
pub type Target = (&'static str, fn(&[u8]));

/// Every one.
pub const TARGETS: [Target; 8] = [
    ("framing", framing),
    ("admission", admission),
    ("judged", judged),
    ("events", events),
    ("array", array),
    ("gzip", gzip),
    ("mcp", mcp),
    ("policy", policy),
];

/// Numbers that follow from the input alone, so that an input that fails fails again.
struct Dice(u64);

impl Dice {
    fn of(data: &[u8]) -> Self {
        Self(
            data.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or(0)
    }

    /// The input in pieces of one to forty bytes.
    fn split<'a>(&mut self, mut data: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        while !data.is_empty() {
            let (piece, rest) = data.split_at((1 + self.below(40)).min(data.len()));
            pieces.push(piece);
            data = rest;
        }
        pieces
    }
}
