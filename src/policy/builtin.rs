//! The pieces of the repository's `policies/` folder, carried in the binary. Owns their names; holds no rule.

/// The base of every policy.
pub(super) const BASE: &str = "sandbox/strict";

macro_rules! pieces {
    ($($name:literal),* $(,)?) => {
        /// Name and text of every piece that `extends` may name.
        pub(super) const PIECES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../policies/", $name, ".json")))),*];
    };
}

pieces![
    "sandbox/strict",
    "provider/openai",
    "provider/anthropic",
    "provider/gemini",
    "provider/azure-openai",
    "provider/openrouter",
    "drills/rate-limited",
    "drills/flaky-provider",
    "drills/slow-provider",
    "drills/cut-stream",
    "drills/stale-world",
    "drills/lost-write",
    "drills/duplicate-delivery",
    "drills/schema-drift",
    "drills/injected-instructions",
];

/// The text of a piece.
pub(super) fn text(name: &str) -> Option<&'static str> {
    PIECES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Every name, for a refusal.
pub(super) fn names() -> String {
    PIECES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
