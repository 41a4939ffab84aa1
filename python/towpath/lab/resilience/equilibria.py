"""Stationary points of a game, and the search that decides whether they are equilibria.

    >>> from towpath.lab.resilience.model import Game, series, sum_form
    >>> (found,) = solve(Game(sum_form(5, [1, 1]), sum_form(20, [1, 1]), series))
    >>> found.verdict, found.defender_reply.effort.tolist(), round(found.defender_gain, 6)
    ('stationary, not an equilibrium', [0.0, 0.0], 0.12)

At a stationary point no small change of one player's efforts has an effect of first order on its cost. Large changes can still pay, such
as to give up all sites. `certify` therefore minimises the cost of each player over all efforts, the other player's efforts being fixed.

Only stationary points with effort of both players at each site are sought: at a site with effort of one player, this player can spend
less, and at a site without effort, the smallest effort wins.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy.special import expit

from towpath.lab.resilience.model import FloatArray, Game, Player

Role = Literal["defender", "attacker"]
Verdict = Literal["equilibrium", "stationary, not an equilibrium", "not an equilibrium"]

MAX_STARTS = 1000
"""Maximum number of starts of a search. Time is proportional to it."""
MAX_STRATEGIES = 256
"""Maximum number of strategies of a player who mixes them. The search for replies needs memory in proportion, and the pivots of the
algorithm of Lemke and Howson time with its square."""

_GAIN_TOLERANCE = 1e-6
"""Gain of a better reply that is accepted at an equilibrium, relative to the cost. Local searches are more accurate than that."""
_STATIONARY_TOLERANCE = 1e-4
"""Relative difference between the marginal cost and the marginal benefit of effort that is accepted at a stationary point. Efforts that
are rounded to 6 digits pass."""
_ROOT_TOLERANCE = 1e-7
"""The same for the points that `stationary_points` finds. The accuracy is 1e-9 or better unless a site hardly matters."""
_MIN_SENSITIVITY = 1e-8
"""Smallest change of the infrastructure's probability, per unit of a site's log-odds, at a stationary point. Rounding errors change
smaller ones by more than 1e-6 of them."""
_SAME_POINT = 1e-6
"""Relative difference of efforts below which two roots are one point."""
_SCATTER = 2.0
"""Standard deviation of the logarithms of random starts: most are within a factor of 50 of the first start."""
_LINEARISATIONS = 20
"""Iterations of the closed form before Newton's method. One is exact for linear costs in the sum form."""
_DECADES = 8
"""Decades of effort that a search covers below the largest useful effort, and below the efforts of the opponent."""
_SAMPLES = 256
"""Random efforts of each kind for each set of sites; the best of them are the starts of the local searches."""
_COMMON_SCATTER = 3.0
"""Standard deviation of the logarithm of a factor common to all sites, for samples near the efforts of the opponent."""
_MIN_COST = 1e-300
"""Smallest cost with a logarithm."""
_PRODUCT_RANGE = 1e6
"""Largest cost of effort in the product form, relative to the fixed cost, and largest effort relative to those of the opponent."""


@dataclass(frozen=True, eq=False)
class Reply:
    """The best reply of a player to given efforts of the other one."""

    effort: FloatArray
    """For each site."""
    cost: float
    """Total cost of the player."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """The verdict on a point, with the best replies that the search found."""

    verdict: Verdict
    defender_efforts: FloatArray
    """For each site."""
    attacker_efforts: FloatArray
    """For each site."""
    success: FloatArray
    """Probability of each site to survive."""
    infrastructure_success: float
    """Probability of the infrastructure to survive."""
    defender_cost: float
    """Total cost."""
    attacker_cost: float
    """Total cost."""
    defender_reply: Reply
    """The best that was found; the point itself if no other is better."""
    attacker_reply: Reply
    """The best that was found; the point itself if no other is better."""
    defender_gain: float
    """Reduction of the defender's cost by its best reply; at least 0."""
    attacker_gain: float
    """Reduction of the attacker's cost by its best reply; at least 0."""

    @property
    def exploitability(self) -> float:
        """The larger gain of both players."""
        return max(self.defender_gain, self.attacker_gain)

    @property
    def is_equilibrium(self) -> bool:
        """Whether no better reply was found."""
        return self.verdict == "equilibrium"


def solve(game: Game, *, starts: int = 8, seed: int = 0) -> tuple[Certificate, ...]:
    """Returns all stationary points that were found, with their verdicts, the least exploitable first.

    If none is an equilibrium, or there is none, the game probably has no equilibrium in pure strategies; `mixed_equilibria` finds
    one in mixed strategies. Arguments as for `stationary_points` and `certify`.
    """
    points = stationary_points(game, starts=starts, seed=seed)
    found = (certify(game, x, y, starts=starts, seed=seed) for x, y in points)
    return tuple(sorted(found, key=lambda certificate: certificate.exploitability))


def stationary_points(game: Game, *, starts: int = 8, seed: int = 0) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Returns the efforts of defender and attacker at each stationary point that was found, all above 0.

    With linear costs in the sum form there is at most one: x_i / y_i = (g_D / c_i) / (g_A / d_i), for any structure. Otherwise Newton's
    method starts from this closed form of the linearised game, and from random points around it.

    - `starts`: number of starts, from 1 to 1,000.
    - `seed`: seed of the random starts.
    """
    rng = np.random.default_rng(_check_starts(starts, seed))
    first = np.zeros(2 * game.sites)
    for _ in range(_LINEARISATIONS):
        first = _closed_form(game, first)
    roots: list[FloatArray] = []
    for number in range(starts):
        start = first if number == 0 else first + _SCATTER * rng.standard_normal(first.size)
        root = optimize.root(partial(_imbalance, game), start, method="hybr", options={"eps": 1e-12, "xtol": 1e-12})
        is_new = all(np.max(np.abs(root.x - other)) > _SAME_POINT for other in roots)
        if is_new and _is_stationary(game, root.x, _ROOT_TOLERANCE):
            roots.append(root.x)
    return tuple((np.exp(root[: game.sites]), np.exp(root[game.sites :])) for root in roots)


def certify(game: Game, x: npt.ArrayLike, y: npt.ArrayLike, *, starts: int = 8, seed: int = 0) -> Certificate:
    """Decides whether efforts x of the defender and y of the attacker are an equilibrium.

    They are if neither player has a reply that reduces its cost U by more than 1e-6 U. The replies are those of `best_reply`, and the
    efforts themselves.
    """
    x, y = (_one_point(game, name, efforts) for name, efforts in (("x", x), ("y", y)))
    stays = [Reply(own, float(cost)) for own, cost in zip((x, y), game.costs(x, y), strict=True)]
    moves = [
        best_reply(game, "defender", y, starts=starts, seed=seed),
        best_reply(game, "attacker", x, starts=starts, seed=seed),
    ]
    replies = [min(stay, move, key=lambda reply: reply.cost) for stay, move in zip(stays, moves, strict=True)]
    gains = [stay.cost - reply.cost for stay, reply in zip(stays, replies, strict=True)]
    verdict: Verdict = "not an equilibrium"
    if all(gain <= _GAIN_TOLERANCE * stay.cost for gain, stay in zip(gains, stays, strict=True)):
        verdict = "equilibrium"
    elif min(x.min(), y.min()) > 0 and _is_stationary(game, np.log(np.concatenate([x, y])), _STATIONARY_TOLERANCE):
        verdict = "stationary, not an equilibrium"
    success = game.success(x, y)
    return Certificate(
        verdict=verdict,
        defender_efforts=x,
        attacker_efforts=y,
        success=success,
        infrastructure_success=float(game.structure(success)),
        defender_cost=stays[0].cost,
        attacker_cost=stays[1].cost,
        defender_reply=replies[0],
        attacker_reply=replies[1],
        defender_gain=gains[0],
        attacker_gain=gains[1],
    )


def best_reply(
    game: Game, role: Role, opponent: npt.ArrayLike, weights: npt.ArrayLike | None = None, *, starts: int = 8, seed: int = 0
) -> Reply:
    """Returns the efforts of one player with the least expected cost that a search over all efforts finds.

    For each set of sites the search samples efforts at these sites, with none at the others, and improves the best samples with
    the truncated Newton method. It minimises the logarithm of the cost as a function of the logarithms of the efforts.

    - `role`: the player, 'defender' or 'attacker'.
    - `opponent`: efforts of the other player at each site, or a list of at most 256 of them: a mixed strategy.
    - `weights`: the probability of each of them; default: equal ones.
    - `starts`: local searches for each set of sites, from 1 to 1,000.
    - `seed`: seed of the samples.
    """
    if role not in ("defender", "attacker"):
        raise ValueError(f"role: {role!r}: expected 'defender' or 'attacker'")
    rng = np.random.default_rng(_check_starts(starts, seed))
    search = _ReplySearch(game, role, *_mixture(game, opponent, weights))
    best = Reply(np.zeros(game.sites), float(search.cost(np.zeros((1, game.sites)))[0]))
    for sites in itertools.product((False, True), repeat=game.sites):
        if any(sites):
            best = min(best, search.minimise(np.array(sites), starts, rng), key=lambda reply: reply.cost)
    return best


class _ReplySearch:
    """Expected cost of a player against a mixed strategy of the other one, and its local minima."""

    def __init__(self, game: Game, role: Role, opponents: FloatArray, weights: FloatArray) -> None:
        self.game, self.role, self.opponents, self.weights = game, role, opponents, weights
        self.player: Player = getattr(game, role)
        largest = _largest_effort(self.player, opponents)
        self.top = np.log(largest)
        # An opponent without effort at a site is no scale.
        self.near = np.log(np.where(opponents > 0, opponents, largest))
        self.bottom = np.minimum(self.top, self.near.min(axis=0)) - _DECADES * np.log(10)

    def cost(self, efforts: FloatArray) -> FloatArray:
        """Returns the expected cost of each row of efforts."""
        return self.player.total_cost(self._loss(self._odds(efforts)), efforts)

    def minimise(self, sites: npt.NDArray[np.bool_], starts: int, rng: np.random.Generator) -> Reply:
        """Returns the best local minimum with efforts above 0 at these sites only."""
        samples = self._sample(sites, max(_SAMPLES, starts), rng)
        # TNC needs no BLAS: in problems of so few variables, the threads of a BLAS mostly wait for each other.
        order = np.argsort(self.cost(self._spread(sites, samples)), kind="stable")
        found = [
            optimize.minimize(
                partial(self._cost_and_slopes, sites),
                samples[index],
                jac=True,
                method="TNC",
                bounds=list(zip(self.bottom[sites], self.top[sites], strict=True)),
                options={"ftol": 1e-10, "maxfun": 1000},
            )
            for index in order[:starts]
        ]
        best = min(found, key=lambda result: float(result.fun))
        return Reply(self._spread(sites, best.x), math.exp(best.fun))

    def _sample(self, sites: npt.NDArray[np.bool_], count: int, rng: np.random.Generator) -> FloatArray:
        """Returns logarithms of efforts at these sites: over the whole range, and near the opponent's efforts.

        With many sites in series, few samples of the whole range have enough effort at all sites to matter.
        """
        bottom, top, near = self.bottom[sites], self.top[sites], self.near[:, sites]
        anywhere = rng.uniform(bottom, top, (count, top.size))
        close = near[rng.integers(len(near), size=count)] + _COMMON_SCATTER * rng.standard_normal((count, 1))
        close += rng.standard_normal(close.shape)
        return np.concatenate([anywhere, np.clip(close, bottom, top)])

    def _odds(self, efforts: FloatArray) -> FloatArray:
        """Returns the log-odds of the sites for each row of efforts and each of the opponent's."""
        own = efforts[..., np.newaxis, :]
        return self.game.odds(own, self.opponents) if self.role == "defender" else self.game.odds(self.opponents, own)

    def _loss(self, odds: FloatArray) -> FloatArray:
        """Returns the expected probability of the loss."""
        survival = self.game.structure(expit(odds)) @ self.weights
        return 1 - survival if self.role == "defender" else survival

    def _cost_and_slopes(self, sites: npt.NDArray[np.bool_], logs: FloatArray) -> tuple[float, FloatArray]:
        """Returns the expected cost, and its derivatives with respect to the logarithms of the efforts."""
        effort = self._spread(sites, logs)
        odds = self._odds(effort)
        loss = self._loss(odds)
        benefit = self.player.stake(effort) * self.game.exponent * (self.weights @ self.game.sensitivities(odds))
        slopes = effort * self.player.marginal_cost(loss, effort) - benefit
        cost = max(float(self.player.total_cost(loss, effort)), _MIN_COST)
        return math.log(cost), slopes[sites] / cost

    @staticmethod
    def _spread(sites: npt.NDArray[np.bool_], logs: FloatArray) -> FloatArray:
        """Returns the efforts of all sites, given the logarithms of those above 0."""
        efforts = np.zeros((*logs.shape[:-1], sites.size))
        efforts[..., sites] = np.exp(logs)
        return efforts


def _largest_effort(player: Player, opponents: FloatArray) -> FloatArray:
    """Returns the effort at each site that no best reply exceeds: its cost would exceed the loss. In the product form no such effort
    is known; the range is wide instead."""
    budget = player.fixed_cost * _PRODUCT_RANGE if player.gain is None else player.gain
    # The root of squared_cost x**2 + unit_cost x = budget, in the form that is also accurate for a squared cost of 0.
    roots = 2 * budget / (player.unit_costs + np.sqrt(player.unit_costs**2 + 4 * player.squared_costs * budget))
    return np.maximum(roots, _PRODUCT_RANGE * np.max(opponents, axis=0)) if player.gain is None else roots


def _closed_form(game: Game, logs: FloatArray) -> FloatArray:
    """Returns the logarithms of the efforts that are stationary in the game linearised at a point.

    With stakes g and marginal costs c, d of a linear game in the sum form, both conditions of first order give
    x_i / y_i = (g_D / c_i) / (g_A / d_i), whatever the structure is, and with the probabilities also the efforts.
    """
    value_x, value_y = (_log(stake) - _log(costs) for stake, costs in _stakes_and_costs(game, logs))
    benefit = _log(game.exponent * game.sensitivities(game.exponent * (value_x - value_y)))
    return np.concatenate([value_x + benefit, value_y + benefit])


def _imbalance(game: Game, logs: FloatArray) -> FloatArray:
    """Returns ln(marginal cost / marginal benefit) of effort at each site, of the defender and then of the attacker.

    The gradients themselves also vanish where all efforts do, which is no stationary point; their ratio does not.
    """
    x, y = np.split(logs, 2)
    value_x, value_y = (_log(stake) - _log(costs) for stake, costs in _stakes_and_costs(game, logs))
    benefit = _log(game.exponent * game.sensitivities(game.exponent * (x - y)))
    return np.concatenate([x - value_x - benefit, y - value_y - benefit])


def _stakes_and_costs(game: Game, logs: FloatArray) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Returns the stake and the marginal costs per unit of effort, of the defender and of the attacker."""
    # Newton's method may try efforts that overflow.
    x, y = np.split(np.exp(np.clip(logs, -300, 300)), 2)
    survival = game.structure(expit(game.odds(x, y)))
    return (
        (game.defender.stake(x), game.defender.marginal_cost(1 - survival, x)),
        (game.attacker.stake(y), game.attacker.marginal_cost(survival, y)),
    )


def _is_stationary(game: Game, logs: FloatArray, tolerance: float) -> bool:
    x, y = np.split(logs, 2)
    is_resolved = np.min(game.sensitivities(game.exponent * (x - y))) >= _MIN_SENSITIVITY
    return bool(is_resolved and np.max(np.abs(_imbalance(game, logs))) <= tolerance)


def _log(values: FloatArray) -> FloatArray:
    """Returns logarithms, with a large negative number for a probability or a benefit that rounds to 0 or below."""
    return np.log(np.maximum(values, 1e-300))


def _check_starts(starts: int, seed: int) -> int:
    """Returns the seed. Raises `ValueError` if either number is out of range."""
    if not 1 <= starts <= MAX_STARTS:
        raise ValueError(f"starts: {starts} is out of range: expected 1 to {MAX_STARTS}")
    if seed < 0:
        raise ValueError(f"seed: {seed} is out of range: expected at least 0")
    return seed


def _one_point(game: Game, name: str, efforts: npt.ArrayLike) -> FloatArray:
    array = game.check(name, efforts)
    if array.ndim != 1:
        raise ValueError(f"{name}: shape {array.shape}: expected one number for each site")
    return array


def _mixture(game: Game, opponent: npt.ArrayLike, weights: npt.ArrayLike | None) -> tuple[FloatArray, FloatArray]:
    """Returns the efforts of a mixed strategy, a row for each, and their probabilities."""
    points = np.atleast_2d(game.check("opponent", opponent))
    if points.ndim != 2 or len(points) > MAX_STRATEGIES:
        raise ValueError(
            f"opponent: shape {points.shape}: expected the efforts of each site, or a list of at most {MAX_STRATEGIES} of them"
        )
    if weights is None:
        return points, np.full(len(points), 1 / len(points))
    array = np.asarray(weights, dtype=np.float64)
    if array.shape != (len(points),) or not (np.all(array >= 0) and abs(array.sum() - 1) <= 1e-9):
        raise ValueError(f"weights: {weights}: expected {len(points)} probabilities that add up to 1")
    return points, array
