"""Tables of the emulator's validation."""

from __future__ import annotations

import itertools
import math
import statistics

from harness import median_and_spread
from report import markdown, yes
from wan_lab import PAYLOAD_SHARE


def ping_table(record: dict) -> str:
    rows = []
    for row in record["rows"]:
        median, _, _ = median_and_spread(row["ping_ms"])
        excess, allowed = median - row["rtt_ms"], max(0.1, 0.02 * row["rtt_ms"])
        tenth = sorted(row["ping_ms"])[len(row["ping_ms"]) * 9 // 10]
        cells = [f"{row['rtt_ms']:g}", f"{median:.3f}", f"{min(row['ping_ms']):.3f}", f"{tenth:.3f}", f"{excess:+.3f}", f"{allowed:.1f}"]
        rows.append([*cells, yes(abs(excess) <= allowed)])
    header = ["configured, ms", "ping, median", "minimum", "90th percentile", "deviation", "allowed", "met"]
    return "40 echo requests over an idle path of 1 Gbit/s, one every 0.1 s.\n\n" + markdown(header, rows)


def payload_mbit(rate: str | None) -> float | None:
    """Returns the payload rate of a link rate such as `1Gbit`."""
    if rate is None:
        return None
    return float(rate.removesuffix("Gbit")) * 1000 * PAYLOAD_SHARE


def iperf_table(record: dict) -> str:
    rows = []
    for row in record["rows"]:
        path, emulation, limit = row["path"], row["emulation"], payload_mbit(row["path"]["rate"])
        share = row["received_mbit"] / limit if limit else None
        cells = [path["rate"] or "unlimited", f"{path['rtt_ms']:g}", path["congestion"].upper(), f"{row['received_mbit']:,.1f}"]
        cells += [f"{share:.3f}" if share else "", f"{row['ramp_s']}"]
        cells += [f"{emulation['late_us']:.0f}", str(emulation["machine_lost"]), f"{emulation['cpu_s'] / (row['seconds'] + row['ramp_s']):.2f}"]
        rows.append([*cells, yes(share >= 0.97) if share and path["congestion"] == "cubic" else ""])
    header = ["link", "RTT, ms", "congestion control", "iperf3, Mbit/s", "of the payload rate", "ramp omitted, s", "late, µs", "lost by this machine", "emulator, processors", "≥ 0.97"]
    return "One connection of iperf3. BBR limits its own rate: it keeps the queue short, and at times drains the path to measure it.\n\n" + markdown(header, rows)


def mathis_table(record: dict) -> str:
    rows = []
    for row in record["rows"]:
        path, emulation = row["path"], row["emulation"]
        offered = row["received_mbit"] / row["predicted_mbit"]
        rows.append([f"{path['loss']:g}", f"{row['received_mbit']:.2f}", f"{row['predicted_mbit']:.2f}", f"{offered:.2f}", str(emulation["lost"])])
    logs = [(math.log(row["path"]["loss"]), math.log(row["received_mbit"])) for row in record["rows"] if row["path"]["loss"] <= 1e-2]
    slope = statistics.linear_regression(*zip(*logs, strict=True)).slope
    text = f"One Reno connection, 1 Gbit/s, {record['rows'][0]['path']['rtt_ms']:g} ms. The rate is proportional to loss to the power of −{-slope:.2f} up to 10⁻²; the formula predicts −0.5."
    return f"{text}\n\n" + markdown(["loss", "iperf3, Mbit/s", "MSS / RTT × √(3 / 2p)", "ratio", "segments lost"], rows)


BEFORE, AT_END = slice(10, 25), slice(-10, None)
"""Intervals of a tenth of a second: before the outage, and at the end."""


def outage_table(record: dict) -> str:
    gaps = sorted(after - before for before, after in itertools.pairwise(record["replies_s"]))
    silent = sum(1 for rate in record["received_mbit"] if rate < 0.1) * record["interval_s"]
    rows = [
        ["longest gap between echo replies: the outage, half a round trip, and the interval of the requests", f"{gaps[-1]:.3f} s"],
        ["second longest gap", f"{gaps[-2]:.3f} s"],
        ["time without data on a connection: TCP retransmits with exponential backoff", f"{silent:.1f} s"],
        ["rate of the connection before the outage and at the end, Mbit/s", ", ".join(f"{statistics.median(record['received_mbit'][part]):.1f}" for part in (BEFORE, AT_END))],
    ]
    return f"Outage of both directions of 100 Mbit/s and 50 ms for {record['outage_s']} s.\n\n" + markdown(["figure", "measured"], rows)
