//! A cache of measured path properties: the best number of connections, and the rate. The next copy over a path starts
//! with them instead of searching during its first seconds.
//!
//! The file has one line per path: `FROM TO CONNECTIONS RATE TIME`. Ends are URLs up to the authority, or `-` for this
//! machine; the rate is in bytes per second, the time in seconds since 1970. The file is only a cache: lines that
//! cannot be parsed are ignored, and it may be deleted at any time.

use std::{fs, io, path::Path, process};

use towpath_store::sys::disk::{self, RequiredOwner};

/// Time to live of an entry in seconds.
const KEPT_S: i64 = 30 * 24 * 3600;

/// Maximum number of entries; the least recently used are evicted.
const MAX_PATHS: usize = 1000;

/// Maximum size of the file in bytes; a larger one was not written by towpath and is ignored.
const MAX_BYTES: u64 = 1 << 20;

/// Measured properties of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathMetrics {
    pub(crate) connections: usize,
    pub(crate) bytes_per_s: u64,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PathEntry {
    ends: String,
    metrics: PathMetrics,
    unix_s: i64,
}

/// Returns the key of a path: `FROM TO`, each as in [`crate::StoreLocation::at`]. The reverse path has another key.
pub(crate) fn ends(from: &str, to: &str) -> String {
    let end = |at: &str| if at.is_empty() { "-".to_owned() } else { at.replace(char::is_whitespace, "%20") };
    format!("{} {}", end(from), end(to))
}

/// Returns the entry of a path in `file`, if it has not expired at `now_s`.
pub(crate) fn load(file: &Path, ends: &str, now_s: i64) -> Option<PathMetrics> {
    lines(file, now_s).into_iter().find(|line| line.ends == ends).map(|line| line.metrics)
}

/// Stores the properties of a path, replacing earlier ones.
///
/// # Errors
/// Those of the file system.
pub(crate) fn note(file: &Path, ends: &str, metrics: PathMetrics, now_s: i64) -> io::Result<()> {
    let mut lines = lines(file, now_s);
    lines.retain(|line| line.ends != ends);
    lines.push(PathEntry { ends: ends.to_owned(), metrics, unix_s: now_s });
    lines.sort_by_key(|line| std::cmp::Reverse(line.unix_s));
    lines.truncate(MAX_PATHS);
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    // Concurrent readers get the old or the new file. One of two concurrent writes is lost.
    let new = file.with_extension(process::id().to_string());
    let text: String = lines.iter().map(PathEntry::text).collect();
    disk::write(&new, text.as_bytes())?;
    disk::rename(&new, file)
}

/// Returns the entries of `file` that have not expired.
fn lines(file: &Path, now_s: i64) -> Vec<PathEntry> {
    let bytes = disk::read_regular(file, MAX_BYTES, RequiredOwner::Any).unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::debug!(file = %file.display(), %error, "cannot read the stored properties of paths");
        }
        Vec::new()
    });
    let text = String::from_utf8_lossy(&bytes);
    let fresh = |line: &PathEntry| (now_s - KEPT_S..=now_s).contains(&line.unix_s);
    text.lines().filter_map(PathEntry::parse).filter(fresh).take(MAX_PATHS).collect()
}

impl PathEntry {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [from, to, connections, rate, time] = words.as_slice() else { return None };
        let metrics = PathMetrics {
            connections: connections.parse().ok().filter(|connections| *connections > 0)?,
            bytes_per_s: rate.parse().ok()?,
        };
        Some(Self { ends: format!("{from} {to}"), metrics, unix_s: time.parse().ok()? })
    }

    fn text(&self) -> String {
        let Self { ends, metrics: PathMetrics { connections, bytes_per_s }, unix_s } = self;
        format!("{ends} {connections} {bytes_per_s} {unix_s}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: i64 = 1_800_000_000;
    const FAR: &str = "root://far:1094/ -";

    fn metrics(connections: usize) -> PathMetrics {
        PathMetrics { connections, bytes_per_s: 117_000_000 }
    }

    #[test]
    fn what_was_learnt_last_is_recalled() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("not/yet/paths");
        assert_eq!(load(&file, FAR, NOW_S), None);
        note(&file, FAR, metrics(4), NOW_S).unwrap();
        note(&file, "- root://far:1094/", metrics(1), NOW_S).unwrap();
        note(&file, FAR, metrics(16), NOW_S + 1).unwrap();
        assert_eq!(load(&file, FAR, NOW_S + 1), Some(metrics(16)));
        assert_eq!(load(&file, "- root://far:1094/", NOW_S + 1), Some(metrics(1)));
        assert_eq!(load(&file, FAR, NOW_S + KEPT_S + 2), None);
        assert_eq!(file.parent().unwrap().read_dir().unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("paths");
        let bad = [
            "",
            "a b c",
            "a b 0 1 1800000000",
            "a b -1 1 1800000000",
            "a b 1 1 1800000000 more",
            "a b 1 1 99999999999999999999",
        ];
        let text = format!("{}\n\u{fffd}\nroot://far:1094/ - 8 5 {NOW_S}\nhalf a li", bad.join("\n"));
        disk::write(&file, text.as_bytes()).unwrap();
        assert_eq!(lines(&file, NOW_S).len(), 1);
        assert_eq!(load(&file, FAR, NOW_S).map(|metrics| metrics.connections), Some(8));
    }

    #[test]
    fn the_paths_used_last_stay() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("paths");
        for number in 0..MAX_PATHS as i64 + 1 {
            note(&file, &format!("root://{number}/ -"), metrics(1), NOW_S + number).unwrap();
        }
        let later = NOW_S + 2 * MAX_PATHS as i64;
        assert_eq!(load(&file, "root://0/ -", later), None);
        assert_eq!(load(&file, "root://1/ -", later), Some(metrics(1)));
    }
}
