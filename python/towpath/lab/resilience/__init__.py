"""Games of a defender and an attacker of an infrastructure.

    >>> from towpath.lab import resilience
    >>> game = resilience.Game(resilience.sum_form(20, [1, 2]), resilience.sum_form(5, [1, 1]), resilience.series)
    >>> (found,) = resilience.solve(game)
    >>> found.verdict
    'equilibrium'
    >>> found.defender_efforts.round(6).tolist(), found.attacker_efforts.round(6).tolist()
    ([2.133333, 1.777778], [0.533333, 0.888889])
    >>> round(found.infrastructure_success, 6)
    0.533333

Both players spend effort on each of N sites. A contest gives the probability that a site survives, and a structure that of the
infrastructure. Each player minimises its own cost: the loss, and its effort. The model is that of N. Rao, "Some Science Aspects of
Wide-Area Data Transport", 2018, with its errors corrected.

- `model`: `Game`, its players (`sum_form`, `product_form`) and structures (`series`, `parallel`, `joint_failure`, any callable).
- `estimate`: the correlation of failures, and the estimate of the talk.
- `equilibria`: `stationary_points`, and `certify`, which decides whether a point is an equilibrium. `solve` does both.
- `mixed`: equilibria in mixed strategies, if efforts are restricted to levels.

Limits: effort and costs have the same unit, chosen by the caller. At most 8 sites. A verdict is the result of a numeric search: it
proves that a point is no equilibrium, and is evidence that it is one.
"""

from towpath.lab.resilience.equilibria import Certificate, Reply, best_reply, certify, solve, stationary_points
from towpath.lab.resilience.estimate import Estimate, correlations, estimate_success
from towpath.lab.resilience.mixed import (
    MixedEquilibrium,
    MixedSolution,
    enumerate_supports,
    follow_labels,
    mixed_equilibria,
)
from towpath.lab.resilience.model import (
    Game,
    Player,
    contest_success,
    joint_failure,
    parallel,
    product_form,
    series,
    sum_form,
)

__all__ = [
    "Certificate",
    "Estimate",
    "Game",
    "MixedEquilibrium",
    "MixedSolution",
    "Player",
    "Reply",
    "best_reply",
    "certify",
    "contest_success",
    "correlations",
    "enumerate_supports",
    "estimate_success",
    "follow_labels",
    "joint_failure",
    "mixed_equilibria",
    "parallel",
    "product_form",
    "series",
    "solve",
    "stationary_points",
    "sum_form",
]
