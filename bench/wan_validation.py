"""Validates the emulator: ping, iperf3 and kernel counters against the configured values. The only part of towpath
involved is `towpath wan`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import re
import statistics
import subprocess
import threading
from collections.abc import Iterator

from harness import Program, Server, say
from settings import Job, Settings
from wan_lab import SERVER_HOST, Lab, NetworkPath, lab

PING_RTTS_MS = (0, 1, 5, 10, 50, 100, 200, 350, 400)
RATE_RTTS_MS = {0: 3, 10: 5, 50: 10, 100: 15, 200: 30}
"""Round trips, with the seconds omitted at the start of a connection: CUBIC leaves slow start early where round trips
grow, and then needs that long."""
BBR_RAMP_S = 5
"""Seconds omitted at the start: BBR reaches its rate after a few round trips."""
MEASURED_S = 10
HIGHEST_RATES = ("2Gbit", "5Gbit", "8Gbit", None)
LOSSES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 2e-2)
MATHIS_RTT_MS = 20.0
SEGMENT_BYTES = 1448
OUTAGE_S = 5
OUTAGE_PINGS, OUTAGE_PING_S = 1000, 0.01
OUTAGE_INTERVAL_S = 0.1
IPERF_PORT = 5201
IPERF_LIMIT_S = 90


def ping(over: Lab, count: int, interval_s: float) -> list[tuple[float, float]]:
    """Returns the arrival times of echo replies from host 2 at host 1, in seconds, and their round trips in ms."""
    program = Program(("ping", "-D", "-i", str(interval_s), "-c", str(count), "-W", "2", SERVER_HOST)).after(over.in_host(1))
    output = subprocess.run(program.words, capture_output=True, text=True, check=False).stdout
    return [(float(at_s), float(time_ms)) for at_s, time_ms in re.findall(r"\[([\d.]+)\] .*time=([\d.]+) ms", output)]


def round_trips(settings: Settings) -> dict:
    """Measures round trips of ICMP over idle paths."""
    rows = []
    for rtt_ms in PING_RTTS_MS:
        with lab(settings.machine.towpath, NetworkPath(rtt_ms, "1Gbit")) as over:
            # Omit the first: it includes address resolution and cold caches.
            times = [time_ms for _, time_ms in ping(over, 41, 0.1)][1:]
        rows.append({"rtt_ms": rtt_ms, "ping_ms": times})
        say(f"   {rtt_ms} ms: {statistics.median(times):.3f}")
    return {"shape": "ping", "rows": rows}


def iperf(settings: Settings, over: Lab, seconds: float, *words: object) -> dict:
    """Runs iperf3 once from host 1 to host 2, and returns its JSON report."""
    program = Program(("iperf3", "-s", "-1", "-p", str(IPERF_PORT))).after(over.in_host(2))
    server = Server(program, IPERF_PORT, settings.machine.work / "iperf3.log", network=over.network())
    try:
        client = Program(("iperf3", "-c", SERVER_HOST, "-p", str(IPERF_PORT), "-J", "-t", f"{seconds:.0f}"))(*words).after(over.in_host(1))
        done = subprocess.run(client.words, capture_output=True, text=True, check=False, timeout=IPERF_LIMIT_S)
    finally:
        server.stop()
    report = json.loads(done.stdout)
    if "error" in report:
        raise RuntimeError(f"iperf3: {report['error']}")
    return report


def stream(settings: Settings, over: Lab, seconds: float, ramp_s: int, *words: object) -> dict:
    """Runs iperf3 once. Returns its rate after the ramp, and the emulator's counters."""
    before = over.totals()
    report = iperf(settings, over, seconds, "-O", ramp_s, *words)
    end = report["end"]
    return {
        "received_mbit": end["sum_received"]["bits_per_second"] / 1e6,
        "retransmits": end["sum_sent"]["retransmits"],
        "ramp_s": ramp_s,
        "seconds": seconds,
        "host_cpu_percent": [end["cpu_utilization_percent"]["host_total"], end["cpu_utilization_percent"]["remote_total"]],
        "emulation": dataclasses.asdict(over.since(before)),
    }


def rates(settings: Settings) -> dict:
    """Measures one connection over 1 Gbit/s: with CUBIC for the link, with BBR for the effects of BBR itself."""
    rows = []
    for congestion in ("cubic", "bbr"):
        for rtt_ms, ramp_s in RATE_RTTS_MS.items():
            path = NetworkPath(rtt_ms, "1Gbit", congestion=congestion)
            with lab(settings.machine.towpath, path) as over:
                rows.append({"path": dataclasses.asdict(path), **stream(settings, over, MEASURED_S, ramp_s if congestion == "cubic" else BBR_RAMP_S)})
            say(f"   {rtt_ms} ms, {congestion}: {rows[-1]['received_mbit']:.1f} Mbit/s")
    return {"shape": "iperf", "rows": rows}


def highest(settings: Settings) -> dict:
    """Measures links of increasing rate, up to the limit of the machine."""
    rows = []
    for rtt_ms in (0, 10, 50):
        for rate in HIGHEST_RATES:
            path = NetworkPath(rtt_ms, rate)
            with lab(settings.machine.towpath, path) as over:
                rows.append({"path": dataclasses.asdict(path), **stream(settings, over, 5, 3)})
            say(f"   {rate or 'unlimited'}, {rtt_ms} ms: {rows[-1]['received_mbit']:.0f} Mbit/s")
    return {"shape": "iperf", "rows": rows}


def mathis(settings: Settings) -> dict:
    """Measures one Reno connection over a lossy path below its rate, and compares it with MSS / RTT × sqrt(3 / 2p)
    (Mathis et al. 1997, with an ACK for each segment)."""
    rows = []
    for loss in LOSSES:
        path = NetworkPath(MATHIS_RTT_MS, "1Gbit", loss, "reno")
        with lab(settings.machine.towpath, path) as over:
            predicted = SEGMENT_BYTES * 8 / (MATHIS_RTT_MS / 1e3) * math.sqrt(1.5 / loss) / 1e6
            rows.append({"path": dataclasses.asdict(path), "predicted_mbit": predicted, **stream(settings, over, 20, 3)})
        say(f"   loss {loss}: {rows[-1]['received_mbit']:.2f} Mbit/s, by the formula {predicted:.2f}")
    return {"shape": "mathis", "rows": rows}


def outage(settings: Settings) -> dict:
    """Measures an outage of five seconds with echo requests and with a connection."""
    path = NetworkPath(50, "100Mbit")
    with lab(settings.machine.towpath, path) as over:
        with interrupted(over):
            came_s = [at_s for at_s, _ in ping(over, OUTAGE_PINGS, OUTAGE_PING_S)]
        with interrupted(over):
            intervals = iperf(settings, over, 14, "-i", OUTAGE_INTERVAL_S, "-R")["intervals"]
    return {
        "shape": "outage",
        "path": dataclasses.asdict(path),
        "outage_s": OUTAGE_S,
        "replies_s": [round(at_s - came_s[0], 4) for at_s in came_s],
        "interval_s": OUTAGE_INTERVAL_S,
        "received_mbit": [interval["sum"]["bits_per_second"] / 1e6 for interval in intervals],
    }


@contextlib.contextmanager
def interrupted(over: Lab) -> Iterator[None]:
    """Schedules an outage of both directions three seconds after the start of the `with` statement."""
    timer = threading.Timer(3, over.set, ("--outage", f"{OUTAGE_S}s"))
    timer.start()
    try:
        yield
    finally:
        timer.join()


JOBS = {
    "validate-ping": Job(round_trips, 1),
    "validate-rate": Job(rates, 3.5),
    "validate-highest": Job(highest, 2),
    "validate-mathis": Job(mathis, 4),
    "validate-outage": Job(outage, 1),
}
