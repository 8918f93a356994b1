//! The stop flag. Owns which signal came first and how many came; decides nothing about what stopping means.
//!
//! The first signal asks the command to stop and clean up; a second one only shortens the waits of the clean-up.

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

#[derive(Debug, Default)]
struct State {
    first: AtomicI32,
    count: AtomicUsize,
}

/// A handle on the stop flag; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<State>);

impl Interrupt {
    /// A flag that no signal raises, for commands that stop by themselves and for tests.
    pub fn never() -> Self {
        Self::default()
    }

    /// Takes INT, TERM and HUP over from now on.
    ///
    /// # Errors
    /// Where the system refuses the handlers.
    pub fn install() -> Result<Self> {
        let interrupt = Self::default();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
            .context("failed to install the signal handlers")?;
        let seen = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    seen.raise(signal);
                }
            })
            .context("failed to start the signal thread")?;
        Ok(interrupt)
    }

    /// Records a signal, as if it had come.
    pub fn raise(&self, signal: i32) {
        let _ = self.0.first.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
        self.0.count.fetch_add(1, Ordering::SeqCst);
    }

    /// The first signal's number, once one has come.
    pub fn signal(&self) -> Option<i32> {
        match self.0.first.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }

    /// Whether the command should stop.
    pub fn is_raised(&self) -> bool {
        self.signal().is_some()
    }

    /// Whether the user asked again: shorten every wait of the clean-up.
    pub fn is_impatient(&self) -> bool {
        self.0.count.load(Ordering::SeqCst) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_signal_stands_and_a_second_one_makes_impatient() {
        let interrupt = Interrupt::never();
        assert_eq!(interrupt.signal(), None);
        interrupt.raise(SIGTERM);
        assert_eq!((interrupt.signal(), interrupt.is_impatient()), (Some(SIGTERM), false));
        interrupt.raise(SIGINT);
        assert_eq!((interrupt.signal(), interrupt.is_impatient()), (Some(SIGTERM), true));
    }
}
