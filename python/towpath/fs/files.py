"""File objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspec.asyn import sync
from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile

from towpath.fs.calls import call

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
        self, fs: StorageFileSystem, path: str, block_size: int | str = "default", cache_type: str = "towpath", **options: Any
    ) -> None:
        self._file = sync(fs.loop, call, fs._storages.open, fs._read_url(path))
        self.details = {"name": path} | sync(fs.loop, call, self._file.stat)
        if self.details["type"] == "directory":
            raise IsADirectoryError(f"{fs._url(path)} is a directory")
        super().__init__(fs, path, "rb", block_size=block_size, cache_type=cache_type, size=self.details["size"], **options)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = sync(self.fs.loop, call, self._file.read, start, end - start)
        return data


class WritableFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file that is written from start to end, and visible when it is closed. If a block of `with` ends with an exception, nothing is."""

    DEFAULT_BLOCK_SIZE = 8 * 2**20

    def __init__(self, fs: StorageFileSystem, path: str, mode: str, **options: Any) -> None:
        if mode == "xb" and sync(fs.loop, fs._exists, path):
            raise FileExistsError(f"{fs._url(path)} exists")
        self._file = sync(fs.loop, call, fs._storages.create, fs._url(path), mode == "xb")
        self._written = 0
        super().__init__(fs, path, mode, **options)

    def _initiate_upload(self) -> None:
        """The upload began when the file was opened."""

    def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        sync(self.fs.loop, call, self._file.write, self._written, data)
        self._written += len(data)
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        """Makes the file visible."""
        sync(self.fs.loop, call, self._file.commit, self._written)
        self.fs.invalidate_cache(self.path)

    def discard(self) -> None:
        """Removes the written data."""
        sync(self.fs.loop, call, self._file.abort)

    def __del__(self) -> None:
        """Leaves a file that was not closed invisible: the upload ends with its handle."""

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
            self.closed = True
