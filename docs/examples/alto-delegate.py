#!/usr/bin/env python3
"""An agent of `towpath alto` that is asked when a request comes: what the hosts with the addresses in question are called.

    [agents.names]
    kind = "delegate"
    command = ["python3", "docs/examples/alto-delegate.py"]
    properties = ["priv:host"]

Each line that it reads is a question, and each answer ends with a commit. Of what it does not tell nothing is known.
A name server may be slow: many are asked at a time, and who has not answered after 20 seconds is passed over, because
`towpath alto` ends a program that takes 30.
"""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError, as_completed

AT_A_TIME = 64
DEADLINE_S = 20


def tell(**line):
    print(json.dumps(line), flush=True)


def name_of(address):
    try:
        return socket.gethostbyaddr(address)[0]
    except OSError:
        return None


def tell_names(addresses):
    # Of its own for each question, so that the lookups of one that were too slow hold up no other.
    pool = ThreadPoolExecutor(AT_A_TIME)
    asked = {pool.submit(name_of, address): address for address in addresses}
    try:
        for answer in as_completed(asked, timeout=DEADLINE_S):
            if answer.result() is not None:
                entity = f"{'ipv6' if ':' in asked[answer] else 'ipv4'}:{asked[answer]}"
                tell(property={"entity": entity, "name": "priv:host", "value": answer.result()})
    except TimeoutError:
        pass
    pool.shutdown(wait=False, cancel_futures=True)


for line in sys.stdin:
    tell_names(json.loads(line).get("properties", {"addresses": []})["addresses"])
    tell(commit={})
