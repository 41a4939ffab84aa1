//! The simulator of the scheduler, and weighted max-min fair shares.

use std::fmt::Display;

use pyo3::{
    exceptions::{PyOverflowError, PyValueError},
    prelude::*,
};
use serde_json::json;
use towpath_sched::{
    network::{Incidences, Paths},
    optimiser::OptimiserName,
    shares::{self, Demand},
    simulation::{self, Outcome, PeriodReport, try_simulate},
};
use towpath_store::sys::clock;

use crate::runtime::BETWEEN_SIGNALS;

/// Largest capacity and weight, and smallest weight except for 0: quotients and sums of them are finite.
const MAX_QUANTITY: f64 = 1e100;
const MIN_WEIGHT: f64 = 1e-100;

/// A parsed scenario.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct Scenario(simulation::Scenario);

#[pymethods]
impl Scenario {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        simulation::Scenario::parse(text).map(Self).map_err(invalid)
    }

    /// The name of the file with the topology.
    #[getter]
    fn topology(&self) -> Option<&str> {
        self.0.network.topology.as_deref()
    }

    /// Creates the world. `topology` is the text of a topology.
    fn world(&self, py: Python<'_>, topology: Option<&str>) -> PyResult<World> {
        py.detach(|| self.0.world(topology)).map(World).map_err(invalid)
    }
}

/// The world of a scenario.
#[pyclass(frozen, module = "towpath._towpath")]
pub(crate) struct World(simulation::World);

#[pymethods]
impl World {
    /// Runs a simulation. Returns its result as JSON. `on_period` receives the JSON of each period.
    fn simulate(
        &self,
        py: Python<'_>,
        optimiser: &str,
        seed: u64,
        connections: u32,
        on_period: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<String> {
        let optimiser: OptimiserName = optimiser.parse().map_err(invalid)?;
        match on_period {
            None => {
                py.detach(|| self.simulate_detached(optimiser, seed, connections).map(|outcome| self.json(&outcome)))
            }
            Some(on_period) => {
                let outcome = self.simulate_with(py, optimiser, seed, connections, on_period)?;
                Ok(py.detach(|| self.json(&outcome)))
            }
        }
    }
}

impl World {
    /// Runs a simulation without the interpreter's lock. Between periods it checks for signals.
    fn simulate_detached(&self, name: OptimiserName, seed: u64, connections: u32) -> PyResult<Outcome> {
        let mut checked = clock::now();
        try_simulate(&self.0, seed, name.create(connections, seed).as_mut(), &mut |_| {
            if checked.elapsed() < BETWEEN_SIGNALS {
                return Ok(());
            }
            let outcome = Python::attach(|py| py.check_signals());
            checked = clock::now();
            outcome
        })
    }

    /// Runs a simulation, and calls `on_period` after each decision. Its exception ends the simulation.
    fn simulate_with(
        &self,
        py: Python<'_>,
        name: OptimiserName,
        seed: u64,
        connections: u32,
        on_period: &Bound<'_, PyAny>,
    ) -> PyResult<Outcome> {
        let capacities = self.0.attainable_capacities();
        try_simulate(&self.0, seed, name.create(connections, seed).as_mut(), &mut |record| {
            let report = PeriodReport::new(name.name(), &self.0, &capacities, record);
            on_period.call1((serde_json::to_string(&report).map_err(invalid)?,))?;
            // A callback that is not written in Python does not check for signals.
            py.check_signals()
        })
    }

    fn json(&self, outcome: &Outcome) -> String {
        json!({
            "summary": outcome.summary(),
            "completions_s": outcome.completions_s,
            "fair_mean_completion_s": self.0.fair_mean_completion_s(),
        })
        .to_string()
    }
}

/// The rates of pipes, and the index of the bottleneck of each.
type SharesTuple = (Vec<f64>, Vec<Option<u32>>);

/// Computes weighted max-min fair rates. All arguments are iterables, `paths` one of iterables.
#[pyfunction]
pub(crate) fn max_min(
    py: Python<'_>,
    capacities: &Bound<'_, PyAny>,
    paths: &Bound<'_, PyAny>,
    weights: &Bound<'_, PyAny>,
    limits: Option<&Bound<'_, PyAny>>,
) -> PyResult<SharesTuple> {
    let capacities = numbers("capacities", capacities, "a number from 0 to 1e100", |capacity| {
        (0.0..=MAX_QUANTITY).contains(capacity)
    })?;
    let paths = read_paths(paths, index("capacities", capacities.len())?)?;
    let weights = numbers("weights", weights, "0, or a number from 1e-100 to 1e100", |weight| {
        *weight == 0.0 || (MIN_WEIGHT..=MAX_QUANTITY).contains(weight)
    })?;
    let limits = match limits {
        Some(limits) => numbers("limits", limits, "a number of at least 0, or inf", |limit| *limit >= 0.0)?,
        None => vec![f64::INFINITY; weights.len()],
    };
    for (name, numbers) in [("weights", &weights), ("limits", &limits)] {
        if numbers.len() != paths.pipes() {
            let message =
                format!("{name}: expected one for each of the {} paths, not {}", paths.pipes(), numbers.len());
            return Err(invalid(message));
        }
    }
    let demands: Vec<_> = weights.into_iter().zip(limits).map(|(weight, limit)| Demand { weight, limit }).collect();
    let shares = py.detach(|| shares::max_min(&capacities, &paths, &demands));
    Ok((shares.rates, shares.bottlenecks))
}

/// Reads the paths of pipes: for each the indices of its resources, less than `resources`.
fn read_paths(paths: &Bound<'_, PyAny>, resources: u32) -> PyResult<Paths> {
    let mut of_pipes = Incidences::default();
    let mut incidences = 0;
    for (pipe, path) in paths.try_iter()?.enumerate() {
        index("paths", pipe)?;
        let mut row = Vec::new();
        for resource in path?.try_iter()? {
            let resource = resource?;
            let known = extract::<u32>(&resource)?.filter(|known| *known < resources);
            row.push(known.ok_or_else(|| {
                invalid(format!("paths[{pipe}]: {resource} is not the index of one of {resources} capacities"))
            })?);
        }
        incidences += row.len();
        index("paths", incidences)?;
        of_pipes.push(&row);
    }
    Ok(Paths::new(of_pipes, resources as usize))
}

/// Reads numbers. `expected` describes those for which `is_valid` returns true.
fn numbers(
    name: &str,
    given: &Bound<'_, PyAny>,
    expected: &str,
    is_valid: impl Fn(&f64) -> bool,
) -> PyResult<Vec<f64>> {
    let mut numbers = Vec::new();
    for (place, given) in given.try_iter()?.enumerate() {
        let given = given?;
        let number = extract(&given)?.filter(&is_valid);
        let error = || invalid(format!("{name}[{place}]: {given} is out of range: expected {expected}"));
        numbers.push(number.ok_or_else(error)?);
    }
    Ok(numbers)
}

/// Converts a number; `None` if it is out of the range of its type.
fn extract<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(number: &'a Bound<'py, PyAny>) -> PyResult<Option<T>> {
    match number.extract() {
        Ok(number) => Ok(Some(number)),
        Err(error) if error.is_instance_of::<PyOverflowError>(number.py()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `number` as an index or number of indices. The shares count pipes, resources, and resources of all pipes
/// with 32 bits.
fn index(name: &str, number: usize) -> PyResult<u32> {
    u32::try_from(number).map_err(|_| invalid(format!("{name}: more than {} elements", u32::MAX)))
}

fn invalid(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}
