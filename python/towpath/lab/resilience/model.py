"""Model of the games: the contest at a site, the structure of the infrastructure, and the costs of both players.

    >>> round(float(contest_success(2.0, 1.0)), 6)
    0.666667
    >>> float(series(np.array([0.5, 0.8])))
    0.4

Arrays have the sites on their last axis; all functions accept more axes before it. Probabilities are computed from the logarithms of
efforts, so that efforts of any size are accepted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

FloatArray = npt.NDArray[np.float64]

Structure = Callable[[FloatArray], FloatArray]
"""Probability that the infrastructure survives. The argument has the probabilities of the sites on its last axis; the result lacks
this axis. It must be smooth and must not decrease with any probability."""

MAX_SITES = 8
"""Maximum number of sites. The search for a better reply visits 2**N sets of sites."""

MAX_EXPONENT = 20.0
"""Maximum exponent of a contest. With it, 5 % more effort already gives odds of 2.7; larger ones are practically steps."""

_STEP = 0.02
"""Step in log-odds of the seven-point differences. The error is step**6 / 140 = 5e-13 relative to the seventh derivative, and about
5e-15 by rounding, whatever the derivative is: smaller steps would round too much where the infrastructure hardly depends on a site."""
_OFFSETS = _STEP * np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
_WEIGHTS = np.array([-1.0, 9.0, -45.0, 45.0, -9.0, 1.0]) / (60 * _STEP)


_PROBES = 16
"""Number of points at which a structure is checked."""
_ROUNDING = 1e-9
"""Rounding error that is accepted in derivatives of a structure."""


def contest_success(
    defender: npt.ArrayLike, attacker: npt.ArrayLike, exponent: float = 1.0, success_without_effort: float = 0.5
) -> FloatArray:
    """Returns the probability x**m / (x**m + y**m) that a site survives.

    - `defender`, `attacker`: efforts x and y, at least 0; arrays of the same or a compatible shape.
    - `exponent`: m, above 0 and at most 20.
    - `success_without_effort`: probability for x = y = 0, where the formula has no value.
    """
    check_contest(exponent, success_without_effort)
    x, y = check_efforts("defender", defender), check_efforts("attacker", attacker)
    check_shapes("attacker", x, y)
    return np.asarray(expit(log_odds(x, y, exponent, success_without_effort)))


def series(success: npt.ArrayLike) -> FloatArray:
    """Returns the probability that all sites survive, for independent failures."""
    return np.asarray(np.prod(check_probabilities("success", success), axis=-1))


def parallel(success: npt.ArrayLike) -> FloatArray:
    """Returns the probability that at least one site survives, for independent failures."""
    return np.asarray(1 - np.prod(1 - check_probabilities("success", success), axis=-1))


def joint_failure(correlation: float) -> Structure:
    """Returns the structure of two sites that must both survive, with correlated failures.

    Both fail with probability (1-P1)(1-P2) + correlation * sqrt(P1 (1-P1) P2 (1-P2)), but at most with that of each site alone: near 0
    and 1 the sites cannot have this correlation, and the formula alone would give the infrastructure a higher probability than its
    weaker site.

    - `correlation`: from 0 to 1. A negative one would give negative probabilities.
    """
    check_range("correlation", correlation, 0, 1)

    def structure(success: npt.ArrayLike) -> FloatArray:
        sites = check_probabilities("success", success)
        if sites.shape[-1] == 1:
            # The infrastructure without one of its sites.
            return np.asarray(sites[..., 0])
        if sites.shape[-1] != 2:
            raise ValueError(f"success: {sites.shape[-1]} sites: expected 2 for joint_failure")
        both = np.prod(sites, axis=-1) + correlation * np.sqrt(np.prod(sites * (1 - sites), axis=-1))
        return np.asarray(np.minimum(both, np.min(sites, axis=-1)))

    return structure


@dataclass(frozen=True, eq=False)
class Player:
    """Costs of a player: its loss and its effort. Created by `sum_form` and `product_form`.

    The cost of effort is L = `fixed_cost + sum(unit_costs * effort + squared_costs * effort**2)`.
    """

    gain: float | None
    """Cost of the loss in the sum form; None in the product form."""
    fixed_cost: float
    """Cost without effort; 0 in the sum form, where it would change nothing."""
    unit_costs: FloatArray
    """Cost per unit of effort, for each site."""
    squared_costs: FloatArray
    """Cost per squared unit of effort, for each site."""

    def effort_cost(self, effort: FloatArray) -> FloatArray:
        """Returns the cost L of efforts."""
        return np.asarray(self.fixed_cost + effort @ self.unit_costs + effort**2 @ self.squared_costs)

    def stake(self, effort: FloatArray) -> FloatArray:
        """Returns the derivative of the total cost with respect to the probability of the loss."""
        return self.effort_cost(effort) if self.gain is None else np.full(effort.shape[:-1], self.gain)

    def total_cost(self, loss: FloatArray, effort: FloatArray) -> FloatArray:
        """Returns U = loss * gain + L (sum form) or loss * L (product form)."""
        cost = self.effort_cost(effort)
        return loss * cost if self.gain is None else loss * self.gain + cost

    def marginal_cost(self, loss: FloatArray, effort: FloatArray) -> FloatArray:
        """Returns the derivatives of the total cost with respect to the efforts, at a constant probability of the loss."""
        slope = self.unit_costs + 2 * self.squared_costs * effort
        return slope * loss[..., np.newaxis] if self.gain is None else slope


def sum_form(gain: float, unit_costs: npt.ArrayLike, *, squared_costs: npt.ArrayLike | None = None) -> Player:
    """Returns a player with the cost (probability of the loss) * gain + (cost of the effort).

    - `gain`: cost of the loss, above 0. The loss of the defender is a failure of the infrastructure, that of the attacker its survival.
    - `unit_costs`, `squared_costs`: for each site, at least 0, and one of both above 0.
    """
    check_positive("gain", gain)
    return _player(float(gain), 0.0, unit_costs, squared_costs)


def product_form(fixed_cost: float, unit_costs: npt.ArrayLike, *, squared_costs: npt.ArrayLike | None = None) -> Player:
    """Returns a player with the cost (probability of the loss) * (cost of the effort).

    - `fixed_cost`: above 0. With 0, the player has no cost without effort, and never acts.
    - `unit_costs`, `squared_costs`: for each site, at least 0, and one of both above 0.
    """
    check_positive("fixed_cost", fixed_cost)
    return _player(None, float(fixed_cost), unit_costs, squared_costs)


@dataclass(frozen=True, eq=False)
class Game:
    """A defender and an attacker of the same sites."""

    defender: Player
    attacker: Player
    structure: Structure = series
    """Probability that the infrastructure survives, as a function of those of the sites."""
    exponent: float = 1.0
    """Exponent m of the contests, above 0 and at most 20."""
    success_without_effort: float = 0.5
    """Probability that a site survives without effort of either player, from 0 to 1."""

    def __post_init__(self) -> None:
        check_contest(self.exponent, self.success_without_effort)
        if self.attacker.unit_costs.size != self.sites:
            raise ValueError(f"attacker: costs of {self.attacker.unit_costs.size} sites: expected {self.sites}, as for the defender")
        _check_growth("defender", self.defender, self.exponent)
        _check_growth("attacker", self.attacker, self.exponent)
        self._check_structure()

    @property
    def sites(self) -> int:
        """Number of sites."""
        return int(self.defender.unit_costs.size)

    def success(self, x: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Returns the probability of each site to survive, for efforts x of the defender and y of the attacker."""
        x, y = self.check("x", x), self.check("y", y)
        check_shapes("y", x, y)
        return np.asarray(expit(self.odds(x, y)))

    def infrastructure_success(self, x: npt.ArrayLike, y: npt.ArrayLike) -> FloatArray:
        """Returns the probability of the infrastructure to survive."""
        return self.structure(self.success(x, y))

    def costs(self, x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Returns the total costs of the defender and of the attacker."""
        survival = self.infrastructure_success(x, y)
        x, y = self.check("x", x), self.check("y", y)
        return self.defender.total_cost(1 - survival, x), self.attacker.total_cost(survival, y)

    def odds(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Returns the log-odds of each site to survive."""
        return log_odds(x, y, self.exponent, self.success_without_effort)

    def sensitivities(self, odds: FloatArray) -> FloatArray:
        """Returns the derivatives of the infrastructure's probability with respect to the log-odds of each site."""
        probes = odds[..., np.newaxis, np.newaxis, :] + _OFFSETS[:, np.newaxis, np.newaxis] * np.eye(self.sites)
        return np.asarray(np.tensordot(self.structure(expit(probes)), _WEIGHTS, axes=(-2, 0)))

    def check(self, name: str, efforts: npt.ArrayLike) -> FloatArray:
        """Returns efforts as an array. Raises `ValueError` if they are invalid, or not those of all sites."""
        array = check_efforts(name, efforts)
        if array.ndim == 0 or array.shape[-1] != self.sites:
            raise ValueError(f"{name}: shape {array.shape}: expected {self.sites} on the last axis, the number of sites")
        return array

    def _check_structure(self) -> None:
        """Raises `ValueError` for a structure that is no probability, or falls, at some random probabilities of the sites."""
        probes = np.random.default_rng(0).random((_PROBES, self.sites))
        survival = np.asarray(self.structure(probes))
        if survival.shape != (_PROBES,) or not np.all((survival >= 0) & (survival <= 1)):
            raise ValueError(
                f"structure: returned {survival} for an array of shape {probes.shape}: "
                "expected one probability for each row (the last axis has the sites)"
            )
        falls = np.flatnonzero(np.any(self.sensitivities(logit(probes)) < -_ROUNDING, axis=-1))
        if falls.size:
            raise ValueError(f"structure: decreases with the probability of a site at {probes[falls[0]]}: expected an increase")


def log_odds(x: FloatArray, y: FloatArray, exponent: float, success_without_effort: float) -> FloatArray:
    """Returns the log-odds m ln(x/y) of sites to survive; infinite if only one player acts."""
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = exponent * (np.log(x) - np.log(y))
    return np.where((x == 0) & (y == 0), logit(success_without_effort), odds)


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Raises `ValueError` for a number outside of a range, NaN and infinity."""
    if not (least <= value <= most and math.isfinite(value)):
        raise ValueError(f"{name}: {value} is out of range: expected a finite number from {least:g} to {most:g}")


def check_positive(name: str, value: float, most: float = math.inf) -> None:
    """Raises `ValueError` for a number that is not above 0, or too large."""
    if not (0 < value <= most and math.isfinite(value)):
        raise ValueError(f"{name}: {value} is out of range: expected a finite number above 0, at most {most:g}")


def check_contest(exponent: float, success_without_effort: float) -> None:
    """Raises `ValueError` for invalid parameters of a contest."""
    check_positive("exponent", exponent, MAX_EXPONENT)
    check_range("success_without_effort", success_without_effort, 0, 1)


def check_efforts(name: str, efforts: npt.ArrayLike) -> FloatArray:
    """Returns numbers as an array. Raises `ValueError` for none, negative ones, NaN and infinity."""
    array = np.asarray(efforts, dtype=np.float64)
    if array.size == 0:
        raise ValueError(f"{name}: no numbers: expected at least 1")
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if wrong.size:
        raise ValueError(f"{name}: {wrong[0]} is out of range: expected finite numbers of at least 0")
    return array


def check_probabilities(name: str, probabilities: npt.ArrayLike) -> FloatArray:
    """Returns probabilities of sites as an array. Raises `ValueError` for numbers outside of 0 to 1, NaN, and a single number."""
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name}: shape {array.shape}: expected at least one site on the last axis")
    # The comparison is false for NaN.
    if not (array.min() >= 0 and array.max() <= 1):
        raise ValueError(f"{name}: {array}: expected probabilities from 0 to 1")
    return array


def check_shapes(name: str, x: FloatArray, y: FloatArray) -> None:
    """Raises `ValueError` if two arrays cannot be combined element by element."""
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        raise ValueError(f"{name}: shape {y.shape}: expected one that is compatible with {x.shape}") from None


def _player(gain: float | None, fixed_cost: float, unit_costs: npt.ArrayLike, squared_costs: npt.ArrayLike | None) -> Player:
    unit = check_efforts("unit_costs", unit_costs)
    squared = np.zeros_like(unit) if squared_costs is None else check_efforts("squared_costs", squared_costs)
    if unit.ndim != 1 or unit.size > MAX_SITES:
        raise ValueError(f"unit_costs: shape {unit.shape}: expected 1 to {MAX_SITES} numbers, one for each site")
    if squared.shape != unit.shape:
        raise ValueError(f"squared_costs: shape {squared.shape}: expected {unit.shape}, as for unit_costs")
    free = np.flatnonzero((unit == 0) & (squared == 0))
    if free.size:
        raise ValueError(f"unit_costs[{free[0]}]: 0 without a squared cost: expected a cost of effort at each site")
    return Player(gain, fixed_cost, unit.copy(), squared.copy())


def _check_growth(name: str, player: Player, exponent: float) -> None:
    """Raises `ValueError` for a product form without a finite best effort.

    The probability of the loss falls at most as effort**-m. If the cost does not grow faster, their product does not grow: with linear
    cost and m = 1, the player is indifferent among all efforts at a single effort of the opponent, and has no best effort elsewhere.
    """
    degree = 1 if np.any(player.squared_costs == 0) else 2
    if player.gain is None and degree <= exponent:
        raise ValueError(
            f"{name}: the product form is degenerate: the cost grows as effort**{degree}, the loss can fall as effort**-{exponent:g}; "
            "expected squared costs at all sites (up to m < 2), a smaller exponent, or the sum form"
        )
