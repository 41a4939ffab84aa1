"""Profiles of ESnet's testing harness (github.com/esnet/testing-harness): lists of host, type, streams, congestion control, Gbit/s,
retransmit rate, reordering, and round trip in ms.

They are read as lines of JSON lists, as the harness writes them, or as CSV with a header: `site`, `test`, `streams`,
`congestion_control`, `gbit_per_s`, `retransmit_rate`, `reordering`, `rtt_ms`, and optionally `sender_nic_gbit`. A run of type `both` had
another test beside it, so its tool is `iperf3-beside`: it is in no profile with the others.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from towpath.lab.importers import Known

_COLUMNS = ("site", "test", "streams", "congestion_control", "gbit_per_s", "retransmit_rate", "reordering", "rtt_ms")


def read_harness(text: str, name: str, known: Known) -> list[dict[str, Any]]:
    """Reads the results. A line with another number of values, or a value that is none, raises `ValueError`."""
    is_json = text.lstrip().startswith("[")
    records = _of_json(text, name) if is_json else _of_csv(text, name)
    return [_row(record, f"{name}#{number}", known, f"{name}: line {number}") for number, record in records]


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


def _row(record: dict[str, Any], run_id: str, known: Known, place: str) -> dict[str, Any]:
    if None in record:
        raise ValueError(f"{place}: more cells than columns")
    try:
        sender = record.get("sender_nic_gbit")
        return known.row(
            run_id=run_id,
            tool="iperf3-beside" if record["test"] == "both" else "iperf3",
            transport=record["congestion_control"],
            streams=int(record["streams"]),
            rtt_s=float(record["rtt_ms"]) / 1e3,
            throughput_bits_per_s=float(record["gbit_per_s"]) * 1e9,
            capacity_bits_per_s=float(sender) * 1e9 if sender else None,
            site=record["site"],
            detail=json.dumps({"retransmit_rate": float(record["retransmit_rate"]), "reordering": float(record["reordering"])}),
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place}: {error}") from error
