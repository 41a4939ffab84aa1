"""State of the machine that measures, and whether its processors were the limit of a run."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_BUSY = 0.9
"""Share of the time of all processors above which they count as the limit of a run."""

MAX_BUSIEST = 0.98
"""The same for the busiest processor alone: threads of one stream can be on one processor."""

MAX_TOOL_PERCENT = 90.0
"""Share of one processor that the sender or the receiver of a run used, as its tool reports it, above which it counts as the limit."""

MAX_MEAN_LATENESS_S, MAX_MEAN_LATENESS_RTT = 1e-4, 0.02
"""Mean delay of the emulator's packets beyond their schedule, in seconds and relative to the round trip. With more than both, the
machine is the limit of a run."""

SYSCTLS = (
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.core.default_qdisc",
)
"""Settings of the hosts that are recorded with each run."""

PRINT_SYSCTLS = 'for name; do file=/proc/sys/$(echo "$name" | tr . /); if [ -r "$file" ]; then echo "$name" $(cat "$file"); fi; done'
"""Program of a shell that prints each of its arguments that is a setting, and the values."""


def parse_sysctls(text: str) -> dict[str, list[str]]:
    """Returns the settings that `PRINT_SYSCTLS` printed."""
    return {name: values for name, *values in (line.split() for line in text.splitlines())}


def state() -> dict[str, Any]:
    """Returns processors, kernel and load."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    return {
        "kernel": platform.release(),
        "processor": next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), "unknown"),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def memory_directory() -> Path:
    """Returns a directory in memory for the files of runs, or that for temporary files if there is none."""
    shared = Path("/dev/shm")
    return shared if os.access(shared, os.W_OK) else Path("/tmp")


@dataclass(frozen=True)
class ProcessorUse:
    """Use of the processors during a run, each a share from 0 to 1."""

    busy: float
    """Of the time of all processors."""
    busiest: float
    """Of the time of the busiest one."""
    stolen: float
    """Of the time of all, taken by a hypervisor."""

    def limit(self, lost_packets: int, tool_percent: float = 0.0) -> str | None:
        """Returns `cpu` if the processors limited the run: they were busy, or the emulator lost packets because it ran too late.

        The busiest processor alone counts only if all of it was used: threads of one stream are on one processor. A thread that changes
        its processor is seen only in what the tool reports (`tool_percent`, of one processor).
        """
        is_busy = self.busy > MAX_BUSY or self.busiest > MAX_BUSIEST or tool_percent > MAX_TOOL_PERCENT
        return "cpu" if is_busy or lost_packets > 0 else None


class ProcessorTimes:
    """Counters of the processors since the boot, in ticks."""

    def __init__(self, text: str | None = None) -> None:
        """Reads the counters, or those of the text of a `/proc/stat`."""
        lines = (text or Path("/proc/stat").read_text()).splitlines()
        self._times = [[int(word) for word in line.split()[1:9]] for line in lines if line.startswith("cpu")]

    def use_since(self, before: ProcessorTimes) -> ProcessorUse:
        """Returns the use between two readings."""
        shares = []
        for now, then in zip(self._times, before._times, strict=True):
            ticks = [after - earlier for after, earlier in zip(now, then, strict=True)]
            total = max(sum(ticks), 1)
            # The fourth and fifth are idle, and idle while there is I/O. The last is stolen.
            shares.append((1 - (ticks[3] + ticks[4]) / total, ticks[7] / total))
        return ProcessorUse(busy=shares[0][0], busiest=max(busy for busy, _ in shares[1:]), stolen=shares[0][1])


@dataclass(frozen=True)
class Lateness:
    """Delays of the emulator's packets beyond their schedule."""

    mean_s: float
    longest_s: float

    @classmethod
    def of_counters(cls, counters: dict[str, Any]) -> Lateness:
        """Reads the counters of the emulator."""
        engine = counters["engine"]
        packets = max(engine.get("delivered_packets", 0), 1)
        return cls(mean_s=engine.get("late_ns", 0) / packets / 1e9, longest_s=engine["latest_ns"] / 1e9)

    def is_limit(self, rtt_s: float) -> bool:
        """Returns whether the emulator was too late for a path with this round trip."""
        return self.mean_s > max(MAX_MEAN_LATENESS_S, MAX_MEAN_LATENESS_RTT * rtt_s)


def lost_packets(counters: dict[str, Any]) -> int:
    """Returns the packets that the emulator lost because it ran too late, from its counters."""
    return sum(host["overruns"] for host in counters["hosts"])
