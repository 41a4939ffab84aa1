"""Two versions of towpath in turn, each with its own server: the effect of the changes since the earlier version.

A value is a rate: larger is better. Values of one round are measured within seconds of each other, so they are compared
by round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterator

import listing
import requests_job
import small_files
from contenders import Machine
from digests import make_known
from harness import Program, Server, contender, interleave, scratch
from large import same_file
from settings import Job, Settings
from warm_memory import WarmMemory

VERSIONS = ("before", "now")


@dataclasses.dataclass(frozen=True)
class Pair:
    """One version: its binary and its server."""

    machine: Machine
    server: Server


@contextlib.contextmanager
def serving(settings: Settings, roots: dict[str, pathlib.Path]) -> Iterator[dict[str, Pair]]:
    """Runs a server of each version over its root."""
    if settings.before is None:
        raise RuntimeError("no earlier binary to compare with: pass --before BINARY")
    machines = {"before": dataclasses.replace(settings.machine, towpath_binary=settings.before), "now": settings.machine}
    with contextlib.ExitStack() as stack:
        servers = {version: stack.enter_context(machines[version].serving({"towpath": roots[version]}))["towpath"] for version in VERSIONS}
        yield {version: Pair(machines[version], servers[version]) for version in VERSIONS}


def nothing(_version: str) -> None:
    """Prepares and checks nothing."""


def race(
    settings: Settings,
    pairs: dict[str, Pair],
    what: str,
    path: str,
    command: Callable[[Machine, str], Program],
    amount: float,
    unit: str,
    before: Callable[[str], None] = nothing,
    check: Callable[[str], None] = nothing,
) -> dict:
    """Runs `command` with the URL of `path` at the servers of both versions, over both protocols, in turn. Returns two
    rows for each protocol, with the rates of both versions by round: per second, and per processor second of client and
    server together, which other load on the machine affects less. `amount` is the work of one run, in `unit`; `before`
    and `check` get the version."""
    names = {scheme: f"{what} {scheme}" for scheme in ("root://", "http://")}
    contenders = []
    for version, pair in pairs.items():
        prepare, verify = functools.partial(before, version), functools.partial(check, version)
        for scheme, url in (("root://", pair.server.root(path)), ("http://", pair.server.http(path))):
            contenders.append(contender(f"{names[scheme]}, {version}", command(pair.machine, url), pair.server, prepare, verify))
    outcome = interleave(contenders, settings.repetitions)
    if outcome["left_out"]:
        raise RuntimeError(f"contenders failed: {outcome['left_out']}")
    rows = []
    for name in names.values():
        samples = {version: outcome["runs"][f"{name}, {version}"] for version in VERSIONS}
        rows.append({"what": name, "unit": f"{unit}/s", **{version: [amount / each["seconds"] for each in samples[version]] for version in VERSIONS}})
        cpu_s = {version: [each["client_cpu_s"] + each["server_cpu_s"] for each in samples[version]] for version in VERSIONS}
        rows.append({"what": name, "unit": f"{unit}/CPU s", **{version: [amount / each for each in cpu_s[version]] for version in VERSIONS}})
    return {"rows": rows}


def made_roots(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """Makes an empty root for the server of each version."""
    roots = {version: directory / version for version in VERSIONS}
    for root in roots.values():
        root.mkdir()
    return roots


def large_down(settings: Settings) -> dict:
    """(a) One file over both protocols, with stored digests."""
    source = settings.large_file(settings.memory)
    roots = dict.fromkeys(VERSIONS, source.parent)
    with scratch(str(settings.memory), "down") as directory, serving(settings, roots) as pairs, WarmMemory() as memory:
        make_known(settings.machine, pairs["now"].server, source.parent, [source.name])
        target = directory / "target.bin"

        def before(_version: str) -> None:
            target.unlink(missing_ok=True)
            memory.hold()

        def check(_version: str) -> None:
            same_file(source, target)

        def command(machine: Machine, url: str) -> Program:
            return machine.towpath("cp", "-q", "-f", url, target)

        return race(settings, pairs, "cp from", source.name, command, source.stat().st_size * 8 / 1e9, "Gbit", before, check)


def large_up(settings: Settings) -> dict:
    """(b) One file of half the size over both protocols."""
    source = settings.large_file(settings.memory, part=2)
    with scratch(str(settings.memory), "up") as directory, WarmMemory() as memory:
        roots = made_roots(directory)

        def before(_version: str) -> None:
            # Both, because the space is needed.
            for root in roots.values():
                (root / "up").unlink(missing_ok=True)
            memory.hold()

        def check(version: str) -> None:
            same_file(source, roots[version] / "up")

        def command(machine: Machine, url: str) -> Program:
            return machine.towpath("cp", "-q", "-f", source, url)

        with serving(settings, roots) as pairs:
            return race(settings, pairs, "cp to", "up", command, source.stat().st_size * 8 / 1e9, "Gbit", before, check)


def under_load(settings: Settings, root: pathlib.Path, load: requests_job.Load, cases: list[requests_job.Case]) -> dict:
    """Runs the load generator against both servers in turn."""
    rows = []
    with serving(settings, dict.fromkeys(VERSIONS, root)) as pairs:
        for case in cases:
            kind, clients, depth = case
            what = f"{kind}, {clients} × {depth}"
            per_second, per_cpu_second = ({"what": what, "unit": unit, "before": [], "now": []} for unit in ("requests/s", "requests/server CPU s"))
            for number in range(settings.repetitions + 1):
                for version in VERSIONS[:: 1 if number % 2 else -1]:
                    sample = requests_job.sample(settings.machine, pairs[version].server, load, case, settings.load_s)
                    # The first round is a warm-up.
                    if number > 0:
                        per_second[version].append(sample["requests"] / sample["seconds"])
                        per_cpu_second[version].append(sample["requests"] / sample["server_cpu_s"])
            rows += [per_second, per_cpu_second]
    return {"rows": rows}


def reads(settings: Settings) -> dict:
    """(c) Small reads and vector reads."""
    source = settings.large_file(settings.memory)
    return under_load(settings, source.parent, requests_job.Load(source.name, source.stat().st_size), requests_job.READ_CASES)


def stats(settings: Settings) -> dict:
    """(e) `stat` of random paths."""
    with scratch(str(settings.memory), "stat") as directory:
        listing.make_flat(directory / "tree", settings.entries)
        return under_load(settings, directory, requests_job.Load("tree", settings.entries), listing.STAT_CASES)


def small_down(settings: Settings) -> dict:
    """(d) A tree of small files."""
    with scratch(str(settings.memory), "small") as directory:
        source, target = directory / "source" / "tree", directory / "target"
        small_files.make_tree(source, settings.files)

        def before(_version: str) -> None:
            small_files.fresh(target)

        def check(_version: str) -> None:
            small_files.same_tree(source, target / "tree")

        def command(machine: Machine, url: str) -> Program:
            return machine.towpath("cp", "-q", "-r", url, target)

        with serving(settings, dict.fromkeys(VERSIONS, source.parent)) as pairs:
            make_known(settings.machine, pairs["now"].server, source.parent, [f"tree/{name}" for name in small_files.names(settings.files)])
            return race(settings, pairs, "cp -r from", "tree", command, settings.files, "files", before, check)


def small_up(settings: Settings) -> dict:
    """(d) Upload of the same tree."""
    with scratch(str(settings.memory), "small") as directory:
        source = directory / "source" / "tree"
        small_files.make_tree(source, settings.files)
        roots = made_roots(directory)

        def before(version: str) -> None:
            small_files.fresh(roots[version] / "up")

        def check(version: str) -> None:
            small_files.same_tree(source, roots[version] / "up" / "tree")

        def command(machine: Machine, url: str) -> Program:
            return machine.towpath("cp", "-q", "-r", source, url)

        with serving(settings, roots) as pairs:
            return race(settings, pairs, "cp -r to", "up", command, settings.files, "files", before, check)


def listing_flat(settings: Settings) -> dict:
    """(e) One directory of many entries."""
    with scratch(str(settings.memory), "listing") as directory:
        listing.make_flat(directory / "tree", settings.entries)
        with serving(settings, dict.fromkeys(VERSIONS, directory)) as pairs:
            return race(settings, pairs, "ls -l", "tree", lambda machine, url: machine.towpath("ls", "-l", url), settings.entries, "entries")


def job(run: Callable[[Settings], dict], minutes: float) -> Job:
    return Job(lambda settings: {"title": run.__doc__.rstrip("."), "before_commit": settings.before_commit, **run(settings)}, minutes)


JOBS = {
    "large-down": job(large_down, 3),
    "large-up": job(large_up, 2),
    "requests": job(reads, 3),
    "stat": job(stats, 1.5),
    "small-down": job(small_down, 2),
    "small-up": job(small_up, 2),
    "listing": job(listing_flat, 1),
}
