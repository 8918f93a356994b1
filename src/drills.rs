//! Which declared fault strikes which call of a trial, from the policy, the seed, the trial and the order of admission. Owns
//! that decision and the list of what struck; carries no fault out and looks at no clock.
//!
//! Invariant: the same drill, seed, trial and order of calls give the same list.

use crate::policy::{Drill, FaultKind, FaultPlace, FaultRule, FaultTime};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Faults that are listed one by one; more of them are only counted. What is injected in a provider's place costs the
/// target nothing, so nothing else bounds it.
pub const LISTED: usize = 1000;

/// A fault that was injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    /// As the policy names it.
    pub kind: &'static str,
    /// `gateway:NAME` or `operation:NAME`.
    pub on: String,
    /// The route that was struck; none for an operation.
    pub route: Option<String>,
    /// Which call of that gateway or operation, from 1.
    pub call: u64,
}

/// The faults of one trial.
#[derive(Debug, Default)]
pub struct Drills {
    faults: Vec<FaultRule>,
    seed: u64,
    trial: String,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// Calls of each place.
    calls: BTreeMap<String, u64>,
    /// Calls that each fault's place and route fit, and how often it struck.
    seen: BTreeMap<usize, (u64, u64)>,
    /// The first [`LISTED`].
    injected: Vec<Injected>,
    unlisted: u64,
}

impl Drills {
    /// A trial's faults; `trial` is its id as it is written.
    pub fn new(drill: &Drill, seed: u64, trial: &str) -> Self {
        Self { faults: drill.faults.clone(), seed, trial: trial.to_owned(), book: Mutex::default() }
    }

    /// The faults that strike the next call of a place: any that only take time, and the first one that does more. Calls
    /// count in the order in which they come here.
    pub fn strike(&self, place: &FaultPlace, route: Option<&str>) -> Vec<FaultKind> {
        if self.faults.is_empty() {
            return Vec::new();
        }
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let on = name(place);
        let call = book.calls.entry(on.clone()).or_default();
        *call += 1;
        let call = *call;
        let mut kinds: Vec<FaultKind> = Vec::new();
        for (index, fault) in self.faults.iter().enumerate() {
            if fault.on != *place || !is_route(fault, route) {
                continue;
            }
            let (seen, struck) = book.seen.entry(index).or_default();
            *seen += 1;
            let is_free = is_time(&fault.kind) || kinds.iter().all(is_time);
            let is_left = fault.times.is_none_or(|times| *struck < times);
            if is_left && is_free && self.strikes(fault, index, *seen) {
                *struck += 1;
                kinds.push(fault.kind.clone());
                if book.injected.len() < LISTED {
                    let (kind, route) = (word(&fault.kind), route.map(str::to_owned));
                    book.injected.push(Injected { kind, on: on.clone(), route, call });
                } else {
                    book.unlisted += 1;
                }
            }
        }
        kinds
    }

    /// What struck so far, in order, at most [`LISTED`] of it.
    pub fn injected(&self) -> Vec<Injected> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).injected.clone()
    }

    /// How many faults beyond those struck.
    pub fn unlisted(&self) -> u64 {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).unlisted
    }

    /// How many earlier worlds a stale read may ask for.
    pub fn memory(&self) -> u64 {
        let calls = |fault: &FaultRule| if let FaultKind::StaleRead(calls) = fault.kind { calls } else { 0 };
        self.faults.iter().map(calls).max().unwrap_or(0)
    }

    fn strikes(&self, fault: &FaultRule, index: usize, call: u64) -> bool {
        match fault.when {
            FaultTime::Always => true,
            FaultTime::Nth(nth) => call == nth,
            FaultTime::Every(every) => call.is_multiple_of(every),
            FaultTime::Probability(probability) => self.chance(index, call) < probability,
        }
    }

    /// From 0 up to 1, the same for the same seed, trial, fault and call.
    fn chance(&self, index: usize, call: u64) -> f64 {
        let text = format!("{}\n{}\n{index}\n{call}", self.seed, self.trial);
        let digest = Sha256::digest(text.as_bytes());
        let top = digest.iter().take(4).fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte));
        f64::from(top) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Whether a drill needs `world.restore` of the evaluation.
pub fn needs_restore(drill: &Drill) -> bool {
    drill.faults.iter().any(|fault| matches!(fault.kind, FaultKind::StaleRead(_) | FaultKind::LostWrite))
}

fn name(place: &FaultPlace) -> String {
    match place {
        FaultPlace::Gateway(name) => format!("gateway:{name}"),
        FaultPlace::Operation(name) => format!("operation:{name}"),
    }
}

/// A fault's route may leave out the query keys that the declared one has.
fn is_route(fault: &FaultRule, route: Option<&str>) -> bool {
    let Some(wanted) = &fault.route else { return true };
    route.is_some_and(|route| route == wanted || route.split('?').next() == Some(wanted))
}

/// Whether a fault only takes time: others may strike beside it.
fn is_time(kind: &FaultKind) -> bool {
    matches!(kind, FaultKind::Delay(_) | FaultKind::SlowStream(_))
}

/// A kind as the policy names it.
pub fn word(kind: &FaultKind) -> &'static str {
    match kind {
        FaultKind::Status { .. } => "status",
        FaultKind::Delay(_) => "delay",
        FaultKind::SlowStream(_) => "slow_stream",
        FaultKind::CutStream(_) => "cut_stream",
        FaultKind::Reset => "reset",
        FaultKind::Malformed => "malformed",
        FaultKind::Empty => "empty",
        FaultKind::WrongType => "wrong_type",
        FaultKind::ContentFilter => "content_filter",
        FaultKind::ContextLength => "context_length",
        FaultKind::Error => "error",
        FaultKind::Timeout(_) => "timeout",
        FaultKind::StaleRead(_) => "stale_read",
        FaultKind::LostWrite => "lost_write",
        FaultKind::Duplicate => "duplicate",
        FaultKind::Partial => "partial",
        FaultKind::SchemaDrift => "schema_drift",
        FaultKind::InjectedText(_) => "injected_text",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn rule(kind: FaultKind, when: FaultTime) -> FaultRule {
        FaultRule { on: FaultPlace::Gateway("g".to_owned()), kind, route: None, when, times: None }
    }

    /// The calls, of so many, that a single rule strikes.
    fn struck(rule: FaultRule, seed: u64, calls: u64) -> Vec<u64> {
        let drills = Drills::new(&Drill { faults: vec![rule] }, seed, "a@d/1");
        for _ in 0..calls {
            drills.strike(&FaultPlace::Gateway("g".to_owned()), Some("POST /v1/x"));
        }
        drills.injected().into_iter().map(|fault| fault.call).collect()
    }

    #[test]
    fn a_fault_strikes_the_calls_that_it_names() {
        let table: [(FaultTime, Option<u64>, &[u64]); 5] = [
            (FaultTime::Always, None, &[1, 2, 3, 4, 5, 6]),
            (FaultTime::Always, Some(2), &[1, 2]),
            (FaultTime::Nth(3), None, &[3]),
            (FaultTime::Every(2), None, &[2, 4, 6]),
            (FaultTime::Probability(1.0), Some(1), &[1]),
        ];
        for (when, times, calls) in table {
            let rule = FaultRule { times, ..rule(FaultKind::Empty, when) };
            assert_eq!(struck(rule, 7, 6), calls, "{when:?} {times:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_list_and_another_one_another() {
        let chance = || rule(FaultKind::Empty, FaultTime::Probability(0.3));
        let list = struck(chance(), 7, 200);
        assert_eq!(list, struck(chance(), 7, 200));
        assert_ne!(list, struck(chance(), 8, 200));
        assert!((30..90).contains(&list.len()), "{} of 200 at 0.3", list.len());
    }

    #[test]
    fn a_target_that_never_stops_asking_grows_no_list_without_end() {
        let drills = Drills::new(&Drill { faults: vec![rule(FaultKind::Empty, FaultTime::Always)] }, 1, "a@d/1");
        (0..LISTED + 5).for_each(|_| drop(drills.strike(&FaultPlace::Gateway("g".to_owned()), None)));
        assert_eq!((drills.injected().len(), drills.unlisted()), (LISTED, 5));
    }

    #[test]
    fn other_places_and_routes_are_not_struck_nor_counted() {
        let on_route = FaultRule { route: Some("POST /v1/x".to_owned()), ..rule(FaultKind::Empty, FaultTime::Nth(2)) };
        let drills = Drills::new(&Drill { faults: vec![on_route] }, 1, "a@d/1");
        let place = FaultPlace::Gateway("g".to_owned());
        let strikes = [
            (&FaultPlace::Gateway("h".to_owned()), "POST /v1/x", 0),
            (&place, "POST /v1/x", 0),
            (&place, "GET /v1/models", 0),
            (&place, "POST /v1/x?api-version", 1),
        ];
        for (place, route, count) in strikes {
            assert_eq!(drills.strike(place, Some(route)).len(), count, "{place:?} {route}");
        }
        assert_eq!(drills.injected()[0].call, 3, "the third call of the gateway");
    }

    #[test]
    fn one_fault_that_answers_strikes_a_call_and_delays_beside_it() {
        let second = Duration::from_secs(1);
        let kinds = [FaultKind::Delay(second), FaultKind::Reset, FaultKind::Empty, FaultKind::SlowStream(second)];
        let faults = kinds.map(|kind| rule(kind, FaultTime::Always)).into();
        let drills = Drills::new(&Drill { faults }, 1, "a@d/1");
        let struck = drills.strike(&FaultPlace::Gateway("g".to_owned()), None);
        assert_eq!(struck, [FaultKind::Delay(second), FaultKind::Reset, FaultKind::SlowStream(second)]);
        assert_eq!(drills.injected().len(), 3);
    }
}
