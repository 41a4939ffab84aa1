"""Fixtures of the interoperability tests: servers, certificates, tokens, clients and the exported files.

Each server starts once per run and gives each test an empty directory (`Area`), which isolates tests from each other.
TOWPATH_BINARY names the program under test (interop/run sets it). To work on the tests themselves, set
TOWPATH_INTEROP_SERVER=xrootd (or nginx): that server then replaces towpath.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from clients import Clients
from credentials import Authority, Issuer
from rucio_site import PYTHON
from servers import Server, crashing, hand_over, start_gofakes3, start_nginx, start_rclone, start_seaweed, start_towpath, start_xrootd
from table import Table

AUDIENCE = "https://towpath.test"
PEER_AUDIENCE = "https://peer.towpath.test"
STAND_IN = os.environ.get("TOWPATH_INTEROP_SERVER")


def pytest_configure(config):
    """Registers the table of outcomes. Restores the handler of SIGINT, so that programs can be interrupted also where
    signals are ignored, such as under `nohup`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "pair(client, operation, note=None): what the test proves, for docs/reference/interop.md")
    config.table = Table()
    config.pluginmanager.register(config.table)


def pytest_runtest_protocol(item, nextitem):
    """Repeats a test once if a foreign server crashed during it and was restarted: XRootD 5.5.3 crashes occasionally.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    if any(report.failed for report in reports) and any([server.revive() for server in crashing]):
        item._initrequest()
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_sessionfinish(session, exitstatus):
    """Writes the table after a complete run against towpath."""
    option = session.config.option
    partial = option.keyword or option.maxfail or option.collectonly or session.config.args != [str(session.config.rootpath)]
    if not partial and not STAND_IN and exitstatus in (0, 1):
        session.config.table.write()


@dataclass
class Area:
    """A directory of one test on a server: `path` is its path on the server, `local` on the disk."""

    server: Server
    path: str
    local: Path

    def url(self, name: str = "") -> str:
        """Returns the XRootD URL of a file in the area."""
        return self.server.url(f"{self.path}/{name}" if name else self.path)

    def http(self, name: str = "") -> str:
        """Returns the HTTP URL of a file in the area."""
        return self.server.http(f"{self.path}/{name}")

    def left_over(self) -> list[Path]:
        """Returns the staging files of a towpath server."""
        staging = self.server.root / ".towpath"
        return list(staging.iterdir()) if staging.is_dir() else []

    def put(self, name: str, data: bytes) -> Path:
        """Writes a file into the area, directly on the disk."""
        target = self.local / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if self.server.name != "towpath":
            hand_over(self.local)
        return target


@pytest.fixture(scope="session")
def base():
    """A directory for all files of this run."""
    directory = Path(tempfile.mkdtemp(prefix="towpath-interop-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def package():
    """Requires the package `towpath` in Rucio's environment; interop/run installs it."""
    if not PYTHON.exists() or subprocess.run([PYTHON, "-P", "-c", "import towpath._towpath"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no towpath in Rucio's environment: `make wheel`, then interop/run")


@pytest.fixture(scope="session")
def binary() -> Path:
    """The towpath program under test."""
    name = os.environ.get("TOWPATH_BINARY")
    if not name:
        pytest.skip("TOWPATH_BINARY is not set")
    return Path(name).resolve()


@pytest.fixture(scope="session")
def authority(base) -> Authority:
    """The tests' certificate authority."""
    made = Authority(base / "tls")
    hand_over(base / "tls")
    return made


@pytest.fixture(scope="session")
def issuer(base) -> Issuer:
    """The tests' token issuer."""
    return Issuer(base / "tokens")


@pytest.fixture(scope="session")
def clients(base, authority) -> Clients:
    """Runs client programs."""
    home = base / "home"
    home.mkdir()
    return Clients(home, authority.file, authority.directory)


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of the environment with uproot, ROOT and XRootD's newest client."""
    return sys.executable


@pytest.fixture(scope="session")
def data() -> Path:
    """The directory of real and generated ROOT files (see interop/data)."""
    name = os.environ.get("TOWPATH_INTEROP_DATA")
    if not name:
        pytest.skip("TOWPATH_INTEROP_DATA is not set")
    return Path(name)


@pytest.fixture(scope="session")
def plain_server(base, authority, request):
    """towpath without TLS. Anonymous clients may write."""
    if STAND_IN:
        server = {"xrootd": start_xrootd, "nginx": start_nginx}[STAND_IN](base / "plain")
    else:
        server = start_towpath(request.getfixturevalue("binary"), base / "plain", config=third_party(authority))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def peer_server(base, authority, binary):
    """A second towpath with the same settings, for copies between the two."""
    server = start_towpath(binary, base / "peer", config=third_party(authority))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def guarded_server(base, binary):
    """towpath with the default limit of third-party copies to public addresses."""
    server = start_towpath(binary, base / "guarded", config="[third_party]\nanonymous = true\n")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tls_server(base, authority, request):
    """towpath with a certificate. Anonymous clients may write."""
    if STAND_IN == "xrootd":
        server = start_xrootd(base / "tls-server", config=xrootd_tls(authority), http=False, tls=True)
    elif STAND_IN == "nginx":
        server = start_nginx(base / "tls-server", certificate=(authority.certificate, authority.key))
    else:
        server = start_towpath(request.getfixturevalue("binary"), base / "tls-server", config=towpath_tls(authority), tls=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def tls_peer_server(base, authority, binary):
    """A second towpath with a certificate."""
    server = start_towpath(binary, base / "tls-peer", config=towpath_tls(authority), tls=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def token_server(base, authority, issuer, binary):
    """towpath with TLS that requires a token for every request."""
    config = towpath_tokens(authority, issuer, AUDIENCE)
    server = start_towpath(binary, base / "token-server", config=config, writable=False, tls=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def token_peer_server(base, authority, issuer, binary):
    """A second towpath with tokens of another audience."""
    config = towpath_tokens(authority, issuer, PEER_AUDIENCE)
    server = start_towpath(binary, base / "token-peer", config=config, writable=False, tls=True)
    yield server
    server.stop()


def towpath_tokens(authority: Authority, issuer: Issuer, audience: str) -> str:
    """Returns settings of towpath that require a token of this audience for every request."""
    return f"""
[tls]
certificate = "{authority.certificate}"
key = "{authority.key}"
required = true
[access]
anonymous = []
audiences = ["{audience}"]
[[access.issuers]]
issuer = "{issuer.url}"
base_path = "/"
keys = "{issuer.keys}"
{third_party(authority, anonymous=False)}"""


def towpath_tls(authority: Authority) -> str:
    """Returns settings of towpath that enable TLS."""
    return f'[tls]\ncertificate = "{authority.certificate}"\nkey = "{authority.key}"\n{third_party(authority)}'


def third_party(authority: Authority, anonymous: bool = True) -> str:
    """Returns settings of towpath that allow third-party copies to this machine."""
    who = "anonymous = true\n" if anonymous else ""
    return f'[third_party]\n{who}allow = ["127.0.0.1"]\nca = "{authority.file}"\n'


def xrootd_tls(authority: Authority) -> str:
    """Returns the lines of xrootd's configuration that enable TLS."""
    return f"xrd.tls {authority.certificate} {authority.key}\nxrd.tlsca certdir {authority.directory}\nxrootd.tls capable all\n"


@pytest.fixture(scope="session")
def xrootd_server(base):
    """The real xrootd without TLS, with its HTTP plug-in."""
    server = start_xrootd(base / "xrootd")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def xrootd6_server(base, clients):
    """XRootD 6 without TLS and HTTP."""
    program, _ = clients.xrootd6("xrootd")
    server = start_xrootd(base / "xrootd6", http=False, tpc=False, prefix=program.parent.parent)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def xrootd_tls_server(base, authority):
    """The real xrootd with TLS."""
    server = start_xrootd(base / "xrootd-tls", config=xrootd_tls(authority), http=False, tls=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def xrootd_tpc_server(base, authority):
    """The real xrootd with HTTP third-party copies, which it supports with TLS only."""
    http = (f"http.cert {authority.certificate}\nhttp.key {authority.key}\nhttp.cadir {authority.directory}\n"
            "http.exthandler xrdtpc libXrdHttpTPC.so\n")
    server = start_xrootd(base / "xrootd-tpc", config=xrootd_tls(authority) + http, tls=True)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def xrootd_unix_server(base):
    """The real xrootd with authentication by local user (`unix`). Tokens are not possible: Debian's package has no
    verifier."""
    config = "xrootd.seclib libXrdSec.so\nsec.protocol unix\nsec.protbind * only unix\n"
    server = start_xrootd(base / "xrootd-unix", config=config, http=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nginx_server(base):
    """nginx with its WebDAV module."""
    server = start_nginx(base / "nginx")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def nginx_tls_server(base, authority):
    """nginx with its WebDAV module and TLS."""
    server = start_nginx(base / "nginx-tls", certificate=(authority.certificate, authority.key))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rclone_server(base):
    """rclone's WebDAV server."""
    server = start_rclone(base / "rclone")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def seaweed_server(base):
    """SeaweedFS, an S3 object store."""
    server = start_seaweed(base / "seaweedfs")
    yield server
    server.stop()


@pytest.fixture
def gofakes3_server(tmp_path):
    """gofakes3, an S3 object store, with an empty bucket."""
    server = start_gofakes3(tmp_path / "gofakes3")
    yield server
    server.stop()


@pytest.fixture(scope="session")
def exported(plain_server, data) -> str:
    """The ROOT files' directory on the plain server."""
    shutil.copytree(data, plain_server.root / "data")
    if plain_server.name != "towpath":
        hand_over(plain_server.root / "data")
    return "/data"


def _area(server: Server, request) -> Area:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    local = server.root / "t" / name
    local.mkdir(parents=True)
    if server.name != "towpath":
        hand_over(server.root / "t")
    return Area(server, f"/t/{name}", local)


def _area_fixture(server_fixture: str):
    def fixture(request):
        area = _area(request.getfixturevalue(server_fixture), request)
        yield area
        shutil.rmtree(area.local, ignore_errors=True)

    return fixture


area = pytest.fixture(_area_fixture("plain_server"), name="area")
peer_area = pytest.fixture(_area_fixture("peer_server"), name="peer_area")
tls_peer_area = pytest.fixture(_area_fixture("tls_peer_server"), name="tls_peer_area")
xrootd_tpc_area = pytest.fixture(_area_fixture("xrootd_tpc_server"), name="xrootd_tpc_area")
tls_area = pytest.fixture(_area_fixture("tls_server"), name="tls_area")
token_area = pytest.fixture(_area_fixture("token_server"), name="token_area")
token_peer_area = pytest.fixture(_area_fixture("token_peer_server"), name="token_peer_area")
xrootd_area = pytest.fixture(_area_fixture("xrootd_server"), name="xrootd_area")
xrootd6_area = pytest.fixture(_area_fixture("xrootd6_server"), name="xrootd6_area")
xrootd_tls_area = pytest.fixture(_area_fixture("xrootd_tls_server"), name="xrootd_tls_area")
xrootd_unix_area = pytest.fixture(_area_fixture("xrootd_unix_server"), name="xrootd_unix_area")
nginx_area = pytest.fixture(_area_fixture("nginx_server"), name="nginx_area")
nginx_tls_area = pytest.fixture(_area_fixture("nginx_tls_server"), name="nginx_tls_area")
rclone_area = pytest.fixture(_area_fixture("rclone_server"), name="rclone_area")


@pytest.fixture
def here(clients, request) -> Path:
    """An empty local directory of one test."""
    directory = Path(tempfile.mkdtemp(dir=clients.home))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
