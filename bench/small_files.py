"""Job (d): a tree of many small files down and up with one command."""

from __future__ import annotations

import pathlib
import shutil

from contenders import Machine
from harness import Contender, Server, run_client

FILE_BYTES = 10_000
FILES_PER_DIRECTORY = 500


def make_tree(root: pathlib.Path, files: int) -> None:
    """`files` files of 10 kB, each with its own content."""
    for number in range(files):
        directory = root / f"d{number // FILES_PER_DIRECTORY:03}"
        if number % FILES_PER_DIRECTORY == 0:
            directory.mkdir(parents=True)
        (directory / f"f{number:05}").write_bytes(number.to_bytes(8, "little") * (FILE_BYTES // 8))


def same_tree(a: pathlib.Path, b: pathlib.Path) -> None:
    run_client(["diff", "-rq", str(a), str(b)], None)


def remove(path: pathlib.Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def downloads(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Contender]:
    """Each tool at its default, and at the parallelism at which it is best here."""
    name = source.name
    xrdcp6 = machine.program("xrdcp", True)
    root = {server: f"root://127.0.0.1:{servers[server].port}//{name}" for server in ("towpath", "xrootd5", "xrootd6")}
    http = {server: f"http://127.0.0.1:{servers[server].port}" for server in ("towpath", "nginx")}
    rclone = [machine.rclone, "copy", "--config", "/dev/null", "--transfers", "32", "--checkers", "32"]
    table = [
        ("towpath cp -r <- towpath", "towpath", [machine.towpath, "cp", "-q", "-r", root["towpath"], str(target)], None),
        ("towpath cp -r <- xrootd6", "xrootd6", [machine.towpath, "cp", "-q", "-r", root["xrootd6"], str(target)], None),
        ("xrdcp 6.2 -r <- xrootd6", "xrootd6", [xrdcp6, "-s", "-r", root["xrootd6"], str(target)], machine.xrootd6),
        ("xrdcp 6.2 -r --parallel 16 <- xrootd6", "xrootd6", [xrdcp6, "-s", "-r", "--parallel", "16", root["xrootd6"], str(target)], machine.xrootd6),
        ("rclone --transfers 32 <- nginx", "nginx", [*rclone, f":http,url='{http['nginx']}':{name}", str(target / name)], None),
        ("rclone --transfers 32 <- towpath", "towpath", [*rclone, f":http,url='{http['towpath']}':{name}", str(target / name)], None),
    ]

    def fresh() -> None:
        remove(target)
        target.mkdir()

    return [
        Contender(
            title,
            run=lambda command=command, server=servers[server], environment=environment: run_client(command, server, environment),
            before=fresh,
            check=lambda: same_tree(source, target / name),
        )
        for title, server, command, environment in table
    ]


def uploads(machine: Machine, servers: dict[str, Server], source: pathlib.Path, roots: dict[str, pathlib.Path]) -> list[Contender]:
    """The same tree the other way."""
    xrdcp6 = machine.program("xrdcp", True)
    rclone = [machine.rclone, "copy", "--config", "/dev/null", "--transfers", "32", "--checkers", "32"]
    url = {server: f"root://127.0.0.1:{servers[server].port}//up" for server in ("towpath", "xrootd6")}
    dav = f":webdav,url='http://127.0.0.1:{servers['towpath'].port}':up/{source.name}"
    table = [
        ("towpath cp -r -> towpath", "towpath", [machine.towpath, "cp", "-q", "-r", str(source), url["towpath"]], None),
        ("xrdcp 6.2 -r -> xrootd6", "xrootd6", [xrdcp6, "-s", "-r", str(source), url["xrootd6"]], machine.xrootd6),
        ("xrdcp 6.2 -r --parallel 16 -> xrootd6", "xrootd6", [xrdcp6, "-s", "-r", "--parallel", "16", str(source), url["xrootd6"]], machine.xrootd6),
        ("rclone --transfers 32 -> towpath", "towpath", [*rclone, str(source), dav], None),
    ]

    def fresh(landed: pathlib.Path) -> None:
        remove(landed)
        landed.mkdir()
        shutil.chown(landed, "daemon")

    return [
        Contender(
            title,
            run=lambda command=command, server=servers[server], environment=environment: run_client(command, server, environment),
            before=lambda landed=roots[server] / "up": fresh(landed),
            check=lambda landed=roots[server] / "up" / source.name: same_tree(source, landed),
        )
        for title, server, command, environment in table
    ]
