"""Clients that read the same file at once through a cache that does not have it."""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import zlib

from cache_copies import make_source
from cache_site import Copies, Site, reader
from caches import HTTP_PEERS, TOWPATH, TOWPATH_HTTP, XCACHE_DEFAULT, XCACHE_LARGE, CacheKind
from contenders import Machine
from harness import Contender, Program, Server, run_client, say, scratch
from settings import MIB, Settings
from wan_cells import PathSample, Scale, cells
from wan_lab import Lab, NetworkPath

CLIENTS = 32
KINDS = [TOWPATH, *XCACHE_DEFAULT.values(), *XCACHE_LARGE.values(), TOWPATH_HTTP, *HTTP_PEERS]
PATHS = [NetworkPath(50)]


@dataclasses.dataclass
class HerdSample(PathSample):
    """`bytes` is the sum over all clients."""

    origin_bytes: int
    """TCP payload received at the site, bytes sent twice counted twice."""
    client_s: list[float]
    """Duration of each client, sorted; empty for curl, which does not report it."""


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclasses.dataclass
class Herd:
    """Clients at a site."""

    site: Site
    source: pathlib.Path
    compared: pathlib.Path

    def __post_init__(self) -> None:
        self.size = self.source.stat().st_size
        self.crc32 = zlib.crc32(self.source.read_bytes())
        self.copies = Copies(self.site.machine, self.source.name)

    def xroot(self, server: Server) -> tuple[float, list[float]]:
        """Runs the clients. Returns the total time, and that of each client."""
        found = self.site.run(reader("herd", server.address, f"/{self.source.name}", self.size, CLIENTS))
        if found["crc32"] != self.crc32:
            raise RuntimeError("wrong bytes")
        return found["seconds"], found["client_s"]

    def http(self, server: Server) -> tuple[float, list[float]]:
        urls = [word for _ in range(CLIENTS) for word in ("-o", "/dev/null", server.http(self.source.name))]
        parallel = ("-Z", "--parallel-immediate", "--parallel-max", CLIENTS)
        curl: Program = self.site.machine.installed("curl")("-s", "-S", "-f", *parallel, *urls)
        found = run_client(curl.after(self.site.over.in_host(1)), limit_s=self.site.scale.limit_s)
        self.copies.compared(self.copies.curl, server, self.source, self.compared)
        return found.seconds, []

    def sample(self, name: str, server: Server, is_http: bool) -> HerdSample:
        over = self.site.over
        over.settle()
        before, server_before, client_before = over.totals(), server.cpu_s(), children_cpu_s()
        seconds, client_s = self.http(server) if is_http else self.xroot(server)
        cpu = children_cpu_s() - client_before, server.cpu_s() - server_before
        self.site.wait_until_quiet()
        emulation = over.since(before)
        say(f"   {seconds:7.2f} s {emulation.received_payload / self.size:6.2f} × the file from the origin: {name}")
        return HerdSample(seconds, *cpu, self.size * CLIENTS, False, emulation, emulation.received_payload, client_s)

    def through(self, kind: CacheKind) -> Contender:
        return self.site.through(kind.name, kind, lambda cache: self.sample(kind.name, cache, kind.is_http))


def herd(settings: Settings) -> dict:
    size = settings.large_bytes or (64 * MIB if settings.quick else 256 * MIB)
    scale = Scale(settings.repetitions or (1 if settings.quick else 5), 60 if settings.quick else 120)
    with scratch(str(settings.memory), "herd") as directory:
        source = make_source(directory / "source", size)

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            herd = Herd(Site.at(over, machine, servers, scale, settings.memory), source, directory / "compared.bin")
            return list(map(herd.through, KINDS))

        found = cells(settings, PATHS, dict.fromkeys(("xrootd5", "nginx"), source.parent), scale.repetitions, contenders_at)
    return {"shape": "herd", "bytes": size, "clients": CLIENTS, "limit_s": scale.limit_s, "cells": found}
