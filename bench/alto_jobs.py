"""The ALTO server with a synthetic LHCONE of a million routes (`alto_twin.py`): load time, response times, memory, and
latency of change events.

No peer runs beside it: the only other public server (OpenALTO) supports path vectors only, at 134 ms per query with
10,000 routes as measured elsewhere. The figures are compared with fixed targets instead.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import pathlib
import subprocess
import time
from collections.abc import Iterator

import alto_feed
import alto_twin
from harness import HOST, Server, free_port, say, scratch
from settings import Job, Settings

CONFIG = """
[agents.routers]
kind = "mrt"
files = ["{directory}/routes.mrt"]

[agents.sites]
kind = "sites"
file = "{directory}/sites.json"

[agents.edge]
kind = "bmp"
listen = "{host}:{bmp}"
settle = "100ms"
"""

ENDPOINT_COST = "application/alto-endpointcostparams+json"
ROUNDS = 5
CLIENTS = 16
"""Clients of the load generator, each with one request in flight."""
REQUESTS_PER_S = 2000
LOAD_S = 35
"""Duration of the load, in which 10,000 routes change three times."""
FOLLOWERS = 100


def mesh() -> dict:
    """Returns a query for the paths between all storages."""
    endpoints = [f"ipv4:{address}" for address in alto_twin.storages()]
    return {"cost-type": {"cost-mode": "array", "cost-metric": "ane-path"}, "endpoints": {"srcs": endpoints, "dsts": endpoints}}


def ten_by_ten() -> dict:
    """Returns a query for the costs between ten storages and ten others."""
    endpoints = [f"ipv4:{address}" for address in alto_twin.storages()]
    between = {"srcs": endpoints[:10], "dsts": endpoints[300:310]}
    return {"cost-type": {"cost-mode": "numerical", "cost-metric": "routingcost"}, "endpoints": between}


def way(source: str, destination: str) -> dict:
    """Returns a query for the path from one address to another."""
    endpoints = {"srcs": [f"ipv4:{source}"], "dsts": [f"ipv4:{destination}"]}
    return {**mesh(), "endpoints": endpoints}


@contextlib.contextmanager
def serving(settings: Settings, directory: pathlib.Path, bmp: int | None = None) -> Iterator[tuple[Server, float]]:
    """Runs the server, and yields it with the seconds until it listened. Routers connect to the port `bmp`."""
    (directory / "alto.toml").write_text(CONFIG.format(directory=directory, host=HOST, bmp=bmp or free_port()))
    port = free_port()
    program = settings.machine.towpath("alto", "--config", directory / "alto.toml", "--listen", f"{HOST}:{port}")
    start = time.monotonic()
    server = Server(program, port, directory / f"alto-{port}.log")
    try:
        yield server, time.monotonic() - start
    finally:
        server.stop()


def timed_query(server: Server, resource: str, query: pathlib.Path, response: pathlib.Path, *options: str) -> float:
    """Sends a query with curl. Returns the seconds from the request to the end of the response."""
    words = ["curl", "-sf", *options, "-H", f"Content-Type: {ENDPOINT_COST}", "--data-binary", f"@{query}", "-o", str(response), "-w", "%{time_total}"]
    done = subprocess.run([*words, server.http(resource)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{resource}: curl ended with {done.returncode}: {done.stderr}")
    return float(done.stdout)


def latencies_ms(server: Server, query: pathlib.Path, log: pathlib.Path, seconds: int) -> list[float]:
    """Sends requests at a fixed rate with a load generator. Returns the response time of each in milliseconds."""
    rate = ["--rps", str(REQUESTS_PER_S // CLIENTS), "-D", str(seconds), "-c", str(CLIENTS), "-t", "1", "-m", "1", "--h1"]
    words = ["h2load", *rate, "-d", str(query), "-H", f"content-type: {ENDPOINT_COST}", f"--log-file={log}", server.http("endpoint-costs")]
    subprocess.run(words, capture_output=True, check=True)
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    refused = [row for row in rows if row[1] != "200"]
    if refused or not rows:
        raise RuntimeError(f"{len(refused)} of {len(rows)} requests failed")
    return [int(row[2]) / 1000 for row in rows]


def check(plain: bytes, packed: bytes) -> None:
    """Verifies that both responses are equal, and contain at least one element for each pair."""
    if gzip.decompress(packed) != plain:
        raise RuntimeError("the compressed response differs from the plain one")
    first = plain.split(b"\r\n\r\n", 1)[1].split(b"\r\n--", 1)[0]
    rows = json.loads(first)["endpoint-cost-map"].values()
    pairs = sum(len(row) for row in rows)
    if pairs != alto_twin.STORAGES**2:
        raise RuntimeError(f"the response has {pairs} pairs")


def check_last_route(server: Server, directory: pathlib.Path, routes: int) -> None:
    """Verifies that the server has loaded the last route of the dump."""
    (directory / "way").write_text(json.dumps(way(alto_twin.storages()[0], str(alto_twin.last_ipv4(routes)))))
    timed_query(server, "path-vector", directory / "way", directory / "way.response")
    if b"as:" not in (directory / "way.response").read_bytes():
        raise RuntimeError("the server has not loaded the last route of the dump")


def under_load(settings: Settings, directory: pathlib.Path) -> dict:
    """Measures small queries at a fixed rate while routes change, then the latency of change events."""
    seconds = 4 if settings.quick else LOAD_S
    bmp = free_port()
    with serving(settings, directory, bmp) as (server, _):
        router = alto_feed.Router(bmp)
        with alto_feed.Changing(router, seconds / 3.5):
            taken_ms = latencies_ms(server, directory / "ten", directory / "log", seconds)
        query = way(str(alto_feed.OWN[1]), alto_twin.storages()[0])
        delays_s = alto_feed.delays_s(server.port, query, FOLLOWERS, router.change, ROUNDS)
        router.close()
        resident_bytes = server.peak_rss_bytes()
    return {
        "ten_by_ten": {"requests": len(taken_ms), "per_s": REQUESTS_PER_S, "changes": router.changes - 1 - ROUNDS, **percentiles(taken_ms)},
        "followers": FOLLOWERS,
        "told_s": delays_s,
        "loaded_peak_rss_bytes": resident_bytes,
    }


def twin(settings: Settings) -> dict:
    """Loads the synthetic network, requests the full mesh plain and compressed, then small queries at a fixed rate."""
    routes = 100_000 if settings.quick else alto_twin.ROUTES
    with scratch(str(settings.memory), "alto") as directory:
        alto_twin.write(directory, routes)
        queries = {"mesh": mesh(), "ten": ten_by_ten()}
        for name, query in queries.items():
            (directory / name).write_text(json.dumps(query))
        loads_s, meshes_s, packed_s, resident_bytes = [], [], [], []
        plain, packed = directory / "response", directory / "response.gz"
        for _ in range(settings.repetitions or ROUNDS):
            with serving(settings, directory) as (server, load_s):
                loads_s.append(load_s)
                meshes_s.append(timed_query(server, "path-vector", directory / "mesh", plain))
                mesh_bytes = plain.stat().st_size
                packed_s.append(timed_query(server, "path-vector", directory / "mesh", packed, "-H", "Accept-Encoding: gzip"))
                packed_bytes = packed.stat().st_size
                resident_bytes.append(server.peak_rss_bytes())
                check_last_route(server, directory, routes)
            check(plain.read_bytes(), packed.read_bytes())
            say(f"   loaded in {loads_s[-1]:.2f} s, mesh {meshes_s[-1]:.2f} s, compressed {packed_s[-1]:.2f} s, {resident_bytes[-1] >> 20} MiB")
        loaded = under_load(settings, directory)
    return {
        "shape": "alto-twin",
        "routes": routes,
        "load_s": loads_s,
        "mesh_s": meshes_s,
        "mesh_bytes": mesh_bytes,
        "mesh_gzip_s": packed_s,
        "mesh_gzip_bytes": packed_bytes,
        "peak_rss_bytes": resident_bytes,
        **loaded,
    }


def percentiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {f"p{share}_ms": ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))] for share in (50, 90, 99)} | {"max_ms": ordered[-1]}


JOBS = {"twin": Job(twin, 4)}
