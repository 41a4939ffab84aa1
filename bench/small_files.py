"""Job (d): a tree of many small files, down and up with one command."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess

from contenders import RCLONE_TRANSFERS, Machine
from digests import make_known
from harness import CHECK_LIMIT_S, Program, Server, contender, interleave, scratch
from settings import Settings

FILE_BYTES = 10_000
FILES_PER_DIRECTORY = 500
CURL_PARALLEL = 300
"""Maximum of this curl, and the fastest value in reference measurements."""


def names(files: int) -> list[str]:
    """Returns the relative paths of the files of the tree."""
    return [f"d{number // FILES_PER_DIRECTORY:03}/f{number:05}" for number in range(files)]


def make_tree(root: pathlib.Path, files: int) -> None:
    """Creates `files` files of 10 kB, each with different content."""
    for number, name in enumerate(names(files)):
        path = root / name
        if number % FILES_PER_DIRECTORY == 0:
            path.parent.mkdir(parents=True)
        path.write_bytes(number.to_bytes(8, "little") * (FILE_BYTES // 8))


def same_tree(source: pathlib.Path, arrived: pathlib.Path) -> None:
    """Raises an error with the names of the differences if the trees differ."""
    try:
        done = subprocess.run(("diff", "-rq", source, arrived), capture_output=True, text=True, timeout=CHECK_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"comparing the copy with its source took more than {CHECK_LIMIT_S} s") from error
    if done.returncode != 0:
        differences = (done.stdout + done.stderr).replace(str(source), "source").replace(str(arrived), "arrived")
        raise RuntimeError(f"the copy differs from its source: {differences[:2000]}")


def fresh(directory: pathlib.Path, owner: str | None = None) -> None:
    """Creates the directory empty, and writes out the data of earlier runs."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    if owner:
        shutil.chown(directory, owner)
    os.sync()


def rclone(machine: Machine) -> Program:
    return machine.rclone("copy", "--transfers", RCLONE_TRANSFERS, "--checkers", RCLONE_TRANSFERS)


def curl_list(machine: Machine, path: pathlib.Path, pairs: list[tuple[str, str]], option: str) -> Program:
    """Returns curl with a list of URLs from the benchmark: curl cannot list a directory."""
    path.write_text("".join(f'url = "{url}"\n{option} = "{file}"\n' for url, file in pairs))
    return machine.installed("curl")("-s", "-S", "-f", "-Z", "--parallel-max", CURL_PARALLEL, "--create-dirs", "-K", path)


SLOW = ("towpath cp -r <- towpath, digests unknown", "xrdcp 6.2 -r <- xrootd6", "xrdcp 6.2 -r -> xrootd6")
"""Contenders whose result on disk adds nothing to that in memory."""


def downloads(settings: Settings, servers: dict[str, Server], files: int, target: pathlib.Path) -> list[tuple[str, str, Program]]:
    """Returns each tool with its defaults, and with the degree of parallelism that is fastest here."""
    machine = settings.machine
    cp = machine.towpath("cp", "-q", "-r")
    xrdcp6 = machine.xrootd6("xrdcp")("-s", "-r")
    urls = [(servers["nginx"].http(f"tree/{name}"), f"{target}/tree/{name}") for name in names(files)]

    def http(kind: str) -> str:
        return f":http,url='{servers[kind].http()}':tree"

    return [
        ("towpath cp -r <- towpath", "towpath", cp(servers["towpath"].root("tree"), target)),
        ("towpath cp -r <- towpath, digests unknown", "towpath", cp(servers["towpath"].root("unknown/tree"), target)),
        ("towpath cp -r <- xrootd6", "xrootd6", cp(servers["xrootd6"].root("tree"), target)),
        ("xrdcp 6.2 -r <- xrootd6", "xrootd6", xrdcp6(servers["xrootd6"].root("tree"), target)),
        ("xrdcp 6.2 -r --parallel 16 <- xrootd6", "xrootd6", xrdcp6("--parallel", 16, servers["xrootd6"].root("tree"), target)),
        (f"rclone --transfers {RCLONE_TRANSFERS} <- nginx", "nginx", rclone(machine)(http("nginx"), target / "tree")),
        (f"rclone --transfers {RCLONE_TRANSFERS} <- towpath", "towpath", rclone(machine)(http("towpath"), target / "tree")),
        (f"curl -Z --parallel-max {CURL_PARALLEL}, URLs given <- nginx", "nginx", curl_list(machine, machine.work / "down.curl", urls, "output")),
    ]


def down(settings: Settings, parent: pathlib.Path) -> dict:
    files = settings.files_on(parent)
    with scratch(str(parent), "small") as directory:
        source = directory / "source" / "tree"
        make_tree(source, files)
        make_tree(source.parent / "unknown" / "tree", files)
        kinds = ("towpath", "xrootd6", "nginx")
        with settings.machine.serving(dict.fromkeys(kinds, source.parent)) as servers:
            make_known(settings.machine, servers["towpath"], source.parent, [f"tree/{name}" for name in names(files)])
            target = directory / "target"
            before = functools.partial(fresh, target)
            check = functools.partial(same_tree, source, target / "tree")
            rows = [row for row in downloads(settings, servers, files, target) if settings.is_full(parent) or row[0] not in SLOW]
            contenders = [contender(name, program, servers[kind], before, check) for name, kind, program in rows]
            return {"shape": "transfer", "bytes": files * FILE_BYTES, "files": files, **interleave(contenders, settings.repetitions)}


def uploads(settings: Settings, servers: dict[str, Server], files: int, source: pathlib.Path) -> list[tuple[str, str, Program]]:
    """The same tree the other way; rclone finds no WebDAV in nginx and so has no pair of its own."""
    machine = settings.machine
    xrdcp6 = machine.xrootd6("xrdcp")("-s", "-r", source)
    xrootd6 = servers["xrootd6"].root("up")
    dav = f":webdav,url='{servers['towpath'].http()}',pacer_min_sleep=0:up/tree"
    urls = [(servers["nginx"].http(f"up/tree/{name}"), f"{source}/{name}") for name in names(files)]
    return [
        ("towpath cp -r -> towpath", "towpath", machine.towpath("cp", "-q", "-r", source, servers["towpath"].root("up"))),
        ("towpath cp -r -> xrootd6", "xrootd6", machine.towpath("cp", "-q", "-r", source, xrootd6)),
        ("xrdcp 6.2 -r -> xrootd6", "xrootd6", xrdcp6(xrootd6)),
        ("xrdcp 6.2 -r --parallel 16 -> xrootd6", "xrootd6", xrdcp6("--parallel", 16, xrootd6)),
        (f"rclone --transfers {RCLONE_TRANSFERS} -> towpath", "towpath", rclone(machine)(source, dav)),
        (f"curl -Z --parallel-max {CURL_PARALLEL}, URLs given -> nginx", "nginx", curl_list(machine, machine.work / "up.curl", urls, "upload-file")),
    ]


def up(settings: Settings, parent: pathlib.Path) -> dict:
    files = settings.files_on(parent)
    owners = {"towpath": None, "xrootd6": "daemon", "nginx": "www-data"}
    with scratch(str(parent), "small") as directory:
        source = directory / "source" / "tree"
        make_tree(source, files)
        roots = {kind: directory / kind for kind in owners}
        for root in roots.values():
            root.mkdir()
        with settings.machine.serving(roots) as servers:
            contenders = []
            for name, kind, program in uploads(settings, servers, files, source):
                if name in SLOW and not settings.is_full(parent):
                    continue
                landed = roots[kind] / "up"
                before = functools.partial(fresh, landed, owners[kind])
                contenders.append(contender(name, program, servers[kind], before, functools.partial(same_tree, source, landed / "tree")))
            return {"shape": "transfer", "bytes": files * FILE_BYTES, "files": files, **interleave(contenders, settings.repetitions)}
