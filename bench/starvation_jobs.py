"""Attacks on what a server has for everybody (`starvation_attack.py`), from one address and from 64, and how long others wait for short answers meanwhile."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import starvation_attack
from harness import HOST, Server, free_port, say, scratch
from settings import Job, Settings, write_pattern

ADDRESSES = (1, 64)
CLIENTS = {"another address": "127.0.1.1", "an attacker's address": f"127.0.0.{starvation_attack.FIRST_ADDRESS}"}
"""Where the requests come from whose time is taken."""
REQUESTS = {
    "GET of 1 kB": b"GET /short HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "PROPFIND of 10 entries": b"PROPFIND /few/ HTTP/1.1\r\nhost: x\r\ndepth: 1\r\nconnection: close\r\n\r\n",
}
LIMIT_S = 10.0
"""A request that takes longer is given up, and counts as this long."""
PAUSE_S = 0.05
ROUNDS, QUICK_ROUNDS = 100, 10
MANY = 20_000


def make_files(root: pathlib.Path) -> None:
    """A long and a short file, a directory of many entries and one of few."""
    write_pattern(root / "long", 8 << 20)
    (root / "short").write_bytes(b"x" * 1000)
    for name, number in (("many", MANY), ("few", 10)):
        (root / name).mkdir()
        for index in range(number):
            (root / name / f"a-file-of-some-experiment-{index:06}.root").touch()


def asked(request: bytes, address: str, port: int) -> float:
    """Seconds from the connection to the end of a right answer."""
    start = time.monotonic()
    answer = b""
    with contextlib.suppress(OSError), socket.socket() as client:
        client.settimeout(LIMIT_S)
        client.bind((address, 0))
        client.connect((HOST, port))
        client.sendall(request)
        while (part := client.recv(1 << 16)) and time.monotonic() - start < LIMIT_S:
            answer += part
    is_right = answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 207")) and (b"x" * 1000 in answer or b"000009.root" in answer)
    return min(time.monotonic() - start, LIMIT_S) if is_right else LIMIT_S


@contextlib.contextmanager
def attacked(kind: str, port: int, addresses: int) -> Iterator[dict]:
    """While the attack goes on; afterwards the record says how it went."""
    program = pathlib.Path(starvation_attack.__file__)
    attack = subprocess.Popen([sys.executable, program, kind, str(port), str(addresses)], stdout=subprocess.PIPE, text=True)
    record: dict = {}
    try:
        attack.stdout.readline()
        # Until the server has read the requests.
        time.sleep(2)
        yield record
    finally:
        attack.terminate()
        said, _ = attack.communicate()
        record.update(json.loads(said.splitlines()[-1]) if said.strip() else {})


def cell(settings: Settings, root: pathlib.Path, work: pathlib.Path, kind: str, addresses: int) -> dict:
    """One attack, and the times of requests meanwhile."""
    port = free_port()
    server = Server(settings.machine.towpath("serve", root, "--listen", f"{HOST}:{port}"), port, work / f"{port}.log")
    times: dict[str, dict[str, list[float]]] = {where: {what: [] for what in REQUESTS} for where in CLIENTS}
    try:
        with attacked(kind, port, addresses) as attack:
            for _ in range(QUICK_ROUNDS if settings.quick else ROUNDS):
                for where, address in CLIENTS.items():
                    for what, request in REQUESTS.items():
                        # A client that reached the limit three times is not measured further.
                        if times[where][what].count(LIMIT_S) < 3:
                            times[where][what].append(asked(request, address, port))
                time.sleep(PAUSE_S)
        return {"attack": kind, "addresses": addresses, **attack, "times_s": times, "peak_rss_bytes": server.peak_rss_bytes()}
    finally:
        server.stop()


def attack_job(kind: str) -> Callable[[Settings], dict]:
    """The job that makes one attack from few and from many addresses."""

    def run(settings: Settings) -> dict:
        with scratch(str(settings.memory), "root") as root, scratch("/tmp", "starvation") as work:
            make_files(root)
            cells = []
            for addresses in ADDRESSES:
                say(f"{kind} from {addresses} address(es)")
                cells.append(cell(settings, root, work, kind, addresses))
            return {"runs": cells}

    return run


JOBS = {kind.replace(" ", "-"): Job(attack_job(kind), 1) for kind in starvation_attack.ATTACKS}
