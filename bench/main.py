"""Runs the jobs, writes `results/<job>.json` (every sample) and `results/README.md` (medians, spreads, ratios)."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable

import large
import latency
import listing
import report
import requests_job
import small_files
from contenders import Machine
from harness import Contender, Sample, Server, interleave, run_client, scratch

RESULTS = pathlib.Path(__file__).parent / "results"
GIB = 1 << 30


@dataclasses.dataclass
class Settings:
    """What the command line asks."""

    machine: Machine
    generator: str
    repetitions: int
    quick: bool
    disk: str
    memory: str


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def four_servers(machine: Machine, root_of: Callable[[str], pathlib.Path]):
    """A server of each kind, each over its own directory."""
    roots = {name: root_of(name) for name in ("towpath", "xrootd5", "xrootd6", "nginx")}
    servers: dict[str, Server] = {}
    try:
        servers["towpath"] = machine.serve_towpath(roots["towpath"])
        servers["xrootd5"] = machine.serve_xrootd(roots["xrootd5"], version6=False)
        servers["xrootd6"] = machine.serve_xrootd(roots["xrootd6"], version6=True)
        servers["nginx"] = machine.serve_nginx(roots["nginx"])
        yield servers, roots
    finally:
        for server in servers.values():
            server.stop()


def raw(samples: dict[str, list[Sample]]) -> dict[str, list[dict]]:
    """Samples as JSON has them."""
    return {name: [dataclasses.asdict(sample) for sample in taken] for name, taken in samples.items()}


def root_of(directory: pathlib.Path, source: pathlib.Path, upward: bool, server: str) -> pathlib.Path:
    """What a server exports: the source's directory for all that are read from, one of its own for each that is written to."""
    if not upward:
        return source.parent
    root = directory / server
    root.mkdir()
    return root


def large_file(settings: Settings, parent: str, upward: bool) -> dict:
    size = GIB if settings.quick else 4 * GIB
    with scratch(parent, "large") as directory:
        source = directory / "source" / "large.bin"
        source.parent.mkdir()
        large.write_pattern(source, size)
        with four_servers(settings.machine, lambda name: root_of(directory, source, upward, name)) as (servers, roots):
            if upward:
                contenders = large.uploads(settings.machine, servers, source, roots)
            else:
                contenders = large.downloads(settings.machine, servers, source, directory / "target.bin")
            return {"shape": "transfer", "bytes": size, "runs": raw(interleave(contenders, settings.repetitions, say))}


def many_files(settings: Settings, parent: str, upward: bool) -> dict:
    files = 1_000 if settings.quick else 10_000
    with scratch(parent, "small") as directory:
        source = directory / "source" / "tree"
        source.mkdir(parents=True)
        small_files.make_tree(source, files)
        with four_servers(settings.machine, lambda name: root_of(directory, source, upward, name)) as (servers, roots):
            if upward:
                contenders = small_files.uploads(settings.machine, servers, source, roots)
            else:
                contenders = small_files.downloads(settings.machine, servers, source, directory / "target")
            runs = raw(interleave(contenders, settings.repetitions, say))
            return {"shape": "transfer", "bytes": files * small_files.FILE_BYTES, "runs": runs}


def request_rates(settings: Settings) -> dict:
    with scratch(settings.memory, "requests") as directory:
        source = directory / "large.bin"
        large.write_pattern(source, requests_job.FILE_BYTES)
        seconds, repetitions = (1.0, 2) if settings.quick else (3.0, settings.repetitions)
        return {"shape": "requests", "rows": requests_job.run(settings.machine, settings.generator, source, repetitions, seconds)}


def listings(settings: Settings, recursive: bool) -> dict:
    count = 10_000 if settings.quick else 100_000
    with scratch(settings.memory, "listing") as directory:
        (listing.make_deep if recursive else listing.make_flat)(directory / "tree", count)
        with four_servers(settings.machine, lambda _name: directory) as (servers, _roots):
            contenders = listing.contenders(settings.machine, servers, "tree", recursive)
            return {"shape": "seconds", "runs": raw(interleave(contenders, settings.repetitions, say))}


def first_byte(settings: Settings) -> dict:
    """One small file over a path of 100 ms, from the command's start to its end."""
    with scratch(settings.memory, "latency") as directory:
        (directory / "small.bin").write_bytes(bytes(1000))
        with four_servers(settings.machine, lambda _name: directory) as (servers, _roots):
            proxies = {name: latency.DelayingProxy(server.port) for name, server in servers.items()}
            root = {name: f"root://127.0.0.1:{proxy.port}//small.bin" for name, proxy in proxies.items()}
            xrdcp6, towpath = settings.machine.program("xrdcp", True), settings.machine.towpath
            commands = [
                ("towpath cat <- towpath", [towpath, "cat", root["towpath"]], None),
                ("towpath cat <- xrootd6", [towpath, "cat", root["xrootd6"]], None),
                ("xrdcp 6.2 <- xrootd6", [xrdcp6, "-s", root["xrootd6"], "-"], settings.machine.xrootd6),
                ("xrdcp 6.2 <- towpath", [xrdcp6, "-s", root["towpath"], "-"], settings.machine.xrootd6),
                ("curl <- nginx", [settings.machine.program("curl"), "-sf", f"http://127.0.0.1:{proxies['nginx'].port}/small.bin"], None),
            ]
            contenders = [
                Contender(name, run=lambda command=command, environment=environment: run_client(command, None, environment))
                for name, command, environment in commands
            ]
            runs = raw(interleave(contenders, settings.repetitions, say))
            for proxy in proxies.values():
                proxy.stop()
            return {"shape": "seconds", "round_trip_s": latency.ROUND_TRIP_S, "runs": runs}


JOBS: dict[str, Callable[[Settings], dict]] = {
    "large-down-memory": lambda settings: large_file(settings, settings.memory, upward=False),
    "large-up-memory": lambda settings: large_file(settings, settings.memory, upward=True),
    "large-down-disk": lambda settings: large_file(settings, settings.disk, upward=False),
    "requests": request_rates,
    "small-down-memory": lambda settings: many_files(settings, settings.memory, upward=False),
    "small-up-memory": lambda settings: many_files(settings, settings.memory, upward=True),
    "listing-flat": lambda settings: listings(settings, recursive=False),
    "listing-deep": lambda settings: listings(settings, recursive=True),
    "first-byte": first_byte,
}


def circumstances(machine: Machine) -> dict[str, object]:
    """What a reader needs to judge the figures."""
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    version = subprocess.run([machine.towpath, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processor": model,
        "cores": os.cpu_count(),
        "towpath": version,
        "load_before": os.getloadavg()[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--towpath", required=True)
    parser.add_argument("--peers", required=True, type=pathlib.Path)
    parser.add_argument("--generator", required=True, help="the program xroot_load")
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="smaller data: to try the benchmark itself")
    parser.add_argument("--memory", default="/dev/shm")
    parser.add_argument("--disk", default="/var/tmp")
    options = parser.parse_args()
    unknown = set(options.jobs.split(",")) - set(JOBS)
    if unknown:
        parser.error(f"no job {', '.join(sorted(unknown))}; there are {', '.join(JOBS)}")
    with scratch("/tmp", "work") as work:
        work.chmod(0o755)
        machine = Machine(shutil.which(options.towpath) or options.towpath, options.peers, work)
        settings = Settings(machine, options.generator, options.repetitions, options.quick, options.disk, options.memory)
        RESULTS.mkdir(exist_ok=True)
        for job in options.jobs.split(","):
            say(f"== {job}")
            before = circumstances(machine)
            record = {"job": job, "quick": options.quick, "circumstances": before, **JOBS[job](settings)}
            (RESULTS / f"{job}.json").write_text(json.dumps(record, indent=1) + "\n")
            say(report.table(record))
    (RESULTS / "README.md").write_text(report.document(RESULTS))


if __name__ == "__main__":
    main()
