"""Timing of commands against servers: wall time, and processor seconds of client and server.

A `Contender` is one row of a table: a command that does the job once. `interleave` runs all contenders in turn, in a
different order in each round, so that neither drift of the machine nor the after-effects of one contender always hit
the same one. A `Program` is a command line; a `Server` is a listening process.
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
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
READY_DEADLINE_S = 20.0
HOST = "127.0.0.1"
BUDGET_S = 120.0
"""Time budget of a contender. A contender that exceeds it runs no further rounds once it has `LEAST_SAMPLES` samples.
"""
LEAST_SAMPLES = 3
"""Minimum number of samples, whatever the time budget."""
LIMIT_S = 60.0
"""Timeout of a command. A contender that exceeds it is left out."""
CHECK_LIMIT_S = 600.0
"""Timeout of untimed commands. A slow disk reads the largest files twice in this time."""


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


@dataclasses.dataclass(frozen=True)
class Program:
    """A command line and its additional environment variables."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, *words: object) -> Program:
        """Returns the program with more arguments."""
        return Program((*self.words, *map(str, words)), self.environment)

    def after(self, prefix: tuple[str, ...]) -> Program:
        """Returns the program, started through the command line `prefix`."""
        return Program((*prefix, *self.words), self.environment)

    def where(self, **environment: str) -> Program:
        """Returns the program with more environment variables."""
        return Program(self.words, {**self.environment, **environment})

    def surroundings(self) -> dict[str, str]:
        """Returns the complete environment of the program."""
        return {**os.environ, **self.environment}


@dataclasses.dataclass(frozen=True)
class Network:
    """The address on which servers listen, and the command lines that start programs at each end. Default: this
    machine."""

    host: str = HOST
    at_server: tuple[str, ...] = ()
    at_client: tuple[str, ...] = ()


LOOPBACK = Network()
LISTENING = "0A"
"""Code of the LISTEN state in `/proc/net/tcp`."""


def listens(pid: int, port: int) -> bool:
    """Returns whether a socket listens on a TCP port in the network namespace of the process."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state = line.split()[:4]
                if int(local.rsplit(":", 1)[1], 16) == port and state == LISTENING:
                    return True
    return False


def tree_of(pid: int) -> list[int]:
    """Returns a process and all its descendants."""
    found, waiting = [], [pid]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += [int(child) for child in task.read_text().split()]
    return found


def cpu_s(pids: Sequence[int]) -> float:
    """Returns the user and system seconds of processes so far, including their children that have ended."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICKS_PER_SECOND


class Server:
    """A running server process and its children, listening on `port`."""

    def __init__(self, program: Program, port: int, log: pathlib.Path, tls: bool = False, network: Network = LOOPBACK) -> None:
        self.port = port
        self.address = f"{network.host}:{port}"
        self.tls = tls
        self.log = log.open("wb")
        self.process = subprocess.Popen(
            program.words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True, env=program.surroundings()
        )
        deadline = time.monotonic() + READY_DEADLINE_S
        while True:
            if listens(self.process.pid, port):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{program.words[0]} does not listen on {port}: see {log}")
            time.sleep(0.02)

    def root(self, path: str) -> str:
        """Returns the XRootD URL of a path without leading slash."""
        return f"{'roots' if self.tls else 'root'}://{self.address}//{path}"

    def http(self, path: str = "") -> str:
        """Returns the HTTP URL of a path without leading slash."""
        return f"{'https' if self.tls else 'http'}://{self.address}/{path}"

    def pids(self) -> list[int]:
        """Returns the server's process and all its descendants."""
        return tree_of(self.process.pid)

    def cpu_s(self) -> float:
        """Returns the user and system seconds so far."""
        return cpu_s(self.pids())

    def peak_rss_bytes(self) -> int:
        """Returns the peak resident memory (VmHWM), including mapped files."""
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


class Overtime(RuntimeError):
    """A command exceeded its timeout and was ended; `sample` covers the time until then."""

    def __init__(self, limit_s: float, sample: Sample) -> None:
        super().__init__(f"not done after {limit_s:.0f} s")
        self.sample = sample


def run_client(program: Program, server: Server | None = None, stdin: bytes = b"", limit_s: float = LIMIT_S) -> Sample:
    """Runs one command to its end. Its output appears only in the error message."""
    server_before = server.cpu_s() if server else 0.0
    children_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()

    def sample() -> Sample:
        seconds = time.monotonic() - start
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = (children.ru_utime - children_before.ru_utime) + (children.ru_stime - children_before.ru_stime)
        return Sample(seconds, cpu, (server.cpu_s() - server_before) if server else 0.0)

    try:
        done = subprocess.run(program.words, input=stdin, capture_output=True, env=program.surroundings(), timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise Overtime(limit_s, sample()) from error
    taken = sample()
    if done.returncode != 0:
        command = " ".join(program.words)[:500]
        raise RuntimeError(f"{command} failed with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return taken


@dataclasses.dataclass
class Contender:
    """One row: `run` does the job once and returns its sample; `before` prepares it; `check` verifies the content.
    Neither `before` nor `check` is timed."""

    name: str
    run: Callable[[], Sample]
    before: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None


def contender(
    name: str,
    program: Program,
    server: Server,
    before: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    stdin: bytes = b"",
) -> Contender:
    """Returns a contender that runs a command against `server`."""
    return Contender(name, lambda: run_client(program, server, stdin), before, check)


class Race:
    """Samples of contenders that run in turn.

    A failed contender is reported and left out of further rounds; it keeps its earlier samples. `seed` and the number
    of a round determine the order of the round.
    """

    def __init__(self, contenders: Sequence[Contender], repetitions: int, budget_s: float = BUDGET_S, seed: int = 0) -> None:
        self.alive = list(contenders)
        self.repetitions = repetitions
        self.budget_s = budget_s
        self.seed = seed
        self.samples: dict[str, list[Sample]] = {each.name: [] for each in contenders}
        self.left_out: dict[str, str] = {}

    def once(self, each: Contender, checked: bool) -> Sample | None:
        """Runs a contender once, and verifies its result if `checked`."""
        try:
            each.before()
            sample = each.run()
            if checked:
                each.check()
            return sample
        except (RuntimeError, OSError) as error:
            say(f"{each.name}: left out: {error}")
            self.left_out[each.name] = str(error)[:300]
            self.alive.remove(each)
            return None

    def is_spent(self, each: Contender) -> bool:
        taken = self.samples[each.name]
        return len(taken) >= LEAST_SAMPLES and sum(sample.seconds for sample in taken) > self.budget_s

    def round(self, number: int) -> None:
        """Runs every remaining contender once; verifies the results in the last round."""
        order = random.Random(f"{self.seed} {number}").sample(self.alive, len(self.alive))
        for each in order:
            if not self.is_spent(each):
                sample = self.once(each, checked=number == self.repetitions - 1)
                if sample:
                    self.samples[each.name].append(sample)

    def outcome(self) -> dict[str, dict]:
        """Returns the outcome as a JSON value."""
        runs = {name: [dataclasses.asdict(sample) for sample in taken] for name, taken in self.samples.items() if taken}
        return {"runs": runs, "left_out": self.left_out}


def interleave(contenders: Sequence[Contender], repetitions: int) -> dict[str, dict]:
    """Runs every contender once as a warm-up and verifies all results, then runs all in turn `repetitions` times.
    Returns the outcome as a JSON value."""
    race = Race(contenders, repetitions)
    start = time.monotonic()
    for each in contenders:
        sample = race.once(each, checked=True)
        if sample:
            say(f"   {sample.seconds:7.2f} s {each.name}")
    say(f"   about {repetitions * (time.monotonic() - start):.0f} s more: {len(race.alive)} contenders, {repetitions} times")
    for number in range(repetitions):
        race.round(number)
    return race.outcome()


def median_and_spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns median, minimum and maximum."""
    return statistics.median(values), min(values), max(values)


@contextlib.contextmanager
def scratch(parent: str, name: str) -> Iterator[pathlib.Path]:
    """Creates a directory under `parent`, and removes it at the end."""
    path = pathlib.Path(parent) / f"towpath-bench-{os.getpid()}-{name}"
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
