"""Text of the kernel's tracepoint tcp:tcp_probe, from the files `trace` and `trace_pipe` of tracefs or from `perf script`.

    # echo 1 > /sys/kernel/tracing/events/tcp/tcp_probe/enable
    # cat /sys/kernel/tracing/trace_pipe > probe.txt

An event is a segment that a socket received, with the state before it. Each socket whose data were acknowledged is a run, from its first
event to its last, with the bytes that were acknowledged in between. The other end of a connection is another socket: it is no run if
it sent nothing. There are no events after a socket closed its end. Intervals end with an event and take at most 10 ms, or the time from one
event to the next if that is longer.

Sequence numbers have 32 bits. No window is larger than 1 GiB (RFC 7323, section 2.3), so events may be lost as long as less than that was
acknowledged meanwhile. The window of an event is in segments, whose size it does not have: `cwnd_bytes` is null, and `detail` has the
maximum in segments. Round trips are smoothed, in microseconds. Times have no date, so `started` is null.
"""

from __future__ import annotations

import itertools
import json
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from towpath.lab.importers import Idle, Lost

MICROSECONDS = 1e-6
INTERVAL_S = 0.01
"""Maximum length of an interval of several events, in seconds."""

_EVENT = re.compile(r".* (\d+\.\d+): (?:tcp:)?tcp_probe: (.*)")
_LOST = re.compile(r"CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]")
_MAX_WINDOW_BYTES = 1 << 30
_SEQUENCE_NUMBERS = 1 << 32


@dataclass(frozen=True)
class _Point:
    """State of a socket."""

    t_s: float
    acknowledged: int
    """Bytes since the first event."""
    srtt_us: int


@dataclass
class _Socket:
    """The events of a socket."""

    source: str
    destination: str
    next_unacknowledged: int
    """Sequence number of the last event."""
    max_cwnd_segments: int = 0
    min_srtt_us: int = 0
    """0 if no event has a round trip."""
    points: list[_Point] = field(default_factory=list)
    """Ends of intervals, in the order of time."""

    def add(self, t_s: float, event: dict[str, str]) -> None:
        """Adds an event. Raises `ValueError` if it cannot belong to this socket."""
        number, last = int(event["snd_una"], 16), self.points[-1] if self.points else None
        progress = (number - self.next_unacknowledged + _SEQUENCE_NUMBERS // 2) % _SEQUENCE_NUMBERS - _SEQUENCE_NUMBERS // 2
        if abs(progress) > _MAX_WINDOW_BYTES:
            raise ValueError(
                f"{self.source}: snd_una goes from {self.next_unacknowledged:#x} to {number:#x}: two connections, or lost events"
            )
        if last and t_s < last.t_s - INTERVAL_S:
            raise ValueError(f"{self.source}: the time {t_s} is before {last.t_s}")
        acknowledged = last.acknowledged if last else 0
        # The clocks of processors differ a little, so an event can be behind the one before it.
        t_s = max(t_s, last.t_s) if last else t_s
        if progress > 0:
            self.next_unacknowledged, acknowledged = number, acknowledged + progress
        srtt_us = int(event["srtt"])
        self.max_cwnd_segments = max(self.max_cwnd_segments, int(event["snd_cwnd"]))
        self.min_srtt_us = min(self.min_srtt_us or srtt_us, srtt_us or self.min_srtt_us)
        self._append(_Point(t_s, acknowledged, srtt_us))

    def _append(self, point: _Point) -> None:
        """Appends a point. It replaces the last one at the same time, or if both are in one interval."""
        points = self.points
        if points and (point.t_s == points[-1].t_s or (len(points) > 1 and point.t_s - points[-2].t_s <= INTERVAL_S)):
            points.pop()
        points.append(point)


def read_tcp_probe(text: str, name: str) -> list[dict[str, Any]]:
    """Reads the sockets that sent. Raises `ValueError` for a line of another event, and if no socket sent."""
    sockets: dict[tuple[str, str, str | None], _Socket] = {}
    lost = 0
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if match := _LOST.fullmatch(line):
            lost += int(match[1] or 1)
            continue
        try:
            _add(sockets, line)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{name}: line {number}: {_problem(error)}") from error
    senders = [socket for socket in sockets.values() if socket.points[-1].acknowledged > socket.points[0].acknowledged]
    if not senders:
        raise ValueError(f"{name}: no socket had data acknowledged between two events")
    if idle := len(sockets) - len(senders):
        warnings.warn(f"{name}: {idle} of {len(sockets)} sockets had no data acknowledged", Idle, stacklevel=2)
    if lost:
        warnings.warn(f"{name}: the kernel lost {lost} events; record to a file, or enlarge buffer_size_kb", Lost, stacklevel=2)
    return [_row(socket, f"{name}#{number}", lost) for number, socket in enumerate(senders)]


def _add(sockets: dict[tuple[str, str, str | None], _Socket], line: str) -> None:
    match = _EVENT.fullmatch(line)
    if match is None:
        raise ValueError("no event tcp_probe; record no other")
    event = dict(pair.partition("=")[::2] for pair in match[2].split())
    source, destination = event["src"], event["dest"]
    # Older kernels have no cookie.
    key = (source, destination, event.get("sock_cookie"))
    if key not in sockets:
        sockets[key] = _Socket(source, destination, int(event["snd_una"], 16))
    sockets[key].add(float(match[1]), event)


def _problem(error: Exception) -> str:
    return f"the event has no {error}" if isinstance(error, KeyError) else str(error)


def _row(socket: _Socket, run_id: str, lost: int) -> dict[str, Any]:
    first, last = socket.points[0], socket.points[-1]
    duration_s, size = last.t_s - first.t_s, last.acknowledged - first.acknowledged
    detail = {"source": socket.source, "destination": socket.destination, "max_cwnd_segments": socket.max_cwnd_segments}
    return {
        "run_id": run_id,
        "tool": "tcp-probe",
        "streams": 1,
        "rtt_s": socket.min_srtt_us * MICROSECONDS if socket.min_srtt_us else None,
        "duration_s": duration_s,
        "bytes": size,
        "throughput_bits_per_s": 8 * size / duration_s,
        "detail": json.dumps(detail | {"lost_events": lost}),
        "intervals": [_interval(before, after, first) for before, after in itertools.pairwise(socket.points)],
    }


def _interval(before: _Point, after: _Point, first: _Point) -> dict[str, Any]:
    return {
        "stream": 0,
        "start_s": before.t_s - first.t_s,
        "end_s": after.t_s - first.t_s,
        "bytes": after.acknowledged - before.acknowledged,
        "rtt_s": after.srtt_us * MICROSECONDS if after.srtt_us else None,
    }
