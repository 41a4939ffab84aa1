"""Tables from the raw samples."""

from __future__ import annotations

import json
import pathlib

import requests_job
from harness import median_and_spread

CAVEATS = """# Benchmark results

Made by `make bench`; the raw samples are in the JSON files beside this one. Read these before the tables:

- One machine, loopback: server and client share its cores, so processor seconds matter as much as the rate. Figures drift from hour to hour; only ratios
  within one table are worth quoting. Contenders were run in turn, in rotating order.
- The work is not quite alike: over XRootD both towpath and xrdcp check a CRC32C for each page; towpath also computes CRC32C and Adler32 of what it writes and keeps them;
  curl and rclone check nothing.
- `ratio` is the contender's median rate over the best median rate (or the best median time over its own) of all pairs in which towpath has no part.
"""


def table(record: dict) -> str:
    """One job as Markdown."""
    if record["shape"] == "requests":
        return requests_job.table(record["rows"])
    return seconds_table(record) if record["shape"] == "seconds" else transfer_table(record)


def seconds_table(record: dict) -> str:
    """Jobs whose result is how long they take."""
    round_trip = record.get("round_trip_s")
    runs = {name: median_and_spread([run["seconds"] for run in samples]) for name, samples in record["runs"].items()}
    foreign = [taken[0] for name, taken in runs.items() if "towpath" not in name]
    best = min(foreign) if foreign else float("nan")
    lines = ["| contender | n | s, median (least–most) | ratio" + (" | round trips |" if round_trip else " |"), "| --- | ---: | ---: | ---:" + (" | ---: |" if round_trip else " |")]
    for name, (median, least, most) in sorted(runs.items(), key=lambda item: item[1][0]):
        trips = f" | {median / round_trip:.1f} |" if round_trip else " |"
        lines.append(f"| {name} | {len(record['runs'][name])} | {median:.3f} ({least:.3f}–{most:.3f}) | {best / median:.2f}{trips}")
    return "\n".join(lines)


def transfer_table(record: dict) -> str:
    """Jobs that move a known number of bytes."""
    runs = {name: samples for name, samples in record["runs"].items()}
    rates = {name: median_and_spread([record["bytes"] * 8e-9 / run["seconds"] for run in samples]) for name, samples in runs.items()}
    foreign = [rate[0] for name, rate in rates.items() if "towpath" not in name]
    best = max(foreign) if foreign else float("nan")
    lines = [
        "| contender | n | Gbit/s, median (least–most) | ratio | server CPU s/GB | client CPU s/GB | both |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, (median, least, most) in sorted(rates.items(), key=lambda item: -item[1][0]):
        gigabytes = record["bytes"] / 1e9
        server = median_and_spread([run["server_cpu_s"] / gigabytes for run in runs[name]])[0]
        client = median_and_spread([run["client_cpu_s"] / gigabytes for run in runs[name]])[0]
        lines.append(
            f"| {name} | {len(runs[name])} | {median:.2f} ({least:.2f}–{most:.2f}) | {median / best:.2f} | {server:.2f} | {client:.2f} | {server + client:.2f} |"
        )
    return "\n".join(lines)


def document(results: pathlib.Path) -> str:
    """All jobs as one page."""
    parts = [CAVEATS]
    for path in sorted(results.glob("*.json")):
        record = json.loads(path.read_text())
        where = record["circumstances"]
        quick = " **A quick run: smaller data, not for quoting.**" if record["quick"] else ""
        parts.append(
            f"## {record['job']}\n\n{where['cores']} cores of {where['processor']}, kernel {where['kernel']}, {where['date']}, "
            f"load before {where['load_before']:.1f}.{quick}\n\n{table(record)}\n"
        )
    return "\n".join(parts)
