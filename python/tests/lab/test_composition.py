"""`towpath.lab.composition`: the figures of the talk, and the shapes of composed profiles."""

import doctest
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towpath.lab import composition, models

CHECKED = settings(max_examples=100, deadline=None, database=None, print_blob=True)

rates = st.floats(1e6, 1e12)
stage_rates = st.lists(rates, min_size=2, max_size=6)


def named(values):
    return {f"stage {index}": value for index, value in enumerate(values)}


def digits(values, count):
    """Returns the numbers with so many significant digits."""
    return [float(f"{value:.{count}g}") for value in values]


def second_differences(rtts, values):
    return np.diff(np.diff(values) / np.diff(rtts))


def test_the_example_is_true():
    assert doctest.testmod(composition).failed == 0


def test_the_transfer_of_the_talk():
    stages = composition.compose({"source": 32e9, "network": 9e9, "destination": 32e9})
    assert stages.minimum_bits_per_s.tolist() == [9e9] and stages.harmonic_bits_per_s == pytest.approx([5.76e9])
    assert stages.stages == ("source", "network", "destination") and stages.slowest == ("network",)
    result = composition.judge(stages, 2e9, tolerance=0.1)
    assert result.efficiency.round(3).tolist() == [0.222] and result.verdicts == ("impedance mismatch",)
    assert result.place == pytest.approx([(2 - 5.76) / (9 - 5.76)])


def test_stages_have_one_rate_or_one_for_each_round_trip():
    stages = composition.compose({"source": 5e9, "network": [9e9, 4e9, 1e9], "destination": [6e9, 2e9, 3e9]})
    assert stages.minimum_bits_per_s.tolist() == [5e9, 2e9, 1e9]
    assert stages.slowest == ("source", "destination", "network")
    assert stages.harmonic_bits_per_s == pytest.approx([1e9 / (1 / 5 + 1 / 9 + 1 / 6), 1e9 / 0.95, 1e9 / (1 / 5 + 1 + 1 / 3)])
    assert composition.judge(stages, 1e9, tolerance=0).efficiency == pytest.approx([0.2, 0.5, 1])


@CHECKED
@given(stage_rates, st.floats(1e-2, 1e2), st.randoms())
def test_bounds(values, factor, random):
    stages = composition.compose(named(values))
    minimum, harmonic = float(stages.minimum_bits_per_s[0]), float(stages.harmonic_bits_per_s[0])
    assert minimum / len(values) * (1 - 1e-12) <= harmonic < minimum == min(values)
    scaled = composition.compose(named([factor * value for value in values]))
    assert (scaled.minimum_bits_per_s[0], scaled.harmonic_bits_per_s[0]) == pytest.approx((factor * minimum, factor * harmonic))
    shuffled = list(values)
    random.shuffle(shuffled)
    other = composition.compose(named(shuffled))
    assert (other.minimum_bits_per_s[0], other.harmonic_bits_per_s[0]) == pytest.approx((minimum, harmonic))
    faster = composition.compose(named([2 * values[0], *values[1:]]))
    assert faster.minimum_bits_per_s[0] >= minimum and faster.harmonic_bits_per_s[0] > harmonic


@pytest.mark.parametrize(
    ("measured", "tolerance", "verdict"),
    [
        (9.0, 0, "overlapped"),
        (8.999, 0, "partly overlapped"),
        (8.2, 0.1, "overlapped"),
        (8.0, 0.1, "partly overlapped"),
        (6.4, 0.1, "partly overlapped"),
        (6.3, 0.1, "serial"),
        (5.8, 0.01, "serial"),
        (5.7, 0.02, "serial"),
        (5.7, 0.01, "impedance mismatch"),
        (5.2, 0.1, "serial"),
        (5.1, 0.1, "impedance mismatch"),
    ],
)
def test_verdicts(measured, tolerance, verdict):
    stages = composition.compose({"source": 32e9, "network": 9e9, "destination": 32e9})
    result = composition.judge(stages, measured * 1e9, tolerance=tolerance)
    assert result.verdicts == (verdict,) and result.is_distinct.all() and not result.is_contradiction.any()


def test_place_is_one_at_the_minimum_and_zero_at_the_harmonic_bound():
    stages = composition.compose({"source": 4e9, "destination": 4e9})
    result = [composition.judge(stages, rate, tolerance=0.01) for rate in (4e9, 3e9, 2e9, 1e9)]
    assert [float(one.place[0]) for one in result] == pytest.approx([1, 0.5, 0, -0.5])
    assert [one.verdicts[0] for one in result] == ["overlapped", "partly overlapped", "serial", "impedance mismatch"]


def test_bounds_closer_than_the_tolerance_are_not_distinct():
    stages = composition.compose({"disk": 100e9, "network": 1e9})
    result = composition.judge(stages, 0.98e9, tolerance=0.05)
    assert result.verdicts == ("overlapped",) and not result.is_distinct[0]
    assert composition.judge(stages, 0.945e9, tolerance=0.05).verdicts == ("serial",)
    assert composition.judge(stages, 0.98e9, tolerance=0.001).is_distinct[0]


def test_a_rate_above_the_minimum_contradicts_the_stages():
    stages = composition.compose({"disk": 2e9, "network": 1e9})
    assert not composition.judge(stages, 1.04e9, tolerance=0.05).is_contradiction[0]
    result = composition.judge(stages, 1.06e9, tolerance=0.05)
    assert result.is_contradiction[0] and result.verdicts == ("overlapped",)


@CHECKED
@given(stage_rates, st.floats(0.01, 1), st.floats(0, 0.5))
def test_faster_transfers_have_better_verdicts(values, part, tolerance):
    order = ["impedance mismatch", "serial", "partly overlapped", "overlapped"]
    stages = composition.compose(named(values))
    measured = part * stages.minimum_bits_per_s[0]
    places = [order.index(composition.judge(stages, rate, tolerance=tolerance).verdicts[0]) for rate in (measured, 1.1 * measured)]
    assert places == sorted(places)


concave = st.tuples(st.floats(1e9, 1e10), st.floats(1e9, 1e10), st.floats(1, 3))


@CHECKED
@given(st.lists(concave, min_size=2, max_size=4))
def test_the_minimum_of_concave_profiles_is_concave(shapes):
    rtts = np.linspace(0, 0.9, 50)
    profiles = [top + size * (1 - rtts**power) for top, size, power in shapes]
    minimum = composition.compose(named(profiles)).minimum_bits_per_s
    assert (second_differences(rtts, minimum) <= 1e-3).all()
    assert (np.diff(minimum) <= 0).all()


def test_the_minimum_of_convex_profiles_can_have_a_concave_corner():
    rtts = np.linspace(0.05, 2, 400)
    one, other = 1e9 / rtts, 2e9 / (1 + rtts)
    assert (second_differences(rtts, one) > 0).all() and (second_differences(rtts, other) > 0).all()
    minimum = composition.compose({"one": one, "other": other}).minimum_bits_per_s
    bends = second_differences(rtts, minimum)
    assert (bends < 0).any()
    assert rtts[1:-1][bends < 0] == pytest.approx(1, abs=0.01)


def test_losses_and_credits_look_like_a_transition():
    rtts = np.linspace(0.02, 0.366, 300)
    network = models.cubic(rtts, 1e-7).throughput_bits_per_s
    credits = composition.credit_limit(rtts, credits=32, capacity_bits_per_s=100e9).throughput_bits_per_s
    assert (second_differences(rtts, network) > 0).all() and (second_differences(rtts, credits) > 0).all()
    stages = composition.compose({"network": network, "credits": credits})
    corner = rtts[1:-1][second_differences(rtts, stages.minimum_bits_per_s) < 0]
    change = rtts[[name == "credits" for name in stages.slowest]].min()
    assert 0.03 < change < 0.3 and set(stages.slowest) == {"network", "credits"}
    assert corner == pytest.approx(change, abs=0.003)


def test_flows_with_one_block_in_flight():
    limit = composition.flow_window_limit([0.01, 0.1], flows=8, block_bytes=65536)
    assert limit == pytest.approx([8 * 65536 * 8 / 0.01, 8 * 65536 * 8 / 0.1])


RTTS = (0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366)


@pytest.mark.parametrize(
    ("credits", "gigabits", "knee_ms"),
    [
        (8, [5.6872, 2.9694, 1.4717, 0.73263, 0.36672, 0.18336], 6.7109),
        (16, [10, 5.9388, 2.9434, 1.4653, 0.73343, 0.36672], 13.422),
        (128, [10, 10, 10, 10, 5.8674, 2.9337], 107.37),
    ],
)
def test_credits_of_lnet(credits, gigabits, knee_ms):
    limit = composition.credit_limit(RTTS, credits=credits, capacity_bits_per_s=10e9)
    assert digits(limit.throughput_bits_per_s / 1e9, 5) == gigabits
    assert digits([limit.knee_s * 1e3], 5) == [knee_ms]
    assert limit.in_flight_bytes == credits * 2**20


def test_the_credits_are_found_again():
    limit = composition.credit_limit(RTTS, credits=16, capacity_bits_per_s=10e9)
    estimate = models.estimate_window(RTTS, limit.throughput_bits_per_s, convex_from_s=0.02)
    assert estimate.window_bytes / 2**20 == pytest.approx(16) and estimate.is_constant


def test_the_side_with_the_fewest_credits_counts():
    sides = {"InfiniBand": 128, "router": 256, "Ethernet": 8}
    limit = composition.credit_limit(RTTS, credits=sides, capacity_bits_per_s=10e9)
    assert (limit.effective_credits, limit.limiting_side) == (8, "Ethernet")
    alone = composition.credit_limit(RTTS, credits=8, capacity_bits_per_s=10e9)
    assert limit.throughput_bits_per_s.tolist() == alone.throughput_bits_per_s.tolist()


def test_the_reach_is_the_timeout_unless_the_queue_takes_longer():
    few = composition.credit_limit(0.001, credits=8, capacity_bits_per_s=100e9)
    assert composition.reach_s(few, 0.0025) == 0.0025
    # The messages of 128 credits need 10.7 ms at 100 Gbit/s.
    many = composition.credit_limit(0.001, credits=128, capacity_bits_per_s=100e9)
    assert composition.reach_s(many, 0.0025) is None and composition.reach_s(many, 0.011) == 0.011


PATH = {"capacity_bits_per_s": 10e9, "duration_s": 10}


def test_the_ramp_crosses_the_window_twice():
    first, second = composition.ramp_crossings(**PATH, window_bytes=125e6)
    ramp = models.ramp([first, second], **PATH).throughput_bits_per_s
    assert ramp == pytest.approx([8 * 125e6 / first, 8 * 125e6 / second])
    # Later than the knee at 100 ms.
    assert digits([first, second], 4) == [0.1167, 0.5652]
    rtts = np.linspace(0.01, 0.7, 2000)
    profiles = {"ramp": models.ramp(rtts, **PATH).throughput_bits_per_s, "window": 8 * 125e6 / rtts}
    stages = composition.compose(profiles)
    assert all((name == "window") == (first < rtt < second) for name, rtt in zip(stages.slowest, rtts, strict=True))
    bends = second_differences(rtts, stages.minimum_bits_per_s)
    middle = rtts[1:-1]
    assert (bends[middle < first - 0.001] < 0).all()
    assert (bends[(middle > first + 0.001) & (middle < second - 0.001)] > 0).all()


def test_a_large_window_is_never_the_limit():
    assert composition.ramp_crossings(**PATH, window_bytes=3e8) == ()
    assert composition.ramp_crossings(**PATH, window_bytes=1e11) == ()


def test_a_window_within_the_initial_one_limits_from_its_knee():
    assert composition.ramp_crossings(**PATH, window_bytes=10_000) == pytest.approx((8e-6,))
    assert composition.ramp_crossings(**PATH, window_bytes=10_000, streams=4) == pytest.approx((8e-6,))


@CHECKED
@given(st.floats(1e4, 1e10), st.floats(0.1, 100), st.floats(1e8, 1e11))
def test_crossings(window, duration, capacity):
    path = {"capacity_bits_per_s": capacity, "duration_s": duration}
    crossings = composition.ramp_crossings(**path, window_bytes=window)
    knee = 8 * window / capacity
    for rtt in crossings:
        assert models.ramp(rtt, **path).throughput_bits_per_s[0] == pytest.approx(8 * window / rtt, rel=1e-6)
        assert knee * (1 - 1e-9) <= rtt <= duration * (1 + 1e-9)
    # Elsewhere the window is the lower one just between the crossings.
    rtts = np.geomspace(knee, duration, 200) if knee < duration else np.array([knee])
    ramp = models.ramp(rtts, **path).throughput_bits_per_s
    first, second = (*crossings, duration * 2)[:2] if crossings else (math.inf, math.inf)
    clear = np.abs(ramp * rtts / (8 * window) - 1) > 1e-6
    assert ((ramp > 8 * window / rtts) == ((rtts > first) & (rtts < second)))[clear].all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: composition.compose({"network": 1e9}), "stages: 1 of them: expected from 2 to 10"),
        (lambda: composition.compose(named([1e9] * 11)), "stages: 11 of them: expected from 2 to 10"),
        (lambda: composition.compose({"disk": 0, "network": 1e9}), "stages['disk']: 0 is out of range: expected numbers from 1 to 1e+14"),
        (lambda: composition.compose({"disk": [1e9, math.nan], "network": 1e9}), "stages['disk'][1]: nan is out of range"),
        (lambda: composition.compose({"disk": [], "network": 1e9}), "stages['disk']: []: expected"),
        (lambda: composition.compose({"disk": [1e9] * 3, "network": [1e9] * 2}), "stages['network']: 2 numbers: expected one number"),
        (lambda: judged(measured=[1e9, 1e9]), "measured_bits_per_s: 2 numbers: expected one number, or one for each of the 1"),
        (lambda: judged(measured=math.inf), "measured_bits_per_s: inf is out of range"),
        (lambda: judged(tolerance=-0.1), "tolerance: -0.1 is out of range: expected numbers from 0 to 0.5"),
        (lambda: judged(tolerance=math.nan), "tolerance: nan"),
        (lambda: composition.flow_window_limit(0.1, flows=0, block_bytes=1), "flows: 0 is out of range"),
        (lambda: composition.flow_window_limit(0, flows=1, block_bytes=1), "rtt_s: 0 is out of range"),
        (lambda: credits_of({}), "credits: no side: expected at least one"),
        (lambda: credits_of({"router": 0}), "credits['router']: 0 is out of range"),
        (lambda: credits_of(1.5), "credits['peer']: 1.5: expected a whole number"),
        (lambda: credits_of(8, block_bytes=0), "block_bytes: 0 is out of range"),
        (lambda: composition.reach_s(credits_of(8), 0), "timeout_s: 0 is out of range"),
        (lambda: composition.ramp_crossings(**PATH, window_bytes=math.nan), "window_bytes: nan"),
        (lambda: composition.ramp_crossings(**PATH, window_bytes=1e6, streams=0), "streams: 0 is out of range"),
    ],
)
def test_wrong_arguments_are_errors_with_their_place(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


def judged(measured=1e9, tolerance=0.1):
    return composition.judge(composition.compose({"disk": 2e9, "network": 1e9}), measured, tolerance=tolerance)


def credits_of(credits, **changes):
    return composition.credit_limit(0.1, credits=credits, capacity_bits_per_s=1e9, **changes)
