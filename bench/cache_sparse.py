"""One vector read of scattered ranges: two branches of a large tree in 589 contiguous runs of small baskets.

The ranges are drawn so that their number, their total size, the size of the file and the gaps between them equal those
of a real file, a tree of 152 branches with baskets of 8 kB before compression.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import random
import zlib
from collections.abc import Sequence

from caches import TOWPATH, TOWPATH_TOWPATH, XCACHE_DEFAULT, XCACHE_SMALL, CacheKind
from cache_site import Site, reader, settle_time
from contenders import Machine
from harness import Contender, Sample, Server, say, scratch
from settings import MIB, Settings
from wan_cells import Scale, cells
from wan_lab import Emulation, Lab, NetworkPath

FILE_BYTES = 279_062_528
RUNS = 589
BASKETS = 4772
ASKED_BYTES = 6_523_324
"""Sum of all baskets, 1,367 bytes on average."""
LEAST_GAP, MOST_GAP = 270_000, 600_000
FILES = ("first.bin", "second.bin")
KINDS = [TOWPATH, TOWPATH_TOWPATH, *XCACHE_SMALL.values(), *XCACHE_DEFAULT.values()]
PATHS = [NetworkPath(100)]
OPEN_S = 2.0
"""Time during which the file stays open after a read, as in an analysis; caches that prefetch continue meanwhile."""


def baskets_per_run(draw: random.Random) -> list[int]:
    """Divides the baskets over the runs, at least one in each."""
    counts = [1] * RUNS
    for _ in range(BASKETS - RUNS):
        counts[draw.randrange(RUNS)] += 1
    return counts


def scaled(parts: list[float], total: int) -> list[int]:
    """Returns whole numbers in proportion to `parts`, with the given sum."""
    edges = [round(edge * total / sum(parts)) for edge in itertools.accumulate(parts, initial=0.0)]
    return [above - below for below, above in itertools.pairwise(edges)]


def ranges() -> list[tuple[int, int]]:
    """Returns offset and length of each run, in the order of the file."""
    draw = random.Random("sparse")
    lengths = scaled([sum(draw.uniform(700, 2034) for _ in range(count)) for count in baskets_per_run(draw)], ASKED_BYTES)
    gaps = scaled([draw.uniform(LEAST_GAP, MOST_GAP) for _ in range(RUNS + 1)], FILE_BYTES - ASKED_BYTES)
    found, at = [], 0
    for gap, length in zip(gaps, lengths, strict=False):
        found.append((at + gap, length))
        at += gap + length
    return found


def make_files(root: pathlib.Path) -> dict[str, int]:
    """Creates the files. Returns the CRC-32 of the ranges of each."""
    sums = {}
    for name in FILES:
        draw = random.Random(name)
        data = b"".join(draw.randbytes(min(MIB, FILE_BYTES - start)) for start in range(0, FILE_BYTES, MIB))
        (root / name).write_bytes(data)
        settle_time(root / name)
        sums[name] = zlib.crc32(b"".join(data[offset : offset + length] for offset, length in ranges()))
    return sums


@dataclasses.dataclass
class Phase:
    """One vector read. Bytes are counted until nothing more arrives from the origin."""

    seconds: float
    open_s: float
    origin_bytes: int
    """TCP payload received at the site, bytes sent twice counted twice."""
    emulation: Emulation


@dataclasses.dataclass
class SparseSample(Sample):
    """`seconds` is the time of the first read."""

    phases: dict[str, Phase]
    sent_bytes: int | None = None
    """Bytes sent by the origin for all reads, by its own counters."""


@dataclasses.dataclass
class Reads:
    """Vector reads at a site."""

    site: Site
    ranges_file: pathlib.Path
    sums: dict[str, int]

    def phase(self, server: Server, name: str) -> Phase:
        """Reads the ranges of a file from a server, and compares them."""
        over = self.site.over
        before = over.totals()
        found = self.site.run(reader("vector", server.address, f"/{name}", self.ranges_file, OPEN_S))
        if found["crc32"] != self.sums[name]:
            raise RuntimeError(f"wrong bytes of {name}")
        self.site.wait_until_quiet()
        emulation = over.since(before)
        return Phase(found["seconds"], found["open_s"], emulation.received_payload, emulation)

    def sample(self, server: Server, plan: Sequence[tuple[str, str]], title: str) -> SparseSample:
        """Runs the planned reads in turn: pairs of a phase and a file."""
        before = server.cpu_s()
        self.site.over.settle()
        phases = {phase: self.phase(server, name) for phase, name in plan}
        words = (f"{phase} {found.seconds:.3f} s {found.origin_bytes / 1e6:.2f} MB" for phase, found in phases.items())
        say(f"   {', '.join(words)}: {title}")
        return SparseSample(phases["cold"].seconds, 0.0, server.cpu_s() - before, phases)

    def counted(self, contender: Contender, origin: str) -> Contender:
        """Adds the bytes that the origin has sent. XRootD counts those of a connection when it ends."""

        def run() -> Sample:
            before = self.site.sent_bytes(origin)
            sample = contender.run()
            if before is not None:
                sample.sent_bytes = self.site.sent_bytes(origin) - before
            return sample

        return dataclasses.replace(contender, run=run)

    def direct(self, origin: str) -> Contender:
        name = f"direct <- {origin}"
        return self.counted(Contender(name, lambda: self.sample(self.site.origins[origin], [("cold", FILES[0])], name)), origin)

    def through(self, kind: CacheKind) -> Contender:
        plan = [("cold", FILES[0]), ("warm", FILES[0]), ("running", FILES[1])]
        return self.counted(self.site.through(kind.name, kind, lambda cache: self.sample(cache, plan, kind.name)), kind.origin)


def sparse(settings: Settings) -> dict:
    """Reads the ranges from the origin, and through each cache: from a new cache, again, and of another file."""
    scale = Scale(settings.repetitions or (1 if settings.quick else 7), 60)
    with scratch(str(settings.memory), "sparse") as directory:
        root, ranges_file = directory / "source", directory / "ranges.json"
        root.mkdir()
        sums = make_files(root)
        ranges_file.write_text(json.dumps(ranges()))

        def contenders_at(over: Lab, machine: Machine, servers: dict[str, Server]) -> list[Contender]:
            reads = Reads(Site.at(over, machine, servers, scale, settings.disk), ranges_file, sums)
            return [*map(reads.direct, servers), *map(reads.through, KINDS)]

        found = cells(settings, PATHS, dict.fromkeys(("xrootd5", "towpath"), root), scale.repetitions, contenders_at)
    return {"shape": "sparse", "bytes": ASKED_BYTES, "ranges": RUNS, "file_bytes": FILE_BYTES, "cells": found}
