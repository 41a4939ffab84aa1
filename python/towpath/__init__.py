"""towpath moves, serves and reads scientific data over long distances as fast as the path permits, and says why when it cannot.

`towpath.alto` requests path costs from ALTO servers, follows their changes, and orders replicas by them. `towpath.rucio` does the
same for Rucio.

A failed call raises a subclass of `Error`, one for each remedy. Invalid arguments raise `ValueError`.
"""

__all__ = ["Conflict", "Corrupt", "Denied", "Error", "Internal", "Invalid", "NotFound", "Unavailable"]


class Error(Exception):
    """A call failed. The message names the party at fault. `exit_code` is that of the command line (docs/reference/cli.md)."""

    exit_code = 1


class NotFound(Error):
    """The thing asked for does not exist: ask for another one."""

    exit_code = 3


class Denied(Error):
    """The caller may not do this: get other credentials, or ask the owner."""

    exit_code = 4


class Invalid(Error):
    """The request can never work as it stands: change it."""

    exit_code = 5


class Conflict(Error):
    """The state of the target is in the way: change that state, or wait until it changes."""

    exit_code = 6


class Corrupt(Error):
    """What arrived cannot be trusted: ask again, elsewhere if possible."""

    exit_code = 7


class Unavailable(Error):
    """The other side or the path to it does not work now: try again later, or elsewhere."""

    exit_code = 8


class Internal(Error):
    """A defect on the side that reports it: nothing to do but to report it."""
