"""Lines of JSON of a benchmark that continues after an interruption."""

from __future__ import annotations

import json
import os
import pathlib


def read_lines(path: pathlib.Path) -> list[dict]:
    """Returns the records of a file, without a last line that was cut off; none if there is no file."""
    return [json.loads(line) for line in whole_lines(path).splitlines()]


def resume_lines(path: pathlib.Path) -> list[dict]:
    """Returns the records of a file to which more are appended. Removes a last line that was cut off."""
    if path.exists():
        os.truncate(path, len(whole_lines(path)))
    return read_lines(path)


def whole_lines(path: pathlib.Path) -> bytes:
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def append_line(path: pathlib.Path, record: dict) -> None:
    """Appends a record to a file."""
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
