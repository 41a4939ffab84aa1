//! The layout of a world: the storages and the links of each pipe.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand_pcg::Pcg64Mcg;
use towpath_alto::topology::Topology;

use super::{Direction, NetworkSettings, PipeEnds, ScenarioError};
use crate::network::{Incidences, Paths, ResourceIndex, ResourceKind, Resources};

/// Maximum number of attempts to find two connected nodes, per pipe.
const ATTEMPTS: usize = 1_000;

/// A storage: a node of the topology, or one end of a pipe over the only link.
pub(super) type Storage = u32;

/// A pipe in a network.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) source: Storage,
    pub(super) destination: Storage,
    pub(super) links: Vec<ResourceIndex>,
}

impl Place {
    /// Returns the storages with the directions that the pipe uses.
    pub(super) fn storages(&self) -> [(Storage, Direction); 2] {
        [(self.source, Direction::Out), (self.destination, Direction::In)]
    }
}

/// A network with pipes.
pub(super) struct Layout<'a> {
    topology: Option<&'a Topology>,
    /// The nodes that pipes connect.
    ends: Vec<u32>,
    /// The links, and the storages with a capacity.
    pub(super) resources: Resources,
    pub(super) places: Vec<Place>,
    pub(super) storages: BTreeMap<(Storage, Direction), ResourceIndex>,
}

impl<'a> Layout<'a> {
    pub(super) fn of_link(bits_per_s: f64) -> Self {
        let mut resources = Resources::default();
        resources.add("link".to_owned(), ResourceKind::Network, bits_per_s / 8.0);
        Self { topology: None, ends: Vec::new(), resources, places: Vec::new(), storages: BTreeMap::new() }
    }

    pub(super) fn of_topology(topology: &'a Topology, settings: &NetworkSettings) -> Result<Self, ScenarioError> {
        let mut resources = Resources::default();
        for link in topology.links() {
            let name = |node: u32| &topology.nodes()[node as usize].name;
            let bits_per_s =
                link.capacity_bits_per_s.filter(|bits| *bits > 0.0).unwrap_or(settings.capacity_bits_per_s);
            let name = format!("{} -> {}", name(link.from), name(link.to));
            if !(1.0..=1e15).contains(&bits_per_s) {
                return Err(ScenarioError::Capacity(name));
            }
            resources.add(name, ResourceKind::Network, bits_per_s / 8.0);
        }
        let mut links = vec![0_u32; topology.nodes().len()];
        topology.links().iter().for_each(|link| links[link.from as usize] += 1);
        let is_end = |node: &u32| settings.ends == PipeEnds::All || links[*node as usize] == 1;
        let ends = (0..topology.nodes().len() as u32).filter(is_end).collect();
        Ok(Self { topology: Some(topology), ends, resources, places: Vec::new(), storages: BTreeMap::new() })
    }

    /// Adds a pipe between two random nodes.
    pub(super) fn add_pipe(&mut self, random: &mut Pcg64Mcg) -> Result<(), ScenarioError> {
        let Some(topology) = self.topology else {
            let source = 2 * self.places.len() as u32;
            self.places.push(Place { source, destination: source + 1, links: vec![0] });
            return Ok(());
        };
        let ends = self.ends.len() as u32;
        if ends < 2 {
            return Err(ScenarioError::Unconnected);
        }
        for _ in 0..ATTEMPTS {
            let mut end = || self.ends[random.random_range(0..ends) as usize];
            let (source, destination) = (end(), end());
            if source != destination
                && let Some(links) = self.path(topology, source, destination)
            {
                self.places.push(Place { source, destination, links });
                return Ok(());
            }
        }
        Err(ScenarioError::Unconnected)
    }

    /// Returns the shortest path in `topology`, which may lack links of that of the layout.
    fn path(&self, topology: &Topology, from: u32, to: u32) -> Option<Vec<ResourceIndex>> {
        let all = self.topology?.links();
        let link = |ends: &[u32]| {
            let index = all.binary_search_by_key(&(ends[0], ends[1]), |link| (link.from, link.to));
            index.expect("a path consists of links") as u32
        };
        Some(topology.shortest_path(from, to)?.windows(2).map(link).collect())
    }

    /// Returns the links of each pipe if these links are not used. A pipe without another path keeps its own.
    pub(super) fn links_without(&self, removed: &[ResourceIndex]) -> Vec<Vec<ResourceIndex>> {
        let Some(topology) = self.topology else { return self.links() };
        let all = topology.links();
        let ends = |resource: &ResourceIndex| all.get(*resource as usize).map(|link| (link.from, link.to));
        let rest = topology.without(&removed.iter().filter_map(ends).collect::<Vec<_>>());
        let path =
            |place: &Place| self.path(&rest, place.source, place.destination).unwrap_or_else(|| place.links.clone());
        self.places.iter().map(path).collect()
    }

    /// Returns the links of each pipe.
    pub(super) fn links(&self) -> Vec<Vec<ResourceIndex>> {
        self.places.iter().map(|place| place.links.clone()).collect()
    }

    /// Returns the resources of each pipe for these links.
    pub(super) fn paths(&self, links: &[Vec<ResourceIndex>]) -> Paths {
        let mut of_pipes = Incidences::default();
        for (place, links) in self.places.iter().zip(links) {
            let mut path = links.clone();
            path.extend(self.storage_resources(place));
            of_pipes.push(&path);
        }
        Paths::new(of_pipes, self.resources.len())
    }

    /// Returns the resources of the storages of a pipe.
    pub(super) fn storage_resources(&self, place: &Place) -> impl Iterator<Item = ResourceIndex> {
        place.storages().into_iter().filter_map(|storage| self.storages.get(&storage).copied())
    }

    /// Returns the name of a storage.
    pub(super) fn storage_name(&self, storage: Storage) -> String {
        match self.topology {
            Some(topology) => topology.nodes()[storage as usize].name.to_string(),
            None if storage.is_multiple_of(2) => format!("source {}", storage / 2 + 1),
            None => format!("destination {}", storage / 2 + 1),
        }
    }

    /// Returns the name of a direction of a storage, as that of a resource.
    pub(super) fn direction_name(&self, (storage, direction): (Storage, Direction)) -> String {
        let direction = match direction {
            Direction::Out => "out",
            Direction::In => "in",
        };
        format!("{} {direction}", self.storage_name(storage))
    }

    /// Returns the name of a pipe.
    pub(super) fn pipe_name(&self, place: &Place) -> String {
        match self.topology {
            Some(_) => format!("{} -> {}", self.storage_name(place.source), self.storage_name(place.destination)),
            None => format!("pipe {}", place.source / 2 + 1),
        }
    }
}
