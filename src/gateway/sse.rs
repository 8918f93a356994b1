//! Server-sent events as they arrive: finds each event's data and end, split anywhere, with CR, LF or CRLF, comments and
//! data of several lines. Owns the grammar; keeps no event.

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// A part of the data of the event.
    Data(&'a [u8]),
    /// The event is over; `has_data` tells whether it was one at all, or only a comment.
    End {
        /// Whether a `data` field was in it.
        has_data: bool,
    },
}

/// Reads one stream.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    line: Line,
    has_data: bool,
    is_begun: bool,
    after_cr: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many bytes of the line are those of `data`.
    #[default]
    Start,
    Name(usize),
    /// The next byte may be the one space that is not part of the value.
    Colon,
    Data,
    Other,
}

const NAME: &[u8] = b"data";

impl Splitter {
    /// Reads on. Gives to `found` what is found, in order, and beside it how many of the bytes are used up by then.
    pub(super) fn feed(&mut self, bytes: &[u8], found: &mut dyn FnMut(Found<'_>, usize)) {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                at += 1;
                continue;
            }
            if byte == b'\r' || byte == b'\n' {
                at += 1;
                self.after_cr = byte == b'\r';
                self.line_ends(at, found);
                continue;
            }
            at += self.within(&bytes[at..], at, found);
        }
    }

    /// The stream is over: an event without the empty line after it counts.
    pub(super) fn finish(&mut self, found: &mut dyn FnMut(Found<'_>, usize)) {
        if self.line != Line::Start {
            self.line_ends(0, found);
        }
        if self.is_begun {
            self.line_ends(0, found);
        }
    }

    fn line_ends(&mut self, at: usize, found: &mut dyn FnMut(Found<'_>, usize)) {
        match std::mem::take(&mut self.line) {
            Line::Start if self.is_begun => {
                self.is_begun = false;
                found(Found::End { has_data: std::mem::take(&mut self.has_data) }, at);
            }
            Line::Start => {}
            // `data` without a colon is a data field that is empty.
            Line::Name(count) if count == NAME.len() => self.data_begins(at, found),
            Line::Name(_) | Line::Colon | Line::Data | Line::Other => {}
        }
    }

    fn data_begins(&mut self, at: usize, found: &mut dyn FnMut(Found<'_>, usize)) {
        if std::mem::replace(&mut self.has_data, true) {
            found(Found::Data(b"\n"), at);
        }
    }

    /// Bytes of a line, none of them its end; gives back how many were used.
    fn within(&mut self, bytes: &[u8], at: usize, found: &mut dyn FnMut(Found<'_>, usize)) -> usize {
        self.is_begun = true;
        let byte = bytes[0];
        match self.line {
            Line::Start => self.line = if byte == NAME[0] { Line::Name(1) } else { Line::Other },
            Line::Name(count) if count == NAME.len() && byte == b':' => {
                self.line = Line::Colon;
                self.data_begins(at + 1, found);
            }
            Line::Name(count) => {
                self.line = if NAME.get(count) == Some(&byte) { Line::Name(count + 1) } else { Line::Other };
            }
            Line::Colon => {
                self.line = Line::Data;
                if byte != b' ' {
                    return self.within(bytes, at, found);
                }
            }
            Line::Data | Line::Other => {
                let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(bytes.len());
                if self.line == Line::Data {
                    found(Found::Data(&bytes[..end]), at + end);
                }
                return end;
            }
        }
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data of each event; `-` for one without data.
    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut splitter = Splitter::default();
        let (mut events, mut data) = (Vec::new(), Vec::new());
        let mut found = |found: Found<'_>, _: usize| match found {
            Found::Data(bytes) => data.extend_from_slice(bytes),
            Found::End { has_data } => {
                let text = String::from_utf8(std::mem::take(&mut data)).unwrap();
                events.push(if has_data { text } else { "-".to_owned() });
            }
        };
        for piece in pieces {
            splitter.feed(piece, &mut found);
        }
        splitter.finish(&mut found);
        events
    }

    #[test]
    fn events_are_found_with_each_line_end_wherever_the_stream_is_split() {
        let text = "event: a\ndata: {\"x\":1}\n\n: comment\n\ndata:one\ndata: two\nid: 3\ndata\n\ndatum: no\ndata:  spaced\n\ndata: [DONE]\n\n";
        let wanted = ["{\"x\":1}", "-", "one\ntwo\n", " spaced", "[DONE]"];
        for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
            for at in 0..text.len() {
                let (one, two) = text.as_bytes().split_at(at);
                assert_eq!(events(&[one, two]), wanted, "split at {at} of {text:?}");
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(events(&bytes), wanted, "{text:?}");
        }
    }

    #[test]
    fn an_event_that_the_streams_end_cuts_off_counts() {
        assert_eq!(events(&[b"data: 1\n\n\n\ndata: 2"]), ["1", "2"]);
        assert_eq!(events(&[b"data: 1\n"]), ["1"]);
        assert_eq!(events(&[b"data"]), [""]);
        assert!(events(&[b"", b"\n\n"]).is_empty());
    }

    #[test]
    fn the_place_after_each_event_is_told() {
        let mut ends = Vec::new();
        let mut splitter = Splitter::default();
        splitter.feed(b"data: 1\n\ndata: 2\r\n\r\ndata", &mut |found, at| {
            if matches!(found, Found::End { .. }) {
                ends.push(at);
            }
        });
        assert_eq!(ends, [9, 19], "a line feed after a carriage return is the next event's");
    }
}
