"""Games with known stationary points, for the tests of `towpath.lab.resilience` and the claims of `bench/lab_claims.py`."""

from towpath.lab.resilience import Game, joint_failure, parallel, product_form, sum_form

ONE = (sum_form(10, [1]), sum_form(5, [1]))
TWO = (sum_form(20, [1, 2]), sum_form(5, [1, 1]))
QUADRATIC = product_form(3, [0], squared_costs=[1])
FALSE = "stationary, not an equilibrium"

GAMES = {
    "G1": (Game(*ONE), [2.222222], [1.111111], [2 / 3], 2 / 3, (5.555556, 4.444444), "equilibrium"),
    "G2": (Game(*ONE, exponent=0.5), [1.213203], [0.606602], [0.585786], 0.585786, (5.355339, 3.535534), "equilibrium"),
    "G3": (Game(*ONE, exponent=2), [3.2], [1.6], [0.8], 0.8, (5.2, 5.6), FALSE),
    "G4": (Game(*TWO), [2.133333, 1.777778], [0.533333, 0.888889], [0.8, 2 / 3], 0.533333, (15.022222, 4.088889), "equilibrium"),
    "G5": (Game(sum_form(5, [1, 1]), sum_form(20, [1, 1])), [0.16] * 2, [0.64] * 2, [0.2] * 2, 0.04, (5.12, 2.08), FALSE),
    "G6": (
        Game(sum_form(60, [1, 1, 2]), sum_form(5, [1, 1, 1])),
        [3.370830, 3.370830, 3.130057],
        [0.280903, 0.280903, 0.521676],
        [0.923077, 0.923077, 0.857143],
        0.730347,
        (29.180980, 4.735214),
        "equilibrium",
    ),
    "G7": (
        Game(*TWO, joint_failure(0.1)),
        [2.020196, 1.746351],
        [0.505049, 0.873175],
        [0.8, 2 / 3],
        0.552190,
        (14.469108, 4.139172),
        "equilibrium",
    ),
    "G8": (
        Game(*TWO, joint_failure(0.3)),
        [1.793922, 1.683497],
        [0.448481, 0.841748],
        [0.8, 2 / 3],
        0.589902,
        (13.362878, 4.239738),
        FALSE,
    ),
    "G9": (Game(*TWO, parallel), [1.066667, 0.444444], [0.266667, 0.222222], [0.8, 2 / 3], 0.933333, (3.288889, 5.155556), FALSE),
    "G10": (Game(QUADRATIC, QUADRATIC), [1], [1], [0.5], 0.5, (2, 2), "equilibrium"),
}
"""Game, efforts of defender and attacker, probability that each site survives, that of the infrastructure, costs of both, and verdict."""
