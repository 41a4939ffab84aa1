"""Opens files one after the other with XRootD's client and reads 64 KiB of each, eight at once, and prints the times as one JSON object.

    python analysis_opens.py FILES URL

URL has a place for the number of the file: root://host//{}.bin.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from XRootD import client

AT_ONCE = 8
READ_BYTES = 64 << 10


def read(url: str) -> tuple[float, str]:
    """Returns the seconds that it took, and the message of a failure."""
    start = time.monotonic()
    file = client.File()
    status, _ = file.open(url)
    data = b""
    if status.ok:
        status, data = file.read(0, READ_BYTES)
        file.close()
    taken = time.monotonic() - start
    if not status.ok:
        return taken, status.message.strip()
    return taken, "" if len(data) == READ_BYTES and data[:8] == bytes(8) else f"wrong data: {len(data)} bytes"


def main(count: str, url: str) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = list(pool.map(read, (url.replace("{}", str(number)) for number in range(int(count)))))
    failures = [message for _, message in done if message]
    print(json.dumps({"seconds": sorted(seconds for seconds, _ in done), "failures": failures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
