"""fsspec file systems: files at storages over `root(s)://`, `http(s)://`, `dav(s)://` and `s3://`, for uproot, pandas, pyarrow, dask, zarr.

    >>> import fsspec, uproot
    >>> events = uproot.open("root://host//path/file.root")["Events"]  # doctest: +SKIP
    >>> with fsspec.open("davs://host/path/table.csv", "rt") as file:  # doctest: +SKIP
    ...     lines = file.readlines()

Installing the package with its extra `towpath[fs]` registers `root`, `roots`, `xroot`, `xroots`, `dav`, `davs` and `towpath`; `towpath://`
is `root://`. fsspec has file systems of its own for `http`, `https` and `s3`: `register` replaces them.

- A file system is one storage. Its paths begin with a slash; those over HTTP are percent-encoded, as in URLs.
- All ranges of `cat_ranges` of one file are one request. A file that is read in parts stays open for a while, pinned to one version: a
  read of another one raises `OSError`, and the one after it is of the new version. Head and tail of a ROOT file are read when it is opened.
- A written file is complete when it is closed. Towpath servers, and HTTP and S3 servers, show it then, in place of an older one. XRootD
  servers show it while it is written, and remove an older one at once.
- `put`, `get` and `cp` copy with verification.
- Errors are subclasses of `OSError`, with the party at fault in their message.
- If `TOWPATH_AGENT` is set (`towpath agent env`), files are read through the agent by `open`, `cat` and `cat_ranges`; not those of `s3`,
  and not with a user, a token or a `ca_file` of their own, which the agent does not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import stat
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from typing import Any, ClassVar
from urllib.parse import quote

import fsspec
from fsspec.asyn import AsyncFileSystem, sync_wrapper
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.core import get_compression
from fsspec.utils import isfilelike

from towpath.fs.calls import OpenFile, OpenFiles, result_of, storages
from towpath.fs.files import CompressedFile, ReadableFile, StreamedFile, TextFile, WritableFile

__all__ = ["HttpFileSystem", "RootFileSystem", "S3FileSystem", "StorageFileSystem", "locate", "register"]

_FSSPEC_OPTIONS = {"batch_size", "listings_expiry_time", "max_paths", "skip_instance_cache", "use_listings_cache"}
"""Options that fsspec itself knows."""

_TYPE_BITS = {"directory": stat.S_IFDIR, "file": stat.S_IFREG}
_DEFAULT_MODES = {"directory": 0o755, "file": 0o644}


class StorageFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """One storage. Use a class for its protocol."""

    root_marker = "/"
    protocol: ClassVar[tuple[str, ...]] = ()
    has_encoded_paths: ClassVar[bool] = False
    """Whether paths are percent-encoded."""

    def __init__(
        self,
        hostid: str,
        *,
        scheme: str | None = None,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        wait: float | None = None,
        timeout: float | None = None,
        asynchronous: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        **options: Any,
    ) -> None:
        """Opens no connection.

        - `hostid`: host, with a port unless it is the default one, and perhaps a user before it (`user@host:port`); of S3 the bucket.
        - `scheme`: of URLs; that of the class by default.
        - `token`: bearer token. By default it is found as in the commands (`BEARER_TOKEN`, `BEARER_TOKEN_FILE`, …).
        - `ca_file`: file or directory with certificates to trust in addition to those of the system.
        - `wait`: seconds for which a storage may be silent.
        - `timeout`: the same, for programs that are made for fsspec-xrootd.
        """
        if unknown := sorted(set(options) - _FSSPEC_OPTIONS):
            raise TypeError(f"unknown options: {', '.join(unknown)}; expected token, ca_file, wait, scheme")
        super().__init__(asynchronous=asynchronous, loop=loop, **options)
        self._has_own_credentials = token is not None or ca_file is not None or "@" in hostid
        self.hostid, self.scheme = hostid, scheme or self.protocol[0]
        self._storages = storages(token, os.fspath(ca_file) if ca_file else None, timeout if wait is None else wait, os.getpid())
        self._open_files = OpenFiles(self._storages)

    # Paths and URLs

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = os.fspath(path)
        scheme, separator, rest = text.partition("://")
        if separator and scheme in cls.protocol:
            text = "/" + rest.partition("/")[2].lstrip("/")
        return "/" + text.strip("/")

    @classmethod
    def _get_kwargs_from_urls(cls, url: str) -> dict[str, Any]:
        scheme, separator, rest = url.partition("://")
        return {"hostid": rest.partition("/")[0], "scheme": scheme} if separator else {}

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL of a path."""
        path = self._strip_protocol(name)
        return f"{self.scheme}://{self.hostid}{path}"

    def _url(self, path: str) -> str:
        """Returns the URL of a path for the native module."""
        return self.unstrip_protocol(path)

    def _read_url(self, path: str) -> str:
        """Returns the URL for reading: that through the agent, if there is one and it has the credentials."""
        agent = "" if self._has_own_credentials else os.environ.get("TOWPATH_AGENT", "")
        return self._agent_prefix(agent) + self._url(path)

    def _agent_prefix(self, agent: str) -> str:
        """Returns the part before a URL that leads to the agent; `agent` is that of the xroot protocol, or empty."""
        return agent

    # Properties

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return self._entry(path, await result_of(self._storages.stat, self._url(path)))

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Lists a directory; the result for a file is its own entry. A listing is never from a cache."""
        path = self._strip_protocol(path)
        try:
            found = await result_of(self._storages.list, self._url(path))
        except NotADirectoryError:
            entries = [await self._info(path)]
        else:
            names = ((quote(name) if self.has_encoded_paths else name, properties) for name, properties in found)
            entries = [self._entry(f"{path.rstrip('/')}/{name}", properties) for name, properties in names]
        return entries if detail else [entry["name"] for entry in entries]

    @staticmethod
    def _entry(path: str, properties: dict[str, Any]) -> dict[str, Any]:
        """Returns the properties of a path as fsspec names them. The protocols do not report owner, group and number of links: these are
        constants."""
        kind = properties["type"]
        entry = {"name": path, "size": properties["size"], "type": kind, "islink": properties["islink"], "uid": 0, "gid": 0, "nlink": 1}
        entry["mode"] = _TYPE_BITS.get(kind, 0) | properties.get("mode", _DEFAULT_MODES.get(kind, 0))
        for name in ("mtime", "ctime", "atime"):
            with contextlib.suppress(KeyError):
                entry[name] = properties[f"{name}_ns"] / 1e9
        if "version" in properties:
            entry["ETag"] = properties["version"]
        if properties["digests"]:
            entry["digests"] = properties["digests"]
        return entry

    async def _exists(self, path: str, **_: Any) -> bool:
        """Returns whether there is something. Raises `OSError` if the storage does not tell."""
        return await self._type(path) is not None

    async def _isfile(self, path: str) -> bool:
        return await self._type(path) == "file"

    async def _isdir(self, path: str) -> bool:
        return await self._type(path) == "directory"

    async def _type(self, path: str) -> str | None:
        try:
            return str((await self._info(path))["type"])
        except (FileNotFoundError, NotADirectoryError):
            return None

    async def _modified(self, path: str) -> datetime.datetime:
        """Returns the time of the last change of the content. Raises `OSError` if the storage does not tell it."""
        info = await self._info(path)
        if "mtime" not in info:
            raise OSError(f"{self._url(path)}: the storage does not tell the time of the last change")
        return datetime.datetime.fromtimestamp(info["mtime"], tz=datetime.timezone.utc)

    async def _checksum(self, path: str, algorithm: str | None = None) -> int | tuple[str, str]:
        """Returns a number that changes with the version of a file, without reading it.

        With the name of an `algorithm` (`adler32`, `crc32c`, `md5`, …) returns that name and the hexadecimal digits of the digest: the
        storage computes it if it can; otherwise the file is read.
        """
        if algorithm is None:
            return int(await self._ukey(path), 16)
        return algorithm, await result_of(self._storages.digest, self._url(path), algorithm)

    async def _ukey(self, path: str) -> str:
        """Returns a text that changes with the version of a file."""
        info = await self._info(path)
        return sha256(repr([info.get(name) for name in ("name", "size", "mtime", "ETag")]).encode()).hexdigest()

    # Reading

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        url = self._read_url(path)

        async def read(file: OpenFile) -> bytes:
            first, last = _offset(start or 0, file.size), file.size if end is None else _offset(end, file.size)
            return await file.read(first, max(last - first, 0))

        if start is None and end is None:
            # As a whole it is read as it is now, whatever was read before.
            file = await result_of(self._storages.open, url)
            try:
                data: bytes = await result_of(file.read, 0, (await result_of(file.stat))["size"])
            finally:
                self._open_files.begin_close(url, file)
            return data
        return await self._open_files.use(url, read)

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: int | list[int],
        ends: int | list[int],
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """Reads all ranges of a file with one request. `max_gap` and `batch_size` are for other file systems, and ignored."""
        starts, ends = (value if isinstance(value, Iterable) else [value] * len(paths) for value in (starts, ends))
        if not len(paths) == len(starts) == len(ends):
            raise ValueError(f"paths, starts, ends: expected as many, not {len(paths)}, {len(starts)} and {len(ends)}")
        places: dict[str, list[int]] = {}
        for at, path in enumerate(paths):
            places.setdefault(path, []).append(at)
        results: list[Any] = [None] * len(paths)
        if any((start or 0) < 0 or end is None or end < 0 for start, end in zip(starts, ends, strict=True)):
            coroutines = [self._cat_file(*one) for one in zip(paths, starts, ends, strict=True)]
            results = await asyncio.gather(*coroutines, return_exceptions=True)
        else:
            ranges = {path: [(starts[at] or 0, max(ends[at] - (starts[at] or 0), 0)) for at in of_path] for path, of_path in places.items()}
            read = await asyncio.gather(*(self._ranges(path, ranges[path]) for path in places))
            for of_path, found in zip(places.values(), read, strict=True):
                for at, one in zip(of_path, found, strict=True):
                    results[at] = one
        failed = next((one for one in results if isinstance(one, BaseException)), None)
        if failed is not None and on_error != "return":
            raise failed
        return results

    async def _ranges(self, path: str, ranges: list[tuple[int, int]]) -> list[Any]:
        """Returns the bytes of each range (offset, length), or its exception."""
        url = self._read_url(path)
        try:
            found = await self._open_files.use(url, lambda file: file.read_ranges(ranges))
        except OSError as error:
            return [error] * len(ranges)
        results = [one if isinstance(one, bytes) else OSError(*one) for one in found]
        if any(isinstance(one, OSError) for one in results):
            self._open_files.drop(url)
        return results

    def open(self, path: str, mode: str = "rb", block_size: int | None = None, compression: str | None = None, **options: Any) -> Any:
        """Opens a file: `r`, `w`, or `x`, which refuses an existing one, as text or with `b`. Files cannot be appended to."""
        if "r" in mode:
            return super().open(path, mode, block_size=block_size, compression=compression, **options)
        compression = get_compression(path, compression)
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        file = super().open(path, mode.replace("t", "").replace("b", "") + "b", block_size=block_size, **options)
        layer = file if compression is None else CompressedFile(compression, file)
        return layer if "b" in mode else TextFile(layer, file, **text)

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, autocommit: bool = True, **options: Any) -> Any:
        if mode == "rb":
            return ReadableFile(self, path, block_size=block_size or "default", **options)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: expected rb, wb or xb, as storages replace files as a whole")
        return WritableFile(self, path, mode, block_size=block_size or "default", autocommit=autocommit, **options)

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> StreamedFile:
        """Opens a file in a coroutine, to read with `rb`, or to write with `wb` or `xb`. It has no cache: each read is a request."""
        path = self._strip_protocol(path)
        if mode == "rb":
            file = await result_of(self._storages.open, self._read_url(path))
            details = self._entry(path, await result_of(file.stat))
            if details["type"] == "directory":
                raise IsADirectoryError(f"{self._url(path)} is a directory")
            return StreamedFile(self, path, mode, file, details, **options)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: expected rb, wb or xb, as storages replace files as a whole")
        if mode == "xb" and await self._exists(path):
            raise FileExistsError(f"{self._url(path)} exists")
        return StreamedFile(self, path, "wb", await self._create(path, mode == "xb"), **options)

    # Changes

    @contextlib.asynccontextmanager
    async def _changing(self, *paths: str) -> AsyncIterator[None]:
        """Closes the files at and below the paths before a change of them, and forgets those that were opened meanwhile. XRootD servers
        refuse to write files that are open."""
        for path in paths:
            await self._open_files.close(self._read_url(path))
        try:
            yield
        finally:
            for path in paths:
                self._open_files.drop(self._read_url(path))

    async def _create(self, path: str, refuse: bool) -> Any:
        """Returns a new file, which replaces an existing one when it is committed, unless `refuse`."""
        async with self._changing(path):
            return await result_of(self._storages.create, self._url(path), refuse)

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        data = bytes(value)
        async with self._changing(path):
            file = await result_of(self._storages.create, self._url(path), mode == "create")
            await result_of(file.write, 0, data)
            await result_of(file.commit, len(data))

    async def _put_file(self, lpath: str, rpath: str, callback: Callback = DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any) -> None:
        if os.path.isdir(lpath):
            return await self._makedirs(rpath, exist_ok=True)
        if mode == "create" and await self._exists(rpath):
            raise FileExistsError(f"{self._url(rpath)} exists")
        callback.set_size(os.path.getsize(lpath))
        async with self._changing(rpath):
            callback.relative_update(await result_of(self._storages.copy, os.path.abspath(lpath), self._url(rpath)))

    async def _get_file(self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, **_: Any) -> None:
        info = await self._info(rpath)
        if info["type"] == "directory":
            return os.makedirs(lpath, exist_ok=True)
        callback.set_size(info["size"])
        if isfilelike(lpath):
            lpath.write(await self._cat_file(rpath))
            callback.relative_update(info["size"])
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        callback.relative_update(await result_of(self._storages.copy, self._url(rpath), os.path.abspath(lpath)))

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if await self._isdir(path1):
            return await self._makedirs(path2, exist_ok=True)
        async with self._changing(path2):
            await result_of(self._storages.copy, self._url(path1), self._url(path2))

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents and (parent := self._parent(path)) != self.root_marker:
            await result_of(self._storages.make_directory, self._url(parent), True)
        await result_of(self._storages.make_directory, self._url(path), False)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not exist_ok and await self._exists(path):
            raise FileExistsError(f"{self._url(path)} exists")
        await result_of(self._storages.make_directory, self._url(path), True)

    async def _rm_file(self, path: str) -> None:
        async with self._changing(path):
            await result_of(self._storages.remove_file, self._url(path))

    async def _rmdir(self, path: str) -> None:
        await result_of(self._storages.remove_directory, self._url(path))

    async def _rm(self, path: str | list[str], recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None) -> None:
        """Removes files; with `recursive` also directories with all that is in them. Links are removed, not followed."""
        if maxdepth is not None:
            raise NotImplementedError("maxdepth: directories are removed as a whole")
        for one in await self._expand_path(path):
            if await self._type(one) != "directory" or (not recursive and await self._is_link(one)):
                await self._rm_file(one)
            elif recursive:
                async with self._changing(one):
                    await result_of(self._storages.remove_tree, self._url(one))
            else:
                raise IsADirectoryError(f"{self._url(one)} is a directory")

    async def _is_link(self, path: str) -> bool:
        """Returns whether a path is a link, which only listings tell."""
        entries = [] if path == self.root_marker else await self._ls(self._parent(path))
        return any(entry["name"] == path and entry["islink"] for entry in entries)

    async def _mv(self, path1: str, path2: str, **_: Any) -> None:
        """Renames a file or a directory; into `path2` if that is a directory, otherwise in place of an existing file."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if await self._isdir(path2):
            path2 = f"{path2.rstrip('/')}/{path1.rpartition('/')[2]}"
        async with self._changing(path1, path2):
            await result_of(self._storages.rename, self._url(path1), self._url(path2), True)

    async def _chmod(self, path: str, mode: int) -> None:
        """Changes the permission bits."""
        await result_of(self._storages.set_mode, self._url(path), mode)

    # fsspec itself does not have these as coroutines. Its `rmdir` would do nothing.
    rmdir = sync_wrapper(_rmdir)
    mv = sync_wrapper(_mv)
    chmod = sync_wrapper(_chmod)
    checksum = sync_wrapper(_checksum)
    ukey = sync_wrapper(_ukey)
    modified = sync_wrapper(_modified)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Closes the file at `path`, or all of them, and forgets its version. Files below it stay: listings are not kept, and fsspec calls
        this for the directory of a file that was written."""
        self._open_files.drop(None if path is None else self._read_url(path), is_tree=False)


class RootFileSystem(StorageFileSystem):
    """A storage over the xroot protocol; `roots` requires TLS."""

    protocol = ("root", "roots", "xroot", "xroots", "towpath")

    def unstrip_protocol(self, name: str) -> str:
        """Returns the URL of a path."""
        return f"{self.scheme}://{self.hostid}/{self._strip_protocol(name)}"

    def _url(self, path: str) -> str:
        return self.unstrip_protocol(path).replace("towpath://", "root://", 1)


class HttpFileSystem(StorageFileSystem):
    """A storage over HTTP and WebDAV."""

    protocol = ("davs", "dav", "https", "http")
    has_encoded_paths = True

    def _agent_prefix(self, agent: str) -> str:
        return agent.replace("root://", "http://", 1).rstrip("/") + "/" if agent else ""


class S3FileSystem(StorageFileSystem):
    """A bucket. Keys, region and endpoint are those of the commands (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …)."""

    protocol = ("s3",)
    has_encoded_paths = True

    def _read_url(self, path: str) -> str:
        return self._url(path)


_KINDS = {protocol: kind for kind in (RootFileSystem, HttpFileSystem, S3FileSystem) for protocol in kind.protocol}


def register() -> None:
    """Replaces the file systems of fsspec for all protocols of towpath in this process, `http`, `https` and `s3` among them."""
    for protocol, kind in _KINDS.items():
        fsspec.register_implementation(protocol, kind, clobber=True)


def locate(url: str, **options: Any) -> tuple[StorageFileSystem, str]:
    """Returns the file system of a URL, whatever is registered with fsspec, and the path there. `options` are those of the file system.

    Raises `ValueError` for a URL of another protocol.
    """
    kind = _KINDS.get(url.partition("://")[0]) if "://" in url else None
    if kind is None:
        raise ValueError(f"{url}: expected a URL that begins with one of {', '.join(_KINDS)} and ://")
    return kind(**(kind._get_kwargs_from_urls(url) | options)), kind._strip_protocol(url)


def _offset(place: int, size: int) -> int:
    """Returns an offset from the start of a file; a negative one is from its end."""
    return min(place, size) if place >= 0 else max(size + place, 0)
