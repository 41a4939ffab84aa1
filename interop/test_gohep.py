"""go-hep's client against our server (its own test suite, its commands), and our client against its server.
interop/peers builds them."""

import os
import re
import shutil
from pathlib import Path

import pytest

from clients import content
from servers import start_gohep

MODIFIED = 1_530_559_859
"""Modification time that go-hep's suite expects of its file."""

NOT_OURS = {
    "TestFileSystem_VirtualStat": "wants the free space of the server that the suite was written for",
    "TestSession_Protocol": "wants protocol version 3.1.0",
}
"""Tests of the suite that pass only with its own server, and the reason."""

WITH_OUR_SERVER = {
    "TestFile_Close", "TestFile_ReadAt", "TestFile_Stat", "TestFile_Truncate", "TestFile_WriteAt", "TestFileSystem_Chmod",
    "TestFileSystem_Dirlist", "TestFileSystem_Open", "TestFileSystem_RemoveAll", "TestFileSystem_RemoveDir", "TestFileSystem_RemoveFile",
    "TestFileSystem_Rename", "TestFileSystem_Stat", "TestFileSystem_Statx", "TestFileSystem_Truncate", "TestNewClient", "TestNewSubSession",
    "TestSession_Ping",
}
"""Tests of the suite that must use our server instead of one started by the suite."""


@pytest.fixture(scope="session")
def gohep() -> Path:
    """The directory of go-hep's programs."""
    name = os.environ.get("TOWPATH_GOHEP")
    if not name:
        pytest.skip("TOWPATH_GOHEP is not set")
    return Path(name)


@pytest.fixture(scope="session")
def gohep_server(base, gohep):
    """go-hep's server."""
    server = start_gohep(gohep / "bin/xrd-srv", base / "gohep")
    yield server
    server.stop()


@pytest.fixture
def suite_files(plain_server):
    """Creates the files of go-hep's suite at the expected paths."""
    directory = plain_server.root / "tmp"
    (directory / "dir1").mkdir(parents=True)
    (directory / "file1.txt").write_text("Hello XRootD.\n")
    empty = directory / "dir1" / "file1.txt"
    empty.write_bytes(b"")
    empty.chmod(0o444)
    os.utime(empty, (MODIFIED, MODIFIED))
    yield empty
    shutil.rmtree(directory)


@pytest.mark.pair("go-hep 0.33", "its own test suite: dirlist, open, stat, statx, chmod, read, write, truncate, rename, remove",
                  note="but for two tests that expect figures of the server that they were written for")
def test_suite(plain_server, suite_files, clients, gohep):
    found = clients.run("xrdfs", plain_server.address, "stat", "/tmp/dir1/file1.txt").text
    expected = {
        "TOWPATH_ADDRESS": f"127.0.0.1:{plain_server.port}",
        "TOWPATH_FILE_ID": re.search(r"Id:\s+(\d+)", found)[1],
        "TOWPATH_FILE_TIME": str(MODIFIED),
    }
    listed = clients.run(gohep / "xrootd.test", "-test.list=.", **expected).text.split()
    chosen = [name for name in listed if name.startswith("Test") and name not in NOT_OURS]
    done = clients.run(gohep / "xrootd.test", "-test.v", f"-test.run=^({'|'.join(chosen)})$", **expected)
    passed = set(re.findall(r"^\s*--- PASS: (\w+)/127\.0\.0\.1:\d+", done.text, re.MULTILINE))
    missing = WITH_OUR_SERVER - passed
    assert not missing, f"{sorted(missing)} did not pass\n{done}"


@pytest.mark.pair("go-hep 0.33", "xrd-cp: files, directories with -r")
def test_copy(area, clients, here, gohep):
    files = {"one": content(1), "d/some": content(3_000_001), "d/e/none": b""}
    for name, data in files.items():
        area.put(name, data)
    clients.run(gohep / "bin/xrd-cp", area.url("one"), here / "one")
    assert (here / "one").read_bytes() == files["one"]
    clients.run(gohep / "bin/xrd-cp", "-r", area.url("d"), here / "d")
    copied = {f"d/{path.relative_to(here / 'd')}": path.read_bytes() for path in (here / "d").rglob("*") if path.is_file()}
    assert copied == {name: data for name, data in files.items() if name.startswith("d/")}
    clients.run(gohep / "bin/xrd-cp", area.url("missing"), here / "missing", status=None)


@pytest.mark.pair("go-hep 0.33", "xrd-ls, with -l and -R")
def test_list(area, clients, gohep):
    area.put("f", b"12345")
    area.put("d/g", b"")
    assert {line.rsplit("/", 1)[-1] for line in clients.run(gohep / "bin/xrd-ls", area.url()).lines} >= {"f", "d"}
    rows = clients.run(gohep / "bin/xrd-ls", "-l", "-R", area.url()).text
    assert re.search(r"\b5\b.*\bf$", rows, re.MULTILINE) and re.search(r"\bg$", rows, re.MULTILINE)
    clients.run(gohep / "bin/xrd-ls", area.url("missing"), status=None)


@pytest.mark.pair("go-hep 0.33 as the server", "towpath cat, cp")
def test_server(gohep_server, clients, binary, here):
    data = content(3_000_001)
    (gohep_server.root / "file").write_bytes(data)
    assert clients.run(binary, "cat", gohep_server.url("file")).out == data
    clients.run(binary, "cp", "-q", gohep_server.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
