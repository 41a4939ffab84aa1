"""Jobs (a) and (b): one large file down and up over loopback. Each client runs with its own server and with others;
plain and over TLS; in memory and on disk.

The downloads include bare loops, `sendfile` into a receiving loop without any protocol, as the limit of this machine in
the same run.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib

from contenders import RCLONE_STREAMS, Machine
from digests import KeptDigests
from harness import CHECK_LIMIT_S, Contender, Program, Server, contender, interleave, run_client, scratch
from settings import Settings
from warm_memory import WarmMemory

Row = tuple[str, str, Program]
"""A contender's name, the kind of its server, and its command."""

UNKNOWN = ", digest unknown"
"""Suffix of the names of contenders whose server has no stored digest of the file."""

CHECKSUM_PAIRS = [
    ("xrdcp 6.2 --cksum crc32c <- xrootd6", "xrdcp 6.2 <- xrootd6"),
    ("towpath cp --checksum crc32c <- towpath", "towpath cp <- towpath"),
    ("towpath cp <- towpath" + UNKNOWN, "towpath cp <- towpath"),
]
"""Pairs with and without a digest of the whole file. The difference is the cost of the checksum."""


@dataclasses.dataclass
class Clients:
    """Commands of all clients, without progress output and with overwriting enabled."""

    machine: Machine

    def __post_init__(self) -> None:
        self.towpath = self.machine.towpath("cp", "-q", "-f")
        self.xrdcp6 = self.machine.xrootd6("xrdcp")("-f", "-s")
        self.xrdcp5 = self.machine.installed("xrdcp")("-f", "-s")
        self.curl = self.machine.installed("curl")("-s", "-S", "-f")
        streams = ("--multi-thread-streams", RCLONE_STREAMS, "--multi-thread-cutoff", "1M")
        self.rclone = self.machine.rclone("copyto", *streams)


def same_file(a: pathlib.Path, b: pathlib.Path) -> None:
    """Compares the content of two files."""
    run_client(Program(("cmp", str(a), str(b))), limit_s=CHECK_LIMIT_S)


def evict(file: pathlib.Path) -> None:
    """Removes a file from the page cache, and writes out the data of earlier runs. Without effect in memory."""
    os.sync()
    with file.open("rb") as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def begin_alike(settings: Settings, parent: pathlib.Path, source: pathlib.Path, memory: WarmMemory) -> None:
    """Gives each run the same start: evicts the source from the page cache on disk, reserves memory otherwise."""
    if parent == settings.disk:
        evict(source)
    else:
        memory.hold()


def own_downloads(clients: Clients, servers: dict[str, Server], name: str, target: pathlib.Path) -> list[Row]:
    """Returns the rows of all download jobs: each client with its own server, and the most important combinations."""
    root = {kind: server.root(name) for kind, server in servers.items()}
    nginx = servers["nginx"]
    return [
        ("towpath cp <- towpath", "towpath", clients.towpath(root["towpath"], target)),
        ("towpath cp <- towpath" + UNKNOWN, "towpath", clients.towpath(root["towpath"], target)),
        ("towpath cp <- xrootd6", "xrootd6", clients.towpath(root["xrootd6"], target)),
        ("xrdcp 6.2 <- xrootd6", "xrootd6", clients.xrdcp6(root["xrootd6"], target)),
        ("xrdcp 6.2 <- towpath", "towpath", clients.xrdcp6(root["towpath"], target)),
        ("curl <- nginx", "nginx", clients.curl("-o", target, nginx.http(name))),
        ("rclone <- nginx", "nginx", clients.rclone(f":http,url='{nginx.http()}':{name}", target)),
    ]


def http_downloads(clients: Clients, servers: dict[str, Server], name: str, target: pathlib.Path) -> list[Row]:
    """Returns downloads from towpath over HTTP."""
    towpath = servers["towpath"]
    return [
        ("towpath cp (HTTP) <- towpath", "towpath", clients.towpath(towpath.http(name), target)),
        ("curl <- towpath", "towpath", clients.curl("-o", target, towpath.http(name))),
        ("rclone <- towpath", "towpath", clients.rclone(f":http,url='{towpath.http()}':{name}", target)),
    ]


def further_downloads(clients: Clients, servers: dict[str, Server], name: str, target: pathlib.Path) -> list[Row]:
    """Returns downloads with digests of the whole file, and those of Debian's XRootD."""
    root = {kind: server.root(name) for kind, server in servers.items()}
    return [
        ("towpath cp --checksum crc32c <- towpath", "towpath", clients.towpath("--checksum", "crc32c", root["towpath"], target)),
        ("xrdcp 6.2 --cksum crc32c <- xrootd6", "xrootd6", clients.xrdcp6("--cksum", "crc32c", root["xrootd6"], target)),
        ("xrdcp 5.5 <- xrootd5", "xrootd5", clients.xrdcp5(root["xrootd5"], target)),
    ]


def bare_loops(machine: Machine, servers: dict[str, Server], size: int, target: pathlib.Path) -> list[Row]:
    """Returns the bare loops: one and two connections, received data written or spliced."""
    fetch = machine.example("bare_loop")("fetch", servers["bare"].address, size, target)
    ways = [(connections, how, checks) for connections in (1, 2) for how in ("write", "splice") for checks in ((), ("crc32c",))]
    return [(", ".join([f"bare loop, {connections} × {how}", *checks]), "bare", fetch(connections, how, *checks)) for connections, how, checks in ways]


def down(settings: Settings, parent: pathlib.Path, tls: bool = False) -> dict:
    """Downloads the file from each server to the same file system. Over TLS and on disk with fewer contenders."""
    full = settings.is_full(parent, tls)
    source = settings.large_file(parent, part=1 if full else 4)
    size = source.stat().st_size
    kinds = ["towpath", "xrootd6", "nginx", *(["xrootd5"] if full else [])]
    roots = dict.fromkeys(kinds, source.parent) | ({} if tls else {"bare": source})
    with scratch(str(parent), "down") as directory, settings.machine.serving(roots, tls) as servers, WarmMemory() as memory:
        target = directory / "target.bin"
        clients = Clients(settings.machine)
        rows = own_downloads(clients, servers, source.name, target)
        rows += http_downloads(clients, servers, source.name, target) if parent == settings.memory else []
        rows += further_downloads(clients, servers, source.name, target) if full else []
        rows += [] if tls else bare_loops(settings.machine, servers, size, target)
        digests = KeptDigests(settings.machine, servers["towpath"], source)

        def before(name: str) -> None:
            target.unlink(missing_ok=True)
            digests.forget() if name.endswith(UNKNOWN) else digests.know()
            begin_alike(settings, parent, source, memory)

        check = functools.partial(same_file, source, target)
        contenders = [contender(name, program, servers[kind], functools.partial(before, name), check) for name, kind, program in rows]
        return {"shape": "transfer", "bytes": size, "checksum_pairs": CHECKSUM_PAIRS, **interleave(contenders, settings.repetitions)}


def own_uploads(clients: Clients, servers: dict[str, Server], source: pathlib.Path) -> list[Row]:
    """Returns the rows of all upload jobs."""
    root = {kind: server.root("up") for kind, server in servers.items()}
    http = {kind: servers[kind].http("up") for kind in ("towpath", "nginx")}
    return [
        ("towpath cp -> towpath", "towpath", clients.towpath(source, root["towpath"])),
        ("towpath cp (HTTP) -> towpath", "towpath", clients.towpath(source, http["towpath"])),
        ("towpath cp -> xrootd6", "xrootd6", clients.towpath(source, root["xrootd6"])),
        ("xrdcp 6.2 -> xrootd6", "xrootd6", clients.xrdcp6(source, root["xrootd6"])),
        ("xrdcp 6.2 -> towpath", "towpath", clients.xrdcp6(source, root["towpath"])),
        ("curl -> nginx", "nginx", clients.curl("-T", source, http["nginx"])),
        ("curl -> towpath", "towpath", clients.curl("-T", source, http["towpath"])),
    ]


def further_uploads(clients: Clients, servers: dict[str, Server], source: pathlib.Path) -> list[Row]:
    """Returns Debian's XRootD and rclone. nginx has no WebDAV listing, so rclone has no pair of its own."""
    dav = f":webdav,url='{servers['towpath'].http()}',pacer_min_sleep=0:up"
    return [
        ("xrdcp 5.5 -> xrootd5", "xrootd5", clients.xrdcp5(source, servers["xrootd5"].root("up"))),
        ("rclone -> towpath", "towpath", clients.rclone(source, dav)),
    ]


def up(settings: Settings, parent: pathlib.Path, tls: bool = False) -> dict:
    """Uploads the file to each server as `up` in a directory of its own. The source has no stored digest."""
    full = settings.is_full(parent, tls)
    source = settings.large_file(parent, part=2 if full else 4)
    with scratch(str(parent), "up") as directory:
        roots = {kind: directory / kind for kind in ("towpath", "xrootd6", "nginx", *(["xrootd5"] if full else []))}
        for root in roots.values():
            root.mkdir()
        with settings.machine.serving(roots, tls) as servers, WarmMemory() as memory:
            clients = Clients(settings.machine)
            rows = own_uploads(clients, servers, source) + (further_uploads(clients, servers, source) if full else [])

            def before() -> None:
                # Removes the files of all servers to free space.
                for root in roots.values():
                    (root / "up").unlink(missing_ok=True)
                begin_alike(settings, parent, source, memory)

            contenders: list[Contender] = []
            for name, kind, program in rows:
                check = functools.partial(same_file, source, roots[kind] / "up")
                contenders.append(contender(name, program, servers[kind], before, check))
            return {"shape": "transfer", "bytes": source.stat().st_size, **interleave(contenders, settings.repetitions)}
