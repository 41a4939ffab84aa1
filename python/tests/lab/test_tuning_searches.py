"""Searches for the best number of streams, and control of a window."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_simulation import FAMILIES, SEARCHES, SHARE, simulate_control, simulate_search

from towpath.lab import tuning
from towpath.lab.tuning import gaussian

GRID = range(1, 33)
STREAM_SEARCHES = [tuning.full_sweep, tuning.ternary, tuning.doubling, tuning.gp_ucb, tuning.kiefer_wolfowitz]
MAX_RUNS = {"full sweep": 32, "ternary": 24, "doubling": 7, "GP-UCB": 8, "Kiefer-Wolfowitz": 8}
GRIDS = st.sets(st.integers(1, 200), min_size=2, max_size=30).map(sorted)


def peak_at(peak):
    """Returns a profile that rises with n and falls with its root."""
    return lambda streams: 1e9 * min(streams / peak, math.sqrt(peak / streams))


def settings_of(result):
    return [setting for setting, _ in result.history]


@pytest.mark.parametrize("family", FAMILIES)
def test_eight_runs_with_errors_reach_96_percent_of_the_peak(family):
    scores, runs = simulate_search("GP-UCB", FAMILIES[family], 0.1, trials=100, seed=1)
    without, _ = simulate_search("6 streams, no run", FAMILIES[family], 0.1, trials=100, seed=1)
    assert scores.mean() >= 0.96 and (scores >= SHARE).mean() >= 0.7
    assert without.mean() < 0.91 and np.all(runs == 8)


@pytest.mark.parametrize(("search", "runs"), [("full sweep", 32), ("ternary", 19), ("doubling", 7)])
def test_other_searches_without_errors(search, runs):
    scores, used = simulate_search(search, FAMILIES["unimodal"], 0, trials=50, seed=2)
    assert scores.mean() >= 0.99 and used.mean() <= runs


@pytest.mark.parametrize("peak", GRID)
def test_a_sweep_and_a_ternary_search_find_each_peak(peak):
    assert tuning.full_sweep(peak_at(peak), GRID).chosen == peak
    found = tuning.ternary(peak_at(peak), GRID)
    assert found.chosen == peak and found.runs <= 2 * (2 * math.log(32 / 3) / math.log(1.5) + 5)


def test_a_ternary_search_leaves_out_a_third():
    # Positions 2 and 6 of 0 to 8; 4 and 7 of 3 to 8 (1 and 4 of 0 to 5 for the other peak); and so on.
    assert settings_of(tuning.ternary(peak_at(9), range(1, 10))) == [3, 3, 7, 7, 5, 5, 8, 8, 9, 9]
    assert settings_of(tuning.ternary(peak_at(1), range(1, 10), repetitions=1)) == [3, 7, 2, 5, 1]


@given(GRIDS, st.data())
def test_a_ternary_search_finds_the_peak_of_any_grid(grid, data):
    peak = data.draw(st.sampled_from(grid))
    assert tuning.ternary(peak_at(peak), grid, repetitions=1).chosen == peak


def test_a_sweep_measures_all_settings_before_it_repeats():
    found = tuning.full_sweep(peak_at(3), [2, 3, 8], repetitions=2)
    assert settings_of(found) == [2, 3, 8, 2, 3, 8] and found.method == "full sweep"
    assert found.history[2] == (8, 1e9 * math.sqrt(3 / 8))


def test_a_sweep_compares_means_and_prefers_few_streams():
    throughputs = iter([1, 5, 2, 4, 2, 3])
    assert tuning.full_sweep(lambda _: next(throughputs), [1, 2, 3], repetitions=2).chosen == 2
    assert tuning.full_sweep(lambda _: 7, GRID).chosen == 1


def test_doubling_then_halving():
    found = tuning.doubling(peak_at(6), GRID, runs=7)
    assert (settings_of(found), found.chosen) == ([1, 2, 4, 8, 16, 6, 5], 6)
    found = tuning.doubling(peak_at(32), GRID, runs=100)
    assert settings_of(found)[:7] == [1, 2, 4, 8, 16, 32, 23] and found.chosen == 32
    assert settings_of(tuning.doubling(peak_at(50), [1, 3, 10, 50])) == [1, 3, 10, 50]


def test_doubling_stops_beside_the_peak():
    found = tuning.doubling(peak_at(2), GRID, runs=100)
    assert (settings_of(found), found.chosen) == ([1, 2, 4, 3], 2)


def test_a_climb_by_differences():
    # x = 2.5; 2^1.5 and 2^3.5 are next to 3 and 11 in log2; slope (11 - 3) / 7 / log2(11 / 3) = 0.6097; x = 2.5 + 4 · 0.6097 = 4.939.
    found = tuning.kiefer_wolfowitz(lambda streams: streams, GRID, runs=2)
    assert (found.history, found.chosen) == (((3, 3), (11, 11)), 31)
    # Slope 0.0799, x = 2.819; ends 2.819 ± 0.794 are next to 4 and 12, slope 0.0782, x = 2.819 + 2 · 0.0782 = 2.976.
    found = tuning.kiefer_wolfowitz(lambda streams: 1 + 0.1 * math.log2(streams), GRID, runs=4)
    assert (settings_of(found), found.chosen) == ([3, 11, 4, 12], 8)
    assert tuning.kiefer_wolfowitz(lambda _: 0, GRID, runs=2).chosen == 6
    assert settings_of(tuning.kiefer_wolfowitz(lambda _: 1, [1, 1000], runs=4)) == [1, 1000, 1, 1000]


def test_the_process_after_one_run():
    # Correlation at two doublings: (1 + √3) e^(−√3) = 0.48336; covariances 1.25 and 0.25 · 0.48336 + 1 = 1.12084.
    found = tuning.posterior([1, 4], [1], [5e9], noise=0.1)
    np.testing.assert_allclose(found.mean, 0, atol=1e-12)
    np.testing.assert_allclose(found.deviation, [0.0996, 0.502943], rtol=1e-4)


def test_the_process_is_the_conditional_normal_law():
    measured, rates, noise = [1, 32, 8, 8], [1e9, 4e9, 8e9, 7e9], 0.05
    places = np.log2(np.concatenate([GRID, measured]))
    distance = math.sqrt(3) * np.abs(np.subtract.outer(places, places)) / 2
    prior = 0.25 * (1 + distance) * np.exp(-distance) + 1
    inside, across = prior[32:, 32:] + noise**2 * np.eye(4), prior[:32, 32:]
    weights = across @ np.linalg.inv(inside)
    found = tuning.posterior(GRID, measured, rates, noise=noise)
    np.testing.assert_allclose(found.mean, weights @ np.log(np.array(rates) / 8e9), atol=1e-9)
    np.testing.assert_allclose(found.deviation**2, np.diag(prior)[:32] - (weights * across).sum(axis=1), atol=1e-9)


def test_the_process_goes_through_precise_runs():
    found = tuning.posterior([2, 8], [2, 8], [1e9, 3e9], noise=0.001)
    np.testing.assert_allclose(np.exp(found.mean), [1 / 3, 1], rtol=1e-3)
    found = tuning.posterior([1, 32], [1, 32], [0, 3e9], noise=0.001)
    np.testing.assert_allclose(found.mean, [math.log(1e-3), 0], atol=1e-3)


def test_the_first_runs_explore():
    assert settings_of(tuning.gp_ucb(lambda _: 1e9, GRID, runs=3)) == [1, 32, 6]


def test_the_next_setting_has_the_highest_bound():
    found = tuning.gp_ucb(peak_at(5), GRID, runs=8)
    for count in range(1, 8):
        settings_before, rates = zip(*found.history[:count], strict=True)
        process = tuning.posterior(GRID, settings_before, rates)
        assert found.history[count][0] == 1 + np.argmax(process.mean + gaussian.CONFIDENCE * process.deviation)
    process = tuning.posterior(GRID, *zip(*found.history, strict=True))
    assert found.chosen == 1 + np.argmax(process.mean)


@pytest.mark.parametrize("search", STREAM_SEARCHES)
@given(st.integers(-40, 10), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_the_unit_does_not_matter(search, exponent, seed):
    def noisy(scale):
        random = np.random.default_rng(seed)
        return lambda streams: scale * peak_at(7)(streams) * random.uniform(0.8, 1.2)

    found, scaled = search(noisy(1), GRID), search(noisy(2.0**exponent), GRID)
    assert found.chosen == scaled.chosen and settings_of(found) == settings_of(scaled)


@pytest.mark.parametrize("search", STREAM_SEARCHES)
@given(GRIDS, st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
@settings(max_examples=40, deadline=None)
def test_runs_are_bounded_and_in_the_grid(search, grid, throughputs):
    endless = itertools.cycle(throughputs)
    found = search(lambda _: next(endless), grid)
    assert found.chosen in grid and {*settings_of(found)} <= {*grid}
    assert 0 < found.runs == len(found.history) <= MAX_RUNS[found.method]
    assert type(found.chosen) is int


@pytest.mark.parametrize("search", [name for name in SEARCHES if name != "6 streams, no run"])
def test_failed_runs_are_no_error(search):
    assert SEARCHES[search](lambda _: 0, GRID).chosen in GRID


@pytest.mark.parametrize("search", STREAM_SEARCHES)
@pytest.mark.parametrize("throughput", [math.nan, math.inf, -1, 1e16, None, [1, 2]])
def test_invalid_throughputs(search, throughput):
    with pytest.raises(ValueError, match=r"measure\(\d+\)"):
        search(lambda _: throughput, GRID)


@pytest.mark.parametrize("search", STREAM_SEARCHES)
@pytest.mark.parametrize("grid", [[], [1], [1, 1], [2, 1], [0, 1], [1, 2.5], [1, 10_001], [1, math.nan], [[1, 2]], "12"])
def test_invalid_grids(search, grid):
    with pytest.raises(ValueError, match="streams"):
        search(peak_at(3), grid)


@pytest.mark.parametrize("search", STREAM_SEARCHES)
def test_an_exception_of_a_run_ends_the_search(search):
    def fail(streams):
        raise OSError("no route to host")

    with pytest.raises(OSError, match="no route"):
        search(fail, GRID)


@pytest.mark.parametrize(
    ("search", "arguments", "message"),
    [
        (tuning.full_sweep, {"repetitions": 0}, "repetitions: 0"),
        (tuning.full_sweep, {"repetitions": 101}, "repetitions: 101"),
        (tuning.ternary, {"repetitions": 1.5}, "repetitions: 1.5"),
        (tuning.doubling, {"runs": 1}, "runs: 1 is out of range"),
        (tuning.gp_ucb, {"runs": 0}, "runs: 0 is out of range"),
        (tuning.gp_ucb, {"runs": 201}, "runs: 201 is out of range"),
        (tuning.gp_ucb, {"noise": 0}, "noise: 0 is out of range"),
        (tuning.gp_ucb, {"noise": math.nan}, "noise: nan is out of range"),
        (tuning.kiefer_wolfowitz, {"runs": 7}, "runs: 7: expected an even number"),
        (tuning.kiefer_wolfowitz, {"gain": 0}, "gain: 0 is out of range"),
        (tuning.kiefer_wolfowitz, {"width": math.inf}, "width: inf is out of range"),
    ],
)
def test_invalid_arguments(search, arguments, message):
    with pytest.raises(ValueError, match=message):
        search(peak_at(3), GRID, **arguments)


def test_a_sweep_has_a_maximum_number_of_runs():
    with pytest.raises(ValueError, match="2 of 501 settings: expected at most 1,000 runs"):
        tuning.full_sweep(peak_at(3), range(1, 502), repetitions=2)


def test_invalid_runs_of_a_process():
    with pytest.raises(ValueError, match="2 and 1: expected as many, at most 200"):
        tuning.posterior(GRID, [1, 2], [1e9])
    with pytest.raises(ValueError, match="201 and 201"):
        tuning.posterior(GRID, [1] * 201, [1e9] * 201)
    with pytest.raises(ValueError, match="throughput_bits_per_s"):
        tuning.posterior(GRID, [1], [math.nan])


def linear(window_bytes):
    """Returns the rate of a window over a path of 0.1 s."""
    return 8 * window_bytes / 0.1


def test_a_window_follows_the_recursion():
    # The error of the rate is multiplied by 1 − 0.5 / k^0.8 in run k.
    found = tuning.control_window(linear, 8e6, start_bytes=20_000, gain_s=0.05, runs=4)
    left = np.cumprod([1 - 0.5 / step**0.8 for step in (1, 2, 3, 4)])
    windows = 100_000 - 80_000 * np.concatenate([[1], left])
    np.testing.assert_allclose([*settings_of(found), found.chosen], windows, rtol=1e-12)
    assert found.chosen == pytest.approx(81_133.4, abs=0.1) and (found.method, found.runs) == ("Robbins-Monro", 4)


def test_the_round_trip_is_the_gain_that_needs_one_run():
    assert tuning.control_window(linear, 8e6, start_bytes=1460, gain_s=0.1, runs=1).chosen == pytest.approx(100_000)


@given(st.floats(2e5, 7e7), st.floats(0.01, 0.1), st.floats(0.55, 1))
@settings(max_examples=50, deadline=None)
def test_a_window_approaches_the_target_from_below(target, gain, exponent):
    found = tuning.control_window(linear, target, start_bytes=1460, gain_s=gain, exponent=exponent, runs=30)
    windows = [*settings_of(found), found.chosen]
    assert np.all(np.diff(windows) >= -1e-6) and linear(found.chosen) <= target * (1 + 1e-9)


def test_a_window_stays_in_its_range():
    found = tuning.control_window(lambda window: min(linear(window), 1e6), 8e6, start_bytes=1460, gain_s=0.1, max_bytes=50_000)
    assert found.chosen == 50_000 and max(settings_of(found)) == 50_000
    assert tuning.control_window(linear, 1, start_bytes=5_000, gain_s=100, min_bytes=2_000).chosen == 2_000


def test_noise_is_averaged():
    deviations = np.abs(simulate_control(0.1, 1, trials=60, seed=1))
    assert np.median(deviations) <= 0.02 and np.quantile(deviations, 0.95) <= 0.05


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_bits_per_s": 0}, "target_bits_per_s: 0"),
        ({"gain_s": 0}, "gain_s: 0"),
        ({"exponent": 0.5}, "exponent: 0.5: expected more than 0.5"),
        ({"exponent": 1.1}, "exponent: 1.1: expected more than 0.5"),
        ({"exponent": math.nan}, "exponent: nan"),
        ({"start_bytes": 100}, "start_bytes: 100"),
        ({"max_bytes": 1000}, "max_bytes: 1000"),
        ({"runs": 1_001}, "runs: 1001"),
    ],
)
def test_invalid_controls(arguments, message):
    valid = {"target_bits_per_s": 8e6, "start_bytes": 2_000, "gain_s": 0.1}
    with pytest.raises(ValueError, match=message):
        tuning.control_window(linear, **(valid | arguments))
    with pytest.raises(ValueError, match=r"measure\(2000.0\)"):
        tuning.control_window(lambda _: math.nan, **valid)
