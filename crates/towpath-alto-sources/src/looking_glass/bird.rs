//! BIRD, versions 1 to 3: `show route all`, and `show route`, which has only the origin AS of a path.
//!
//! A route starts with its prefix, or with spaces in its place for a further route to the same prefix. `*` marks the
//! best route, `!` the best route that the kernel rejected. BIRD 1 prints the next hop on the same line, later
//! versions below it. Attributes follow, one per line. The parser does not depend on the prefix column: a route line
//! is recognized by its type keyword.
//!
//! The next hop is the neighbor (`via`), not the BGP next hop (`BGP.next_hop`), which may be remote. A route server
//! has no neighbors on the path and shows its routes as unreachable; then the BGP next hop is used.

use super::{
    Reader, SkipReason,
    path::{PathTerminator, as_path},
    table_builder::{Entry, TableBuilder},
    words::{first_word, next_hop, prefix},
};
use towpath_alto::route::AsPath;

/// Returns whether `line` starts a route.
pub(super) fn is_route(line: &str) -> bool {
    Head::read(line).is_some()
}

/// Parses `show route all` and `show route`.
#[derive(Default)]
pub(super) struct RouteReader {
    entry: Entry,
}

impl Reader for RouteReader {
    fn read(&mut self, line: &str, builder: &mut TableBuilder) {
        let text = line.trim();
        if let Some(head) = Head::read(text) {
            self.begin_route(&head, builder);
        } else if is_further_line(line) {
            self.read_attribute(text);
        } else {
            // A route of another type, such as Flowspec, or not a route.
            self.finish(builder);
            if text.contains(" [") {
                builder.skip(SkipReason::Prefix);
            }
        }
    }

    fn finish(&mut self, builder: &mut TableBuilder) {
        self.entry.end(builder);
    }
}

impl RouteReader {
    fn begin_route(&mut self, head: &Head<'_>, builder: &mut TableBuilder) {
        if let Some(word) = head.prefix {
            self.entry.begin(prefix(word), builder);
        }
        let path = if head.is_bgp { Err(SkipReason::PathNotShown) } else { Ok(AsPath::default()) };
        self.entry.route(head.is_best, path, builder);
        if let (Some(route_builder), true) = (self.entry.route_builder(), head.kind.ends_the_way()) {
            route_builder.offer_next_hop(head.via.and_then(next_hop), true);
        }
    }

    fn read_attribute(&mut self, text: &str) {
        let Some(route_builder) = self.entry.route_builder() else { return };
        if let Some(path) = attribute(text, "BGP.as_path:", "bgp_path:") {
            route_builder.note_path(as_path(path, PathTerminator::Line));
        } else if let Some(hops) = attribute(text, "BGP.next_hop:", "bgp_next_hop:") {
            route_builder.offer_next_hop(first_word(hops).and_then(next_hop), false);
        } else if let Some(hop) = text.strip_prefix("via ") {
            route_builder.offer_next_hop(first_word(hop).and_then(next_hop), true);
        } else if text.starts_with("dev ") {
            route_builder.offer_next_hop(None, true);
        }
    }
}

/// Returns whether `line` can belong to the route above it.
fn is_further_line(line: &str) -> bool {
    line.trim().is_empty() || line.starts_with([' ', '\t'])
}

/// Returns the value of an attribute, by its name in BIRD 1 and 2 or in BIRD 3.
fn attribute<'a>(text: &'a str, name: &str, name_in_3: &str) -> Option<&'a str> {
    text.strip_prefix(name).or_else(|| text.strip_prefix(name_in_3))
}

/// How packets are forwarded, from the first line of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// To the neighbors on the following lines; unreachable if there are none.
    Below,
    /// To the neighbor on this line.
    Via,
    /// Through a local interface, or dropped on purpose.
    Last,
}

impl Kind {
    fn read(word: &str) -> Option<Self> {
        match word {
            "unicast" | "multipath" | "recursive" | "unreachable" => Some(Self::Below),
            "via" => Some(Self::Via),
            "dev" | "blackhole" | "prohibit" => Some(Self::Last),
            _ => None,
        }
    }

    /// Returns whether no next hop can follow on later lines.
    fn ends_the_way(self) -> bool {
        self != Self::Below
    }
}

/// The first line of a route: `192.0.2.0/24  unicast [peer1 2026-01-01] * (100) [AS789i]`.
struct Head<'a> {
    prefix: Option<&'a str>,
    kind: Kind,
    via: Option<&'a str>,
    is_best: bool,
    is_bgp: bool,
}

impl<'a> Head<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once(" [")?;
        let (_, status) = after.split_once(']')?;
        let mut words = before.split_whitespace();
        let first = words.next()?;
        let (prefix, kind) = match Kind::read(first) {
            Some(kind) => (None, kind),
            None => (Some(first), Kind::read(words.next()?)?),
        };
        let via = words.next().filter(|_| kind == Kind::Via);
        let is_best = status.trim_start().starts_with(['*', '!']);
        Some(Self { prefix, kind, via, is_best, is_bgp: is_bgp(status) })
    }
}

/// Returns whether this is a BGP route. Only these end with the origin of their path, `[AS789i]`, or `[i]` if it is
/// empty.
fn is_bgp(status: &str) -> bool {
    let Some((_, origin)) = status.rsplit_once('[') else { return false };
    origin.starts_with("AS") || matches!(origin.trim_end().trim_end_matches(']'), "i" | "e" | "?" | "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_begin_alike_in_all_versions() {
        for (line, prefix, via, is_best, is_bgp) in [
            ("192.0.2.0/24  unicast [p1 2026-01-01] * (100) [AS789i]", Some("192.0.2.0/24"), None, true, true),
            ("    unicast [p2 2026-01-01 from 192.0.2.9] (100/20) [AS789?]", None, None, false, true),
            ("::/0 via fe80::1 on e0 [p1 10:00] * (100) [i]", Some("::/0"), Some("fe80::1"), true, true),
            ("192.0.2.0/24 unicast [ospf1 10:00] ! I (150/10) [1.1.1.1]", Some("192.0.2.0/24"), None, true, false),
            ("192.0.2.0/24 blackhole [static1] * (200)", Some("192.0.2.0/24"), None, true, false),
            ("::/0 dev eth0 [direct1 10:00] * (240)", Some("::/0"), None, true, false),
        ] {
            let head = Head::read(line).unwrap();
            let seen = (head.prefix, head.via, head.is_best, head.is_bgp);
            assert_eq!(seen, (prefix, via, is_best, is_bgp), "{line}");
        }
    }

    #[test]
    fn what_is_no_route() {
        for line in ["Table master4:", "\tvia fe80::1 on eth0", "BGP.as_path: 1 2", "a [b", "flow4 { } [p] * (1)", ""] {
            assert!(Head::read(line).is_none(), "{line}");
        }
    }
}
