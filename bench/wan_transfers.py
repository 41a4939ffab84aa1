"""Transfers over emulated paths: towpath without options, and its peers without and with the options that suit the job,
each with its own server."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Sequence

from contenders import RCLONE_STREAMS, Machine
from digests import KeptDigests, make_known
from harness import Contender, Program, Server, scratch
from large import UNKNOWN, begin_alike, same_file
from settings import MIB, Settings, write_pattern
from small_files import CURL_PARALLEL, curl_list, fresh, same_tree
from wan_cells import Scale, cells, received_of, timed, verified
from wan_files import Tree
from wan_lab import Lab, NetworkPath
from warm_memory import WarmMemory

KINDS = ("towpath", "xrootd6", "nginx", "gridftp")
Row = tuple[str, str, Program]
"""A contender's name, the kind of its server, and its command."""
RowsOf = Callable[[Machine, dict[str, Server], pathlib.Path, pathlib.Path], list[Row]]
"""Returns the contenders for a source and a target."""
TreeRowsOf = Callable[[Machine, dict[str, Server], Tree, pathlib.Path, pathlib.Path], list[Row]]
"""Returns the contenders for a tree."""
CHECKSUM_PAIRS = [
    ("towpath cp --checksum crc32c <- towpath", "towpath cp <- towpath" + UNKNOWN),
    ("towpath cp (HTTP) --checksum crc32c <- towpath", "towpath cp (HTTP) <- towpath" + UNKNOWN),
    ("xrdcp 6.2 --cksum crc32c <- xrootd6", "xrdcp 6.2 <- xrootd6"),
]
"""Pairs with and without a digest of the whole file. The difference is the cost of the checksum."""


def aria2(machine: Machine) -> Program:
    quiet = ("-q", "--no-conf", "--file-allocation=none", "--allow-overwrite=true", "--auto-file-renaming=false")
    return machine.installed("aria2c")(*quiet, "-k", "1M", "-x", 16, "-s", 16)


def rclone(machine: Machine, size: int) -> Program:
    # Each chunk costs one request and thus one round trip, but there are at most as many streams as chunks.
    chunk = min(max(size // 64, 2 * MIB), 64 * MIB)
    streams = ("--multi-thread-streams", RCLONE_STREAMS, "--multi-thread-cutoff", "1M", "--multi-thread-chunk-size", f"{chunk}B")
    return machine.rclone("copyto", *streams)


def globus(machine: Machine) -> Program:
    return machine.globus("globus-url-copy", "client")("-q", "-fast")


def large_rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """Returns the contenders for one file."""
    name, nginx = source.name, servers["nginx"]
    towpath = machine.towpath("cp", "-q", "-f")
    xrdcp = machine.xrootd6("xrdcp")("-f", "-s")
    ftp = f"ftp://{servers['gridftp'].address}{source}"
    http = f":http,url='{nginx.http()}':{name}"
    return [
        ("towpath cp <- towpath", "towpath", towpath(servers["towpath"].root(name), target)),
        ("towpath cp (HTTP) <- towpath", "towpath", towpath(servers["towpath"].http(name), target)),
        ("xrdcp 6.2 <- xrootd6", "xrootd6", xrdcp(servers["xrootd6"].root(name), target)),
        ("xrdcp 6.2 -S 8 <- xrootd6", "xrootd6", xrdcp("-S", 8, servers["xrootd6"].root(name), target)),
        ("globus-url-copy -fast -p 8 <- gridftp", "gridftp", globus(machine)("-p", 8, ftp, f"file://{target}")),
        ("rclone <- nginx", "nginx", machine.rclone("copyto", http, target)),
        (f"rclone, {RCLONE_STREAMS} streams <- nginx", "nginx", rclone(machine, source.stat().st_size)(http, target)),
        ("aria2c -x 16 <- nginx", "nginx", aria2(machine)("-d", target.parent, "-o", target.name, nginx.http(name))),
        ("curl <- nginx", "nginx", machine.installed("curl")("-s", "-S", "-f", "-o", target, nginx.http(name))),
    ]


def fast_rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """Returns the same, and xrdcp with more chunks: the path holds more than its default of 4 chunks of 8 MiB in
    flight."""
    xrdcp = machine.xrootd6("xrdcp")("-f", "-s", servers["xrootd6"].root(source.name), target)
    return [*large_rows(machine, servers, source, target), ("xrdcp 6.2, 64 chunks <- xrootd6", "xrootd6", xrdcp.where(XRD_CPPARALLELCHUNKS="64"))]


def few_rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """Returns one contender of each kind, for jobs in which a run takes more than a minute."""
    kinds = ("towpath", "globus-url-copy", "rclone,", "curl")
    return [row for row in large_rows(machine, servers, source, target) if row[0].startswith(kinds)]


def checksum_rows(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """Returns contenders with a digest of the whole file that is compared at both ends, and without."""
    name = source.name
    towpath, xrdcp = machine.towpath("cp", "-q", "-f"), machine.xrootd6("xrdcp")("-f", "-s")
    return [
        ("towpath cp --checksum crc32c <- towpath", "towpath", towpath("--checksum", "crc32c", servers["towpath"].root(name), target)),
        ("towpath cp (HTTP) --checksum crc32c <- towpath", "towpath", towpath("--checksum", "crc32c", servers["towpath"].http(name), target)),
        ("towpath cp <- towpath" + UNKNOWN, "towpath", towpath(servers["towpath"].root(name), target)),
        ("towpath cp (HTTP) <- towpath" + UNKNOWN, "towpath", towpath(servers["towpath"].http(name), target)),
        ("xrdcp 6.2 --cksum crc32c <- xrootd6", "xrootd6", xrdcp("--cksum", "crc32c", servers["xrootd6"].root(name), target)),
        ("xrdcp 6.2 <- xrootd6", "xrootd6", xrdcp(servers["xrootd6"].root(name), target)),
    ]


def aria2_list(machine: Machine, pairs: Sequence[tuple[str, str]], target: pathlib.Path) -> Program:
    """Returns aria2c with a list of URLs from the benchmark."""
    path = machine.work / "down.aria2"
    path.write_text("".join(f"{url}\n  out={file}\n" for url, file in pairs))
    return aria2(machine)("-j", 16, "-d", target, "-i", path)


def tree_rows(machine: Machine, servers: dict[str, Server], tree: Tree, source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """Returns the contenders for downloads of a tree: each peer with the options for many files, and with those for few
    large ones."""
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


def mixed_rows(machine: Machine, servers: dict[str, Server], tree: Tree, source: pathlib.Path, target: pathlib.Path) -> list[Row]:
    """Returns the same, and the fastest options for files of several sizes."""
    nginx, gridftp = servers["nginx"], servers["gridftp"]
    rclone = machine.rclone("copy", "--transfers", 32, "--checkers", 32)
    guc = globus(machine)("-r", "-cd", "-cc", 32, "-pp")
    return [
        *tree_rows(machine, servers, tree, source, target),
        ("globus-url-copy -r -fast -cc 32 -pp <- gridftp", "gridftp", guc(f"ftp://{gridftp.address}{source}/", f"file://{target}/tree/")),
        ("rclone --transfers 32 <- nginx", "nginx", rclone(f":http,url='{nginx.http()}':tree", target / "tree")),
    ]


def upload_rows(machine: Machine, servers: dict[str, Server], tree: Tree, source: pathlib.Path) -> list[Row]:
    """Returns the contenders for uploads of a tree, without globus-url-copy because anonymous users may not write."""
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


def know_digests(machine: Machine, root: pathlib.Path, names: list[str]) -> None:
    """Stores the digests of the files, as after an upload through towpath. Uses loopback, which is faster than the
    path."""
    with machine.serving({"towpath": root}) as servers:
        make_known(machine, servers["towpath"], root, names)


def keep_digests(machine: Machine, file: pathlib.Path) -> KeptDigests:
    """Returns the stored digests of one file; they can be removed and restored."""
    with machine.serving({"towpath": file.parent}) as servers:
        return KeptDigests(machine, servers["towpath"], file)


def large(
    settings: Settings, paths: Sequence[NetworkPath], parent: pathlib.Path, size: int, scale: Scale, rows_of: RowsOf = large_rows
) -> dict:
    """Copies one file over each path, from `parent` to `parent`."""
    with scratch(str(parent), "wan") as directory, WarmMemory() as memory:
        source, target = directory / "source" / "large.bin", directory / "target" / "large.bin"
        source.parent.mkdir()
        write_pattern(source, size)
        digests = keep_digests(settings.machine, source)

        def before(name: str) -> None:
            fresh(target.parent)
            digests.forget() if name.endswith(UNKNOWN) else digests.know()
            begin_alike(settings, parent, source, memory)

        def contender(name: str, server: Server, program: Program, over: Lab) -> Contender:
            run = timed(name, program, server, over, scale.limit_s, size, received_of(size))
            return Contender(name, verified(run, functools.partial(same_file, source, target)), functools.partial(before, name))

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            return [contender(name, servers[kind], program, over) for name, kind, program in rows_of(machine, servers, source, target)]

        found = cells(settings, paths, dict.fromkeys(KINDS, source.parent), scale.repetitions, contenders_at)
    return {"shape": "rate", "bytes": size, "limit_s": scale.limit_s, "cells": found}


def tree_record(tree: Tree, scale: Scale, found: list[dict]) -> dict:
    return {"shape": "seconds", "bytes": tree.bytes, "files": len(tree.sizes), "limit_s": scale.limit_s, "cells": found}


def tree_down(settings: Settings, paths: Sequence[NetworkPath], tree: Tree, scale: Scale, rows_of: TreeRowsOf = tree_rows) -> dict:
    """Downloads a tree over each path, in memory."""
    with scratch(str(settings.memory), "wan") as directory:
        source, target = directory / "source" / "tree", directory / "target"
        tree.make(source)
        know_digests(settings.machine, source.parent, [f"tree/{name}" for name in tree.names()])
        check = functools.partial(same_tree, source, target / "tree")

        def contender(name: str, server: Server, program: Program, over: Lab) -> Contender:
            run = timed(name, program, server, over, scale.limit_s, tree.bytes, lambda _: tree.arrived(target / "tree"))
            return Contender(name, verified(run, check), functools.partial(fresh, target))

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            return [contender(name, servers[kind], program, over) for name, kind, program in rows_of(machine, servers, tree, source, target)]

        return tree_record(tree, scale, cells(settings, paths, dict.fromkeys(KINDS, source.parent), scale.repetitions, contenders_at))


def tree_up(settings: Settings, paths: Sequence[NetworkPath], tree: Tree, scale: Scale) -> dict:
    """Uploads a tree over each path, in memory."""
    owners = {"towpath": None, "xrootd6": "daemon", "nginx": "www-data"}
    with scratch(str(settings.memory), "wan") as directory:
        source = directory / "source" / "tree"
        tree.make(source)
        roots = {kind: directory / kind for kind in owners}
        for root in roots.values():
            root.mkdir()

        def contender(name: str, kind: str, server: Server, program: Program, over: Lab) -> Contender:
            landed = roots[kind] / "up"
            run = timed(name, program, server, over, scale.limit_s, tree.bytes, lambda _: tree.arrived(landed / "tree"))
            check = functools.partial(same_tree, source, landed / "tree")
            return Contender(name, verified(run, check), functools.partial(fresh, landed, owners[kind]))

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            return [contender(name, kind, servers[kind], program, over) for name, kind, program in upload_rows(machine, servers, tree, source)]

        return tree_record(tree, scale, cells(settings, paths, roots, scale.repetitions, contenders_at))
