"""A site at the end of an emulated path: origins in host 2, caches and their clients in host 1."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import xroot_reader
from caches import CacheKind, lacks_xcache6, running
from contenders import Machine
from harness import Contender, Network, Program, Sample, Server, run_client
from large import same_file
from settings import Settings
from wan_cells import PathSample, Scale, received_of, timed
from wan_lab import Lab

QUIET_S = 0.4
"""Caches that prefetch count as quiet if nothing arrives for this time and a round trip."""
NOISE_BYTES = 4096
QUIET_LIMIT_S = 30.0
SETTLED_S = 3600
"""Age of the files at the origin: caches do not trust the modification time of a file that has changed just now."""

CACHE_HOST = "127.0.0.2"
"""Where caches listen: ROOT's RDataFrame looks for the files of 127.0.0.1 on the disk."""


def settle_time(*paths: pathlib.Path) -> None:
    """Makes files old."""
    for path in paths:
        old = time.time() - SETTLED_S
        os.utime(path, (old, old))


def reader(*words: object) -> Program:
    """Returns the reader without client library."""
    return Program((sys.executable, xroot_reader.__file__))(*words)


@dataclasses.dataclass
class Site:
    """A site, and its origins by kind."""

    over: Lab
    machine: Machine
    """Runs its servers in host 1."""
    origins: dict[str, Server]
    scale: Scale
    storage: pathlib.Path
    """Parent of the caches' directories."""

    @classmethod
    def at(cls, over: Lab, machine: Machine, origins: dict[str, Server], scale: Scale, storage: pathlib.Path) -> Site:
        near = Network(CACHE_HOST, over.in_host(1), over.in_host(1))
        return cls(over, dataclasses.replace(machine, network=near), origins, scale, storage)

    def run(self, program: Program) -> dict:
        """Runs a program in host 1. Returns the JSON object that it prints."""
        return output_of(program.after(self.over.in_host(1)), self.scale.limit_s)

    def sent_bytes(self, kind: str) -> int | None:
        """Returns the bytes that an origin has sent by its own counters; None for origins other than XRootD."""
        if not kind.startswith("xrootd"):
            return None
        asking = reader("sent", self.origins[kind].address).after(self.over.in_host(2))
        return output_of(asking, self.scale.limit_s)["sent_bytes"]

    def wait_until_quiet(self) -> None:
        """Waits until nothing arrives from the origins."""
        deadline = time.monotonic() + QUIET_LIMIT_S
        before = -NOISE_BYTES
        while (now := self.over.received_payload()) - before >= NOISE_BYTES and time.monotonic() < deadline:
            before = now
            time.sleep(QUIET_S + self.over.path.rtt_ms / 1000)

    def timed(self, name: str, program: Program, server: Server, size: int) -> PathSample:
        """Runs a client that reads `size` bytes."""
        return timed(name, program, server, self.over, self.scale.limit_s, size, received_of(size))()

    def through(self, name: str, kind: CacheKind, run: Callable[[Server], Sample]) -> Contender:
        """Returns a contender that runs with a newly started, empty cache."""

        def once() -> Sample:
            require(kind, self.machine)
            with running(kind, self.machine, self.origins[kind.origin], self.storage) as cache:
                return run(cache)

        return Contender(name, once)


@dataclasses.dataclass
class SiteReaders:
    """Readers at a site, by name: directly, and through caches."""

    site: Site

    def sample(self, reader: str, server: Server, title: str) -> Sample:
        """Runs a reader of a server."""
        raise NotImplementedError

    def direct(self, reader: str, origin: str) -> Contender:
        name = f"{reader}: direct <- {origin}"
        return Contender(name, lambda: self.sample(reader, self.site.origins[origin], name))

    def through(self, reader: str, kind: CacheKind) -> Contender:
        name = f"{reader}: {kind.name}"
        return self.site.through(name, kind, lambda cache: self.sample(reader, cache, name))


def require(kind: CacheKind, machine: Machine) -> None:
    """Raises an exception if the cache cannot run on this machine."""
    missing = lacks_xcache6(machine) if kind.name.startswith("XCache 6.2") else None
    if missing:
        raise RuntimeError(missing)


def output_of(program: Program, limit_s: float) -> dict:
    """Runs a program to its end. Returns the JSON object that it prints."""
    try:
        done = subprocess.run(program.words, capture_output=True, text=True, env=program.surroundings(), timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"not done after {limit_s:.0f} s") from error
    if done.returncode:
        raise RuntimeError(f"{' '.join(program.words[-4:])}: {(done.stderr.splitlines() or ['no output'])[-1]}")
    return json.loads(done.stdout)


@dataclasses.dataclass(frozen=True)
class Copies:
    """Commands that copy one file from a server to a target."""

    machine: Machine
    name: str

    def xrdcp(self, server: Server, target: pathlib.Path | str = "/dev/null") -> Program:
        return self.machine.installed("xrdcp")("-f", "-s", server.root(self.name), target)

    def curl(self, server: Server, target: pathlib.Path | str = "/dev/null") -> Program:
        return self.machine.installed("curl")("-s", "-S", "-f", "-o", target, server.http(self.name))

    def towpath(self, url: str, target: pathlib.Path | str = "/dev/null") -> Program:
        return self.machine.towpath("cp", "-q", "-f", url, target)

    def compared(self, program_for: Callable[[Server, pathlib.Path], Program], server: Server, source: pathlib.Path, target: pathlib.Path) -> None:
        """Copies the file from the server, untimed, and compares it with its source."""
        try:
            run_client(program_for(server, target).after(self.machine.network.at_client))
            same_file(source, target)
        finally:
            target.unlink(missing_ok=True)


def chosen_kinds(settings: Settings, kinds: Sequence[CacheKind], quick: Sequence[CacheKind]) -> Sequence[CacheKind]:
    """Returns the caches of a job; fewer in a quick run."""
    return quick if settings.quick else kinds
