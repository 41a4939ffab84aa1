//! Arguments of `plan`.

use std::{ffi::OsString, ops::Range, str::FromStr};

use clap::Args;
use towpath_proto::units::ByteSize;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Path or URL of a ROOT file.
    pub path: OsString,
    /// Columns to read: names or patterns such as `Jet_*`, separated by commas; with each the columns in it. Without,
    /// the trees of the file are listed.
    #[arg(long, short = 'c', value_name = "NAMES", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Entries to read: `0:1000` (without 1000), `1000:` (from 1000 on).
    #[arg(long, short = 'e', value_name = "FIRST:END", default_value = "0:")]
    pub entries: EntryRange,
    /// Tree to read, with its directories [default: the only one].
    #[arg(long, short = 't', value_name = "NAME")]
    pub tree: Option<String>,
    /// Merge ranges with a gap of at most this size.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub gap: ByteSize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// A range of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EntryRange(pub(crate) Range<u64>);

impl FromStr for EntryRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str, missing| if text.is_empty() { Some(missing) } else { text.parse::<u64>().ok() };
        let range = text.split_once(':').and_then(|(first, end)| Some(parse(first, 0)?..parse(end, u64::MAX)?));
        let range = range.filter(|range| range.start <= range.end);
        range.map(Self).ok_or_else(|| "write the first entry and the one after the last, as in `0:1000`".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_entries() {
        let range = |text: &str| text.parse::<EntryRange>().ok().map(|range| range.0);
        assert_eq!(range("0:1000"), Some(0..1000));
        assert_eq!(range("7:"), Some(7..u64::MAX));
        assert_eq!(range(":3"), Some(0..3));
        assert_eq!(range(":"), Some(0..u64::MAX));
        for wrong in ["", "3", "3:2", "a:b", "-1:3", "1:2:3"] {
            assert_eq!(range(wrong), None, "{wrong}");
        }
    }
}
