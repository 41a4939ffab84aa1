"""Scenarios of the scheduler's benchmark: generated networks, regimes, and the workloads of the suite.

The network resembles a national research network: 68 nodes, most of them connected to their nearest neighbours by one
link of 10 Gbit/s, with 12 further links. A second one has the shape of LHCONE: 170 data centres of 127 sites in 40
countries and 4 regions. Both are the same in each run.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pathlib
import random
from collections.abc import Iterable, Iterator, Sequence

import alto_twin

NODES, MORE_LINKS = 68, 12
LINK_BITS_PER_S = 10e9
NETWORK_SEED = 5
LHCONE_BITS_PER_S = {"data centre": 100e9, "site": 100e9, "country": 400e9, "region": 1e12}
"""Capacities of the links of data centres, sites and countries upwards, and between regions."""
DEVELOPMENT, HELD_OUT = range(8), range(8, 16)
"""Seeds that were used while the optimiser was written, and seeds that were only run for the report."""
NOISE = 0.05
SPREAD = 0.3
LIMIT, SHORT_LIMIT = 15, 5
"""Multiples of the bound at which runs end; the shorter one for workloads with many requests."""
FILE_BYTES = 100e6
SETTLED_S = 1_200
"""Time after which shares are measured."""
CLOSE = 0.15
"""Relative error of the rates that counts as converged."""


@dataclasses.dataclass(frozen=True)
class Regime:
    """How a network behaves: exponent and number of connections of the loss of capacity, maximum rate of a connection in
    bytes per second, and the period of decisions."""

    exponent: float
    lossless: int
    connection_bytes_per_s: float
    period_s: int = 60

    def text(self) -> str:
        loss = f"d = {self.exponent:g}" + (f", N0 = {self.lossless}" if self.exponent else "")
        return f"{loss}, {self.connection_bytes_per_s / 1e6:g} MB/s, {self.period_s} s"


def all_regimes() -> list[Regime]:
    """Returns the regimes of the suite. Without loss, its number of connections does not matter."""
    losses = [(0.0, 100), *itertools.product((0.5, 1.0), (100, 200))]
    return [Regime(*loss, rate, period) for loss in losses for rate in (5e6, 20e6, 100e6) for period in (10, 60)]


LHCONE_REGIMES = [Regime(0, 1_000, 20e6), Regime(1, 3_000, 20e6), Regime(1, 1_000, 20e6), Regime(1, 500, 100e6)]
"""Regimes for links of 100 Gbit/s and more."""
FEW_REGIMES = [Regime(0, 100, 20e6), Regime(0.5, 100, 20e6), Regime(1, 100, 20e6), Regime(1, 200, 20e6), Regime(1, 300, 5e6), Regime(1, 100, 5e6), Regime(1, 50, 100e6)]
"""The regimes of the first prototype, and one in which links need more connections than they carry without loss."""

TOGETHER = f"[[requests]]\npipes = 30\nfiles = 20_000\nfile_bytes = {FILE_BYTES}\n"
MANY_TOGETHER = f"[[requests]]\npipes = 100\nfiles = 5_000\nfile_bytes = {FILE_BYTES}\n"
ARRIVING = f"[[requests]]\npipes = 50\nfiles = 40_000\nfiles_spread = 20_000\nevery_s = 200\nfile_bytes = {FILE_BYTES}\n"
MANY_ARRIVING = (
    f"[[requests]]\npipes = 150\nfiles = 10_000\nfiles_spread = 5_000\nevery_s = 200\nfile_bytes = {FILE_BYTES}\nsize_spread = 0.5\n"
    f"[[requests]]\npipes = 150\nfiles = 1_000\nfiles_spread = 500\nevery_s = 200\nfile_bytes = {5 * FILE_BYTES}\nsize_spread = 0.5\n"
)


LHCONE_TOGETHER = f"[[requests]]\npipes = 300\nfiles = 10_000\nfile_bytes = {10 * FILE_BYTES}\n"


def weighted(weights: Sequence[int]) -> str:
    """Returns six requests in classes with these weights. The connections of the later classes get larger shares where they
    compete, as with shorter round trips."""
    classes = (
        f"[[requests]]\npipes = {6 // len(weights)}\nfiles = 40_000\nfile_bytes = {FILE_BYTES}\nweight = {weight}\nrtt_weight = {1 + 2 * index / (len(weights) - 1)}\n"
        for index, weight in enumerate(weights)
    )
    return "\n".join(classes)


def scenario(regime: Regime, seed: int, rest: str, *, network: str | None = "network", limit: float = LIMIT) -> str:
    """Returns a scenario: pipes over a network, or over one link."""
    topology = f'topology = "{network}.json"\n' if network else ""
    topology += 'ends = "leaves"\n' if network == "lhcone" else ""
    return f"""seed = {seed}
noise = {NOISE}
period_s = {regime.period_s}
limit_to_bound = {limit}

[network]
{topology}capacity_bits_per_s = {LINK_BITS_PER_S}
deterioration = {regime.exponent}
lossless_connections = {regime.lossless}

[connections]
bytes_per_s = {regime.connection_bytes_per_s}
spread = {SPREAD}

{rest}"""


def links() -> Iterator[tuple[int, int]]:
    """Yields the links: a minimum spanning tree of random places, and short further links."""
    chance = random.Random(NETWORK_SEED)
    places = [(chance.random(), chance.random()) for _ in range(NODES)]

    def length(ends: tuple[int, int]) -> float:
        return math.dist(places[ends[0]], places[ends[1]])

    tree, inside = set(), {0}
    while len(inside) < NODES:
        nearest = min(((one, other) for one in inside for other in range(NODES) if other not in inside), key=length)
        inside.add(nearest[1])
        tree.add((min(nearest), max(nearest)))
    others = [ends for ends in itertools.combinations(range(NODES), 2) if ends not in tree]
    others.sort(key=lambda ends: length(ends) + 0.3 * chance.random())
    yield from sorted(tree) + others[:MORE_LINKS]


def lhcone_links() -> Iterator[tuple[str, str, float]]:
    """Yields the links of a network of the shape of LHCONE."""
    for number, centre in enumerate(alto_twin.data_centres()):
        yield f"data centre {number}", f"site {centre.site}", LHCONE_BITS_PER_S["data centre"]
    for site in range(alto_twin.SITES):
        yield f"site {site}", f"country {alto_twin.country_of(site)}", LHCONE_BITS_PER_S["site"]
    for country in range(alto_twin.COUNTRIES):
        yield f"country {country}", f"region {alto_twin.region_of(country)}", LHCONE_BITS_PER_S["country"]
    for one, other in itertools.combinations(range(alto_twin.REGIONS), 2):
        yield f"region {one}", f"region {other}", LHCONE_BITS_PER_S["region"]


def write_networks(directory: pathlib.Path) -> None:
    """Writes `network.json` and `lhcone.json` (node-link JSON)."""
    network = [(f"node{one:02}", f"node{other:02}", LINK_BITS_PER_S) for one, other in links()]
    for name, all_links in (("network", network), ("lhcone", list(lhcone_links()))):
        nodes = sorted({node for link in all_links for node in link[:2]})
        document = {
            "nodes": [{"id": node} for node in nodes],
            "links": [{"source": source, "target": target, "capacity": capacity} for source, target, capacity in all_links],
        }
        (directory / f"{name}.json").write_text(json.dumps(document))


def error_of(record: dict, period_s: float) -> float:
    """Returns the sum of the errors of all rates / the sum of the fair rates."""
    pipes = record["pipes"]
    total = sum(pipe["fair_bytes_per_s"] for pipe in pipes)
    return sum(abs(pipe["received_bytes"] / period_s - pipe["fair_bytes_per_s"]) for pipe in pipes) / total


def periods_until_close(errors: Iterable[float]) -> int | None:
    """Returns the number of the first period whose error counts as converged."""
    return next((number for number, error in enumerate(errors, 1) if error <= CLOSE), None)
