"""Rates of the tools on this machine, over an emulated path that limits nothing: what the tools, the emulator and the processors can do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from towpath.lab.measure.emulator import emulated_path
from towpath.lab.measure.plan import Cell, Emulator, Plan
from towpath.lab.measure.tools import TOOLS, prepared_task

SECONDS = 3
"""Time of a measurement with a tool that runs for a time."""

RTT_MS = 0.1
"""The shortest round trip of a plan."""

MIN_RATIO = 2.0
"""Minimum of baseline / capacity: with less, the machine can limit a run, though its processors are not busy on average."""

_UNLIMITED = Emulator(rate="100Gbit", queue="64MiB")


@dataclass
class Baselines:
    """The baseline of each tool with its settings, measured when it is first needed."""

    plan: Plan
    towpath: Path
    _rates: dict[Cell, float] = field(default_factory=dict)

    def rate_bits_per_s(self, cell: Cell) -> float | None:
        """Returns the baseline of a cell in bits per second; None for a site. Raises `ToolError` if the tool fails."""
        if cell.site is not None:
            return None
        key = replace(cell, rtt_ms=RTT_MS, repetition=0)
        if key not in self._rates:
            self._rates[key] = self._measure(key)
        return self._rates[key]

    def _measure(self, cell: Cell) -> float:
        plan = replace(self.plan, seconds=min(self.plan.seconds, SECONDS))
        with (
            emulated_path(self.towpath, _UNLIMITED, cell) as hosts,
            prepared_task(plan, cell, hosts, RTT_MS / 1e3) as task,
        ):
            measured = TOOLS[cell.tool](task)
        return float(measured["throughput_bits_per_s"])
