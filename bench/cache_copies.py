"""Copies of one large file through caches over emulated paths: cold, to memory and to disk."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable, Sequence

from caches import HTTP_PEERS, TOWPATH, TOWPATH_HTTP, XCACHE_DEFAULT, XCACHE_LARGE, CacheKind
from cache_site import Copies, Site, settle_time
from contenders import Machine
from harness import Contender, Program, Server, scratch
from settings import GIB, MIB, Settings, write_pattern
from wan_cells import PathSample, Scale, cells
from wan_lab import Lab, NetworkPath

ORIGINS = ("xrootd5", "towpath", "nginx")
XROOT_KINDS = [TOWPATH, *XCACHE_DEFAULT.values(), *XCACHE_LARGE.values()]
HTTP_KINDS = [TOWPATH_HTTP, *HTTP_PEERS]


def make_source(root: pathlib.Path, size: int) -> pathlib.Path:
    root.mkdir()
    source = root / "large.bin"
    write_pattern(source, size)
    settle_time(source)
    return source


@dataclasses.dataclass
class Transfers:
    """Copies of `source` to `target` at a site. A target of None is dropped data."""

    site: Site
    source: pathlib.Path
    target: pathlib.Path | None
    scratch_file: pathlib.Path
    """For the untimed copies that are compared."""

    def __post_init__(self) -> None:
        self.copies = Copies(self.site.machine, self.source.name)
        self.size = self.source.stat().st_size
        self.place = self.target or "/dev/null"

    def begin(self) -> None:
        """Gives each run on disk the same start."""
        if self.target:
            self.target.unlink(missing_ok=True)
            os.sync()

    def direct(self, name: str, program: Program, origin: str) -> Contender:
        return Contender(name, lambda: self.site.timed(name, program, self.site.origins[origin], self.size), self.begin)

    def copy(self, name: str, copy: Callable[..., Program], cache: Server) -> PathSample:
        sample = self.site.timed(name, copy(cache, self.place), cache, self.size)
        if not sample.cut:
            self.copies.compared(copy, cache, self.source, self.scratch_file)
        return sample

    def through(self, client: str, kind: CacheKind) -> Contender:
        copy = self.copies.curl if client == "curl" else self.copies.xrdcp
        name = f"{client} <- {kind.name}"
        found = self.site.through(name, kind, lambda cache: self.copy(name, copy, cache))
        return dataclasses.replace(found, before=self.begin)

    def all_direct(self) -> list[Contender]:
        origins, place = self.site.origins, self.place
        return [
            self.direct("direct: towpath cp <- xrootd5", self.copies.towpath(origins["xrootd5"].root(self.source.name), place), "xrootd5"),
            self.direct("direct: xrdcp 5.5 <- xrootd5", self.copies.xrdcp(origins["xrootd5"], place), "xrootd5"),
            self.direct("direct: curl <- nginx", self.copies.curl(origins["nginx"], place), "nginx"),
        ]


RowsOf = Callable[[Transfers], list[Contender]]


def all_rows(transfers: Transfers) -> list[Contender]:
    """Returns direct copies, and copies through each cache."""
    xroot = [transfers.through("xrdcp 5.5", kind) for kind in XROOT_KINDS]
    http = [transfers.through("curl", kind) for kind in HTTP_KINDS]
    return [*transfers.all_direct(), *xroot, *http]


def disk_rows(transfers: Transfers) -> list[Contender]:
    """Returns copies over XRootD only."""
    return [*transfers.all_direct()[:2], *(transfers.through("xrdcp 5.5", kind) for kind in XROOT_KINDS)]


def copies(settings: Settings, paths: Sequence[NetworkPath], size: int, scale: Scale, storage: pathlib.Path, rows_of: RowsOf, to_disk: bool) -> dict:
    """Copies one file over each path, from a source in memory. `storage` is the parent of the caches' directories."""
    with scratch(str(settings.memory), "copies") as directory, scratch(str(storage), "target") as target:
        source = make_source(directory / "source", size)

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            site = Site.at(over, machine, servers, scale, storage)
            return rows_of(Transfers(site, source, target / "copy.bin" if to_disk else None, directory / "compared.bin"))

        found = cells(settings, paths, dict.fromkeys(ORIGINS, source.parent), scale.repetitions, contenders_at)
    return {"shape": "rate", "bytes": size, "limit_s": scale.limit_s, "cells": found}


def sequential(settings: Settings) -> dict:
    """Copies a file that is in no cache, and drops the data."""
    size = settings.large_bytes or (128 * MIB if settings.quick else GIB)
    scale = Scale(settings.repetitions or (1 if settings.quick else 5), 30 if settings.quick else 120)
    paths = [NetworkPath(rtt_ms) for rtt_ms in (10, 50, 100, 200)]
    return copies(settings, paths, size, scale, settings.memory, all_rows, to_disk=False)


def leaf(settings: Settings) -> dict:
    """Repeats LEAF's curve: caches and copies on a disk."""
    size = settings.large_bytes or (256 * MIB if settings.quick else GIB)
    scale = Scale(settings.repetitions or (1 if settings.quick else 5), 60 if settings.quick else 120)
    paths = [NetworkPath(rtt_ms) for rtt_ms in (0, 10, 50, 100)]
    return copies(settings, paths, size, scale, settings.disk, disk_rows, to_disk=True)
