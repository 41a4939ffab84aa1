"""`towpath lab import`, `export`, `profile` and `report`: tables of runs and their results."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from towpath.lab import importers
from towpath.lab.analysis import COEFFICIENTS, Analysis, Unavailable, coefficient_text, shape_text
from towpath.lab.command.shared import INCOMPLETE, add_tables, count, read_runs, read_tables
from towpath.lab.measure.campaign import size_of
from towpath.lab.report import page

if TYPE_CHECKING:
    from towpath.lab.command import Commands


def add(commands: Commands) -> None:
    """Adds the commands."""
    convert = commands.add_parser("import", help="convert results of other tools to a table of runs")
    convert.add_argument("files", type=Path, nargs="+", metavar="FILE", help="results; for esnet-harness also its output directory")
    convert.add_argument("--format", required=True, choices=importers.FORMATS, help="format of all files (docs/lab/runs.md)")
    convert.add_argument("--output", type=Path, required=True, metavar="TABLE", help="the table, a Parquet file")
    convert.add_argument("--rtt-ms", type=float, metavar="MS", help="round trip; replaces that of the files, unless theirs differ")
    convert.add_argument("--capacity", type=float, metavar="BITS_PER_S", help="capacity of the path")
    convert.add_argument("--site", metavar="NAME", help="name of the far end")
    convert.add_argument("--transport", metavar="NAME", help="congestion control")
    convert.add_argument("--buffer", metavar="SIZE", help="maximum buffer of a connection, as in 64MiB")
    convert.set_defaults(run=_import)

    export = commands.add_parser("export", help="write the runs of tables as CSV, without their intervals")
    add_tables(export)
    export.add_argument("--output", type=Path, required=True, metavar="FILE", help="the CSV file")
    export.set_defaults(run=_export)

    profile = commands.add_parser("profile", help="print profiles, transitions and coefficients of a table of runs")
    add_tables(profile)
    profile.add_argument("--json", action="store_true", help="print one JSON document")
    profile.set_defaults(run=_profile)
    report = commands.add_parser("report", help="write an HTML page of a table of runs")
    add_tables(report)
    report.add_argument("--output", type=Path, metavar="FILE", help="the page [default: beside the first table]")
    report.add_argument("--title", metavar="TEXT", help="[default: the name of the first table]")
    report.set_defaults(run=_report)


def _import(options: argparse.Namespace) -> int:
    rtt_s = None if options.rtt_ms is None else options.rtt_ms / 1e3
    known = importers.Known(
        rtt_s=rtt_s,
        capacity_bits_per_s=options.capacity,
        buffer_bytes=None if options.buffer is None else size_of(options.buffer),
        transport=options.transport,
        site=options.site,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runs = importers.read(options.files, options.format, known)
    for warning in caught:
        print(f"towpath lab: {warning.message}", file=sys.stderr)
    runs.write(options.output)
    print(f"wrote {options.output}: {count(len(runs))} of {count(len(runs.configurations()), 'configuration')}")
    return INCOMPLETE if any(issubclass(warning.category, importers.Lost) for warning in caught) else 0


def _export(options: argparse.Namespace) -> int:
    """Runs that the machine limited are in the file, with what limited them."""
    runs, missing = read_runs(options)
    runs.write_csv(options.output)
    print(f"wrote {options.output}: {count(len(runs))}")
    return INCOMPLETE if missing else 0


def _profile(options: argparse.Namespace) -> int:
    _, results, missing = read_tables(options)
    if options.json:
        print(json.dumps([result.document() for result in results], indent=2))
    else:
        print("\n\n".join(_text(result) for result in results))
    return INCOMPLETE if missing else 0


def _text(result: Analysis) -> str:
    """Returns the results of a configuration as lines."""
    title, profile, band, transition = str(result.configuration), result.profile, result.band, result.transition
    if isinstance(profile, Unavailable):
        return f"{title}\n  no profile: {profile.reason}"
    lines = []
    for at, rtt in enumerate(profile.rtt_s):
        interval = "" if isinstance(band, Unavailable) else f"  ({band.lower[at] / 1e6:.1f} to {band.upper[at] / 1e6:.1f})"
        lines.append(f"{rtt * 1e3:8.4g} ms  {profile.means[at] / 1e6:10.1f} Mbit/s{interval}  {count(profile.counts[at])}")
    if profile.excluded:
        lines.append(f"left out: {count(profile.excluded)} that the machine limited")
    if isinstance(band, Unavailable):
        lines.append(f"no band: {band.reason}")
    elif not band.is_reliable:
        lines.append("less than 10 runs at a round trip: the intervals may be too narrow")
    if isinstance(transition, Unavailable):
        lines.append(f"shape not determined: {transition.reason}")
    else:
        lines.append(f"shape: {shape_text(transition)}")
    lines.append(", ".join(f"{symbol} {coefficient_text(result, name)}" for symbol, name in COEFFICIENTS.items()))
    return "\n  ".join([title, *lines])


def _report(options: argparse.Namespace) -> int:
    runs, results, missing = read_tables(options)
    table: Path = options.tables[0]
    output: Path = options.output or (table / "report.html" if table.is_dir() else table.with_suffix(".html"))
    output.write_text(page(runs, results, options.title or f"Runs of {table.name}", missing=missing), encoding="utf-8")
    print(f"wrote {output}")
    return INCOMPLETE if missing else 0
