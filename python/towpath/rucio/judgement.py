"""What is better than what: the places that `towpath.alto.rank` gives, as numbers from 1.

Replicas of which the same is known have the same number. Those of which the statement knows nothing come behind, by where they
are on the globe if that is known, and are told apart, because a number says too much about them.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from towpath import alto

DEFAULT_STATEMENT = "BY routingcost"

# The order of replicas for which no key of the statement is known.
BACKUP = "priv:geo-distance"

# A key is never in quotes, so the first WHERE ends them; names may have dots, dashes and colons in them.
WHERE = re.compile(r"(?<![\w.:-])WHERE(?![\w.:-])", re.IGNORECASE | re.ASCII)

# Maximum length of a host name in bytes (RFC 1035).
MAX_HOST = 253


class Rank(NamedTuple):
    """The place of one replica among the others."""

    number: int
    """From 1; equal where nothing sets two apart."""
    is_known: bool
    """Whether a key of the statement is known for the replica; the geographical distance does not count."""


def keys_of(statement: str) -> tuple[str, ...]:
    """The names by which `statement` orders, without those of its condition.

    Raises ValueError, with the column, if it is no statement.
    """
    names = alto.Statement(statement).names
    where = WHERE.search(statement)
    return tuple(alto.Statement(statement[: where.start()]).names if where else names)


def ranks(places: Iterable[alto.Place], keys: Sequence[str]) -> dict[str, Rank]:
    """The ranks of replicas by URL, of places in their order."""
    found: dict[str, Rank] = {}
    number, before = 0, None
    for place in places:
        values = tuple(place.values.get(key) for key in keys)
        is_known = any(value is not None for value in values)
        if not is_known:
            values = (*values, place.values.get(BACKUP))
        # An unknown condition counts as an unmet one.
        judged = (place.holds is True, values)
        if judged != before:
            number, before = number + 1, judged
        found.setdefault(place.url, Rank(number, is_known))
    return found


def host_of(url: str) -> str | None:
    """The host that has the replica at `url`. Of a URL in a URL (`root://proxy//root://host//path`) the last one counts: the
    others only pass the data on.
    """
    _, scheme, rest = re.split(r"[?#]", url, maxsplit=1)[0].rpartition("://")
    authority = rest.split("/", 1)[0].rpartition("@")[2]
    host = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    is_host = scheme and 0 < len(host) <= MAX_HOST and re.fullmatch(r"[A-Za-z0-9._:-]+", host)
    return host.lower() if is_host else None


def url_of(host: str) -> str:
    """A URL of some replica at `host`, a name or an address."""
    return f"https://[{host}]/" if ":" in host else f"https://{host}/"


def addresses(host: str) -> list[str]:
    """The addresses of `host`, that first which the system would try first; none if it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # no such host; a name that cannot be asked for
        return []
    named = (str(address) for *_, (address, *_) in found)
    return [address for address in named if is_address(address)]


def is_address(text: str) -> bool:
    """Whether `text` is an IP address that means the same on every machine."""
    try:
        return getattr(ipaddress.ip_address(text), "scope_id", None) is None
    except ValueError:
        return False
