//! The table that FRR, Quagga and Cisco IOS print for `show ip bgp` and `show bgp ipv6`.
//!
//! A row has a status, a network, a next hop, a metric, a local preference, a weight and a path. The network is left
//! out where it is that of the row above; metric and local preference may be blank; a network or a next hop that is too
//! long for its column ends the line, and the row goes on in the next one. So the columns of the header tell a weight
//! from the first AS of the path. Rows may be off from their header: IOS prints them one column to the right, new
//! versions of FRR continue them up to two columns to the left, and a large local preference moves what follows it
//! three to the right.
//!
//! The best route (`>`) counts, those that share its traffic (`=`) do not. Only routes of BGP are in this table.

use super::{
    Reader, Why,
    harvest::{Entry, Harvest},
    path::{End, as_path},
    words::{classful_prefix, next_hop},
};

/// How many columns rows may be off from their header, to either side. The column before the weight ends seven before.
const MAX_SHIFT: usize = 2;

/// How many columns a weight may stand further to the right than its header, since a local preference has ten digits.
const MAX_OVERFLOW: usize = 3;

/// Whether `line` is the header of the table.
pub(super) fn is_header(line: &str) -> bool {
    Columns::of_header(line).is_some()
}

/// Reads `show ip bgp`.
#[derive(Default)]
pub(super) struct RowReader {
    /// None before the first header.
    columns: Option<Columns>,
    entry: Entry,
    /// Whether the row that is open has no next hop yet.
    awaits_next_hop: bool,
}

impl Reader for RowReader {
    fn read(&mut self, line: &str, harvest: &mut Harvest) {
        if let Some(columns) = Columns::of_header(line) {
            self.finish(harvest);
            self.columns = Some(columns);
        } else if let Some(columns) = self.columns {
            self.read_row(columns, line, harvest);
        } else if line.trim_start().starts_with("*>") {
            harvest.skip(Why::Columns);
        }
    }

    fn finish(&mut self, harvest: &mut Harvest) {
        self.entry.end(harvest);
    }
}

impl RowReader {
    fn read_row(&mut self, columns: Columns, line: &str, harvest: &mut Harvest) {
        if line.trim().is_empty() {
            return;
        }
        let status = line.get(..columns.network).filter(|status| status.bytes().all(is_status_code));
        let Some(status) = status else {
            // Another kind of line, such as a count of the routes, or a route distinguisher.
            self.finish(harvest);
            return;
        };
        let mut cells = columns.network;
        let network = next_word(line, cells).filter(|word| word.start <= columns.network + MAX_SHIFT);
        if let Some(word) = &network {
            self.entry.begin(classful_prefix(word.text), harvest);
            cells = word.end();
        }
        if network.is_some() || !status.trim().is_empty() {
            self.entry.route(is_active(status, harvest), Err(Why::Columns), harvest);
            self.awaits_next_hop = true;
        }
        self.read_cells(columns, line, cells);
    }

    /// What stands in `line` from the column `start` on; it may be some of what the row still needs.
    fn read_cells(&mut self, columns: Columns, line: &str, mut start: usize) {
        let Some(draft) = self.entry.draft() else { return };
        if self.awaits_next_hop {
            let Some(word) = next_word(line, start) else { return };
            draft.offer_next_hop(next_hop(word.text), true);
            self.awaits_next_hop = false;
            start = word.end();
        }
        if let Some(path) = columns.path(line, start) {
            draft.tell_path(as_path(path, End::Origin));
        }
    }
}

/// Whether a row with this `status` is the route that packets follow.
fn is_active(status: &str, harvest: &mut Harvest) -> bool {
    let is_best = status.contains('>');
    // NX-OS has an `r` for redistributed routes, behind `*>`.
    let is_elsewhere = is_best && status.contains('r') && !status.contains('*');
    if is_elsewhere {
        harvest.skip(Why::NotInstalled);
    }
    is_best && !is_elsewhere
}

/// Whether `byte` is a status, an RPKI state or a kind of path, of FRR, IOS or NX-OS, or a blank.
fn is_status_code(byte: u8) -> bool {
    b" *>=+|sdhirSRVINmbfxactuleqL".contains(&byte)
}

/// Where the columns of a table are, in bytes from the beginning of the line.
#[derive(Clone, Copy)]
struct Columns {
    /// The first of the network.
    network: usize,
    /// The first behind the weight, which stands at the right of its column.
    weight_end: usize,
}

impl Columns {
    /// Those below the header `line`, if it is one.
    fn of_header(line: &str) -> Option<Self> {
        let network = line.find("Network")?;
        let hop = line.find("Next Hop")?;
        let weight = line.find("Weight")?;
        let path = line.find("Path")?;
        let is_header = line.trim_start().starts_with("Network") && network < hop && hop < weight && weight < path;
        is_header.then_some(Self { network, weight_end: weight + "Weight".len() })
    }

    /// The path in `line`: what follows the weight, if that stands behind `start`.
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
    /// The first column behind it.
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The first word of `line` in or behind the column `from`; None too if that is inside a character.
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
