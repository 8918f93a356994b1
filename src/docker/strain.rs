//! How the engine bears with us: calls that got no answer in a row, and since when there is none behind the endpoint. A
//! clean-up against a daemon that hangs, or that is gone, ends within a bound because of this; any answer makes it forget.

use super::DockerError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a short call may take: the engine is local, but it may be busy with many starts.
const CALL: Duration = Duration::from_secs(60);
/// The same after a call that got no answer.
const SECOND_CALL: Duration = Duration::from_secs(10);
/// The same after several: what is left is only to be told.
const LAST_CALLS: Duration = Duration::from_secs(2);
/// How many calls without an answer are several.
const SEVERAL: u32 = 3;
/// How long a short call may take once the user asked twice to stop.
pub(super) const IMPATIENT_CALL: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Strain {
    silent: AtomicU32,
    given_up: AtomicU64,
    unreachable_since: Mutex<Option<Instant>>,
}

impl Strain {
    /// How long the next call may take.
    pub(super) fn time(&self) -> Duration {
        match self.silent.load(Ordering::SeqCst) {
            0 => CALL,
            1..SEVERAL => SECOND_CALL,
            _ => LAST_CALLS,
        }
    }

    /// Takes in how a call ended.
    pub(super) fn note(&self, error: Option<&DockerError>) {
        let gone = error.is_some_and(DockerError::is_unreachable);
        let mut since = self.unreachable_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if gone { Some(since.unwrap_or_else(Instant::now)) } else { None };
        if error.is_some_and(|error| error.is_out_of_time() || error.is_stopped()) {
            self.given_up.fetch_add(1, Ordering::SeqCst);
        }
        match error {
            Some(error) if error.is_out_of_time() => drop(self.silent.fetch_add(1, Ordering::SeqCst)),
            // Stopped by the user: nothing is known of the engine.
            Some(error) if error.is_stopped() => {}
            _ => self.silent.store(0, Ordering::SeqCst),
        }
    }

    pub(super) fn unreachable_for(&self) -> Option<Duration> {
        self.unreachable_since.lock().unwrap_or_else(PoisonError::into_inner).map(|since| since.elapsed())
    }

    pub(super) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessError;

    fn silence() -> DockerError {
        let error = ProcessError::OutOfTime { program: "docker".to_owned(), time: CALL };
        DockerError::no_answer("docker rm".to_owned(), error)
    }

    fn refusal(complaint: &str) -> DockerError {
        DockerError::Refused { verb: "docker rm".to_owned(), code: Some(1), complaint: complaint.to_owned() }
    }

    #[test]
    fn an_engine_that_hangs_is_given_less_and_less_time_until_it_answers() {
        let strain = Strain::default();
        let mut times = vec![strain.time()];
        for _ in 0..4 {
            strain.note(Some(&silence()));
            times.push(strain.time());
        }
        assert_eq!(times, [CALL, SECOND_CALL, SECOND_CALL, LAST_CALLS, LAST_CALLS]);
        assert_eq!(strain.given_up(), 4);
        strain.note(Some(&refusal("Error response from daemon: busy")));
        assert_eq!(strain.time(), CALL);
    }

    #[test]
    fn an_engine_that_is_gone_is_gone_since_the_first_call_that_did_not_find_it() {
        let strain = Strain::default();
        assert_eq!(strain.unreachable_for(), None);
        strain.note(Some(&refusal("Cannot connect to the Docker daemon at unix:///x")));
        let first = *strain.unreachable_since.lock().unwrap();
        strain.note(Some(&refusal("Cannot connect to the Docker daemon at unix:///x")));
        assert_eq!(*strain.unreachable_since.lock().unwrap(), first);
        strain.note(None);
        assert_eq!(strain.unreachable_for(), None);
    }
}
