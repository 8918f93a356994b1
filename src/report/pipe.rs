//! Standard output. Owns what a closed pipe means: output ends quietly, the command goes on to its end (its clean-up too)
//! and keeps its exit code.

use std::io::{self, Write};

/// A writer that swallows everything once its reader is gone.
#[derive(Debug)]
pub struct QuietPipe<W: Write> {
    inner: W,
    closed: bool,
}

impl<W: Write> QuietPipe<W> {
    /// In front of `inner`.
    pub fn new(inner: W) -> Self {
        Self { inner, closed: false }
    }

    fn quiet(&mut self, result: io::Result<()>) -> io::Result<()> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            result => result,
        }
    }
}

impl<W: Write> Write for QuietPipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.closed {
            let written = self.inner.write_all(bytes);
            self.quiet(written)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.inner.flush();
        self.quiet(flushed)
    }
}

/// Standard output, buffered: whoever writes flushes at the end, and after each event where events are watched.
pub fn stdout() -> io::BufWriter<QuietPipe<io::Stdout>> {
    io::BufWriter::with_capacity(1 << 16, QuietPipe::new(io::stdout()))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(io::ErrorKind, usize);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_quiet_and_asked_once_and_a_full_disk_is_not_quiet() {
        let mut pipe = QuietPipe::new(Failing(io::ErrorKind::BrokenPipe, 0));
        for _ in 0..3 {
            pipe.write_all(b"text").and_then(|()| pipe.flush()).unwrap();
        }
        assert_eq!(pipe.inner.1, 1);
        assert!(QuietPipe::new(Failing(io::ErrorKind::StorageFull, 0)).write_all(b"text").is_err());
    }
}
