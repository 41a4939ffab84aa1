"""`towpath.lab.dynamics`: phases of an exact slow start, exponents of known maps, verdicts on noise."""

import doctest
import math
import re
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towpath.lab import dynamics

CAPACITY_BITS_PER_S = 10e9
FIRST_WINDOW_BITS = 10 * 1460 * 8
RTTS_S = (0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366)
RAMPS_S = (0.00204, 0.11777, 0.24675, 0.54404, 1.18504, 2.55020, 5.46640)
"""Duration of slow start at these round trips, without a limit by buffers."""


def slow_start(rtt_s, interval_s, duration_s=10.0):
    """Returns the rates of a window that doubles each round trip until the capacity is reached, and the duration of that ramp."""
    rounds = math.log2(CAPACITY_BITS_PER_S * rtt_s / FIRST_WINDOW_BITS)
    starts = np.arange(math.ceil(rounds))
    edges = np.append(starts * rtt_s, [rounds * rtt_s, duration_s + interval_s])
    ramp = FIRST_WINDOW_BITS * (2.0 ** np.append(starts, rounds) - 1)
    bits = np.append(ramp, ramp[-1] + CAPACITY_BITS_PER_S * (edges[-1] - edges[-2]))
    times = np.arange(round(duration_s / interval_s) + 1) * interval_s
    return np.diff(np.interp(times, edges, bits)) / interval_s, rounds * rtt_s


def iterate(step, start, samples, skipped=500):
    """Returns an orbit after its transient."""
    orbit, value = [], start
    for _ in range(samples + skipped):
        value = step(value)
        orbit.append(value)
    return np.array(orbit[skipped:])


def logistic(r, samples, start=0.3):
    return iterate(lambda x: r * x * (1 - x), start, samples)


def tent(slope, samples, start=0.3):
    return iterate(lambda x: slope * min(x, 1 - x), start, samples)


def henon(samples, start):
    return iterate(lambda point: (1 - 1.4 * point[0] ** 2 + point[1], 0.3 * point[0]), (start, 0.1), samples)[:, 0]


def autoregressive(coefficient, samples, random):
    noise = random.standard_normal(samples + 300)
    for index in range(1, len(noise)):
        noise[index] += coefficient * noise[index - 1]
    return noise[300:]


def exponents(estimate, trace, trials, seed=0):
    """Returns the exponents of traces; `trace` gets a random generator."""
    random = np.random.default_rng(seed)
    return np.array([estimate(dynamics.aggregate_map(trace(random), 1)).per_step for _ in range(trials)])


def verdicts(trace, trials):
    """Returns the verdicts on traces; `trace` gets a random generator."""
    maps = [dynamics.aggregate_map(trace(np.random.default_rng(1000 + seed)), 1) for seed in range(trials)]
    return [dynamics.surrogate_test(poincare, seed=seed).verdict for seed, poincare in enumerate(maps)]


def test_the_example_of_the_module_is_true():
    result = doctest.testmod(dynamics)
    assert result.attempted > 4 and result.failed == 0


def test_the_example_of_the_page_is_true():
    page = Path(__file__).parents[3] / "docs" / "lab" / "dynamics.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    exec(example, {})


# Phases


@pytest.mark.parametrize(("rtt_s", "ramp_s"), list(zip(RTTS_S, RAMPS_S, strict=True)))
@pytest.mark.parametrize("interval_s", [0.05, 0.1, 0.25, 0.5, 1.0])
def test_the_ramp_of_a_slow_start_is_found_to_an_interval(rtt_s, ramp_s, interval_s):
    rates, exact_s = slow_start(rtt_s, interval_s)
    phases = dynamics.split_phases(rates, interval_s)
    assert exact_s == pytest.approx(ramp_s, rel=1e-2 if ramp_s < 0.01 else 1e-4)
    assert phases.ramp_s == pytest.approx(exact_s, abs=phases.uncertainty_s) and phases.uncertainty_s == interval_s
    assert phases.outcome == ("no ramp seen" if phases.ramp_samples == 0 else "ramp")
    assert phases.level == pytest.approx(CAPACITY_BITS_PER_S)
    assert phases.is_resolved == (phases.ramp_samples >= 5)


@pytest.mark.parametrize(("noise", "threshold", "least"), [(0.02, 0.9, 1.0), (0.05, 0.9, 0.93), (0.1, 0.8, 0.93)])
def test_the_ramp_is_found_in_noise(noise, threshold, least):
    rates, ramp_s = slow_start(0.183, 0.25)
    random = np.random.default_rng(0)
    noisy = np.maximum(0, rates * (1 + noise * random.standard_normal((200, len(rates)))))
    found = [dynamics.split_phases(trace, 0.25, threshold=threshold).ramp_s for trace in noisy]
    assert np.mean([value is not None and abs(value - ramp_s) <= 0.25 for value in found]) >= least


def test_a_steady_trace_has_no_ramp():
    phases = dynamics.split_phases([9.0, 9.5, 10.0, 9.7] * 5, 1)
    assert (phases.outcome, phases.ramp_samples, phases.ramp_s, phases.ramp_fraction) == ("no ramp seen", 0, 0, 0)
    assert phases.ramp_mean is None and phases.sustained_less_ramp is None
    assert phases.sustained_mean == pytest.approx(9.55) and phases.duration_s == 20


@pytest.mark.parametrize(
    "rates",
    [
        np.linspace(0, 1, 20),
        2.0 ** np.arange(20),
        slow_start(0.366, 0.25, duration_s=5.0)[0],
        [0.0] * 20,
        [8.0] * 8 + [0.0] * 12,
        [0.1, 0.1, 0.1, 2.0, 2.0] * 10 + [1.0] + [0.1, 0.1, 0.1, 2.0, 2.0, 0.1, 2.0, 2.0, 2.0] * 6,
    ],
)
def test_a_trace_that_still_rises_or_stalls_is_never_sustained(rates):
    phases = dynamics.split_phases(rates, 0.5, min_run=8)
    assert phases.outcome == "never sustained" and phases.ramp_samples == len(rates)
    assert phases.ramp_s is None and phases.ramp_fraction is None and not phases.is_resolved
    assert phases.sustained_mean is None and phases.sustained_less_ramp is None
    assert phases.ramp_mean == pytest.approx(np.mean(rates))


def test_a_ramp_of_five_samples_is_resolved():
    short, long = (dynamics.split_phases([1.0] * samples + [10.0] * 14, 1) for samples in (4, 5))
    assert (short.ramp_samples, long.ramp_samples) == (4, 5) and long.is_resolved and not short.is_resolved


def test_a_peak_does_not_end_a_ramp():
    rates = [1.0, 1.0, 10.0, 1.0, 2.0, 3.0] + [10.0] * 14
    assert dynamics.split_phases(rates, 1).ramp_samples == 6


@given(st.lists(st.floats(0, 1e9), min_size=10, max_size=60), st.sampled_from([2.0**-20, 8.0]))
def test_phases_do_not_depend_on_the_unit(rates, factor):
    phases, scaled = (dynamics.split_phases(np.array(rates) * scale, 1) for scale in (1.0, factor))
    assert phases.outcome == scaled.outcome and phases.ramp_samples == scaled.ramp_samples
    assert scaled.level == factor * phases.level


@given(st.lists(st.floats(0, 1e9), min_size=10, max_size=60))
def test_the_mean_is_that_of_the_phases(rates):
    phases = dynamics.split_phases(rates, 0.25)
    if phases.outcome == "ramp":
        mean = phases.sustained_mean - phases.ramp_fraction * phases.sustained_less_ramp
        assert mean == pytest.approx(np.mean(rates), abs=1e-6 * max(rates))


# Maps


FLOWS = np.arange(30.0).reshape(2, 15)


def test_maps_pair_consecutive_samples():
    first, second = dynamics.flow_maps(FLOWS, 0.5, cut_samples=3, capacity=10)
    total = dynamics.aggregate_map(FLOWS, 0.5, cut_samples=3, capacity=10)
    pooled = dynamics.pooled_map(FLOWS, 0.5, cut_samples=3, capacity=10)
    assert [(found.kind, found.flow, found.pairs) for found in (first, second, total, pooled)] == [
        ("flow", 0, 11),
        ("flow", 1, 11),
        ("aggregate", None, 11),
        ("pooled", None, 22),
    ]
    assert all((found.interval_s, found.cut_s, found.capacity) == (0.5, 1.5, 10) for found in (first, second, total, pooled))
    assert first.x == pytest.approx(np.arange(3, 14) / 10) and first.y == pytest.approx(np.arange(4, 15) / 10)
    assert total.x == pytest.approx(first.x + second.x) and total.y == pytest.approx(first.y + second.y)
    assert pooled.x == pytest.approx([*first.x, *second.x]) and pooled.y == pytest.approx([*first.y, *second.y])


def test_a_map_is_a_copy_that_cannot_be_changed():
    rates = FLOWS.copy()
    poincare = dynamics.pooled_map(rates, 1)
    rates[0, 0] = 99
    assert poincare.x[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        poincare.series[0, 0] = 99
    with pytest.raises(FrozenInstanceError):
        poincare.capacity = 2


# Exponents of known maps


@pytest.mark.parametrize(
    ("r", "exponent", "tolerance"),
    [
        (4, math.log(2), 2e-3),
        (3.9, 0.4953, 5e-3),
        (3.7, 0.3548, 5e-3),
        (3.83, -0.3697, 1e-4),
        (3.5, -0.8725, 1e-4),
        (3.2, -0.9163, 1e-4),
        (2.5, -0.6931, 1e-4),
    ],
)
def test_the_derivative_gives_the_exponent_of_logistic_maps(r, exponent, tolerance):
    poincare = dynamics.aggregate_map(logistic(r, 20_000), 0.1)
    found = dynamics.derivative_exponent(poincare, lambda x: r * (1 - 2 * x))
    assert found.per_step == pytest.approx(exponent, abs=tolerance)
    assert found.per_s == pytest.approx(10 * found.per_step) and found.kept_fraction == 1


@pytest.mark.parametrize(("slope", "exponent"), [(1.9999, 0.69310), (1.5, 0.405465)])
def test_the_derivative_gives_the_exponent_of_tent_maps(slope, exponent):
    poincare = dynamics.aggregate_map(tent(slope, 100), 1)
    found = dynamics.derivative_exponent(poincare, lambda x: np.where(x < 0.5, slope, -slope))
    assert found.per_step == pytest.approx(exponent, abs=5e-6 if slope > 1.5 else 5e-7)


def test_a_superstable_orbit_has_minus_infinity():
    poincare = dynamics.aggregate_map([0.5] * 20, 1)
    assert dynamics.derivative_exponent(poincare, lambda x: 2 * (1 - 2 * x)).per_step == -math.inf


@pytest.mark.parametrize(("samples", "bias", "sd"), [(100, 0.012, 0.025), (300, 0.005, 0.009), (1000, 0.003, 0.003), (5000, 0.001, 0.001)])
def test_differences_give_the_exponent_of_the_logistic_map(samples, bias, sd):
    trials = 100 if samples < 5000 else 20
    found = exponents(dynamics.difference_exponent, lambda random: logistic(4, samples, random.uniform(0.05, 0.95)), trials)
    assert abs(found.mean() - math.log(2)) <= bias and found.std() <= sd


@pytest.mark.parametrize(("samples", "exponent"), [(100, 0.4846), (300, 0.4942), (1000, 0.4954)])
def test_differences_give_the_exponent_at_3_9(samples, exponent):
    found = exponents(dynamics.difference_exponent, lambda random: logistic(3.9, samples, random.uniform(0.05, 0.95)), 40)
    assert found.mean() == pytest.approx(exponent, abs=0.012)


@pytest.mark.parametrize(("samples", "exponent"), [(100, 0.6850), (300, 0.6905), (1000, 0.6919)])
def test_differences_give_the_exponent_of_the_tent_map(samples, exponent):
    found = exponents(dynamics.difference_exponent, lambda random: tent(1.9999, samples, random.uniform(0.05, 0.95)), 40)
    assert found.mean() == pytest.approx(exponent, abs=0.004) and found.std() <= 0.015


@pytest.mark.parametrize(("samples", "exponent", "tolerance"), [(100, 0.690, 0.02), (1000, 0.6916, 0.005)])
def test_slopes_give_the_exponent_of_the_logistic_map(samples, exponent, tolerance):
    found = exponents(dynamics.slope_exponent, lambda random: logistic(4, samples, random.uniform(0.05, 0.95)), 40)
    assert found.mean() == pytest.approx(exponent, abs=tolerance)


@pytest.mark.parametrize(("samples", "bias"), [(100, -0.06), (1000, -0.02)])
def test_slopes_are_low_beside_a_kink(samples, bias):
    found = exponents(dynamics.slope_exponent, lambda random: tent(1.9999, samples, random.uniform(0.05, 0.95)), 40)
    assert found.mean() - math.log(1.9999) == pytest.approx(bias, abs=0.02)


@pytest.mark.parametrize(("samples", "exponent", "tolerance"), [(100, 0.68, 0.03), (1000, 0.6931, 0.004)])
def test_rosenstein_gives_the_exponent_of_the_logistic_map(samples, exponent, tolerance):
    found = exponents(dynamics.rosenstein_exponent, lambda random: logistic(4, samples, random.uniform(0.05, 0.95)), 40)
    assert found.mean() == pytest.approx(exponent, abs=tolerance)


def test_rosenstein_gives_the_exponents_of_3_9_and_of_henon():
    found = exponents(dynamics.rosenstein_exponent, lambda random: logistic(3.9, 1000, random.uniform(0.05, 0.95)), 20)
    assert found.mean() == pytest.approx(0.4953, abs=0.01)
    found = exponents(dynamics.rosenstein_exponent, lambda random: henon(1000, random.uniform(-0.1, 0.1)), 20)
    assert found.mean() == pytest.approx(0.4192, abs=0.01)


def nearest_by_brute_force(vectors, per_flow, min_tsep):
    """Returns the nearest allowed neighbour of each vector."""
    index = np.arange(len(vectors))
    distances = np.linalg.norm(vectors[:, None] - vectors, axis=2)
    is_same_flow = index[:, None] // per_flow == index // per_flow
    distances[is_same_flow & (np.abs(index[:, None] - index) <= min_tsep)] = np.inf
    return distances.argmin(axis=1)


@pytest.mark.parametrize(
    ("flows", "samples", "emb_dim", "lag", "min_tsep", "steps"), [(3, 40, 2, 1, 1, 6), (80, 10, 1, 1, 2, 3), (3, 40, 3, 2, 4, 9)]
)
def test_rosenstein_is_that_of_all_pairs_of_distances(flows, samples, emb_dim, lag, min_tsep, steps):
    series = np.random.default_rng(0).random((flows, samples))
    first, starts = (emb_dim - 1) * lag + 1, samples - (emb_dim - 1) * lag - (steps - 1)
    vectors = np.array([[flow[start : start + first : lag] for start in range(samples - first + 1)] for flow in series])
    neighbours = nearest_by_brute_force(vectors[:, :starts].reshape(-1, emb_dim), starts, min_tsep)
    moved = [vectors[:, step : step + starts].reshape(-1, emb_dim) for step in range(first, steps)]
    logs = [np.log(np.linalg.norm(at - at[neighbours], axis=1)).mean() for at in moved]
    found = dynamics.rosenstein_exponent(dynamics.pooled_map(series, 1), emb_dim=emb_dim, lag=lag, min_tsep=min_tsep, steps=steps)
    assert found.per_step == pytest.approx(np.polyfit(range(first, steps), logs, 1)[0])
    assert list(found.x) == list(range(first, steps)) and found.local == pytest.approx(logs)


# Noise


@pytest.mark.parametrize("samples", [50, 100, 300, 1000, 5000])
def test_differences_of_white_noise_give_the_log_of_the_count(samples):
    found = exponents(dynamics.difference_exponent, lambda random: random.standard_normal(samples), 40)
    assert found.mean() == pytest.approx(math.log(samples) - 1.1, abs=0.05)


NOISES = {
    "0.1 %": (lambda n, random: logistic(4, n, random.random()) + 0.001 * random.standard_normal(n), 0.77, 1.62, 0.66),
    "1 %": (lambda n, random: logistic(4, n, random.random()) + 0.01 * random.standard_normal(n), 1.46, 3.55, 0.46),
    "5 %": (lambda n, random: logistic(4, n, random.random()) + 0.05 * random.standard_normal(n), 2.55, 4.85, 0.36),
    "white": (lambda n, random: random.standard_normal(n), 3.52, 5.79, 0.96),
    "AR 0.5": (lambda n, random: autoregressive(0.5, n, random), 3.36, 5.64, 0.84),
    "AR 0.9": (lambda n, random: autoregressive(0.9, n, random), 2.85, 4.97, 0.36),
    "jitter": (lambda n, random: 0.97 + 0.001 * random.standard_normal(n), 3.49, 5.77, None),
}


@pytest.mark.parametrize(("trace", "short", "long", "slope"), NOISES.values(), ids=NOISES)
def test_noise_raises_exponents(trace, short, long, slope):
    assert exponents(dynamics.difference_exponent, lambda random: trace(100, random), 20).mean() == pytest.approx(short, abs=0.12)
    assert exponents(dynamics.difference_exponent, lambda random: trace(1000, random), 10).mean() == pytest.approx(long, abs=0.06)
    if slope is not None:
        assert exponents(dynamics.slope_exponent, lambda random: trace(1000, random), 20).mean() == pytest.approx(slope, abs=0.1)


@pytest.mark.parametrize("samples", [100, 1000])
def test_rosenstein_of_white_noise_is_near_zero(samples):
    found = exponents(dynamics.rosenstein_exponent, lambda random: random.standard_normal(samples), 20)
    assert found.mean() == pytest.approx(0, abs=0.02)


# Surrogates and verdicts


@pytest.mark.parametrize("samples", [30, 31])
def test_surrogates_have_the_values_of_the_series(samples):
    random = np.random.default_rng(0)
    series = np.vstack([random.standard_normal(samples), random.exponential(size=samples), np.ones(samples)])
    found = dynamics._surrogate(series, random)
    assert np.array_equal(np.sort(found), np.sort(series)) and not np.array_equal(found[:2], series[:2])


def test_surrogates_have_the_spectrum_of_the_series():
    series = autoregressive(0.8, 20_000, np.random.default_rng(0))
    found = dynamics._surrogate(series[None], np.random.default_rng(1))[0]
    assert dynamics.lag1_autocorrelation(found) == pytest.approx(dynamics.lag1_autocorrelation(series), abs=0.01)
    assert abs(np.corrcoef(found, series)[0, 1]) < 0.1


def test_surrogates_of_equal_flows_are_equal():
    flow = np.random.default_rng(0).standard_normal(50).round(1)
    first, second = dynamics._surrogate(np.vstack([flow, flow]), np.random.default_rng(1))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("noise", [0, 0.01, 0.1])
def test_a_noisy_map_has_structure(noise):
    def trace(random):
        return logistic(4, 100, random.uniform(0.1, 0.9)) + noise * random.standard_normal(100)

    assert verdicts(trace, 20) == ["deterministic structure"] * 20
    test = dynamics.surrogate_test(dynamics.aggregate_map(trace(np.random.default_rng(0)), 1))
    assert test.series.z < -4 and test.series.rank_p == 0.025 and test.residuals.is_rejected


def test_white_noise_has_no_structure():
    found = verdicts(lambda random: random.standard_normal(100), 60)
    assert found.count("deterministic structure") <= 3 and found.count("no structure found") >= 55


def test_rejections_of_autoregressive_noise_are_weak():
    found = verdicts(lambda random: autoregressive(0.9, 100, random), 60)
    assert found.count("weak") >= 4 and found.count("deterministic structure") <= 3


def test_pooled_flows_with_the_same_noise_have_no_structure():
    maps = []
    for seed in range(30):
        random = np.random.default_rng(seed)
        maps.append(dynamics.pooled_map(random.standard_normal(60) + 0.001 * random.standard_normal((5, 60)), 1))
    assert [dynamics.surrogate_test(poincare).verdict for poincare in maps].count("deterministic structure") <= 2


def test_a_periodic_trace_is_indeterminate():
    test = dynamics.surrogate_test(dynamics.aggregate_map(np.tile(np.arange(37.0), 20)[:500], 1))
    assert test.verdict == "indeterminate" and test.series is None and test.residuals is None
    assert 0.04 <= test.exponent.kept_fraction <= 0.37


def test_a_test_is_reproducible_and_reports_its_surrogates():
    poincare = dynamics.aggregate_map(np.random.default_rng(3).random(80), 1)
    one, again, other = (dynamics.surrogate_test(poincare, surrogates=50, seed=seed).series for seed in (1, 1, 2))
    assert one == again != other and len(one.surrogates_per_step) == 50
    exponent = dynamics.difference_exponent(poincare).per_step
    values = np.array(one.surrogates_per_step)
    assert one.z == pytest.approx((exponent - values.mean()) / values.std(ddof=1))
    assert one.rank_p == (1 + (values <= exponent).sum()) / 51
    slope = dynamics.surrogate_test(poincare, method="slope")
    assert slope.exponent.per_step == dynamics.slope_exponent(poincare).per_step != exponent


@pytest.mark.parametrize(("z", "rank_p", "is_rejected"), [(-2.1, 0.025, True), (-2, 0.02, False), (-3, 0.05, False)])
def test_both_bounds_count(z, rank_p, is_rejected):
    assert dynamics.SurrogateRank(0, 1, z, rank_p, ()).is_rejected is is_rejected


# Estimators, comparisons and properties


def test_slopes_of_equal_values_are_dropped():
    series = np.column_stack([1 + np.random.default_rng(0).random(50), np.full(50, 0.1)]).ravel()
    found = dynamics.slope_exponent(dynamics.aggregate_map(series, 1))
    # The map is a vertical line at 0.1 and a horizontal one; only windows with points of both have a slope.
    assert len(found.local) < 10 and found.kept_fraction == len(found.local) / 99


def test_differences_without_a_change_are_dropped():
    series = np.array([0.0, 1.0, 0.5, 2.0, 4.0, 3.0, 1.0, 0.7, 7.0, 3.0])
    pairs = sorted(pairwise(series), key=lambda pair: pair[0])
    slopes = [abs(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(pairs) if a[0] < b[0] and a[1] != b[1]]
    found = dynamics.difference_exponent(dynamics.aggregate_map(series, 1))
    assert found.per_step == pytest.approx(np.log(slopes).mean())
    assert found.kept_fraction == len(slopes) / 8 == 0.75


def test_slopes_are_those_of_lines_through_the_nearest_pairs():
    series = np.random.default_rng(0).random(51)
    order = np.argsort(series[:-1])
    x, y = series[:-1][order], series[1:][order]
    starts = np.clip(np.arange(50) - 3, 0, 43)
    slopes = [np.polyfit(x[start : start + 7], y[start : start + 7], 1)[0] for start in starts]
    found = dynamics.slope_exponent(dynamics.aggregate_map(series, 1))
    assert list(found.x) == list(x) and found.local == pytest.approx(np.log(np.abs(slopes)))


def test_exponents_of_unequal_conditions_are_not_compared():
    trace = logistic(4, 101)
    first = dynamics.difference_exponent(dynamics.aggregate_map(trace, 1))
    second = dynamics.difference_exponent(dynamics.aggregate_map(logistic(3.9, 103), 1, cut_samples=2))
    assert dynamics.compare(first, second) == first.per_step - second.per_step
    for other, message in [
        (dynamics.difference_exponent(dynamics.aggregate_map(trace[1:], 1)), "second: pairs 99 .*expected 100"),
        (dynamics.difference_exponent(dynamics.aggregate_map(trace, 2)), "second: interval_s 2.0 .*expected 1.0"),
        (dynamics.difference_exponent(dynamics.flow_maps(trace, 1)[0]), "second: kind 'flow' .*expected 'aggregate'"),
        (dynamics.slope_exponent(dynamics.aggregate_map(trace, 1)), "second: method 'slope' .*expected 'difference'"),
    ]:
        with pytest.raises(ValueError, match=message):
            dynamics.compare(first, other)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.floats(1e-9, 1e9), st.floats(-1e3, 1e3))
def test_exponents_do_not_depend_on_scale_and_offset(seed, factor, offset):
    trace = np.random.default_rng(seed).random((2, 40))
    for estimate in (dynamics.difference_exponent, dynamics.slope_exponent, dynamics.rosenstein_exponent):
        one, other = (estimate(dynamics.pooled_map(values, 1)) for values in (trace, factor * (trace + offset)))
        assert other.per_step == pytest.approx(one.per_step, abs=1e-6)
        scaled = estimate(dynamics.pooled_map(trace, 1, capacity=factor))
        assert scaled.per_step == pytest.approx(one.per_step, abs=1e-9)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.permutations(range(4)))
def test_pooled_exponents_do_not_depend_on_the_order_of_flows(seed, order):
    trace = np.random.default_rng(seed).random((4, 30))
    for estimate in (dynamics.difference_exponent, dynamics.slope_exponent, dynamics.rosenstein_exponent):
        one, other = (estimate(dynamics.pooled_map(flows, 1)).per_step for flows in (trace, trace[list(order)]))
        assert other == pytest.approx(one, abs=1e-9)


@pytest.mark.parametrize("estimate", [dynamics.difference_exponent, dynamics.slope_exponent])
def test_the_mean_of_the_local_values_is_the_exponent(estimate):
    found = estimate(dynamics.aggregate_map(np.random.default_rng(0).random(50).round(2), 1))
    assert found.local.mean() == found.per_step and len(found.x) == len(found.local) and found.pairs == 49
    assert 0.5 < found.kept_fraction <= 1


# Simple measures


def test_the_coefficient_of_variation():
    trace = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0, 5.0, 5.0]
    assert dynamics.coefficient_of_variation(trace) == pytest.approx(math.sqrt(32 / 9) / 5)
    assert dynamics.coefficient_of_variation([3.0] * 10) == 0


def test_the_lag_1_autocorrelation():
    assert dynamics.lag1_autocorrelation([1.0, -1.0] * 10) == pytest.approx(-19 / 20)
    noise = np.random.default_rng(0)
    assert dynamics.lag1_autocorrelation(noise.standard_normal(10_000)) == pytest.approx(0, abs=0.03)
    assert dynamics.lag1_autocorrelation(autoregressive(0.7, 10_000, noise)) == pytest.approx(0.7, abs=0.03)


def test_the_permutation_entropy():
    assert dynamics.permutation_entropy(np.arange(20.0)) == dynamics.permutation_entropy([1.0] * 20) == 0
    assert dynamics.permutation_entropy([0.0, 1.0] * 5 + [0.0], order=2) == pytest.approx(1)
    # The example of Bandt and Pompe, 4 7 9 10 6 11 3, has 4 rises and 2 falls; with three more rises 7 and 2.
    assert dynamics.permutation_entropy([4, 7, 9, 10, 6, 11, 3, 5, 8, 12], order=2) == pytest.approx(0.764205, abs=1e-6)
    assert dynamics.permutation_entropy(np.random.default_rng(0).random(10_000), order=4) > 0.999
    assert dynamics.permutation_entropy(logistic(4, 10_000)) < 0.9


@given(st.lists(st.integers(-100, 100), min_size=10, max_size=50))
def test_the_permutation_entropy_depends_on_ranks_only(values):
    entropy = dynamics.permutation_entropy(values)
    assert 0 <= entropy <= 1 + 1e-12
    assert dynamics.permutation_entropy(np.exp(np.array(values) / 10)) == entropy


# Errors


MAP = dynamics.aggregate_map(logistic(4, 100), 1)
BAD_TRACES = [
    ([], "0 samples are too few: expected at least 10"),
    ([1.0] * 9, "9 samples are too few"),
    ([1.0] * 19 + [math.nan], "nan is out of range: expected finite"),
    ([1.0] * 19 + [math.inf], "inf is out of range"),
    ([1.0] * 19 + [1e51], "1e\\+51 is out of range"),
    ([[1.0] * 19, [1.0] * 20], "expected sequences of equal length"),
    (["1"] * 20, "1 dimensions of <U1: expected numbers"),
    ([None] * 20, "dimensions of object"),
    ([1j] * 20, "dimensions of complex128"),
    (5.0, "0 dimensions"),
    (np.ones((2, 2, 20)), "3 dimensions"),
]


@pytest.mark.parametrize(("rates", "message"), BAD_TRACES)
def test_bad_traces_are_refused(rates, message):
    for use in (
        lambda: dynamics.split_phases(rates, 1),
        lambda: dynamics.flow_maps(rates, 1),
        lambda: dynamics.aggregate_map(rates, 1),
        lambda: dynamics.pooled_map(rates, 1),
        lambda: dynamics.coefficient_of_variation(rates),
        lambda: dynamics.lag1_autocorrelation(rates),
        lambda: dynamics.permutation_entropy(rates),
    ):
        with pytest.raises(ValueError, match=f"^rates: .*{message}"):
            use()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: dynamics.split_phases([1.0] * 19 + [-1.0], 1), "rates: -1.0 is negative"),
        (lambda: dynamics.split_phases([[1.0] * 20] * 2, 1), "rates: 2 dimensions of float64: expected numbers in 1"),
        (lambda: dynamics.pooled_map([[], []], 1), "rates: 0 samples are too few"),
        (lambda: dynamics.pooled_map(np.ones((0, 20)), 1), "rates: 0 samples are too few"),
        (lambda: dynamics.split_phases([1.0] * 20, 0), "interval_s: 0.0 is out of range"),
        (lambda: dynamics.split_phases([1.0] * 20, math.nan), "interval_s: nan is out of range"),
        (lambda: dynamics.split_phases([1.0] * 20, 1, threshold=0), "threshold: 0 is out of range"),
        (lambda: dynamics.split_phases([1.0] * 20, 1, threshold=math.nan), "threshold: nan is out of range"),
        (lambda: dynamics.split_phases([1.0] * 20, 1, min_run=21), "min_run: 21 is out of range: .* from 1 to 20"),
        (lambda: dynamics.pooled_map([1.0] * 20, 1, cut_samples=11), "cut_samples: 11 is out of range: .* from 0 to 10"),
        (lambda: dynamics.pooled_map([1.0] * 20, 1, capacity=0), "capacity: 0.0 is out of range"),
        (lambda: dynamics.pooled_map(np.ones((2, 25_002)), 1), "rates: 50002 pairs are too many: expected at most 50000"),
        (lambda: dynamics.derivative_exponent(MAP, lambda x: x[1:]), "derivative: 98 values for 99 samples"),
        (lambda: dynamics.derivative_exponent(MAP, lambda x: x * math.nan), "derivative: nan is out of range"),
        (lambda: dynamics.difference_exponent(dynamics.aggregate_map([1.0] * 20, 1)), "poincare: no neighbours differ"),
        (lambda: dynamics.slope_exponent(dynamics.aggregate_map([1.0] * 20, 1)), "poincare: no neighbours differ"),
        (lambda: dynamics.rosenstein_exponent(dynamics.aggregate_map([1.0] * 20, 1)), "poincare: all neighbours are equal"),
        (lambda: dynamics.rosenstein_exponent(MAP, emb_dim=11), "emb_dim: 11 is out of range"),
        (lambda: dynamics.rosenstein_exponent(MAP, lag=0), "lag: 0 is out of range"),
        (lambda: dynamics.rosenstein_exponent(MAP, min_tsep=-1), "min_tsep: -1 is out of range"),
        (lambda: dynamics.rosenstein_exponent(MAP, steps=3), "steps: 3 is out of range: .* from 4 to 102"),
        (lambda: dynamics.rosenstein_exponent(MAP, min_tsep=47), "poincare: 100 samples of a flow are too few: expected at least 102"),
        (lambda: dynamics.surrogate_test(MAP, surrogates=38), "surrogates: 38 is out of range: .* from 39 to 999"),
        (lambda: dynamics.surrogate_test(MAP, seed=-1), "seed: -1 is out of range"),
        (lambda: dynamics.surrogate_test(MAP, method="eckmann"), "method: 'eckmann' is unknown: expected one of difference, slope"),
        (lambda: dynamics.surrogate_test(dynamics.aggregate_map(np.arange(30.0), 1)), "poincare: 29 pairs are too few: .* 30"),
        (lambda: dynamics.coefficient_of_variation([-1.0, 1.0] * 5), "rates: the mean 0.0 is not above 0"),
        (lambda: dynamics.lag1_autocorrelation([2.0] * 10), "rates: all samples are 2.0"),
        (lambda: dynamics.permutation_entropy([1.0] * 10, order=8), "order: 8 is out of range"),
        (lambda: dynamics.permutation_entropy([1.0] * 26, order=4), "rates: 26 samples are too few: expected at least 27"),
    ],
)
def test_bad_arguments_are_refused(use, message):
    with pytest.raises(ValueError, match=message):
        use()


def test_the_least_number_of_samples_is_enough():
    assert dynamics.rosenstein_exponent(MAP, min_tsep=46).pairs == 99
    assert dynamics.surrogate_test(replace(MAP, series=MAP.series[:, :31])).exponent.pairs == 30
    assert dynamics.permutation_entropy(MAP.series[0, :27], order=4) > 0


def test_results_do_not_overflow():
    trace = logistic(4, 100)
    for factor in (1e50, 1e-50):
        poincare = dynamics.aggregate_map(trace * factor, 1, capacity=1 / factor)
        for estimate in (dynamics.difference_exponent, dynamics.slope_exponent, dynamics.rosenstein_exponent):
            assert estimate(poincare).per_step == pytest.approx(estimate(MAP).per_step, abs=1e-6)
        assert dynamics.surrogate_test(poincare).verdict == "deterministic structure"
