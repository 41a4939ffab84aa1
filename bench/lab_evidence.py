"""What the runs of a campaign say about the claims of the talk: profiles by configuration, and the dynamics of each trace."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.stats import spearmanr
from towpath.lab import models
from towpath.lab.analysis import Analysis, Unavailable, analyse
from towpath.lab.profiles import Profile
from towpath.lab.profiles.transition import Transition
from towpath.lab.runs import Runs
from towpath.lab.traces import trace_frame

Grid = dict[tuple[float, int, int], list[dict[str, float]]]
"""Rates of the transfer and of its stages in each run of `lab_grid.py`, by round trip in ms, flows, and bytes of a block."""

Shares = dict[tuple[float, float, float], float]
"""Median of the rates of `lab_coexistence.py`, BBR / CUBIC, by round trip in ms, queue / (rate × round trip), and loss."""


MIN_DECIDED = 4
"""Minimum number of comparisons that decide, for a verdict; they must also be at least half of all."""


@dataclasses.dataclass(frozen=True)
class Votes:
    """Comparisons that agree with a claim, that contradict it, and that decide nothing."""

    agree: int = 0
    contradict: int = 0
    undecided: int = 0

    @property
    def verdict(self) -> str:
        decided = self.agree + self.contradict
        if decided < MIN_DECIDED or decided < self.undecided:
            return "not decided"
        share = self.agree / decided
        return "reproduced" if share >= 0.9 else "refuted" if share <= 0.1 else "mixed"

    def __str__(self) -> str:
        undecided = f", {self.undecided} undecided" if self.undecided else ""
        return f"{self.agree} of {self.agree + self.contradict}{undecided}"


def votes(outcomes: Iterator[bool | None]) -> Votes:
    """Counts outcomes: True agrees, False contradicts, None decides nothing."""
    counted = list(outcomes)
    return Votes(counted.count(True), counted.count(False), counted.count(None))


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A campaign of one tool from memory to memory, and one of copies, analysed."""

    runs: Runs
    copies: Runs | None = None
    grid: Grid = dataclasses.field(default_factory=dict)
    shares: Shares = dataclasses.field(default_factory=dict)
    external: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Results of measurements of others (`lab_external.py`)."""
    missing: int = 0
    """Runs that the campaign from memory to memory lacks."""

    @functools.cached_property
    def results(self) -> dict[tuple[str, int, int], Analysis]:
        """The analysis of each transport, number of streams and buffer, in this order."""
        found = {(one.configuration.transport, one.configuration.streams, one.configuration.buffer_bytes): one for one in analyse(self.runs)}
        return dict(sorted(found.items()))

    @functools.cached_property
    def buffers(self) -> list[int]:
        return sorted({buffer for _, _, buffer in self.results})

    @functools.cached_property
    def complete(self) -> list[Analysis]:
        """The configurations with a profile of all round trips."""
        rtts = sorted(self.runs.frame().rtt_s.unique())
        return [one for one in self.results.values() if isinstance(one.profile, Profile) and one.profile.rtt_s.tolist() == rtts]

    def of_buffer(self, buffer: int) -> list[Analysis]:
        return [one for (_, _, own), one in self.results.items() if own == buffer]

    @functools.cached_property
    def infrastructures(self) -> dict[str, Analysis]:
        """Eight infrastructures by name: transports with one connection, several CUBIC connections, and copies of a file, all with the
        largest buffers. Those that were not measured are missing."""
        keys = [("cubic", 1), ("bbr", 1), ("reno", 1), ("cubic", 4), ("cubic", 10)]
        found = {f"memory, {transport} × {streams}": self.results.get((transport, streams, self.buffers[-1])) for transport, streams in keys}
        for copy in analyse(self.copies) if self.copies else ():
            key = copy.configuration
            found[f"file, {key.tool}" + ("" if key.streams is None else f" × {key.streams}")] = copy
        return {name: one for name, one in found.items() if one is not None}

    def without(self, rtt_s: float) -> list[Analysis]:
        """Returns the analysis of the runs at other round trips."""
        is_kept = pa.array(self.runs.frame().rtt_s != rtt_s)
        return analyse(Runs(self.runs.table.filter(is_kept)))

    @functools.cached_property
    def traces(self) -> pd.DataFrame:
        """The dynamics of each run that the machine did not limit, beside its configuration: a row for each."""
        frame = self.runs.frame()
        is_used = frame.limited_by.isna()
        used = Runs(self.runs.table.filter(pa.array(is_used)))
        return frame[is_used].set_index("run_id").join(trace_frame(used))


@dataclasses.dataclass(frozen=True)
class Finding:
    """What the measurements say about a claim."""

    verdict: str
    measurement: str
    figure: str | None = None
    """Name of a figure without its suffix."""


def place(result: Analysis) -> tuple[float, float] | None:
    """Returns the range in which the transition may be, in seconds: that of a convex profile is the first segment, of a concave one the
    last. None if it is unknown."""
    transition = result.transition
    if isinstance(transition, Unavailable) or transition.shape == "indeterminate":
        return None
    return min(low for low, _ in transition.set_s), max(high for _, high in transition.set_s)


def is_later(first: Analysis, second: Analysis) -> bool | None:
    """Returns whether the transition of the second is later; None if their ranges overlap."""
    one, other = place(first), place(second)
    if one is None or other is None:
        return None
    return True if other[0] >= one[1] else False if other[1] <= one[0] else None


def is_surely_dual(result: Analysis) -> bool | None:
    """Returns whether a profile is dual; None if its runs do not decide it."""
    shapes = getattr(result.transition, "shapes", ())
    is_undecided = shapes in ((), ("indeterminate",)) or ("dual" in shapes and len(shapes) > 1)
    return None if is_undecided else "dual" in shapes


def bands_differ(one: Analysis, other: Analysis) -> list[int | None]:
    """Returns for each round trip of both whether the first is faster (1), slower (-1), or neither (0), by their bands."""
    if isinstance(one.band, Unavailable) or isinstance(other.band, Unavailable) or not np.array_equal(one.band.rtt_s, other.band.rtt_s):
        return []
    return [int(low > theirs) - int(high < their_low) for low, high, their_low, theirs in zip(one.band.lower, one.band.upper, other.band.lower, other.band.upper, strict=True)]


def correlation(first: pd.Series, second: pd.Series) -> tuple[float, float] | None:
    """Returns the rank correlation of two columns and its p value; None if one of them is constant or has less than five values."""
    if len(first) < 5 or first.nunique() < 2 or second.nunique() < 2:
        return None
    found = spearmanr(first, second)
    return float(found.statistic), float(found.pvalue)


def correlation_within(frame: pd.DataFrame, strata: list[str], first: str, second: str) -> tuple[float, float] | None:
    """Returns the correlation of the ranks of two columns among the rows of their stratum, and its p value by permutations within strata; None
    if no stratum has two different values of each."""
    ranks = frame.groupby(strata)[[first, second]].rank()
    centred = (ranks - ranks.groupby([frame[column] for column in strata]).transform("mean")).to_numpy()
    scale = float(np.sqrt((centred**2).sum(axis=0).prod()))
    if scale == 0:
        return None
    found = float(centred.prod(axis=1).sum() / scale)
    random, groups = np.random.default_rng(0), list(frame.groupby(strata).indices.values())
    extreme = 0
    for _ in range(PERMUTATIONS):
        shuffled = centred[:, 1].copy()
        for rows in groups:
            shuffled[rows] = random.permutation(shuffled[rows])
        extreme += abs(centred[:, 0] @ shuffled / scale) >= abs(found) - 1e-12
    return found, (1 + extreme) / (1 + PERMUTATIONS)


PERMUTATIONS = 999


def shape_of(result: Analysis) -> str:
    """Returns the shapes that the runs do not exclude."""
    return " or ".join(result.transition.shapes) if isinstance(result.transition, Transition) else "unknown"


@dataclasses.dataclass(frozen=True)
class RampFit:
    """A measured profile beside the model of slow start, which has no fitted parameter."""

    capacity_bits_per_s: float
    rtt_s: np.ndarray
    ramp: np.ndarray
    measured: np.ndarray
    is_concave: np.ndarray
    """The round trips that are surely in the concave region: those before each possible transition."""

    @property
    def explained(self) -> float | None:
        """Part of the squares of what is missing to the capacity that slow start explains in the concave region; None if that has less than
        four round trips."""
        measured, ramp = self.measured[self.is_concave], self.ramp[self.is_concave]
        return None if len(measured) < MIN_CONCAVE else float(1 - ((measured - ramp) ** 2).sum() / ((measured - self.capacity_bits_per_s) ** 2).sum())

    @property
    def is_line_better(self) -> bool:
        """Whether a line fitted to the concave region, with two parameters, has a smaller sum of squared errors there."""
        rtts, measured, ramp = (values[self.is_concave] for values in (self.rtt_s, self.measured, self.ramp))
        line = np.polynomial.Polynomial.fit(rtts, measured, 1)(rtts)
        return bool(((measured - line) ** 2).sum() < ((measured - ramp) ** 2).sum())

    @property
    def errors(self) -> np.ndarray:
        """Relative errors of slow start."""
        return self.ramp / self.measured - 1


MIN_CONCAVE = 4
"""Least number of round trips of a concave region."""


def ramp_fit(result: Analysis) -> RampFit:
    """Fits no parameter: the capacity is that of the path, and the buffers are not the limit."""
    key, profile = result.configuration, result.profile
    model = models.ramp(profile.rtt_s, capacity_bits_per_s=key.capacity_bits_per_s, duration_s=key.planned_s, streams=key.streams)
    region = place(result)
    is_concave = profile.rtt_s <= (region[0] if region else 0.0)
    return RampFit(key.capacity_bits_per_s, profile.rtt_s, model.throughput_bits_per_s, profile.means, is_concave)


def convex_window(evidence: Evidence, result: Analysis) -> models.WindowEstimate | None:
    """Returns the window of the convex region of a profile, from the rates after the ramp, which lowers the mean of long round trips; None if
    the region has less than three round trips."""
    region, key = place(result), result.configuration
    traces = evidence.traces
    own = traces[(traces.transport == key.transport) & (traces.streams == key.streams) & (traces.buffer_bytes == key.buffer_bytes)]
    rates = own.groupby("rtt_s").sustained_bits_per_s.mean().dropna()
    if region is None or (rates.index >= region[1]).sum() < 3:
        return None
    return models.estimate_window(rates.index.to_numpy(), rates.to_numpy(), convex_from_s=region[1])


def mebibytes(size: float) -> str:
    return f"{size / 2**20:g} MiB"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if abs(share) >= 0.1 else f"{100 * share:.1f} %"
