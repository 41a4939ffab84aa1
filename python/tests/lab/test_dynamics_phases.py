"""`towpath.lab.dynamics`: phases of an exact slow start, maps, and statistics of traces."""

import doctest
import math
import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from series import autoregressive, logistic

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
        (lambda: dynamics.coefficient_of_variation([-1.0, 1.0] * 5), "rates: the mean 0.0 is not above 0"),
        (lambda: dynamics.lag1_autocorrelation([2.0] * 10), "rates: all samples are 2.0"),
        (lambda: dynamics.permutation_entropy([1.0] * 10, order=8), "order: 8 is out of range"),
        (lambda: dynamics.permutation_entropy([1.0] * 26, order=4), "rates: 26 samples are too few: expected at least 27"),
    ],
)
def test_bad_arguments_are_refused(use, message):
    with pytest.raises(ValueError, match=message):
        use()


def test_a_permutation_entropy_needs_no_more_samples_than_the_least_number():
    assert dynamics.permutation_entropy(logistic(4, 27), order=4) > 0
