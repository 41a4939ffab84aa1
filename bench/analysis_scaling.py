"""Sixteen files of a dataset at once, by threads of one process or by processes (`analysis_threads.py`): directly, and through caches."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess

from cache_site import Site, SiteReaders, settle_time
from caches import CacheKind
from contenders import Machine
from harness import Contender, Program, Sample, Server, say, scratch
from settings import Settings
from wan_cells import Scale, cells
from wan_lab import Emulation, Lab, NetworkPath

THREADS = pathlib.Path(__file__).with_name("analysis_threads.py")
PROCESSORS = pathlib.Path(__file__).with_name("processors.c")
"""ROOT starts at most one thread for each processor: a library that shows it sixteen of them."""
FILES = 16
PATHS = [NetworkPath(rtt_ms, "10Gbit") for rtt_ms in (10, 100)]
LIMIT_S = 300.0
KINDS = ("threads", "processes")


@dataclasses.dataclass
class ScalingSample(Sample):
    """The time of all files."""

    emulation: Emulation


@dataclasses.dataclass
class Readers(SiteReaders):
    """Readers of all files at a site."""

    python: str
    local: pathlib.Path
    processors: pathlib.Path
    """The library of `PROCESSORS`."""
    sums: list[float]
    """The results so far. All are the same."""

    def sample(self, kind: str, server: Server, title: str) -> ScalingSample:
        over = self.site.over
        before, used = over.totals(), server.cpu_s()
        program = Program((self.python, str(THREADS), kind)).where(WARM_UP_FILE=str(self.local), LD_PRELOAD=str(self.processors))
        found = self.site.run(program(*(server.root(f"run_{number}.root") for number in range(1, FILES + 1))))
        self.sums.append(found["sum"])
        if found["sum"] != self.sums[0]:
            raise RuntimeError(f"the sum is {found['sum']}, and {self.sums[0]} before")
        self.site.wait_until_quiet()
        say(f"   {found['seconds']:.2f} s: {title}")
        return ScalingSample(found["seconds"], 0.0, server.cpu_s() - used, over.since(before))


def scaling(settings: Settings, python: str, tree: pathlib.Path, caches: list[CacheKind]) -> dict:
    """Reads all files over each path."""
    scale = Scale(settings.repetitions or (1 if settings.quick else 3), LIMIT_S)
    with scratch(str(settings.disk), "scaling") as root:
        first = root / "run_1.root"
        shutil.copyfile(tree, first)
        settle_time(first)
        for number in range(2, FILES + 1):
            (root / f"run_{number}.root").hardlink_to(first)
        root.chmod(0o755)
        processors = root / "processors.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", processors, PROCESSORS], check=True)

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            readers = Readers(Site.at(over, machine, servers, scale, settings.disk), python, first, processors, [])
            rows = [readers.direct(kind, "xrootd5") for kind in KINDS]
            return rows + [readers.through(kind, cache) for cache in caches for kind in KINDS]

        found = cells(settings, PATHS, dict.fromkeys(("xrootd5", "towpath"), root), scale.repetitions, contenders_at)
    return {"shape": "scaling", "files": FILES, "limit_s": LIMIT_S, "cells": found}
