"""Choice of a configuration from profiles with bands.

`select` compares the intervals of all configurations at one round trip. A configuration without such an interval is an `Excluded` with
its reason. The others are `Candidate`s, in one of three groups:

- as good: the mean is at least the highest lower end of all candidates. A mean outside of its interval counts as the nearer end.
- undecided: only the upper end is, so more runs may show that the candidate is better.
- worse: the upper end is below the highest lower end.

The chosen candidate is the one of the first group with the fewest streams, then with the smallest buffer. An upper end alone does not
suffice for this group: with two runs it is so high that it reaches everything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from towpath.lab.analysis import Analysis, Unavailable
from towpath.lab.checks import number
from towpath.lab.profiles.bands import Band
from towpath.lab.runs import MAX_RTT_S, Configuration

_CONDITIONS = ("planned_s", "planned_bytes", "capacity_bits_per_s", "loss", "queue")
"""Parts of a configuration that are no choice: longer runs have higher means, as slow start counts for less."""


@dataclass(frozen=True)
class Candidate:
    """A configuration and its interval at the round trip."""

    configuration: Configuration
    mean_bits_per_s: float
    """Mean throughput, in bits per second; by linear interpolation between measured round trips."""
    lower_bits_per_s: float
    """Lower end of the band, in bits per second; at the next longer round trip if this one was not measured."""
    upper_bits_per_s: float
    """Upper end of the band, in bits per second; at the next shorter round trip if this one was not measured."""
    is_measured: bool
    """Whether there are runs at this round trip."""
    is_reliable: bool
    """Whether there are enough runs for the coverage of the band."""


@dataclass(frozen=True)
class Excluded:
    """A configuration without an interval at the round trip."""

    configuration: Configuration
    reason: str


@dataclass(frozen=True)
class Selection:
    """The choice of a configuration. Each given configuration is in exactly one of the fields from `chosen` to `excluded`."""

    rtt_s: float
    """Round trip of the path in seconds."""
    chosen: Candidate
    alternatives: tuple[Candidate, ...]
    """The candidates that are as good, in the order of preference."""
    undecided: tuple[Candidate, ...]
    """The candidates with a lower mean whose upper end reaches the highest lower end, by decreasing upper end."""
    worse: tuple[Candidate, ...]
    """The other candidates, by decreasing lower end."""
    excluded: tuple[Excluded, ...]
    """The configurations without an interval, in the given order."""
    highest_lower_bits_per_s: float
    """Highest lower end of all candidates, in bits per second. That of `chosen` may be less, as it has the fewest streams."""
    method: str
    """Method of the bands."""
    coverage: float
    """Intended coverage of each band."""
    joint_coverage: float
    """Lower bound of the probability that all intervals cover their means, if each band has its coverage; 0 if there is none."""
    cautions: tuple[str, ...]
    """Reasons to measure again before the figures are used."""


def select(analyses: Iterable[Analysis], rtt_s: float) -> Selection:
    """Chooses a configuration for a path with the round trip `rtt_s` (seconds, from 0 to `MAX_RTT_S`).

    The order of preference among equals is: fewer streams, a smaller buffer, a higher lower end. An unknown number of streams or an
    unknown buffer comes last. The order of `analyses` does not matter, except for that of `excluded`.

    `analyse` computes envelopes; `dataclasses.replace(analysis, band=…)` has another band. Raises `ValueError` for unequal planned
    durations, planned volumes or capacities, for bands with unequal methods or coverages, for a configuration that occurs twice, and if
    none has an interval at the round trip.
    """
    analyses, rtt_s = list(analyses), number(rtt_s, "rtt_s", 0, MAX_RTT_S)
    _check_conditions(analyses)
    found = [_at(analysis, rtt_s) for analysis in analyses]
    excluded = tuple(one for one in found if isinstance(one, Excluded))
    candidates = sorted((one for one in found if isinstance(one, Candidate)), key=_preference)
    if not candidates:
        reasons = "".join(f"\n{one.configuration}: {one.reason}" for one in excluded)
        raise ValueError(f"analyses: {len(excluded)} configurations, expected one with an interval at {rtt_s:g} s:{reasons}")
    highest = max(one.lower_bits_per_s for one in candidates)
    chosen, *alternatives = (one for one in candidates if _level(one) >= highest)
    undecided = [one for one in candidates if _level(one) < highest <= one.upper_bits_per_s]
    worse = [one for one in candidates if one.upper_bits_per_s < highest]
    method, coverage = _band_conditions(analyses)
    return Selection(
        rtt_s,
        chosen,
        tuple(alternatives),
        tuple(sorted(undecided, key=lambda one: -one.upper_bits_per_s)),
        tuple(sorted(worse, key=lambda one: -one.lower_bits_per_s)),
        excluded,
        highest,
        method,
        coverage,
        max(0.0, 1 - len(candidates) * (1 - coverage)),
        _cautions(chosen, len(candidates), len(undecided)),
    )


def _at(analysis: Analysis, rtt_s: float) -> Candidate | Excluded:
    """Returns the interval of a configuration, or the reason for which there is none."""
    key, profile, band = analysis.configuration, analysis.profile, analysis.band
    if isinstance(profile, Unavailable):
        return Excluded(key, profile.reason)
    if isinstance(band, Unavailable):
        return Excluded(key, band.reason)
    try:
        mean, (lower, upper) = profile.at(rtt_s), band.at(rtt_s)
    except ValueError as error:
        return Excluded(key, str(error))
    return Candidate(key, mean, lower, upper, rtt_s in profile.rtt_s, band.is_reliable)


def _level(candidate: Candidate) -> float:
    """Returns the mean, or the nearer end of the interval if the mean is outside."""
    return min(max(candidate.mean_bits_per_s, candidate.lower_bits_per_s), candidate.upper_bits_per_s)


def _preference(candidate: Candidate) -> tuple[float, float, float, str]:
    """Returns the sort key of the order of preference. The text only makes the order unique."""
    key = candidate.configuration
    streams = math.inf if key.streams is None else key.streams
    buffer_bytes = math.inf if key.buffer_bytes is None else key.buffer_bytes
    return streams, buffer_bytes, -candidate.lower_bits_per_s, str(key)


def _check_conditions(analyses: Sequence[Analysis]) -> None:
    if not analyses:
        raise ValueError("analyses: there is none: expected one or more")
    keys = [analysis.configuration for analysis in analyses]
    for key, count in Counter(keys).items():
        if count > 1:
            raise ValueError(f"analyses: {key} occurs {count} times: expected one analysis of all its runs")
        for name in _CONDITIONS:
            if getattr(key, name) != getattr(keys[0], name):
                raise ValueError(f"analyses: {name} differs between '{keys[0]}' and '{key}': expected equal conditions")


def _band_conditions(analyses: Sequence[Analysis]) -> tuple[str, float]:
    """Returns the method and the coverage of all bands."""
    conditions = {(one.band.method, one.band.coverage) for one in analyses if isinstance(one.band, Band)}
    if len(conditions) > 1:
        raise ValueError(f"analyses: different bands {sorted(conditions)}: expected one method and one coverage")
    return conditions.pop()


def _cautions(chosen: Candidate, candidates: int, undecided: int) -> tuple[str, ...]:
    cautions = []
    if candidates > 1:
        cautions.append(f"the best of {candidates} noisy means is too high on average: measure the chosen configuration again")
    if not chosen.is_measured:
        cautions.append("there are no runs at this round trip: the interval spans those at the two nearest")
    if not chosen.is_reliable:
        cautions.append("the chosen configuration has too few runs for the coverage of its band")
    if chosen.configuration.planned_s is None and chosen.configuration.planned_bytes is None:
        cautions.append("neither duration nor volume of the runs was planned, so that unequal ones may be compared")
    if undecided:
        cautions.append(f"{undecided} undecided: more runs may show that such a configuration is better")
    return tuple(cautions)
