"""Memory of a cache with a million files and a thousand busy readers, and its restart, over loopback."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import subprocess
import time
from collections.abc import Iterator

from cache_site import Copies, settle_time
from cache_warm import outcome_of
from caches import TOWPATH_HOUR, running_in
from contenders import Machine
from harness import Server, run_client, say, scratch
from requests_job import Load, sample
from settings import GIB, MIB, Settings, write_pattern

FILES = 1_000_000
FILE_BYTES = 1_000
FILES_PER_DIRECTORY = 1_000
READERS = 1_000
FILLERS = 16
FILL_LIMIT_S = 3_600
BUSY_S = 10.0
REQUESTS_IN_FLIGHT = (1, 4)
"""Per reader: one third each of 4 KiB reads, 1 MiB reads and vectors of 1,024 ranges."""
QUIET_CPU_SHARE = 0.05
QUIET_LIMIT_S = 600


def name_of(number: int) -> str:
    return f"d{number // FILES_PER_DIRECTORY:04}/f{number:07}"


def large_name(in_flight: int) -> str:
    return f"large-{in_flight}.bin"


class MemoryRun:
    """A cache of one directory, started several times, and its origin."""

    def __init__(self, settings: Settings, directory: pathlib.Path) -> None:
        self.machine: Machine = settings.machine
        self.files = settings.files or (20_000 if settings.quick else FILES)
        self.large_bytes = settings.large_bytes or (256 * MIB if settings.quick else GIB)
        self.source, self.cached = directory / "source", directory / "cache"
        self.cached.mkdir()
        self.stages: list[dict] = []

    def names(self) -> list[str]:
        return [name_of(number) for number in range(self.files)]

    def make(self) -> None:
        """Creates the files: small ones that share their content, as links, and large ones."""
        self.source.mkdir()
        small = self.source / "small.bin"
        write_pattern(small, FILE_BYTES)
        large = [self.source / large_name(depth) for depth in REQUESTS_IN_FLIGHT]
        for path in large:
            write_pattern(path, self.large_bytes)
        settle_time(small, *large)
        for name in self.names():
            (self.source / name).parent.mkdir(exist_ok=True)
            os.link(small, self.source / name)

    @contextlib.contextmanager
    def running(self, origin: Server) -> Iterator[tuple[Server, float]]:
        """Runs the cache. Returns when it has served its first byte, with the time since its start."""
        start = time.monotonic()
        with running_in(TOWPATH_HOUR, self.machine, origin, self.cached) as cache:
            run_client(self.machine.installed("curl")("-s", "-S", "-f", "-o", "/dev/null", cache.http(name_of(0))))
            yield cache, time.monotonic() - start

    def record(self, stage: str, cache: Server, **more: object) -> None:
        self.stages.append({"stage": stage, "peak_rss_bytes": cache.peak_rss_bytes(), **more})
        say(f"{stage}: {self.stages[-1]}")

    def urls(self, cache: Server, name: str, names: list[str]) -> pathlib.Path:
        path = self.machine.work / f"memory-{name}.urls"
        path.write_text("".join(f"{cache.http(each)}\n" for each in names))
        return path

    def fill(self, cache: Server) -> float:
        """Reads each small file once. Returns the time."""
        names, start = self.names(), time.monotonic()
        h2load = self.machine.installed("h2load")
        with contextlib.ExitStack() as stack:
            clients = []
            for part in range(FILLERS):
                chosen = names[part::FILLERS]
                program = h2load("--h1", "-t", 1, "-c", 1, "-n", len(chosen), "-i", self.urls(cache, str(part), chosen))
                clients.append((chosen, stack.enter_context(subprocess.Popen(program.words, stdout=subprocess.PIPE, text=True))))
            for chosen, client in clients:
                printed, _ = client.communicate(timeout=FILL_LIMIT_S)
                if f"{len(chosen)} 2xx, 0 3xx, 0 4xx, 0 5xx" not in printed:
                    raise RuntimeError(f"h2load printed {printed[-300:]!r}")
        return time.monotonic() - start

    def load(self, cache: Server) -> None:
        """Reads from small files, and from large ones that the cache does not have, with many clients."""
        some = random.Random("memory").sample(self.names(), min(self.files, 100_000))
        h2load = self.machine.installed("h2load")("--h1", "-t", 1, "-c", READERS, "-D", int(BUSY_S), "-i", self.urls(cache, "some", some))
        found = outcome_of(h2load, limit_s=BUSY_S + 60)
        self.record(f"{READERS:,} clients read small files over HTTP", cache, requests_per_s=found["requests"] / found["seconds"], failed=found["failed"])
        for depth in REQUESTS_IN_FLIGHT:
            found = sample(self.machine, cache, Load(large_name(depth), self.large_bytes), ("mixed", READERS, depth), BUSY_S)
            self.record(f"{READERS:,} clients read a large file over XRootD, {depth} in flight each", cache, in_flight=depth, requests_per_s=found["requests"] / found["seconds"])


@contextlib.contextmanager
def tmpfs(place: pathlib.Path) -> Iterator[pathlib.Path]:
    """Mounts a tmpfs without a limit of the number of files: three for each file in the cache."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=0,size=80%", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def wait_until_idle(cache: Server) -> float:
    """Waits until the cache does nothing in the background. Returns the time."""
    start, before = time.monotonic(), cache.cpu_s()
    while time.monotonic() - start < QUIET_LIMIT_S:
        time.sleep(1)
        now = cache.cpu_s()
        if now - before < QUIET_CPU_SHARE:
            break
        before = now
    return time.monotonic() - start


def memory(settings: Settings) -> dict:
    """Fills a cache with small files, restarts it, and lets many clients read."""
    with scratch(str(settings.memory), "memory") as parent, tmpfs(parent / "files") as directory:
        run = MemoryRun(settings, directory)
        run.make()
        with settings.machine.serving({"nginx": run.source}) as origins:
            with run.running(origins["nginx"]) as (cache, _):
                run.record("filled", cache, fill_s=run.fill(cache))
            with run.running(origins["nginx"]) as (cache, first_byte_s):
                run.record("restarted", cache, first_byte_s=first_byte_s, idle_after_s=wait_until_idle(cache))
                run.load(cache)
                copies = Copies(settings.machine, large_name(1))
                copies.compared(copies.curl, cache, run.source / copies.name, directory / "compared.bin")
        stored = sum(1 for _, _, names in os.walk(run.cached) for _ in names)
    return {"shape": "memory", "files": run.files, "readers": READERS, "files_on_disk": stored, "stages": run.stages}
