"""What the command line asks, and the data that jobs share: made once in a run, where the first job needs them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from contenders import Machine

MIB, GIB = 1 << 20, 1 << 30
PAGE_BYTES = 4096


def write_pattern(path: pathlib.Path, size: int, first: int = 0) -> None:
    """A file in which every page of 4 KiB starts with `first` and its offset, so that no misplaced page goes unseen."""
    rest = bytes(range(256))[8:] + bytes(range(256)) * 15
    with path.open("wb") as file:
        for block in range(0, size, 1 << 20):
            pages = range(block, min(block + (1 << 20), size), PAGE_BYTES)
            file.write(b"".join((first + offset).to_bytes(8, "little") + rest for offset in pages))
        file.truncate(size)


@dataclasses.dataclass
class Settings:
    """The run: where, how often, how much. What is None the job chooses: over emulated paths each has its own size."""

    machine: Machine
    repetitions: int | None
    quick: bool
    memory: pathlib.Path
    """Scratch space on a tmpfs, and on a disk; both are gone after the run."""
    disk: pathlib.Path
    large_bytes: int | None
    """Size of the large file that is downloaded; over loopback uploads have half of it, TLS and disk a quarter, so that a whole run stays below an hour."""
    files: int | None
    """Number of small files; over loopback on disk half of that."""
    entries: int
    """Entries of the directory that is listed, and directories of the tree."""
    load_s: float
    """How long one sample of the load generator takes."""
    before: str | None = None
    """The binary of an earlier version, for the suite `versions`."""
    before_commit: str | None = None
    """What it was built from."""
    paths: frozenset[float] | None = None
    """The emulated paths that are run: those with one of these round trips in ms, or shares of lost segments; all of a job's if none."""

    def is_full(self, parent: pathlib.Path, tls: bool = False) -> bool:
        """Whether a job has all contenders: in memory and without TLS."""
        return parent == self.memory and not tls

    def large_file(self, parent: pathlib.Path, part: int = 1) -> pathlib.Path:
        """The large file, or one of a `part`th of its size, below `parent` and alone in its directory."""
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
    """What is run, and about how long it takes at full size with all repetitions on two cores."""

    run: Callable[[Settings], dict]
    minutes: float
