//! The time of a decision of `knee` for all pipes between many storages, and the memory for it.
//!
//! `sched_step STORAGES PERIODS full|storages` makes a network of the shape of LHCONE: storages in 170 data centres of 127 sites, in 40
//! countries and 4 regions. Each pair of storages is a pipe with work. The measurements of each period follow from the
//! decisions of the last one: all pipes have their max-min shares, with an error of 5 %. With `storages`, `knee` only knows
//! the resources of storages, and looks for hidden links. Prints a line of JSON.
#![allow(clippy::disallowed_methods, reason = "it measures the time of a computation")]

use std::{process::ExitCode, time::Instant};

use serde_json::json;
use towpath_sched::{
    limits::Limits,
    network::{Incidences, Paths, ResourceIndex, ResourceKind, Resources},
    optimiser::{Knee, KneeSettings, Optimiser as _},
    period::{Decision, NetworkView, Period, PipeMeasurement, PipeTerms},
    shares::{Demand, max_min_with},
};

const DATA_CENTRES: u32 = 170;
const SITES: u32 = 127;
const COUNTRIES: u32 = 40;
const REGIONS: u32 = 4;
const PERIOD_S: f64 = 60.0;
/// Capacities in bits per second of a storage, and of the links of a data centre, a site, a country, and between regions.
const STORAGE: f64 = 20e9;
const LINKS: [f64; 3] = [100e9, 100e9, 400e9];
const REGION: f64 = 1e12;
/// Connections that a storage permits in each direction.
const STORAGE_CONNECTIONS: f64 = 5_000.0;
/// Number of resources of storages, which are the first ones of each path.
const OF_STORAGES: usize = 4;
/// Maximum rate of a connection in bytes per second.
const CONNECTION: f64 = 20e6;

/// A network with the resources of each storage in each direction.
struct Network {
    resources: Resources,
    /// For each level from data centres to countries, the first resource; each node has one upwards and one downwards.
    levels: [ResourceIndex; 3],
    regions: ResourceIndex,
}

impl Network {
    fn new(storages: u32) -> Self {
        let mut resources = Resources::default();
        for storage in 0..storages {
            for direction in ["out", "in"] {
                resources.add(format!("storage {storage} {direction}"), ResourceKind::Network, STORAGE / 8.0);
            }
        }
        for storage in 0..storages {
            for direction in ["out", "in"] {
                resources.add(format!("storage {storage} {direction}"), ResourceKind::Connections, STORAGE_CONNECTIONS);
            }
        }
        let mut levels = [0; 3];
        for (level, nodes) in [DATA_CENTRES, SITES, COUNTRIES].into_iter().enumerate() {
            levels[level] = resources.len() as ResourceIndex;
            for node in 0..2 * nodes {
                resources.add(format!("level {level} link {node}"), ResourceKind::Network, LINKS[level] / 8.0);
            }
        }
        let regions = resources.len() as ResourceIndex;
        for pair in 0..REGIONS * REGIONS {
            resources.add(format!("regions {pair}"), ResourceKind::Network, REGION / 8.0);
        }
        Self { resources, levels, regions }
    }

    /// Returns the resources of a pipe.
    fn path(&self, storages: u32, from: u32, to: u32) -> Vec<ResourceIndex> {
        let nodes = |storage: u32| {
            let centre = storage % DATA_CENTRES;
            let site = centre % SITES;
            [centre, site, site % COUNTRIES]
        };
        let (source, destination) = (nodes(from), nodes(to));
        let mut path = vec![2 * from, 2 * to + 1, 2 * storages + 2 * from, 2 * storages + 2 * to + 1];
        for level in 0..3 {
            // Below the first node that both have in common.
            if source[level] != destination[level] {
                path.push(self.levels[level] + 2 * source[level]);
                path.push(self.levels[level] + 2 * destination[level] + 1);
            }
        }
        let (one, other) = (source[2] % REGIONS, destination[2] % REGIONS);
        if one != other {
            path.push(self.regions + one * REGIONS + other);
        }
        path
    }
}

/// A number from 0 to 1 that looks random, from the index of a pipe and a period.
fn noise(pipe: usize, period: usize) -> f64 {
    let mut bits = (pipe as u64 ^ (period as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

fn measurements(period: usize, resources: &Resources, paths: &Paths, decisions: &[Decision]) -> Vec<PipeMeasurement> {
    let rate_of_connection = |pipe: usize| CONNECTION * (0.7 + 0.6 * noise(pipe, 0));
    let demand = |(pipe, decision): (usize, &Decision)| {
        let connections = f64::from(decision.connections);
        Demand { weight: connections, limit: connections * rate_of_connection(pipe) }
    };
    let demands: Vec<_> = decisions.iter().enumerate().map(demand).collect();
    let used = |resource, _| if resources.kind(resource) == ResourceKind::Network { 1.0 } else { 0.0 };
    let rates = max_min_with(resources.capacities(), paths, &demands, used).rates;
    let measured = |(pipe, (decision, rate)): (usize, (&Decision, f64))| PipeMeasurement {
        granted: decision.connections,
        connections: decision.connections,
        connection_s: PERIOD_S * f64::from(decision.connections),
        receiving_s: PERIOD_S * f64::from(decision.connections),
        received_bytes: rate * PERIOD_S * (0.95 + 0.1 * noise(pipe, period)),
        queued_files: 10_000,
        remaining_bytes: 1e13 * noise(pipe, 1),
        ..PipeMeasurement::default()
    };
    decisions.iter().zip(rates).enumerate().map(measured).collect()
}

/// Returns the largest resident memory of this process until now in bytes.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024 * line.split_whitespace().next()?.parse::<u64>().ok()?)
}

/// Returns the number of storages and of periods, and whether the view is full.
fn arguments() -> Option<(u32, usize, bool)> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [storages, periods, view] = &arguments[..] else { return None };
    let is_full = match view.as_str() {
        "full" => true,
        "storages" => false,
        _ => return None,
    };
    Some((storages.parse().ok()?, periods.parse().ok()?, is_full))
}

fn main() -> ExitCode {
    let Some((storages, periods, is_full)) = arguments() else {
        eprintln!("usage: sched_step STORAGES PERIODS full|storages");
        return ExitCode::FAILURE;
    };
    let network = Network::new(storages);
    let (mut of_pipes, mut known_of_pipes) = (Incidences::default(), Incidences::default());
    for from in 0..storages {
        for to in (0..storages).filter(|to| *to != from) {
            let path = network.path(storages, from, to);
            of_pipes.push(&path);
            known_of_pipes.push(if is_full { &path } else { &path[..OF_STORAGES] });
        }
    }
    let paths = Paths::new(of_pipes, network.resources.len());
    let known = Paths::new(known_of_pipes, network.resources.len());
    let terms: Vec<_> = (0..paths.pipes() as u32).map(PipeTerms::of_link).collect();
    let view = NetworkView { resources: &network.resources, paths: &known, weights: &[], is_complete: is_full };
    let before_bytes = peak_rss_bytes();
    let mut knee = Knee::new(KneeSettings::default(), 1);
    let mut limits = Limits::default();
    let mut pipes = vec![
        PipeMeasurement { queued_files: 10_000, remaining_bytes: 1e12, ..PipeMeasurement::default() };
        paths.pipes()
    ];
    let (mut steps_s, mut connections) = (Vec::new(), 0);
    for period in 1..=periods {
        let measured =
            Period { end_s: PERIOD_S * period as f64, length_s: PERIOD_S, pipes: &pipes, terms: &terms, network: view };
        let start = Instant::now();
        let mut decisions = knee.decide(&measured);
        limits.apply(&measured, &mut decisions);
        steps_s.push(start.elapsed().as_secs_f64());
        connections = decisions.iter().map(|decision| u64::from(decision.connections)).sum();
        pipes = measurements(period, &network.resources, &paths, &decisions);
    }
    let incidences: usize = (0..known.pipes()).map(|pipe| known.resources_of(pipe).len()).sum();
    println!(
        "{}",
        json!({
            "storages": storages, "view": if is_full { "full" } else { "storages" }, "pipes": paths.pipes(),
            "resources": network.resources.len(), "incidences": incidences, "connections": connections, "steps_s": steps_s,
            "network_rss_bytes": before_bytes, "peak_rss_bytes": peak_rss_bytes(),
        })
    );
    ExitCode::SUCCESS
}
