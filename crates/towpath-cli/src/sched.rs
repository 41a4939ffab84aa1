//! `towpath sched`: the scheduler. So far only the simulator of its optimisers.

pub(crate) mod args;
mod run_lines;

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
};

use serde_json::{Value, json};
use towpath_proto::units::{rate_text, size_text};
use towpath_sched::{
    optimiser::OptimiserName,
    simulation::{PeriodRecord, PeriodReport, PredictionSummary, Predictions, Scenario, Summary, World, simulate},
};
use towpath_store::sys::disk;

use self::args::{Scheduler, SchedulerAction, Simulation};
use crate::{failure::Failure, output::count_text};

/// Maximum size of a scenario in bytes.
const MAX_SCENARIO_BYTES: u64 = 1 << 20;

/// Maximum number of requests whose times to complete are predicted.
const MAX_PREDICTED: usize = 1_000;

/// The figures of an optimiser.
struct SimulationResult {
    name: OptimiserName,
    summary: Summary,
    /// `None` if they are not printed, or there are too many requests.
    predictions: Option<PredictionSummary>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Scheduler) -> Result<(), Failure> {
    match &arguments.action {
        SchedulerAction::Simulate(arguments) => run_simulation(arguments),
    }
}

fn run_simulation(arguments: &Simulation) -> Result<(), Failure> {
    let world = read_world(&arguments.scenario)?;
    let mut periods = arguments.periods.as_deref().map(|path| PeriodFile::create(path, &world)).transpose()?;
    if let Some(periods) = &mut periods {
        periods.write_line(&run_lines::description(&world, arguments.seed));
    }
    let mut results = Vec::new();
    for name in &arguments.optimiser {
        let mut optimiser = name.create(arguments.connections, arguments.seed);
        // A forecast for each of many requests takes longer than the simulation.
        let is_predicted = arguments.json && world.requests.len() <= MAX_PREDICTED;
        let mut predictions = is_predicted.then(|| Predictions::new(&world, name.sharing()));
        let outcome = simulate(&world, arguments.seed, optimiser.as_mut(), &mut |record| {
            if let Some(predictions) = &mut predictions {
                predictions.observe(record);
            }
            if let Some(periods) = &mut periods {
                periods.write(*name, record);
            }
        });
        if let Some(periods) = &mut periods {
            periods.write_line(&run_lines::completions(*name, &world, &outcome));
        }
        results.push(SimulationResult {
            name: *name,
            summary: outcome.summary(),
            predictions: predictions.map(|predictions| predictions.summary(&outcome)),
        });
    }
    if let Some(periods) = periods {
        periods.finish()?;
    }
    match arguments.json {
        true => writeln!(std::io::stdout(), "{}", document(&world, &results))?,
        false => print(&world, &results)?,
    }
    Ok(())
}

/// Reads a scenario, and the topology that it names.
fn read_world(path: &Path) -> Result<World, Failure> {
    let invalid = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", path.display()));
    let text = read_text(path, MAX_SCENARIO_BYTES)?;
    let scenario = Scenario::parse(&text).map_err(|error| invalid(&error))?;
    let topology = scenario.network.topology.as_ref().map(|name| {
        let beside = path.parent().unwrap_or(Path::new("")).join(name);
        read_text(&beside, towpath_alto::topology::MAX_BYTES as u64)
    });
    scenario.world(topology.transpose()?.as_deref()).map_err(|error| invalid(&error))
}

/// Reads a text file of at most `max_bytes`.
fn read_text(path: &Path, max_bytes: u64) -> Result<String, Failure> {
    let unreadable =
        |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: cannot be read: {error}", path.display()));
    let bytes = disk::read(path, max_bytes).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map_err(|error| unreadable(&error))
}

/// The file of `--periods`. The first error of a write ends it, and is reported at the end.
struct PeriodFile<'a> {
    path: &'a Path,
    world: &'a World,
    /// The capacities for the fair rates.
    capacities: Vec<f64>,
    file: BufWriter<File>,
    outcome: std::io::Result<()>,
}

impl<'a> PeriodFile<'a> {
    fn create(path: &'a Path, world: &'a World) -> Result<Self, Failure> {
        let file = disk::create(path).map_err(|error| Self::failure(path, &error))?;
        let capacities = world.attainable_capacities();
        Ok(Self { path, world, capacities, file: BufWriter::new(file), outcome: Ok(()) })
    }

    fn write(&mut self, name: OptimiserName, record: &PeriodRecord<'_>) {
        if self.outcome.is_ok() {
            let report = PeriodReport::new(name.name(), self.world, &self.capacities, record);
            self.outcome = writeln!(self.file, "{}", json!(report));
        }
    }

    fn write_line(&mut self, line: &Value) {
        if self.outcome.is_ok() {
            self.outcome = writeln!(self.file, "{line}");
        }
    }

    fn finish(mut self) -> Result<(), Failure> {
        self.outcome.and_then(|()| self.file.flush()).map_err(|error| Self::failure(self.path, &error))
    }

    fn failure(path: &Path, error: &std::io::Error) -> Failure {
        Failure::Usage(format!("{}: cannot be written: {error}", path.display()))
    }
}

fn document(world: &World, results: &[SimulationResult]) -> Value {
    let results = results.iter().map(|SimulationResult { name, summary, predictions }| {
        json!({ "optimiser": name.name(), "summary": summary, "predictions": predictions })
    });
    json!({
        "simulated": true,
        "fair_mean_completion_s": world.fair_mean_completion_s(),
        "results": results.collect::<Vec<_>>(),
    })
}

fn print(world: &World, results: &[SimulationResult]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let bytes: f64 = world.requests.iter().map(|request| request.files as f64 * request.size.mean()).sum();
    writeln!(
        out,
        "simulated: {} with {} over {}; no schedule takes less than {:.0} s",
        count_text(world.requests.len() as u64, "request", "requests"),
        size_text(bytes as u64),
        count_text(world.links as u64, "link", "links"),
        world.bound_s()
    )?;
    writeln!(
        out,
        "{:>12}  {:>9}  {:>11}  {:>14}  {:>14}  {:>12}  {:>11}",
        "optimiser", "completed", "time/bound", "mean time", "longest time", "rate", "connections"
    )?;
    let seconds = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time_s| format!("{time_s:.0} s"));
    for SimulationResult { name, summary, .. } in results {
        let is_complete = summary.completed == summary.requests;
        writeln!(
            out,
            "{:>12}  {:>9}  {:>11}  {:>14}  {:>14}  {:>12}  {:>11.0}",
            name.name(),
            summary.completed,
            format!("{}{:.3}", if is_complete { "" } else { ">= " }, summary.makespan_to_bound),
            seconds(summary.mean_completion_s),
            seconds(summary.max_completion_s),
            rate_text(summary.received_bytes_per_s),
            summary.mean_connections
        )?;
    }
    Ok(())
}
