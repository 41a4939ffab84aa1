"""Job (c): small random reads and vector reads, with one load generator for all servers; and the memory of servers
under many busy clients.

The file is in memory. The relevant figure is the number of requests per processor second of the server, because the
load generator shares the machine.
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
"""Requests in flight per busy client: one third each of 4 KiB reads, 1 MiB reads and vectors of 1.5 MiB."""
BUSY_REPETITIONS = 3
"""Each with newly started servers, because peak resident memory never decreases."""

Case = tuple[str, int, int]
"""Kind of request, number of clients, and requests in flight per client."""


@dataclasses.dataclass(frozen=True)
class Load:
    """Target of the load generator: a file and its size in bytes, or a directory and its number of entries."""

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
    """Runs all cases on the servers in turn. Returns one row for each server and case, with all samples."""
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
    """Measures the peak resident memory of each server while many clients read at full rate."""
    source = settings.large_file(settings.memory)
    load = Load(source.name, source.stat().st_size)
    samples: dict[str, list[dict]] = {name: [] for name in SERVERS}
    for _ in range(BUSY_REPETITIONS):
        for name in SERVERS:
            with settings.machine.serving({name: source.parent}) as servers:
                outcome = sample(settings.machine, servers[name], load, ("mixed", BUSY_CLIENTS, BUSY_DEPTH), settings.load_s * 2)
                samples[name].append({**outcome, "peak_rss_bytes": servers[name].peak_rss_bytes()})
    return {"shape": "memory", "clients": BUSY_CLIENTS, "depth": BUSY_DEPTH, "samples": samples}
