"""The mover's memory of paths: the best number of connections and the rate. The next copy begins with half of that number.

    >>> from towpath.lab import path_memory
    >>> path_memory.learn()  # doctest: +SKIP
                       from to  connections  bytes_per_s                      time
    0  root://far.example:1094  -            8    117000000 2026-01-31 12:00:00+00:00

`towpath cp` writes what it found, and reads it for a month (docs/concepts/tuning.md). `learn` reads the entries, and `teach` writes
one from measurements of the lab. Ends are URLs up to the authority, or `-` for this machine; a path and its reverse are two entries.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import urlsplit

import pandas as pd

MAX_ENTRIES = 1_000
"""Maximum number of entries that the mover keeps, the newest ones."""

MAX_AGE = pd.Timedelta(days=30)
"""Age up to which the mover uses an entry."""

MAX_CONNECTIONS = 64
"""Maximum number of connections of a probe."""

_SCHEMES = {"root": "root", "roots": "roots", "xroot": "root", "xroots": "roots"}
"""Schemes of URLs, and their names in entries. The mover tries numbers of connections only over XRootD."""

_PORT = 1094
"""The default port, which entries omit."""


def default_file() -> Path:
    """Returns the file of the mover: `towpath/paths` in the user's cache directory."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "towpath" / "paths"


def learn(file: Path | None = None) -> pd.DataFrame:
    """Returns the entries: from, to, connections, bytes_per_s, time (UTC), the newest first; none if there is no file.

    Raises `ValueError` with the number of a line that is no entry. The mover ignores such a line.
    """
    path = file or default_file()
    rows = [_parse(line, f"{path}: line {number}") for number, line in enumerate(_lines(path), 1)]
    frame = pd.DataFrame(rows, columns=["from", "to", "connections", "bytes_per_s", "time"])
    frame["time"] = pd.to_datetime(frame["time"], unit="s", utc=True)
    return frame.sort_values("time", ascending=False, ignore_index=True)


def is_expired(entries: pd.DataFrame) -> pd.Series[bool]:
    """Returns for each entry whether it is older than the month for which the mover uses it."""
    return pd.Timestamp.now("UTC") - entries["time"] > MAX_AGE


def teach(source: str, destination: str, *, connections: int, bytes_per_s: float, file: Path | None = None) -> Path:
    """Writes the entry of a path in the place of its former one, and returns the file.

    `source` and `destination` are URLs of the XRootD family, whose paths do not count, or `-`; 1 to 64 connections. Other lines stay
    as they are. The mover writes the file too: the entry of one of two concurrent writers is lost.
    """
    ends = f"{_end(source)} {_end(destination)}"
    if _end(source) == _end(destination):
        raise ValueError(f"source, destination: both are {_end(source)}")
    if not 1 <= connections <= MAX_CONNECTIONS or not 0 < bytes_per_s < 1e14:
        raise ValueError(f"connections, bytes_per_s: {connections} and {bytes_per_s}: expected 1 to {MAX_CONNECTIONS}, and more than 0")
    path = file or default_file()
    kept = [line for line in _lines(path) if " ".join(line.split(" ")[:2]) != ends]
    lines = [f"{ends} {connections} {bytes_per_s:.0f} {int(time.time())}", *kept][:MAX_ENTRIES]
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text("".join(line + "\n" for line in lines))
    fresh.replace(path)
    return path


def _end(place: str) -> str:
    """Returns the end of a path as the mover writes it: scheme and authority of a URL, without user and default port."""
    if place == "-":
        return place
    url = urlsplit(place)
    if url.scheme not in _SCHEMES or not url.hostname or " " in url.netloc:
        raise ValueError(f"{place!r}: expected a URL such as root://far.example.org, or - for this machine")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    port = "" if url.port in (None, _PORT) else f":{url.port}"
    return f"{_SCHEMES[url.scheme]}://{host}{port}/"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _parse(line: str, place: str) -> tuple[str, str, int, int, int]:
    try:
        source, destination, connections, bytes_per_s, unix_s = line.split(" ")
        return source, destination, int(connections), int(bytes_per_s), int(unix_s)
    except ValueError as error:
        raise ValueError(f"{place}: expected FROM TO CONNECTIONS RATE TIME, not {line!r}") from error
