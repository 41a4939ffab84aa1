"""`towpath.lab.dynamics`: exponents of known maps and of noise."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from series import LOGISTIC, autoregressive, henon, logistic, tent

from towpath.lab import dynamics


def exponents(estimate, trace, trials, seed=0):
    """Returns the exponents of traces; `trace` gets a random generator."""
    random = np.random.default_rng(seed)
    return np.array([estimate(dynamics.aggregate_map(trace(random), 1)).per_step for _ in range(trials)])


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
    poincare = dynamics.aggregate_map(trace, 1)
    with pytest.raises(ValueError, match=r"second: parameters \(2, 1, 1, 7\)"):
        dynamics.compare(dynamics.rosenstein_exponent(poincare), dynamics.rosenstein_exponent(poincare, steps=7))


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


# Errors


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: dynamics.derivative_exponent(LOGISTIC, lambda x: x[1:]), "derivative: 98 values for 99 samples"),
        (lambda: dynamics.derivative_exponent(LOGISTIC, lambda x: x * math.nan), "derivative: nan is out of range"),
        (lambda: dynamics.difference_exponent(dynamics.aggregate_map([1.0] * 20, 1)), "poincare: no neighbours differ"),
        (lambda: dynamics.slope_exponent(dynamics.aggregate_map([1.0] * 20, 1)), "poincare: no neighbours differ"),
        (lambda: dynamics.rosenstein_exponent(dynamics.aggregate_map([1.0] * 20, 1)), "poincare: all neighbours are equal"),
        (lambda: dynamics.rosenstein_exponent(LOGISTIC, emb_dim=11), "emb_dim: 11 is out of range"),
        (lambda: dynamics.rosenstein_exponent(LOGISTIC, lag=0), "lag: 0 is out of range"),
        (lambda: dynamics.rosenstein_exponent(LOGISTIC, min_tsep=-1), "min_tsep: -1 is out of range"),
        (lambda: dynamics.rosenstein_exponent(LOGISTIC, steps=3), "steps: 3 is out of range: .* from 4 to 102"),
        (lambda: dynamics.rosenstein_exponent(LOGISTIC, min_tsep=47), "poincare: 100 samples of a flow are too few: expected at least 102"),
    ],
)
def test_bad_arguments_of_exponents_are_refused(use, message):
    with pytest.raises(ValueError, match=message):
        use()


def test_an_exponent_needs_no_more_samples_than_the_least_number():
    assert dynamics.rosenstein_exponent(LOGISTIC, min_tsep=46).pairs == 99


@pytest.mark.parametrize("factor", [1e50, 1e-50])
def test_exponents_do_not_overflow(factor):
    poincare = dynamics.aggregate_map(logistic(4, 100) * factor, 1, capacity=1 / factor)
    for estimate in (dynamics.difference_exponent, dynamics.slope_exponent, dynamics.rosenstein_exponent):
        assert estimate(poincare).per_step == pytest.approx(estimate(LOGISTIC).per_step, abs=1e-6)
