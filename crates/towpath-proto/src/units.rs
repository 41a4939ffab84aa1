//! Sizes, durations and rates in human-readable form: `"64MiB"`, `"30s"`, `"1.00 Gbit/s"`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Number of bytes, written with a unit: `512`, `64KiB`, `8MiB`, `2GiB`, `1TiB` (powers of 1024) or `kB`, `MB`, `GB`,
/// `TB` (powers of 1000).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A duration, written with a unit: `250ms`, `30s`, `5m`, `2h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

/// Error for text that is not a valid size or duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {what}: write a number and a unit, as in {example}")]
pub struct UnitError {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// Largest unit first, so that formatting finds the largest one that divides the value.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("", 1),
];

/// Time units, in milliseconds.
const TIME_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(*scale)
}

fn print(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let exact = units.iter().find(|(_, scale)| value >= *scale && value.is_multiple_of(*scale));
    let (unit, scale) = exact.or(units.last()).unwrap_or(&("", 1));
    write!(f, "{}{unit}", value / scale)
}

impl FromStr for ByteSize {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError { text: text.into(), what: "size", example: "64MiB" };
        parse(text, &SIZE_UNITS).map(Self).ok_or_else(error)
    }
}

impl FromStr for HumanDuration {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError { text: text.into(), what: "duration", example: "30s" };
        parse(text, &TIME_UNITS).map(|ms| Self(Duration::from_millis(ms))).ok_or_else(error)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(self.0, &SIZE_UNITS, f)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &TIME_UNITS, f)
    }
}

#[cfg(feature = "schema")]
crate::text_schema!(ByteSize, None::<&str>, "64MiB");
#[cfg(feature = "schema")]
crate::text_schema!(HumanDuration, None::<&str>, "30s");

/// Formats a number of bytes with a binary unit and two decimals: `1.50 GiB`.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

/// Formats a rate in bytes per second as bits per second: `1.00 Gbit/s`, `12.3 Mbit/s`.
pub fn rate_text(bytes_per_s: f64) -> String {
    match bytes_per_s * 8.0 {
        bits if bits >= 1e9 => format!("{:.2} Gbit/s", bits / 1e9),
        bits => format!("{:.1} Mbit/s", bits / 1e6),
    }
}

/// Serializes and deserializes both types as text.
macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

as_text!(ByteSize);
as_text!(HumanDuration);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!("64MiB".parse(), Ok(ByteSize(64 << 20)));
        assert_eq!("10 GB".parse(), Ok(ByteSize(10_000_000_000)));
        assert_eq!("0".parse(), Ok(ByteSize(0)));
        assert_eq!("30s".parse(), Ok(HumanDuration(Duration::from_secs(30))));
        assert_eq!("250ms".parse(), Ok(HumanDuration(Duration::from_millis(250))));
        assert_eq!(
            "64mib".parse::<ByteSize>().unwrap_err().to_string(),
            "`64mib` is not a size: write a number and a unit, as in 64MiB"
        );
        assert!("s".parse::<HumanDuration>().is_err());
        assert!("99999999999TiB".parse::<ByteSize>().is_err());
    }

    #[test]
    fn prints_what_people_read() {
        assert_eq!((size_text(999), size_text(3 << 29)), ("999 B".into(), "1.50 GiB".into()));
        assert_eq!(size_text(u64::MAX), "16384.00 PiB");
        assert_eq!((rate_text(125e6), rate_text(125e5)), ("1.00 Gbit/s".into(), "100.0 Mbit/s".into()));
    }

    proptest! {
        #[test]
        fn sizes_round_trip(value: u64) {
            prop_assert_eq!(ByteSize(value).to_string().parse(), Ok(ByteSize(value)));
        }

        #[test]
        fn spans_round_trip(ms in 0..u64::MAX / 2) {
            let span = HumanDuration(Duration::from_millis(ms));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
