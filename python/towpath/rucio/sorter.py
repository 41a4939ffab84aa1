"""Rucio's `sort_replicas` with one sorter more: `alto;stmt="BY delay_ow WHERE continent='EU'"`, or `alto` alone.

`Sorter` stands in the place of Rucio's function and hands all other sorters on to it. What an ALTO server said is kept for a
minute. If it does not answer, replicas come in the order that Rucio gives by default, and the log says so: a download that
takes a longer way is better than none. This module knows nothing of Rucio but the form of that function.
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

# A statement has at most 4096 bytes; the rest is for its name.
MAX_SELECTION = 4200

# Responses are cached for a minute and failures for half a minute: a listing of 10,000 files must not wait for the server
# 10,000 times.
ANSWERS, ANSWERS_HOLD_S = 1000, 60.0
SILENCES, SILENCES_HOLD_S = 1000, 30.0
# Consecutive failures after which no request is sent for any client until they expire.
MAX_FAILED_IN_A_ROW = 5
# In place of a client, and of a statement.
ANY = ""
WARNINGS_APART_S = 60.0

# A listing of replicas, and a process of the server, wait this long at most.
DEFAULT_TIMEOUT_S, MAX_TIMEOUT_S = 5.0, 60.0

# A client knows the server's directory, which may change.
CLIENTS_HOLD_S = 60.0

# Behind whatever was judged.
LAST = judgement.Rank(1 << 32, False)

# How Rucio's function and its replacement are called.
SortReplicas = Callable[..., list[str]]
Value = TypeVar("Value")


class StatementError(ValueError):
    """The sorter's text is not what it should be; says where."""


@lru_cache(maxsize=1000)
def keys_of(statement: str) -> tuple[str, ...]:
    """The names by which `statement` orders."""
    try:
        return judgement.keys_of(statement)
    except ValueError as error:
        raise StatementError(f"alto: {error}") from error


def is_ours(selection: object) -> TypeGuard[str]:
    """Whether `selection`, the name of a sorter as Rucio was given it, means this one."""
    return isinstance(selection, str) and selection.partition(";")[0].strip() == NAME


def statement_of(selection: str, default: str) -> str:
    """The statement in `alto;stmt="…"`; quotes around it may be left out. Of `alto` alone it is the default."""
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
            raise StatementError(f"alto: expected a closing {text[0]} behind the statement, as in {EXAMPLE}")
        text = text[1:-1]
    return text


def client_address(location: Mapping[str, Any]) -> str | None:
    """The address of the client, if Rucio knows it. Of several, as proxies list them, the first is the client's."""
    first = str(location.get("ip") or "").partition(",")[0].strip()
    try:
        address = ipaddress.ip_address(first.partition("%")[0])
    except ValueError:
        return None
    return str(getattr(address, "ipv4_mapped", None) or address)


def by_priority(replicas: Mapping[str, Any]) -> list[str]:
    """The replicas by the priorities that Rucio's callers give them, if they give some."""

    def priority(pfn: str) -> int:
        about = replicas[pfn]
        return about[1] if isinstance(about, tuple) and len(about) == 4 else 0

    return sorted(replicas, key=priority)


@dataclass(frozen=True)
class Settings:
    """Whom to ask, and by what replicas are ordered if nobody says."""

    ird: str | None
    config: str | None
    statement: str = judgement.DEFAULT_STATEMENT
    timeout_s: float = DEFAULT_TIMEOUT_S

    @classmethod
    def read(cls, environment: Mapping[str, str], option: Callable[[str], str | None]) -> "Settings":
        """From TOWPATH_ALTO_IRD and the like, else by `option`, which looks into the section `[alto]` of rucio.cfg.

        Raises ValueError if no server is named, or a value makes no sense.
        """

        def value(name: str) -> str | None:
            return environment.get(f"TOWPATH_ALTO_{name.upper()}") or option(name) or None

        ird, config = value("ird"), value("config")
        if not ird and not config:
            raise ValueError("no ALTO server is named: TOWPATH_ALTO_IRD, or ird in the section [alto] of rucio.cfg")
        if config and not os.access(config, os.R_OK):
            raise ValueError(f"{config}, which says what metrics are, cannot be read")
        statement = value("statement") or judgement.DEFAULT_STATEMENT
        keys_of(statement)
        return cls(ird, config, statement, seconds(value("timeout")))


def seconds(text: str | None) -> float:
    """How long an answer is waited for."""
    try:
        found = float(text) if text else DEFAULT_TIMEOUT_S
    except ValueError:
        found = 0.0
    if not 0 < found <= MAX_TIMEOUT_S:
        raise ValueError(f"timeout: expected seconds, up to {MAX_TIMEOUT_S:g}, not {text!r}")
    return found


class Recent(Generic[Value]):
    """What was learnt a short while ago, and no more of it than there is room for: the oldest goes. For all threads."""

    def __init__(self, room: int, hold_s: float, clock: Callable[[], float]) -> None:
        self._room, self._hold_s, self._clock = room, hold_s, clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Value | None:
        """What was kept under `key`, unless that is too long ago."""
        with self._lock:
            since, value = self._entries.get(key, (None, None))
            if since is not None and self._clock() - since >= self._hold_s:
                del self._entries[key]
                return None
            return value

    def keep(self, key: Hashable, value: Value) -> None:
        """Keeps `value` from now on."""
        with self._lock:
            self._entries[key] = (self._clock(), value)
            self._entries.move_to_end(key)
            while len(self._entries) > self._room:
                self._entries.popitem(last=False)


class Sorter:
    """In the place of Rucio's `sort_replicas`; called as that is, by many threads."""

    def __init__(
        self,
        original: SortReplicas,
        settings: Settings,
        connect: Callable[..., alto.Client],
        refusal: type[Exception] = StatementError,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`original` is Rucio's function, `connect` makes an `alto.Client`, and `refusal` is what Rucio answers with status 400."""
        self._original, self._settings, self._connect, self._refusal = original, settings, connect, refusal
        self._clients: Recent[alto.Client] = Recent(1, CLIENTS_HOLD_S, clock)
        self._answers: Recent[dict[str, judgement.Rank]] = Recent(ANSWERS, ANSWERS_HOLD_S, clock)
        self._silences: Recent[bool] = Recent(SILENCES, SILENCES_HOLD_S, clock)
        self._failed_in_a_row = 0
        self._warned: Recent[bool] = Recent(1, WARNINGS_APART_S, clock)

    def __call__(
        self,
        dictreplica: dict[str, Any],
        client_location: Mapping[str, Any],
        selection: str | None = None,
    ) -> list[str]:
        """The replicas in their order. Names of arguments are Rucio's, whose callers use them."""
        if not is_ours(selection):
            return self._original(dictreplica, client_location, selection=selection)
        found = {pfn: judgement.host_of(pfn) for pfn in dictreplica}
        try:
            statement = statement_of(selection, self._settings.statement)
            keys = keys_of(statement)
            ranks = self._ranks(client_address(client_location), filter(None, found.values()), statement, keys)
        except StatementError as error:
            # Rucio puts the message into a header, too.
            raise self._refusal(str(error).encode("ascii", "backslashreplace").decode()) from error
        if ranks is None:
            return self._original(dictreplica, client_location)
        # Replicas of equal rank keep Rucio's order: its default, or the priority if there are no ties.
        is_tied = len({rank.number for rank in ranks.values()}) < len(ranks)
        given = self._original(dictreplica, client_location) if is_tied else by_priority(dictreplica)
        return sorted(given, key=lambda pfn: ranks.get(found[pfn] or "", LAST))

    def _ranks(
        self, client: str | None, hosts: Iterable[str], statement: str, keys: Sequence[str]
    ) -> dict[str, judgement.Rank] | None:
        """The ranks of hosts by name; None if no server answers."""
        names = frozenset(hosts)
        if not names:
            return {}
        if client is None:
            self._warn("Rucio does not know the client's address")
            return None
        asked = (client, names, statement)
        ranks = self._answers.get(asked)
        if ranks is None and not any(map(self._silences.get, [(client, statement), (ANY, statement), (ANY, ANY)])):
            try:
                ranks = self._survey(client, sorted(names), statement, keys)
                self._answers.keep(asked, ranks)
                self._failed_in_a_row = 0
            except towpath.Invalid as error:
                # A statement with properties that the server lacks is the caller's error, unless it is the default.
                if statement != self._settings.statement:
                    raise StatementError(f"alto: {error}") from error
                self._be_silent(ANY, statement, error)
            except (towpath.Error, OSError, ValueError) as error:  # the last two: of settings that do not hold any more
                self._failed_in_a_row += 1
                is_for_all = self._failed_in_a_row >= MAX_FAILED_IN_A_ROW
                self._be_silent(*((ANY, ANY) if is_for_all else (client, statement)), error)
        return ranks

    def _be_silent(self, client: str, statement: str, why: Exception) -> None:
        """Asks nothing more of that client by that statement for a while."""
        self._silences.keep((client, statement), True)
        self._warn(why)

    def _survey(self, client: str, hosts: list[str], statement: str, keys: Sequence[str]) -> dict[str, judgement.Rank]:
        urls = {judgement.url_of(host): host for host in hosts}
        places = self._client().rank(list(urls), statement, client=client)
        return {urls[url]: rank for url, rank in judgement.ranks(places, keys).items() if url in urls}

    def _client(self) -> alto.Client:
        """Whom to ask: for a while the same client, but one of this process."""
        process = os.getpid()
        client = self._clients.get(process)
        if client is None:
            settings = self._settings
            try:
                client = self._connect(settings.ird, config=settings.config, timeout=settings.timeout_s)
            except towpath.Invalid as error:  # of our settings, and not of the statement
                raise towpath.Unavailable(str(error)) from error
            self._clients.keep(process, client)
        return client

    def _warn(self, why: object) -> None:
        if not self._warned.get(None):
            self._warned.keep(None, True)
            LOG.warning("replicas are in the order that Rucio has by default: %s", why)
