"""Importers: results of other tools as a table of runs.

    >>> from towpath.lab import importers
    >>> runs = importers.read(["run1.json", "run2.json"], "iperf3", importers.Known(rtt_s=0.1))  # doctest: +SKIP

An importer understands a file completely or raises `ValueError` with the file, the row or line, and the problem. What has no run in a
file is counted in a warning. `FORMATS` has the names of the formats.

Limit: 1 GiB for each file, after decompression.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

from towpath.lab.runs import Configuration, Runs

__all__ = ["FORMATS", "Idle", "Known", "Lost", "read"]

MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Known:
    """What a file does not say. Each value replaces that of the file."""

    rtt_s: float | None = None
    """Round trip without load in seconds. It does not replace round trips that differ from each other."""
    capacity_bits_per_s: float | None = None
    buffer_bytes: int | None = None
    transport: str | None = None
    site: str | None = None

    def applied(self, rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        """Returns the rows of the file `name` with the known values. Raises `ValueError` unless each row has a round trip then."""
        rtts = [row["rtt_s"] for row in rows if row.get("rtt_s") is not None]
        if self.rtt_s is None and len(rtts) < len(rows):
            raise ValueError(f"{name}: {len(rows) - len(rtts)} of {len(rows)} runs have no round trip; state it (rtt_s)")
        if self.rtt_s is not None and rtts and max(rtts) > MAX_RTT_RATIO * min(rtts) + MAX_RTT_DIFFERENCE_S:
            several = f"its runs have round trips from {min(rtts) * 1e3:g} to {max(rtts) * 1e3:g} ms"
            raise ValueError(f"{name}: {several}; one for all (rtt_s) cannot replace them: state none, or split the file")
        known = {column: value for column, value in vars(self).items() if value is not None}
        return [row | known for row in rows]


MAX_RTT_RATIO, MAX_RTT_DIFFERENCE_S = 2.0, 1e-3
"""Round trips of one path, measured under load, differ at most by this ratio and difference in seconds."""


class Idle(UserWarning):
    """A file has connections that sent nothing. They are no runs."""


class Lost(UserWarning):
    """A file lacks records that its tool had to leave out."""


class Importer(Protocol):
    """Reads the text of a file into rows of runs. `name` is that of the file. A row without a round trip has None as `rtt_s`, or none."""

    def __call__(self, text: str, name: str) -> list[dict[str, Any]]: ...


def _formats() -> dict[str, Importer]:
    from towpath.lab.importers import esnet, globus, iperf3, ndt7, pscheduler, ss, table, tcp_probe, trace

    return {
        "csv": table.read_csv,
        "esnet-harness": esnet.read_harness,
        "globus": globus.read_globus,
        "iperf3": iperf3.read_iperf3,
        "ndt7": ndt7.read_ndt7,
        "pscheduler": pscheduler.read_pscheduler,
        "ss": ss.read_ss,
        "tcp-probe": tcp_probe.read_tcp_probe,
        "towpath-trace": trace.read_trace,
    }


FORMATS = ("csv", "esnet-harness", "globus", "iperf3", "ndt7", "pscheduler", "ss", "tcp-probe", "towpath-trace")
"""The formats: a table with the columns of the runs (`csv`), the lists of ESnet's testing harness (as CSV, or lines of JSON) or its output
directory with results of iperf3 or pScheduler, tasks of Globus (JSON or CSV), JSON of iperf3 with `--json` or `--json-stream`, results of
NDT7 (one JSON object in a line), throughput results of pScheduler (JSON), snapshots of `ss -tin`, text of the tracepoint tcp:tcp_probe, and
traces of `towpath probe`. Files that end with `.gz` are decompressed."""


_CONDITIONS = (*(field.name for field in fields(Configuration)), "rtt_s", "site")
"""Columns that are equal among repetitions."""


def read(paths: Iterable[str | os.PathLike[str]], format: str, known: Known = Known()) -> Runs:
    """Reads files of one format into one table of runs. Repetitions of a configuration and round trip are numbered in their order.

    Raises `OSError` if a file cannot be read, and `ValueError` for a file that is not understood completely. Warns with `Idle` and `Lost`.
    """
    if format not in FORMATS:
        raise ValueError(f"format: {format!r}, expected one of {', '.join(FORMATS)}")
    tables, repetitions = [], dict[tuple[Any, ...], int]()
    sources = [source for given in paths for source in _sources(Path(given), format, known)]
    for path, importer, of_file in sources:
        try:
            rows = importer(_text(path), str(path))
        except _NO_VALUE as error:
            raise ValueError(f"{path}: no complete result of {format}: {type(error).__name__} {error}") from error
        if not rows:
            raise ValueError(f"{path}: it has no run")
        rows = of_file.applied(rows, str(path))
        for row in rows:
            key = tuple(row.get(column) for column in _CONDITIONS)
            repetitions[key] = repetitions.get(key, -1) + 1
            row.setdefault("repetition", repetitions[key])
        tables.append(Runs.of_rows(rows, str(path)))
    return Runs.concat(tables)


def _sources(path: Path, format: str, known: Known) -> list[tuple[Path, Importer, Known]]:
    """Returns the files of a path with their importers, and what is known of each."""
    if format == "esnet-harness" and path.is_dir():
        from towpath.lab.importers.esnet import results_of_tree

        return [(file, _formats()[of_job], of_file) for file, of_job, of_file in results_of_tree(path, known)]
    return [(path, _formats()[format], known)]


_NO_VALUE = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions of importers for documents with other types or missing keys."""


def _text(path: Path) -> str:
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rb") as file:
        try:
            content = file.read(MAX_BYTES + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip data: {error}") from error
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path}: more than {MAX_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: no UTF-8 text: {error}") from error
