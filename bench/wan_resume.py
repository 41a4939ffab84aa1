"""A copy that is killed three times, each time halfway through the remaining bytes: its cost relative to the same copy
undisturbed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

from contenders import RCLONE_STREAMS, Machine
from harness import Contender, Program, Server, say, scratch
from large import same_file
from settings import Settings, write_pattern
from small_files import fresh
from wan_cells import PathSample, Scale, cells, received_of, timed, verified
from wan_lab import Lab, NetworkPath
from wan_transfers import KINDS, aria2, know_digests, rclone
from warm_memory import WarmMemory

KILLS = 3
LOOK_S = 0.1
"""Polling interval of the received bytes, to find the halfway point."""
KILLED = ", killed three times"
"""Suffix of the name of a killed copy. The row without it is the same copy undisturbed."""
ONE_BYTE = ", one byte"
"""Suffix of the name of the same copy with a file of one byte: the time of one start of the command."""
START = "start.bin"


@dataclasses.dataclass(frozen=True)
class Row:
    """A command that copies the file, and the command that resumes it; None if it can only start again."""

    name: str
    kind: str
    program: Program
    resuming: Program | None = None
    one_byte: Program | None = None
    """The same command for `START`, where the time of a start is needed."""


def rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    name, nginx, xrootd6 = source.name, servers["nginx"], servers["xrootd6"]
    towpath = machine.towpath("cp", "-q", "-f")
    curl = machine.installed("curl")("-s", "-S", "-f", "-C", "-", "-o", target, nginx.http(name))
    xrdcp = machine.xrootd6("xrdcp")
    copies = {
        "aria2c -x 16 -c <- nginx": ("nginx", aria2(machine)("-c", "--auto-save-interval=1", "-d", target.parent, "-o", name, nginx.http(name))),
        "curl -C - <- nginx": ("nginx", curl),
    }
    own = {
        "towpath cp <- towpath": ("towpath", servers["towpath"].root),
        "towpath cp (HTTP) <- towpath": ("towpath", servers["towpath"].http),
        "towpath cp (HTTP) <- nginx": ("nginx", nginx.http),
    }
    return [
        *(own_row(title, kind, towpath, url, target) for title, (kind, url) in own.items()),
        *(Row(title, kind, program, program) for title, (kind, program) in copies.items()),
        Row("xrdcp 6.2, then --continue <- xrootd6", "xrootd6", xrdcp("-s", xrootd6.root(name), target), xrdcp("--continue", "-s", xrootd6.root(name), target)),
        Row("xrdcp 6.2 <- xrootd6", "xrootd6", xrdcp("-f", "-s", xrootd6.root(name), target)),
        Row(f"rclone, {RCLONE_STREAMS} streams <- nginx", "nginx", rclone(machine, source.stat().st_size)(f":http,url='{nginx.http()}':{name}", target)),
    ]


def own_row(title: str, kind: str, towpath: Program, url: Callable[[str], str], target: pathlib.Path) -> Row:
    program = towpath(url(target.name), target)
    return Row(title, kind, program, program, towpath(url(START), target.parent / START))


@dataclasses.dataclass(frozen=True)
class Attempt:
    """Outcome of one start of a command."""

    seconds: float
    arrived: int
    """Payload received by the client's host meanwhile."""
    status: int
    """Exit status; negative if killed by a signal."""
    stderr: str


def attempt(program: Program, over: Lab, kill_at: float, limit_s: float) -> Attempt:
    """Runs a command, and kills it once `kill_at` bytes of payload have arrived at its host, or at the time limit."""
    before, start = over.received_payload(), time.monotonic()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(program.words, env=program.surroundings(), **pipes) as client, ended_of(client) as ended:
        arrived = 0
        while not ended(min(LOOK_S if math.isfinite(kill_at) else math.inf, start + limit_s - time.monotonic())):
            arrived = over.received_payload() - before
            if arrived >= kill_at or time.monotonic() - start > limit_s:
                break
        seconds = time.monotonic() - start
        client.kill()
        _, stderr = client.communicate()
    return Attempt(seconds, arrived, client.returncode, stderr.decode(errors="replace")[-1000:])


@contextlib.contextmanager
def ended_of(client: subprocess.Popen) -> Iterator[Callable[[float], bool]]:
    """Yields a function that waits at most the given seconds for the process, and returns whether it has ended.
    `Popen.wait` would notice that up to 50 ms late."""
    process = os.pidfd_open(client.pid)
    try:
        yield lambda seconds: bool(select.select([process], [], [], max(seconds, 0))[0])
    finally:
        os.close(process)


def killed(row: Row, server: Server, over: Lab, size: int, limit_s: float) -> PathSample:
    """Runs the command, kills it `KILLS` times, and lets it finish. The seconds are its total running time."""
    program = row.program
    over.settle()
    totals, server_before, children_before = over.totals(), server.cpu_s(), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, left = 0.0, size
    for kill_share in (*[0.5] * KILLS, math.inf):
        last = attempt(program.after(over.network().at_client), over, kill_share * left, limit_s - seconds)
        seconds += last.seconds
        if last.status != -signal.SIGKILL:
            break
        left = max(left - last.arrived, 0) if row.resuming else size
        program = row.resuming or row.program
    if last.status != 0:
        raise RuntimeError(f"ended with {last.status} after {seconds:.0f} s: {last.stderr}")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    client_cpu_s = children.ru_utime + children.ru_stime - children_before.ru_utime - children_before.ru_stime
    say(f"   {seconds:7.2f} s {row.name}{KILLED}")
    return PathSample(seconds, client_cpu_s, server.cpu_s() - server_before, size, False, over.since(totals))


def resume(settings: Settings, paths: Sequence[NetworkPath], size: int, scale: Scale) -> dict:
    """Copies one file over each path, in memory, undisturbed and killed."""
    with scratch(str(settings.memory), "wan") as directory, WarmMemory() as memory:
        source, target = directory / "source" / "large.bin", directory / "target" / "large.bin"
        source.parent.mkdir()
        write_pattern(source, size)
        (source.parent / START).write_bytes(b"1")
        know_digests(settings.machine, source.parent, [source.name, START])

        def before() -> None:
            fresh(target.parent)
            memory.hold()

        def contender(name: str, run: Callable[[], PathSample], file: str) -> Contender:
            return Contender(name, verified(run, functools.partial(same_file, source.parent / file, target.parent / file)), before)

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            found = []
            for row in rows(machine, servers, source, target):
                server = servers[row.kind]
                plain = timed(row.name, row.program, server, over, scale.limit_s, size, received_of(size))
                found.append(contender(row.name, plain, source.name))
                found.append(contender(row.name + KILLED, functools.partial(killed, row, server, over, size, 4 * scale.limit_s), source.name))
                if row.one_byte:
                    found.append(contender(row.name + ONE_BYTE, timed(row.name + ONE_BYTE, row.one_byte, server, over, scale.limit_s, 1, received_of(1)), START))
            return found

        found = cells(settings, paths, dict.fromkeys(KINDS, source.parent), scale.repetitions, contenders_at)
    return {"shape": "resume", "bytes": size, "limit_s": scale.limit_s, "cells": found}
