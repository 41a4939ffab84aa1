"""towpath moves, serves and reads scientific data over long distances as fast as the path permits, and says why when it cannot.

`towpath.alto` asks ALTO servers what paths cost, follows what they say, and orders replicas by it. `towpath.rucio` brings that to Rucio.

What fails raises an `Error`; which one says what can be done about it. Arguments that make no sense raise `ValueError`.
"""

__all__ = ["Conflict", "Corrupt", "Denied", "Error", "Internal", "Invalid", "NotFound", "Unavailable"]


class Error(Exception):
    """Something could not be had. The message says whose fault that is."""


class NotFound(Error):
    """The thing asked for does not exist: ask for another one."""


class Denied(Error):
    """The caller may not do this: get other credentials, or ask the owner."""


class Invalid(Error):
    """The request can never work as it stands: change it."""


class Conflict(Error):
    """The state of the target is in the way: change that state, or wait until it changes."""


class Corrupt(Error):
    """What arrived cannot be trusted: ask again, elsewhere if possible."""


class Unavailable(Error):
    """The other side or the path to it does not work now: try again later, or elsewhere."""


class Internal(Error):
    """A defect on the side that reports it: nothing to do but to report it."""
