"""Searches for the best number of streams with noisy runs, and control of a window for a target rate.

Each search has a bounded number of runs, and returns a `SearchResult` with all of them. Searches of streams take an increasing grid of
2 to 10,000 different numbers of streams. They have no random decisions: the same throughputs give the same result.
"""

from __future__ import annotations

import itertools
import math
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from towpath.lab.checks import number, numbers, whole

Setting = TypeVar("Setting", int, float)

MAX_STREAMS = 10_000
"""Maximum number of streams, as in tables of runs."""

MAX_RUNS = 1_000
"""Maximum number of runs of a search: almost three hours with 10 s for each."""

MAX_THROUGHPUT = 1e15
"""Maximum throughput in bits per second, as in tables of runs."""

_MAX_WINDOW_BYTES = 1e12
"""Maximum window in bytes: 8 Tbit/s over a path of one second."""


@dataclass(frozen=True)
class SearchResult(Generic[Setting]):
    """The result of a search."""

    method: str
    """Name of the search."""
    chosen: Setting
    """The chosen number of streams, or window in bytes. `gp_ucb`, `kiefer_wolfowitz` and `control_window` may choose a setting without
    runs."""
    history: tuple[tuple[Setting, float], ...]
    """Setting and throughput in bits per second of each run, in their order."""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.history)


class RunLog(Generic[Setting]):
    """Makes and records the runs of a search."""

    def __init__(self, measure: Callable[[Setting], float]) -> None:
        self._measure: Callable[[Setting], float] = measure
        self._samples: dict[Setting, list[float]] = {}
        self.history: list[tuple[Setting, float]] = []

    def run(self, setting: Setting) -> float:
        """Makes a run and returns its throughput. Raises `ValueError` if that is out of range."""
        throughput = number(self._measure(setting), f"measure({setting})", 0, MAX_THROUGHPUT)
        self.history.append((setting, throughput))
        self._samples.setdefault(setting, []).append(throughput)
        return throughput

    def mean(self, setting: Setting) -> float:
        """Returns the mean throughput of the runs of a setting."""
        return float(np.mean(self._samples[setting]))

    def settings(self) -> list[Setting]:
        """Returns the settings with runs, in increasing order."""
        return sorted(self._samples)

    def best(self) -> Setting:
        """Returns the setting with the highest mean; the smallest one of equals."""
        return max(self.settings(), key=self.mean)

    def result(self, method: str, chosen: Setting) -> SearchResult[Setting]:
        """Returns the result of the search."""
        return SearchResult(method, chosen, tuple(self.history))


def stream_grid(streams: npt.ArrayLike) -> list[int]:
    """Returns the numbers of streams. Raises `ValueError` unless they are whole, increasing, and at least two."""
    values = numbers(streams, "streams", 1, MAX_STREAMS)
    if len(values) < 2 or np.any(np.diff(values) <= 0) or np.any(values % 1):
        raise ValueError(f"streams: {reprlib.repr(values.tolist())}: expected two or more whole numbers in increasing order")
    return [int(value) for value in values]


def full_sweep(measure: Callable[[int], float], streams: npt.ArrayLike, *, repetitions: int = 1) -> SearchResult[int]:
    """Measures all numbers of streams, and chooses the one with the highest mean.

    - `repetitions`: runs of each, from 1 to 100. A repetition of all precedes the next one, so that a change of the path affects all
      settings. At most 1,000 runs in total.
    """
    grid, log, repetitions = stream_grid(streams), RunLog(measure), whole(repetitions, "repetitions", 1, 100)
    if len(grid) * repetitions > MAX_RUNS:
        raise ValueError(f"repetitions: {repetitions} of {len(grid)} settings: expected at most {MAX_RUNS:,} runs")
    for _ in range(repetitions):
        for setting in grid:
            log.run(setting)
    return log.result("full sweep", log.best())


def ternary(measure: Callable[[int], float], streams: npt.ArrayLike, *, repetitions: int = 2) -> SearchResult[int]:
    """Compares the settings at a third and two thirds of the grid, leaves out the end beyond the worse one, and repeats this until at
    most three are left. Chooses the highest mean of all measured settings. Correct for profiles with one peak, without noise.

    - `repetitions`: runs of each setting, from 1 to 100. A setting is measured in one step only, so there are at most
      repetitions · (2 log(settings / 3) / log(3 / 2) + 5) runs.
    """
    grid, log, repetitions = stream_grid(streams), RunLog(measure), whole(repetitions, "repetitions", 1, 100)

    def mean(position: int) -> float:
        if grid[position] not in log.settings():
            for _ in range(repetitions):
                log.run(grid[position])
        return log.mean(grid[position])

    low, high = 0, len(grid) - 1
    while high - low > 2:
        third = (high - low) // 3
        if mean(low + third) < mean(high - third):
            low += third + 1
        else:
            high -= third + 1
    for position in range(low, high + 1):
        mean(position)
    return log.result("ternary", log.best())


def doubling(measure: Callable[[int], float], streams: npt.ArrayLike, *, runs: int = 7) -> SearchResult[int]:
    """Doubles the streams until the throughput falls, then halves the gaps (in log2 n) beside the best setting, the wider one first.
    Chooses the highest throughput. Ends early if there is no setting left beside the best one.

    - `runs`: maximum number of runs, from 2 to 1,000. A setting has one run, so noise may end the first part too early.
    """
    grid, log, runs = stream_grid(streams), RunLog(measure), whole(runs, "runs", 2, MAX_RUNS)
    log.run(grid[0])
    while len(log.history) < runs:
        last, _ = log.history[-1]
        larger = [setting for setting in grid if setting > last]
        if not larger or log.best() != last:
            break
        log.run(max((setting for setting in larger if setting <= 2 * last), default=larger[0]))
    while len(log.history) < runs:
        between = _between(grid, log.settings(), log.best())
        if between is None:
            break
        log.run(between)
    return log.result("doubling", log.best())


def _between(grid: list[int], measured: list[int], best: int) -> int | None:
    """Returns the setting in the middle of the wider gap beside the best one; None if both gaps are empty."""
    gaps = [gap for gap in itertools.pairwise(measured) if best in gap]
    for low, high in sorted(gaps, key=lambda gap: gap[0] / gap[1]):
        inner = [setting for setting in grid if low < setting < high]
        if inner:
            return min(inner, key=lambda setting: abs(math.log(setting**2 / (low * high))))
    return None


def kiefer_wolfowitz(
    measure: Callable[[int], float], streams: npt.ArrayLike, *, runs: int = 8, gain: float = 4.0, width: float = 1.0
) -> SearchResult[int]:
    """Climbs from the middle of the grid by differences of two runs (J. Kiefer and J. Wolfowitz, "Stochastic Estimation of the Maximum
    of a Regression Function", 1952), for comparison with `gp_ucb`: the result depends on the gain.

    The place is x = log2 n. Step k measures the settings next to x ± width / k^(1/3), and adds gain / k · slope to x, where the slope
    is the difference of the throughputs per doubling, relative to their mean. Chooses the setting next to the last place.

    - `runs`: an even number from 2 to 1,000.
    - `gain`: from 0.01 to 100. With 4, a first slope of 25 % per doubling moves by one doubling.
    - `width`: in doublings, from 0.1 to 10.
    """
    grid, log, runs = stream_grid(streams), RunLog(measure), whole(runs, "runs", 2, MAX_RUNS)
    gain, width = number(gain, "gain", 0.01, 100), number(width, "width", 0.1, 10)
    if runs % 2:
        raise ValueError(f"runs: {runs}: expected an even number, as each step has two runs")
    places = np.log2(grid)
    place = float(places[0] + places[-1]) / 2
    for step in range(1, runs // 2 + 1):
        reach = width / step ** (1 / 3)
        low, high = (int(np.abs(places - end).argmin()) for end in (place - reach, place + reach))
        if low == high:
            low, high = max(low - 1, 0), min(high + 1, len(grid) - 1)
        one, other = log.run(grid[low]), log.run(grid[high])
        slope = (other - one) / ((one + other) / 2 or 1) / (places[high] - places[low])
        place = float(np.clip(place + gain / step * slope, places[0], places[-1]))
    return log.result("Kiefer-Wolfowitz", grid[int(np.abs(places - place).argmin())])


def control_window(
    measure: Callable[[float], float],
    target_bits_per_s: float,
    *,
    start_bytes: float,
    gain_s: float,
    exponent: float = 0.8,
    min_bytes: float = 1460,
    max_bytes: float = 1e9,
    runs: int = 50,
) -> SearchResult[float]:
    """Finds the window W with a target rate, by the method of H. Robbins and S. Monro ("A Stochastic Approximation Method", 1951) as
    N. Rao, Q. Wu and S. Iyengar use it ("On Throughput Stabilization of Network Transport", IEEE Communications Letters 8, 2004):

        W ← W + gain_s / k^exponent · (target − measure(W)) / 8        in run k = 1, 2, …

    Steps get shorter, which averages the noise, and makes the window slow to follow a path that changes: start again then. A target
    that the path cannot carry leads to `max_bytes`. The chosen window is the one after the last run.

    - `measure`: returns the rate in bits per second with a window in bytes.
    - `target_bits_per_s`: from 1 to 1e15.
    - `gain_s`: in seconds, up to 1,000. The round trip is a good value: the rate is 8 W / round trip below the capacity.
    - `exponent`: more than 0.5, so that the noise is averaged, and at most 1, so that the steps reach each window.
    - `start_bytes`, `min_bytes`, `max_bytes`: window of the first run and its range, from 1 to 1e12 bytes.
    - `runs`: from 1 to 1,000.
    """
    target, gain = number(target_bits_per_s, "target_bits_per_s", 1, MAX_THROUGHPUT), number(gain_s, "gain_s", 1e-9, 1_000)
    if not 0.5 < number(exponent, "exponent") <= 1:
        raise ValueError(f"exponent: {exponent}: expected more than 0.5 and at most 1")
    low = number(min_bytes, "min_bytes", 1, _MAX_WINDOW_BYTES)
    high = number(max_bytes, "max_bytes", low, _MAX_WINDOW_BYTES)
    window, log = number(start_bytes, "start_bytes", low, high), RunLog(measure)
    for step in range(1, whole(runs, "runs", 1, MAX_RUNS) + 1):
        change = gain / step**exponent * (target - log.run(window)) / 8
        window = min(max(window + change, low), high)
    return log.result("Robbins-Monro", window)
