"""Warm caches over loopback: one large file, small reads and vectors, and many small objects over HTTP. The caches are
on a disk, and their files in the page cache."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import random
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence

from cache_copies import make_source
from cache_site import Copies, require, running, settle_time
from caches import HTTP_PEERS, NGINX_FILES, SQUID_KIND, TOWPATH, TOWPATH_HOUR, TOWPATH_HTTP, VARNISH_KIND, XCACHE_DEFAULT, CacheKind
from contenders import Machine
from harness import Contender, Program, Server, contender, interleave, run_client, say, scratch
from requests_job import READ_CASES, WARM_UP_S, Load, sample
from settings import GIB, MIB, Settings
from small_files import curl_list, same_tree
from wan_files import Tree

XROOT_KINDS = [TOWPATH, *XCACHE_DEFAULT.values()]
OBJECTS, LEAST_BYTES, MOST_BYTES = 2_000, 1_000, 50_000
CONNECTIONS = (16, 256, 1_000)
REPETITIONS = 5


@contextlib.contextmanager
def filled(settings: Settings, kinds: Sequence[CacheKind], root: pathlib.Path, fill: Callable[[Server], None]) -> Iterator[tuple[dict[str, Server], dict[str, str]]]:
    """Runs origins over a directory, and a filled cache of each kind. Returns the servers by name, the origins among
    them, and the reasons of the missing."""
    machine = settings.machine
    with contextlib.ExitStack() as stack:
        origins = stack.enter_context(machine.serving(dict.fromkeys(("towpath", "xrootd5", "nginx"), root)))
        servers, left_out = {f"{kind}, the origin": server for kind, server in origins.items()}, {}
        for kind in kinds:
            try:
                require(kind, machine)
                cache = stack.enter_context(running(kind, machine, origins[kind.origin], settings.disk))
                fill(cache)
                servers[kind.name] = cache
            except (RuntimeError, OSError) as error:
                say(f"{kind.name}: left out: {error}")
                left_out[kind.name] = str(error)[:300]
        yield servers, left_out


def large_rows(copies: Copies, servers: dict[str, Server]) -> list[Contender]:
    """Returns copies of the large file from each server, over each of its protocols."""
    http_only = {kind.name for kind in HTTP_PEERS} | {"nginx, the origin"}
    xroot_only = {"xrootd5, the origin", "XCache 6.2"}
    rows = [contender(f"xrdcp 5.5 <- {name}", copies.xrdcp(server), server) for name, server in servers.items() if name not in http_only]
    return rows + [contender(f"curl <- {name}", copies.curl(server), server) for name, server in servers.items() if name not in xroot_only]


def loads(settings: Settings, servers: dict[str, Server], load: Load, repetitions: int) -> list[dict]:
    """Runs the load generator on the servers in turn. Returns one row for each server and case, with all samples."""
    rows = []
    for case in READ_CASES:
        samples: dict[str, list[dict]] = {name: [] for name in servers}
        for server in servers.values():
            sample(settings.machine, server, load, case, WARM_UP_S)
        for number in range(repetitions):
            for name in random.Random(f"{case} {number}").sample(list(servers), len(servers)):
                samples[name].append(sample(settings.machine, servers[name], load, case, settings.load_s))
        kind, clients, depth = case
        rows += [{"server": name, "kind": kind, "clients": clients, "depth": depth, "samples": taken} for name, taken in samples.items()]
    return rows


def warm(settings: Settings) -> dict:
    """Reads a file that is completely in each cache."""
    repetitions = settings.repetitions or (1 if settings.quick else REPETITIONS)
    size = settings.large_bytes or (256 * MIB if settings.quick else GIB)
    with scratch(str(settings.disk), "warm") as directory:
        source = make_source(directory / "source", size)
        copies = Copies(settings.machine, source.name)
        http = {kind.name for kind in HTTP_PEERS}

        def fill(kind_is_http: bool) -> Callable[[Server], None]:
            return lambda cache: copies.compared(copies.curl if kind_is_http else copies.xrdcp, cache, source, directory / "compared.bin")

        with filled(settings, XROOT_KINDS, source.parent, fill(False)) as (xroot, left_out):
            with filled(settings, [TOWPATH_HTTP, *HTTP_PEERS], source.parent, fill(True)) as (caches, also_left_out):
                servers = xroot | {name: server for name, server in caches.items() if name in http}
                outcome = interleave(large_rows(copies, servers), repetitions)
            requested = {name: server for name, server in xroot.items() if not name.startswith("nginx")}
            rows = loads(settings, requested, Load(source.name, size), repetitions)
    outcome["left_out"] |= left_out | also_left_out
    return {"shape": "warm", "bytes": size, **outcome, "rows": rows}


@dataclasses.dataclass(frozen=True)
class Objects:
    """Small objects below a directory."""

    machine: Machine
    tree: Tree
    root: pathlib.Path

    def make(self) -> None:
        self.tree.make(self.root)
        settle_time(*(self.root / name for name in self.tree.names()))

    def fill(self, server: Server) -> None:
        """Copies all objects from a server, and compares them."""
        with scratch(str(self.root.parent), "objects") as target:
            pairs = [(server.http(f"{self.root.name}/{name}"), f"{target}/{name}") for name in self.tree.names()]
            run_client(curl_list(self.machine, self.machine.work / "objects.curl", pairs, "output"))
            same_tree(self.root, target)

    def load(self, server: Server, connections: int, seconds: float) -> dict:
        """Requests the objects in turn over each connection."""
        urls = self.machine.work / f"objects-{server.port}.urls"
        urls.write_text("".join(f"{server.http(f'{self.root.name}/{name}')}\n" for name in self.tree.names()))
        before = server.cpu_s()
        h2load = self.machine.installed("h2load")("--h1", "-t", 1, "-c", connections, "-D", math.ceil(seconds), "-i", urls)
        outcome = outcome_of(h2load, limit_s=seconds + 30)
        return {**outcome, "server_cpu_s": server.cpu_s() - before}


def outcome_of(h2load: Program, limit_s: float) -> dict:
    """Runs h2load. Returns its counters; raises an exception after a failed request."""
    try:
        done = subprocess.run(h2load.words, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.SubprocessError as error:
        raise RuntimeError(f"h2load: {error}") from error
    duration = re.search(r"finished in ([\d.]+)(ms|s)", done.stdout)
    codes = re.search(r"status codes: (\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", done.stdout)
    failed = re.search(r"(\d+) failed, (\d+) errored, (\d+) timeout", done.stdout)
    if not (duration and codes and failed):
        raise RuntimeError(f"h2load printed {done.stdout[-300:]!r}")
    wrong = sum(map(int, codes.groups()[1:])) + sum(map(int, failed.groups()))
    seconds = float(duration[1]) / (1000 if duration[2] == "ms" else 1)
    return {"requests": int(codes[1]), "failed": wrong, "seconds": seconds}


def conditions(settings: Settings) -> dict:
    """Requests small objects over HTTP, as those of conditions data, from filled caches."""
    repetitions = settings.repetitions or (1 if settings.quick else REPETITIONS)
    draw = random.Random("conditions")
    sizes = tuple(draw.randint(LEAST_BYTES, MOST_BYTES) for _ in range(settings.files or OBJECTS))
    seconds = max(settings.load_s, 1.0) * (1 if settings.quick else 3)
    with scratch(str(settings.memory), "conditions") as directory:
        root = directory / "source" / "objects"
        objects = Objects(settings.machine, Tree(sizes), root)
        objects.make()
        kinds = [TOWPATH_HOUR, TOWPATH_HTTP, TOWPATH, NGINX_FILES, SQUID_KIND, VARNISH_KIND]
        rows = []
        with filled(settings, kinds, root.parent, objects.fill) as (servers, left_out):
            servers.pop("xrootd5, the origin")
            for connections in CONNECTIONS:
                samples: dict[str, list[dict]] = {name: [] for name in servers}
                for number in range(repetitions):
                    for name in random.Random(f"{connections} {number}").sample(list(servers), len(servers)):
                        try:
                            samples[name].append(objects.load(servers[name], connections, seconds))
                        except RuntimeError as error:
                            left_out[f"{name}, {connections} connections"] = str(error)[:300]
                rows += [{"server": name, "connections": connections, "samples": taken} for name, taken in samples.items() if taken]
    return {"shape": "conditions", "objects": len(sizes), "bytes": sum(sizes), "rows": rows, "left_out": left_out}
