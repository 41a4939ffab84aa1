//! Junos: the table of `show route` ([`TableReader`]) and the entries of `show route detail` ([`DetailReader`]).
//!
//! Lines are recognized by how they begin, not by columns: a prefix too long for its column, as most IPv6 prefixes
//! are, is on its own line with its routes below it. Marks before a route: `*` active and last active, `+` active,
//! `-` last active only, `@` active for routing only, `#` for forwarding only. A route marked `#` combines other
//! routes and has no path, so `@` counts as active and `#` does not.

use super::{
    Reader, SkipReason,
    path::{PathTerminator, as_path},
    table_builder::{Entry, TableBuilder},
    words::{first_word, next_hop, prefix},
};
use towpath_alto::route::AsPath;

/// Returns whether `line` is a route of the table.
pub(super) fn is_table_line(line: &str) -> bool {
    let text = line.trim();
    table_head(split_prefix(text).map_or(text, |(_, rest)| rest)).is_some()
}

/// Returns whether `line` starts an entry of the detailed form, or a route in one.
pub(super) fn is_detail_line(line: &str) -> bool {
    let text = line.trim();
    entry_head(text).is_some() || detail_head(text).is_some()
}

/// Parses `show route`.
#[derive(Default)]
pub(super) struct TableReader(Instance);

impl Reader for TableReader {
    fn read(&mut self, line: &str, builder: &mut TableBuilder) {
        let text = line.trim();
        if self.0.passes_over(text, builder) {
            return;
        }
        if let Some(path) = text.strip_prefix("AS path:") {
            self.0.note_path(path);
        } else if let Some((is_chosen, hop)) = hop_line(text) {
            self.0.offer_next_hop(hop, is_chosen);
        } else {
            self.read_route(line, builder);
        }
    }

    fn finish(&mut self, builder: &mut TableBuilder) {
        self.0.entry.end(builder);
    }
}

impl TableReader {
    /// Parses a prefix, a route, or both.
    fn read_route(&mut self, line: &str, builder: &mut TableBuilder) {
        let text = line.trim();
        let split = split_prefix(text);
        if let Some((word, _)) = split {
            self.0.entry.begin(prefix(word), builder);
        }
        if let Some(head) = table_head(split.map_or(text, |(_, rest)| rest)) {
            self.0.begin_route(head, builder);
        } else if split.is_none() && line.starts_with(|c: char| !c.is_whitespace()) {
            // Only prefixes are not indented. This one is malformed: its routes must not be assigned to the previous
            // prefix.
            self.0.entry.end(builder);
        }
    }
}

/// Parses `show route detail`.
#[derive(Default)]
pub(super) struct DetailReader(Instance);

impl Reader for DetailReader {
    fn read(&mut self, line: &str, builder: &mut TableBuilder) {
        let text = line.trim();
        if self.0.passes_over(text, builder) {
            return;
        }
        if let Some(word) = entry_head(text) {
            self.0.entry.begin(prefix(word), builder);
        } else if let Some(head) = detail_head(text) {
            self.0.begin_route(head, builder);
        } else if let Some(path) = text.strip_prefix("AS path:") {
            self.0.note_path(path);
        } else if let Some(hop) = text.strip_prefix("Next hop:") {
            self.0.offer_next_hop(first_word(hop), hop.contains(", selected"));
        }
    }

    fn finish(&mut self, builder: &mut TableBuilder) {
        self.0.entry.end(builder);
    }
}

/// The table of the current routing instance.
#[derive(Default)]
struct Instance {
    entry: Entry,
    is_passed_over: bool,
}

impl Instance {
    /// Returns whether `text` is not part of a route: it starts a table, or is in a skipped one.
    fn passes_over(&mut self, text: &str, builder: &mut TableBuilder) -> bool {
        let Some(name) = table_name(text) else { return self.is_passed_over };
        self.entry.end(builder);
        self.is_passed_over = !is_forwarding(name);
        if self.is_passed_over {
            builder.skip(SkipReason::OtherTable);
        }
        true
    }

    fn begin_route(&mut self, head: Head<'_>, builder: &mut TableBuilder) {
        let path = if head.protocol == "BGP" { Err(SkipReason::PathMissing) } else { Ok(AsPath::default()) };
        self.entry.route(head.is_active, path, builder);
    }

    fn note_path(&mut self, text: &str) {
        if let Some(route_builder) = self.entry.route_builder() {
            route_builder.note_path(as_path(text, PathTerminator::Origin));
        }
    }

    fn offer_next_hop(&mut self, word: Option<&str>, is_chosen: bool) {
        if let Some(route_builder) = self.entry.route_builder() {
            route_builder.offer_next_hop(word.and_then(next_hop), is_chosen);
        }
    }
}

/// The start of a route.
#[derive(Clone, Copy)]
struct Head<'a> {
    is_active: bool,
    protocol: &'a str,
}

/// Parses the start of a route in the table: `*[BGP/170] 3d 02:53:31, ...`.
fn table_head(text: &str) -> Option<Head<'_>> {
    let (is_active, rest) = split_mark(text.trim_start());
    let (protocol, preference) = rest.trim_start().strip_prefix('[')?.split_once('/')?;
    let is_head = is_protocol(protocol) && preference.starts_with(|c: char| c.is_ascii_digit());
    is_head.then_some(Head { is_active, protocol })
}

/// Parses the start of a route in the detailed form: `*BGP    Preference: 170/-101`.
fn detail_head(text: &str) -> Option<Head<'_>> {
    let (is_active, rest) = split_mark(text);
    let (protocol, rest) = rest.trim_start().split_once(char::is_whitespace)?;
    let is_head = is_protocol(protocol) && rest.trim_start().starts_with("Preference:");
    is_head.then_some(Head { is_active, protocol })
}

fn is_protocol(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

/// Returns whether the mark before a route means active, and the text after the mark.
fn split_mark(text: &str) -> (bool, &str) {
    match text.strip_prefix(['*', '+', '@']) {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix(['-', '#']).unwrap_or(text)),
    }
}

/// Returns the prefix word of an entry in the detailed form: `192.0.2.0/24 (2 entries, 1 announced)`.
fn entry_head(text: &str) -> Option<&str> {
    let (word, counts) = text.split_once(" (")?;
    (counts.contains(" entr") && counts.contains(" announced)")).then_some(word)
}

/// Splits a prefix-like word from the start of `text`, with or without a following space.
fn split_prefix(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_hexdigit() && !".:/".contains(c)).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    (word.contains('/') && !word.starts_with('/')).then_some((word, rest))
}

/// Parses a next hop line: whether it is the chosen one, and the address after `to`. An interface alone has no
/// address.
fn hop_line(text: &str) -> Option<(bool, Option<&str>)> {
    let chosen = text.strip_prefix('>');
    let rest = chosen.unwrap_or(text).trim_start();
    match rest.strip_prefix("to ") {
        Some(hop) => Some((chosen.is_some(), first_word(hop))),
        None => rest.starts_with("via ").then_some((chosen.is_some(), None)),
    }
}

/// Returns the name in a table heading: `LHCONE.inet.0: 12 destinations, 15 routes (12 active, ...)`.
fn table_name(text: &str) -> Option<&str> {
    let (name, rest) = text.split_once(": ")?;
    (rest.starts_with(|c: char| c.is_ascii_digit()) && rest.contains(" destinations, ")).then_some(name)
}

/// Returns whether the table is used for forwarding by destination: `inet.0` and `inet6.0` of any instance.
///
/// Other tables hold routes for labels, multicast, or BGP next hops.
fn is_forwarding(name: &str) -> bool {
    let instance = name.strip_suffix("inet.0").or_else(|| name.strip_suffix("inet6.0"));
    instance.is_some_and(|instance| instance.is_empty() || instance.ends_with(['.', '/', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_packets_follow() {
        for name in ["inet.0", "inet6.0", "LHCONE.inet.0", "LHCONE.inet6.0", "system/LHCONE.inet.0"] {
            assert!(is_forwarding(name), "{name}");
        }
        for name in ["inet.2", "inet.3", "mpls.0", "bgp.l3vpn.0", "bgp.l3vpn-inet6.0", "iso.0", "linet.0", ""] {
            assert!(!is_forwarding(name), "{name}");
        }
        assert_eq!(table_name("inet.0: 1000 destinations, 1500 routes (1000 active)"), Some("inet.0"));
        assert_eq!(table_name("Limit/Threshold: 1048576/1048576 destinations"), None);
    }

    #[test]
    fn marks_tell_the_active_route() {
        for (text, is_active) in [
            ("*[BGP/170] 1d", true),
            ("+[BGP/170] 1d", true),
            ("@[BGP/170] 1d", true),
            ("-[BGP/170] 1d", false),
            ("#[Multipath/255] 1d", false),
            ("[BGP/170/-101] 1d", false),
        ] {
            assert_eq!(table_head(text).map(|head| head.is_active), Some(is_active), "{text}");
        }
        for text in ["+ = Active Route, - = Last Active", "[3] 1 2", "[20/0] via 192.0.2.1", "*", "", "Discard"] {
            assert!(table_head(text).is_none(), "{text}");
        }
        assert!(detail_head("*BGP    Preference: 170/-101").is_some_and(|head| head.is_active));
        assert!(detail_head("BGP-Static Preference: 10").is_some_and(|head| !head.is_active));
        assert!(detail_head("Localpref: 100").is_none());
    }

    #[test]
    fn entries_of_the_detailed_form_begin_with_their_prefix() {
        assert_eq!(entry_head("192.0.2.0/24 (2 entries, 1 announced)"), Some("192.0.2.0/24"));
        assert_eq!(entry_head("what? (1 entry, 0 announced)"), Some("what?"));
        assert_eq!(entry_head("Announcement bits (3): 0-KRT"), None);
    }

    #[test]
    fn next_hops_stand_behind_to() {
        assert_eq!(hop_line("> to 192.0.2.1 via ae1.0, Push 7"), Some((true, Some("192.0.2.1"))));
        assert_eq!(hop_line(">  to 192.0.2.1 via ae1.0"), Some((true, Some("192.0.2.1"))));
        assert_eq!(hop_line("to 192.0.2.1 via ae1.0"), Some((false, Some("192.0.2.1"))));
        assert_eq!(hop_line("> via st0.118"), Some((true, None)));
        assert_eq!(hop_line("Discard"), None);
        assert_eq!(hop_line("Local via ae1.0"), None);
    }

    #[test]
    fn prefixes_end_where_a_mark_begins() {
        assert_eq!(split_prefix("192.0.2.0/24 *[BGP/170]"), Some(("192.0.2.0/24", " *[BGP/170]")));
        assert_eq!(split_prefix("192.0.2.128/25*[BGP/170]"), Some(("192.0.2.128/25", "*[BGP/170]")));
        assert_eq!(split_prefix("Discard"), None);
        assert_eq!(split_prefix("é/8"), None);
    }
}
