"""Timing of transfers between a server and a client process: wall time, and the processor seconds of each side.

A `Contender` is one column of a table: a way to start a server and a command that moves the bytes. `interleave` runs all contenders in turn, as
often as asked, in an order that rotates from round to round, so that drift of the machine falls on all alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY_DEADLINE_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server process, with its children, that listens on `port`."""

    def __init__(self, command: Sequence[str], port: int, log: pathlib.Path, environment: dict[str, str] | None = None):
        self.port = port
        self.log = log.open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True, env={**os.environ, **(environment or {})}
        )
        deadline = time.monotonic() + READY_DEADLINE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{command[0]} does not listen on {port}: see {log}")
            time.sleep(0.02)

    def pids(self) -> list[int]:
        """The server's process and all below it."""
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                with contextlib.suppress(OSError):
                    waiting += [int(child) for child in task.read_text().split()]
        return found

    def cpu_s(self) -> float:
        """User and system seconds so far."""
        ticks = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS_PER_SECOND

    def peak_rss_bytes(self) -> int:
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        total += int(line.split()[1]) * 1024
        return total

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()


@dataclasses.dataclass
class Sample:
    """One timed run."""

    seconds: float
    client_cpu_s: float
    server_cpu_s: float


def run_client(command: Sequence[str], server: Server | None, environment: dict[str, str] | None = None) -> Sample:
    """Runs one command to its end; its output is kept only for the error."""
    server_before = server.cpu_s() if server else 0.0
    children_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **(environment or {})}, check=False)
    seconds = time.monotonic() - start
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    cpu = (children.ru_utime - children_before.ru_utime) + (children.ru_stime - children_before.ru_stime)
    return Sample(seconds, cpu, (server.cpu_s() - server_before) if server else 0.0)


@dataclasses.dataclass
class Contender:
    """One column: `run` does the job once and gives its sample; `check` afterwards proves that the bytes are right."""

    name: str
    run: Callable[[], Sample]
    before: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None


def interleave(contenders: Sequence[Contender], repetitions: int, report: Callable[[str], None]) -> dict[str, list[Sample]]:
    """Runs every contender once to warm up, then `repetitions` times in turn; one that fails is reported and left out."""
    samples: dict[str, list[Sample]] = {contender.name: [] for contender in contenders}
    alive = list(contenders)
    for round_number in range(-1, repetitions):
        turn = max(round_number, 0) % max(len(alive), 1)
        for contender in alive[turn:] + alive[:turn]:
            try:
                contender.before()
                sample = contender.run()
                contender.check()
            except (RuntimeError, AssertionError) as error:
                report(f"{contender.name}: left out: {error}")
                alive = [other for other in alive if other is not contender]
                continue
            if round_number >= 0:
                samples[contender.name].append(sample)
    return {name: runs for name, runs in samples.items() if runs}


def median_and_spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and most."""
    return statistics.median(values), min(values), max(values)


@contextlib.contextmanager
def scratch(parent: str, name: str) -> Iterator[pathlib.Path]:
    """A directory under `parent` that is gone afterwards."""
    path = pathlib.Path(parent) / f"towpath-bench-{os.getpid()}-{name}"
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
