//! An access as a line of the access log: JSON, written by a cache and read by a simulation.
//!
//! Equal neighbours among the segments of a file are one item, so that a file that was read completely takes two items,
//! however large it is. A line has at most [`MAX_ITEMS`] of them; the bytes of the others are summed.

use serde::{Deserialize, Serialize};

use crate::{accounts::AccessRecord, inventory::segment_bytes, segments::SegmentUse};

/// Value of the field `kind`.
pub const ACCESS_KIND: &str = "cache";
/// Maximum number of items of `segments` in a line, which bounds its length to 24 KiB beside the path.
const MAX_ITEMS: usize = 512;

/// A line of the access log. Times end in their unit; bytes are those of file contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLine {
    /// When the file was closed, in milliseconds since the Unix epoch.
    pub unix_ms: i64,
    /// [`ACCESS_KIND`].
    pub kind: String,
    /// URL of the origin, without credentials.
    pub origin: String,
    /// Path at the origin, as in other lines of the log, with the query if that selects the content.
    pub path: String,
    /// The version of the file: 16 hexadecimal digits.
    pub entry: String,
    /// Size of the file.
    pub size: u64,
    /// Modification time of the file in nanoseconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtime_ns: Option<i64>,
    /// When the file was opened, in milliseconds since the Unix epoch.
    pub opened_ms: i64,
    /// Time from open to close.
    pub took_us: u64,
    /// Bytes from the disk of the cache, without the origin.
    pub hit_bytes: u64,
    /// Bytes that were absent.
    pub miss_bytes: u64,
    /// Bytes passed through without being stored.
    pub bypass_bytes: u64,
    /// Time that reads waited for the origin. Reads at the same time add up.
    pub origin_us: u64,
    /// Part of `origin_us` before the storage of the origin began to respond, an estimate. Absent without a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_storage_us: Option<u64>,
    /// Time that reads waited for the disk of the cache.
    pub disk_us: u64,
    /// The rest of the time: the client and its network. Absent if overlapping reads waited for more than `took_us`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_us: Option<u64>,
    /// Length of a segment.
    pub segment_bytes: u64,
    /// What was read.
    pub segments: Vec<SegmentItem>,
    /// Bytes read in segments beyond those of `segments`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rest_bytes: u64,
}

/// Equal neighbours among the segments: number of the first one, how many, bytes read of each, and its blocks in
/// hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentItem(u32, u32, u64, String);

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl From<&AccessRecord> for AccessLine {
    fn from(record: &AccessRecord) -> Self {
        let us = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (segments, rest_bytes) = items(&record.segments);
        Self {
            unix_ms: record.opened_ms.saturating_add(i64::try_from(record.duration.as_millis()).unwrap_or(0)),
            kind: ACCESS_KIND.into(),
            origin: record.origin.to_string(),
            path: record.target.to_string(),
            entry: record.entry.clone(),
            size: record.size,
            mtime_ns: record.mtime_ns,
            opened_ms: record.opened_ms,
            took_us: us(record.duration),
            hit_bytes: record.hit_bytes(),
            miss_bytes: record.missed_bytes,
            bypass_bytes: record.bypass_bytes,
            origin_us: us(record.origin_wait),
            origin_storage_us: record.storage_wait.map(us),
            disk_us: us(record.disk_wait),
            client_us: record.client_time().map(us),
            segment_bytes: segment_bytes(record.size),
            segments,
            rest_bytes,
        }
    }
}

impl AccessLine {
    /// Returns the line as JSON, without a line feed.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("strings and numbers always serialize")
    }

    /// Returns the segments that were read; `None` if they are not those of a file of this size.
    pub(crate) fn uses(&self) -> Option<Vec<SegmentUse>> {
        if self.segment_bytes != segment_bytes(self.size) || self.segments.len() > MAX_ITEMS {
            return None;
        }
        let count = self.size.div_ceil(self.segment_bytes).max(1);
        let mut uses = Vec::new();
        for SegmentItem(first, length, bytes, blocks) in &self.segments {
            let blocks = u64::from_str_radix(blocks, 16).ok()?;
            let end = u64::from(*first) + u64::from(*length);
            if end > count || blocks == 0 || uses.len() as u64 + u64::from(*length) > count {
                return None;
            }
            let each = |index| SegmentUse { index, bytes: *bytes, blocks };
            uses.extend((*first..*first + *length).map(each));
        }
        Some(uses)
    }
}

/// Joins equal neighbours. Returns the items, and the bytes of segments beyond [`MAX_ITEMS`].
fn items(uses: &[SegmentUse]) -> (Vec<SegmentItem>, u64) {
    let (mut items, mut rest_bytes): (Vec<(SegmentUse, u32)>, u64) = (Vec::new(), 0);
    for used in uses {
        let is_full = items.len() == MAX_ITEMS;
        match items.last_mut() {
            Some((first, count))
                if first.index + *count == used.index && (first.bytes, first.blocks) == (used.bytes, used.blocks) =>
            {
                *count += 1;
            }
            _ if is_full => rest_bytes += used.bytes,
            _ => items.push((*used, 1)),
        }
    }
    let item = |(first, count): &(SegmentUse, u32)| {
        SegmentItem(first.index, *count, first.bytes, format!("{:x}", first.blocks))
    };
    (items.iter().map(item).collect(), rest_bytes)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::target::Target;

    fn record(size: u64, segments: Vec<SegmentUse>) -> AccessRecord {
        AccessRecord {
            origin: "root://origin:1094".into(),
            target: Target::parse(b"/store/\xff").unwrap(),
            entry: "0011223344556677".into(),
            size,
            mtime_ns: Some(7),
            opened_ms: 1_000,
            closed_s: 3,
            duration: Duration::from_millis(2_500),
            served_bytes: 100,
            missed_bytes: 30,
            bypass_bytes: 1,
            origin_wait: Duration::from_millis(500),
            storage_wait: None,
            disk_wait: Duration::from_millis(100),
            segments,
        }
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let used = |index, bytes, blocks| SegmentUse { index, bytes, blocks };
        let uses = vec![used(0, 9, 1), used(1, 16 << 20, u64::MAX), used(2, 16 << 20, u64::MAX), used(4, 3, 1 << 63)];
        let line = AccessLine::from(&record(100 << 20, uses.clone()));
        assert_eq!((line.unix_ms, line.hit_bytes, line.client_us), (3_500, 70, Some(1_900_000)));
        assert_eq!((line.path.as_str(), line.segments.len()), ("/store/\\xff", 3));
        let read: AccessLine = serde_json::from_str(&line.to_json()).unwrap();
        assert_eq!(read, line);
        assert_eq!(read.uses().unwrap(), uses);
    }

    #[test]
    fn the_length_of_a_line_is_bounded() {
        let uses: Vec<_> =
            (0..4096).map(|index| SegmentUse { index, bytes: 1 + u64::from(index), blocks: 1 }).collect();
        let line = AccessLine::from(&record(64 << 30, uses));
        assert_eq!((line.segments.len(), line.rest_bytes), (MAX_ITEMS, (513..=4096).sum()));
        assert!(line.to_json().len() < 24 << 10);
    }

    #[test]
    fn segments_that_no_file_has_are_refused() {
        let line = AccessLine::from(&record(20 << 20, vec![SegmentUse { index: 0, bytes: 1, blocks: 1 }]));
        let with = |item| AccessLine { segments: vec![item], ..line.clone() };
        assert!(with(SegmentItem(0, 2, 1, "1".into())).uses().is_some());
        for item in [
            SegmentItem(0, u32::MAX, 1, "1".into()),
            SegmentItem(u32::MAX, 1, 1, "1".into()),
            SegmentItem(0, 1, 1, "0".into()),
            SegmentItem(0, 1, 1, "x".into()),
        ] {
            assert!(with(item.clone()).uses().is_none(), "{item:?}");
        }
        assert!(AccessLine { segment_bytes: 0, ..line }.uses().is_none());
    }
}
