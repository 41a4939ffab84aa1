"""Replicas from Rucio as an ordered Metalink for `rucio download --metalink`."""

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
    """Returns a Metalink with the replicas of the files, datasets and containers in `dids`, best replica first.

    Rucio selects the replicas as for a download: storages that are not available for reading are omitted.

    - `dids`: data identifiers, each `scope:name`. Datasets and containers are resolved to their files.
    - `by`: the statement that orders the replicas, such as `BY delay_ow WHERE continent='EU'`.
    - `ird`: URL of the directory of the ALTO server. Default: `default-ird` in the file `config`.
    - `config`: path of a TOML file that defines metrics.
    - `client`: IP address of the downloading host. Default: the source address of the request to the ALTO server.
    - `strict`: omit replicas that do not meet the condition of the statement.
    - `fallback`: return the replicas in Rucio's order if the request to the ALTO server fails for a reason other than its
      validity or the caller's permissions.

    Raises `official.Missing` if Rucio's client is not installed, an exception of Rucio if a DID does not exist, `towpath.Error`
    if the request to the ALTO server fails, and `ValueError` if the statement is malformed.
    """
    rucio = official.client()
    requested = [{"scope": scope, "name": name} for scope, name in map(official.scope_and_name, dids)]
    for did in requested:
        # `list_replicas` silently omits DIDs that do not exist; `get_did` raises.
        rucio.get_did(**did)
    replicas: str = rucio.list_replicas(
        requested,
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
        LOG.warning("keeping Rucio's order of the replicas: %s", error)
        return replicas.encode()
