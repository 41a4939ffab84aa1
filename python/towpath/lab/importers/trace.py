"""Traces of `towpath probe --trace` (docs/guides/probe.md): each leg is a run, each pair of samples of a sender an interval.

The bytes are those that were acknowledged, so a run has at most those that the leg received.
"""

from __future__ import annotations

import itertools
import json
from typing import Any


def read_trace(text: str, name: str) -> list[dict[str, Any]]:
    """Reads the legs of a trace. Raises `ValueError` for a leg that lacks samples of a sender."""
    begin, legs = _legs(text, name)
    rows = []
    for leg, samples in legs:
        senders = [sample for sample in samples if sample["sender"]]
        connections = {sample["connection"]: sample for sample in senders}
        if len(connections) != leg["connections"]:
            raise ValueError(f"{name}: leg {leg['leg']} has samples of {len(connections)} of {leg['connections']} senders")
        size = sum(sample["bytes"] for sample in connections.values())
        duration_s = max(sample["t_s"] for sample in connections.values())
        rtts = [sample["min_rtt_s"] for sample in senders if sample["min_rtt_s"] > 0]
        # A trace names CUBIC and BBR only.
        controls = {None if sample["control"] == "other" else sample["control"] for sample in senders}
        rows.append(
            {
                "run_id": f"{name}#{leg['leg']}",
                "tool": f"towpath-probe-{leg['direction']}",
                "transport": controls.pop() if len(controls) == 1 else None,
                "streams": leg["connections"],
                "rtt_s": min(rtts, default=None),
                "planned_s": leg["duration_s"],
                "duration_s": duration_s,
                "bytes": size,
                "throughput_bits_per_s": 8 * size / duration_s,
                "detail": json.dumps({"program": begin.get("program"), "date": begin.get("date")}),
                "intervals": _intervals(senders),
            }
        )
    return rows


def intervals_of_trace(text: str, name: str) -> list[dict[str, Any]]:
    """Returns the intervals of the only leg of a trace."""
    _, legs = _legs(text, name)
    if len(legs) != 1:
        raise ValueError(f"{name}: {len(legs)} legs, expected one")
    return _intervals([sample for sample in legs[0][1] if sample["sender"]])


def _legs(text: str, name: str) -> tuple[dict[str, Any], list[tuple[dict[str, Any], list[dict[str, Any]]]]]:
    begin: dict[str, Any] = {}
    legs: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        try:
            record = json.loads(line)
            kind = record["type"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{name}: line {number}: no record of a trace: {error}") from error
        if kind == "begin":
            begin = record
        elif kind == "leg":
            legs.append((record, []))
        elif kind == "sample":
            if not legs:
                raise ValueError(f"{name}: line {number}: a sample before the first leg")
            legs[-1][1].append(record)
        else:
            raise ValueError(f"{name}: line {number}: a record of type {kind!r}, which is unknown")
    if begin.get("format") != 1:
        raise ValueError(f"{name}: expected a trace of format 1, as `towpath probe --trace` writes it")
    return begin, legs


def _intervals(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    intervals = []
    for connection in sorted({sample["connection"] for sample in samples}):
        ordered = sorted((sample for sample in samples if sample["connection"] == connection), key=lambda sample: float(sample["t_s"]))
        intervals += [_interval(before, after) for before, after in itertools.pairwise(ordered) if before["t_s"] < after["t_s"]]
    return intervals


def _interval(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {
        "stream": after["connection"],
        "start_s": max(before["t_s"], 0.0),
        "end_s": after["t_s"],
        "bytes": after["bytes"] - before["bytes"],
        "rtt_s": after["rtt_s"],
        "cwnd_bytes": after["cwnd_bytes"],
        "busy_s": after["busy_s"] - before["busy_s"],
        "receive_window_limited_s": after["peer_limited_s"] - before["peer_limited_s"],
        "send_buffer_limited_s": after["buffer_limited_s"] - before["buffer_limited_s"],
        "peer_window_bytes": after["peer_window_bytes"],
        "starved": after["starved"],
    }
