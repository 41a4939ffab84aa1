"""Results of throughput tests of pScheduler, the scheduler of perfSONAR (github.com/perfsonar/pscheduler).

A file has one JSON document or several: a result (`pscheduler result --format application/json`), the run of the REST API with it, or a
record of an archiver, which also has the test and its start. The lines that `pscheduler task --format json` prints beside them are
skipped. The result has the names of iperf3 under other keys.

The throughput is `receiver-throughput-bits` where iperf3 reports it, else that of the sender. Only its rate is known: `bytes` is null
then, and `detail` has the bytes of the sender. `throughput-bytes` is the byte count of iperf3. In results of iperf2 and ethr it is a
rate, as the schema describes it, and bytes are computed from `throughput-bits` and the time. Round trips are in microseconds. Omitted
seconds are left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from towpath.lab.runs import ALL_STREAMS

MICROSECONDS = 1e-6

_TOLERANCE = 1e-3
"""Maximum relative difference of a byte count and its rate. The times of iperf3 have microseconds."""

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
"""ISO 8601 without years and months, which have no fixed length."""

_OF_UDP = ("jitter", "lost", "sent")


def read_pscheduler(text: str, name: str) -> list[dict[str, Any]]:
    """Reads results. Raises `ValueError` also for a test that failed, with its message, and for one over UDP."""
    rows = []
    for number, document in _documents(text, name):
        try:
            rows.append(_row(document, f"{name}#{number}"))
        except ValueError as error:
            raise ValueError(f"{name}: line {number}: {error}") from error
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            problem = f"no complete throughput result of pScheduler: {type(error).__name__} {error}"
            raise ValueError(f"{name}: line {number}: {problem}") from error
    return rows


def _documents(text: str, name: str) -> list[tuple[int, Any]]:
    """Returns the documents with the numbers of their first lines."""
    documents, decoder, end, line = [], json.JSONDecoder(), 0, 1
    while found := _NOT_BLANK.search(text, end):
        start = found.start()
        line += text.count("\n", end, start)
        if progress := _PROGRESS.match(text, start):
            end = progress.end()
            continue
        try:
            document, end = decoder.raw_decode(text, start)
        except ValueError as error:
            raise ValueError(f"{name}: line {line}: {error}") from error
        documents.append((line, document))
        line += text.count("\n", start, end)
    return documents


_NOT_BLANK = re.compile(r"\S")

_PROGRESS = re.compile(r"(Submitting |Task URL:|https?://|Running with tool |Fetching first run|No further runs scheduled).*")
"""Lines that `pscheduler task` prints beside a result."""


def _result(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns the record around a result, empty if there is none, and the result."""
    if "succeeded" in document:
        return {}, document
    if "result-merged" in document:
        return document, document["result-merged"]
    inner = document["result"]
    # The input of an archiver has its record as `result`.
    return _result(inner) if isinstance(inner, dict) and "result" in inner else (document, inner)


def _row(document: dict[str, Any], run_id: str) -> dict[str, Any]:
    record, result = _result(document)
    if result is None or not result["succeeded"]:
        message = (result or {}).get("error") or record.get("errors") or "no message"
        raise ValueError(f"the test failed: {message}")
    test = record.get("test") or record.get("task", {}).get("test") or {"type": "throughput", "spec": {}}
    if test["type"] != "throughput":
        raise ValueError(f"a test of type {test['type']}, expected throughput")
    spec, total = test["spec"], result["summary"]["summary"]
    if spec.get("udp") or any(total.get(key) is not None for key in _OF_UDP):
        raise ValueError("a test of UDP, expected TCP")
    for option in _NOT_AT_FULL_RATE:
        if spec.get(option):
            raise ValueError(f"a test with {option}, expected one direction at full rate")
    duration_s, rate = total["end"] - total["start"], total.get("receiver-throughput-bits")
    _check_total(total)
    size = _bytes(total)
    return {
        "run_id": run_id,
        "tool": f"{_tool(record)}-reverse" if spec.get("reverse") else _tool(record),
        "transport": spec.get("congestion"),
        "streams": spec.get("parallel") or len(result["summary"]["streams"]) or None,
        "buffer_bytes": spec.get("window-size"),
        "rtt_s": _round_trip(result),
        "started": _start(record),
        "planned_s": _seconds(spec["duration"]) if "duration" in spec else None,
        "duration_s": duration_s,
        "bytes": size if rate is None else None,
        "throughput_bits_per_s": 8 * size / duration_s if rate is None else rate,
        "site": spec.get("dest"),
        "detail": json.dumps({"side": "sender" if rate is None else "receiver", "sent_bytes": size, "reverse": bool(spec.get("reverse"))}),
        "intervals": _intervals(result["intervals"]),
    }


_NOT_AT_FULL_RATE = ("bandwidth", "bandwidth-strict", "fq-rate", "bidirectional")
"""Options of a test whose rate says nothing about the path, or which has two directions."""


def _tool(record: dict[str, Any]) -> str:
    tool = record.get("tool")
    label = tool["name"] if isinstance(tool, dict) else tool
    return f"pscheduler-{label}" if label else "pscheduler"


def _start(record: dict[str, Any]) -> datetime | None:
    text = record.get("start-time") or record.get("schedule", {}).get("start")
    if text is None:
        return None
    start = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if start.tzinfo is None:
        raise ValueError(f"the start {text} has no time zone")
    return start


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no duration with days, hours, minutes and seconds")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()


def _round_trip(result: dict[str, Any]) -> float | None:
    """Returns the least round trip of the streams in seconds."""
    streams = [stream for interval in result["intervals"] for stream in interval["streams"]] + result["summary"]["streams"]
    rtts = [stream["rtt"] for stream in streams if stream.get("rtt")]
    return float(min(rtts)) * MICROSECONDS if rtts else None


def _seconds_of(values: Mapping[str, Any]) -> float:
    """Returns the length of a summary or an interval. iperf3 gives the wrong start to the first interval after the omitted ones."""
    bits, size = float(values["throughput-bits"]), values.get("throughput-bytes")
    return max(float(values["end"] - values["start"]), 8 * size / bits if size and bits else 0.0)


def _bytes(values: Mapping[str, Any]) -> int:
    size, of_rate = values.get("throughput-bytes"), float(values["throughput-bits"]) * _seconds_of(values) / 8
    # The rate of iperf3 is rounded, its byte count is not.
    return round(size if size and math.isclose(size, of_rate, rel_tol=_TOLERANCE) else of_rate)


def _check_total(total: Mapping[str, Any]) -> None:
    bits, size = total["throughput-bits"], total.get("throughput-bytes")
    seconds = total["end"] - total["start"]
    if seconds <= 0:
        raise ValueError(f"the summary begins at {total['start']} s and ends at {total['end']} s")
    expected = (bits * seconds / 8, bits / 8)
    if size is not None and not any(math.isclose(size, value, rel_tol=_TOLERANCE, abs_tol=1) for value in expected):
        raise ValueError(f"throughput-bytes {size} is neither the bytes of {seconds} s nor the rate at throughput-bits {bits}")


def _intervals(intervals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    measured = [interval for interval in intervals if not interval["summary"].get("omitted")]
    return [piece for interval in measured for piece in _pieces(interval)]


def _pieces(interval: dict[str, Any]) -> list[dict[str, Any]]:
    pieces = [_piece(stream, number) for number, stream in enumerate(interval["streams"])]
    return [*pieces, _piece(interval["summary"], ALL_STREAMS)]


def _piece(values: dict[str, Any], stream: int) -> dict[str, Any]:
    return {
        "stream": stream,
        "start_s": max(values["end"] - _seconds_of(values), 0.0),
        "end_s": float(values["end"]),
        "bytes": _bytes(values),
        "rtt_s": values["rtt"] * MICROSECONDS if values.get("rtt") else None,
        "cwnd_bytes": values.get("tcp-window-size"),
        "retransmits": values.get("retransmits"),
    }
