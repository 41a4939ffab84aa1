"""Job (e): stat and listings: one directory of many entries, a tree of many directories, and stat of single entries.

Listings and stats of many paths are single commands. The load generator also sends stats over several connections at
once.
"""

from __future__ import annotations

import pathlib

import requests_job
from harness import Contender, Server, contender, interleave, scratch
from settings import Settings

STATS = 1_000
"""Number of paths of one command of the stat job."""
STAT_CASES = [("stat", clients, depth) for clients in (1, 16) for depth in (1, 16)]


def make_flat(root: pathlib.Path, entries: int) -> None:
    root.mkdir(parents=True)
    for number in range(entries):
        (root / f"f{number:06}").touch()


def make_deep(root: pathlib.Path, directories: int) -> None:
    """Creates a tree with a fan-out of 100 and one file in each leaf."""
    for number in range(directories):
        leaf = root / f"d{number // 10_000:02}" / f"d{number // 100 % 100:02}" / f"d{number % 100:02}"
        leaf.mkdir(parents=True)
        (leaf / "f").touch()


def listings(settings: Settings, servers: dict[str, Server], recursive: bool) -> list[Contender]:
    machine = settings.machine
    how = ("ls", "-l", "-R") if recursive else ("ls", "-l")
    towpath = machine.towpath(*how)
    xrdfs6, xrdfs5 = machine.xrootd6("xrdfs"), machine.installed("xrdfs")
    rows = [
        ("towpath ls <- towpath", "towpath", towpath(servers["towpath"].root("tree"))),
        ("towpath ls <- xrootd6", "xrootd6", towpath(servers["xrootd6"].root("tree"))),
        ("xrdfs 6.2 ls <- xrootd6", "xrootd6", xrdfs6(servers["xrootd6"].address, *how, "/tree")),
        ("xrdfs 6.2 ls <- towpath", "towpath", xrdfs6(servers["towpath"].address, *how, "/tree")),
        ("xrdfs 5.5 ls <- xrootd5", "xrootd5", xrdfs5(servers["xrootd5"].address, *how, "/tree")),
    ]
    return [contender(name, program, servers[kind]) for name, kind, program in rows]


def list_job(settings: Settings, recursive: bool, part: int = 1) -> dict:
    """Lists a directory or tree of `settings.entries / part` entries: xrdfs 6.2 does not finish with 100,000
    directories."""
    entries = settings.entries // part
    with scratch(str(settings.memory), "listing") as directory:
        (make_deep if recursive else make_flat)(directory / "tree", entries)
        with settings.machine.serving(dict.fromkeys(("towpath", "xrootd5", "xrootd6"), directory)) as servers:
            contenders = listings(settings, servers, recursive)
            return {"shape": "seconds", "entries": entries, **interleave(contenders, settings.repetitions)}


def stat_command(settings: Settings) -> dict:
    """Runs one command with many paths."""
    machine = settings.machine
    with scratch(str(settings.memory), "stat") as directory:
        make_flat(directory / "tree", STATS)
        paths = [f"tree/f{number:06}" for number in range(STATS)]
        with machine.serving(dict.fromkeys(("towpath", "xrootd6"), directory)) as servers:
            rows = [(f"towpath stat <- {kind}", kind, machine.towpath("stat", *map(servers[kind].root, paths))) for kind in ("towpath", "xrootd6")]
            xrdfs = machine.xrootd6("xrdfs")
            rows += [
                (f"xrdfs 6.2 stat <- {kind}", kind, xrdfs(servers[kind].address, "stat", *(f"/{path}" for path in paths))) for kind in ("xrootd6", "towpath")
            ]
            contenders = [contender(name, program, servers[kind]) for name, kind, program in rows]
            return {"shape": "seconds", "entries": STATS, **interleave(contenders, settings.repetitions)}


def stat_load(settings: Settings) -> dict:
    """Sends stats of random entries of one directory with the load generator."""
    with scratch(str(settings.memory), "stat") as directory:
        make_flat(directory / "tree", settings.entries)
        return requests_job.run(settings, directory, requests_job.Load("tree", settings.entries), STAT_CASES)
