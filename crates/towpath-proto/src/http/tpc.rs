//! Body of the response to a third-party `COPY` ([WLCG
//! HTTP-TPC](https://twiki.cern.ch/twiki/bin/view/LCG/HttpTpcTechnical)): performance markers during the copy, then one
//! line with its outcome. The status was sent before, so only that line reports the result.
//!
//! ```text
//! Perf Marker
//! Timestamp: 1537788010
//! Stripe Index: 0
//! Stripe Bytes Transferred: 238745
//! Total Stripe Count: 1
//! End
//! success: Created
//! ```

use std::{fmt, mem};

/// Maximum length of a parsed line in bytes; davix reads 1,024. The rest of a longer line is skipped.
pub const MAX_LINE_BYTES: usize = 8 << 10;

/// Maximum length of the text of a verdict in bytes, so that davix receives it whole.
const MAX_TEXT_BYTES: usize = 900;

/// Progress of a copy, or of one stripe of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marker {
    /// Time in seconds since the Unix epoch.
    pub timestamp_s: i64,
    /// Index of the stripe, starting at 0.
    pub stripe: u32,
    /// Bytes of the stripe that have arrived.
    pub bytes: u64,
    /// Number of stripes.
    pub stripes: u32,
}

/// Outcome of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The destination has the complete file.
    Success,
    /// The copy failed; with the reason as text.
    Failure(String),
}

/// An event in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A marker.
    Marker(Marker),
    /// The outcome.
    Outcome(CopyOutcome),
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timestamp_s, stripe, bytes, stripes } = self;
        write!(
            f,
            "Perf Marker\nTimestamp: {timestamp_s}\nStripe Index: {stripe}\nStripe Bytes Transferred: {bytes}\n\
             Total Stripe Count: {stripes}\nEnd\n"
        )
    }
}

impl fmt::Display for CopyOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success: Created\n"),
            Self::Failure(text) => {
                let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                writeln!(f, "failure: {}", line.get(..line.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default())
            }
        }
    }
}

/// Incremental parser of a body. Unknown lines are skipped, as in other clients.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    marker: Marker,
}

impl Reader {
    /// Consumes the next bytes of the body and returns the events in them. Buffers at most [`MAX_LINE_BYTES`].
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len()).min(piece.len());
            self.line.extend_from_slice(piece.get(..room).unwrap_or_default());
            if piece.ends_with(b"\n") {
                events.extend(self.line());
            }
        }
        events
    }

    /// Returns the event of the last line, if it has no terminator.
    pub fn finish(mut self) -> Option<Event> {
        self.line()
    }

    fn line(&mut self) -> Option<Event> {
        let line = mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim();
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim());
        match name.as_str() {
            "perf marker" => self.marker = Marker::default(),
            "timestamp" => set(&mut self.marker.timestamp_s, value),
            "stripe index" => set(&mut self.marker.stripe, value),
            "stripe bytes transferred" => set(&mut self.marker.bytes, value),
            "total stripe count" => set(&mut self.marker.stripes, value),
            "end" => return Some(Event::Marker(mem::take(&mut self.marker))),
            _ => return outcome(line),
        }
        None
    }
}

fn set<T: std::str::FromStr>(place: &mut T, value: &str) {
    if let Ok(value) = value.parse() {
        *place = value;
    }
}

/// davix accepts any line with this beginning.
fn outcome(line: &str) -> Option<Event> {
    let begins = |word: &str| line.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let failure = || {
        let text = line.split_once(':').map_or(line, |(_, text)| text).trim();
        CopyOutcome::Failure(if text.is_empty() { line.to_owned() } else { text.to_owned() })
    };
    match () {
        () if begins("success") => Some(Event::Outcome(CopyOutcome::Success)),
        () if ["failure", "failed", "aborted"].into_iter().any(begins) => Some(Event::Outcome(failure())),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Vec<Event> {
        let mut reader = Reader::default();
        let mut events = reader.take(text.as_bytes());
        events.extend(reader.finish());
        events
    }

    #[test]
    fn markers_look_as_the_field_writes_them() {
        let marker = Marker { timestamp_s: 1_537_788_010, stripe: 0, bytes: 238_745, stripes: 1 };
        let text = "Perf Marker\nTimestamp: 1537788010\nStripe Index: 0\nStripe Bytes Transferred: 238745\n\
                    Total Stripe Count: 1\nEnd\n";
        assert_eq!(marker.to_string(), text);
    }

    /// Bodies as sent by XRootD 5.5 and dCache.
    #[test]
    fn the_bodies_of_others_are_understood() {
        let text = "Perf Marker\n    Timestamp: 7\n    Stripe Index: 1\n    Stripe Bytes Transferred: 5\n    \
                    Total Stripe Count: 2\n    RemoteConnections: tcp:129.93.3.4:1234,tcp:[2600::1]:2345\nEnd\r\n\
                    nonsense\nPERF MARKER\nStripe Bytes Transferred: x\nEnd\nsuccess: Created";
        let markers = [Marker { timestamp_s: 7, stripe: 1, bytes: 5, stripes: 2 }, Marker::default()];
        let expected = [Event::Marker(markers[0]), Event::Marker(markers[1]), Event::Outcome(CopyOutcome::Success)];
        assert_eq!(read(text), expected);
        for (text, reason) in [
            ("failure: no space: left\n", "no space: left"),
            ("Failed\n", "Failed"),
            ("aborted: by the client", "by the client"),
        ] {
            assert_eq!(read(text), [Event::Outcome(CopyOutcome::Failure(reason.into()))]);
        }
        assert_eq!(read("successor\nfail\n\n"), [Event::Outcome(CopyOutcome::Success)]);
    }

    #[test]
    fn a_reason_stays_on_its_line() {
        let text = CopyOutcome::Failure(format!("a\nsuccess: Created\r\n{}", "é".repeat(1000))).to_string();
        assert_eq!((text.matches('\n').count(), text.len() < 1000), (1, true));
        assert!(matches!(read(&text)[..], [Event::Outcome(CopyOutcome::Failure(_))]));
    }

    #[test]
    fn lines_without_end_take_no_memory() {
        let mut reader = Reader::default();
        for _ in 0..100 {
            assert_eq!(reader.take(&[b'x'; 1000]), []);
        }
        assert_eq!(reader.line.len(), MAX_LINE_BYTES);
        assert_eq!(reader.take(b"\nsuccess\n"), [Event::Outcome(CopyOutcome::Success)]);
    }

    proptest! {
        #[test]
        fn markers_round_trip_wherever_they_are_cut(
            timestamp_s in any::<i64>(), stripe in any::<u32>(), bytes in any::<u64>(), stripes in any::<u32>(), cut in any::<prop::sample::Index>(),
        ) {
            let marker = Marker { timestamp_s, stripe, bytes, stripes };
            let text = marker.to_string();
            let (first, second) = text.as_bytes().split_at(cut.index(text.len()));
            let mut reader = Reader::default();
            let mut events = reader.take(first);
            events.extend(reader.take(second));
            prop_assert_eq!(events, vec![Event::Marker(marker)]);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut reader = Reader::default();
            reader.take(&bytes);
            reader.finish();
        }
    }
}
