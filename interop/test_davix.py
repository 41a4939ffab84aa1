"""davix 0.8 against our server: the WebDAV client on which the transfer tools of the field are built."""

import re

import pytest

from clients import content

SIZE = 9_000_123


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("davix", operation, **more)


@pair("davix-get")
def test_get(area, clients, here):
    data = content(SIZE)
    area.put("file", data)
    clients.run("davix-get", area.http("file"), here / "file")
    assert (here / "file").read_bytes() == data


@pair("davix-get of a missing file is refused")
def test_get_missing(area, clients, here):
    assert b"404" in clients.run("davix-get", "--retry", "0", area.http("absent"), here / "file", status=None).err


@pair("davix-put")
def test_put(area, clients, here):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    clients.run("davix-put", here / "file", area.http("file"))
    assert (area.local / "file").read_bytes() == data


@pair("davix-ls, davix-ls -l")
def test_ls(area, clients):
    area.put("file", content(1234))
    area.put("dir/inner", b"x")
    assert sorted(clients.run("davix-ls", area.http()).lines) == ["dir", "file"]
    (line,) = [line for line in clients.run("davix-ls", "-l", area.http()).lines if line.endswith(" file")]
    assert re.search(r"\b1234\b", line)


@pair("davix-mkdir")
def test_mkdir(area, clients):
    clients.run("davix-mkdir", area.http("dir"))
    assert (area.local / "dir").is_dir()


@pair("davix-rm")
def test_rm(area, clients):
    area.put("file", b"x")
    clients.run("davix-rm", area.http("file"))
    assert not (area.local / "file").exists()


@pair("davix-mv", note="ends with status 255 even when all went well")
def test_mv(area, clients):
    data = content(1000)
    area.put("old", data)
    clients.run("davix-mv", area.http("old"), area.http("new"), status=255)
    assert (area.local / "new").read_bytes() == data
    assert not (area.local / "old").exists()


@pair("davix-get, davix-put with TLS")
def test_tls(tls_area, clients, here):
    data = content(SIZE)
    tls_area.put("file", data)
    capath = ("--capath", clients.environment["X509_CERT_DIR"])
    clients.run("davix-get", *capath, tls_area.http("file"), here / "file")
    assert (here / "file").read_bytes() == data
    clients.run("davix-put", *capath, here / "file", tls_area.http("up"))
    assert (tls_area.local / "up").read_bytes() == data
