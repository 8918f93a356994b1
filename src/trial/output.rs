//! One stream of a target: read to its end, and on to where it is stored as it comes, up to a limit. Reading goes on past the
//! limit (the target must not block); what is stored then ends with a marker and the bytes seen.
//!
//! Invariant: memory holds what its reader asked to keep, however much is printed.

use crate::redact::RedactingWriter;
use anyhow::{Context, Result};
use std::io::{PipeReader, Read, Write};
use std::sync::mpsc::Sender;

/// How much of a stream's end is kept beside its beginning.
const END: usize = 64 << 10;

/// What a stream reader tells the watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// More than the limit was printed.
    OverLimit,
    /// The stream is at its end.
    Ended,
}

/// A file without secrets.
pub type Unsecret = RedactingWriter<Box<dyn Write + Send>>;

/// Where a stream goes.
pub struct Sink {
    /// What is printed, up to the limit. None stores nothing.
    pub file: Option<Unsecret>,
    /// How much of its beginning is kept in memory, in bytes; never more than the limit.
    pub keep: u64,
}

impl Sink {
    /// Everything is kept, nothing stored.
    pub fn memory() -> Self {
        Self { file: None, keep: u64::MAX }
    }

    /// Stored; so much of its beginning is kept as well.
    pub fn file(file: Unsecret, keep: u64) -> Self {
        Self { file: Some(file), keep }
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sink").field("keep", &self.keep).finish_non_exhaustive()
    }
}

/// What came out of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// Its beginning, as far as it was to be kept.
    pub kept: Vec<u8>,
    /// The last of it within the limit, where that is not in `kept`.
    tail: Vec<u8>,
    /// All bytes that were printed, kept or not.
    pub seen: u64,
}

impl Captured {
    /// Its last bytes, some tens of thousands at most.
    pub fn end(&self) -> &[u8] {
        let end = if self.tail.is_empty() { &self.kept } else { &self.tail };
        &end[end.len().saturating_sub(END)..]
    }

    fn take(&mut self, bytes: &[u8], keep: u64) {
        let room = usize::try_from(keep.saturating_sub(self.kept.len() as u64)).unwrap_or(usize::MAX);
        let (kept, rest) = bytes.split_at(bytes.len().min(room));
        self.kept.extend_from_slice(kept);
        if rest.is_empty() {
            return;
        }
        if self.tail.is_empty() {
            self.tail.extend_from_slice(&self.kept[self.kept.len().saturating_sub(END)..]);
        }
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * END {
            self.tail.drain(..self.tail.len() - END);
        }
    }
}

/// Reads a stream in a thread of its own. What cannot be stored is an error at its end; the target goes on unhindered.
pub(super) fn capture(
    mut pipe: PipeReader,
    limit: u64,
    mut sink: Sink,
    events: Sender<Event>,
) -> std::thread::JoinHandle<Result<Captured>> {
    std::thread::spawn(move || {
        let mut captured = Captured::default();
        let mut stored = Ok(());
        let mut buffer = [0_u8; 16 << 10];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            let room = usize::try_from(limit.saturating_sub(captured.seen)).unwrap_or(usize::MAX);
            let within = &buffer[..count.min(room)];
            captured.take(within, sink.keep);
            if let (Ok(()), Some(file)) = (&stored, &mut sink.file) {
                stored = file.write_all(within);
            }
            let was_within = captured.seen <= limit;
            captured.seen += count as u64;
            if was_within && captured.seen > limit {
                let _ = events.send(Event::OverLimit);
            }
        }
        let _ = events.send(Event::Ended);
        if let (Ok(()), Some(file)) = (&stored, sink.file.take()) {
            stored = end(file, captured.seen, limit);
        }
        stored.context("failed to store what the target printed")?;
        Ok(captured)
    })
}

/// The marker where something was left out.
fn end(mut file: Unsecret, seen: u64, limit: u64) -> std::io::Result<()> {
    if seen > limit {
        write!(file, "\n[crashlab: cut after {limit} of {seen} bytes]\n")?;
    }
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;
    use crate::secret::HostSecret;
    use std::io::{Error, ErrorKind};
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    struct FullDisk;

    impl Write for FullDisk {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(Error::from(ErrorKind::StorageFull))
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn unsecret(file: impl Write + Send + 'static) -> Unsecret {
        let secret = HostSecret::generated("A_KEY", "hush-hush".to_owned());
        Redactor::new(vec![secret]).unwrap().writer("stdout", Box::new(file))
    }

    fn read(text: &[u8], limit: u64, sink: Sink) -> (Result<Captured>, Vec<Event>) {
        let (pipe, mut writer) = std::io::pipe().unwrap();
        let (events, seen) = channel();
        let reader = capture(pipe, limit, sink, events);
        writer.write_all(text).unwrap();
        drop(writer);
        (reader.join().unwrap(), seen.iter().collect())
    }

    fn stored(text: &[u8], limit: u64) -> (String, Vec<Event>) {
        let file = Shared::default();
        let (_, events) = read(text, limit, Sink::file(unsecret(file.clone()), 2));
        (String::from_utf8(file.0.lock().unwrap().clone()).unwrap(), events)
    }

    #[test]
    fn a_stream_at_its_limit_is_whole_and_one_byte_more_is_cut() {
        assert_eq!(stored(b"12345", 5), ("12345".to_owned(), vec![Event::Ended]));
        let cut = "12345\n[crashlab: cut after 5 of 6 bytes]\n".to_owned();
        assert_eq!(stored(b"123456", 5), (cut, vec![Event::OverLimit, Event::Ended]));
    }

    #[test]
    fn a_secret_that_is_printed_is_not_stored_also_at_the_very_end() {
        assert_eq!(stored(b"my hush-hush, a hush-hush", 100).0, "my [redacted:A_KEY], a [redacted:A_KEY]");
    }

    #[test]
    fn memory_holds_the_beginning_and_the_end_however_much_is_printed() {
        let text: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
        let (cut, _) = read(&text, 3_000_000, Sink::file(unsecret(Shared::default()), 1000));
        let cut = cut.unwrap();
        assert_eq!((cut.kept.as_slice(), cut.seen), (&text[..1000], 4_000_000));
        assert_eq!(cut.end(), &text[3_000_000 - END..3_000_000]);
        assert!(cut.tail.capacity() <= 8 * END, "{}", cut.tail.capacity());
    }

    #[test]
    fn the_end_of_a_short_stream_is_in_what_was_kept() {
        for (keep, kept) in [(u64::MAX, "abcdef"), (4, "abcd")] {
            let (short, _) = read(b"abcdef", 100, Sink { file: None, keep });
            let short = short.unwrap();
            assert_eq!((short.kept.as_slice(), short.end()), (kept.as_bytes(), b"abcdef".as_slice()));
        }
    }

    #[test]
    fn a_full_disk_is_an_error_at_the_end_and_the_target_is_read_on() {
        let (stored, events) = read(&vec![b'x'; 1 << 20], 1 << 22, Sink::file(unsecret(FullDisk), 10));
        assert!(format!("{:#}", stored.unwrap_err()).contains("failed to store what the target printed"));
        assert_eq!(events, [Event::Ended]);
    }
}
