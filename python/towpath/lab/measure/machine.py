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

_SYSCTLS = ("net.core.rmem_max", "net.core.wmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_no_metrics_save")


def state() -> dict[str, Any]:
    """Returns processors, kernel, load, and the sysctls of TCP."""
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    sysctls = {name: Path("/proc/sys", *name.split(".")).read_text().split() for name in _SYSCTLS}
    return {
        "kernel": platform.release(),
        "processor": next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), "unknown"),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "sysctls": sysctls,
    }


@dataclass(frozen=True)
class ProcessorUse:
    """Use of the processors during a run, each a share from 0 to 1."""

    busy: float
    """Of the time of all processors."""
    busiest: float
    """Of the time of the busiest one."""
    stolen: float
    """Of the time of all, taken by a hypervisor."""

    def limit(self, lost_packets: int) -> str | None:
        """Returns `cpu` if the processors limited the run: they were busy, or the emulator lost packets because it ran too late.

        The busiest processor alone counts only if all of it was used: threads of one stream are on one processor.
        """
        return "cpu" if self.busy > MAX_BUSY or self.busiest > MAX_BUSIEST or lost_packets > 0 else None


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


def lost_packets(counters: dict[str, Any]) -> int:
    """Returns the packets that the emulator lost because it ran too late, from its counters."""
    return sum(host["overruns"] for host in counters["hosts"])
