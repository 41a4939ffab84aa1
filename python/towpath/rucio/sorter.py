"""The sorter `alto` for Rucio: `alto;stmt="BY delay_ow WHERE continent='EU'"`, or `alto` for the default statement.

`Sorter` replaces Rucio's function `sort_replicas` and forwards all other sorters to it. Responses of the ALTO server are cached for
a minute. If the server does not respond, replicas keep Rucio's default order and a warning is logged: a download from a distant
replica is better than a failed one. The signature of `sort_replicas` is the only part of Rucio that this module depends on.
"""

import ipaddress
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, TypeGuard, TypeVar

import towpath
from towpath import alto
from towpath.rucio import judgement

LOG = logging.getLogger(__name__)

NAME = "alto"
EXAMPLE = 'alto;stmt="BY delay_ow"'

# Maximum length of a sorter text in characters: a statement has at most 4096 bytes, the rest is for `alto;stmt=`.
MAX_SELECTION = 4200

# Responses are cached for a minute and failures for half a minute, so that a listing of 10,000 files does not send 10,000
# requests. `ANSWERS` and `SILENCES` are the maximum numbers of cached responses and failures.
ANSWERS, ANSWERS_HOLD_S = 1000, 60.0
SILENCES, SILENCES_HOLD_S = 1000, 30.0
# Consecutive failures after which no request is sent for any client until the failure expires.
MAX_FAILED_IN_A_ROW = 5
# Wildcard for the client or the statement in the key of a cached failure.
ANY = ""
# Minimum interval between two warnings.
WARNINGS_APART_S = 60.0

# Timeout of a request to the ALTO server. A listing of replicas, and its worker in Rucio's server, wait for the response.
DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 5.0, 60.0

# Lifetime of an ALTO client. It reads the directory of the server once, and the directory may change.
CLIENTS_HOLD_S = 60.0

# Sorts replicas without a rank, such as those without a host, after all others.
LAST = judgement.Rank(1 << 32, False)

# Type of Rucio's function `sort_replicas` and its replacement.
SortReplicas = Callable[..., list[str]]
Value = TypeVar("Value")


class StatementError(ValueError):
    """The text of the sorter is malformed; the message says where."""


@lru_cache(maxsize=1000)
def keys_of(statement: str) -> tuple[str, ...]:
    """Returns the names by which `statement` orders, without the names of its condition.

    Raises `StatementError` with the column if the statement is malformed.
    """
    try:
        return judgement.keys_of(statement)
    except ValueError as error:
        raise StatementError(f"alto: {error}") from error


def is_ours(selection: object) -> TypeGuard[str]:
    """Returns whether `selection`, the sorter that a client of Rucio selects, is `alto` with or without options."""
    return isinstance(selection, str) and selection.partition(";")[0].strip() == NAME


def statement_of(selection: str, default: str) -> str:
    """Returns the statement in `alto;stmt="…"`, or `default` if `selection` is `alto` alone. The quotes are optional.

    Raises `StatementError` if `selection` is longer than `MAX_SELECTION`, has another option, or lacks the closing quote.
    """
    if len(selection) > MAX_SELECTION:
        raise StatementError(f"alto: at most {MAX_SELECTION} characters, not {len(selection)}")
    rest = selection.partition(";")[2].strip().removesuffix(";").strip()
    if not rest:
        return default
    option, equals, text = (part.strip() for part in rest.partition("="))
    if option.lower() != "stmt" or not equals:
        raise StatementError(f"alto: expected stmt, as in {EXAMPLE}, not {option[:32]!r}")
    if text[:1] in ('"', "'"):
        if len(text) < 2 or text[-1] != text[0]:
            raise StatementError(f"alto: expected a closing {text[0]} after the statement, as in {EXAMPLE}")
        text = text[1:-1]
    return text


def client_address(location: Mapping[str, Any]) -> str | None:
    """Returns the IP address of the client in canonical form, or None if `location` has no valid one.

    If proxies list several addresses separated by commas, the first is the client's. A scope id is removed, and an IPv4-mapped
    IPv6 address becomes an IPv4 address.
    """
    first = str(location.get("ip") or "").partition(",")[0].strip()
    try:
        address = ipaddress.ip_address(first.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def by_priority(replicas: Mapping[str, Any]) -> list[str]:
    """Returns the URLs of `replicas` by ascending priority; replicas without a priority come first, in the given order."""

    def priority(pfn: str) -> int:
        # (domain, priority, RSE, client_extract) from the view `replicas`; the view `redirect` passes the name of the RSE.
        details = replicas[pfn]
        return details[1] if isinstance(details, tuple) and len(details) == 4 else 0

    return sorted(replicas, key=priority)


@dataclass(frozen=True)
class Settings:
    """Settings of the sorter."""

    ird: str | None
    """URL of the directory of the ALTO server; None: `default-ird` in the file `config`."""
    config: str | None
    """Path of a TOML file that defines metrics."""
    statement: str = judgement.DEFAULT_STATEMENT
    """The statement of the sorter `alto` without options."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Timeout of a request to the ALTO server in seconds."""

    @classmethod
    def read(cls, environment: Mapping[str, str], option: Callable[[str], str | None]) -> "Settings":
        """Reads the settings.

        - `environment`: environment variables; `TOWPATH_ALTO_IRD`, `_CONFIG`, `_STATEMENT` and `_TIMEOUT` take precedence.
        - `option`: returns an option of the section `[alto]` of rucio.cfg by name.

        Raises `ValueError` if neither `ird` nor `config` is set, `config` is not readable, or a value is invalid.
        """

        def value(name: str) -> str | None:
            return environment.get(f"TOWPATH_ALTO_{name.upper()}") or option(name) or None

        ird, config = value("ird"), value("config")
        if not ird and not config:
            raise ValueError("no ALTO server is named: set TOWPATH_ALTO_IRD, or ird in the section [alto] of rucio.cfg")
        if config and not os.access(config, os.R_OK):
            raise ValueError(f"{config}: the file with the metrics cannot be read")
        statement = value("statement") or judgement.DEFAULT_STATEMENT
        keys_of(statement)
        return cls(ird, config, statement, seconds(value("timeout")))


def seconds(text: str | None) -> float:
    """Returns `text` as a timeout in seconds, or `DEFAULT_TIMEOUT_S` if it is empty.

    Raises `ValueError` unless the timeout is above 0 and at most `MAX_TIMEOUT_S`.
    """
    try:
        timeout_s = float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise ValueError(f"timeout: expected a number of seconds above 0, at most {MAX_TIMEOUT_S:g}, not {text!r}")
    return timeout_s


class Recent(Generic[Value]):
    """A thread-safe cache of at most `room` entries that expire `hold_s` seconds after they are stored.

    If the cache is full, the oldest entry is evicted. `clock` returns monotonic seconds.
    """

    def __init__(self, room: int, hold_s: float, clock: Callable[[], float]) -> None:
        self._room, self._hold_s, self._clock = room, hold_s, clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        """Returns the value of `key`, or None if it is missing or expired."""
        with self._lock:
            since, value = self._entries.get(key, (None, None))
            if since is not None and self._clock() - since >= self._hold_s:
                del self._entries[key]
                return None
            return value

    def keep(self, key: Hashable, value: Value) -> None:
        """Stores `value` under `key` and restarts its lifetime."""
        with self._lock:
            self._entries[key] = (self._clock(), value)
            self._entries.move_to_end(key)
            while len(self._entries) > self._room:
                self._entries.popitem(last=False)


class Sorter:
    """Replacement of Rucio's `sort_replicas` that adds the sorter `alto`. Instances may be called from several threads."""

    def __init__(
        self,
        original: SortReplicas,
        settings: Settings,
        connect: Callable[..., alto.Client],
        refusal: type[Exception] = StatementError,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Creates the sorter.

        - `original`: Rucio's `sort_replicas`, called for other sorters and for the default order.
        - `connect`: returns an `alto.Client`; called with `ird` and the keyword arguments `config` and `timeout`.
        - `refusal`: the exception to raise for an invalid statement; Rucio responds to it with status 400.
        - `clock`: returns monotonic seconds.
        """
        self._original, self._settings, self._connect, self._refusal = original, settings, connect, refusal
        self._clients: Recent[alto.Client] = Recent(1, CLIENTS_HOLD_S, clock)
        self._responses: Recent[dict[str, judgement.Rank]] = Recent(ANSWERS, ANSWERS_HOLD_S, clock)
        self._failures: Recent[bool] = Recent(SILENCES, SILENCES_HOLD_S, clock)
        self._failed_in_a_row = 0
        self._warned: Recent[bool] = Recent(1, WARNINGS_APART_S, clock)

    def __call__(
        self,
        dictreplica: dict[str, Any],
        client_location: Mapping[str, Any],
        selection: str | None = None,
    ) -> list[str]:
        """Returns the URLs of `dictreplica`, best replica first. The names of the arguments are those of `sort_replicas`.

        - `dictreplica`: details of each replica by URL.
        - `client_location`: the location of the client; its `ip` is used.
        - `selection`: the sorter, such as `alto;stmt="BY delay_ow"`; any other sorter than `alto` is left to Rucio.

        Raises the exception class `refusal` if the statement is malformed or uses names that the ALTO server does not have.
        """
        if not is_ours(selection):
            return self._original(dictreplica, client_location, selection=selection)
        hosts = {pfn: judgement.host_of(pfn) for pfn in dictreplica}
        try:
            statement = statement_of(selection, self._settings.statement)
            keys = keys_of(statement)
            ranks = self._ranks(client_address(client_location), filter(None, hosts.values()), statement, keys)
        except StatementError as error:
            # Rucio also sends the message in a header, so it must be ASCII.
            raise self._refusal(str(error).encode("ascii", "backslashreplace").decode()) from error
        if ranks is None:
            return self._original(dictreplica, client_location)
        # Replicas of equal rank keep Rucio's default order. If all hosts differ in rank, only replicas at the same host or
        # without a host are tied; they keep their priorities, and Rucio's function is not called.
        is_tied = len({rank.number for rank in ranks.values()}) < len(ranks)
        given = self._original(dictreplica, client_location) if is_tied else by_priority(dictreplica)
        return sorted(given, key=lambda pfn: ranks.get(hosts[pfn] or "", LAST))

    def _ranks(self, client: str | None, hosts: Iterable[str], statement: str, keys: Sequence[str]) -> dict[str, judgement.Rank] | None:
        """Returns the ranks by host; None if they are not available, in which case Rucio's default order applies.

        Raises `StatementError` if the ALTO server does not have a name in a statement other than the default.
        """
        names = frozenset(hosts)
        if not names:
            return {}
        if client is None:
            self._warn("Rucio does not know the client's address")
            return None
        query = (client, names, statement)
        ranks = self._responses.get(query)
        if ranks is None and not any(map(self._failures.get, [(client, statement), (ANY, statement), (ANY, ANY)])):
            try:
                ranks = self._request_ranks(client, sorted(names), statement, keys)
                self._responses.keep(query, ranks)
                self._failed_in_a_row = 0
            except towpath.Invalid as error:
                # Unknown names in a statement are the caller's error, unless it is the default statement.
                if statement != self._settings.statement:
                    raise StatementError(f"alto: {error}") from error
                self._record_failure(ANY, statement, error)
            except (towpath.Error, OSError, ValueError) as error:  # OSError, ValueError: settings that became invalid
                self._failed_in_a_row += 1
                affects_all = self._failed_in_a_row >= MAX_FAILED_IN_A_ROW
                self._record_failure(*((ANY, ANY) if affects_all else (client, statement)), error)
        return ranks

    def _record_failure(self, client: str, statement: str, error: Exception) -> None:
        """Suspends requests for that client and statement for `SILENCES_HOLD_S`; `ANY` matches all."""
        self._failures.keep((client, statement), True)
        self._warn(error)

    def _request_ranks(self, client: str, hosts: list[str], statement: str, keys: Sequence[str]) -> dict[str, judgement.Rank]:
        """Requests the costs from the ALTO server and returns the ranks by host."""
        urls = {judgement.url_of(host): host for host in hosts}
        places = self._client().rank(list(urls), statement, client=client)
        return {urls[url]: rank for url, rank in judgement.ranks(places, keys).items() if url in urls}

    def _client(self) -> alto.Client:
        """Returns the ALTO client of this process, which is replaced after `CLIENTS_HOLD_S`.

        A client cannot be used after a fork, hence one per process id.
        """
        process = os.getpid()
        client = self._clients.get(process)
        if client is None:
            settings = self._settings
            try:
                client = self._connect(settings.ird, config=settings.config, timeout=settings.timeout_s)
            except towpath.Invalid as error:  # invalid settings, not an invalid statement
                raise towpath.Unavailable(str(error)) from error
            self._clients.keep(process, client)
        return client

    def _warn(self, reason: object) -> None:
        """Logs a warning, at most one per `WARNINGS_APART_S`."""
        if not self._warned.get(None):
            self._warned.keep(None, True)
            LOG.warning("using Rucio's default order of the replicas: %s", reason)
