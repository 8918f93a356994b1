//! Keeps from a target the usage that was asked for in its place (`stream_options.include_usage`): the last event, whose
//! `choices` is empty and into which some agents index, and the `usage` of each other one. Owns which events are changed;
//! every other byte of a stream goes on as it came.

use super::sse::{Found, Splitter};
use serde_json::Value;

/// An event beyond this is passed on as it comes: one with usage is far smaller.
const LARGEST: usize = 1024 * 1024;

/// Holds an event back until it is known what it is.
#[derive(Debug, Default)]
pub(super) struct Veil {
    splitter: Splitter,
    held: Vec<u8>,
    data: Vec<u8>,
    /// The event that is being read was too large to be held.
    is_open: bool,
}

impl Veil {
    /// Takes what came; puts what the target may see of it behind `shown`.
    pub(super) fn feed(&mut self, bytes: &[u8], shown: &mut Vec<u8>) {
        let Self { splitter, held, data, is_open } = self;
        let mut done = 0;
        splitter.feed(bytes, &mut |found, at| match found {
            Found::Data(part) => {
                if data.len() + part.len() <= LARGEST {
                    data.extend_from_slice(part);
                }
            }
            Found::End { .. } => {
                held.extend_from_slice(&bytes[done..at]);
                done = at;
                show(held, data, std::mem::take(is_open), shown);
                held.clear();
                data.clear();
            }
        });
        held.extend_from_slice(&bytes[done..]);
        if *is_open || held.len() > LARGEST {
            *is_open = true;
            shown.append(held);
        }
    }

    /// The stream is over: what is held is shown if it may be.
    pub(super) fn finish(&mut self, shown: &mut Vec<u8>) {
        let Self { splitter, held, data, is_open } = self;
        splitter.finish(&mut |found, _| {
            if let Found::Data(part) = found {
                data.extend_from_slice(part);
            }
        });
        show(held, data, *is_open, shown);
        held.clear();
    }
}

/// Shows an event, without usage.
fn show(event: &[u8], data: &[u8], is_open: bool, shown: &mut Vec<u8>) {
    let parsed = if is_open { None } else { crate::json::parse_lenient(data).ok() };
    let Some(Value::Object(mut chunk)) = parsed.filter(|chunk| chunk.get("usage").is_some()) else {
        shown.extend_from_slice(event);
        return;
    };
    let is_usage = chunk.get("usage").is_some_and(Value::is_object);
    if is_usage && chunk.get("choices").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        return;
    }
    // Not `remove`: that puts the last entry in the place of the one taken out.
    chunk.shift_remove("usage");
    shown.extend_from_slice(b"data: ");
    shown.extend_from_slice(Value::Object(chunk).to_string().as_bytes());
    shown.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_for_what_it_is() {
        let event = "data: {\"x\":{\"$serde_json::private::RawValue\":\"[[1]]\"},\"usage\":null}\n\n";
        assert_eq!(through(&[event.as_bytes()]), event.replace(",\"usage\":null", ""));
    }

    fn through(pieces: &[&[u8]]) -> String {
        let mut veil = Veil::default();
        let mut shown = Vec::new();
        for piece in pieces {
            veil.feed(piece, &mut shown);
        }
        veil.finish(&mut shown);
        String::from_utf8(shown).unwrap()
    }

    const STREAM: &str = concat!(
        ": hello\n\n",
        "data: {\"id\":\"1\",\"usage\":null,\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"n\":1.50}\n\n",
        "data: {\"id\":\"1\",\"choices\":[]}\n\n",
        "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n",
        "data: [DONE]\n\n",
    );

    #[test]
    fn usage_is_kept_back_and_everything_else_goes_on() {
        let wanted = concat!(
            ": hello\n\n",
            "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"n\":1.50}\n\n",
            "data: {\"id\":\"1\",\"choices\":[]}\n\n",
            "data: [DONE]\n\n",
        );
        for at in 0..STREAM.len() {
            let (one, two) = STREAM.as_bytes().split_at(at);
            assert_eq!(through(&[one, two]), wanted, "split at {at}");
        }
    }

    #[test]
    fn an_event_is_shown_as_soon_as_it_is_whole() {
        let mut veil = Veil::default();
        let mut shown = Vec::new();
        veil.feed(b"data: {\"choices\":[1]}\n", &mut shown);
        assert!(shown.is_empty());
        veil.feed(b"\ndata: ", &mut shown);
        assert_eq!(shown, b"data: {\"choices\":[1]}\n\n");
    }

    #[test]
    fn an_event_that_is_too_large_to_hold_goes_on_as_it_comes() {
        let mut veil = Veil::default();
        let mut shown = Vec::new();
        let large =
            [b"data: ".as_slice(), &vec![b'x'; LARGEST + 10], b"\n\ndata: {\"usage\":{},\"choices\":[]}\n\n"].concat();
        for piece in large.chunks(1000) {
            veil.feed(piece, &mut shown);
            assert!(veil.held.len() <= LARGEST + 1000 && veil.data.len() <= LARGEST);
        }
        veil.finish(&mut shown);
        assert_eq!(shown.len(), LARGEST + 10 + 8, "the usage event after it is kept back again");
    }

    #[test]
    fn what_is_cut_in_the_middle_is_shown() {
        assert_eq!(through(&[b"data: {\"choices\""]), "data: {\"choices\"");
    }
}
