"""Attacks on the shared resources of a server (`starvation_attack.py`) from one address and from 64, and the response
times of short requests of other clients meanwhile."""

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
"""Source addresses of the timed requests."""
REQUESTS = {
    "GET of 1 kB": b"GET /short HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "PROPFIND of 10 entries": b"PROPFIND /few/ HTTP/1.1\r\nhost: x\r\ndepth: 1\r\nconnection: close\r\n\r\n",
}
LIMIT_S = 10.0
"""Timeout of a request. A request that exceeds it counts as this long."""
PAUSE_S = 0.05
ROUNDS, QUICK_ROUNDS = 100, 10
MANY = 20_000


def make_files(root: pathlib.Path) -> None:
    """Creates a long and a short file, a directory of many entries and one of few."""
    write_pattern(root / "long", 8 << 20)
    (root / "short").write_bytes(b"x" * 1000)
    for name, number in (("many", MANY), ("few", 10)):
        (root / name).mkdir()
        for index in range(number):
            (root / name / f"a-file-of-some-experiment-{index:06}.root").touch()


def response_time_s(request: bytes, address: str, port: int) -> float:
    """Returns the seconds from the connection to the end of a correct response, `LIMIT_S` for any other."""
    start = time.monotonic()
    response = b""
    with contextlib.suppress(OSError), socket.socket() as client:
        client.settimeout(LIMIT_S)
        client.bind((address, 0))
        client.connect((HOST, port))
        client.sendall(request)
        while (part := client.recv(1 << 16)) and time.monotonic() - start < LIMIT_S:
            response += part
    is_right = response.startswith((b"HTTP/1.1 200", b"HTTP/1.1 207")) and (b"x" * 1000 in response or b"000009.root" in response)
    return min(time.monotonic() - start, LIMIT_S) if is_right else LIMIT_S


@contextlib.contextmanager
def attacked(kind: str, port: int, addresses: int) -> Iterator[dict]:
    """Runs the attack; its statistics are in the yielded record afterwards."""
    program = pathlib.Path(starvation_attack.__file__)
    attack = subprocess.Popen([sys.executable, program, kind, str(port), str(addresses)], stdout=subprocess.PIPE, text=True)
    record: dict = {}
    try:
        attack.stdout.readline()
        # Lets the server read the requests.
        time.sleep(2)
        yield record
    finally:
        attack.terminate()
        output, _ = attack.communicate()
        record.update(json.loads(output.splitlines()[-1]) if output.strip() else {})


def cell(settings: Settings, root: pathlib.Path, work: pathlib.Path, kind: str, addresses: int) -> dict:
    """Runs one attack, and times requests meanwhile."""
    port = free_port()
    server = Server(settings.machine.towpath("serve", root, "--listen", f"{HOST}:{port}"), port, work / f"{port}.log")
    times: dict[str, dict[str, list[float]]] = {where: {what: [] for what in REQUESTS} for where in CLIENTS}
    try:
        with attacked(kind, port, addresses) as attack:
            for _ in range(QUICK_ROUNDS if settings.quick else ROUNDS):
                for where, address in CLIENTS.items():
                    for what, request in REQUESTS.items():
                        # Stop measuring a client after three timeouts.
                        if times[where][what].count(LIMIT_S) < 3:
                            times[where][what].append(response_time_s(request, address, port))
                time.sleep(PAUSE_S)
        return {"attack": kind, "addresses": addresses, **attack, "times_s": times, "peak_rss_bytes": server.peak_rss_bytes()}
    finally:
        server.stop()


def attack_job(kind: str) -> Callable[[Settings], dict]:
    """Returns the job that runs one attack from one and from many addresses."""

    def run(settings: Settings) -> dict:
        with scratch(str(settings.memory), "root") as root, scratch("/tmp", "starvation") as work:
            make_files(root)
            cells = []
            for addresses in ADDRESSES:
                say(f"{kind} from {addresses} {'address' if addresses == 1 else 'addresses'}")
                cells.append(cell(settings, root, work, kind, addresses))
            return {"runs": cells}

    return run


JOBS = {kind.replace(" ", "-"): Job(attack_job(kind), 1) for kind in starvation_attack.ATTACKS}
