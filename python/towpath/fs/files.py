"""File objects."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AbstractAsyncStreamedFile, sync
from fsspec.caching import BaseCache, register_cache
from fsspec.compression import compr
from fsspec.spec import AbstractBufferedFile

from towpath.fs.calls import result_of

if TYPE_CHECKING:
    from towpath.fs import StorageFileSystem


class ExactCache(BaseCache):  # type: ignore[misc]
    """Fetches exactly the bytes of a read, unless reads follow each other: then the window grows to the block size.

    The last block that was fetched is kept.
    """

    name = "towpath"

    def __init__(self, blocksize: int, fetcher: Any, size: int) -> None:
        super().__init__(blocksize, fetcher, size)
        self._start, self._block = 0, b""
        self._next, self._window = 0, 0

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = 0 if start is None else start
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        end = self._start + len(self._block)
        if not (self._start <= start and stop <= end):
            is_next = start == self._next
            self._window = min(max(2 * self._window, stop - start), self.blocksize) if is_next else 0
            # The part that is there is not fetched again.
            kept = self._block[start - self._start :] if self._start <= start < end else b""
            begin = start + len(kept)
            self._block = kept + self.fetcher(begin, min(max(stop, begin + self._window), self.size))
            self._start = start
        self._next = stop
        return self._block[start - self._start : stop - self._start]


register_cache(ExactCache)


class ReadableFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is open for reading, pinned to one version: a read of another one raises `OSError`."""

    DEFAULT_BLOCK_SIZE = 8 * 2**20

    def __init__(
        self,
        fs: StorageFileSystem,
        path: str,
        block_size: int | str = "default",
        cache_type: str = "towpath",
        size: int | None = None,
        **options: Any,
    ) -> None:
        """`size` is that of the storage; an argument, as fsspec passes it, is ignored."""
        self._file = sync(fs.loop, result_of, fs._storages.open, fs._read_url(path))
        self.details = fs._entry(path, sync(fs.loop, result_of, self._file.stat))
        if self.details["type"] == "directory":
            raise IsADirectoryError(f"{fs._url(path)} is a directory")
        super().__init__(fs, path, "rb", block_size=block_size, cache_type=cache_type, size=self.details["size"], **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = sync(self.fs.loop, result_of, self._file.read, start, end - start)
        return data

    def close(self) -> None:
        """Closes the file, also at the storage some time later; a write of this file system waits for that."""
        if not self.closed:
            super().close()
            self.fs._open_files.begin_close(self.fs._read_url(self.path), self._file)


class WritableFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is written from start to end, and complete when it is closed. It is discarded if a block of `with` ends with an
    exception, and if it is not closed."""

    DEFAULT_BLOCK_SIZE = 8 * 2**20

    def __init__(self, fs: StorageFileSystem, path: str, mode: str, **options: Any) -> None:
        if mode == "xb" and sync(fs.loop, fs._exists, path):
            raise FileExistsError(f"{fs._url(path)} exists")
        self._file = sync(fs.loop, fs._create, path, mode == "xb")
        self._written = 0
        self._is_discarded = False
        super().__init__(fs, path, mode, **options)

    def _initiate_upload(self) -> None:
        """The upload began when the file was opened."""

    def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        sync(self.fs.loop, result_of, self._file.write, self._written, data)
        self._written += len(data)
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Completes the file."""
        sync(self.fs.loop, result_of, self._file.commit, self._written)
        self.fs.invalidate_cache(self.path)

    def discard(self) -> None:
        """Removes the written data. What layers above still write is ignored."""
        self._is_discarded = True
        sync(self.fs.loop, result_of, self._file.abort)

    def write(self, data: Any) -> int:
        """Writes bytes, and returns their number."""
        return memoryview(data).nbytes if self._is_discarded else int(super().write(data))

    def close(self) -> None:
        """Completes the file, unless it was discarded."""
        if self._is_discarded:
            self.closed = True
        else:
            super().close()

    def __del__(self) -> None:
        """Does not complete a file that was not closed: its upload ends with its handle."""

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()


class StreamedFile(AbstractAsyncStreamedFile):  # type: ignore[misc]
    """A file for coroutines, without a cache: it is read, or written from start to end, and complete when it is closed. It is discarded
    if a block of `async with` ends with an exception, and if it is not closed."""

    DEFAULT_BLOCK_SIZE = 8 * 2**20

    def __init__(
        self, fs: StorageFileSystem, path: str, mode: str, file: Any, details: dict[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(fs, path, mode, cache_type="none", size=(details or {}).get("size"), **options)
        self._file = file
        if details is not None:
            self.details = details

    async def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = await result_of(self._file.read, start, max(end - start, 0))
        return data

    async def _initiate_upload(self) -> None:
        """The upload began when the file was opened."""

    async def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        if data:
            await result_of(self._file.write, self.offset, data)
        if final:
            await result_of(self._file.commit, self.offset + len(data))
        return True

    async def close(self) -> None:
        """Completes a file that was written, or discards it if that fails."""
        try:
            self._begin_close()
            await super().close()
        except BaseException:
            await self.discard()
            raise

    async def discard(self) -> None:
        """Closes the file. One that was written does not appear."""
        self._begin_close()
        self.closed = True
        if self.mode != "rb":
            await result_of(self._file.abort)

    def _begin_close(self) -> None:
        if self.mode == "rb" and not self.closed:
            self.fs._open_files.begin_close(self.fs._read_url(self.path), self._file)

    async def __aexit__(self, kind: Any, *_: Any) -> None:
        await (self.close() if kind is None else self.discard())

    def __del__(self) -> None:
        """Does not complete a file that was not closed: its upload ends with its handle."""


class TextFile(io.TextIOWrapper):
    """Text that is written to a file, perhaps through a compressor. It ends like the file."""

    def __init__(self, layer: Any, file: WritableFile, **options: Any) -> None:
        super().__init__(layer, **options)
        self._inner = file

    def close(self) -> None:
        """Completes the file."""
        super().close()
        self._inner.close()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._inner.discard()
        self.close()

    def __del__(self) -> None:
        """Discards a file that was not closed."""
        if not self._inner.closed:
            self._inner._is_discarded = True


class CompressedFile:
    """Bytes that are compressed into a file. It ends like the file."""

    def __init__(self, compression: str, file: WritableFile) -> None:
        self._layer, self._inner = compr[compression](file, mode="w"), file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)

    def close(self) -> None:
        """Completes the file."""
        self._layer.close()
        self._inner.close()

    def __enter__(self) -> CompressedFile:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self._inner.discard()
        self.close()

    def __del__(self) -> None:
        """Discards a file that was not closed."""
        if not self._inner.closed:
            self._inner._is_discarded = True
