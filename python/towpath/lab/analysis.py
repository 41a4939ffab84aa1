"""The analysis of a table of runs: for each configuration its profile, band, transition and coefficients.

    >>> from towpath.lab.analysis import analyse
    >>> results = analyse(Runs.read("campaign/runs.parquet"))  # doctest: +SKIP

What cannot be computed is a text with the reason, in `Unavailable`, not a missing value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from towpath.lab import utilization
from towpath.lab.profiles import Profile, profile_of
from towpath.lab.profiles.bands import Band, envelope
from towpath.lab.profiles.transition import Transition, find_transition
from towpath.lab.runs import Configuration, Runs
from towpath.lab.utilization import Coefficients, Interval, coefficients_of, intervals

T = TypeVar("T")

COEFFICIENTS = dict(zip(("C_UU", "C_CC", "C_UC", "C_V", "C_UCV"), utilization.COEFFICIENTS, strict=True))
"""The symbols of the coefficients, and their names."""


@dataclass(frozen=True)
class Unavailable:
    """A result that cannot be computed from these runs."""

    reason: str


@dataclass(frozen=True)
class Analysis:
    """The results of one configuration."""

    configuration: Configuration
    runs: int
    """Number of runs, those limited by the machine included."""
    profile: Profile | Unavailable
    band: Band | Unavailable
    """Simultaneous intervals of the means with a coverage of 95 %."""
    transition: Transition | Unavailable
    coefficients: Coefficients | Unavailable
    intervals: dict[str, Interval] | Unavailable
    """Intervals of the coefficients with a coverage of 95 %, by their names."""

    def document(self) -> dict[str, Any]:
        """Returns the results as values of JSON."""
        return {
            "configuration": vars(self.configuration),
            "runs": self.runs,
            "profile": _document(
                self.profile,
                lambda found: {
                    "rtt_s": found.rtt_s.tolist(),
                    "mean_bits_per_s": found.means.tolist(),
                    "runs": found.counts.tolist(),
                    "capacity_bits_per_s": found.capacity_bits_per_s,
                    "excluded": found.excluded,
                },
            ),
            "band": _document(
                self.band,
                lambda found: {
                    "coverage": found.coverage,
                    "is_reliable": found.is_reliable,
                    "lower_bits_per_s": found.lower.tolist(),
                    "upper_bits_per_s": found.upper.tolist(),
                },
            ),
            "transition": _document(
                self.transition,
                lambda found: {"shape": found.shape, "shapes": found.shapes, "bracket_s": found.bracket_s, "set_s": found.set_s},
            ),
            "coefficients": _document(self.coefficients, vars),
            "intervals": _document(self.intervals, lambda found: {name: vars(value) for name, value in found.items()}),
        }


def analyse(runs: Runs, *, with_limited: bool = False) -> list[Analysis]:
    """Analyses each configuration. Runs that the machine limited are left out and counted, unless `with_limited`."""
    return [_analyse(key, of_key, with_limited) for key, of_key in runs.configurations()]


def _analyse(key: Configuration, runs: Runs, with_limited: bool) -> Analysis:
    profile = _attempt(lambda: profile_of(runs, str(key), with_limited=with_limited))

    def of_profile(compute: Callable[[Profile], T]) -> T | Unavailable:
        return profile if isinstance(profile, Unavailable) else _attempt(lambda: compute(profile))

    return Analysis(
        key,
        len(runs),
        profile,
        of_profile(envelope),
        of_profile(find_transition),
        of_profile(coefficients_of),
        of_profile(intervals),
    )


def _attempt(compute: Callable[[], T]) -> T | Unavailable:
    try:
        return compute()
    except ValueError as error:
        return Unavailable(str(error))


def _document(result: T | Unavailable, document: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    return {"unavailable": result.reason} if isinstance(result, Unavailable) else document(result)


def is_comparable(results: Iterable[Analysis]) -> bool:
    """Returns whether all coefficients are for the same round trips and kind of normaliser, as their comparison needs."""
    known = [result.coefficients for result in results if not isinstance(result.coefficients, Unavailable)]
    return len({(found.rtt_s, found.normaliser) for found in known}) <= 1


def shape_text(transition: Transition) -> str:
    """Returns the shape, with all that the runs do not exclude, and the transition that is in one of the brackets of the set."""
    shape = " or ".join((transition.shape, *(other for other in transition.shapes if other != transition.shape)))
    if "dual" not in transition.shapes:
        return shape
    low_s, high_s = min(low for low, _ in transition.set_s), max(high for _, high in transition.set_s)
    return f"{shape}, transition between {low_s * 1e3:g} and {high_s * 1e3:g} ms"


def coefficient_text(result: Analysis, name: str) -> str:
    """Returns a coefficient with its interval, or the reason for which there is none."""
    if isinstance(result.coefficients, Unavailable):
        return result.coefficients.reason
    value = f"{getattr(result.coefficients, name):.3f}"
    if isinstance(result.intervals, Unavailable):
        return f"{value} (no interval: {result.intervals.reason})"
    interval = result.intervals[name]
    return f"{value} ({interval.lower:.3f} to {interval.upper:.3f})"
