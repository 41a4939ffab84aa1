"""Sends requests that no command sends, built byte by byte, for interop/xrootd-captures.sh.

    xrootd-raw.py root://HOST:PORT/

The purpose is to capture the server's responses; the requests are an independent reference for the encoding of ours.
Needs the directory /many; /data/raw.bin must not exist.
"""

import socket
import struct
import sys

OK, OKSOFAR, STATUS = 0, 4000, 4007


def crc32c(data: bytes) -> int:
    """Returns the CRC-32C, computed bit by bit: the inputs are a few kilobytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Connection:
    """Sends requests one at a time, each with the next stream id, and waits for the final response."""

    def __init__(self, host: str, port: int):
        self.socket = socket.create_connection((host, port))
        self.stream_id = 0
        self.socket.sendall(struct.pack(">5i", 0, 0, 0, 4, 2012))
        self.answer()

    def receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = self.socket.recv(length - len(data))
            if not piece:
                raise EOFError("the server closed the connection")
            data += piece
        return data

    def answer(self) -> bytes:
        """Returns the body of the final response (or its data, for an extended one)."""
        while True:
            _, status, length = struct.unpack(">HHi", self.receive(8))
            body = self.receive(length)
            if status == STATUS:
                final = body[7] == 0
                body = self.receive(struct.unpack(">i", body[12:16])[0])
                if final:
                    return body
            elif status != OKSOFAR:
                return body

    def request(self, code: int, parameters: bytes = b"", payload: bytes = b"", beyond: bytes = b"") -> bytes:
        self.stream_id += 1
        head = struct.pack(">HH", self.stream_id, code) + parameters.ljust(16, b"\0")
        self.socket.sendall(head + struct.pack(">i", len(payload)) + payload + beyond)
        return self.answer()


def session(connection: Connection) -> None:
    connection.request(3006, struct.pack(">iBB", 0x520, 0x09, 3))
    connection.request(3007, struct.pack(">i8sBBBB", 1, b"nobody", 0, 0, 4, 0), b"xrd.cc=ch")
    connection.request(3011)
    connection.request(3023, b"0123456789abcdef")


def open_file(connection: Connection, options: int, path: bytes) -> bytes:
    return connection.request(3010, struct.pack(">HH", 0o644, options), path)[:4]


def pages(connection: Connection) -> None:
    """Sends pgwrite and pgread unaligned at both ends, a damaged page and its retry, and one without a retry."""
    handle = open_file(connection, 0x22, b"/data/raw.bin")
    first, middle, last = b"a" * 6, b"b" * 4096, b"c" * 10
    good = b"".join(struct.pack(">I", crc32c(page)) + page for page in (first, middle, last))
    bad = good[:20] + b"!" + good[21:]
    at = struct.pack(">q", 4090)
    connection.request(3026, handle + at, good)
    connection.request(3026, handle + at, bad)
    again = struct.pack(">I", crc32c(middle)) + middle
    connection.request(3026, handle + struct.pack(">qBB", 4096, 0, 1), again)
    connection.request(3030, handle + struct.pack(">qi", 4090, 10))
    connection.request(3030, handle + struct.pack(">qi", 1 << 40, 10))
    connection.request(3026, handle + at, bad[:9] + b"?")
    connection.request(3003, handle)


def vectors(connection: Connection) -> None:
    handle = open_file(connection, 0x20, b"/data/raw.bin")

    def element(offset: int, length: int) -> bytes:
        return handle + struct.pack(">iq", length, offset)

    connection.request(3031, b"\1", element(0, 5) + element(100, 3), b"12345678")
    connection.request(3025, b"", element(100, 3) + element(7, 0) + element(0, 5))
    connection.request(3028, handle + struct.pack(">q", 200))
    connection.request(3017, b"\0" * 12 + handle)
    connection.request(3020, handle + struct.pack(">BBB", 3, 2, 0), b"\0\0\0a\0\0\0b\0" + b"\0\0\0\2vv" + b"\0\0\0\0")
    connection.request(3020, handle + struct.pack(">BBB", 1, 2, 0), b"\0\0\0a\0\0\0x\0")
    connection.request(3020, handle + struct.pack(">BBB", 2, 0, 0))
    connection.request(3020, handle + struct.pack(">BBB", 0, 1, 0), b"\0\0\0b\0")
    for operation in (0, 2, 3):
        connection.request(3012, handle + b"\0" * 11 + bytes([operation]))
    connection.request(3001, struct.pack(">HH", 8, 0) + handle)
    connection.request(3003, handle)


def paths(connection: Connection) -> None:
    connection.request(3009, b"", b"/data/raw.bin /data/raw2.bin")
    connection.request(3022, b"", b"/data\n/data/raw2.bin\n/many")
    connection.request(3028, b"\0" * 4 + struct.pack(">q", 10), b"/data/raw2.bin")
    connection.request(3014, b"", b"/data/raw2.bin")
    connection.request(3015, b"", b"/many")
    connection.request(3004, b"", b"/many")
    connection.request(3004, b"\0" * 15 + b"\2", b"/many")
    connection.request(3004, b"", b"/missing")
    connection.request(3001, struct.pack(">H", 7), b"readv_ior_max readv_iov_max chksum tpc nonsense")
    connection.request(3001, struct.pack(">H", 16), b"anything")
    connection.request(3001, struct.pack(">H", 99), b"anything")


def main() -> None:
    host, port = sys.argv[1].removeprefix("root://").rstrip("/").split(":")
    connection = Connection(host, int(port))
    for part in (session, pages, vectors, paths):
        part(connection)


if __name__ == "__main__":
    main()
