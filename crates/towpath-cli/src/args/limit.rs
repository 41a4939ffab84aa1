//! The rate of `--limit`, in bits or bytes per second.

use std::{fmt, str::FromStr};

use towpath_proto::units::ByteSize;
use towpath_wan::Rate;

/// A maximum rate. The text is kept for the command that retries failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Bytes per second, at least 1.
    pub(crate) bytes_per_s: u64,
    text: String,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let quantity = text.strip_suffix("/s").unwrap_or(text);
        let bytes_per_s = match quantity.parse::<Rate>() {
            Ok(rate) => Some(rate.bits_per_s() / 8),
            // A number without a unit could be either.
            Err(_) if !quantity.ends_with('B') => None,
            Err(_) => quantity.parse::<ByteSize>().ok().map(|size| size.0),
        };
        let bytes_per_s = bytes_per_s.filter(|bytes_per_s| *bytes_per_s > 0);
        let limit = bytes_per_s.map(|bytes_per_s| Self { bytes_per_s, text: text.to_owned() });
        limit.ok_or_else(|| {
            "a rate has the unit kbit, Mbit or Gbit for bits per second, or kB, MB, GB, KiB, MiB or GiB for bytes per \
             second, as in 200Mbit or 25MB/s"
                .to_owned()
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_bits_or_bytes() {
        for (text, bytes_per_s) in [
            ("100Mbit", 12_500_000),
            ("100Mbit/s", 12_500_000),
            ("1gbit", 125_000_000),
            ("10MB/s", 10_000_000),
            ("10MB", 10_000_000),
            ("10MiB", 10 << 20),
            ("512KiB/s", 512 << 10),
        ] {
            let limit = text.parse::<Limit>().unwrap();
            assert_eq!((limit.bytes_per_s, limit.to_string().as_str()), (bytes_per_s, text));
        }
        for text in ["10", "10M", "10Mb", "10Mb/s", "10m", "0MB", "0bit", "", "/s", "B", "-1MB", "10MB/h", "1000"] {
            assert!(text.parse::<Limit>().is_err(), "{text}");
        }
    }
}
