"""Job (e): stat and listings: one directory of many entries, and a tree of many directories."""

from __future__ import annotations

import pathlib

from contenders import Machine
from harness import Contender, Server, run_client


def make_flat(root: pathlib.Path, entries: int) -> None:
    root.mkdir(parents=True)
    for number in range(entries):
        (root / f"f{number:06}").touch()


def make_deep(root: pathlib.Path, directories: int) -> None:
    """A tree with a fan-out of 100 and one file in each leaf."""
    for number in range(directories):
        leaf = root / f"d{number // 10_000:02}" / f"d{number // 100 % 100:02}" / f"d{number % 100:02}"
        leaf.mkdir(parents=True)
        (leaf / "f").touch()


def contenders(machine: Machine, servers: dict[str, Server], directory: str, recursive: bool) -> list[Contender]:
    long = ["ls", "-l", "-R"] if recursive else ["ls", "-l"]
    xrdfs6 = machine.program("xrdfs", True)
    root = {name: f"root://127.0.0.1:{servers[name].port}" for name in ("towpath", "xrootd6", "xrootd5")}
    table = [
        ("towpath ls <- towpath", "towpath", [machine.towpath, *long, f"{root['towpath']}//{directory}"], None),
        ("towpath ls <- xrootd6", "xrootd6", [machine.towpath, *long, f"{root['xrootd6']}//{directory}"], None),
        ("xrdfs 6.2 ls <- xrootd6", "xrootd6", [xrdfs6, root["xrootd6"], *long, f"/{directory}"], machine.xrootd6),
        ("xrdfs 6.2 ls <- towpath", "towpath", [xrdfs6, root["towpath"], *long, f"/{directory}"], machine.xrootd6),
        ("xrdfs 5.5 ls <- xrootd5", "xrootd5", [machine.program("xrdfs"), root["xrootd5"], *long, f"/{directory}"], None),
    ]
    return [
        Contender(title, run=lambda command=command, server=servers[server], environment=environment: run_client(command, server, environment))
        for title, server, command, environment in table
    ]
