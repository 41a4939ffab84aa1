//! The progress display on a terminal: one line for each of some files, and one for the total.

use std::time::Duration;

use console::measure_text_width;
use towpath_mover::{ActiveFile, ProgressSnapshot};
use towpath_proto::units::size_text;
use towpath_store::sys::clock::Instant;

/// Maximum number of files with a line of their own.
pub(crate) const MAX_FILES: usize = 8;

/// Averaging time of the rate: long enough for a readable display, short enough to show changes.
const SMOOTHING: Duration = Duration::from_secs(4);

/// Maximum remaining time that is shown: a longer one only says that the copy stalls.
const MAX_ETA_S: f64 = 30.0 * 86_400.0;

/// Minimum number of columns of a file name beside its progress.
const MIN_NAME: usize = 12;

/// Moving average of a rate.
#[derive(Debug)]
pub(crate) struct Meter {
    start: Instant,
    last: Instant,
    moved_bytes: u64,
    /// Weighted by age; the time before the start has no weight.
    bytes_per_s: f64,
}

impl Meter {
    /// Creates a meter, with no bytes moved yet.
    pub(crate) fn new(now: Instant) -> Self {
        Self { start: now, last: now, moved_bytes: 0, bytes_per_s: 0.0 }
    }

    /// Returns the current rate in bytes per second, given the bytes moved so far.
    pub(crate) fn rate(&mut self, now: Instant, moved_bytes: u64) -> f64 {
        let passed = (now - self.last).as_secs_f64();
        if passed > 0.0 {
            let bytes_per_s = moved_bytes.saturating_sub(self.moved_bytes) as f64 / passed;
            let fresh = 1.0 - weight(passed);
            self.bytes_per_s += fresh * (bytes_per_s - self.bytes_per_s);
            (self.last, self.moved_bytes) = (now, moved_bytes);
        }
        let known = 1.0 - weight((now - self.start).as_secs_f64());
        if known > 0.0 { self.bytes_per_s / known } else { 0.0 }
    }
}

/// Returns the weight of a sample of this age.
fn weight(seconds: f64) -> f64 {
    (-seconds / SMOOTHING.as_secs_f64()).exp()
}

/// Returns the remaining seconds at this rate; `None` if unknown, or more than [`MAX_ETA_S`].
pub(crate) fn eta_s(advance: &ProgressSnapshot, bytes_per_s: f64) -> Option<f64> {
    let seconds = (bytes_per_s >= 1.0).then(|| advance.ahead_bytes as f64 / bytes_per_s);
    seconds.filter(|seconds| *seconds <= MAX_ETA_S)
}

/// Returns the lines for a terminal of `rows` and `columns`: files, the number of further files, and the total. They
/// leave one row free, and fit the width unless it is too small for anything.
pub(crate) fn lines(
    advance: &ProgressSnapshot,
    bytes_per_s: f64,
    (files, count): (&[FileLine], usize),
    (rows, columns): (usize, usize),
) -> Vec<String> {
    // The cursor, the total, and the number of omitted files need a row each.
    let room = rows.saturating_sub(3).min(MAX_FILES);
    let mut lines: Vec<_> = files.iter().take(room).map(|file| file.line(columns)).collect();
    if count > lines.len() && !lines.is_empty() {
        lines.push(format!("… and {} more", count - lines.len()));
    }
    lines.push(total(advance, bytes_per_s, columns));
    lines
}

/// The display of one file.
#[derive(Debug)]
pub(crate) struct FileLine {
    name: String,
    arrived_bytes: u64,
    bytes: u64,
}

impl From<&ActiveFile> for FileLine {
    fn from(file: &ActiveFile) -> Self {
        Self { name: file.from.to_string(), arrived_bytes: file.arrived_bytes(), bytes: file.bytes }
    }
}

impl FileLine {
    fn line(&self, columns: usize) -> String {
        let Self { name, arrived_bytes, bytes } = self;
        let percent = format!("{:>4} %", (arrived_bytes * 100).checked_div(*bytes).unwrap_or(100));
        let sizes = format!("{percent}  {:>10} of {:>10}", size_text(*arrived_bytes), size_text(*bytes));
        let wide = columns.saturating_sub(measure_text_width(&sizes) + 1);
        let (status, room) = match wide >= MIN_NAME {
            true => (sizes, wide),
            false => (percent, columns.saturating_sub(7)),
        };
        let name = last_columns(name, room);
        let gap = " ".repeat(room.saturating_sub(measure_text_width(&name)));
        format!("{name}{gap} {status}")
    }
}

/// Returns the end of `text` that fits into `columns`, because names differ at their ends.
fn last_columns(text: &str, columns: usize) -> String {
    if measure_text_width(text) <= columns {
        return text.to_owned();
    }
    let mut chars = text.chars();
    while chars.next().is_some() {
        if measure_text_width(chars.as_str()) < columns {
            return format!("…{}", chars.as_str());
        }
    }
    String::new()
}

/// Returns the line for all files, of any width.
pub(crate) fn line(advance: &ProgressSnapshot, bytes_per_s: f64) -> String {
    total(advance, bytes_per_s, usize::MAX)
}

/// Returns the line for all files. Parts that do not fit are omitted, the least important first.
fn total(advance: &ProgressSnapshot, bytes_per_s: f64, columns: usize) -> String {
    let ProgressSnapshot { found_files, is_all_found, ended_files, moved_bytes, ahead_bytes, verified_bytes, .. } =
        advance;
    // `+` and `at least` until all files are found.
    let (more, at_least) = if *is_all_found { ("", "") } else { ("+", "at least ") };
    let eta = eta_s(advance, bytes_per_s).map(|seconds| format!("ETA {at_least}{}", clock_time(seconds)));
    let parts = [
        Some(format!("{} of {}{more}", size_text(*moved_bytes), size_text(moved_bytes + ahead_bytes))),
        Some(format!("{}/s", size_text(bytes_per_s as u64))),
        eta,
        Some(format!("{ended_files}/{found_files}{more} files")),
        Some(format!("{} verified", size_text(*verified_bytes))),
    ];
    let mut parts: Vec<_> = parts.into_iter().flatten().collect();
    while parts.len() > 1 && measure_text_width(&parts.join(", ")) > columns {
        parts.pop();
    }
    parts.join(", ")
}

/// Formats a duration as minutes and seconds, hours, or days.
fn clock_time(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match hours {
        0 => format!("{minutes}:{:02}", seconds % 60),
        1..48 => format!("{hours}:{:02}:{:02}", minutes % 60, seconds % 60),
        _ => format!("{} days", hours / 24),
    }
}

#[cfg(test)]
mod tests;
