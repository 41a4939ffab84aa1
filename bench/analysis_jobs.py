"""The jobs of the suite `analysis`: some columns of remote ROOT files, directly, through caches, and with file systems of Python.

Each sample is one process that reads a few files one after the other; caches are new and empty, and their connection to the origin begins with
the first file.

- `columns`: two of 152 columns of the file of the tests: 287 MB; both columns are 9.4 MB in 4,926 baskets.
- `modern-ttree`, `modern-rntuple`: the same columns, as ROOT 6.40 writes them by default (`analysis_trees.py`).
- `small`: all of 2,000 columns of 8 KB.
- `sites`: the same file from the sites of Campos Plasencia, Couturier and Rademakers (CHEP 2010), by ROOT with the sizes of its cache there.
- `faults`: opens of a storage with faults (`analysis_faults.py`).
- `scaling`: sixteen files at once, by threads and by processes (`analysis_scaling.py`).
- `nanoaod-ttree`, `nanoaod-rntuple`: 25 of 1,814 columns (`nanoaod.py`), if NANOAOD_BRANCH_SIZES names the list of their sizes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

import analysis_faults
import analysis_scaling
from cache_site import Site, SiteReaders, settle_time
from caches import XCACHE_DEFAULT, XCACHE_SMALL, CacheKind, Location
from contenders import Machine
from harness import Contender, Program, Sample, Server, say, scratch
from nanoaod import COLUMNS as NANOAOD_COLUMNS
from settings import Job, Settings
from wan_cells import Scale, cells
from wan_lab import Emulation, Lab, NetworkPath

REPOSITORY = pathlib.Path(__file__).parents[1]
QUERY, TREES, NANOAOD = (pathlib.Path(__file__).with_name(f"{name}.py") for name in ("analysis_query", "analysis_trees", "nanoaod"))
USEFUL_BYTES = 9_450_000
"""Bytes of the baskets of both columns of the file of the tests."""
PATHS = [NetworkPath(rtt_ms, "10Gbit") for rtt_ms in (0, 10, 100, 240)]
NANOAOD_PATHS = [NetworkPath(rtt_ms, "10Gbit") for rtt_ms in (0, 10, 50, 100, 240)]
FAR_PATHS = [NetworkPath(rtt_ms, "10Gbit") for rtt_ms in (100, 240)]
SITES = [
    NetworkPath(rtt_ms, rate)
    for rtt_ms, rate in ((0.3, "100Mbit"), (2, "10Mbit"), (11, "100Mbit"), (22, "100Mbit"), (72, "8Mbit"), (240, "10Gbit"))
]
LIMIT_S = 200.0


@dataclasses.dataclass(frozen=True)
class Files:
    """The files of a sample, by what they are in it."""

    names: dict[str, str]
    useful_bytes: int
    """Bytes of the blocks that are read of one file."""


COLUMNS_FILES = Files({"cold": "other.root", "warm": "run_1.root", "next": "run_2.root", "third": "run_3.root"}, USEFUL_BYTES)
"""The first one is of another dataset."""
SMALL_FILES = {"cold": "other.root", "warm": "run_1.root"}
SITES_FILES = Files({"cold": "run_1.root", "next": "run_2.root"}, USEFUL_BYTES)
NANOAOD_FILES = {"cold": "run_1.root", "next": "run_2.root", "again": "run_1.root"}


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


Rows = Callable[["Queries", float], list[Contender]]
"""Returns the rows over a path with a round trip in ms."""


@dataclasses.dataclass
class Queries(SiteReaders):
    """Queries at a site."""

    python: str
    root: pathlib.Path
    """Directory of the files."""
    files: Files
    values: int
    """The correct result."""

    def sample(self, reader: str, server: Server | None, title: str) -> AnalysisSample:
        """Reads all files from a server, or from the disk, and compares the results."""
        over = self.site.over
        before, used = over.totals(), server.cpu_s() if server else 0.0
        names = self.files.names.values()
        program = Program((self.python, str(QUERY), reader)).where(WARM_UP_FILE=str(self.root / next(iter(names))))
        found = self.site.run(program(*(server.root(name) if server else self.root / name for name in names)))["files"]
        if any(file["values"] != self.values for file in found):
            raise RuntimeError(f"wrong values: {found}")
        self.site.wait_until_quiet()
        emulation = over.since(before)
        files = [FileRead(file["open_s"], file["seconds"]) for file in found]
        say(f"   {', '.join(f'{file.seconds:.3f} s' for file in files)} {emulation.received_payload / 1e6:.1f} MB: {title}")
        cpu_s = server.cpu_s() - used if server else 0.0
        return AnalysisSample(files[0].seconds, 0.0, cpu_s, files, emulation.received_payload, emulation)

    def local(self, reader: str) -> Contender:
        name = f"{reader}: local"
        return Contender(name, lambda: self.sample(reader, None, name))


def column_rows(queries: Queries, rtt_ms: float) -> list[Contender]:
    """Returns all rows over a path. Without a cache, ROOT takes minutes over long ones."""
    rows = [queries.direct(reader, "xrootd5") for reader in ("root", "uproot", "towpath")]
    rows += [queries.direct(reader, "towpath") for reader in ("root", "uproot", "towpath")]
    rows += [queries.direct("root-off", "xrootd5")] if rtt_ms <= 10 else []
    rows += [queries.through(reader, kind) for reader in ("root", "root-off") for kind in COLUMNS.values()]
    rows += [queries.through("root", kind) for kind in XCACHES]
    rows += [queries.through("root-off", XCACHES[1])] if rtt_ms <= 10 else []
    return [*rows, queries.through("uproot", COLUMNS["xrootd5"]), *(queries.direct(reader, "xrootd5") for reader in ("dask", "towpath-dask"))]


def modern_rows(readers: tuple[str, ...]) -> Rows:
    """Returns the rows of each reader: directly, through our cache, and through XCache; and those of `towpath.fs`."""

    def rows(queries: Queries, _: float) -> list[Contender]:
        direct = [queries.direct(reader, "xrootd5") for reader in (*readers, "towpath")]
        return direct + [queries.through(reader, kind) for reader in readers for kind in (COLUMNS["xrootd5"], XCACHES[1])]

    return rows


def small_rows(queries: Queries, _: float) -> list[Contender]:
    rows = [queries.direct(reader, origin) for origin in ("xrootd5", "towpath") for reader in ("uproot-all", "towpath-all")]
    return [*rows, queries.through("uproot-all", COLUMNS["xrootd5"])]


def site_rows(queries: Queries, rtt_ms: float) -> list[Contender]:
    """Returns the rows of a site: each size of ROOT's cache directly, through XCache and through our cache. The first one also has those of a
    local file, which are site A of the talk. Without a cache, ROOT takes minutes over long paths."""
    readers = ("root-off", "root-64k", "root-10m")
    rows = [queries.local(reader) for reader in readers] if rtt_ms == SITES[0].rtt_ms else []
    for reader in readers:
        if reader != "root-off" or rtt_ms <= 11:
            rows += [queries.direct(reader, "xrootd5"), queries.through(reader, XCACHES[1])]
        rows += [queries.through(reader, kind) for kind in COLUMNS.values()]
    return rows


def nanoaod_rows(queries: Queries, rtt_ms: float) -> list[Contender]:
    """Returns the rows of the 25 columns."""
    rows = [queries.local("uproot-25")] if rtt_ms == 0 else []
    rows += [queries.direct(reader, origin) for origin in ("xrootd5", "towpath") for reader in ("uproot-25", "towpath-25")]
    rows += [queries.through(reader, kind) for reader in ("uproot-25", "towpath-25") for kind in COLUMNS.values()]
    return [*rows, queries.through("uproot-25", XCACHES[1])]


def output(*words: object) -> str:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout.strip()


def python() -> str:
    return f"{output(REPOSITORY / 'interop/peers', '--venv')}/bin/python"


def measured(settings: Settings, tree: pathlib.Path, files: Files, paths: list[NetworkPath], reader: str, rows: Rows) -> dict:
    """Reads columns of copies of a file over each path. `reader` gives the correct result."""
    scale = Scale(settings.repetitions or (1 if settings.quick else 5), LIMIT_S)
    with scratch(str(settings.disk), "analysis") as root:
        for name in set(files.names.values()):
            shutil.copyfile(tree, root / name)
            settle_time(root / name)
        os.chmod(root, 0o755)
        values = json.loads(output(python(), QUERY, reader, root / files.names["cold"]))["files"][0]["values"]

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            site = Site.at(over, machine, servers, scale, settings.disk)
            return rows(Queries(site, python(), root, files, values), over.path.rtt_ms)

        found = cells(settings, paths, dict.fromkeys(("xrootd5", "towpath"), root), scale.repetitions, contenders_at)
    return {"shape": "columns", "bytes": files.useful_bytes, "stages": list(files.names), "cells": found}


def tree_of_tests() -> pathlib.Path:
    return pathlib.Path(output(REPOSITORY / "interop/data")) / "large.root"


def columns(settings: Settings) -> dict:
    return measured(settings, tree_of_tests(), COLUMNS_FILES, PATHS, "uproot", column_rows)


def sites(settings: Settings) -> dict:
    return measured(settings, tree_of_tests(), SITES_FILES, SITES, "uproot", site_rows)


@contextlib.contextmanager
def made(settings: Settings, *words: object) -> Iterator[pathlib.Path]:
    """Makes a file with a program of this directory, which gets its path last. It is removed afterwards."""
    with scratch(str(settings.disk), "tree") as directory:
        tree = directory / "tree.root"
        output(python(), *words, tree)
        yield tree


def planned_bytes(settings: Settings, tree: pathlib.Path, columns: list[str]) -> int:
    """Returns the bytes of the blocks of columns."""
    return json.loads(output(settings.machine.towpath_binary, "plan", "--json", "--columns", ",".join(columns), tree))["bytes"]


def modern(settings: Settings, layout: str, readers: tuple[str, ...]) -> dict:
    with made(settings, TREES, layout, tree_of_tests()) as tree:
        files = Files(COLUMNS_FILES.names, planned_bytes(settings, tree, ["E33", "rawtr"]))
        return measured(settings, tree, files, FAR_PATHS, "uproot", modern_rows(readers))


def small(settings: Settings) -> dict:
    with made(settings, TREES, "small") as tree:
        files = Files(SMALL_FILES, planned_bytes(settings, tree, ["*"]))
        return measured(settings, tree, files, FAR_PATHS, "uproot-all", small_rows)


def nanoaod_columns(settings: Settings, layout: str) -> dict:
    with made(settings, NANOAOD, os.environ["NANOAOD_BRANCH_SIZES"], layout) as tree:
        files = Files(NANOAOD_FILES, planned_bytes(settings, tree, NANOAOD_COLUMNS))
        return measured(settings, tree, files, NANOAOD_PATHS, "uproot-25", nanoaod_rows)


def faults(settings: Settings) -> dict:
    return analysis_faults.faults(settings, python(), [*COLUMNS.values(), XCACHES[1]])


def scaling(settings: Settings) -> dict:
    return analysis_scaling.scaling(settings, python(), tree_of_tests(), [*COLUMNS.values(), XCACHES[1]])


JOBS = {"columns": Job(columns, 40), "sites": Job(sites, 60), "faults": Job(faults, 30), "scaling": Job(scaling, 20), "small": Job(small, 10)}
JOBS |= {
    f"modern-{layout}": Job(lambda settings, layout=layout, readers=readers: modern(settings, layout, readers), 20)
    for layout, readers in {"ttree": ("root", "uproot"), "rntuple": ("frame", "uproot")}.items()
}
if "NANOAOD_BRANCH_SIZES" in os.environ:
    JOBS |= {f"nanoaod-{layout}": Job(lambda settings, layout=layout: nanoaod_columns(settings, layout), 30) for layout in ("ttree", "rntuple")}
