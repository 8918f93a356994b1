//! The clock of a provider call, asked at each read of its connection: the limits that hold in each phase, and the trial's
//! end, which ends the call. Owns a transport that is put between the socket and TLS; knows nothing of HTTP.
//!
//! ureq's own time-outs cannot tell waiting for the head from a pause in the body, and know no trial. Its transports are
//! not under semantic versioning: `Cargo.lock` pins the version.

use super::exchange::{Failure, Life};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

/// How long a wait may go on before the trial's end is looked at again.
const LOOK: Duration = Duration::from_millis(100);

thread_local! {
    /// The call that this thread is reading for. A pooled connection serves many calls, one after the other.
    static CALL: RefCell<Option<Arc<Call>>> = const { RefCell::new(None) };
}

/// The limits of one call.
#[derive(Debug)]
pub(super) struct Call {
    life: Life,
    deadline: Option<Instant>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    ended: Option<Failure>,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Waiting for the head, until then.
    Head(Instant),
    /// Reading the body: so long from one piece to the next.
    Body(Duration),
}

/// While it is there, connections that this thread reads from obey a call's limits.
pub(super) struct Watching;

impl Drop for Watching {
    fn drop(&mut self) {
        CALL.with_borrow_mut(|current| *current = None);
    }
}

impl Call {
    pub(super) fn new(life: Life, deadline: Option<Instant>, first_byte: Duration) -> Arc<Self> {
        let state = Mutex::new(State { phase: Phase::Head(later(first_byte)), ended: None });
        Arc::new(Self { life, deadline, state })
    }

    /// From here to the end of the scope, this thread reads for this call.
    pub(super) fn enter(self: &Arc<Self>) -> Watching {
        CALL.with_borrow_mut(|current| *current = Some(Arc::clone(self)));
        Watching
    }

    /// The head has come.
    pub(super) fn body(&self, idle: Duration) {
        self.state().phase = Phase::Body(idle);
    }

    /// Which limit ended a wait.
    pub(super) fn ended(&self) -> Option<Failure> {
        self.state().ended
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self, now: Instant) -> Option<Failure> {
        if self.life.is_over() {
            return Some(Failure::StillOpen);
        }
        self.deadline.is_some_and(|deadline| deadline <= now).then_some(Failure::RequestTime)
    }

    /// Until when a read that begins now may wait, and what it is if it waits longer.
    fn limit(&self, now: Instant) -> (Instant, Failure) {
        let (until, failure) = match self.state().phase {
            Phase::Head(until) => (until, Failure::FirstByte),
            Phase::Body(idle) => (now.checked_add(idle).unwrap_or_else(|| later(idle)), Failure::Idle),
        };
        match self.deadline {
            Some(deadline) if deadline < until => (deadline, Failure::RequestTime),
            _ => (until, failure),
        }
    }

    /// Waits in short steps.
    fn wait(&self, timeout: NextTimeout, inner: &mut dyn Transport) -> Result<bool, Error> {
        let (until, failure) = self.limit(Instant::now());
        loop {
            let now = Instant::now();
            let over = self.over(now).or_else(|| (until <= now).then_some(failure));
            if let Some(failure) = over {
                self.state().ended = Some(failure);
                return Err(Error::Timeout(timeout.reason));
            }
            let step = ureq_time(LOOK.min(until - now));
            let is_step = step < timeout.after;
            let next = NextTimeout { after: if is_step { step } else { timeout.after }, ..timeout };
            match inner.await_input(next) {
                Err(Error::Timeout(_)) if is_step => {}
                other => return other,
            }
        }
    }
}

fn later(time: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + time.min(LONGEST)
}

fn ureq_time(time: Duration) -> ureq::unversioned::transport::time::Duration {
    // A wait of nothing would be taken for none at all.
    time.max(Duration::from_millis(1)).into()
}

/// Puts [`Watched`] around what the connectors before it made.
#[derive(Debug, Default)]
pub(super) struct WatchConnector;

impl<In: Transport> Connector<In> for WatchConnector {
    type Out = Watched<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Watched<In>>, Error> {
        Ok(chained.map(Watched))
    }
}

/// A transport whose reads obey the limits of the call that they are for.
#[derive(Debug)]
pub(super) struct Watched<T>(T);

impl<T: Transport> Transport for Watched<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.0.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.0.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        match CALL.with_borrow(Clone::clone) {
            Some(call) => call.wait(timeout, &mut self.0),
            None => self.0.await_input(timeout),
        }
    }

    fn is_open(&mut self) -> bool {
        self.0.is_open()
    }

    fn is_tls(&self) -> bool {
        self.0.is_tls()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_pause_is_measured_from_the_last_piece_and_the_head_from_the_start() {
        let start = Instant::now();
        let call = Call::new(Life::default(), None, HOUR);
        let (until, failure) = call.limit(start + HOUR / 2);
        assert!(failure == Failure::FirstByte && until < start + HOUR + Duration::from_secs(60));
        call.body(HOUR);
        let (until, failure) = call.limit(start + 10 * HOUR);
        assert_eq!((until, failure), (start + 11 * HOUR, Failure::Idle), "a long stream that goes on is healthy");
    }

    #[test]
    fn the_time_of_the_request_comes_before_a_limit_that_ends_later() {
        let start = Instant::now();
        let call = Call::new(Life::default(), Some(start + HOUR), 2 * HOUR);
        assert_eq!(call.limit(start), (start + HOUR, Failure::RequestTime));
        assert_eq!(call.over(start), None);
        assert_eq!(call.over(start + HOUR), Some(Failure::RequestTime));
        call.life.end();
        assert_eq!(call.over(start), Some(Failure::StillOpen));
    }

    #[test]
    fn an_absurd_limit_does_not_overflow() {
        let call = Call::new(Life::default(), None, Duration::MAX);
        call.body(Duration::MAX);
        assert!(call.limit(Instant::now()).0 > Instant::now() + HOUR);
    }
}
