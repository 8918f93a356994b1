//! What provider calls came to, in requests, tokens and money: the gateway sums a trial's calls in it, a stored run keeps
//! it and adds it up. Owns how sums treat what is not known; knows no call and no file.
//!
//! Invariant: an unknown amount never becomes 0.

use serde::{Deserialize, Serialize};

/// Requests, tokens and money of a trial, or of all. A sum is over what is known; `unknown` says how many calls it lacks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Forwarded requests.
    pub requests: u64,
    /// Requests that policy refused.
    pub refused: u64,
    /// Cached ones included; none where no call's usage is known.
    pub input_tokens: Option<u64>,
    /// Of the input tokens.
    pub cached_input_tokens: Option<u64>,
    /// Reasoning included.
    pub output_tokens: Option<u64>,
    /// USD; none where no call's cost is known.
    pub cost_usd: Option<f64>,
    /// Calls whose usage or cost is not known.
    pub unknown: u64,
}

impl Default for Totals {
    /// No request: nothing was used, which is known.
    fn default() -> Self {
        let none = Some(0);
        Self {
            requests: 0,
            refused: 0,
            input_tokens: none,
            cached_input_tokens: none,
            output_tokens: none,
            cost_usd: Some(0.0),
            unknown: 0,
        }
    }
}

impl Totals {
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let weights = (self.requests, other.requests);
        Self {
            requests: self.requests.saturating_add(other.requests),
            refused: self.refused.saturating_add(other.refused),
            input_tokens: sum(self.input_tokens, other.input_tokens, weights, u64::saturating_add),
            cached_input_tokens: sum(self.cached_input_tokens, other.cached_input_tokens, weights, u64::saturating_add),
            output_tokens: sum(self.output_tokens, other.output_tokens, weights, u64::saturating_add),
            cost_usd: sum(self.cost_usd, other.cost_usd, weights, |a, b| a + b),
            unknown: self.unknown.saturating_add(other.unknown),
        }
    }

    /// All together.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, usage| sum.plus(usage))
    }
}

/// A side that made no request has nothing to say: its 0 does not turn an unknown into a known 0.
fn sum<T>(a: Option<T>, b: Option<T>, requests: (u64, u64), add: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(add(a, b)),
        (Some(a), None) => (requests.0 > 0).then_some(a),
        (None, Some(b)) => (requests.1 > 0).then_some(b),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(requests: u64, tokens: Option<u64>, cost: Option<f64>, unknown: u64) -> Totals {
        let cached = tokens.map(|_| 0);
        Totals {
            requests,
            refused: 0,
            input_tokens: tokens,
            cached_input_tokens: cached,
            output_tokens: tokens,
            cost_usd: cost,
            unknown,
        }
    }

    #[test]
    fn an_unknown_amount_never_becomes_0() {
        let unknown = usage(2, None, None, 2);
        let sum = Totals::sum([&Totals::default(), &unknown, &Totals::default()]);
        assert_eq!(sum, unknown);
        let some = Totals::sum([&unknown, &usage(1, Some(7), Some(0.5), 0)]);
        assert_eq!((some.input_tokens, some.cost_usd, some.unknown), (Some(7), Some(0.5), 2));
        assert_eq!(Totals::sum([]).cost_usd, Some(0.0));
    }
}
