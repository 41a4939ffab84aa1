//! Network maps and the costs between their PIDs.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{AltoResponse, MAX_PAIRS, flows::Flows, too_many_pairs, vtags};
use crate::{
    cost::{CostCapabilities, CostQuery, CostType},
    fields::Fields,
    matrix::{Grid, Matrix},
    media,
    names::{CostMetric, PidName},
    network_map::Selection,
    network_state::{NetworkState, Region},
    problem::Problem,
    requested_calendars::RequestedCalendars,
};

/// `InfoResourceNetworkMap` (RFC 7285 §11.2.1.6).
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct NetworkMapDocument<'a> {
    meta: Map<String, Value>,
    network_map: Selection<'a>,
}

/// Returns a complete or filtered network map.
pub(super) fn network_map(network_state: &NetworkState, region: &Region, network_map: Selection<'_>) -> AltoResponse {
    let mut meta = network_state.meta();
    meta.insert("vtag".into(), json!(region.map.vtag()));
    AltoResponse::of(media::NETWORK_MAP, &NetworkMapDocument { meta, network_map })
}

/// `InfoResourceCostMap` (RFC 7285 §11.2.3.6).
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CostMapDocument<'a> {
    meta: Map<String, Value>,
    cost_map: Matrix<'a>,
}

/// Returns the costs of one type between all PIDs.
pub(super) fn cost_map(network_state: &NetworkState, region: &Region, kind: &CostType) -> AltoResponse {
    let types = vec![kind.clone()];
    let query = CostQuery { testable: types.clone(), types, is_multi: false, tests: Vec::new() };
    document(network_state, region, &Pids::all(region), &query, &RequestedCalendars::default())
}

/// Returns the costs selected by a request (RFC 7285 §11.3.2.3, RFC 8896 §5.1).
pub(super) fn filtered_cost_map(
    network_state: &NetworkState,
    region: &Region,
    request: &Value,
    can: &CostCapabilities,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let query = CostQuery::read(fields, can)?;
    let pids = Pids::read(region, fields)?;
    let pairs = pids.sources.len() * pids.destinations.len();
    query.check_limit(fields, pairs)?;
    let calendared = RequestedCalendars::read(fields, &query, network_state, pairs)?;
    Ok(document(network_state, region, &pids, &query, &calendared))
}

fn document(
    network_state: &NetworkState,
    region: &Region,
    pids: &Pids<'_>,
    query: &CostQuery,
    calendared: &RequestedCalendars<'_>,
) -> AltoResponse {
    let mut meta = cost_meta(network_state, query);
    meta.extend(calendared.meta(query));
    meta.insert("dependent-vtags".into(), json!(vtags([region])));
    let cost_map = Matrix::of(pids, query).over_time(pids, query, calendared);
    AltoResponse::of(media::COST_MAP, &CostMapDocument { meta, cost_map })
}

/// Returns the `meta` of a response with costs (RFC 8189 §4.1.3), including the members common to all responses.
pub(super) fn cost_meta(network_state: &NetworkState, query: &CostQuery) -> Map<String, Value> {
    let mut meta = network_state.meta();
    let mut types = query.types.iter().map(|kind| network_state.describe(kind));
    if query.is_multi {
        meta.insert("cost-type".into(), json!({}));
        meta.insert("multi-cost-types".into(), json!(types.collect::<Vec<_>>()));
    } else {
        meta.insert("cost-type".into(), types.next().unwrap_or_default());
    }
    meta
}

/// Field for pairs that do not form a full mesh.
pub(super) const FLOWS: &str = "pid-flows";

/// Some PIDs of a region, by index.
pub(super) struct Pids<'a> {
    region: &'a Region,
    pub(super) sources: Vec<u32>,
    pub(super) destinations: Vec<u32>,
    /// Indices of source and destination, or `None` for the full mesh.
    pairs: Option<Vec<(usize, usize)>>,
}

impl<'a> Pids<'a> {
    fn all(region: &'a Region) -> Self {
        let numbers: Vec<u32> = (0..).take(region.map.len()).collect();
        Self { region, sources: numbers.clone(), destinations: numbers, pairs: None }
    }

    /// Reads a `PIDFilter`.
    pub(super) fn read(region: &'a Region, fields: Fields<'_>) -> Result<Self, Problem> {
        let mut pids = Self::all(region);
        if let Some(filter) = fields.object("pids")? {
            for (field, numbers) in [("srcs", &mut pids.sources), ("dsts", &mut pids.destinations)] {
                if let Some(names) = filter.texts(field, PidName::new)?.filter(|names| !names.is_empty()) {
                    *numbers = names.iter().filter_map(|name| region.map.number(name.as_str())).collect();
                    numbers.sort_unstable();
                    numbers.dedup();
                }
            }
        }
        let pairs = pids.sources.len() * pids.destinations.len();
        if pairs > MAX_PAIRS {
            return Err(too_many_pairs(fields, "pids", pairs));
        }
        Ok(pids)
    }

    /// Reads [`FLOWS`] if present, else as [`Self::read`]. Unknown PIDs are skipped in both.
    pub(super) fn read_flows(region: &'a Region, fields: Fields<'_>) -> Result<Self, Problem> {
        let number = |name: &str| PidName::new(name).map(|pid| region.map.number(pid.as_str()));
        match Flows::read(fields, FLOWS, "pids", number)? {
            Some(Flows { sources, destinations, pairs }) => {
                Ok(Self { region, sources, destinations, pairs: Some(pairs) })
            }
            None => Self::read(region, fields),
        }
    }
}

impl Grid for Pids<'_> {
    fn sources(&self) -> usize {
        self.sources.len()
    }

    fn destinations(&self) -> usize {
        self.destinations.len()
    }

    fn pairs(&self) -> Option<&[(usize, usize)]> {
        self.pairs.as_deref()
    }

    fn column<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<f64> + 'a> {
        let table = self.region.costs.get(metric);
        Box::new(move |from, to| table?.get(&(self.sources[from], self.destinations[to])).copied())
    }

    fn series<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<&'a [f64]> + 'a> {
        let series = self.region.series.get(metric);
        Box::new(move |from, to| series?.get(&(self.sources[from], self.destinations[to])).map(|series| &**series))
    }

    /// Ranks are relative to all costs of the map, so that filtered maps agree with each other.
    fn universe(&self, metric: &CostMetric) -> Option<&[f64]> {
        self.region.universe(metric)
    }

    fn source(&self, number: usize) -> String {
        self.region.map.name(self.sources[number]).to_string()
    }

    fn destination(&self, number: usize) -> String {
        self.region.map.name(self.destinations[number]).to_string()
    }
}
