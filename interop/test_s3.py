"""towpath with S3 buckets: SeaweedFS is the object store, and rclone, another S3 client, verifies the objects that
towpath writes."""

import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients import Result, content, crc32c, eventually, tree
from servers import HOST, SEAWEED_KEYS
from test_towpath_client import files, json_lines, write

CLIENT = "towpath with SeaweedFS s3://"
LARGE = 70_000_001


def proves(operation: str):
    """Returns the mark of a row in the table."""
    return pytest.mark.pair(CLIENT, operation)


@dataclass
class Bucket:
    """A bucket of one test, the towpath program, and rclone."""

    name: str
    port: int
    clients: object
    binary: Path

    @property
    def environment(self) -> dict[str, str]:
        """Credentials and endpoint."""
        return SEAWEED_KEYS | {"AWS_ENDPOINT_URL": f"http://{HOST}:{self.port}", "AWS_REGION": "us-east-1"}

    def url(self, name: str = "") -> str:
        """Returns the URL of a key."""
        return f"s3://{self.name}/{name}"

    def towpath(self, *words, status: int | None = 0, stdin: bytes = b"", **more: str) -> Result:
        """Runs towpath."""
        return self.clients.run(self.binary, *words, status=status, stdin=stdin, **(self.environment | more))

    def rclone(self, *words) -> Result:
        """Runs rclone, with the bucket as `s3:NAME`."""
        settings = {"TYPE": "s3", "PROVIDER": "Other", "ENV_AUTH": "true", "ENDPOINT": f"http://{HOST}:{self.port}"}
        more = {f"RCLONE_CONFIG_S3_{name}": value for name, value in settings.items()}
        return self.clients.run("rclone", *words, **(self.environment | more))

    def get(self, name: str) -> bytes:
        """Returns the object of a key, read by rclone."""
        return self.rclone("cat", f"s3:{self.name}/{name}").out

    def keys(self) -> list[str]:
        """Returns all keys, listed by rclone."""
        return sorted(self.rclone("lsf", "-R", "--files-only", f"s3:{self.name}").lines)

    def parts(self) -> dict:
        """Returns multipart uploads that are neither complete nor aborted."""
        found = json.loads(self.rclone("backend", "list-multipart-uploads", f"s3:{self.name}").out)
        return {key: uploads for key, uploads in found.items() if uploads}


@pytest.fixture
def bucket(request, clients, binary, seaweed_server) -> Bucket:
    """A bucket created by towpath."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.lower()).strip("-")
    made = Bucket(name, seaweed_server.port, clients, binary)
    made.towpath("mkdir", made.url())
    return made


@proves("cp up and down, small and in parts; rclone reads and writes the same")
def test_copy(bucket, here):
    for size in (0, 1, 5_000_000, 8 << 20, LARGE):
        data = content(size)
        (here / "file").write_bytes(data)
        bucket.towpath("cp", here / "file", bucket.url(f"d/{size}"))
        assert bucket.get(f"d/{size}") == data
        bucket.rclone("copyto", here / "file", f"s3:{bucket.name}/rclone/{size}")
        for name in (f"d/{size}", f"rclone/{size}"):
            bucket.towpath("cp", "-f", bucket.url(name), here / "back")
            assert (here / "back").read_bytes() == data
    assert bucket.parts() == {}


@proves("cp -r up and down, names with blanks, percent signs, UTF-8")
def test_tree(bucket, here):
    write(here / "tree", files())
    bucket.towpath("cp", "-r", here / "tree", bucket.url())
    bucket.rclone("copy", f"s3:{bucket.name}/tree", here / "seen")
    assert tree(here / "seen") == files()
    bucket.towpath("cp", "-r", bucket.url("tree"), here / "back")
    assert tree(here / "back") == files()
    again = bucket.towpath("cp", "-r", "--skip-existing", "--json", here / "tree", bucket.url())
    assert json_lines(again)[-1]["skipped"] == len(files())


@proves("cp from standard input, to standard output; cat --range")
def test_streams(bucket):
    data = content(20_000_123)
    bucket.towpath("cp", "-", bucket.url("file"), stdin=data)
    assert bucket.get("file") == data
    assert bucket.towpath("cp", bucket.url("file"), "-").out == data
    assert bucket.towpath("cat", "--range", "4095-8192", bucket.url("file")).out == data[4095:8193]


@proves("s3 to root, root to s3, s3 to http, http to s3, s3 to s3, verified: small files and large ones")
def test_between(bucket, area, here):
    many = {f"many/{i % 7}/{i}": content(i * 37 % 20_000, i) for i in range(500)}
    write(area.local / "tree", many | {"large": content(LARGE)})
    expected = tree(area.local / "tree")

    def copied(source: str, destination: str) -> list[dict]:
        lines = json_lines(bucket.towpath("cp", "-r", "--json", "--checksum", "crc32c", source, destination))
        assert (lines[-1]["files"], lines[-1]["failed"]) == (len(expected), 0)
        assert all(any(digest.startswith("crc32c:") for digest in line["verified"]) for line in lines[:-1])
        return lines

    copied(area.url("tree"), bucket.url("from-root"))
    copied(area.http("tree"), bucket.url("from-http"))
    copied(bucket.url("from-root"), bucket.url("from-s3"))
    copied(bucket.url("from-s3"), area.url("to-root"))
    copied(bucket.url("from-http"), area.http("to-http"))
    copied(bucket.url("from-http"), str(here / "local"))
    for directory in (area.local / "to-root", area.local / "to-http", here / "local"):
        assert tree(directory) == expected
    assert bucket.parts() == {}


@proves("cp that is killed in the middle leaves nothing visible; one that is interrupted leaves no parts either")
def test_killed(bucket, here):
    fifo = here / "fifo"
    for signals, leaves_parts in ((signal.SIGINT, False), (signal.SIGKILL, True)):
        environment = bucket.clients.environment | bucket.environment
        copy = subprocess.Popen([bucket.binary, "cp", "-", bucket.url("file")], stdin=subprocess.PIPE, env=environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        # Parts of an upload of unknown length have 64 MiB.
        copy.stdin.write(content(LARGE))
        copy.stdin.flush()
        assert eventually(lambda: bucket.parts() != {})
        copy.send_signal(signals)
        copy.wait(30)
        copy.stdin.close()
        copy.stderr.close()
        assert bucket.keys() == []
        assert (bucket.parts() != {}) == leaves_parts
    # Leftovers of a killed program do not prevent the next upload.
    bucket.towpath("cp", "-", bucket.url("file"), stdin=b"content")
    assert bucket.get("file") == b"content"


@proves("an existing object is kept without -f, replaced with it")
def test_existing(bucket, here):
    old, new = content(5000, 1), content(9 << 20, 2)
    for name, data in (("old", old), ("new", new)):
        (here / name).write_bytes(data)
    bucket.towpath("cp", here / "old", bucket.url("file"))
    assert b"exists" in bucket.towpath("cp", here / "new", bucket.url("file"), status=6).err
    assert bucket.get("file") == old
    bucket.towpath("cp", "-f", here / "new", bucket.url("file"))
    assert bucket.get("file") == new


@proves("a wrong digest at the source: nothing is left")
def test_wrong_digest(bucket, area):
    data = content(9 << 20)
    local = area.put("file", data)
    os.setxattr(local, "user.XrdCks.crc32c", _kept(local, "00000001"))
    refused = bucket.towpath("cp", area.url("file"), bucket.url("file"), status=7)
    assert b"crc32c" in refused.err
    assert bucket.keys() == [] and bucket.parts() == {}


def _kept(local: Path, digest: str) -> bytes:
    """Returns the record in which XRootD stores a digest with a file (`XrdCksData`)."""
    when = int(local.stat().st_mtime)
    value = bytes.fromhex(digest)
    return (b"crc32c".ljust(16, b"\0") + when.to_bytes(8, "big") + (60).to_bytes(4, "big") + bytes(3)
            + bytes([len(value)]) + value.ljust(64, b"\0"))


@proves("wrong keys, no keys, no bucket, no object: whose fault it is, and what to do")
def test_refused(bucket, here):
    (here / "file").write_bytes(b"content")
    wrong = bucket.towpath("cp", here / "file", bucket.url("file"), status=4, AWS_SECRET_ACCESS_KEY="wrong")
    assert b"wrong" not in wrong.err and bucket.keys() == []
    assert bucket.towpath("ls", bucket.url(), status=4, AWS_ACCESS_KEY_ID="nobody").err
    nobody = bucket.towpath("ls", bucket.url(), status=4, AWS_ACCESS_KEY_ID="", AWS_EC2_METADATA_DISABLED="true")
    assert b"AWS_ACCESS_KEY_ID" in nobody.err
    assert b"bucket" in bucket.towpath("ls", "s3://no-such-bucket/", status=3).err
    assert b"/absent: " in bucket.towpath("stat", bucket.url("absent"), status=3).err
    bucket.towpath("cp", bucket.url("absent"), here / "absent", status=3)
    assert not (here / "absent").exists()
    assert b"s3://bucket/key" in bucket.towpath("ls", "s3://bucket:9000/", status=2).err


@proves("keys, endpoint and region from ~/.aws and from flags")
def test_settings(bucket, here):
    (here / ".aws").mkdir()
    (here / ".aws/credentials").write_text("[lab]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    endpoint = bucket.environment["AWS_ENDPOINT_URL"]
    (here / ".aws/config").write_text(f"[profile lab]\nendpoint_url = {endpoint}\nregion = us-east-1\n")
    bucket.clients.run(bucket.binary, "ls", bucket.url(), HOME=str(here), AWS_PROFILE="lab")
    bucket.clients.run(bucket.binary, "ls", "--s3-endpoint", endpoint, bucket.url(), **SEAWEED_KEYS)


@proves("ls, ls -l, ls -R --json, stat, sum, mkdir, mv, rm, rm -r")
def test_names(bucket, here):
    data = content(100_000)
    (here / "file").write_bytes(data)
    bucket.towpath("cp", here / "file", bucket.url("a/b/deep"))
    bucket.towpath("mkdir", "-p", bucket.url("made/empty"))
    assert bucket.towpath("ls", bucket.url()).lines == ["a", "made"]
    found = {entry["path"]: (entry["kind"], entry["size"]) for entry in json_lines(bucket.towpath("ls", "-R", "--json", bucket.url()))}
    assert found == {"a": ("directory", 0), "a/b": ("directory", 0), "a/b/deep": ("file", 100_000),
                     "made": ("directory", 0), "made/empty": ("directory", 0)}
    (entry,) = json_lines(bucket.towpath("stat", "--json", bucket.url("a/b/deep")))
    assert (entry["kind"], entry["size"]) == ("file", 100_000)
    assert bucket.towpath("sum", "-a", "crc32c", bucket.url("a/b/deep")).text.split()[0] == crc32c(data)
    bucket.towpath("mv", bucket.url("a/b/deep"), bucket.url("made/moved"))
    assert "made/moved" in bucket.keys() and "a/b/deep" not in bucket.keys()
    bucket.towpath("mv", bucket.url("made"), bucket.url("other"))
    assert bucket.get("other/moved") == data
    assert b"use -r" in bucket.towpath("rm", bucket.url("other"), status=5).err
    bucket.towpath("rm", bucket.url("other/moved"))
    bucket.towpath("rm", "-r", bucket.url("other"))
    assert bucket.keys() == []
