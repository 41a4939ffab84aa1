"""Choice of a configuration from profiles with bands."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_simulation import FAMILIES, analysis_of, simulate_selection

from towpath.lab import tuning
from towpath.lab.analysis import Unavailable, analyse
from towpath.lab.profiles import Profile
from towpath.lab.profiles.bands import Band, hoeffding
from towpath.lab.runs import Runs

RTTS_S = np.array([0.05, 0.1, 0.2])


def made(streams, lower, mean, upper, buffer_bytes=None, is_reliable=True):
    """Returns an analysis with this interval (bits per second) at all three round trips."""
    profile = Profile.of_samples(RTTS_S, [[mean, mean]] * 3)
    band = Band("envelope", RTTS_S, np.full(3, lower), np.full(3, upper), 0.95, True, is_reliable)
    return replace(analysis_of(streams, profile, buffer_bytes), band=band)


def names(candidates):
    return [one.configuration.streams for one in candidates]


def groups(found):
    return [names([found.chosen]), names(found.alternatives), names(found.undecided), names(found.worse), names(found.excluded)]


def test_the_highest_lower_end_is_chosen():
    found = tuning.select([made(1, 2, 3, 4), made(4, 7, 8, 9), made(8, 5, 5.5, 6)], 0.1)
    assert groups(found) == [[4], [], [], [8, 1], []]
    assert found.chosen == tuning.Candidate(found.chosen.configuration, 8, 7, 9, True, True)
    assert (found.rtt_s, found.highest_lower_bits_per_s, found.method, found.coverage) == (0.1, 7, "envelope", 0.95)
    assert found.joint_coverage == pytest.approx(0.85)


def test_fewer_streams_win_among_equals():
    # The means 7, 8 and 8.2 reach the lower end 7; the mean 6.9 does not.
    found = tuning.select([made(8, 7, 8, 9), made(4, 6.5, 7, 7.5), made(2, 6, 6.9, 7.8), made(5, 6.9, 8.2, 10), made(1, 1, 3, 6.9)], 0.1)
    assert groups(found) == [[4], [5, 8], [2], [1], []]
    assert found.highest_lower_bits_per_s == 7 > found.chosen.lower_bits_per_s


def test_an_interval_that_reaches_everything_is_no_equal():
    found = tuning.select([made(8, 8.9, 9, 9.1), made(1, 0, 5, 12), made(2, 1, 4, 11)], 0.1)
    assert groups(found) == [[8], [], [1, 2], [], []]
    assert found.cautions[-1] == "2 undecided: more runs may show that such a configuration is better"


def test_ends_that_touch_are_equal():
    assert groups(tuning.select([made(4, 7, 8, 9), made(2, 5, 7, 7)], 0.1))[:2] == [[2], [4]]


def test_smaller_buffers_win_among_equal_streams():
    analyses = [made(2, 7, 8, 9, buffer) for buffer in (None, 4 << 20, 1 << 20)] + [made(None, 7, 8, 9, 1 << 10)]
    found = tuning.select(analyses, 0.1)
    order = [found.chosen, *found.alternatives]
    assert [(one.configuration.streams, one.configuration.buffer_bytes) for one in order] == [
        (2, 1 << 20),
        (2, 4 << 20),
        (2, None),
        (None, 1 << 10),
    ]


def test_the_higher_lower_end_wins_among_equal_settings():
    one, other = made(2, 7, 8, 9), made(2, 7.5, 8, 9)
    other = replace(other, configuration=replace(other.configuration, transport="bbr"))
    assert tuning.select([one, other], 0.1).chosen.configuration.transport == "bbr"


def test_a_mean_outside_of_its_interval_counts_as_the_nearer_end():
    # Bands of profiles that rise by chance: monotonicity moves the ends beyond the mean.
    found = tuning.select([made(8, 7, 6.5, 9), made(4, 6, 6.8, 9), made(2, 5, 8, 6.9)], 0.1)
    assert groups(found) == [[8], [], [4], [2], []]


def test_a_round_trip_between_measured_ones():
    analysis = analysis_of(4, Profile.of_samples(RTTS_S, [[9, 9.2], [8, 8.2], [3, 3.4]]))
    found = tuning.select([analysis], 0.15)
    assert (found.chosen.lower_bits_per_s, found.chosen.upper_bits_per_s) == (analysis.band.lower[2], analysis.band.upper[1])
    assert found.chosen.mean_bits_per_s == pytest.approx(5.65) and not found.chosen.is_measured
    assert found.cautions == (
        "there are no runs at this round trip: the interval spans those at the two nearest",
        "the chosen configuration has too few runs for the coverage of its band",
    )


def test_the_best_of_several_is_to_be_measured_again():
    (caution,) = tuning.select([made(1, 7, 8, 9), made(2, 1, 2, 3)], 0.1).cautions
    assert caution == "the best of 2 noisy means is too high on average: measure the chosen configuration again"
    assert tuning.select([made(1, 7, 8, 9)], 0.1).cautions == ()


def test_configurations_without_an_interval_have_reasons():
    single = analysis_of(2, Profile.of_samples(RTTS_S, [[9, 9.1]] * 3))
    short = analysis_of(3, Profile.of_samples([0.01, 0.05], [[9, 9.2], [8, 8.1]]))
    analyses = [
        made(1, 7, 8, 9),
        replace(single, band=Unavailable("profile: 1 runs at 0.1 s, expected 2 or more")),
        short,
        replace(single, configuration=replace(single.configuration, streams=4), band=Unavailable("profile: it rises after 50 ms")),
        replace(single, configuration=replace(single.configuration, streams=5), profile=Unavailable("none of 30 runs is left")),
    ]
    found = tuning.select(analyses, 0.1)
    assert groups(found)[4] == [2, 3, 4, 5]
    reasons = [one.reason for one in found.excluded]
    assert reasons[0] == "profile: 1 runs at 0.1 s, expected 2 or more"
    assert reasons[1].startswith("rtt_s: 0.1 s was not measured")
    assert reasons[2:] == ["profile: it rises after 50 ms", "none of 30 runs is left"]
    with pytest.raises(ValueError, match=r"(?s)4 configurations, expected one with an interval at 0\.1 s:.*× 2.*1 runs.*× 3.*not measured"):
        tuning.select(analyses[1:], 0.1)


INTERVALS = st.lists(st.tuples(st.integers(1, 20), st.lists(st.floats(1, 100), min_size=3, max_size=3).map(sorted)), min_size=1, max_size=8)


@given(INTERVALS.map(lambda drawn: [made(streams, *ends) for streams, ends in dict(drawn).items()]), st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_each_configuration_is_in_one_group_in_any_order(analyses, random):
    found = tuning.select(analyses, 0.1)
    assert sorted(streams for group in groups(found) for streams in group) == sorted(one.configuration.streams for one in analyses)
    best = max(analyses, key=lambda one: one.band.lower[0])
    assert best.configuration.streams in names([found.chosen, *found.alternatives])
    assert found.chosen.configuration.streams <= best.configuration.streams
    random.shuffle(analyses)
    assert tuning.select(analyses, 0.1) == found


@given(INTERVALS, st.integers(-20, 30))
@settings(max_examples=50, deadline=None)
def test_the_unit_does_not_matter(drawn, exponent):
    found, scaled = (
        tuning.select([made(streams, *(factor * end for end in ends)) for streams, ends in dict(drawn).items()], 0.1)
        for factor in (1, 2.0**exponent)
    )
    assert groups(found) == groups(scaled)
    assert scaled.highest_lower_bits_per_s == 2.0**exponent * found.highest_lower_bits_per_s


def test_runs_of_a_campaign():
    random = np.random.default_rng(1)
    rows = [
        {"run_id": f"{streams} {rtt_s} {repetition}", "tool": "iperf3", "streams": streams, "rtt_s": rtt_s, "repetition": repetition}
        | {"planned_s": 10, "throughput_bits_per_s": 1e9 * min(streams * 0.03 / rtt_s, 0.9) * random.normal(1, 0.02)}
        for streams in (1, 2, 4, 8)
        for rtt_s in (0.01, 0.1)
        for repetition in range(10)
    ]
    found = tuning.select(analyse(Runs.of_rows(rows)), 0.1)
    assert groups(found) == [[4], [8], [], [2, 1], []]
    assert found.chosen.is_reliable and found.chosen.lower_bits_per_s < 0.9e9 < found.chosen.upper_bits_per_s
    found = tuning.select(analyse(Runs.of_rows(rows)), 0.01)
    assert groups(found)[0] == [1]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_selection_is_close_to_the_peak(family):
    (score, streams, excess), (_, most_streams, _) = simulate_selection(FAMILIES[family], 0.1, trials=60, seed=1).mean(axis=0)
    assert score >= 0.93 and streams < most_streams and excess < 0.03


def test_the_highest_of_equal_means_overstates():
    (_, streams, excess), (_, _, highest_excess) = simulate_selection(lambda random: np.ones(32), 0.1, trials=60, seed=1).mean(axis=0)
    assert streams < 2 and excess < 0.03 < highest_excess


def test_unequal_conditions():
    one, other = made(1, 7, 8, 9), made(2, 7, 8, 9)
    for name, value in {"planned_s": 20, "planned_bytes": 10**9, "capacity_bits_per_s": 1e10}.items():
        longer = replace(other, configuration=replace(other.configuration, **{name: value}))
        with pytest.raises(ValueError, match=f"{name} differs between 'iperf3 cubic × 1.* and 'iperf3 cubic × 2"):
            tuning.select([one, longer], 0.1)
    with pytest.raises(ValueError, match="iperf3 cubic × 1, 10 s occurs 2 times"):
        tuning.select([one, other, one], 0.1)
    with pytest.raises(ValueError, match=r"different bands \[\('envelope', 0\.9\), \('envelope', 0\.95\)\]"):
        tuning.select([one, replace(other, band=replace(other.band, coverage=0.9))], 0.1)


def test_another_band():
    profile = Profile.of_samples(RTTS_S, [[0.8] * 500] * 3, capacity_bits_per_s=1)
    found = tuning.select([replace(analysis_of(3, profile), band=hoeffding(profile, coverage=0.9))], 0.1)
    half = math.sqrt(math.log(6 / 0.1) / 1000)
    assert (found.method, found.coverage) == ("hoeffding", 0.9)
    assert found.chosen.lower_bits_per_s == pytest.approx(0.8 - half) and found.chosen.upper_bits_per_s == pytest.approx(0.8 + half)


@pytest.mark.parametrize("rtt_s", [math.nan, math.inf, -0.1, 101, [0.1], "x"])
def test_invalid_round_trips(rtt_s):
    with pytest.raises(ValueError, match="rtt_s"):
        tuning.select([made(1, 7, 8, 9)], rtt_s)


def test_nothing_to_select():
    with pytest.raises(ValueError, match="analyses: there is none"):
        tuning.select([], 0.1)
