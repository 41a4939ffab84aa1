"""Utilization-concavity coefficients."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from towpath.lab.profiles import Profile
from towpath.lab.utilization import coefficients, coefficients_of, difference, esnet_coefficients, intervals, site_effects

FINE = np.linspace(0, 1, 20_001)


@pytest.mark.parametrize(
    ("rtts", "rates", "mean", "concavity", "utilization"),
    [
        ([0, 1], [1, 1], 1, 0, 0.75),
        ([0, 1], [0.6, 0.6], 0.6, 0, 0.55),
        ([0, 1], [1, 0], 0.5, 0, 0.5),
        ([0, 1], [1, 0.5], 0.75, 0, 0.625),
        ([0, 1 - 1e-12, 1], [1, 1, 0], 1, 0.5, 1),
        ([0, 0.3, 0.3 + 1e-12, 1], [1, 1, 0, 0], 0.3, -0.2, 0.3),
        ([0, 1e-12, 1], [1, 0, 0], 0, -0.5, 0),
    ],
)
def test_piecewise_linear_profiles(rtts, rates, mean, concavity, utilization):
    found = coefficients(rtts, rates, capacity_bits_per_s=1)
    result = (1 - found.under_utilization, found.concavity, found.utilization_concavity)
    assert result == pytest.approx((mean, concavity, utilization), abs=1e-9)


@pytest.mark.parametrize(
    ("rates", "mean", "concavity", "utilization"),
    [
        (1 - FINE**2, 2 / 3, 1 / 6, 2 / 3),
        ((1 - FINE) ** 2, 1 / 3, -1 / 6, 1 / 3),
        (np.sqrt(1 - FINE**2), np.pi / 4, 0.285398, 0.785398),
        (1 - np.sqrt(1 - (1 - FINE) ** 2), 1 - np.pi / 4, -0.285398, 0.214602),
        (np.exp(-5 * FINE), 0.198652, -0.304717, 0.196968),
    ],
)
def test_curves(rates, mean, concavity, utilization):
    found = coefficients(FINE, rates, capacity_bits_per_s=1)
    assert (1 - found.under_utilization, found.concavity, found.utilization_concavity) == pytest.approx(
        (mean, concavity, utilization), abs=1e-4
    )


@pytest.mark.parametrize(("limit_s", "utilization"), [(0.01, 0.11790), (0.05, 0.37375)])
def test_buffer_limited_profiles(limit_s, utilization):
    rtts_s = np.linspace(0.0004, 0.366, 200_001)
    found = coefficients(rtts_s, np.minimum(1, limit_s / rtts_s), capacity_bits_per_s=1)
    assert found.utilization_concavity == pytest.approx(utilization, abs=1e-5)


# fmt: off
ESNET = {
    # ESnet's testing harness, August 2021: sender's Gbit/s, transport, streams; means of (round trip in ms, Gbit/s).
    (10, "bbr2", 1): [
        (5, 7.17575),
        (6, 8.084),
        (13, 7.1764),
        (73, 9.481),
        (83, 4.061),
        (89, 7.3145),
        (106, 4.9284),
        (109, 0.677),
        (110, 0.782),
        (111, 0.764),
        (112, 0.696),
        (117, 0.2766),
        (152, 0.32675),
        (153, 0.316),
        (188, 2.72266666667),
        (194, 6.716),
        (244, 2.08425),
        (245, 2.087),
    ],
    (10, "bbr2", 16): [
        (11, 8.139),
        (12, 8.8205),
        (20, 9.2574),
        (74, 9.649),
        (83, 1.493),
        (84, 2.669),
        (86, 2.8),
        (90, 9.1412),
        (106, 9.172),
        (107, 9.218),
        (112, 0.91825),
        (113, 0.852),
        (118, 0.97125),
        (119, 0.976),
        (152, 0.3615),
    ],
    (10, "cubic", 1): [
        (5, 6.21375),
        (6, 5.749),
        (13, 6.2478),
        (73, 9.7336),
        (83, 2.7808),
        (89, 3.0195),
        (91, 3.658),
        (106, 5.0006),
        (112, 0.5455),
        (113, 0.692666666667),
        (117, 0.2352),
        (151, 0.143),
        (152, 0.2735),
        (188, 2.7762),
        (244, 2.1374),
    ],
    (10, "cubic", 16): [
        (14, 8.195),
        (15, 7.812),
        (16, 7.31),
        (75, 9.7544),
        (77, 9.475),
        (84, 5.8414),
        (91, 9.456),
        (93, 9.499),
        (95, 9.042),
        (98, 9.4835),
        (107, 9.14066666667),
        (108, 9.272),
        (113, 0.8302),
        (118, 0.9072),
        (152, 0.1918),
    ],
    (40, "bbr2", 1): [
        (5, 7.9188),
        (13, 6.6128),
        (73, 9.48),
        (89, 7.3654),
        (106, 4.93625),
        (110, 0.7125),
        (111, 0.744),
        (112, 0.727),
        (117, 0.277),
        (151, 0.34125),
        (153, 0.343),
        (188, 2.7272),
        (243, 2.093),
        (244, 2.0885),
    ],
    (40, "bbr2", 16): [
        (12, 8.51025),
        (13, 8.353),
        (28, 9.26533333333),
        (31, 9.285),
        (32, 9.285),
        (73, 9.75366666667),
        (74, 9.749),
        (84, 5.552),
        (85, 5.953),
        (86, 4.8125),
        (106, 9.2132),
        (112, 0.9156),
        (118, 0.973),
        (152, 0.3632),
    ],
    (40, "cubic", 1): [
        (5, 5.45425),
        (6, 5.779),
        (13, 5.5768),
        (73, 9.7328),
        (83, 0.683),
        (84, 0.16),
        (89, 5.914),
        (90, 1.255),
        (106, 5.002),
        (110, 0.402),
        (111, 0.73),
        (112, 0.587),
        (117, 0.2635),
        (118, 0.281),
        (151, 0.191),
        (152, 0.215666666667),
        (166, 3.064),
        (188, 2.6808),
        (244, 2.13533333333),
        (245, 2.141),
        (361, 2.99),
    ],
    (40, "cubic", 16): [
        (12, 8.32266666667),
        (13, 8.363),
        (69, 9.489),
        (73, 8.9336),
        (76, 9.489),
        (83, 5.823),
        (85, 9.476),
        (86, 9.482),
        (89, 10.4016),
        (90, 9.475),
        (106, 8.3604),
        (111, 0.79925),
        (112, 0.745),
        (118, 0.909),
        (145, 0.3218),
    ],
}
# fmt: on


@pytest.mark.parametrize(
    ("name", "utilization", "variation", "combined", "ours"),
    [
        ((10, "bbr2", 16), 0.6313753539, 0.3041405953, 0.5222971010, 0.678310),
        ((10, "cubic", 16), 0.6096386012, 0.4049608076, 0.5414126700, 0.667930),
        ((10, "bbr2", 1), 0.4768156632, 0.2541724896, 0.4026012720, 0.486629),
        ((10, "cubic", 1), 0.4132877275, 0.3946739976, 0.4070831509, 0.421191),
        ((40, "bbr2", 16), 0.6055999914, 0.4124084247, 0.5412028025, 0.655575),
        ((40, "cubic", 16), 0.6248640572, 0.4445784289, 0.5647688478, 0.677432),
        ((40, "bbr2", 1), 0.4162831263, 0.5227177213, 0.4517613246, 0.425283),
        ((40, "cubic", 1), 0.3658498181, 0.2105749543, 0.3140915301, 0.370523),
    ],
)
def test_profiles_of_esnet(name, utilization, variation, combined, ours):
    rtts_s, rates = np.array(ESNET[name]).T * np.array([[1e-3], [1e9]])
    found, own = esnet_coefficients(rtts_s, rates), coefficients(rtts_s, rates)
    assert own.variation == pytest.approx(found.variation) and own.combined == pytest.approx(
        (2 * own.utilization_concavity + own.variation) / 3
    )
    assert (found.utilization_concavity, found.variation, found.combined) == pytest.approx((utilization, variation, combined), abs=1e-9)
    assert coefficients(rtts_s, rates).utilization_concavity == pytest.approx(ours, abs=1e-6)


PROFILES = st.lists(st.tuples(st.floats(1e-4, 1), st.floats(0, 1)), min_size=2, max_size=9, unique_by=lambda point: round(point[0], 3))


@given(PROFILES, st.floats(0.01, 100), st.floats(1e3, 1e10))
@settings(max_examples=100, deadline=None)
def test_units_do_not_count_and_both_formulas_agree(points, of_rtts, of_rates):
    rtts, rates = np.array(sorted(points)).T
    assume(rates.max() > 0)
    found = coefficients(rtts, rates, capacity_bits_per_s=1)
    scaled = coefficients(of_rtts * rtts, of_rates * rates, capacity_bits_per_s=of_rates)
    assert scaled.utilization_concavity == pytest.approx(found.utilization_concavity, abs=1e-9)
    chord = (rates[0] + rates[-1]) / 2
    assert found.utilization_concavity == pytest.approx(1 - found.under_utilization - chord / 2 + 0.25, abs=1e-12)
    assert 0 <= found.under_utilization <= 1
    decreasing = coefficients(rtts, np.sort(rates)[::-1], capacity_bits_per_s=1)
    assert abs(decreasing.concavity) <= 0.5 + 1e-9 and -1e-9 <= decreasing.utilization_concavity <= 1 + 1e-9


def test_coefficients_have_intervals():
    random = np.random.default_rng(1)
    rtts_s = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183, 366]) / 1e3
    truth = 1 / (1 + np.exp(20 * (rtts_s - 0.1)))
    true_value, covered = coefficients(rtts_s, truth, capacity_bits_per_s=1).utilization_concavity, 0
    for trial in range(60):
        samples = [np.clip(value * (1 + 0.1 * random.standard_normal(10)), 0, 1) for value in truth]
        profile = Profile.of_samples(rtts_s, samples, capacity_bits_per_s=1)
        found = intervals(profile, samples=300, seed=trial)["utilization_concavity"]
        assert found.value == coefficients_of(profile).utilization_concavity and found.lower < found.value < found.upper
        covered += found.lower <= true_value <= found.upper
    assert covered >= 50


@pytest.mark.parametrize(("runs", "lowest"), [(2, 0.86), (3, 0.88), (10, 0.9)])
def test_intervals_of_few_runs_are_wider(runs, lowest):
    random, covered = np.random.default_rng(2), 0
    rtts_s = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183, 366]) / 1e3
    truth = 0.95 / (1 + np.exp(20 * (rtts_s - 0.1)))
    true_value = coefficients(rtts_s, truth, capacity_bits_per_s=2).under_utilization
    for trial in range(200):
        samples = [value * (1 + 0.1 * random.standard_normal(runs)).clip(0) for value in truth]
        found = intervals(Profile.of_samples(rtts_s, samples, capacity_bits_per_s=2), samples=200, seed=trial)["under_utilization"]
        covered += found.lower <= true_value <= found.upper
    assert covered >= 200 * lowest


@pytest.mark.parametrize("runs", [2, 3, 10])
def test_intervals_hold_where_one_round_trip_has_most_of_the_variance(runs):
    random, covered = np.random.default_rng(3), 0
    rtts_s = np.array([0.4, 11.8, 22.6, 45.6, 91.6, 183, 366]) / 1e3
    truth, errors = np.array([0.9, 0.9, 0.9, 0.8, 0.7, 0.5, 0.3]), np.array([0.001, 0.001, 0.001, 0.001, 0.001, 0.1, 0.001])
    true_value = coefficients(rtts_s, truth, capacity_bits_per_s=2).utilization_concavity
    for trial in range(200):
        samples = [value + error * random.standard_normal(runs) for value, error in zip(truth, errors, strict=True)]
        found = intervals(Profile.of_samples(rtts_s, samples, capacity_bits_per_s=2), samples=200, seed=trial)["utilization_concavity"]
        covered += found.lower <= true_value <= found.upper
    assert covered >= 200 * 0.9


def test_only_coefficients_of_the_same_round_trips_compare():
    one, other = coefficients([0.1, 0.2], [2, 1]), coefficients([0.1, 0.2], [4, 1])
    assert difference(one, other) == pytest.approx(0.0625)
    with pytest.raises(ValueError, match="of different sets do not compare"):
        difference(one, coefficients([0.1, 0.3], [2, 1]))
    with pytest.raises(ValueError, match="normalised by capacity, not by maximum"):
        difference(one, coefficients([0.1, 0.2], [2, 1], capacity_bits_per_s=4))


def test_the_site_outweighs_the_round_trip_where_fast_and_slow_sites_alternate():
    sites, rtts_s = np.repeat([f"site{number}" for number in range(8)], 3), np.repeat(np.linspace(0.01, 0.2, 8), 3)
    slow = np.repeat([1, 0, 1, 0, 1, 0, 1, 0], 3)
    assert site_effects(sites, rtts_s, np.where(slow, 1e9, 9e9)).verdict == "site outweighs RTT"
    effects = site_effects(sites, rtts_s, 1e10 - 4e10 * rtts_s)
    assert effects.verdict == "RTT outweighs site" and effects.monotone_part == 1
    # One site with a slow link.
    effects = site_effects(sites, rtts_s, np.where(sites == "site2", 1e9, 1e10 - 1e10 * rtts_s))
    assert effects.sites[int(np.argmin(effects.residuals_bits_per_s))] == "site2"


def test_equal_sites_are_undecided():
    random = np.random.default_rng(4)
    sites, rtts_s = np.repeat(list("abcdefgh"), 10), np.repeat(np.linspace(0.01, 0.2, 8), 10)
    verdicts = [site_effects(sites, rtts_s, 5e9 * (1 + 0.05 * random.standard_normal(80))).verdict for _ in range(60)]
    assert verdicts.count("undecided") >= 57


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coefficients([0.1], [1]), "two at least"),
        (lambda: coefficients([0.1, 0.1], [1, 1]), "expected increasing values"),
        (lambda: coefficients([0.1, 0.2], [1, float("inf")]), "expected 0 or more"),
        (lambda: coefficients([0.1, 0.2], [0, 0]), "one above 0"),
        (lambda: coefficients([0.1, 0.2], [1.03, 1], capacity_bits_per_s=1), "1.03 is more than the capacity of 1 bit/s"),
        (lambda: esnet_coefficients([0.1, 0.2], [1, 1]), "there is no variation"),
        (lambda: intervals(Profile.of_samples([0.1, 0.2], [[1], [1, 2]])), r"a single run at 0\.1 s"),
        (lambda: site_effects(["a", "b"], [1, 2], [1, 2]), "expected three or more"),
        (lambda: site_effects(["a", "b", "c"], [1, 2, 3], [1, 2, 3]), "a single run of each"),
    ],
)
def test_invalid_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
