"""Job (c): small random reads and vector reads, by one load generator for all servers.

The file lies in memory. What counts is requests per second of the server's processor time: the load generator shares the machine.
"""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess

from contenders import Machine
from harness import Server

FILE_BYTES = 2 << 30
CASES = [("read", clients, depth) for clients in (1, 16) for depth in (1, 16)] + [("readv", clients, depth) for clients in (1, 16) for depth in (1, 4)]


def sample(generator: str, server: Server, name: str, kind: str, clients: int, depth: int, seconds: float) -> dict:
    before = server.cpu_s()
    command = [generator, f"127.0.0.1:{server.port}", f"/{name}", str(FILE_BYTES), str(clients), str(depth), str(seconds), kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    outcome = json.loads(done.stdout)
    outcome["server_cpu_s"] = server.cpu_s() - before
    return outcome


def run(machine: Machine, generator: str, source: pathlib.Path, repetitions: int, seconds: float) -> list[dict]:
    """All cases, servers in turn; one row for each server and case, with every sample."""
    servers = {
        "towpath": machine.serve_towpath(source.parent),
        "xrootd 6.2": machine.serve_xrootd(source.parent, version6=True),
        "xrootd 5.5": machine.serve_xrootd(source.parent, version6=False),
    }
    rows = []
    try:
        for kind, clients, depth in CASES:
            samples: dict[str, list[dict]] = {name: [] for name in servers}
            for round_number in range(-1, repetitions):
                for name, server in servers.items():
                    outcome = sample(generator, server, source.name, kind, clients, depth, 0.5 if round_number < 0 else seconds)
                    if round_number >= 0:
                        samples[name].append(outcome)
            rows += [{"server": name, "kind": kind, "clients": clients, "depth": depth, "samples": taken} for name, taken in samples.items()]
        rows.append({"memory": {name: server.peak_rss_bytes() for name, server in servers.items()}})
    finally:
        for server in servers.values():
            server.stop()
    return rows


def table(rows: list[dict]) -> str:
    """Medians, and towpath's ratio to XRootD 6.2."""
    lines = [
        "| request | clients | in flight each | server | requests/s | per server CPU second | ratio | p99 µs |",
        "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    per_cpu: dict[tuple, float] = {}
    for row in rows:
        if "memory" in row:
            continue
        case = (row["kind"], row["clients"], row["depth"])
        per_cpu[row["server"], *case] = statistics.median(one["requests"] / max(one["server_cpu_s"], 0.01) for one in row["samples"])
    for row in rows:
        if "memory" in row:
            continue
        case = (row["kind"], row["clients"], row["depth"])
        rate = statistics.median(one["requests"] / one["seconds"] for one in row["samples"])
        p99 = statistics.median(one["p99_us"] for one in row["samples"])
        mine = per_cpu[row["server"], *case]
        ratio = mine / per_cpu["xrootd 6.2", *case]
        kind = "read 4 KiB" if row["kind"] == "read" else "readv 1024 × 1.5 KiB"
        lines.append(f"| {kind} | {row['clients']} | {row['depth']} | {row['server']} | {rate:,.0f} | {mine:,.0f} | {ratio:.2f} | {p99:,.0f} |")
    memory = next((row["memory"] for row in rows if "memory" in row), {})
    peak = ", ".join(f"{name} {size / 2**20:.0f} MiB" for name, size in memory.items())
    return "\n".join(lines) + f"\n\nPeak resident memory of the servers over the whole job: {peak}."
