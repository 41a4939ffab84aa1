"""XRootD's Python bindings against our server: Debian's 5.5 and the wheel of version 6 (see xrootd_bindings.py)."""

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from clients import adler32, content

SCRIPT = Path(__file__).with_name("xrootd_bindings.py")
BINDINGS = {"python3-xrootd 5.5": "/usr/bin/python3", "xrootd wheel 6.2": sys.executable}
SIZE = 3_000_001


def both(operation: str, **more):
    """Runs a test with both versions."""
    return pytest.mark.parametrize("interpreter", [
        pytest.param(path, id=name.split()[0], marks=pytest.mark.pair(name, operation, **more)) for name, path in BINDINGS.items()
    ])


@pytest.fixture
def see(clients):
    """Runs an operation of xrootd_bindings.py on an area."""
    def run(interpreter: str, operation: str, area) -> dict:
        base = f"{'roots' if area.server.tls else 'root'}://127.0.0.1:{area.server.port}/"
        done = clients.run(interpreter, SCRIPT, operation, base, area.path.lstrip("/"), XRD_LOGLEVEL="Error")
        return json.loads(done.text)

    return run


def sha(data: bytes) -> str:
    """Returns the SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


@both("File.read, stat, lines")
def test_read(area, see, interpreter):
    data = content(1_000_000)
    area.put("file", data)
    area.put("lines", b"one\ntwo\nthree")
    assert see(interpreter, "read", area) == {
        "size": len(data), "whole": sha(data), "piece": sha(data[4095:14_095]), "end": 1000, "behind": 0,
        "lines": ["one\n", "two\n", "three"],
    }


@both("File.vector_read: 1,024 ranges, 2,097,136 bytes each; past the end is refused")
def test_vector_read(area, see, interpreter):
    data = content(SIZE)
    area.put("file", data)
    some = data[500_000:500_100] + data[:1] + data[7:4103] + data[:10] + data[-1:]
    found = see(interpreter, "vector_read", area)
    assert found["some"] == ["ok", sha(some)]
    assert found["most"] == ["ok", sha(b"".join(data[i * 700:i * 700 + 16] for i in range(1024)))]
    assert found["greatest"] == ["ok", sha(data[1:2_097_137])]
    assert found["past_end"] == "3005"


@both("FileSystem.dirlist with stat")
def test_dirlist(area, see, interpreter):
    file = area.put("file", content(12_345))
    (area.local / "dir").mkdir()
    for path in (file, area.local / "dir"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    found = see(interpreter, "dirlist", area)
    assert set(found) == {"file", "dir"}
    assert found["file"][:2] == [12_345, False] and found["dir"][1] is True
    assert found["file"][2] == found["dir"][2] == 1_600_000_000


@both("64 asynchronous reads at once")
def test_asynchronous(area, see, interpreter):
    data = content(640_000)
    area.put("file", data)
    assert see(interpreter, "asynchronous", area) == {"whole": sha(data)}


@both("File.write in any order, read back, truncate, sync")
def test_write(area, see, interpreter):
    data = b"\x01" * 100_000 + b"\x02" * 100_000 + b"\x03" * 100_000
    assert see(interpreter, "write", area) == {"back": sha(data), "size": 250_000, "again": "3018"}
    assert (area.local / "written").read_bytes() == data[:250_000]


@both("FileSystem: ping, protocol, mkdir, mv, rmdir, rm, stat, statvfs, query")
def test_filesystem(area, see, interpreter):
    data = content(100_000)
    area.put("file", data)
    assert see(interpreter, "filesystem", area) == {
        "ping": "ok", "mkdir": "ok", "mv": "ok", "rmdir": "ok", "rm absent": "3011", "stat absent": "3011", "statvfs": "ok",
        "protocol": "ok", "checksum": ["adler32", adler32(data)], "limits": ["2097136", "1024"],
    }


@pytest.mark.pair("xrootd wheel 6.2", "extended attributes: set, get, list, delete", note="broken in the bindings of 5.5")
def test_attributes(area, see):
    area.put("file", b"x")
    assert see(sys.executable, "attributes", area) == {
        "set": [["colour", "ok"], ["shape", "ok"]],
        "get": [["colour", "green", "ok"], ["absent", "", "3027"]],
        "by handle": [["shape", "round"]],
        "deleted": ["ok"],
        "list": [["colour", "green"]],
    }


@both("vector_read with TLS (roots://)")
def test_tls(tls_area, see, interpreter):
    data = content(SIZE)
    tls_area.put("file", data)
    assert see(interpreter, "vector_read", tls_area)["greatest"] == ["ok", sha(data[1:2_097_137])]
