"""Runs operations of XRootD's Python bindings on a server, and prints the results as one JSON object; run by
test_xrootd_python.py with both versions.

    python xrootd_bindings.py OPERATION ROOT_URL DIRECTORY       (ROOT_URL ends before the directory's path)

A separate process is needed, because the bindings' threads do not support forking, and because the two versions exclude
each other. Data are represented by their SHA-256.
"""

import hashlib
import json
import sys
import threading
from collections.abc import Callable

from XRootD import client
from XRootD.client.flags import DirListFlags, OpenFlags, QueryCode, StatInfoFlags

OPERATIONS: dict[str, Callable] = {}


def operation(function: Callable) -> Callable:
    """Registers a function as an operation."""
    OPERATIONS[function.__name__] = function
    return function


def sha(data: bytes) -> str:
    """Returns the SHA-256 of bytes, in hex."""
    return hashlib.sha256(data).hexdigest()


def text(line: bytes | str) -> str:
    """Returns a line as text; version 5.5 returns bytes."""
    return line.decode() if isinstance(line, bytes) else line


def outcome(status) -> str:
    """Returns `ok`, or the error number from the server."""
    if isinstance(status, dict):  # the bindings return the outcome of one attribute as a dict
        return "ok" if status["ok"] else str(status["errno"] or status["code"])
    return "ok" if status.ok else str(status.errno or status.code)


def opened(url: str, flags: int = 0) -> client.File:
    """Opens a file."""
    file = client.File()
    status, _ = file.open(url, flags)
    assert status.ok, status.message
    return file


@operation
def read(base: str, directory: str) -> dict:
    """Reads the whole file, a range, a range across the end, a range behind it, and lines."""
    with opened(f"{base}/{directory}/file") as file:
        found = {
            "size": file.stat()[1].size,
            "whole": sha(file.read()[1]),
            "piece": sha(file.read(4095, 10_000)[1]),
            "end": len(file.read(999_000, 10_000)[1]),
            "behind": len(file.read(2_000_000, 10)[1]),
        }
    with opened(f"{base}/{directory}/lines") as file:
        return found | {"lines": [text(line) for line in file.readlines()]}


def vector(file: client.File, chunks: list[tuple[int, int]]) -> tuple[str, str]:
    """Returns the outcome of a vector read, and the SHA-256 of its buffers."""
    status, answer = file.vector_read(chunks)
    if not status.ok:
        return outcome(status), ""
    assert [(chunk.offset, chunk.length) for chunk in answer.chunks] == chunks
    return "ok", sha(b"".join(chunk.buffer for chunk in answer.chunks))


@operation
def vector_read(base: str, directory: str) -> dict:
    """Vector reads: several ranges in any order, overlapping ones, 1,024 ones, one of the maximum size, and more than
    each maximum."""
    with opened(f"{base}/{directory}/file") as file:
        size = file.stat()[1].size
        return {
            "some": vector(file, [(500_000, 100), (0, 1), (7, 4096), (0, 10), (size - 1, 1)]),
            "most": vector(file, [(i * 700, 16) for i in range(1024)]),
            "greatest": vector(file, [(1, 2_097_136)]),
            "past_end": vector(file, [(0, 10), (size - 5, 10)])[0],
        }


@operation
def dirlist(base: str, directory: str) -> dict:
    """A listing with the stat of each entry."""
    status, listing = client.FileSystem(base).dirlist(f"/{directory}", DirListFlags.STAT)
    assert status.ok, status.message
    return {
        entry.name: [entry.statinfo.size, bool(entry.statinfo.flags & StatInfoFlags.IS_DIR), entry.statinfo.modtime]
        for entry in listing
    }


@operation
def asynchronous(base: str, directory: str) -> dict:
    """64 concurrent reads of one file, each with a callback."""
    done, lock, answers = threading.Event(), threading.Lock(), {}

    def keep(offset: int) -> Callable:
        def callback(status, data, _hosts):
            with lock:
                answers[offset] = data if status.ok else outcome(status)
                if len(answers) == 64:
                    done.set()

        return callback

    with opened(f"{base}/{directory}/file") as file:
        for index in range(64):
            file.read(index * 10_000, 10_000, callback=keep(index * 10_000))
        assert done.wait(30), "not all callbacks came"
    return {"whole": sha(b"".join(answers[offset] for offset in sorted(answers)))}


@operation
def write(base: str, directory: str) -> dict:
    """Positional writes in any order, reads through the same handle, truncate, sync."""
    url = f"{base}/{directory}/written"
    with opened(url, OpenFlags.NEW | OpenFlags.UPDATE) as file:
        for offset in (100_000, 0, 200_000):
            status, _ = file.write(bytes([offset // 100_000 + 1]) * 100_000, offset)
            assert status.ok, status.message
        assert file.sync()[0].ok
        back = sha(file.read(0, 300_000)[1])
        assert file.truncate(250_000)[0].ok
    status, info = client.FileSystem(base).stat(f"/{directory}/written")
    again = client.File().open(url, OpenFlags.NEW | OpenFlags.UPDATE)[0]
    return {"back": back, "size": info.size, "again": outcome(again)}


@operation
def filesystem(base: str, directory: str) -> dict:
    """Names: mkdir, mv, stat, rm, rmdir, query, ping, protocol."""
    server = client.FileSystem(base)
    steps = {
        "ping": server.ping()[0],
        "mkdir": server.mkdir(f"/{directory}/made")[0],
        "mv": server.mv(f"/{directory}/made", f"/{directory}/moved")[0],
        "rmdir": server.rmdir(f"/{directory}/moved")[0],
        "rm absent": server.rm(f"/{directory}/absent")[0],
        "stat absent": server.stat(f"/{directory}/absent")[0],
        "statvfs": server.statvfs(f"/{directory}")[0],
        "protocol": server.protocol()[0],
    }
    checksum = server.query(QueryCode.CHECKSUM, f"/{directory}/file")[1].decode().rstrip("\0").split()
    limits = server.query(QueryCode.CONFIG, "readv_ior_max readv_iov_max")[1].decode().split()
    return {name: outcome(status) for name, status in steps.items()} | {"checksum": checksum, "limits": limits}


@operation
def attributes(base: str, directory: str) -> dict:
    """Extended attributes through an open file and through a path."""
    server = client.FileSystem(base)
    path = f"/{directory}/file"
    made = server.set_xattr(path, [("colour", "green"), ("shape", "round")])
    got = server.get_xattr(path, ["colour", "absent"])
    with opened(f"{base}/{directory}/file", OpenFlags.UPDATE) as file:
        by_handle = file.get_xattr(["shape"])
        deleted = file.del_xattr(["shape"])
    listed = server.list_xattr(path)
    return {
        "set": [[name, outcome(status)] for name, status in made[1]],
        "get": [[name, value, outcome(status)] for name, value, status in got[1]],
        "by handle": [[name, value] for name, value, _ in by_handle[1]],
        "deleted": [outcome(status) for _, status in deleted[1]],
        "list": [[name, value] for name, value, _ in listed[1]],
    }


@operation
def many_open(base: str, count: str) -> dict:
    """Opens the files f0, f1, ... over four connections, and reads each in two parts, all of them open meanwhile. File N
    has the same content as the file 0 from byte N % 1000."""
    files, error = [], ""
    for number in range(int(count)):
        file = client.File()
        status, _ = file.open(f"{base.replace('://', f'://u{number % 4}@')}/f{number}")
        if not status.ok:
            error = text(status.message)
            break
        files.append(file)
    whole = files[0].read(0, 1 << 20)[1] if files else b""
    wrong = set()
    for part in ((0, 100), (100, 1 << 20)):
        for number, file in enumerate(files):
            expected = whole[number % 1000:][part[0]:part[0] + part[1]]
            if file.read(*part)[1] != expected:
                wrong.add(number)
    return {"opened": len(files), "wrong": sorted(wrong)[:10], "error": error}


if __name__ == "__main__":
    name, base, directory = sys.argv[1:]
    print(json.dumps(OPERATIONS[name](base, directory)))
