"""The limit of a run: receive window, send buffer, application or network, by the counters of the kernel that sent.

    >>> import pandas as pd
    >>> counters = {"busy_s": [9.0], "receive_window_limited_s": [6.0], "send_buffer_limited_s": [1.0]}
    >>> found = attribute(pd.DataFrame({"stream": [0], "start_s": [0.0], "end_s": [10.0], "bytes": [1]} | counters))
    >>> found.limit, found.receive_window, found.send_buffer, found.application, found.network
    ("receiver's window", 0.6, 0.1, 0.1, 0.2)

Linux counts in TCP_INFO, since 4.10, for how long a connection was busy (unacknowledged or unsent data), and for how long of that the
receive window or the send buffer was the limit. The rest of the busy time is due to the congestion window (`network`), and the time that
is not busy is due to the application. `attribute_run` takes a run of NDT7, `ss` or a trace of `towpath probe`, whose intervals also say
that nothing waits to be sent (`starved`), and how large the receive window is. `shares_of_spent` sums the causes of a copy or a probe
(docs/concepts/verdict.md) by the same limits.

Rules for counters that disagree with the clock:

- Differences of a counter are summed before they are compared with the elapsed time, since it advances in ticks (1 to 10 ms), and is read
  before or after the clock. The run begins at its first snapshot, so the counters may begin earlier, as those of NDT7 do.
- A decrease is a counter that restarted. It counts as 0, and `decrease_s` has it.
- Busy time beyond the elapsed time is cut off, and `excess_s` has it.
- The receive window and the send buffer are parts of the busy time, and exclude each other. Where their sum exceeds it, the send buffer is
  cut off first, and then the receive window, as in the mover's account; `overlap_s` has the difference.

Connections are weighted by their bytes. Limits: data in flight count as busy, so an application that sends a little in each round trip
looks like the network, unless its intervals are `starved`. A receiver that does not read looks like a small receive window where the size
of that is unknown. In probes with Reno, Linux hardly counted a full send buffer; with BBR it did. Processors are not in these counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from towpath.lab.runs import ALL_STREAMS, Runs

FloatArray = npt.NDArray[np.float64]

CAUSES: dict[str, tuple[str, ...]] = {
    "receiver's window": ("receiver's window",),
    "sender's window": ("sender's window",),
    "application": (
        *("limit", "listing", "file overhead", "earlier upload", "retry", "source read", "destination write", "checksum"),
        *("third party", "processor", "far processor", "mover's window"),
    ),
    "network": ("slow start", "loss", "bandwidth"),
}
"""The limits, in the order of the shares, and the causes of docs/concepts/verdict.md that each includes. The cause `far end` belongs to
none: the sender did not report."""

COUNTERS = ("busy_s", "receive_window_limited_s", "send_buffer_limited_s")

MAX_OVERLAP_S = 1e-6
"""Maximum overlap of two intervals of a connection, in seconds: their times are rounded."""

TURNOVER = 0.5
"""Minimum part of the receive window that is sent in each round trip if the window is the limit, as in the mover's account. With
less, the receiver does not read the data that arrived."""


@dataclass(frozen=True)
class Attribution:
    """Shares of the time of a run by limit, and the disagreement of its counters. The shares sum to 1."""

    receive_window: float
    send_buffer: float
    application: float
    """Nothing to send, or a receiver that does not read."""
    network: float
    """The congestion window was the limit: slow start, loss or bandwidth."""
    connections: int
    elapsed_s: float
    """Sum of the intervals of all connections, in seconds."""
    decrease_s: float
    """Sum of the decreases of all counters, in seconds; 0 if none restarted."""
    excess_s: float
    """Busy time beyond the elapsed time, in seconds."""
    overlap_s: float
    """Limited time beyond the busy time, in seconds."""

    @property
    def shares(self) -> dict[str, float]:
        """The shares by the names of the limits (`CAUSES`)."""
        return dict(zip(CAUSES, (self.receive_window, self.send_buffer, self.application, self.network), strict=True))

    @property
    def limit(self) -> str:
        """The limit with the largest share."""
        return max(self.shares, key=self.shares.__getitem__)


@dataclass(frozen=True)
class _Connection:
    """Seconds of one connection by limit, in the order of `CAUSES`, and its disagreements."""

    limited_s: FloatArray
    size: float
    elapsed_s: float
    decrease_s: float
    excess_s: float
    overlap_s: float


def attribute(intervals: pd.DataFrame) -> Attribution:
    """Returns the shares of the intervals of a run (`Runs.intervals`).

    Intervals of single connections are taken if there are any, else those of all. Where they are known, two columns move time to the
    application: `starved` that of the network, and `peer_window_bytes` that of the receive window, if less than `TURNOVER` of it was sent
    in each round trip (`rtt_s`). Raises `ValueError` for intervals that overlap or have no counters.
    """
    frame = _checked(intervals)
    connections = [_connection(group) for _, group in frame.groupby("stream")]
    sizes = np.array([connection.size for connection in connections])
    # A connection without data does not count if others have some.
    weights = np.full(len(sizes), 1 / len(sizes)) if sizes.sum() == 0 else sizes / sizes.sum()
    rows = [connection.limited_s / connection.elapsed_s for connection in connections]
    window, buffer, application, network = (float(share) for share in weights @ np.array(rows))
    return Attribution(
        receive_window=window,
        send_buffer=buffer,
        application=application,
        network=network,
        connections=len(connections),
        elapsed_s=sum(connection.elapsed_s for connection in connections),
        decrease_s=sum(connection.decrease_s for connection in connections),
        excess_s=sum(connection.excess_s for connection in connections),
        overlap_s=sum(connection.overlap_s for connection in connections),
    )


def attribute_run(runs: Runs, run_id: str) -> Attribution:
    """Returns the shares of a run. Raises `KeyError` for an unknown one, and `ValueError` for one without counters of its sender."""
    intervals = runs.intervals(run_id)
    frame = runs.frame()
    if frame.tool[frame.run_id == run_id].item() == "ndt7-upload":
        raise ValueError(f"{run_id}: the counters of an upload of NDT7 are those of the server, which received")
    try:
        return attribute(intervals)
    except ValueError as error:
        raise ValueError(f"{run_id}: {error}") from error


def shares_of_spent(spent: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Returns the shares by limit of `explained.spent`, in the document of `towpath probe --json` or the last one of `towpath cp --json`.

    Time that the far end did not explain is left out. Raises `ValueError` for an unknown cause, and if no time is left.
    """
    seconds = dict.fromkeys(CAUSES, 0.0)
    for entry in spent:
        if entry["cause"] != "far end":
            seconds[_limit_of(entry["cause"])] += entry["seconds"]
    total = sum(seconds.values())
    if not total > 0:
        raise ValueError("spent: no cause but the far end has more than 0 seconds")
    return {limit: value / total for limit, value in seconds.items()}


def _limit_of(cause: str) -> str:
    for limit, causes in CAUSES.items():
        if cause in causes:
            return limit
    raise ValueError(f"spent: {cause!r} is no cause")


def _checked(intervals: pd.DataFrame) -> pd.DataFrame:
    """Returns the intervals of connections, in the order of time."""
    missing = [column for column in ("stream", "start_s", "end_s", "bytes", *COUNTERS) if column not in intervals]
    if missing:
        raise ValueError(f"intervals: column {missing[0]!r} is missing")
    of_connections = intervals[intervals.stream != ALL_STREAMS]
    frame = (intervals if of_connections.empty else of_connections).sort_values(["stream", "start_s"])
    if frame.empty:
        raise ValueError("intervals: there are none")
    for column in ("start_s", "end_s", "bytes", *COUNTERS):
        unknown = int((~np.isfinite(frame[column].to_numpy(dtype=np.float64))).sum())
        if unknown:
            raise ValueError(f"intervals: {column} is unknown in {unknown} of {len(frame)}")
    streams, starts, ends = (frame[column].to_numpy() for column in ("stream", "start_s", "end_s"))
    overlaps = (streams[1:] == streams[:-1]) & (starts[1:] < ends[:-1] - MAX_OVERLAP_S)
    if overlaps.any() or (ends <= starts).any():
        raise ValueError("intervals: two of a connection overlap, or one does not end after its start")
    return frame


def _connection(frame: pd.DataFrame) -> _Connection:
    elapsed = (frame.end_s - frame.start_s).to_numpy(dtype=np.float64)
    differences = frame[list(COUNTERS)].to_numpy(dtype=np.float64)
    counted = np.maximum(differences, 0)
    elapsed_s, (busy, window, buffer) = float(elapsed.sum()), counted.sum(axis=0)
    busy_s = min(busy, elapsed_s)
    window_s = min(window, busy_s)
    buffer_s = min(buffer, busy_s - window_s)
    network_s = busy_s - window_s - buffer_s
    starved_s, unread_s = _moved(frame, counted, network_s, window_s)
    limited_s = np.array([window_s - unread_s, buffer_s, elapsed_s - busy_s + starved_s + unread_s, network_s - starved_s])
    decrease_s = float((counted - differences).sum())
    return _Connection(
        limited_s, float(frame.bytes.sum()), elapsed_s, decrease_s, float(busy - busy_s), max(float(window + buffer - busy), 0.0)
    )


def _moved(frame: pd.DataFrame, counted: FloatArray, network_s: float, window_s: float) -> tuple[float, float]:
    """Returns the seconds that are of the application: those of the network, and those of the receive window."""
    busy, window, buffer = counted.T
    known = frame.reindex(columns=["starved", "peer_window_bytes", "rtt_s"])
    is_starved = known.starved.eq(True).to_numpy(dtype=bool)
    peer_window, rtt_s = (known[column].to_numpy(dtype=np.float64, na_value=np.nan) for column in ("peer_window_bytes", "rtt_s"))
    sent_in_rtt = (frame.bytes / (frame.end_s - frame.start_s)).to_numpy(dtype=np.float64) * rtt_s
    is_unread = sent_in_rtt < TURNOVER * peer_window
    starved_s = np.maximum(busy - window - buffer, 0)[is_starved].sum()
    return min(float(starved_s), network_s), min(float(window[is_unread].sum()), window_s)
