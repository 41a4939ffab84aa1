"""Profiles, bands and transitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_simulation import RTTS_S, STRAIGHT, TRUTHS, UNEVEN, noisy, ramp

from towpath.lab.profiles import Profile, isotonic, profile_of
from towpath.lab.profiles.bands import bootstrap, envelope, hoeffding, prediction, printed_bound
from towpath.lab.profiles.transition import find_transition, refinement
from towpath.lab.runs import Runs


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize(("noise", "share"), [(0.02, 0.98), (0.1, 0.78), (UNEVEN, 0.9)], ids=["2 %", "10 %", "uneven"])
def test_the_bracket_has_the_transition(name, noise, share):
    (truth, transition_s), random, trials = TRUTHS[name], np.random.default_rng(7), 60
    found = [find_transition(noisy(random, truth, noise)) for _ in range(trials)]
    hits = [one.bracket_s is not None and one.bracket_s[0] <= transition_s <= one.bracket_s[1] for one in found]
    in_set = [any(low <= transition_s <= high for low, high in one.set_s) for one in found]
    assert np.mean(hits) >= share and np.mean(in_set) >= 0.95


@pytest.mark.parametrize("name", STRAIGHT)
@pytest.mark.parametrize("noise", [0.1, UNEVEN], ids=["10 %", "uneven"])
def test_straight_profiles_are_indeterminate(name, noise):
    random = np.random.default_rng(3)
    shapes = [find_transition(noisy(random, STRAIGHT[name], noise)).shape for _ in range(60)]
    assert shapes.count("indeterminate") >= 54


@pytest.mark.parametrize(
    ("truth", "shape", "bracket_s"),
    [
        (np.minimum(1, 0.002 / RTTS_S), "convex", (RTTS_S[0], RTTS_S[1])),
        (1 - (RTTS_S / 0.4) ** 2, "concave", (RTTS_S[5], RTTS_S[6])),
    ],
)
def test_profiles_of_one_shape(truth, shape, bracket_s):
    found = find_transition(noisy(np.random.default_rng(1), truth, 0.02))
    assert (found.shape, found.bracket_s) == (shape, bracket_s)


@given(st.floats(1e-3, 1e12), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_a_transition_does_not_depend_on_the_unit(factor, seed):
    profile = noisy(np.random.default_rng(seed), ramp(0.1), 0.1)
    found, scaled = find_transition(profile), find_transition(profile.scaled(factor))
    assert (found.shape, found.bracket_s, found.set_s) == (scaled.shape, scaled.bracket_s, scaled.set_s)
    np.testing.assert_allclose(scaled.errors, found.errors, rtol=1e-6, atol=1e-6)


def test_a_refinement_has_the_segment_before_the_bracket():
    rtts_s = [0.01, 0.05, 0.1, 0.2, 0.4]
    found = find_transition(Profile.of_samples(rtts_s, [[9.9, 9.8], [9.5, 9.6], [8.4, 8.6], [2.1, 1.9], [1.0, 0.9]]))
    assert found.bracket_s == (0.1, 0.2) and refinement(found, rtts_s) == (0.075, 0.15)
    convex = find_transition(Profile.of_samples(rtts_s, [[9.9, 9.8], [2.0, 2.1], [1.0, 1.1], [0.5, 0.52], [0.25, 0.26]]))
    assert convex.bracket_s == (0.01, 0.05) and refinement(convex, rtts_s) == (0.02, 0.04)
    straight = find_transition(noisy(np.random.default_rng(3), STRAIGHT["flat"], 0.1))
    assert refinement(straight, RTTS_S) == ()


def test_all_shapes_that_the_runs_do_not_exclude():
    random, rtts_s, held = np.random.default_rng(6), [0.05, 0.1, 0.2, 0.3, 0.4], 0
    for _ in range(200):
        truth = [0.95, 0.9, 0.8, 0.5, 0.2]
        found = find_transition(Profile.of_samples(rtts_s, [value * (1 + 0.05 * random.standard_normal(10)) for value in truth]))
        held += "concave" in found.shapes
        assert found.shape in found.shapes
    assert held >= 200 * 0.95


def test_the_best_fit_keeps_its_constraints():
    found = find_transition(noisy(np.random.default_rng(2), ramp(0.1), 0.2))
    slopes = np.diff(found.fit_bits_per_s) / np.diff(RTTS_S)
    segment = RTTS_S.tolist().index(found.bracket_s[0])
    assert np.all(slopes <= 1e-9)
    assert np.all(np.diff(slopes[: segment + 1]) <= 1e-9) and np.all(np.diff(slopes[segment:]) >= -1e-9)


def test_the_isotonic_profile():
    profile = Profile.of_samples([1, 2, 3, 4, 5], [[9], [10], [7], [8], [3]])
    assert isotonic(profile).tolist() == [9.5, 9.5, 7.5, 7.5, 3]


@given(st.lists(st.lists(st.floats(0, 1e11), min_size=1, max_size=4), min_size=2, max_size=7))
@settings(max_examples=50, deadline=None)
def test_the_isotonic_profile_decreases_and_keeps_the_mean(samples):
    profile = Profile.of_samples(range(1, len(samples) + 1), samples)
    values = isotonic(profile)
    assert np.all(np.diff(values) <= 1e-3)
    np.testing.assert_allclose((values * profile.counts).sum(), (profile.means * profile.counts).sum(), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(("runs", "lowest", "width"), [(5, 0.9, 0.3), (10, 0.92, 0.17), (30, 0.92, 0.09)])
def test_the_envelope_covers_whole_profiles(runs, lowest, width):
    truth, random = ramp(0.1), np.random.default_rng(11)
    bands = [envelope(noisy(random, truth, 0.1, runs)) for _ in range(300)]
    assert lowest <= np.mean([np.all((band.lower <= truth) & (truth <= band.upper)) for band in bands]) <= 1
    assert np.mean([band.upper - band.lower for band in bands]) < width
    assert bands[0].is_reliable == (runs >= 10)
    assert bands[0].at(0.1) == (bands[0].lower[5], bands[0].upper[4]) and bands[0].at(0.183) == (bands[0].lower[5], bands[0].upper[5])


@pytest.mark.parametrize("runs", [3, 10])
def test_the_next_run_is_predicted(runs):
    truth, random, covered = ramp(0.1), np.random.default_rng(5), []
    for _ in range(200):
        band = prediction(noisy(random, truth, 0.1, runs))
        following = truth * (1 + 0.1 * random.standard_normal(7))
        covered += ((band.lower <= following) & (following <= band.upper)).tolist()
    # With three runs, the deviation of the two others is often far too small.
    assert 0.87 <= np.mean(covered) <= (0.95 if runs == 10 else 0.99)


def test_other_bands():
    profile = Profile.of_samples([0.1, 0.2], [[0.9] * 10, [0.5] * 10], capacity_bits_per_s=1)
    band = hoeffding(profile)
    half = np.sqrt(np.log(4 / 0.05) / 20)
    np.testing.assert_allclose([band.lower, band.upper], [[0.9 - half, 0.5 - half], [1, 0.5 + half]])
    band = bootstrap(noisy(np.random.default_rng(1), ramp(0.1), 0.1))
    assert np.all(band.lower < band.upper) and not band.is_reliable and not band.is_simultaneous


@pytest.mark.parametrize(
    ("epsilon", "logs"), [(0.25, (1.5, 2.3, 2.9, -0.4, -42.2)), (0.3, (2.1, 3.8, 5.4, 1.3, -58.1)), (0.5, (2.4, 5.6, 7.9, -5.2, -172.2))]
)
def test_the_printed_bound(epsilon, logs):
    bounds = [printed_bound(epsilon, runs) for runs in (1, 7, 70, 700, 7000)]
    assert tuple(round(bound.log10_delta, 1) for bound in bounds) == logs
    assert [bound.is_vacuous for bound in bounds] == [log > 0 for log in logs]


def test_the_printed_bound_is_refused_where_it_is_none():
    with pytest.raises(ValueError, match="only one for 0.25 to 1"):
        printed_bound(0.2, 70)


def test_a_profile_that_rises_has_no_envelope():
    with pytest.raises(ValueError, match="it rises after 50 ms by more than its errors"):
        envelope(Profile.of_samples([0.01, 0.05, 0.1], [[9.0, 9.1], [1.0, 1.01], [5.0, 5.01]]))
    # Within the errors, it may be one that decreases.
    band = envelope(Profile.of_samples([0.05, 0.1], [[4.0, 5.0, 4.5], [5.0, 4.1, 4.6]]))
    assert np.all(band.lower <= band.upper)


def test_a_profile_is_not_extrapolated():
    profile = Profile.of_samples([0.2, 0.1], [[1e9], [3e9, 5e9]])
    assert profile.at(0.1) == 4e9 and profile.at(0.15) == 2.5e9 and profile.at(0.2) == 1e9
    for rtt_s in (0.09, 0.21, float("nan")):
        with pytest.raises(ValueError, match="not extrapolated"):
            profile.at(rtt_s)


@pytest.mark.parametrize(
    ("rtts", "samples", "message"),
    [
        ([0.1], [[1], [2]], "1 and 2; expected as many"),
        ([0.1, 0.1], [[1], [2]], "expected different values"),
        ([0.1, -1], [[1], [2]], "expected different values of 0 s or more"),
        ([0.1, 0.2], [[1], []], r"at 0\.2 s: expected throughputs"),
        ([0.1, 0.2], [[1], [float("nan")]], r"at 0\.2 s: expected throughputs"),
        ([0.1, 0.2], [[1], [-1]], r"at 0\.2 s: expected throughputs"),
    ],
)
def test_invalid_profiles(rtts, samples, message):
    with pytest.raises(ValueError, match=message):
        Profile.of_samples(rtts, samples)


@pytest.mark.parametrize(
    ("rtts", "samples", "message"),
    [
        ([1, 2, 3], [[1, 2]] * 3, "3 round trips, expected 4 to 40"),
        ([1, 2, 3, 4], [[1]] * 4, "the error of a single run is unknown"),
        ([1, 2, 3, 4], [[1, 1]] * 4, "their error is unknown"),
    ],
)
def test_transitions_need_runs(rtts, samples, message):
    with pytest.raises(ValueError, match=message):
        find_transition(Profile.of_samples(rtts, samples))


def run(number, rtt_s, **more):
    row = {"run_id": str(number), "tool": "x", "rtt_s": rtt_s, "repetition": number, "throughput_bits_per_s": 1e9 * (number + 1)}
    return row | more


def test_runs_that_the_machine_limited_are_left_out_and_counted():
    runs = Runs.of_rows([run(0, 0.1), run(1, 0.1, limited_by="cpu"), run(2, 0.2)])
    profile = profile_of(runs)
    assert profile.means.tolist() == [1e9, 3e9] and profile.excluded == 1
    assert profile_of(runs, with_limited=True).means.tolist() == [1.5e9, 3e9]
    with pytest.raises(ValueError, match="none of 1 runs is left; 1 were limited by the machine"):
        profile_of(Runs.of_rows([run(1, 0.1, limited_by="cpu")]))
    with pytest.raises(ValueError, match="2 configurations, expected one: x, x × 2"):
        profile_of(Runs.of_rows([run(0, 0.1), run(1, 0.1, streams=2)]))


def test_runs_that_differ_from_equal_ones_have_no_prediction():
    profile = Profile.of_samples([0.1, 0.2, 0.3], [[3.0, 3.0, 3.0, 2.0], [2.0, 2.0, 2.0, 1.0], [1.0, 1.0, 1.0, 0.5]])
    with pytest.raises(ValueError, match="3 of 12 runs differ from others that are equal"):
        prediction(profile)
