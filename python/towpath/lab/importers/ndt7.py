"""Results of NDT7, the test of M-Lab (github.com/m-lab/ndt-server, data/NDT7Result): a JSON object in each line.

A result is a download, an upload, or both; each is a run. The server's snapshots of TCP_INFO are the intervals: the bytes are those
that the client acknowledged in downloads, and those that the server received in uploads. Counters begin with the connection,
the clock with the test, so a run begins at the first snapshot. Snapshots of uploads have the window and the counters of the server,
which does not send the data: they are null.

`MaxBandwidth` of BBR (older results) and `BW` (newer) are in bytes per second: in real results they agree with the kernel's delivery
rate, although the documentation of the older one says bits.
"""

from __future__ import annotations

import itertools
import json
import warnings
from datetime import datetime
from typing import Any

from towpath.lab.importers import Lost
from towpath.lab.runs import ALL_STREAMS

MICROSECONDS = 1e-6

_ACKNOWLEDGED = {"Download": "BytesAcked", "Upload": "BytesReceived"}


def read_ndt7(text: str, name: str) -> list[dict[str, Any]]:
    """Reads results. A line that is none raises `ValueError`, and so does a test with less than two snapshots."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{name}: line {number}"
        try:
            result = json.loads(line)
            tests = [test for test in _ACKNOWLEDGED if result.get(test)]
            rows += [_row(result[test], test, f"{name}#{number}-{test.lower()}", place) for test in tests]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{place}: no complete result of NDT7: {type(error).__name__} {error}") from error
        except json.JSONDecodeError as error:
            raise ValueError(f"{place}: {error}") from error
        if not tests:
            raise ValueError(f"{place}: neither Download nor Upload")
    return rows


def _row(test: dict[str, Any], kind: str, run_id: str, place: str) -> dict[str, Any]:
    snapshots = [snapshot for snapshot in test["ServerMeasurements"] if snapshot.get("TCPInfo")]
    if len(snapshots) < 2:
        raise ValueError(f"{place}: {len(snapshots)} snapshots of TCP_INFO, expected two or more")
    if without := len(test["ServerMeasurements"]) - len(snapshots):
        warnings.warn(f"{place}: {without} of {len(test['ServerMeasurements'])} snapshots have no TCP_INFO", Lost, stacklevel=4)
    infos = [snapshot["TCPInfo"] for snapshot in snapshots]
    first, last, counter = infos[0], infos[-1], _ACKNOWLEDGED[kind]
    duration_s = (last["ElapsedTime"] - first["ElapsedTime"]) * MICROSECONDS
    size = last[counter] - first[counter]
    if size < 0 or any(before["ElapsedTime"] >= after["ElapsedTime"] for before, after in itertools.pairwise(infos)):
        raise ValueError(f"{place}: the snapshots are not in the order of time")
    bbr = snapshots[-1].get("BBRInfo") or {}
    bandwidth = bbr.get("BW", bbr.get("MaxBandwidth"))
    return {
        "run_id": run_id,
        "tool": f"ndt7-{kind.lower()}",
        # NDT7 uses BBR where the server has it; its results name no other.
        "transport": "bbr" if bbr else None,
        "streams": 1,
        "rtt_s": min(info["MinRTT"] for info in infos) * MICROSECONDS,
        "started": datetime.fromisoformat(_microseconds(test["StartTime"])),
        "duration_s": duration_s,
        "bytes": size,
        "throughput_bits_per_s": 8 * size / duration_s,
        "detail": json.dumps({"bbr_bandwidth_bytes_per_s": bandwidth}) if bbr else None,
        "intervals": [_interval(a, b, first, counter) for a, b in itertools.pairwise(infos)],
    }


def _microseconds(time: str) -> str:
    """Returns an RFC 3339 time with microseconds and an offset, as Python 3.10 reads it."""
    whole, _, fraction = time.removesuffix("Z").partition(".")
    return f"{whole}.{(fraction + '000000')[:6]}+00:00"


def _interval(before: dict[str, Any], after: dict[str, Any], first: dict[str, Any], counter: str) -> dict[str, Any]:
    change = {name: after[name] - before[name] for name in (counter, "TotalRetrans", "BusyTime", "RWndLimited", "SndBufLimited")}
    of_sender = {
        "cwnd_bytes": after["SndCwnd"] * after["SndMSS"],
        "retransmits": change["TotalRetrans"],
        "busy_s": change["BusyTime"] * MICROSECONDS,
        "receive_window_limited_s": change["RWndLimited"] * MICROSECONDS,
        "send_buffer_limited_s": change["SndBufLimited"] * MICROSECONDS,
    }
    return {
        "stream": ALL_STREAMS,
        "start_s": (before["ElapsedTime"] - first["ElapsedTime"]) * MICROSECONDS,
        "end_s": (after["ElapsedTime"] - first["ElapsedTime"]) * MICROSECONDS,
        "bytes": change[counter],
        "rtt_s": after["RTT"] * MICROSECONDS,
        **(of_sender if counter == _ACKNOWLEDGED["Download"] else {}),
    }
