//! The routes of routers: which way each of them sends packets for a prefix.
//!
//! A [`Table`] is one router's. It keeps each way once, however many prefixes take it: of a million routes there are some ten thousand ways. Tables are shared between
//! the agent that keeps them and the worlds made of them; a change copies one that is still looked at.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;

use crate::{
    address::PrefixMap,
    route::{AsPath, Route},
};

/// Where packets go from a router.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Way {
    /// The router to which they go next, if it is told.
    pub next_hop: Option<IpAddr>,
    /// The way behind it; empty within the router's own AS.
    pub as_path: AsPath,
}

/// The routes of one router.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// By prefix, the number of a way.
    prefixes: PrefixMap<u32>,
    ways: Vec<Way>,
    numbers: HashMap<Way, u32>,
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.prefixes.len() == other.prefixes.len() && self.routes().eq(other.routes())
    }
}

/// So that a table is equal to itself without being looked at.
impl Eq for Table {}

impl Table {
    /// Notes a route; it takes the place of an earlier one to the same prefix.
    pub fn insert(&mut self, route: Route) {
        let Route { prefix, next_hop, as_path } = route;
        let number = self.number(Way { next_hop, as_path });
        self.prefixes.insert(prefix, number);
        self.tidy();
    }

    /// Forgets the route to a prefix.
    pub fn remove(&mut self, prefix: IpNet) {
        self.prefixes.remove(&prefix);
        self.tidy();
    }

    /// Ways that nobody takes any more stay until they are the most.
    fn tidy(&mut self) {
        if self.prefixes.len() < self.ways.len() / 2 {
            let routes: Vec<(IpNet, Way)> = self.routes().map(|(prefix, way)| (prefix, way.clone())).collect();
            *self = Self::default();
            for (prefix, way) in routes {
                let number = self.number(way);
                self.prefixes.insert(prefix, number);
            }
        }
    }

    /// How many prefixes it has routes to.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether it has no route.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The number of the way to `address`, by the longest prefix that covers it.
    pub fn find(&self, address: IpAddr) -> Option<u32> {
        self.prefixes.get_lpm(&address.into()).map(|(_, number)| *number)
    }

    /// The way of that number.
    pub fn way(&self, number: u32) -> &Way {
        &self.ways[number as usize]
    }

    /// The way to a prefix itself.
    pub fn way_to(&self, prefix: IpNet) -> Option<&Way> {
        self.prefixes.get(&prefix).map(|number| self.way(*number))
    }

    /// All routes, in the order of prefixes.
    pub fn routes(&self) -> impl Iterator<Item = (IpNet, &Way)> {
        self.prefixes.iter().map(|(prefix, number)| (prefix, self.way(*number)))
    }

    fn number(&mut self, way: Way) -> u32 {
        if let Some(number) = self.numbers.get(&way) {
            return *number;
        }
        let number = u32::try_from(self.ways.len()).expect("memory ends before numbers do");
        self.ways.push(way.clone());
        self.numbers.insert(way, number);
        number
    }
}

impl FromIterator<Route> for Table {
    fn from_iter<I: IntoIterator<Item = Route>>(routes: I) -> Self {
        let mut table = Self::default();
        routes.into_iter().for_each(|route| table.insert(route));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(prefix: &str, next_hop: &str, as_path: &str) -> Route {
        Route {
            prefix: prefix.parse().unwrap(),
            next_hop: Some(next_hop.parse().unwrap()),
            as_path: as_path.parse().unwrap(),
        }
    }

    #[test]
    fn the_longest_prefix_tells_the_way() {
        let mut table: Table = [
            route("0.0.0.0/0", "192.0.2.1", ""),
            route("198.51.100.0/24", "192.0.2.2", "64500 64501"),
            route("2001:db8::/32", "2001:db8::1", "64502"),
        ]
        .into_iter()
        .collect();
        let next = |table: &Table, address: &str| {
            let number = table.find(address.parse().unwrap())?;
            table.way(number).next_hop.map(|next| next.to_string())
        };
        assert_eq!(next(&table, "198.51.100.7").as_deref(), Some("192.0.2.2"));
        assert_eq!(next(&table, "203.0.113.7").as_deref(), Some("192.0.2.1"));
        assert_eq!(next(&table, "2001:db8::7").as_deref(), Some("2001:db8::1"));
        assert_eq!(next(&table, "2001:dead::7"), None);
        table.insert(route("198.51.100.0/24", "192.0.2.3", ""));
        assert_eq!(next(&table, "198.51.100.7").as_deref(), Some("192.0.2.3"));
        table.remove("198.51.100.0/24".parse().unwrap());
        assert_eq!(next(&table, "198.51.100.7").as_deref(), Some("192.0.2.1"));
    }

    #[test]
    fn a_way_is_kept_once_and_not_for_ever() {
        let mut table = Table::default();
        for third in 0..=255u8 {
            table.insert(route(&format!("10.0.{third}.0/24"), "192.0.2.1", "64500"));
        }
        assert_eq!((table.len(), table.ways.len()), (256, 1));
        for third in 0..=255u8 {
            table.insert(route(&format!("10.0.{third}.0/24"), "192.0.2.1", &format!("64500 {third}")));
        }
        assert_eq!(table.ways.len(), 257);
        for third in 0..=253u8 {
            table.remove(format!("10.0.{third}.0/24").parse().unwrap());
        }
        assert!(table.ways.len() <= 2 * table.len() + 1, "{} ways", table.ways.len());
        for path in 0..10_000 {
            table.insert(route("10.0.254.0/24", "192.0.2.1", &format!("64500 {path}")));
            assert!(table.ways.len() <= 2 * table.len() + 1, "{} ways", table.ways.len());
        }
        table.insert(route("10.0.254.0/24", "192.0.2.1", "64500 254"));
        let left = [route("10.0.254.0/24", "192.0.2.1", "64500 254"), route("10.0.255.0/24", "192.0.2.1", "64500 255")];
        assert_eq!(table, left.into_iter().collect());
    }
}
