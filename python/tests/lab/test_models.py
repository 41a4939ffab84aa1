"""`towpath.lab.models`: slow start against a simulation of rounds, and the formulas against figures of the papers and RFC 9438."""

import doctest
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towpath.lab import models

RTTS = (0.0004, 0.0118, 0.0226, 0.0456, 0.0916, 0.183, 0.366)
"""The round trips of the testbeds of the talk, in seconds."""

PATH = {"capacity_bits_per_s": 10e9, "duration_s": 10}
CHECKED = settings(max_examples=100, deadline=None, database=None, print_blob=True)

times = st.floats(1e-4, 1)
losses = st.floats(1e-8, 0.1)


def digits(values, count):
    """Returns the numbers with so many significant digits."""
    return [float(f"{value:.{count}g}") for value in values]


def slope(function, place, step=1e-4):
    """Returns the central difference of a function that returns an array."""
    return (function(place * (1 + step))[0] - function(place * (1 - step))[0]) / (2 * step * place)


def second_differences(rtts, values):
    return np.diff(np.diff(values) / np.diff(rtts))


def bytes_of_rounds(rtt, capacity, duration, buffer, initial):
    """Returns the bits of a run whose window doubles after each round trip, with a constant rate in each."""
    sent, now, window = 0.0, 0.0, initial
    full = min(capacity * rtt, buffer)
    while now < duration and window < full:
        part = min(rtt, duration - now)
        sent, now, window = sent + window / rtt * part, now + rtt, 2 * window
    return sent + full / rtt * max(duration - now, 0)


def test_the_example_is_true():
    assert doctest.testmod(models).failed == 0


def test_ramp_without_buffer_limit():
    ramp = models.ramp(RTTS, **PATH)
    assert digits(ramp.throughput_bits_per_s / 1e9, 6) == [9.99835, 9.89402, 9.77584, 9.50154, 8.90655, 7.63279, 4.89959]
    assert ramp.rounds.round(4).tolist() == [5.0979, 9.9805, 10.9181, 11.9308, 12.9371, 13.9355, 14.9355]
    assert ramp.ramp_s.round(5).tolist() == [0.00204, 0.11777, 0.24675, 0.54404, 1.18504, 2.55020, 5.46640]
    assert ramp.transition_s is None and not ramp.is_cut.any() and not ramp.is_buffer_limited.any()
    assert ramp.sustained_bits_per_s == pytest.approx(10e9)
    assert (second_differences(RTTS, ramp.throughput_bits_per_s) < 0).all()


def test_ramp_with_a_buffer_of_100_ms():
    ramp = models.ramp(RTTS, **PATH, buffer_bytes=125e6)
    assert (ramp.throughput_bits_per_s / 10e9).round(3).tolist() == [1.0, 0.989, 0.978, 0.950, 0.891, 0.426, 0.153]
    assert ramp.is_buffer_limited.tolist() == [False] * 5 + [True] * 2
    assert ramp.transition_s == 0.1


def test_the_profile_is_concave_before_the_transition_and_convex_after_it():
    def throughput(rtts):
        return models.ramp(rtts, **PATH, buffer_bytes=125e6).throughput_bits_per_s

    before, after = np.linspace(0.001, 0.0999, 200), np.linspace(0.1001, 0.6, 200)
    assert (second_differences(before, throughput(before)) < 0).all()
    assert (second_differences(after, throughput(after)) > 0).all()
    # Θ'' = -C / (T τ ln 2), and the slope on the right of the transition is -C / τ_T.
    place = 0.05
    curvature = slope(lambda rtt: np.array([slope(throughput, rtt)]), place)
    assert curvature == pytest.approx(-10e9 / (10 * place * math.log(2)), rel=1e-3)
    assert slope(throughput, 0.1001) == pytest.approx(-10e9 / 0.1, rel=0.01)


def test_a_run_that_ends_in_the_ramp():
    ramp = models.ramp([0.1, 0.2, 0.4, 0.8], capacity_bits_per_s=10e9, duration_s=2)
    assert ramp.is_cut.tolist() == [False, True, True, True]
    # Ten, five and two and a half rounds.
    assert ramp.ramp_bytes[1:] == pytest.approx([14600 * (2**rounds - 1) for rounds in (10, 5, 2.5)])
    assert ramp.throughput_bits_per_s[1:] == pytest.approx(8 * ramp.ramp_bytes[1:] / 2)
    # The two-phase formula, which does not know of the end of the run, has a negative sustained phase here.
    wrong = (8 * 14600 * (2 ** ramp.rounds[3] - 1) + 10e9 * (2 - ramp.ramp_s[3])) / 2
    assert wrong < 0 < ramp.throughput_bits_per_s[3]
    beyond = np.linspace(ramp.cut_s, 1, 100)
    assert (second_differences(beyond, models.ramp(beyond, capacity_bits_per_s=10e9, duration_s=2).throughput_bits_per_s) > 0).all()


@pytest.mark.parametrize("buffer_bytes", [None, 125e6, 20e6, 20e3])
def test_the_ramp_takes_the_whole_run_at_the_cut(buffer_bytes):
    path = {"capacity_bits_per_s": 10e9, "duration_s": 2, "buffer_bytes": buffer_bytes}
    cut = models.ramp(0.1, **path).cut_s
    at, around = models.ramp(cut, **path), models.ramp([cut * (1 - 1e-6), cut * (1 + 1e-6)], **path)
    assert at.ramp_s[0] == pytest.approx(2, rel=1e-12)
    assert around.is_cut.tolist() == [False, True]
    assert around.throughput_bits_per_s == pytest.approx(at.throughput_bits_per_s[0], rel=1e-4)


def test_a_window_up_to_the_initial_one_needs_no_ramp():
    ramp = models.ramp([1e-6, 0.1], **PATH, buffer_bytes=14600)
    assert ramp.throughput_bits_per_s == pytest.approx([10e9, 8 * 14600 / 0.1])
    assert ramp.rounds.tolist() == ramp.ramp_bytes.tolist() == [0, 0]
    assert ramp.cut_s == math.inf


@CHECKED
@given(times, st.floats(1e6, 1e11), st.floats(0.1, 100), st.floats(2e4, 1e9))
def test_whole_rounds_differ_by_a_part_of_the_window(rtt, capacity, duration, buffer):
    ramp = models.ramp(rtt, capacity_bits_per_s=capacity, duration_s=duration, buffer_bytes=buffer)
    bits = bytes_of_rounds(rtt, capacity, duration, 8 * buffer, 8 * 14600)
    window = min(capacity * rtt, 8 * buffer)
    # 1 + f - 2^f has the maximum 0.08607 for the fraction f of a round.
    assert abs(float(ramp.throughput_bits_per_s[0]) * duration - bits) <= 0.08608 * window + 1e-9 * bits


@CHECKED
@given(times, st.integers(1, 64))
def test_streams_share_the_ramp(rtt, streams):
    one = models.ramp(rtt, **PATH, buffer_bytes=1e6 * streams, initial_window_bytes=14600 * streams)
    several = models.ramp(rtt, **PATH, buffer_bytes=1e6, streams=streams)
    assert several.throughput_bits_per_s == pytest.approx(one.throughput_bits_per_s)
    if several.rounds[0] > 0:
        alone = models.ramp(rtt, **PATH, buffer_bytes=1e6 * streams)
        assert alone.rounds[0] - several.rounds[0] == pytest.approx(math.log2(streams), abs=1e-9)


@CHECKED
@given(times, st.floats(0.1, 100), st.floats(1e-3, 1e3))
def test_units_of_data_and_time_scale(rtt, duration, factor):
    one = models.ramp(rtt, capacity_bits_per_s=1e9, duration_s=duration, buffer_bytes=1e6)
    data = {"capacity_bits_per_s": 1e9 * factor, "buffer_bytes": 1e6 * factor, "initial_window_bytes": 14600 * factor}
    assert models.ramp(rtt, duration_s=duration, **data).throughput_bits_per_s == pytest.approx(factor * one.throughput_bits_per_s)
    time = {"capacity_bits_per_s": 1e9 / factor, "duration_s": duration * factor, "buffer_bytes": 1e6}
    assert models.ramp(rtt * factor, **time).throughput_bits_per_s == pytest.approx(one.throughput_bits_per_s / factor)


@CHECKED
@given(st.lists(times, min_size=2, max_size=20, unique=True), st.floats(0.1, 100), st.booleans())
def test_ramp_decreases_with_the_round_trip_and_increases_with_the_duration(rtts, duration, has_buffer):
    arguments = {"capacity_bits_per_s": 10e9, "buffer_bytes": 125e6 if has_buffer else None}
    rates = models.ramp(rtts, duration_s=duration, **arguments).throughput_bits_per_s
    ordered = models.ramp(sorted(rtts), duration_s=duration, **arguments).throughput_bits_per_s
    assert sorted(rates, reverse=True) == ordered.tolist()
    slack = 1 + 1e-9
    assert (models.ramp(rtts, duration_s=2 * duration, **arguments).throughput_bits_per_s * slack >= rates).all()
    larger = models.ramp(rtts, duration_s=duration, initial_window_bytes=50_000, **arguments)
    assert (larger.throughput_bits_per_s * slack >= rates).all()


def test_phases_add_up():
    ramp = models.ramp(RTTS, **PATH)
    part, mean = ramp.ramp_s / 10, 8 * ramp.ramp_bytes / ramp.ramp_s
    assert ramp.throughput_bits_per_s == pytest.approx(ramp.sustained_bits_per_s - part * (ramp.sustained_bits_per_s - mean))


@pytest.mark.parametrize(
    ("epsilon", "slopes"), [(0, [-0.1, -0.1, -0.1]), (0.1, [-0.11, -0.138482, -0.174338]), (0.5, [-0.15, -0.474342, -1.5])]
)
def test_slide_literal_slopes(epsilon, slopes):
    # With log2 C = 10, and relative to C.
    literal = models.slide_literal([1, 10, 100], capacity=1024, duration=100, epsilon=epsilon)
    assert digits(literal.slope / 1024, 6) == slopes


def test_slide_literal_data_contradict_its_rounds():
    literal = models.slide_literal([1, 10], capacity=1024, duration=100, epsilon=0.1)
    assert digits(literal.ramp_data, 6) == [4096, 4901.22] and digits(literal.corrected_ramp_data, 6) == [2048, 12324.6]
    assert literal.corrected_ramp_data == pytest.approx(2 * 2**literal.rounds)


@pytest.mark.parametrize("epsilon", [0, 0.1, 0.5])
def test_slide_literal_slope_omits_the_data(epsilon):
    def literal(rtt):
        return models.slide_literal(rtt, capacity=1024, duration=100, epsilon=epsilon)

    derivative = slope(lambda rtt: literal(rtt).throughput, 2.0)
    of_data = slope(lambda rtt: literal(rtt).ramp_data, 2.0) / 100
    assert derivative == pytest.approx(literal(2.0).slope[0] + of_data, rel=1e-6)
    assert (of_data == pytest.approx(0, abs=1e-9)) == (epsilon == 0)


def test_mathis():
    rates = models.mathis([0.1, 0.0118], [1e-4, 1e-6], acks="each")
    assert digits(rates / 1e6, 6) == [14.3050, 1212.29]
    assert models.mathis(0.1, 1e-4, acks="each") / models.mathis(0.1, 1e-4) == pytest.approx(math.sqrt(2))


def test_padhye():
    rates = models.padhye([0.1, 0.1, 0.0118], [1e-4, 1e-2, 1e-6], timeout_s=[0.4, 0.4, 0.2])
    assert digits(rates / (8 * 1460), 6) == [865.247, 79.4309, 73389.2]
    assert models.padhye(0.1, 1e-4, timeout_s=0.4, buffer_bytes=14600) == pytest.approx(8 * 14600 / 0.1)
    # min(1, 3 √(3bp/8)) is 1 here.
    assert models.padhye(0.1, 0.5, timeout_s=1)[0] / (8 * 1460) == pytest.approx(1 / (0.1 * math.sqrt(2 / 3) + 0.5 * 9))


@CHECKED
@given(times, st.floats(1e-12, 1e-10))
def test_padhye_is_mathis_with_few_losses(rtt, loss):
    for segments, acks in ((1, "each"), (2, "delayed")):
        rate = models.padhye(rtt, loss, timeout_s=4 * rtt, segments_per_ack=segments)
        assert rate == pytest.approx(models.mathis(rtt, loss, acks=acks), rel=1e-4)


LOSSES = [1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8]


@pytest.mark.parametrize(
    ("rtt_s", "scaling", "windows"),
    [
        (0.1, 0.04, [12, 38, 120, 593, 3332, 18740, 105383]),
        (0.1, 0.4, [12, 38, 187, 1054, 5926, 33325, 187400]),
        (0.1, 4, [12, 59, 333, 1874, 10538, 59261, 333250]),
        (0.01, 0.04, [12, 38, 120, 379, 1200, 3795, 18740]),
        (0.01, 0.4, [12, 38, 120, 379, 1200, 5926, 33325]),
        (0.01, 4, [12, 38, 120, 379, 1874, 10538, 59261]),
    ],
)
def test_cubic_windows_are_those_of_rfc_9438(rtt_s, scaling, windows):
    cubic = models.cubic([rtt_s] * len(LOSSES), LOSSES, scaling=scaling)
    reno = [12, 38, 120, 379, 1200, 3795, 12000]
    assert cubic.is_reno_friendly.tolist() == [window == other for window, other in zip(windows, reno, strict=True)]
    # The RFC has 1.2 for √1.5 = 1.22474 in the windows of Reno.
    exact = np.where(cubic.is_reno_friendly, np.array(cubic.window_segments) * 1.2 / math.sqrt(1.5), cubic.window_segments)
    assert exact == pytest.approx(windows, abs=0.51)
    assert cubic.throughput_bits_per_s == pytest.approx(cubic.window_segments * 8 * 1460 / rtt_s)


def test_the_reno_friendly_region_ends_at_12_ms_with_a_loss_in_a_million_segments():
    assert models.cubic([0.012, 0.0125], 1e-6).is_reno_friendly.tolist() == [True, False]


@CHECKED
@given(st.floats(1e-3, 0.4), losses)
def test_loss_models_scale(rtt, loss):
    assert models.mathis(2 * rtt, loss) == pytest.approx(models.mathis(rtt, loss) / 2)
    assert models.mathis(rtt, loss / 4) == pytest.approx(models.mathis(rtt, loss) * 2)
    one, two = models.cubic([rtt, rtt], [loss, loss / 16]), models.cubic([16 * rtt, rtt], [loss, loss])
    if not (one.is_reno_friendly.any() or two.is_reno_friendly.any()):
        assert two.throughput_bits_per_s[0] == pytest.approx(one.throughput_bits_per_s[0] / 2)
        assert one.throughput_bits_per_s[1] == pytest.approx(one.throughput_bits_per_s[0] * 8)


def test_loss_models_are_convex_and_decrease():
    rtts = np.linspace(0.001, 0.4, 300)
    for rates in (
        models.mathis(rtts, 1e-5),
        models.padhye(rtts, 1e-3, timeout_s=0.4),
        models.cubic(rtts, 1e-5).throughput_bits_per_s,
    ):
        assert (np.diff(rates) < 0).all()
    # The change from Reno's region to that of CUBIC is convex, too.
    assert (second_differences(rtts, models.cubic(rtts, 1e-5).throughput_bits_per_s) > 0).all()
    assert (second_differences(rtts, models.mathis(rtts, 1e-5)) > 0).all()


def test_window_limit_and_its_inverse():
    rates = models.window_limit(RTTS, capacity_bits_per_s=10e9, window_bytes=2**23)
    assert rates == pytest.approx(np.minimum(10e9, 2**26 / np.array(RTTS)))
    estimate = models.estimate_window(RTTS, rates, convex_from_s=0.0118)
    assert estimate.window_bytes == pytest.approx(2**23) and estimate.variation < 1e-9 and estimate.is_constant
    assert estimate.rtt_s.tolist() == list(RTTS[1:])
    # With the region before the knee the product is not constant.
    assert not models.estimate_window(RTTS, rates, convex_from_s=1e-4).is_constant


@CHECKED
@given(st.floats(1e3, 1e9), st.lists(st.floats(-0.03, 0.03), min_size=3, max_size=10), st.randoms())
def test_the_estimate_is_the_median_of_the_products(window, errors, random):
    rtts = np.linspace(0.05, 0.3, len(errors))
    rates = 8 * window / rtts * (1 + np.array(errors))
    estimate = models.estimate_window(rtts, rates, convex_from_s=0.05)
    assert estimate.window_bytes == pytest.approx(window * (1 + np.median(errors))) and estimate.is_constant
    order = list(range(len(errors)))
    random.shuffle(order)
    again = models.estimate_window(rtts[order], rates[order], convex_from_s=0.05)
    assert (again.window_bytes, again.variation) == pytest.approx((estimate.window_bytes, estimate.variation), abs=1e-12)


def test_the_signature_needs_long_runs_and_is_no_proof_of_a_buffer():
    def variation(duration):
        ramp = models.ramp([0.1, 0.13, 0.183, 0.366], capacity_bits_per_s=10e9, duration_s=duration, buffer_bytes=125e6)
        return models.estimate_window(ramp.rtt_s, ramp.throughput_bits_per_s, convex_from_s=0.1)

    assert digits([variation(duration).variation for duration in (10, 30, 100)], 2) == [0.19, 0.052, 0.015]
    assert not variation(10).is_constant and variation(30).is_constant
    assert models.estimate_window(RTTS, models.mathis(RTTS, 1e-5), convex_from_s=0.0004).is_constant
    assert not models.estimate_window(RTTS, models.cubic(RTTS, 1e-7).throughput_bits_per_s, convex_from_s=0.0004).is_constant


@pytest.fixture(scope="module")
def profile():
    return models.ramp(RTTS, **PATH, buffer_bytes=125e6).throughput_bits_per_s


@pytest.fixture(scope="module")
def curve(profile):
    return models.fit_sigmoids(RTTS, profile, capacity_bits_per_s=10e9)


@pytest.mark.parametrize("has_scale", [True, False])
def test_sigmoids_are_continuous_and_close(profile, curve, has_scale):
    if not has_scale:
        curve = models.fit_sigmoids(RTTS, profile, capacity_bits_per_s=10e9, has_scale=False)
    assert curve.transition_s in RTTS[2:5] and curve.parameters == 5 + has_scale and (curve.scale == 1) == (not has_scale)
    assert curve.right_center_s <= curve.transition_s <= curve.left_center_s
    drawn = curve.throughput_bits_per_s(RTTS)
    assert drawn / 10e9 == pytest.approx(profile / 10e9, abs=0.05)
    assert curve.sum_of_squares == pytest.approx((((drawn - profile) / 10e9) ** 2).sum())
    around = curve.throughput_bits_per_s(curve.transition_s * np.array([1 - 1e-9, 1, 1 + 1e-9]))
    assert around == pytest.approx(around[1], rel=1e-6)
    left, right = np.linspace(0.0004, curve.transition_s, 50), np.linspace(curve.transition_s, 0.366, 50)
    assert (second_differences(left, curve.throughput_bits_per_s(left)) < 1).all()
    assert (second_differences(right, curve.throughput_bits_per_s(right)) > -1).all()
    assert "drawing only" in curve.purpose and "identified" in curve.purpose


def test_sigmoids_depend_on_the_seed_only_in_their_parameters(profile, curve):
    one, other = (models.fit_sigmoids(RTTS, profile, capacity_bits_per_s=10e9, seed=seed) for seed in (0, 1))
    assert one == curve
    assert one.sum_of_squares == pytest.approx(other.sum_of_squares, rel=1e-3)
    # The same curve has another center: it is not identified.
    assert one.throughput_bits_per_s(RTTS) == pytest.approx(other.throughput_bits_per_s(RTTS), rel=0.01)
    assert one.right_center_s != pytest.approx(other.right_center_s, rel=0.01)


def test_sigmoids_of_profiles_with_one_shape():
    rtts = np.array(RTTS)
    convex = models.fit_sigmoids(RTTS, 9e9 * np.exp(-10 * rtts), capacity_bits_per_s=10e9)
    assert convex.transition_s == RTTS[0] and convex.sum_of_squares < 1e-5
    concave = models.fit_sigmoids(RTTS, 9e9 / (1 + np.exp(8 * (rtts - 0.4))), capacity_bits_per_s=10e9)
    assert concave.transition_s == RTTS[-1] and concave.sum_of_squares < 1e-5


def test_sigmoids_do_not_predict(curve):
    for rtt in (0.0003, 0.4):
        with pytest.raises(ValueError, match=r"rtt_s: .* is out of range"):
            curve.throughput_bits_per_s(rtt)


def ramp(rtt_s=0.1, **changes):
    return models.ramp(rtt_s, **{**PATH, **changes})


def fit(rtt_s=RTTS, throughput=1e9, **changes):
    return models.fit_sigmoids(rtt_s, throughput, **{"capacity_bits_per_s": 10e9, **changes})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ramp([]), "rtt_s: []: expected numbers from 1e-18 to 1e+18, at least 1"),
        (lambda: ramp([0.1, 0]), "rtt_s[1]: 0 is out of range: expected numbers from 1e-18 to 1e+18"),
        (lambda: ramp([0.1, math.nan]), "rtt_s[1]: nan is out of range"),
        (lambda: ramp(math.inf), "rtt_s: inf is out of range"),
        (lambda: ramp([[0.1]]), "rtt_s: [[0.1]]: expected numbers"),
        (lambda: ramp("0.1"), "rtt_s: '0.1': expected numbers"),
        (lambda: ramp(None), "rtt_s: nan is out of range"),
        (lambda: ramp([0.1, [0.2]]), "rtt_s: [0.1, [0.2]]: expected numbers"),
        (lambda: ramp(True), "rtt_s: True: expected numbers"),
        (lambda: ramp(np.ones(1_000_001)), "at most 1000000"),
        (lambda: ramp(capacity_bits_per_s=-1), "capacity_bits_per_s: -1 is out of range"),
        (lambda: ramp(capacity_bits_per_s=[1e9]), "capacity_bits_per_s: [1000000000.0]: expected one number"),
        (lambda: ramp(duration_s=math.nan), "duration_s: nan"),
        (lambda: ramp(buffer_bytes=0), "buffer_bytes: 0 is out of range"),
        (lambda: ramp(initial_window_bytes=math.inf), "initial_window_bytes: inf"),
        (lambda: ramp(streams=0), "streams: 0 is out of range: expected numbers from 1"),
        (lambda: ramp(streams=1.5), "streams: 1.5: expected a whole number from 1"),
        (lambda: models.slide_literal(1, capacity=0.5, duration=1, epsilon=0), "capacity: 0.5 is out of range"),
        (lambda: models.slide_literal(1, capacity=2, duration=1, epsilon=-0.1), "epsilon: -0.1 is out of range"),
        (lambda: models.slide_literal([1, 100], capacity=2, duration=1, epsilon=1), "rtt ** epsilon[1]: 100 is out of range"),
        (lambda: models.mathis(0.1, 0), "loss: 0 is out of range"),
        (lambda: models.mathis(0.1, 1.1), "loss: 1.1 is out of range: expected numbers from 1e-18 to 1"),
        (lambda: models.mathis(0.1, 0.1, acks="all"), "acks: 'all': expected 'each' or 'delayed'"),
        (lambda: models.mathis([0.1, 0.2, 0.3], [0.1, 0.2]), "loss: 2 numbers: expected one number, or one for each of the 3"),
        (lambda: models.mathis(0.1, [0.1, 0.2]), "loss: 2 numbers"),
        (lambda: models.padhye(0.1, 0.1, timeout_s=math.nan), "timeout_s: nan"),
        (lambda: models.padhye(0.1, 0.1, timeout_s=1, segments_per_ack=0.5), "segments_per_ack: 0.5 is out of range"),
        (lambda: models.cubic(0.1, 0.1, beta=1), "beta: 1 is out of range"),
        (lambda: models.cubic(0.1, 0.1, scaling=0), "scaling: 0 is out of range"),
        (lambda: models.window_limit(0.1, capacity_bits_per_s=1, window_bytes=math.nan), "window_bytes: nan"),
        (lambda: models.estimate_window(RTTS, 1e9, convex_from_s=0.1), "convex_from_s: 0.1 leaves 2 round trips: expected at least 3"),
        (lambda: models.estimate_window(RTTS, [1, 2], convex_from_s=0.1), "throughput_bits_per_s: 2 numbers"),
        (lambda: models.estimate_window(RTTS, [0] * 7, convex_from_s=0.1), "throughput_bits_per_s[0]: 0 is out of range"),
        (lambda: fit(RTTS[:4]), "rtt_s: [0.0004, 0.0118, 0.0226, 0.0456]: expected from 5 to 20 numbers that increase"),
        (lambda: fit(np.linspace(0.1, 1, 21)), "expected from 5 to 20 numbers that increase"),
        (lambda: fit(RTTS[::-1]), "that increase"),
        (lambda: fit(throughput=-1), "throughput_bits_per_s: -1 is out of range"),
        (lambda: fit(capacity_bits_per_s=0), "capacity_bits_per_s: 0 is out of range"),
    ],
)
def test_wrong_arguments_are_errors_with_their_place(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
