"""`towpath cache` under misbehaving origins and at the limits of its process; its commands with required TLS."""

import email.utils
import http.client
import http.server
import itertools
import json
import os
import re
import resource
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clients import content, eventually
from servers import HOST, Server, start_cache, start_towpath, start_xrootd

SIZE = 3_000_017
OLD_S = 1_500_000_000
OLD = email.utils.formatdate(OLD_S, usegmt=True)
ENDLESS_BYTES = 256 << 20
"""An endless body ends here, if no client has closed the connection."""
MANY = 10_000
"""Number of open files; fewer if the limit of file descriptors is below 22,000, because one client gets at most a half."""
MANY_BYTES = 4096
MAX_RESIDENT_BYTES = 512 << 20
SLOW_S = 1.0
PIECES = 10
"""Pieces of a file that takes `SLOW_S`."""
HERE = Path(__file__).parent


class Origin(http.server.ThreadingHTTPServer):
    """An HTTP origin of the file `/file`, which misbehaves in the way `mode`."""

    daemon_threads = True

    def __init__(self):
        super().__init__((HOST, 0), Handler)
        self.mode = "right"
        self.data = content(SIZE, 1)
        self.tag = '"one"'
        self.misbehaved = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_) -> None:
        """Says nothing about clients that close their connections."""


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers HEAD and GET with at most one range."""

    protocol_version = "HTTP/1.1"
    server: Origin

    def log_message(self, *_) -> None:
        """Logs nothing."""

    def do_HEAD(self) -> None:  # noqa: N802
        """Sends the metadata, which are right in all modes."""
        self._begin(200, len(self.server.data))

    def do_GET(self) -> None:  # noqa: N802
        """Sends the file or a range of it, in the way of the mode."""
        origin = self.server
        if self.headers.get("If-Match", origin.tag) != origin.tag and origin.mode != "stale":
            self._begin(412, 0)
            return
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        start, end = (int(found[1]), int(found[2] or SIZE - 1) + 1) if found else (0, SIZE)
        end = min(end, SIZE)
        if origin.mode == "right" or start >= SIZE:
            self._send(found, start, end, origin.data[start:end])
            return
        origin.misbehaved += 1
        MODES[origin.mode](self, found, start, end)

    def _begin(self, status: int, length: int | None, start: int = 0, end: int = 0, tag: str = "") -> None:
        self.send_response(status)
        self.send_header("ETag", tag or self.server.tag)
        self.send_header("Last-Modified", OLD)
        self.send_header("Accept-Ranges", "bytes")
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{SIZE}")
        self.send_header(*(("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))))
        self.end_headers()

    def _send(self, is_range, start: int, end: int, body: bytes, length: int | None = None, tag: str = "") -> None:
        self._begin(206 if is_range else 200, len(body) if length is None else length, start, end, tag)
        self.wfile.write(body)

    def send_part(self, is_range, start: int, end: int) -> None:
        """Sends a half of the announced body, and closes the connection."""
        self._send(is_range, start, end, self.server.data[start:(start + end) // 2], end - start)
        self.close_connection = True

    def reset(self, is_range, start: int, end: int) -> None:
        """Sends a half, and resets the connection."""
        self.send_part(is_range, start, end)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def send_more(self, is_range, start: int, end: int) -> None:
        """Sends and announces more than the range."""
        self._send(is_range, start, end, self.server.data[start:end] + b"more" * 1000)
        self.close_connection = True

    def send_fewer(self, is_range, start: int, end: int) -> None:
        """Sends and announces a shorter body than the range in the header."""
        self._send(is_range, start, end, self.server.data[start:end][:-1])

    def send_other_range(self, is_range, start: int, end: int) -> None:
        """Sends the range that begins one byte later, and says so."""
        self._send(True, start + 1, min(end + 1, SIZE), self.server.data[start + 1:end + 1])

    def send_whole(self, _, start: int, end: int) -> None:
        """Sends the whole file in place of a range, which is permitted."""
        self._send(False, 0, SIZE, self.server.data)

    def send_stale(self, is_range, start: int, end: int) -> None:
        """Sends another version than that of the metadata."""
        self._send(is_range, start, end, content(SIZE, 2)[start:end], tag='"two"')

    def send_endless(self, is_range, start: int, end: int) -> None:
        """Sends the body, and then zeros without end."""
        self._begin(206 if is_range else 200, None, start, end)
        self.wfile.write(b"%x\r\n%b\r\n" % (end - start, self.server.data[start:end]))
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        for _ in range(ENDLESS_BYTES // 0x10000):
            self.wfile.write(chunk)
        self.close_connection = True

    def send_overwritten(self, is_range, start: int, end: int) -> None:
        """Sends a half, is overwritten by another version, and sends a half of that."""
        origin, half = self.server, (start + end) // 2
        self._send(is_range, start, end, origin.data[start:half], end - start)
        origin.data, origin.tag = content(SIZE, 2), '"two"'
        self.wfile.write(origin.data[half:end])

    def send_late(self, is_range, start: int, end: int) -> None:
        """Sends the range after a while, as a slow storage does."""
        time.sleep(SLOW_S)
        self._send(is_range, start, end, self.server.data[start:end])

    def send_slowly(self, is_range, start: int, end: int) -> None:
        """Begins at once, and sends the range in pieces, as a slow network does."""
        if end - start == 1:
            # To compare the version.
            self._send(is_range, start, end, self.server.data[start:end])
            return
        self._begin(206 if is_range else 200, end - start, start, end)
        bounds = [start + (end - start) * number // PIECES for number in range(PIECES + 1)]
        for first, last in itertools.pairwise(bounds):
            self.wfile.write(self.server.data[first:last])
            self.wfile.flush()
            time.sleep(SLOW_S / PIECES)

    def fail(self, *_) -> None:
        """Fails without a word."""
        self.connection.close()
        self.close_connection = True

    def refuse(self, *_) -> None:
        """Responds with 500."""
        self._begin(500, 0)


MODES: dict[str, Callable] = {
    "short": Handler.send_part,
    "reset": Handler.reset,
    "longer": Handler.send_more,
    "fewer": Handler.send_fewer,
    "another range": Handler.send_other_range,
    "whole": Handler.send_whole,
    "stale": Handler.send_stale,
    "endless": Handler.send_endless,
    "closed": Handler.fail,
    "status 500": Handler.refuse,
}


def get(cache: Server, path: str, span: tuple[int, int] | None = None) -> bytes | None:
    """Reads a file or a range by HTTP; `None` for an error or an incomplete body."""
    connection = http.client.HTTPConnection(HOST, cache.port, timeout=90)
    try:
        connection.request("GET", path, headers={"Range": f"bytes={span[0]}-{span[1] - 1}"} if span else {})
        response = connection.getresponse()
        body = response.read()
        return body if response.status == (206 if span else 200) else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def resident_bytes(server: Server) -> int:
    """Returns the greatest resident memory of a server so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.pair("Python http.client", "a site cache of an origin with wrong lengths, stale data, resets, endless bodies: right bytes or an error, then all right")
def test_misbehaving_origin(binary, here, mode):
    origin = Origin()
    cache = start_cache(binary, f"http://{HOST}:{origin.server_port}/", here / "cache")
    try:
        span = (500_001, 700_007)
        origin.mode = mode
        for wanted in (span, None, span):
            got = get(cache, "/file", wanted)
            first, end = wanted or (0, SIZE)
            assert got is None or got == origin.data[first:end], f"{len(got)} wrong bytes"
        assert origin.misbehaved > 0, "the cache has requested data"
        origin.mode = "right"
        # Failures in a row make the origin count as unreachable for 5 s.
        assert eventually(lambda: get(cache, "/file") == origin.data, 30), "the cache works again"
        fetched = stats(binary, cache)["origins"][0]["fetched_bytes"]
        assert get(cache, "/file", span) == origin.data[span[0]:span[1]]
        assert stats(binary, cache)["origins"][0]["fetched_bytes"] == fetched, "it is in the cache"
        assert resident_bytes(cache) < MAX_RESIDENT_BYTES
    finally:
        cache.stop()
        origin.shutdown()
        origin.server_close()


def test_file_overwritten_while_it_is_sent(binary, here, monkeypatch):
    monkeypatch.setitem(MODES, "overwritten", Handler.send_overwritten)
    origin = Origin()
    cache = start_cache(binary, f"http://{HOST}:{origin.server_port}/", here / "cache")
    try:
        origin.mode = "overwritten"
        whole = origin.data
        got = get(cache, "/file")
        assert origin.misbehaved > 0 and origin.data != whole
        assert got in (None, whole, origin.data)
        origin.mode = "right"
        assert eventually(lambda: get(cache, "/file") == origin.data, 30)
    finally:
        cache.stop()
        origin.shutdown()
        origin.server_close()


@pytest.mark.parametrize(("mode", "slow_part"), [("late", "storage"), ("slowly", "network")])
def test_slow_part_is_named(binary, clients, here, monkeypatch, mode, slow_part):
    monkeypatch.setitem(MODES, "late", Handler.send_late)
    monkeypatch.setitem(MODES, "slowly", Handler.send_slowly)
    origin = Origin()
    cache = start_cache(binary, f"http://{HOST}:{origin.server_port}/", here / "cache")
    try:
        origin.mode = mode
        assert get(cache, "/file") == origin.data
        assert eventually(lambda: "1 access" in command(clients, binary, cache, "explain").text)
        last_line = command(clients, binary, cache, "explain", "/file").text.splitlines()[-1]
        assert f"most time went to the {slow_part} " in last_line, last_line
        [row] = json.loads(command(clients, binary, cache, "explain", "--json").out)["rows"]
        assert row["origin_seconds"] >= SLOW_S * 0.9
        assert (row["origin_storage_seconds"] > row["origin_seconds"] / 2) == (slow_part == "storage"), row
    finally:
        cache.stop()
        origin.shutdown()
        origin.server_close()


def command(clients, binary: Path, cache: Server, *words: str, status: int | None = 0):
    """Runs a command for a running cache."""
    return clients.run(binary, "cache", *words, "--dir", cache.root, status=status)


def stats(binary: Path, cache: Server) -> dict:
    """Returns the counters of a running cache."""
    done = subprocess.run([binary, "cache", "stats", "--json", "--dir", cache.root], capture_output=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.mark.pair("towpath cache stats, ls, pin, pins, evict, scrub, chaos", "commands for a site cache that requires TLS")
def test_commands(area, authority, binary, clients, here):
    for name in ("d/a", "d/b"):
        os.utime(area.put(name, content(100_000, 3)), (OLD_S, OLD_S))
    tls = f'[tls]\ncertificate = "{authority.certificate}"\nkey = "{authority.key}"\nrequired = true\n'
    cache = start_cache(binary, f"root://{HOST}:{area.server.port}/{area.path}", here / "cache", config=tls)
    cache.tls = True

    def run(*words: str, status: int | None = 0) -> str:
        done = command(clients, binary, cache, *words, status=status)
        assert status != 0 or not done.err, done
        return done.text

    try:
        for name in ("d/a", "d/b"):
            assert clients.run("curl", "-sS", "--fail", "--cacert", authority.file, cache.http(f"/{name}")).out == content(100_000, 3)
        assert run("stats").startswith("2 entries, ")
        listed = json.loads(run("ls", "/d", "--json"))
        assert (listed["total"], [row["present_bytes"] for row in listed["rows"]]) == (2, [100_000, 100_000])
        assert (run("pin", "/d/a"), run("pins"), run("ls", "/d/a").split()[-2:]) == ("1 entry\n", "/d/a\n", ["pinned", "/d/a"])
        assert " of 2 entries; 0 in use and 1 pinned stay" in run("evict", "/d")
        assert (run("unpin", "/d/a"), run("pins")) == ("1 entry\n", "")
        found = json.loads(run("scrub", "--json"))
        assert (found["entries"], found["damaged_bytes"]) == (1, 0)
        refused = command(clients, binary, cache, "chaos", "corrupt", "/d", status=None)
        assert refused.text == "" and b"(entries below it: 1)" in refused.err, "a directory is not damaged"
        assert "1 entry" in run("chaos", "corrupt", "/d/a")
        assert "compared" in run("scrub", status=None)
        assert run("scrub").startswith("compared "), "the outcome is that of this scrub, not of an earlier one"
        assert "1 access to 1 file" in run("explain", "/d/a")
    finally:
        cache.stop()


@pytest.mark.parametrize(("program", "scheme"), [("towpath", "http"), ("towpath", "root"), ("xrootd", "root")])
@pytest.mark.pair("python3-xrootd 5.5", "10,000 open files of a site cache, read slowly: right bytes in 512 MiB")
def test_many_open_files(program, scheme, binary, clients, base, here):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    many = min(MANY, hard // 2 - 1000)
    limits = "[limits]\nconnections = 100\n"
    data = content(MANY_BYTES, 5)
    match program:
        case "towpath":
            origin = start_towpath(binary, here / "origin", config=limits)
        case _:
            origin = start_xrootd(base / "many-open", http=False, tpc=False)
    url = origin.url("/", scheme) if scheme == "root" else origin.http("/", scheme)
    for number in range(many):
        (origin.root / f"f{number}").write_bytes(data[number % 1000:])
        os.utime(origin.root / f"f{number}", (OLD_S, OLD_S))
    cache = start_cache(binary, url, here / "cache", config=limits)
    try:
        words = (HERE / "xrootd_bindings.py", "many_open", f"{cache.address}/", str(many))
        found = json.loads(clients.run("/usr/bin/python3", *words, XRD_LOGLEVEL="Error", deadline_s=280).text)
        print(found, f"{resident_bytes(cache) >> 20} MiB")
        assert found["opened"] == many and found["wrong"] == []
        assert resident_bytes(cache) < MAX_RESIDENT_BYTES
        assert get(cache, "/f7") == data[7:], "the cache works afterwards"
    finally:
        cache.stop()
        origin.stop()
