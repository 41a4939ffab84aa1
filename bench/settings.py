"""Settings of the command line, and the data that jobs share: created once per run, before the first job that needs
them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from contenders import Machine

MIB, GIB = 1 << 20, 1 << 30
PAGE_BYTES = 4096


def write_pattern(path: pathlib.Path, size: int, first: int = 0) -> None:
    """Writes a file in which every page of 4 KiB starts with `first` plus its offset, so that a misplaced page is
    detected."""
    rest = bytes(range(256))[8:] + bytes(range(256)) * 15
    with path.open("wb") as file:
        for block in range(0, size, 1 << 20):
            pages = range(block, min(block + (1 << 20), size), PAGE_BYTES)
            file.write(b"".join((first + offset).to_bytes(8, "little") + rest for offset in pages))
        file.truncate(size)


@dataclasses.dataclass
class Settings:
    """Locations, repetitions and sizes of the run. A value of None is chosen by each job: jobs over emulated paths have
    their own sizes."""

    machine: Machine
    repetitions: int | None
    quick: bool
    memory: pathlib.Path
    """Scratch space on a tmpfs. Removed after the run."""
    disk: pathlib.Path
    """Scratch space on a disk. Removed after the run."""
    large_bytes: int | None
    """Size of the large file for downloads. Over loopback, uploads use half of it, TLS and disk a quarter, so that a
    whole run takes less than an hour."""
    files: int | None
    """Number of small files; half of it for loopback jobs on disk."""
    entries: int
    """Number of entries of the listed directory, and of directories of the tree."""
    load_s: float
    """Duration of one sample of the load generator."""
    before: str | None = None
    """Binary of an earlier version, for the suite `versions`."""
    before_commit: str | None = None
    """Commit from which that binary was built."""
    paths: frozenset[float] | None = None
    """Restricts jobs to emulated paths with one of these round trips in ms, or shares of lost segments. None: all paths
    of a job."""

    def is_full(self, parent: pathlib.Path, tls: bool = False) -> bool:
        """Returns whether a job has all contenders: in memory and without TLS."""
        return parent == self.memory and not tls

    def large_file(self, parent: pathlib.Path, part: int = 1) -> pathlib.Path:
        """Returns the large file, or a file of 1/`part` of its size, below `parent` and alone in its directory."""
        size = self.large_bytes // part
        path = parent / f"source-{size}" / "large.bin"
        if not path.exists():
            path.parent.mkdir()
            write_pattern(path, size)
        return path

    def files_on(self, parent: pathlib.Path) -> int:
        return self.files if self.is_full(parent) else self.files // 2


@dataclasses.dataclass(frozen=True)
class Job:
    """The function of a job, and its approximate duration at full size with all repetitions on two cores."""

    run: Callable[[Settings], dict]
    minutes: float
