"""Tables of runs as CSV, with the columns of `towpath.lab.runs.SCHEMA`.

Missing optional columns and empty cells are null. There are no other units: a header such as `rtt_ms` is an error that names the
column.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime
from typing import Any

import pyarrow as pa

from towpath.lab.runs import SCHEMA


def read_csv(text: str, name: str) -> list[dict[str, Any]]:
    """Reads a table. Raises `ValueError` for an unknown column, or a cell that is no value of its type, with the line."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    unknown = [column for column in reader.fieldnames or () if column not in SCHEMA.names or column == "intervals"]
    if unknown:
        raise ValueError(f"{name}: line 1: there is no column {unknown[0]!r}; the columns are {', '.join(SCHEMA.names[:-1])}")
    rows = []
    try:
        for record in reader:
            place = f"{name}: line {reader.line_num}"
            if None in record or None in record.values():
                raise ValueError(f"{place}: expected {len(reader.fieldnames or ())} cells")
            cells = {column: _value(column, cell, place) for column, cell in record.items() if cell != ""}
            rows.append({"run_id": f"{name}#{reader.line_num}"} | cells)
    except csv.Error as error:
        raise ValueError(f"{name}: line {reader.line_num}: {error}") from error
    return rows


def _value(column: str, cell: str, place: str) -> Any:
    kind = SCHEMA.field(column).type
    try:
        if pa.types.is_floating(kind):
            return float(cell)
        if pa.types.is_integer(kind):
            return int(cell)
        return datetime.fromisoformat(cell) if pa.types.is_timestamp(kind) else cell
    except ValueError as error:
        raise ValueError(f"{place}, {column}: {error}") from error
