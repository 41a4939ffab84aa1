"""Dynamics of a throughput trace: its ramp, its Poincaré map, and its Lyapunov exponent beside those of surrogates.

    >>> from towpath.lab import dynamics
    >>> phases = dynamics.split_phases([1, 2, 4, 8, 9.7] + [9.9, 9.4, 9.8] * 10, interval_s=0.5)
    >>> phases.outcome, phases.ramp_s, phases.uncertainty_s
    ('ramp', 2.0, 0.5)
    >>> orbit = [0.3]
    >>> for _ in range(199):
    ...     orbit.append(4 * orbit[-1] * (1 - orbit[-1]))
    >>> test = dynamics.surrogate_test(dynamics.aggregate_map(orbit, interval_s=1))
    >>> test.verdict, round(test.exponent.per_step, 1)
    ('deterministic structure', 0.7)

A trace has the throughputs of equal intervals, of one flow or of several. `split_phases` finds the end of its ramp. `flow_maps`,
`aggregate_map` and `pooled_map` pair the throughputs of consecutive intervals after the ramp. Exponents are measures of such a map,
and `surrogate_test` compares an exponent with those of surrogates: series with the same values and nearly the same spectrum, but
without other structure.

- `phases`: `split_phases`, and its result `Phases`.
- `maps`: `PoincareMap`, and its three constructors.
- `exponents`: four estimators of an `Exponent`, and `compare`.
- `surrogates`: `surrogate_test`, and its results `SurrogateTest` and `SurrogateRank`.
- `statistics`: measures of a trace of one flow: variation, autocorrelation, permutation entropy.

The talk (N. Rao, "Some Science Aspects of Wide-Area Data Transport", 2018) reads a positive exponent as chaos. White noise has
ln n - 1.1, so an exponent alone says nothing; this package has no verdict of chaos.

Results carry their conditions, and `compare` refuses unequal ones. Throughputs have any unit, and at most the magnitude 1e50. A map
has at most 50,000 pairs. The same arguments give the same result. An invalid argument raises `ValueError` or `TypeError`.
"""

from towpath.lab.dynamics.exponents import (
    Exponent,
    compare,
    derivative_exponent,
    difference_exponent,
    rosenstein_exponent,
    slope_exponent,
)
from towpath.lab.dynamics.maps import PoincareMap, aggregate_map, flow_maps, pooled_map
from towpath.lab.dynamics.phases import Phases, split_phases
from towpath.lab.dynamics.statistics import coefficient_of_variation, lag1_autocorrelation, permutation_entropy
from towpath.lab.dynamics.surrogates import SurrogateRank, SurrogateTest, surrogate_test

__all__ = [
    "Exponent",
    "Phases",
    "PoincareMap",
    "SurrogateRank",
    "SurrogateTest",
    "aggregate_map",
    "coefficient_of_variation",
    "compare",
    "derivative_exponent",
    "difference_exponent",
    "flow_maps",
    "lag1_autocorrelation",
    "permutation_entropy",
    "pooled_map",
    "rosenstein_exponent",
    "slope_exponent",
    "split_phases",
    "surrogate_test",
]
