"""Intervals for a profile, with their coverage stated.

    >>> from towpath.lab.profiles import Profile
    >>> from towpath.lab.profiles.bands import envelope
    >>> band = envelope(Profile.of_samples([0.01, 0.1], [[9.0, 9.2, 9.1], [8.0, 8.4, 8.2]]))
    >>> [round(float(value), 1) for value in band.lower], band.is_reliable
    ([7.8, 7.6], False)

- `envelope` is the one to use: simultaneous intervals of the means, narrowed because profiles decrease.
- `bootstrap` resamples runs, and covers too little with less than 30 runs: exploratory.
- `hoeffding` needs no law of the errors, only the capacity. It is wide: half of the capacity with 10 runs at each of 7 round trips.
- `prediction` is an interval for the next run, not for the mean.
- `printed_bound` is that of N. Rao's talk (2018), which is refused where it is no bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import stdtrit

from towpath.lab.checks import FloatArray
from towpath.lab.profiles import Profile

MIN_RELIABLE_RUNS = 10
"""With fewer runs, errors with a skewed law are covered too rarely (78 % for exponential ones with 5 runs)."""


@dataclass(frozen=True)
class Band:
    """An interval for each round trip."""

    method: str
    rtt_s: FloatArray
    """Round trips in seconds."""
    lower: FloatArray
    """Lower ends in bits per second."""
    upper: FloatArray
    """Upper ends in bits per second."""
    coverage: float
    """The intended probability that the band has all values (`is_simultaneous`), or each of them."""
    is_simultaneous: bool
    is_reliable: bool
    """Whether there are enough runs for this coverage."""

    def at(self, rtt_s: float) -> tuple[float, float]:
        """Returns the interval at a round trip between the measured ones, for a decreasing profile: the lower end at the next
        longer round trip, and the upper end at the next shorter one."""
        if not self.rtt_s[0] <= rtt_s <= self.rtt_s[-1]:
            raise ValueError(f"rtt_s: {rtt_s:g} s was not measured: expected {self.rtt_s[0]:g} to {self.rtt_s[-1]:g} s")
        longer = int(np.searchsorted(self.rtt_s, rtt_s, side="left"))
        shorter = int(np.searchsorted(self.rtt_s, rtt_s, side="right")) - 1
        return float(self.lower[longer]), float(self.upper[shorter])


def envelope(profile: Profile, *, coverage: float = 0.95) -> Band:
    """Returns simultaneous t intervals of the means (Bonferroni), narrowed by monotonicity: no upper end is above that of a shorter
    round trip, no lower end below that of a longer one. So they assume that the profile decreases.

    Needs two runs at each round trip; reliable with 10. Raises `ValueError` also for a profile that rises by more than its errors.
    """
    _check(profile, coverage, 2)
    counts = profile.counts
    half = stdtrit(counts - 1, 1 - (1 - coverage) / (2 * len(counts))) * profile.deviations / np.sqrt(counts)
    upper = np.minimum.accumulate(profile.means + half)
    lower = np.maximum.accumulate((profile.means - half)[::-1])[::-1]
    if np.any(lower > upper):
        rtt_ms = 1e3 * profile.rtt_s[int(np.argmax(lower > upper))]
        raise ValueError(f"profile: it rises after {rtt_ms:g} ms by more than its errors, and the envelope assumes that it decreases")
    return Band("envelope", profile.rtt_s, np.maximum(lower, 0), upper, coverage, True, bool(counts.min() >= MIN_RELIABLE_RUNS))


def bootstrap(profile: Profile, *, coverage: float = 0.95, samples: int = 1_000, seed: int = 0) -> Band:
    """Returns pointwise percentile intervals of the isotonic fit, from resampled runs. Exploratory: with 10 runs and errors of 10 %
    it covers 90 % of the points and 84 % of whole profiles for an intended 95 %."""
    _check(profile, coverage, 2)
    if not 100 <= samples <= 100_000:
        raise ValueError(f"samples: {samples}, expected 100 to 100,000")
    random = np.random.default_rng(seed)
    means = np.stack([random.choice(sample, (samples, len(sample))).mean(axis=1) for sample in profile.samples], axis=1)
    weights = profile.counts.astype(np.float64)
    fits = np.stack([isotonic_regression(row, weights=weights, increasing=False).x for row in means])
    lower, upper = np.quantile(fits, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
    return Band("bootstrap", profile.rtt_s, lower, upper, coverage, False, bool(profile.counts.min() >= 30))


def hoeffding(profile: Profile, *, coverage: float = 0.95) -> Band:
    """Returns simultaneous intervals of the means for any law of the errors between 0 and the capacity (W. Hoeffding, "Probability
    inequalities for sums of bounded random variables", 1963)."""
    _check(profile, coverage, 1)
    capacity = _capacity(profile)
    half = capacity * np.sqrt(np.log(2 * len(profile.rtt_s) / (1 - coverage)) / (2 * profile.counts))
    lower, upper = np.maximum(profile.means - half, 0), np.minimum(profile.means + half, capacity)
    return Band("hoeffding", profile.rtt_s, lower, upper, coverage, True, True)


def prediction(profile: Profile, *, coverage: float = 0.9) -> Band:
    """Returns intervals for the next run at each round trip (conformal: V. Vovk et al., "Algorithmic Learning in a Random World",
    2005). The differences of each run from the others, relative to their standard deviation, are one sample over all round trips.

    Needs three runs at each round trip, as it leaves one out. Raises `ValueError` also if there are too few runs for the coverage, as n
    runs reach 1 − 1 / (n + 1), and if too many runs differ from others that are equal.
    """
    _check(profile, coverage, 3)
    scores = [_score(np.delete(sample, at), sample[at]) for sample in profile.samples for at in range(len(sample))]
    ordered = np.sort(scores)
    rank = int(np.ceil(coverage * (len(ordered) + 1)))
    if rank > len(ordered):
        raise ValueError(f"coverage: {len(ordered)} runs reach at most {1 - 1 / (len(ordered) + 1):.3f}, not {coverage}")
    if not np.isfinite(ordered[rank - 1]):
        different = int(np.isinf(ordered).sum())
        raise ValueError(
            f"profile: {different} of {len(ordered)} runs differ from others that are equal: expected less rounded throughputs"
        )
    half = ordered[rank - 1] * profile.deviations * np.sqrt(1 + 1 / profile.counts)
    lower = np.maximum(profile.means - half, 0)
    return Band("prediction", profile.rtt_s, lower, profile.means + half, coverage, False, bool(profile.counts.min() >= 5))


def _score(others: FloatArray, run: float) -> float:
    """Returns the difference of a run from others, relative to the standard deviation of that difference."""
    deviation = others.std(ddof=1) * np.sqrt(1 + 1 / len(others))
    difference = float(abs(run - others.mean()))
    if deviation > 0:
        return difference / float(deviation)
    return np.inf if difference > 0 else 0.0


@dataclass(frozen=True)
class PrintedBound:
    """The bound of the talk for the excess risk of the least-squares profile."""

    log10_delta: float
    """Decimal logarithm of the bound of the probability."""
    is_vacuous: bool
    """Whether the bound is 1 or more."""


def printed_bound(epsilon: float, runs: int) -> PrintedBound:
    """Returns the bound δ = 32 (n/ε)^((1 + C/ε) log2(4ε/C)) n exp(−ε² n / (2C)²) as the talk prints it, for C = 1, an error ε in squared
    throughput / capacity, and n runs.

    Raises `ValueError` for ε < 1/4: the exponent is negative there, so a single run would prove almost anything. It is probably a
    misprint of a covering bound. The talk does not say whether n counts runs or round trips; runs at equal round trips are not
    independent pairs, as its conditions require.
    """
    if not 0.25 <= epsilon <= 1:
        raise ValueError(f"epsilon: {epsilon}: as printed, the bound is only one for 0.25 to 1; use envelope()")
    if not 1 <= runs <= 10**12:
        raise ValueError(f"runs: {runs}, expected 1 to 10^12")
    exponent = (1 + 1 / epsilon) * np.log2(4 * epsilon)
    log10_delta = np.log10(32 * runs) + exponent * np.log10(runs / epsilon) - epsilon**2 * runs / 4 / np.log(10)
    return PrintedBound(float(log10_delta), bool(log10_delta >= 0))


def _check(profile: Profile, coverage: float, min_runs: int) -> None:
    if not 0.5 <= coverage < 1:
        raise ValueError(f"coverage: {coverage}, expected 0.5 to less than 1")
    fewest = int(np.argmin(profile.counts))
    if profile.counts[fewest] < min_runs:
        raise ValueError(f"profile: {profile.counts[fewest]} runs at {profile.rtt_s[fewest]:g} s, expected {min_runs} or more")


def _capacity(profile: Profile) -> float:
    if profile.capacity_bits_per_s is None:
        raise ValueError("profile: its capacity is unknown; this band needs it")
    highest = max(float(sample.max()) for sample in profile.samples)
    if highest > profile.capacity_bits_per_s:
        raise ValueError(f"profile: a run has {highest:g} bit/s, more than the capacity of {profile.capacity_bits_per_s:g}")
    return profile.capacity_bits_per_s
