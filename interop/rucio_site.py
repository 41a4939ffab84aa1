"""A complete Rucio installation on loopback: its own server with database and memcached, towpath servers as storages,
and its own clients.

`Storages` are four towpath addresses in one process, distinguishable by ALTO; all have the same file. A `Site` is one
release of Rucio with these storages registered. interop/peers installs the releases; TOWPATH_RUCIO names their
directory (interop/run sets it).
"""

import configparser
import contextlib
import json
import os
import select
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import requests
from clients import Clients, Result, adler32, content
from credentials import Authority
from servers import HOST, START_DEADLINE_S, Server, free_port, wait_for_port

HERE = Path(__file__).resolve().parent
ENVIRONMENT = Path(os.environ.get("TOWPATH_RUCIO", "/nonexistent"))
PYTHON = ENVIRONMENT / "bin/python"
RELEASES = sorted(path.name for path in ENVIRONMENT.glob("releases/*"))
PLAIN = "rucio.web.rest.main:application"
SCOPE = "test"
FILE = "higgs.root"
DID = f"{SCOPE}:{FILE}"
ADDRESSES = {"FAR": "127.0.0.2", "NEAR": "127.0.0.3", "MOON": "127.0.0.4", "MIDDLE": "127.0.0.5"}
"""The storages, in the order in which they are registered."""
DISTANCES = Path("/tmp/rucio_custom_distance_table.csv")
"""Path at which every release stores the downloaded table."""
ACCOUNT, USER, PASSWORD = "root", "tester", "secret"
STOP_DEADLINE_S = 15

SERVER_CONFIG = """
[common]
loglevel = WARNING
logformat = %%(asctime)s %%(levelname)s %%(message)s
[database]
default = sqlite:///{directory}/rucio.db
[bootstrap]
userpass_identity = {user}
userpass_pwd = {password}
[cache]
url = {memcached}
[policy]
permission = generic
schema = generic
"""
CLIENT_CONFIG = """
[client]
rucio_host = {url}
auth_host = {url}
auth_type = userpass
username = {user}
password = {password}
account = {account}
auth_token_file_path = {directory}/token
[policy]
permission = generic
schema = generic
"""


class Storages:
    """towpath on each of `ADDRESSES`, with TLS and the same file."""

    def __init__(self, binary: Path, directory: Path, authority: Authority):
        self.data = content(100_000)
        self.port = free_port()
        self.credentials = directory / "proxy.pem"
        for rse in ADDRESSES:
            (directory / "export" / rse).mkdir(parents=True)
            (directory / "export" / rse / FILE).write_bytes(self.data)
        self.credentials.write_bytes(authority.certificate.read_bytes() + authority.key.read_bytes())
        command = [binary, "serve", directory / "export", "--certificate", authority.certificate, "--key", authority.key]
        for address in ADDRESSES.values():
            command += ["--listen", f"{address}:{self.port}"]
        self.process, _ = start(command, directory / "log")

    def catalog(self) -> bytes:
        """Returns the input of rucio_fill.py."""
        return json.dumps({
            "scope": SCOPE,
            "file": {"name": FILE, "bytes": len(self.data), "adler32": adler32(self.data)},
            "storages": {rse: {"hostname": host, "port": self.port, "prefix": f"/{rse}/"} for rse, host in ADDRESSES.items()},
        }).encode()


class Site:
    """A release of Rucio: one server, or several with different applications on the same database."""

    def __init__(self, release: str, directory: Path, clients: Clients, storages: Storages):
        self.directory = directory
        self.clients = clients
        self.storages = storages
        self.installed = ENVIRONMENT / "releases" / release
        self.packages = next(self.installed.glob("lib/python*/site-packages"))
        self.memcached = free_port()
        directory.mkdir()
        command = ["memcached", "-l", HOST, "-p", str(self.memcached), "-m", "16", "-u", "nobody"]
        self.processes = [subprocess.Popen(command, stdin=subprocess.DEVNULL)]
        wait_for_port(Server("memcached", directory, self.memcached, self.processes[0], directory / "log"), self.memcached)
        config = SERVER_CONFIG.format(directory=directory, user=USER, password=PASSWORD, memcached=f"{HOST}:{self.memcached}")
        (directory / "server.cfg").write_text(config)

    def serve(self, application: str, settings: str = "", **environment: str) -> "Face":
        """Serves an application (`module:name`) until the site is stopped. `settings` are additional sections of
        rucio.cfg."""
        directory = self.directory / f"face-{len(self.processes)}"
        directory.mkdir()
        config = configparser.ConfigParser(interpolation=None)
        config.read_string(settings)
        config.read(self.directory / "server.cfg")
        with (directory / "server.cfg").open("w") as file:
            config.write(file)
        environment |= {"RUCIO_CONFIG": str(directory / "server.cfg"), "PYTHONPATH": str(self.packages)}
        command = [PYTHON, "-P", HERE / "rucio_server.py", application]
        process, address = start(command, directory / "log", self.clients.environment | environment)
        self.processes.append(process)
        return Face(self, f"http://{address}", directory)

    def forget_distances(self) -> None:
        """Makes the server download its table of distances again, by deleting the file and the content of memcached."""
        DISTANCES.unlink(missing_ok=True)
        with socket.create_connection((HOST, self.memcached), timeout=START_DEADLINE_S) as connection:
            connection.sendall(b"flush_all\r\n")
            assert connection.recv(64) == b"OK\r\n"

    def stop(self) -> None:
        """Ends all its processes."""
        DISTANCES.unlink(missing_ok=True)
        for process in reversed(self.processes):
            end(process)


class Face:
    """An application of a site, as seen by its clients."""

    def __init__(self, site: Site, url: str, directory: Path):
        self.site = site
        self.url = url
        self.log = directory / "log"
        config = CLIENT_CONFIG.format(url=url, user=USER, password=PASSWORD, account=ACCOUNT, directory=directory)
        (directory / "rucio.cfg").write_text(config)
        self.environment = {
            "RUCIO_CONFIG": str(directory / "rucio.cfg"),
            "PYTHONPATH": str(site.packages),
            "X509_USER_PROXY": str(site.storages.credentials),
            "SITE_NAME": "CERN",
        }

    def rucio(self, *words, **options) -> Result:
        """Runs Rucio's own command."""
        return self.python(self.site.installed / "bin/rucio", *words, **options)

    def python(self, *words, **options) -> Result:
        """Runs the interpreter with Rucio and towpath."""
        return self.site.clients.run(PYTHON, "-P", *words, **self.environment, **options)

    def request(self, verb: str, path: str, seen_at: str = HOST, **options) -> requests.Response:
        """Sends a request without the official client, like a proxy for a client at the address `seen_at`."""
        limits = {"timeout": START_DEADLINE_S, "allow_redirects": False}
        account = {"X-Rucio-Account": ACCOUNT, "X-Rucio-Username": USER, "X-Rucio-Password": PASSWORD}
        token = requests.get(f"{self.url}/auth/userpass", headers=account, **limits).headers["X-Rucio-Auth-Token"]
        headers = {"X-Rucio-Auth-Token": token, "X-Forwarded-For": seen_at}
        return requests.request(verb, f"{self.url}{path}", headers=headers, **limits, **options)

    def replicas(self, sort: str | None, site: str = "CERN", seen_at: str = HOST) -> requests.Response:
        """Requests the replicas of the file."""
        query = {"dids": [{"scope": SCOPE, "name": FILE}], "client_location": {"site": site}, "sort": sort}
        return self.request("POST", "/replicas/list", seen_at, json=query)


@contextlib.contextmanager
def storages(binary: Path, directory: Path, authority: Authority) -> Iterator[Storages]:
    """Runs the storages."""
    running = Storages(binary, directory, authority)
    try:
        yield running
    finally:
        end(running.process)


@contextlib.contextmanager
def site(release: str, directory: Path, clients: Clients, running: Storages) -> Iterator[Face]:
    """Runs a release of Rucio with its own application and the registered storages."""
    made = Site(release, directory, clients, running)
    try:
        face = made.serve(PLAIN)
        face.python(HERE / "rucio_fill.py", stdin=running.catalog())
        yield face
    finally:
        made.stop()


def rses(answer: requests.Response) -> list[str]:
    """Returns the storages in the order of a response with the replicas of one file."""
    assert answer.status_code == 200, answer.text
    pfns = json.loads(answer.text)["pfns"].values()
    return [pfn["rse"] for pfn in sorted(pfns, key=lambda pfn: pfn["priority"])]


def start(command: list, log: Path, environment: dict[str, str] | None = None) -> tuple[subprocess.Popen, str]:
    """Starts a server that prints its address, and returns both."""
    with log.open("ab") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, env=environment)
    ready, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
    line = process.stdout.readline().decode() if ready else ""
    if not line.startswith("listening on "):
        process.kill()
        process.wait()
        raise RuntimeError(f"{command[0]} did not start; its output: {line!r}\n{log.read_text()}")
    return process, line.removeprefix("listening on ").strip()


def end(process: subprocess.Popen) -> None:
    """Terminates a process; kills it after `STOP_DEADLINE_S`."""
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
