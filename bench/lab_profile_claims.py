"""Claims about profiles and traces that need more than the analysis of `towpath lab`."""

from __future__ import annotations

import functools

import numpy as np
from lab_evidence import Evidence, Finding, Votes, is_surely_dual, mebibytes, percent, votes
from lab_grid import medians
from towpath.lab import models
from towpath.lab.analysis import Analysis, Unavailable
from towpath.lab.models import SigmoidPair
from towpath.lab.traces import run_map

SIMILAR = 0.1
"""Relative difference of rates that counts as none."""


def concave_by_buffer(evidence: Evidence) -> Finding:
    """Compares the shapes that the runs do not exclude."""
    small, large = evidence.buffers[0], evidence.buffers[-1]
    convex = votes(is_throughout(one, "convex") for one in evidence.of_buffer(small))
    concave = votes(is_throughout(one, "concave") for one in evidence.of_buffer(large))
    found = Votes(convex.agree + concave.agree, convex.contradict + concave.contradict, convex.undecided + concave.undecided)
    text = f"{concave} profiles with {mebibytes(large)} are concave throughout, {convex} with {mebibytes(small)} convex throughout"
    return Finding(found.verdict, text, "profiles-cubic")


def is_throughout(result: Analysis, shape: str) -> bool | None:
    """Returns whether a profile has a shape; None if its runs do not decide it."""
    shapes = getattr(result.transition, "shapes", ())
    if shapes in ((), ("indeterminate",)):
        return None
    return True if shapes == (shape,) else None if shape in shapes else False


@functools.cache
def _sigmoids(rtts_s: tuple[float, ...], means: tuple[float, ...], capacity: float) -> SigmoidPair:
    return models.fit_sigmoids(rtts_s, means, capacity_bits_per_s=capacity)


def sigmoids(result: Analysis) -> SigmoidPair:
    """Returns the pair of sigmoids of a profile."""
    profile = result.profile
    return _sigmoids(tuple(profile.rtt_s.tolist()), tuple(profile.means.tolist()), result.configuration.capacity_bits_per_s)


def sigmoids_confirm(evidence: Evidence) -> Finding:
    """Compares profiles whose shape is known: a pair meets inside of a dual profile, and at an end of others."""

    def is_confirmed(result: Analysis) -> bool | None:
        is_dual = is_surely_dual(result)
        fit = sigmoids(result)
        return None if is_dual is None else is_dual == (fit.range_s[0] < fit.transition_s < fit.range_s[1])

    found = votes(is_confirmed(one) for one in evidence.complete)
    text = f"pairs with six parameters have branches of both kinds exactly if the profile is dual in {found} cases; seven round trips do not identify them"
    return Finding(found.verdict, text, "sigmoids")


def interpolation_is_close(evidence: Evidence) -> Finding:
    """Leaves each inner round trip out, and predicts its mean from the neighbours: with all runs, and with two of each."""
    errors = {"all": [], "two": []}
    for one in evidence.complete:
        profile = one.profile
        for name, means in (("all", profile.means), ("two", np.array([sample[:2].mean() for sample in profile.samples]))):
            for at in range(1, len(profile.rtt_s) - 1):
                guess = np.interp(profile.rtt_s[at], profile.rtt_s[[at - 1, at + 1]], means[[at - 1, at + 1]])
                errors[name].append(abs(guess / profile.means[at] - 1))
    found = votes(error < SIMILAR for error in errors["all"])
    if not errors["all"]:
        return Finding(found.verdict, "no profiles of equal round trips")
    middle, few = (percent(float(np.median(errors[name]))) for name in ("all", "two"))
    text = f"a mean is within 10 % of the interpolation of its neighbours in {found} cases (median error {middle}, from two runs of each {few}); the largest error is {percent(max(errors['all']))}"
    return Finding(found.verdict, text)


def traces_are_periodic(evidence: Evidence) -> Finding:
    """Looks for a peak in the spectrum (R. A. Fisher, "Tests of significance in harmonic analysis", 1929)."""
    known = evidence.traces.dropna(subset=["exponent"])
    periodic = [is_periodic(run_map(evidence.runs, run_id, interval_s).series[0]) for run_id, interval_s in known.interval_s.items()]
    if not periodic:
        return Finding("not testable here", "no traces")
    share = percent(float(np.mean(periodic)))
    return Finding("not testable here", f"the talk has no measure of it; {share} of {len(periodic)} traces have a peak in their spectrum that white noise has in 1 %")


def is_periodic(rates: np.ndarray) -> bool:
    """Returns whether the largest ordinate of the periodogram is too large for white noise, at a level of 1 %."""
    power = np.abs(np.fft.rfft(rates - rates.mean())[1:-1]) ** 2
    # The first term of the exact distribution is an upper bound.
    return bool(power.sum() > 0 and len(power) * (1 - power.max() / power.sum()) ** (len(power) - 1) < 0.01)


def eight_flows(evidence: Evidence) -> Finding:
    """Compares medians of eight flows with blocks of 64 KiB and more."""
    ratios = [
        rates["transfer"] / rates["network"]
        for (_, flows, block), runs in evidence.grid.items()
        if flows == 8 and block >= 64 << 10
        for rates in [medians(runs)]
    ]
    found = votes(ratio > 1 - SIMILAR for ratio in ratios)
    listed = ", ".join(percent(ratio) for ratio in ratios)
    return Finding(found.verdict, f"the transfer has more than 90 % of the rate of the network alone in {found} cases ({listed})", "grid" if ratios else None)


def variants_are_similar(evidence: Evidence) -> Finding:
    """Compares CUBIC with Reno, as the kernel has neither Hamilton TCP nor Scalable TCP."""
    pairs = [(one, evidence.results.get(("reno", streams, buffer))) for (transport, streams, buffer), one in evidence.results.items() if transport == "cubic"]
    found = votes(outcome for one, other in pairs if other is not None for outcome in similarities(one, other))
    text = f"the bands of CUBIC and Reno are within 10 % of each other in {found} configurations and round trips; Hamilton TCP and Scalable TCP are not in the kernel"
    return Finding(found.verdict, text, "profiles-reno")


def similarities(one: Analysis, other: Analysis) -> list[bool | None]:
    """Returns for each round trip whether the means surely differ by less than `SIMILAR` (True), surely by more (False), or neither."""
    first, second = one.band, other.band
    if isinstance(first, Unavailable) or isinstance(second, Unavailable) or not np.array_equal(first.rtt_s, second.rtt_s):
        return []
    least, most = first.lower / second.upper, first.upper / np.maximum(second.lower, 1.0)
    limits = 1 - SIMILAR, 1 / (1 - SIMILAR)
    return [
        True if limits[0] <= low and high <= limits[1] else False if high < limits[0] or low > limits[1] else None
        for low, high in zip(least, most, strict=True)
    ]
