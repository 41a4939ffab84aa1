"""The page of how long others wait while a server is attacked."""

from __future__ import annotations

import json
import math
import pathlib

from circumstances import told
from report import markdown, yes
from settings import MIB
from starvation_jobs import LIMIT_S, REQUESTS

CAVEATS = """# How long others wait while a server is attacked

Made by `make bench-starvation` (see [how](../../README.md)); the raw samples are in the JSON files beside this. Before the tables:

- Each attack ([starvation_attack.py](../../starvation_attack.py)) runs against a server with default settings, from one address and from 64. Each of its
  connections is made again as soon as it is dropped, and after two to six seconds. Meanwhile one client sends short requests, each on a connection of its own, and waits for the whole answer.
- One machine, loopback: server, attack and client share its cores. Addresses are of 127.0.0.0/8.
- A request that took longer than {limit:.0f} s was given up; after three of a kind no more were sent.
- Asked: 99 of 100 requests from another address than the attack's within 1 s. Those from an attacker's address are shown for comparison.
- Memory is the most that the server had resident.
- A run lasts some ten seconds.
"""
AIM_S = 1.0


def percentile(values: list[float], share: float) -> float:
    """The value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def found(values: list[float]) -> str:
    """Median, 99th percentile and most in milliseconds."""
    if values.count(LIMIT_S) >= 3:
        return f"none ({len(values) - values.count(LIMIT_S)} answered)" if len(values) == 3 else f"{values.count(LIMIT_S)} of {len(values)} given up"
    return " / ".join(f"{1000 * value:.1f}" for value in (percentile(values, 0.5), percentile(values, 0.99), max(values)))


def table(record: dict) -> str:
    """What was found beside what is asked."""
    rows = []
    for run in record["runs"]:
        for where, of_kind in run["times_s"].items():
            is_asked = where == "another address"
            met = all(percentile(values, 0.99) <= AIM_S for values in of_kind.values())
            cells = [found(of_kind[what]) for what in REQUESTS]
            rows.append([str(run["addresses"]), where, *cells, yes(met) if is_asked else "", f"{run['peak_rss_bytes'] / MIB:,.0f} MiB", str(run.get("reconnects", "?"))])
    heads = ["attacking addresses", "requests from", *(f"{what}: p50 / p99 / most, ms" for what in REQUESTS), "p99 ≤ 1 s", "memory", "reconnects"]
    return markdown(heads, rows, left=2)


def section(results: pathlib.Path) -> str:
    """The tables of a directory."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    if not records:
        return ""
    quick = "\n**A quick run: too few requests were sent.**\n" if any(record["quick"] for record in records) else ""
    tables = "\n".join(f"### {record['runs'][0]['attack']}\n\n{table(record)}\n" for record in records)
    return f"{told([record['circumstances'] for record in records])}\n{quick}\n{tables}"


def document(results: pathlib.Path) -> str:
    """The page for the JSON files in `results`, and those of an earlier version in `results/before`."""
    before = section(results / "before")
    earlier = f"\n## Before shares were fair (RFC 0005)\n\n{before}" if before else ""
    return f"{CAVEATS.format(limit=LIMIT_S)}\n## Now\n\n{section(results)}{earlier}"
