//! Routing tables: the next hop and AS path of each router for a prefix.
//!
//! A [`RouteTable`] belongs to one router. It stores distinct path attributes once: a million routes have some ten
//! thousand of them. The agent that maintains a table shares it with the network states built from it; changing a
//! shared table copies it.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;

use crate::{
    address::PrefixMap,
    route::{AsPath, Route},
};

/// Next hop and AS path of routes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathAttributes {
    /// Next router, if known.
    pub next_hop: Option<IpAddr>,
    /// Path after the next hop; empty within the router's own AS.
    pub as_path: AsPath,
}

/// The routes of one router.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// Index of the attributes for each prefix.
    prefixes: PrefixMap<u32>,
    attributes: Vec<PathAttributes>,
    numbers: HashMap<PathAttributes, u32>,
}

impl PartialEq for RouteTable {
    fn eq(&self, other: &Self) -> bool {
        self.prefixes.len() == other.prefixes.len() && self.routes().eq(other.routes())
    }
}

/// Allows a table to compare equal to itself without being traversed.
impl Eq for RouteTable {}

impl RouteTable {
    /// Inserts a route, replacing an earlier one to the same prefix.
    pub fn insert(&mut self, route: Route) {
        let Route { prefix, next_hop, as_path } = route;
        let number = self.number(PathAttributes { next_hop, as_path });
        self.prefixes.insert(prefix, number);
        self.tidy();
    }

    /// Removes the route to a prefix.
    pub fn remove(&mut self, prefix: IpNet) {
        self.prefixes.remove(&prefix);
        self.tidy();
    }

    /// Rebuilds the table if there are more than twice as many attributes as prefixes, so that most are unused.
    fn tidy(&mut self) {
        if self.prefixes.len() < self.attributes.len() / 2 {
            let routes: Vec<(IpNet, PathAttributes)> =
                self.routes().map(|(prefix, attributes)| (prefix, attributes.clone())).collect();
            *self = Self::default();
            for (prefix, attributes) in routes {
                let number = self.number(attributes);
                self.prefixes.insert(prefix, number);
            }
        }
    }

    /// Returns the number of prefixes with routes.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Returns whether there are no routes.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Returns the index of the attributes of the route to `address`, by longest prefix match.
    pub fn find(&self, address: IpAddr) -> Option<u32> {
        self.prefixes.get_lpm(&address.into()).map(|(_, number)| *number)
    }

    /// Returns the attributes with this index.
    pub fn attributes(&self, number: u32) -> &PathAttributes {
        &self.attributes[number as usize]
    }

    /// Returns the attributes of the route to exactly this prefix.
    pub fn attributes_of(&self, prefix: IpNet) -> Option<&PathAttributes> {
        self.prefixes.get(&prefix).map(|number| self.attributes(*number))
    }

    /// Returns all routes, ordered by prefix.
    pub fn routes(&self) -> impl Iterator<Item = (IpNet, &PathAttributes)> {
        self.prefixes.iter().map(|(prefix, number)| (prefix, self.attributes(*number)))
    }

    fn number(&mut self, attributes: PathAttributes) -> u32 {
        if let Some(number) = self.numbers.get(&attributes) {
            return *number;
        }
        let number = u32::try_from(self.attributes.len()).expect("memory ends before numbers do");
        self.attributes.push(attributes.clone());
        self.numbers.insert(attributes, number);
        number
    }
}

impl FromIterator<Route> for RouteTable {
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
        let mut table: RouteTable = [
            route("0.0.0.0/0", "192.0.2.1", ""),
            route("198.51.100.0/24", "192.0.2.2", "64500 64501"),
            route("2001:db8::/32", "2001:db8::1", "64502"),
        ]
        .into_iter()
        .collect();
        let next = |table: &RouteTable, address: &str| {
            let number = table.find(address.parse().unwrap())?;
            table.attributes(number).next_hop.map(|next| next.to_string())
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
        let mut table = RouteTable::default();
        for third in 0..=255u8 {
            table.insert(route(&format!("10.0.{third}.0/24"), "192.0.2.1", "64500"));
        }
        assert_eq!((table.len(), table.attributes.len()), (256, 1));
        for third in 0..=255u8 {
            table.insert(route(&format!("10.0.{third}.0/24"), "192.0.2.1", &format!("64500 {third}")));
        }
        assert_eq!(table.attributes.len(), 257);
        for third in 0..=253u8 {
            table.remove(format!("10.0.{third}.0/24").parse().unwrap());
        }
        assert!(table.attributes.len() <= 2 * table.len() + 1, "{} ways", table.attributes.len());
        for path in 0..10_000 {
            table.insert(route("10.0.254.0/24", "192.0.2.1", &format!("64500 {path}")));
            assert!(table.attributes.len() <= 2 * table.len() + 1, "{} ways", table.attributes.len());
        }
        table.insert(route("10.0.254.0/24", "192.0.2.1", "64500 254"));
        let left = [route("10.0.254.0/24", "192.0.2.1", "64500 254"), route("10.0.255.0/24", "192.0.2.1", "64500 255")];
        assert_eq!(table, left.into_iter().collect());
    }
}
