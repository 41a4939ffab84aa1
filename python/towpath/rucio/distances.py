"""Distances between RSEs in Rucio, computed from the network costs of an ALTO server.

For each destination, the sources are ranked like replicas for a client at the destination. The ranks become Rucio's distances: 1001
is the best source, and Rucio prefers the smallest distance. Only distances that differ are written. Three kinds of pairs are left
unchanged:

- pairs for which no key of the statement is known;
- pairs without a distance, unless `Wish.adds` is set, because a distance permits transfers between the two RSEs;
- pairs whose distance is null: Rucio makes no transfers between them, and an operator set that on purpose.

A run: `storages` returns the RSEs and their addresses, `Table` reads Rucio's distances, and `Run.of_all` ranks the sources of one
destination after another and writes the distances. A failed pair or destination is counted and skipped; after several consecutive
failures the run ends with `GivenUp`.
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

# Maximum number of RSEs in one run, which makes a million pairs; the grid has some 600 storages.
MAX_RSES = 1000

# Added to ranks, which are below MAX_RSES, to form distances. Rucio adds the distances of hops; with this offset two hops always
# cost more than a direct path, so that direct transfers stay direct.
BASE = MAX_RSES

# Maximum number of concurrent DNS lookups.
LOOKUPS = 16

# Sorts after all priorities of protocols. A priority of 0 or null means that the protocol does not support the operation.
NOT_FOR_THAT = 1 << 16

# Numbers of consecutive failures, of destinations and of pairs, that end a run.
MAX_SURVEYS_FAILED = 5
MAX_PAIRS_FAILED = 20

Ranking = Callable[..., Sequence[alto.Place]]


class GivenUp(Exception):
    """A run ended early after too many consecutive failures."""


@dataclass(frozen=True)
class Storage:
    """An RSE and the IP addresses of its host (at least one), in the order of preference of the system."""

    name: str
    addresses: tuple[str, ...]

    def address_for(self, other: str) -> str:
        """Returns the first address of the same family as `other`, or the first address if there is none."""
        is_version_6 = ":" in other
        return next((address for address in self.addresses if (":" in address) == is_version_6), self.addresses[0])


def client_for(destination: Storage, sources: Sequence[Storage]) -> str:
    """Returns the first address of `destination` whose family all `sources` have, or its first address if there is none.

    ALTO servers have costs only between addresses of the same family.
    """

    def reaches_all(address: str) -> bool:
        return all(any((":" in other) == (":" in address) for other in source.addresses) for source in sources)

    return next(filter(reaches_all, destination.addresses), destination.addresses[0])


@dataclass
class Summary:
    """Counters of a run. The unit is pairs of RSEs, except for `surveys_failed`."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    unknown: int = 0
    """Skipped because no key of the statement is known."""
    closed: int = 0
    """Skipped because the distance is null, or is missing and may not be added."""
    failed: int = 0
    surveys_failed: int = 0
    """Destinations for which the ALTO server returned no costs."""

    def __str__(self) -> str:
        counts = f"{self.added} added, {self.updated} updated, {self.unchanged} unchanged"
        skipped = f"{self.unknown} unknown and {self.closed} closed skipped"
        return f"distances: {counts}, {skipped}, {self.failed} failed; {self.surveys_failed} destinations failed"

    @property
    def is_whole(self) -> bool:
        """Whether no pair and no destination failed."""
        return not self.failed and not self.surveys_failed


def hosts(protocols: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns the valid hosts of the protocols of an RSE without duplicates, ordered by priority for third-party copies, then reads."""

    def preference(protocol: Mapping[str, Any]) -> tuple[int, ...]:
        wan = (protocol.get("domains") or {}).get("wan") or {}
        return tuple(wan.get(operation) or NOT_FOR_THAT for operation in ("third_party_copy_read", "read"))

    names = (protocol.get("hostname") or "" for protocol in sorted(protocols, key=preference))
    return list(dict.fromkeys(host for host in names if judgement.host_of(judgement.url_of(host))))


def first_found(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the addresses of the first of the hosts `names` that has any; empty if none has."""
    return tuple(next(filter(None, map(judgement.addresses, names)), ()))


def storages(rucio: Any, expression: str | None) -> list[Storage]:
    """Returns the RSEs that match the RSE expression `expression` (None: all) by name, without those that have no address.

    Raises `ValueError` if more than `MAX_RSES` match.
    """
    names = sorted(rse["rse"] for rse in rucio.list_rses(rse_expression=expression))
    if len(names) > MAX_RSES:
        raise ValueError(f"{len(names)} RSEs exceed the maximum of {MAX_RSES}: select fewer with --rses")
    hosts_of_rses = [hosts(protocols_of(rucio, name)) for name in names]
    pool = ThreadPoolExecutor(LOOKUPS)
    try:
        found = [Storage(name, addresses) for name, addresses in zip(names, pool.map(first_found, hosts_of_rses), strict=True)]
    finally:
        # Do not wait for lookups after an exception or a signal.
        pool.shutdown(wait=False, cancel_futures=True)
    unresolved = [storage.name for storage in found if not storage.addresses]
    if unresolved:
        LOG.warning("skipping RSEs without an address (%d): %s", len(unresolved), ", ".join(unresolved[:5]))
    return [storage for storage in found if storage.addresses]


def protocols_of(rucio: Any, name: str) -> list[Mapping[str, Any]]:
    """Returns the protocols of the RSE `name`; empty if it has none or does not exist any more."""
    try:
        protocols = rucio.get_protocols(name)
    except Exception as error:
        if official.exit_code(error) not in (official.NOT_FOUND, official.INVALID):
            raise
        return []
    return protocols if isinstance(protocols, list) else [protocols]


class Table:
    """The distances in Rucio: read in one request if the account may export them, else one request per pair."""

    def __init__(self, rucio: Any) -> None:
        self._rucio = rucio
        self._all: Mapping[str, Mapping[str, Mapping[str, Any]]] | None
        try:
            self._all = rucio.export_data(distance=True)["distances"]
        except Exception as error:
            if not official.is_refusal(error):
                raise
            LOG.info("this account may not export data: reading distances one by one")
            self._all = None

    def of(self, source: str, destination: str) -> tuple[bool, int | None]:
        """Returns whether the pair has a distance, and the distance. A distance that exists may be null (None)."""
        if self._all is not None:
            entry = self._all.get(source, {}).get(destination)
        else:
            entry = next(iter(self._rucio.get_distance(source, destination)), None)
        return entry is not None, entry.get("distance") if entry else None


@dataclass
class Run:
    """One run over all pairs."""

    rucio: Any
    """Rucio's client."""
    rank: Ranking
    """Ranks URLs for the keyword argument `client`, an address, as `alto.Client.rank` does."""
    keys: Sequence[str]
    """The keys of the statement."""
    table: Table
    is_dry: bool = False
    """Report the changes to `tell` instead of writing them."""
    adds: bool = False
    """Add distances to pairs that have none."""
    tell: Callable[[str], None] = print
    """Receives the lines of a dry run: `SOURCE DESTINATION BEFORE AFTER`, with `-` for no distance."""
    summary: Summary = field(default_factory=Summary, init=False)
    _failed_in_a_row: int = field(default=0, init=False)

    def of_all(self, storages: Sequence[Storage]) -> None:
        """Ranks the sources of each destination and writes the distances that differ.

        Raises `GivenUp` after `MAX_SURVEYS_FAILED` consecutive failed destinations or `MAX_PAIRS_FAILED` consecutive failed pairs,
        and `towpath.Denied`, `towpath.Invalid` or the exception of Rucio immediately if a request is denied or invalid.
        """
        failed_in_a_row = 0
        for destination in storages:
            sources = [storage for storage in storages if storage is not destination]
            try:
                distances = self.distances(sources, destination)
            except towpath.Error as error:
                if isinstance(error, (towpath.Denied, towpath.Invalid)):
                    raise  # the other destinations would fail in the same way
                LOG.warning("cannot get the costs of paths to %s: %s", destination.name, error)
                self.summary.surveys_failed += 1
                failed_in_a_row += 1
                if failed_in_a_row == MAX_SURVEYS_FAILED:
                    raise GivenUp("the ALTO server returned no costs: the other destinations were not tried") from error
                continue
            failed_in_a_row = 0
            for source in sources:
                self.pair(source.name, destination.name, distances.get(source.name))

    def distances(self, sources: Sequence[Storage], destination: Storage) -> dict[str, int]:
        """Returns the distances to `destination` by name of the source, for the sources with at least one known key of the statement."""
        client = client_for(destination, sources)
        urls = {source.name: judgement.url_of(source.address_for(client)) for source in sources}
        if not urls:
            return {}
        places = self.rank(list(dict.fromkeys(urls.values())), client=client)
        ranks = judgement.ranks(places, self.keys)
        by_source = ((name, ranks.get(url)) for name, url in urls.items())
        return {name: BASE + rank.number for name, rank in by_source if rank and rank.is_known}

    def pair(self, source: str, destination: str, distance: int | None) -> None:
        """Writes the distance of one pair if it differs from Rucio's. `distance` is None if no key of the statement is known.

        A failure is logged and counted. Raises `GivenUp` after too many consecutive ones, and Rucio's exception if it denies access.
        """
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
        except Exception as error:  # a failed pair must not prevent the others
            if official.is_refusal(error):
                raise
            LOG.warning("cannot update the distance from %s to %s: %s", source, destination, error)
            self.summary.failed += 1
            self._failed_in_a_row += 1
            if self._failed_in_a_row == MAX_PAIRS_FAILED:
                raise GivenUp("Rucio accepts no distances: the other pairs were not tried") from error

    def write(self, source: str, destination: str, distance: int, present: int | None) -> None:
        """Writes a distance to Rucio, or reports it in a dry run. `present` is the current distance; None if there is none."""
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
    """Options of a run, as given on the command line."""

    by: str
    """The statement that ranks the sources."""
    ird: str | None = None
    """URL of the directory of the ALTO server; None: `default-ird` in the file `config`."""
    config: str | None = None
    """Path of a TOML file that defines metrics."""
    rses: str | None = None
    """RSE expression; None: all RSEs."""
    is_dry: bool = False
    adds: bool = False


def once(wish: Wish) -> Summary:
    """Performs one run and returns its summary, which is also logged if the run fails."""
    rucio = official.client()
    table = Table(rucio)
    # One client for all destinations: it reads the directory of the server once.
    rank = partial(alto.Client(wish.ird, config=wish.config).rank, by=wish.by)
    run = Run(rucio, rank, judgement.keys_of(wish.by), table, wish.is_dry, wish.adds)
    try:
        run.of_all(storages(rucio, wish.rses))
    finally:
        LOG.info("%s", run.summary)
    return run.summary


def again_and_again(wish: Wish, every_s: float) -> NoReturn:
    """Starts a run every `every_s` seconds until the process is terminated; after a longer run the next one starts immediately.

    A failed run is logged and the next one starts on schedule. Raises `official.Missing` if Rucio's client is not installed.
    """
    pause = threading.Event()
    while True:
        started = time.monotonic()
        try:
            once(wish)
        except official.Missing:
            raise
        except Exception as error:  # failures of Rucio, ALTO or the network may be temporary
            LOG.error("run failed, retrying on schedule (every %g s): %s", every_s, error)
        pause.wait(max(0.0, started + every_s - time.monotonic()))
