//! Costs of all pairs of a set of sources and a set of destinations, in the form used by cost maps and endpoint cost
//! maps (RFC 7285 §11.2.3.6, §11.5.1.6; RFC 8189 §4.1.3; RFC 8896 §5.1).

use std::{
    collections::{BTreeMap, BTreeSet},
    iter, mem,
    ops::Range,
};

use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::{
    cost::{CostMode, CostQuery, CostType, Number, is_more_better, sort_distinct},
    names::{AneName, CostMetric},
    requested_calendars::RequestedCalendars,
};

/// Costs between a list of sources and a list of destinations.
pub(crate) trait Grid {
    /// Returns the number of sources.
    fn sources(&self) -> usize;
    /// Returns the number of destinations.
    fn destinations(&self) -> usize;
    /// Returns the requested pairs as (source, destination) indices, in ascending order and without duplicates. `None`
    /// means every source with every destination.
    fn pairs(&self) -> Option<&[(usize, usize)]> {
        None
    }
    /// Returns a lookup of the cost by `metric` between a source and a destination, given by index.
    fn column<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<f64> + 'a>;
    /// Returns a lookup of the calendar of `metric` between a source and a destination, given by index. The lookup
    /// returns `None` where the cost does not vary between intervals.
    fn series<'a>(&'a self, _metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<&'a [f64]> + 'a> {
        Box::new(|_, _| None)
    }
    /// Returns the costs among which a cost is ranked, in [ascending order](sort_distinct), or `None` to rank
    /// only the costs of this grid.
    fn universe(&self, metric: &CostMetric) -> Option<&[f64]>;
    /// Returns the name of a source.
    fn source(&self, number: usize) -> String;
    /// Returns the name of a destination.
    fn destination(&self, number: usize) -> String;
}

/// Paths of the requested pairs of a grid, in row order.
#[derive(Debug, Default)]
pub(crate) struct PathColumn {
    /// The distinct paths, each as its elements from source to destination.
    pub paths: Vec<Vec<AneName>>,
    /// For each pair, the index of its path.
    pub of_pairs: Vec<Option<u32>>,
}

/// Values of one cost type for the requested pairs, in row order.
#[derive(Debug)]
enum Column<'a> {
    Costs(Vec<Option<f64>>),
    /// Costs per calendar interval: a series for each pair, or one cost that holds in all `intervals`.
    Series {
        costs: Vec<Option<f64>>,
        series: Vec<Option<&'a [f64]>>,
        intervals: usize,
    },
    Paths,
}

/// Value of one cost type for one pair.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Cell<'a> {
    Cost(Number),
    Intervals(IntervalCosts<'a>),
    Path(&'a [AneName]),
}

/// Costs of one pair over all calendar intervals.
#[derive(Debug)]
enum IntervalCosts<'a> {
    Varying(&'a [f64]),
    Steady(f64, usize),
}

impl Serialize for IntervalCosts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            IntervalCosts::Varying(costs) => serializer.collect_seq(costs.iter().copied().map(Number)),
            IntervalCosts::Steady(cost, intervals) => serializer.collect_seq(iter::repeat_n(Number(cost), intervals)),
        }
    }
}

/// The requested pairs of a grid, in row order, and whether each passes the tests of a query.
#[derive(Debug)]
pub(crate) struct FilteredPairs {
    /// Indices of source and destination.
    pairs: Vec<(usize, usize)>,
    passes: Vec<bool>,
}

impl FilteredPairs {
    /// Evaluates the tests of `query` for all pairs.
    pub(crate) fn of(grid: &dyn Grid, query: &CostQuery) -> Self {
        let mesh = || (0..grid.sources()).flat_map(|from| (0..grid.destinations()).map(move |to| (from, to))).collect();
        let pairs: Vec<(usize, usize)> = grid.pairs().map_or_else(mesh, <[_]>::to_vec);
        if query.tests.is_empty() {
            let passes = vec![true; pairs.len()];
            return Self { pairs, passes };
        }
        let indices: BTreeSet<usize> = query.tested_types().collect();
        let columns = indices.into_iter().map(|index| (index, column(grid, &pairs, &query.testable[index])));
        let tested: BTreeMap<usize, Vec<Option<f64>>> = columns.collect();
        let passes = (0..pairs.len()).map(|pair| query.passes(&|index| tested[&index][pair])).collect();
        Self { pairs, passes }
    }

    /// Returns the requested pairs in row order: the indices of source and destination, and whether the pair passes.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = ((usize, usize), bool)> {
        self.pairs.iter().copied().zip(self.passes.iter().copied())
    }
}

/// Response to a query about a grid: the requested values of each pair that passes the tests.
#[derive(Debug)]
pub(crate) struct Matrix<'a> {
    sources: Vec<String>,
    destinations: Vec<String>,
    /// One column per requested cost type.
    columns: Vec<Column<'a>>,
    paths: PathColumn,
    passing: FilteredPairs,
    is_multi: bool,
}

impl<'a> Matrix<'a> {
    /// Looks up all costs that `query` requests. The query must not request paths.
    pub(crate) fn of(grid: &dyn Grid, query: &CostQuery) -> Self {
        Self::with_paths(grid, query, FilteredPairs::of(grid, query), PathColumn::default())
    }

    /// Like [`Self::of`], with the pairs already tested. If `query` requests paths, `paths` must hold those of all
    /// these pairs.
    pub(crate) fn with_paths(grid: &dyn Grid, query: &CostQuery, passing: FilteredPairs, paths: PathColumn) -> Self {
        let path_vector = CostType::path_vector();
        let columns = query.types.iter().map(|kind| match kind == &path_vector {
            true => Column::Paths,
            false => Column::Costs(column(grid, &passing.pairs, kind)),
        });
        Self {
            columns: columns.collect(),
            paths,
            passing,
            sources: (0..grid.sources()).map(|number| grid.source(number)).collect(),
            destinations: (0..grid.destinations()).map(|number| grid.destination(number)).collect(),
            is_multi: query.is_multi,
        }
    }

    /// Replaces single costs by calendars where `calendared` has them. `grid` and `query` must be those that `self` was
    /// built from.
    #[must_use]
    pub(crate) fn over_time(
        mut self,
        grid: &'a dyn Grid,
        query: &CostQuery,
        calendared: &RequestedCalendars<'_>,
    ) -> Self {
        for (position, (column, kind)) in self.columns.iter_mut().zip(&query.types).enumerate() {
            if let (Some(calendar), Column::Costs(costs)) = (calendared.of(position), &mut *column) {
                let (costs, series_of) = (mem::take(costs), grid.series(&kind.cost_metric));
                let series = self.passing.pairs.iter().map(|(from, to)| series_of(*from, *to)).collect();
                *column = Column::Series { costs, series, intervals: calendar.intervals() };
            }
        }
        self
    }

    fn cell(&self, column: &Column<'a>, pair: usize) -> Option<Cell<'_>> {
        match column {
            Column::Costs(costs) => costs[pair].map(|cost| Cell::Cost(Number(cost))),
            Column::Series { costs, series, intervals } => {
                let cost = costs[pair]?;
                Some(Cell::Intervals(
                    series[pair].map_or(IntervalCosts::Steady(cost, *intervals), IntervalCosts::Varying),
                ))
            }
            Column::Paths => {
                let path = self.paths.of_pairs.get(pair).copied().flatten()?;
                Some(Cell::Path(&self.paths.paths[path as usize]))
            }
        }
    }
}

/// Returns the costs of one type for `pairs`.
fn column(grid: &dyn Grid, pairs: &[(usize, usize)], kind: &CostType) -> Vec<Option<f64>> {
    let cost = grid.column(&kind.cost_metric);
    let costs: Vec<Option<f64>> = pairs.iter().map(|(from, to)| cost(*from, *to)).collect();
    match kind.cost_mode {
        CostMode::Ordinal => {
            let is_more_better = is_more_better(kind.cost_metric.as_str());
            match grid.universe(&kind.cost_metric) {
                Some(universe) => rank_costs(&costs, universe, is_more_better),
                None => rank_costs(&costs, &sort_distinct(costs.iter().flatten().copied()), is_more_better),
            }
        }
        CostMode::Numerical | CostMode::Array => costs,
    }
}

/// Returns the ranks of `costs` within `universe` (RFC 7285 §6.1.2.2). The preferred cost, the smallest or the largest,
/// has rank 1; equal costs have equal ranks.
#[expect(clippy::cast_precision_loss, reason = "there are less than 2^52 ranks")]
fn rank_costs(costs: &[Option<f64>], universe: &[f64], is_more_better: bool) -> Vec<Option<f64>> {
    let before = |cost: f64| match is_more_better {
        true => universe.len() - universe.partition_point(|other| *other <= cost),
        false => universe.partition_point(|other| *other < cost),
    };
    let rank = |cost: f64| before(cost) as f64 + 1.0;
    costs.iter().map(|cost| cost.map(rank)).collect()
}

impl Serialize for Matrix<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut first = 0;
        let rows = self.passing.pairs.chunk_by(|one, other| one.0 == other.0).map(|pairs| {
            let row = Row { matrix: self, pairs: first..first + pairs.len() };
            first += pairs.len();
            (&self.sources[pairs[0].0], row)
        });
        serializer.collect_map(rows.filter(|(_, row)| row.entries().next().is_some()))
    }
}

/// Costs from one source.
struct Row<'a> {
    matrix: &'a Matrix<'a>,
    /// Range of its pairs among all pairs.
    pairs: Range<usize>,
}

impl Row<'_> {
    /// Returns the destinations that have at least one value, with the indices of their pairs.
    fn entries(&self) -> impl Iterator<Item = (&str, usize)> {
        let matrix = self.matrix;
        let has_value = |pair| matrix.columns.iter().any(|column| matrix.cell(column, pair).is_some());
        let pairs = self.pairs.clone().filter(move |pair| matrix.passing.passes[*pair] && has_value(*pair));
        pairs.map(move |pair| (&*matrix.destinations[matrix.passing.pairs[pair].1], pair))
    }
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (destination, pair) in self.entries() {
            let mut cells = self.matrix.columns.iter().map(|column| self.matrix.cell(column, pair));
            if self.matrix.is_multi {
                map.serialize_entry(destination, &cells.collect::<Vec<_>>())?;
            } else {
                map.serialize_entry(destination, &cells.next().flatten())?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{cost::CostCapabilities, fields::Fields};

    /// The costs of RFC 7285 §11.2.3.7, and ten times these values as hop counts.
    struct Example;

    const COSTS: [[Option<f64>; 3]; 3] =
        [[Some(1.0), Some(5.0), Some(10.0)], [Some(5.0), Some(1.0), Some(15.0)], [Some(20.0), Some(15.0), None]];

    impl Grid for Example {
        fn sources(&self) -> usize {
            3
        }

        fn destinations(&self) -> usize {
            3
        }

        fn column<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<f64> + 'a> {
            let factor = if metric.as_str() == "hopcount" { 10.0 } else { 1.0 };
            Box::new(move |from, to| Some(COSTS[from][to]? * factor))
        }

        fn universe(&self, _: &CostMetric) -> Option<&[f64]> {
            None
        }

        fn source(&self, number: usize) -> String {
            format!("PID{}", number + 1)
        }

        fn destination(&self, number: usize) -> String {
            self.source(number)
        }
    }

    fn kind(cost_mode: CostMode, metric: &str) -> CostType {
        CostType { cost_mode, cost_metric: CostMetric::new(metric).unwrap() }
    }

    fn serialized(request: &Value) -> Value {
        let modes = [CostMode::Numerical, CostMode::Ordinal];
        let metrics = ["routingcost", "hopcount"].map(|metric| CostMetric::new(metric).unwrap());
        let kinds = modes.into_iter().flat_map(|cost_mode| {
            metrics.iter().map(move |metric| CostType { cost_mode, cost_metric: metric.clone() })
        });
        let cost_types: Vec<_> = kinds.collect();
        let can = CostCapabilities { testable: cost_types.clone(), cost_types, max_cost_types: 4 };
        let query = CostQuery::read(Fields::of(request).unwrap(), &can).unwrap();
        serde_json::to_value(Matrix::of(&Example, &query)).unwrap()
    }

    fn routing(mode: &str) -> Value {
        json!({ "cost-mode": mode, "cost-metric": "routingcost" })
    }

    #[test]
    fn m2_tests_leave_pairs_out() {
        let expected = json!({ "PID1": { "PID1": 1, "PID2": 5 }, "PID2": { "PID1": 5, "PID2": 1 } });
        assert_eq!(serialized(&json!({ "cost-type": routing("numerical"), "constraints": ["le 5"] })), expected);
    }

    #[test]
    fn m3_ranks_are_an_order() {
        let expected = json!({
            "PID1": { "PID1": 1, "PID2": 2, "PID3": 3 },
            "PID2": { "PID1": 2, "PID2": 1, "PID3": 4 },
            "PID3": { "PID1": 5, "PID2": 4 },
        });
        assert_eq!(serialized(&json!({ "cost-type": routing("ordinal") })), expected);
        let first = json!({ "PID1": { "PID1": 1 }, "PID2": { "PID2": 1 } });
        assert_eq!(serialized(&json!({ "cost-type": routing("ordinal"), "constraints": ["lt 2"] })), first);
    }

    #[test]
    fn x1_several_costs_are_lists() {
        let hops = json!({ "cost-mode": "numerical", "cost-metric": "hopcount" });
        let request = json!({
            "multi-cost-types": [routing("numerical"), hops],
            "testable-cost-types": [hops],
            "or-constraints": [["ge 200"], ["le 10"]],
        });
        let expected =
            json!({ "PID1": { "PID1": [1, 10] }, "PID2": { "PID2": [1, 10] }, "PID3": { "PID1": [20, 200] } });
        assert_eq!(serialized(&request), expected);
        assert_eq!(
            serialized(&json!({ "multi-cost-types": [hops], "constraints": ["eq 200"] })),
            json!({ "PID3": { "PID1": [200] } })
        );
    }

    /// The example restricted to some pairs, counting how often costs are looked up.
    #[derive(Default)]
    struct CountingGrid {
        pairs: Option<&'static [(usize, usize)]>,
        columns: std::cell::Cell<usize>,
    }

    impl Grid for CountingGrid {
        fn sources(&self) -> usize {
            Example.sources()
        }

        fn destinations(&self) -> usize {
            Example.destinations()
        }

        fn column<'a>(&'a self, metric: &CostMetric) -> Box<dyn Fn(usize, usize) -> Option<f64> + 'a> {
            self.columns.set(self.columns.get() + 1);
            Example.column(metric)
        }

        fn pairs(&self) -> Option<&[(usize, usize)]> {
            self.pairs
        }

        fn universe(&self, metric: &CostMetric) -> Option<&[f64]> {
            Example.universe(metric)
        }

        fn source(&self, number: usize) -> String {
            Example.source(number)
        }

        fn destination(&self, number: usize) -> String {
            Example.destination(number)
        }
    }

    #[test]
    fn costs_are_looked_up_once_however_often_they_are_tested() {
        let request = json!({ "cost-type": routing("numerical"), "constraints": vec!["ge 0"; 60] });
        let cost_types = vec![kind(CostMode::Numerical, "routingcost")];
        let can = CostCapabilities { testable: cost_types.clone(), cost_types, max_cost_types: 1 };
        let query = CostQuery::read(Fields::of(&request).unwrap(), &can).unwrap();
        let grid = CountingGrid::default();
        assert_eq!(FilteredPairs::of(&grid, &query).pairs().filter(|(_, passes)| *passes).count(), 8);
        assert_eq!(grid.columns.get(), 1);
    }

    #[test]
    fn pairs_that_nobody_asks_for_are_not_told() {
        let kinds = vec![kind(CostMode::Numerical, "routingcost"), kind(CostMode::Ordinal, "routingcost")];
        let query = CostQuery { testable: kinds.clone(), types: kinds, is_multi: true, tests: Vec::new() };
        let expected = json!({ "PID1": { "PID3": [10, 1] }, "PID3": { "PID1": [20, 3], "PID2": [15, 2] } });
        let grid = CountingGrid { pairs: Some(&[(0, 2), (2, 0), (2, 1)]), ..CountingGrid::default() };
        assert_eq!(serde_json::to_value(Matrix::of(&grid, &query)).unwrap(), expected);
    }

    #[test]
    fn numbers_have_fractions_where_they_have() {
        let text = |number| serde_json::to_string(&Number(number)).unwrap();
        assert_eq!([text(5.0), text(0.25), text(1e300)], ["5", "0.25", "1e+300"]);
    }
}
