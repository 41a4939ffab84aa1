"""Poincaré maps of a trace: pairs of the throughputs of consecutive intervals.

`flow_maps`, `aggregate_map` and `pooled_map` return `PoincareMap`. A map has at least 10 samples of each flow, and at most 50,000 pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from towpath.lab.dynamics.checks import MIN_SAMPLES, Array, check_array, check_positive, check_whole

Kind = Literal["flow", "aggregate", "pooled"]

_MAX_PAIRS = 50_000
"""Maximum number of pairs of a map: `slope_exponent` needs 16 * n**1.5 bytes, here 180 MB."""


@dataclass(frozen=True, eq=False)
class PoincareMap:
    """Pairs of the throughputs of consecutive intervals, with the conditions of the measurement."""

    kind: Kind
    """"flow": pairs of one flow. "aggregate": of the sum of the flows. "pooled": the pairs of all flows in one map."""
    flow: int | None
    """Index of the flow; None for the other kinds."""
    interval_s: float
    """Sampling interval, in seconds."""
    cut_s: float
    """Duration removed from the start of the trace, in seconds."""
    capacity: float
    """Divisor of the throughputs."""
    series: Array
    """Throughput / capacity after the cut, as an array of flows by samples (one row except for "pooled"); read-only."""

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return self.series[:, 1:].size

    @property
    def x(self) -> Array:
        """First value of each pair."""
        return self.series[:, :-1].ravel()

    @property
    def y(self) -> Array:
        """Second value of each pair."""
        return self.series[:, 1:].ravel()


def flow_maps(rates: npt.ArrayLike, interval_s: float, *, cut_samples: int = 0, capacity: float = 1.0) -> tuple[PoincareMap, ...]:
    """Returns the map of each flow. The arguments are those of `pooled_map`."""
    traces = np.atleast_2d(check_array(rates, "rates", (1, 2)))
    maps = [pooled_map(trace, interval_s, cut_samples=cut_samples, capacity=capacity) for trace in traces]
    return tuple(replace(found, kind="flow", flow=flow) for flow, found in enumerate(maps))


def aggregate_map(rates: npt.ArrayLike, interval_s: float, *, cut_samples: int = 0, capacity: float = 1.0) -> PoincareMap:
    """Returns the map of the sum of the flows. The arguments are those of `pooled_map`."""
    total = np.atleast_2d(check_array(rates, "rates", (1, 2))).sum(axis=0)
    return replace(pooled_map(total, interval_s, cut_samples=cut_samples, capacity=capacity), kind="aggregate")


def pooled_map(rates: npt.ArrayLike, interval_s: float, *, cut_samples: int = 0, capacity: float = 1.0) -> PoincareMap:
    """Returns one map with the pairs of all flows.

    - `rates`: throughputs of equal intervals: a sequence for one flow, or a sequence per flow, of equal lengths. At least 10 remain
      after the cut.
    - `interval_s`: duration of an interval, in seconds.
    - `cut_samples`: number of samples to remove from the start, such as `Phases.ramp_samples`.
    - `capacity`: of the path, in the unit of the rates; the map has throughput / capacity.
    """
    traces = np.atleast_2d(check_array(rates, "rates", (1, 2)))
    interval_s, capacity = check_positive(interval_s, "interval_s"), check_positive(capacity, "capacity")
    cut_samples = check_whole(cut_samples, "cut_samples", 0, traces.shape[1] - MIN_SAMPLES)
    series: Array = traces[:, cut_samples:] / capacity
    series.setflags(write=False)
    found = PoincareMap("pooled", None, interval_s, cut_samples * interval_s, capacity, series)
    if found.pairs > _MAX_PAIRS:
        raise ValueError(f"rates: {found.pairs} pairs are too many: expected at most {_MAX_PAIRS}")
    return found
