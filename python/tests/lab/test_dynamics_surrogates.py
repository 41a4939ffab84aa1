"""`towpath.lab.dynamics`: surrogates, and verdicts on maps and noise."""

from dataclasses import replace

import numpy as np
import pytest
from series import LOGISTIC, autoregressive, logistic

from towpath.lab import dynamics
from towpath.lab.dynamics.surrogates import _surrogate


def verdicts(trace, trials):
    """Returns the verdicts on traces; `trace` gets a random generator."""
    maps = [dynamics.aggregate_map(trace(np.random.default_rng(1000 + seed)), 1) for seed in range(trials)]
    return [dynamics.surrogate_test(poincare, seed=seed).verdict for seed, poincare in enumerate(maps)]


@pytest.mark.parametrize("samples", [30, 31])
def test_surrogates_have_the_values_of_the_series(samples):
    random = np.random.default_rng(0)
    series = np.vstack([random.standard_normal(samples), random.exponential(size=samples), np.ones(samples)])
    found = _surrogate(series, random)
    assert np.array_equal(np.sort(found), np.sort(series)) and not np.array_equal(found[:2], series[:2])


def test_surrogates_have_the_spectrum_of_the_series():
    series = autoregressive(0.8, 20_000, np.random.default_rng(0))
    found = _surrogate(series[None], np.random.default_rng(1))[0]
    assert dynamics.lag1_autocorrelation(found) == pytest.approx(dynamics.lag1_autocorrelation(series), abs=0.01)
    assert abs(np.corrcoef(found, series)[0, 1]) < 0.1


def test_surrogates_of_equal_flows_are_equal():
    flow = np.random.default_rng(0).standard_normal(50).round(1)
    first, second = _surrogate(np.vstack([flow, flow]), np.random.default_rng(1))
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


# Errors


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: dynamics.surrogate_test(LOGISTIC, surrogates=38), "surrogates: 38 is out of range: .* from 39 to 999"),
        (lambda: dynamics.surrogate_test(LOGISTIC, seed=-1), "seed: -1 is out of range"),
        (lambda: dynamics.surrogate_test(LOGISTIC, method="eckmann"), "method: 'eckmann' is unknown: expected one of difference, slope"),
        (lambda: dynamics.surrogate_test(dynamics.aggregate_map(np.arange(30.0), 1)), "poincare: 29 pairs are too few: .* 30"),
    ],
)
def test_bad_arguments_of_a_test_are_refused(use, message):
    with pytest.raises(ValueError, match=message):
        use()


def test_a_test_needs_no_more_samples_than_the_least_number():
    assert dynamics.surrogate_test(replace(LOGISTIC, series=LOGISTIC.series[:, :31])).exponent.pairs == 30


@pytest.mark.parametrize("factor", [1e50, 1e-50])
def test_a_test_does_not_overflow(factor):
    poincare = dynamics.aggregate_map(logistic(4, 100) * factor, 1, capacity=1 / factor)
    assert dynamics.surrogate_test(poincare).verdict == "deterministic structure"
