#!/usr/bin/env python3
"""An agent of `towpath alto`: how many bytes are free where a storage keeps its files, and how fast the link is that joins it to its site.

    [agents.space]
    kind = "program"
    command = ["python3", "docs/examples/alto-agent.py", "ipv4:192.0.2.7", "/data", "eth0", "192.0.2.0/24"]

The interface and the prefix of the site may be left out. Each line is a fact; what was told since the last commit holds from the next one on, all at once.
"""

import json
import pathlib
import shutil
import sys
import time


def tell(**line):
    print(json.dumps(line), flush=True)


def capacity(interface):
    """What goes through an interface in bits per second; nothing if it is down, or a virtual one that does not say so."""
    try:
        megabits_per_s = int(pathlib.Path("/sys/class/net", interface, "speed").read_text())
    except (OSError, ValueError):
        return {}
    return {"capacity": megabits_per_s * 1e6} if megabits_per_s > 0 else {}


entity, directory, *uplink = sys.argv[1:]
while True:
    free_bytes = shutil.disk_usage(directory).free
    tell(property={"entity": entity, "name": "priv:free-bytes", "value": free_bytes})
    if uplink:
        interface, site = uplink
        address = entity.partition(":")[2]
        attach = {"storage": [address], "site": [site]}
        tell(link={"topology": "site", "from": "storage", "to": "site", "attach": attach, **capacity(interface)})
    tell(commit={})
    time.sleep(60)
