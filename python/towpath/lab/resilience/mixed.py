"""Equilibria in mixed strategies, if efforts are restricted to levels.

    >>> from towpath.lab.resilience.model import Game, sum_form
    >>> solution = mixed_equilibria(Game(sum_form(10, [1]), sum_form(5, [1])), range(7), range(7))
    >>> solution.is_complete, [(found.defender_efforts.tolist(), found.attacker_efforts.tolist()) for found in solution.equilibria]
    (True, [([[2.0]], [[1.0]])])

A game over levels is a bimatrix game, which always has an equilibrium. `enumerate_supports` finds all equilibria of small games, and
`follow_labels` (the algorithm of Lemke and Howson, 1964) some equilibria of larger ones. Both take matrices of **costs**.

Limits: N sites with k levels have k**N strategies, at most 256 for each player. The equilibria are those of the levels: each has its
exploitability by efforts between the levels, which should be small.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from towpath.lab.resilience.equilibria import MAX_STRATEGIES, best_reply
from towpath.lab.resilience.model import FloatArray, Game, check_efforts

MAX_SUPPORT_PAIRS = 20_000
"""Maximum number of pairs of supports that are enumerated. 8 strategies of each player have 12,869."""
MAX_LABELS = 8
"""Maximum number of paths of the algorithm of Lemke and Howson. Different paths often end at the same equilibrium."""
MAX_PIVOTS = 20_000
"""Maximum number of pivots of a path. The longest paths are exponential in the number of strategies."""

_TOLERANCE = 1e-9
"""Rounding error of the solution of a small linear system: probabilities, and costs relative to their range."""
_COST_TOLERANCE = 1e-7
"""Rounding error of costs relative to their range, after the pivots of a path."""

_MIN_PIVOT = 1e-11
"""Smallest pivot. Smaller ones are rounding errors of zeros."""
_SAME_RATIO = 1e-12
"""Difference of two ratios that is a tie."""
_SAME_STRATEGY = 1e-6
"""Difference of probabilities below which two equilibria are one."""

Pair = tuple[FloatArray, FloatArray]
"""Probabilities of the strategies of the defender (rows) and of the attacker (columns)."""


@dataclass(frozen=True, eq=False)
class MixedEquilibrium:
    """An equilibrium in mixed strategies over levels. Strategies with the probability 0 are left out."""

    defender_efforts: FloatArray
    """A row with the efforts at each site for each strategy."""
    defender_probabilities: FloatArray
    """Of these strategies; above 0."""
    attacker_efforts: FloatArray
    """A row with the efforts at each site for each strategy."""
    attacker_probabilities: FloatArray
    """Of these strategies; above 0."""
    defender_cost: float
    """Expected total cost."""
    attacker_cost: float
    """Expected total cost."""
    exploitability: float
    """Larger gain of both players by a reply with any efforts, also between the levels; at least 0."""


@dataclass(frozen=True, eq=False)
class MixedSolution:
    """The equilibria of a game over levels that were found; at least one."""

    equilibria: tuple[MixedEquilibrium, ...]
    is_complete: bool
    """Whether all equilibria over the levels are these and, if there are several, mixtures of them. False for large games."""


def mixed_equilibria(
    game: Game, defender_levels: npt.ArrayLike, attacker_levels: npt.ArrayLike, *, starts: int = 4, seed: int = 0
) -> MixedSolution:
    """Returns equilibria in mixed strategies, if the effort at each site is one of the levels.

    All pairs of supports are enumerated if there are at most 20,000 (8 strategies of each player). Otherwise, up to 8 paths of the
    algorithm of Lemke and Howson are followed.

    - `defender_levels`, `attacker_levels`: efforts, at least 0, the same for all sites.
    - `starts`, `seed`: of the search for better replies, as for `best_reply`.
    """
    rows, columns = _strategies("defender_levels", defender_levels, game.sites), _strategies("attacker_levels", attacker_levels, game.sites)
    defender_costs, attacker_costs = game.costs(rows[:, np.newaxis, :], columns[np.newaxis, :, :])
    is_complete = _support_pairs(defender_costs.shape) <= MAX_SUPPORT_PAIRS
    pairs = (enumerate_supports if is_complete else follow_labels)(defender_costs, attacker_costs)
    found = []
    for p, q in pairs:
        costs = float(p @ defender_costs @ q), float(p @ attacker_costs @ q)
        defence = best_reply(game, "defender", columns[q > 0], q[q > 0], starts=starts, seed=seed)
        attack = best_reply(game, "attacker", rows[p > 0], p[p > 0], starts=starts, seed=seed)
        exploitability = max(0.0, costs[0] - defence.cost, costs[1] - attack.cost)
        found.append(MixedEquilibrium(rows[p > 0], p[p > 0], columns[q > 0], q[q > 0], *costs, exploitability))
    return MixedSolution(tuple(found), is_complete)


def enumerate_supports(defender_costs: npt.ArrayLike, attacker_costs: npt.ArrayLike) -> list[Pair]:
    """Returns all extreme equilibria of a bimatrix game. The other equilibria, if there are any, are mixtures of these.

    An extreme equilibrium consists of vertices: strategies that are determined by their support and an equal number of best replies.
    In games with ties, its supports may differ in size.

    - `defender_costs`, `attacker_costs`: a row for each strategy of the defender, a column for each of the attacker. At most 20,000
      pairs of supports.
    """
    a, b = _bimatrix(defender_costs, attacker_costs)
    if _support_pairs(a.shape) > MAX_SUPPORT_PAIRS:
        raise ValueError(f"defender_costs: shape {a.shape}: more than {MAX_SUPPORT_PAIRS} pairs of supports: use follow_labels")
    return [(p, q) for p, q in itertools.product(_vertices(b.T), _vertices(a)) if _is_equilibrium(a, b, p, q)]


def follow_labels(defender_costs: npt.ArrayLike, attacker_costs: npt.ArrayLike) -> list[Pair]:
    """Returns the equilibria of a bimatrix game at which up to 8 paths of the algorithm of Lemke and Howson end; at least one.

    Arguments as for `enumerate_supports`, with at most 256 strategies of each player. Raises `ArithmeticError` if rounding errors
    prevent a result.
    """
    a, b = _bimatrix(defender_costs, attacker_costs)
    found: list[Pair] = []
    for label in range(min(sum(a.shape), MAX_LABELS)):
        pair = _follow_label(a, b, label)
        is_new = all(np.max(np.abs(np.concatenate(pair) - np.concatenate(other))) > _SAME_STRATEGY for other in found)
        if is_new and _is_equilibrium(a, b, *pair):
            found.append(pair)
    if not found:
        raise ArithmeticError(f"rounding errors hide the equilibria of {a.shape[0]} x {a.shape[1]} strategies: use fewer levels")
    return found


def _vertices(costs: FloatArray) -> list[FloatArray]:
    """Returns the mixed strategies over the columns that are determined by their support and an equal number of best replies (rows)."""
    found: dict[bytes, FloatArray] = {}
    for size in range(1, min(costs.shape) + 1):
        for rows, columns in itertools.product(*(itertools.combinations(range(number), size) for number in costs.shape)):
            strategy = _equaliser(costs, rows, columns)
            if strategy is not None:
                # In games with ties, several sets of best replies determine the same strategy.
                found.setdefault(np.round(strategy, 9).tobytes(), strategy)
    return list(found.values())


def _equaliser(costs: FloatArray, rows: tuple[int, ...], columns: tuple[int, ...]) -> FloatArray | None:
    """Returns the mixed strategy on exactly these columns that makes these rows best replies; None if there is not exactly one."""
    size = len(rows)
    system = np.zeros((size + 1, size + 1))
    system[:size, :size] = costs[np.ix_(rows, columns)]
    system[:size, size] = -1
    system[size, :size] = 1
    solution, _, rank, _ = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=1e-12)
    if rank <= size or np.any(solution[:size] <= _TOLERANCE):
        return None
    strategy = np.zeros(costs.shape[1])
    strategy[list(columns)] = solution[:size] / solution[:size].sum()
    return strategy if np.min(costs @ strategy) >= solution[size] - _TOLERANCE else None


def _follow_label(a: FloatArray, b: FloatArray, label: int) -> Pair:
    """Returns the end of the path on which this label may be missing.

    Label i < rows: strategy i of the defender is not played, or a best reply. The other labels are the same for the attacker.
    Each tableau has a column for each label, and the constants. That of the defender's strategy has a row for each strategy of the
    attacker, whose slack is basic at first.
    """
    rows, columns = a.shape
    of_rows, of_columns = np.arange(rows), rows + np.arange(columns)
    # Positive payoffs; strategies are scaled so that the best reply has the payoff 1.
    payoffs_a, payoffs_b = 1 + a.max() - a, 1 + b.max() - b
    defender = np.hstack([payoffs_b.T, np.eye(columns), np.ones((columns, 1))])
    attacker = np.hstack([np.eye(rows), payoffs_a, np.ones((rows, 1))])
    tableaux = [(defender, of_columns.copy(), of_columns), (attacker, of_rows.copy(), of_rows)]
    entering, turn = label, 0 if label < rows else 1
    for _ in range(MAX_PIVOTS):
        entering = _pivot(*tableaux[turn], entering)
        if entering == label:
            break
        turn = 1 - turn
    return _basic_strategy(*tableaux[0][:2], of_rows), _basic_strategy(*tableaux[1][:2], of_columns)


def _pivot(tableau: FloatArray, basis: npt.NDArray[np.int64], slacks: npt.NDArray[np.int64], entering: int) -> int:
    """Brings a label into the basis, and returns the one that leaves it. Ties of the ratio test are broken in lexicographic order,
    which excludes cycles."""
    candidates = np.flatnonzero(tableau[:, entering] > _MIN_PIVOT)
    if candidates.size == 0:
        raise ArithmeticError("rounding errors have spoilt a tableau: use fewer levels")
    for column in (-1, *slacks):
        ratios = tableau[candidates, column] / tableau[candidates, entering]
        candidates = candidates[ratios <= ratios.min() + _SAME_RATIO]
        if candidates.size == 1:
            break
    row = candidates[0]
    tableau[row] /= tableau[row, entering]
    factors = tableau[:, entering].copy()
    factors[row] = 0
    tableau -= np.outer(factors, tableau[row])
    leaving = int(basis[row])
    basis[row] = entering
    return leaving


def _basic_strategy(tableau: FloatArray, basis: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> FloatArray:
    """Returns the probabilities of the strategies with these labels."""
    strategy = np.zeros(labels.size)
    is_own = (basis >= labels[0]) & (basis <= labels[-1])
    strategy[basis[is_own] - labels[0]] = tableau[is_own, -1]
    strategy[strategy < _TOLERANCE * strategy.max()] = 0
    return np.asarray(strategy / strategy.sum())


def _is_equilibrium(a: FloatArray, b: FloatArray, p: FloatArray, q: FloatArray) -> bool:
    """Returns whether no strategy reduces the cost of either player, but for rounding errors."""
    gains = p @ a @ q - np.min(a @ q), p @ b @ q - np.min(p @ b)
    return bool(max(gains) <= _COST_TOLERANCE)


def _bimatrix(defender_costs: npt.ArrayLike, attacker_costs: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Returns both matrices, scaled to the range 0 to 1. This changes no equilibrium."""
    scaled = []
    for name, costs in (("defender_costs", defender_costs), ("attacker_costs", attacker_costs)):
        matrix = np.asarray(costs, dtype=np.float64)
        if matrix.ndim != 2 or min(matrix.shape) == 0 or max(matrix.shape) > MAX_STRATEGIES:
            raise ValueError(f"{name}: shape {matrix.shape}: expected a matrix of 1 to {MAX_STRATEGIES} rows and columns")
        if not np.all(np.isfinite(matrix)):
            raise ValueError(f"{name}: expected finite numbers")
        span = np.ptp(matrix)
        scaled.append((matrix - matrix.min()) / (span if span > 0 else 1))
    if scaled[0].shape != scaled[1].shape:
        raise ValueError(f"attacker_costs: shape {scaled[1].shape}: expected {scaled[0].shape}, as for defender_costs")
    return scaled[0], scaled[1]


def _strategies(name: str, levels: npt.ArrayLike, sites: int) -> FloatArray:
    """Returns all combinations of levels, a row for each."""
    array = check_efforts(name, levels)
    if array.ndim != 1 or np.unique(array).size != array.size:
        raise ValueError(f"{name}: {array}: expected different numbers")
    if array.size**sites > MAX_STRATEGIES:
        raise ValueError(f"{name}: {array.size} levels at {sites} sites: expected at most {MAX_STRATEGIES} combinations")
    return np.array(list(itertools.product(array, repeat=sites)))


def _support_pairs(shape: tuple[int, ...]) -> int:
    """Returns the number of pairs of supports of equal size."""
    return math.comb(sum(shape), shape[0]) - 1
