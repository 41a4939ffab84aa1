"""Numeric ranks of replicas, computed from the ordered replicas of `towpath.alto.rank`.

Replicas with equal values have equal ranks. Replicas without any known key of the statement follow the others, ordered by
geographical distance if that is known. `Rank.is_known` marks them, because their number does not express a network cost.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from towpath import alto

DEFAULT_STATEMENT = "BY routingcost"

# Property that orders the replicas without any known key of the statement.
BACKUP = "priv:geo-distance"

# Keys are never quoted, so the first WHERE ends them. Names may contain dots, dashes and colons.
WHERE = re.compile(r"(?<![\w.:-])WHERE(?![\w.:-])", re.IGNORECASE | re.ASCII)

# Maximum length of a host name in bytes (RFC 1035).
MAX_HOST = 253


class Rank(NamedTuple):
    """Rank of one replica of a file."""

    number: int
    """1 for the best replica; equal for replicas with equal values."""
    is_known: bool
    """Whether at least one key of the statement is known for the replica. The geographical distance does not count."""


def keys_of(statement: str) -> tuple[str, ...]:
    """Returns the names by which `statement` orders, without the names of its condition.

    Raises `ValueError` with the column if the statement is malformed.
    """
    names = alto.Statement(statement).names
    where = WHERE.search(statement)
    return tuple(alto.Statement(statement[: where.start()]).names if where else names)


def ranks(places: Iterable[alto.Place], keys: Sequence[str]) -> dict[str, Rank]:
    """Returns the rank of each replica by URL.

    - `places`: the replicas, best first, as `towpath.alto.rank` returns them.
    - `keys`: the keys of the statement, as `keys_of` returns them.
    """
    found: dict[str, Rank] = {}
    number, previous = 0, None
    for place in places:
        values = tuple(place.values.get(key) for key in keys)
        is_known = any(value is not None for value in values)
        if not is_known:
            values = (*values, place.values.get(BACKUP))
        # A condition with an unknown result counts as not met.
        current = (place.holds is True, values)
        if current != previous:
            number, previous = number + 1, current
        found.setdefault(place.url, Rank(number, is_known))
    return found


def host_of(url: str) -> str | None:
    """Returns the host that stores the replica at `url`, in lower case; None if the URL has no valid host.

    In a nested URL (`root://proxy//root://host//path`) it is the host of the innermost URL; the outer hosts are proxies.
    """
    _, scheme, rest = re.split(r"[?#]", url, maxsplit=1)[0].rpartition("://")
    authority = rest.split("/", 1)[0].rpartition("@")[2]
    host = authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]
    is_host = scheme and 0 < len(host) <= MAX_HOST and re.fullmatch(r"[A-Za-z0-9._:-]+", host)
    return host.lower() if is_host else None


def url_of(host: str) -> str:
    """Returns an HTTPS URL with the name or IP address `host`; IPv6 addresses are put into brackets."""
    return f"https://[{host}]/" if ":" in host else f"https://{host}/"


def addresses(host: str) -> list[str]:
    """Returns the IP addresses of `host` in the order of preference of the system; empty if it cannot be resolved."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the host does not exist, or the name cannot be encoded
        return []
    resolved = (str(address) for *_, (address, *_) in found)
    return [address for address in resolved if is_address(address)]


def is_address(text: str) -> bool:
    """Returns whether `text` is an IP address without a scope id, which would be valid on one machine only."""
    try:
        return getattr(ipaddress.ip_address(text), "scope_id", None) is None
    except ValueError:
        return False
