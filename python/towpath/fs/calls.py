"""Calls of the native module that complete a future of the running event loop, and the files that stay open."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from towpath import _towpath

T = TypeVar("T")

MAX_OPEN_FILES = 256
"""Maximum number of files of a storage that stay open after they were read."""

IDLE_S = 30.0
"""Time in seconds after which a file that is not read is closed, with the next use of its storage."""

MAX_KNOWN_VERSIONS = 10_000
"""Maximum number of files of a storage whose version is compared when they are opened again."""

HEAD_BYTES = 4 << 10
MIN_TAIL_BYTES, MAX_TAIL_BYTES, TAIL_SHARE = 64 << 10, 512 << 10, 512
"""Length of the tail of a ROOT file that is read when it is opened: a part of its size, within limits."""


async def result_of(submit: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of an operation that `submit` starts. Raises `OSError`; cancelling the task aborts the operation."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def done(value: Any, failure: tuple[int, str] | None) -> None:
        """Runs on another thread. The loop may have ended."""
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, future, value, failure)

    running = submit(*arguments, done)
    try:
        return await future
    except asyncio.CancelledError:
        running.cancel()
        raise


def _settle(future: asyncio.Future[Any], value: Any, failure: tuple[int, str] | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(OSError(*failure))


@functools.lru_cache(maxsize=64)
def storages(token: str | None, ca_file: str | None, wait: float | None, process: int) -> _towpath.Storages:
    """Returns the native storages with these options, whose connections are shared. A forked `process` has its own."""
    return _towpath.Storages(token, ca_file, wait)


class OpenFile:
    """A file that is open for reading. Head and tail of a ROOT file are in memory, as readers begin with them: a header of a few hundred
    bytes, and in the tail the list of names, the classes, and the record of the last tree."""

    def __init__(self, file: Any, properties: dict[str, Any], preloaded: dict[int, bytes]) -> None:
        """`preloaded` has the parts in memory by offset."""
        self.native, self._preloaded = file, preloaded
        self.uses = 0
        """Number of operations that run, under the lock of `OpenFiles`."""
        self.size: int = properties["size"]
        self.version = (self.size, properties.get("mtime_ns"))

    @classmethod
    async def open(cls, storages: _towpath.Storages, url: str) -> OpenFile:
        """Opens a file, without other requests unless it is a ROOT file. Raises `OSError`."""
        file = await result_of(storages.open, url)
        properties = await result_of(file.stat)
        ranges = _head_and_tail(properties["size"]) if _ROOT.search(url.partition("?")[0]) else []
        parts = await result_of(file.read_ranges, ranges) if ranges else []
        # A part that could not be read is read again on demand, and its error raised then.
        preloaded = {offset: part for (offset, _), part in zip(ranges, parts, strict=True) if isinstance(part, bytes)}
        return cls(file, properties, preloaded)

    async def read(self, offset: int, length: int) -> bytes:
        """Returns the bytes of a range; less at the end of the file."""
        known = self._known(offset, length)
        data: bytes = await result_of(self.native.read, offset, length) if known is None else known
        return data

    async def read_ranges(self, ranges: list[tuple[int, int]]) -> list[Any]:
        """Returns the bytes of each range (offset, length), or number and message of its error. Those that are not in memory are one
        request."""
        results: list[Any] = [self._known(*one) for one in ranges]
        missing = [at for at, known in enumerate(results) if known is None]
        if missing:
            for at, found in zip(missing, await result_of(self.native.read_ranges, [ranges[at] for at in missing]), strict=True):
                results[at] = found
        return results

    def _known(self, offset: int, length: int) -> bytes | None:
        for start, part in self._preloaded.items():
            if start <= offset and min(offset + length, self.size) <= start + len(part):
                return part[offset - start : offset - start + length]
        return None


_ROOT = re.compile(r"\.root(\.[0-9]+)?$", re.IGNORECASE)
"""End of the name of a ROOT file, perhaps with a version."""


def _head_and_tail(size: int) -> list[tuple[int, int]]:
    """Returns offset and length of head and tail of a ROOT file."""
    tail = min(max(size // TAIL_SHARE, MIN_TAIL_BYTES), MAX_TAIL_BYTES)
    return [(0, size)] if size <= HEAD_BYTES + tail else [(0, HEAD_BYTES), (size - tail, tail)]


def _is_at(one: str, url: str) -> bool:
    """Returns whether a URL is `url`, or below it."""
    return one == url or one.startswith(f"{url.rstrip('/')}/")


class OpenFiles:
    """Files that were read in parts, and stay open for the next read. Any thread and event loop may use them."""

    def __init__(self, storages: _towpath.Storages) -> None:
        self._storages = storages
        self._lock = threading.Lock()
        self._files: OrderedDict[str, tuple[OpenFile, float]] = OrderedDict()
        self._versions: OrderedDict[str, tuple[int, int | None]] = OrderedDict()
        self._drops = 0
        self._closing: deque[tuple[str, concurrent.futures.Future[None]]] = deque()
        """Files that are being closed at the storage. A deque, as finalizers of files append to it without the lock."""

    async def use(self, url: str, operate: Callable[[OpenFile], Awaitable[T]]) -> T:
        """Returns what `operate` returns for the file at `url`. After an error, the next use opens the file again.

        Raises `OSError` (`ESTALE`) if the file has changed since an earlier use; once, so that a further use reads the new version.
        """
        file, drops = self._find(url)
        if file is None:
            file = await OpenFile.open(self._storages, url)
            try:
                self._compare(url, file)
            except OSError:
                self.begin_close(url, file.native)
                raise
            with self._lock:
                file.uses += 1
        try:
            result = await operate(file)
        except OSError:
            self.drop(url)
            raise
        finally:
            with self._lock:
                file.uses -= 1
        self._keep(url, file, drops)
        return result

    def begin_close(self, url: str, native: Any) -> None:
        """Closes a file at the storage, without waiting. Finalizers call it too, also while the interpreter ends."""
        with contextlib.suppress(IndexError):
            while self._closing[0][1].done():
                self._closing.popleft()
        closed: concurrent.futures.Future[None] = concurrent.futures.Future()
        # No waiting task can cancel it then.
        closed.set_running_or_notify_cancel()
        # In a fork, the file is that of the parent.
        with contextlib.suppress(Exception):
            native.close(lambda *_: closed.set_result(None))
            self._closing.append((url, closed))

    async def close(self, url: str) -> None:
        """Forgets the files at and below `url`, and returns when the storage has closed them, but for those with running operations."""
        with self._lock:
            idle = [(one, file) for one, (file, _) in self._files.items() if _is_at(one, url) and file.uses == 0]
        self.drop(url)
        for one, file in idle:
            self.begin_close(one, file.native)
        closing = [asyncio.wrap_future(closed) for one, closed in list(self._closing) if _is_at(one, url)]
        await asyncio.gather(*closing)

    def drop(self, url: str | None, is_tree: bool = True) -> None:
        """Forgets the file at `url`, with `is_tree` also those below it, and their versions; without `url` all of them. They are closed
        some time later. Running operations go on."""
        with self._lock:
            self._drops += 1
            for known in (self._files, self._versions):
                dropped = [one for one in known if url is None or one == url or (is_tree and _is_at(one, url))]
                for one in dropped:
                    del known[one]

    def _find(self, url: str) -> tuple[OpenFile | None, int]:
        """Returns an open file, whose use begins, and the number of drops so far. Closes idle files."""
        with self._lock:
            now = time.monotonic()
            while self._files and now - next(iter(self._files.values()))[1] >= IDLE_S:
                self._files.popitem(last=False)
            file = self._files.get(url, (None, 0.0))[0]
            if file is not None:
                file.uses += 1
            return file, self._drops

    def _compare(self, url: str, file: OpenFile) -> None:
        with self._lock:
            if self._versions.get(url, file.version) != file.version:
                del self._versions[url]
                raise OSError(errno.ESTALE, f"{url} has changed since it was read before; another read is of the new version")

    def _keep(self, url: str, file: OpenFile, drops: int) -> None:
        """Keeps a file open, unless files were dropped since its use began: perhaps this one, because it was replaced."""
        with self._lock:
            if drops != self._drops:
                return
            self._files[url] = (file, time.monotonic())
            self._versions[url] = file.version
            for known, limit in ((self._files, MAX_OPEN_FILES), (self._versions, MAX_KNOWN_VERSIONS)):
                known.move_to_end(url)
                while len(known) > limit:
                    known.popitem(last=False)
