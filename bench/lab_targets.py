"""Accuracy of the lab's methods over simulated trials, beside their targets. No network, no root.

    make bench-lab

Truths are those of python/tests/lab, whose tests check the same targets with fewer trials. Writes targets.json and targets.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import pathlib
import sys
from collections.abc import Callable, Iterator

import numpy as np
from circumstances import git
from profile_simulation import STRAIGHT, TRUTHS, UNEVEN, noisy
from series import autoregressive, exponential, logistic, sawtooth, window_with_losses
from towpath.lab import dynamics
from towpath.lab.profiles import Profile
from towpath.lab.profiles.bands import MIN_RELIABLE_RUNS, bootstrap, envelope, prediction
from towpath.lab.profiles.transition import find_transition
from tuning_simulation import FAMILIES, simulate_search

RESULTS = pathlib.Path(__file__).parent / "results" / "lab"
TRIALS = 300
SEED = 2018


@dataclasses.dataclass(frozen=True)
class Target:
    """A figure and the range in which it should be."""

    name: str
    found: float
    least: float
    most: float
    trials: int

    @property
    def is_met(self) -> bool:
        return self.least <= self.found <= self.most


def random_of(name: str) -> np.random.Generator:
    """Returns other random numbers for each name, and always the same."""
    return np.random.default_rng([SEED, *name.encode()])


def transitions() -> Iterator[Target]:
    """Yields the shares of trials in which the bracket, or the set, has the true transition, and those of straight profiles."""
    for errors, noise, least in (("2 %", 0.02, 0.98), ("5 %", 0.05, 0.9), ("10 %", 0.1, 0.78), ("20 %", 0.2, 0), ("0.5 to 10 %", UNEVEN, 0.9)):
        for name, (truth, transition_s) in TRUTHS.items():
            random = random_of(name)
            found = [find_transition(noisy(random, truth, noise)) for _ in range(TRIALS)]
            of_bracket = [one.bracket_s is not None and one.bracket_s[0] <= transition_s <= one.bracket_s[1] for one in found]
            of_set = [any(low <= transition_s <= high for low, high in one.set_s) for one in found]
            yield Target(f"transition in the bracket, {name}, errors of {errors}", float(np.mean(of_bracket)), least, 1, TRIALS)
            yield Target(f"transition in the set, {name}, errors of {errors}", float(np.mean(of_set)), 0.95, 1, TRIALS)
    for name, truth in STRAIGHT.items():
        for errors, noise in (("10 %", 0.1), ("0.5 to 10 %", UNEVEN)):
            random = random_of(name)
            shapes = [find_transition(noisy(random, truth, noise)).shape for _ in range(TRIALS)]
            yield Target(f"{name} profile is indeterminate, errors of {errors}", shapes.count("indeterminate") / TRIALS, 0.9, 1, TRIALS)


def bands() -> Iterator[Target]:
    """Yields the shares of envelopes that have the whole truth, for an intended 95 %."""
    for runs in (MIN_RELIABLE_RUNS, 30):
        for name, (truth, _) in TRUTHS.items():
            random = random_of(name)
            share = np.mean([is_covered(noisy(random, truth, 0.1, runs), truth) for _ in range(TRIALS)])
            yield Target(f"envelope of {runs} runs, {name}, errors of 10 %", float(share), 0.92, 0.98, TRIALS)
    for name, (truth, _) in TRUTHS.items():
        random, inside = random_of(name), {"bootstrap": [], "prediction": []}
        for trial in range(TRIALS):
            profile = noisy(random, truth, 0.1)
            following = np.clip(truth * (1 + 0.1 * random.standard_normal(len(truth))), 1e-3, None)
            for kind, band, point in (("bootstrap", bootstrap(profile, samples=200, seed=trial), truth), ("prediction", prediction(profile), following)):
                inside[kind] += ((band.lower <= point) & (point <= band.upper)).tolist()
        yield Target(f"means in the bootstrap interval of 95 %, 10 runs, {name}, errors of 10 %", float(np.mean(inside["bootstrap"])), 0.85, 0.97, TRIALS)
        yield Target(f"next runs in the prediction of 90 %, 10 runs, {name}, errors of 10 %", float(np.mean(inside["prediction"])), 0.87, 0.93, TRIALS)


def is_covered(profile: Profile, truth: np.ndarray) -> bool:
    """Returns whether the envelope has the whole truth. A profile that rises by more than its errors has none."""
    try:
        band = envelope(profile)
    except ValueError:
        return False
    return bool(np.all((band.lower <= truth) & (truth <= band.upper)))


def exponents() -> Iterator[Target]:
    """Yields the bias of the exponent of the logistic map, and the verdicts on noise."""
    for samples, most in ((100, 0.012), (1000, 0.003)):
        random = random_of(f"logistic {samples}")
        maps = [dynamics.aggregate_map(logistic(4, samples, random.uniform(0.05, 0.95)), 1) for _ in range(TRIALS)]
        bias = np.mean([dynamics.difference_exponent(one).per_step for one in maps]) - math.log(2)
        yield Target(f"bias of the exponent of the logistic map, {samples} samples", float(bias), -most, most, TRIALS)
    for (name, samples), (series, least, most) in SERIES.items():
        random = random_of(f"{name} {samples}")
        verdicts = [dynamics.surrogate_test(dynamics.aggregate_map(series(samples, random), 1), seed=trial).verdict for trial in range(TRIALS)]
        share = verdicts.count("deterministic structure") / TRIALS
        yield Target(f"deterministic structure found in {name}, {samples} samples", share, least, most, TRIALS)


SERIES: dict[tuple[str, int], tuple[Callable[[int, np.random.Generator], np.ndarray], float, float]] = {
    ("white noise", 100): (lambda samples, random: random.standard_normal(samples), 0, 0.05),
    ("white noise", 60): (lambda samples, random: random.standard_normal(samples), 0, 0.05),
    ("autoregressive noise (0.9)", 100): (lambda samples, random: autoregressive(0.9, samples, random), 0, 0.05),
    ("autoregressive noise (0.9)", 60): (lambda samples, random: autoregressive(0.9, samples, random), 0, 0.05),
    ("autoregressive noise (0.97)", 100): (lambda samples, random: autoregressive(0.97, samples, random), 0, 0.05),
    ("the exponential of autoregressive noise (0.9)", 100): (lambda samples, random: exponential(0.9, samples, random), 0, 1),
    ("a window with random losses", 100): (window_with_losses, 0.9, 1),
    ("a sawtooth with noise of 2 %", 100): (sawtooth, 0.9, 1),
    ("a logistic map with noise of 10 %", 100): (
        lambda samples, random: logistic(4, samples, random.uniform(0.05, 0.95)) + 0.1 * 0.354 * random.standard_normal(samples),
        0.9,
        1,
    ),
}
"""Series and numbers of their samples, and the range in which the share should be. The deviation of the logistic map is 0.354."""


def searches() -> Iterator[Target]:
    """Yields the mean throughput of the chosen number of streams / that of the best one."""
    for name, family in FAMILIES.items():
        scores, runs = simulate_search("GP-UCB", family, 0.1, trials=TRIALS, seed=SEED)
        yield Target(f"GP-UCB with {runs.max():.0f} of 32 settings, {name} profile, errors of 10 %", float(scores.mean()), 0.96, 1, TRIALS)


def table(targets: list[Target]) -> str:
    rows = ["| simulated | found | target | |", "| --- | ---: | ---: | --- |"]
    rows += [f"| {one.name} | {one.found:.3f} | {aim(one)} |" for one in targets]
    return "\n".join(rows)


def aim(target: Target) -> str:
    if (target.least, target.most) == (0, 1):
        return "none | "
    return f"{target.least:g} to {target.most:g} | {'met' if target.is_met else '**missed**'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    targets = [target for measure in (transitions, bands, exponents, searches) for target in measure()]
    document = {"commit": git("rev-parse", "--short", "HEAD"), "targets": [dataclasses.asdict(target) for target in targets]}
    (options.results / "targets.json").write_text(json.dumps(document, indent=1) + "\n")
    (options.results / "targets.md").write_text(table(targets) + "\n")
    print(table(targets))
    return 0


if __name__ == "__main__":
    sys.exit(main())
