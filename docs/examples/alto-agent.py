#!/usr/bin/env python3
"""An agent of `towpath alto`: how many bytes are free where a storage keeps its files.

    [agents.space]
    kind = "program"
    command = ["python3", "docs/examples/alto-agent.py", "ipv4:192.0.2.7", "/data"]

Each line is a fact; what was told since the last commit holds from the next one on, all at once.
"""

import json
import shutil
import sys
import time


def tell(**line):
    print(json.dumps(line), flush=True)


entity, directory = sys.argv[1:]
while True:
    free_bytes = shutil.disk_usage(directory).free
    tell(property={"entity": entity, "name": "priv:free-bytes", "value": free_bytes})
    tell(commit={})
    time.sleep(60)
