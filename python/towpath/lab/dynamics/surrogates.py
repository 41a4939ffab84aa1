"""Comparison of an exponent with those of surrogates of its series.

`surrogate_test` returns a `SurrogateTest`, with a `SurrogateRank` for the series and one for its residuals. A test needs at least 30
pairs, and 39 to 999 surrogates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from towpath.lab.dynamics.checks import Array, Indices, check_whole
from towpath.lab.dynamics.exponents import Exponent, difference_exponent, slope_exponent
from towpath.lab.dynamics.maps import PoincareMap
from towpath.lab.dynamics.statistics import autoregression

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

_ESTIMATORS: dict[str, Callable[[PoincareMap], Exponent]] = {"difference": difference_exponent, "slope": slope_exponent}


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
    surrogates, seed = check_whole(surrogates, "surrogates", _MIN_SURROGATES, _MAX_SURROGATES), check_whole(seed, "seed", 0, (1 << 64) - 1)
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


def _residuals(poincare: PoincareMap) -> PoincareMap:
    """Returns the map of the parts of the series that a first-order autoregression does not predict."""
    deviations = poincare.series - poincare.series.mean(axis=1, keepdims=True)
    return replace(poincare, series=deviations[:, 1:] - autoregression(poincare.series) * deviations[:, :-1])
