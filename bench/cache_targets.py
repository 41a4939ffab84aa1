"""The targets of the caches, and what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from cache_hang import UNDISTURBED
from report import REQUESTS, middle, per_cpu_second, yes
from settings import MIB
from wan_figures import digits, heading, is_cut, mbit
from wan_figures import middle as middle_of

LEAF_AIM = 110
SEQUENTIAL_AIM = 0.95
BYTES_AIM, TIME_AIM = 1.1, 1.2
SERVE_AIM, XCACHE_AIM = 0.95, 2.0
SQUID_AIM, VARNISH_AIM = 1.5, 1.0
HERD_AIM = 1.05
HANG_AIM = 0.95
MEMORY_AIM_MIB = 512
FIRST_BYTE_AIM_S = 1.0
DIRECT = "direct: towpath cp <- xrootd5"
OWN_COPY = "xrdcp 5.5 <- towpath cache"


RULE = "towpath cache (HTTP), rechecked after 1 h"
"""As the other caches of small objects are set."""
XCACHES = ("XCache 5.5", "XCache 6.2")

Rows = list[list[str]]


def is_own(name: str) -> bool:
    return name.startswith("towpath cache")


def phases(samples: list[dict], phase: str, key: str) -> list[float]:
    return [sample["phases"][phase][key] for sample in samples if phase in sample["phases"]]


def direct_of(cell: dict, name: str) -> float:
    """Returns the median time of the direct read from the origin of a cache."""
    origin = "towpath" if name.endswith("<- towpath") else "xrootd5"
    samples = cell["runs"].get(f"direct <- {origin}")
    return statistics.median(phases(samples, "cold", "seconds")) if samples else float("nan")


def mb_per_s(sample: dict) -> float:
    return mbit(sample) / 8


def sparse_targets(record: dict) -> Rows:
    rows = []
    for cell in record["cells"]:
        for name in filter(is_own, cell["runs"]):
            samples = cell["runs"][name]
            carried = statistics.median(phases(samples, "cold", "origin_bytes")) / record["bytes"]
            time = statistics.median(phases(samples, "cold", "seconds")) / direct_of(cell, name)
            place = f"{name}, {heading(cell['path'], [cell])}"
            rows.append([record["job"], f"bytes from the origin, relative to the request: {place}", f"{carried:.2f}", f"≤ {BYTES_AIM}", yes(carried <= BYTES_AIM)])
            rows.append([record["job"], f"time of a cold read, relative to direct: {place}", f"{time:.2f}", f"≤ {TIME_AIM}", yes(time <= TIME_AIM)])
    return rows


def rate_targets(record: dict) -> Rows:
    rows = []
    for cell in record["cells"]:
        path, own, direct = heading(cell["path"], record["cells"]), cell["runs"].get(OWN_COPY), cell["runs"].get(DIRECT)
        if not own or not direct:
            rows.append([record["job"], f"copy through the cache, {path}", "–", "", "no"])
        elif record["job"] == "leaf":
            rate = middle_of(own, mb_per_s)
            rows.append([record["job"], f"MB/s, {path}", digits(rate), f"≥ {LEAF_AIM}", yes(rate >= LEAF_AIM and not is_cut(own))])
        else:
            ratio = middle_of(own, mbit) / middle_of(direct, mbit)
            rows.append([record["job"], f"rate relative to `{DIRECT}`, {path}", f"{ratio:.2f}", f"≥ {SEQUENTIAL_AIM}", yes(ratio >= SEQUENTIAL_AIM and not is_cut(own))])
    return rows


def at_least(job: str, figure: str, ratio: float, aim: float) -> list[str]:
    return [job, figure, f"{ratio:.2f}", f"≥ {aim}", yes(ratio >= aim)]


def herd_targets(record: dict) -> Rows:
    rows = []
    for cell in record["cells"]:
        for name in filter(is_own, cell["runs"]):
            ratio = middle_of(cell["runs"][name], lambda sample: sample["origin_bytes"]) / record["bytes"]
            rows.append([record["job"], f"bytes from the origin, relative to the file: {name}", f"{ratio:.2f}", f"≤ {HERD_AIM}", yes(ratio <= HERD_AIM)])
    return rows


def hang_targets(record: dict) -> Rows:
    rows = []
    for cell in record["cells"]:
        for name in filter(is_own, cell["runs"]):
            if not name.endswith(UNDISTURBED):
                ratio = middle_of(cell["runs"][name], mbit) / middle_of(cell["runs"][name + UNDISTURBED], mbit)
                rows.append(at_least(record["job"], f"rate of readers of the other origin, relative to undisturbed: {name}", ratio, HANG_AIM))
    return rows


def copies(record: dict, client: str) -> Iterator[tuple[str, float, float]]:
    """Returns comparisons of a copy from the cache: figure, ratio, and target."""
    runs = record["runs"]
    own = runs[f"{client} <- towpath cache"]
    yield "rate relative to `towpath serve`", middle(runs[f"{client} <- towpath, the origin"], "seconds") / middle(own, "seconds"), SERVE_AIM
    for rival in XCACHES:
        if samples := runs.get(f"{client} <- {rival}"):
            yield f"bytes per server CPU second relative to {rival}", middle(samples, "server_cpu_s") / middle(own, "server_cpu_s"), XCACHE_AIM


def warm_targets(record: dict) -> Rows:
    rows = []
    for client in ("xrdcp 5.5", "curl"):
        rows += [at_least(record["job"], f"1 GiB, {client}: {what}", ratio, aim) for what, ratio, aim in copies(record, client)]
    cases = {(row["kind"], row["clients"], row["depth"], row["server"]): row for row in record["rows"]}
    for (kind, clients, depth, server), own in cases.items():
        if server != "towpath cache":
            continue
        case = f"{REQUESTS[kind]}, {clients} clients × {depth}"
        serve = cases[kind, clients, depth, "towpath, the origin"]
        rate = [statistics.median(sample["requests"] / sample["seconds"] for sample in row["samples"]) for row in (own, serve)]
        rows.append(at_least(record["job"], f"{case}: rate relative to `towpath serve`", rate[0] / rate[1], SERVE_AIM))
        for rival in XCACHES:
            if row := cases.get((kind, clients, depth, rival)):
                rows.append(at_least(record["job"], f"{case}: per server CPU second, relative to {rival}", per_cpu_second(own) / per_cpu_second(row), XCACHE_AIM))
    return rows


def conditions_targets(record: dict) -> Rows:
    rows = []
    by_server = {(row["connections"], row["server"]): row for row in record["rows"]}
    for (connections, server), own in by_server.items():
        if server == RULE:
            for rival, aim in (("Squid", SQUID_AIM), ("Varnish", VARNISH_AIM)):
                if row := by_server.get((connections, rival)):
                    figure = f"{connections:,} connections: requests per server CPU second, relative to {rival}"
                    rows.append(at_least(record["job"], figure, per_cpu_second(own) / per_cpu_second(row), aim))
    return rows


def memory_targets(record: dict) -> Rows:
    first = next(stage["first_byte_s"] for stage in record["stages"] if "first_byte_s" in stage)
    rows = [[record["job"], f"seconds to the first byte after a start, {record['files']:,} files", f"{first:.2f}", f"≤ {FIRST_BYTE_AIM_S}", yes(first <= FIRST_BYTE_AIM_S)]]
    for stage in record["stages"]:
        if "in_flight" in stage:
            peak = stage["peak_rss_bytes"] / MIB
            figure = f"peak resident memory in MiB, {record['files']:,} files, {record['readers']:,} readers, {stage['in_flight']} requests in flight each"
            rows.append([record["job"], figure, f"{peak:.0f}", f"≤ {MEMORY_AIM_MIB}", yes(peak <= MEMORY_AIM_MIB)])
    return rows


TARGETS: dict[str, Callable[[dict], Rows]] = {
    "sparse": sparse_targets,
    "rate": rate_targets,
    "herd": herd_targets,
    "hang": hang_targets,
    "warm": warm_targets,
    "conditions": conditions_targets,
    "memory": memory_targets,
}
