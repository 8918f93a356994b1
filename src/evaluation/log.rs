//! The evaluation's standard error, bounded: its beginning and its end are kept, what lies between is counted. Knows
//! nothing of what it says.

use std::collections::VecDeque;

/// Bytes of the beginning that are kept.
const HEAD: usize = 64 << 10;
/// Bytes of the end that are kept: a traceback is the last thing that a broken program says.
const TAIL: usize = 192 << 10;

/// At most `HEAD + TAIL` bytes of a stream, and how much was left out.
#[derive(Debug, Default)]
pub(super) struct Log {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Log {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = HEAD - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let beyond = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..beyond);
        self.dropped += beyond as u64;
    }

    /// What is kept, with a marker where something was left out.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if self.dropped > 0 {
            bytes.extend_from_slice(format!("\n[{} bytes left out]\n", self.dropped).as_bytes());
        }
        bytes.extend(&self.tail);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept_and_the_middle_is_counted() {
        let mut log = Log::default();
        log.push(b"first");
        for _ in 0..1000 {
            log.push(&[b'x'; 1000]);
        }
        log.push(b"last");
        let bytes = log.bytes();
        assert!(bytes.starts_with(b"first") && bytes.ends_with(b"last"));
        assert!(bytes.len() < HEAD + TAIL + 100, "{}", bytes.len());
        let told = format!("[{} bytes left out]", 1_000_009 - HEAD - TAIL);
        assert!(String::from_utf8(bytes).unwrap().contains(&told), "{told}");
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let mut log = Log::default();
        log.push(&[b'a'; HEAD + 10]);
        log.push(b"b");
        assert_eq!(log.bytes(), [&[b'a'; HEAD + 10][..], b"b"].concat());
    }
}
