"""Two hosts with an emulated path between them (`towpath wan`), as long as something is measured over it: servers in host 2, clients in host 1.

The emulator counts what it did itself: how late it handed packets over, and what this machine lost because it was busy. Each sample carries that, so
that a cell in which the machine was the limit can be told.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator

from harness import Network, Program, cpu_s

SERVER_HOST = "198.18.0.2"
BUFFER = "512MiB"
"""The most that a connection may buffer in the hosts. 5 Gbit/s over 200 ms hold 125 MB; the kernel counts its own overhead, and gives half of a receive
buffer to the window."""
PAYLOAD_SHARE = 1448 / 1538
"""TCP payload of what is on Ethernet, at an MTU of 1500 with time stamps."""
ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
LOCK = pathlib.Path("/run/towpath-bench.lock")
"""Held by the one run that measures; it has what `ALLOWED` was before, until that is restored."""
DEVICE = "wan0"
LEAST_QUEUE_S = 0.1
"""What the smallest queue, 1 MiB, takes to leave at 100 Mbit/s."""
HEADER_BYTES = 52
"""IPv4 and TCP with time stamps. A host's kernel counts them once for a super-packet of up to 64 KiB, as it counts that as one packet."""
HOST_DROPS = ("TCPBacklogDrop", "PruneCalled", "RcvPruned", "OfoPruned", "TCPRcvQDrop", "TCPZeroWindowDrop")
"""What a host's kernel counts (`TcpExt`) when a connection has no room for what came: each time, what the link had carried is sent again, or stalls."""


@contextlib.contextmanager
def all_congestion_controls() -> Iterator[None]:
    """Lets hosts use whatever congestion control the kernel has: a machine with another default keeps CUBIC from them. Undone at the end, or by the next
    run if this one is killed. There is one run at a time: two would share the processors, and each undo what the other set."""
    with LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run measures over emulated paths: it holds {LOCK}")
        lock.seek(0)
        before = lock.read() or ALLOWED.read_text()
        LOCK.write_text(before)
        ALLOWED.write_text(AVAILABLE.read_text())
        try:
            yield
        finally:
            ALLOWED.write_text(before)
            lock.truncate(0)


@dataclasses.dataclass(frozen=True)
class NetworkPath:
    """What lies between the hosts, the same in both directions."""

    rtt_ms: float = 0
    rate: str | None = "1Gbit"
    """As `towpath wan` reads it; unlimited if none."""
    loss: float = 0
    congestion: str = "cubic"
    """The hosts' default."""

    @property
    def seed(self) -> int:
        """What decides about losses, and about the order of contenders: another one for each path."""
        return zlib.crc32(repr(self).encode())

    def is_one_of(self, figures: frozenset[float]) -> bool:
        """Whether one of them is its round trip in ms, or its share of lost segments if it loses some."""
        return self.rtt_ms in figures or (self.loss > 0 and self.loss in figures)

    def options(self) -> list[str]:
        rate = ["--rate", self.rate] if self.rate else []
        chance = ["--loss", str(self.loss), "--seed", str(self.seed)]
        return ["--rtt", f"{self.rtt_ms * 1000:.0f}us", *rate, *chance, "--cc", self.congestion, "--buf", BUFFER]


@dataclasses.dataclass(frozen=True)
class Emulation:
    """What the emulator did in some time."""

    passed_wire_bytes: int
    """From the servers to the clients, on Ethernet, counted where they enter the link."""
    received_payload: int
    """What came out of it there: payload of TCP, segments that came twice counted twice."""
    offered: int
    """Segments in both directions."""
    queue_dropped: int
    lost: int
    """Segments in both directions, for want of room and by chance."""
    delivered: int
    late_us: float
    """By how much packets were handed over too late, on average."""
    latest_us: float
    """The latest one over this path so far."""
    machine_lost: int
    """Packets that the link would have carried, but this machine did not."""
    host_drops: dict[str, int]
    """`HOST_DROPS` that were counted at either end."""
    cpu_s: float
    stolen_s: float
    """Seconds of processors that this machine wanted and its hypervisor gave to others."""


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
        namespaces = [pathlib.Path(host["namespace"]) for host in self.stats()["hosts"]]
        # `namespace` is `/proc/PROCESS/task/THREAD/ns/net`; what the kernel counts for the thread's network lies beside `ns`.
        self.counters = [path.parents[1] / "net" for path in namespaces]

    def in_host(self, number: int) -> tuple[str, ...]:
        """What a command line is preceded by to run in a host."""
        return self.wan("exec", *self.name, number, "--").words

    def network(self) -> Network:
        return Network(SERVER_HOST, self.in_host(2), self.in_host(1))

    def set(self, *options: object) -> None:
        """Changes all links."""
        subprocess.run(self.wan("set", *self.name, *options).words, check=True)

    def stats(self) -> dict:
        """What the emulator tells."""
        return json.loads(subprocess.run(self.wan("stats", *self.name, "--json").words, capture_output=True, check=True).stdout)

    def settle(self) -> None:
        """Waits until what an earlier client was sent has come: in flight until the server learns of its end, and in the queue as long again."""
        time.sleep(3 * self.path.rtt_ms / 1000 + LEAST_QUEUE_S)

    def received_payload(self) -> int:
        """Payload of TCP that has come to host 1. To ask costs no process."""
        lines = (self.counters[0] / "dev").read_text().splitlines()
        received = next(line.partition(":")[2] for line in lines if line.strip().startswith(DEVICE))
        wire_bytes, packets = map(int, received.split()[:2])
        return wire_bytes - HEADER_BYTES * packets

    def host_drops(self) -> dict[str, int]:
        """`HOST_DROPS` of all hosts."""
        tables = [tcp_counters((counters / "netstat").read_text()) for counters in self.counters]
        return {name: sum(table.get(name, 0) for table in tables) for name in HOST_DROPS}

    def totals(self) -> dict[str, float]:
        """Counters since the start, with names that `since` knows."""
        stats = self.stats()
        counters = {tuple(link["link"].get("pair", ())): link["counters"] for link in stats["links"]}
        engine = stats["engine"]
        return {
            "passed_wire_bytes": counters[2, 1]["passed_wire_bytes"],
            "received_payload": self.received_payload(),
            "offered": sum(each["offered_segments"] for each in counters.values()),
            "queue_dropped": sum(each["queue_dropped_segments"] for each in counters.values()),
            "lost": sum(each["lost_segments"] for each in counters.values()),
            "delivered": engine["delivered_packets"],
            "late_ns": engine["late_ns"],
            "latest_ns": engine["latest_ns"],
            "machine_lost": sum(host["overruns"] for host in stats["hosts"])
            + engine["refused_packets"]
            + stats["network"]["overflow_packets"]
            + stats["network"]["malformed_packets"],
            "cpu_s": cpu_s([self.process.pid]),
            "stolen_s": stolen_s(),
            **self.host_drops(),
        }

    def since(self, before: dict[str, float]) -> Emulation:
        """What happened since `totals` gave `before`."""
        now = self.totals()
        change = {name: total - before[name] for name, total in now.items() if name != "latest_ns"}
        late_us = round(change.pop("late_ns") / max(change["delivered"], 1) / 1000, 1)
        drops = {name: change.pop(name) for name in HOST_DROPS}
        return Emulation(late_us=late_us, latest_us=now["latest_ns"] / 1000, host_drops={name: count for name, count in drops.items() if count}, **change)

    def stop(self) -> None:
        subprocess.run(self.wan("down", *self.name).words, check=False)
        self.process.wait()


def stolen_s() -> float:
    """What the hypervisor has taken of all processors since the machine started (`/proc/stat`, proc(5))."""
    return int(pathlib.Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def tcp_counters(netstat: str) -> dict[str, int]:
    """`TcpExt` of `/proc/net/netstat`: a line of names and a line of numbers."""
    names, numbers = (line.split()[1:] for line in netstat.splitlines() if line.startswith("TcpExt:"))
    return dict(zip(names, map(int, numbers), strict=True))


@contextlib.contextmanager
def lab(towpath: Program, path: NetworkPath) -> Iterator[Lab]:
    running = Lab(towpath, path)
    try:
        yield running
    finally:
        running.stop()
