"""Search for the best number of streams with a Gaussian process (GP-UCB), for few runs.

The process models ln(throughput) as a function of x = log2 n. In logarithms the usual noise, a percentage of the throughput, is the
same everywhere, the unit does not matter, and a rise with a constant power of n is a straight line. Values are relative to the highest
throughput of the search.

    covariance(x, x')  = SIGNAL² (1 + d) e^(−d) + LEVEL²,    d = √3 |x − x'| / LENGTH        (Matérn, ν = 3/2)
    variance of a run  = noise²
    next setting       = the highest mean + CONFIDENCE · standard deviation                   (N. Srinivas et al., "Gaussian Process
                         Optimization in the Bandit Setting", 2010)
    chosen setting     = the highest mean after the last run

The parameters are fixed: eight runs do not suffice to estimate them, and the choice hardly depends on them (docs/lab/tuning.md). The
process expects profiles without jumps. It can miss a peak that is narrower than its length scale, and a cliff between two runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from towpath.lab.checks import FloatArray, number, numbers, whole
from towpath.lab.tuning.searches import MAX_STREAMS, MAX_THROUGHPUT, RunLog, SearchResult, stream_grid

LENGTH = 2.0
"""Length scale in doublings: ln(throughput) at settings four times apart has a correlation of 0.48. Between 1 and 32 streams there are
2.5 such lengths, which 8 runs resolve."""

SIGNAL = 0.5
"""Standard deviation of ln(throughput) along the profile: differences of a factor of e^0.5 = 1.6 are usual."""

LEVEL = 1.0
"""Standard deviation of the mean ln(throughput) of the profile, relative to the highest run. It is unknown, so this is wide."""

CONFIDENCE = 2.0
"""Standard deviations above the mean, exceeded with a probability of 2 %. The theorem of Srinivas et al. has 4.6 for 32 settings, 8 runs
and an error probability of 0.1; the simulated scores are the same."""

_FLOOR = 1e-3
"""Lowest throughput relative to the highest. A run that failed has no logarithm."""

_MAX_RUNS = 200
"""Maximum number of runs: the time grows with their third power."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """The process after the runs, for each setting."""

    mean: FloatArray
    """Mean of ln(throughput / highest throughput of the runs)."""
    deviation: FloatArray
    """Standard deviation of the same."""


def gp_ucb(measure: Callable[[int], float], streams: npt.ArrayLike, *, runs: int = 8, noise: float = 0.1) -> SearchResult[int]:
    """Measures the fewest streams, and then in each run the setting with the highest upper confidence bound; a setting may have several
    runs. Chooses the highest mean of the process, which may be that of a setting without runs; of equal means the fewest streams.

    - `runs`: from 1 to 200.
    - `noise`: standard deviation of a run relative to the throughput, from 0.001 to 1.
    """
    grid, log, runs = stream_grid(streams), RunLog(measure), whole(runs, "runs", 1, _MAX_RUNS)

    def process() -> Posterior:
        return posterior(grid, *zip(*log.history, strict=True), noise=noise)

    log.run(grid[0])
    for _ in range(runs - 1):
        found = process()
        log.run(grid[int(np.argmax(found.mean + CONFIDENCE * found.deviation))])
    return log.result("GP-UCB", grid[int(np.argmax(process().mean))])


def posterior(
    streams: npt.ArrayLike, measured_streams: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike, *, noise: float = 0.1
) -> Posterior:
    """Returns the process for each of `streams`, after runs with `measured_streams` and their throughputs (1 to 200 runs in any order).

    Throughputs below a thousandth of the highest one count as that. `noise` is that of `gp_ucb`.
    """
    places, noise = np.log2(numbers(streams, "streams", 1, MAX_STREAMS)), number(noise, "noise", 1e-3, 1)
    measured = np.log2(numbers(measured_streams, "measured_streams", 1, MAX_STREAMS))
    rates = numbers(throughput_bits_per_s, "throughput_bits_per_s", 0, MAX_THROUGHPUT)
    if not len(measured) == len(rates) <= _MAX_RUNS:
        raise ValueError(
            f"measured_streams, throughput_bits_per_s: {len(measured)} and {len(rates)}: expected as many, at most {_MAX_RUNS}"
        )
    values = np.log(np.maximum(rates / (rates.max() or 1), _FLOOR))
    factor = cho_factor(_covariance(measured, measured) + noise**2 * np.eye(len(measured)))
    across = _covariance(measured, places)
    mean = across.T @ cho_solve(factor, values)
    variance = SIGNAL**2 + LEVEL**2 - (across * cho_solve(factor, across)).sum(axis=0)
    return Posterior(mean, np.sqrt(np.maximum(variance, 0)))


def _covariance(one: FloatArray, other: FloatArray) -> FloatArray:
    distance = np.sqrt(3) * np.abs(one[:, None] - other) / LENGTH
    return np.asarray(SIGNAL**2 * (1 + distance) * np.exp(-distance) + LEVEL**2)
