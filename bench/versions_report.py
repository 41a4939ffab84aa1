"""The page of two versions of towpath against each other."""

from __future__ import annotations

import json
import pathlib

from circumstances import told
from harness import median_and_spread
from report import markdown, yes

CAVEATS = """# Two versions of towpath

Made by `make bench-versions BENCH="--before OLD_BINARY"` (see [how](../../README.md)); the raw samples are in the JSON files beside this. Before the tables:

- Each version is client and server of its own rows; for `requests` and `stat` one load generator asks both servers. All is in memory, over loopback.
- The versions run in turn, in another order in each round. `ratio` is that of the medians now/before, with the least and the most of the rounds: above 1
  the new version is faster.
- A row per processor second counts those of client and server, or of the server under the load generator: it suffers less from other load.
- Bytes were compared in the first and in the last round.
"""
LEAST_RATIO = 0.97


def cells(row: dict) -> list[str]:
    """The medians of both versions, and their ratio with the spread of the rounds."""
    before, now = (median_and_spread(row[version])[0] for version in ("before", "now"))
    ratio = now / before
    _, least, most = median_and_spread([new / old for old, new in zip(row["before"], row["now"], strict=True)])
    digits = 2 if before < 100 else 0
    return [
        row["what"], row["unit"], str(len(row["now"])), f"{before:,.{digits}f}", f"{now:,.{digits}f}",
        f"{ratio:.2f} ({least:.2f}–{most:.2f})", yes(ratio >= LEAST_RATIO),
    ]


def table(record: dict) -> str:
    """One row for each figure."""
    return markdown(["what", "unit", "n", "before", "now", "ratio", f"≥ {LEAST_RATIO}"], [cells(row) for row in record["rows"]], left=2)


def document(results: pathlib.Path) -> str:
    """The page for the JSON files in `results`."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    quick = "\n**A quick run: data are few.**\n" if any(record["quick"] for record in records) else ""
    tables = "\n".join(f"## {record['job']}\n\n{record['title']}.\n\n{table(record)}\n" for record in records)
    earlier = ", ".join(sorted({record["before_commit"] for record in records}))
    return f"{CAVEATS}\nBefore: {earlier}. Now: {told([record['circumstances'] for record in records])}\n{quick}\n{tables}"
