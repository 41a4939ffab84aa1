"""Distances between RSEs in Rucio, by what an ALTO server knows of the ways between them.

For each destination its sources are ranked, as replicas for a client there would be, and the ranks become Rucio's
distances: 1001 is the best source, and Rucio takes the smallest. Only what differs is written. A pair of which no key of the
statement is known stays as it is; so does one without a distance unless adding is asked for, because a distance is a
permission, and one whose distance is null: Rucio makes no transfers between the two, and somebody wanted that.

A run: `storages` finds the RSEs and their addresses, `Table` what Rucio has, `Run.of_all` surveys one destination after the
other and writes. A pair or a destination that fails is counted and passed over; when one after the other fails, the rest
is not tried.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import towpath
from towpath import alto
from towpath.rucio import judgement, official

LOG = logging.getLogger(__name__)

# A million pairs; the grid has some 600 storages.
MAX_RSES = 1000

# What stands before ranks, which are below MAX_RSES. Rucio adds up distances over hops: two of them are always more than a
# direct way, which so stays one.
BASE = MAX_RSES

# Hosts looked up at once.
LOOKUPS = 16

# Behind whatever priority a protocol has; 0 and none say that it is not for that.
NOT_FOR_THAT = 1 << 16

# Consecutive failures that end a run.
MAX_SURVEYS_FAILED = 5
MAX_PAIRS_FAILED = 20

Ranking = Callable[..., Sequence[alto.Place]]


class GivenUp(Exception):
    """One after the other failed: what is left was not tried."""


@dataclass(frozen=True)
class Storage:
    """An RSE, and the addresses of its host: those that the system would try first stand first."""

    name: str
    addresses: tuple[str, ...]

    def address_for(self, other: str) -> str:
        """The address from which somebody at `other` reads: of its family if there is such."""
        is_version_6 = ":" in other
        return next((address for address in self.addresses if (":" in address) == is_version_6), self.addresses[0])


def client_for(destination: Storage, sources: Sequence[Storage]) -> str:
    """The address of `destination` of a family that all `sources` have, else its first one: costs are told between addresses of one family."""
    def reaches_all(address: str) -> bool:
        return all(any((":" in one) == (":" in address) for one in source.addresses) for source in sources)

    return next(filter(reaches_all, destination.addresses), destination.addresses[0])


@dataclass
class Summary:
    """What a run did, in pairs but for `surveys_failed`."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    unknown: int = 0
    closed: int = 0
    failed: int = 0
    surveys_failed: int = 0

    def __str__(self) -> str:
        counts = f"{self.added} added, {self.updated} updated, {self.unchanged} unchanged"
        left = f"{self.unknown} unknown and {self.closed} closed left as they are"
        return f"distances: {counts}, {left}, {self.failed} failed; {self.surveys_failed} destinations failed"

    @property
    def is_whole(self) -> bool:
        """Whether nothing failed."""
        return not self.failed and not self.surveys_failed


def hosts(protocols: Iterable[Mapping[str, Any]]) -> list[str]:
    """The hosts of an RSE, that first from which third parties are to copy first."""

    def preference(protocol: Mapping[str, Any]) -> tuple[int, ...]:
        wan = (protocol.get("domains") or {}).get("wan") or {}
        return tuple(wan.get(operation) or NOT_FOR_THAT for operation in ("third_party_copy_read", "read"))

    named = (protocol.get("hostname") or "" for protocol in sorted(protocols, key=preference))
    return list(dict.fromkeys(host for host in named if judgement.host_of(judgement.url_of(host))))


def first_found(names: Sequence[str]) -> tuple[str, ...]:
    """The addresses of the first of several hosts that has some."""
    return tuple(next(filter(None, map(judgement.addresses, names)), ()))


def storages(rucio: Any, expression: str | None) -> list[Storage]:
    """The RSEs that `expression` names, or all, in the order of their names; without those that have no address."""
    names = sorted(rse["rse"] for rse in rucio.list_rses(rse_expression=expression))
    if len(names) > MAX_RSES:
        raise ValueError(f"there are {len(names)} RSEs, and {MAX_RSES} at once are possible: narrow them down with --rses")
    named = [hosts(protocols_of(rucio, name)) for name in names]
    pool = ThreadPoolExecutor(LOOKUPS)
    try:
        found = [Storage(name, addresses) for name, addresses in zip(names, pool.map(first_found, named), strict=True)]
    finally:
        # The end of a run waits only for lookups in flight.
        pool.shutdown(wait=False, cancel_futures=True)
    nowhere = [storage.name for storage in found if not storage.addresses]
    if nowhere:
        LOG.warning("%d RSEs have no address and are left out: %s", len(nowhere), ", ".join(nowhere[:5]))
    return [storage for storage in found if storage.addresses]


def protocols_of(rucio: Any, name: str) -> list[Mapping[str, Any]]:
    """The protocols of an RSE; none if it has none, or is gone."""
    try:
        protocols = rucio.get_protocols(name)
    except Exception as error:
        if official.exit_code(error) not in (official.NOT_FOUND, official.INVALID):
            raise
        return []
    return protocols if isinstance(protocols, list) else [protocols]


class Table:
    """The distances that Rucio has: asked for all at once where the account may do that, else one by one."""

    def __init__(self, rucio: Any) -> None:
        self._rucio = rucio
        self._all: Mapping[str, Mapping[str, Mapping[str, Any]]] | None
        try:
            self._all = rucio.export_data(distance=True)["distances"]
        except Exception as error:
            if not official.is_refusal(error):
                raise
            LOG.info("this account may not export: distances are read one by one")
            self._all = None

    def of(self, source: str, destination: str) -> tuple[bool, int | None]:
        """Whether the pair has a distance, and which; null is one."""
        if self._all is not None:
            entry = self._all.get(source, {}).get(destination)
        else:
            entry = next(iter(self._rucio.get_distance(source, destination)), None)
        return entry is not None, entry.get("distance") if entry else None


@dataclass
class Run:
    """One run over all pairs."""

    rucio: Any
    rank: Ranking
    keys: Sequence[str]
    table: Table
    is_dry: bool = False
    adds: bool = False
    tell: Callable[[str], None] = print
    summary: Summary = field(default_factory=Summary, init=False)
    _failed_in_a_row: int = field(default=0, init=False)

    def of_all(self, storages: Sequence[Storage]) -> None:
        """Surveys each destination, and writes what differs."""
        failed_in_a_row = 0
        for destination in storages:
            sources = [storage for storage in storages if storage is not destination]
            try:
                distances = self.distances(sources, destination)
            except towpath.Error as error:
                if isinstance(error, (towpath.Denied, towpath.Invalid)):
                    raise  # so it will be for all others
                LOG.warning("nothing can be learnt of the ways to %s: %s", destination.name, error)
                self.summary.surveys_failed += 1
                failed_in_a_row += 1
                if failed_in_a_row == MAX_SURVEYS_FAILED:
                    raise GivenUp("the ALTO server tells nothing: the other destinations were not tried") from error
                continue
            failed_in_a_row = 0
            for source in sources:
                self.pair(source.name, destination.name, distances.get(source.name))

    def distances(self, sources: Sequence[Storage], destination: Storage) -> dict[str, int]:
        """The distances from `sources` to `destination`, of those of which a key of the statement is known."""
        client = client_for(destination, sources)
        urls = {source.name: judgement.url_of(source.address_for(client)) for source in sources}
        if not urls:
            return {}
        places = self.rank(list(dict.fromkeys(urls.values())), client=client)
        ranks = judgement.ranks(places, self.keys)
        known = ((name, ranks.get(url)) for name, url in urls.items())
        return {name: BASE + rank.number for name, rank in known if rank and rank.is_known}

    def pair(self, source: str, destination: str, distance: int | None) -> None:
        """Writes the distance of one pair if that differs from what Rucio has."""
        if distance is None:
            self.summary.unknown += 1
            return
        try:
            exists, present = self.table.of(source, destination)
            is_closed = present is None if exists else not self.adds
            if is_closed:
                self.summary.closed += 1
            elif exists and present == distance:
                self.summary.unchanged += 1
            else:
                self.write(source, destination, distance, present)
            self._failed_in_a_row = 0
        except Exception as error:  # whatever is wrong with one pair, the others have their turn
            if official.is_refusal(error):
                raise
            LOG.warning("the distance from %s to %s stays as it is: %s", source, destination, error)
            self.summary.failed += 1
            self._failed_in_a_row += 1
            if self._failed_in_a_row == MAX_PAIRS_FAILED:
                raise GivenUp("Rucio takes no distances: the other pairs were not tried") from error

    def write(self, source: str, destination: str, distance: int, present: int | None) -> None:
        """Tells Rucio, or whoever looks on."""
        if self.is_dry:
            self.tell(f"{source} {destination} {'-' if present is None else present} {distance}")
        elif present is None:
            self.rucio.add_distance(source, destination, {"distance": distance})
        else:
            self.rucio.update_distance(source, destination, {"distance": distance})
        if present is None:
            self.summary.added += 1
        else:
            self.summary.updated += 1


@dataclass(frozen=True)
class Wish:
    """What the command line says."""

    by: str
    ird: str | None = None
    config: str | None = None
    rses: str | None = None
    is_dry: bool = False
    adds: bool = False


def once(wish: Wish) -> Summary:
    """One run; what it did is logged once it has begun, however it ends."""
    rucio = official.client()
    table = Table(rucio)
    # One client, so that the server's directory is read once a run.
    rank = partial(alto.Client(wish.ird, config=wish.config).rank, by=wish.by)
    run = Run(rucio, rank, judgement.keys_of(wish.by), table, wish.is_dry, wish.adds)
    try:
        run.of_all(storages(rucio, wish.rses))
    finally:
        LOG.info("%s", run.summary)
    return run.summary


def again_and_again(wish: Wish, every_s: float) -> NoReturn:
    """Runs until it is ended. A run that fails is told; the next one comes when its time has come."""
    pause = threading.Event()
    while True:
        began = time.monotonic()
        try:
            once(wish)
        except official.Missing:
            raise
        except Exception as error:  # Rucio, the network, ALTO: all of them may be well again next time
            LOG.error("this run ended early, the next one is in %g s: %s", every_s, error)
        pause.wait(max(0.0, began + every_s - time.monotonic()))
