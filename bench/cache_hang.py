"""Two origins, one of which stops responding (SIGSTOP) while clients read from it; and the rate of a client of the
other."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

from cache_copies import make_source
from cache_site import Copies, Site, reader, require, running
from caches import NGINX_WHOLE, TOWPATH, TOWPATH_HTTP, XCACHE_DEFAULT, CacheKind, nginx, xcache, xrootd_of
from circumstances import circumstances
from harness import Contender, Program, Server, scratch
from settings import MIB, Settings
from wan_cells import PathSample, Scale, race, served
from wan_lab import NetworkPath

READERS = 64
"""Clients of the origin that hangs, each with a file of its own."""
BEGIN_S = 1.0
"""Time from the start of these clients until their origin stops."""
PATH = NetworkPath(50)
UNDISTURBED = ", undisturbed"


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stops all processes of a server, which keep their connections."""
    pids = server.pids()
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def started(program: Program) -> Iterator[None]:
    """Runs a program in the background, and ends it."""
    process = subprocess.Popen(program.words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the clients of the origin that hangs ended with {process.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclasses.dataclass(frozen=True)
class View:
    """An origin as its clients see it: a server, and the prefix of paths."""

    server: Server
    prefix: str = ""


Pair = tuple[View, View]
"""The origin that may hang, and the other."""


@dataclasses.dataclass
class Origins:
    """Two origins of each kind."""

    site: Site
    failing: dict[str, Server]

    def kinds(self, kind: CacheKind) -> tuple[Server, Server]:
        return self.failing[kind.origin], self.site.origins[kind.origin]

    @contextlib.contextmanager
    def two_processes(self, kind: CacheKind) -> Iterator[Pair]:
        failing, healthy = self.kinds(kind)
        with running(kind, self.site.machine, failing, self.site.storage) as one, running(kind, self.site.machine, healthy, self.site.storage) as other:
            yield View(one), View(other)

    @contextlib.contextmanager
    def forwarding_xcache(self, version: str) -> Iterator[Pair]:
        """Runs XCache as a forwarding proxy: each path has its origin."""
        machine = self.site.machine
        xrootd = xrootd_of(machine, version)
        kind = CacheKind(f"XCache {version}", "xrootd5", lambda at: xcache(at, xrootd, "", is_forwarding=True))
        with running(kind, machine, self.site.origins["xrootd5"], self.site.storage) as cache:
            failing, healthy = self.kinds(kind)
            yield View(cache, f"root://{failing.address}//"), View(cache, f"root://{healthy.address}//")

    @contextlib.contextmanager
    def one_nginx(self) -> Iterator[Pair]:
        failing, healthy = self.failing["nginx"], self.site.origins["nginx"]
        kind = CacheKind("nginx", "nginx", lambda at: nginx(at, NGINX_WHOLE, {"/failing/": failing, "/healthy/": healthy}))
        with running(kind, self.site.machine, healthy, self.site.storage) as cache:
            yield View(cache, "failing/"), View(cache, "healthy/")


Setup = Callable[[], contextlib.AbstractContextManager[Pair]]


@dataclasses.dataclass
class Hang:
    """Contenders of the job: each undisturbed, and with a hanging origin."""

    origins: Origins
    source: pathlib.Path
    compared: pathlib.Path

    def __post_init__(self) -> None:
        self.site = self.origins.site
        self.size = self.source.stat().st_size

    def clients(self, view: View, is_http: bool) -> Program:
        """Returns the clients of the origin that hangs."""
        if not is_http:
            return reader("herd", view.server.address, f"/{view.prefix}{name_of('{}')}", self.size, READERS)
        urls = [word for number in range(READERS) for word in ("-o", "/dev/null", view.server.http(f"{view.prefix}{name_of(number)}"))]
        return self.site.machine.installed("curl")("-s", "-Z", "--parallel-immediate", "--parallel-max", READERS, *urls)

    def copy(self, name: str, view: View, is_http: bool) -> PathSample:
        copies = Copies(self.site.machine, f"{view.prefix}{self.source.name}")
        program_for = copies.curl if is_http else copies.xrdcp
        sample = self.site.timed(name, program_for(view.server), view.server, self.size)
        if not sample.cut:
            copies.compared(program_for, view.server, self.source, self.compared)
        return sample

    def contender(self, name: str, setup: Setup, kind: str, hangs: bool) -> Contender:
        is_http = kind == "nginx"

        def run() -> PathSample:
            with setup() as (failing, healthy), contextlib.ExitStack() as stack:
                if hangs:
                    stack.enter_context(started(self.clients(failing, is_http).after(self.site.over.in_host(1))))
                    time.sleep(BEGIN_S)
                    stack.enter_context(stopped(self.origins.failing[kind]))
                    self.site.wait_until_quiet()
                return self.copy(name, healthy, is_http)

        return Contender(name, run)

    def both(self, name: str, setup: Setup, kind: str) -> list[Contender]:
        return [self.contender(name + suffix, setup, kind, hangs) for suffix, hangs in ((UNDISTURBED, False), ("", True))]

    def all(self) -> list[Contender]:
        two, machine = self.origins.two_processes, self.site.machine

        def xcache6() -> contextlib.AbstractContextManager[Pair]:
            require(XCACHE_DEFAULT["6.2"], machine)
            return self.origins.forwarding_xcache("6.2")

        return [
            *self.both("towpath cache, two processes", lambda: two(TOWPATH), "xrootd5"),
            *self.both("towpath cache (HTTP), two processes", lambda: two(TOWPATH_HTTP), "nginx"),
            *self.both("XCache 5.5, two processes", lambda: two(XCACHE_DEFAULT["5.5"]), "xrootd5"),
            *self.both("XCache 5.5, forwarding, one process", lambda: self.origins.forwarding_xcache("5.5"), "xrootd5"),
            *self.both("XCache 6.2, forwarding, one process", xcache6, "xrootd5"),
            *self.both("nginx, one process", self.origins.one_nginx, "nginx"),
        ]


def name_of(number: int | str) -> str:
    return f"other-{number}.bin"


def hang(settings: Settings) -> dict:
    size = settings.large_bytes or (64 * MIB if settings.quick else 256 * MIB)
    scale = Scale(settings.repetitions or (1 if settings.quick else 5), 40)
    with scratch(str(settings.memory), "hang") as directory:
        source = make_source(directory / "source", size)
        for number in range(READERS):
            (source.parent / name_of(number)).hardlink_to(source)
        roots = dict.fromkeys(("xrootd5", "nginx"), source.parent)
        with served(settings, PATH, roots) as (over, machine, servers), machine.serving(roots) as failing:
            start, where = time.monotonic(), circumstances(machine)
            site = Site.at(over, machine, servers, scale, settings.memory)
            contenders = Hang(Origins(site, failing), source, directory / "compared.bin").all()
            outcome = race(contenders, scale.repetitions, PATH.seed)
            about = {"seed": PATH.seed, "took_s": round(time.monotonic() - start), "circumstances": where}
    return {"shape": "hang", "bytes": size, "readers": READERS, "limit_s": scale.limit_s, "cells": [{"path": dataclasses.asdict(PATH), **about, **outcome}]}
