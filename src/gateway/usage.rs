//! What an answer says of itself: the model that served it, its tokens, whether it came to its own end, whether it is an
//! error in disguise. Owns how counts are put together; where they stand is each dialect's.
//!
//! Invariant: a count that nobody gave is not known, never 0; one that was given twice counts once.

use super::exchange::Usage;
use serde_json::Value;

/// The reason where a whole answer has no counts.
pub(super) const NOT_REPORTED: &str = "the provider reported no usage";

/// What has been read of one answer so far.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Tally {
    /// The model that the provider says it used.
    pub(super) served: Option<String>,
    /// The counts as the provider gave them.
    pub(super) counts: Counts,
    /// Nothing is charged on this endpoint: that there are no counts is no gap.
    pub(super) is_free: bool,
    /// The stream's own last event was there.
    pub(super) is_complete: bool,
    /// An error in place of an answer.
    pub(super) fault: Option<Fault>,
}

/// Whose an error in an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The provider's: it could not answer.
    Provider,
    /// The request's: what a 400 would have said.
    Request,
}

/// Counts as they were given; the last one given stands.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Counts {
    /// Input; whether cached tokens are part of it is the next field's.
    pub(super) input: Option<u64>,
    /// `input` is without what was read from a cache or written to it.
    pub(super) is_fresh: bool,
    /// Read from a cache.
    pub(super) cached: Option<u64>,
    /// Written to a cache.
    pub(super) written: Option<u64>,
    /// Output.
    pub(super) output: Option<u64>,
    /// Reasoning; `is_extra` tells whether it is part of the output.
    pub(super) reasoning: Option<u64>,
    /// `output` is without reasoning.
    pub(super) is_extra: bool,
    /// Input and output beside these, of sub-requests that the provider bills with them.
    pub(super) beside: (u64, u64),
}

impl Counts {
    /// Puts what is given in place of what was there; a null changes nothing.
    pub(super) fn set(place: &mut Option<u64>, given: &Value) {
        if let Some(count) = count(given) {
            *place = Some(count);
        }
    }

    /// Input and output in full, each token once; none while either is not known.
    pub(super) fn usage(&self) -> Option<Usage> {
        let (cached, written) = (self.cached.unwrap_or(0), self.written.unwrap_or(0));
        let reasoning = self.reasoning.unwrap_or(0);
        let input = match self.is_fresh {
            true => self.input?.saturating_add(cached).saturating_add(written),
            false => self.input?,
        };
        let output = if self.is_extra { self.output?.saturating_add(reasoning) } else { self.output? };
        let cached_input = cached.min(input);
        Some(Usage {
            input: input.saturating_add(self.beside.0),
            cached_input,
            cache_write: written.min(input - cached_input),
            output: output.saturating_add(self.beside.1),
            reasoning: reasoning.min(output),
        })
    }
}

impl Tally {
    /// The model that served, as evidence keeps it: bounded, and without signs that a terminal acts on.
    pub(super) fn serve(&mut self, model: &Value) {
        if let Some(model) = model.as_str().filter(|model| !model.is_empty()) {
            self.served = Some(model.chars().filter(|char| !char.is_control()).take(200).collect());
        }
    }

    /// Notes an error; one that is the provider's stands.
    pub(super) fn fail(&mut self, fault: Fault) {
        if self.fault != Some(Fault::Provider) {
            self.fault = Some(fault);
        }
    }
}

/// A count; a number with a fraction, a sign or an exponent is none.
pub(super) fn count(value: &Value) -> Option<u64> {
    value.as_u64()
}

/// Whose an error is, by the number or the words that stand in it: those of a refused request are the request's.
pub(super) fn fault(error: &Value) -> Fault {
    const OF_THE_REQUEST: [&str; 22] = [
        "invalid_request_error",
        "not_found_error",
        "request_too_large",
        "INVALID_ARGUMENT",
        "FAILED_PRECONDITION",
        "NOT_FOUND",
        "OUT_OF_RANGE",
        "invalid_request",
        "invalid_prompt",
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "string_above_max_length",
        "model_not_found",
        "bio_policy",
        "misalignment_policy_violation",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
    ];
    let is_number = |value: &Value| count(value).is_some_and(|code| matches!(code, 400 | 404 | 413 | 422));
    let is_word = |value: &Value| {
        value.as_str().is_some_and(|word| {
            OF_THE_REQUEST.contains(&word) || word.starts_with("invalid_") || word.starts_with("unsupported_")
        })
    };
    let is_request = ["code", "type", "status"].iter().any(|key| is_number(&error[*key]) || is_word(&error[*key]));
    if is_request { Fault::Request } else { Fault::Provider }
}

/// Whether a status counts as the provider's failure (interface.md): nobody could have answered otherwise.
pub(super) fn is_failure(status: u16) -> bool {
    matches!(status, 401 | 402 | 403 | 407 | 408 | 429 | 500..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_token_counts_once() {
        let inclusive = Counts {
            input: Some(4740),
            cached: Some(4735),
            output: Some(255),
            reasoning: Some(200),
            ..Counts::default()
        };
        let wanted = Usage { input: 4740, cached_input: 4735, cache_write: 0, output: 255, reasoning: 200 };
        assert_eq!(inclusive.usage(), Some(wanted));
        let fresh =
            Counts { input: Some(27), is_fresh: true, cached: Some(8831), output: Some(47), ..Counts::default() };
        let wanted = Usage { input: 8858, cached_input: 8831, cache_write: 0, output: 47, reasoning: 0 };
        assert_eq!(fresh.usage(), Some(wanted));
        let extra =
            Counts { input: Some(5), output: Some(7), reasoning: Some(11), is_extra: true, ..Counts::default() };
        assert_eq!(extra.usage().unwrap().output, 18);
    }

    #[test]
    fn what_nobody_gave_is_not_known() {
        assert_eq!(Counts::default().usage(), None);
        assert_eq!(Counts { input: Some(1), ..Counts::default() }.usage(), None);
        assert_eq!(Counts { output: Some(1), ..Counts::default() }.usage(), None);
        let zero = Counts { input: Some(0), output: Some(0), ..Counts::default() };
        assert_eq!(zero.usage(), Some(Usage::default()), "a true 0 stays one");
    }

    #[test]
    fn parts_are_never_larger_than_the_whole() {
        let odd = Counts {
            input: Some(10),
            cached: Some(8),
            written: Some(8),
            output: Some(1),
            reasoning: Some(5),
            ..Counts::default()
        };
        let wanted = Usage { input: 10, cached_input: 8, cache_write: 2, output: 1, reasoning: 1 };
        assert_eq!(odd.usage(), Some(wanted));
    }

    #[test]
    fn only_whole_numbers_are_counts() {
        for (value, wanted) in
            [(json!(3), Some(3)), (json!(-3), None), (json!(1.5), None), (json!("3"), None), (json!(null), None)]
        {
            assert_eq!(count(&value), wanted, "{value}");
        }
    }

    #[test]
    fn an_error_that_a_bad_request_causes_is_the_requests() {
        let table = [
            (json!({"type": "overloaded_error"}), Fault::Provider),
            (json!({"type": "invalid_request_error", "code": null}), Fault::Request),
            (json!({"type": "server_error", "code": "rate_limit_exceeded"}), Fault::Provider),
            (json!({"code": 429}), Fault::Provider),
            (json!({"code": 400, "status": "INVALID_ARGUMENT"}), Fault::Request),
            (json!({"code": "invalid_image_format"}), Fault::Request),
            (json!("text"), Fault::Provider),
        ];
        for (error, wanted) in table {
            assert_eq!(fault(&error), wanted, "{error}");
        }
    }

    #[test]
    fn the_statuses_of_the_interface_are_the_providers_failures() {
        let failures: Vec<u16> = (100..600).filter(|status| is_failure(*status)).collect();
        let wanted: Vec<u16> = [401, 402, 403, 407, 408, 429].into_iter().chain(500..600).collect();
        assert_eq!(failures, wanted);
    }
}
