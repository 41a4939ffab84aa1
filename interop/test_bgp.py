"""Routes from a real BGP speaker: two GoBGP daemons with a session between them. One is a router that towpath monitors
over BMP, and whose dump (MRT) it reads."""

import contextlib
import json
import socket
import subprocess
import threading
import time

import pytest
import requests
from servers import HOST, free_port
from test_alto import serving
from test_docs import COMMAND_LIMIT_S

SPEAKER = "127.0.0.2"
NEXT_HOP = "192.0.2.9"
PARAMS = {"Content-Type": "application/alto-endpointcostparams+json"}
FAMILIES = """
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-unicast"
"""
GLOBAL = """
[global.config]
  as = {as_number}
  router-id = "{address}"
  port = {port}
  local-address-list = ["{address}"]
"""
ROUTER = GLOBAL + """
[[bmp-servers]]
  [bmp-servers.config]
    address = "127.0.0.1"
    port = {bmp}
    route-monitoring-policy = "pre-policy"
[[mrt-dump]]
  [mrt-dump.config]
    dump-type = "updates"
    file-name = "updates.mrt"
[[neighbors]]
  [neighbors.config]
    neighbor-address = "127.0.0.2"
    peer-as = 65001
  [neighbors.transport.config]
    passive-mode = true
""" + FAMILIES
PEER = GLOBAL + """
[[neighbors]]
  [neighbors.config]
    neighbor-address = "127.0.0.1"
    peer-as = 65000
  [neighbors.transport.config]
    remote-port = {port}
    local-address = "127.0.0.2"
  [neighbors.timers.config]
    connect-retry = 1
""" + FAMILIES


class Daemon:
    """A GoBGP daemon, controlled by its own client."""

    def __init__(self, directory, name, config):
        self.api = free_port()
        (directory / f"{name}.toml").write_text(config)
        log = (directory / f"{name}.log").open("wb")
        words = ["gobgpd", "-f", directory / f"{name}.toml", "--api-hosts", f"{HOST}:{self.api}", "--pprof-disable"]
        # The name of its dump is relative: GoBGP interprets digits in the name as parts of the time.
        self.process = subprocess.Popen(words, cwd=directory, stdout=log, stderr=log)

    def control(self, *words):
        done = subprocess.run(["gobgp", "-u", HOST, "-p", str(self.api), *words], capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
        return done.stdout if done.returncode == 0 else ""

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Wire:
    """A connection between a router and its BMP collector that can be cut."""

    def __init__(self, port):
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        self.connections = []
        threading.Thread(target=self.accept, args=[port], daemon=True).start()

    def accept(self, port):
        with contextlib.suppress(OSError):  # The listener is closed.
            while True:
                router = self.listener.accept()[0]
                ends = router, socket.create_connection((HOST, port))
                self.connections.append(ends)
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, router, collector):
        with contextlib.suppress(OSError), router, collector:
            while data := router.recv(1 << 16):
                collector.sendall(data)

    def cut(self):
        for end in self.connections[-1]:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()


@contextlib.contextmanager
def session(directory, bmp):
    """Runs a router and its peer, which announces routes to it, and yields when their session is established."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        router = Daemon(directory, "router", ROUTER.format(as_number=65000, address=HOST, port=port, bmp=bmp))
        stack.callback(router.stop)
        peer = Daemon(directory, "peer", PEER.format(as_number=65001, address=SPEAKER, port=port))
        stack.callback(peer.stop)
        until(lambda: "Establ" in router.control("neighbor"))
        yield peer


def until(holds):
    """Waits until the condition holds."""
    deadline = time.monotonic() + COMMAND_LIMIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def path(address, source, destination):
    """Returns the elements between two addresses; empty if the server has no path."""
    kind = "ipv4" if "." in source else "ipv6"
    question = {
        "cost-type": {"cost-mode": "array", "cost-metric": "ane-path"},
        "endpoints": {"srcs": [f"{kind}:{source}"], "dsts": [f"{kind}:{destination}"]},
    }
    answer = requests.post(f"http://{address}/path-vector", json=question, headers=PARAMS, timeout=COMMAND_LIMIT_S)
    if answer.status_code == 404:
        return None
    part = answer.text.split("\r\n\r\n")[1].split("\r\n")[0]
    row = json.loads(part)["endpoint-cost-map"]
    return next(iter(next(iter(row.values())).values())) if row else None


@pytest.mark.pair("GoBGP", "routes and withdrawals of IPv4 and IPv6 by BMP; the same from its dump (MRT)")
def test_routes_of_a_real_speaker(binary, tmp_path):
    bmp = free_port()
    (tmp_path / "facts.toml").write_text('[network-map.default]\nall = ["0.0.0.0/0", "::/0"]\n')
    static = '[agents.map]\nkind = "static"\nfile = "facts.toml"\n'
    (tmp_path / "alto.toml").write_text(f'{static}[agents.routers]\nkind = "bmp"\nlisten = "{HOST}:{bmp}"\nsettle = "100ms"\n')
    near, far = [f"link:{SPEAKER.replace('.', '_')}-192_0_2_9", "as:65001-64501", "as:64501-64502"], ["as:65001-64503"]
    with serving(binary, tmp_path) as address, session(tmp_path, bmp) as peer:
        assert path(address, "10.2.0.1", "10.1.0.1") is None
        peer.control("global", "rib", "add", "10.2.0.0/16", "nexthop", SPEAKER)
        peer.control("global", "rib", "add", "10.1.0.0/16", "nexthop", NEXT_HOP, "aspath", "64501 64502")
        peer.control("-a", "ipv6", "global", "rib", "add", "2001:db8:1::/48", "nexthop", "2001:db8::9", "aspath", "64503")
        peer.control("-a", "ipv6", "global", "rib", "add", "2001:db8:2::/48", "nexthop", "2001:db8::9")
        until(lambda: path(address, "10.2.0.1", "10.1.0.1") == near)
        until(lambda: (path(address, "2001:db8:2::1", "2001:db8:1::1") or [])[-1:] == far)
        peer.control("global", "rib", "del", "10.1.0.0/16")
        until(lambda: path(address, "10.2.0.1", "10.1.0.1") is None)
        peer.control("global", "rib", "add", "10.1.0.0/16", "nexthop", NEXT_HOP, "aspath", "64501 64502")
        until(lambda: path(address, "10.2.0.1", "10.1.0.1") == near)
    (tmp_path / "alto.toml").write_text(f'{static}[agents.routers]\nkind = "mrt"\nfiles = ["updates.mrt"]\n')
    with serving(binary, tmp_path) as address:
        assert path(address, "10.2.0.1", "10.1.0.1") == near
        assert path(address, "2001:db8:2::1", "2001:db8:1::1")[-1:] == far


@pytest.mark.pair("GoBGP", "its table sent again by BMP after a lost connection: routes stay, and are removed at End-of-RIB")
def test_routes_hold_while_a_router_begins_anew(binary, tmp_path):
    bmp = free_port()
    (tmp_path / "facts.toml").write_text('[network-map.default]\nall = ["0.0.0.0/0", "::/0"]\n')
    static = '[agents.map]\nkind = "static"\nfile = "facts.toml"\n'
    (tmp_path / "alto.toml").write_text(f'{static}[agents.routers]\nkind = "bmp"\nlisten = "{HOST}:{bmp}"\nsettle = "10ms"\n')
    stays = [f"link:{SPEAKER.replace('.', '_')}-192_0_2_9", "as:65001-64501", "as:64501-64502"]
    with serving(binary, tmp_path) as address, contextlib.closing(Wire(bmp)) as wire, session(tmp_path, wire.port) as peer:

        def is_gone():
            assert path(address, "10.2.0.1", "10.1.0.1") == stays
            return path(address, "10.2.0.1", "10.4.0.1") is None

        peer.control("global", "rib", "add", "10.1.0.0/16", "nexthop", NEXT_HOP, "aspath", "64501 64502")
        peer.control("global", "rib", "add", "10.4.0.0/16", "nexthop", NEXT_HOP, "aspath", "64501 64503")
        until(lambda: path(address, "10.2.0.1", "10.4.0.1") is not None)
        wire.cut()
        peer.control("global", "rib", "del", "10.4.0.0/16")
        third_octets = iter(range(256))

        def is_back():
            # GoBGP notices the cut connection only when it sends a message.
            peer.control("global", "rib", "add", f"10.5.{next(third_octets)}.0/24", "nexthop", NEXT_HOP)
            is_gone()
            return len(wire.connections) > 1

        until(is_back)
        until(is_gone)
