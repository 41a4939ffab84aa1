"""`towpath agent` between real clients and real storages, and who may use it."""

import json
import os
import socket
import subprocess
from types import SimpleNamespace

import pytest

from clients import content, eventually
from servers import HOST, unprivileged
from test_cache import large_tree, local_query, query  # noqa: F401
from test_cache_origins import http_port

SIZE = 1_000_000


@pytest.fixture
def agent(binary, here):
    """Runs `towpath agent` with a directory of its own, and stops the agent afterwards."""
    environment = {**os.environ, "TOWPATH_AGENT_DIRECTORY": str(here / "agent"), "HOME": str(here)}

    def run(*words: object, status: int = 0) -> str:
        done = subprocess.run([binary, "agent", *map(str, words)], env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout.strip()

    yield run
    run("stop")


@pytest.mark.pair("xrdcp, xrdfs, curl", "towpath agent: files of an XRootD server and of nginx, through the URLs that it prints")
def test_clients(agent, xrootd_area, nginx_area, clients, here):
    xrootd_area.put("file", content(SIZE, 1))
    nginx_area.put("file", content(SIZE, 2))
    url = agent("url", xrootd_area.url("file"))
    for attempt in range(2):
        clients.run("xrdcp", "-s", "-f", url, here / "copy")
        assert (here / "copy").read_bytes() == content(SIZE, 1), attempt
    of_http = agent("url", f"http://{HOST}:{http_port(nginx_area)}{nginx_area.path}/file")
    assert clients.run("curl", "-sS", "--fail", of_http).out == content(SIZE, 2)
    address, _, path = url.removeprefix("root://").partition("/")
    assert f"{SIZE}" in clients.run("xrdfs", address, "stat", path).text
    assert str(xrootd_area.server.port) in agent("status")


@pytest.mark.pair("curl", "towpath agent refuses other storages, web pages, and names that lead to it")
def test_refusals(agent, xrootd_area, nginx_area, clients, here):
    url = agent("url", f"http://{HOST}:{http_port(nginx_area)}{nginx_area.path}/file")
    nginx_area.put("file", b"content")
    status = ["-o", here / "answer", "-w", "%{http_code}"]
    for change, expected in [
        ([], "200"),
        (["-H", "Origin: https://evil.example"], "403"),
        (["-H", "Host: evil.example"], "403"),
        (["-H", "Origin: null"], "403"),
    ]:
        assert clients.run("curl", "-sS", *change, url, *status).text == expected, change
    base = url.partition("/http://")[0]
    unnamed = f"{base}/http://169.254.169.254/latest"
    assert clients.run("curl", "-sS", unnamed, *status).text == "403"
    assert "towpath agent url" in (here / "answer").read_text()
    failed = clients.run("xrdcp", "-s", f"root://{base.removeprefix('http://')}//{xrootd_area.url('file')}", here / "copy", status=None)
    assert "towpath agent url" in failed.err.decode()


@pytest.mark.skipif(os.geteuid() != 0, reason="it needs root to be another user")
@pytest.mark.pair("curl and xrdcp", "towpath agent serves no other user of the machine")
def test_other_users(agent, nginx_area, xrootd_area, clients, here):
    nginx_area.put("file", b"content")
    xrootd_area.put("file", b"content")
    for url, command in [
        (agent("url", f"http://{HOST}:{http_port(nginx_area)}{nginx_area.path}/file"), ["curl", "-sS", "--fail", "--max-time", "20"]),
        (agent("url", xrootd_area.url("file")), ["env", "XRD_CONNECTIONRETRY=1", "XRD_CONNECTIONWINDOW=5", "XRD_STREAMERRORWINDOW=0", "xrdcp", "-s"]),
    ]:
        target = ["-"] if command[0] == "env" else []
        as_other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command, url, *target]
        refused = clients.run(*as_other, status=None, deadline_s=60)
        assert b"content" not in refused.out, url
        assert clients.run(*command, url, *target).out == b"content"


IMPOSTOR = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
    do_GET = do_POST
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
"""A server at the port of an agent that answers each request."""


@pytest.mark.skipif(os.geteuid() != 0, reason="it needs root to be another user")
def test_a_program_of_another_user_is_no_agent(agent, xrootd_area, here):
    url = agent("url", xrootd_area.url("file"))
    host, _, port = url.removeprefix("root://").partition("/")[0].partition(":")
    control = (here / "agent/data/control").read_bytes()
    agent("stop")
    eventually(lambda: not (here / "agent/data/control").exists())
    (here / "agent/data/control").write_bytes(control)
    (here / "agent/data/control").chmod(0o600)
    impostor = subprocess.Popen(["/usr/bin/python3", "-c", IMPOSTOR, host, port], stderr=subprocess.DEVNULL, **unprivileged())
    try:
        eventually(lambda: is_listening(host, int(port)))
        assert agent("url", xrootd_area.url("file")).partition("/root://")[0] != url.partition("/root://")[0]
    finally:
        impostor.kill()
        impostor.wait()


def is_listening(host: str, port: int) -> bool:
    """Returns whether a program accepts connections at an address of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@pytest.mark.parametrize("program", [
    pytest.param("ROOT without TTreeCache", marks=pytest.mark.pair("ROOT 6.40", "no TTreeCache, through towpath agent")),
    pytest.param("ROOT", marks=pytest.mark.pair("ROOT 6.40", "TTreeCache 10 MB, through towpath agent")),
    pytest.param("uproot XRootDSource", marks=pytest.mark.pair("uproot", "XRootDSource, through towpath agent")),
])
def test_queries(agent, xrootd_area, data, query, local_query, clients, binary, here, program):  # noqa: F811
    expected = local_query[program.split()[0]]
    origin = SimpleNamespace(area=xrootd_area, path=lambda name: name)
    for number in (1, 2):
        name = large_tree(origin, data, f"run_{number}")
        assert query(program, agent("url", xrootd_area.url(name))) == expected
    stats = json.loads(clients.run(binary, "cache", "stats", "--dir", here / "agent/data", "--json").text)
    (origin,) = stats["origins"]
    print(program, origin["requests"], origin["fetched_bytes"])
    assert origin["fetched_bytes"] < 2 * 12_000_000 and origin["requests"] < 40
