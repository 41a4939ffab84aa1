"""`towpath cache` with several origins, and with storages that clients name in the path."""

import os
import signal
import threading
import time

import pytest

from clients import content, eventually
from servers import HOST, Link, start_cache, start_towpath

SIZE = 3_000_123
LARGE = 64 << 20
OLD_S = 1_500_000_000
"""Modification time of files at the origins: the same at all of them."""
OPEN_BYTES = 40_000
"""Maximum number of bytes from an origin to open files whose data are in the cache."""


def http_port(area) -> int:
    """Returns the port of a server for HTTP."""
    return area.server.http_port or area.server.port


def put(areas, name: str, data: bytes, mtimes_s: tuple = (OLD_S, OLD_S)) -> None:
    """Writes a file at each origin."""
    for area, mtime_s in zip(areas, mtimes_s):
        path = area.put(name, data)
        os.utime(path, (mtime_s, mtime_s))


@pytest.fixture
def pair(xrootd_area, nginx_area, binary, here):
    """A cache of an XRootD server and nginx, in this order; the links to them, and their areas."""
    links = [Link(xrootd_area.server.port), Link(http_port(nginx_area))]
    origins = [f"root://{HOST}:{links[0].port}/{xrootd_area.path}", f"http://{HOST}:{links[1].port}{nginx_area.path}/"]
    config = 'deadline = "3s"\n'
    cache = start_cache(binary, origins, here / "site", config=config)
    yield cache, links, (xrootd_area, nginx_area)
    cache.stop()
    for link in links:
        link.cut()


@pytest.mark.pair("xrdcp and curl", "a site cache of two origins, xrootd and nginx: the first one fails")
def test_failover(pair, clients, here):
    cache, links, areas = pair
    for number, name in enumerate(("one", "two")):
        put(areas, name, content(SIZE, number))
    clients.run("xrdcp", "-s", cache.url("/one"), here / "one")
    assert links[1].received == 0
    links[0].cut()
    clients.run("xrdcp", "-s", cache.url("/two"), here / "two")
    assert (here / "two").read_bytes() == content(SIZE, 1)
    before = links[1].received
    assert SIZE <= before <= SIZE + OPEN_BYTES
    assert clients.run("curl", "-sS", "--fail", cache.http("/one")).out == content(SIZE, 0)
    assert links[1].received - before <= OPEN_BYTES, "the data in the cache are used, whatever origin they came from"


@pytest.mark.pair("curl", "a download through a site cache of two origins continues while the first one fails")
def test_failover_of_a_reader(pair, clients, here):
    cache, links, areas = pair
    data = content(LARGE, 3)
    put(areas, "large", data)

    def cut() -> None:
        eventually(lambda: links[0].received > 8 << 20)
        links[0].cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    clients.run("curl", "-sS", "--fail", "--limit-rate", "20M", cache.http("/large"), "-o", here / "large")
    cutter.join()
    assert (here / "large").read_bytes() == data
    assert links[1].received > 0


@pytest.mark.pair("curl", "a site cache of two origins with different files of one name: never a mixture")
def test_different_files(pair, clients, here):
    cache, links, areas = pair
    for area, number, mtime_s in zip(areas, (4, 5), (OLD_S, OLD_S + 1)):
        os.utime(area.put("file", content(LARGE, number)), (mtime_s, mtime_s))
    head = clients.run("curl", "-sS", "--fail", "-r", "0-99999", cache.http("/file")).out
    assert head == content(LARGE, 4)[:100_000]
    links[0].cut()
    assert clients.run("curl", "-sS", "--fail", cache.http("/file")).out == content(LARGE, 5)


@pytest.mark.pair("xrdcp", "a site cache of two origins, the first one hangs: the second one serves after the deadline")
def test_hanging_first(towpath_pair, clients, here):
    cache, first = towpath_pair
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        clients.run("xrdcp", "-s", cache.url("/file"), here / "file", deadline_s=60)
        print(f"{time.monotonic() - start:.1f} s with a deadline of 3 s")
        assert (here / "file").read_bytes() == content(SIZE, 6)
    finally:
        os.kill(first.process.pid, signal.SIGCONT)


@pytest.fixture
def towpath_pair(binary, here):
    """A cache of two towpath servers with the file `file`; and the first server."""
    servers = []
    for name in ("first", "second"):
        server = start_towpath(binary, here / name)
        (server.root / "file").write_bytes(content(SIZE, 6))
        os.utime(server.root / "file", (OLD_S, OLD_S))
        servers.append(server)
    cache = start_cache(binary, [server.url("/") for server in servers], here / "site", config='deadline = "3s"\n')
    yield cache, servers[0]
    cache.stop()
    for server in servers:
        server.stop()


@pytest.mark.pair("xrdfs", "a site cache of two origins, the first one down: stat and ls")
def test_names_without_the_first(towpath_pair, clients):
    cache, first = towpath_pair
    first.stop()
    assert f"{SIZE}" in clients.run("xrdfs", cache.address, "stat", "/file").text
    assert "/file" in clients.run("xrdfs", cache.address, "ls", "/").text


@pytest.fixture
def forwarding(xrootd_area, nginx_area, binary, here):
    """A cache without an origin, for storages in the path: an XRootD server and nginx."""
    hosts = [f"{HOST}:{port}" for port in (xrootd_area.server.port, http_port(nginx_area))]
    cache = start_cache(binary, ["--forward", ",".join(hosts)], here / "site")
    yield cache, xrootd_area, nginx_area
    cache.stop()


@pytest.mark.pair("xrdcp, xrdfs, curl", "a storage that is named in the path of a site cache: root:// and http://")
def test_forward(forwarding, clients, here):
    cache, xrootd, nginx = forwarding
    named = [f"/root://{HOST}:{xrootd.server.port}/{xrootd.path}", f"/http://{HOST}:{http_port(nginx)}{nginx.path}"]
    for number, area in enumerate((xrootd, nginx)):
        put([area], "file", content(SIZE, number))
    for number, directory in enumerate(named):
        for attempt in range(2):
            clients.run("xrdcp", "-s", "-f", cache.url(f"{directory}/file"), here / "copy")
            assert (here / "copy").read_bytes() == content(SIZE, number), (directory, attempt)
        assert clients.run("curl", "-sS", "--fail", cache.http(f"{directory}/file")).out == content(SIZE, number)
    assert f"{SIZE}" in clients.run("xrdfs", cache.address, "stat", f"{named[0]}/file").text
    assert "/file" in clients.run("xrdfs", cache.address, "ls", named[0]).text


@pytest.mark.pair("curl and xrdcp", "a site cache with storages in the path contacts no other host or port, and writes nothing")
def test_forward_refusals(forwarding, clients, here):
    cache, xrootd, _ = forwarding
    status = ["-o", here / "answer", "-w", "%{http_code}"]
    for url in (f"/http://{HOST}:{cache.port}/", "/http://169.254.169.254/latest", "/https://example.org/f"):
        assert clients.run("curl", "-sS", cache.http(url), *status).text == "403", url
        assert "forward" in (here / "answer").read_text()
    assert clients.run("curl", "-sS", cache.http("/file"), *status).text == "404"
    failed = clients.run("xrdcp", "-s", cache.url(f"/root://{HOST}:1//f"), here / "copy", status=None)
    assert "forward" in failed.err.decode()
    name = f"/root://{HOST}:{xrootd.server.port}/{xrootd.path}/new"
    (here / "data").write_bytes(b"data")
    done = clients.run("curl", "-sS", "-T", here / "data", cache.http(name), *status)
    assert done.text == "401" and not (xrootd.local / "new").exists()
