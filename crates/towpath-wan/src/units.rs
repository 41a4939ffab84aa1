//! Rates and queue sizes in text form: `1Gbit`, `100Mbit`, `12MB`, `256KiB`, `bdp`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The rate of a link in bits per second, including Ethernet's overhead: 1 kbit/s to 1 Tbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate(u64);

impl Rate {
    /// Creates a rate from 1 kbit/s to 1 Tbit/s; `None` for other values.
    #[must_use]
    pub fn from_bits_per_s(bits_per_s: u64) -> Option<Self> {
        (1_000..=1_000_000_000_000).contains(&bits_per_s).then_some(Self(bits_per_s))
    }

    /// Creates a rate in Mbit/s, clamped to 1 to 1,000,000.
    #[must_use]
    pub fn from_mbit_per_s(mbit_per_s: u32) -> Self {
        Self(u64::from(mbit_per_s.clamp(1, 1_000_000)) * 1_000_000)
    }

    /// Returns the rate in bits per second.
    #[must_use]
    pub fn bits_per_s(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}Gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}Mbit", bits / 1_000_000),
            bits if bits % 1000 == 0 => write!(f, "{}kbit", bits / 1000),
            bits => write!(f, "{bits}bit"),
        }
    }
}

impl From<Rate> for String {
    fn from(rate: Rate) -> Self {
        rate.to_string()
    }
}

impl TryFrom<String> for Rate {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: &[(&str, f64)] = &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("tbit", 1e12)];
        let bits_per_s = quantity(text.strip_suffix("/s").unwrap_or(text), UNITS);
        let rate = bits_per_s.and_then(|bits_per_s| Self::from_bits_per_s(bits_per_s.round() as u64));
        rate.ok_or_else(|| {
            UnitError(format!("`{text}` is not a rate: write it as 100Mbit or 1Gbit, from 1kbit to 1Tbit"))
        })
    }
}

/// Size of a link's queue in bytes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Queue {
    /// The rate times twice the delay, at least 1 MiB: about the queue of 1,000 packets of a network card. With less, a
    /// sender's bursts of 64 KiB are lost on short paths.
    #[default]
    Bdp,
    /// A fixed number of bytes.
    Bytes(u64),
}

impl Queue {
    /// Minimum size of [`Queue::Bdp`].
    pub const MIN_BDP_BYTES: u64 = 1 << 20;
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Queue::Bdp => f.write_str("bdp"),
            Queue::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

impl From<Queue> for String {
    fn from(queue: Queue) -> Self {
        queue.to_string()
    }
}

impl TryFrom<String> for Queue {
    type Error = UnitError;

    fn try_from(text: String) -> Result<Self, UnitError> {
        text.parse()
    }
}

impl FromStr for Queue {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.eq_ignore_ascii_case("bdp") {
            return Ok(Queue::Bdp);
        }
        parse_bytes(text).map(Queue::Bytes)
    }
}

/// Parses a size such as `12MB` (decimal), `256KiB` (binary) or `1500B`.
///
/// # Errors
/// If `text` is not a size, or more than 1 TiB.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    const UNITS: &[(&str, f64)] = &[
        ("b", 1.0),
        ("kb", 1e3),
        ("mb", 1e6),
        ("gb", 1e9),
        ("kib", 1024.0),
        ("mib", 1_048_576.0),
        ("gib", 1_073_741_824.0),
    ];
    let bytes = quantity(text, UNITS).filter(|bytes| *bytes <= (1_u64 << 40) as f64);
    let bytes = bytes.map(|bytes| bytes.round() as u64);
    bytes.ok_or_else(|| UnitError(format!("`{text}` is not a size: write it as 12MB or 256KiB")))
}

/// Parses a number with one of the units; case-insensitive.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)?;
    units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| number * factor)
}

/// Durations in JSON: milliseconds with nanosecond precision.
pub(crate) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(span.as_secs_f64() * 1e3)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(ms / 1e3).map_err(D::Error::custom)
    }
}

/// A rate or size that cannot be parsed, with advice on the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_and_written() {
        for (text, bits_per_s, shown) in [
            ("1Gbit", 1_000_000_000, "1Gbit"),
            ("0.1 gbit/s", 100_000_000, "100Mbit"),
            ("2500kbit", 2_500_000, "2500kbit"),
            ("7001bit", 7001, "7001bit"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.bits_per_s(), rate.to_string().as_str()), (bits_per_s, shown));
            assert_eq!(shown.parse(), Ok(rate));
        }
        for text in ["", "1", "fast", "0bit", "999bit", "-1Gbit", "2Tbit", "1GB", "infbit", "1e400bit"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn queues_are_read_and_written() {
        for (text, queue, shown) in [
            ("bdp", Queue::Bdp, "bdp"),
            ("12MB", Queue::Bytes(12_000_000), "12000000B"),
            ("256KiB", Queue::Bytes(262_144), "262144B"),
            ("0b", Queue::Bytes(0), "0B"),
        ] {
            assert_eq!(text.parse(), Ok(queue));
            assert_eq!(queue.to_string(), shown);
            assert_eq!(shown.parse(), Ok(queue));
        }
        assert!("12".parse::<Queue>().is_err());
        assert!("9000GiB".parse::<Queue>().is_err());
    }
}
