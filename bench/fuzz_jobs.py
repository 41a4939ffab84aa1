"""Sends fuzzed xroot and HTTP requests to a server, and records its resident memory."""

from __future__ import annotations

import contextlib
import pathlib
import random
import select
import socket
import struct
import time
from collections.abc import Iterator

from harness import HOST, Server, free_port, say, scratch
from settings import Job, Settings, write_pattern

SEED = 23
REQUESTS = {"xroot": 200_000, "HTTP": 50_000}
QUICK_PART = 50
PER_CONNECTION = {"xroot": 200, "HTTP": 50}
POINTS = 20
"""Number of memory readings per phase. All connections are closed at a reading."""
SETTLE_S = 1.0
"""Pause between the last request and a memory reading."""
QUIET_S = 0.02
"""Time without data after the last request, in seconds, after which a connection is closed."""

HANDSHAKE = struct.pack(">5I", 0, 0, 0, 4, 2012)
LOGIN = struct.pack(">HH", 1, 3007) + struct.pack(">I8sBBBB", 1, b"fuzz", 0, 0, 5, 0) + struct.pack(">I", 0)
FIRST_CODE, LAST_CODE = 3000, 3032
PATHS = (b"/long", b"/short", b"/few", b"/", b"/none", b"/few/../long", b"/new/a/b", b"/short?towpath.node=1", b"*", b"")
METHODS = (b"GET", b"HEAD", b"PUT", b"DELETE", b"PROPFIND", b"PROPPATCH", b"MKCOL", b"LOCK", b"OPTIONS", b"MOVE", b"COPY", b"POST")
FIELDS = (
    b"range: bytes=0-9", b"range: bytes=5-,1-2,-7", b"depth: 1", b"depth: infinity", b"if-match: \"x\"", b"want-digest: adler32",
    b"destination: /new", b"authorization: Bearer a.b.c", b"content-length: 3", b"transfer-encoding: chunked", b"expect: 100-continue",
)  # fmt: skip


def mutated(chance: random.Random, message: bytes) -> bytes:
    """Returns the message; with a probability of one quarter 1 to 4 spots of it are changed, removed or inserted."""
    if not message or chance.random() < 0.75:
        return message
    changed = bytearray(message)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(changed) or 1)
        changed[at : at + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
    return bytes(changed)


def xroot_requests(chance: random.Random, number: int) -> Iterator[bytes]:
    """Yields a login, then requests of all codes with random parameters and arguments."""
    yield HANDSHAKE + LOGIN
    for index in range(number):
        argument = chance.choice(PATHS) if chance.random() < 0.7 else chance.randbytes(chance.randint(0, 400))
        parameters = bytes(16) if chance.random() < 0.3 else chance.randbytes(16)
        code = chance.randint(FIRST_CODE, LAST_CODE)
        yield mutated(chance, struct.pack(">HH", index & 0xFFFF, code) + parameters + struct.pack(">I", len(argument)) + argument)


def http_requests(chance: random.Random, number: int) -> Iterator[bytes]:
    """Yields requests of all methods, with header fields that the server reads."""
    for _ in range(number):
        fields = chance.sample(FIELDS, chance.randint(0, 4))
        line = chance.choice(METHODS) + b" " + (chance.choice(PATHS) or b"/") + b" HTTP/1.1"
        yield mutated(chance, b"\r\n".join([line, b"host: x", *fields, b"", b""]))


STREAMS = {"xroot": xroot_requests, "HTTP": http_requests}


def exchange(port: int, requests: Iterator[bytes]) -> int:
    """Sends requests over one connection until the server closes it, and discards the responses. Returns the number of
    requests sent."""
    sent = 0
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=5) as connection:
        for request in requests:
            connection.sendall(request)
            sent += 1
            while select.select([connection], [], [], 0)[0] and connection.recv(1 << 20):
                pass
        while select.select([connection], [], [], QUIET_S)[0] and connection.recv(1 << 20):
            pass
    return sent


def resident_bytes(server: Server) -> int:
    """Returns the current resident memory of the server's process (VmRSS)."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def answers(server: Server) -> bool:
    """Returns whether the server still responds correctly to a plain request."""
    with contextlib.suppress(OSError), socket.create_connection((HOST, server.port), timeout=10) as connection:
        connection.sendall(b"OPTIONS / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        return connection.recv(100).startswith(b"HTTP/1.1 20")
    return False


def phase(server: Server, kind: str, number: int) -> list[dict]:
    """Sends at least `number` requests of one kind. Returns the resident memory at `POINTS` equidistant points and
    before the first request."""
    chance = random.Random(f"{SEED} {kind}")
    points = [{"requests": 0, "resident_bytes": resident_bytes(server)}]
    sent = 0
    for point in range(1, POINTS + 1):
        while sent < number * point // POINTS:
            sent += exchange(server.port, STREAMS[kind](chance, PER_CONNECTION[kind]))
        time.sleep(SETTLE_S)
        if not answers(server):
            raise RuntimeError(f"the server does not respond after {sent} {kind} requests")
        points.append({"requests": sent, "resident_bytes": resident_bytes(server)})
        say(f"{kind}: {sent} requests, {points[-1]['resident_bytes'] >> 20} MiB")
    return points


def fuzzed(settings: Settings) -> dict:
    """Runs both phases against one server with default settings and anonymous write access."""
    with scratch(str(settings.memory), "root") as root, scratch("/tmp", "fuzz") as work:
        write_pattern(root / "long", 8 << 20)
        (root / "short").write_bytes(b"x" * 1000)
        (root / "few").mkdir()
        port = free_port()
        command = settings.machine.towpath("serve", root, "--writable", "--listen", f"{HOST}:{port}")
        server = Server(command, port, work / "log")
        try:
            runs = []
            for kind, number in REQUESTS.items():
                runs.append({"requests": kind, "points": phase(server, kind, number // (QUICK_PART if settings.quick else 1))})
            return {"seed": SEED, "runs": runs, "peak_rss_bytes": server.peak_rss_bytes()}
        finally:
            server.stop()


JOBS = {"fuzzed-requests": Job(fuzzed, 6)}
