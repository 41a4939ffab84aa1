"""The loop of a campaign: each missing cell is measured, and its run appended."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from towpath.lab.measure import machine
from towpath.lab.measure.baseline import MIN_RATIO, Baselines
from towpath.lab.measure.emulator import Hosts, emulated_path, permitted_transports
from towpath.lab.measure.plan import Cell, Emulator, Plan
from towpath.lab.measure.sites import Here, measure_rtt_s
from towpath.lab.measure.tools import TOOLS, Task, ToolError, prepared_task
from towpath.lab.profiles import profile_of
from towpath.lab.profiles.transition import find_transition, refinement
from towpath.lab.runs import Runs

PLAN, LINES, TABLE = "plan.toml", "runs.jsonl", "runs.parquet"
"""Files of a campaign: the plan, the runs so far, and the table when all of them are there."""

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Campaign:
    """A campaign in a directory."""

    def __init__(self, directory: Path, plan_text: str, name: str) -> None:
        """Creates the directory, or continues the campaign that is in it. Raises `ValueError` if that has another plan."""
        self.plan = Plan.parse(plan_text, name)
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        stored = directory / PLAN
        if stored.exists() and stored.read_text() != plan_text:
            raise ValueError(f"{stored} differs from {name}: continue with the same plan, or choose another directory")
        stored.write_text(plan_text)
        self._remove_cut_off_line()
        self._restore_lines()
        self.rows = self._read_lines()

    @classmethod
    def of_directory(cls, directory: Path) -> Campaign:
        """Reads a campaign without a change, also one that is being measured. Raises `OSError` if there is none."""
        campaign = cls.__new__(cls)
        campaign.plan = Plan.parse((directory / PLAN).read_text(), str(directory / PLAN))
        campaign.directory = directory
        campaign.rows = campaign._read_lines()
        return campaign

    def cells(self) -> list[Cell]:
        """Returns the cells of the plan, and those of each refinement whose preceding runs are complete."""
        rows = {row["run_id"]: row for row in self.rows}
        cells = self.plan.cells()
        for _ in range(self.plan.refinements):
            if any(cell.run_id not in rows for cell in cells):
                break
            refined = _refined(cells, rows)
            random.Random(self.plan.seed).shuffle(refined)
            cells += sorted(refined, key=lambda cell: cell.repetition)
        return cells

    def missing(self) -> list[Cell]:
        """Returns the cells that have no run, in their order."""
        present = {row["run_id"] for row in self.rows}
        return [cell for cell in self.cells() if cell.run_id not in present]

    def measure(self, towpath: Path, report: Callable[[str], None]) -> list[str]:
        """Measures the missing cells. `report` receives a line for each. Returns the messages of those that failed; with one, the next
        refinement does not start.

        Raises `OSError` if the emulator does not start.
        """
        failures: list[str] = []
        with permitted_transports() if self.plan.emulator else contextlib.nullcontext():
            while not failures and (cells := self.missing()):
                failures = self._measure(cells, towpath, report)
        return failures

    def _measure(self, cells: list[Cell], towpath: Path, report: Callable[[str], None]) -> list[str]:
        failures, state, baselines = [], machine.state(), Baselines(self.plan, towpath)
        for number, cell in enumerate(cells, 1):
            try:
                baseline = baselines.rate_bits_per_s(cell)
                with self._path(towpath, cell) as hosts:
                    row = self._run(cell, hosts, state, baseline)
                self._append(row)
            except (ToolError, ValueError, LookupError, ArithmeticError) as error:
                failures.append(f"{cell.run_id}: {error}")
                report(f"{number}/{len(cells)} {failures[-1]}")
            else:
                report(f"{number}/{len(cells)} {_line(row)}")
        return failures

    def runs(self) -> Runs:
        """Returns the runs so far."""
        return Runs.of_rows(self.rows, str(self.directory))

    def write_table(self) -> Path:
        """Writes the table of all runs, and returns its path."""
        path = self.directory / TABLE
        self.runs().write(path)
        return path

    def _path(self, towpath: Path, cell: Cell) -> contextlib.AbstractContextManager[Hosts | Here]:
        return contextlib.nullcontext(Here(towpath)) if self.plan.emulator is None else emulated_path(towpath, self.plan.emulator, cell)

    def _rtt_s(self, cell: Cell) -> float:
        """Returns the round trip of a cell: for a site that of its first run, as those of a profile have to be equal."""
        if cell.site is None:
            return (cell.rtt_ms or 0) / 1e3
        known = [float(row["rtt_s"]) for row in self.rows if row.get("site") == cell.site.name]
        try:
            return known[0] if known else round(measure_rtt_s(cell), 5)
        except OSError as error:
            raise ToolError(f"site {cell.site.name}: {error}") from error

    def _run(self, cell: Cell, hosts: Hosts | Here, state: dict[str, Any], baseline: float | None) -> dict[str, Any]:
        rtt_s, capacity = self._rtt_s(cell), self.plan.capacity_bits_per_s(cell)
        started, before, load = datetime.now(timezone.utc), machine.ProcessorTimes(), os.getloadavg()[0]
        with prepared_task(self.plan, cell, hosts, rtt_s) as task:
            measured = TOOLS[cell.tool](task)
            settings = _settings(task)
        use = machine.ProcessorTimes().use_since(before)
        counters = hosts.counters()
        lost, lateness = machine.lost_packets(counters), machine.Lateness.of_counters(counters)
        limit = use.limit(lost, _tool_percent(measured)) or ("emulator" if lateness.is_limit(rtt_s) else None)
        if limit is None and baseline is not None and capacity is not None and baseline < MIN_RATIO * capacity:
            limit = "baseline"
        circumstances = {
            "load": load,
            "lost_packets": lost,
            "late_s": lateness.longest_s,
            "late_mean_s": lateness.mean_s,
            "baseline_bits_per_s": baseline,
            "sysctls": settings,
        }
        return {
            "run_id": cell.run_id,
            "tool": cell.tool,
            "transport": cell.transport,
            "streams": cell.streams,
            "buffer_bytes": None if cell.buffer is None else size_of(cell.buffer),
            "rtt_s": rtt_s,
            "site": None if cell.site is None else cell.site.name,
            "repetition": cell.repetition,
            "started": started,
            "capacity_bits_per_s": capacity,
            **self._queue_and_loss(cell),
            "limited_by": limit,
            "machine": json.dumps(state | asdict(use) | circumstances),
            **measured,
        }

    def _queue_and_loss(self, cell: Cell) -> dict[str, Any]:
        """Returns the loss and the queue of an emulated path, unless they are the default ones."""
        path = self.plan.emulator
        if path is None or cell.site is not None:
            return {}
        return {"loss": path.loss or None, "queue": None if path.queue == Emulator.queue else path.queue}

    def _append(self, row: dict[str, Any]) -> None:
        """Appends a row that is valid; raises `ValueError` otherwise."""
        Runs.of_rows([row], row["run_id"])
        with (self.directory / LINES).open("a") as file:
            file.write(_json_line(row))
        self.rows.append(row)

    def _restore_lines(self) -> None:
        """Writes the lines of the table that are missing: of a campaign only the table may be kept, and it may be newer."""
        table = self.directory / TABLE
        if not table.exists():
            return
        known = {row["run_id"] for row in self._rows_of_lines()}
        lost = [row for row in Runs.read(table).table.to_pylist() if row["run_id"] not in known]
        with (self.directory / LINES).open("a") as file:
            file.writelines(map(_json_line, lost))

    def _remove_cut_off_line(self) -> None:
        """Removes a last line that an interruption cut off, so its run is measured again."""
        path = self.directory / LINES
        content = path.read_bytes() if path.exists() else b""
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)

    def _read_lines(self) -> list[dict[str, Any]]:
        """Reads the runs so far, without a last line that is not complete; those of the table if there are no lines."""
        path, table = self.directory / LINES, self.directory / TABLE
        if table.exists() and not path.exists():
            rows: list[dict[str, Any]] = Runs.read(table).table.to_pylist()
            return rows
        return self._rows_of_lines()

    def _rows_of_lines(self) -> list[dict[str, Any]]:
        path = self.directory / LINES
        whole, _, _ = (path.read_text() if path.exists() else "").rpartition("\n")
        try:
            return [_with_time(json.loads(line)) for line in whole.splitlines()]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: no runs of a campaign: {error}") from error


def _settings(task: Task) -> dict[str, dict[str, list[str]]]:
    """Returns the settings of TCP at the receiver and, on an emulated path, at the sender: each host has its own."""
    names = {1: "receiver"} if task.cell.site is not None else {1: "receiver", 2: "sender"}
    command = ("sh", "-c", machine.PRINT_SYSCTLS, "sh", *machine.SYSCTLS)
    return {name: machine.parse_sysctls(task.run(host, *command, deadline_s=10)) for host, name in names.items()}


def _tool_percent(measured: dict[str, Any]) -> float:
    """Returns the larger use of one processor at both ends in percent, as the tool reports it; 0 without a report."""
    percent = json.loads(measured.get("detail") or "{}").get("cpu_percent") or {}
    return max((float(percent.get(end, 0)) for end in ("host_total", "remote_total")), default=0.0)


def _refined(cells: list[Cell], rows: dict[str, dict[str, Any]]) -> list[Cell]:
    """Returns the cells of two more round trips for each configuration whose runs have a transition."""
    more: list[Cell] = []
    groups: dict[Cell, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(replace(cell, repetition=0, rtt_ms=0), []).append(cell)
    for group in groups.values():
        try:
            profile = profile_of(Runs.of_rows([rows[cell.run_id] for cell in group]))
            transition = find_transition(profile)
        except ValueError:
            # Its analysis says why.
            continue
        repetitions = sorted({cell.repetition for cell in group})
        # Runs that the machine limited are not in the profile.
        known = {cell.rtt_ms for cell in group}
        rtts_ms = [rtt_ms for rtt_s in refinement(transition, profile.rtt_s) if (rtt_ms := round(1e3 * rtt_s, 1)) not in known]
        more += [replace(group[0], repetition=repetition, rtt_ms=rtt_ms) for repetition in repetitions for rtt_ms in rtts_ms]
    return more


def _line(row: dict[str, Any]) -> str:
    limited = "" if row["limited_by"] is None else f", limited by {row['limited_by']}"
    return f"{row['run_id']}: {row['throughput_bits_per_s'] / 1e6:.1f} Mbit/s{limited}"


def size_of(text: str) -> int:
    """Returns the bytes of a size of a plan, such as `64MiB`."""
    digits = text.rstrip("kMGiB")
    return int(digits) * _UNITS[text[len(digits) :] or "B"]


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row | {"started": row["started"].isoformat()}) + "\n"


def _with_time(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"started": datetime.fromisoformat(row["started"])}
