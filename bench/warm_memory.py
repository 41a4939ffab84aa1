"""Reserves warm memory for a run.

Hosts of virtual machines reclaim free memory within seconds; the next access waits until the host provides it again,
several times as long as writing to it takes. Therefore this module holds all free memory, and releases it as the run
needs it.
"""

from __future__ import annotations

import mmap
import pathlib
import threading
from typing import Self

from settings import GIB

CHUNK = GIB // 16
LEAST_FREE = GIB
"""Amount of memory kept free while a run allocates. Small, so that no memory stays free for long."""
LOOK_S = 0.01
MADV_POPULATE_WRITE = 23
"""Advice of `madvise` since Linux 5.14; the module mmap does not define it."""


class WarmMemory:
    """Holds the free memory, in huge pages where available, and releases it when little is left."""

    def __init__(self) -> None:
        self.chunks: list[mmap.mmap] = []
        self.ended = threading.Event()
        self.keeper = threading.Thread(target=self.keep, daemon=True)

    def __enter__(self) -> Self:
        self.keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.keeper.join()
        while self.chunks:
            self.chunks.pop().close()

    def hold(self) -> None:
        """Allocates and populates the free memory."""
        while free() > LEAST_FREE + 2 * CHUNK:
            chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            chunk.madvise(mmap.MADV_HUGEPAGE)
            chunk.madvise(MADV_POPULATE_WRITE)
            self.chunks.append(chunk)

    def keep(self) -> None:
        """Releases memory whenever less than `LEAST_FREE` is free."""
        while not self.ended.wait(LOOK_S):
            while self.chunks and free() < LEAST_FREE:
                self.chunks.pop().close()


def free() -> int:
    """Returns the unused memory in bytes."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:"))
