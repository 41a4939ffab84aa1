"""`towpath cache` between real clients and real origins: bytes, errors, and the bytes fetched from the origin.

The cache is connected to its origin by a `Link`, which counts the bytes of the origin, and can be cut. Files at the
origin have an old modification time: the cache does not store a file that changed within the last two seconds, if its
time has whole seconds.
"""

import http.client
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients import Clients, adler32, content, eventually, tree
from kill_loop import KillLoop
from servers import HOST, Link, Server, hand_over, start_cache, start_towpath

SIZE = 9_000_123
LARGE = 64 << 20
DESCRIPTOR_READERS = 1000
BASKETS = 286 + 4640  # of the two branches of the large tree
OLD_S = 1_500_000_000
"""Modification time of files at the origin."""
METADATA_BYTES = 16_000
"""Maximum number of bytes from the origin to open a file that is in the cache."""
HERE = Path(__file__).parent

# Fixture of the area, scheme, name of the origin.
XROOTD = ("xrootd_area", "root", "xrootd 5.5 root://")
XROOTD6 = ("xrootd6_area", "root", "xrootd 6.2 root://")
NGINX = ("nginx_area", "http", "nginx http://")
OURS_ROOT = ("area", "root", "towpath root://")
OURS_HTTP = ("area", "http", "towpath http://")
ORIGINS = [XROOTD, XROOTD6, NGINX, OURS_ROOT, OURS_HTTP]


@dataclass
class Site:
    """A cache, the link to its origin, and a directory at the origin."""

    cache: Server
    link: Link
    area: object
    scheme: str

    def put(self, name: str, data: bytes, mtime_s: float = OLD_S) -> Path:
        """Replaces a file at the origin at once."""
        part = self.area.put(f"{name}.part", data)
        os.utime(part, (mtime_s, mtime_s))
        return part.replace(part.with_name(part.name.removesuffix(".part")))

    def url(self, name: str = "") -> str:
        """Returns the XRootD URL of a file, through the cache."""
        return self.cache.url(self.path(name))

    def http(self, name: str = "") -> str:
        """Returns the HTTP URL of a file, through the cache."""
        return self.cache.http(self.path(name))

    def path(self, name: str) -> str:
        """Returns the path of a file of the area."""
        return f"{self.area.path}/{name}" if name else self.area.path


def origin_url(port: int, scheme: str) -> str:
    """Returns the URL of the root of an origin."""
    return f"{scheme}://{HOST}:{port}/{'/' if scheme == 'root' else ''}"


def rules(recheck: str) -> str:
    """Returns settings with one rule for all files."""
    return f'[[rule]]\npath = "/"\nrecheck = "{recheck}"\n'


def through(origins: list, client: str | None = None, operation: str | None = None, **more):
    """Runs a test with a cache of each origin. All are one row of the table, if the test is not more than one."""
    marks = [pytest.mark.pair(client, operation, **more)] if client else []
    return pytest.mark.parametrize("site", [
        pytest.param((fixture, scheme), id=name.replace("://", "").replace(" ", "-"), marks=marks)
        for fixture, scheme, name in origins
    ], indirect=True)


@pytest.fixture(scope="module")
def caches(base, binary):
    """Returns a running cache of an origin, with its link. Each starts once."""
    running: dict[tuple[int, str], tuple[Server, Link]] = {}

    def of(server: Server, scheme: str) -> tuple[Server, Link]:
        port = server.port if scheme == "root" else server.http_port or server.port
        if (port, scheme) not in running:
            link = Link(port)
            directory = base / f"cache-{server.name}-{scheme}"
            running[port, scheme] = start_cache(binary, origin_url(link.port, scheme), directory), link
        return running[port, scheme]

    yield of
    for cache, link in running.values():
        cache.stop()
        link.cut()


@pytest.fixture
def site(request, caches) -> Site:
    """The cache of the origin of a parameter."""
    fixture, scheme = request.param
    area = request.getfixturevalue(fixture)
    cache, link = caches(area.server, scheme)
    return Site(cache, link, area, scheme)


@pytest.fixture
def own_site(request, binary, here) -> Callable[..., Site]:
    """Starts a cache of one test: `own_site(origin, recheck)`; `settings` are further ones."""
    started = []

    def start(origin: tuple, recheck: str = "always", settings: str = "", **more) -> Site:
        fixture, scheme, _ = origin
        area = request.getfixturevalue(fixture)
        link = Link(area.server.port if scheme == "root" else area.server.http_port or area.server.port)
        cache = start_cache(binary, origin_url(link.port, scheme), here / f"site{len(started)}",
                            config=f"{settings}\n{rules(recheck)}", **more)
        started.append((cache, link))
        return Site(cache, link, area, scheme)

    yield start
    for cache, link in started:
        cache.stop()
        link.cut()


@dataclass
class Reader:
    """What a client needs to read a file through a cache."""

    site: Site
    clients: Clients
    here: Path
    binary: Path

    def run(self, *command, **more):
        """Runs a command, which writes to the file `out`. Returns its content."""
        (self.here / "out").unlink(missing_ok=True)
        self.clients.run(*command, **more)
        return (self.here / "out").read_bytes()

    def xrdcp(self, name: str) -> bytes:
        """Reads with xrdcp."""
        return self.run("xrdcp", "-s", self.site.url(name), self.here / "out")

    def xrdcp_checksum(self, name: str) -> bytes:
        """Reads with xrdcp, which compares the checksum of its copy with that of the server."""
        return self.run("xrdcp", "-s", "--cksum", "adler32", self.site.url(name), self.here / "out")

    def curl(self, name: str) -> bytes:
        """Reads with curl."""
        return self.run("curl", "-sS", "--fail", self.site.http(name), "-o", self.here / "out")

    def rclone(self, name: str) -> bytes:
        """Reads with rclone's HTTP backend."""
        remote = f":http,url='{self.site.http()}/':{name}"
        return self.run("rclone", "--config", "", "--retries", "1", "copyto", remote, self.here / "out")

    def davix(self, name: str) -> bytes:
        """Reads with davix."""
        return self.run("davix-get", self.site.http(name), self.here / "out")

    def towpath(self, name: str) -> bytes:
        """Reads with `towpath cp`."""
        return self.run(self.binary, "cp", self.site.url(name), self.here / "out")

    def towpath_http(self, name: str) -> bytes:
        """Reads with `towpath cat` over HTTP."""
        return self.clients.run(self.binary, "cat", self.site.http(name)).out


@pytest.fixture
def reader(site, clients, here, binary) -> Reader:
    """Reads through the cache of `site`."""
    return Reader(site, clients, here, binary)


def fetched_by(site: Site, action: Callable[[], object]) -> int:
    """Returns the number of bytes from the origin during an action."""
    before = site.link.received
    action()
    return site.link.received - before


def each_client(operation: str):
    """Runs a test with each client that reads whole files."""
    clients = [("xrdcp", Reader.xrdcp), ("curl", Reader.curl), ("rclone", Reader.rclone), ("davix", Reader.davix),
               ("towpath cp root://", Reader.towpath), ("towpath cat http://", Reader.towpath_http)]
    return pytest.mark.parametrize("read", [
        pytest.param(read, id=name.replace("://", "").replace(" ", "-"), marks=pytest.mark.pair(name.split()[0], f"{operation}{more}"))
        for name, read in clients
        for more in [f", {name.removeprefix('towpath ')}" if name.startswith("towpath") else ""]
    ])


@through(ORIGINS)
@each_client("download through a site cache; a second one fetches nothing")
def test_download(site, reader, read):
    data = content(SIZE, 1)
    site.put("file", data)
    first = fetched_by(site, lambda: read(reader, "file") == data or pytest.fail("wrong bytes"))
    second = fetched_by(site, lambda: read(reader, "file") == data or pytest.fail("wrong bytes from the cache"))
    assert SIZE <= first <= SIZE * 1.02 + METADATA_BYTES
    assert second <= METADATA_BYTES


@through(ORIGINS, "xrdcp", "download of 64 MiB through a site cache, also -S 4")
def test_large_download(site, reader):
    data = content(LARGE, 2)
    site.put("file", data)
    assert reader.xrdcp("file") == data
    again = fetched_by(site, lambda: reader.run("xrdcp", "-s", "-S", "4", site.url("file"), reader.here / "out") == data or pytest.fail())
    assert again <= METADATA_BYTES


@through([XROOTD, OURS_ROOT, OURS_HTTP], "xrdcp", "download --cksum adler32 through a site cache, by the origin's checksum")
def test_checksum(site, reader):
    data = content(SIZE, 3)
    site.put("file", data)
    assert reader.xrdcp_checksum("file") == data
    assert reader.xrdcp_checksum("file") == data


@through([XROOTD, OURS_ROOT, OURS_HTTP], "xrdfs", "ls, stat, query checksum through a site cache")
def test_xrdfs(site, clients):
    data = content(1_000_003, 4)
    site.put("d/file", data)
    site.put("d/e/deep", b"123")

    def xrdfs(*words) -> str:
        return clients.run("xrdfs", site.cache.address, *words).text

    assert sorted(xrdfs("ls", site.path("d")).split()) == [site.path("d/e"), site.path("d/file")]
    assert set(xrdfs("ls", "-R", site.path("d")).split()) >= {site.path("d/file"), site.path("d/e/deep")}
    found = xrdfs("stat", site.path("d/file"))
    assert re.search(r"^Size: +1000003$", found, re.MULTILINE) and "2017-07-14" in found
    assert xrdfs("query", "checksum", site.path("d/file")).split() == ["adler32", adler32(data)]


@through([XROOTD, OURS_ROOT, OURS_HTTP], "towpath", "ls -l, stat, sum, cp -r through a site cache")
def test_towpath_names(site, clients, binary, here):
    files = {f"d{index % 3}/f{index}": content(10_000 * index + 7, index) for index in range(8)}
    for name, data in files.items():
        site.put(f"tree/{name}", data)
    for url in (site.url, site.http):
        assert sorted(clients.run(binary, "ls", url("tree")).lines) == ["d0", "d1", "d2"]
        (found,) = [json.loads(line) for line in clients.run(binary, "stat", "--json", url("tree/d1/f7")).lines]
        assert found["size"] == 70_007
        assert clients.run(binary, "sum", url("tree/d1/f7")).text.split()[0] == adler32(files["d1/f7"])
        shutil.rmtree(here / "copy", ignore_errors=True)
        clients.run(binary, "cp", "-r", url("tree"), here / "copy")
        assert tree(here / "copy") == files


@through(ORIGINS, "curl", "ranges and multi-range through a site cache: only these bytes are fetched, once")
def test_ranges(site, reader):
    data = content(SIZE, 5)
    site.put("file", data)
    spans = [(0, 99), (5_000, 5_999), (4_999_999, 5_000_000), (16_380, 16_390), (SIZE - 10, SIZE - 1)]
    wanted = sum(last - first + 1 for first, last in spans)

    def single() -> None:
        for first, last in spans:
            assert reader.run("curl", "-sS", "--fail", "-r", f"{first}-{last}", site.http("file"), "-o", reader.here / "out") \
                == data[first:last + 1]
        assert reader.run("curl", "-sS", "--fail", "-r", "-17", site.http("file"), "-o", reader.here / "out") == data[-17:]

    def multiple() -> None:
        text = ",".join(f"{first}-{last}" for first, last in spans)
        body = reader.run("curl", "-sS", "--fail", "-r", text, site.http("file"), "-o", reader.here / "out")
        parts = re.findall(rb"content-range: bytes (\d+)-(\d+)/(\d+)\r\n[^\r]*(?:\r\n)?\r\n", body, re.IGNORECASE)
        assert [(int(first), int(last)) for first, last, _ in parts] == spans
        for first, last in spans:
            assert data[first:last + 1] in body

    assert fetched_by(site, single) <= wanted * 1.1 + METADATA_BYTES
    assert fetched_by(site, multiple) <= METADATA_BYTES
    assert fetched_by(site, single) <= METADATA_BYTES


@through(ORIGINS, "curl", "64 ranges with gaps of 30 KB through a site cache: no gap is fetched")
def test_spread_ranges(site, reader):
    data = content(SIZE, 6)
    site.put("file", data)
    spans = [(start, start + 1999) for start in range(1000, 2_000_000, 32_000)]

    def read() -> None:
        text = ",".join(f"{first}-{last}" for first, last in spans)
        body = reader.run("curl", "-sS", "--fail", "-r", text, site.http("file"), "-o", reader.here / "out")
        for first, last in spans:
            assert data[first:last + 1] in body

    fetched = fetched_by(site, read)
    # Read-ahead continues behind the response.
    time.sleep(0.5)
    fetched += fetched_by(site, read)
    assert fetched <= len(spans) * (2000 * 1.1 + 200) + 2 * METADATA_BYTES


@through(ORIGINS, "xrdfs", "query checksum through a site cache: the second one reads nothing from the origin")
def test_checksum_again(site, clients):
    data = content(SIZE, 7)
    site.put("file", data)

    def query() -> None:
        assert clients.run("xrdfs", site.cache.address, "query", "checksum", site.path("file")).text.split() == ["adler32", adler32(data)]

    query()
    assert fetched_by(site, query) <= METADATA_BYTES


@through(ORIGINS)
@pytest.mark.parametrize("interpreter", [
    pytest.param("/usr/bin/python3", id="5.5", marks=pytest.mark.pair("python3-xrootd 5.5", "vector_read through a site cache, twice")),
    pytest.param(sys.executable, id="6.2", marks=pytest.mark.pair("xrootd wheel 6.2", "vector_read through a site cache, twice")),
])
def test_vector_read(site, clients, interpreter):
    data = content(3_000_001)
    site.put("file", data)
    digest = "import hashlib;print(hashlib.sha256(open(0,'rb').read()).hexdigest())"

    def sha(part: bytes) -> str:
        return clients.run(sys.executable, "-c", digest, stdin=part).text.strip()

    expected = {
        "some": ["ok", sha(data[500_000:500_100] + data[:1] + data[7:4103] + data[:10] + data[-1:])],
        "most": ["ok", sha(b"".join(data[i * 700:i * 700 + 16] for i in range(1024)))],
        "greatest": ["ok", sha(data[1:2_097_137])],
    }

    def vectors() -> None:
        base, path = f"{site.cache.address}/", site.area.path.lstrip("/")
        found = json.loads(clients.run(interpreter, HERE / "xrootd_bindings.py", "vector_read", base, path, XRD_LOGLEVEL="Error").text)
        assert {name: found[name] for name in expected} == expected
        assert found["past_end"] == "3005"

    vectors()
    assert fetched_by(site, vectors) <= METADATA_BYTES


@pytest.fixture(scope="session")
def query(clients, python) -> Callable[..., dict]:
    """Reads two branches of the large tree with uproot or ROOT."""
    def run(program: str, url) -> dict:
        script, *words = {
            "uproot": ("uproot_reader.py", "default", "query"),
            "uproot XRootDSource": ("uproot_reader.py", "XRootDSource", "query"),
            "uproot HTTPSource": ("uproot_reader.py", "HTTPSource", "query"),
            "ROOT": ("root_reader.py", "TFile", "10000000"),
            "ROOT without TTreeCache": ("root_reader.py", "TFile", "0"),
        }[program]
        return json.loads(clients.run(python, HERE / script, *words, url, deadline_s=180).text)

    return run


@pytest.fixture(scope="session")
def local_query(query, data) -> dict[str, dict]:
    """The results of the local file."""
    return {name: query(name, data / "large.root") for name in ("uproot", "ROOT")}


def large_tree(site: Site, data: Path, salt: str) -> str:
    """Copies the large tree to the origin, unless it is there. Returns the path of a new link to it, so that nothing of it
    is in the cache."""
    directory = site.area.server.root / "cache-data"
    if not directory.exists():
        directory.mkdir()
        shutil.copyfile(data / "large.root", directory / "large.root")
        os.utime(directory / "large.root", (OLD_S, OLD_S))
        if site.area.server.name != "towpath":
            hand_over(directory)
    os.link(directory / "large.root", site.area.local / f"{salt}.root")
    return site.path(f"{salt}.root")


PROGRAMS = [
    # program, client in the table, operation, face of the cache
    ("uproot", "uproot", "root:// by default", "root"),
    ("uproot XRootDSource", "uproot", "XRootDSource", "root"),
    ("uproot", "uproot", "http:// by default", "http"),
    ("uproot HTTPSource", "uproot", "HTTPSource (multi-range)", "http"),
    ("ROOT", "ROOT 6.40", "TFile::Open root://, TTreeCache 10 MB", "root"),
    ("ROOT without TTreeCache", "ROOT 6.40", "TFile::Open root://, no TTreeCache", "root"),
]


@through([XROOTD, NGINX, OURS_ROOT])
@pytest.mark.parametrize("program, face", [
    pytest.param(program, face, id=f"{program}-{face}".replace(" ", "-"),
                 marks=pytest.mark.pair(client, f"{operation}: two branches through a site cache; at most 1.1 × the bytes read without it"))
    for program, client, operation, face in PROGRAMS
])
def test_sparse(site, data, query, local_query, program, face):
    path = large_tree(site, data, "tree")
    kind, server = program.split()[0], site.area.server
    counted = "xrootd" if face == "root" else "http"

    def read(server_: Server) -> int:
        """Returns the number of bytes that the client got from a towpath server."""
        before = server_.sent_bytes(counted)
        assert query(program, server_.url(path) if face == "root" else server_.http(path)) == local_query[kind]
        return server_.sent_bytes(counted) - before

    before = site.cache.requests(counted)
    received = site.link.received
    through_cache = read(site.cache)
    fetched = site.link.received - received
    requests = site.cache.requests(counted) - before
    # Other servers do not count their bytes.
    direct = read(server) if server.name == "towpath" else through_cache
    again = fetched_by(site, lambda: read(site.cache))
    # Each range has a header in a response; each request by HTTP opens the file at the origin.
    protocol = BASKETS * (16 if site.scheme == "root" else 200) + METADATA_BYTES
    opens = (1 if face == "root" else requests) * 300 + METADATA_BYTES
    print(f"{program} {face}, {requests} requests: read directly {direct}, fetched {fetched} (of it protocol at most {protocol}), again {again}")
    assert fetched <= 1.1 * direct + protocol + opens
    assert again <= opens


def whole(server: Server, path: str, timeout_s: float = 60) -> bytes | None:
    """Reads a file by HTTP; `None` if the response is an error or incomplete."""
    connection = http.client.HTTPConnection(HOST, server.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        return body if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def replace_often(site: Site, reader: Reader, readers: int) -> None:
    """Replaces a file 15 times, with `readers` threads that read it always. Each read of curl and xrdcp afterwards must have
    the new content, and no read a mixture."""
    rounds, size = 16, 3_000_001
    versions = {index: content(size + (index // 2) % 2 * 1000, 100 + index) for index in range(rounds)}
    known = {data: index for index, data in versions.items()}
    latest, problems, stop = [0], [], threading.Event()
    site.put("file", versions[0])

    def read_always() -> None:
        while not stop.is_set():
            oldest = latest[0]
            got = whole(site.cache, site.path("file"))
            index = known.get(got, -1)
            if got is not None and index < oldest:
                problems.append(f"version {index} of {len(got)} bytes, after version {oldest}; -1 is a mixture")

    threads = [threading.Thread(target=read_always) for _ in range(readers)]
    for thread in threads:
        thread.start()
    try:
        for index in range(1, rounds):
            # Every third version has the time of its replacement, as files usually have.
            site.put("file", versions[index], time.time() if index % 3 == 2 else OLD_S + index)
            latest[0] = index
            for read in (Reader.curl, Reader.xrdcp):
                found = [known.get(read(reader, "file"), -1)]
                if not readers:
                    # XRootD serves the old file as long as a handle is open, and the cache closes its handle behind the response.
                    assert eventually(lambda: found.append(known.get(read(reader, "file"), -1)) or found[-1] == index)
                assert found[-1] == index and -1 not in found, f"{read.__name__}: versions {found}, after version {index}"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not problems


REPLACED = "a file that is replaced at the origin of a site cache: the new one at the next open, never a mixture"


@through([NGINX, OURS_ROOT, OURS_HTTP], "curl and xrdcp", REPLACED)
def test_replaced(site, reader):
    replace_often(site, reader, readers=2)


@through([XROOTD], "curl and xrdcp", f"{REPLACED}; origin XRootD", note="XRootD 5.5 serves the old file to all, while one handle is open")
def test_replaced_at_xrootd(site, reader):
    replace_often(site, reader, readers=0)


@through(ORIGINS, "Python http.client", "a file that grows at the origin of a site cache: no byte that was not written", note="after juicefs#5038")
def test_growing(site):
    data = content(4_000_000, 13)
    target = site.put("file", data[:1000])
    problems, lengths, stop = [], [], threading.Event()

    def read_always() -> None:
        while not stop.is_set():
            got = whole(site.cache, site.path("file"))
            if got is not None:
                lengths.append(len(got))
                if got != data[:len(got)]:
                    problems.append(len(got))

    threads = [threading.Thread(target=read_always) for _ in range(3)]
    for thread in threads:
        thread.start()
    with target.open("ab") as growing:
        for start in range(1000, len(data), 39_990):
            growing.write(data[start:start + 39_990])
            growing.flush()
            time.sleep(0.01)
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems and lengths
    os.utime(target, (OLD_S + 1, OLD_S + 1))
    assert eventually(lambda: whole(site.cache, site.path("file")) == data)


PART = 300_000


def offline(own_site, origin: tuple, data: bytes, clients: Clients, here: Path) -> Site:
    """Returns a cache with `recheck = "never"` and the file `file`, without its origin. Of the files `part` and `long` it has
    the first 100,000 bytes."""
    site = own_site(origin, "never")
    for name in ("file", "absent", "long"):
        site.put(name, data)
    site.put("part", data[:PART])
    clients.run("curl", "-sS", "--fail", site.http("file"), "-o", here / "out")
    assert (here / "out").read_bytes() == data
    for name in ("part", "long"):
        assert clients.run("curl", "-sS", "--fail", "-r", "0-99999", site.http(name)).out == data[:100_000]
    site.link.cut()
    return site


each_origin = pytest.mark.parametrize("origin", [
    pytest.param(origin, id=origin[2].replace("://", "").replace(" ", "-")) for origin in ORIGINS
])


@each_origin
@pytest.mark.pair("curl and xrdcp", "a file in a site cache with `recheck = \"never\"`, without the origin")
def test_offline(own_site, clients, here, binary, origin):
    data = content(SIZE, 8)
    site = offline(own_site, origin, data, clients, here)
    reader = Reader(site, clients, here, binary)
    for read in (Reader.curl, Reader.xrdcp, Reader.davix, Reader.towpath, Reader.towpath_http):
        assert read(reader, "file") == data, read.__name__
    assert clients.run("curl", "-sS", "--fail", "-r", "5-99994", site.http("part")).out == data[5:99_995]


@pytest.mark.pair("xrdfs", "stat of a file in a site cache with `recheck = \"never\"`, without the origin")
def test_offline_stat(own_site, clients, here):
    site = offline(own_site, OURS_ROOT, content(SIZE, 8), clients, here)
    found = clients.run("xrdfs", site.cache.address, "stat", site.path("file")).text
    assert re.search(rf"^Size: +{SIZE}$", found, re.MULTILINE)


@pytest.mark.pair("curl", "the metrics of a site cache without its origin")
def test_offline_metrics(own_site, clients, here):
    site = offline(own_site, OURS_ROOT, content(SIZE, 8), clients, here)
    assert b"towpath_sent_bytes_total" in clients.run("curl", "-sS", "--fail", site.cache.http("/metrics")).out


@each_origin
@pytest.mark.pair("curl and xrdcp", "a file that is not in a site cache, without the origin: an error that names the origin")
def test_offline_absent(own_site, clients, here, binary, origin):
    site = offline(own_site, origin, content(SIZE, 8), clients, here)
    named = f"{HOST}:{site.link.port}"
    failed = clients.run("xrdcp", "-s", site.url("absent"), here / "copy", status=None)
    assert named in failed.err.decode() and not (here / "copy").exists()
    done = clients.run("curl", "-sS", "-w", "%{http_code}", site.http("absent"), "-o", here / "answer")
    answer = (here / "answer").read_text()
    print(f"xrdcp: {failed.err.decode()!r}; curl: {done.text} {answer!r}")
    assert done.text in ("502", "503", "504") and named in answer
    failed = clients.run(binary, "cp", site.url("absent"), here / "copy", status=None, deadline_s=180)
    assert named in failed.err.decode()


@pytest.mark.pair("xrdcp", "a file that is partly in a site cache, without the origin: an error that names the origin, within 30 s")
@pytest.mark.parametrize("name", ["part", "long"])
def test_offline_part(own_site, clients, here, name):
    site = offline(own_site, OURS_ROOT, content(SIZE, 8), clients, here)
    # xrdcp connects again, and repeats its requests, if no response arrives within its XRD_STREAMTIMEOUT.
    failed = clients.run("xrdcp", "-s", site.url(name), here / "copy", status=None, deadline_s=30)
    assert f"{HOST}:{site.link.port}" in failed.err.decode()


@pytest.mark.pair("curl", "a range that is not in a site cache, without the origin: an error that names the origin, within 30 s")
def test_offline_range(own_site, clients, here):
    site = offline(own_site, OURS_ROOT, content(SIZE, 8), clients, here)
    done = clients.run("curl", "-sS", "-r", "200000-200099", "-w", "%{http_code}", site.http("part"), "-o", here / "answer", deadline_s=30)
    assert done.text in ("502", "503", "504") and f"{HOST}:{site.link.port}" in (here / "answer").read_text()


@through([XROOTD, OURS_ROOT, OURS_HTTP], "xrdcp and curl", "errors through a site cache: missing, forbidden, a directory; as at the origin")
def test_errors(site, clients, here):
    site.put("file", b"123")
    site.put("closed/file", b"123")
    if site.area.server.name != "towpath" and os.geteuid() == 0:
        shutil.chown(site.area.local / "closed", "root", "root")
        (site.area.local / "closed").chmod(0o700)
    # A name below a file is an unknown error (3005) of XRootD.
    names = ["absent", "absent/file", ""] + (["closed/file"] if site.area.server.name != "towpath" else ["file/below"])
    origin = site.area.server

    def code(url: str) -> str:
        failed = clients.run("xrdcp", "-s", "-f", url, here / "copy", status=None)
        assert not (here / "copy").exists()
        return re.search(rb"\[(\d{4})\]", failed.err)[1].decode() if b"[3" in failed.err else failed.err.decode()

    def status(url: str) -> str:
        return clients.run("curl", "-sS", "-w", "%{http_code}", url, "-o", "/dev/null").text

    for name in names:
        assert code(site.url(name)) == code(origin.url(site.path(name))), name
        if origin.name == "towpath":
            assert status(site.http(name)) == status(origin.http(site.path(name))), name
    # XrdHttp 5.5 has wrong codes for some errors.
    assert status(site.http("absent")) == "404"
    if origin.name != "towpath":
        assert status(site.http("closed/file")) == "403"


@through([NGINX], "curl and xrdcp", "errors through a site cache of nginx: missing, forbidden")
def test_nginx_errors(site, clients, here):
    site.put("closed/file", b"123")
    if os.geteuid() == 0:
        shutil.chown(site.area.local / "closed", "root", "root")
    (site.area.local / "closed").chmod(0o700 if os.geteuid() == 0 else 0)
    for name, status, code in (("absent", "404", b"[3011]"), ("closed/file", "403", b"[3010]")):
        assert clients.run("curl", "-sS", "-w", "%{http_code}", site.http(name), "-o", "/dev/null").text == status
        assert code in clients.run("xrdcp", "-s", site.url(name), here / "copy", status=None).err
    (site.area.local / "closed").chmod(0o755)


@pytest.fixture
def stalling(own_site, binary, here):
    """A cache with `recheck = "never"`, and its own origin, which can be stopped (SIGSTOP)."""
    origin = start_towpath(binary, here / "origin")
    cache = start_cache(binary, origin_url(origin.port, "root"), here / "stalling", config=rules("never"))
    yield origin, cache
    origin.process.send_signal(signal.SIGCONT)
    cache.stop()
    origin.stop()


def stalled_files(origin: Server, cache: Server) -> tuple[bytes, bytes]:
    """Writes the files `large` and `small` to the origin, and reads `small` through the cache. Returns their contents."""
    large, small = content(LARGE, 9), content(SIZE, 10)
    for name, data in (("large", large), ("small", small)):
        (origin.root / name).write_bytes(data)
        os.utime(origin.root / name, (OLD_S, OLD_S))
    assert whole(cache, "/small") == small
    return large, small


@pytest.mark.pair("xrdcp and curl", "the origin of a site cache hangs for 3 s during a download: it continues, and other files are served meanwhile")
def test_short_stall(stalling, clients, here):
    origin, cache = stalling
    large, small = stalled_files(origin, cache)
    with ThreadPoolExecutor(2) as pool:
        reads = [pool.submit(clients.run, "xrdcp", "-s", cache.url("/large"), here / "large"),
                 pool.submit(clients.run, "curl", "-sS", "--fail", cache.http("/large"), "-o", here / "large2")]
        assert eventually(lambda: cache.sent_bytes("http") > SIZE + 1_000_000)
        origin.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        while time.monotonic() - began < 3:
            assert whole(cache, "/small", 2) == small
            clients.run("xrdcp", "-s", "-f", cache.url("/small"), here / "small")
            assert (here / "small").read_bytes() == small
        origin.process.send_signal(signal.SIGCONT)
        for read in reads:
            read.result()
    assert (here / "large").read_bytes() == (here / "large2").read_bytes() == large


@pytest.mark.pair("Python http.client", "300 readers wait for the hanging origin of a site cache: other files are served, then all are")
def test_many_stalled(stalling):
    origin, cache = stalling
    _, small = stalled_files(origin, cache)
    files = {f"f{index}": content(100_000 + index, index) for index in range(300)}
    for name, data in files.items():
        (origin.root / name).write_bytes(data)
        os.utime(origin.root / name, (OLD_S, OLD_S))
    origin.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(len(files)) as pool:
        reads = {name: pool.submit(whole, cache, f"/{name}") for name in files}
        assert eventually(lambda: len(os.listdir(f"/proc/{cache.process.pid}/fd")) > len(files))
        for _ in range(10):
            assert whole(cache, "/small", 2) == small
        origin.process.send_signal(signal.SIGCONT)
        assert [name for name, read in reads.items() if read.result() != files[name]] == []


@pytest.mark.pair("curl", "the origin of a site cache hangs: an error that names it, within a minute; other files are served meanwhile")
def test_long_stall(stalling, clients, here):
    origin, cache = stalling
    _, small = stalled_files(origin, cache)
    origin.process.send_signal(signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        began = time.monotonic()
        read = pool.submit(clients.run, "curl", "-sS", "-w", "%{http_code}", cache.http("/large"), "-o", here / "large", deadline_s=90)
        while not read.done():
            assert whole(cache, "/small", 2) == small
            time.sleep(0.2)
        answer = (here / "large").read_bytes()
        print(f"{read.result().text} after {time.monotonic() - began:.1f} s: {answer[:300]!r}")
        assert read.result().text in ("502", "503", "504") and f"{HOST}:{origin.port}" in answer.decode()
        assert time.monotonic() - began < 60
    origin.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: whole(cache, "/large") == content(LARGE, 9), 30)


@pytest.mark.pair("curl and xrdcp", "1,000 readers of a site cache with 256 file descriptors: complete files or errors", note="after xrootd#975")
def test_few_descriptors(own_site, clients, binary, here):
    site = own_site(OURS_ROOT, prefix=("prlimit", "--nofile=256:256"))
    files = {f"f{index}": content(50_000 + index, index) for index in range(150)}
    for name, data in files.items():
        site.put(name, data)
    chance = random.Random(11)
    start = threading.Barrier(DESCRIPTOR_READERS)

    def read(name: str) -> str:
        start.wait()
        got = whole(site.cache, site.path(name), 30)
        return "error" if got is None else "right" if got == files[name] else f"{len(got)} wrong bytes of {name}"

    def copy(index: int) -> str:
        name = f"f{index}"
        done = _try_xrdcp(clients, site, name, here)
        return "error" if done is None else "right" if done == files[name] else f"{len(done)} wrong bytes of {name} by xrdcp"

    with ThreadPoolExecutor(DESCRIPTOR_READERS) as pool, ThreadPoolExecutor(4) as copying:
        copies = [copying.submit(copy, index) for index in range(40)]
        outcomes = list(pool.map(read, chance.choices(list(files), k=DESCRIPTOR_READERS)))
        outcomes += [each.result() for each in copies]
    print({outcome: outcomes.count(outcome) for outcome in set(outcomes)})
    assert set(outcomes) <= {"right", "error"} and "right" in outcomes
    reader = Reader(site, clients, here, binary)
    for name, data in files.items():
        assert whole(site.cache, site.path(name)) == data, "the cache works again"
    assert reader.xrdcp("f0") == files["f0"]


def _try_xrdcp(clients: Clients, site: Site, name: str, here: Path) -> bytes | None:
    """Reads with xrdcp; `None` if it fails."""
    target = here / f"copy-{name}"
    environment = clients.environment
    done = subprocess.run(["xrdcp", "-s", site.url(name), target], env=environment, capture_output=True, timeout=90, check=False)
    return target.read_bytes() if done.returncode == 0 else None


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a flipped byte": lambda data: data[:70_000] + bytes([data[70_000] ^ 1]) + data[70_001:],
    "truncated": lambda data: data[:100_000],
    "empty": lambda data: b"",
    "garbage": lambda data: random.Random(5).randbytes(len(data)),
    "zeros": lambda data: bytes(len(data)),
    "longer": lambda data: data + b"more",
}


@dataclass
class Damaged:
    """A stopped cache of the file `file`, whose files a test damages."""

    data: bytes
    binary: Path
    directory: Path
    site: Site
    reader: Reader

    def files(self, kind: str) -> list[Path]:
        """Returns the files of a kind."""
        root = self.site.cache.root
        return {
            "data": list((root / "entries").rglob("*.data")),
            "index": list((root / "entries").rglob("*.index")),
            "name": [path for path in (root / "names").rglob("*") if path.is_file()],
            "identity": [root / "towpath-cache"],
        }[kind]

    def start(self) -> None:
        """Starts the cache on its directory."""
        self.site.cache = start_cache(self.binary, origin_url(self.site.link.port, "root"), self.directory, config=rules("never"))

    def read(self) -> str:
        """Starts the cache again, reads the file, and returns the new part of the log."""
        before = len(self.site.cache.log.read_text())
        self.start()
        for read in (Reader.curl, Reader.xrdcp):
            assert read(self.reader, "file") == self.data, read.__name__
        return self.site.cache.log.read_text()[before:]


@pytest.fixture
def damaged(area, binary, clients, here) -> Damaged:
    """A stopped cache of one file."""
    site = Site(None, Link(area.server.port), area, "root")
    found = Damaged(content(1_000_003, 12), binary, here / "damaged", site, Reader(site, clients, here, binary))
    site.put("file", found.data)
    found.start()
    assert found.reader.curl("file") == found.data
    site.cache.stop()
    yield found
    site.cache.stop()
    site.link.cut()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.pair("curl and xrdcp", "damaged data of a stopped site cache: right bytes, a warning")
def test_damaged_data(damaged, damage):
    (file,) = damaged.files("data")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    received = damaged.site.link.received
    warnings = damaged.read()
    assert ("damaged bytes on the disk of the cache" in warnings) == (damage != "longer"), warnings
    if damage == "a flipped byte":
        assert "bytes=16384" in warnings and damaged.site.link.received - received < 16_384 * 2 + METADATA_BYTES
    if damage in ("empty", "garbage", "zeros"):
        assert sum(map(int, re.findall(r"bytes=(\d+)", warnings))) == len(damaged.data), warnings
    assert fetched_by(damaged.site, lambda: damaged.reader.curl("file")) == 0


@pytest.mark.parametrize("kind", ["index", "name", "identity"])
@pytest.mark.parametrize("damage", ["a flipped byte", "truncated", "empty", "garbage"])
@pytest.mark.pair("curl and xrdcp", "damaged indexes, names and identity of a stopped site cache: right bytes")
def test_damaged_metadata(damaged, kind, damage):
    (file,) = damaged.files(kind)
    old = file.read_bytes()
    middle = len(old) // 2
    file.write_bytes({
        "a flipped byte": old[:middle] + bytes([old[middle] ^ 1]) + old[middle + 1:],
        "truncated": old[:middle],
        "empty": b"",
        "garbage": random.Random(6).randbytes(len(old)),
    }[damage])
    damaged.read()
    assert fetched_by(damaged.site, lambda: damaged.reader.curl("file")) == 0


NO_WATERMARK = 'high = 1.0\nlow = 0.9\n'
"""Settings of `[space]` so that a full disk of this machine evicts nothing."""


def access_log(file: Path, log_format: str = "json") -> str:
    """Returns settings with an access log."""
    return f'[access_log]\npath = "{file}"\nformat = "{log_format}"\n'


def accesses(log: Path, count: int) -> list[dict]:
    """Waits for lines of accesses through the cache in an access log, and returns them."""
    def found() -> list[dict]:
        lines = [line for line in log.read_text().splitlines() if line.startswith("{")]
        return [line for line in map(json.loads, lines) if line.get("kind") == "cache"]
    assert eventually(lambda: len(found()) >= count), log.read_text()
    assert len(found()) == count
    return found()


def cache_statistics(clients: Clients, binary: Path, site: Site) -> dict:
    """Returns the output of `towpath cache stats --json`."""
    return json.loads(clients.run(binary, "cache", "stats", "--dir", site.cache.root, "--json").out)


@pytest.mark.pair("xrdcp and curl", "the access log of a site cache: hits and misses of each file, counted once")
def test_access_records(own_site, clients, here, binary):
    log = here / "access.log"
    site = own_site(OURS_ROOT, settings="[space]\n" + NO_WATERMARK + access_log(log))
    data = content(SIZE, 11)
    site.put("file", data)
    for _ in range(2):
        assert clients.run("xrdcp", "-s", site.url("file"), "-").out == data
    for last in (9_999, SIZE - 1):
        assert clients.run("curl", "-sS", "--fail", "-r", f"0-{last}", site.http("file")).out == data[:last + 1]
    records = accesses(log, 4)
    bytes_read = [(record["hit_bytes"], record["miss_bytes"], record["bypass_bytes"]) for record in records]
    assert bytes_read == [(0, SIZE, 0), (SIZE, 0, 0), (10_000, 0, 0), (SIZE, 0, 0)]
    assert all(record["path"] == site.path("file") and record["size"] == SIZE for record in records)
    assert len({record["entry"] for record in records}) == 1
    first, second = records[:2]
    assert first["origin_us"] > 0 and second["origin_us"] == 0
    assert first["segments"] == [[0, 1, SIZE, first["segments"][0][3]]] == second["segments"]
    assert [record["opened_ms"] <= record["unix_ms"] for record in records] == [True] * 4
    [origin] = cache_statistics(clients, binary, site)["origins"]
    assert (origin["served_bytes"], origin["missed_bytes"]) == (3 * SIZE + 10_000, SIZE)


@pytest.mark.parametrize("log_format", ["json", "text"])
@pytest.mark.pair("towpath cache simulate", "the hit rates of other sizes of a site cache, from its access log")
def test_simulate(own_site, clients, here, binary, log_format):
    log, files, length = here / "access.log", 16, 1_000_000
    limit = '[space]\nmax = "8MB"\n' + NO_WATERMARK
    site = own_site(OURS_HTTP, settings=limit + access_log(log, log_format))
    for number in range(files):
        site.put(f"f{number}", content(length, number))
    random_numbers = random.Random(5)
    read = [min(random_numbers.randrange(files) for _ in range(2)) for _ in range(90)]
    for number in read:
        # The cache checks its space once a second.
        time.sleep(0.05)
        assert len(clients.run("curl", "-sS", "--fail", site.http(f"f{number}")).out) == length
    records = accesses(log, len(read))
    simulate = [binary, "cache", "simulate", "--sizes", "2MB,8MB", "--json"]
    found = json.loads(clients.run(*simulate, log).out)
    assert found["simulated"] and (found["accesses"], found["invalid_lines"]) == (len(read), 0)
    assert found["requested_bytes"] == length * len(read)
    assert found["recorded_hit_bytes"] == sum(record["hit_bytes"] for record in records)
    everything = found["everything"]
    assert (everything["bytes"], everything["origin_bytes"]) == (length * len(set(read)),) * 2
    small, same = found["sizes"]
    real = found["recorded_hit_bytes"] / found["requested_bytes"]
    print(f"real {real:.3f}, simulated {same['byte_hit_rate']:.3f}, of 2 MB {small['byte_hit_rate']:.3f}")
    assert small["byte_hit_rate"] < same["byte_hit_rate"] <= everything["byte_hit_rate"]
    # Victims are random, and open files stay.
    assert abs(real - same["byte_hit_rate"]) < 0.12
    text = clients.run(binary, "cache", "simulate", "-", stdin=log.read_bytes()).text
    assert text.startswith("simulated: 90 accesses") and "holds everything" in text
    log.write_text(log.read_text() + "not a line\n")
    failed = clients.run(*simulate, log, status=5)
    assert b"skipped 1 line that no access log of a cache has" in failed.err and json.loads(failed.out)["invalid_lines"] == 1


@pytest.mark.pair("xrdcp", "a quota of a path in a site cache, and its metrics")
def test_quota(own_site, request, clients, binary):
    area = request.getfixturevalue(OURS_ROOT[0])
    quota = f'[[quota]]\npath = "{area.path}/small"\nmax = "3MB"\n'
    site = own_site(OURS_ROOT, settings=quota + "[space]\n" + NO_WATERMARK)
    for directory in ("small", "other"):
        for number in range(6):
            site.put(f"{directory}/{number}", content(1_000_000, number))
            assert len(clients.run("xrdcp", "-s", site.url(f"{directory}/{number}"), "-").out) == 1_000_000

    def state() -> dict:
        return cache_statistics(clients, binary, site)

    assert eventually(lambda: state()["quotas"][0]["bytes"] <= 3_000_000)
    [used] = state()["quotas"]
    assert used["path"] == site.path("small") and used["max_bytes"] == 3_000_000 and used["entries"] in (2, 3)
    assert state()["entries"] == 6 + used["entries"]
    metrics = clients.run("curl", "-sS", "--fail", site.cache.http("/metrics")).text
    assert re.search(rf'^towpath_cache_quota_space_bytes{{.*path="{site.path("small")}".*}} {used["bytes"]}$', metrics, re.MULTILINE)


NAMES = ["Data.txt", "data.txt", "a%2Fb", "a/b", "%41", "A", "n\u00e4me", "na\u0308me", "with blank", "plus+", "semi;v=1", "semi", "hash#1", "hash"]


@through([XROOTD, NGINX, OURS_ROOT, OURS_HTTP], "curl and xrdcp",
         "names through a site cache: case, %2F, Unicode forms, `;`, `#`, `//` each have their own content")
def test_names(site, clients, here, binary):
    files = {name: f"content of {index}".encode() * 5_000 for index, name in enumerate(NAMES)}
    for name, data in files.items():
        site.put(f"d/{name}", data)
    for _ in range(2):
        for name, data in files.items():
            quoted = urllib.parse.quote(f"d/{name}")
            assert clients.run("curl", "-sS", "--fail", site.http(quoted)).out == data, name
            assert clients.run("curl", "-sS", "--fail", site.http(quoted.replace("/", "//"))).out == data, name
            assert clients.run("xrdcp", "-s", site.url(f"d/{name}"), "-").out == data, name
            assert clients.run("xrdcp", "-s", site.url(f"/d//{name}"), "-").out == data, name
    # One level of decoding: this is the file `b` in the directory `a`, or nothing.
    done = clients.run("curl", "-sS", "-w", "%{http_code}", site.http("d/a%2Fb"), "-o", here / "out").text
    assert done != "200" or (here / "out").read_bytes() == files["a/b"]


KILLS = int(os.environ.get("TOWPATH_KILLS", "6"))


@pytest.mark.parametrize("scheme, config", [
    pytest.param("root", "", id="root"),
    pytest.param("http", "", id="http"),
    pytest.param("root", '[space]\nmax = "8MiB"\n', id="evicting"),
])
@pytest.mark.pair("xrdcp, curl, Python http.client", "a site cache that is killed under load: no wrong byte, then or afterwards")
def test_kill_loop(binary, base, scheme, config):
    directory = base / f"killed-{scheme}-{len(config)}"
    directory.mkdir()
    found = KillLoop(binary, directory, random.SystemRandom().getrandbits(32), scheme, config).run(KILLS)
    print({name: value for name, value in found.items() if name != "rounds"})
    shutil.rmtree(directory)
    assert found["wrong"] == []
    assert found["reads_compared"] >= found["files"]
    if not config:
        assert found["fetched_again_share"] < 0.5
