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

The talk (N. Rao, "Some Science Aspects of Wide-Area Data Transport", 2018) reads a positive exponent as chaos. White noise has
ln n - 1.1, so an exponent alone says nothing; this module has no verdict of chaos.

Results carry their conditions, and `compare` refuses unequal ones. Throughputs have any unit, and at most the magnitude 1e50. A map
has at most 50,000 pairs. The same arguments give the same result. An invalid argument raises `ValueError` or `TypeError`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.spatial import cKDTree

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

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Kind = Literal["flow", "aggregate", "pooled"]

_MIN_SAMPLES = 10
"""Minimum number of samples of a trace: a run of 10 s in intervals of 1 s. Quarters of fewer samples say little."""

_MAX_PAIRS = 50_000
"""Maximum number of pairs of a map: `slope_exponent` needs 16 * n**1.5 bytes, here 180 MB."""

_MAX_VALUE = 1e50
"""Maximum magnitude of throughputs and capacities: squares of throughput / capacity remain finite."""

_MIN_TEST_PAIRS = 30
"""Minimum number of pairs for `surrogate_test`: the least for which its share of false verdicts was measured."""

_MIN_SURROGATES = 39
"""Minimum number of surrogates: an exponent below all 39 has the rank p 0.025."""

_MAX_SURROGATES = 999
"""Maximum number of surrogates, to bound the time of a test."""

_MAX_RANK_P = 0.025
"""Maximum rank p of a rejection."""

_MAX_Z = -2.0
"""Bound of z of a rejection, exclusive."""

_MIN_KEPT_FRACTION = 0.5
"""Minimum share of differences other than 0 for a verdict. Quantised and periodic traces have less."""


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


@dataclass(frozen=True, eq=False)
class Exponent:
    """A Lyapunov exponent with the conditions of its measurement."""

    method: Literal["derivative", "difference", "slope", "rosenstein"]
    kind: Kind
    """Kind of the map."""
    pairs: int
    """Number of pairs of the map."""
    interval_s: float
    """Sampling interval, in seconds."""
    cut_s: float
    """Duration removed from the start of the trace, in seconds."""
    per_step: float
    """The exponent per interval; -inf for a derivative of 0."""
    kept_fraction: float
    """Share of the local values that are defined, and hence averaged. With few, the exponent means nothing."""
    x: Array
    """For figures: the throughput / capacity of each kept local value; for "rosenstein" the steps."""
    local: Array
    """Local values at `x`: their mean is `per_step`. For "rosenstein" the mean log distances: their slope is `per_step`."""

    @property
    def per_s(self) -> float:
        """The exponent per second."""
        return self.per_step / self.interval_s


@dataclass(frozen=True)
class SurrogateRank:
    """Place of an exponent among those of surrogates."""

    mean_per_step: float
    """Mean exponent of the surrogates."""
    sd_per_step: float
    """Standard deviation of the exponents of the surrogates."""
    z: float
    """(Exponent - mean) / standard deviation."""
    rank_p: float
    """(1 + number of surrogates with at most the exponent) / (1 + number of surrogates)."""
    surrogates_per_step: tuple[float, ...]
    """Exponents of the surrogates."""

    @property
    def is_rejected(self) -> bool:
        """Whether the exponent is too low for a surrogate: z < -2 and rank p <= 0.025."""
        return self.z < _MAX_Z and self.rank_p <= _MAX_RANK_P


@dataclass(frozen=True, eq=False)
class SurrogateTest:
    """An exponent beside those of surrogates."""

    exponent: Exponent
    verdict: Literal["deterministic structure", "weak", "no structure found", "indeterminate"]
    """"deterministic structure": the exponents of the series and of the residuals are too low for surrogates. "weak": only that of the
    series is, as with autoregressive noise. "indeterminate": less than half of the local values are defined."""
    seed: int
    series: SurrogateRank | None
    """The series among its surrogates; None if indeterminate."""
    residuals: SurrogateRank | None
    """The residuals of a first-order autoregression among their surrogates; None unless the series is rejected."""


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
    trace = _array(rates, "rates", (1,))
    interval_s = _positive(interval_s, "interval_s")
    if trace.min() < 0:
        raise ValueError(f"rates: {trace.min()} is negative: expected throughputs")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold: {threshold} is out of range: expected a number above 0, at most 1")
    min_run = _whole(min_run, "min_run", 1, len(trace))
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


def flow_maps(rates: npt.ArrayLike, interval_s: float, *, cut_samples: int = 0, capacity: float = 1.0) -> tuple[PoincareMap, ...]:
    """Returns the map of each flow. The arguments are those of `pooled_map`."""
    traces = np.atleast_2d(_array(rates, "rates", (1, 2)))
    maps = [pooled_map(trace, interval_s, cut_samples=cut_samples, capacity=capacity) for trace in traces]
    return tuple(replace(found, kind="flow", flow=flow) for flow, found in enumerate(maps))


def aggregate_map(rates: npt.ArrayLike, interval_s: float, *, cut_samples: int = 0, capacity: float = 1.0) -> PoincareMap:
    """Returns the map of the sum of the flows. The arguments are those of `pooled_map`."""
    total = np.atleast_2d(_array(rates, "rates", (1, 2))).sum(axis=0)
    return replace(pooled_map(total, interval_s, cut_samples=cut_samples, capacity=capacity), kind="aggregate")


def pooled_map(rates: npt.ArrayLike, interval_s: float, *, cut_samples: int = 0, capacity: float = 1.0) -> PoincareMap:
    """Returns one map with the pairs of all flows.

    - `rates`: throughputs of equal intervals: a sequence for one flow, or a sequence per flow, of equal lengths. At least 10 remain
      after the cut.
    - `interval_s`: duration of an interval, in seconds.
    - `cut_samples`: number of samples to remove from the start, such as `Phases.ramp_samples`.
    - `capacity`: of the path, in the unit of the rates; the map has throughput / capacity.
    """
    traces = np.atleast_2d(_array(rates, "rates", (1, 2)))
    interval_s, capacity = _positive(interval_s, "interval_s"), _positive(capacity, "capacity")
    cut_samples = _whole(cut_samples, "cut_samples", 0, traces.shape[1] - _MIN_SAMPLES)
    series: Array = traces[:, cut_samples:] / capacity
    series.setflags(write=False)
    found = PoincareMap("pooled", None, interval_s, cut_samples * interval_s, capacity, series)
    if found.pairs > _MAX_PAIRS:
        raise ValueError(f"rates: {found.pairs} pairs are too many: expected at most {_MAX_PAIRS}")
    return found


def derivative_exponent(poincare: PoincareMap, derivative: Callable[[Array], npt.ArrayLike]) -> Exponent:
    """Returns the exponent of a known map: the mean of ln |M'(X)|. Only this estimator is right for stable orbits, whose samples collapse
    to a few values. `derivative` receives the values X = throughput / capacity, and returns M' of each."""
    x = poincare.x
    slopes = np.abs(_array(derivative(x), "derivative", (1,)))
    if slopes.shape != x.shape:
        raise ValueError(f"derivative: {slopes.size} values for {x.size} samples: expected one for each")
    with np.errstate(divide="ignore"):
        return _exponent(poincare, "derivative", x, np.log(slopes), x.size)


def difference_exponent(poincare: PoincareMap) -> Exponent:
    """Returns the mean of ln |dY / dX| over neighbours of the map sorted by X: an estimate of the talk's ln |dM/dX|. Neighbours with
    dX = 0 or dY = 0 are dropped. Noise raises it: white noise has about ln n - 1.1, whatever its amplitude."""
    return _exponent(poincare, "difference", *_differences(poincare.x, poincare.y), poincare.pairs - 1)


def slope_exponent(poincare: PoincareMap) -> Exponent:
    """Returns the mean of ln |slope| over the pairs of the map, of the line fitted to the sqrt(n) pairs nearest by rank of X. Noise raises
    it less than `difference_exponent`; kinks of the map lower it."""
    return _exponent(poincare, "slope", *_slopes(poincare.x, poincare.y), poincare.pairs)


def rosenstein_exponent(poincare: PoincareMap, *, emb_dim: int = 2, lag: int = 1, min_tsep: int = 1, steps: int = 6) -> Exponent:
    """Returns the exponent of Rosenstein, Collins and De Luca ("A practical method for calculating largest Lyapunov exponents from small
    data sets", Physica D 65, 1993): the growth of the mean log distance of nearest neighbours among delay vectors. White noise has
    about 0.

    The line is fitted from the step `(emb_dim - 1) * lag + 1` on. Vectors of earlier steps share samples with those that were selected
    for their small distance: with them, white noise has about 0.35 for 100 samples, and more for longer series.

    - `emb_dim`, `lag`: dimension of the vectors, from 1 to 10, and the samples between their elements, from 1 to 100.
    - `min_tsep`: neighbours in one flow are more than this number of samples apart; from 0 to 100.
    - `steps`: number of distances of each pair of neighbours, the first one included; the line is fitted to 2 to 100 of them.
    """
    emb_dim, lag = _whole(emb_dim, "emb_dim", 1, 10), _whole(lag, "lag", 1, 100)
    min_tsep, fit_from = _whole(min_tsep, "min_tsep", 0, 100), (emb_dim - 1) * lag + 1
    steps = _whole(steps, "steps", fit_from + 2, fit_from + 100)
    flows, samples = poincare.series.shape
    starts = samples - (emb_dim - 1) * lag - (steps - 1)
    if starts < 2 * min_tsep + 2:
        raise ValueError(f"poincare: {samples} samples of a flow are too few: expected at least {samples - starts + 2 * min_tsep + 2}")
    vectors = sliding_window_view(poincare.series, (emb_dim - 1) * lag + 1, axis=1)[..., ::lag]
    neighbours = _nearest(vectors[:, :starts].reshape(flows * starts, emb_dim), starts, min_tsep)
    distances = np.array([_distances(vectors[:, step : step + starts], neighbours) for step in range(fit_from, steps)])
    kept = distances > 0
    if not kept.any(axis=1).all():
        raise ValueError("poincare: all neighbours are equal at one of the steps: expected a series with more different values")
    mean_log = np.log(distances, where=kept, out=np.zeros_like(distances)).sum(axis=1) / kept.sum(axis=1)
    step = np.arange(fit_from, steps, dtype=np.float64)
    slope = float(np.polyfit(step, mean_log, 1)[0])
    return Exponent("rosenstein", *_conditions(poincare), slope, float(kept.mean()), step, mean_log)


def surrogate_test(
    poincare: PoincareMap, *, method: Literal["difference", "slope"] = "difference", surrogates: int = 39, seed: int = 0
) -> SurrogateTest:
    """Compares the exponent of a map with those of amplitude-adjusted phase-randomised surrogates of its series (Theiler et al., "Testing
    for nonlinearity in time series: the method of surrogate data", Physica D 58, 1992). The flows of a pooled map get the same random
    phases, which keeps their cross-correlation.

    Such surrogates of a short, strongly autocorrelated series are rougher than the series, which is rejected too often. The residuals of
    a first-order autoregression of each flow have little autocorrelation, but keep the structure of a nonlinear map. So a rejection is
    repeated with the residuals, and is weak if they are not rejected.

    - `poincare`: with at least 30 pairs.
    - `surrogates`: from 39 to 999.
    - `seed`: of the random numbers, from 0 to 2**64 - 1.
    """
    if method not in _ESTIMATORS:
        raise ValueError(f"method: {method!r} is unknown: expected one of {', '.join(_ESTIMATORS)}")
    surrogates, seed = _whole(surrogates, "surrogates", _MIN_SURROGATES, _MAX_SURROGATES), _whole(seed, "seed", 0, (1 << 64) - 1)
    if poincare.pairs < _MIN_TEST_PAIRS:
        raise ValueError(f"poincare: {poincare.pairs} pairs are too few: expected at least {_MIN_TEST_PAIRS}")
    estimate = _ESTIMATORS[method]
    exponent = estimate(poincare)
    if exponent.kept_fraction < _MIN_KEPT_FRACTION:
        return SurrogateTest(exponent, "indeterminate", seed, None, None)
    random = np.random.default_rng(seed)
    series = _rank(poincare, estimate, surrogates, random)
    if not series.is_rejected:
        return SurrogateTest(exponent, "no structure found", seed, series, None)
    residuals = _rank(_residuals(poincare), estimate, surrogates, random)
    return SurrogateTest(exponent, "deterministic structure" if residuals.is_rejected else "weak", seed, series, residuals)


def compare(first: Exponent, second: Exponent) -> float:
    """Returns the exponent per step of the first less that of the second. Raises `ValueError` if their method, kind, number of pairs or
    interval is not equal, as the exponent depends on them. It does not say whether the difference is significant."""
    for name in ("method", "kind", "pairs", "interval_s"):
        if getattr(first, name) != getattr(second, name):
            raise ValueError(f"second: {name} {getattr(second, name)!r} is not that of the first: expected {getattr(first, name)!r}")
    return first.per_step - second.per_step


def coefficient_of_variation(rates: npt.ArrayLike) -> float:
    """Returns the standard deviation of a trace of one flow, divided by its mean. The mean must be above 0."""
    trace = _array(rates, "rates", (1,))
    if trace.mean() <= 0:
        raise ValueError(f"rates: the mean {trace.mean()} is not above 0: expected throughputs")
    return float(trace.std(ddof=1) / trace.mean())


def lag1_autocorrelation(rates: npt.ArrayLike) -> float:
    """Returns the correlation of a trace of one flow with itself, one sample later: from -1 to 1, near 0 for white noise."""
    trace = _array(rates, "rates", (1,))
    if np.ptp(trace) == 0:
        raise ValueError(f"rates: all samples are {trace[0]}: expected different ones")
    return float(_autoregression(trace[None])[0, 0])


def permutation_entropy(rates: npt.ArrayLike, *, order: int = 3) -> float:
    """Returns the entropy of the rank orders of consecutive samples of one flow (Bandt and Pompe, Physical Review Letters 88, 174102,
    2002), divided by its maximum: from 0 for a monotonic trace to 1 for noise. Equal samples count as rising.

    - `rates`: at least `order! + order - 1` samples, and at least 10.
    - `order`: number of consecutive samples, from 2 to 7.
    """
    trace, order = _array(rates, "rates", (1,)), _whole(order, "order", 2, 7)
    patterns = np.argsort(sliding_window_view(trace, order), axis=1, kind="stable") if len(trace) >= order else np.empty((0, order))
    if len(patterns) < math.factorial(order):
        raise ValueError(f"rates: {len(trace)} samples are too few: expected at least {math.factorial(order) + order - 1}")
    shares = np.unique(patterns, axis=0, return_counts=True)[1] / len(patterns)
    return max(0.0, float(-(shares * np.log(shares)).sum() / math.log(math.factorial(order))))


def _first_run(trace: Array, least: float, min_run: int) -> int | None:
    """Returns the start of the first run of samples whose moving median is high enough. Unlike a mean, the median keeps steps in place."""
    smoothed = np.median(sliding_window_view(np.pad(trace, 1, mode="edge"), 3), axis=1)
    is_run = sliding_window_view(smoothed >= least, min_run).all(axis=1)
    return int(is_run.argmax()) if is_run.any() else None


def _is_rising(trace: Array, threshold: float) -> bool:
    """Returns whether the last quarter is clearly above the third: by more than the threshold, and more than their scatter."""
    third, last = np.array_split(trace[len(trace) // 2 :], 2)
    return bool(np.quantile(last, 0.25) * threshold > np.quantile(third, 0.75))


def _conditions(poincare: PoincareMap) -> tuple[Kind, int, float, float]:
    """Returns the conditions that an exponent shares with its map."""
    return poincare.kind, poincare.pairs, poincare.interval_s, poincare.cut_s


def _exponent(
    poincare: PoincareMap, method: Literal["derivative", "difference", "slope"], x: Array, local: Array, candidates: int
) -> Exponent:
    """Returns the mean of the local values."""
    if not len(local):
        raise ValueError("poincare: no neighbours differ in X and in Y: expected a series with more different values")
    return Exponent(method, *_conditions(poincare), float(local.mean()), len(local) / candidates, x, local)


def _differences(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns the lower X of each kept pair of neighbours, and ln |dY / dX|."""
    order = np.argsort(x, kind="stable")
    dx, dy = np.diff(x[order]), np.abs(np.diff(y[order]))
    kept = (dx > 0) & (dy > 0)
    return x[order][:-1][kept], np.log(dy[kept]) - np.log(dx[kept])


def _slopes(x: Array, y: Array) -> tuple[Array, Array]:
    """Returns X and ln |slope| of each pair whose neighbours have a slope other than 0."""
    order, width = np.argsort(x, kind="stable"), round(math.sqrt(len(x)))
    starts = np.clip(np.arange(len(x)) - width // 2, 0, len(x) - width)
    a, b = sliding_window_view(x[order], width), sliding_window_view(y[order], width)
    # Relative to the first value, windows of equal values have exactly the covariance 0.
    a, b = a - a[:, :1], b - b[:, :1]
    covariance = np.einsum("ij,ij->i", a, b) - a.sum(axis=1) * b.sum(axis=1) / width
    variance = np.einsum("ij,ij->i", a, a) - a.sum(axis=1) ** 2 / width
    kept = ((variance > 0) & (covariance != 0))[starts]
    starts = starts[kept]
    return x[order][kept], np.log(np.abs(covariance[starts])) - np.log(variance[starts])


_ESTIMATORS: dict[str, Callable[[PoincareMap], Exponent]] = {"difference": difference_exponent, "slope": slope_exponent}


def _nearest(vectors: Array, per_flow: int, min_tsep: int) -> Indices:
    """Returns the index of the nearest vector of each, other than those of the same flow within `min_tsep` samples."""
    found: Indices = np.asarray(cKDTree(vectors).query(vectors, k=2 * min_tsep + 2)[1])
    own = np.arange(len(vectors))[:, None]
    is_allowed = (found // per_flow != own // per_flow) | (np.abs(found - own) > min_tsep)
    nearest: Indices = found[own[:, 0], is_allowed.argmax(axis=1)]
    return nearest


def _distances(vectors: Array, neighbours: Indices) -> Array:
    """Returns the distance of each vector to that of its neighbour."""
    flat = vectors.reshape(-1, vectors.shape[-1])
    distances: Array = np.linalg.norm(flat - flat[neighbours], axis=1)
    return distances


def _rank(
    poincare: PoincareMap, estimate: Callable[[PoincareMap], Exponent], surrogates: int, random: np.random.Generator
) -> SurrogateRank:
    """Returns the place of the exponent of a map among those of surrogates."""
    value = estimate(poincare).per_step
    found = np.array([estimate(replace(poincare, series=_surrogate(poincare.series, random))).per_step for _ in range(surrogates)])
    mean, sd = float(found.mean()), float(found.std(ddof=1))
    if sd == 0:
        raise ValueError("poincare: all surrogates have the same exponent: expected a series with more different values")
    return SurrogateRank(mean, sd, (value - mean) / sd, float(1 + (found <= value).sum()) / (1 + surrogates), tuple(found.tolist()))


def _surrogate(series: Array, random: np.random.Generator) -> Array:
    """Returns the values of each row in another order: that of Gaussian noise with nearly the spectrum of the row's ranks."""
    samples = series.shape[1]
    # All rows share the random numbers, so that correlated rows stay correlated.
    ranks = _ranks(series, np.broadcast_to(random.random(samples), series.shape))
    spectrum = np.fft.rfft(np.sort(random.standard_normal(samples))[ranks])
    phases = random.uniform(0, 2 * np.pi, size=spectrum.shape[1:])
    # The mean is real, as is the highest frequency of an even number of samples.
    phases[[0, -1] if samples % 2 == 0 else [0]] = 0
    noise = np.fft.irfft(spectrum * np.exp(1j * phases), samples)
    return np.take_along_axis(np.sort(series), _ranks(noise, noise), axis=1)


def _ranks(series: Array, tie_break: Array) -> Indices:
    """Returns the rank of each value in its row."""
    return np.argsort(np.lexsort((tie_break, series)))


def _autoregression(series: Array) -> Array:
    """Returns the lag-1 autocorrelation of each row, as a column; 0 for constant rows."""
    deviations: Array = series - series.mean(axis=1, keepdims=True)
    products = (deviations[:, 1:] * deviations[:, :-1]).sum(axis=1, keepdims=True)
    squares = (deviations**2).sum(axis=1, keepdims=True)
    correlations: Array = products / np.maximum(squares, np.finfo(np.float64).tiny)
    return correlations


def _residuals(poincare: PoincareMap) -> PoincareMap:
    """Returns the map of the parts of the series that a first-order autoregression does not predict."""
    deviations = poincare.series - poincare.series.mean(axis=1, keepdims=True)
    return replace(poincare, series=deviations[:, 1:] - _autoregression(poincare.series) * deviations[:, :-1])


def _array(values: npt.ArrayLike, name: str, dimensions: tuple[int, ...]) -> Array:
    """Returns an array of numbers; raises `ValueError` for other dimensions, too few numbers, and numbers out of range."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}: expected sequences of equal length") from None
    if array.dtype.kind not in "biuf" or array.ndim not in dimensions:
        raise ValueError(f"{name}: {array.ndim} dimensions of {array.dtype}: expected numbers in {' or '.join(map(str, dimensions))}")
    if array.size == 0 or array.shape[-1] < _MIN_SAMPLES:
        raise ValueError(f"{name}: {array.shape[-1] if array.size else 0} samples are too few: expected at least {_MIN_SAMPLES}")
    numbers: Array = array.astype(np.float64)
    is_valid = np.abs(numbers) <= _MAX_VALUE
    if not is_valid.all():
        raise ValueError(f"{name}: {numbers[~is_valid][0]} is out of range: expected finite numbers within {_MAX_VALUE:g}")
    return numbers


def _positive(number: float, name: str) -> float:
    """Returns a number above 0; raises `ValueError` if it is out of range."""
    value = float(number)
    if not 1 / _MAX_VALUE <= value <= _MAX_VALUE:
        raise ValueError(f"{name}: {value} is out of range: expected a number from {1 / _MAX_VALUE:g} to {_MAX_VALUE:g}")
    return value


def _whole(number: int, name: str, least: int, most: int) -> int:
    """Returns a whole number; raises `ValueError` if it is out of range."""
    value = operator.index(number)
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is out of range: expected a whole number from {least} to {most}")
    return value
