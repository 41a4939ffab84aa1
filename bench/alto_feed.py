"""A router that announces its routes over BMP (RFC 7854), and clients that subscribe to changes (RFC 8895)."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import struct
import threading
import time
from collections.abc import Callable

import alto_twin
from harness import HOST

ROUTES = 10_000
"""Number of routes that change at once."""
OWN = ipaddress.IPv4Network("203.0.113.0/24")
"""The prefix behind the router."""
ADDRESS = ipaddress.IPv4Address("192.0.2.250")
PREFIXES_A_MESSAGE = 800
"""Limited by the length of a BGP message, at most 4096 octets."""
ROUTE_MONITORING, INITIATION = 0, 4


def octets(prefix: ipaddress.IPv4Network) -> bytes:
    return bytes([prefix.prefixlen]) + prefix.network_address.packed[: (prefix.prefixlen + 7) // 8]


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("!BIB", 3, 6 + len(body), kind) + body


def monitoring(attributes: bytes, announced: bytes) -> bytes:
    """Returns a route monitoring message that announces these routes (RFC 7854 §4.6)."""
    peer = struct.pack("!BBQ12xIIIQ", 0, 0, 0, int(ADDRESS), alto_twin.FIRST_AS, int(ADDRESS), 0)
    body = struct.pack("!H", 0) + struct.pack("!H", len(attributes)) + attributes + announced
    return message(ROUTE_MONITORING, peer + b"\xff" * 16 + struct.pack("!HB", 19 + len(body), 2) + body)


class Router:
    """A router with `ROUTES` routes, whose AS paths change all at once."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection((HOST, port))
        name = b"edge"
        self.connection.sendall(message(INITIATION, struct.pack("!HH", 2, len(name)) + name))
        centres = [place.ipv4 for place in alto_twin.data_centres()]
        first = int(alto_twin.FIRST_IPV4)
        self.prefixes = centres + [ipaddress.IPv4Network((first + (number << 8), 24)) for number in range(ROUTES - len(centres))]
        own = alto_twin.attributes([], ADDRESS)
        self.connection.sendall(monitoring(own, octets(OWN)))
        self.changes = 0
        self.change()

    def change(self) -> None:
        """Announces all routes again, with a different AS path."""
        self.changes += 1
        path = [alto_twin.FIRST_AS, alto_twin.FIRST_AS + 1 + self.changes % 2, alto_twin.FIRST_AS + 3]
        attributes = alto_twin.attributes(path, ipaddress.IPv4Address("198.51.100.250"))
        for first in range(0, len(self.prefixes), PREFIXES_A_MESSAGE):
            announced = b"".join(map(octets, self.prefixes[first : first + PREFIXES_A_MESSAGE]))
            self.connection.sendall(monitoring(attributes, announced))

    def close(self) -> None:
        self.connection.close()


class Changing:
    """Makes a router change its routes at a fixed interval while the body of the `with` statement runs."""

    def __init__(self, router: Router, interval_s: float) -> None:
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(router, interval_s))

    def _run(self, router: Router, interval_s: float) -> None:
        while not self.stopping.wait(interval_s):
            router.change()

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()


def delays_s(port: int, query: dict, followers: int, change: Callable[[], None], times: int) -> list[float]:
    """Returns, for each of `times` changes, the seconds from `change` until the last of `followers` clients has
    received the event. The clients subscribe to the response to `query` by update streams."""
    return asyncio.run(_delays_s(port, query, followers, change, times))


async def _delays_s(port: int, query: dict, followers: int, change: Callable[[], None], times: int) -> list[float]:
    request = json.dumps({"add": {"paths": {"resource-id": "path-vector", "input": query}}}).encode()
    header = f"POST /updates HTTP/1.0\r\ncontent-type: application/alto-updatestreamparams+json\r\ncontent-length: {len(request)}\r\n\r\n"

    async def begin() -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 24)
        writer.write(header.encode() + request)
        await next_event(reader)
        # A reference to the writer keeps the connection open.
        reader.writer = writer
        return reader

    async def next_event(reader: asyncio.StreamReader) -> None:
        """Waits for the next event about the paths."""
        while b",paths" not in await reader.readuntil(b"\n"):
            pass

    readers = await asyncio.gather(*(begin() for _ in range(followers)))
    delays = []
    for _ in range(times):
        # Lets pending events of the previous change arrive.
        await asyncio.sleep(1)
        start = time.monotonic()
        await asyncio.to_thread(change)
        await asyncio.gather(*map(next_event, readers))
        delays.append(time.monotonic() - start)
    for reader in readers:
        reader.writer.close()
    return delays
