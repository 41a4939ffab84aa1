"""towpath with a bucket of gofakes3, which lists a directory's marker among the objects of its parent, as s3proxy does.
"""

import urllib.request

import pytest

from clients import tree
from servers import HOST
from test_towpath_client import write

CLIENT = "towpath with gofakes3 s3://"
OBJECTS = {"tree/": b"", "tree/sub/": b"", "tree/sub/f": b"deep", "tree/empty/": b"", "tree/g": b"flat"}


def proves(operation: str):
    """Returns the mark of a row in the table."""
    return pytest.mark.pair(CLIENT, operation)


@pytest.fixture
def bucket(gofakes3_server, clients, binary):
    """Writes objects like other programs, including directory markers, and returns a function that runs towpath."""
    port = gofakes3_server.port
    environment = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
                   "AWS_ENDPOINT_URL": f"http://{HOST}:{port}"}

    def put(objects: dict[str, bytes]) -> None:
        for key, data in objects.items():
            request = urllib.request.Request(f"http://{HOST}:{port}/bucket/{key}", data, method="PUT")
            urllib.request.urlopen(request, timeout=10).close()

    put(OBJECTS)

    def towpath(*words, status: int = 0):
        return clients.run(binary, *words, status=status, **environment)

    towpath.put = put
    return towpath


@proves("cp -r of a tree with markers: all of it, empty directories too")
def test_tree_with_markers(bucket, here):
    bucket("cp", "-r", "s3://bucket/tree", here / "out")
    assert tree(here / "out") == {"sub/f": b"deep", "g": b"flat"}
    assert (here / "out/empty").is_dir()


@proves("sync --delete of a tree with markers: existing files stay")
def test_sync_with_markers(bucket, here):
    write(here / "out", {"sub/f": b"deep", "g": b"flat", "extra": b"goes"})
    (here / "out/empty").mkdir()
    bucket("sync", "--delete", "--compare", "size", "s3://bucket/tree", here / "out")
    assert tree(here / "out") == {"sub/f": b"deep", "g": b"flat"}
    assert (here / "out/empty").is_dir()


@proves("a key that ends in a slash and has content: named, and nothing is deleted beside it")
def test_key_with_slash(bucket, here):
    bucket.put({"tree/sub/": b"content"})
    write(here / "out", {"sub/kept": b"here"})
    refused = bucket("cp", "-r", "s3://bucket/tree", here / "copy", status=5)
    assert b"/tree/sub" in refused.err
    assert tree(here / "copy") == {"sub/f": b"deep", "g": b"flat"}
    bucket("sync", "--delete", "s3://bucket/tree", here / "out", status=5)
    assert (here / "out/sub/kept").read_bytes() == b"here"
