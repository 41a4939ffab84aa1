//! Requests and responses of network probes (docs/guides/probe.md).
//!
//! A probe is one HTTP request for `/.well-known/towpath/probe/PATH` with the field `Towpath-Probe`, which contains an
//! [`ProbeRequest`]: with GET the server sends bytes from memory, with POST it discards the body. Both responses
//! consist of frames, so that kernel statistics of the server's end of the connection can be interleaved with the data.
//! A frame is one byte for its kind, four bytes for the length of its payload (big-endian), and the payload:
//!
//! | kind | payload | maximum |
//! | --- | --- | --- |
//! | 0 | data with meaningless content | 1 MiB |
//! | 1 | a [`Sample`] | 1 KiB |
//! | 2 | an [`End`], the last frame | 1 KiB |

use std::{fmt, str::FromStr, time::Duration};

use crate::tcp::{MAX_TCP_INFO_BYTES, TcpInfo};

/// URL prefix of probes, followed by a path. Permission to read the path allows downloads, permission to write it
/// allows uploads.
pub const PROBE_PREFIX: &str = "/.well-known/towpath/probe";

/// Name of the request field that marks a probe.
pub const PROBE_FIELD: &str = "towpath-probe";

/// Media type of the response; a response with another type is not a probe.
pub const PROBE_TYPE: &str = "application/vnd.towpath.probe";

/// Maximum duration of a probe of one connection.
pub const MAX_PROBE: Duration = Duration::from_secs(60);

/// Minimum and maximum time between two samples.
pub const SAMPLING: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Maximum length of the data of one frame in bytes.
pub(crate) const MAX_DATA_BYTES: usize = 1 << 20;

/// Maximum length of the text of one frame in bytes.
pub const MAX_TEXT_BYTES: usize = MAX_TCP_INFO_BYTES;

/// Length of a frame before its payload in bytes.
const HEAD_BYTES: usize = 5;

/// Direction of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the server to its client.
    Down,
    /// From the client to its server.
    Up,
}

impl Direction {
    /// Returns the name in requests and traces.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// The parameters of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Direction of the data.
    pub direction: Direction,
    /// Duration of the probe, at most [`MAX_PROBE`].
    pub duration: Duration,
    /// Time between two samples, within [`SAMPLING`].
    pub interval: Duration,
}

/// An invalid probe request or frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidProbe(&'static str);

impl fmt::Display for ProbeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [duration, interval] = [self.duration, self.interval].map(|time| time.as_millis());
        write!(f, "direction={} duration_ms={duration} interval_ms={interval}", self.direction.name())
    }
}

impl FromStr for ProbeRequest {
    type Err = InvalidProbe;

    fn from_str(text: &str) -> Result<Self, InvalidProbe> {
        let direction = match value(text, "direction") {
            Some("down") => Direction::Down,
            Some("up") => Direction::Up,
            _ => return Err(InvalidProbe("a probe needs direction=down or direction=up")),
        };
        let duration = number(text, "duration_ms").map(Duration::from_millis);
        let duration = duration.filter(|duration| !duration.is_zero() && *duration <= MAX_PROBE);
        let interval = number(text, "interval_ms").map(Duration::from_millis);
        Ok(Self {
            direction,
            duration: duration.ok_or(InvalidProbe("a probe needs duration_ms from 1 to 60000"))?,
            interval: interval
                .filter(|interval| (SAMPLING[0]..=SAMPLING[1]).contains(interval))
                .ok_or(InvalidProbe("a probe needs interval_ms from 10 to 1000"))?,
        })
    }
}

/// Kernel statistics of the server's end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Time since the start of the server's response.
    pub at: Duration,
    /// The statistics.
    pub info: TcpInfo,
}

/// Result of a probe as seen by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeSummary {
    /// Duration of the probe.
    pub at: Duration,
    /// Bytes of data sent or received.
    pub bytes: u64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at_us={} {}", self.at.as_micros(), self.info)
    }
}

impl FromStr for Sample {
    type Err = InvalidProbe;

    fn from_str(text: &str) -> Result<Self, InvalidProbe> {
        let at = number(text, "at_us").map(Duration::from_micros).ok_or(InvalidProbe("a sample needs at_us"))?;
        let info = text.parse().map_err(|_| InvalidProbe("a sample has no statistics of the connection"))?;
        Ok(Self { at, info })
    }
}

impl fmt::Display for ProbeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at_us={} bytes={}", self.at.as_micros(), self.bytes)
    }
}

impl FromStr for ProbeSummary {
    type Err = InvalidProbe;

    fn from_str(text: &str) -> Result<Self, InvalidProbe> {
        let at = number(text, "at_us").map(Duration::from_micros);
        match (at, number(text, "bytes")) {
            (Some(at), Some(bytes)) => Ok(Self { at, bytes }),
            _ => Err(InvalidProbe("the end of a probe needs at_us and bytes")),
        }
    }
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split_ascii_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
}

fn number(text: &str, key: &str) -> Option<u64> {
    value(text, key)?.parse().ok()
}

/// A frame, or the received part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Number of received bytes of data.
    Data(usize),
    /// A sample.
    Sample(Sample),
    /// The end.
    End(ProbeSummary),
}

/// Returns a frame of incompressible data.
///
/// # Panics
/// If `bytes` exceeds [`MAX_DATA_BYTES`].
pub fn data_frame(bytes: usize) -> Vec<u8> {
    assert!(bytes <= MAX_DATA_BYTES, "no frame holds that much");
    let mut frame = head(0, bytes);
    frame.extend(noise(bytes));
    frame
}

/// Returns incompressible bytes, the same on each call (xorshift64, Marsaglia 2003).
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_ne_bytes()
    });
    words.flatten().take(bytes).collect()
}

impl Sample {
    /// Returns the encoded frame.
    pub fn frame(&self) -> Vec<u8> {
        text_frame(1, &self.to_string())
    }
}

impl ProbeSummary {
    /// Returns the encoded frame.
    pub fn frame(&self) -> Vec<u8> {
        text_frame(2, &self.to_string())
    }
}

fn text_frame(kind: u8, text: &str) -> Vec<u8> {
    let mut frame = head(kind, text.len());
    frame.extend_from_slice(text.as_bytes());
    frame
}

fn head(kind: u8, bytes: usize) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD_BYTES + bytes);
    head.push(kind);
    head.extend_from_slice(&(bytes as u32).to_be_bytes());
    head
}

/// Incremental parser of a response. It buffers at most [`MAX_TEXT_BYTES`].
#[derive(Debug, Default)]
pub struct Frames {
    head: Vec<u8>,
    text: Vec<u8>,
    /// Remaining bytes of the payload.
    left: usize,
    ended: bool,
}

impl Frames {
    /// Consumes the next `bytes` and calls `each` for every event in them.
    ///
    /// # Errors
    /// If a frame has an unknown kind, exceeds the maximum length of its kind, has an invalid text, or follows the end.
    /// The stream cannot continue after an error.
    pub fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(Event)) -> Result<(), InvalidProbe> {
        while !bytes.is_empty() {
            if self.ended {
                return Err(InvalidProbe("data after the end of a probe"));
            }
            if self.head.len() < HEAD_BYTES {
                let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.head.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                self.begin()?;
            } else {
                let (payload, rest) = bytes.split_at(bytes.len().min(self.left));
                self.left -= payload.len();
                bytes = rest;
                match self.head[0] {
                    0 => each(Event::Data(payload.len())),
                    _ => self.text.extend_from_slice(payload),
                }
            }
            if self.head.len() == HEAD_BYTES && self.left == 0 {
                self.finish(&mut each)?;
            }
        }
        Ok(())
    }

    /// Parses the head of a frame, if it is complete.
    fn begin(&mut self) -> Result<(), InvalidProbe> {
        let Ok([kind, length @ ..]) = <[u8; HEAD_BYTES]>::try_from(self.head.as_slice()) else { return Ok(()) };
        let most = match kind {
            0 => MAX_DATA_BYTES,
            1 | 2 => MAX_TEXT_BYTES,
            _ => return Err(InvalidProbe("a frame of a probe has an unknown type")),
        };
        self.left = u32::from_be_bytes(length) as usize;
        if self.left > most { Err(InvalidProbe("a frame of a probe is too long")) } else { Ok(()) }
    }

    /// Processes a complete frame.
    fn finish(&mut self, each: &mut impl FnMut(Event)) -> Result<(), InvalidProbe> {
        let text =
            std::str::from_utf8(&self.text).map_err(|_| InvalidProbe("a frame of a probe is not valid UTF-8"))?;
        match self.head[0] {
            1 => each(Event::Sample(text.parse()?)),
            2 => {
                each(Event::End(text.parse()?));
                self.ended = true;
            }
            _ => {}
        }
        self.head.clear();
        self.text.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
