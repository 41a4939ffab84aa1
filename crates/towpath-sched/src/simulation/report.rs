//! Periods as programs read them.

use serde::Serialize;

use super::{PeriodRecord, World};
use crate::period::{Decision, PipeMeasurement};

/// A period of a simulation as programs read it: a line of `towpath sched simulate --periods`, or the argument of a
/// callback in Python.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PeriodReport<'a> {
    /// Always true.
    pub simulated: bool,
    /// The name of the optimiser.
    pub optimiser: &'a str,
    /// Time of its end in seconds.
    pub end_s: f64,
    /// The pipes, always in the same order.
    pub pipes: Vec<PipeReport>,
}

/// A pipe in a period.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipeReport {
    /// Connections in use at the end of the period.
    pub connections: u32,
    /// Received bytes.
    pub received_bytes: f64,
    /// The same with the error of the measurement.
    pub measured_bytes: f64,
    /// Its weighted max-min share in bytes per second among the pipes that have files.
    pub fair_bytes_per_s: f64,
    /// Files that wait for a connection.
    pub queued_files: u64,
    /// Files that were transferred in the period.
    pub finished: u64,
    /// Failures in the period, after which the file is tried again.
    pub retried: u64,
    /// Connections of the next period.
    pub decided: u32,
    /// The reason of this decision.
    pub reason: String,
}

impl<'a> PeriodReport<'a> {
    /// Creates the report of a period in `world`. `capacities` are those of the fair shares, such as
    /// [`World::attainable_capacities`], in bytes per second.
    pub fn new(optimiser: &'a str, world: &World, capacities: &[f64], record: &PeriodRecord<'_>) -> Self {
        let fair = world.fair_rates(capacities, |pipe| record.period.pipes[pipe].is_live());
        let pipes = record.period.pipes.iter().zip(record.decisions).zip(record.received_bytes.iter().zip(fair));
        let pipes = pipes.map(|((measured, decision), (received_bytes, fair_bytes_per_s))| {
            PipeReport::new(measured, decision, *received_bytes, fair_bytes_per_s)
        });
        Self { simulated: true, optimiser, end_s: record.period.end_s, pipes: pipes.collect() }
    }
}

impl PipeReport {
    fn new(measured: &PipeMeasurement, decision: &Decision, received_bytes: f64, fair_bytes_per_s: f64) -> Self {
        Self {
            connections: measured.connections,
            received_bytes,
            measured_bytes: measured.received_bytes,
            fair_bytes_per_s,
            queued_files: measured.queued_files,
            finished: measured.ended.finished,
            retried: measured.ended.retried,
            decided: decision.connections,
            reason: decision.reason.to_string(),
        }
    }
}
