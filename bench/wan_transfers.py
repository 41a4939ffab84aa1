"""Transfers over emulated paths: towpath without any option, and its peers with the options that suit the job, each with its own server.

A job is a list of paths; over each path every contender has its turn, and every outcome is compared with the source. A contender that takes longer than the
job allows is cut off: its sample then says how many bytes it had brought by then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence

from contenders import RCLONE_STREAMS, Machine
from digests import make_known
from harness import Contender, Overtime, Program, Race, Sample, Server, run_client, say, scratch
from large import evict, same_file
from settings import Settings, write_pattern
from small_files import CURL_PARALLEL, curl_list, fresh, same_tree
from wan_files import Tree
from wan_lab import PAYLOAD_SHARE, Emulation, Lab, NetworkPath, lab

MIB, GIB = 1 << 20, 1 << 30
KINDS = ("towpath", "xrootd6", "nginx", "gridftp")
Row = tuple[str, str, Program]
"""A contender's name, the kind of its server, and its command."""
RowsOf = Callable[[Machine, dict[str, Server], pathlib.Path, pathlib.Path], list[Row]]
"""The contenders for a source and a target."""


@dataclasses.dataclass
class PathSample(Sample):
    """`bytes` is what arrived: everything, unless it was `cut`."""

    bytes: int
    cut: bool
    emulation: Emulation


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is done, and how long a contender may take for it."""

    repetitions: int
    limit_s: float


def timed(name: str, program: Program, server: Server, over: Lab, limit_s: float, whole: int, arrived: Callable[[Emulation], int]) -> Callable[[], PathSample]:
    """Runs a command in the clients' host. `arrived` says how much of `whole` bytes there is if it was cut off."""

    def run() -> PathSample:
        before = over.totals()
        cut = False
        try:
            sample = run_client(program.after(over.network().at_client), server, limit_s=limit_s)
        except Overtime as overtime:
            cut, sample = True, overtime.sample
        emulation = over.since(before)
        count = arrived(emulation) if cut else whole
        say(f"   {sample.seconds:7.2f} s {count * 8 / sample.seconds / 1e6:8.1f} Mbit/s{' (cut)' if cut else ''} {name}")
        return PathSample(**dataclasses.asdict(sample), bytes=count, cut=cut, emulation=emulation)

    return run


def passed_payload(whole: int, emulation: Emulation) -> int:
    """What a client that was cut off had received, by what the link carried to it. Segments sent twice count twice, but the file is not larger than it is."""
    return min(whole, round(emulation.passed_wire_bytes * PAYLOAD_SHARE))


def aria2(machine: Machine) -> Program:
    quiet = ("-q", "--no-conf", "--file-allocation=none", "--allow-overwrite=true", "--auto-file-renaming=false")
    return machine.installed("aria2c")(*quiet, "-k", "1M", "-x", 16, "-s", 16)


def rclone(machine: Machine) -> Program:
    # It opens no more streams than the file has chunks, which are of 64 MiB unless it is told otherwise.
    streams = ("--multi-thread-streams", RCLONE_STREAMS, "--multi-thread-cutoff", "1M", "--multi-thread-chunk-size", "2M")
    return machine.rclone("copyto", *streams)


def globus(machine: Machine) -> Program:
    return machine.globus("globus-url-copy", "client")("-q", "-fast")


def large_rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """One file."""
    name, nginx = source.name, servers["nginx"]
    towpath = machine.towpath("cp", "-q", "-f")
    xrdcp = machine.xrootd6("xrdcp")("-f", "-s")
    ftp = f"ftp://{servers['gridftp'].address}{source}"
    return [
        ("towpath cp <- towpath", "towpath", towpath(servers["towpath"].root(name), target)),
        ("towpath cp (HTTP) <- towpath", "towpath", towpath(servers["towpath"].http(name), target)),
        ("xrdcp 6.2 <- xrootd6", "xrootd6", xrdcp(servers["xrootd6"].root(name), target)),
        ("xrdcp 6.2 -S 8 <- xrootd6", "xrootd6", xrdcp("-S", 8, servers["xrootd6"].root(name), target)),
        ("globus-url-copy -fast -p 8 <- gridftp", "gridftp", globus(machine)("-p", 8, ftp, f"file://{target}")),
        (f"rclone, {RCLONE_STREAMS} streams <- nginx", "nginx", rclone(machine)(f":http,url='{nginx.http()}':{name}", target)),
        ("aria2c -x 16 <- nginx", "nginx", aria2(machine)("-d", target.parent, "-o", target.name, nginx.http(name))),
        ("curl <- nginx", "nginx", machine.installed("curl")("-s", "-S", "-f", "-o", target, nginx.http(name))),
    ]


def checksum_rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """With a digest of the whole file that both ends compare, and without: nginx knows none."""
    name = source.name
    towpath, xrdcp = machine.towpath("cp", "-q", "-f"), machine.xrootd6("xrdcp")("-f", "-s")
    return [
        ("towpath cp --checksum crc32c <- towpath", "towpath", towpath("--checksum", "crc32c", servers["towpath"].root(name), target)),
        ("towpath cp (HTTP) --checksum crc32c <- towpath", "towpath", towpath("--checksum", "crc32c", servers["towpath"].http(name), target)),
        ("towpath cp (HTTP), nothing to compare <- nginx", "nginx", towpath(servers["nginx"].http(name), target)),
        ("xrdcp 6.2 --cksum crc32c <- xrootd6", "xrootd6", xrdcp("--cksum", "crc32c", servers["xrootd6"].root(name), target)),
        ("xrdcp 6.2 <- xrootd6", "xrootd6", xrdcp(servers["xrootd6"].root(name), target)),
    ]


def aria2_list(machine: Machine, pairs: Sequence[tuple[str, str]], target: pathlib.Path) -> Program:
    """aria2c over a list of URLs that the benchmark writes for it."""
    path = machine.work / "down.aria2"
    path.write_text("".join(f"{url}\n  out={file}\n" for url, file in pairs))
    return aria2(machine)("-j", 16, "-d", target, "-i", path)


def tree_rows(machine: Machine, servers: dict[str, Server], tree: Tree, source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """A tree down, each peer with the options that many files need; those of few large ones too."""
    nginx = servers["nginx"]
    towpath = machine.towpath("cp", "-q", "-r")
    xrdcp = machine.xrootd6("xrdcp")("-s", "-r", "--parallel", 64)
    rclone = machine.rclone("copy", "--multi-thread-streams", RCLONE_STREAMS)
    http = f":http,url='{nginx.http()}':tree"
    guc = globus(machine)("-r", "-cd", "-cc", 8)
    ftp = (f"ftp://{servers['gridftp'].address}{source}/", f"file://{target}/tree/")
    urls = [(nginx.http(f"tree/{name}"), name) for name in tree.names()]
    curl = curl_list(machine, machine.work / "down.curl", [(url, f"{target}/tree/{name}") for url, name in urls], "output")
    return [
        ("towpath cp -r <- towpath", "towpath", towpath(servers["towpath"].root("tree"), target)),
        ("towpath cp -r (HTTP) <- towpath", "towpath", towpath(servers["towpath"].http("tree/"), target)),
        ("xrdcp 6.2 -r --parallel 64 <- xrootd6", "xrootd6", xrdcp(servers["xrootd6"].root("tree"), target)),
        ("globus-url-copy -r -fast -cc 8 -pp <- gridftp", "gridftp", guc("-pp", *ftp)),
        ("globus-url-copy -r -fast -cc 8 -p 4 <- gridftp", "gridftp", guc("-p", 4, *ftp)),
        *(
            (f"rclone --transfers {files} <- nginx", "nginx", rclone("--transfers", files, "--checkers", files, http, target / "tree"))
            for files in (64, 256)
        ),
        ("aria2c -j 16, URLs given <- nginx", "nginx", aria2_list(machine, urls, target / "tree")),
        (f"curl -Z --parallel-max {CURL_PARALLEL}, URLs given <- nginx", "nginx", curl),
    ]


def upload_rows(machine: Machine, servers: dict[str, Server], tree: Tree, source: pathlib.Path) -> list[Row]:
    """A tree up; globus-url-copy has none, because anonymous users may not write."""
    towpath = machine.towpath("cp", "-q", "-r", source)
    xrdcp = machine.xrootd6("xrdcp")("-s", "-r", "--parallel", 64, source)
    urls = [(servers["nginx"].http(f"up/tree/{name}"), f"{source}/{name}") for name in tree.names()]
    dav = f":webdav,url='{servers['towpath'].http()}',pacer_min_sleep=0:up/tree"
    return [
        ("towpath cp -r -> towpath", "towpath", towpath(servers["towpath"].root("up"))),
        ("towpath cp -r (HTTP) -> towpath", "towpath", towpath(servers["towpath"].http("up/"))),
        ("xrdcp 6.2 -r --parallel 64 -> xrootd6", "xrootd6", xrdcp(servers["xrootd6"].root("up"))),
        ("rclone --transfers 64 -> towpath", "towpath", machine.rclone("copy", "--transfers", 64, "--checkers", 64, source, dav)),
        (
            f"curl -Z --parallel-max {CURL_PARALLEL}, URLs given -> nginx",
            "nginx",
            curl_list(machine, machine.work / "up.curl", urls, "upload-file"),
        ),
    ]


def race(contenders: Sequence[Contender], repetitions: int) -> dict[str, dict]:
    """All in turn, without a warm-up: over such paths the first run is as good as any, and bytes are compared after each."""
    running = Race(contenders, repetitions, budget_s=math.inf)
    for number in range(repetitions):
        running.round(number)
    return running.outcome()


@contextlib.contextmanager
def served(settings: Settings, path: NetworkPath, roots: dict[str, pathlib.Path]) -> Iterator[tuple[Lab, Machine, dict[str, Server]]]:
    """An emulated path with a server of each kind at its far end."""
    say(f"-- {path}")
    with lab(settings.machine.towpath, path) as over:
        machine = dataclasses.replace(settings.machine, network=over.network())
        with machine.serving(roots) as servers:
            yield over, machine, servers


def verified(run: Callable[[], PathSample], check: Callable[[], None]) -> Callable[[], Sample]:
    """The same, compared with the source unless it was cut off."""

    def run_and_check() -> Sample:
        sample = run()
        if not sample.cut:
            check()
        return sample

    return run_and_check


def know_digests(machine: Machine, root: pathlib.Path, names: list[str]) -> None:
    """Has the digests of the files kept with them, as after an upload through towpath; over loopback, so that it takes no time."""
    with machine.serving({"towpath": root}) as servers:
        make_known(machine, servers["towpath"], root, names)


def large(
    settings: Settings, paths: Sequence[NetworkPath], parent: pathlib.Path, size: int, scale: Scale, rows_of: RowsOf = large_rows
) -> dict:
    """One file over each path, from `parent` to `parent`."""
    cells = []
    with scratch(str(parent), "wan") as directory:
        source, target = directory / "source" / "large.bin", directory / "target" / "large.bin"
        source.parent.mkdir()
        write_pattern(source, size)
        know_digests(settings.machine, source.parent, [source.name])

        def before() -> None:
            fresh(target.parent)
            if parent == settings.disk:
                evict(source)

        for path in paths:
            with served(settings, path, dict.fromkeys(KINDS, source.parent)) as (over, machine, servers):
                contenders = []
                for name, kind, program in rows_of(machine, servers, source, target):
                    run = timed(name, program, servers[kind], over, scale.limit_s, size, functools.partial(passed_payload, size))
                    contenders.append(Contender(name, verified(run, functools.partial(same_file, source, target)), before))
                cells.append({"path": dataclasses.asdict(path), **race(contenders, scale.repetitions)})
    return {"shape": "rate", "bytes": size, "limit_s": scale.limit_s, "cells": cells}


def tree_down(settings: Settings, paths: Sequence[NetworkPath], tree: Tree, scale: Scale) -> dict:
    """A tree over each path, in memory."""
    cells = []
    with scratch(str(settings.memory), "wan") as directory:
        source, target = directory / "source" / "tree", directory / "target"
        tree.make(source)
        know_digests(settings.machine, source.parent, [f"tree/{name}" for name in tree.names()])
        for path in paths:
            with served(settings, path, dict.fromkeys(KINDS, source.parent)) as (over, machine, servers):
                contenders = []
                for name, kind, program in tree_rows(machine, servers, tree, source, target):
                    run = timed(name, program, servers[kind], over, scale.limit_s, tree.bytes, lambda _: tree.arrived(target / "tree"))
                    check = functools.partial(same_tree, source, target / "tree")
                    contenders.append(Contender(name, verified(run, check), functools.partial(fresh, target)))
                cells.append({"path": dataclasses.asdict(path), **race(contenders, scale.repetitions)})
    return {"shape": "seconds", "bytes": tree.bytes, "files": len(tree.sizes), "limit_s": scale.limit_s, "cells": cells}


def tree_up(settings: Settings, paths: Sequence[NetworkPath], tree: Tree, scale: Scale) -> dict:
    """The other way: the clients have the tree."""
    owners = {"towpath": None, "xrootd6": "daemon", "nginx": "www-data"}
    cells = []
    with scratch(str(settings.memory), "wan") as directory:
        source = directory / "source" / "tree"
        tree.make(source)
        roots = {kind: directory / kind for kind in owners}
        for root in roots.values():
            root.mkdir()
        for path in paths:
            with served(settings, path, roots) as (over, machine, servers):
                contenders = []
                for name, kind, program in upload_rows(machine, servers, tree, source):
                    landed = roots[kind] / "up"
                    run = timed(name, program, servers[kind], over, scale.limit_s, tree.bytes, lambda _, to=landed: tree.arrived(to / "tree"))
                    check = functools.partial(same_tree, source, landed / "tree")
                    contenders.append(Contender(name, verified(run, check), functools.partial(fresh, landed, owners[kind])))
                cells.append({"path": dataclasses.asdict(path), **race(contenders, scale.repetitions)})
    return {"shape": "seconds", "bytes": tree.bytes, "files": len(tree.sizes), "limit_s": scale.limit_s, "cells": cells}
