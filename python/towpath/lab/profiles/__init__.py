"""Throughput profiles: mean throughput as a function of the round trip, for one configuration.

    >>> from towpath.lab.profiles import Profile
    >>> profile = Profile.of_samples([0.01, 0.1, 0.2], [[9e9, 9.2e9], [8e9, 8.2e9], [3e9, 3.4e9]], capacity_bits_per_s=10e9)
    >>> profile.at(0.15) / 1e9
    5.65

- `Profile` has the runs at each round trip. Between two measured round trips it is a straight line, beyond them it is not defined.
- `isotonic`: the decreasing profile with the least squared error.
- `transition` (`towpath.lab.profiles.transition`): between which round trips the profile changes from concave to convex.
- `bands` (`towpath.lab.profiles.bands`): intervals with a stated coverage.

The mean of a run is weighted by time: 8 · bytes / duration, never the mean of the rates of its intervals. The method is that of N. Rao,
"Some Science Aspects of Wide-Area Data Transport" (2018), who calls it Θ_O(τ).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from towpath.lab.checks import FloatArray
from towpath.lab.runs import Runs

__all__ = ["Profile", "isotonic", "profile_of"]

MAX_ROUND_TRIPS = 1_000


@dataclass(frozen=True)
class Profile:
    """The runs of one configuration."""

    rtt_s: FloatArray
    """Round trips in seconds, increasing."""
    samples: tuple[FloatArray, ...]
    """For each round trip the throughputs of its runs in bits per second."""
    capacity_bits_per_s: float | None = None
    """Capacity of the path; None if unknown."""
    label: str = ""
    """Name of the configuration for figures and reports."""
    excluded: int = 0
    """Runs that are left out because the machine limited them, not the path."""

    @classmethod
    def of_samples(
        cls, rtt_s: npt.ArrayLike, samples: Sequence[npt.ArrayLike], *, capacity_bits_per_s: float | None = None, label: str = ""
    ) -> Profile:
        """Creates a profile from the throughputs (bits per second) of the runs at each round trip (seconds, in any order)."""
        rtts = np.atleast_1d(np.asarray(rtt_s, dtype=np.float64))
        values = [np.atleast_1d(np.asarray(sample, dtype=np.float64)) for sample in samples]
        if len(rtts) != len(values) or not 1 <= len(rtts) <= MAX_ROUND_TRIPS:
            raise ValueError(f"rtt_s, samples: {len(rtts)} and {len(values)}; expected as many, 1 to {MAX_ROUND_TRIPS:,}")
        if not np.all(np.isfinite(rtts)) or np.any(rtts < 0) or len(np.unique(rtts)) < len(rtts):
            raise ValueError(f"rtt_s: expected different values of 0 s or more, not {rtts.tolist()}")
        for rtt, sample in zip(rtts, values, strict=True):
            if sample.ndim != 1 or len(sample) == 0 or not np.all(np.isfinite(sample)) or np.any(sample < 0):
                raise ValueError(f"samples: at {rtt:g} s: expected throughputs of 0 bit/s or more, not {sample.tolist()}")
        if capacity_bits_per_s is not None and not 0 < capacity_bits_per_s < np.inf:
            raise ValueError(f"capacity_bits_per_s: expected more than 0, not {capacity_bits_per_s}")
        order = np.argsort(rtts)
        return cls(rtts[order], tuple(values[at] for at in order), capacity_bits_per_s, label)

    @property
    def means(self) -> FloatArray:
        """Mean throughput at each round trip in bits per second."""
        return np.array([sample.mean() for sample in self.samples])

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of runs at each round trip."""
        return np.array([len(sample) for sample in self.samples])

    @property
    def deviations(self) -> FloatArray:
        """Standard deviation of a run at each round trip in bits per second; NaN for a single run."""
        return np.array([sample.std(ddof=1) if len(sample) > 1 else np.nan for sample in self.samples])

    def at(self, rtt_s: float) -> float:
        """Returns the throughput at a round trip, by linear interpolation. Raises `ValueError` beyond the measured ones."""
        low, high = self.rtt_s[0], self.rtt_s[-1]
        if not low <= rtt_s <= high:
            raise ValueError(f"rtt_s: {rtt_s:g} s was not measured: expected {low:g} to {high:g} s, as profiles are not extrapolated")
        return float(np.interp(rtt_s, self.rtt_s, self.means))

    def scaled(self, factor: float) -> Profile:
        """Returns the profile with all rates multiplied by `factor`."""
        capacity = None if self.capacity_bits_per_s is None else factor * self.capacity_bits_per_s
        return Profile(self.rtt_s, tuple(factor * sample for sample in self.samples), capacity, self.label, self.excluded)


def isotonic(profile: Profile) -> FloatArray:
    """Returns the decreasing values at the round trips with the least squared error, where runs have equal weights, in bits per second.

    No decreasing truth is further from them than from the means.
    """
    fit = isotonic_regression(profile.means, weights=profile.counts.astype(np.float64), increasing=False)
    return np.asarray(fit.x, dtype=np.float64)


def profile_of(runs: Runs, label: str = "", *, with_limited: bool = False) -> Profile:
    """Creates the profile of runs of one configuration.

    Runs with `limited_by` are left out and counted, unless `with_limited`. The capacity is that of the runs. Raises `ValueError`
    for runs of several configurations, and if none is left.
    """
    configurations = [key for key, _ in runs.configurations()]
    if len(configurations) != 1:
        raise ValueError(f"runs: {len(configurations)} configurations, expected one: {', '.join(map(str, configurations[:2]))}")
    capacity = configurations[0].capacity_bits_per_s
    frame = runs.frame()
    is_used = frame.limited_by.isna() | with_limited
    used = frame[is_used]
    if used.empty:
        raise ValueError(f"{label or 'profile'}: none of {len(frame)} runs is left; {int((~is_used).sum())} were limited by the machine")
    by_rtt = used.groupby("rtt_s").throughput_bits_per_s
    samples = {float(rtt): rates.to_numpy() for rtt, rates in by_rtt}  # type: ignore[arg-type]
    found = Profile.of_samples(list(samples), list(samples.values()), capacity_bits_per_s=capacity, label=label)
    return Profile(found.rtt_s, found.samples, capacity, label, int((~is_used).sum()))
