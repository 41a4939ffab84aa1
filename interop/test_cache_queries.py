"""`towpath cache` of a servlet in the way of Frontier: results of queries in chunks without a length, with `Last-Modified` and
a lifetime; the query comes in the URL's query, or as a last name that is too long for a path."""

import email.utils
import http.client
import http.server
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from clients import eventually
from servers import HOST, Server, start_cache, start_towpath

MODIFIED_S = 1_500_000_000
LONG = "type=frontier_request:1:DEFAULT&encoding=BLOBzip5&p1=" + "eNpzs3BNLS5R" * 30
"""A request of a Frontier client: a name of more than 255 bytes."""
LARGE_BYTES = 20 << 20
"""More than the cache collects."""
CLIENTS = 50


class Servlet(http.server.ThreadingHTTPServer):
    """An HTTP origin whose content depends on all of the target, and on its state."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self):
        super().__init__((HOST, 0), Handler)
        self.state = 1
        self.lifetime = "max-age=3600"
        self.delay_s = 0.0
        self.has_time = True
        self.modified_s = MODIFIED_S
        self.is_down = False
        self.is_personal = False
        self.numbers = itertools.count()
        self.size = 1000
        self.requests: list[tuple[str, str, int]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_) -> None:
        """Says nothing about clients that close their connections."""

    def result(self, target: str) -> bytes:
        """Returns the current result of a query."""
        line = f"{self.state} {target}\n".encode()
        return (line * (self.size // len(line) + 1))[:self.size]

    def statuses(self) -> list[int]:
        """Returns the statuses of the responses since the last call."""
        seen, self.requests = self.requests, []
        return [status for _, _, status in seen]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers GET in chunks; ranges are ignored."""

    protocol_version = "HTTP/1.1"
    server: Servlet

    def log_message(self, *_) -> None:
        """Logs nothing."""

    def do_HEAD(self) -> None:  # noqa: N802
        """A servlet runs the query for it, too."""
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802
        """Sends the result, unless it is that of the client."""
        servlet = self.server
        if servlet.is_down:
            self.close_connection = True
            return
        time.sleep(servlet.delay_s)
        modified = email.utils.formatdate(servlet.modified_s + servlet.state, usegmt=True)
        is_same = servlet.has_time and self.headers.get("If-Modified-Since") == modified
        status = 304 if is_same else 200
        servlet.requests.append((self.command, self.path, status))
        self.send_response(status)
        if servlet.lifetime:
            self.send_header("Cache-Control", servlet.lifetime)
        if servlet.has_time:
            self.send_header("Last-Modified", modified)
        if not is_same:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if is_same or self.command == "HEAD":
            return
        body = servlet.result(f"{next(servlet.numbers)} {self.path}" if servlet.is_personal else self.path)
        for start in range(0, len(body), 1 << 16):
            part = body[start:start + (1 << 16)]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def servlet():
    """A servlet of its own."""
    with Servlet() as servlet:
        yield servlet
        servlet.shutdown()


@pytest.fixture
def cache(binary, here, servlet) -> Callable[[str], Server]:
    """Starts a cache of the servlet: `cache(settings)`."""
    started = []

    def start(config: str = "") -> Server:
        started.append(start_cache(binary, f"http://{HOST}:{servlet.server_port}/", here / "site", config=config))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def get(cache: Server, target: str, **fields: str) -> tuple[int, dict[str, str], bytes]:
    """Requests a target as it is written."""
    connection = http.client.HTTPConnection(HOST, cache.port, timeout=60)
    try:
        connection.request("GET", target, headers={name.replace("_", "-"): value for name, value in fields.items()})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("target", ["/Frontier?type=x&p1=a%2Fb", f"/Frontier/{LONG}", f"/{LONG}", f"/a/Frontier/{LONG}?x=1"])
def test_result(cache, servlet, target):
    cache = cache()
    status, fields, body = get(cache, target)
    assert (status, body) == (200, servlet.result(target))
    assert fields["content-length"] == str(servlet.size)
    assert "cache-status" not in fields
    for _ in range(3):
        status, again, body = get(cache, target)
        assert (status, body) == (200, servlet.result(target))
        assert again["cache-status"].startswith("towpath; hit")
        assert (again["etag"], again["last-modified"]) == (fields["etag"], fields["last-modified"])
    assert get(cache, target, Range="bytes=10-19")[::2] == (206, servlet.result(target)[10:20])
    assert get(cache, target, If_None_Match=fields["etag"])[0] == 304
    assert [(method, path) for method, path, _ in servlet.requests] == [("GET", target)], "one request to the servlet"
    assert get(cache, target + "x")[2] == servlet.result(target + "x")


def test_condition(cache, servlet):
    servlet.lifetime = "max-age=1"
    cache, target = cache(), "/Frontier?p1=a"
    first = get(cache, target)
    assert servlet.statuses() == [200]
    time.sleep(2.1)
    assert get(cache, target)[2] == first[2]
    assert servlet.statuses() == [304]
    assert get(cache, target)[1]["cache-status"].startswith("towpath; hit"), "the response 304 has a lifetime"
    servlet.state = 2
    time.sleep(2.1)
    assert get(cache, target)[2] == servlet.result(target) != first[2]
    assert servlet.statuses() == [200]


def test_no_lifetime(cache, servlet):
    servlet.lifetime = ""
    cache, target = cache(), "/Frontier?p1=a"
    for expected in (200, 304, 304):
        assert get(cache, target)[2] == servlet.result(target)
        assert servlet.statuses() == [expected]
    servlet.has_time = False
    servlet.state = 2
    for _ in range(2):
        assert get(cache, target)[2] == servlet.result(target)
        assert servlet.statuses() == [200], "nothing to make a condition of"


def test_no_store(cache, servlet):
    servlet.lifetime = "no-store"
    cache, target = cache(), "/Frontier?p1=a"
    for _ in range(2):
        assert get(cache, target)[2] == servlet.result(target)
        assert servlet.statuses() == [200]
    assert get(cache, target, Cache_Control="only-if-cached")[0] == 504


@pytest.mark.parametrize("lifetime", ["max-age=3600", ""])
def test_single_flight(cache, servlet, lifetime):
    servlet.lifetime, servlet.delay_s, servlet.size = lifetime, 1.0, 300_000
    cache, target = cache(), f"/Frontier/{LONG}"
    with ThreadPoolExecutor(CLIENTS) as threads:
        bodies = list(threads.map(lambda _: get(cache, target)[2], range(CLIENTS)))
    assert set(bodies) == {servlet.result(target)}
    statuses = servlet.statuses()
    # A client that comes after the response needs a request of its own, if that has no lifetime.
    assert statuses.count(200) == 1
    assert len(statuses) <= (1 if lifetime else CLIENTS // 5)


@pytest.mark.parametrize("lifetime", ["no-store", "private, max-age=60"])
def test_personal_results(cache, servlet, lifetime):
    servlet.lifetime, servlet.delay_s, servlet.is_personal = lifetime, 0.5, True
    cache, target = cache(), "/Frontier?p1=a"
    with ThreadPoolExecutor(10) as threads:
        bodies = list(threads.map(lambda _: get(cache, target)[2], range(10)))
    assert len(set(bodies)) == len(bodies) == len(servlet.statuses())


def test_recent_time(cache, servlet):
    servlet.lifetime, servlet.modified_s = "", int(time.time())
    cache, target = cache(), "/Frontier?p1=a"
    assert get(cache, target)[2] == servlet.result(target)
    # A second change within the same second leaves the time as it is.
    servlet.state, servlet.modified_s = 2, servlet.modified_s - 1
    assert get(cache, target)[2] == servlet.result(target)


def test_large_result(cache, servlet):
    servlet.size = LARGE_BYTES
    cache, target = cache(), "/Frontier?p1=a"
    for _ in range(2):
        status, fields, body = get(cache, target)
        assert (status, body) == (200, servlet.result(target))
        assert fields["transfer-encoding"] == "chunked"
    assert servlet.statuses() == [200, 200]


def test_stale_if_error(cache, servlet):
    servlet.lifetime = "max-age=1, stale-if-error=600"
    cache, target = cache(), f"/Frontier/{LONG}"
    data = get(cache, target)[2]
    servlet.is_down = True
    time.sleep(1.1)
    assert eventually(lambda: "stale-if-error" in get(cache, target)[1].get("cache-status", ""))
    assert get(cache, target)[2] == data


@pytest.mark.parametrize("is_damaged", [False, True])
def test_restart(binary, here, servlet, is_damaged):
    origin, target = f"http://{HOST}:{servlet.server_port}/", f"/Frontier/{LONG}"
    for expected in ([200], [200] if is_damaged else []):
        site = start_cache(binary, origin, here / "site")
        try:
            assert get(site, target)[2] == servlet.result(target)
            assert servlet.statuses() == expected
        finally:
            site.stop()
        [stored] = site.root.glob("entries/*/*.data")
        if is_damaged:
            stored.write_bytes(b"x" + stored.read_bytes()[1:])


def test_long_name_of_another_store(binary, here):
    server = start_towpath(binary, here)
    try:
        assert get(server, f"/d/{LONG}")[0] == 414
    finally:
        server.stop()
