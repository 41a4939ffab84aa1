//! Formats of sizes, times and entries.

use std::{
    ffi::OsStr,
    fmt,
    io::{self, Write},
    time::{Duration, SystemTime},
};

use serde::Serialize;
use towpath_proto::units::size_text;
use towpath_store::{FileKind, Metadata, StorePath};

/// The JSON object of a path.
#[derive(Debug, Serialize)]
pub(crate) struct PathDescription {
    /// The path as given, or the location.
    pub path: String,
    /// `file`, `directory` or `other`.
    pub kind: &'static str,
    /// Size in bytes.
    pub size: u64,
    /// Last modification of the content (RFC 3339); omitted if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime: Option<String>,
    /// Permission bits in octal; omitted if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Version tag; omitted if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Known digests, `algorithm:hex`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub digests: Vec<String>,
}

impl PathDescription {
    /// Creates the object of `path`.
    pub(crate) fn new(path: String, metadata: &Metadata) -> Self {
        Self {
            path,
            kind: kind_name(metadata.kind),
            size: metadata.size,
            mtime: metadata.mtime_ns.map(time),
            mode: metadata.mode.map(|mode| format!("{mode:04o}")),
            version: metadata.version.as_ref().map(|version| version.as_str().to_string()),
            digests: metadata.digests.iter().map(|digest| format!("{}:{digest}", digest.algorithm())).collect(),
        }
    }
}

/// Writes one line: kind, mode, size, time, `path`.
pub(crate) fn line(
    path: impl fmt::Display,
    metadata: &Metadata,
    is_human: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let kind = match metadata.kind {
        FileKind::Directory => 'd',
        FileKind::File => '-',
        FileKind::Other => '?',
    };
    match metadata.mode {
        Some(mode) => write!(out, "{kind} {mode:04o} ")?,
        None => write!(out, "{kind} ---- ")?,
    }
    match is_human {
        true => write!(out, "{:>10} ", size_text(metadata.size))?,
        false => write!(out, "{:>14} ", metadata.size)?,
    }
    match metadata.mtime_ns {
        // Always 20 characters.
        Some(ns) => writeln!(out, "{} {path}", rfc3339(ns)),
        None => writeln!(out, "{:<20} {path}", "-"),
    }
}

/// Returns the name of the kind of a path.
pub(crate) fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Other => "other",
    }
}

/// Formats nanoseconds since the Unix epoch as `2026-01-31T12:00:00Z`; times before 1970 are shown as 1970.
pub(crate) fn time(ns: i64) -> String {
    rfc3339(ns).to_string()
}

fn rfc3339(ns: i64) -> humantime::Rfc3339Timestamp {
    let since = Duration::from_nanos(u64::try_from(ns).unwrap_or(0));
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + since)
}

/// Returns a number with its noun: `1 file`, `2 files`.
pub(crate) fn count_text(count: u64, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

/// Quotes a word for a shell if necessary.
pub(crate) fn quoted(word: &OsStr) -> String {
    let text = word.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Returns `path` relative to `directory`, without a leading slash.
pub(crate) fn relative(path: &StorePath, directory: &StorePath) -> String {
    let (path, directory) = (path.to_string(), directory.to_string());
    path.strip_prefix(&directory).unwrap_or(&path).trim_start_matches('/').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints() {
        assert_eq!(quoted(OsStr::new("a/b.root")), "a/b.root");
        assert_eq!(quoted(OsStr::new("it's *")), r"'it'\''s *'");
        assert_eq!(time(1_000_000_000), "1970-01-01T00:00:01Z");
    }
}
