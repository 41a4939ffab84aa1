//! Incremental parser for server-sent events (WHATWG HTML §9.2.6; RFC 8895 §5). Accepts the stream in chunks of any
//! size.
//!
//! Lines end with CR, LF or both. A leading byte order mark, comments and unknown fields are ignored. Invalid UTF-8
//! is replaced. Events without data are dropped, and so is an event without a final empty line.
//!
//! Not a library: `eventsource-stream` does not bound the size of an event, and those that do (`sse-parse`, `sse-core`)
//! are not established yet.

use std::{mem, sync::Arc};

use super::MAX_ANSWER_BYTES;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    /// The event type; empty if there is none.
    pub event: String,
    /// The data lines, without the final line ending.
    pub data: String,
    /// The last event ID received; empty if there was none.
    pub id: Arc<str>,
}

/// An event exceeds this size in bytes and was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event has more than {0} bytes")]
pub struct EventTooLong(pub(super) usize);

/// Parses a stream of events. Buffers one event.
#[derive(Debug)]
pub struct EventReader {
    line: Vec<u8>,
    next: Event,
    /// Whether the first line was received.
    has_begun: bool,
    /// Whether a line feed would belong to the previous line ending.
    is_behind_return: bool,
    limit_bytes: usize,
}

/// Limits events to [`MAX_ANSWER_BYTES`].
impl Default for EventReader {
    fn default() -> Self {
        Self::up_to(MAX_ANSWER_BYTES)
    }
}

impl EventReader {
    fn up_to(limit_bytes: usize) -> Self {
        Self { line: Vec::new(), next: Event::default(), has_begun: false, is_behind_return: false, limit_bytes }
    }

    /// Parses the next bytes and returns the events completed by them.
    ///
    /// # Errors
    /// If an event is too long. The reader must not be used afterwards.
    pub fn read(&mut self, piece: &[u8]) -> Result<Vec<Event>, EventTooLong> {
        let mut events = Vec::new();
        let mut rest = piece;
        if self.is_behind_return && !rest.is_empty() {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
            self.is_behind_return = false;
        }
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            self.extend(&rest[..end])?;
            events.extend(self.end_line());
            rest = match &rest[end..] {
                [b'\r', b'\n', rest @ ..] => rest,
                [ending, rest @ ..] => {
                    self.is_behind_return = *ending == b'\r' && rest.is_empty();
                    rest
                }
                [] => &[],
            };
        }
        self.extend(rest)?;
        Ok(events)
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        let Event { event, data, id } = &self.next;
        if self.line.len() + bytes.len() + event.len() + data.len() + id.len() > self.limit_bytes {
            return Err(EventTooLong(self.limit_bytes));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// Processes a complete line; returns the event that it ends, if any.
    fn end_line(&mut self) -> Option<Event> {
        let line = mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = match mem::replace(&mut self.has_begun, true) {
            true => &*line,
            false => line.strip_prefix('\u{feff}').unwrap_or(&line),
        };
        if line.is_empty() {
            return self.end_event();
        }
        // A comment parses as a field with an empty name.
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.next.event),
            "data" => {
                self.next.data.push_str(value);
                self.next.data.push('\n');
            }
            "id" if !value.contains('\0') => self.next.id = value.into(),
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        let empty = Event { id: Arc::clone(&self.next.id), ..Event::default() };
        let mut event = mem::replace(&mut self.next, empty);
        event.data.pop()?;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut reader = EventReader::default();
        let events = pieces.iter().flat_map(|piece| reader.read(piece).unwrap());
        events.map(|event| (event.event, event.data)).collect()
    }

    fn expected_events(events: &[(&str, &str)]) -> Vec<(String, String)> {
        events.iter().map(|(event, data)| ((*event).to_owned(), (*data).to_owned())).collect()
    }

    #[test]
    fn s3_events_are_read_as_the_standard_shows() {
        for (text, events) in [
            ("data: YHOO\ndata: +2\ndata: 10\n\n", &[("", "YHOO\n+2\n10")][..]),
            (
                ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n",
                &[("", "first event"), ("", "second event")],
            ),
            ("data\n\ndata\ndata\n\ndata:\n", &[("", ""), ("", "\n")]),
            ("data:test\n\ndata: test\n\n", &[("", "test"), ("", "test")]),
            ("\u{feff}event: a,b\ndata: x\n\nevent: c\n\ndata: y\n\n", &[("a,b", "x"), ("", "y")]),
            ("x: 1\nretry: 5\nEvent: a\ndata : n\ndata: x\n\n", &[("", "x")]),
            (":\n\n:\n\n", &[]),
        ] {
            for ending in ["\n", "\r", "\r\n"] {
                let text = text.replace('\n', ending);
                assert_eq!(read(&[text.as_bytes()]), expected_events(events), "{text:?}");
            }
        }
    }

    #[test]
    fn an_identifier_holds_until_another_one_comes() {
        let mut reader = EventReader::default();
        let events = reader.read(b"id: 1\ndata: a\n\ndata: b\n\nid: 2\0\nid: 3\n\nid\ndata: c\n\n").unwrap();
        assert_eq!(events.iter().map(|event| &*event.id).collect::<Vec<_>>(), ["1", "1", ""]);
    }

    #[test]
    fn what_is_no_utf_8_is_replaced() {
        assert_eq!(read(&[b"data: a\xff\n\n"]), expected_events(&[("", "a\u{fffd}")]));
        assert_eq!(
            read(&[b"data: \xc3", b"\xa4\n\n"]),
            expected_events(&[("", "\u{e4}")]),
            "one character in two pieces"
        );
    }

    #[test]
    fn an_event_that_is_too_long_is_no_event() {
        let data = b"data: 23\n";
        for length in [1, 2, 9, 100] {
            let mut reader = EventReader::up_to(40);
            let stream = data.repeat(100);
            let outcome = stream.chunks(length).try_for_each(|piece| reader.read(piece).map(drop));
            assert_eq!(outcome, Err(EventTooLong(40)), "{length}");
        }
        let mut reader = EventReader::up_to(40);
        for piece in b"data: 23\n\n: 5\n".repeat(100).chunks(7) {
            reader.read(piece).unwrap();
        }
    }

    proptest! {
        #[test]
        fn however_a_stream_is_cut_its_events_are_the_same(
            lines in prop::collection::vec("(data|event|id|:|)(: ?|)[a-zä\u{feff}]{0,4}(\r|\n|\r\n|\n\n|\r\r|\r\n\r\n)", 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let text = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            let whole = read(&[&text]);
            prop_assert_eq!(&read(&pieces), &whole);
            prop_assert_eq!(read(&bytes), whole);
        }
    }
}
