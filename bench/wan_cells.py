"""Cells of the tables over emulated paths. Over each path all contenders run in turn, and every result is compared with
its source.

A contender that exceeds the job's time limit is cut off: its sample has the number of bytes transferred until then, and
the result is not compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence

from circumstances import circumstances
from contenders import Machine
from harness import Contender, Overtime, Program, Race, Sample, Server, run_client, say
from settings import Settings
from wan_lab import Emulation, Lab, NetworkPath, lab

ContendersAt = Callable[[Lab, Machine, dict[str, Server]], list[Contender]]
"""Returns the contenders over a path, with a server of each kind at its far end."""


@dataclasses.dataclass
class PathSample(Sample):
    """`bytes` is the number of transferred bytes: all of them, unless the run was `cut`."""

    bytes: int
    cut: bool
    emulation: Emulation


@dataclasses.dataclass(frozen=True)
class Scale:
    """Number of repetitions, and the time limit of a contender."""

    repetitions: int
    limit_s: float


def timed(name: str, program: Program, server: Server, over: Lab, limit_s: float, whole: int, arrived: Callable[[Emulation], int]) -> Callable[[], PathSample]:
    """Returns a function that runs a command in the clients' host. `arrived` returns how many of `whole` bytes have
    arrived when the command is cut off."""

    def run() -> PathSample:
        over.settle()
        before = over.totals()
        cut = False
        try:
            sample = run_client(program.after(over.network().at_client), server, limit_s=limit_s)
        except Overtime as overtime:
            cut, sample = True, overtime.sample
        emulation = over.since(before)
        count = arrived(emulation) if cut else whole
        say(f"   {sample.seconds:7.2f} s {count * 8 / sample.seconds / 1e6:8.1f} Mbit/s{' (cut)' if cut else ''} {name}")
        return PathSample(**dataclasses.asdict(sample), bytes=count, cut=cut, emulation=emulation)

    return run


def received_of(whole: int) -> Callable[[Emulation], int]:
    """Returns a function that counts the bytes received by a client until it was cut off, by the payload that arrived
    at its host. Bytes received twice count twice, but the result is at most `whole`."""
    return lambda emulation: min(whole, emulation.received_payload)


def verified(run: Callable[[], PathSample], check: Callable[[], None]) -> Callable[[], Sample]:
    """Returns the run followed by the check, which is skipped if the run was cut off."""

    def run_and_check() -> Sample:
        sample = run()
        if not sample.cut:
            check()
        return sample

    return run_and_check


def race(contenders: Sequence[Contender], repetitions: int, seed: int) -> dict[str, dict]:
    """Runs all contenders in turn, without a warm-up: over emulated paths the first run does not differ from later
    ones."""
    running = Race(contenders, repetitions, math.inf, seed)
    for number in range(repetitions):
        running.round(number)
    return running.outcome()


@contextlib.contextmanager
def served(settings: Settings, path: NetworkPath, roots: dict[str, pathlib.Path]) -> Iterator[tuple[Lab, Machine, dict[str, Server]]]:
    """Runs an emulated path with a server of each kind at its far end."""
    say(f"-- {path}")
    with lab(settings.machine.towpath, path) as over:
        machine = dataclasses.replace(settings.machine, network=over.network())
        with machine.serving(roots) as servers:
            yield over, machine, servers


def cells(settings: Settings, paths: Sequence[NetworkPath], roots: dict[str, pathlib.Path], repetitions: int, contenders_at: ContendersAt) -> list[dict]:
    """Measures the selected paths. Returns one cell for each, with its own circumstances."""
    chosen = [path for path in paths if settings.paths is None or path.is_one_of(settings.paths)]
    if not chosen:
        raise RuntimeError(f"--paths selects no path of this job; its paths are {', '.join(f'{path.rtt_ms:g} ms with loss {path.loss:g}' for path in paths)}")
    found = []
    for path in chosen:
        with served(settings, path, roots) as (over, machine, servers):
            where, start = circumstances(machine), time.monotonic()
            outcome = race(contenders_at(over, machine, servers), repetitions, path.seed)
            about = {"seed": path.seed, "took_s": round(time.monotonic() - start), "circumstances": where}
            found.append({"path": dataclasses.asdict(path), **about, **outcome})
    return found


SIZES = ("quick", "bytes", "files", "stages", "limit_s")
"""Keys that two records of a job must have in common for their cells to be in one table."""


def merged(before: dict, now: dict) -> dict:
    """Returns `now` with the cells of `before` for other paths; unchanged if the sizes differ."""
    if any(before.get(key) != now.get(key) for key in SIZES):
        return now
    paths = [cell["path"] for cell in now["cells"]]
    kept = [{"circumstances": before["circumstances"], **cell} for cell in before["cells"] if cell["path"] not in paths]
    return {**now, "cells": sorted(kept + now["cells"], key=lambda cell: (cell["path"]["rtt_ms"], cell["path"]["loss"]))}
