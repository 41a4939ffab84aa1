"""xrdcp 5.5 against our server: whole files, trees, streams, checksums."""

import hashlib
import io
import os
import zipfile

import pytest

from clients import adler32, content, crc32c, eventually, tree

SIZE = 9_000_123  # one complete 8 MiB chunk of xrdcp and part of a second


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("xrdcp", operation, **more)


@pair("download")
def test_download(area, clients, here):
    data = content(SIZE)
    area.put("file", data)
    clients.run("xrdcp", "-s", area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data


@pair("download reads pages with checksums (pgread)")
def test_download_uses_pgread(area, clients, here):
    data = content(SIZE)
    area.put("file", data)
    before = area.server.requests("xrootd", "pgread") if area.server.counts_requests else 0
    clients.run("xrdcp", "-s", area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
    if area.server.counts_requests:
        assert area.server.requests("xrootd", "pgread") - before == 2


@pair("download of an empty file")
def test_download_empty(area, clients, here):
    area.put("empty", b"")
    clients.run("xrdcp", "-s", area.url("empty"), here / "empty")
    assert (here / "empty").read_bytes() == b""


@pair("download of a missing file is refused")
def test_download_missing(area, clients, here):
    result = clients.run("xrdcp", "-s", area.url("absent"), here / "file", status=None)
    assert b"[3011]" in result.err
    assert not (here / "file").exists()


@pair("download to standard output")
def test_download_to_stdout(area, clients):
    data = content(SIZE)
    area.put("file", data)
    assert clients.run("xrdcp", "-s", area.url("file"), "-").out == data


@pair("download -S 4 (parallel connections)")
def test_download_streams(area, clients, here):
    data = content(50_000_001)
    area.put("file", data)
    before = area.server.connections() if area.server.counts_requests else 0
    clients.run("xrdcp", "-s", "-S", "4", area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
    if area.server.counts_requests:
        assert area.server.connections() - before - 1 >= 4  # minus the query of the metrics


@pair("download -r --parallel 4 (tree)")
def test_download_tree(area, clients, here):
    files = {f"d{i % 3}/e/f{i}": content(1000 * i + 7, i) for i in range(12)}
    for name, data in files.items():
        area.put(f"tree/{name}", data)
    (here / "copy").mkdir()
    clients.run("xrdcp", "-s", "-r", "--parallel", "4", area.url("tree"), here / "copy")
    assert tree(here / "copy/tree") == files


@pair("download --continue (rest of a file)")
def test_download_continue(area, clients, here):
    data = content(SIZE)
    area.put("file", data)
    (here / "file").write_bytes(data[:4_000_000])
    clients.run("xrdcp", "-s", "--continue", area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data


@pair("download of a member of a ZIP archive (--zip)")
def test_download_zip_member(area, clients, here):
    member, archive = content(70_001, 3), io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made:
        made.writestr("other", content(1000))
        made.writestr("member", member)
    area.put("archive.zip", archive.getvalue())
    clients.run("xrdcp", "-s", "--zip", "member", area.url("archive.zip"), here / "member")
    assert (here / "member").read_bytes() == member


@pytest.mark.parametrize("algorithm", [
    pytest.param("adler32", marks=pair("download --cksum adler32")),
    pytest.param("crc32c", marks=pair("download --cksum crc32c")),
    pytest.param("md5", marks=pair("download --cksum md5")),
])
def test_download_checksum(area, clients, here, algorithm):
    data = content(1_000_003)
    expected = {"adler32": adler32, "crc32c": crc32c, "md5": lambda d: hashlib.md5(d).hexdigest()}[algorithm](data)
    area.put("file", data)
    result = clients.run("xrdcp", "-s", "--cksum", f"{algorithm}:print", area.url("file"), here / "file")
    assert f"{algorithm}: {expected}" in (result.out + result.err).decode()
    clients.run("xrdcp", "-s", "-f", "--cksum", algorithm, area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
    wrong = clients.run("xrdcp", "-s", "-f", "--cksum", f"{algorithm}:{'0' * len(expected)}", area.url("file"), here / "file", status=None)
    assert b"CheckSum error" in wrong.err


@pair("upload")
def test_upload(area, clients, here):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    clients.run("xrdcp", "-s", here / "file", area.url("file"))
    assert (area.local / "file").read_bytes() == data
    assert [p.name for p in area.local.iterdir()] == ["file"], "nothing else is left there"
    assert eventually(lambda: area.left_over() == []), "no upload is still under way"


@pair("upload writes pages with checksums (pgwrite)")
def test_upload_uses_pgwrite(area, clients, here):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    before = area.server.requests("xrootd", "pgwrite") if area.server.counts_requests else 0
    clients.run("xrdcp", "-s", here / "file", area.url("file"))
    assert (area.local / "file").read_bytes() == data
    if area.server.counts_requests:
        assert area.server.requests("xrootd", "pgwrite") - before == 2


@pair("upload of an empty file")
def test_upload_empty(area, clients, here):
    (here / "empty").write_bytes(b"")
    clients.run("xrdcp", "-s", here / "empty", area.url("empty"))
    assert (area.local / "empty").read_bytes() == b""


@pair("upload makes missing directories")
def test_upload_makes_directories(area, clients, here):
    data = content(1000)
    (here / "file").write_bytes(data)
    clients.run("xrdcp", "-s", "-p", here / "file", area.url("a/b/c/file"))
    assert (area.local / "a/b/c/file").read_bytes() == data


@pair("upload from standard input")
def test_upload_from_stdin(area, clients):
    data = content(SIZE)
    clients.run("xrdcp", "-s", "-", area.url("file"), stdin=data)
    assert (area.local / "file").read_bytes() == data


@pair("upload --cksum adler32")
def test_upload_checksum(area, clients, here):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    result = clients.run("xrdcp", "-s", "--cksum", "adler32:print", here / "file", area.url("file"))
    assert f"adler32: {adler32(data)}" in (result.out + result.err).decode()
    clients.run("xrdcp", "-s", "-f", "--cksum", "adler32", here / "file", area.url("file"))
    assert (area.local / "file").read_bytes() == data


@pair("upload over a file needs -f")
def test_upload_existing(area, clients, here):
    old, new = content(5000, 1), content(3000, 2)
    area.put("file", old)
    (here / "file").write_bytes(new)
    result = clients.run("xrdcp", "-s", here / "file", area.url("file"), status=None)
    assert b"xists" in result.err
    assert (area.local / "file").read_bytes() == old
    clients.run("xrdcp", "-s", "-f", here / "file", area.url("file"))
    assert (area.local / "file").read_bytes() == new


@pair("upload --posc (visible only when whole)")
def test_upload_posc(area, clients, here):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    clients.run("xrdcp", "-s", "--posc", here / "file", area.url("file"))
    assert (area.local / "file").read_bytes() == data


@pair("upload -r --parallel 4 (tree)")
def test_upload_tree(area, clients, here):
    files = {f"d{i % 3}/e/f{i}": content(1000 * i + 7, i) for i in range(12)}
    for name, data in files.items():
        (here / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (here / "tree" / name).write_bytes(data)
    clients.run("xrdcp", "-s", "-r", "--parallel", "4", here / "tree", area.url())
    assert tree(area.local / "tree") == files


@pair("download --xattr (extended attributes)")
def test_download_attributes(area, clients, here):
    data = content(1000)
    area.put("file", data)
    clients.run("xrdfs", area.server.address, "xattr", f"{area.path}/file", "set", "colour=green")
    clients.run("xrdcp", "-s", "--xattr", area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
    assert os.getxattr(here / "file", "user.colour") == b"green"


@pytest.mark.parametrize("version", [
    pytest.param(5, marks=pair("upload --xattr (extended attributes)")),
    pytest.param(6, marks=pair("upload --xattr (extended attributes), by xrdcp 6")),
])
def test_upload_attributes(area, clients, here, version):
    xrdcp, environment = ("xrdcp", {}) if version == 5 else clients.xrootd6("xrdcp")
    data = content(1000)
    (here / "file").write_bytes(data)
    os.setxattr(here / "file", "user.colour", b"green")
    os.setxattr(here / "file", "user.shape", b"round")
    clients.run(xrdcp, "-s", "--xattr", here / "file", area.url("file"), **environment)
    assert (area.local / "file").read_bytes() == data
    assert os.getxattr(area.local / "file", "user.U.colour") == b"green"
    assert os.getxattr(area.local / "file", "user.U.shape") == b"round"


@pair("copy from server to server, through the client")
def test_remote_to_remote(area, xrootd_area, clients):
    data = content(SIZE)
    area.put("file", data)
    clients.run("xrdcp", "-s", area.url("file"), xrootd_area.url("file"))
    assert (xrootd_area.local / "file").read_bytes() == data
    clients.run("xrdcp", "-s", xrootd_area.url("file"), area.url("back"))
    assert (area.local / "back").read_bytes() == data


@pair("download and upload with TLS (roots://)")
def test_tls(tls_area, clients, here):
    data = content(SIZE)
    tls_area.put("file", data)
    clients.run("xrdcp", "-s", tls_area.url("file"), here / "file")
    assert (here / "file").read_bytes() == data
    clients.run("xrdcp", "-s", here / "file", tls_area.url("up"))
    assert (tls_area.local / "up").read_bytes() == data


@pair("download with TLS refuses an unknown authority")
def test_tls_unknown_authority(tls_area, clients, here):
    tls_area.put("file", content(1000))
    (here / "none").mkdir()
    result = clients.run("xrdcp", "-s", tls_area.url("file"), here / "file", status=None,
                         X509_CERT_DIR=str(here / "none"), X509_CERT_FILE=str(here / "none/x"), SSL_CERT_FILE=str(here / "none/x"))
    assert not (here / "file").exists()
    assert b"TLS" in result.err
