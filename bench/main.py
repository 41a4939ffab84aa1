"""Runs the jobs of a suite. After each job, writes `<job>.json` (all samples) and `README.md` (medians, spreads,
ratios)."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import alto_jobs
import alto_report
import analysis_jobs
import analysis_report
import cache_jobs
import cache_report
import fuzz_jobs
import fuzz_report
import large
import latency
import listing
import report
import requests_job
import sched_jobs
import sched_report
import small_files
import starvation_jobs
import starvation_report
import versions_jobs
import versions_report
import wan_jobs
import wan_report
from circumstances import circumstances
from contenders import Authority, Machine
from harness import say, scratch
from settings import GIB, Job, Settings
from wan_cells import merged
from wan_lab import all_congestion_controls

RESULTS = pathlib.Path(__file__).parent / "results"
REPETITIONS = 7
"""Default over loopback. Jobs over emulated paths have their own numbers."""
LOOPBACK_JOBS = {
    "large-down-memory": Job(lambda settings: large.down(settings, settings.memory), 14),
    "large-up-memory": Job(lambda settings: large.up(settings, settings.memory), 5),
    "large-down-tls": Job(lambda settings: large.down(settings, settings.memory, tls=True), 3.5),
    "large-up-tls": Job(lambda settings: large.up(settings, settings.memory, tls=True), 2.5),
    "large-down-disk": Job(lambda settings: large.down(settings, settings.disk), 3),
    "large-up-disk": Job(lambda settings: large.up(settings, settings.disk), 3),
    "requests": Job(requests_job.reads, 4.5),
    "memory": Job(requests_job.busy_memory, 2),
    "small-down-memory": Job(lambda settings: small_files.down(settings, settings.memory), 3),
    "small-up-memory": Job(lambda settings: small_files.up(settings, settings.memory), 3),
    "small-down-disk": Job(lambda settings: small_files.down(settings, settings.disk), 2),
    "small-up-disk": Job(lambda settings: small_files.up(settings, settings.disk), 2),
    "listing-flat": Job(lambda settings: listing.list_job(settings, recursive=False), 1),
    "listing-deep": Job(lambda settings: listing.list_job(settings, recursive=True), 4),
    "listing-deep-fifth": Job(lambda settings: listing.list_job(settings, recursive=True, part=5), 1.5),
    "stat-command": Job(listing.stat_command, 0.5),
    "stat-load": Job(listing.stat_load, 2),
    "first-byte": Job(latency.first_byte, 1),
}


@dataclasses.dataclass(frozen=True)
class Suite:
    """Jobs whose results are on one page."""

    jobs: dict[str, Job]
    document: Callable[[pathlib.Path], str]
    table: Callable[[dict], str]
    results: pathlib.Path


SUITES = {
    "loopback": Suite(LOOPBACK_JOBS, report.document, report.table, RESULTS),
    "wan": Suite(wan_jobs.JOBS, wan_report.document, wan_report.table, RESULTS / "wan"),
    "alto": Suite(alto_jobs.JOBS, alto_report.document, alto_report.table, RESULTS / "alto"),
    "starvation": Suite(starvation_jobs.JOBS, starvation_report.document, starvation_report.table, RESULTS / "starvation"),
    "versions": Suite(versions_jobs.JOBS, versions_report.document, versions_report.table, RESULTS / "versions"),
    "cache": Suite(cache_jobs.JOBS, cache_report.document, cache_report.table, RESULTS / "cache"),
    "analysis": Suite(analysis_jobs.JOBS, analysis_report.document, analysis_report.table, RESULTS / "analysis"),
    "sched": Suite(sched_jobs.JOBS, sched_report.document, sched_report.table, RESULTS / "sched"),
    "fuzz": Suite(fuzz_jobs.JOBS, fuzz_report.document, fuzz_report.table, RESULTS / "fuzz"),
}


def chosen(jobs: dict[str, Job], patterns: str | None) -> list[str]:
    """Returns the jobs whose names start with one of the patterns, in their order; all jobs without patterns."""
    words = (patterns or "").split(",")
    unknown = [word for word in words if not any(name.startswith(word) for name in jobs)]
    if unknown:
        sys.exit(f"no such job: {', '.join(unknown)}; the jobs are {', '.join(jobs)}")
    return [name for name in jobs if name.startswith(tuple(words))]


def size(text: str) -> int:
    """Parses a number of bytes such as `4GiB` or `512MiB`."""
    match = re.fullmatch(r"(\d+)(KiB|MiB|GiB)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"invalid size {text!r}: write a number with unit, such as 512MiB or 4GiB")
    return int(match[1]) << {None: 0, "KiB": 10, "MiB": 20, "GiB": 30}[match[2]]


def numbers(text: str) -> frozenset[float]:
    """Parses numbers separated by commas."""
    return frozenset(map(float, text.split(",")))


def arguments() -> argparse.Namespace:
    lists = (f"Jobs of {name}: {', '.join(suite.jobs)}." for name, suite in SUITES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=" ".join(lists))
    parser.add_argument("--towpath", required=True, help="the towpath binary; the test kit's examples are in `examples` beside it")
    parser.add_argument("--peers", required=True, type=pathlib.Path, help="directory of the peers that bench/peers built")
    parser.add_argument("--suite", choices=SUITES, default="loopback", help="transfers over loopback, transfers over emulated paths (needs root), the ALTO server, a server under attack, caches (needs root), reads of a few columns (needs root), the scheduler's simulator, comparison with an earlier version, or fuzzed requests [loopback]")
    parser.add_argument("--jobs", help="names or prefixes of names, separated by commas: large-down,listing")
    parser.add_argument("--before", help="binary of an earlier version, for --suite versions")
    parser.add_argument("--before-commit", default="an unnamed build", help="commit from which that binary was built")
    parser.add_argument("--paths", type=numbers, help="for --suite wan, cache and analysis: only paths with these round trips in ms, or shares of loss; results of other paths are kept: 0,10,1e-4")
    parser.add_argument("--repetitions", type=int, help=f"samples per contender [{REPETITIONS}; in the suite wan the default of each job]")
    parser.add_argument("--quick", action="store_true", help="small data, to test the benchmark itself; explicit sizes such as --size take precedence")
    parser.add_argument("--size", type=size, help="size of the large file; loopback jobs use half of it for uploads, a quarter over TLS and on disk [4GiB]")
    parser.add_argument("--files", type=int, help="number of small files; loopback jobs on disk use half of it [10000]")
    parser.add_argument("--entries", type=int, help="number of listed entries, at most 1000000 [100000]")
    parser.add_argument("--seconds", type=float, help="duration of one sample of the load generator [1]")
    parser.add_argument("--memory", default="/dev/shm", help="directory on a tmpfs with space for three large files [/dev/shm]")
    parser.add_argument("--disk", default="/var/tmp", help="directory on a disk [/var/tmp]")
    parser.add_argument("--results", type=pathlib.Path, help="directory of the results [bench/results, or the subdirectory of the suite]")
    return parser.parse_args()


@contextlib.contextmanager
def prepared(options: argparse.Namespace) -> Iterator[Settings]:
    """Yields the settings, with scratch space that is removed afterwards."""
    quick, loopback = options.quick, options.suite in ("loopback", "versions")
    with scratch("/tmp", "work") as work, scratch(options.memory, "memory") as memory, scratch(options.disk, "disk") as disk:
        machine = Machine(shutil.which(options.towpath) or options.towpath, options.peers, work, Authority(work / "authority"))
        yield Settings(
            machine,
            options.repetitions or (REPETITIONS if loopback else None),
            quick,
            memory,
            disk,
            large_bytes=options.size or ((GIB // 2 if quick else 4 * GIB) if loopback else None),
            files=options.files or ((1_000 if quick else 10_000) if loopback else None),
            entries=options.entries or (5_000 if quick else 100_000),
            load_s=options.seconds or (0.5 if quick else 1.0),
            before=options.before,
            before_commit=options.before_commit,
            paths=options.paths,
        )


def run_job(suite: Suite, name: str, settings: Settings, results: pathlib.Path) -> None:
    """Runs one job and writes its results immediately, so that an interrupted run keeps them."""
    say(f"== {name}")
    before = circumstances(settings.machine)
    start = time.monotonic()
    outcome = suite.jobs[name].run(settings)
    took_s = round(time.monotonic() - start)
    record = {"job": name, "quick": settings.quick, "took_s": took_s, "circumstances": before, **outcome}
    path = results / f"{name}.json"
    if settings.paths and "cells" in record and path.exists():
        record = merged(json.loads(path.read_text()), record)
    path.write_text(json.dumps(record, indent=1) + "\n")
    (results / "README.md").write_text(suite.document(results))
    say(f"{suite.table(record)}\n   took {took_s} s")


def main() -> None:
    options = arguments()
    # Stop the servers and remove the scratch space when the run is terminated.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    suite = SUITES[options.suite]
    results = options.results or suite.results
    results.mkdir(parents=True, exist_ok=True)
    jobs = chosen(suite.jobs, options.jobs)
    minutes = sum(suite.jobs[name].minutes for name in jobs)
    say(f"{len(jobs)} jobs; " + ("a quick run" if options.quick else f"about {minutes:.0f} minutes at full size with all repetitions"))
    failed = []
    with prepared(options) as settings, all_congestion_controls() if options.suite in ("wan", "cache", "analysis") else contextlib.nullcontext():
        for name in jobs:
            try:
                run_job(suite, name, settings, results)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                say(f"{name} failed: {error}")
                failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
