"""Profiles of ESnet's testing harness (github.com/esnet/testing-harness): lists of host, type, streams, congestion control, Gbit/s,
retransmit rate, reordering, and round trip in ms.

They are read as lines of JSON lists, as the harness writes them, or as CSV with a header: `site`, `test`, `streams`,
`congestion_control`, `gbit_per_s`, `retransmit_rate`, `reordering`, `rtt_ms`, and optionally `sender_nic_gbit`. A run of type `both` had
another test beside it, so its tool is `iperf3-beside`: it is in no profile with the others.

Its output directory has the JSON of iperf3 itself, with intervals, or results of pScheduler: `results_of_tree`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from towpath.lab.importers import Known

_COLUMNS = ("site", "test", "streams", "congestion_control", "gbit_per_s", "retransmit_rate", "reordering", "rtt_ms")


def read_harness(text: str, name: str) -> list[dict[str, Any]]:
    """Reads the results. A line with another number of values, or a value that is none, raises `ValueError`."""
    is_json = text.lstrip().startswith("[")
    records = _of_json(text, name) if is_json else _of_csv(text, name)
    return [_row(record, f"{name}#{number}", f"{name}: line {number}") for number, record in records]


def results_of_tree(directory: Path, known: Known) -> list[tuple[Path, str, Known]]:
    """Returns the results in an output directory of the harness, with their formats, and with site and round trip.

    They are `START/JOB/src-cmd:HOST:ITERATION…`. The format is that of pScheduler if the job's command, `src_cmd` in `jobmeta.json`, names
    it, else that of iperf3. The round trip is that of netem, at the end of the name (`…:88.0ms`), else that of `HOST-meta.json` in whole
    milliseconds unless it is 0; else the result has to have it. Raises `ValueError` if there is no result, or one of a host without that
    file.
    """
    results = sorted(path for path in directory.rglob("src-cmd:*") if path.is_file())
    if not results:
        raise ValueError(f"{directory}: no file src-cmd:… of the harness is in it")
    return [(path, _format_of(path.with_name("jobmeta.json")), _known_of(path, known)) for path in results]


def _format_of(job: Path) -> str:
    """Returns the format of a job's results."""
    try:
        command: str = (json.loads(job.read_text()) if job.exists() else {}).get("src_cmd", "")
        return "pscheduler" if "pscheduler" in command.split() else "iperf3"
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{job}: no description of a job: {error}") from error


def _known_of(path: Path, known: Known) -> Known:
    name = path.name.removeprefix("src-cmd:")
    for meta in path.parent.glob("*-meta.json"):
        try:
            host = json.loads(meta.read_text())
            site, rtt_ms = host["alias"] or host["hostname"], float(host["rtt"])
            is_of_host = name.startswith(f"{host['hostname']}:")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{meta}: no description of a host: {type(error).__name__} {error}") from error
        if is_of_host:
            emulated = _NETEM.search(name)
            rtt_s = float(emulated[1]) / 1e3 if emulated else rtt_ms / 1e3 if rtt_ms > 0 else None
            return replace(known, site=known.site or site, rtt_s=rtt_s if known.rtt_s is None else known.rtt_s)
    raise ValueError(f"{path}: no …-meta.json beside it describes its host")


_NETEM = re.compile(r":(\d+(?:\.\d+)?)ms$")


def _of_json(text: str, name: str) -> list[tuple[int, dict[str, Any]]]:
    records = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            values = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{name}: line {number}: {error}") from error
        if not isinstance(values, list) or len(values) != len(_COLUMNS):
            raise ValueError(f"{name}: line {number}: expected a list of {len(_COLUMNS)} values")
        records.append((number, dict(zip(_COLUMNS, values, strict=True))))
    return records


def _of_csv(text: str, name: str) -> list[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise ValueError(f"{name}: line 1: column {missing[0]!r} is missing")
    try:
        return [(number, record) for number, record in enumerate(reader, 2)]
    except csv.Error as error:
        raise ValueError(f"{name}: line {reader.line_num}: {error}") from error


def _row(record: dict[str, Any], run_id: str, place: str) -> dict[str, Any]:
    if None in record:
        raise ValueError(f"{place}: more cells than columns")
    try:
        sender = record.get("sender_nic_gbit")
        return {
            "run_id": run_id,
            "tool": "iperf3-beside" if record["test"] == "both" else "iperf3",
            "transport": record["congestion_control"],
            "streams": int(record["streams"]),
            "rtt_s": float(record["rtt_ms"]) / 1e3,
            "throughput_bits_per_s": float(record["gbit_per_s"]) * 1e9,
            "capacity_bits_per_s": float(sender) * 1e9 if sender else None,
            "site": record["site"],
            "detail": json.dumps({"retransmit_rate": float(record["retransmit_rate"]), "reordering": float(record["reordering"])}),
        }
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error
