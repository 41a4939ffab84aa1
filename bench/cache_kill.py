"""Kills a site cache under load again and again, and writes how much it had to fetch again, as JSON.

    bench/cache_kill.py TOWPATH_BINARY [--kills 200] [--seed N] [--origin root|http] [--directory DIR] [--output FILE]

Exit status 1 if a byte was wrong. `interop/kill_loop.py` has the rounds. Needs numpy; xrdcp and curl read too, if they are
installed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import platform
import random
import sys
import tempfile

from circumstances import git

sys.path.append(str(pathlib.Path(__file__).parent.parent / "interop"))
from kill_loop import KillLoop  # noqa: E402

OUTPUT = pathlib.Path(__file__).parent / "results/cache/kill.json"


def main() -> int:
    """Runs the rounds, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--origin", choices=("root", "http"), default="root")
    parser.add_argument("--directory", type=pathlib.Path, help="for the files of the origin and of the cache: about 19 MB a round")
    parser.add_argument("--output", type=pathlib.Path, default=OUTPUT)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="towpath-kill-") as directory:
        loop = KillLoop(options.binary.resolve(), pathlib.Path(directory), options.seed, options.origin)
        found = loop.run(options.kills)
    report = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "commit": git("rev-parse", "--short", "HEAD"),
        "load_before": load,
        **found,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: value for name, value in report.items() if name != "rounds"}, indent=1))
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
