"""The page of the ALTO server's figures."""

from __future__ import annotations

import json
import pathlib

from circumstances import told
from harness import median_and_spread
from report import markdown, yes
from settings import MIB

CAVEATS = """# ALTO: a made-up LHCONE of a million routes

Made by `make bench-alto` (see [how](../../README.md)); the raw samples are in the JSON file beside this. Before the table:

- **The network is made up** ([alto_twin.py](../../alto_twin.py)): 600 storages in 170 data centres of 127 sites, routers of all sites with a route to each of the others' prefixes, and one with the rest of a table
  of the Internet.
- One machine, loopback: the server shares its cores with curl and the load generator (h2load).
- The load generator has 16 clients, each with one request at a time; one that is sent late because its client still waited counts from when it was sent. Routes change by BMP, all with the AS path of a new system; the server gathers changes for
  0.1 s (`settle`), which is in the time until all are told.
- No peer runs beside it. OpenALTO, the one other public server, was measured elsewhere with its in-process test client: 134 ms for one path vector at 10,000 routes, 867 ms at 50,000; its 360,000 pairs
  would take about 160 s (extrapolated).
"""

AIM_LOAD_S, AIM_MESH_S, AIM_P99_MS, AIM_TOLD_S, AIM_RSS_BYTES = 10, 1, 5, 1, 1 << 30


def table(record: dict) -> str:
    """What was found beside what is asked."""

    def spread(values: list[float]) -> str:
        middle, least, most = median_and_spread(values)
        return f"{middle:.2f} s ({least:.2f}–{most:.2f})"

    def row(what: str, found: str, aim: str, met: bool) -> list[str]:
        return [what, found, aim, yes(met)]

    resident = max(*record["peak_rss_bytes"], record["loaded_peak_rss_bytes"])
    ten, mesh, packed, loaded = (record[key] for key in ("ten_by_ten", "mesh_s", "mesh_gzip_s", "load_s"))
    rows = [
        row(f"from the start to the first answer, {record['routes']:,} routes", spread(loaded), f"{AIM_LOAD_S} s", max(loaded) < AIM_LOAD_S),
        row(f"path vector of 600 × 600, {record['mesh_bytes'] / MIB:.1f} MiB", spread(mesh), f"{AIM_MESH_S} s", max(mesh) < AIM_MESH_S),
        row(f"the same compressed, {record['mesh_gzip_bytes'] / MIB:.1f} MiB", spread(packed), f"{AIM_MESH_S} s", max(packed) < AIM_MESH_S),
        row(
            f"endpoint costs of 10 × 10 at {ten['per_s']:,} a second while 10,000 routes change {ten['changes']} times, p50, p90, p99, most of {ten['requests']:,}",
            ", ".join(f"{ten[key]:.2f}" for key in ("p50_ms", "p90_ms", "p99_ms", "max_ms")) + " ms",
            f"p99 {AIM_P99_MS} ms",
            ten["p99_ms"] < AIM_P99_MS,
        ),
        row(f"from a change of 10,000 routes until the last of {record['followers']} who follow is told", spread(record["told_s"]), f"{AIM_TOLD_S} s", max(record["told_s"]) < AIM_TOLD_S),
        row("most memory resident", f"{resident / MIB:,.0f} MiB", f"{AIM_RSS_BYTES / MIB:,.0f} MiB", resident < AIM_RSS_BYTES),
    ]
    return markdown(["what", "found", "asked", "met"], rows, left=4)


def document(results: pathlib.Path) -> str:
    """The page for the JSON files in `results`."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    quick = "\n**A quick run: the network is smaller, and too few requests were sent.**\n" if any(record["quick"] for record in records) else ""
    where = told([record["circumstances"] for record in records])
    return "\n".join([CAVEATS, quick + where, "", *(table(record) for record in records), ""])
