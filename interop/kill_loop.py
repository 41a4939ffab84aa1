"""Kills a site cache under load again and again, and compares every byte that its readers received.

Each round adds files to the origin, starts the cache on the same directory, reads random ranges of old and new files
with several clients, and kills the cache (`SIGKILL`) at a random moment. The last start reads all files completely.
Used by test_cache.py and bench/cache_kill.py.
"""

import dataclasses
import http.client
import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import numpy

from servers import HOST, Server, start_cache, start_towpath

FILE_BYTES = 3_000_001
FILES_PER_ROUND = 3
READERS = 6
MAX_RANGE_BYTES = 300_000
MIN_LOAD_S, MAX_LOAD_S = 0.05, 1.2
TIMEOUT_S = 30
OLD_S = 1_500_000_000


def pattern(salt: int, start: int, length: int) -> bytes:
    """Returns bytes of the file `salt`: a function of their offset, so that a misplaced byte is detected."""
    first = start // 8
    words = numpy.arange(first, (start + length) // 8 + 1, dtype="<u8") + numpy.uint64(salt << 40)
    words = (words ^ (words >> numpy.uint64(7))) * numpy.uint64(0x9E3779B97F4A7C15)
    return words.tobytes()[start - first * 8 : start - first * 8 + length]


@dataclasses.dataclass
class Round:
    """The outcome of one round."""

    first_byte_s: float
    """From the start of the program to the first byte of a response."""
    reads: int = 0
    """Complete reads."""
    bytes: int = 0
    """Bytes that were received and compared, also those of incomplete reads."""
    interrupted: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)


class KillLoop:
    """Runs the rounds in a directory. `config` are settings of the cache."""

    def __init__(self, binary: Path, directory: Path, seed: int, scheme: str = "root", config: str = ""):
        self.binary, self.directory, self.seed, self.scheme, self.config = binary, directory, seed, scheme, config
        self.random = random.Random(seed)
        self.files = 0
        self.rounds: list[Round] = []
        self.fetched = 0
        """Bytes that the origin has sent."""

    def run(self, kills: int) -> dict:
        """Runs rounds, and returns a report."""
        print(f"kill loop: seed {self.seed}, {kills} rounds, origin {self.scheme}://")
        origin = start_towpath(self.binary, self.directory / "origin", writable=False)
        try:
            for _ in range(kills):
                self._round(origin, is_last=False)
            self._round(origin, is_last=True)
            self.fetched = origin.sent_bytes("xrootd" if self.scheme == "root" else "http")
        finally:
            origin.stop()
        return self._report(kills)

    def _report(self, kills: int) -> dict:
        source_bytes = self.files * FILE_BYTES
        starts = sorted(each.first_byte_s for each in self.rounds)
        return {
            "seed": self.seed,
            "origin": self.scheme,
            "kills": kills,
            "files": self.files,
            "source_bytes": source_bytes,
            "reads_compared": sum(each.reads for each in self.rounds),
            "bytes_compared": sum(each.bytes for each in self.rounds),
            "reads_interrupted": sum(each.interrupted for each in self.rounds),
            "wrong": [problem for each in self.rounds for problem in each.wrong],
            "fetched_bytes": self.fetched,
            "fetched_again_bytes": self.fetched - source_bytes,
            "fetched_again_share": round((self.fetched - source_bytes) / source_bytes, 5),
            "first_byte_s": {"median": starts[len(starts) // 2], "max": starts[-1]},
            "rounds": [{"first_byte_s": each.first_byte_s, "reads": each.reads, "bytes": each.bytes, "interrupted": each.interrupted,
                        "wrong": len(each.wrong)} for each in self.rounds],
        }

    def _round(self, origin: Server, is_last: bool) -> None:
        self._add_files(origin.root)
        began = time.monotonic()
        url = f"{self.scheme}://{HOST}:{origin.port}/{'/' if self.scheme == 'root' else ''}"
        cache = start_cache(self.binary, url, self.directory / "site", config=self.config)
        try:
            done = Round(0)
            self.rounds.append(done)
            self._read_range(cache, random.Random(0), done, (0, 0, 1))
            done.first_byte_s = round(time.monotonic() - began, 4)
            if is_last:
                for file in range(self.files):
                    self._read_range(cache, random.Random(0), done, (file, 0, FILE_BYTES))
            else:
                self._load(cache, done)
        finally:
            cache.process.kill()
            cache.process.wait()
            cache.process.stdout.close()

    def _add_files(self, root: Path) -> None:
        for file in range(self.files, self.files + FILES_PER_ROUND):
            (root / f"f{file}").write_bytes(pattern(file, 0, FILE_BYTES))
            # The cache does not store a file that has just changed, if its time has whole seconds, as in XRootD's protocol.
            os.utime(root / f"f{file}", (OLD_S, OLD_S))
        self.files += FILES_PER_ROUND

    def _load(self, cache: Server, done: Round) -> None:
        """Reads with several clients until the cache is killed at a random moment."""
        stop, lock = threading.Event(), threading.Lock()
        outcomes = []

        def repeat(read, seed: int) -> None:
            chance, own = random.Random(seed), Round(0)
            while not stop.is_set():
                read(cache, chance, own)
            with lock:
                outcomes.append(own)

        reads = [self._read_range] * READERS + [self._read_by_xrdcp, self._read_by_curl]
        threads = [threading.Thread(target=repeat, args=(read, self.random.getrandbits(32))) for read in reads]
        for thread in threads:
            thread.start()
        time.sleep(self.random.uniform(MIN_LOAD_S, MAX_LOAD_S))
        cache.process.kill()
        stop.set()
        for thread in threads:
            thread.join()
        for own in outcomes:
            done.reads += own.reads
            done.bytes += own.bytes
            done.interrupted += own.interrupted
            done.wrong += own.wrong

    def _file(self, chance: random.Random) -> int:
        """Returns a random file; every second time a new one."""
        return chance.randrange(max(0, self.files - FILES_PER_ROUND) if chance.random() < 0.5 else 0, self.files)

    def _read_range(self, cache: Server, chance: random.Random, done: Round, part: tuple[int, int, int] | None = None) -> None:
        """Reads a range of a random file, or `part`, over a connection of its own, and compares it."""
        if part is None:
            length = int(MAX_RANGE_BYTES ** chance.random())
            part = self._file(chance), chance.randrange(FILE_BYTES - length), length
        file, start, length = part
        connection = http.client.HTTPConnection(HOST, cache.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", f"/f{file}", headers={"Range": f"bytes={start}-{start + length - 1}"})
            response = connection.getresponse()
            if response.status != 206:
                # The cache is killed, its origin is not: no response is an error.
                done.wrong.append(f"status {response.status} for {part}: {response.read()[:200]!r}")
                return
            try:
                got, is_complete = response.read(), True
            except http.client.IncompleteRead as partial:
                got, is_complete = partial.partial, False
            self._compare(part, got, is_complete, done)
        except (OSError, http.client.HTTPException):
            done.interrupted += 1
            if cache.process.poll() is not None:
                time.sleep(0.01)
        finally:
            connection.close()

    def _compare(self, part: tuple[int, int, int], got: bytes, is_complete: bool, done: Round) -> None:
        file, start, length = part
        done.bytes += len(got)
        if is_complete:
            done.reads += 1
        else:
            done.interrupted += 1
        if is_complete and len(got) != length or got != pattern(file, start, len(got)):
            done.wrong.append(f"{len(got)} bytes of {part} differ (seed {self.seed}, round {len(self.rounds)})")

    def _read_by_xrdcp(self, cache: Server, chance: random.Random, done: Round) -> None:
        file = self._file(chance)
        self._read_by_command(["xrdcp", "-s", f"root://{HOST}:{cache.port}//f{file}", "-"], (file, 0, FILE_BYTES), done)

    def _read_by_curl(self, cache: Server, chance: random.Random, done: Round) -> None:
        file, start = self._file(chance), chance.randrange(FILE_BYTES - MAX_RANGE_BYTES)
        length = chance.randrange(1, MAX_RANGE_BYTES)
        command = ["curl", "-sS", "--fail", "-r", f"{start}-{start + length - 1}", f"http://{HOST}:{cache.port}/f{file}"]
        self._read_by_command(command, (file, start, length), done)

    def _read_by_command(self, command: list[str], part: tuple[int, int, int], done: Round) -> None:
        """Runs a command that prints a part of a file. Its output counts only if it succeeds."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.directory), "XRD_CONNECTIONRETRY": "1", "XRD_STREAMERRORWINDOW": "0",
                       "XRD_REQUESTTIMEOUT": "5", "XRD_CONNECTIONWINDOW": "1"}
        if shutil.which(command[0]) is None:
            time.sleep(0.1)
            return
        ended = subprocess.run(command, capture_output=True, env=environment, timeout=TIMEOUT_S, check=False)
        if ended.returncode == 0:
            self._compare(part, ended.stdout, True, done)
        else:
            done.interrupted += 1
