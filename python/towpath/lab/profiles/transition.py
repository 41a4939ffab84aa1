"""The transition of a profile from concave to convex, as a bracket of two measured round trips.

    >>> from towpath.lab.profiles import Profile
    >>> from towpath.lab.profiles.transition import find_transition
    >>> samples = [[9.9, 9.8], [9.5, 9.6], [8.4, 8.6], [2.1, 1.9], [1.0, 0.9]]
    >>> found = find_transition(Profile.of_samples([0.01, 0.05, 0.1, 0.2, 0.4], samples))
    >>> found.shape, found.bracket_s
    ('dual', (0.1, 0.2))

For each segment m between two round trips, the profile is fitted by least squares with slopes that decrease up to m and increase
after it, all of them ≤ 0; so m is the steepest segment. The fits are convex problems with one solution each. The best of them
gives the bracket; all that fit as well are in the set. If a straight line fits as well, the shape is indeterminate. The result is
never finer than the measured round trips: a pair of sigmoids, as in N. Rao's talk (2018), has more parameters than seven round
trips identify.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, nnls
from scipy.special import chdtri, digamma, polygamma

from towpath.lab.checks import FloatArray
from towpath.lab.profiles import Profile

MIN_ROUND_TRIPS = 4
"""With three round trips, each decreasing profile has a fit without an error."""

MAX_ROUND_TRIPS = 40
"""The time of a fit grows with the fourth power of the number of round trips."""

LINE_FREEDOM = 4
"""Degrees of freedom of the comparison with a line. A fit has more than one additional parameter, but none is free. With 4, 92 % of
straight profiles with 10 runs at 7 round trips are indeterminate."""


@dataclass(frozen=True)
class Transition:
    """The shape of a profile."""

    shape: str
    """`dual`: concave, then convex. `concave`, `convex`: the whole profile. `indeterminate`: a straight line fits as well."""
    bracket_s: tuple[float, float] | None
    """The two round trips of the steepest segment of the best fit; None if indeterminate. For a convex profile the first two round trips,
    for a concave one the last two. The transition of a smooth profile is there. A kink, as that of a buffer, can also be in the segment
    before, as the fall is steepest just after it: with round trips that are close together it mostly is."""
    set_s: tuple[tuple[float, float], ...]
    """The brackets of all fits that are as good, by round trip; all brackets if indeterminate."""
    shapes: tuple[str, ...]
    """The shapes of these fits: more than one if the runs do not decide between them."""
    errors: FloatArray
    """For each segment the weighted sum of squares of its fit, in variances of the mean."""
    fit_bits_per_s: FloatArray
    """The values of the best fit at the round trips; of the line if indeterminate."""


def find_transition(profile: Profile, *, level: float = 0.95) -> Transition:
    """Finds the transition.

    `level` is that of the set: a fit is as good as the best one if its sum of squares exceeds that of the best by less than the
    quantile of χ² with one degree of freedom. The line is compared with `LINE_FREEDOM` degrees of freedom.

    Needs 4 to 40 round trips, and two runs at one of them. Variances of few runs are uncertain, so those of the round trips, relative to
    the means, are moved towards a common one. Raises `ValueError` otherwise.
    """
    rtts = profile.rtt_s
    if not MIN_ROUND_TRIPS <= len(rtts) <= MAX_ROUND_TRIPS:
        raise ValueError(f"profile: {len(rtts)} round trips, expected {MIN_ROUND_TRIPS} to {MAX_ROUND_TRIPS}")
    weights = 1 / np.sqrt(_variances_of_means(profile))
    means, steps = profile.means, np.diff(rtts)
    fits = [_fit(means, weights, steps, segment) for segment in range(len(steps))]
    errors = np.array([_error(means, weights, fit) for fit in fits])
    line = np.polynomial.Polynomial.fit(rtts, means, 1, w=weights)(rtts)
    best = int(np.argmin(errors))
    brackets = [(float(low), float(high)) for low, high in itertools.pairwise(rtts)]
    if _error(means, weights, line) < errors[best] + chdtri(LINE_FREEDOM, 1 - level):
        return Transition("indeterminate", None, tuple(brackets), ("indeterminate",), errors, line)
    is_as_good = errors <= errors[best] + chdtri(1, 1 - level)
    shapes = ["convex", *["dual"] * (len(steps) - 2), "concave"]
    as_good = [segment for segment in range(len(steps)) if is_as_good[segment]]
    return Transition(
        shapes[best],
        brackets[best],
        tuple(brackets[segment] for segment in as_good),
        tuple(dict.fromkeys(shapes[segment] for segment in as_good)),
        errors,
        fits[best],
    )


def refinement(transition: Transition, rtt_s: npt.ArrayLike) -> tuple[float, ...]:
    """Returns the round trips to measure next, in seconds: the middles of the bracket and of the segment before it, to whole tenths of
    milliseconds. A kink, as that of a buffer, is often in that segment, since the fall is steepest just after it. Before the first segment
    there is none, so that is halved. Empty for an indeterminate profile, and without those of segments of a tenth of a millisecond.

    - `rtt_s`: round trips of the profile, in seconds.
    """
    if transition.bracket_s is None:
        return ()
    low, high = transition.bracket_s
    before = [float(rtt) for rtt in np.asarray(rtt_s, dtype=np.float64) if rtt < low]
    edges = [max(before), low, high] if before else [low, (low + high) / 2, high]
    middles = [round((first + second) / 2, 4) for first, second in itertools.pairwise(edges)]
    return tuple(rtt for rtt in middles if low < rtt < high or (before and max(before) < rtt < low))


def _variances_of_means(profile: Profile) -> FloatArray:
    counts, scales = profile.counts, np.maximum(profile.means, profile.means.max() * 1e-6)
    freedom = counts - 1
    if not freedom.any():
        raise ValueError("profile: expected two runs at one round trip at least, as the error of a single run is unknown")
    squares = np.array([((sample - sample.mean()) ** 2).sum() for sample in profile.samples]) / scales**2
    if not squares.any():
        raise ValueError("profile: all runs at each round trip are equal, so their error is unknown")
    variances: FloatArray = _moderated(squares, freedom.astype(np.float64)) * scales**2 / counts
    return variances


def _moderated(squares: FloatArray, freedom: FloatArray) -> FloatArray:
    """Returns variances from sums of squares and their degrees of freedom, each moved towards a common one, the more so the less they
    differ beyond their errors (G. Smyth, "Linear models and empirical Bayes methods", 2004). Without degrees of freedom it is the common
    one."""
    known = freedom > 0
    pooled = squares.sum() / freedom.sum()
    half = freedom[known] / 2
    own = np.maximum(squares[known] / freedom[known], pooled * MIN_VARIANCE)
    logarithms = np.log(own) - digamma(half) + np.log(half)
    excess = float(logarithms.var(ddof=1) - polygamma(1, half).mean()) if len(own) > 1 else 0.0
    if excess <= 0:
        return np.full(len(squares), pooled)
    limits = (float(polygamma(1, PRIOR_RANGE[1])), float(polygamma(1, PRIOR_RANGE[0])))
    target = min(max(excess, limits[0]), limits[1])
    prior = 2 * brentq(lambda half_prior: polygamma(1, half_prior) - target, *PRIOR_RANGE)
    common = np.exp(logarithms.mean() + digamma(prior / 2) - np.log(prior / 2))
    variances: FloatArray = (prior * common + squares) / (prior + freedom)
    return variances


MIN_VARIANCE = 1e-4
"""Least variance of a round trip / pooled one: equal runs have an unknown error, not none."""

PRIOR_RANGE = (1e-3, 1e6)
"""Range of half the degrees of freedom of the common variance."""


def _fit(means: FloatArray, weights: FloatArray, steps: FloatArray, segment: int) -> FloatArray:
    """Returns the best values with the steepest slope at `segment`.

    Such slopes are sums of equal negative slopes over intervals of segments that contain `segment`.
    """
    count = len(steps)
    intervals = [(first, last) for first in range(segment + 1) for last in range(segment, count)]
    falls = np.zeros((count + 1, len(intervals)))
    for column, (first, last) in enumerate(intervals):
        falls[first + 1 : last + 2, column] = np.cumsum(steps[first : last + 1])
        falls[last + 2 :, column] = falls[last + 1, column]
    falls /= np.maximum(falls[-1], 1e-300)
    scale = float(np.abs(means).max()) or 1.0
    level = np.ones((count + 1, 1))
    # The level may have either sign.
    columns = np.hstack([level, -level, -falls]) * weights[:, None] * scale
    solution, _ = nnls(columns, means * weights)
    values: FloatArray = columns @ solution / weights
    return values


def _error(means: FloatArray, weights: FloatArray, fit: FloatArray) -> float:
    return float((((means - fit) * weights) ** 2).sum())
