"""Python package of towpath, which moves, serves and reads scientific data over long distances.

- `towpath.open` and `towpath.stat`: files at storages (need the extra `towpath[fs]`).
- `towpath.copy` and `towpath.probe`: copies, and measurements of paths, with progress in notebooks.
- `towpath.plan`: the byte ranges of columns of a ROOT file.
- `towpath.fs`: file systems of fsspec, for uproot, pandas, pyarrow, dask and zarr.
- `towpath.alto`: an ALTO client. Requests path costs, subscribes to their changes, and orders replicas by cost.
- `towpath.lab`: measures, models and predicts the throughput of long paths (needs the extra `towpath[lab]`).
- `towpath.rucio`: orders replicas and maintains distances between storages in Rucio.
- `towpath.sched`: simulates schedulers of transfers, and computes fair shares of a network.

A failed request raises a subclass of `Error`; each subclass corresponds to one remedy. An invalid argument raises `ValueError` or
`TypeError`.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Conflict",
    "Copied",
    "Corrupt",
    "Denied",
    "Error",
    "Internal",
    "Invalid",
    "NoSpace",
    "NotFound",
    "Progress",
    "Unavailable",
    "copy",
    "plan",
    "probe",
    "stat",
]


class Error(Exception):
    """Base class of the errors of this package.

    The message names the party at fault. `exit_code` is the exit code of the `towpath` command for this error (docs/reference/cli.md).
    """

    exit_code = 1


class NotFound(Error):
    """The requested object does not exist. Request another one."""

    exit_code = 3


class Denied(Error):
    """The caller lacks the permission. Use other credentials, or contact the owner."""

    exit_code = 4


class Invalid(Error):
    """The request is invalid and fails again if repeated. Change it."""

    exit_code = 5


class Conflict(Error):
    """The state of the target prevents the operation. Change that state, or wait until it changes."""

    exit_code = 6


class Corrupt(Error):
    """The received data is damaged or malformed. Retry, with another server if possible."""

    exit_code = 7


class Unavailable(Error):
    """The server or the network path to it is not available. Retry later, or with another server."""

    exit_code = 8


class NoSpace(Error):
    """The destination has no space. Free some, or use another one."""

    exit_code = 9


class Internal(Error):
    """A defect of towpath or of the server. Report it."""


def open(url: str, mode: str = "rb", *, encoding: str | None = None, **options: Any) -> Any:
    """Opens a file at a storage: `r` to read, `w` to replace it, `x` if there is none; as text, or with `b`.

    `encoding` is that of text; `options` are those of the file system (`token`, `ca_file`, `wait`). Raises `OSError`, and `ValueError`
    for a URL of another protocol.
    """
    from towpath.fs import locate

    storage, path = locate(url, **options)
    return storage.open(path, mode) if encoding is None else storage.open(path, mode, encoding=encoding)


def stat(url: str, **options: Any) -> dict[str, Any]:
    """Returns the properties of a file or directory: `name`, `size`, `type`, `mode`, and as far as the storage tells them `mtime`, `ETag`,
    `digests` and others.

    `options` are those of the file system. Raises `OSError`, and `ValueError` for a URL of another protocol.
    """
    from towpath.fs import locate

    storage, path = locate(url, **options)
    properties: dict[str, Any] = storage.info(path)
    return properties


# They use the errors above.
from towpath.commands import Copied, Progress, copy, plan, probe  # noqa: E402
