"""Two hosts with an emulated path between them (`towpath wan`), as long as something is measured over it: servers in host 2, clients in host 1.

The emulator counts what it did itself: how late it handed packets over, and what this machine lost because it was busy. Each sample carries that, so
that a cell in which the machine was the limit can be told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator

from harness import Network, Program, cpu_s, tree_of

SERVER_HOST = "198.18.0.2"
BUFFER = "512MiB"
"""The most that a connection may buffer in the hosts. 5 Gbit/s over 200 ms hold 125 MB; the kernel counts its own overhead, and gives half of a receive
buffer to the window."""
PAYLOAD_SHARE = 1448 / 1538
"""TCP payload of what is on Ethernet, at an MTU of 1500 with time stamps."""
ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


@contextlib.contextmanager
def all_congestion_controls() -> Iterator[None]:
    """Lets hosts use whatever congestion control the kernel has: a machine with another default keeps CUBIC from them. Undone at the end."""
    before = ALLOWED.read_text()
    ALLOWED.write_text(AVAILABLE.read_text())
    try:
        yield
    finally:
        ALLOWED.write_text(before)


@dataclasses.dataclass(frozen=True)
class NetworkPath:
    """What lies between the hosts, the same in both directions."""

    rtt_ms: float = 0
    rate: str | None = "1Gbit"
    """As `towpath wan` reads it; unlimited if none."""
    loss: float = 0
    congestion: str = "cubic"
    """The hosts' default."""

    def options(self) -> list[str]:
        rate = ["--rate", self.rate] if self.rate else []
        return ["--rtt", f"{self.rtt_ms * 1000:.0f}us", *rate, "--loss", str(self.loss), "--cc", self.congestion, "--buf", BUFFER]


@dataclasses.dataclass(frozen=True)
class Emulation:
    """What the emulator did in some time."""

    passed_wire_bytes: int
    """From the servers to the clients, on Ethernet."""
    queue_dropped: int
    lost: int
    """Segments in both directions, for want of room and by chance."""
    delivered: int
    late_us: float
    """By how much packets were handed over too late, on average."""
    machine_lost: int
    """Packets that the link would have carried, but this machine did not."""
    cpu_s: float


class Lab:
    """A running emulator."""

    def __init__(self, towpath: Program, path: NetworkPath) -> None:
        self.path = path
        self.wan = towpath("wan")
        self.name = ("--name", f"bench-{os.getpid()}")
        up = self.wan("up", "--foreground", *self.name, *path.options())
        self.process = subprocess.Popen(up.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stderr
        # Its first line says that the hosts are there.
        if not self.process.stdout.readline():
            self.process.wait()
            raise RuntimeError(f"no emulator: {self.process.stderr.read()}")

    def in_host(self, number: int) -> tuple[str, ...]:
        """What a command line is preceded by to run in a host."""
        return self.wan("exec", *self.name, number, "--").words

    def network(self) -> Network:
        return Network(SERVER_HOST, self.in_host(2), self.in_host(1))

    def set(self, *options: object) -> None:
        """Changes all links."""
        subprocess.run(self.wan("set", *self.name, *options).words, check=True)

    def totals(self) -> dict[str, float]:
        """Counters since the start, with names that `since` knows."""
        stats = json.loads(subprocess.run(self.wan("stats", *self.name, "--json").words, capture_output=True, check=True).stdout)
        counters = {tuple(link["link"].get("pair", ())): link["counters"] for link in stats["links"]}
        engine = stats["engine"]
        return {
            "passed_wire_bytes": counters[2, 1]["passed_wire_bytes"],
            "queue_dropped": sum(each["queue_dropped_segments"] for each in counters.values()),
            "lost": sum(each["lost_segments"] for each in counters.values()),
            "delivered": engine["delivered_packets"],
            "late_ns": engine["late_ns"],
            "machine_lost": sum(host["overruns"] for host in stats["hosts"]) + engine["refused_packets"] + stats["network"]["overflow_packets"],
            "cpu_s": cpu_s(tree_of(self.process.pid)[:1]),
        }

    def since(self, before: dict[str, float]) -> Emulation:
        """What happened since `totals` gave `before`."""
        change = {name: total - before[name] for name, total in self.totals().items()}
        late_us = round(change.pop("late_ns") / max(change["delivered"], 1) / 1000, 1)
        return Emulation(late_us=late_us, **change)

    def stop(self) -> None:
        subprocess.run(self.wan("down", *self.name).words, check=False)
        self.process.wait()


@contextlib.contextmanager
def lab(towpath: Program, path: NetworkPath) -> Iterator[Lab]:
    running = Lab(towpath, path)
    try:
        yield running
    finally:
        running.stop()
