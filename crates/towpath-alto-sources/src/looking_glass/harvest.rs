//! What is gathered from a text: the routes that are complete ([`Harvest`]) and the one that is open ([`Entry`]).

use std::{collections::HashSet, net::IpAddr};

use ipnet::IpNet;

use super::{Skipped, Table, Why};
use towpath_alto::route::{AsPath, Route};

/// The table as far as it was read.
pub(super) struct Harvest {
    /// The line that is being read, from 1.
    line: usize,
    /// How many routes are taken.
    room: usize,
    is_full: bool,
    table: Table,
    /// Those that have a route.
    prefixes: HashSet<IpNet>,
    /// Each path once: a million routes have a tenth as many paths.
    paths: HashSet<AsPath>,
}

impl Harvest {
    /// An empty one that takes `room` routes.
    pub(super) fn with_room(room: usize) -> Self {
        let (prefixes, paths) = (HashSet::new(), HashSet::new());
        Self { line: 0, room, is_full: false, table: Table::default(), prefixes, paths }
    }

    /// The next line is being read.
    pub(super) fn next_line(&mut self) {
        self.line += 1;
    }

    /// Whether a route found no room.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// The line that is being read is skipped. Only the first reason is kept: the others follow from it.
    pub(super) fn skip(&mut self, why: Why) {
        self.skip_at(self.line, why);
    }

    fn skip_at(&mut self, line: usize, why: Why) {
        if self.table.skipped.last().is_none_or(|last| last.line != line) {
            self.table.skipped.push(Skipped { line, why });
        }
    }

    /// `draft` is complete: it becomes a route, or is skipped if it has no path.
    fn close(&mut self, draft: Draft) {
        let Draft { line, prefix, next_hop, path, .. } = draft;
        match path {
            Ok(as_path) => self.add(line, Route { prefix, next_hop, as_path }),
            Err(why) => self.skip_at(line, why),
        }
    }

    fn add(&mut self, line: usize, mut route: Route) {
        if self.prefixes.contains(&route.prefix) {
            self.skip_at(line, Why::Repeated);
        } else if self.table.routes.len() < self.room {
            self.prefixes.insert(route.prefix);
            route.as_path = self.shared(route.as_path);
            self.table.routes.push(route);
        } else if !self.is_full {
            self.is_full = true;
            self.skip_at(line, Why::TooManyRoutes);
        }
    }

    fn shared(&mut self, path: AsPath) -> AsPath {
        if let Some(known) = self.paths.get(&path) {
            return known.clone();
        }
        self.paths.insert(path.clone());
        path
    }

    /// The table. What was skipped is put in order: a route is, when its last line was read, but at its first.
    pub(super) fn into_table(mut self) -> Table {
        self.table.skipped.sort_by_key(|skipped| skipped.line);
        self.table
    }
}

/// An active route whose lines are being read.
pub(super) struct Draft {
    /// Where it begins.
    line: usize,
    prefix: IpNet,
    next_hop: Option<IpAddr>,
    is_hop_chosen: bool,
    /// The path, or why there is none as long as none was told.
    path: Result<AsPath, Why>,
    is_path_told: bool,
}

impl Draft {
    /// A next hop, or an interface. The first one that the router chose wins, then the first.
    pub(super) fn offer_next_hop(&mut self, hop: Option<IpAddr>, is_chosen: bool) {
        if self.is_hop_chosen {
            return;
        }
        if is_chosen || self.next_hop.is_none() {
            self.next_hop = hop;
        }
        self.is_hop_chosen = is_chosen;
    }

    /// Its path. Later ones are variants of it and count no more, and those of other protocols than BGP have none.
    pub(super) fn tell_path(&mut self, path: Result<AsPath, Why>) {
        if !self.is_path_told {
            self.path = path;
            self.is_path_told = true;
        }
    }
}

/// The prefix whose routes are being read, and its active route if that is open.
#[derive(Default)]
pub(super) struct Entry {
    prefix: Option<IpNet>,
    draft: Option<Draft>,
}

impl Entry {
    /// Routes to `prefix` follow; None if there should be one, but what is there was not understood.
    pub(super) fn begin(&mut self, prefix: Option<IpNet>, harvest: &mut Harvest) {
        self.end(harvest);
        self.prefix = prefix;
        if prefix.is_none() {
            harvest.skip(Why::Prefix);
        }
    }

    /// The next route to the prefix begins in this line. `path` is its path, or what to say if no path follows.
    pub(super) fn route(&mut self, is_active: bool, path: Result<AsPath, Why>, harvest: &mut Harvest) {
        self.close(harvest);
        if !is_active {
            return;
        }
        let Some(prefix) = self.prefix else {
            harvest.skip(Why::NoPrefix);
            return;
        };
        let (line, is_path_told) = (harvest.line, path.is_ok());
        self.draft = Some(Draft { line, prefix, next_hop: None, is_hop_chosen: false, path, is_path_told });
    }

    /// The active route, if it is open.
    pub(super) fn draft(&mut self) -> Option<&mut Draft> {
        self.draft.as_mut()
    }

    /// No more routes to the prefix follow.
    pub(super) fn end(&mut self, harvest: &mut Harvest) {
        self.close(harvest);
        self.prefix = None;
    }

    fn close(&mut self, harvest: &mut Harvest) {
        if let Some(draft) = self.draft.take() {
            harvest.close(draft);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn harvest(room: usize, prefixes: &[&str]) -> Table {
        let (mut harvest, mut entry) = (Harvest::with_room(room), Entry::default());
        for prefix in prefixes {
            harvest.next_line();
            entry.begin(Some(prefix.parse().unwrap()), &mut harvest);
            entry.route(true, Ok(AsPath::default()), &mut harvest);
        }
        entry.end(&mut harvest);
        harvest.into_table()
    }

    #[test]
    fn routes_without_room_are_told_once() {
        let table = harvest(2, &["10.0.0.0/8", "11.0.0.0/8", "12.0.0.0/8", "13.0.0.0/8"]);
        assert_eq!(table.routes.len(), 2);
        assert_eq!(table.skipped, [Skipped { line: 3, why: Why::TooManyRoutes }]);
    }

    #[test]
    fn the_first_route_to_a_prefix_stays() {
        let table = harvest(9, &["10.0.0.0/8", "11.0.0.0/8", "10.0.0.0/8"]);
        assert_eq!(table.routes.len(), 2);
        assert_eq!(table.skipped, [Skipped { line: 3, why: Why::Repeated }]);
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
            let mut draft = Draft { line: 1, prefix, next_hop: None, is_hop_chosen: false, path, is_path_told: true };
            for (hop, is_chosen) in offers {
                draft.offer_next_hop(hop, is_chosen);
            }
            assert_eq!(draft.next_hop, winner);
        }
    }
}
