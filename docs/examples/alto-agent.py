#!/usr/bin/env python3
"""Agent of `towpath alto` that publishes the free space of a storage, and the capacity of the link from the storage to its site.

    [agents.space]
    kind = "program"
    command = ["python3", "docs/examples/alto-agent.py", "ipv4:192.0.2.7", "/data", "eth0", "192.0.2.0/24"]

The arguments are the entity of the storage, a directory in its file system, and optionally the network interface and the prefix of the
site. The program prints one fact per line. A `commit` publishes all facts since the previous commit at once.
"""

import json
import pathlib
import shutil
import sys
import time


def emit(**line):
    """Prints one line of the agent protocol as JSON."""
    print(json.dumps(line), flush=True)


def capacity(interface):
    """Returns the speed of an interface as `{"capacity": bits_per_second}`; empty if it is down, or virtual without a known speed."""
    try:
        megabits_per_s = int(pathlib.Path("/sys/class/net", interface, "speed").read_text())
    except (OSError, ValueError):
        return {}
    return {"capacity": megabits_per_s * 1e6} if megabits_per_s > 0 else {}


entity, directory, *uplink = sys.argv[1:]
while True:
    free_bytes = shutil.disk_usage(directory).free
    emit(property={"entity": entity, "name": "priv:free-bytes", "value": free_bytes})
    if uplink:
        interface, site = uplink
        address = entity.partition(":")[2]
        attach = {"storage": [address], "site": [site]}
        emit(link={"topology": "site", "from": "storage", "to": "site", "attach": attach, **capacity(interface)})
    emit(commit={})
    time.sleep(60)
