//! Weighted max-min fair rates by progressive filling (Bertsekas, Gallager: "Data Networks", 1992, §6.5.2).
//!
//! All rates grow in proportion to their weights until a resource is full, or a pipe has its limit; the pipes concerned
//! are then fixed, and the others go on. No rate can grow any more without a decrease of another one that is not
//! larger, relative to its weight.
//!
//! The level of a resource is its free capacity, divided by the weights of its pipes that are not fixed. The lowest level
//! fixes the next pipes. That raises the levels of the other resources of these pipes, or leaves them: an
//! outdated item of the heap of levels is too low, and is put back when it is taken. Each incidence is visited twice:
//! O(incidences × log resources + pipes × log pipes).

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
};

use crate::network::{Paths, ResourceIndex};

/// The demand of a pipe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Demand {
    /// Relative to the weights of the other pipes; a pipe with weight 0 gets the rate 0.
    pub weight: f64,
    /// Maximum rate in bytes per second; infinite for none.
    pub limit: f64,
}

impl Demand {
    /// Creates a demand without a limit.
    pub fn unlimited(weight: f64) -> Self {
        Self { weight, limit: f64::INFINITY }
    }
}

/// The rates of all pipes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shares {
    /// Bytes per second; infinite for a pipe with neither a resource nor a limit.
    pub rates: Vec<f64>,
    /// The full resource of each pipe; `None` if the pipe has its limit, or the weight 0.
    pub bottlenecks: Vec<Option<ResourceIndex>>,
}

/// Computes the rates of pipes with `paths` over resources with `capacities` in bytes per second.
///
/// # Panics
/// If there is not one demand per pipe, or a weight or a limit is negative or not a number.
pub fn max_min(capacities: &[f64], paths: &Paths, demands: &[Demand]) -> Shares {
    max_min_with(capacities, paths, demands, |_, _| 1.0)
}

/// Like [`max_min`], for resources that are not all in bytes per second: a pipe uses its rate × `used(resource, pipe)` of
/// a resource. For a limit of connections that is the inverse of the rate of a connection; 0 for a resource that does not
/// limit the pipe.
///
/// # Panics
/// Like [`max_min`].
pub fn max_min_with(
    capacities: &[f64],
    paths: &Paths,
    demands: &[Demand],
    used: impl Fn(ResourceIndex, usize) -> f64,
) -> Shares {
    assert_eq!(paths.pipes(), demands.len(), "each pipe has a demand");
    let mut filling = Filling::new(capacities, paths, demands, used);
    while filling.fix_next() {}
    filling.shares
}

/// The weight of a project among the projects that share a resource (`tcn_rel_weight` of ALTO/TCN). All pipes without a
/// weight there together are one more project, with the weight 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProjectWeight {
    /// The resource.
    pub resource: ResourceIndex,
    /// The project.
    pub project: u32,
    /// Its weight.
    pub weight: f64,
}

/// Computes shares with the weights of projects. `projects` has that of each pipe, and `fill` the shares for demands.
///
/// Each project has its weight where its pipes have their bottleneck, and divides it by the weights of these pipes.
/// Bottlenecks follow from weights and the other way around: they are computed in turn until none changes, or
/// [`ROUNDS`] times.
pub fn by_project(
    demands: &[Demand],
    weights: &[ProjectWeight],
    projects: &[Option<u32>],
    fill: impl Fn(&[Demand]) -> Shares,
) -> Shares {
    let mut shares = fill(demands);
    let mut weighted = demands.to_vec();
    for _ in 0..if weights.is_empty() { 0 } else { ROUNDS } {
        weigh(&mut weighted, demands, weights, projects, &shares.bottlenecks);
        let next = fill(&weighted);
        let is_final = next.bottlenecks == shares.bottlenecks;
        shares = next;
        if is_final {
            break;
        }
    }
    shares
}

/// Maximum number of times that bottlenecks and weights are computed in turn.
const ROUNDS: usize = 8;

/// Computes the weights of pipes from the weights of projects at their bottlenecks. The sum of all weights at a
/// bottleneck stays that of the demands.
fn weigh(
    weighted: &mut [Demand],
    demands: &[Demand],
    weights: &[ProjectWeight],
    projects: &[Option<u32>],
    bottlenecks: &[Option<ResourceIndex>],
) {
    let of_projects: BTreeMap<_, _> =
        weights.iter().map(|weight| ((weight.resource, Some(weight.project)), weight.weight)).collect();
    let resources: BTreeSet<_> = weights.iter().map(|weight| weight.resource).collect();
    let key = |pipe: usize| {
        let resource = bottlenecks[pipe].filter(|resource| resources.contains(resource))?;
        Some((resource, projects[pipe].filter(|project| of_projects.contains_key(&(resource, Some(*project))))))
    };
    // By resource and project, and by resource, the sums of the weights of their pipes.
    let mut sums = BTreeMap::new();
    let mut totals = BTreeMap::new();
    for (pipe, demand) in demands.iter().enumerate() {
        if let Some(key) = key(pipe) {
            *sums.entry(key).or_insert(0.0) += demand.weight;
            *totals.entry(key.0).or_insert(0.0) += demand.weight;
        }
    }
    let weight = |key: &(ResourceIndex, Option<u32>)| of_projects.get(key).copied().unwrap_or(1.0);
    let mut of_resources = BTreeMap::new();
    for key in sums.keys() {
        *of_resources.entry(key.0).or_insert(0.0) += weight(key);
    }
    for (pipe, weighted) in weighted.iter_mut().enumerate() {
        weighted.weight = match key(pipe) {
            Some(key) => demands[pipe].weight * weight(&key) / of_resources[&key.0] * totals[&key.0] / sums[&key],
            None => demands[pipe].weight,
        };
    }
}

/// If the remaining weight of a resource falls below this fraction of its last sum, it is summed again: subtraction has
/// lost its digits.
const PRECISION: f64 = 1e-6;

/// A level of the heap: the lowest is the greatest, and of equal ones that with the lowest index.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Level(f64, u32);

impl Eq for Level {}

impl Ord for Level {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The free part of a resource, and the pipes that are not fixed.
#[derive(Debug, Clone, Copy, Default)]
struct Rest {
    capacity: f64,
    weight: f64,
    /// The weight when it was last summed.
    summed: f64,
    pipes: u32,
}

struct Filling<'a, U> {
    used: U,
    paths: &'a Paths,
    demands: &'a [Demand],
    shares: Shares,
    is_fixed: Vec<bool>,
    rests: Vec<Rest>,
    /// A resource is in the heap once.
    levels: BinaryHeap<Level>,
    /// The levels at which pipes have their limits.
    limits: BinaryHeap<Level>,
}

impl<'a, U: Fn(ResourceIndex, usize) -> f64> Filling<'a, U> {
    fn new(capacities: &[f64], paths: &'a Paths, demands: &'a [Demand], used: U) -> Self {
        let mut filling = Self {
            used,
            paths,
            demands,
            shares: Shares { rates: vec![0.0; demands.len()], bottlenecks: vec![None; demands.len()] },
            is_fixed: vec![false; demands.len()],
            rests: capacities.iter().map(|capacity| Rest { capacity: *capacity, ..Rest::default() }).collect(),
            levels: BinaryHeap::new(),
            limits: BinaryHeap::new(),
        };
        for (pipe, demand) in demands.iter().enumerate() {
            assert!(
                demand.weight >= 0.0 && demand.weight.is_finite(),
                "the weight of pipe {pipe} is {}",
                demand.weight
            );
            assert!(demand.limit >= 0.0, "the limit of pipe {pipe} is {}", demand.limit);
            if demand.weight == 0.0 {
                filling.is_fixed[pipe] = true;
                continue;
            }
            for resource in paths.resources_of(pipe) {
                let (rest, used) = (&mut filling.rests[*resource as usize], (filling.used)(*resource, pipe));
                if used > 0.0 {
                    rest.weight += demand.weight * used;
                    rest.pipes += 1;
                }
            }
            filling.limits.push(Level(demand.limit / demand.weight, pipe as u32));
        }
        for (resource, rest) in filling.rests.iter_mut().enumerate() {
            rest.summed = rest.weight;
            if rest.pipes > 0 {
                filling.levels.push(Level(rest.capacity / rest.weight, resource as u32));
            }
        }
        filling
    }

    /// Fixes the pipes of the lowest level. Returns whether there was one.
    fn fix_next(&mut self) -> bool {
        let resource = self.lowest_resource();
        let limit = self.lowest_limit();
        match (resource, limit) {
            (None, None) => return false,
            (resource, Some(Level(level, pipe))) if resource.is_none_or(|lowest| level <= lowest.0) => {
                self.limits.pop();
                self.fix(pipe as usize, self.demands[pipe as usize].limit, None);
            }
            (Some(Level(level, resource)), _) => {
                self.levels.pop();
                for pipe in self.paths.pipes_of(resource) {
                    let pipe = *pipe as usize;
                    if !self.is_fixed[pipe] && (self.used)(resource, pipe) > 0.0 {
                        self.fix(pipe, level * self.demands[pipe].weight, Some(resource));
                    }
                }
            }
            (None, Some(_)) => unreachable!("without a resource, the limit is the lowest level"),
        }
        true
    }

    /// Returns the lowest level of a resource.
    fn lowest_resource(&mut self) -> Option<Level> {
        while let Some(Level(level, resource)) = self.levels.peek().copied() {
            match self.level_of(resource) {
                None => drop(self.levels.pop()),
                Some(now) if now > level => {
                    self.levels.pop();
                    self.levels.push(Level(now, resource));
                }
                Some(_) => return Some(Level(level, resource)),
            }
        }
        None
    }

    /// Returns the lowest level at which a pipe that is not fixed has its limit.
    fn lowest_limit(&mut self) -> Option<Level> {
        while let Some(limit) = self.limits.peek().copied() {
            if !self.is_fixed[limit.1 as usize] {
                return Some(limit);
            }
            self.limits.pop();
        }
        None
    }

    /// Returns the level of a resource; `None` if all its pipes are fixed.
    fn level_of(&mut self, resource: ResourceIndex) -> Option<f64> {
        let rest = &mut self.rests[resource as usize];
        if rest.pipes == 0 {
            return None;
        }
        if rest.weight < rest.summed * PRECISION {
            let is_open = |pipe: &&u32| !self.is_fixed[**pipe as usize];
            let open = self.paths.pipes_of(resource).iter().filter(is_open);
            let weight = |pipe: usize| self.demands[pipe].weight * (self.used)(resource, pipe);
            rest.weight = open.map(|pipe| weight(*pipe as usize)).sum();
            rest.summed = rest.weight;
        }
        Some(rest.capacity / rest.weight)
    }

    fn fix(&mut self, pipe: usize, rate: f64, bottleneck: Option<ResourceIndex>) {
        self.is_fixed[pipe] = true;
        self.shares.rates[pipe] = rate;
        self.shares.bottlenecks[pipe] = bottleneck;
        for resource in self.paths.resources_of(pipe) {
            let (rest, used) = (&mut self.rests[*resource as usize], (self.used)(*resource, pipe));
            if used > 0.0 {
                rest.capacity = (rest.capacity - rate * used).max(0.0);
                rest.weight -= self.demands[pipe].weight * used;
                rest.pipes -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::network::Incidences;

    fn paths(of_pipes: &[Vec<u32>], resources: usize) -> Paths {
        let mut incidences = Incidences::default();
        of_pipes.iter().for_each(|path| incidences.push(path));
        Paths::new(incidences, resources)
    }

    #[test]
    fn the_parking_lot_is_shared_by_the_book() {
        // One long pipe over three links, and a short one over each of them.
        let paths = paths(&[vec![0, 1, 2], vec![0], vec![1], vec![2]], 3);
        let shares = max_min(&[10.0, 20.0, 4.0], &paths, &[Demand::unlimited(1.0); 4]);
        assert_eq!(shares.rates, [2.0, 8.0, 18.0, 2.0]);
        assert_eq!(shares.bottlenecks, [Some(2), Some(0), Some(1), Some(2)]);
    }

    #[test]
    fn weights_and_limits_hold() {
        let paths = paths(&[vec![0], vec![0], vec![0], vec![]], 1);
        let limited = Demand { weight: 1.0, limit: 1.0 };
        let shares = max_min(&[10.0], &paths, &[Demand::unlimited(2.0), Demand::unlimited(1.0), limited, limited]);
        assert_eq!((shares.rates, shares.bottlenecks), (vec![6.0, 3.0, 1.0, 1.0], vec![Some(0), Some(0), None, None]));
        let shares = max_min(
            &[10.0],
            &paths,
            &[Demand::unlimited(0.0), Demand::unlimited(1.0), Demand::unlimited(0.0), Demand::unlimited(1.0)],
        );
        assert_eq!(shares.rates, [0.0, 10.0, 0.0, f64::INFINITY]);
        assert_eq!(max_min(&[0.0], &paths, &[Demand::unlimited(1.0); 4]).rates[..3], [0.0; 3]);
    }

    #[test]
    fn weights_of_all_magnitudes_are_shared() {
        let paths = paths(&[vec![0], vec![0], vec![0]], 1);
        let large = Demand { weight: 1e15, limit: 1.0 };
        let shares = max_min(&[10.0], &paths, &[large, Demand::unlimited(1e-3), Demand::unlimited(2e-3)]);
        assert!((shares.rates[1] - 3.0).abs() < 1e-9 && (shares.rates[2] - 6.0).abs() < 1e-9, "{shares:?}");
    }

    #[test]
    fn connections_are_shared_in_bytes() {
        // Ten connections: the second pipe needs four times as many for the same rate.
        let paths = paths(&[vec![0], vec![0]], 1);
        let used = |_, pipe: usize| [1.0 / 20.0, 1.0 / 5.0][pipe];
        let shares = max_min_with(&[10.0], &paths, &[Demand::unlimited(1.0); 2], used);
        assert_eq!(shares.rates, [40.0, 40.0]);
    }

    #[test]
    fn a_pipe_is_not_limited_by_a_resource_that_it_does_not_use() {
        let paths = paths(&[vec![0, 1], vec![0, 1]], 2);
        let used = |resource, pipe: usize| if resource == 0 && pipe == 0 { 0.0 } else { 1.0 };
        let shares = max_min_with(&[10.0, 100.0], &paths, &[Demand::unlimited(1.0); 2], used);
        assert_eq!((shares.rates, shares.bottlenecks), (vec![90.0, 10.0], vec![Some(1), Some(0)]));
    }

    #[test]
    fn projects_share_a_link_by_their_weights() {
        let paths = paths(&[vec![0], vec![0], vec![0], vec![0, 1], vec![0]], 2);
        let weights = [
            ProjectWeight { resource: 0, project: 7, weight: 3.0 },
            ProjectWeight { resource: 0, project: 8, weight: 1.0 },
        ];
        let projects = [Some(7), Some(8), Some(8), Some(7), None];
        let fill = |demands: &[Demand]| max_min(&[100.0, 10.0], &paths, demands);
        let shares = by_project(&[Demand::unlimited(1.0); 5], &weights, &projects, fill);
        // The fourth pipe has its bottleneck elsewhere. The others share 90 as 3 : 1 : 1.
        let expected = [54.0, 9.0, 9.0, 10.0, 18.0];
        assert!(shares.rates.iter().zip(expected).all(|(rate, wanted)| (rate - wanted).abs() < 1e-9), "{shares:?}");
    }

    prop_compose! {
        fn problems()(resources in 1_usize..6, pipes in 1_usize..9)(
            capacities in prop::collection::vec(0.0..100.0, resources),
            of_pipes in prop::collection::vec(prop::collection::vec(0..resources as u32, 1..4), pipes),
            demands in prop::collection::vec((0.01_f64..100.0, prop::option::of(0.0..50.0)), pipes),
        ) -> (Vec<f64>, Vec<Vec<u32>>, Vec<Demand>) {
            let demand = |(weight, limit): (f64, Option<f64>)| Demand { weight, limit: limit.unwrap_or(f64::INFINITY) };
            (capacities, of_pipes, demands.into_iter().map(demand).collect())
        }
    }

    proptest! {
        /// The definition of weighted max-min fairness: no resource carries more than its capacity, and each pipe has
        /// its limit, or a full resource on which no other pipe has a higher rate relative to its weight.
        #[test]
        fn each_pipe_has_its_limit_or_a_bottleneck((capacities, of_pipes, demands) in problems()) {
            let paths = paths(&of_pipes, capacities.len());
            let shares = max_min(&capacities, &paths, &demands);
            let load = |resource| paths.pipes_of(resource).iter().map(|pipe| shares.rates[*pipe as usize]).sum::<f64>();
            for (resource, capacity) in capacities.iter().enumerate() {
                prop_assert!(load(resource as u32) <= capacity * (1.0 + 1e-9) + 1e-9);
            }
            let level = |pipe: usize| shares.rates[pipe] / demands[pipe].weight;
            for (pipe, demand) in demands.iter().enumerate() {
                let is_bottleneck = |resource: &u32| {
                    let is_full = load(*resource) >= capacities[*resource as usize] * (1.0 - 1e-9) - 1e-9;
                    let levels = paths.pipes_of(*resource).iter().map(|other| level(*other as usize));
                    is_full && levels.fold(0.0, f64::max) <= level(pipe) * (1.0 + 1e-6) + 1e-9
                };
                match shares.bottlenecks[pipe] {
                    None => prop_assert_eq!(shares.rates[pipe], demand.limit),
                    Some(bottleneck) => prop_assert!(is_bottleneck(&bottleneck) && shares.rates[pipe] <= demand.limit),
                }
            }
        }

        /// The order of the pipes has no influence.
        #[test]
        fn the_order_of_pipes_does_not_matter((capacities, mut of_pipes, mut demands) in problems()) {
            let rates = max_min(&capacities, &paths(&of_pipes, capacities.len()), &demands).rates;
            of_pipes.reverse();
            demands.reverse();
            let reversed = max_min(&capacities, &paths(&of_pipes, capacities.len()), &demands).rates;
            for (rate, other) in rates.iter().zip(reversed.iter().rev()) {
                prop_assert!((rate - other).abs() <= 1e-9 * rate.abs().max(1.0));
            }
        }
    }
}
