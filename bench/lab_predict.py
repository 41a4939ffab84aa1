"""Predictions of `towpath lab predict` against real copies over emulated paths, with the kernel's own TCP. Needs root.

    make bench-lab

Each trial has a path of its own: round trip (1 to 200 ms, log-uniform), rate (50, 200 or 500 Mbit/s), congestion control (CUBIC or BBR),
loss (none, or 10^-5), a set of files (1 to 300, log-uniform) that takes between 1 and 8 s at the rate, and a direction. It is probed for 3 s,
and then copied. All is on one machine, with files in memory. Trials are appended to predictions.jsonl; an interrupted run continues.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

from circumstances import git
from lab_lines import append_line, resume_lines
from towpath.lab.measure.emulator import SERVER, emulated_path, permitted_transports
from towpath.lab.measure.machine import ProcessorTimes, lost_packets, state
from towpath.lab.measure.plan import Cell, Emulator
from towpath.lab.predict import CLASSES, Calibration, class_of, run_probe

RESULTS = pathlib.Path(__file__).parent / "results" / "lab"
PROBE_S = 3
PORT = 1094
COPY_DEADLINE_S = 600
COVERAGE = 0.9


def conditions(trial: int) -> dict[str, object]:
    """Returns the path and the files of a trial."""
    chance = random.Random(trial)
    # Those of the first trials are few above 100 ms.
    least = 0 if trial < 240 else 2
    rate_mbit = chance.choice([50, 200, 500])
    bytes_total = int(rate_mbit * 1e6 / 8 * chance.uniform(1, 8))
    return {
        "trial": trial,
        "rtt_ms": round(10 ** chance.uniform(least, 2.3), 1),
        "rate_mbit": rate_mbit,
        "transport": chance.choice(["cubic", "bbr"]),
        "loss": chance.choice([0.0, 1e-5]),
        "files": round(10 ** chance.uniform(0, 2.477)),
        "bytes": bytes_total,
        "direction": chance.choice(["down", "up"]),
    }


def write_files(directory: pathlib.Path, files: int, size: int) -> int:
    """Writes files of equal sizes, and returns their bytes."""
    directory.mkdir()
    each = max(size // files, 1)
    for number in range(files):
        with (directory / f"f{number}").open("wb") as file:
            file.truncate(each)
    return each * files


@contextlib.contextmanager
def server(towpath: pathlib.Path, hosts, directory: pathlib.Path):
    """Serves a directory in host 2."""
    command = hosts.command(2, towpath, "serve", directory, "--listen", f"{SERVER}:{PORT}", "--writable")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            if not process.stdout.readline().startswith("listening"):
                raise OSError("the server did not start")
            yield
        finally:
            process.terminate()


def run(towpath: pathlib.Path, trial: int) -> dict[str, object]:
    """Probes the path of a trial, copies its files, and returns both times."""
    what = conditions(trial)
    cell = Cell(trial, what["rtt_ms"], what["transport"], "64MiB", "towpath-cp", None)
    path = Emulator(rate=f"{what['rate_mbit']}Mbit", loss=what["loss"])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch, emulated_path(towpath, path, cell) as hosts:
        root = pathlib.Path(scratch)
        (root / "far").mkdir()
        (root / "near").mkdir()
        is_down = what["direction"] == "down"
        size = write_files(root / ("far" if is_down else "near") / "data", what["files"], what["bytes"])
        far, near = f"root://{SERVER}:{PORT}//data", str(root / "near" / "data")
        source, destination = (far, near) if is_down else (near, far)
        # Nothing that an earlier trial has learned.
        os.environ["XDG_CACHE_HOME"] = scratch
        with server(towpath, hosts, root / "far"):
            probed = run_probe(hosts.command(1, towpath), source, destination, seconds=PROBE_S, files=what["files"], size=f"{size}B")
            before, start = ProcessorTimes(), time.monotonic()
            subprocess.run(hosts.command(1, towpath, "cp", "--quiet", "-r", source, destination), check=True, timeout=COPY_DEADLINE_S)
            actual_s = time.monotonic() - start
            use = ProcessorTimes().use_since(before)
        lost = lost_packets(hosts.counters())
    predicted = probed["predictions"][0]
    return what | {
        "predicted_s": predicted["seconds"],
        "actual_s": actual_s,
        "prediction": predicted,
        "commit": git("rev-parse", "--short", "HEAD"),
        "limited_by": use.limit(lost),
        "busy": use.busy,
        "stolen": use.stolen,
    }


def of_class(records: list[dict], name: str) -> list[dict]:
    return [record for record in records if class_of(record["rtt_ms"] / 1e3) == name]


def calibration(records: list[dict]) -> Calibration:
    return Calibration.of_copies([record["predicted_s"] for record in records], [record["actual_s"] for record in records])


def intervals(records: list[dict]) -> dict[int, tuple[bool, float]]:
    """Returns by trial whether its time is in the interval, and upper / lower end. The interval is from all other trials of its class."""
    found = {}
    for name in CLASSES:
        members = of_class(records, name)
        for record in members:
            lower, upper = calibration([other for other in members if other is not record]).factors(COVERAGE)
            found[record["trial"]] = lower <= record["actual_s"] / record["predicted_s"] <= upper, upper / lower
    return found


GROUPS = {
    "all": lambda record: True,
    "down": lambda record: record["direction"] == "down",
    "up": lambda record: record["direction"] == "up",
    "CUBIC": lambda record: record["transport"] == "cubic",
    "BBR": lambda record: record["transport"] == "bbr",
    "no loss": lambda record: record["loss"] == 0,
    "loss of 10^-5": lambda record: record["loss"] > 0,
    "round trip below 20 ms": lambda record: record["rtt_ms"] < 20,
    "20 to 100 ms": lambda record: 20 <= record["rtt_ms"] < 100,
    "100 ms and more": lambda record: record["rtt_ms"] >= 100,
    "50 Mbit/s": lambda record: record["rate_mbit"] == 50,
    "200 Mbit/s": lambda record: record["rate_mbit"] == 200,
    "500 Mbit/s": lambda record: record["rate_mbit"] == 500,
    "processors busy": lambda record: record["limited_by"] is not None,
}


def table(records: list[dict]) -> str:
    """Formats errors and coverage."""
    found = intervals(records)
    rows = ["| trials | number | median error | 90 % of the errors below | in the 90 % interval | its upper / lower end, median |"]
    rows.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, is_member in GROUPS.items():
        members = [record for record in records if is_member(record)]
        if not members:
            continue
        errors = sorted(abs(record["actual_s"] / record["predicted_s"] - 1) for record in members)
        share = statistics.mean(found[record["trial"]][0] for record in members)
        width = statistics.median(found[record["trial"]][1] for record in members)
        high = errors[min(int(0.9 * len(errors)), len(errors) - 1)]
        rows.append(
            f"| {name} | {len(members)} | {100 * statistics.median(errors):.1f} % | {100 * high:.1f} % | {100 * share:.0f} % | {width:.2f} |"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towpath", type=pathlib.Path, required=True)
    parser.add_argument("--trials", type=int, default=240)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--calibration", type=pathlib.Path, help="also write the calibration of the package to this file")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    lines = options.results / "predictions.jsonl"
    records = resume_lines(lines)
    missing = sorted(set(range(options.trials)) - {record["trial"] for record in records})
    if missing:
        (options.results / "machine.json").write_text(json.dumps(state(), indent=1) + "\n")
    with permitted_transports() if missing else contextlib.nullcontext():
        for trial in missing:
            records.append(run(options.towpath.resolve(), trial))
            append_line(lines, records[-1])
            print(line(records[-1]), flush=True)
    (options.results / "predictions.md").write_text(table(records) + "\n")
    print(table(records))
    if options.calibration:
        ratios = {name: calibration(of_class(records, name)).log_ratios for name in CLASSES}
        rounded = {name: [round(float(ratio), 4) for ratio in members] for name, members in ratios.items()}
        options.calibration.write_text(json.dumps({"source": "bench/lab_predict.py", "log_ratios": rounded}) + "\n")
    return 0


def line(record: dict) -> str:
    """Formats a trial."""
    path = f"{record['rtt_ms']} ms, {record['rate_mbit']} Mbit/s, {record['transport']}, loss {record['loss']:g}"
    times = f"{record['predicted_s']:.2f} s predicted, {record['actual_s']:.2f} s taken, {record['actual_s'] / record['predicted_s']:.2f}"
    return f"{record['trial']}: {path}, {record['files']} files {record['direction']}: {times}"


if __name__ == "__main__":
    sys.exit(main())
