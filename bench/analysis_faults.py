"""Opens and reads while the origin drops connections and delays opens (`faulty_proxy.py`): directly, and through caches."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import sys
import time
from collections.abc import Iterator

from cache_site import Site, require, running, settle_time
from caches import CacheKind
from contenders import Machine
from harness import Contender, Program, Sample, Server, free_port, say, scratch
from settings import MIB, Settings, write_pattern
from wan_cells import Scale, cells
from wan_lab import Lab, NetworkPath

OPENS = pathlib.Path(__file__).with_name("analysis_opens.py")
PROXY = pathlib.Path(__file__).with_name("faulty_proxy.py")
FILES = 1000
PATHS = [NetworkPath(20, "1Gbit")]
LIMIT_S = 900.0
SEEDS = itertools.count(1)


@dataclasses.dataclass
class FaultsSample(Sample):
    """Times of the opens with their reads in ascending order, and messages of those that failed."""

    times_s: list[float]
    failures: list[str]


@dataclasses.dataclass
class Opens:
    """Opens at a site."""

    site: Site
    machine: Machine
    """Runs servers at the far end."""
    python: str
    files: int

    @contextlib.contextmanager
    def faulty(self, origin: Server) -> Iterator[Server]:
        """Runs a proxy with faults before an origin."""
        port, network = free_port(), self.machine.network
        words = (sys.executable, str(PROXY), f"{network.host}:{port}", origin.address, str(next(SEEDS)))
        proxy = Server(Program(words).after(network.at_server), port, self.machine.work / f"proxy-{port}.log", network=network)
        try:
            yield proxy
        finally:
            proxy.stop()

    def sample(self, server: Server, title: str) -> FaultsSample:
        start, used = time.monotonic(), server.cpu_s()
        found = self.site.run(Program((self.python, str(OPENS)))(self.files, server.root("{}.bin")))
        seconds, failures = found["seconds"], found["failures"]
        say(f"   {len(failures)} failures, p99 {seconds[int(0.99 * len(seconds))]:.2f} s, max {seconds[-1]:.2f} s: {title}")
        return FaultsSample(time.monotonic() - start, 0.0, server.cpu_s() - used, seconds, failures)

    def direct(self, origin: str) -> Contender:
        name = f"direct <- {origin}"

        def once() -> FaultsSample:
            with self.faulty(self.site.origins[origin]) as proxy:
                return self.sample(proxy, name)

        return Contender(name, once)

    def through(self, kind: CacheKind) -> Contender:
        def once() -> FaultsSample:
            require(kind, self.site.machine)
            with self.faulty(self.site.origins[kind.origin]) as proxy, running(kind, self.site.machine, proxy, self.site.storage) as cache:
                return self.sample(cache, kind.name)

        return Contender(kind.name, once)


def faults(settings: Settings, python: str, kinds: list[CacheKind]) -> dict:
    """Opens all files once, directly and through each kind of cache."""
    scale = Scale(settings.repetitions or (1 if settings.quick else 3), LIMIT_S)
    files = 100 if settings.quick else FILES
    with scratch(str(settings.disk), "faults") as root:
        write_pattern(root / "0.bin", MIB)
        settle_time(root / "0.bin")
        for number in range(1, files):
            (root / f"{number}.bin").hardlink_to(root / "0.bin")
        root.chmod(0o755)

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            opens = Opens(Site.at(over, machine, servers, scale, settings.disk), machine, python, files)
            return [opens.direct("xrootd5"), *(opens.through(kind) for kind in kinds)]

        found = cells(settings, PATHS, dict.fromkeys(("xrootd5", "towpath"), root), scale.repetitions, contenders_at)
    return {"shape": "faults", "files": files, "limit_s": LIMIT_S, "cells": found}
