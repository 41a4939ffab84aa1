"""Utilization-concavity coefficients: one number for how well an infrastructure is used over all round trips.

    >>> from towpath.lab.utilization import coefficients
    >>> result = coefficients([0.0, 0.1], [10e9, 0.0], capacity_bits_per_s=10e9)
    >>> result.under_utilization, result.concavity, result.utilization_concavity
    (0.5, 0.0, 0.5)

With the round trips scaled to x from 0 to 1 and the throughputs to y = Θ / capacity (N. Rao, "Some Science Aspects of Wide-Area Data
Transport", 2018):

- under-utilization C_UU = 1 − ȳ, where ȳ is the mean of y over x (trapezoids),
- concavity C_CC = ȳ − (y(0) + y(1)) / 2, the area between the profile and its chord, from −1/2 to 1/2,
- utilization-concavity C_UC = ((1 − C_UU) + (1/2 + C_CC)) / 2, from 0 (a spike at the shortest round trip) to 1 (the full rate
  that falls at the longest).

ESnet's testing harness has two more:

- variation C_V = n · (max − min) / ((n − 1) · sum of |changes|) − 1 / (n − 1) of n throughputs,
- C_UCV = (2 C_UC + C_V) / 3.

A profile that is flat at the capacity has 0.75, less than one that falls at the end: compare with the other two coefficients in
sight. More round trips, another range of them, and another normaliser change the number: `Coefficients` has all three, and
`difference` refuses unequal ones.

`esnet_coefficients` has the definitions of its notebook, which are scaled differently: round trips by the longest, throughputs by the
highest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtrc, ndtri, stdtrit

from towpath.lab.checks import FloatArray
from towpath.lab.profiles import Profile

MAX_EXCESS = 1.02
"""Maximum throughput / capacity. More means another capacity or another unit."""


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of a profile, and the conditions under which they hold."""

    under_utilization: float
    """C_UU, from 0 (the capacity is used at each round trip) to 1."""
    concavity: float
    """C_CC, from −1/2 (convex) to 1/2 (concave) for profiles that decrease; from −1 to 1 for others."""
    utilization_concavity: float
    """C_UC, from 0 to 1 for profiles that decrease."""
    variation: float
    """C_V: 1 for a monotone profile, near 0 for one that rises and falls at each step."""
    combined: float
    """C_UCV = (2 C_UC + C_V) / 3."""
    normaliser: str
    """`capacity`, or `maximum` if the capacity is unknown."""
    normaliser_bits_per_s: float
    rtt_s: tuple[float, ...]
    """The round trips in seconds. About half of the weight is between the last two of the usual seven."""


COEFFICIENTS = ("under_utilization", "concavity", "utilization_concavity", "variation", "combined")
"""The fields of `Coefficients` that are coefficients."""


@dataclass(frozen=True)
class EsnetCoefficients:
    """The coefficients with round trips / longest and throughputs / highest, as ESnet scales them."""

    utilization_concavity: float
    variation: float
    combined: float


@dataclass(frozen=True)
class Interval:
    """A coefficient with the interval of its bootstrap."""

    value: float
    lower: float
    upper: float
    coverage: float


def coefficients(rtt_s: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike, *, capacity_bits_per_s: float | None = None) -> Coefficients:
    """Returns the coefficients of a profile with at least two round trips (seconds, increasing).

    Without a capacity, the highest throughput is the normaliser, which gives more: up to 0.011 for 10 runs with errors of 10 %.
    Raises `ValueError` for a throughput that exceeds the capacity by more than 2 %: short runs do by the error of their clocks.
    """
    rtts, rates = _checked(rtt_s, throughput_bits_per_s)
    highest = float(rates.max())
    scale = highest if capacity_bits_per_s is None else float(capacity_bits_per_s)
    if not 0 < scale < np.inf:
        raise ValueError(f"capacity_bits_per_s: {scale}, expected more than 0, or one throughput above 0")
    if highest > MAX_EXCESS * scale:
        raise ValueError(f"throughput_bits_per_s: {highest:g} is more than the capacity of {scale:g} bit/s")
    under, concavity, utilization, variation, combined = map(float, _coefficients(rtts, rates / scale))
    normaliser = "maximum" if capacity_bits_per_s is None else "capacity"
    of_rtts = tuple(float(rtt) for rtt in rtts)
    return Coefficients(under, concavity, utilization, variation, combined, normaliser, scale, of_rtts)


def _coefficients(rtts: FloatArray, levels: FloatArray) -> FloatArray:
    """Returns the coefficients, in their order, of throughputs / normaliser, which may have further dimensions before that of the round
    trips."""
    x = (rtts - rtts[0]) / (rtts[-1] - rtts[0])
    mean, chord = _trapezoid(x, levels), (levels[..., 0] + levels[..., -1]) / 2
    concavity = mean - chord
    utilization, variation = (mean + 0.5 + concavity) / 2, _variation(levels)
    return np.stack([1 - mean, concavity, utilization, variation, (2 * utilization + variation) / 3])


def _variation(levels: FloatArray) -> FloatArray:
    """Returns C_V; 1 if all throughputs are equal, as they are monotone."""
    count, span = levels.shape[-1], levels.max(axis=-1) - levels.min(axis=-1)
    changes = np.abs(np.diff(levels, axis=-1)).sum(axis=-1)
    ratio = np.divide(span, changes, out=np.ones(changes.shape), where=changes > 0)
    return np.asarray((count * ratio - 1) / (count - 1))


def esnet_coefficients(rtt_s: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike) -> EsnetCoefficients:
    """Returns ESnet's coefficients of a profile with at least two round trips (seconds, increasing), not all throughputs equal."""
    rtts, rates = _checked(rtt_s, throughput_bits_per_s)
    highest = rates.max()
    if rates.min() == highest:
        raise ValueError(f"throughput_bits_per_s: all are {highest:g}, so there is no variation")
    mean, chord = _trapezoid(rtts / rtts[-1], rates / highest), (rates[0] + rates[-1]) / (2 * highest)
    utilization = mean - chord / 2 + 0.25
    variation = _variation(rates)
    return EsnetCoefficients(float(utilization), float(variation), float((2 * utilization + variation) / 3))


def coefficients_of(profile: Profile) -> Coefficients:
    """Returns the coefficients of the means of a profile, with its capacity as the normaliser if it is known."""
    return coefficients(profile.rtt_s, profile.means, capacity_bits_per_s=profile.capacity_bits_per_s)


def intervals(profile: Profile, *, coverage: float = 0.95, samples: int = 2_000, seed: int = 0) -> dict[str, Interval]:
    """Returns the coefficients of a profile with intervals from runs resampled at each round trip.

    The keys are `COEFFICIENTS`. Percentiles of the resampled coefficients are too near for few runs: their distances from the
    coefficient are multiplied by t / z · √(n / (n − 1)), with the fewest runs n at a round trip, and the degrees of freedom of Welch
    and Satterthwaite: few if one round trip has most of the variance. Needs two runs at each round trip. Raises `ValueError` otherwise.
    """
    if not 0.5 <= coverage < 1 or not 100 <= samples <= 100_000:
        raise ValueError(f"coverage, samples: {coverage}, {samples}: expected 0.5 to less than 1, and 100 to 100,000")
    fewest = int(profile.counts.min())
    if fewest < 2:
        raise ValueError(f"profile: a single run at {profile.rtt_s[int(profile.counts.argmin())]:g} s has no interval")
    random = np.random.default_rng(seed)
    means = np.stack([random.choice(sample, (samples, len(sample))).mean(axis=1) for sample in profile.samples], axis=1)
    whole = coefficients_of(profile)
    scales = means.max(axis=1, keepdims=True) if profile.capacity_bits_per_s is None else whole.normaliser_bits_per_s
    resampled = _coefficients(profile.rtt_s, means / scales)
    tail = (1 - coverage) / 2
    freedom = _degrees_of_freedom(profile, whole.normaliser_bits_per_s)
    factors = stdtrit(freedom, 1 - tail) / ndtri(1 - tail) * np.sqrt(fewest / (fewest - 1))
    result = {}
    for name, values, factor in zip(COEFFICIENTS, resampled, factors, strict=True):
        value = getattr(whole, name)
        lower, upper = value + factor * (np.quantile(values, [tail, 1 - tail]) - value)
        result[name] = Interval(value, float(lower), float(upper), coverage)
    return result


def _degrees_of_freedom(profile: Profile, scale: float) -> FloatArray:
    """Returns the degrees of freedom of the variances of the coefficients, which are sums over the round trips (Welch–Satterthwaite)."""
    levels, step = profile.means / scale, 1e-6 * np.eye(len(profile.rtt_s))
    slopes = (_coefficients(profile.rtt_s, levels + step) - _coefficients(profile.rtt_s, levels - step)) / 2e-6
    parts = slopes**2 * [np.var(sample, ddof=1) / len(sample) for sample in profile.samples]
    total, squares = parts.sum(axis=1), (parts**2 / (profile.counts - 1)).sum(axis=1)
    freedom: FloatArray = np.divide(total**2, squares, out=np.full(len(total), float((profile.counts - 1).sum())), where=squares > 0)
    return freedom


def difference(one: Coefficients, other: Coefficients) -> float:
    """Returns the C_UC of `one` minus that of `other`. Raises `ValueError` unless round trips and normaliser are the same."""
    if one.rtt_s != other.rtt_s:
        raise ValueError(f"other: its round trips {other.rtt_s} differ from {one.rtt_s}; coefficients of different sets do not compare")
    if one.normaliser != other.normaliser:
        raise ValueError(f"other: it is normalised by {other.normaliser}, not by {one.normaliser}")
    return one.utilization_concavity - other.utilization_concavity


@dataclass(frozen=True)
class SiteEffects:
    """How much of the differences between sites the round trip explains."""

    verdict: str
    """`site outweighs RTT`, `RTT outweighs site`, or `undecided`, also if the means of sites differ by no more than their errors."""
    sites: tuple[str, ...]
    rtt_s: FloatArray
    """For each site its median round trip in seconds."""
    means_bits_per_s: FloatArray
    """For each site its mean throughput."""
    residuals_bits_per_s: FloatArray
    """For each site its mean throughput minus that of the isotonic profile of the other sites at its round trip."""
    rtt_part: float
    """Part of the variance between sites that a decreasing profile explains (leave one out), at most 1; negative if it predicts
    worse than the mean of all sites."""
    monotone_part: float
    """The same for the isotonic fit of all sites, which is higher: each site is its own neighbour."""


def site_effects(sites: npt.ArrayLike, rtt_s: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike) -> SiteEffects:
    """Projects the throughput of sites on decreasing profiles, and returns the differences.

    Each run has a site, the round trip to it, and a throughput; three sites at least. A site is predicted by the isotonic profile of
    the others, so a site with a slower link is not explained by itself. RTT outweighs the sites if that explains more than half of
    the variance between the means of sites, the sites outweigh RTT if even the isotonic fit of all of them explains less than half.
    (Projection and difference operators: N. Rao et al., "Throughput Analytics of Data Transfer Infrastructures", TridentCom 2018.)
    """
    names, rtts, rates = np.asarray(sites), np.asarray(rtt_s, dtype=np.float64), np.asarray(throughput_bits_per_s, dtype=np.float64)
    if not names.shape == rtts.shape == rates.shape or rtts.ndim != 1:
        raise ValueError(f"sites, rtt_s, throughput_bits_per_s: expected as many, not {names.shape}, {rtts.shape} and {rates.shape}")
    if not (np.all(np.isfinite(rtts)) and np.all(np.isfinite(rates))):
        raise ValueError("rtt_s, throughput_bits_per_s: expected finite numbers")
    different = list(dict.fromkeys(names.tolist()))
    if len(different) < 3:
        raise ValueError(f"sites: {len(different)}, expected three or more different ones")
    site_rtts = np.array([np.median(rtts[names == site]) for site in different])
    means = np.array([rates[names == site].mean() for site in different])
    variance = ((means - means.mean()) ** 2).sum()
    within = sum(((rates[names == site] - rates[names == site].mean()) ** 2).sum() for site in different)
    if variance == 0:
        raise ValueError("throughput_bits_per_s: all sites have the same mean, so there is nothing to explain")
    everyone = np.arange(len(different))
    predicted = np.array([_decreasing(site_rtts[everyone != at], means[everyone != at], site_rtts[at]) for at in everyone])
    rest = np.array([(means.sum() - mean) / (len(means) - 1) for mean in means])
    rtt_part = 1 - ((means - predicted) ** 2).sum() / ((means - rest) ** 2).sum()
    monotone = np.array([_decreasing(site_rtts, means, rtt) for rtt in site_rtts])
    monotone_part = 1 - ((means - monotone) ** 2).sum() / variance
    verdict = "RTT outweighs site" if rtt_part > 0.5 else "site outweighs RTT" if monotone_part < 0.5 else "undecided"
    if not _differ(names, different, rates, within):
        verdict = "undecided"
    return SiteEffects(verdict, tuple(map(str, different)), site_rtts, means, means - predicted, float(rtt_part), float(monotone_part))


def _differ(names: npt.NDArray[np.generic], sites: list[str], rates: FloatArray, within: float) -> bool:
    """Returns whether the means of sites differ by more than their errors (analysis of variance, 1 %)."""
    between = sum((names == site).sum() * (rates[names == site].mean() - rates.mean()) ** 2 for site in sites)
    freedom = len(rates) - len(sites)
    if freedom == 0:
        raise ValueError("sites: a single run of each; expected two runs of a site at least, as their error is unknown")
    if within == 0:
        return True
    ratio = (between / (len(sites) - 1)) / (within / freedom)
    return bool(fdtrc(len(sites) - 1, freedom, ratio) < 0.01)


def _decreasing(rtts: FloatArray, means: FloatArray, at: float) -> float:
    """Returns the value at a round trip of the decreasing profile of sites; that of the nearest one beyond them."""
    different = np.unique(rtts)
    profile = Profile.of_samples(different, [means[rtts == rtt] for rtt in different])
    from towpath.lab.profiles import isotonic

    return float(np.interp(at, different, isotonic(profile)))


def _checked(rtt_s: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    rtts, rates = np.asarray(rtt_s, dtype=np.float64), np.asarray(throughput_bits_per_s, dtype=np.float64)
    if rtts.ndim != 1 or rtts.shape != rates.shape or len(rtts) < 2:
        raise ValueError(f"rtt_s, throughput_bits_per_s: expected as many, two at least, not {rtts.shape} and {rates.shape}")
    if not np.all(np.isfinite(rtts)) or rtts[0] < 0 or np.any(np.diff(rtts) <= 0):
        raise ValueError(f"rtt_s: expected increasing values of 0 s or more, not {rtts.tolist()}")
    if not np.all(np.isfinite(rates)) or np.any(rates < 0) or rates.max() <= 0:
        raise ValueError(f"throughput_bits_per_s: expected 0 or more, one above 0, not {rates.tolist()}")
    return rtts, rates


def _trapezoid(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray((np.diff(x) * (y[..., 1:] + y[..., :-1]) / 2).sum(axis=-1))
