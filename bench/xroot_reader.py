"""Reads from an XRootD server, without a client library: the trips of XrdCl (one request at a time until the file is
open), and nothing that a library adds. Runs as a program of its own, in the clients' host:

    xroot_reader.py vector HOST:PORT PATH RANGES S  one vector read of the ranges in a JSON file; the file stays open for S seconds
    xroot_reader.py herd HOST:PORT PATH SIZE N      N connections that each read a whole file, from start to end; {} in the path is the client's number
    xroot_reader.py sent HOST:PORT                  the bytes that the server has sent, by its own counters

Each prints one JSON object. Data are kept in memory, and summed up (CRC-32 of zlib) after the clock has stopped.
"""

from __future__ import annotations

import json
import pathlib
import re
import socket
import struct
import sys
import threading
import time
import zlib

PROTOCOL, LOGIN, OPEN, READ, READV, QUERY = 3006, 3007, 3010, 3013, 3025, 3001
OK, OKSOFAR, ERROR, WAIT = 0, 4000, 4003, 4005
OPEN_READ = 0x10
QUERY_STATS = 1
LONG_READ_BYTES = 8 << 20
"""As in xrdcp."""
LONG_READS = 4
"""Requests in flight per connection, as in xrdcp."""
RECEIVE_BUFFER_BYTES = 1 << 20
SILENCE_S = 60.0
"""Timeout of a connection without data."""
VECTOR_HEADER = struct.Struct(">4siq")


class Connection:
    """A connection to a server, logged in."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=SILENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.last_stream_id = 0
        # As in XrdCl, the protocol request leaves with the handshake.
        handshake = struct.pack(">5i", 0, 0, 0, 4, 2012)
        self.socket.sendall(handshake + self.encoded(PROTOCOL, struct.pack(">iBB", 0x511, 0, 0)))
        self.response()
        self.response()
        self.request(LOGIN, struct.pack(">i8sBBBB", 1, b"bench", 0, 0, 5, 0))

    def encoded(self, code: int, parameters: bytes = b"", payload: bytes = b"") -> bytes:
        self.last_stream_id += 1
        head = struct.pack(">HH", self.last_stream_id, code) + parameters.ljust(16, b"\0")
        return head + struct.pack(">i", len(payload)) + payload

    def receive_into(self, view: memoryview) -> None:
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise EOFError("the server closed the connection")
            view = view[count:]

    def receive(self, length: int) -> bytearray:
        data = bytearray(length)
        self.receive_into(memoryview(data))
        return data

    def head(self) -> tuple[int, int, int]:
        """Receives the header of a response: stream id, status and length of the body."""
        stream_id, status, length = struct.unpack(">HHi", self.receive(8))
        if status not in (OK, OKSOFAR):
            raise OSError(f"status {status}: {bytes(self.receive(length))[4:]!r}")
        return stream_id, status, length

    def response(self) -> bytearray:
        """Receives a complete response, in one part or several."""
        whole = bytearray()
        while True:
            _, status, length = self.head()
            whole += self.receive(length)
            if status == OK:
                return whole

    def request(self, code: int, parameters: bytes = b"", payload: bytes = b"") -> bytearray:
        self.socket.sendall(self.encoded(code, parameters, payload))
        return self.response()

    def open(self, path: str) -> bytes:
        return bytes(self.request(OPEN, struct.pack(">HH", 0, OPEN_READ), path.encode())[:4])

    def read_vector(self, handle: bytes, ranges: list[tuple[int, int]]) -> bytearray:
        return self.request(READV, b"", b"".join(VECTOR_HEADER.pack(handle, length, offset) for offset, length in ranges))


def elements(body: bytearray, ranges: list[tuple[int, int]]) -> list[bytes]:
    """Splits the response of a vector read. Raises an exception unless it has all elements in order."""
    found, at = [], 0
    for offset, length in ranges:
        _, sent, where = VECTOR_HEADER.unpack_from(body, at)
        if (sent, where) != (length, offset):
            raise OSError(f"{length} bytes at {offset} were requested, and {sent} at {where} were sent")
        at += VECTOR_HEADER.size
        found.append(bytes(body[at : at + length]))
        at += length
    if at != len(body):
        raise OSError(f"{len(body) - at} bytes after the last element")
    return found


def vector(address: str, path: str, ranges_file: str, open_s: str) -> dict:
    ranges = [tuple(each) for each in json.loads(pathlib.Path(ranges_file).read_text())]
    start = time.monotonic()
    connection = Connection(address)
    handle = connection.open(path)
    opened = time.monotonic()
    body = connection.read_vector(handle, ranges)
    end = time.monotonic()
    time.sleep(float(open_s))
    data = b"".join(elements(body, ranges))
    return {"seconds": end - start, "open_s": opened - start, "bytes": len(data), "crc32": zlib.crc32(data)}


class Sequential(threading.Thread):
    """One client that reads a file from start to end."""

    def __init__(self, address: str, path: str, size: int, is_kept: bool) -> None:
        super().__init__()
        self.arguments = address, path
        self.size = size
        self.kept = memoryview(bytearray(size)) if is_kept else None
        self.seconds: float | None = None
        self.error: str | None = None

    def run(self) -> None:
        start = time.monotonic()
        try:
            self.read()
            self.seconds = time.monotonic() - start
        except (OSError, EOFError) as error:
            self.error = f"{type(error).__name__}: {error}"

    def read(self) -> None:
        address, path = self.arguments
        connection = Connection(address)
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        handle = connection.open(path)
        scratch = memoryview(bytearray(LONG_READ_BYTES))
        next_offset, positions = 0, {}
        received = 0
        while received < self.size:
            while len(positions) < LONG_READS and next_offset < self.size:
                length = min(LONG_READ_BYTES, self.size - next_offset)
                connection.socket.sendall(connection.encoded(READ, struct.pack(">4sqi", handle, next_offset, length)))
                positions[connection.last_stream_id] = next_offset
                next_offset += length
            stream_id, status, length = connection.head()
            at = positions[stream_id]
            connection.receive_into(scratch[:length] if self.kept is None else self.kept[at : at + length])
            received += length
            positions[stream_id] += length
            if status == OK:
                del positions[stream_id]
                if not positions and next_offset >= self.size and received < self.size:
                    raise EOFError(f"{received} of {self.size} bytes")


def herd(address: str, path: str, size: str, count: str) -> dict:
    clients = [Sequential(address, path.replace("{}", str(number)), int(size), is_kept=number == 0) for number in range(int(count))]
    start = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    seconds = time.monotonic() - start
    errors = [client.error for client in clients if client.error]
    if errors:
        raise OSError(f"{len(errors)} of {len(clients)} clients failed: {errors[0]}")
    return {"seconds": seconds, "client_s": sorted(client.seconds for client in clients), "crc32": zlib.crc32(clients[0].kept)}


def sent(address: str) -> dict:
    statistics = Connection(address).request(QUERY, struct.pack(">H", QUERY_STATS), b"a").decode(errors="replace")
    link = re.search(r'<stats id="link">.*?<out>(\d+)</out>', statistics)
    if link is None:
        raise OSError(f"no counter in {statistics[:200]!r}")
    return {"sent_bytes": int(link[1])}


def main() -> None:
    command, *arguments = sys.argv[1:]
    print(json.dumps({"vector": vector, "herd": herd, "sent": sent}[command](*arguments)))


if __name__ == "__main__":
    main()
