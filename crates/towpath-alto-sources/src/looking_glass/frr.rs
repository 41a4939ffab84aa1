//! The table printed by FRR, Quagga and Cisco IOS for `show ip bgp` and `show bgp ipv6`.
//!
//! A row has a status, a network, a next hop, a metric, a local preference, a weight and a path. The network is
//! omitted if it is that of the row above; metric and local preference can be blank; a network or next hop too long
//! for its column ends the line, and the row continues on the next one. Hence the header columns are needed to tell a
//! weight from the first AS of the path. Rows can be shifted relative to the header: IOS prints them one column to
//! the right, new versions of FRR continue them up to two columns to the left, and a large local preference shifts
//! the rest three columns to the right.
//!
//! Only the best route (`>`) is used, not those that share its traffic (`=`). This table contains only BGP routes.

use super::{
    Reader, SkipReason,
    path::{PathTerminator, as_path},
    table_builder::{Entry, TableBuilder},
    words::{classful_prefix, next_hop},
};

/// Maximum shift of a row relative to the header, in columns, to either side. The column before the weight ends seven
/// columns earlier.
const MAX_SHIFT: usize = 2;

/// Maximum additional shift of a weight to the right, in columns, caused by a ten-digit local preference.
const MAX_OVERFLOW: usize = 3;

/// Returns whether `line` is the table header.
pub(super) fn is_header(line: &str) -> bool {
    Columns::of_header(line).is_some()
}

/// Parses `show ip bgp`.
#[derive(Default)]
pub(super) struct RowReader {
    /// `None` before the first header.
    columns: Option<Columns>,
    entry: Entry,
    /// Whether the current row has no next hop yet.
    awaits_next_hop: bool,
}

impl Reader for RowReader {
    fn read(&mut self, line: &str, builder: &mut TableBuilder) {
        if let Some(columns) = Columns::of_header(line) {
            self.finish(builder);
            self.columns = Some(columns);
        } else if let Some(columns) = self.columns {
            self.read_row(columns, line, builder);
        } else if line.trim_start().starts_with("*>") {
            builder.skip(SkipReason::Columns);
        }
    }

    fn finish(&mut self, builder: &mut TableBuilder) {
        self.entry.end(builder);
    }
}

impl RowReader {
    fn read_row(&mut self, columns: Columns, line: &str, builder: &mut TableBuilder) {
        if line.trim().is_empty() {
            return;
        }
        let status = line.get(..columns.network).filter(|status| status.bytes().all(is_status_code));
        let Some(status) = status else {
            // Another kind of line, such as a route count or a route distinguisher.
            self.finish(builder);
            return;
        };
        let mut cells = columns.network;
        let network = next_word(line, cells).filter(|word| word.start <= columns.network + MAX_SHIFT);
        if let Some(word) = &network {
            self.entry.begin(classful_prefix(word.text), builder);
            cells = word.end();
        }
        if network.is_some() || !status.trim().is_empty() {
            self.entry.route(is_active(status, builder), Err(SkipReason::Columns), builder);
            self.awaits_next_hop = true;
        }
        self.read_cells(columns, line, cells);
    }

    /// Parses the cells of `line` from column `start`; they may be part of a continued row.
    fn read_cells(&mut self, columns: Columns, line: &str, mut start: usize) {
        let Some(route_builder) = self.entry.route_builder() else { return };
        if self.awaits_next_hop {
            let Some(word) = next_word(line, start) else { return };
            route_builder.offer_next_hop(next_hop(word.text), true);
            self.awaits_next_hop = false;
            start = word.end();
        }
        if let Some(path) = columns.path(line, start) {
            route_builder.note_path(as_path(path, PathTerminator::Origin));
        }
    }
}

/// Returns whether a row with this `status` is the installed best route.
fn is_active(status: &str, builder: &mut TableBuilder) -> bool {
    let is_best = status.contains('>');
    // NX-OS prints an `r` after `*>` for redistributed routes.
    let is_elsewhere = is_best && status.contains('r') && !status.contains('*');
    if is_elsewhere {
        builder.skip(SkipReason::NotInstalled);
    }
    is_best && !is_elsewhere
}

/// Returns whether `byte` is a status code, RPKI state or path type of FRR, IOS or NX-OS, or a space.
fn is_status_code(byte: u8) -> bool {
    b" *>=+|sdhirSRVINmbfxactuleqL".contains(&byte)
}

/// Column positions of a table, as byte offsets.
#[derive(Clone, Copy)]
struct Columns {
    /// First column of the network.
    network: usize,
    /// First column after the weight, which is right-aligned.
    weight_end: usize,
}

impl Columns {
    /// Parses the header `line`, if it is one.
    fn of_header(line: &str) -> Option<Self> {
        let network = line.find("Network")?;
        let hop = line.find("Next Hop")?;
        let weight = line.find("Weight")?;
        let path = line.find("Path")?;
        let is_header = line.trim_start().starts_with("Network") && network < hop && hop < weight && weight < path;
        is_header.then_some(Self { network, weight_end: weight + "Weight".len() })
    }

    /// Returns the path in `line`: the text after the weight, if the weight is after `start`.
    fn path(self, line: &str, mut start: usize) -> Option<&str> {
        while let Some(word) = next_word(line, start) {
            start = word.end();
            if start + MAX_SHIFT >= self.weight_end {
                let is_weight = start <= self.weight_end + MAX_OVERFLOW && word.text.parse::<u16>().is_ok();
                return line.get(start..).filter(|_| is_weight);
            }
        }
        None
    }
}

/// A word and its first column.
struct Word<'a> {
    start: usize,
    text: &'a str,
}

impl Word<'_> {
    /// Returns the first column after the word.
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Returns the first word of `line` at or after the column `from`; `None` if there is none or `from` is inside a
/// character.
fn next_word(line: &str, from: usize) -> Option<Word<'_>> {
    let rest = line.get(from..)?;
    let text = rest.split_whitespace().next()?;
    let blanks = rest.len() - rest.trim_start().len();
    Some(Word { start: from + blanks, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "   Network          Next Hop            Metric LocPrf Weight Path";

    fn path(row: &str) -> Option<&str> {
        Columns::of_header(HEADER).unwrap().path(row, 20).map(str::trim)
    }

    #[test]
    fn columns_tell_a_weight_from_an_as() {
        assert_eq!(path("*> 192.0.2.0/24     192.0.2.1"), None);
        for row in [
            "                                             0             0 64500 64501 i",
            "                                                           0 64500 64501 i",
            "                                                  100      0 64500 64501 i",
            "                                              4294967295      0 64500 64501 i",
            "                                            0             0 64500 64501 i",
            "                                           0             0 64500 64501 i",
            "                                              0             0 64500 64501 i",
            "                                             0         32768 64500 64501 i",
        ] {
            assert_eq!(path(row), Some("64500 64501 i"), "{row}");
        }
    }

    #[test]
    fn rows_without_a_weight_are_refused() {
        for row in [
            "                                             0               64500 64501 i",
            "                                             0             - 64500 64501 i",
            "                                             0                             i",
        ] {
            assert_eq!(path(row), None, "{row}");
        }
    }

    #[test]
    fn headers_begin_with_the_network() {
        assert!(is_header(HEADER) && is_header("     Network    Next Hop   Metric LocPrf Weight Path"));
        assert!(!is_header("The Network of Next Hop, Weight and Path") && !is_header("Network Path Weight Next Hop"));
    }
}
