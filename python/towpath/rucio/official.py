"""Access to Rucio's official client, which is imported on first use."""

from typing import Any

import towpath

MISSING = "Rucio's client is not installed here: pip install rucio-clients"

DEFECT, NOT_FOUND, DENIED, INVALID, UNAVAILABLE = (
    kind.exit_code for kind in (towpath.Internal, towpath.NotFound, towpath.Denied, towpath.Invalid, towpath.Unavailable)
)

# Exit codes by the name of the exception class. `RucioException` is the base class of Rucio's other exceptions.
EXIT_CODES = {
    "AccessDenied": DENIED,
    "CannotAuthenticate": DENIED,
    "NoAuthInformation": DENIED,
    "DataIdentifierNotFound": NOT_FOUND,
    "RSENotFound": NOT_FOUND,
    "RSEProtocolNotSupported": NOT_FOUND,
    "ScopeNotFound": NOT_FOUND,
    "DatabaseException": UNAVAILABLE,
    "ServerConnectionException": UNAVAILABLE,
    "RucioException": INVALID,
}


class Missing(Exception):
    """Rucio or one of its dependencies is not installed."""


def client() -> Any:
    """Returns an authenticated client of the Rucio server that rucio.cfg and the environment name.

    Raises `Missing` if Rucio's client cannot be imported.
    """
    try:
        from rucio.client import Client
    except ImportError as error:
        raise Missing(f"{MISSING} ({error})") from error
    return Client()


def location() -> dict[str, Any]:
    """Returns the location of this machine (`ip`, `fqdn`, `site`) as Rucio's own commands send it."""
    from rucio.common.client import detect_client_location

    return dict(detect_client_location())


def scope_and_name(did: str) -> tuple[str, str]:
    """Splits `did` into scope and name by the scope extraction algorithm that is configured for this experiment."""
    from rucio.common.utils import extract_scope

    scope, name = extract_scope(did)
    return scope, name


def is_refusal(error: Exception) -> bool:
    """Returns whether Rucio denied the request: authentication failed, or the account lacks the permission."""
    return exit_code(error) == DENIED


def exit_code(error: Exception) -> int:
    """Returns the exit code for an exception of Rucio's client.

    An `OSError` maps to `UNAVAILABLE`, any other exception that is not Rucio's to `DEFECT`.
    """
    for kind in type(error).__mro__:
        if kind.__name__ in EXIT_CODES:
            return EXIT_CODES[kind.__name__]
    return UNAVAILABLE if isinstance(error, OSError) else DEFECT
