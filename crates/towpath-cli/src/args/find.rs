//! The command line of `find`.

use std::{ffi::OsString, time::Duration};

use clap::{Args, ValueEnum};
use globset::{Glob, GlobMatcher};
use towpath_proto::units::ByteSize;

use super::foreign::is_foreign_predicate;

/// Predicates that may be written with one dash, as for the Unix `find`.
const SINGLE_DASHED: [&str; 7] = ["name", "iname", "type", "size", "maxdepth", "print", "print0"];

/// Size suffixes of the Unix `find`, in addition to those of [`ByteSize`].
const SUFFIXES: [(&str, u64); 5] = [("c", 1), ("k", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40)];

/// Arguments of `find`.
#[derive(Debug, Args)]
pub(crate) struct Find {
    /// Paths or URLs. A `*` in a quoted URL matches any part of a name.
    #[arg(required = true)]
    pub paths: Vec<OsString>,
    /// Print entries whose name matches GLOB, such as `*.root`.
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    pub name: Option<GlobMatcher>,
    /// Like --name, without regard to case.
    #[arg(long, value_name = "GLOB", value_parser = glob_without_case, conflicts_with = "name")]
    pub iname: Option<GlobMatcher>,
    /// Print entries of this kind.
    #[arg(long = "type", value_name = "KIND")]
    pub kind: Option<EntryKind>,
    /// Print files larger (`+1GiB`), smaller (`-10MB`) than a size, or of exactly this size (`4096`).
    #[arg(long, value_name = "[+-]SIZE", allow_hyphen_values = true)]
    pub size: Option<SizePredicate>,
    /// Print entries modified within the last TIME, such as `7d` or `12h`.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub newer_than: Option<Duration>,
    /// Print entries not modified within the last TIME.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub older_than: Option<Duration>,
    /// Descend at most N levels below each path.
    #[arg(long, visible_alias = "maxdepth", value_name = "N")]
    pub max_depth: Option<usize>,
    /// End each path with a NUL byte instead of a line break, for `xargs -0`.
    #[arg(long, short = '0', conflicts_with = "json")]
    pub print0: bool,
    /// Ignored, for compatibility with `find`: matching entries are always printed.
    #[arg(long, hide = true)]
    pub print: bool,
    /// Print one JSON object per entry.
    #[arg(long)]
    pub json: bool,
}

/// The kinds that `find --type` selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EntryKind {
    /// Files.
    #[value(name = "f")]
    File,
    /// Directories.
    #[value(name = "d")]
    Directory,
}

/// The predicate `--size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SizePredicate {
    /// Larger than this number of bytes.
    Larger(u64),
    /// Smaller than this number of bytes.
    Smaller(u64),
    /// Exactly this number of bytes.
    Exactly(u64),
}

impl SizePredicate {
    /// Returns whether a size fulfills the predicate.
    pub(crate) fn holds_for(self, size: u64) -> bool {
        match self {
            Self::Larger(bytes) => size > bytes,
            Self::Smaller(bytes) => size < bytes,
            Self::Exactly(bytes) => size == bytes,
        }
    }
}

impl std::str::FromStr for SizePredicate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (predicate, size): (fn(u64) -> Self, _) = match text.split_at_checked(1) {
            Some(("+", size)) => (Self::Larger, size),
            Some(("-", size)) => (Self::Smaller, size),
            _ => (Self::Exactly, text),
        };
        let with_suffix = SUFFIXES
            .iter()
            .find_map(|(suffix, scale)| size.strip_suffix(suffix)?.parse::<u64>().ok()?.checked_mul(*scale));
        let bytes = match with_suffix {
            Some(bytes) => bytes,
            None => size.parse::<ByteSize>().map_err(|error| error.to_string())?.0,
        };
        Ok(predicate(bytes))
    }
}

fn glob(text: &str) -> Result<GlobMatcher, String> {
    Glob::new(text).map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}

fn glob_without_case(text: &str) -> Result<GlobMatcher, String> {
    let glob = globset::GlobBuilder::new(text).case_insensitive(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.to_string())
}

/// Returns the command line with the predicates of the Unix `find` (`-name`) in the spelling of clap (`--name`).
pub(crate) fn with_two_dashes(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut is_find = false;
    arguments.map(move |word| {
        is_find |= word == "find";
        let predicate = word.to_str().and_then(|word| word.strip_prefix('-'));
        let is_predicate = |name: &&str| SINGLE_DASHED.contains(name) || is_foreign_predicate(&format!("-{name}"));
        match predicate.filter(|name| is_find && is_predicate(name)) {
            Some(predicate) => format!("--{predicate}").into(),
            None => word,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{SizePredicate::*, *};

    #[test]
    fn sizes_have_the_units_of_find_and_of_towpath() {
        for (text, size) in [
            ("+10M", Larger(10 << 20)),
            ("-1k", Smaller(1 << 10)),
            ("+1GB", Larger(1_000_000_000)),
            ("3MiB", Exactly(3 << 20)),
            ("7c", Exactly(7)),
            ("7", Exactly(7)),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
        for text in ["", "+", "+x", "1.5G", "+-1", "99999999999999T"] {
            assert!(text.parse::<SizePredicate>().is_err(), "{text}");
        }
    }

    #[test]
    fn predicates_may_have_one_dash() {
        let words = |line: &str| {
            with_two_dashes(line.split(' ').map(OsString::from))
                .map(|word| word.into_string().unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(words("towpath find x -name *.root -v -type f"), "towpath find x --name *.root -v --type f");
        assert_eq!(words("towpath ls -name"), "towpath ls -name");
    }
}
