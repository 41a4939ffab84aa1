"""Results of iperf3 (github.com/esnet/iperf): JSON of `--json`, or lines of `--json-stream` (3.17 and newer).

The throughput is that of the receiver, since the sender counts bytes in its own buffer. The round trip is the smallest smoothed one
of the senders unless it is known; the client has none in reverse mode. Omitted seconds (`--omit`) are left out of the intervals, as
iperf3 leaves them out of its sums.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from towpath.lab.runs import ALL_STREAMS

MICROSECONDS = 1e-6

TIME_DIGITS = 4
"""Decimal places of the times of intervals in seconds. They are at least 0.1 s long; with all digits a table has three times the size."""


def read_iperf3(text: str, name: str) -> list[dict[str, Any]]:
    """Reads one result. `run_id` is the name of the file and iperf3's cookie. Raises `ValueError` also for a test that failed."""
    result = _result(text, name)
    if "error" in result:
        raise ValueError(f"{name}: iperf3 reports: {result['error']}")
    try:
        return [_row(result, name)]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{name}: no complete result of iperf3: {type(error).__name__} {error}") from error


def _result(text: str, name: str) -> dict[str, Any]:
    try:
        whole = json.loads(text)
    except ValueError:
        return _of_stream(text, name)
    if not isinstance(whole, dict):
        raise ValueError(f"{name}: expected a JSON object")
    return _of_stream(text, name) if "event" in whole else whole


def _of_stream(text: str, name: str) -> dict[str, Any]:
    """Joins the events of `--json-stream` to the document of `--json`."""
    result: dict[str, Any] = {"intervals": []}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            event, data = (record := json.loads(line))["event"], record["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{name}: line {number}: no JSON of iperf3: {error}") from error
        if event == "interval":
            result["intervals"].append(data)
        else:
            result[event] = data
    return result


def _row(result: dict[str, Any], name: str) -> dict[str, Any]:
    start, end, test = result["start"], result["end"], result["start"]["test_start"]
    if test["protocol"] != "TCP":
        raise ValueError(f"{name}: a test of {test['protocol']}, expected TCP")
    if test.get("bidir") or test.get("target_bitrate"):
        raise ValueError(f"{name}: a test with --bidir or --bitrate, expected one direction at full rate")
    received = end["sum_received"]
    rtts = [stream["sender"]["min_rtt"] for stream in end["streams"] if stream["sender"].get("min_rtt")]
    measured = [interval for interval in result["intervals"] if not interval["sum"]["omitted"]]
    cpu = end.get("cpu_utilization_percent", {})
    return {
        "run_id": f"{name}#{start['cookie']}",
        "tool": "iperf3-reverse" if test["reverse"] else "iperf3",
        "transport": end.get("sender_tcp_congestion"),
        "streams": test["num_streams"],
        "buffer_bytes": start.get("sock_bufsize") or None,
        "rtt_s": min(rtts) * MICROSECONDS if rtts else None,
        "started": datetime.fromtimestamp(start["timestamp"]["timesecs"], timezone.utc),
        "planned_s": test["duration"] or None,
        "planned_bytes": test.get("bytes") or None,
        "duration_s": received["seconds"],
        "bytes": received["bytes"],
        "throughput_bits_per_s": 8 * received["bytes"] / received["seconds"],
        "detail": json.dumps({"version": start["version"], "cpu_percent": cpu}),
        "intervals": [piece for interval in measured for piece in _pieces(interval)],
    }


def _pieces(interval: dict[str, Any]) -> list[dict[str, Any]]:
    pieces = [(number, stream) for number, stream in enumerate(interval["streams"])]
    # iperf3 may end with an interval without a duration.
    return [_piece(values, stream) for stream, values in (*pieces, (ALL_STREAMS, interval["sum"])) if values["seconds"] > 0]


def _piece(values: dict[str, Any], stream: int) -> dict[str, Any]:
    # The field `start` is wrong by an interval where the omitted seconds end.
    start_s, end_s = max(values["end"] - values["seconds"], 0.0), float(values["end"])
    # The last interval may be shorter than the digits.
    digits = TIME_DIGITS if end_s - start_s > 10**-TIME_DIGITS else 9
    return {
        "stream": stream,
        "start_s": round(start_s, digits),
        "end_s": round(end_s, digits),
        "bytes": values["bytes"],
        "rtt_s": values["rtt"] * MICROSECONDS if values.get("rtt") else None,
        "cwnd_bytes": values.get("snd_cwnd"),
        "retransmits": values.get("retransmits"),
    }
