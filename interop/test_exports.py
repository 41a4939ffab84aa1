"""Real clients against a server with several exports."""

import pytest

from clients import content, tree
from servers import start_towpath

CONFIG = """
[[export]]
prefix = "/vo/atlas"
root = "{directory}/atlas"
[[export]]
prefix = "/public"
root = "{directory}/public"
writable = false
"""


def pair(client: str, operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair(client, operation, **more)


@pytest.fixture(scope="module")
def exports(base, binary):
    """A server with a writable and a read-only export, and the directory that has both."""
    directory = base / "exports"
    for name in ("atlas/run1", "public"):
        (directory / name).mkdir(parents=True)
    (directory / "public/hello").write_bytes(content(100_000))
    server = start_towpath(binary, directory, config=CONFIG.format(directory=directory))
    yield server, directory
    server.stop()


@pair("xrdfs", "several exports: ls, mkdir, mv, rm")
def test_xrdfs(exports, clients):
    server, directory = exports

    def xrdfs(*words, status: int | None = 0):
        return clients.run("xrdfs", server.address, *words, status=status)

    assert sorted(xrdfs("ls", "/").lines) == ["/public", "/vo"]
    assert xrdfs("ls", "/vo").lines == ["/vo/atlas"]
    assert "/vo/atlas/run1" in xrdfs("ls", "-R", "/vo").lines
    xrdfs("mkdir", "-p", "/vo/atlas/a/b")
    xrdfs("mv", "/vo/atlas/a", "/vo/atlas/c")
    xrdfs("rmdir", "/vo/atlas/c/b")
    xrdfs("rmdir", "/vo/atlas/c")
    assert b"[3025]" in xrdfs("rm", "/public/hello", status=None).err
    assert xrdfs("mv", "/vo/atlas/run1", "/public/run1", status=None).status != 0
    assert xrdfs("rmdir", "/vo/atlas", status=None).status != 0
    assert xrdfs("mkdir", "/vo/cms", status=None).status != 0
    assert (directory / "atlas/run1").is_dir() and (directory / "public/hello").exists()


@pair("xrdfs", "several exports: the space of each")
def test_space(exports, clients):
    server, _ = exports
    assert b"oss.free=" in clients.run("xrdfs", server.address, "query", "space", "/public").out
    refused = clients.run("xrdfs", server.address, "query", "space", "/", status=None)
    assert refused.status != 0 and b"query one of /vo/atlas, /public" in refused.err


@pair("xrdcp", "several exports: up, down, from one to another")
def test_xrdcp(exports, clients, here):
    server, directory = exports
    clients.run("xrdcp", "--cksum", "adler32:source", server.url("/public/hello"), here / "hello")
    clients.run("xrdcp", here / "hello", server.url("/vo/atlas/up"))
    clients.run("xrdcp", server.url("/public/hello"), server.url("/vo/atlas/copied"))
    assert (directory / "atlas/up").read_bytes() == (directory / "atlas/copied").read_bytes() == content(100_000)
    refused = clients.run("xrdcp", here / "hello", server.url("/public/new"), status=None)
    assert b"the export /public is read-only" in refused.err
    refused = clients.run("xrdcp", here / "hello", server.url("/elsewhere"), status=None)
    assert b"only the exports can be changed: /vo/atlas, /public" in refused.err


@pair("rclone", "several exports: sync between them by WebDAV, and the root as a tree")
def test_rclone(exports, clients, here):
    server, directory = exports

    def rclone(*words):
        return clients.run("rclone", "--config", "", "--retries", "1", "--low-level-retries", "1", *words)

    remote = f":webdav,url='{server.http('/')}',vendor=other:"
    rclone("sync", f"{remote}public", f"{remote}vo/atlas/mirror")
    assert tree(directory / "atlas/mirror") == {"hello": content(100_000)}
    rclone("copy", remote, here)
    assert (here / "public/hello").read_bytes() == content(100_000)
    assert (here / "vo/atlas/mirror/hello").read_bytes() == content(100_000)


@pair("davix", "several exports: an export is not removed")
def test_davix(exports, clients):
    server, directory = exports
    assert clients.run("davix-ls", server.http("/")).lines == ["public", "vo"]
    assert b"403" in clients.run("davix-rm", server.http("/vo/atlas"), status=None).err
    assert (directory / "atlas/run1").is_dir()
