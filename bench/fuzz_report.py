"""The page of how much memory a server has resident after fuzzed requests."""

from __future__ import annotations

import json
import pathlib

from circumstances import told
from report import markdown
from settings import MIB

CAVEATS = """# Memory of the server under fuzzed requests

Made by `make bench-fuzz`; the raw samples are in the JSON file beside this. Before the table:

- One server with default settings, to which anybody may write. The requests come from one seed ([fuzz_jobs.py](../../fuzz_jobs.py)): xroot requests of
  every code with random parameters and arguments, HTTP requests of every method; a quarter of them have bytes changed, removed or added.
- Most requests are refused: few open a file, and fewer read or write. Requests behind one that makes the server close are sent over a new connection.
- Memory is VmRSS, read when all connections are closed, one second after the last. Allocators keep freed memory, so the first requests raise it.
- After each part the server had to answer a plain request.
"""


def table(record: dict) -> str:
    """Memory at the start, and after a tenth, half and all of the requests."""
    rows = []
    for run in record["runs"]:
        points = run["points"]
        shown = [points[0], points[len(points) // 10], points[len(points) // 2], points[-1]]
        rows.append([run["requests"], f"{points[-1]['requests']:,}", *(f"{point['resident_bytes'] / MIB:.1f}" for point in shown)])
    heads = ["requests", "number", "before, MiB", "after a tenth", "after half", "after all"]
    return markdown(heads, rows) + f"\n\nMost ever resident: {record['peak_rss_bytes'] / MIB:.1f} MiB."


def document(results: pathlib.Path) -> str:
    """The page for the JSON files in `results`."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    quick = "\n**A quick run: too few requests were sent.**\n" if any(record["quick"] for record in records) else ""
    tables = "\n".join(f"{table(record)}\n" for record in records)
    return f"{CAVEATS}\n{told([record['circumstances'] for record in records])}\n{quick}\n{tables}"
