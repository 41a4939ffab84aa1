"""uproot against our server, through each of its remote sources. All values are compared with a local read (see
uproot_reader.py)."""

import json
import shutil
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("uproot_reader.py")

SOURCES = [
    # name, scheme, source
    ("root:// by default (fsspec-xrootd)", "root", "default"),
    ("XRootDSource", "root", "XRootDSource"),
    ("MultithreadedXRootDSource", "root", "MultithreadedXRootDSource"),
    ("http:// by default (fsspec, aiohttp)", "http", "default"),
    ("HTTPSource (multi-range)", "http", "HTTPSource"),
    ("MultithreadedHTTPSource", "http", "MultithreadedHTTPSource"),
]

# These trees store all data in their own record; two of uproot's sources mostly fail on that with any server.
NOTHING_TO_FETCH = {f"go-hep/groot/testdata/{name}.root" for name in ("g4-hist", "g4-like", "uproot/issue21")}
FAIL_ON_THAT = {"XRootDSource", "HTTPSource"}


def each_source(operation: str):
    """Runs a test through each source."""
    return pytest.mark.parametrize("scheme, source", [
        pytest.param(scheme, source, id=f"{source}-{scheme}", marks=pytest.mark.pair("uproot", f"{name}: {operation}"))
        for name, scheme, source in SOURCES
    ])


@pytest.fixture(scope="session")
def read(clients, python):
    """Runs uproot_reader.py."""
    def run(source: str, operation: str, *urls):
        return json.loads(clients.run(python, SCRIPT, source, operation, *urls, deadline_s=120).text)

    return run


@pytest.fixture(scope="session")
def local_query(read, data) -> dict:
    """The result of the query on the local file."""
    found = read("default", "query", data / "large.root")
    assert found["entries"] == 283_000
    return found


@pytest.fixture(scope="session")
def go_hep(data) -> list[str]:
    """go-hep's files, as paths below the data directory."""
    names = sorted(str(path.relative_to(data)) for path in (data / "go-hep").rglob("*.root"))
    if not names:
        pytest.skip("go-hep's files are not here (no Go)")
    return names


@pytest.fixture(scope="session")
def local_survey(read, data, go_hep) -> list:
    """The content of go-hep's files on the local disk."""
    found = read("default", "survey", *(data / name for name in go_hep))
    assert sum(isinstance(one, dict) for one in found) == len(go_hep)
    return found


def url(server, scheme: str, path: str) -> str:
    """Returns the URL of an exported path."""
    return server.url(path) if scheme == "root" else server.http(path)


@each_source("two branches of the large tree")
def test_query(plain_server, exported, read, local_query, scheme, source):
    assert read(source, "query", url(plain_server, scheme, f"{exported}/large.root")) == local_query


@each_source("keys and arrays of 91 real files")
def test_survey(plain_server, exported, read, local_survey, go_hep, scheme, source):
    found = read(source, "survey", *(url(plain_server, scheme, f"{exported}/{name}") for name in go_hep))
    different = {name for name, ours, theirs in zip(go_hep, found, local_survey, strict=True) if ours != theirs}
    assert different <= (NOTHING_TO_FETCH if source in FAIL_ON_THAT else set())


@pytest.mark.parametrize("scheme, source", [
    pytest.param("root", "XRootDSource", marks=pytest.mark.pair("uproot", "roots:// by XRootDSource: two branches of the large tree",
                                                                note="fsspec-xrootd does not know `roots://`")),
    pytest.param("http", "default", marks=pytest.mark.pair("uproot", "https:// by default: two branches of the large tree")),
])
def test_query_tls(tls_area, data, read, local_query, scheme, source):
    shutil.copyfile(data / "large.root", tls_area.put("large.root", b""))
    assert read(source, "query", url(tls_area.server, scheme, f"{tls_area.path}/large.root")) == local_query
