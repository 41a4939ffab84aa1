"""Lines of JSON of a benchmark that continues after an interruption."""

from __future__ import annotations

import json
import os
import pathlib


def read_lines(path: pathlib.Path) -> list[dict]:
    """Returns the records of a file; none if there is no file. A last line that was cut off is removed."""
    content = path.read_bytes() if path.exists() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def append_line(path: pathlib.Path, record: dict) -> None:
    """Appends a record to a file."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
