"""Calls of the native module that complete a future of the running event loop, and the files that stay open."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from towpath import _towpath

T = TypeVar("T")

MAX_OPEN_FILES = 256
"""Maximum number of files of a storage that stay open after they were read."""

IDLE_S = 30.0
"""Time in seconds after which a file that is read again is opened again. Until then it is read as the version that was opened."""


async def call(submit: Callable[..., Any], *arguments: Any) -> Any:
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


class OpenFiles:
    """Files that were read, and stay open for the next read. Any thread and event loop may use them."""

    def __init__(self, open_file: Callable[..., Any]) -> None:
        """`open_file` is that of the native storages."""
        self._open = open_file
        self._lock = threading.Lock()
        self._files: OrderedDict[str, tuple[Any, float]] = OrderedDict()

    async def use(self, url: str, operate: Callable[[Any], Awaitable[T]]) -> T:
        """Returns what `operate` returns for the file at `url`. After an error, the next use opens the file again."""
        file = self._find(url)
        if file is None:
            file = await call(self._open, url)
        try:
            result = await operate(file)
        except OSError:
            self.drop(url)
            raise
        self._keep(url, file)
        return result

    def drop(self, url: str | None) -> None:
        """Closes a file; without `url` all of them. Operations that run are not affected."""
        with self._lock:
            if url is None:
                self._files.clear()
            else:
                self._files.pop(url, None)

    def _find(self, url: str) -> Any:
        with self._lock:
            file, used = self._files.get(url, (None, 0.0))
            return file if time.monotonic() - used < IDLE_S else None

    def _keep(self, url: str, file: Any) -> None:
        with self._lock:
            self._files[url] = (file, time.monotonic())
            self._files.move_to_end(url)
            while len(self._files) > MAX_OPEN_FILES:
                self._files.popitem(last=False)
