"""Two hosts with an emulated path between them, with `towpath wan` (docs/guides/wan.md). Needs root."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towpath.lab.measure.plan import Cell, Emulator

CLIENT, SERVER = "198.18.0.1", "198.18.0.2"
"""Addresses of host 1, which receives, and of host 2, which sends."""

LOCK = Path("/run/towpath-lab.lock")
"""Held by a running campaign. Has the original value of the setting until that is restored."""

DEADLINE_S = 20
"""Time for the emulator to start, to report and to end."""


@dataclass(frozen=True)
class Hosts:
    """The running hosts of an emulator."""

    towpath: Path
    name: str

    def command(self, host: int, *command: str | Path) -> list[str]:
        """Returns the command that runs `command` in a host."""
        return [str(self.towpath), "wan", "exec", "--name", self.name, str(host), "--", *map(str, command)]

    def counters(self) -> dict[str, Any]:
        """Returns the counters of the emulator."""
        done = _wan(self.towpath, "stats", "--name", self.name, "--json")
        counters: dict[str, Any] = json.loads(done.stdout)
        return counters


@contextlib.contextmanager
def permitted_transports() -> Iterator[None]:
    """Permits each congestion control of the kernel in the hosts of emulators, and restores the setting at the end.

    The kernel lets a namespace use only those that are permitted to users without privileges. A lock has the original value, so that the
    next campaign restores it if this one is killed. Raises `OSError` without root, and if another campaign runs: both would share the
    processors.
    """
    permitted, available = (Path(f"/proc/sys/net/ipv4/tcp_{which}_congestion_control") for which in ("allowed", "available"))
    if os.geteuid() != 0:
        raise PermissionError("the emulator needs root")
    with LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OSError(f"another campaign runs on this machine (it holds {LOCK}): wait until it ends") from None
        lock.seek(0)
        before = lock.read() or permitted.read_text()
        LOCK.write_text(before)
        permitted.write_text(available.read_text())
        try:
            yield
        finally:
            permitted.write_text(before)
            lock.truncate(0)


@contextlib.contextmanager
def emulated_path(towpath: Path, path: Emulator, cell: Cell) -> Iterator[Hosts]:
    """Starts the hosts of a cell, and ends them with all their processes. Raises `OSError` if the emulator does not start."""
    name = f"lab{os.getpid()}"
    assert cell.rtt_ms is not None and cell.transport is not None
    options = ["--rtt", f"{cell.rtt_ms * 1000:.0f}us", "--rate", path.rate, "--queue", path.queue, "--cc", cell.transport]
    if path.loss > 0:
        options += ["--loss", str(path.loss), "--seed", str(cell.repetition + 1)]
    if cell.buffer is not None:
        options += ["--buf", cell.buffer]
    _wan(towpath, "up", "--name", name, *options)
    try:
        yield Hosts(towpath, name)
    finally:
        _wan(towpath, "down", "--name", name)


def _wan(towpath: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run([towpath, "wan", *arguments], capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"towpath wan {arguments[0]} did not end within {DEADLINE_S} s") from error
    if done.returncode:
        raise OSError(f"towpath wan {arguments[0]}: {done.stderr.strip()}")
    return done
