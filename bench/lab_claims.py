"""The table of the talk's claims (docs/lab/claims.md), from the results of the lab's benchmarks. No network, no root.

    make lab-claims

Reads the campaigns and the other results in bench/results/lab, computes each verdict from them, and draws the figures. The same results
give the same page.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd
from known_games import GAMES
from lab_coexistence import shares
import lab_external
import lab_profile_claims
from lab_evidence import (
    MIN_DECIDED,
    Evidence,
    Finding,
    Votes,
    bands_differ,
    convex_window,
    correlation,
    correlation_within,
    is_later,
    is_surely_dual,
    mebibytes,
    percent,
    place,
    ramp_fit,
    shape_of,
    votes,
)
from lab_grid import STAGES, TOLERANCE, judged, medians, rates_of_runs
from lab_lines import read_lines
from towpath.lab import composition, models, plots, resilience, tuning
from towpath.lab.analysis import COEFFICIENTS, Analysis, Unavailable, coefficient_text
from towpath.lab.measure.campaign import Campaign
from towpath.lab.profiles import Profile
from towpath.lab.profiles.bands import MIN_RELIABLE_RUNS, printed_bound
from towpath.lab.runs import Runs
from towpath.lab.traces import SAMPLES

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results" / "lab"
PAGE = ROOT / "docs" / "lab" / "claims.md"
CONFIGURATION = ["transport", "streams", "buffer_bytes"]
FIGURES = "claims"
"""Directory of the figures, beside the page."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim of the talk."""

    text: str
    check: Callable[[Evidence], Finding]


def decreases(evidence: Evidence) -> Finding:
    known = [one for one in evidence.results.values() if isinstance(one.profile, Profile) and one.profile.counts.min() > 1]
    # There is no envelope for a profile that rises by more than its errors.
    found = votes(not isinstance(one.band, Unavailable) for one in known)
    return Finding(found.verdict, f"{found} profiles do not rise by more than their errors", "profiles-cubic")


def is_dual(evidence: Evidence) -> Finding:
    texts = []
    for buffer in evidence.buffers:
        shapes = [shape_of(one) for one in evidence.of_buffer(buffer)]
        counts = ", ".join(f"{shapes.count(shape)} {shape}" for shape in dict.fromkeys(shapes))
        texts.append(f"{mebibytes(buffer)}: {counts}")
    found = votes(is_surely_dual(one) for one in evidence.results.values())
    return Finding(found.verdict, f"{found} profiles are dual ({'; '.join(texts)})", "profiles-cubic")


def grows_with_buffer(evidence: Evidence) -> Finding:
    small, large = evidence.buffers[0], evidence.buffers[-1]
    pairs = [(evidence.results[transport, streams, small], one) for (transport, streams, buffer), one in evidence.results.items() if buffer == large]
    found = votes(is_later(*pair) for pair in pairs)
    return Finding(found.verdict, f"{found} transitions are later with {mebibytes(large)} than with {mebibytes(small)}", "profiles-cubic")


def grows_with_streams(evidence: Evidence) -> Finding:
    def compared(fewer: int, more: int) -> Votes:
        return votes(
            is_later(one, evidence.results[transport, more, buffer])
            for (transport, streams, buffer), one in evidence.results.items()
            if streams == fewer
        )

    counts = sorted({streams for _, streams, _ in evidence.results})
    found = [compared(*pair) for pair in itertools.pairwise(counts)]
    total = Votes(*(sum(getattr(one, field.name) for one in found) for field in dataclasses.fields(Votes)))
    steps = ", ".join(f"{fewer} → {more}: {one}" for (fewer, more), one in zip(itertools.pairwise(counts), found, strict=True))
    return Finding(total.verdict, f"{total} steps to more connections make the transition later ({steps})", "streams-cubic")


def ramp_explains(evidence: Evidence) -> Finding:
    """BBR has no slow start of this kind, so its profiles do not count."""
    large = [one for one in evidence.of_buffer(evidence.buffers[-1]) if one in evidence.complete and one.configuration.transport != "bbr"]
    fits = [ramp_fit(one) for one in large]
    known = [fit for fit in fits if fit.explained is not None]
    found = votes(explains(fit) for fit in fits)
    text = f"in {found} concave regions of CUBIC and Reno with {mebibytes(evidence.buffers[-1])}, slow start alone, without a fitted parameter, \
explains more than {percent(MIN_EXPLAINED)} of the squares of what is missing to the capacity, and more than a fitted line"
    if known:
        inside, beyond = (np.concatenate([abs(fit.errors[fit.is_concave == where]) for fit in known]) for where in (True, False))
        text += f" (median {percent(np.median([fit.explained for fit in known]))}; largest error {percent(inside.max())}, at longer round trips {percent(beyond.max())}); \
a line fitted with two parameters is closer in {sum(fit.is_line_better for fit in known)}"
    return Finding(found.verdict, text, "ramp")


def explains(fit: RampFit) -> bool | None:
    """Returns whether slow start explains a concave region; None if that is nearly straight, so that a fitted line is closer still."""
    if fit.explained is None:
        return None
    return False if fit.explained <= MIN_EXPLAINED else None if fit.is_line_better else True


MIN_EXPLAINED = 0.9
"""Least part that an explanation of a concave region has to explain."""


def varies_with_rtt(evidence: Evidence) -> Finding:
    known = evidence.traces.dropna(subset=["variation"])
    relations = [correlation(group.rtt_s, group.variation) for _, group in known.groupby(CONFIGURATION)]
    found = votes(sign(relation, 1) for relation in relations)
    medians_by_rtt = known.groupby("rtt_s").variation.median()
    listed = ", ".join(f"{1e3 * rtt:g} ms {percent(variation)}" for rtt, variation in medians_by_rtt.items())
    return Finding(found.verdict, f"the variation after the ramp grows with the round trip in {found} configurations; medians: {listed}", "variation")


def sign(relation: tuple[float, float] | None, expected: int) -> bool | None:
    """Returns whether a rank correlation with p below 0.05 has the expected sign; None for others."""
    return None if relation is None or relation[1] > 0.05 else relation[0] * expected > 0


def exponents_lower_throughput(evidence: Evidence) -> Finding:
    """Compares runs with the repetitions of their own configuration: over all configurations, those with few connections have both other
    exponents and other rates."""
    known = evidence.traces.dropna(subset=["exponent"])
    found = votes(sign(correlation_within(group, CONFIGURATION, "exponent", "throughput_bits_per_s"), -1) for _, group in known.groupby("rtt_s"))
    pooled = votes(sign(correlation(group.exponent, group.throughput_bits_per_s), -1) for _, group in known.groupby("rtt_s"))
    text = f"among the repetitions of a configuration, larger exponents go with lower throughput at {found} round trips; over all configurations together at {pooled}"
    return Finding(found.verdict, text, "exponents")


def instability_shrinks_concavity(evidence: Evidence) -> Finding:
    means = evidence.traces.dropna(subset=["exponent"]).groupby(CONFIGURATION).exponent.mean()
    places = {key: place(one) for key, one in evidence.results.items()}
    known = pd.DataFrame([(means[key], sum(where) / 2) for key, where in places.items() if where is not None and key in means.index], columns=["exponent", "transition"])
    relation = correlation(known.exponent, known.transition)
    found = votes(iter([sign(relation, -1)]))
    measured = "no correlation" if relation is None else f"rank correlation {relation[0]:.2f} (p = {relation[1]:.2g})"
    return Finding(found.verdict, f"{measured} of mean exponent and transition, {len(known)} configurations; later transitions with smaller exponents agree")


def chaos(evidence: Evidence) -> Finding:
    """Refuted if more than a tenth of the decided traces with a positive exponent have no structure. Traces whose exponent is only low for
    surrogates because of autocorrelation (weak) decide nothing, and structure is no proof of chaos."""
    known = evidence.traces.dropna(subset=["exponent"])
    known = known[known.exponent > 0]
    decided = {"deterministic structure": True, "no structure found": False}
    found = votes(decided.get(verdict) for verdict in known.verdict)
    share = found.agree / max(found.agree + found.contradict, 1)
    verdict = found.verdict if found.verdict == "not decided" else "refuted" if share < 0.9 else "not refuted"
    positive = len(known) / max(evidence.traces.exponent.notna().sum(), 1)
    noise = np.log(SAMPLES - 1) - 1.1
    reach = 1e3 * known.rtt_s.max() if len(known) else 0
    return Finding(
        verdict,
        f"{percent(positive)} of the exponents at round trips of up to {reach:g} ms (longer ones need longer runs) are positive (median {known.exponent.median():.1f}; white noise has {noise:.1f}), but only {found} of these traces "
        "have structure that surrogates with their values and spectrum do not have",
        "exponents",
    )


def orders_infrastructures(evidence: Evidence) -> Finding:
    """Compares infrastructures of a kind: those from memory to memory have another time than copies of files."""
    measured = {name: one for name, one in evidence.infrastructures.items() if not isinstance(one.intervals, Unavailable)}

    def is_ordered(one: Analysis, other: Analysis) -> bool | None:
        """Coefficients of other round trips do not compare, and intervals that overlap decide nothing."""
        first, second = (result.intervals["utilization_concavity"] for result in (one, other))
        is_equal = np.array_equal(one.profile.rtt_s, other.profile.rtt_s)
        return True if is_equal and (first.upper < second.lower or second.upper < first.lower) else None

    kinds = itertools.groupby(sorted(measured), key=lambda name: name.partition(",")[0])
    pairs = [pair for _, names in kinds for pair in itertools.combinations(names, 2)]
    found = votes(is_ordered(*(measured[name] for name in pair)) for pair in pairs)
    return Finding(found.verdict, f"{found} pairs of {len(measured)} infrastructures of a kind have intervals that do not overlap; no result could contradict", "infrastructures")


def slowest_stage_limits(evidence: Evidence) -> Finding:
    """Compares ranges: all runs of a transfer are slower than all of a stage, or faster."""

    def is_limited(runs: list[dict[str, float]]) -> bool | None:
        slowest, fastest = extremes(runs)
        if fastest["transfer"] <= (1 + TOLERANCE) * min(slowest[name] for name in STAGES):
            return True
        return False if slowest["transfer"] > (1 + TOLERANCE) * min(fastest[name] for name in STAGES) else None

    found = votes(is_limited(runs) for runs in evidence.grid.values())
    above = sum(bool(judged(runs).is_contradiction[0]) for runs in evidence.grid.values())
    text = f"{found} file transfers are at most as fast as their slowest stage, within 5 %, by all runs; the medians of {above} are faster, as the network alone varies more"
    return Finding(found.verdict, text, grid_figure(evidence))


def extremes(runs: list[dict[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the lowest and the highest of each rate."""
    lowest, highest = ({name: which(rates[name] for rates in runs) for name in runs[0]} for which in (min, max))
    return lowest, highest


def sustainment_makes_concave(evidence: Evidence) -> Finding:
    """Compares the rate after the ramp with the mean of the run, which is between it and that of the ramp."""
    known = evidence.traces.dropna(subset=["sustained_bits_per_s"])
    excess = (known.sustained_bits_per_s / known.throughput_bits_per_s - 1).groupby([known[column] for column in (*CONFIGURATION, "rtt_s")]).mean()

    def is_excluded(key: tuple[str, int, int], result: Analysis) -> bool | None:
        """A convex region in which the rate after the ramp is higher contradicts."""
        region = place(result)
        if region is None or key not in excess.index:
            return None
        convex = excess.loc[key].loc[region[1] :]
        return None if len(convex) < MIN_CONVEX else not bool((convex > 0).all())

    found = votes(is_excluded(key, one) for key, one in evidence.results.items())
    text = f"the rate after the ramp is not above that of the ramp in {found} convex regions; it makes the throughput decrease, whatever the curvature is"
    return Finding("refuted" if found.contradict else "not decided", f"{text}; one case refutes the claim")


MIN_CONVEX = 3
"""Least number of round trips of a convex region."""


def printed_ramp(_: Evidence) -> Finding:
    """Compares the printed data with the printed rounds, and the printed slope with the derivative of the printed throughput."""
    rtts, step, path = np.array([1.0, 10.0, 100.0]), 1e-5, {"capacity": 1024, "duration": 100}
    agreements = {"data": [], "slope": []}
    for epsilon in (0.0, 0.1, 0.5):
        literal = models.slide_literal(rtts, epsilon=epsilon, **path)
        later, earlier = (models.slide_literal(rtts * factor, epsilon=epsilon, **path).throughput for factor in (1 + step, 1 - step))
        agreements["data"] += np.isclose(literal.ramp_data, literal.corrected_ramp_data, rtol=1e-3).tolist()
        agreements["slope"] += np.isclose(literal.slope, (later - earlier) / (2 * step * rtts), rtol=1e-3).tolist()
    data, slope = (votes(iter(values)) for values in agreements.values())
    found = votes(one and other for one, other in zip(*agreements.values(), strict=True))
    text = f"for exponents of 0, 0.1 and 0.5, the printed data of the ramp are those of its printed rounds in {data} cases, and the printed slope is the derivative in {slope}"
    return Finding("refuted" if found.contradict else "not refuted", f"{text}; one case refutes the claim")


def convex_is_window(evidence: Evidence) -> Finding:
    small = evidence.buffers[0]
    windows = {one.configuration: convex_window(evidence, one) for one in evidence.of_buffer(small)}
    found = votes(None if window is None else window.is_constant for window in windows.values())
    known = {key: window for key, window in windows.items() if window is not None}
    text = f"; windows {', '.join(f'{window.window_bytes / 2**20:.1f}' for window in known.values())} MiB" if known else ""
    transport = next(iter(known)).transport if known else "cubic"
    return Finding(found.verdict, f"rate after the ramp · round trip is constant (variation below 10 %) in {found} convex regions with {mebibytes(small)}{text}", f"profiles-{transport}")


def grid_figure(evidence: Evidence) -> str | None:
    return "grid" if evidence.grid else None


def more_flows(evidence: Evidence) -> Finding:
    """Compares the rates with twice as many flows; 5 % is no difference."""
    steps = [
        medians(evidence.grid[rtt_ms, 2 * flows, block])["transfer"] / medians(runs)["transfer"]
        for (rtt_ms, flows, block), runs in evidence.grid.items()
        if (rtt_ms, 2 * flows, block) in evidence.grid
    ]
    higher, lower = sum(step > 1.05 for step in steps), sum(step < 0.95 for step in steps)
    verdict = "not decided" if not steps else "refuted" if higher == len(steps) else "reproduced"
    text = f"twice as many flows raise the rate of a file transfer by more than 5 % in {higher} of {len(steps)} cases, and lower it in {lower}"
    return Finding(verdict, f"{text}; one case without a gain reproduces the claim", grid_figure(evidence))


def impedance(evidence: Evidence) -> Finding:
    """Compares the fastest run of a transfer with the slowest runs of its stages."""

    def is_slower(runs: list[dict[str, float]]) -> bool:
        slowest, fastest = extremes(runs)
        serial = composition.compose({name: slowest[name] for name in STAGES}).harmonic_bits_per_s[0]
        return fastest["transfer"] < (1 - TOLERANCE) * serial

    mismatches = sum(is_slower(runs) for runs in evidence.grid.values())
    ratios = [min(rates["read"], rates["write"]) / rates["network"] for rates in map(medians, evidence.grid.values())]
    reach = f"; the disks are {min(ratios):.1f} to {max(ratios):.0f} times as fast as the network, so few cells can show it" if ratios else ""
    text = f"{mismatches} of {len(evidence.grid)} transfers are slower than if their stages worked one after the other, in all runs"
    return Finding("reproduced" if mismatches else "not decided", f"{text}{reach}", grid_figure(evidence))


def bbr_beside_cubic(evidence: Evidence) -> Finding:
    found = votes(ratio > 2 for ratio in evidence.shares.values())
    of_queue: dict[float, list[float]] = {}
    for (_, queue, _), ratio in evidence.shares.items():
        of_queue.setdefault(queue, []).append(ratio)
    listed = "; ".join(f"{queue:g}: {min(ratios):.1f} to {max(ratios):.1f}" for queue, ratios in sorted(of_queue.items()))
    text = f"BBR has more than twice the rate of CUBIC in {found} conditions in which both use 80 % of the path"
    return Finding(found.verdict, f"{text} (BBR / CUBIC by queue / (rate × round trip): {listed})" if listed else text)


def profiles_choose(evidence: Evidence) -> Finding:
    """Leaves each inner round trip out, chooses by the others, and looks at what the choice has there."""
    complete = evidence.complete
    if not complete:
        return Finding("not decided", "no profiles of equal round trips")
    rtts = complete[0].profile.rtt_s
    names = [one.configuration for one in complete]
    scores = []
    for at in range(1, len(rtts) - 1):
        rest = [one for one in evidence.without(rtts[at]) if one.configuration in names]
        chosen = tuning.select(rest, float(rtts[at])).chosen.configuration
        means = {one.configuration: one.profile.means[at] for one in complete}
        scores.append(float(means[chosen] / max(means.values())))
    found = votes(score >= 0.9 for score in scores)
    listed = ", ".join(f"{1e3 * rtt:g} ms {percent(score)}" for rtt, score in zip(rtts[1:-1], scores, strict=True))
    return Finding(found.verdict, f"chosen without the runs at a round trip, {found} choices have 90 % of the best configuration there: {listed}")


def more_connections(evidence: Evidence) -> Finding:
    """Compares steps to more connections at each round trip."""
    results, steps = evidence.results, []
    for (transport, streams, buffer), one in results.items():
        more = [other for (its, count, size), other in results.items() if (its, size) == (transport, buffer) and count > streams]
        if more:
            steps += bands_differ(more[0], one)
    found = votes({1: True, -1: False, 0: None}[step] for step in steps)
    return Finding(found.verdict, f"more connections are faster in {found} steps at one round trip; undecided where both use the path", "streams-cubic")


def printed_confidence(_: Evidence) -> Finding:
    runs = (7, 70, 700, 7000)
    bounds = [printed_bound(epsilon, count) for epsilon in (0.25, 0.5) for count in runs]
    found = votes(not bound.is_vacuous for bound in bounds)
    useful = [count for count, bound in zip(runs * 2, bounds, strict=True) if not bound.is_vacuous]
    text = f"as printed it is no bound for errors below C / 4, and below 1 for {found} pairs of an error of C / 4 or C / 2 and {', '.join(map(str, runs))} runs"
    return Finding("refuted" if not useful or min(useful) > 70 else found.verdict, f"{text}; a complete campaign has 70 runs of a profile")


def game_estimates(_: Evidence) -> Finding:
    """One point at which the estimate holds and that is no equilibrium refutes the claim."""
    points = [(game, found) for game, *_rest in GAMES.values() for found in resilience.solve(game)]
    found = votes(is_equilibrium_of_estimate(game, point) for game, point in points)
    verdict = "refuted" if found.contradict else "not refuted"
    return Finding(verdict, f"of {len(points)} stationary points of known games, {found} at which the estimate holds are equilibria (undecided: it does not describe the game)")


def is_equilibrium_of_estimate(game: resilience.Game, point: resilience.Certificate) -> bool | None:
    """Returns whether a point at which the estimate holds is an equilibrium; None if the estimate does not describe the game. Raises
    `ArithmeticError` if it does, but does not hold."""
    try:
        estimate = resilience.estimate_success(game, point.defender_efforts, point.attacker_efforts)
    except ValueError:
        return None
    if not np.allclose(estimate.success, estimate.contest_success, rtol=1e-6):
        raise ArithmeticError(f"the estimate {estimate.success} is not {estimate.contest_success}")
    return point.is_equilibrium


def credits_model(_: Evidence) -> Finding:
    limit = composition.credit_limit([0.0118, 0.366], capacity_bits_per_s=10e9, credits=8)
    rates = " and ".join(f"{rate / 1e9:.2f}" for rate in limit.throughput_bits_per_s)
    return Finding("not testable here", f"needs InfiniBand; the model gives {rates} Gbit/s at 11.8 and 366 ms for 8 credits, knee {1e3 * limit.knee_s:.1f} ms")


CLAIMS = (
    Claim("Throughput decreases with the round trip", decreases),
    Claim("Profiles are dual: concave at short, convex at long round trips", is_dual),
    Claim("Profiles are concave with large buffers, convex with small ones", lab_profile_claims.concave_by_buffer),
    Claim("Fits of a pair of sigmoids confirm concave and convex regions", lab_profile_claims.sigmoids_confirm),
    Claim("Larger buffers move the transition to longer round trips", grows_with_buffer),
    Claim("More connections expand the concave region", grows_with_streams),
    Claim("More connections raise the rate", more_connections),
    Claim("Slow start explains the concave region", ramp_explains),
    Claim("The printed formulas of the ramp agree with each other", printed_ramp),
    Claim("A rate after the ramp above that of the ramp makes a profile concave", sustainment_makes_concave),
    Claim("A convex region is a limit of buffers", convex_is_window),
    Claim("Traces vary, more at longer round trips", varies_with_rtt),
    Claim("Traces are sort of periodic in time", lab_profile_claims.traces_are_periodic),
    Claim("Positive exponents mean chaotic dynamics", chaos),
    Claim("Larger exponents lower the throughput", exponents_lower_throughput),
    Claim("Instability shrinks the concave region", instability_shrinks_concavity),
    Claim("The utilization-concavity coefficient orders infrastructures", orders_infrastructures),
    Claim("A file transfer is at most as fast as its slowest stage", slowest_stage_limits),
    Claim("More flows do not always give a higher rate of file transfers", more_flows),
    Claim("Stages that are fast alone can be slow together (impedance mismatch)", impedance),
    Claim("Eight flows of files are close to the rate from memory to memory", lab_profile_claims.eight_flows),
    Claim("Site variations lead to complex profiles", lab_external.sites_vary),
    Claim("Linear interpolation of the means is close to optimal, and closer with more runs", lab_profile_claims.interpolation_is_close),
    Claim("Profiles choose the transport and its parameters for a round trip", profiles_choose),
    Claim("BBR takes most of a path from CUBIC (ESnet, 2021: up to 12 : 1)", bbr_beside_cubic),
    Claim("The bound by Vapnik–Chervonenkis dimension gives the confidence of a profile", printed_confidence),
    Claim("Lustre over a wide area is limited by the credits of LNet", credits_model),
    Claim("The estimate of an infrastructure's survival gives the equilibria of the game", game_estimates),
    Claim("Profiles are similar across CUBIC, Hamilton TCP and Scalable TCP", lab_profile_claims.variants_are_similar),
)


def page(evidence: Evidence, tables: Mapping[str, str]) -> str:
    """Returns the page. `tables` has the tables of other benchmarks, by the name of their files."""
    rows = ["| claim | verdict | measured here | figure |", "| --- | --- | --- | --- |"]
    for claim in CLAIMS:
        found = claim.check(evidence)
        figure = "" if found.figure is None else f"[figure]({FIGURES}/{found.figure}.svg)"
        rows.append(f"| {claim.text} | **{found.verdict}** | {found.measurement} | {figure} |")
    sections = [HEAD, regime(evidence), "\n".join(rows)]
    sections += ["## Infrastructures", INFRASTRUCTURES, coefficients(evidence.infrastructures)]
    sections += ["## Profiles", profiles(evidence), "## Coefficients", coefficients({name(one): one for one in evidence.results.values()})]
    for title, text, table in TABLES:
        if table in tables:
            sections += [f"## {title}", text, tables[table].strip()]
    return "\n\n".join(sections) + "\n"


HEAD = f"""# Claims of the talk, measured

Generated by `make lab-claims` from [the results](../../bench/results/lab). The claims are those of N. Rao, "Some Science Aspects of
Wide-Area Data Transport" (2018). A claim is *reproduced* if 90 % of the comparisons that decide agree with it, *refuted* if 10 % do,
and *mixed* between; with less than {MIN_DECIDED} that decide, or more that do not, it is *not decided*. The text says where another rule holds. A
comparison is undecided where the errors of the runs do not decide it, and rank correlations where p is above 0.05."""

INFRASTRUCTURES = """Utilization-concavity coefficients over the same round trips, relative to the capacity, with intervals of 95 % (bootstrap). From
memory to memory they are of runs of 10 s, of files those of the whole command for 1 GB from memory to memory."""

TABLES = (
    ("Predictions", "Copies over emulated paths, each predicted before (`towpath lab predict`): by a probe, which took 3 s below 100 ms, and 5 s or 30 round trips above; and over the path of the campaign also by probe and profile, the campaign's runs with 4 connections and 64 MiB, which are downloads. The interval of each is from all others with a round trip of the same class (below 20 ms, to 100 ms, above), and from the runs of the profile.", "predictions.md"),
    ("Flows and blocks", "File transfers as those of XDD over emulated paths of 1 Gbit/s, with files on a disk: each flow reads, sends and writes blocks with one buffer. Medians of three runs, in Mbit/s.", "grid.md"),
    ("BBR beside CUBIC", "One connection of each over one emulated path of 500 Mbit/s, for 15 s after the first 5 s. [What follows for the mover](../concepts/tuning.md).", "coexistence.md"),
    ("Accuracy of the methods", "Simulated, with known truths; 300 trials each.", "targets.md"),
)
"""Title, text and file of the tables of other benchmarks."""


def regime(evidence: Evidence) -> str:
    frame = evidence.runs.frame()
    limited = int(frame.limited_by.notna().sum())
    counts = frame.groupby(["transport", "streams", "buffer_bytes", "rtt_s"]).size()
    each = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
    parts = [
        f"**The regime**: {len(frame):,} runs of {frame.planned_s.max():g} s with iperf3 and the kernel's TCP, over an emulated path on one machine: "
        f"{frame.capacity_bits_per_s.max() / 1e6:.0f} Mbit/s of payload, a queue of one product of rate and round trip, at least 1 MiB, no loss but that of the queue; "
        f"round trips {', '.join(f'{1e3 * rtt:g}' for rtt in sorted(frame.rtt_s.unique()))} ms, {', '.join(sorted(frame.transport.unique()))}, "
        f"{', '.join(map(str, sorted(frame.streams.unique())))} connections, buffers of at most "
        f"{', '.join(mebibytes(size) for size in evidence.buffers)}; {each} runs of each.",
        f"{limited} runs were limited by the machine, and are left out." if limited else "No run was limited by the machine.",
        "The talk measured at 10 Gbit/s, over physical and emulated paths.",
    ]
    in_flight = frame.throughput_bits_per_s * frame.rtt_s / 8 / frame.streams
    stuck = frame[(in_flight < STUCK_BYTES) & (frame.throughput_bits_per_s < frame.capacity_bits_per_s / 2)]
    if len(stuck):
        parts.append(
            f"In {len(stuck)} runs, with {', '.join(map(str, sorted(stuck.streams.unique())))} connection and a round trip of "
            f"{', '.join(f'{1e3 * rtt:g}' for rtt in sorted(stuck.rtt_s.unique()))} ms, the kernel of the receiver enlarged its buffer late or not at all, so that the sender "
            "waited for a window of 84 kB (`ss -tin`: a receive buffer of 128 KiB, and `rwnd_limited` most of the time). They count: it happens to copies too."
        )
    if counts.min() < MIN_RELIABLE_RUNS:
        parts.append(
            f"**The campaign is not complete**: {evidence.missing:,} runs are missing. With less than {MIN_RELIABLE_RUNS} runs of each, intervals may "
            "be too narrow, and shapes are often undecided."
        )
    return " ".join(parts)


STUCK_BYTES = 512 << 10
"""Data of a connection in flight, on average over the run, below which its receive window has not grown."""


def coefficients(results: Mapping[str, Analysis]) -> str:
    rows = [f"| | {' | '.join(COEFFICIENTS)} |", "| --- |" + " --- |" * len(COEFFICIENTS)]
    for label, one in sorted(results.items(), key=lambda item: -getattr(item[1].coefficients, "utilization_concavity", 0)):
        rows.append(f"| {label} | {' | '.join(coefficient_text(one, field) for field in COEFFICIENTS.values())} |")
    return "\n".join(rows)


def profiles(evidence: Evidence) -> str:
    rtts = sorted(evidence.runs.frame().rtt_s.unique())
    rows = [f"| Mbit/s | {' | '.join(f'{1e3 * rtt:g} ms' for rtt in rtts)} | shape |", "| --- |" + " ---: |" * len(rtts) + " --- |"]
    for one in evidence.results.values():
        if isinstance(one.profile, Unavailable):
            continue
        means = dict(zip(one.profile.rtt_s, one.profile.means, strict=True))
        cells = " | ".join(f"{means[rtt] / 1e6:.0f}" if rtt in means else "" for rtt in rtts)
        rows.append(f"| {name(one)} | {cells} | {shape_of(one)} |")
    return "\n".join(rows)


def name(result: Analysis) -> str:
    key = result.configuration
    return f"{key.transport} × {key.streams}, {mebibytes(key.buffer_bytes)}"


def figures(evidence: Evidence) -> Iterable[tuple[str, object]]:
    """Yields the name and the figure of each."""
    by_transport = itertools.groupby(evidence.results.values(), key=lambda one: one.configuration.transport)
    for transport, of_transport in by_transport:
        group = list(of_transport)
        yield f"profiles-{transport}", plots.plot_profiles(group)
        smallest = [one for one in group if one in evidence.complete and one.configuration.buffer_bytes == evidence.buffers[0]]
        if smallest:
            yield f"streams-{transport}", plots.plot_heat_map({one.configuration.streams: one.profile for one in smallest})
    yield "infrastructures", plots.plot_coefficients(list(evidence.infrastructures.values()))
    large = [one for one in evidence.of_buffer(evidence.buffers[-1]) if isinstance(one.profile, Profile)]
    curves = {
        f"slow start × {one.configuration.streams}": (one.profile.rtt_s * 1e3, ramp_fit(one).ramp / 1e6)
        for one in large
        if one.configuration.transport == "cubic"
    }
    points = {name(one): (one.profile.rtt_s * 1e3, one.profile.means / 1e6) for one in large}
    yield "ramp", plots.plot_relation(points, "round trip / ms", "throughput / (Mbit/s)", curves=curves)
    fitted = {
        name(one): (one.profile, lab_profile_claims.sigmoids(one)) for one in evidence.complete if one.configuration.transport == "cubic"
    }
    points = {label: (profile.rtt_s * 1e3, profile.means / 1e6) for label, (profile, _) in fitted.items()}
    curves = {}
    for label, (profile, fit) in fitted.items():
        rtts = np.geomspace(profile.rtt_s[0], profile.rtt_s[-1], 100).clip(*fit.range_s)
        curves[f"sigmoids, {label}"] = (rtts * 1e3, fit.throughput_bits_per_s(rtts) / 1e6)
    if fitted:
        yield "sigmoids", plots.plot_relation(points, "round trip / ms", "throughput / (Mbit/s)", curves=curves)
    if evidence.grid:
        longest = max(rtt_ms for rtt_ms, _, _ in evidence.grid)
        flows, blocks = (sorted({key[at] for key in evidence.grid}) for at in (1, 2))
        known = {key: medians(runs)["transfer"] for key, runs in evidence.grid.items()}
        rates = [[known.get((longest, flow, block), np.nan) for block in blocks] for flow in flows]
        yield "grid", plots.plot_grid(rates, "flows", flows, f"block, at {longest:g} ms", [f"{block >> 10} KiB" for block in blocks])
    for figure, x, y, labels in RELATIONS:
        known = evidence.traces.dropna(subset=[x, y])
        if len(known):
            groups = known.groupby("transport")
            yield figure, plots.plot_relation({transport: (SCALES.get(x, 1) * group[x], SCALES.get(y, 1) * group[y]) for transport, group in groups}, *labels)


RELATIONS = (
    ("variation", "rtt_s", "variation", ("round trip / ms", "variation after the ramp")),
    ("exponents", "exponent", "throughput_bits_per_s", ("exponent per step", "throughput / (Mbit/s)")),
)
"""Name of a figure, columns of the traces, and labels."""
SCALES = {"rtt_s": 1e3, "throughput_bits_per_s": 1e-6}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--output", type=pathlib.Path, default=PAGE)
    options = parser.parse_args()
    copies = options.results / "infrastructures" / "runs.parquet"
    campaign, external = Campaign.of_directory(options.results / "campaign"), options.results / lab_external.FILE
    evidence = Evidence(
        campaign.runs(),
        Runs.read(copies) if copies.exists() else None,
        rates_of_runs(read_lines(options.results / "grid.jsonl")),
        shares(read_lines(options.results / "coexistence.jsonl")),
        json.loads(external.read_text()) if external.exists() else {},
        len(campaign.missing()),
    )
    tables = {path.name: path.read_text() for path in options.results.glob("*.md")}
    text, drawn = page(evidence, tables), {figure: plots.svg(found) for figure, found in figures(evidence)}
    directory = options.output.parent / FIGURES
    directory.mkdir(exist_ok=True)
    options.output.write_text(text)
    for figure, content in drawn.items():
        (directory / f"{figure}.svg").write_text(content)
    print(f"wrote {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
