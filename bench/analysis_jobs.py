"""The jobs of the suite `analysis`: two columns of a remote tree of 152, directly, through caches, and with file systems of Python.

The file is that of the tests: 287 MB; both columns are 9.4 MB in 4,926 baskets. Each sample is one process that reads three files, of which the
last two are of one dataset; caches are new and empty, and their connection to the origin begins with the first file.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import subprocess

from cache_site import Site, settle_time
from caches import XCACHE_DEFAULT, XCACHE_SMALL, CacheKind, Location
from contenders import Machine
from harness import Contender, Program, Sample, Server, say, scratch
from settings import Job, Settings
from wan_cells import Scale, cells
from wan_lab import Emulation, Lab, NetworkPath

REPOSITORY = pathlib.Path(__file__).parents[1]
QUERY = pathlib.Path(__file__).with_name("analysis_query.py")
FILES = ("other.root", "run_1.root", "run_2.root")
"""The first one is of another dataset."""
USEFUL_BYTES = 9_450_000
"""Bytes of the baskets of both columns."""
PATHS = [NetworkPath(rtt_ms, "10Gbit") for rtt_ms in (0, 10, 100, 240)]
LIMIT_S = 120.0


def towpath_columns(at: Location) -> Program:
    """Returns the cache of towpath that fetches columns ahead, as `towpath agent` does."""
    config = at.work / "cache.toml"
    config.write_text("columns = true\n[space]\nhigh = 1.0\n")
    return at.machine.towpath("cache", at.origin.root(""), "--dir", at.directory, "--listen", at.address, "--config", config)


COLUMNS = {origin: CacheKind(f"towpath, columns <- {origin}", origin, towpath_columns) for origin in ("xrootd5", "towpath")}
XCACHES = [XCACHE_DEFAULT["5.5"], XCACHE_SMALL["5.5", "64k"]]


@dataclasses.dataclass
class FileRead:
    """One file of a sample."""

    open_s: float
    seconds: float


@dataclasses.dataclass
class AnalysisSample(Sample):
    """`seconds` is the time of the first file."""

    files: list[FileRead]
    received_bytes: int
    """TCP payload that arrived at the site, for all files."""
    emulation: Emulation


@dataclasses.dataclass
class Queries:
    """Queries at a site."""

    site: Site
    python: str
    local: pathlib.Path
    values: int
    """The correct result."""

    def sample(self, reader: str, server: Server, title: str) -> AnalysisSample:
        """Reads all files from a server, and compares the results."""
        over = self.site.over
        before, used = over.totals(), server.cpu_s()
        program = Program((self.python, str(QUERY), reader)).where(WARM_UP_FILE=str(self.local))
        found = self.site.run(program(*(server.root(name) for name in FILES)))["files"]
        if any(file["values"] != self.values for file in found):
            raise RuntimeError(f"wrong values: {found}")
        self.site.wait_until_quiet()
        emulation = over.since(before)
        files = [FileRead(file["open_s"], file["seconds"]) for file in found]
        say(f"   {', '.join(f'{file.seconds:.3f} s' for file in files)} {emulation.received_payload / 1e6:.1f} MB: {title}")
        return AnalysisSample(files[0].seconds, 0.0, server.cpu_s() - used, files, emulation.received_payload, emulation)

    def direct(self, reader: str, origin: str) -> Contender:
        name = f"{reader}: direct <- {origin}"
        return Contender(name, lambda: self.sample(reader, self.site.origins[origin], name))

    def through(self, reader: str, kind: CacheKind) -> Contender:
        name = f"{reader}: {kind.name}"
        return self.site.through(name, kind, lambda cache: self.sample(reader, cache, name))


def contenders(queries: Queries, rtt_ms: float) -> list[Contender]:
    """Returns all rows over a path. Without a cache, ROOT takes minutes over long ones."""
    rows = [queries.direct(reader, "xrootd5") for reader in ("root", "uproot", "towpath")]
    rows += [queries.direct(reader, "towpath") for reader in ("root", "uproot", "towpath")]
    rows += [queries.direct("root-off", "xrootd5")] if rtt_ms <= 10 else []
    rows += [queries.through(reader, kind) for reader in ("root", "root-off") for kind in COLUMNS.values()]
    rows += [queries.through("root", kind) for kind in XCACHES]
    rows += [queries.through("root-off", XCACHES[1])] if rtt_ms <= 10 else []
    return [*rows, queries.through("uproot", COLUMNS["xrootd5"])]


def output(*words: object) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout.strip()


def columns(settings: Settings) -> dict:
    """Reads two columns of two files over each path."""
    scale = Scale(settings.repetitions or (1 if settings.quick else 5), LIMIT_S)
    python = f"{output(REPOSITORY / 'interop/peers', '--venv')}/bin/python"
    tree = pathlib.Path(output(REPOSITORY / "interop/data")) / "large.root"
    with scratch(str(settings.disk), "analysis") as root:
        for name in FILES:
            shutil.copyfile(tree, root / name)
            settle_time(root / name)
        os.chmod(root, 0o755)
        local = root / FILES[0]
        values = int(output(python, QUERY, "uproot", local).split('"values": ')[1].split("}")[0])

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            site = Site.at(over, machine, servers, scale, settings.disk)
            return contenders(Queries(site, python, local, values), over.path.rtt_ms)

        found = cells(settings, PATHS, dict.fromkeys(("xrootd5", "towpath"), root), scale.repetitions, contenders_at)
    return {"shape": "columns", "bytes": USEFUL_BYTES, "cells": found}


JOBS = {"columns": Job(columns, 40)}
