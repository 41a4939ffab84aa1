"""ROOT 6.40 against our server: the query on the large tree with and without TTreeCache, with the number of requests
(see root_reader.py)."""

import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("root_reader.py")
BASKETS = 286 + 4640  # of the two branches


@pytest.fixture(scope="session")
def read(clients, python):
    """Runs root_reader.py."""
    def run(opener: str, cache: str, url) -> dict:
        return json.loads(clients.run(python, SCRIPT, opener, cache, url, deadline_s=120).text)

    return run


@pytest.fixture(scope="session")
def local(read, data) -> dict:
    """The sums on the local file."""
    found = read("TFile", "default", data / "large.root")
    assert found["bytes"] == 283_000 * 17 * 8
    return found


@pytest.mark.parametrize("cache, fewest, most", [
    pytest.param("default", 5, 20, marks=pytest.mark.pair("ROOT 6.40", "TFile::Open root://, TTreeCache by default: at most 20 requests")),
    pytest.param("10000000", 5, 20, marks=pytest.mark.pair("ROOT 6.40", "TFile::Open root://, TTreeCache 10 MB: at most 20 requests")),
    pytest.param("65536", 50, 400, marks=pytest.mark.pair("ROOT 6.40", "TFile::Open root://, TTreeCache 64 KB: at most 400 requests")),
    pytest.param("0", BASKETS, BASKETS + 20, marks=pytest.mark.pair("ROOT 6.40", "TFile::Open root://, no cache: one read a basket")),
])
def test_tree(plain_server, exported, read, local, cache, fewest, most):
    before = plain_server.requests("xrootd") if plain_server.counts_requests else 0
    assert read("TFile", cache, plain_server.url(f"{exported}/large.root")) == local
    if plain_server.counts_requests:
        requests = plain_server.requests("xrootd") - before
        assert fewest <= requests <= most


@pytest.mark.pair("ROOT 6.40", "TWebFile http://, TTreeCache 10 MB (multi-range): at most 60 requests, on two connections")
def test_web(plain_server, exported, read, local):
    before = (plain_server.requests("http"), plain_server.connections()) if plain_server.counts_requests else None
    assert read("TWebFile", "10000000", plain_server.http(f"{exported}/large.root")) == local
    if before:
        assert plain_server.requests("http") - before[0] <= 60
        # ROOT probes with HTTP/1.0 on a separate connection, and then reuses one if the response is HTTP/1.1. Each query of
        # the metrics uses one more connection.
        assert plain_server.connections() - before[1] <= 2 + 2
