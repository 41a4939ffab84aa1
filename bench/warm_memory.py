"""Memory at hand for a run: hosts of virtual machines take back what is free for a few seconds, and who touches it next waits until it is fetched again,
several times as long as it takes to write it. So all that is free is held, and let go as the run needs it."""

from __future__ import annotations

import mmap
import pathlib
import threading
from typing import Self

from settings import GIB

CHUNK = GIB // 16
LEAST_FREE = GIB
"""Less than this is free while a run takes what was let go: so it is never free for long."""
LOOK_S = 0.01
MADV_POPULATE_WRITE = 23
"""Of `madvise`, since Linux 5.14; the module does not name it."""


class WarmMemory:
    """Holds what `hold` finds free, in huge pages where there are any, and lets go whenever little is left."""

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
        while free() > LEAST_FREE + 2 * CHUNK:
            chunk = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            chunk.madvise(mmap.MADV_HUGEPAGE)
            chunk.madvise(MADV_POPULATE_WRITE)
            self.chunks.append(chunk)

    def keep(self) -> None:
        while not self.ended.wait(LOOK_S):
            while self.chunks and free() < LEAST_FREE:
                self.chunks.pop().close()


def free() -> int:
    """Bytes that nobody uses."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemFree:"))
