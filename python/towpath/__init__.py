"""Python package of towpath, which moves, serves and reads scientific data over long distances.

- `towpath.alto`: an ALTO client. Requests path costs, subscribes to their changes, and orders replicas by cost.
- `towpath.lab`: measures, models and predicts the throughput of long paths (needs the extra `towpath[lab]`).
- `towpath.rucio`: orders replicas and maintains distances between storages in Rucio.
- `towpath.sched`: simulates schedulers of transfers, and computes fair shares of a network.

A failed request raises a subclass of `Error`; each subclass corresponds to one remedy. An invalid argument raises `ValueError` or
`TypeError`.
"""

__all__ = ["Conflict", "Corrupt", "Denied", "Error", "Internal", "Invalid", "NotFound", "Unavailable"]


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


class Internal(Error):
    """A defect of towpath or of the server. Report it."""
