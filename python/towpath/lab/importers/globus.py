"""Tasks of the Globus transfer service: JSON of `globus task show -F json` and `globus task list -F json`, or CSV with a header of the
same names (docs.globus.org/api/transfer/task).

    $ globus task list -F json --filter-type TRANSFER --filter-status SUCCEEDED --limit 1000 > tasks.json

The duration is from the request to the completion: it includes the queue of the service, faults and their retries, and checksums.
Times are in whole seconds. A task has no round trip, so that is to be stated, and all tasks of a file get the same one. Other fields
than those in `detail` are ignored; names of users are among them.
"""

from __future__ import annotations

import csv
import io
import json
from datetime import datetime
from typing import Any

_DETAIL = ("faults", "files", "files_transferred", "files_skipped", "directories", "effective_bytes_per_second")
"""Whole numbers for `detail`, if a task has them."""

_ENDPOINTS = tuple(f"{end}_endpoint_{field}" for end in ("source", "destination") for field in ("id", "display_name"))


def read_globus(text: str, name: str) -> list[dict[str, Any]]:
    """Reads tasks. Raises `ValueError` for one that is no transfer or did not succeed. Tasks have no round trip."""
    is_json = text.lstrip()[:1] in ("{", "[")
    tasks = _of_json(text, name) if is_json else _of_csv(text, name)
    return [_checked_row(task, place) for place, task in tasks]


def _of_json(text: str, name: str) -> list[tuple[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if isinstance(document, dict) and "DATA" not in document:
        return [(name, document)]
    tasks = document["DATA"] if isinstance(document, dict) else document
    return [(f"{name}: task {number}", task) for number, task in enumerate(tasks, 1)]


def _of_csv(text: str, name: str) -> list[tuple[str, Any]]:
    reader = csv.DictReader(io.StringIO(text), strict=True)
    tasks: list[tuple[str, Any]] = []
    try:
        for record in reader:
            place = f"{name}: line {reader.line_num}"
            if None in record or None in record.values():
                raise ValueError(f"{place}: expected {len(reader.fieldnames or ())} cells")
            tasks.append((place, record))
    except csv.Error as error:
        raise ValueError(f"{name}: line {reader.line_num}: {error}") from error
    return tasks


def _checked_row(task: Any, place: str) -> dict[str, Any]:
    try:
        return _row(task)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{place}: no task of Globus: {type(error).__name__} {error}") from error


def _row(task: dict[str, Any]) -> dict[str, Any]:
    for field, expected in (("type", "TRANSFER"), ("status", "SUCCEEDED")):
        if task[field] != expected:
            raise ValueError(f"{field} {task[field]}, expected {expected}: list tasks with --filter-{field} {expected}")
    start, end = (_time(task[field], field) for field in ("request_time", "completion_time"))
    duration_s, size = (end - start).total_seconds(), _whole(task["bytes_transferred"], "bytes_transferred")
    if duration_s <= 0:
        raise ValueError("completed in the second of its request: the times are too coarse for a rate")
    numbers = {field: _whole(task[field], field) for field in _DETAIL if task.get(field) not in (None, "")}
    return {
        "run_id": task["task_id"],
        "tool": "globus",
        "started": start,
        "duration_s": duration_s,
        "bytes": size,
        "throughput_bits_per_s": 8 * size / duration_s,
        "detail": json.dumps({field: task[field] for field in _ENDPOINTS if task.get(field)} | numbers),
    }


def _time(text: str, field: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
    if time.tzinfo is None:
        raise ValueError(f"{field}: {text} has no time zone")
    return time


def _whole(value: int | str, field: str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from error
