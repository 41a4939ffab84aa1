"""Replicas from Rucio, as a Metalink in the order in which `rucio download --metalink` is to try them."""

import logging
from collections.abc import Sequence

import towpath
from towpath import alto
from towpath.rucio import official

LOG = logging.getLogger(__name__)


def metalink(
    dids: Sequence[str],
    by: str,
    *,
    ird: str | None = None,
    config: str | None = None,
    client: str | None = None,
    strict: bool = False,
    fallback: bool = False,
) -> bytes:
    """The replicas of files, and of all files in datasets and containers, that `dids` name.

    Rucio chooses as for a download: storages that are closed to reading are left out. `client` is the address of who will
    download; without it, it is this machine. `strict` leaves replicas out that do not meet the condition; `fallback` keeps
    Rucio's order if the ALTO server does not answer.
    """
    rucio = official.client()
    wanted = [{"scope": scope, "name": name} for scope, name in map(official.scope_and_name, dids)]
    for did in wanted:
        # Else Rucio's list would just be without what does not exist.
        rucio.get_did(**did)
    replicas: str = rucio.list_replicas(
        wanted,
        metalink=True,
        ignore_availability=False,
        resolve_parents=True,
        client_location=official.location(),
    )
    try:
        return alto.order(replicas.encode(), by=by, ird=ird, client=client, config=config, strict=strict)
    except towpath.Error as error:
        # Invalid and forbidden requests are reported to the caller.
        if not fallback or isinstance(error, (towpath.Denied, towpath.Invalid)):
            raise
        LOG.warning("the replicas are in Rucio's order: %s", error)
        return replicas.encode()
