"""Rucio's official client, imported when it is needed."""

from typing import Any

import towpath

MISSING = "Rucio's client is not installed here: pip install rucio-clients"

DEFECT, NOT_FOUND, DENIED, INVALID, UNAVAILABLE = (
    kind.exit_code for kind in (towpath.Internal, towpath.NotFound, towpath.Denied, towpath.Invalid, towpath.Unavailable))

# By names of Rucio's exceptions; all others say that the request cannot work as it stands.
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
    """Rucio, or what it needs to run, is not there."""


def client() -> Any:
    """A client of the server that rucio.cfg and the environment name, signed in."""
    try:
        from rucio.client import Client
    except ImportError as error:
        raise Missing(f"{MISSING} ({error})") from error
    return Client()


def location() -> dict[str, Any]:
    """Where this machine is, as Rucio's own commands tell it."""
    from rucio.common.client import detect_client_location

    return dict(detect_client_location())


def scope_and_name(did: str) -> tuple[str, str]:
    """The scope and the name of `did`, by the convention that is set for this experiment."""
    from rucio.common.utils import extract_scope

    scope, name = extract_scope(did)
    return scope, name


def is_refusal(error: Exception) -> bool:
    """Whether Rucio does not permit it, or does not know who asks."""
    return exit_code(error) == DENIED


def exit_code(error: Exception) -> int:
    """The exit code that says what is in the way."""
    for kind in type(error).__mro__:
        if kind.__name__ in EXIT_CODES:
            return EXIT_CODES[kind.__name__]
    return UNAVAILABLE if isinstance(error, OSError) else DEFECT
