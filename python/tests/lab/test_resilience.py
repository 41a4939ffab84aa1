"""`towpath.lab.resilience`: the games of a defender and an attacker, against figures computed by hand and by exhaustive search."""

import doctest
import math
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_games import FALSE, GAMES, ONE, QUADRATIC, TWO

from towpath.lab import resilience
from towpath.lab.resilience import Game, joint_failure, parallel, product_form, series, sum_form

PAGE = Path(__file__).parents[3] / "docs" / "lab" / "resilience.md"
CHECKED = settings(max_examples=40, deadline=None, database=None, print_blob=True)
"""A failing example is printed with the line that reproduces it. Nothing depends on time."""


def digits(values):
    return pytest.approx(values, rel=0, abs=1e-6)


@pytest.mark.parametrize("name", GAMES)
def test_games_have_their_points_and_verdicts(name):
    game, x, y, success, survival, costs, verdict = GAMES[name]
    (found,) = resilience.solve(game)
    assert found.defender_efforts == digits(x) and found.attacker_efforts == digits(y)
    assert found.success == digits(success) and found.infrastructure_success == digits(survival)
    assert (found.defender_cost, found.attacker_cost) == digits(costs)
    assert found.verdict == verdict and found.is_equilibrium == (verdict == "equilibrium")
    rounded = resilience.certify(game, x, y)
    assert rounded.verdict == verdict and rounded.exploitability == pytest.approx(found.exploitability, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "role", "gain", "reply"),
    [
        ("G3", "attacker", 0.6, [0]),
        ("G5", "defender", 0.12, [0, 0]),
        ("G8", "attacker", 0.120655, None),
        ("G9", "attacker", 0.155556, [0, 0]),
    ],
)
def test_refused_points_come_with_a_better_reply(name, role, gain, reply):
    game = GAMES[name][0]
    (found,) = resilience.solve(game)
    assert getattr(found, f"{role}_gain") == found.exploitability == digits(gain)
    better = getattr(found, f"{role}_reply")
    assert reply is None or better.effort.tolist() == reply
    x, y = (better.effort, found.attacker_efforts) if role == "defender" else (found.defender_efforts, better.effort)
    cost = game.costs(x, y)[role == "attacker"]
    assert cost == pytest.approx(better.cost, rel=1e-12)
    assert cost == digits(getattr(found, f"{role}_cost") - gain)


@pytest.mark.parametrize(("correlation", "gain"), [(0.1, 0), (0.15, 0.011691), (0.2, 0.047889), (0.3, 0.120655)])
def test_correlated_failures_let_the_attacker_drop_a_site(correlation, gain):
    (found,) = resilience.solve(Game(*TWO, joint_failure(correlation)))
    assert found.attacker_gain == digits(gain) and found.defender_gain == digits(0)
    assert gain == 0 or found.attacker_reply.effort[0] == 0 < found.attacker_reply.effort[1]


@pytest.mark.parametrize("name", ["G1", "G2", "G3", "G4", "G5", "G7", "G8", "G9"])
def test_no_reply_on_a_grid_is_better_than_the_best(name):
    """The costs are those of the definition, with numpy alone."""
    game, x, y, *_ = GAMES[name]
    rho = {"G7": 0.1, "G8": 0.3}.get(name, 0.0)
    grid = np.concatenate([[0.0], np.geomspace(1e-6, 10, 400 if len(x) == 2 else 20_000)])
    efforts = np.stack(np.meshgrid(*[grid] * len(x), indexing="ij"), axis=-1)

    def survival(x, y):
        p = x**game.exponent / (x**game.exponent + y**game.exponent)
        if name == "G9":
            return 1 - (1 - p).prod(axis=-1)
        return p.prod(axis=-1) + rho * np.sqrt((p * (1 - p)).prod(axis=-1))

    found = resilience.certify(game, x, y)
    least = np.min(game.defender.gain * (1 - survival(efforts, np.array(y))) + efforts @ game.defender.unit_costs)
    assert found.defender_reply.cost <= least + 1e-9 and found.defender_reply.cost == pytest.approx(least, rel=2e-3)
    least = np.min(game.attacker.gain * survival(np.array(x), efforts) + efforts @ game.attacker.unit_costs)
    assert found.attacker_reply.cost <= least + 1e-9 and found.attacker_reply.cost == pytest.approx(least, rel=2e-3)


def test_the_estimate_holds_at_all_stationary_points_and_nowhere_else():
    for name in ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G10"):
        game = GAMES[name][0]
        ((x, y),) = resilience.stationary_points(game)
        estimate = resilience.estimate_success(game, x, y)
        assert estimate.success == pytest.approx(estimate.contest_success, rel=1e-6), name
        elsewhere = resilience.estimate_success(game, 1.1 * x, y)
        assert np.all(np.abs(elsewhere.success - elsewhere.contest_success) > 1e-3), name


def test_terms_of_the_estimate():
    independent, correlated = (resilience.estimate_success(GAMES[name][0], *GAMES[name][1:3]) for name in ("G4", "G7"))
    assert independent.correlations == digits([1 / 3, 0.2]) and independent.correlation_slopes == digits([0, 0])
    assert independent.multipliers == digits([0.2 / 2.133333, 1 / 3 / 1.777778])
    assert correlated.correlations == digits([0.427614, 0.256569])
    assert correlated.correlation_slopes == digits([0.023335, 0.016196])


def test_slopes_of_correlations_are_those_of_differences():
    game, x, y = Game(*TWO, joint_failure(0.2), exponent=1.5), np.array([1.3, 0.7]), np.array([0.9, 0.8])
    step = 1e-5
    for site in range(2):
        shift = step * np.eye(2)[site]
        after, before = (resilience.estimate_success(game, x + sign * shift, y).correlations[site] for sign in (1, -1))
        assert resilience.estimate_success(game, x, y).correlation_slopes[site] == pytest.approx((after - before) / (2 * step), rel=1e-6)


def test_coefficients_that_are_no_probability_are_refused():
    for call in (
        lambda: resilience.correlations(parallel, [0.8, 2 / 3]),
        lambda: resilience.estimate_success(GAMES["G9"][0], *GAMES["G9"][1:3]),
    ):
        with pytest.raises(ValueError, match=r"coefficient of site 0 is 2\.3333"):
            call()
    with pytest.raises(ValueError, match=r"coefficient of site 1 is 1\.4"):
        resilience.correlations(parallel, [0.8, 2 / 3], [1, 0.8])


def test_a_rest_of_another_structure_is_accepted():
    # Site 0 in series with two parallel sites.
    def mixed(p):
        return p[..., 0] * parallel(p[..., 1:])

    assert resilience.correlations(mixed, [0.9, 0.8, 0.5], [0.9, 0.9, 0.9])[0] == pytest.approx(0.1)
    assert resilience.correlations(series, [0.5]) == 0


def test_a_denominator_of_zero_is_an_error():
    # Site 1 only fails with site 0: C = 1 without a slope.
    game = Game(*TWO, lambda p: np.min(p, axis=-1))
    with pytest.raises(ValueError, match="estimate of site 1 has the denominator 0"):
        resilience.estimate_success(game, [1, 1], [2, 1])


def test_contests():
    assert resilience.contest_success(2, 1) == pytest.approx(2 / 3)
    assert resilience.contest_success([0, 3, 0], [2, 0, 0]).tolist() == [0, 1, 0.5]
    assert resilience.contest_success(0, 0, success_without_effort=1) == 1
    assert resilience.contest_success(3, 1, 2) == pytest.approx(0.9)
    assert resilience.contest_success(3e200, 1e200, 2) == pytest.approx(0.9)


@CHECKED
@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9), st.floats(0.1, 20), st.floats(1e-6, 1e6))
def test_contests_depend_on_the_ratio_of_efforts(x, y, exponent, scale):
    success = resilience.contest_success(x, y, exponent)
    assert success == pytest.approx(resilience.contest_success(scale * x, scale * y, exponent), rel=1e-9, abs=1e-300)
    assert success + resilience.contest_success(y, x, exponent) == pytest.approx(1)
    assert resilience.contest_success(2 * x, y, exponent) >= success


PROBABILITIES = st.lists(st.floats(0, 1), min_size=2, max_size=2)


@CHECKED
@given(PROBABILITIES, st.floats(0, 1))
def test_structures_are_probabilities_in_order(p, correlation):
    p = np.array(p)
    independent, joint = series(p), joint_failure(correlation)(p)
    assert 0 <= independent <= joint + 1e-15 and joint <= p.min() <= p.max() <= parallel(p) + 1e-15 <= 1 + 2e-15
    assert joint == joint_failure(correlation)(p[::-1]) and joint_failure(0)(p) == independent
    if p.max() < 1:
        assert np.all(resilience.correlations(joint_failure(correlation), p) <= 1)


def two_of_three(p):
    """Returns the probability that at least two of three sites survive."""
    a, b, c = p[..., 0], p[..., 1], p[..., 2]
    return a * b + a * c + b * c - 2 * a * b * c


STRUCTURES = st.sampled_from([series, parallel, two_of_three])
COST = st.floats(0.7, 1.5)
COSTS = st.tuples(COST, COST, COST)
GAIN = st.floats(3, 10)
"""Larger ratios of gains would make some sites matter too little."""


@CHECKED
@given(GAIN, COSTS, GAIN, COSTS, STRUCTURES, st.floats(0.3, 2))
def test_linear_games_have_the_closed_form_for_each_structure(gain_d, c, gain_a, d, structure, exponent):
    ratio = ((gain_d / np.array(c)) / (gain_a / np.array(d))) ** exponent
    game = Game(sum_form(gain_d, c), sum_form(gain_a, d), structure, exponent)
    points = resilience.stationary_points(game, starts=3)
    assert len(points) == 1
    x, y = points[0]
    assert game.success(x, y) == pytest.approx(ratio / (1 + ratio), rel=1e-6)
    # Neither player gains by a small change at one site.
    costs = game.costs(x, y)
    for site in range(3):
        for step in (1e-4, -1e-4):
            shift = 1 + step * np.eye(3)[site]
            assert abs(game.costs(x * shift, y)[0] - costs[0]) < 1e-7 * gain_d
            assert abs(game.costs(x, y * shift)[1] - costs[1]) < 1e-7 * gain_a


@settings(CHECKED, max_examples=10)
@given(GAIN, st.tuples(COST, COST), GAIN, st.tuples(COST, COST), st.floats(1e-6, 1e6), st.floats(0.5, 1.5))
def test_units_and_the_order_of_sites_do_not_matter(gain_d, c, gain_a, d, scale, exponent):
    def only(costs_d, costs_a, unit, factor=1.0):
        defender = sum_form(unit * gain_d, factor * unit * np.array(costs_d))
        attacker = sum_form(unit * gain_a, factor * unit * np.array(costs_a))
        return resilience.solve(Game(defender, attacker, joint_failure(0.1), exponent), starts=2)[0]

    found, other_unit, other_effort, reversed_ = only(c, d, 1), only(c, d, scale), only(c, d, 1, 1 / scale), only(c[::-1], d[::-1], 1)
    assert other_unit.defender_efforts == pytest.approx(found.defender_efforts, rel=1e-6)
    assert other_unit.attacker_cost == pytest.approx(scale * found.attacker_cost, rel=1e-6)
    assert other_effort.defender_efforts == pytest.approx(scale * found.defender_efforts, rel=1e-6)
    assert reversed_.attacker_efforts[::-1] == pytest.approx(found.attacker_efforts, rel=1e-6)
    for other in (other_unit, other_effort, reversed_):
        assert other.verdict == found.verdict or found.exploitability < 1e-5 * max(found.defender_cost, found.attacker_cost)


def test_a_larger_gain_of_the_defender_raises_the_survival():
    survivals = [resilience.solve(Game(sum_form(gain, [1, 2]), TWO[1]))[0].infrastructure_success for gain in (10, 20, 40, 80)]
    assert survivals == sorted(survivals) and survivals[0] < survivals[-1]


def test_a_verdict_needs_a_stationary_point():
    game = GAMES["G1"][0]
    assert resilience.certify(game, [2.2], [1.0]).verdict == "not an equilibrium"
    assert resilience.certify(game, [0], [0]).verdict == "not an equilibrium"
    assert resilience.certify(game, [1], [0]).defender_gain == pytest.approx(1, abs=1e-6)


def test_a_tiny_unit_of_cost_hides_no_gain():
    (found,) = resilience.solve(Game(sum_form(10e-9, [1e-9]), sum_form(5e-9, [1e-9]), exponent=2))
    assert found.verdict == FALSE and found.attacker_gain == pytest.approx(0.6e-9)


def test_quadratic_costs_in_the_sum_form():
    # 10 P(1-P) = 2 x**2 of both players with P = 1/2.
    player = sum_form(10, [0], squared_costs=[1])
    (found,) = resilience.solve(Game(player, player))
    assert found.is_equilibrium and found.defender_efforts == pytest.approx([math.sqrt(1.25)])


def test_hopeless_games_have_no_resolved_point():
    assert resilience.stationary_points(Game(sum_form(1e9, [1]), sum_form(1, [1]), exponent=4)) == ()


def test_the_same_seed_gives_the_same_reply():
    game, _, y, *_ = GAMES["G4"]
    one, again = (resilience.best_reply(game, "defender", y, seed=3) for _ in range(2))
    assert one.cost == again.cost and one.effort.tolist() == again.effort.tolist()


def test_a_reply_to_a_mixed_strategy():
    # Against 0 or 2.5 with equal probability, the cost of G3's defender is 5 (1 - x**2 / (x**2 + 2.5**2)) + x.
    game = GAMES["G3"][0]
    reply = resilience.best_reply(game, "defender", [[0], [2.5]], [0.5, 0.5])
    x = np.linspace(1e-9, 10, 200_001)
    costs = 5 * 6.25 / (x**2 + 6.25) + x
    # The smallest effort above 0 costs as much as 2.5.
    assert reply.cost == pytest.approx(costs.min(), abs=1e-6)


def test_the_equilibrium_of_g1_over_integers_is_the_only_one():
    solution = resilience.mixed_equilibria(GAMES["G1"][0], range(7), range(7))
    (found,) = solution.equilibria
    assert solution.is_complete
    assert found.defender_efforts.tolist() == [[2]] and found.attacker_efforts.tolist() == [[1]]
    assert found.defender_probabilities.tolist() == found.attacker_probabilities.tolist() == [1]
    assert (found.defender_cost, found.attacker_cost) == digits((16 / 3, 13 / 3))
    # The best continuous replies are sqrt(10) - 1 and sqrt(10) - 2.
    defence, attack = 16 / 3 - (2 * math.sqrt(10) - 1), 13 / 3 - (2 * math.sqrt(10) - 2)
    assert found.exploitability == digits(max(defence, attack))


def test_a_game_without_pure_equilibrium_has_a_mixed_one():
    # In G3 the attacker is indifferent between 0 and 2.5 at x = 2.5: both cost 5.
    solution = resilience.mixed_equilibria(GAMES["G3"][0], np.linspace(0, 4, 65), np.linspace(0, 4, 65))
    (found,) = solution.equilibria
    assert not solution.is_complete and found.exploitability < 3e-4
    assert found.defender_efforts == pytest.approx(np.array([[2.5]]))
    assert found.attacker_efforts == pytest.approx(np.array([[0], [2.5]])) and found.attacker_probabilities == pytest.approx(0.5, abs=0.01)
    assert (found.defender_cost, found.attacker_cost) == pytest.approx((5, 5), abs=0.05)


@pytest.mark.parametrize("name", ["G5", "G8", "G9"])
def test_two_sites_have_a_mixed_equilibrium(name):
    levels = np.linspace(0, 3, 13)
    for found in resilience.mixed_equilibria(GAMES[name][0], levels, levels).equilibria:
        assert found.defender_probabilities.sum() == pytest.approx(1) == found.attacker_probabilities.sum()
        assert 0 <= found.exploitability < 0.04
        assert max(len(found.defender_probabilities), len(found.attacker_probabilities)) > 1


def equilibria(*matrices):
    return sorted((np.round(p, 9).tolist(), np.round(q, 9).tolist()) for p, q in resilience.enumerate_supports(*map(np.array, matrices)))


def test_supports_of_textbook_games():
    pennies = [[0, 1], [1, 0]]
    assert equilibria(pennies, np.subtract(1, pennies)) == [([0.5, 0.5], [0.5, 0.5])]
    rock = np.array([[0, 1, -1], [-1, 0, 1], [1, -1, 0]])
    third = np.round([1 / 3] * 3, 9).tolist()
    assert equilibria(rock, -rock) == [(third, third)]
    # Battle of the sexes: two pure equilibria and a mixed one.
    mixed = (np.round([0.6, 0.4], 9).tolist(), np.round([0.4, 0.6], 9).tolist())
    assert equilibria([[-3, 0], [0, -2]], [[-2, 0], [0, -3]]) == [([0, 1], [0, 1]), mixed, ([1, 0], [1, 0])]


def test_ties_hide_no_equilibrium():
    # The attacker is always indifferent. Strategy 0 of the defender is a best reply only to one mixture, where all strategies are.
    found = equilibria([[1, 1], [0, 2], [2, 0]], np.zeros((3, 2)))
    assert ([1, 0, 0], [0.5, 0.5]) in found and ([0, 1, 0], [1, 0]) in found and len(found) == 5


@CHECKED
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.integers(0, 10**6))
def test_both_algorithms_agree(rows, columns, largest, seed):
    """Small integers give games with ties."""
    a, b = np.random.default_rng(seed).integers(0, largest + 1, (2, rows, columns))
    extreme = resilience.enumerate_supports(a, b)
    for p, q in resilience.follow_labels(a, b):
        assert any(np.allclose(p, other) and np.allclose(q, another) for other, another in extreme)
    for p, q in extreme:
        assert p @ a @ q == pytest.approx(np.min(a @ q)) and p @ b @ q == pytest.approx(np.min(p @ b))


@pytest.mark.parametrize("largest", [1, 5, 10**6])
def test_large_games_have_an_equilibrium(largest):
    a, b = np.random.default_rng(1).integers(0, largest + 1, (2, 40, 30))
    for p, q in resilience.follow_labels(a, b):
        assert p.sum() == pytest.approx(1) == q.sum()
        assert p @ a @ q == pytest.approx(np.min(a @ q), abs=1e-6 * largest)
        assert p @ b @ q == pytest.approx(np.min(p @ b), abs=1e-6 * largest)


GAME = GAMES["G4"][0]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: resilience.contest_success(-1, 1), "defender: -1.0 is out of range"),
        (lambda: resilience.contest_success(1, [1, math.nan]), "attacker: nan is out of range"),
        (lambda: resilience.contest_success([1, 2], [1, 2, 3]), "attacker: shape (3,)"),
        (lambda: resilience.contest_success([], 1), "defender: no numbers"),
        (lambda: resilience.contest_success(1, 1, 0), "exponent: 0 is out of range"),
        (lambda: resilience.contest_success(1, 1, math.inf), "exponent: inf is out of range"),
        (lambda: resilience.contest_success(1, 1, 1, 1.5), "success_without_effort: 1.5 is out of range"),
        (lambda: series([0.5, math.nan]), "success: [0.5 nan]"),
        (lambda: parallel(0.5), "success: shape ()"),
        (lambda: joint_failure(-0.1), "correlation: -0.1 is out of range"),
        (lambda: joint_failure(0.1)([0.5] * 3), "success: 3 sites: expected 2"),
        (lambda: sum_form(0, [1]), "gain: 0 is out of range"),
        (lambda: sum_form(1, [1, 0]), "unit_costs[1]: 0 without a squared cost"),
        (lambda: sum_form(1, [1] * 9), "unit_costs: shape (9,)"),
        (lambda: sum_form(1, 1.0), "unit_costs: shape ()"),
        (lambda: sum_form(1, [1, 2], squared_costs=[1]), "squared_costs: shape (1,)"),
        (lambda: product_form(0, [1]), "fixed_cost: 0 is out of range"),
        (lambda: Game(sum_form(1, [1, 1]), sum_form(1, [1])), "attacker: costs of 1 sites: expected 2"),
        (lambda: Game(product_form(3, [1]), QUADRATIC), "defender: the product form is degenerate"),
        (lambda: Game(QUADRATIC, product_form(3, [1])), "attacker: the product form is degenerate"),
        (lambda: Game(QUADRATIC, QUADRATIC, exponent=2), "defender: the product form is degenerate"),
        (lambda: Game(*TWO, lambda p: p), "structure: returned [["),
        (lambda: Game(*TWO, lambda p: p.sum(axis=-1)), "structure: returned ["),
        (lambda: Game(*TWO, lambda p: 1 - p.prod(axis=-1)), "structure: decreases"),
        (lambda: Game(*ONE, joint_failure(0.1)).success([1, 1], [1, 1]), "x: shape (2,): expected 1"),
        (lambda: GAME.success([[1, 1]] * 2, [[1, 1]] * 3), "y: shape (3, 2)"),
        (lambda: resilience.correlations(series, [0.5, 1]), "success: [0.5 1. ]"),
        (lambda: resilience.correlations(series, [0.5, 0.5], [0.5]), "rest: shape (1,)"),
        (lambda: resilience.correlations(two_of_three, [0.5] * 3), "rest: the structure does not accept 2 sites"),
        (lambda: resilience.estimate_success(GAME, [1, 0], [1, 1]), "x: [1. 0.]: expected 2 efforts above 0"),
        (lambda: resilience.stationary_points(GAME, starts=0), "starts: 0 is out of range"),
        (lambda: resilience.stationary_points(GAME, seed=-1), "seed: -1 is out of range"),
        (lambda: resilience.certify(GAME, [[1, 1]], [1, 1]), "x: shape (1, 2)"),
        (lambda: resilience.certify(GAME, [1, 1], [1, math.inf]), "y: inf is out of range"),
        (lambda: resilience.best_reply(GAME, "referee", [1, 1]), "role: 'referee'"),
        (lambda: resilience.best_reply(GAME, "defender", [[[1, 1]]]), "opponent: shape (1, 1, 2)"),
        (lambda: resilience.best_reply(GAME, "defender", np.ones((257, 2))), "opponent: shape (257, 2)"),
        (lambda: resilience.best_reply(GAME, "defender", [1, 1], [0.5]), "weights: [0.5]: expected 1 probabilities"),
        (lambda: resilience.best_reply(GAME, "defender", [1, 1], [math.nan]), "weights: [nan]"),
        (lambda: resilience.mixed_equilibria(GAME, range(17), range(3)), "defender_levels: 17 levels at 2 sites"),
        (lambda: resilience.mixed_equilibria(GAME, range(3), [1, 1]), "attacker_levels: [1. 1.]: expected different"),
        (lambda: resilience.mixed_equilibria(GAME, [], [1]), "defender_levels: no numbers"),
        (lambda: resilience.enumerate_supports(np.ones((9, 9)), np.ones((9, 9))), "more than 20000 pairs"),
        (lambda: resilience.enumerate_supports([1, 2], [1, 2]), "defender_costs: shape (2,)"),
        (lambda: resilience.follow_labels([[1, 2]], [[1], [2]]), "attacker_costs: shape (2, 1)"),
        (lambda: resilience.follow_labels([[1]], [[math.nan]]), "attacker_costs: expected finite"),
        (lambda: resilience.follow_labels(np.ones((257, 1)), np.ones((257, 1))), "defender_costs: shape (257, 1)"),
    ],
)
def test_wrong_arguments_are_errors_with_their_names(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


@pytest.mark.parametrize("name", ["", ".model", ".estimate", ".equilibria", ".mixed"])
def test_the_examples_of_the_docstrings_are_true(name):
    results = doctest.testmod(import_module(f"towpath.lab.resilience{name}"))
    assert results.attempted > 0 == results.failed


def test_the_examples_of_the_page_run():
    namespace = {}
    for example in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(example, PAGE, "exec"), namespace)
