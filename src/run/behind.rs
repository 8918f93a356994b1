//! Removal behind the trials: what a trial leaves is taken away by one thread, as much at once as has come together
//! meanwhile, so that neither the next trial nor the engine waits for each. Owns how much may wait; what it does not get to
//! is the scope's, which removes all that is left at the end.

use crate::scope::Scope;
use crate::trace::Trace;
use crate::trial::Objects;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many trials' objects may wait: where the engine is slow to remove, the trials wait for it, and not its memory.
const MOST_WAITING: usize = 32;
/// How many trials' objects go in one call, which has a limit: a busy engine may take seconds for each network.
const MOST_AT_ONCE: usize = 8;

/// What waits to be removed.
#[derive(Debug, Default)]
pub struct Behind {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Objects>,
    /// Nothing comes any more, or nobody takes it any more.
    ended: bool,
}

impl Behind {
    /// Leaves a trial's objects to be removed.
    pub fn leave(&self, objects: Objects) {
        let full = |state: &mut State| state.waiting.len() >= MOST_WAITING && !state.ended;
        let mut state = self.changed.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        state.waiting.push(objects);
        drop(state);
        self.changed.notify_all();
    }

    /// Nothing more will be left.
    pub fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Removes what is left until the end is told and nothing waits; failures are the scope's to report.
    pub fn work(&self, scope: &Scope, trace: &Trace) {
        // However this ends: nobody may wait for it then.
        let _told = Told(self);
        while let Some(batch) = self.take() {
            let _span = trace.span(|| format!("remove what {} trials left", batch.len()));
            batch.into_iter().fold(Objects::default(), Objects::and).release(scope);
        }
    }

    fn take(&self) -> Option<Vec<Objects>> {
        let nothing = |state: &mut State| state.waiting.is_empty() && !state.ended;
        let mut state = self.changed.wait_while(self.lock(), nothing).unwrap_or_else(PoisonError::into_inner);
        let some = state.waiting.len().min(MOST_AT_ONCE);
        let batch: Vec<Objects> = state.waiting.drain(..some).collect();
        drop(state);
        self.changed.notify_all();
        (!batch.is_empty()).then_some(batch)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Told<'a>(&'a Behind);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_together_is_taken_at_once_and_the_end_comes_last() {
        let behind = Behind::default();
        behind.leave(Objects::default());
        behind.leave(Objects::default());
        assert_eq!(behind.take().map(|batch| batch.len()), Some(2));
        behind.leave(Objects::default());
        behind.end();
        assert_eq!(behind.take().map(|batch| batch.len()), Some(1));
        assert!(behind.take().is_none());
    }

    #[test]
    fn what_came_first_goes_first_and_not_all_in_one_call() {
        let behind = Behind::default();
        (0..MOST_AT_ONCE + 1).for_each(|_| behind.leave(Objects::default()));
        assert_eq!(behind.take().map(|batch| batch.len()), Some(MOST_AT_ONCE));
        assert_eq!(behind.take().map(|batch| batch.len()), Some(1));
    }

    #[test]
    fn nobody_waits_for_a_remover_that_is_gone() {
        let behind = Behind::default();
        drop(Told(&behind));
        (0..=MOST_WAITING).for_each(|_| behind.leave(Objects::default()));
    }

    #[test]
    fn trials_wait_where_too_much_is_to_be_removed() {
        let behind = Behind::default();
        (0..MOST_WAITING).for_each(|_| behind.leave(Objects::default()));
        std::thread::scope(|threads| {
            let one_more = threads.spawn(|| behind.leave(Objects::default()));
            let taken = behind.take().map_or(0, |batch| batch.len());
            one_more.join().unwrap();
            assert_eq!(taken, MOST_AT_ONCE);
        });
    }
}
