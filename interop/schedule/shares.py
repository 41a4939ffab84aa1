"""Prints the shares of the first and the other half of the pipes in a file of `towpath sched simulate --periods`, and the used
part of a link of 10 Gbit/s, for each optimiser. Ends with 1 if that of `knee` is not 2 : 1 with an error of 5 %.

    shares.py FILE
"""

from __future__ import annotations

import json
import pathlib
import sys

LINK_BYTES_PER_S = 1.25e9
PERIOD_S = 60
SETTLED_S = 1_200
"""Time after which shares are measured, until the first pipe has no more files in its queue."""


def main() -> None:
    received: dict[str, list[float]] = {}
    periods: dict[str, int] = {}
    for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
        record = json.loads(line)
        if "end_s" not in record:
            continue
        pipes, name = record["pipes"], record["optimiser"]
        if record["end_s"] <= SETTLED_S or not all(pipe["queued_files"] for pipe in pipes):
            continue
        halves = received.setdefault(name, [0.0, 0.0])
        for index, pipe in enumerate(pipes):
            halves[2 * index // len(pipes)] += pipe["received_bytes"]
        periods[name] = periods.get(name, 0) + 1
    for name, (heavy, light) in received.items():
        used = (heavy + light) / (LINK_BYTES_PER_S * PERIOD_S * periods[name])
        print(f"{name:>9}: {heavy / light:.2f} : 1 in bytes, {used:.0%} of the link used")
    heavy, light = received["knee"]
    sys.exit(abs(heavy / light - 2) > 0.1)


if __name__ == "__main__":
    main()
