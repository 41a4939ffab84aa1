//! The network as an optimiser knows it, and the rules.

use std::collections::BTreeMap;

use super::{
    super::world::{KnownNetwork, World},
    Direction, KnownPaths, RuleSettings, Scenario, ScenarioError, StorageSettings, build,
    layout::{Layout, Place, Storage},
};
use crate::{
    network::{Incidences, Paths, ResourceIndex, ResourceKind, Resources},
    shares::ProjectWeight,
};

/// A limit that administrators set for a direction of a storage, with the factor from its unit to that of resources.
type StorageRule = (ResourceKind, fn(&StorageSettings) -> Option<f64>, f64);

const STORAGE_RULES: [StorageRule; 2] = [
    (ResourceKind::Rate, |settings| settings.max_bits_per_s, 1.0 / 8.0),
    (ResourceKind::Connections, |settings| settings.max_connections, 1.0),
];

impl Scenario {
    /// Returns the known networks, by time.
    pub(super) fn known_networks(
        &self,
        layout: &Layout<'_>,
        world: &World,
    ) -> Result<Vec<KnownNetwork>, ScenarioError> {
        let mut factors = vec![1.0; world.resources.len()];
        let mut links = layout.links();
        let mut known = vec![self.known_network(layout, world, 0.0, self.view.paths, &factors, &links)?];
        for change in &world.changes {
            factors[change.resource as usize] = change.factor;
            if let Some(changed) = &change.links {
                links.clone_from(changed);
            }
            if let Some(delay_s) = self.view.delay_s {
                let at_s = change.at_s + delay_s;
                known.push(self.known_network(layout, world, at_s, self.view.paths, &factors, &links)?);
            }
        }
        if let Some(until_s) = self.view.until_s {
            known.retain(|known| known.from_s < until_s);
            known.push(self.known_network(layout, world, until_s, KnownPaths::None, &factors, &links)?);
        }
        Ok(known)
    }

    fn known_network(
        &self,
        layout: &Layout<'_>,
        world: &World,
        from_s: f64,
        view: KnownPaths,
        factors: &[f64],
        links: &[Vec<ResourceIndex>],
    ) -> Result<KnownNetwork, ScenarioError> {
        let mut resources = Resources::default();
        for (resource, factor) in factors.iter().enumerate() {
            let (name, capacity) = (world.resources.name(resource as u32), world.resources.capacities()[resource]);
            resources.add(name.to_owned(), ResourceKind::Network, capacity * factor * self.view.capacity_factor);
        }
        let known = layout.places.iter().zip(links).map(|(place, links)| known_path(layout, place, links, view));
        let mut rules = Rules { layout, resources, paths: known.collect(), weights: Vec::new() };
        let storage_rates = rules.add_storages(self);
        for rule in &self.rules {
            rules.add(rule, self, world, links)?;
        }
        let Rules { resources, paths, weights, .. } = rules;
        let mut of_pipes = Incidences::default();
        paths.iter().for_each(|path| of_pipes.push(path));
        let paths = Paths::new(of_pipes, resources.len());
        Ok(KnownNetwork { from_s, paths, resources, weights, storage_rates, is_complete: view == KnownPaths::Full })
    }
}

fn known_path(layout: &Layout<'_>, place: &Place, links: &[ResourceIndex], view: KnownPaths) -> Vec<ResourceIndex> {
    let mut known = match (view, links) {
        (KnownPaths::None, _) => return Vec::new(),
        (KnownPaths::Ends, [first, .., last]) => vec![*first, *last],
        _ => links.to_vec(),
    };
    known.extend(layout.storage_resources(place));
    known
}

/// The resources of a view, to which rules are added.
struct Rules<'a> {
    layout: &'a Layout<'a>,
    resources: Resources,
    paths: Vec<Vec<ResourceIndex>>,
    weights: Vec<ProjectWeight>,
}

impl Rules<'_> {
    /// Adds the limits of storages. Returns those in bytes per second.
    fn add_storages(&mut self, scenario: &Scenario) -> Vec<ResourceIndex> {
        let mut rates = Vec::new();
        for (kind, limit, unit) in STORAGE_RULES {
            let mut added: BTreeMap<(Storage, Direction), Option<ResourceIndex>> = BTreeMap::new();
            for (place, path) in self.layout.places.iter().zip(&mut self.paths) {
                for storage in place.storages() {
                    let resources = &mut self.resources;
                    let resource = added.entry(storage).or_insert_with(|| {
                        let capacity = scenario.storage_limit(self.layout, storage, limit)? * unit;
                        Some(resources.add(self.layout.direction_name(storage), kind, capacity))
                    });
                    path.extend(*resource);
                }
            }
            if kind == ResourceKind::Rate {
                rates.extend(added.into_values().flatten());
            }
        }
        rates
    }

    fn add(
        &mut self,
        rule: &RuleSettings,
        scenario: &Scenario,
        world: &World,
        links: &[Vec<ResourceIndex>],
    ) -> Result<(), ScenarioError> {
        let link = rule.link.as_deref().map(|name| build::link(world, Some(name))).transpose()?;
        let project = scenario.projects().iter().position(|project| *project == rule.project);
        let project = project.ok_or_else(|| ScenarioError::NoSuchProject(rule.project.clone()))? as u32;
        let uses = |pipe: usize, link| {
            links[pipe].contains(&link)
                || self.layout.storage_resources(&self.layout.places[pipe]).any(|storage| storage == link)
        };
        let of_project = (0..world.pipes.len()).filter(|pipe| world.pipes[*pipe].terms.project == Some(project));
        let all_pipes: Vec<_> = of_project.collect();
        let pipes: Vec<_> =
            all_pipes.iter().copied().filter(|pipe| link.is_none_or(|link| uses(*pipe, link))).collect();
        let is_hidden = |pipe: &usize| match link {
            Some(link) => !self.paths[*pipe].contains(&link),
            None => rule.weight.is_some() && links[*pipe].iter().any(|link| !self.paths[*pipe].contains(link)),
        };
        if pipes.iter().any(is_hidden) {
            let link = rule.link.clone().unwrap_or_else(|| "each link".to_owned());
            return Err(ScenarioError::HiddenRule { project: rule.project.clone(), link });
        }
        match (rule.bits_per_s, rule.weight) {
            (Some(bits_per_s), None) => self.limit(rule, &all_pipes, &pipes, bits_per_s / 8.0),
            (None, Some(weight)) if !rule.each => {
                let all = 0..world.resources.len() as ResourceIndex;
                let resources = all.filter(|resource| link.is_none_or(|link| link == *resource));
                self.weights.extend(resources.map(|resource| ProjectWeight { resource, project, weight }));
            }
            _ => return Err(ScenarioError::AmbiguousRule(rule.project.clone())),
        }
        Ok(())
    }

    /// Adds the limit of the pipes of a project that use the link. There are as many resources whatever their paths are, so
    /// that resources keep their indices when paths change.
    fn limit(&mut self, rule: &RuleSettings, of_project: &[usize], pipes: &[usize], bytes_per_s: f64) {
        let name = format!("limit of {}", rule.project);
        let first = self.resources.len() as ResourceIndex;
        for _ in 0..if rule.each { of_project.len() } else { 1 } {
            self.resources.add(name.clone(), ResourceKind::Rate, bytes_per_s);
        }
        for (place, pipe) in of_project.iter().enumerate() {
            if pipes.contains(pipe) {
                self.paths[*pipe].push(if rule.each { first + place as ResourceIndex } else { first });
            }
        }
    }
}
