"""A copy that is killed on its way: three times, each time halfway through what it had left. What it costs, beside the same copy undisturbed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import pathlib
import resource
import signal
import subprocess
import time
from collections.abc import Sequence

from contenders import RCLONE_STREAMS, Machine
from harness import Contender, Program, Server, say, scratch
from large import same_file
from settings import Settings, write_pattern
from small_files import fresh
from wan_lab import PAYLOAD_SHARE, Lab, NetworkPath
from wan_transfers import KINDS, PathSample, Scale, aria2, know_digests, passed_payload, race, rclone, served, timed, verified

KILLS = 3
LOOK_S = 0.1
"""How often the link is looked at, to find the half."""
KILLED = ", killed three times"
"""What a name ends in, of a row whose other half is the same copy undisturbed."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A way to copy the file, and how to go on where it ended; none if it can only begin again."""

    name: str
    kind: str
    program: Program
    going_on: Program | None = None


def rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    name, nginx, xrootd6 = source.name, servers["nginx"], servers["xrootd6"]
    towpath = machine.towpath("cp", "-q", "-f")
    curl = machine.installed("curl")("-s", "-S", "-f", "-C", "-", "-o", target, nginx.http(name))
    xrdcp = machine.xrootd6("xrdcp")
    copies = {
        "towpath cp <- towpath": ("towpath", towpath(servers["towpath"].root(name), target)),
        "towpath cp (HTTP) <- towpath": ("towpath", towpath(servers["towpath"].http(name), target)),
        "towpath cp (HTTP) <- nginx": ("nginx", towpath(nginx.http(name), target)),
        "aria2c -x 16 -c <- nginx": ("nginx", aria2(machine)("-c", "-d", target.parent, "-o", name, nginx.http(name))),
        "curl -C - <- nginx": ("nginx", curl),
    }
    return [
        *(Row(name, kind, program, program) for name, (kind, program) in copies.items()),
        Row("xrdcp 6.2, then --continue <- xrootd6", "xrootd6", xrdcp("-s", xrootd6.root(name), target), xrdcp("--continue", "-s", xrootd6.root(name), target)),
        Row("xrdcp 6.2 <- xrootd6", "xrootd6", xrdcp("-f", "-s", xrootd6.root(name), target)),
        Row(f"rclone, {RCLONE_STREAMS} streams <- nginx", "nginx", rclone(machine)(f":http,url='{nginx.http()}':{name}", target)),
    ]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """How one start of a command ended."""

    seconds: float
    arrived: int
    """Payload that the link carried meanwhile."""
    status: int
    """As a shell tells it; negative if it was killed."""
    said: str


def attempt(program: Program, over: Lab, kill_at: float, limit_s: float) -> Attempt:
    """Runs a command, and kills it once the link has carried so many bytes of payload for it."""
    carried, start = over.totals()["passed_wire_bytes"], time.monotonic()
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(program.words, env=program.surroundings(), **pipes) as client:
        arrived = 0
        while client.poll() is None and arrived < kill_at and time.monotonic() - start < limit_s:
            with contextlib.suppress(subprocess.TimeoutExpired):
                # To look costs processor time, so it is not done in vain.
                client.wait(LOOK_S if math.isfinite(kill_at) else limit_s)
            arrived = round((over.totals()["passed_wire_bytes"] - carried) * PAYLOAD_SHARE)
        client.kill()
        _, said = client.communicate()
    return Attempt(time.monotonic() - start, arrived, client.returncode, said.decode(errors="replace")[-1000:])


def killed(row: Row, server: Server, over: Lab, size: int, limit_s: float) -> PathSample:
    """Runs the command, kills it `KILLS` times, and lets it end; the seconds are those in which it ran."""
    program = row.program
    totals, server_before, children_before = over.totals(), server.cpu_s(), resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, left = 0.0, size
    for kill_share in (*[0.5] * KILLS, math.inf):
        last = attempt(program.after(over.network().at_client), over, kill_share * left, limit_s - seconds)
        seconds += last.seconds
        if last.status != -signal.SIGKILL:
            break
        left = max(left - last.arrived, 0) if row.going_on else size
        program = row.going_on or row.program
    if last.status != 0:
        raise RuntimeError(f"ended with {last.status} after {seconds:.0f} s: {last.said}")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    client_cpu_s = children.ru_utime + children.ru_stime - children_before.ru_utime - children_before.ru_stime
    say(f"   {seconds:7.2f} s {row.name}{KILLED}")
    return PathSample(seconds, client_cpu_s, server.cpu_s() - server_before, size, False, over.since(totals))


def resume(settings: Settings, paths: Sequence[NetworkPath], size: int, scale: Scale) -> dict:
    """One file over each path, in memory, undisturbed and killed."""
    cells = []
    with scratch(str(settings.memory), "wan") as directory:
        source, target = directory / "source" / "large.bin", directory / "target" / "large.bin"
        source.parent.mkdir()
        write_pattern(source, size)
        know_digests(settings.machine, source.parent, [source.name])
        before, check = functools.partial(fresh, target.parent), functools.partial(same_file, source, target)
        for path in paths:
            with served(settings, path, dict.fromkeys(KINDS, source.parent)) as (over, machine, servers):
                contenders = []
                for row in rows(machine, servers, source, target):
                    server = servers[row.kind]
                    plain = timed(row.name, row.program, server, over, scale.limit_s, size, functools.partial(passed_payload, size))
                    broken = functools.partial(killed, row, server, over, size, 4 * scale.limit_s)
                    contenders.append(Contender(row.name, verified(plain, check), before))
                    contenders.append(Contender(row.name + KILLED, verified(broken, check), before))
                cells.append({"path": dataclasses.asdict(path), **race(contenders, scale.repetitions)})
    return {"shape": "resume", "bytes": size, "limit_s": scale.limit_s, "cells": cells}
