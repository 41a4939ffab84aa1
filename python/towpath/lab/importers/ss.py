"""Snapshots of the kernel's TCP statistics by `ss -tin` of iproute2, each after a line with its time in seconds since 1970:

    $ while date +%s.%N; do ss -tin dst 198.18.0.2; sleep 0.1; done > ss.txt

Each connection whose data were acknowledged between two snapshots is a run, from the first snapshot that has it to the last. Other
options of `ss` (`-e`, `-H`, `-m`, `-O`, `-o`, `-p`) and filters change nothing. The time is that before `ss` runs, so
intervals are inaccurate by the delay of that, a few milliseconds.

Counters of limits (`busy`, `rwnd_limited`, `sndbuf_limited`) are in milliseconds; they are null for kernels without them (before 4.10).
Round trips are in milliseconds. `ss` prints no counter that is 0.
"""

from __future__ import annotations

import itertools
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from towpath.lab.importers import Idle

MILLISECONDS = 1e-3

_TIME = re.compile(r"\d{9,11}(?:\.\d+)?")
_NUMBER = re.compile(r"[\d.]+")
_LIMITS = {"busy": "busy_s", "rwnd_limited": "receive_window_limited_s", "sndbuf_limited": "send_buffer_limited_s"}


@dataclass
class _Snapshot:
    """Statistics of a connection at one time."""

    t_s: float
    words: list[str] = field(default_factory=list)

    def text(self, key: str) -> str | None:
        """Returns the value of a word `key:value`."""
        values = (word[len(key) + 1 :] for word in self.words if word.startswith(f"{key}:"))
        return next(values, None)

    def number(self, key: str) -> float | None:
        """Returns the number with which a value begins, such as 12 for `busy:12ms`."""
        text = self.text(key)
        match = None if text is None else _NUMBER.match(text)
        return float(match[0]) if match else None

    def counter(self, key: str) -> float:
        """Returns a counter."""
        return self.number(key) or 0.0

    @property
    def retransmits(self) -> int:
        """Segments that were sent again; the word has also those that are not yet acknowledged: `retrans:0/5`."""
        return int((self.text("retrans") or "0/0").partition("/")[2])

    @property
    def control(self) -> str | None:
        """Congestion control, the word before the window scale or the timeout."""
        before = itertools.takewhile(lambda word: not word.startswith(("wscale:", "rto:")), self.words)
        plain = [word for word in before if ":" not in word]
        return plain[-1] if plain else None


def read_ss(text: str, name: str) -> list[dict[str, Any]]:
    """Reads the connections that sent. Raises `ValueError` for a line before the first time, and if no connection sent."""
    connections: dict[tuple[str, str], list[_Snapshot]] = {}
    for connection, snapshot in _snapshots(text, name):
        connections.setdefault(connection, []).append(snapshot)
    rows = []
    for connection, snapshots in connections.items():
        sizes = [int(snapshot.counter("bytes_acked")) for snapshot in snapshots]
        if any(before > after for before, after in itertools.pairwise(sizes)):
            raise ValueError(f"{name}: bytes_acked of {' to '.join(connection)} decreases: two connections with the same addresses")
        if sizes[0] < sizes[-1]:
            rows.append(_row(connection, snapshots, name))
    if not rows:
        raise ValueError(f"{name}: no connection had data acknowledged between two snapshots")
    if idle := len(connections) - len(rows):
        warnings.warn(f"{name}: {idle} of {len(connections)} connections had no data acknowledged", Idle, stacklevel=2)
    return rows


def _snapshots(text: str, name: str) -> Iterator[tuple[tuple[str, str], _Snapshot]]:
    """Yields each snapshot of a connection with its local and peer address."""
    t_s: float | None = None
    found: tuple[tuple[str, str], _Snapshot] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if found is not None and line[:1].isspace():
            found[1].words += words
            continue
        if found is not None:
            yield found
            found = None
        if _TIME.fullmatch(line.strip()):
            if t_s is not None and float(line) <= t_s:
                raise ValueError(f"{name}: line {number}: the time {line.strip()} is not after {t_s}")
            t_s = float(line)
        elif words and "Address:Port" not in line:
            if t_s is None:
                raise ValueError(f"{name}: line {number}: expected a time in seconds, as of `date +%s.%N`")
            found = _connection(words, t_s, f"{name}: line {number}")
    if found is not None:
        yield found


def _connection(words: list[str], t_s: float, place: str) -> tuple[tuple[str, str], _Snapshot]:
    # With a filter by state, `ss` prints no state.
    fields = words if words[0].isdigit() else words[1:]
    if len(fields) < 4 or not (fields[0].isdigit() and fields[1].isdigit() and ":" in fields[2] and ":" in fields[3]):
        raise ValueError(f"{place}: no connection of `ss -tin`: {' '.join(words)[:80]}")
    return (fields[2], fields[3]), _Snapshot(t_s, fields[4:])


def _row(connection: tuple[str, str], snapshots: list[_Snapshot], name: str) -> dict[str, Any]:
    run_id = f"{name}#{'-'.join(connection)}"
    first, last = snapshots[0], snapshots[-1]
    duration_s, size = last.t_s - first.t_s, int(last.counter("bytes_acked") - first.counter("bytes_acked"))
    rtts = [rtt for snapshot in snapshots if (rtt := snapshot.number("minrtt") or snapshot.number("rtt"))]
    # A connection can be busy for less than a tick. Newer kernels count its delivered segments.
    has_limits = any(snapshot.number(key) is not None for snapshot in snapshots for key in ("busy", "delivered"))
    return {
        "run_id": run_id,
        "tool": "ss",
        "transport": last.control,
        "streams": 1,
        "rtt_s": min(rtts) * MILLISECONDS if rtts else None,
        "started": datetime.fromtimestamp(first.t_s, timezone.utc),
        "duration_s": duration_s,
        "bytes": size,
        "throughput_bits_per_s": 8 * size / duration_s,
        "detail": json.dumps(dict(zip(("local", "peer"), connection, strict=True))),
        "intervals": [_interval(before, after, first.t_s, has_limits) for before, after in itertools.pairwise(snapshots)],
    }


def _interval(before: _Snapshot, after: _Snapshot, first_s: float, has_limits: bool) -> dict[str, Any]:
    rtt, segments, segment_bytes = (after.number(key) for key in ("rtt", "cwnd", "mss"))
    limits = {column: (after.counter(key) - before.counter(key)) * MILLISECONDS for key, column in _LIMITS.items()} if has_limits else {}
    return {
        "stream": 0,
        "start_s": before.t_s - first_s,
        "end_s": after.t_s - first_s,
        "bytes": int(after.counter("bytes_acked") - before.counter("bytes_acked")),
        "rtt_s": None if rtt is None else rtt * MILLISECONDS,
        "cwnd_bytes": None if segments is None or segment_bytes is None else int(segments * segment_bytes),
        "retransmits": after.retransmits - before.retransmits,
        **limits,
    }
