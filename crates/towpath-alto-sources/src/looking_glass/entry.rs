//! Output of FRR, Quagga, Cisco IOS and Arista for one prefix: `show ip bgp PREFIX` and `show bgp ipv6 PREFIX`.
//!
//! ```text
//! BGP routing table entry for 198.51.100.0/24, version 7
//! Paths: (2 available, best #2, table default)
//!   64500 64501, (received & used)
//!     192.0.2.1 from 192.0.2.1 (192.0.2.1)
//!       Origin IGP, metric 0, localpref 100, valid, external, best
//! ```
//!
//! The AS path of a route (`Local` if it is empty) is on the line above its next hop, which is recognized by `from`.
//! The origin line below it marks the best route. All other lines are ignored. The parser does not depend on
//! indentation, which web pages change.

use std::net::IpAddr;

use super::{
    Reader, SkipReason,
    path::{PathTerminator, as_path},
    table_builder::{Entry, TableBuilder},
    words::{first_word, next_hop, prefix},
};
use towpath_alto::route::AsPath;

/// Start of the heading.
const HEADING: &str = "BGP routing table entry for ";

/// Returns whether `line` is the heading of a prefix.
pub(super) fn is_heading(line: &str) -> bool {
    heading(line).and_then(prefix).is_some()
}

/// Returns the network in a heading line.
fn heading(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix(HEADING)?;
    Some(first_word(rest)?.trim_end_matches(','))
}

/// Parses `show ip bgp PREFIX`.
#[derive(Default)]
pub(super) struct EntryReader {
    entry: Entry,
    /// The AS path on the previous line, if any.
    above: Option<Result<AsPath, SkipReason>>,
    /// A route whose next hop was read, but not its origin line.
    way: Option<(Result<AsPath, SkipReason>, Option<IpAddr>)>,
}

impl Reader for EntryReader {
    fn read(&mut self, line: &str, builder: &mut TableBuilder) {
        let text = line.trim();
        let above = self.above.take();
        if let Some(network) = heading(text) {
            self.way = None;
            self.entry.begin(prefix(network), builder);
        } else if let Some(hop) = hop_of(text) {
            self.way = Some((above.unwrap_or(Err(SkipReason::PathMissing)), hop));
        } else if let Some(origin) = text.strip_prefix("Origin ") {
            if let Some((path, hop)) = self.way.take().filter(|_| is_best(origin)) {
                self.entry.route(true, path, builder);
                if let Some(route_builder) = self.entry.route_builder() {
                    route_builder.offer_next_hop(hop, true);
                }
            }
        } else {
            self.above = Some(path_of(text));
        }
    }

    fn finish(&mut self, builder: &mut TableBuilder) {
        (self.above, self.way) = (None, None);
        self.entry.end(builder);
    }
}

/// Parses a next hop line: `192.0.2.1 (metric 20) from 192.0.2.2 (192.0.2.3)`. The inner value is `None` if the next
/// hop is the router itself.
fn hop_of(text: &str) -> Option<Option<IpAddr>> {
    text.split_whitespace().find(|word| *word == "from")?;
    let word = first_word(text)?;
    word.split(['%', '(']).next()?.parse::<IpAddr>().ok()?;
    Some(next_hop(word))
}

/// Parses an AS path line: numbers or `Local`, optionally followed by a comma and further details in parentheses.
fn path_of(text: &str) -> Result<AsPath, SkipReason> {
    match text.split(", (").next().unwrap_or(text) {
        "Local" => Ok(AsPath::default()),
        "" => Err(SkipReason::PathMissing),
        path => as_path(path, PathTerminator::Line),
    }
}

/// Returns whether an origin line marks the best route: `IGP, metric 0, valid, external, best (Local Pref)`.
fn is_best(origin: &str) -> bool {
    origin.split(',').filter_map(first_word).any(|word| word == "best")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_other_families_have_no_heading() {
        assert!(is_heading("BGP routing table entry for 192.0.2.0/24, version 4"));
        assert!(is_heading("  BGP routing table entry for 2001:db8::/32"));
        assert!(!is_heading("BGP routing table entry for 10.0.0.41:2:[5]:[0]:[0]:[0]:[0.0.0.0]"));
        assert!(!is_heading("BGP routing table entry for 65000:1:10.0.0.0/8, version 3"));
    }

    #[test]
    fn the_best_way_is_known_by_a_word_of_its_own() {
        for (origin, expected) in [
            ("IGP, valid, external, best", true),
            ("IGP, valid, external, bestpath-from-AS 64500, best (First path received)", true),
            ("IGP, valid, external, bestpath-from-AS 64500", false),
            ("IGP, valid, external, backup/repair", false),
            ("IGP, valid, external, bes", false),
        ] {
            assert_eq!(is_best(origin), expected, "{origin}");
        }
    }

    #[test]
    fn next_hops_are_told_from_other_lines() {
        assert_eq!(hop_of("192.0.2.1 (metric 20) from r4(swp3) (192.0.2.4)"), Some("192.0.2.1".parse().ok()));
        assert_eq!(hop_of("0.0.0.0 from 0.0.0.0 (192.0.2.254)"), Some(None));
        for text in ["64500 64501", "(fe80::1) (used)", "Advertised from here", "192.0.2.1 192.0.2.2", ""] {
            assert_eq!(hop_of(text), None, "{text}");
        }
    }
}
