"""Rates of file transfers by number of flows and size of blocks, beside those of their stages, over emulated paths. Needs root.

    make bench-lab

The talk's table of XDD, with `lab_flows.py`: as many threads for reading, connections, and threads for writing as flows. Stages are measured
alone: reading, writing, and the network without files. All is on one machine, with files on a disk and without the page cache. Runs are
appended to grid.jsonl; an interrupted run continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from circumstances import git
from lab_lines import append_line, resume_lines
from towpath.lab import composition
from towpath.lab.measure.emulator import SERVER, emulated_path, permitted_transports
from towpath.lab.measure.machine import ProcessorTimes, lost_packets
from towpath.lab.measure.plan import Cell, Emulator

RESULTS = pathlib.Path(__file__).parent / "results" / "lab"
TOOL = pathlib.Path(__file__).with_name("lab_flows.py")
RTTS_MS = (0.4, 11.8, 91.6)
FLOWS = (1, 2, 4, 8)
BLOCKS = (8 << 10, 64 << 10, 148 << 10)
REPETITIONS = 3
BYTES = 148 * 4096 * 400
"""Size of the file: 242 MB, 2 s at the rate of the path."""
RATE = "1Gbit"
BUFFER = "64MiB"
PORT = 1094
DEADLINE_S = 300
STAGES = ("read", "network", "write")
TOLERANCE = 0.05
"""Least relative error of a rate for the verdict on its stages."""


def command(what: str, file: pathlib.Path | str, flows: int, block: int, *more: str) -> list[str]:
    return [sys.executable, str(TOOL), what, str(file), "--flows", str(flows), "--block", str(block), "--bytes", str(BYTES), *more]


def rate_of(output: str) -> float:
    """Returns the bits per second of a command of `lab_flows.py`."""
    return 8 * BYTES / json.loads(output.splitlines()[-1])["seconds"]


def stage(what: str, file: pathlib.Path, flows: int, block: int) -> float:
    return rate_of(subprocess.run(command(what, file, flows, block), capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout)


def transfer(hosts, source: pathlib.Path | str, destination: pathlib.Path | str, flows: int, block: int) -> float:
    """Transfers from host 2 to host 1."""
    address = f"{SERVER}:{PORT}"
    sender = hosts.command(2, *command("send", source, flows, block, "--listen", address))
    with subprocess.Popen(sender, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout.readline() != "listening\n":
                raise OSError("the sender did not start")
            receiver = hosts.command(1, *command("receive", destination, flows, block, "--from", address))
            return rate_of(subprocess.run(receiver, capture_output=True, text=True, check=True, timeout=DEADLINE_S).stdout)
        finally:
            process.terminate()


def run(towpath: pathlib.Path, directory: pathlib.Path, repetition: int, rtt_ms: float, flows: int, block: int) -> dict[str, object]:
    """Measures the stages, and the transfer."""
    source, destination = directory / "source", directory / "destination"
    cell = Cell(repetition, rtt_ms, "cubic", BUFFER, "flows", flows)
    rates = {"read": stage("read", source, flows, block), "write": stage("write", destination, flows, block)}
    limits = []
    for name, ends in (("network", ("-", "-")), ("transfer", (source, destination))):
        before = ProcessorTimes()
        with emulated_path(towpath, Emulator(rate=RATE), cell) as hosts:
            rates[name] = transfer(hosts, *ends, flows, block)
            use = ProcessorTimes().use_since(before)
            limits.append(use.limit(lost_packets(hosts.counters())))
    if subprocess.run(["cmp", source, destination], check=False).returncode:
        raise OSError("the copy differs from the file")
    where = {"repetition": repetition, "rtt_ms": rtt_ms, "flows": flows, "block": block}
    return where | {"bits_per_s": rates, "limited_by": limits[0] or limits[1], "busy": use.busy, "commit": git("rev-parse", "--short", "HEAD")}


def groups(records: list[dict]) -> dict[tuple[float, int, int], list[dict]]:
    """Returns the runs by round trip, flows and block."""
    found: dict[tuple[float, int, int], list[dict]] = {}
    for record in records:
        found.setdefault((record["rtt_ms"], record["flows"], record["block"]), []).append(record)
    return dict(sorted(found.items()))


def rates_of_runs(records: list[dict]) -> dict[tuple[float, int, int], list[dict[str, float]]]:
    """Returns the rates of each run, without runs that the machine limited; a group of only such runs is missing."""
    found = {key: [run["bits_per_s"] for run in group if run["limited_by"] is None] for key, group in groups(records).items()}
    return {key: rates for key, rates in found.items() if rates}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Returns the median of each rate."""
    return {name: statistics.median(rates[name] for rates in runs) for name in runs[0]}


def tolerance(runs: list[dict[str, float]]) -> float:
    """Returns half of the range of the transfer or of its slowest stage, relative to the median, whichever is larger."""
    rates = medians(runs)
    slowest = min(STAGES, key=rates.__getitem__)
    ranges = [(max(values) - min(values)) / 2 / rates[name] for name in ("transfer", slowest) for values in [[run[name] for run in runs]]]
    return min(max(TOLERANCE, *ranges), 0.5)


def judged(runs: list[dict[str, float]]) -> composition.Judgement:
    """Compares the medians of a transfer with those of its stages."""
    rates = medians(runs)
    stages = {name: rates[name] for name in STAGES}
    return composition.judge(composition.compose(stages), rates["transfer"], tolerance=tolerance(runs))


def table(records: list[dict]) -> str:
    rows = ["| round trip | flows | block | read | network | write | transfer | transfer / slowest stage | | left out |"]
    rows.append("| ---: | ---: | ---: |" + " ---: |" * 5 + " --- | ---: |")
    known = rates_of_runs(records)
    for (rtt_ms, flows, block), group in groups(records).items():
        start, limited = f"| {rtt_ms:g} ms | {flows} | {block >> 10} KiB", sum(run["limited_by"] is not None for run in group)
        if (rtt_ms, flows, block) not in known:
            rows.append(f"{start} | | | | | | | {limited} |")
            continue
        rates = medians(known[rtt_ms, flows, block])
        verdict = judged(known[rtt_ms, flows, block])
        shown = " | ".join(f"{rates[name] / 1e6:.0f}" for name in (*STAGES, "transfer"))
        word = "faster than a stage" if verdict.is_contradiction[0] else verdict.verdicts[0] if verdict.is_distinct[0] else "not distinct"
        rows.append(f"{start} | {shown} | {100 * verdict.efficiency[0]:.0f} % | {word} | {limited} |")
    notes = (
        "Left out: runs that the machine limited, of three. The tolerance of a verdict is half of the range of the runs, at least 5 %; in rows that are *not distinct* "
        "it covers the difference of the bounds, so that they do not tell whether stages overlap. A transfer that is *faster than a stage* shows that this stage varies."
    )
    return "\n".join([*rows, "", notes])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towpath", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--scratch", type=pathlib.Path, help="directory on the disk to measure [default: that for temporary files]")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    lines = options.results / "grid.jsonl"
    records = resume_lines(lines)
    done = {(record["repetition"], record["rtt_ms"], record["flows"], record["block"]) for record in records}
    with permitted_transports(), tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        directory = pathlib.Path(scratch)
        (directory / "source").write_bytes(os.urandom(BYTES))
        for cell in itertools.product(range(REPETITIONS), RTTS_MS, FLOWS, BLOCKS):
            if cell in done:
                continue
            records.append(run(options.towpath.resolve(), directory, *cell))
            append_line(lines, records[-1])
            print(cell, {name: f"{rate / 1e6:.0f}" for name, rate in records[-1]["bits_per_s"].items()}, flush=True)
    (options.results / "grid.md").write_text(table(records) + "\n")
    print(table(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
