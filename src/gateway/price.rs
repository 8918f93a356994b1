//! What a call costs, by the model that served it: the exact price, else the longest glob's; of a long prompt, at the rates
//! that then hold for all of it. Owns the arithmetic, which is decimal: a sum has no digits that no price has. Knows no
//! request.

use super::exchange::Usage;
use crate::policy::{Price, Rates, glob};
use std::collections::BTreeMap;

/// Prices are counted in billionths of a dollar for a million tokens.
const PER_DOLLAR: f64 = 1e9;
/// Decimal places of a cost: those of a price, and six for the million.
const PLACES: usize = 15;

/// USD for what was used; none where no price fits the model.
pub(super) fn cost(prices: &BTreeMap<String, Price>, model: &str, usage: &Usage) -> Option<f64> {
    let rates = rates(glob::lookup(prices, model)?, usage.input);
    let cached = usage.cached_input.min(usage.input);
    let written = usage.cache_write.min(usage.input - cached);
    let fresh = usage.input - cached - written;
    let parts = [
        (fresh, rates.input),
        (cached, rates.cached_input.unwrap_or(rates.input)),
        (written, rates.cache_write.unwrap_or(rates.input)),
        (usage.output, rates.output),
    ];
    let total = parts.iter().map(|(tokens, usd)| u128::from(*tokens).saturating_mul(units(*usd)));
    Some(dollars(total.fold(0, u128::saturating_add)))
}

/// A provider bills the whole request at the rates of its length, cached input and output included.
fn rates(price: &Price, input: u64) -> Rates {
    match price.long_prompt {
        Some(long) if input > long.above => long.rates,
        _ => price.rates,
    }
}

/// A sum of costs without the digits that adding binary fractions leaves.
pub(super) fn tidy(usd: f64) -> f64 {
    format!("{usd:.12}").parse().unwrap_or(usd)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a price is finite and not negative; as saturates"
)]
fn units(usd: f64) -> u128 {
    (usd * PER_DOLLAR).round() as u128
}

/// Written as a decimal and read again: the nearest number that can be written so short.
fn dollars(units: u128) -> f64 {
    let digits = format!("{units:0>width$}", width = PLACES + 1);
    let (whole, fraction) = digits.split_at(digits.len() - PLACES);
    format!("{whole}.{fraction}").parse().unwrap_or(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::LongPrompt;

    fn price(input: f64, cached_input: Option<f64>, cache_write: Option<f64>, output: f64) -> Price {
        Price { rates: Rates { input, cached_input, cache_write, output }, long_prompt: None }
    }

    /// As the providers bill it: twice the input's and the cache's rates, one and a half of the output's.
    fn tiered() -> BTreeMap<String, Price> {
        let long = Rates { input: 4.0, cached_input: Some(0.4), cache_write: Some(5.0), output: 15.0 };
        let mut price = price(2.0, Some(0.2), Some(2.5), 10.0);
        price.long_prompt = Some(LongPrompt { above: 272_000, rates: long });
        BTreeMap::from([("m".to_owned(), price)])
    }

    fn table() -> BTreeMap<String, Price> {
        BTreeMap::from([
            ("gpt-5*".to_owned(), price(30.0, None, None, 180.0)),
            ("gpt-5-mini*".to_owned(), price(0.25, Some(0.025), None, 2.0)),
            ("gpt-5".to_owned(), price(1.25, Some(0.125), Some(1.5), 10.0)),
        ])
    }

    #[test]
    fn the_exact_key_comes_before_the_longest_glob() {
        let usage = Usage { input: 1_000_000, ..Usage::default() };
        for (model, wanted) in
            [("gpt-5", Some(1.25)), ("gpt-5-mini-2025", Some(0.25)), ("gpt-5.9", Some(30.0)), ("o1", None)]
        {
            assert_eq!(cost(&table(), model, &usage), wanted, "{model}");
        }
    }

    #[test]
    fn each_token_is_charged_once_at_its_own_price() {
        let usage = Usage { input: 4740, cached_input: 4735, cache_write: 0, output: 255, reasoning: 200 };
        // 5 × 0.25 + 4735 × 0.025 + 255 × 2, by a million
        assert_eq!(cost(&table(), "gpt-5-mini", &usage), Some(0.000_629_625));
        let usage = Usage { input: 100, cached_input: 10, cache_write: 20, output: 1, reasoning: 0 };
        // 70 × 1.25 + 10 × 0.125 + 20 × 1.5 + 1 × 10
        assert_eq!(cost(&table(), "gpt-5", &usage), Some(0.000_128_75));
    }

    #[test]
    fn cached_input_without_a_price_of_its_own_costs_what_input_costs() {
        let usage = Usage { input: 100, cached_input: 60, cache_write: 40, ..Usage::default() };
        assert_eq!(cost(&table(), "gpt-5.9", &usage), Some(0.003));
    }

    #[test]
    fn a_long_prompt_costs_its_own_rates_for_the_whole_request() {
        let cost_of = |usage: Usage| cost(&tiered(), "m", &usage);
        let short = Usage { input: 272_000, cached_input: 70_000, cache_write: 2_000, output: 1_000, reasoning: 900 };
        // 200,000 × 2 + 70,000 × 0.2 + 2,000 × 2.5 + 1,000 × 10, by a million
        assert_eq!(cost_of(short), Some(0.429));
        let long = Usage { input: 272_001, cached_input: 70_001, ..short };
        // 200,000 × 4 + 70,001 × 0.4 + 2,000 × 5 + 1,000 × 15
        assert_eq!(cost_of(long), Some(0.853_000_4));
        let all_cached = Usage { input: 300_000, cached_input: 300_000, ..Usage::default() };
        assert_eq!(cost_of(all_cached), Some(0.12), "what is read from a cache makes a prompt long, too");
    }

    #[test]
    fn no_digits_appear_that_no_price_has() {
        let prices = BTreeMap::from([("m".to_owned(), price(0.1, None, None, 0.2))]);
        for tokens in 1..2000_u64 {
            let usage = Usage { input: tokens, output: tokens, ..Usage::default() };
            let text = cost(&prices, "m", &usage).unwrap().to_string();
            assert!(text.len() <= 12, "{tokens}: {text}");
        }
        assert_eq!(tidy(0.1 + 0.2).to_string(), "0.3");
        assert_eq!(tidy(0.000_000_000_001), 0.000_000_000_001);
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let prices = BTreeMap::from([("m".to_owned(), price(1e300, None, None, f64::MAX))]);
        let usage = Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() };
        assert!(cost(&prices, "m", &usage).unwrap().is_finite());
    }
}
