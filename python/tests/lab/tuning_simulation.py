"""Simulations for the tests of `towpath.lab.tuning` and the tables of docs/lab/tuning.md.

    PYTHONPATH=python python3 python/tests/lab/tuning_simulation.py

A trial draws a profile of a family: the throughput without errors for 1 to 32 streams. A search or a selection sees it with independent
normal errors of a percentage. Its score is the throughput without errors of the chosen setting, relative to the highest one.
"""

from unittest.mock import patch

import numpy as np

from towpath.lab import tuning
from towpath.lab.analysis import Analysis, Unavailable
from towpath.lab.profiles import Profile
from towpath.lab.profiles.bands import envelope
from towpath.lab.runs import Configuration
from towpath.lab.tuning import gaussian

STREAMS = np.arange(1, 33)
DOUBLINGS = np.log2(STREAMS)
CAPACITY_BITS_PER_S = 10e9
SHARE = 0.95
"""Score that counts as close to the peak."""


def unimodal(random):
    """Returns a normal curve in log2 n: peak at 1 to 32 streams (log-uniform), deviation of 1.5 to 3 doublings (uniform)."""
    peak, width = random.uniform(0, 5), random.uniform(1.5, 3)
    return np.exp(-((DOUBLINGS - peak) ** 2) / (2 * width**2))


def saturating(random):
    """Returns 1 - exp(-n / n0), with n0 from 0.5 to 8 streams (log-uniform)."""
    return 1 - np.exp(-STREAMS / 2 ** random.uniform(-1, 3))


def kinked(random):
    """Returns n^a up to a kink at 2 to 32 streams (log-uniform), n^-b beyond it, with a from 0.4 to 1 and b from 0.2 to 0.8 (uniform)."""
    kink, rise, fall = random.uniform(1, 5), random.uniform(0.4, 1), random.uniform(0.2, 0.8)
    distance = DOUBLINGS - kink
    return 2 ** np.where(distance < 0, rise * distance, -fall * distance)


def narrow(random):
    """Returns a normal curve with a deviation of 0.5 to 1 doubling over a hundredth of its peak, which is at 1 to 32 streams."""
    peak, width = random.uniform(0, 5), random.uniform(0.5, 1)
    return np.exp(-((DOUBLINGS - peak) ** 2) / (2 * width**2)) + 0.01


def cliff(random):
    """Returns 1 + log2 n up to 2 to 16 streams (log-uniform), and 30 % of it beyond."""
    return (1 + DOUBLINGS) * np.where(random.uniform(1, 4) >= DOUBLINGS, 1, 0.3)


def twin(random):
    """Returns the higher of two normal curves, with peaks at 1 to 2 and 13 to 23 streams (log-uniform); the latter is higher by 30 %."""
    peaks = random.uniform([0, 3.7], [1, 4.5])
    return np.maximum(np.exp(-((DOUBLINGS - peaks[0]) ** 2)), 1.3 * np.exp(-((DOUBLINGS - peaks[1]) ** 2))) + 0.05


FAMILIES = {"unimodal": unimodal, "saturating": saturating, "kinked": kinked}
HARD_FAMILIES = {"narrow": narrow, "cliff": cliff, "twin": twin}

SEARCHES = {
    "6 streams, no run": lambda measure, streams: tuning.SearchResult("none", 6, ()),
    "full sweep": tuning.full_sweep,
    "ternary": tuning.ternary,
    "doubling": tuning.doubling,
    "Kiefer-Wolfowitz": tuning.kiefer_wolfowitz,
    "Kiefer-Wolfowitz, gain 1": lambda measure, streams: tuning.kiefer_wolfowitz(measure, streams, gain=1),
    "GP-UCB": tuning.gp_ucb,
}


def simulate_search(search, family, noise, *, trials, seed):
    """Returns the scores and the numbers of runs of a search. Trials with a seed have the same profiles for all searches."""
    scores, runs = np.empty(trials), np.empty(trials)
    for trial in range(trials):
        random = np.random.default_rng([seed, trial])
        profile = family(random) * CAPACITY_BITS_PER_S

        def measure(streams, profile=profile, random=random):
            return max(profile[streams - 1] * (1 + noise * random.standard_normal()), 0)

        result = SEARCHES[search](measure, STREAMS)
        scores[trial], runs[trial] = profile[result.chosen - 1] / profile.max(), result.runs
    return scores, runs


def analysis_of(streams, profile, buffer_bytes=None):
    """Returns the parts of an analysis that a selection needs."""
    missing = Unavailable("not needed")
    key = Configuration("iperf3", "cubic", streams, buffer_bytes, 10, None, None)
    return Analysis(key, int(profile.counts.sum()), profile, envelope(profile), missing, missing, missing)


def simulate_selection(family, noise, *, trials, seed, runs=10, highest=10):
    """Returns for the chosen configuration and for the one with the highest mean: score, streams, and excess of the mean over its truth.

    Configurations have 1 to `highest` streams. Their profiles have three round trips, with 100, 90 and 80 % of the family's throughput;
    the target is the second one.
    """
    found = np.empty((trials, 2, 3))
    for trial in range(trials):
        random = np.random.default_rng([seed, trial])
        truth = family(random)[:highest]
        errors = 1 + noise * random.standard_normal((highest, 3, runs))
        samples = np.maximum(truth[:, None, None] * np.array([1, 0.9, 0.8])[:, None] * errors, 0)
        analyses = [analysis_of(at + 1, Profile.of_samples([0.05, 0.1, 0.2], samples[at])) for at in range(highest)]
        chosen = tuning.select(analyses, 0.1).chosen.configuration.streams - 1
        means = samples[:, 1].mean(axis=1)
        for rule, at in enumerate((chosen, int(means.argmax()))):
            found[trial, rule] = truth[at] / truth.max(), at + 1, means[at] / (0.9 * truth[at]) - 1
    return found


def simulate_control(noise, gain, *, trials, seed, runs=50):
    """Returns the relative errors of the rate without errors in the chosen window. The path has 1 Gbit/s, a round trip of 0.1 s, and a
    target of 60 % of the capacity; the first window is one segment, and `gain` is in round trips."""
    errors = np.empty(trials)
    for trial in range(trials):
        random = np.random.default_rng([seed, trial])

        def rate(window_bytes):
            return min(8 * window_bytes / 0.1, 1e9)

        result = tuning.control_window(
            lambda window, random=random: max(rate(window) * (1 + noise * random.standard_normal()), 0),
            6e8,
            start_bytes=1460,
            gain_s=0.1 * gain,
            runs=runs,
        )
        errors[trial] = rate(result.chosen) / 6e8 - 1
    return errors


def print_searches(families, noises, trials, seed):
    cells = [(name, noise) for name in families for noise in noises]
    print("| search | runs |" + "".join(f" {name} {noise:.0%} |" for name, noise in cells))
    print("| --- | --- |" + " --- |" * len(cells))
    for search in SEARCHES:
        found = [simulate_search(search, families[name], noise, trials=trials, seed=seed) for name, noise in cells]
        texts = "".join(f" {scores.mean():.3f} / {(scores >= SHARE).mean():.2f} |" for scores, _ in found)
        print(f"| {search} | {np.mean([runs.mean() for _, runs in found]):.1f} |{texts}")


def print_sensitivity(trials, seed):
    print("\n| parameter of GP-UCB |" + "".join(f" {name} 10% |" for name in FAMILIES))
    print("| --- |" + " --- |" * len(FAMILIES))
    for name, values in {"LENGTH": (1, 3, 4), "SIGNAL": (0.35, 0.7, 1), "LEVEL": (0.3, 3), "CONFIDENCE": (1, 3, 4.6)}.items():
        for value in values:
            with patch.object(gaussian, name, value):
                found = [simulate_search("GP-UCB", family, 0.1, trials=trials, seed=seed)[0].mean() for family in FAMILIES.values()]
            print(f"| {name} {value} |" + "".join(f" {score:.3f} |" for score in found))


def print_selections(trials, seed):
    print("\n| family, 10% | rule | score | streams | excess of the mean |\n| --- | --- | --- | --- | --- |")
    for name, family in (*FAMILIES.items(), ("equal", lambda random: np.ones(32))):
        found = simulate_selection(family, 0.1, trials=trials, seed=seed)
        for rule, (score, streams, excess) in zip(("select", "highest mean"), found.mean(axis=0), strict=True):
            print(f"| {name} | {rule} | {score:.3f} | {streams:.1f} | {excess:+.3f} |")


def print_controls(trials, seed):
    print("\n| gain in round trips | errors | median and 95 % quantile of abs(deviation) after 50 runs |\n| --- | --- | --- |")
    for gain in (0.1, 0.5, 1, 2):
        for noise in (0.1, 0.2):
            deviations = np.abs(simulate_control(noise, gain, trials=trials, seed=seed))
            print(f"| {gain} | {noise:.0%} | {np.median(deviations):.3f}, {np.quantile(deviations, 0.95):.3f} |")


def main(trials=300, seed=2018):
    """Prints tables. Cells of searches have the mean score, and the share of trials with a score of at least 0.95."""
    print(f"All figures are simulated: {trials} random profiles in each cell.\n")
    print_searches(FAMILIES, (0.05, 0.1), trials, seed)
    print()
    print_searches(HARD_FAMILIES, (0.1,), trials, seed)
    print_sensitivity(trials, seed)
    print_selections(trials, seed)
    print_controls(trials, seed)


if __name__ == "__main__":
    main()
