"""Predictions of `towpath lab predict` against real copies over emulated paths, with the kernel's own TCP. Needs root.

    make bench-lab

Each trial has a path of its own, with a round trip, a rate, a congestion control and a loss from the ranges of its family; a set of 1 to
300 files (log-uniform); and a direction. It is probed, and then copied. All is on one machine, with files in memory. Trials are appended to
predictions.jsonl; an interrupted run continues.

The trials over the path of the campaign are also predicted with its profile: the runs of iperf3 with 4 connections and 64 MiB.
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
from dataclasses import dataclass

from circumstances import git
from lab_lines import append_line, resume_lines
from towpath.lab.measure.emulator import SERVER, emulated_path, permitted_transports
from towpath.lab.measure.machine import ProcessorTimes, lost_packets, state
from towpath.lab.measure.plan import Cell, Emulator
from towpath.lab.predict import CLASSES, Calibration, class_of, least_count, parts, run_probe, spread, total, widest
from towpath.lab.runs import Runs
from towpath.lab.transfer_times import TransferTimes

RESULTS = pathlib.Path(__file__).parent / "results" / "lab"
CAMPAIGN = RESULTS / "campaign" / "runs.parquet"
PORT = 1094
COPY_DEADLINE_S = 600
COVERAGE = 0.9


@dataclass(frozen=True)
class Family:
    """Trials with the same ranges of conditions."""

    trials: range
    log_rtt_ms: tuple[float, float]
    """Decimal logarithms of the least and the greatest round trip."""
    rates_mbit: list[int]
    longest_s: float
    """Time at the rate of the largest copy. The smallest takes 1 s."""
    losses: list[float]
    directions: tuple[str, ...] = ("down", "up")


FAMILIES = [
    Family(range(240), (0, 2.3), [50, 200, 500], 8, [0.0, 1e-5]),
    # Those of the first family are few above 100 ms.
    Family(range(240, 280), (2, 2.3), [50, 200, 500], 8, [0.0, 1e-5]),
    # The path of the campaign.
    Family(range(280, 360), (0, 2.56), [1000], 12, [0.0]),
    Family(range(360, 400), (1.3, 2.56), [1000], 12, [0.0], ("down",)),
]
CAMPAIGN_TRIALS = range(280, 400)


def conditions(trial: int) -> dict[str, object]:
    """Returns the path and the files of a trial."""
    chance = random.Random(trial)
    family = next(family for family in FAMILIES if trial in family.trials)
    rate_mbit = chance.choice(family.rates_mbit)
    bytes_total = int(rate_mbit * 1e6 / 8 * chance.uniform(1, family.longest_s))
    return {
        "trial": trial,
        "rtt_ms": round(10 ** chance.uniform(*family.log_rtt_ms), 1),
        "rate_mbit": rate_mbit,
        "transport": chance.choice(["cubic", "bbr"]),
        "loss": chance.choice(family.losses),
        "files": round(10 ** chance.uniform(0, 2.477)),
        "bytes": bytes_total,
        "direction": chance.choice(family.directions),
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
            probed = run_probe(hosts.command(1, towpath), source, destination, seconds=None, files=what["files"], size=f"{size}B")
            before, start = ProcessorTimes(), time.monotonic()
            subprocess.run(hosts.command(1, towpath, "cp", "--quiet", "-r", source, destination), check=True, timeout=COPY_DEADLINE_S)
            actual_s = time.monotonic() - start
            use = ProcessorTimes().use_since(before)
        lost = lost_packets(hosts.counters())
    predicted = probed["predictions"][0]
    return what | {
        "min_rtt_s": probed["min_rtt_s"],
        "probe_s": probed["network"][0]["seconds"],
        "predicted_s": predicted["seconds"],
        "actual_s": actual_s,
        "prediction": predicted,
        "commit": git("rev-parse", "--short", "HEAD"),
        "limited_by": use.limit(lost),
        "busy": use.busy,
        "stolen": use.stolen,
    }


def profiles() -> dict[str, TransferTimes]:
    """Returns the profiles of the campaign with 4 connections and 64 MiB, by congestion control."""
    configurations = Runs.read(CAMPAIGN).configurations()
    return {key.transport: TransferTimes.of_runs(runs) for key, runs in configurations if (key.streams, key.buffer_bytes) == (4, 64 << 20)}


@dataclass(frozen=True)
class Predicted:
    """A trial and its prediction by one method."""

    record: dict
    seconds: float
    of_runs: list[Calibration]
    """The calibration from the runs of the profile, if the method has one."""

    @property
    def ratio(self) -> float:
        """Actual / predicted time."""
        return self.record["actual_s"] / self.seconds

    @property
    def path_class(self) -> str:
        return class_of(self.record.get("min_rtt_s", self.record["rtt_ms"] / 1e3))


def by_probe(records: list[dict]) -> list[Predicted]:
    return [Predicted(record, record["predicted_s"], []) for record in records]


def with_profile(records: list[dict]) -> list[Predicted]:
    """Returns predictions of trials over the path of the campaign by probe and profile. Its runs are downloads."""
    of_transport, found = profiles(), []
    for record in records:
        probe = {"min_rtt_s": record["min_rtt_s"], "predictions": [record["prediction"]]}
        profile = of_transport[record["transport"]]
        found.append(Predicted(record, total(parts(probe, profile)), [spread(probe, profile, COVERAGE)]))
    return found


def calibration(copies: list[Predicted]) -> Calibration:
    return Calibration.of_copies([copy.seconds for copy in copies], [copy.record["actual_s"] for copy in copies])


def log_ratios(copies: list[Predicted], path_class: str) -> list[float]:
    """Returns the logarithms of actual / predicted time of a class."""
    found = calibration([copy for copy in copies if copy.path_class == path_class]).log_ratios
    return [round(float(ratio), 4) for ratio in found]


def intervals(copies: list[Predicted]) -> list[tuple[bool, float] | None]:
    """Returns for each copy whether its time is in the interval, and upper / lower end. The interval is from all others of its class, and
    from the runs of the profile. None if those of the class are too few."""
    found: list[tuple[bool, float] | None] = []
    for copy in copies:
        others = [other for other in copies if other is not copy and other.path_class == copy.path_class]
        if len(others) < least_count(COVERAGE):
            found.append(None)
            continue
        lower, upper = widest([calibration(others), *copy.of_runs], COVERAGE)
        found.append((lower <= copy.ratio <= upper, upper / lower))
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
    "100 to 200 ms": lambda record: 100 <= record["rtt_ms"] < 200,
    "200 ms and more": lambda record: 200 <= record["rtt_ms"],
    **{f"{rate} Mbit/s": lambda record, rate=rate: record["rate_mbit"] == rate for rate in (50, 200, 500, 1000)},
    "processors busy": lambda record: record["limited_by"] is not None,
}


def table(copies: list[Predicted]) -> str:
    """Formats errors and coverage."""
    found = list(zip(copies, intervals(copies), strict=True))
    rows = ["| trials | number | median error | 90 % of the errors below | in the 90 % interval | its upper / lower end, median |"]
    rows.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, is_member in GROUPS.items():
        members = [(copy, interval) for copy, interval in found if is_member(copy.record)]
        if not members:
            continue
        errors = sorted(abs(copy.ratio - 1) for copy, _ in members)
        high = errors[min(int(0.9 * len(errors)), len(errors) - 1)]
        known = [interval for _, interval in members if interval is not None]
        covered = f"{100 * statistics.mean(is_in for is_in, _ in known):.0f} %" if len(known) == len(members) else "too few copies"
        width = f"{statistics.median(width for _, width in known):.2f}" if len(known) == len(members) else ""
        rows.append(f"| {name} | {len(members)} | {100 * statistics.median(errors):.1f} % | {100 * high:.1f} % | {covered} | {width} |")
    return "\n".join(rows)


def document(records: list[dict]) -> str:
    """Formats the results of all methods."""
    on_campaign = [record for record in records if record["trial"] in CAMPAIGN_TRIALS]
    down, up = ([record for record in on_campaign if record["direction"] == direction] for direction in ("down", "up"))
    sections = {
        "By the probe": by_probe(records),
        "By the probe, downloads over the path of the campaign": by_probe(down),
        "By probe and profile, downloads over the path of the campaign": with_profile(down),
        "By the probe, uploads over the path of the campaign": by_probe(up),
        "By probe and profile of downloads, uploads over the path of the campaign": with_profile(up),
    }
    return "\n\n".join(f"### {title}\n\n{table(copies)}" for title, copies in sections.items() if copies) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towpath", type=pathlib.Path, required=True)
    parser.add_argument("--trials", type=int, default=FAMILIES[-1].trials.stop)
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
    text = document(records)
    (options.results / "predictions.md").write_text(text)
    print(text)
    if options.calibration:
        down = [record for record in records if record["trial"] in CAMPAIGN_TRIALS and record["direction"] == "down"]
        methods = {"by_probe": by_probe(records), "with_profile": with_profile(down)}
        ratios = {method: {name: log_ratios(copies, name) for name in CLASSES} for method, copies in methods.items()}
        options.calibration.write_text(json.dumps({"source": "bench/lab_predict.py", **ratios}) + "\n")
    return 0


def line(record: dict) -> str:
    """Formats a trial."""
    path = f"{record['rtt_ms']} ms, {record['rate_mbit']} Mbit/s, {record['transport']}, loss {record['loss']:g}"
    times = f"{record['predicted_s']:.2f} s predicted, {record['actual_s']:.2f} s taken, {record['actual_s'] / record['predicted_s']:.2f}"
    return f"{record['trial']}: {path}, {record['files']} files {record['direction']}: {times}"


if __name__ == "__main__":
    sys.exit(main())
