"""Simulator of the transfer scheduler, and fair shares of a network.

    >>> from pathlib import Path
    >>> from towpath import sched
    >>> result = sched.simulate(Path("thirty.toml"), optimiser="knee", seed=1)
    >>> result.completed, result.makespan_to_bound < 1.1
    (30, True)
    >>> sched.max_min([10.0, 4.0], [[0], [0, 1]], [1.0, 1.0]).rates
    (6.0, 4.0)

`simulate` runs what `towpath sched simulate` runs (docs/guides/simulate-schedules.md): transfers over a modelled network, with a rule
that chooses the number of connections of each pipe (a source and a destination). **All its figures are simulated.** `max_min` is
the function from which the rules and the simulator get their rates.

Both need neither a server nor a clock, and return the same result for the same arguments. An invalid argument raises `ValueError` or
`TypeError`.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towpath import _towpath

__all__ = ["OPTIMISERS", "Result", "Shares", "max_min", "simulate"]

OPTIMISERS: tuple[str, ...] = _towpath.OPTIMISERS
"""The names of the optimisers."""

_MAX_SCENARIO_BYTES = 1 << 20
"""Maximum size of the file of a scenario, as for the command."""

_MAX_SEED = (1 << 64) - 1


@dataclass(frozen=True)
class Result:
    """The figures of a simulation. All of them are simulated."""

    optimiser: str
    requests: int
    """Requests in the scenario."""
    completed: int
    """Requests that were complete at the end."""
    makespan_s: float
    """The time of the last completion, or of the end of the simulation if not all requests are complete, in seconds."""
    bound_s: float
    """The time before which no schedule completes all requests, in seconds."""
    makespan_to_bound: float
    """`makespan_s` / `bound_s`; too low if not all requests are complete."""
    mean_completion_s: float | None
    """Mean time from arrival to completion of the complete requests, in seconds; None if there is none."""
    mean_elapsed_s: float
    """Mean time of all requests, in seconds, up to the end of the simulation for those that are not complete: their mean time
    to completion is at least this."""
    max_completion_s: float | None
    """Longest time to completion of the complete requests, in seconds."""
    received_bytes_per_s: float
    """Received bytes per second, retried parts of files included."""
    mean_connections: float
    """Mean number of connections in use."""
    completions_s: tuple[float | None, ...]
    """For each request, in the order of the scenario, the seconds from arrival to completion; None if it was not complete."""
    fair_mean_completion_s: float | None
    """Mean time from arrival to completion, in seconds, of a schedule in which all pipes have their fair shares at each moment; None
    with more than 1,000 requests. It is no bound."""


@dataclass(frozen=True)
class Shares:
    """The rates of pipes, in the order of the paths."""

    rates: tuple[float, ...]
    """In the unit of the capacities; infinite for a pipe with neither a resource nor a limit."""
    bottlenecks: tuple[int | None, ...]
    """The index of the full resource of each pipe; None if the pipe has its limit, or the weight 0."""


def simulate(
    scenario: str | os.PathLike[str],
    *,
    optimiser: str = "knee",
    seed: int = 0,
    connections: int = 10,
    topology: str | os.PathLike[str] | None = None,
    on_period: Callable[[dict[str, Any]], object] | None = None,
) -> Result:
    """Simulates a scenario until all its requests are complete, or until the limit that it has (`limit_to_bound`).

    - `scenario`: TOML text, or the path of a file of at most 1 MiB. A string with a line break is text.
    - `optimiser`: the rule, one of `OPTIMISERS`.
    - `seed`: seed of the file sizes, failures, measurement errors and decisions, from 0 to 2**64 - 1. The seed in the scenario is that
      of the network and the requests.
    - `connections`: connections of each pipe with the optimiser `fixed`, from 1 to 10,000.
    - `topology`: text of a topology (GraphML or node-link JSON), or the path of a file of at most 64 MiB. A string that begins with `<`
      or `{` is text. Default: the file `network.topology` beside that of the scenario; without that key the network is one link.
    - `on_period`: called after each decision with the object that is a line of `towpath sched simulate --periods`. An exception of it
      ends the simulation, and is raised.

    Other threads run meanwhile, unless there is an `on_period`. Ctrl-C interrupts the simulation at the end of a period. Memory is
    needed for pipes, requests and the files in flight, not for those that wait.

    Raises `ValueError` for an invalid scenario, with the line and the key, and for an invalid topology; `OSError` if a file cannot be
    read.
    """
    seed = _within(seed, "seed", 0, _MAX_SEED)
    connections = _within(connections, "connections", 1, _towpath.MAX_FIXED_CONNECTIONS)
    world = _world(scenario, topology)
    observer = None if on_period is None else lambda period: on_period(json.loads(period))
    document = json.loads(world.simulate(optimiser, seed, connections, observer))
    return Result(
        optimiser,
        **document["summary"],
        completions_s=tuple(document["completions_s"]),
        fair_mean_completion_s=document["fair_mean_completion_s"],
    )


def max_min(
    capacities: Iterable[float],
    paths: Iterable[Iterable[int]],
    weights: Iterable[float],
    limits: Iterable[float] | None = None,
) -> Shares:
    """Returns the weighted max-min fair rates of pipes that share resources.

    No resource carries more than its capacity. Each pipe has its limit, or a full resource on which no other pipe has a higher rate
    relative to its weight.

    - `capacities`: of the resources, from 0 to 1e100, in any unit.
    - `paths`: for each pipe the indices of its resources, from 0 to `len(capacities) - 1`. Repeated ones count once. Time is quadratic in
      the length of a path.
    - `weights`: of the pipes, from 1e-100 to 1e100, or 0 for a pipe that gets the rate 0.
    - `limits`: maximum rate of each pipe, at least 0, in the unit of the capacities; `math.inf` for none. Default: none.

    Other threads run meanwhile; Ctrl-C does not interrupt the call. Raises `ValueError` for a number outside of its range, with its
    place, or if there is not one weight and one limit for each path.
    """
    rates, bottlenecks = _towpath.max_min(capacities, paths, weights, limits)
    return Shares(tuple(rates), tuple(bottlenecks))


def _world(scenario: str | os.PathLike[str], topology: str | os.PathLike[str] | None) -> _towpath.World:
    """Creates the world of a scenario. Errors name the file, if there is one."""
    is_text = isinstance(scenario, str) and "\n" in scenario
    path = None if is_text else Path(scenario)
    text = _read(path, _MAX_SCENARIO_BYTES) if path else str(scenario)
    try:
        parsed = _towpath.Scenario(text)
        if topology is None and parsed.topology is not None:
            if path is None:
                raise ValueError(f"network.topology: {parsed.topology!r} is beside no file: give a topology, or the path of the scenario")
            topology = path.parent / parsed.topology
        return parsed.world(None if topology is None else _topology_text(topology))
    except ValueError as error:
        if path is None:
            raise
        raise ValueError(f"{path}: {error}") from None


def _topology_text(topology: str | os.PathLike[str]) -> str:
    """Returns the text of a topology that is given as text or path."""
    if isinstance(topology, str) and topology.lstrip("\ufeff \t\r\n").startswith(("<", "{")):
        return topology
    return _read(Path(topology), _towpath.MAX_TOPOLOGY_BYTES)


def _read(path: Path, max_bytes: int) -> str:
    """Returns the text of a file. Raises `ValueError` if it is larger or not UTF-8, and `OSError` if it cannot be read."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"{path}: the file has more than {max_bytes} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {error}") from None


def _within(number: int, name: str, least: int, most: int) -> int:
    """Returns a whole number; raises `ValueError` if it is out of range."""
    value = operator.index(number)
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is out of range: expected a whole number from {least} to {most}")
    return value
