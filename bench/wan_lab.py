"""Two hosts with an emulated path between them (`towpath wan`) for the time of a measurement: servers in host 2,
clients in host 1.

The emulator counts its own deviations: the delay of packets beyond the schedule, and packets lost because the machine
was busy. Each sample includes these, to identify cells in which the machine was the limit.
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
"""Maximum buffer of a connection in the hosts. 5 Gbit/s over 200 ms hold 125 MB; the kernel includes its own overhead,
and advertises half of a receive buffer as window."""
PAYLOAD_SHARE = 1448 / 1538
"""Share of TCP payload in the bytes on Ethernet, at an MTU of 1500 with time stamps."""
ALLOWED = pathlib.Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control")
AVAILABLE = pathlib.Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
LOCK = pathlib.Path("/run/towpath-bench.lock")
"""Held by the measuring run. Contains the original value of `ALLOWED` until that is restored."""
DEVICE = "wan0"
LEAST_QUEUE_S = 0.1
"""Time to drain the smallest queue, 1 MiB, at 100 Mbit/s."""
HEADER_BYTES = 52
"""Headers of IPv4 and TCP with time stamps. A host's kernel counts them once per super-packet of up to 64 KiB, as it
counts that as one packet."""
HOST_DROPS = ("TCPBacklogDrop", "PruneCalled", "RcvPruned", "OfoPruned", "TCPRcvQDrop", "TCPZeroWindowDrop")
"""`TcpExt` counters of a host's kernel for received segments without buffer space. Each increment means that the link
carries data again, or that the connection stalls."""


@contextlib.contextmanager
def all_congestion_controls() -> Iterator[None]:
    """Allows all congestion controls of the kernel in the hosts; a machine with another default would exclude CUBIC.

    The original value is restored at the end, or by the next run if this one is killed. Only one run is allowed at a
    time: two would share the processors and overwrite each other's setting.
    """
    with LOCK.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another run over emulated paths holds {LOCK}; wait until it ends")
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
    """Properties of the path between the hosts, the same in both directions."""

    rtt_ms: float = 0
    rate: str | None = "1Gbit"
    """In the syntax of `towpath wan`; None: unlimited."""
    loss: float = 0
    congestion: str = "cubic"
    """Congestion control that is the hosts' default."""

    @property
    def seed(self) -> int:
        """Seed of losses and of the order of contenders, different for each path."""
        return zlib.crc32(repr(self).encode())

    def is_one_of(self, figures: frozenset[float]) -> bool:
        """Returns whether `figures` contains the round trip in ms, or the share of lost segments if not 0."""
        return self.rtt_ms in figures or (self.loss > 0 and self.loss in figures)

    def options(self) -> list[str]:
        rate = ["--rate", self.rate] if self.rate else []
        chance = ["--loss", str(self.loss), "--seed", str(self.seed)]
        return ["--rtt", f"{self.rtt_ms * 1000:.0f}us", *rate, *chance, "--cc", self.congestion, "--buf", BUFFER]


@dataclasses.dataclass(frozen=True)
class Emulation:
    """Counters of the emulator over a period."""

    passed_wire_bytes: int
    """Bytes on Ethernet from the servers to the clients, counted where they enter the link."""
    received_payload: int
    """TCP payload received by the clients' host; segments received twice count twice."""
    offered: int
    """Segments in both directions."""
    queue_dropped: int
    """Segments dropped by full queues, in both directions."""
    lost: int
    """Segments lost at random, in both directions."""
    delivered: int
    late_us: float
    """Mean delay of packets beyond their schedule."""
    latest_us: float
    """Maximum of this delay over this path so far."""
    machine_lost: int
    """Packets that the link would have carried, but that this machine lost."""
    host_drops: dict[str, int]
    """`HOST_DROPS` counted at either end."""
    cpu_s: float
    stolen_s: float
    """Processor seconds that this machine requested and its hypervisor gave to others."""


class Lab:
    """A running emulator."""

    def __init__(self, towpath: Program, path: NetworkPath) -> None:
        self.path = path
        self.wan = towpath("wan")
        self.name = ("--name", f"bench-{os.getpid()}")
        up = self.wan("up", "--foreground", *self.name, *path.options())
        self.process = subprocess.Popen(up.words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout and self.process.stderr
        # The emulator prints its first line when the hosts are ready.
        if not self.process.stdout.readline():
            self.process.wait()
            raise RuntimeError(f"the emulator did not start: {self.process.stderr.read()}")
        namespaces = [pathlib.Path(host["namespace"]) for host in self.stats()["hosts"]]
        # `namespace` is `/proc/PROCESS/task/THREAD/ns/net`; the counters of the thread's network are in `net` beside `ns`.
        self.counters = [path.parents[1] / "net" for path in namespaces]

    def in_host(self, number: int) -> tuple[str, ...]:
        """Returns the prefix of a command line that runs it in a host."""
        return self.wan("exec", *self.name, number, "--").words

    def network(self) -> Network:
        return Network(SERVER_HOST, self.in_host(2), self.in_host(1))

    def set(self, *options: object) -> None:
        """Changes all links."""
        subprocess.run(self.wan("set", *self.name, *options).words, check=True)

    def stats(self) -> dict:
        """Returns the emulator's statistics."""
        return json.loads(subprocess.run(self.wan("stats", *self.name, "--json").words, capture_output=True, check=True).stdout)

    def settle(self) -> None:
        """Waits until all data for an earlier client have arrived: they are in flight until the server notices the
        client's end, and then as long in the queue."""
        time.sleep(3 * self.path.rtt_ms / 1000 + LEAST_QUEUE_S)

    def received_payload(self) -> int:
        """Returns the TCP payload received by host 1. Starts no process."""
        lines = (self.counters[0] / "dev").read_text().splitlines()
        received = next(line.partition(":")[2] for line in lines if line.strip().startswith(DEVICE))
        wire_bytes, packets = map(int, received.split()[:2])
        return wire_bytes - HEADER_BYTES * packets

    def host_drops(self) -> dict[str, int]:
        """Returns `HOST_DROPS` summed over all hosts."""
        tables = [tcp_counters((counters / "netstat").read_text()) for counters in self.counters]
        return {name: sum(table.get(name, 0) for table in tables) for name in HOST_DROPS}

    def totals(self) -> dict[str, float]:
        """Returns the counters since the start, with the names that `since` expects."""
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
        """Returns the changes since `totals` returned `before`."""
        now = self.totals()
        change = {name: total - before[name] for name, total in now.items() if name != "latest_ns"}
        late_us = round(change.pop("late_ns") / max(change["delivered"], 1) / 1000, 1)
        drops = {name: change.pop(name) for name in HOST_DROPS}
        return Emulation(late_us=late_us, latest_us=now["latest_ns"] / 1000, host_drops={name: count for name, count in drops.items() if count}, **change)

    def stop(self) -> None:
        subprocess.run(self.wan("down", *self.name).words, check=False)
        self.process.wait()


def stolen_s() -> float:
    """Returns the time that the hypervisor took from all processors since the machine started (`/proc/stat`, proc(5)).
    """
    return int(pathlib.Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def tcp_counters(netstat: str) -> dict[str, int]:
    """Parses `TcpExt` of `/proc/net/netstat`: a line of names and a line of numbers."""
    names, numbers = (line.split()[1:] for line in netstat.splitlines() if line.startswith("TcpExt:"))
    return dict(zip(names, map(int, numbers), strict=True))


@contextlib.contextmanager
def lab(towpath: Program, path: NetworkPath) -> Iterator[Lab]:
    running = Lab(towpath, path)
    try:
        yield running
    finally:
        running.stop()
