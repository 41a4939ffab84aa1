"""`towpath cache` and what HTTP says about caches: a real nginx states `Cache-Control` and `Expires`, is changed, or is
stopped; curl reads through the cache (RFC 9111, RFC 5861, RFC 9211)."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients import Clients, eventually
from servers import HOST, Server, hand_over, start_cache, start_nginx

LOCATIONS = """
location /hour/ { add_header Cache-Control "max-age=3600" always; }
location /short/ { add_header Cache-Control "max-age=2, stale-if-error=600" always; }
location /strict/ { add_header Cache-Control "max-age=1, stale-if-error=600, must-revalidate" always; }
location /expires/ { expires 1h; }
location /no-store/ { add_header Cache-Control "no-store" always; }
location /silent/ { }
location = /query { add_header Cache-Control "max-age=3600" always; try_files /hour/query-$arg_v =404; }
location = /page { ssi on; ssi_types *; try_files /silent/page =404; }
"""
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
OLD_S = 1_500_000_000
SPACE = "[space]\nhigh = 1.0\nlow = 1.0\n"
"""Settings of a cache that evicts nothing while the disk has any space."""


@dataclass
class Response:
    """A response to curl."""

    status: int
    fields: dict[str, str]
    body: bytes


@dataclass
class Site:
    """A cache of an nginx of its own."""

    cache: Server
    origin: Server
    clients: Clients
    here: Path

    def put(self, name: str, data: bytes) -> None:
        """Replaces a file at the origin. Its modification time differs from that of the file before."""
        file = self.origin.root / name
        mtime_s = file.stat().st_mtime + 1 if file.exists() else OLD_S
        part = file.with_name("part")
        part.write_bytes(data)
        os.utime(part, (mtime_s, mtime_s))
        part.replace(file)

    def signal_origin(self, number: int) -> None:
        """Sends a signal to all processes of nginx: the master alone answers no request."""
        master = self.origin.process.pid
        for worker in Path(f"/proc/{master}/task/{master}/children").read_text().split():
            os.kill(int(worker), number)
        os.kill(master, number)

    def get(self, name: str, *options: str) -> Response:
        """Reads a file through the cache with curl."""
        head, body = self.here / "head", self.here / "body"
        body.write_bytes(b"")
        self.clients.run("curl", "-sS", "-D", head, "-o", body, *options, self.cache.http(f"/{name}"))
        # The last header: an upload has `100 Continue` before it.
        status, *lines = head.read_text().strip().split("\n\n")[-1].splitlines()
        fields = dict(line.lower().split(": ", 1) for line in lines if ": " in line)
        return Response(int(status.split()[1]), fields, body.read_bytes())


class Clock:
    """The wall clock of one server, which libfaketime sets at any time. Its monotonic clock continues."""

    def __init__(self, file: Path):
        self.file = file
        self.set("+0")

    def set(self, offset: str) -> None:
        """Sets the clock to an offset from the time of this machine, such as `+2h` or `-1d`."""
        part = self.file.with_name("clock-part")
        part.write_text(offset)
        part.replace(self.file)

    def prefix(self) -> tuple[str, ...]:
        """Returns the command line that starts a server with this clock."""
        settings = {
            "LD_PRELOAD": FAKETIME,
            "FAKETIME_TIMESTAMP_FILE": self.file,
            "FAKETIME_NO_CACHE": 1,
            "DONT_FAKE_MONOTONIC": 1,
            "NO_FAKE_STAT": 1,
        }
        return ("env", *(f"{name}={value}" for name, value in settings.items()))


@pytest.fixture
def site(binary, here, clients) -> Callable[..., Site]:
    """Starts a cache of an nginx: `site(settings)`, with a `clock` of its own if there is one."""
    started = []

    def start(config: str = "", clock: Clock | None = None) -> Site:
        # The servers run as another user without the right to enter the directory of the clients.
        area = here.parent.parent / f"freshness-{here.name}"
        for name in ("hour", "short", "strict", "expires", "no-store", "silent"):
            (area / "export" / name).mkdir(parents=True)
        origin = start_nginx(area, locations=LOCATIONS)
        prefix = clock.prefix() if clock else ()
        cache = start_cache(binary, f"http://{HOST}:{origin.port}/", here / "site", config=config + SPACE, prefix=prefix)
        started.extend([origin, cache, area])
        return Site(cache, origin, clients, here)

    yield start
    for each in started:
        if isinstance(each, Server):
            each.stop()
        else:
            shutil.rmtree(each, ignore_errors=True)


def test_lifetime(site):
    site = site()
    for name, is_kept in (("hour/f", True), ("expires/f", True), ("silent/f", False), ("no-store/f", False)):
        site.put(name, b"old")
        assert site.get(name).body == b"old"
        site.put(name, b"newer")
        assert site.get(name).body == (b"old" if is_kept else b"newer"), name


def test_clock_jumps(site, here):
    clock = Clock(here / "clock")
    site = site('[[rule]]\npath = "/silent"\nrecheck = "1h"\n', clock)
    # A jump forward ends each lifetime. After a jump back nothing has an age, and what was kept is rechecked too.
    for step, offset in enumerate(("+0", "+2h", "-1d", "+0", "+400d", "-400d", "+0")):
        clock.set(offset)
        for name in ("silent/f", "hour/f"):
            data = f"version {step} of {name}".encode()
            site.put(name, data)
            assert site.get(name).body == data, (name, offset)
        # Within the lifetime of the rule nothing changes.
        site.put("silent/f", b"too new")
        assert site.get("silent/f").body == f"version {step} of silent/f".encode(), offset


def test_fields(site):
    site = site()
    for name in ("hour/f", "expires/f"):
        site.put(name, b"123456789")
        first = site.get(name)
        assert first.fields["cache-control"] == "max-age=3600"
        assert "cache-status" not in first.fields
        second = site.get(name)
        assert second.fields["etag"] == first.fields["etag"]
        assert second.fields["last-modified"] == first.fields["last-modified"]
        assert 0 <= int(second.fields["age"]) < 600
        assert second.fields["cache-status"].startswith("towpath; hit; ttl=3")
        assert site.get(name, "-H", f"If-None-Match: {first.fields['etag']}").status == 304
        assert site.get(name, "-H", f"If-Modified-Since: {time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime())}").status == 304


def test_recheck_by_client(site):
    site = site()
    for options in (("-H", "Cache-Control: no-cache"), ("-H", "Cache-Control: max-age=0"), ("-H", "Pragma: no-cache")):
        site.put("hour/f", b"old")
        assert site.get("hour/f", *options).body == b"old"
        site.put("hour/f", b"newer")
        assert site.get("hour/f").body == b"old"
        assert site.get("hour/f", "-H", "Cache-Control: max-age=1000").body == b"old"
        assert site.get("hour/f", *options).body == b"newer"


def test_only_if_cached(site):
    site = site()
    only = ("-H", "Cache-Control: only-if-cached")
    data = os.urandom(3_000_000)
    site.put("hour/f", data)
    assert site.get("hour/f", *only).status == 504
    assert site.get("hour/f", "-r", "0-99999").body == data[:100_000]
    part = site.get("hour/f", "-r", "1000-99999", *only)
    assert (part.status, part.body) == (206, data[1000:100_000])
    assert site.get("hour/f", *only).status == 504, "most of it is absent"
    assert site.get("hour/f", "-r", "2000000-2000009", *only).status == 504
    assert site.get("hour/f").body == data
    site.signal_origin(signal.SIGSTOP)
    try:
        assert site.get("hour/f", *only).body == data
        assert site.get("hour/absent", *only).status == 504
    finally:
        site.signal_origin(signal.SIGCONT)


@pytest.mark.parametrize("is_silent", [False, True])
def test_stale_if_error(site, is_silent):
    site = site()
    for name in ("short/f", "strict/f"):
        site.put(name, b"123456789")
        assert site.get(name).body == b"123456789"
    if is_silent:
        site.signal_origin(signal.SIGSTOP)
    else:
        site.origin.stop()
    try:
        assert eventually(lambda: "stale-if-error" in site.get("short/f").fields["cache-status"])
        stale = site.get("short/f")
        assert (stale.status, stale.body) == (200, b"123456789")
        assert int(stale.fields["age"]) >= 2
        assert site.get("strict/f").status in (503, 504)
        assert site.get("short/absent").status in (503, 504)
        metrics = site.clients.run("curl", "-sS", "--fail", site.cache.http("/metrics")).text
        assert 'towpath_cache_stale_total{origin="' in metrics
    finally:
        if is_silent:
            site.signal_origin(signal.SIGCONT)


def test_missing(site):
    site = site('[[rule]]\npath = "/silent"\nmissing = "1h"\n')
    for name, is_kept in (("hour/f", True), ("silent/f", True), ("expires/f", False)):
        assert site.get(name).status == 404
        site.put(name, b"123456789")
        assert site.get(name).status == (404 if is_kept else 200), name
        # A client that demands a recheck finds it, for all.
        assert site.get(name, "-H", "Cache-Control: no-cache").body == b"123456789"
        assert site.get(name).body == b"123456789"


def test_write(site):
    site = site('[[rule]]\npath = "/"\nrecheck = "never"\nmissing = "1h"\n[[access.anonymous]]\npath = "/"\nallow = ["read", "create", "modify"]\n')
    hand_over(site.origin.root)
    assert site.get("silent/f").status == 404
    (site.here / "data").write_bytes(b"through the cache")
    assert site.get("silent/f", "-T", str(site.here / "data")).status in (200, 201, 204)
    assert site.get("silent/f").body == b"through the cache"
    (site.here / "data").write_bytes(b"and again")
    assert site.get("silent/f", "-T", str(site.here / "data")).status in (200, 201, 204)
    assert site.get("silent/f").body == b"and again"


def test_query(site):
    site = site()
    for value, data in (("1", b"one"), ("2", b"another")):
        site.put(f"hour/query-{value}", data)
    for _ in range(2):
        assert site.get("query?v=1").body == b"one"
        assert site.get("query?v=2").body == b"another"
        assert site.get("query?v=3").status == 404
    site.put("hour/query-1", b"newer")
    hit = site.get("query?v=1")
    assert hit.body == b"one"
    assert hit.fields["cache-status"].startswith("towpath; hit")
    assert site.get("query?v=1&x=/../%2F").body == b"newer"
    assert site.get("query?v=1", "-X", "DELETE").status == 400


def test_query_without_length(site):
    site = site()
    site.put("silent/page", b'<!--# echo var="arg_v" -->')
    for value in ("first", "2nd"):
        page = site.get(f"page?v={value}")
        assert (page.status, page.body) == (200, value.encode())
        assert page.fields["content-length"] == str(len(value))
    assert site.get("page?v=first", "-H", "Cache-Control: only-if-cached").status == 504, "nginx states no lifetime"
