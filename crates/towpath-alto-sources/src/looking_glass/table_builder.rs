//! State while parsing a text: the completed routes ([`TableBuilder`]) and the current one ([`Entry`]).

use std::{collections::HashSet, net::IpAddr};

use ipnet::IpNet;

use super::{ParsedTable, SkipReason, SkippedLine};
use towpath_alto::route::{AsPath, Route};

/// The table parsed so far.
pub(super) struct TableBuilder {
    /// The current line, from 1.
    line: usize,
    /// Maximum number of routes.
    room: usize,
    is_full: bool,
    table: ParsedTable,
    /// Prefixes that have a route.
    prefixes: HashSet<IpNet>,
    /// Deduplicated paths: a million routes have a tenth as many paths.
    paths: HashSet<AsPath>,
}

impl TableBuilder {
    /// Creates an empty table with capacity for `room` routes.
    pub(super) fn with_room(room: usize) -> Self {
        let (prefixes, paths) = (HashSet::new(), HashSet::new());
        Self { line: 0, room, is_full: false, table: ParsedTable::default(), prefixes, paths }
    }

    /// Advances to the next line.
    pub(super) fn next_line(&mut self) {
        self.line += 1;
    }

    /// Returns whether a route was dropped for lack of capacity.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Marks the current line as skipped. Only the first reason is kept, since it causes the others.
    pub(super) fn skip(&mut self, reason: SkipReason) {
        self.skip_at(self.line, reason);
    }

    fn skip_at(&mut self, line: usize, reason: SkipReason) {
        if self.table.skipped.last().is_none_or(|last| last.line != line) {
            self.table.skipped.push(SkippedLine { line, reason });
        }
    }

    /// Completes `route_builder`: adds it as a route, or skips it if it has no path.
    fn close(&mut self, route_builder: RouteBuilder) {
        let RouteBuilder { line, prefix, next_hop, path, .. } = route_builder;
        match path {
            Ok(as_path) => self.add(line, Route { prefix, next_hop, as_path }),
            Err(reason) => self.skip_at(line, reason),
        }
    }

    fn add(&mut self, line: usize, mut route: Route) {
        if self.prefixes.contains(&route.prefix) {
            self.skip_at(line, SkipReason::Repeated);
        } else if self.table.routes.len() < self.room {
            self.prefixes.insert(route.prefix);
            route.as_path = self.intern(route.as_path);
            self.table.routes.push(route);
        } else if !self.is_full {
            self.is_full = true;
            self.skip_at(line, SkipReason::TooManyRoutes);
        }
    }

    fn intern(&mut self, path: AsPath) -> AsPath {
        if let Some(known) = self.paths.get(&path) {
            return known.clone();
        }
        self.paths.insert(path.clone());
        path
    }

    /// Returns the table, with skipped lines sorted: a route is skipped after its last line, but reported at its
    /// first.
    pub(super) fn into_table(mut self) -> ParsedTable {
        self.table.skipped.sort_by_key(|skipped| skipped.line);
        self.table
    }
}

/// An active route being parsed.
pub(super) struct RouteBuilder {
    /// Its first line.
    line: usize,
    prefix: IpNet,
    next_hop: Option<IpAddr>,
    is_hop_chosen: bool,
    /// The path, or the reason to report if none follows.
    path: Result<AsPath, SkipReason>,
    is_path_told: bool,
}

impl RouteBuilder {
    /// Offers a next hop or an interface. The first one marked as chosen wins, else the first.
    pub(super) fn offer_next_hop(&mut self, hop: Option<IpAddr>, is_chosen: bool) {
        if self.is_hop_chosen {
            return;
        }
        if is_chosen || self.next_hop.is_none() {
            self.next_hop = hop;
        }
        self.is_hop_chosen = is_chosen;
    }

    /// Sets the path. Later paths are variants and are ignored; routes of other protocols than BGP have none.
    pub(super) fn note_path(&mut self, path: Result<AsPath, SkipReason>) {
        if !self.is_path_told {
            self.path = path;
            self.is_path_told = true;
        }
    }
}

/// The current prefix, and its active route while that is being parsed.
#[derive(Default)]
pub(super) struct Entry {
    prefix: Option<IpNet>,
    route_builder: Option<RouteBuilder>,
}

impl Entry {
    /// Starts the routes of `prefix`; `None` if a prefix was expected but is malformed.
    pub(super) fn begin(&mut self, prefix: Option<IpNet>, builder: &mut TableBuilder) {
        self.end(builder);
        self.prefix = prefix;
        if prefix.is_none() {
            builder.skip(SkipReason::Prefix);
        }
    }

    /// Starts the next route of the prefix on this line. `path` is its path, or the reason to report if no path
    /// follows.
    pub(super) fn route(&mut self, is_active: bool, path: Result<AsPath, SkipReason>, builder: &mut TableBuilder) {
        self.close(builder);
        if !is_active {
            return;
        }
        let Some(prefix) = self.prefix else {
            builder.skip(SkipReason::NoPrefix);
            return;
        };
        let (line, is_path_told) = (builder.line, path.is_ok());
        self.route_builder =
            Some(RouteBuilder { line, prefix, next_hop: None, is_hop_chosen: false, path, is_path_told });
    }

    /// Returns the active route being parsed, if any.
    pub(super) fn route_builder(&mut self) -> Option<&mut RouteBuilder> {
        self.route_builder.as_mut()
    }

    /// Ends the routes of the prefix.
    pub(super) fn end(&mut self, builder: &mut TableBuilder) {
        self.close(builder);
        self.prefix = None;
    }

    fn close(&mut self, builder: &mut TableBuilder) {
        if let Some(route_builder) = self.route_builder.take() {
            builder.close(route_builder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed_table(room: usize, prefixes: &[&str]) -> ParsedTable {
        let (mut builder, mut entry) = (TableBuilder::with_room(room), Entry::default());
        for prefix in prefixes {
            builder.next_line();
            entry.begin(Some(prefix.parse().unwrap()), &mut builder);
            entry.route(true, Ok(AsPath::default()), &mut builder);
        }
        entry.end(&mut builder);
        builder.into_table()
    }

    #[test]
    fn routes_without_room_are_told_once() {
        let table = parsed_table(2, &["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"]);
        assert_eq!(table.routes.len(), 2);
        assert_eq!(table.skipped, [SkippedLine { line: 3, reason: SkipReason::TooManyRoutes }]);
    }

    #[test]
    fn the_first_route_to_a_prefix_stays() {
        let table = parsed_table(9, &["10.0.0.0/8", "11.0.0.0/8", "10.0.0.0/8"]);
        assert_eq!(table.routes.len(), 2);
        assert_eq!(table.skipped, [SkippedLine { line: 3, reason: SkipReason::Repeated }]);
    }

    #[test]
    fn a_chosen_next_hop_wins_even_if_it_is_an_interface() {
        let hops: [Option<IpAddr>; 2] = [Some("192.0.2.1".parse().unwrap()), Some("192.0.2.2".parse().unwrap())];
        for (offers, winner) in [
            (vec![(hops[0], false), (hops[1], false)], hops[0]),
            (vec![(hops[0], false), (hops[1], true)], hops[1]),
            (vec![(hops[0], false), (None, true), (hops[1], true)], None),
            (vec![(None, false), (hops[1], false)], hops[1]),
        ] {
            let prefix = "10.0.0.0/8".parse().unwrap();
            let path = Ok(AsPath::default());
            let mut route_builder =
                RouteBuilder { line: 1, prefix, next_hop: None, is_hop_chosen: false, path, is_path_told: true };
            for (hop, is_chosen) in offers {
                route_builder.offer_next_hop(hop, is_chosen);
            }
            assert_eq!(route_builder.next_hop, winner);
        }
    }
}
