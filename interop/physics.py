"""The demo's analysis: reads two branches of the large tree remotely and locally, prints and compares both.

    python physics.py REMOTE_URL LOCAL_FILE     exit status 1 if any value differs
    python physics.py --brief REMOTE_URL LOCAL_FILE     the same in one line
    python physics.py --page FILE               prints a listing page as text
"""

import html.parser
import sys
import time
from pathlib import Path

from uproot_reader import query

ROWS = ["entries", "mean E33", "entries with E33 > 5", "sum of rawtr there"]


class PageText(html.parser.HTMLParser):
    """The visible text of a page, with one line for each table row and heading."""

    def __init__(self):
        super().__init__()
        self.lines: list[str] = []
        self._cells: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag, attrs):
        """Tracks elements without visible text."""
        self._hidden += tag in ("style", "script", "title")

    def handle_endtag(self, tag):
        """Ends a line."""
        self._hidden -= tag in ("style", "script", "title")
        if tag in ("tr", "h1", "h2", "p", "li", "pre"):
            self.lines.append("  ".join(self._cells))
            self._cells = []

    def handle_data(self, data):
        """Collects visible text."""
        if data.strip() and not self._hidden:
            self._cells.append(data.strip())


def show_page(file: Path) -> None:
    """Prints a page as text."""
    page = PageText()
    page.feed(file.read_text())
    print("\n".join(f"  {line}" for line in page.lines if line))


def read_both(remote: str, local: str) -> tuple[dict, dict, float]:
    """Returns the results of both, and the seconds of the remote read."""
    start = time.monotonic()
    there = query("XRootDSource" if remote.startswith("root") else "default", remote)
    seconds = time.monotonic() - start
    return there, query("default", local), seconds


def compare_briefly(remote: str, local: str) -> bool:
    """Reads both, prints one line, and returns whether all values are equal."""
    there, here, seconds = read_both(remote, local)
    print(f"{17 * there['entries']:,} values {'equal' if there == here else 'NOT EQUAL'} to the local ones, read in {seconds:.1f} s")
    return there == here


def compare(remote: str, local: str) -> bool:
    """Reads both, prints a table, and returns whether all values are equal."""
    there, here, seconds = read_both(remote, local)
    print(f"  {'':24}{'root://':>20}{'local':>20}")
    for row in ROWS:
        print(f"  {row:24}{there[row]:>20.10g}{here[row]:>20.10g}")
    peak = max(range(16), key=there["mean pulse there"].__getitem__)
    print(f"  mean pulse: peak {there['mean pulse there'][peak]} at sample {peak}")
    equal = there == here
    print(f"  every one of {17 * there['entries']:,} values is {'equal' if equal else 'NOT EQUAL'}; read remotely in {seconds:.1f} s")
    return equal


if __name__ == "__main__":
    if sys.argv[1] == "--page":
        show_page(Path(sys.argv[2]))
    elif sys.argv[1] == "--brief":
        sys.exit(0 if compare_briefly(*sys.argv[2:]) else 1)
    else:
        sys.exit(0 if compare(*sys.argv[1:]) else 1)
