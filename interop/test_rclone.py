"""rclone against our server, with its WebDAV and its HTTP backend."""

import json
import os

import pytest

from clients import content, tree


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("rclone", operation, **more)


@pytest.fixture
def rclone(clients):
    """Runs an rclone command."""
    def run(*words, status: int | None = 0, stdin: bytes = b""):
        return clients.run("rclone", "--config", "", "--retries", "1", "--low-level-retries", "1", *words, status=status, stdin=stdin)

    return run


def webdav(area, name: str = "", vendor: str = "other") -> str:
    """Returns a remote of rclone's WebDAV backend."""
    return f":webdav,url='{area.server.http('/')}',vendor={vendor}:{area.path}/{name}"


def http(area, name: str = "") -> str:
    """Returns a remote of rclone's HTTP backend, which reads our listing pages."""
    return f":http,url='{area.server.http('/')}':{area.path}/{name}"


@pytest.fixture
def files() -> dict[str, bytes]:
    """A small tree with unusual names."""
    made = {f"d{i % 3}/e/f{i}": content(10_000 * i + 7, i) for i in range(12)}
    return made | {"with blank & plus+": b"odd", "ünïcode/é": b"odder", "empty": b"", "100%": b"oddest"}


def write(directory, files: dict[str, bytes]) -> None:
    """Writes files below a directory."""
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)


@pair("webdav: copy up, check --download, copy down")
def test_webdav_copy(area, rclone, here, files):
    write(here / "up", files)
    rclone("copy", here / "up", webdav(area, "tree"))
    assert tree(area.local / "tree") == files
    rclone("check", "--download", here / "up", webdav(area, "tree"))
    rclone("copy", webdav(area, "tree"), here / "down")
    assert tree(here / "down") == files


@pair("webdav, as to ownCloud: times are kept")
def test_webdav_times(area, rclone, here):
    (here / "up").mkdir()
    (here / "up" / "file").write_bytes(b"content")
    os.utime(here / "up" / "file", (1_500_000_000, 1_500_000_000))
    rclone("copy", here / "up", webdav(area, "up", "owncloud"))
    assert (area.local / "up" / "file").stat().st_mtime == 1_500_000_000


@pair("webdav: check finds a difference")
def test_webdav_check_difference(area, rclone, here, files):
    write(here, files)
    write(area.local, files | {"d1/e/f1": content(10_007, 99)})
    result = rclone("check", "--download", "--combined", "-", here, webdav(area), status=None)
    assert [line for line in result.lines if not line.startswith("= ")] == ["* d1/e/f1"]


@pair("webdav: sync (new, changed, deleted)")
def test_webdav_sync(area, rclone, here, files):
    write(area.local / "tree", files | {"gone": b"x", "d1/e/f1": b"changed"})
    write(here, files)
    rclone("sync", "--ignore-times", here, webdav(area, "tree"))
    assert tree(area.local / "tree") == files


@pair("webdav: lsjson, cat with a range")
def test_webdav_list(area, rclone, files):
    write(area.local, files)
    entries = json.loads(rclone("lsjson", "-R", "--files-only", webdav(area)).text)
    assert {entry["Path"]: entry["Size"] for entry in entries} == {name: len(data) for name, data in files.items()}
    assert rclone("cat", "--offset", "50", "--count", "100", webdav(area, "d1/e/f4")).out == files["d1/e/f4"][50:150]


@pair("webdav: rcat (unknown length), moveto, deletefile, mkdir, purge")
def test_webdav_names(area, rclone):
    data = content(2_000_000)
    rclone("rcat", webdav(area, "one"), stdin=data)
    assert (area.local / "one").read_bytes() == data
    rclone("moveto", webdav(area, "one"), webdav(area, "two"))
    assert tree(area.local) == {"two": data}
    rclone("deletefile", webdav(area, "two"))
    assert tree(area.local) == {}
    rclone("mkdir", webdav(area, "a/b"))
    assert (area.local / "a/b").is_dir()
    rclone("purge", webdav(area, "a"))
    assert not (area.local / "a").exists()


@pair("webdav: copyto on the server (COPY)")
def test_webdav_copyto(area, rclone):
    data = content(1_000_000)
    area.put("one", data)
    rclone("copyto", webdav(area, "one"), webdav(area, "two"))
    assert tree(area.local) == {"one": data, "two": data}


@pair("webdav: about (space)")
def test_webdav_about(area, rclone):
    found = json.loads(rclone("about", "--json", webdav(area)).text)
    assert found["free"] > 0 and found["used"] >= 0


@pair("http: copy down, check --download")
def test_http_copy(area, rclone, here, files):
    write(area.local / "tree", files)
    rclone("copy", http(area, "tree"), here / "down")
    assert tree(here / "down") == files
    rclone("check", "--download", here / "down", http(area, "tree"))


@pair("webdav with TLS: copy up, copy down")
def test_webdav_tls(tls_area, rclone, here, files):
    write(here / "up", files)
    rclone("copy", here / "up", webdav(tls_area, "tree"))
    assert tree(tls_area.local / "tree") == files
    rclone("copy", webdav(tls_area, "tree"), here / "down")
    assert tree(here / "down") == files
