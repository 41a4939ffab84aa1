"""Phases of a trace: the ramp, and the sustainment after it.

`split_phases` returns `Phases`. Traces have at least 10 samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from towpath.lab.dynamics.checks import Array, check_array, check_positive, check_whole


@dataclass(frozen=True)
class Phases:
    """Ramp and sustainment of a trace. Means and level have the unit of the trace."""

    outcome: Literal["ramp", "no ramp seen", "never sustained"]
    """"no ramp seen": the first sample is sustained. "never sustained": no sample is, or the rates still rise at the end."""
    interval_s: float
    """Sampling interval, in seconds."""
    duration_s: float
    """Duration of the trace, in seconds."""
    level: float
    """Median of the last half of the trace."""
    ramp_samples: int
    """Number of samples before the sustainment phase; all samples if it is never sustained."""
    ramp_s: float | None
    """Duration of the ramp, in seconds; 0 if no ramp is seen, None if it is never sustained."""
    uncertainty_s: float
    """Uncertainty of `ramp_s`, in seconds, in both directions: the sampling interval. Noise adds to it."""
    ramp_fraction: float | None
    """`ramp_s` / `duration_s`; None if it is never sustained."""
    is_resolved: bool
    """Whether the ramp has at least five samples, as a study of its shape needs."""
    ramp_mean: float | None
    """Mean throughput of the ramp; None if no ramp is seen."""
    sustained_mean: float | None
    """Mean throughput of the sustainment phase; None if it is never sustained."""

    @property
    def sustained_less_ramp(self) -> float | None:
        """`sustained_mean` - `ramp_mean`; None if a phase is missing. If it is positive, a larger share of the ramp lowers the mean
        throughput. The talk calls that equivalent to a concave profile; it is only necessary, as concavity also needs a share whose
        second derivative with respect to the round trip is not negative."""
        return None if self.sustained_mean is None or self.ramp_mean is None else self.sustained_mean - self.ramp_mean


def split_phases(rates: npt.ArrayLike, interval_s: float, *, threshold: float = 0.9, min_run: int = 3) -> Phases:
    """Splits a trace into ramp and sustainment.

    The level is the median of the last half. The ramp ends with the first sample of the first run of `min_run` samples whose moving
    median of three samples is at least `threshold` times the level. A trace is never sustained if there is no such run, if the level
    is 0, or if it still rises: the lower quartile of the last quarter, times `threshold`, exceeds the upper quartile of the third one.

    - `rates`: throughputs of equal intervals, at least 10, at least 0, in any unit. The interval is best at most a fifth of the ramp,
      and at least a round trip.
    - `interval_s`: duration of an interval, in seconds.
    - `threshold`: above 0, at most 1.
    - `min_run`: from 1 to the number of samples.
    """
    trace = check_array(rates, "rates", (1,))
    interval_s = check_positive(interval_s, "interval_s")
    if trace.min() < 0:
        raise ValueError(f"rates: {trace.min()} is negative: expected throughputs")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: {threshold} is out of range: expected a number above 0, at most 1")
    min_run = check_whole(min_run, "min_run", 1, len(trace))
    level = float(np.median(trace[len(trace) // 2 :]))
    start = None if level == 0 or _is_rising(trace, threshold) else _first_run(trace, threshold * level, min_run)
    ramp, sustained = np.split(trace, [len(trace) if start is None else start])
    return Phases(
        outcome="never sustained" if start is None else "ramp" if start else "no ramp seen",
        interval_s=interval_s,
        duration_s=len(trace) * interval_s,
        level=level,
        ramp_samples=len(ramp),
        ramp_s=None if start is None else start * interval_s,
        uncertainty_s=interval_s,
        ramp_fraction=None if start is None else start / len(trace),
        is_resolved=start is not None and start >= 5,
        ramp_mean=float(ramp.mean()) if len(ramp) else None,
        sustained_mean=float(sustained.mean()) if len(sustained) else None,
    )


def _first_run(trace: Array, least: float, min_run: int) -> int | None:
    """Returns the start of the first run of samples whose moving median is high enough. Unlike a mean, the median keeps steps in place."""
    smoothed = np.median(sliding_window_view(np.pad(trace, 1, mode="edge"), 3), axis=1)
    is_run = sliding_window_view(smoothed >= least, min_run).all(axis=1)
    return int(is_run.argmax()) if is_run.any() else None


def _is_rising(trace: Array, threshold: float) -> bool:
    """Returns whether the last quarter is clearly above the third: by more than the threshold, and more than their scatter."""
    third, last = np.array_split(trace[len(trace) // 2 :], 2)
    return bool(np.quantile(last, 0.25) * threshold > np.quantile(third, 0.75))
