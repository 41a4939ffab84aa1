#!/usr/bin/env python3
"""Delegate agent of `towpath alto` that looks up the host names of addresses on demand.

    [agents.names]
    kind = "delegate"
    command = ["python3", "docs/examples/alto-delegate.py"]
    properties = ["priv:host"]

The program reads one query per line and ends each response with a `commit`. Properties missing from the response are unknown.
Name servers may be slow, so lookups run concurrently. Lookups that take more than 20 seconds are skipped, because `towpath alto` kills a
program that takes 30 seconds.
"""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError, as_completed

# Maximum number of concurrent lookups.
MAX_LOOKUPS = 64
# Deadline of a response, below the 30 seconds of `towpath alto`.
DEADLINE_S = 20


def emit(**line):
    """Prints one line of the agent protocol as JSON."""
    print(json.dumps(line), flush=True)


def name_of(address):
    """Returns the host name of an address, or None if it has none."""
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError:
        return None


def emit_names(addresses):
    """Looks up the names of `addresses` and prints each as a property."""
    # A pool per query, so that slow lookups of one query do not delay the next.
    pool = ThreadPoolExecutor(MAX_LOOKUPS)
    lookups = {pool.submit(name_of, address): address for address in addresses}
    try:
        for lookup in as_completed(lookups, timeout=DEADLINE_S):
            if lookup.result() is not None:
                entity = f"{'ipv6' if ':' in lookups[lookup] else 'ipv4'}:{lookups[lookup]}"
                emit(property={"entity": entity, "name": "priv:host", "value": lookup.result()})
    except TimeoutError:
        pass
    pool.shutdown(wait=False, cancel_futures=True)


for line in sys.stdin:
    emit_names(json.loads(line).get("properties", {"addresses": []})["addresses"])
    emit(commit={})
