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
from harness import Contender, Server, contender, interleave, scratch
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


def race(contenders: dict[tuple[str, str], Contender], repetitions: int, amount: float, unit: str) -> dict:
    """Runs all contenders in turn. Returns two rows for each name, with the rates of both versions by round: per
    second, and per processor second of client and server together, which other load on the machine affects less.
    `amount` is the work of one run, in `unit`."""
    outcome = interleave(list(contenders.values()), repetitions)
    if outcome["left_out"]:
        raise RuntimeError(f"contenders failed: {outcome['left_out']}")
    samples = {key: outcome["runs"][each.name] for key, each in contenders.items()}
    rows = []
    for what in dict.fromkeys(what for what, _ in contenders):
        rows.append({"what": what, "unit": f"{unit}/s", **{version: [amount / each["seconds"] for each in samples[what, version]] for version in VERSIONS}})
        cpu_s = {version: [each["client_cpu_s"] + each["server_cpu_s"] for each in samples[what, version]] for version in VERSIONS}
        rows.append({"what": what, "unit": f"{unit}/CPU s", **{version: [amount / each for each in cpu_s[version]] for version in VERSIONS}})
    return {"rows": rows}


def both(settings: Settings) -> dict[str, pathlib.Path]:
    """Returns the large file's directory for each version."""
    return dict.fromkeys(VERSIONS, settings.large_file(settings.memory).parent)


def large_down(settings: Settings) -> dict:
    """(a) One file over both protocols, with stored digests."""
    source = settings.large_file(settings.memory)
    with scratch(str(settings.memory), "down") as directory, serving(settings, both(settings)) as pairs, WarmMemory() as memory:
        make_known(settings.machine, pairs["now"].server, source.parent, [source.name])
        target = directory / "target.bin"

        def before() -> None:
            target.unlink(missing_ok=True)
            memory.hold()

        check = functools.partial(same_file, source, target)
        contenders = {}
        for version, pair in pairs.items():
            for what, url in (("cp from root://", pair.server.root(source.name)), ("cp from http://", pair.server.http(source.name))):
                program = pair.machine.towpath("cp", "-q", "-f", url, target)
                contenders[what, version] = contender(f"{what}, {version}", program, pair.server, before, check)
        return race(contenders, settings.repetitions, source.stat().st_size * 8 / 1e9, "Gbit")


def large_up(settings: Settings) -> dict:
    """(b) One file of half the size over both protocols."""
    source = settings.large_file(settings.memory, part=2)
    with scratch(str(settings.memory), "up") as directory, WarmMemory() as memory:
        roots = {version: directory / version for version in VERSIONS}
        for root in roots.values():
            root.mkdir()

        def before() -> None:
            for root in roots.values():
                (root / "up").unlink(missing_ok=True)
            memory.hold()

        with serving(settings, roots) as pairs:
            contenders = {}
            for version, pair in pairs.items():
                check = functools.partial(same_file, source, roots[version] / "up")
                for what, url in (("cp to root://", pair.server.root("up")), ("cp to http://", pair.server.http("up"))):
                    program = pair.machine.towpath("cp", "-q", "-f", source, url)
                    contenders[what, version] = contender(f"{what}, {version}", program, pair.server, before, check)
            return race(contenders, settings.repetitions, source.stat().st_size * 8 / 1e9, "Gbit")


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
        with serving(settings, dict.fromkeys(VERSIONS, source.parent)) as pairs:
            make_known(settings.machine, pairs["now"].server, source.parent, [f"tree/{name}" for name in small_files.names(settings.files)])
            fresh, check = functools.partial(small_files.fresh, target), functools.partial(small_files.same_tree, source, target / "tree")
            contenders = {}
            for version, pair in pairs.items():
                for what, url in (("cp -r from root://", pair.server.root("tree")), ("cp -r from http://", pair.server.http("tree"))):
                    program = pair.machine.towpath("cp", "-q", "-r", url, target)
                    contenders[what, version] = contender(f"{what}, {version}", program, pair.server, fresh, check)
            return race(contenders, settings.repetitions, settings.files, "files")


def small_up(settings: Settings) -> dict:
    """(d) Upload of the same tree."""
    with scratch(str(settings.memory), "small") as directory:
        source = directory / "source" / "tree"
        small_files.make_tree(source, settings.files)
        roots = {version: directory / version for version in VERSIONS}
        for root in roots.values():
            root.mkdir()
        with serving(settings, roots) as pairs:
            contenders = {}
            for version, pair in pairs.items():
                landed = roots[version] / "up"
                fresh, check = functools.partial(small_files.fresh, landed), functools.partial(small_files.same_tree, source, landed / "tree")
                for what, url in (("cp -r to root://", pair.server.root("up")), ("cp -r to http://", pair.server.http("up"))):
                    program = pair.machine.towpath("cp", "-q", "-r", source, url)
                    contenders[what, version] = contender(f"{what}, {version}", program, pair.server, fresh, check)
            return race(contenders, settings.repetitions, settings.files, "files")


def listing_flat(settings: Settings) -> dict:
    """(e) One directory of many entries."""
    with scratch(str(settings.memory), "listing") as directory:
        listing.make_flat(directory / "tree", settings.entries)
        with serving(settings, dict.fromkeys(VERSIONS, directory)) as pairs:
            contenders = {}
            for version, pair in pairs.items():
                for what, url in (("ls -l root://", pair.server.root("tree")), ("ls -l http://", pair.server.http("tree"))):
                    contenders[what, version] = contender(f"{what}, {version}", pair.machine.towpath("ls", "-l", url), pair.server)
            return race(contenders, settings.repetitions, settings.entries, "entries")


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
