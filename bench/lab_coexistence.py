"""Shares of a BBR and a CUBIC connection over one emulated path, with the kernel's own TCP. Needs root.

    make bench-lab

Both send from host 2 to host 1 with iperf3 for 20 s, of which the first 5 s do not count. The queue is one product of rate and round trip, a
quarter, or four of them. Runs are appended to coexistence.jsonl; an interrupted run continues.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pathlib
import statistics
import subprocess
import sys

from circumstances import git
from lab_lines import append_line, resume_lines
from towpath.lab.measure.emulator import CLIENT, emulated_path, permitted_transports
from towpath.lab.measure.machine import ProcessorTimes, lost_packets
from towpath.lab.measure.plan import Cell, Emulator

RESULTS = pathlib.Path(__file__).parent / "results" / "lab"
RATE_MBIT = 500
RTTS_MS = (1, 10, 50, 100, 200)
QUEUES = (0.25, 1, 4)
"""Queue / (rate × round trip)."""
LOSSES = (0.0, 1e-4)
REPETITIONS = 3
SECONDS, OMITTED = 15, 5
FLOWS = {"bbr": 5201, "cubic": 5202}
MIN_QUEUE_BYTES = 30_000
DEADLINE_S = 90


def product_bytes(rtt_ms: float) -> float:
    """Returns rate × round trip."""
    return RATE_MBIT * 1e6 / 8 * rtt_ms / 1e3


def queue_limit(rtt_ms: float, queue: float) -> int:
    return max(int(queue * product_bytes(rtt_ms)), MIN_QUEUE_BYTES)


def run(towpath: pathlib.Path, rtt_ms: float, queue: float, loss: float, repetition: int) -> dict[str, object]:
    """Runs both connections, and returns their rates."""
    queue_bytes = queue_limit(rtt_ms, queue)
    path = Emulator(rate=f"{RATE_MBIT}Mbit", queue=f"{queue_bytes}B", loss=loss)
    cell = Cell(repetition, rtt_ms, "cubic", "256MiB", "iperf3", 1)
    before = ProcessorTimes()
    with emulated_path(towpath, path, cell) as hosts, Servers(hosts):
        commands = {
            flow: hosts.command(
                2, "iperf3", "--client", CLIENT, "--port", str(port), "--congestion", flow, "--time", str(SECONDS), "--omit", str(OMITTED), "--json"
            )
            for flow, port in FLOWS.items()
        }
        clients = {flow: subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for flow, command in commands.items()}
        documents = {flow: json.loads(client.communicate(timeout=DEADLINE_S)[0]) for flow, client in clients.items()}
        lost = lost_packets(hosts.counters())
    for flow, document in documents.items():
        if "error" in document:
            raise OSError(f"iperf3 ({flow}): {document['error']}")
        if document["end"]["sender_tcp_congestion"] != flow:
            raise OSError(f"iperf3 used {document['end']['sender_tcp_congestion']}, not {flow}")
    limited = ProcessorTimes().use_since(before).limit(lost)
    rates = {flow: document["end"]["sum_received"]["bits_per_second"] for flow, document in documents.items()}
    resent = {flow: document["end"]["sum_sent"]["retransmits"] for flow, document in documents.items()}
    return {"rtt_ms": rtt_ms, "queue": queue, "loss": loss, "repetition": repetition, "bits_per_s": rates, "retransmits": resent, "limited_by": limited, "commit": git("rev-parse", "--short", "HEAD")}


class Servers:
    """Servers of both connections in host 1."""

    def __init__(self, hosts) -> None:
        self._commands = [hosts.command(1, "iperf3", "--server", "--one-off", "--forceflush", "--port", str(port)) for port in FLOWS.values()]

    def __enter__(self) -> None:
        self._servers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in self._commands]
        for server in self._servers:
            while "listening" not in (line := server.stdout.readline()):
                if not line:
                    raise OSError("iperf3 did not start")

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.terminate()
            server.wait()
            server.stdout.close()


Condition = tuple[float, float, float]
"""Round trip in ms, actual queue / (rate × round trip), and loss."""

MIN_USED = 0.8
"""Least part of the path that both connections use together, for a condition to say something about their competition."""


def conditions(records: list[dict]) -> dict[Condition, list[dict]]:
    """Returns the runs of each condition, without those that the machine limited."""
    found: dict[Condition, list[dict]] = {}
    for record in records:
        rtt_ms = record["rtt_ms"]
        ratio = round(queue_limit(rtt_ms, record["queue"]) / product_bytes(rtt_ms), 2)
        runs = found.setdefault((rtt_ms, ratio, record["loss"]), [])
        if record["limited_by"] is None:
            runs.append(record)
    return dict(sorted(found.items()))


def ratios(runs: list[dict]) -> list[float]:
    """Returns the rates of BBR / CUBIC, in order."""
    return sorted(run["bits_per_s"]["bbr"] / run["bits_per_s"]["cubic"] for run in runs)


def shares(records: list[dict]) -> dict[Condition, float]:
    """Returns the median of BBR / CUBIC for each condition in which both compete for the path (`MIN_USED`)."""
    return {condition: statistics.median(ratios(runs)) for condition, runs in conditions(records).items() if runs and used(runs) >= MIN_USED}


def used(runs: list[dict]) -> float:
    """Returns the part of the path that both connections use together, as median."""
    capacity = Emulator(rate=f"{RATE_MBIT}Mbit").capacity_bits_per_s
    return statistics.median(sum(run["bits_per_s"].values()) for run in runs) / capacity


def table(records: list[dict]) -> str:
    """Formats the ratio of the rates, BBR / CUBIC, and the use of the path."""
    rows = ["| round trip | queue / (rate × round trip) | loss | BBR / CUBIC, median (all) | used |", "| ---: | ---: | ---: | ---: | ---: |"]
    for (rtt_ms, queue, loss), runs in conditions(records).items():
        measured = "limited by the machine | "
        if runs:
            listed = ", ".join(f"{ratio:.2f}" for ratio in ratios(runs))
            measured = f"{statistics.median(ratios(runs)):.2f} ({listed}) | {100 * used(runs):.0f} %"
        rows.append(f"| {rtt_ms:g} ms | {queue:g} | {loss:g} | {measured} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--towpath", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    lines = options.results / "coexistence.jsonl"
    records = resume_lines(lines)
    done = {(record["rtt_ms"], record["queue"], record["loss"], record["repetition"]) for record in records}
    with permitted_transports():
        for repetition, rtt_ms, queue, loss in itertools.product(range(REPETITIONS), RTTS_MS, QUEUES, LOSSES):
            if (rtt_ms, queue, loss, repetition) in done:
                continue
            records.append(run(options.towpath.resolve(), rtt_ms, queue, loss, repetition))
            append_line(lines, records[-1])
            rates = {flow: f"{rate / 1e6:.0f}" for flow, rate in records[-1]["bits_per_s"].items()}
            print(f"{rtt_ms} ms, loss {loss:g}, queue {queue:g}: {rates} Mbit/s", flush=True)
    (options.results / "coexistence.md").write_text(table(records) + "\n")
    print(table(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
