#!/usr/bin/env python3
"""An agent of `towpath alto` that is asked when a request comes: what the hosts with the addresses in question are called.

    [agents.names]
    kind = "delegate"
    command = ["python3", "docs/examples/alto-delegate.py"]
    properties = ["priv:host"]

Each line that it reads is a question, and each answer ends with a commit. Of what it does not tell nothing is known.
"""

import json
import socket
import sys


def tell(**line):
    print(json.dumps(line), flush=True)


for line in sys.stdin:
    question = json.loads(line).get("properties", {"addresses": []})
    for address in question["addresses"]:
        try:
            name = socket.gethostbyaddr(address)[0]
        except OSError:
            continue
        family = "ipv6" if ":" in address else "ipv4"
        tell(property={"entity": f"{family}:{address}", "name": "priv:host", "value": name})
    tell(commit={})
