"""Job (c): small random reads and vector reads, by one load generator for all servers; and what memory servers take under many busy clients.

The file lies in memory. What counts is requests per second of the server's processor time: the load generator shares the machine.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess

from contenders import Machine
from harness import Server
from settings import Settings

SERVERS = ("towpath", "xrootd6", "xrootd5")
READ_CASES = [(kind, clients, depth) for kind in ("read", "readv") for clients in (1, 16) for depth in (1, 16)]
WARM_UP_S = 0.3
BUSY_CLIENTS = 200
BUSY_DEPTH = 4
"""Requests in flight of each busy client: 4 KiB reads, 1 MiB reads and vectors of 1.5 MiB, a third of each."""
BUSY_REPETITIONS = 3
"""Each with servers started anew: the most that was ever resident grows with time only."""

Case = tuple[str, int, int]
"""The kind of request, the number of clients, and the requests that each has in flight."""


@dataclasses.dataclass(frozen=True)
class Load:
    """What the load generator is pointed at: a file and its bytes, or a directory and its entries."""

    path: str
    size: int


def sample(machine: Machine, server: Server, load: Load, case: Case, seconds: float) -> dict:
    kind, clients, depth = case
    before = server.cpu_s()
    program = machine.example("xroot_load")(server.address, f"/{load.path}", load.size, clients, depth, seconds, kind)
    done = subprocess.run(program.words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{case} on port {server.port}: {done.stderr[-500:]}")
    outcome = json.loads(done.stdout)
    outcome["server_cpu_s"] = server.cpu_s() - before
    return outcome


def run(settings: Settings, root: pathlib.Path, load: Load, cases: list[Case]) -> dict:
    """All cases, servers in turn; one row for each server and case, with every sample."""
    rows = []
    with settings.machine.serving(dict.fromkeys(SERVERS, root)) as servers:
        for case in cases:
            samples: dict[str, list[dict]] = {name: [] for name in servers}
            for server in servers.values():
                sample(settings.machine, server, load, case, WARM_UP_S)
            for number in range(settings.repetitions):
                turn = number % len(SERVERS)
                for name in SERVERS[turn:] + SERVERS[:turn]:
                    samples[name].append(sample(settings.machine, servers[name], load, case, settings.load_s))
            kind, clients, depth = case
            rows += [{"server": name, "kind": kind, "clients": clients, "depth": depth, "samples": taken} for name, taken in samples.items()]
    return {"shape": "requests", "rows": rows}


def reads(settings: Settings) -> dict:
    source = settings.large_file(settings.memory)
    return run(settings, source.parent, Load(source.name, source.stat().st_size), READ_CASES)


def busy_memory(settings: Settings) -> dict:
    """What each server has resident at most while many clients read all they can."""
    source = settings.large_file(settings.memory)
    load = Load(source.name, source.stat().st_size)
    samples: dict[str, list[dict]] = {name: [] for name in SERVERS}
    for _ in range(BUSY_REPETITIONS):
        for name in SERVERS:
            with settings.machine.serving({name: source.parent}) as servers:
                outcome = sample(settings.machine, servers[name], load, ("mixed", BUSY_CLIENTS, BUSY_DEPTH), settings.load_s * 2)
                samples[name].append({**outcome, "peak_rss_bytes": servers[name].peak_rss_bytes()})
    return {"shape": "memory", "clients": BUSY_CLIENTS, "depth": BUSY_DEPTH, "samples": samples}
