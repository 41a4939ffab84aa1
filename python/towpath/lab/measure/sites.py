"""Real far ends, with servers of their own. Tools run on this machine, and need no root."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from towpath.lab.measure.plan import Cell

CONNECTIONS = 5
"""Connections for a round trip: the fastest of them had to wait for the least traffic."""

PAUSE_S = 0.2
DEADLINE_S = 10
_PORTS = {"root": 1094, "roots": 1094, "http": 80, "https": 443, "dav": 80, "davs": 443}


@dataclass(frozen=True)
class Here:
    """This machine, as the host of a tool."""

    towpath: Path

    def command(self, host: int, *command: str | Path) -> list[str]:
        """Returns the command itself."""
        return [str(part) for part in command]

    def counters(self) -> dict[str, Any]:
        """Returns no counters, as there is no emulator."""
        return {"hosts": [], "engine": {"latest_ns": 0}}


def measure_rtt_s(cell: Cell) -> float:
    """Returns the round trip to the server of a cell in seconds: the time of the fastest of five TCP connections, once its name is known.
    Raises `OSError` if none succeeds."""
    assert cell.site is not None
    address = _address(cell.site.place(cell.tool) or "")
    family, kind, _, _, resolved = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    times_s: list[float] = []
    for attempt in range(CONNECTIONS):
        try:
            times_s.append(_connect_s(family, kind, resolved))
        except OSError:
            if attempt == CONNECTIONS - 1 and not times_s:
                raise
        # A server of iperf3 listens again only after it has given up a connection without a test.
        time.sleep(PAUSE_S)
    return min(times_s)


def _address(place: str) -> tuple[str, int]:
    """Returns host and port of an address or URL."""
    parts = urlsplit(place if "://" in place else f"//{place}")
    port = parts.port or _PORTS.get(parts.scheme)
    if parts.hostname is None or port is None:
        raise OSError(f"{place}: expected a host and a port")
    return parts.hostname, port


def _connect_s(family: int, kind: int, address: Any) -> float:
    with socket.socket(family, kind) as connection:
        connection.settimeout(DEADLINE_S)
        start = time.perf_counter()
        connection.connect(address)
        return time.perf_counter() - start
