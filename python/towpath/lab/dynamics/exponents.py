"""Lyapunov exponents of a Poincaré map, and their comparison.

The estimators return an `Exponent`, and `compare` the difference of two. An exponent alone says nothing about chaos; see
`towpath.lab.dynamics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view
from scipy.spatial import cKDTree

from towpath.lab.dynamics.checks import Array, Indices, check_array, check_whole
from towpath.lab.dynamics.maps import Kind, PoincareMap


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
    parameters: tuple[int, ...] = ()
    """For "rosenstein" `emb_dim`, `lag`, `min_tsep` and `steps`."""

    @property
    def per_s(self) -> float:
        """The exponent per second."""
        return self.per_step / self.interval_s


def derivative_exponent(poincare: PoincareMap, derivative: Callable[[Array], npt.ArrayLike]) -> Exponent:
    """Returns the exponent of a known map: the mean of ln |M'(X)|. Only this estimator is right for stable orbits, whose samples collapse
    to a few values. `derivative` receives the values X = throughput / capacity, and returns M' of each."""
    x = poincare.x
    slopes = np.abs(check_array(derivative(x), "derivative", (1,)))
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
    emb_dim, lag = check_whole(emb_dim, "emb_dim", 1, 10), check_whole(lag, "lag", 1, 100)
    min_tsep, fit_from = check_whole(min_tsep, "min_tsep", 0, 100), (emb_dim - 1) * lag + 1
    steps = check_whole(steps, "steps", fit_from + 2, fit_from + 100)
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
    return Exponent("rosenstein", *_conditions(poincare), slope, float(kept.mean()), step, mean_log, (emb_dim, lag, min_tsep, steps))


def compare(first: Exponent, second: Exponent) -> float:
    """Returns the exponent per step of the first less that of the second. Raises `ValueError` if their method, its parameters, kind,
    number of pairs or interval is not equal, as the exponent depends on them. It does not say whether the difference is significant."""
    for name in ("method", "parameters", "kind", "pairs", "interval_s"):
        if getattr(first, name) != getattr(second, name):
            raise ValueError(f"second: {name} {getattr(second, name)!r} is not that of the first: expected {getattr(first, name)!r}")
    return first.per_step - second.per_step


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
