//! A provider's answer that a drill slows down or cuts. Owns where events end; invents no bytes.

use super::exchange::{Answer, Failure, Life, Pieces};
use crate::policy::FaultKind;
use std::time::Duration;

/// An answer whose pieces come late, or not to their end.
struct Disturbed {
    inner: Box<dyn Pieces>,
    life: Life,
    is_events: bool,
    pause: Option<Duration>,
    /// Events that still come.
    left: Option<u64>,
    held: Vec<u8>,
    at: usize,
    /// The last byte was a line end: another one ends the event.
    is_line_end: bool,
    is_fresh: bool,
}

/// Puts the faults that strike an answer's body on it.
pub(super) fn disturb(answer: Answer, kinds: &[FaultKind], life: &Life) -> Answer {
    let pause = kinds.iter().find_map(|kind| if let FaultKind::SlowStream(time) = kind { Some(*time) } else { None });
    let left = kinds.iter().find_map(|kind| if let FaultKind::CutStream(events) = kind { Some(*events) } else { None });
    if pause.is_none() && left.is_none() {
        return answer;
    }
    let is_events = answer.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    let body = Disturbed {
        inner: answer.body,
        life: life.clone(),
        is_events,
        pause,
        left,
        held: Vec::new(),
        at: 0,
        is_line_end: false,
        is_fresh: true,
    };
    Answer { status: answer.status, headers: answer.headers, body: Box::new(body) }
}

impl Disturbed {
    /// Where the event that begins at `at` ends; the second says whether it does here.
    fn event_end(&mut self) -> (usize, bool) {
        for (index, byte) in self.held.iter().enumerate().skip(self.at) {
            match byte {
                b'\n' if self.is_line_end => {
                    self.is_line_end = false;
                    return (index + 1, true);
                }
                b'\n' => self.is_line_end = true,
                b'\r' => {}
                _ => self.is_line_end = false,
            }
        }
        (self.held.len(), false)
    }

    /// Half of what came first, where there are no events.
    fn halve(&mut self) {
        if self.left.is_some() && !self.is_events {
            self.held.truncate(self.held.len() / 2);
            self.left = Some(0);
        }
    }
}

impl Pieces for Disturbed {
    fn next(&mut self) -> Result<Option<&[u8]>, Failure> {
        if self.at >= self.held.len() {
            if self.left == Some(0) {
                return Err(Failure::Cut);
            }
            match self.inner.next()? {
                Some(piece) => self.held = piece.to_vec(),
                // Shorter than the drill says: it has no clean end all the same.
                None if self.left.is_some() => return Err(Failure::Cut),
                None => return Ok(None),
            }
            self.at = 0;
            self.halve();
        }
        if let Some(pause) = self.pause.filter(|_| self.is_fresh)
            && self.life.wait(pause)
        {
            return Err(Failure::StillOpen);
        }
        let start = self.at;
        let (end, is_over) = if self.is_events { self.event_end() } else { (self.held.len(), true) };
        (self.at, self.is_fresh) = (end, is_over);
        if is_over && self.is_events {
            self.left = self.left.map(|left| left.saturating_sub(1));
            if self.left == Some(0) {
                self.held.truncate(end);
            }
        }
        Ok(Some(&self.held[start..end]))
    }
}
