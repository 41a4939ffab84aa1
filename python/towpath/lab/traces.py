"""The dynamics of each run of a table: its ramp, the variation of its sustained rate, and its exponent beside surrogates.

    >>> from towpath.lab.traces import trace_results
    >>> results = trace_results(Runs.read("campaign/runs.parquet"))  # doctest: +SKIP

The methods are those of `towpath.lab.dynamics`, for the sum of the streams of a run. All runs have the same interval and the same number of
samples for the exponent, as exponents of others do not compare.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from towpath.lab import dynamics
from towpath.lab.checks import FloatArray
from towpath.lab.dynamics import PoincareMap
from towpath.lab.runs import Runs

SAMPLES = 60
"""Samples at the end of a trace that its exponent is computed from."""

MIN_VARIATION_SAMPLES = 5


@dataclass(frozen=True)
class TraceResult:
    """The dynamics of a run."""

    run_id: str
    interval_s: float
    """Sampling interval in seconds."""
    outcome: str
    """That of `dynamics.Phases`; `no trace` if the run has too few intervals."""
    ramp_s: float | None = None
    """Duration of the ramp in seconds; None unless it ended."""
    sustained_bits_per_s: float | None = None
    """Mean rate after the ramp."""
    variation: float | None = None
    """Standard deviation / mean of the rate after the ramp, in intervals at least as long as all round trips of the table; None for less
    than five of them."""
    exponent: float | None = None
    """Exponent per step (`dynamics.difference_exponent`) of the last `SAMPLES` samples; None if fewer are sustained, if the interval is
    shorter than the round trip, in which a flow sends in bursts, or if the exponent is not defined or indeterminate."""
    surrogate_mean: float | None = None
    """Mean exponent of the surrogates; None without an exponent, as the following."""
    autocorrelation: float | None = None
    """Lag-1 autocorrelation of the same samples."""
    entropy: float | None = None
    """Their permutation entropy, from 0 to 1."""
    verdict: str | None = None
    """That of `dynamics.surrogate_test`."""


def trace_frame(runs: Runs) -> pd.DataFrame:
    """Returns the dynamics of each run as a table with their `run_id` as index, and NaN for None."""
    names = [field.name for field in fields(TraceResult)]
    texts = ("run_id", "outcome", "verdict")
    numbers = dict.fromkeys((name for name in names if name not in texts), float)
    return pd.DataFrame([vars(result) for result in trace_results(runs)], columns=names).set_index("run_id").astype(numbers)


def trace_results(runs: Runs) -> list[TraceResult]:
    """Returns the dynamics of each run, in the order of the table. Their interval is that of the run with the longest ones."""
    frame = runs.frame()
    interval_s = longest_interval_s(runs)
    if interval_s is None:
        return [_without_trace(run_id, 0.0) for run_id in frame.run_id]
    steps = max(int(np.ceil(frame.rtt_s.max() / interval_s)), 1)
    return [_result(runs, run_id, interval_s, steps, rtt_s) for run_id, rtt_s in zip(frame.run_id, frame.rtt_s, strict=True)]


def run_map(runs: Runs, run_id: str, interval_s: float, *, capacity_bits_per_s: float = 1.0) -> PoincareMap:
    """Returns the map that the exponent of a run is computed from: that of its last `SAMPLES` samples. The interval is
    `TraceResult.interval_s`. Raises `ValueError` if fewer are sustained."""
    rates = runs.trace(run_id, interval_s)
    phases = dynamics.split_phases(rates, interval_s)
    sustained = len(rates) - phases.ramp_samples
    if phases.ramp_s is None or sustained < SAMPLES:
        raise ValueError(f"{run_id}: {phases.outcome}, {sustained} samples after it, expected {SAMPLES} sustained ones")
    return _sustained_map(rates, interval_s, capacity_bits_per_s)


def _sustained_map(rates: FloatArray, interval_s: float, capacity_bits_per_s: float = 1.0) -> PoincareMap:
    return dynamics.aggregate_map(rates, interval_s, cut_samples=len(rates) - SAMPLES, capacity=capacity_bits_per_s)


def longest_interval_s(runs: Runs) -> float | None:
    """Returns the longest of the median intervals of the runs in seconds, to whole milliseconds; None without intervals."""
    lists = runs.table.column("intervals").combine_chunks()
    intervals = pc.list_flatten(lists)
    if len(intervals) == 0:
        return None
    lengths = pc.subtract(pc.struct_field(intervals, "end_s"), pc.struct_field(intervals, "start_s")).to_pandas()
    of_run = lengths.groupby(pc.list_parent_indices(lists).to_numpy()).median()
    return max(round(float(of_run.max()), 3), 1e-3)


def _without_trace(run_id: str, interval_s: float) -> TraceResult:
    return TraceResult(run_id, interval_s, "no trace")


def _result(runs: Runs, run_id: str, interval_s: float, steps: int, rtt_s: float) -> TraceResult:
    """Returns the dynamics of a run with a round trip; `steps` intervals together are one of its variation."""
    try:
        rates = runs.trace(run_id, interval_s)
        phases = dynamics.split_phases(rates, interval_s)
    except ValueError:
        return _without_trace(run_id, interval_s)
    if phases.ramp_s is None:
        return TraceResult(run_id, interval_s, phases.outcome)
    sustained = rates[phases.ramp_samples :]
    has_exponent = len(sustained) >= SAMPLES and interval_s >= rtt_s
    structure = _structure(_sustained_map(rates, interval_s)) if has_exponent else {}
    variation = _variation(sustained, steps)
    return TraceResult(run_id, interval_s, phases.outcome, phases.ramp_s, phases.sustained_mean, variation, **structure)


def _variation(sustained: FloatArray, steps: int) -> float | None:
    whole = len(sustained) // steps
    if whole < MIN_VARIATION_SAMPLES:
        return None
    means = sustained[len(sustained) - whole * steps :].reshape(whole, steps).mean(axis=1)
    return float(means.std(ddof=1) / means.mean()) if means.mean() > 0 else None


def _structure(poincare: PoincareMap) -> dict[str, Any]:
    """Returns the measures of a map of one flow, without those that are not defined."""
    try:
        test = dynamics.surrogate_test(poincare)
    except ValueError:
        # Too few values differ.
        return {}
    if test.series is None:
        return {"verdict": test.verdict}
    (samples,) = poincare.series
    return {
        "exponent": test.exponent.per_step,
        "surrogate_mean": test.series.mean_per_step,
        "autocorrelation": dynamics.lag1_autocorrelation(samples),
        "entropy": dynamics.permutation_entropy(samples),
        "verdict": test.verdict,
    }
