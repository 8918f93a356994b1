//! One stream of a target: read to its end, kept up to a limit. Reading goes on past the limit (the target must not block,
//! and our memory must not grow); what is kept then ends with a marker and the bytes seen.

use std::io::{PipeReader, Read};
use std::sync::mpsc::Sender;

/// What a stream reader tells the watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// More than the limit was printed.
    OverLimit,
    /// The stream is at its end.
    Ended,
}

/// What came out of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// At most the limit.
    pub kept: Vec<u8>,
    /// All bytes that were printed, kept or not.
    pub seen: u64,
}

impl Captured {
    /// Whether something was left out.
    pub fn is_cut(&self) -> bool {
        self.seen > self.kept.len() as u64
    }

    /// What is stored: with the marker where something was left out.
    pub fn stored(&self) -> Vec<u8> {
        let mut bytes = self.kept.clone();
        if self.is_cut() {
            bytes.extend(format!("\n[crashlab: cut after {} of {} bytes]\n", self.kept.len(), self.seen).bytes());
        }
        bytes
    }
}

/// Reads a stream in a thread of its own.
pub(super) fn capture(mut pipe: PipeReader, limit: u64, events: Sender<Event>) -> std::thread::JoinHandle<Captured> {
    std::thread::spawn(move || {
        let mut captured = Captured::default();
        let mut buffer = [0_u8; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let room = usize::try_from(limit.saturating_sub(captured.seen)).unwrap_or(usize::MAX);
            captured.kept.extend_from_slice(&buffer[..count.min(room)]);
            let was_within = captured.seen <= limit;
            captured.seen += count as u64;
            if was_within && captured.seen > limit {
                let _ = events.send(Event::OverLimit);
            }
        }
        let _ = events.send(Event::Ended);
        captured
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::sync::mpsc::channel;

    fn read(text: &[u8], limit: u64) -> (Captured, Vec<Event>) {
        let (pipe, mut writer) = std::io::pipe().unwrap();
        let (events, seen) = channel();
        let reader = capture(pipe, limit, events);
        writer.write_all(text).unwrap();
        drop(writer);
        (reader.join().unwrap(), seen.iter().collect())
    }

    #[test]
    fn a_stream_at_its_limit_is_whole_and_one_byte_more_is_cut() {
        let (whole, events) = read(b"12345", 5);
        assert_eq!((whole.stored(), events), (b"12345".to_vec(), vec![Event::Ended]));
        let (cut, events) = read(b"123456", 5);
        assert_eq!(events, [Event::OverLimit, Event::Ended]);
        assert_eq!(String::from_utf8(cut.stored()).unwrap(), "12345\n[crashlab: cut after 5 of 6 bytes]\n");
    }

    #[test]
    fn what_is_kept_does_not_grow_with_what_is_printed() {
        let (cut, _) = read(&vec![b'x'; 1 << 20], 10);
        assert_eq!((cut.kept.len(), cut.seen), (10, 1 << 20));
    }
}
