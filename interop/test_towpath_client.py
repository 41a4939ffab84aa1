"""The towpath client against XRootD 5.5, nginx and rclone, and against our own server."""

import hashlib
import json
import re
from dataclasses import dataclass

import pytest

from clients import Result, adler32, content, crc32c, tree
from credentials import Authority

SIZE = 50_000_001

# Fixture of the area, scheme, name of the server in the table.
XROOTD = [("xrootd_area", "root", "xrootd 5.5 root://"), ("xrootd_tls_area", "root", "xrootd 5.5 roots://")]
XROOTD_UNIX = [("xrootd_unix_area", "root", "xrootd 5.5 root:// with unix authentication")]
XROOTD_HTTP = [("xrootd_area", "http", "xrootd 5.5 http://")]
NGINX = [("nginx_area", "http", "nginx http://"), ("nginx_tls_area", "http", "nginx https://")]
RCLONE = [("rclone_area", "http", "rclone serve webdav http://")]
OURS = [("area", "root", "towpath root://"), ("tls_area", "root", "towpath roots://"),
        ("area", "http", "towpath http://"), ("tls_area", "http", "towpath https://")]


@dataclass
class Remote:
    """An area on a server, the towpath program, and the scheme of its URLs."""

    area: object
    scheme: str
    clients: object
    binary: object

    def url(self, name: str = "") -> str:
        """Returns the URL of a file in the area."""
        return self.area.url(name) if self.scheme == "root" else self.area.http(name)

    def towpath(self, *words, **more) -> Result:
        """Runs towpath."""
        return self.clients.run(self.binary, *words, **more)


def against(servers: list, operation: str, **more):
    """Runs a test against several servers."""
    return pytest.mark.parametrize("remote", [
        pytest.param((fixture, scheme), id=name.replace("://", "").replace(" ", "-"),
                     marks=pytest.mark.pair(f"towpath with {name}", operation, **more))
        for fixture, scheme, name in servers
    ], indirect=True)


@pytest.fixture
def remote(request, clients, binary) -> Remote:
    """The server of a parameter."""
    fixture, scheme = request.param
    return Remote(request.getfixturevalue(fixture), scheme, clients, binary)


def files() -> dict[str, bytes]:
    """A small tree."""
    made = {f"d{i % 3}/e/f{i}": content(100_000 * i + 7, i) for i in range(12)}
    return made | {"with blank & plus+": b"odd", "ünïcode/é": b"odder", "empty": b"", "100%": b"oddest"}


def write(directory, contents: dict[str, bytes]) -> None:
    """Writes files below a directory."""
    for name, data in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


def json_lines(result: Result) -> list[dict]:
    """Parses the output of a command as one JSON object per line."""
    return [json.loads(line) for line in result.lines]


@against(XROOTD + XROOTD_UNIX + XROOTD_HTTP + NGINX + RCLONE + OURS, "cp down and up")
def test_copy(remote, here):
    data = content(SIZE)
    remote.area.put("file", data)
    remote.towpath("cp", remote.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
    remote.towpath("cp", here / "file", remote.url("up"))
    assert (remote.area.local / "up").read_bytes() == data


@against(XROOTD + XROOTD_HTTP + NGINX + RCLONE + OURS, "cp of an empty file")
def test_copy_empty(remote, here):
    (here / "empty").write_bytes(b"")
    remote.towpath("cp", here / "empty", remote.url("empty"))
    assert (remote.area.local / "empty").read_bytes() == b""
    remote.towpath("cp", remote.url("empty"), here / "back")
    assert (here / "back").read_bytes() == b""


@against(XROOTD + RCLONE + OURS, "cp -r down and up")
def test_copy_tree(remote, here):
    write(here / "tree", files())
    remote.towpath("cp", "-r", here / "tree", remote.url())
    assert tree(remote.area.local / "tree") == files()
    remote.towpath("cp", "-r", remote.url("tree"), here / "back")
    assert tree(here / "back") == files()


@against(XROOTD + RCLONE + OURS, "sync up and down, twice, with --delete")
def test_sync(remote, here):
    def synchronise(*ends) -> dict:
        return json_lines(remote.towpath("sync", "--delete", "--json", *ends))[-1]

    write(here / "tree", files())
    (here / "tree" / "hollow").mkdir()
    done = synchronise(here / "tree", remote.url("tree"))
    assert (done["files"], done["failed"]) == (len(files()), 0)
    assert tree(remote.area.local / "tree") == files() and (remote.area.local / "tree" / "hollow").is_dir()
    done = synchronise(here / "tree", remote.url("tree"))
    assert (done["files"], done["same"], done["deleted"]) == (0, len(files()), 0)
    now = files() | {"new": b"new", "empty": b"no longer"}
    del now["100%"], now["d1/e/f1"]
    write(here / "tree", {name: now[name] for name in ("new", "empty")})
    for name in ("100%", "d1/e/f1"):
        (here / "tree" / name).unlink()
    planned = remote.towpath("sync", "--delete", "--dry-run", here / "tree", remote.url("tree")).lines
    assert sorted(planned) == ["copy empty (size)", "copy new (missing)", "delete 100%", "delete d1/e/f1"]
    done = synchronise(here / "tree", remote.url("tree"))
    assert (done["files"], done["deleted"]) == (2, 2)
    assert tree(remote.area.local / "tree") == now
    for files_copied in (len(now), 0):
        assert synchronise(remote.url("tree"), here / "back")["files"] == files_copied
    assert tree(here / "back") == now


# XrdHttp 5.5 rejects chunked uploads whose chunks are larger than its buffer.
@against(XROOTD + NGINX + RCLONE + OURS, "cp from standard input, to standard output")
def test_copy_streams(remote):
    data = content(9_000_123)
    remote.towpath("cp", "-", remote.url("file"), stdin=data)
    assert (remote.area.local / "file").read_bytes() == data
    assert remote.towpath("cp", remote.url("file"), "-").out == data


# Names with characters that XRootD's HTTP plug-in treats as part of the name, unlike in a URL.
ODD = {"%41": b"percent", "A": b"letter", "a#b": b"hash", "e ": b"blank", "x&y": b"and", "%2F": b"slash", "d%20/f": b"deep"}


@against(XROOTD_HTTP, "cp -r and sync --delete of names that look encoded", note="but none with a question mark")
def test_odd_names(remote, here):
    for name, data in ODD.items():
        remote.area.put(name, data)
    remote.towpath("cp", "-r", remote.url(), here / "copy")
    assert tree(here / "copy") == ODD
    write(here / "synced", ODD | {"extra": b"x"})
    done = json_lines(remote.towpath("sync", "--delete", "--compare", "size", "--json", remote.url(), here / "synced"))[-1]
    assert (done["deleted"], done["failed"]) == (1, 0) and tree(here / "synced") == ODD


@against(XROOTD_HTTP, "a name with a question mark is an error", note="XrdHttp 5.5 takes the rest for parameters")
def test_question_mark(remote, here):
    for name, data in ODD.items():
        remote.area.put(name, data)
    other, named = remote.area.put("c", b"another file"), remote.area.put("c?d", b"question mark")
    failed = remote.towpath("cp", "-r", remote.url(), here / "copy", status=None)
    assert b"c?d" in failed.err and b"question mark" in failed.err
    assert tree(here / "copy") == ODD | {"c": b"another file"}
    write(here / "synced", ODD | {"c?d": b"kept", "extra": b"x"})
    remote.towpath("sync", "--delete", remote.url(), here / "synced", status=None)
    assert (here / "synced" / "c?d").read_bytes() == b"kept"
    remote.towpath("rm", remote.url("c%3Fd"), status=5)
    assert other.exists() and named.exists()


@against(XROOTD + NGINX + RCLONE + OURS, "cp over a file needs -f")
def test_copy_existing(remote, here):
    old, new = content(5000, 1), content(3000, 2)
    remote.area.put("file", old)
    (here / "file").write_bytes(new)
    refused = remote.towpath("cp", here / "file", remote.url("file"), status=6)
    assert b"exists" in refused.err
    assert (remote.area.local / "file").read_bytes() == old
    remote.towpath("cp", "-f", here / "file", remote.url("file"))
    assert (remote.area.local / "file").read_bytes() == new


@against(XROOTD + NGINX + RCLONE + OURS, "a missing file is refused, nothing is left")
def test_missing(remote, here):
    refused = remote.towpath("cp", remote.url("absent"), here / "file", status=3)
    assert b"no such file" in refused.err.lower()
    assert list(here.iterdir()) == []


@against(XROOTD_HTTP, "a missing file is refused, nothing is left", note="XrdHttp 5.5 says 500, not 404")
def test_missing_told_badly(remote, here):
    refused = remote.towpath("cp", remote.url("absent"), here / "file", status=None)
    assert b"answered 500" in refused.err or b"no such file" in refused.err.lower()
    assert list(here.iterdir()) == []


@against(XROOTD + XROOTD_HTTP + NGINX + RCLONE + OURS, "cat, cat --range")
def test_cat(remote):
    data = content(9_000_123)
    remote.area.put("file", data)
    assert remote.towpath("cat", remote.url("file")).out == data
    assert remote.towpath("cat", "--range", "4095-8192", remote.url("file")).out == data[4095:8193]
    assert remote.towpath("cat", "--range", "-17", remote.url("file")).out == data[-17:]


@against(XROOTD + XROOTD_HTTP + RCLONE + OURS, "ls, ls -l, ls -R --json")
def test_list(remote):
    write(remote.area.local, {"a/b/deep": b"12345", "top": b"123"})
    remote.area.put("top", b"123")
    assert remote.towpath("ls", remote.url()).lines == ["a", "top"]
    assert re.search(r"^- .* 3 .* top$", remote.towpath("ls", "-l", remote.url()).text, re.MULTILINE)
    found = {entry["path"]: (entry["kind"], entry["size"]) for entry in json_lines(remote.towpath("ls", "-R", "--json", remote.url()))}
    assert found["a/b/deep"] == ("file", 5) and found["top"] == ("file", 3) and found["a/b"][0] == "directory"


@against(XROOTD + XROOTD_HTTP + NGINX + RCLONE + OURS, "stat")
def test_stat(remote):
    remote.area.put("file", content(12_345))
    (found,) = json_lines(remote.towpath("stat", "--json", remote.url("file")))
    assert (found["kind"], found["size"]) == ("file", 12_345)
    assert b"/absent: " in remote.towpath("stat", remote.url("absent"), status=3).err


@against(XROOTD + OURS, "sum (adler32, crc32c, md5)")
def test_sum(remote):
    data = content(1_000_003)
    remote.area.put("file", data)
    for algorithm, expected in (("adler32", adler32(data)), ("crc32c", crc32c(data)), ("md5", hashlib.md5(data).hexdigest())):
        assert remote.towpath("sum", "--algorithm", algorithm, remote.url("file")).text.split()[0] == expected


@against(XROOTD + RCLONE + OURS, "mkdir -p, mv, rm -r")
def test_names(remote):
    data = content(1000)
    remote.towpath("mkdir", "-p", remote.url("a/b/c"))
    assert (remote.area.local / "a/b/c").is_dir()
    remote.area.put("a/b/c/file", data)
    remote.towpath("mv", remote.url("a/b/c/file"), remote.url("a/moved"))
    assert (remote.area.local / "a/moved").read_bytes() == data
    assert b"use -r" in remote.towpath("rm", remote.url("a"), status=5).err
    remote.towpath("rm", "-r", remote.url("a"))
    assert not (remote.area.local / "a").exists()


@against(XROOTD + OURS, "rm -r keeps what links lead to")
def test_links(remote):
    kept = remote.area.put("kept/file", b"content")
    remote.area.put("tree/d/file", b"x")
    (remote.area.local / "tree/link").symlink_to("../kept")
    (remote.area.local / "tree/d/link").symlink_to("../../kept")
    remote.towpath("rm", "-r", remote.url("tree"))
    assert not (remote.area.local / "tree").exists() and kept.read_bytes() == b"content"


@against(XROOTD + XROOTD_HTTP + RCLONE + OURS, "find, du, patterns in URLs")
def test_selection(remote):
    for name, size in (("d/a.root", 1000), ("d/b.root", 2000), ("d/c.txt", 3000), ("d/e/f.root", 4000)):
        remote.area.put(name, content(size))
    found = remote.towpath("find", remote.url("d"), "-name", "*.root", "-type", "f", "-size", "+1500c").text.split()
    assert sorted(found) == [remote.url("d/b.root"), remote.url("d/e/f.root")]
    assert [remote.towpath("stat", "--json", url).status for url in found] == [0, 0]
    (used,) = json_lines(remote.towpath("du", "-s", "--json", remote.url("d")))
    assert (used["bytes"], used["files"], used["directories"]) == (10_000, 4, 1)
    digests = remote.towpath("sum", remote.url("d/*.root")).text.splitlines()
    assert [line.split()[1] for line in digests] == [remote.url("d/a.root"), remote.url("d/b.root")]
    remote.towpath("rm", remote.url("*/*.root"))
    assert sorted(path.name for path in (remote.area.local / "d").iterdir()) == ["c.txt", "e"]
    assert b"no path matches" in remote.towpath("cat", remote.url("d/*.root"), status=3).err


@against(XROOTD + OURS, "df")
def test_space(remote):
    (found,) = json_lines(remote.towpath("df", "--json", remote.url()))
    assert 0 < found["free"]


@against(XROOTD + XROOTD_HTTP + NGINX + RCLONE + OURS, "ping")
def test_ping(remote):
    (found,) = json_lines(remote.towpath("ping", "--json", "-c", "3", remote.url()))
    assert found["count"] == 3 and 0 < found["min_ms"] <= found["max_ms"]


@pytest.mark.pair("towpath with xrootd 5.5 root://", "cp from it to towpath and back, between servers")
def test_between_servers(xrootd_area, area, clients, binary):
    data = content(SIZE)
    xrootd_area.put("file", data)
    clients.run(binary, "cp", xrootd_area.url("file"), area.url("file"))
    assert (area.local / "file").read_bytes() == data
    clients.run(binary, "cp", area.http("file"), xrootd_area.url("back"))
    assert (xrootd_area.local / "back").read_bytes() == data


@against([("xrootd_tls_area", "root", "xrootd 5.5 roots://"), *NGINX[1:]], "TLS refuses an unknown authority")
def test_tls_unknown_authority(remote, here):
    remote.area.put("file", b"x")
    other = str(Authority(here / "other").file)
    refused = remote.towpath("cp", remote.url("file"), here / "file", status=None, SSL_CERT_FILE=other, TOWPATH_CA_FILE=other,
                             X509_CERT_DIR="")
    assert b"certificate" in refused.err.lower()
    assert not (here / "file").exists()
