"""The correlation of failures, and the estimate of N. Rao, "Some Science Aspects of Wide-Area Data Transport", 2018.

    >>> import numpy as np
    >>> from towpath.lab.resilience.model import series
    >>> correlations(series, [0.8, 0.5]).round(6).tolist()
    [0.5, 0.2]

An infrastructure that needs site b and the rest survives with probability P_I = P_b + R_b - 1 + C_b (1 - P_b). R_b is the probability
that the rest survives, and C_b the probability that the rest fails if site b fails. For independent failures C_b = 1 - R_b.

The talk calls C_b the probability that "the infrastructure" fails; only "the rest" leads to its estimate. It prints dC_D/dx_b in the
condition of its estimate; dC_b/dx_b is correct.

Limits: a structure with C_b outside of 0 to 1, such as `parallel`, does not satisfy the identity as a probability, and is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from towpath.lab.resilience.model import FloatArray, Game, Structure, check_probabilities

_TOLERANCE = 1e-9
"""Rounding error that is accepted in a probability, and in a denominator relative to its terms."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """The estimate of the talk at a point, and its terms, for each site."""

    success: FloatArray
    """Probability P_b of each site by the estimate. It is that of the contest only at stationary points of the defender's cost."""
    contest_success: FloatArray
    """Probability P_b of each site by the contest."""
    correlations: FloatArray
    """C_b, the probability that the rest fails if site b fails."""
    correlation_slopes: FloatArray
    """dC_b/dx_b, per unit of effort."""
    multipliers: FloatArray
    """System multiplier Lambda_b = (dP_b/dx_b) / P_b, per unit of effort."""


def correlations(structure: Structure, success: npt.ArrayLike, rest: npt.ArrayLike | None = None) -> FloatArray:
    """Returns the aggregate correlation coefficient C_b of each site.

    - `success`: probability P_b of each site, from 0 to less than 1.
    - `rest`: probability R_b that the rest survives, for each site. Default: the rest has the same structure without site b.

    Raises `ValueError` if a coefficient is not a probability.
    """
    site = check_probabilities("success", success)
    if site.ndim != 1 or site.max() == 1:
        raise ValueError(f"success: {site}: expected one number for each site, from 0 to less than 1")
    others = _rest(structure, site) if rest is None else check_probabilities("rest", rest)
    if others.shape != site.shape:
        raise ValueError(f"rest: shape {others.shape}: expected {site.shape}, one probability for each site")
    values = (structure(site) - site - others + 1) / (1 - site)
    wrong = np.flatnonzero((values < -_TOLERANCE) | (values > 1 + _TOLERANCE))
    if wrong.size:
        raise ValueError(
            f"structure: the correlation coefficient of site {wrong[0]} is {values[wrong[0]]:.9g}: expected 0 to 1; "
            "the infrastructure does not consist of this site and the rest in series"
        )
    return np.asarray(np.clip(values, 0, 1))


def estimate_success(game: Game, x: npt.ArrayLike, y: npt.ArrayLike, rest: npt.ArrayLike | None = None) -> Estimate:
    """Evaluates the estimate of the talk at efforts x and y above 0.

        P_b = (dC_b/dx_b + F / L) / (dC_b/dx_b - (1 - C_b) Lambda_b)

    L is the derivative of the defender's cost with respect to P_I, and F that with respect to x_b at constant P_I. The talk calls it a
    closed form. It is the condition of first order, with x and y on both sides, and holds at all stationary points, also at those
    that are no equilibria.

    - `rest`: as for `correlations`.

    Raises `ValueError` if a coefficient C_b is not a probability, or the denominator is 0 (C_b = 1 and dC_b/dx_b = 0).
    """
    x, y = (_interior(game, name, efforts) for name, efforts in (("x", x), ("y", y)))
    odds = game.odds(x, y)
    site = expit(odds)
    values = correlations(game.structure, site, rest)
    # dC_b/dP_b follows from the identity, with R_b independent of P_b; dP_b/dx_b = m P_b (1 - P_b) / x_b.
    slopes = (game.sensitivities(odds) - (1 - values) * site * (1 - site)) / (1 - site) * game.exponent / x
    multipliers = game.exponent * (1 - site) / x
    loss = 1 - game.structure(site)
    ratio = -game.defender.marginal_cost(loss, x) / game.defender.stake(x)
    denominator = slopes - (1 - values) * multipliers
    wrong = np.flatnonzero(np.abs(denominator) <= _TOLERANCE * multipliers)
    if wrong.size:
        raise ValueError(f"x: the estimate of site {wrong[0]} has the denominator 0: expected C_b != 1 or dC_b/dx_b != 0")
    return Estimate((slopes + ratio) / denominator, site, values, slopes, multipliers)


def _rest(structure: Structure, success: FloatArray) -> FloatArray:
    """Returns the probability of the rest of each site to survive; 1 if there is no other site."""
    if success.size == 1:
        return np.ones(1)
    try:
        return np.array([float(structure(np.delete(success, site))) for site in range(success.size)])
    except (IndexError, ValueError) as error:
        raise ValueError(
            f"rest: the structure does not accept {success.size - 1} sites ({error}): give the probabilities of the rest"
        ) from None


def _interior(game: Game, name: str, efforts: npt.ArrayLike) -> FloatArray:
    array = game.check(name, efforts)
    if array.ndim != 1 or np.any(array == 0):
        raise ValueError(f"{name}: {array}: expected {game.sites} efforts above 0, one for each site")
    return array
