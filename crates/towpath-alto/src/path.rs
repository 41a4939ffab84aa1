//! The way between two addresses, as a list of elements that others may share (RFC 9275 §4).
//!
//! A route gives the link from its router to the next one, and an element for each two neighbours in its AS path: so two ways that meet far away show where. (A router knows nothing
//! of the links within other systems.) Names follow from what an element is, and from nothing else.

use std::{collections::HashMap, net::IpAddr};

use sha2::{Digest as _, Sha256};

use crate::{
    names::{AneName, RouterName},
    route::Hop,
    routes::Way,
    world::World,
};

/// An abstract network element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// The link from a router to the next one.
    Link {
        /// From it,
        router: RouterName,
        /// to the one with this address.
        next_hop: IpAddr,
    },
    /// The link, or links, between two autonomous systems.
    Adjacency(Hop, Hop),
}

impl Element {
    /// Its name: `link:ROUTER-ADDRESS` or `as:NUMBER-NUMBER`, with `_` for each dot, which RFC 7285 §10.1 keeps for other uses. Where that is too long, or has a `_` of its own, a
    /// digest of it.
    pub fn name(&self) -> AneName {
        let (kind, text) = match self {
            Element::Link { router, next_hop } => ("link", format!("{router}-{next_hop}")),
            Element::Adjacency(from, to) => ("as", format!("{}-{}", system(from), system(to))),
        };
        let plain = Some(text.replace('.', "_")).filter(|_| !text.contains('_'));
        let named = plain.and_then(|plain| AneName::new(&format!("{kind}:{plain}")).ok());
        named.unwrap_or_else(|| {
            let digits: String = Sha256::digest(&text).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            AneName::new(&format!("{kind}:{digits}")).expect("digits make a name")
        })
    }
}

fn system(hop: &Hop) -> String {
    match hop {
        Hop::As(number) => number.to_string(),
        Hop::Set(members) => {
            let members: Vec<_> = members.iter().map(u32::to_string).collect();
            format!("set:{}", members.join("."))
        }
    }
}

/// More routers than this in a row are taken for a circle.
const MOST_ROUTERS: usize = 64;

/// The ways of a world that are asked for, each found once.
#[derive(Debug)]
pub struct Paths<'a> {
    world: &'a World,
    elements: Vec<Element>,
    numbers: HashMap<Element, u32>,
    /// Ways by their elements' numbers.
    paths: Vec<Box<[u32]>>,
    path_numbers: HashMap<Box<[u32]>, u32>,
    /// The path behind a way of a router that leads to no other known router.
    found: HashMap<(&'a RouterName, u32), u32>,
}

impl<'a> Paths<'a> {
    /// Ways of `world`, none found yet.
    pub fn of(world: &'a World) -> Self {
        Self {
            world,
            elements: Vec::new(),
            numbers: HashMap::new(),
            paths: Vec::new(),
            path_numbers: HashMap::new(),
            found: HashMap::new(),
        }
    }

    /// The number of the path from `router`, behind which the source is, to `destination`; none if there is no route, or only a circle.
    pub fn between(&mut self, router: &'a RouterName, destination: IpAddr) -> Option<u32> {
        let world = self.world;
        let table = world.table(router)?;
        let number = table.find(destination)?;
        if let Some(path) = self.found.get(&(router, number)) {
            return Some(*path);
        }
        let way = table.way(number);
        let is_last = way.next_hop.and_then(|next| world.router_at(next)).is_none();
        let elements = self.follow(router, way, destination)?;
        let path = self.path(elements);
        // Behind another router, addresses that take the same way here may part.
        if is_last {
            self.found.insert((router, number), path);
        }
        Some(path)
    }

    /// The elements on the way that `router` has to `destination`.
    fn follow(&mut self, mut router: &'a RouterName, mut way: &'a Way, destination: IpAddr) -> Option<Vec<u32>> {
        let world = self.world;
        let mut elements = Vec::new();
        for _ in 0..MOST_ROUTERS {
            if let Some(next_hop) = way.next_hop {
                elements.push(self.element(Element::Link { router: router.clone(), next_hop }));
            }
            let Some(next) = way.next_hop.and_then(|next| world.router_at(next)) else {
                for pair in way.as_path.hops().windows(2) {
                    elements.push(self.element(Element::Adjacency(pair[0].clone(), pair[1].clone())));
                }
                return Some(elements);
            };
            let Some(table) = world.table(next) else { return Some(elements) };
            let Some(number) = table.find(destination) else { return Some(elements) };
            (router, way) = (next, table.way(number));
        }
        None
    }

    fn element(&mut self, element: Element) -> u32 {
        if let Some(number) = self.numbers.get(&element) {
            return *number;
        }
        let number = u32::try_from(self.elements.len()).expect("memory ends before numbers do");
        self.elements.push(element.clone());
        self.numbers.insert(element, number);
        number
    }

    fn path(&mut self, elements: Vec<u32>) -> u32 {
        let elements = elements.into_boxed_slice();
        if let Some(number) = self.path_numbers.get(&elements) {
            return *number;
        }
        let number = u32::try_from(self.paths.len()).expect("memory ends before numbers do");
        self.paths.push(elements.clone());
        self.path_numbers.insert(elements, number);
        number
    }

    /// The paths that were found, in the order of their numbers: the elements of each from source to destination.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = impl ExactSizeIterator<Item = &Element>> {
        self.paths.iter().map(|path| path.iter().map(|number| &self.elements[*number as usize]))
    }

    /// The elements of all paths that were found.
    pub fn elements(&self) -> &[Element] {
        &self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    const ROUTERS: &str = r#"
        [routers.edge]
        serves = ["10.1.0.0/16"]
        routes = [{ prefix = "0.0.0.0/0", next-hop = "192.0.2.1" }]
        [routers.core]
        default = true
        addresses = ["192.0.2.1"]
        [[routers.core.routes]]
        prefix = "134.158.84.0/24"
        next-hop = "192.65.184.145"
        as-path = "20965 2091 {789,790}"
        [[routers.core.routes]]
        prefix = "10.1.0.0/16"
        [routers.circle]
        serves = ["10.9.0.0/16"]
        addresses = ["192.0.2.9"]
        routes = [{ prefix = "0.0.0.0/0", next-hop = "192.0.2.9" }]
    "#;

    fn between(from: &str, to: &str) -> Option<Vec<String>> {
        let world = World::of([&Facts::parse(ROUTERS).unwrap()]).unwrap();
        let mut paths = Paths::of(&world);
        let router = world.router_of(from.parse().unwrap()).unwrap();
        let number = paths.between(router, to.parse().unwrap())?;
        assert_eq!(paths.between(router, to.parse().unwrap()), Some(number));
        let path = paths.paths().nth(number as usize).unwrap();
        Some(path.map(|element| element.name().to_string()).collect())
    }

    #[test]
    fn every_shared_link_is_an_element() {
        let rest = ["link:core-192_65_184_145", "as:20965-2091", "as:2091-set:789_790"];
        assert_eq!(between("203.0.113.1", "134.158.84.23").unwrap(), rest);
        let from_edge = [&["link:edge-192_0_2_1"][..], &rest].concat();
        assert_eq!(between("10.1.0.1", "134.158.84.23").unwrap(), from_edge);
    }

    #[test]
    fn where_there_is_no_route_there_is_no_path() {
        assert_eq!(between("203.0.113.1", "198.51.100.1"), None);
        assert_eq!(between("203.0.113.1", "10.1.0.1").unwrap(), [""; 0], "it is connected directly");
        assert_eq!(between("10.1.0.1", "198.51.100.1").unwrap(), ["link:edge-192_0_2_1"], "the core knows no more");
    }

    #[test]
    fn a_circle_is_no_path() {
        assert_eq!(between("10.9.0.1", "198.51.100.1"), None);
    }

    #[test]
    fn long_names_are_digests() {
        let element =
            Element::Link { router: RouterName::new(&"x".repeat(60)).unwrap(), next_hop: "::1".parse().unwrap() };
        assert_eq!(element.name().as_str().len(), "link:".len() + 32);
        let underlined = Element::Link { router: RouterName::new("a_b").unwrap(), next_hop: "::1".parse().unwrap() };
        assert_eq!(underlined.name().as_str().len(), "link:".len() + 32, "it could be `a.b`");
    }
}
