//! Budgets: requests, tokens and money of one trial and gateway, and the money of a whole run. Reserved before a request
//! is forwarded and settled after it, so that requests in flight together cannot overrun.
//!
//! Invariant: used and reserved together never exceed a limit by more than one answer that its request did not bound.

use super::exchange::Denied;
use std::sync::{Arc, Mutex, PoisonError};

/// Output tokens that are reserved for a request that does not say how many it may take.
const UNBOUNDED_OUTPUT: u64 = 4096;
/// Bytes of a request that are reserved as one input token.
const BYTES_PER_TOKEN: u64 = 4;

/// The money of a whole run (`--max-cost`), shared by all its trials.
#[derive(Debug)]
pub struct Purse {
    limit: f64,
    state: Mutex<Meter>,
}

impl Purse {
    /// With this limit in USD.
    pub fn new(limit: f64) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// USD that are used or reserved.
    pub fn spent(&self) -> f64 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used + state.held
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Meter {
    used: f64,
    held: f64,
}

impl Meter {
    /// Reserves `wanted`, or what is left where the request did not bound itself; none where there is not enough.
    fn hold(&mut self, limit: Option<f64>, wanted: f64, is_bounded: bool) -> Option<f64> {
        let left = limit.map_or(f64::INFINITY, |limit| limit - self.used - self.held);
        let amount = if is_bounded { wanted } else { wanted.min(left) };
        if amount > left || (limit.is_some() && left <= 0.0) {
            return None;
        }
        self.held += amount;
        Some(amount)
    }

    fn settle(&mut self, held: f64, used: f64) {
        self.held = (self.held - held).max(0.0);
        self.used += used;
    }
}

/// The limits of one trial and gateway.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    pub(super) requests: u64,
    pub(super) tokens: Option<u64>,
    pub(super) cost_usd: Option<f64>,
}

/// What a request may use at most, as far as it says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Estimate {
    pub(super) request_bytes: u64,
    pub(super) max_output: Option<u64>,
}

impl Estimate {
    fn input(&self) -> u64 {
        self.request_bytes.div_ceil(BYTES_PER_TOKEN)
    }

    fn output(&self) -> u64 {
        self.max_output.unwrap_or(UNBOUNDED_OUTPUT)
    }
}

/// What one trial has used of one gateway.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    purse: Option<Arc<Purse>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: u64,
    tokens: Meter,
    cost: Meter,
}

/// A reservation. One that is dropped unsettled stays used: it is not known what the request cost.
#[derive(Debug)]
#[must_use]
pub(super) struct Hold {
    tokens: f64,
    cost: f64,
    purse: f64,
}

impl Budget {
    pub(super) fn new(limits: Limits, purse: Option<Arc<Purse>>) -> Self {
        Self { limits, purse, state: Mutex::default() }
    }

    /// Reserves for one request; `price` gives USD for input and output tokens, none where the model has no price.
    pub(super) fn reserve(&self, estimate: Estimate, price: impl Fn(u64, u64) -> Option<f64>) -> Result<Hold, Denied> {
        let (input, output, is_bounded) = (estimate.input(), estimate.output(), estimate.max_output.is_some());
        let cost = price(input, output);
        if cost.is_none() && (self.limits.cost_usd.is_some() || self.purse.is_some()) {
            return Err(Denied::new("cost_usd", "crashlab_no_price", "money is limited and this model has no price"));
        }
        let cost = cost.unwrap_or(0.0);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.requests >= self.limits.requests {
            let message = format!("the {} requests that one trial may make are used up", self.limits.requests);
            return Err(Denied::new("requests", "crashlab_request_limit", message));
        }
        let limit = self.limits.tokens.map(as_amount);
        // A bound may be as large as a number can be.
        let wanted = input.saturating_add(output);
        let tokens = state.tokens.hold(limit, as_amount(wanted), is_bounded);
        let tokens = tokens.ok_or_else(|| self.no_tokens(&state, wanted))?;
        let Some(held) = state.cost.hold(self.limits.cost_usd, cost, is_bounded) else {
            state.tokens.settle(tokens, 0.0);
            return Err(Denied::new(
                "cost_usd",
                "crashlab_cost_limit",
                "the money that one trial may spend does not suffice",
            ));
        };
        let Some(purse) = self.hold_in_purse(cost, is_bounded) else {
            state.tokens.settle(tokens, 0.0);
            state.cost.settle(held, 0.0);
            return Err(Denied::new(
                "max_cost",
                "crashlab_run_cost_limit",
                "the money of the whole run does not suffice",
            ));
        };
        state.requests += 1;
        Ok(Hold { tokens, cost: held, purse })
    }

    fn no_tokens(&self, state: &State, wanted: u64) -> Denied {
        let limit = self.limits.tokens.unwrap_or(u64::MAX);
        let message = format!(
            "the request may take {wanted} tokens; of the trial's {limit}, {} are used and {} reserved by requests in \
             flight: ask for fewer output tokens",
            state.tokens.used, state.tokens.held
        );
        Denied::new("tokens", "crashlab_token_limit", message)
    }

    fn hold_in_purse(&self, cost: f64, is_bounded: bool) -> Option<f64> {
        let Some(purse) = &self.purse else { return Some(0.0) };
        purse.state.lock().unwrap_or_else(PoisonError::into_inner).hold(Some(purse.limit), cost, is_bounded)
    }

    /// Gives a hold back whole: the request was not forwarded.
    pub(super) fn give_back(&self, hold: Hold) {
        self.settle(hold, Some(0), Some(0.0));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.requests = state.requests.saturating_sub(1);
    }

    /// Puts what was really used in the reservation's place; what is not known stays as it was reserved.
    pub(super) fn settle(&self, hold: Hold, tokens: Option<u64>, cost: Option<f64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tokens.settle(hold.tokens, tokens.map_or(hold.tokens, as_amount));
        state.cost.settle(hold.cost, cost.unwrap_or(hold.cost));
        if let Some(purse) = &self.purse {
            let mut meter = purse.state.lock().unwrap_or_else(PoisonError::into_inner);
            meter.settle(hold.purse, cost.unwrap_or(hold.purse));
        }
    }
}

/// Token counts as amounts; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "a budget of 2^53 tokens is beyond any provider")]
fn as_amount(tokens: u64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests: u64, tokens: Option<u64>, cost_usd: Option<f64>) -> Limits {
        Limits { requests, tokens, cost_usd }
    }

    fn ask(max_output: Option<u64>) -> Estimate {
        Estimate { request_bytes: 40, max_output }
    }

    /// A dollar for a thousand tokens.
    fn price(input: u64, output: u64) -> Option<f64> {
        Some((as_amount(input) + as_amount(output)) / 1000.0)
    }

    #[test]
    fn concurrent_requests_cannot_overrun_the_request_limit() {
        let budget = Budget::new(limits(10, None, None), None);
        let passed = std::thread::scope(|scope| {
            let tries: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..8).filter(|_| budget.reserve(ask(None), price).is_ok()).count()))
                .collect();
            tries.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert_eq!(passed, 10);
    }

    #[test]
    fn tokens_are_reserved_before_and_settled_after() {
        let budget = Budget::new(limits(100, Some(100), None), None);
        // 10 of input and 60 of output; twice that would be over.
        let first = budget.reserve(ask(Some(60)), price).unwrap();
        assert_eq!(budget.reserve(ask(Some(60)), price).unwrap_err().limit, "tokens");
        budget.settle(first, Some(20), None);
        let second = budget.reserve(ask(Some(60)), price).unwrap();
        budget.settle(second, Some(70), None);
        let third = budget.reserve(ask(None), price).unwrap();
        assert_eq!(budget.reserve(ask(None), price).unwrap_err().limit, "tokens", "all that is left is reserved");
        budget.settle(third, Some(10), None);
        assert_eq!(budget.reserve(ask(None), price).unwrap_err().limit, "tokens", "used up");
    }

    #[test]
    fn a_request_alone_over_the_limit_is_refused_and_one_without_a_bound_is_not() {
        let budget = Budget::new(limits(100, Some(100), None), None);
        assert_eq!(budget.reserve(ask(Some(91)), price).unwrap_err().limit, "tokens");
        assert!(budget.reserve(ask(None), price).is_ok());
    }

    #[test]
    fn no_bound_is_so_large_that_it_counts_for_little() {
        let budget = Budget::new(limits(100, Some(100), None), None);
        assert_eq!(budget.reserve(ask(Some(u64::MAX)), price).unwrap_err().limit, "tokens");
    }

    #[test]
    fn what_a_request_used_stays_reserved_where_nobody_knows() {
        let budget = Budget::new(limits(100, Some(100), None), None);
        let hold = budget.reserve(ask(Some(60)), price).unwrap();
        budget.settle(hold, None, None);
        assert_eq!(budget.reserve(ask(Some(60)), price).unwrap_err().limit, "tokens");
    }

    #[test]
    fn money_is_limited_for_the_trial_and_for_the_run() {
        let purse = Arc::new(Purse::new(0.15));
        let trial = || Budget::new(limits(100, None, Some(0.1)), Some(Arc::clone(&purse)));
        let (one, two) = (trial(), trial());
        let hold = one.reserve(ask(Some(60)), price).unwrap();
        assert_eq!(one.reserve(ask(Some(60)), price).unwrap_err().limit, "cost_usd");
        let other = two.reserve(ask(Some(60)), price).unwrap();
        assert_eq!(trial().reserve(ask(Some(60)), price).unwrap_err().limit, "max_cost");
        one.settle(hold, Some(1), Some(0.001));
        two.settle(other, Some(1), Some(0.001));
        assert!(one.reserve(ask(Some(60)), price).is_ok());
        assert!((purse.spent() - 0.072).abs() < 1e-9, "{}", purse.spent());
        assert_eq!(trial().reserve(ask(Some(5)), |_, _| None).unwrap_err().code, "crashlab_no_price");
    }
}
