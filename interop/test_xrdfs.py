"""xrdfs 5.5 against our server: all its commands."""

import os
import re
import stat
import subprocess

import pytest

from clients import adler32, content, crc32c


def pair(operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("xrdfs", operation, **more)


@pytest.fixture
def xrdfs(area, clients):
    """Runs an xrdfs command against the plain server."""
    def run(*words, status: int | None = 0):
        return clients.run("xrdfs", area.server.address, *words, status=status)

    return run


@pair("ls")
def test_ls(area, xrdfs):
    for name in ("b", "a", "with blank", "ünïcode"):
        area.put(name, b"x")
    assert sorted(xrdfs("ls", area.path).lines) == sorted(f"{area.path}/{name}" for name in ("a", "b", "with blank", "ünïcode"))


@pair("ls of an empty directory")
def test_ls_empty(area, xrdfs):
    assert xrdfs("ls", area.path).lines == []


@pair("ls of a missing directory is refused")
def test_ls_missing(area, xrdfs):
    assert b"[3011]" in xrdfs("ls", f"{area.path}/absent", status=None).err


@pair("ls -l")
def test_ls_long(area, xrdfs):
    file = area.put("file", content(12_345))
    (area.local / "dir").mkdir()
    os.utime(file, (1_600_000_000, 1_600_000_000))
    lines = {line.rsplit("/", 1)[1]: line for line in xrdfs("ls", "-l", area.path).lines}
    assert lines["file"].startswith("-r") and lines["dir"].startswith("d")
    assert " 12345 2020-09-13 12:26:40 " in lines["file"]


@pair("ls -R")
def test_ls_recursive(area, xrdfs):
    for name in ("a/b/c/deep", "a/x", "top"):
        area.put(name, b"x")
    expected = {"a", "a/b", "a/b/c", "a/b/c/deep", "a/x", "top"}
    assert {line.removeprefix(f"{area.path}/") for line in xrdfs("ls", "-R", area.path).lines} == expected


@pair("ls -u")
def test_ls_urls(area, xrdfs):
    area.put("file", b"x")
    (line,) = xrdfs("ls", "-u", area.path).lines
    assert re.fullmatch(rf"root://.*:{area.server.port}/{area.path}/file", line)


@pair("ls -C (checksums)")
def test_ls_checksums(area, xrdfs):
    data = content(10_001)
    area.put("file", data)
    os.utime(area.local / "file", (1_600_000_000, 1_600_000_000))  # the server stores no checksum of a recently modified file
    xrdfs("query", "checksum", f"{area.path}/file?cks.type=adler32")  # a listing shows stored checksums and computes none
    (line,) = xrdfs("ls", "-C", area.path).lines
    assert f"adler32:{adler32(data)}" in line


@pair("ls of 20,000 names")
def test_ls_many(area, xrdfs):
    for index in range(20_000):
        (area.local / f"name-{index:05}").touch()
    assert len(set(xrdfs("ls", area.path).lines)) == 20_000
    assert len(set(xrdfs("ls", "-l", area.path).lines)) == 20_000


@pair("stat")
def test_stat(area, xrdfs):
    file = area.put("file", content(12_345))
    os.utime(file, (1_600_000_000, 1_600_000_000))
    text = xrdfs("stat", f"{area.path}/file").text
    assert re.search(r"^Size: +12345$", text, re.M)
    assert re.search(r"^MTime: +2020-09-13 12:26:40$", text, re.M)
    assert "IsReadable" in text and "IsDir" not in text
    assert "IsDir" in xrdfs("stat", area.path).text


@pair("stat -q")
def test_stat_query(area, xrdfs):
    area.put("file", b"x")
    assert "Query:  IsDir" in xrdfs("stat", "-q", "IsDir", area.path).text
    assert re.search(r"^Size: +1$", xrdfs("stat", "-q", "IsReadable&IsWritable", f"{area.path}/file").text, re.M)
    assert re.search(r"^Size: +1$", xrdfs("stat", "-q", "IsDir", f"{area.path}/file", status=55).text, re.M)


@pair("statvfs")
def test_statvfs(area, xrdfs):
    text = xrdfs("statvfs", area.path).text
    free_mb = int(re.search(r"^Size of largest RW space \(MB\): +(\d+)", text, re.M)[1])
    disk = os.statvfs(area.local)
    assert abs(free_mb - disk.f_bavail * disk.f_frsize / 1e6) < 0.2 * free_mb
    assert re.search(r"^Nodes with RW space: +1$", text, re.M)


@pair("locate")
def test_locate(area, xrdfs):
    area.put("file", b"x")
    (line,) = xrdfs("locate", f"{area.path}/file").lines
    assert re.fullmatch(rf".*:{area.server.port} +Server +Read(Write)?\s*", line)


@pair("locate -d (deeplocate)")
def test_deep_locate(area, xrdfs):
    area.put("file", b"x")
    (line,) = xrdfs("locate", "-d", f"{area.path}/file").lines
    assert f":{area.server.port} " in line and "Server" in line


@pair("locate of a missing file is refused")
def test_locate_missing(area, xrdfs):
    assert b"[3011]" in xrdfs("locate", f"{area.path}/absent", status=None).err


@pair("mkdir, mkdir -p")
def test_mkdir(area, xrdfs):
    xrdfs("mkdir", f"{area.path}/one")
    assert (area.local / "one").is_dir()
    assert b"[3011]" in xrdfs("mkdir", f"{area.path}/x/y", status=None).err
    xrdfs("mkdir", "-p", f"{area.path}/x/y/z")
    assert (area.local / "x/y/z").is_dir()


@pair("mkdir -m (mode)")
def test_mkdir_mode(area, xrdfs):
    xrdfs("mkdir", "-mrwxr-x---", f"{area.path}/one")
    assert stat.S_IMODE((area.local / "one").stat().st_mode) == 0o750


@pair("rm")
def test_rm(area, xrdfs):
    area.put("file", b"x")
    xrdfs("rm", f"{area.path}/file")
    assert not (area.local / "file").exists()
    assert b"[3011]" in xrdfs("rm", f"{area.path}/file", status=None).err


@pair("rmdir")
def test_rmdir(area, xrdfs):
    area.put("full/file", b"x")
    (area.local / "empty").mkdir()
    xrdfs("rmdir", f"{area.path}/empty")
    assert not (area.local / "empty").exists()
    refused = xrdfs("rmdir", f"{area.path}/full", status=None).err
    assert b"[3018]" in refused or b"[3005]" in refused
    assert (area.local / "full/file").exists()


@pair("mv")
def test_mv(area, xrdfs):
    data = content(5000)
    area.put("old name", data)
    xrdfs("mv", f"{area.path}/old name", f"{area.path}/new name")
    assert (area.local / "new name").read_bytes() == data
    assert not (area.local / "old name").exists()


@pair("chmod")
def test_chmod(area, xrdfs):
    file = area.put("file", b"x")
    xrdfs("chmod", f"{area.path}/file", "rw-r-----")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pair("truncate")
def test_truncate(area, xrdfs):
    data = content(10_000)
    file = area.put("file", data)
    xrdfs("truncate", f"{area.path}/file", "4321")
    assert file.read_bytes() == data[:4321]
    xrdfs("truncate", f"{area.path}/file", "5000")
    assert file.read_bytes() == data[:4321] + bytes(679)


@pair("cat")
def test_cat(area, xrdfs):
    one, two = content(3_000_001, 1), content(17, 2)
    area.put("one", one)
    area.put("two", two)
    assert xrdfs("cat", f"{area.path}/one").out == one
    assert xrdfs("cat", f"{area.path}/one", f"{area.path}/two").out == one + two


@pair("cat -o (to a file)")
def test_cat_to_file(area, xrdfs, here):
    data = content(100_001)
    area.put("file", data)
    xrdfs("cat", "-o", here / "copy", f"{area.path}/file")
    assert (here / "copy").read_bytes() == data


@pair("tail -f of a file that is appended to")
def test_tail_follows(area):
    log = area.put("log", b"one\n")
    command = ["xrdfs", area.server.address, "tail", "-f", f"{area.path}/log"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            for line in (b"one\n", b"two\n", b"three\n"):
                if line != b"one\n":
                    with log.open("ab") as file:
                        file.write(line)
                # xrdfs 5.5 also prints zeros.
                assert process.stdout.readline().lstrip(b"\0") == line
        finally:
            process.kill()


@pair("tail, tail -c")
def test_tail(area, xrdfs):
    data = content(100_001)
    area.put("file", data)
    assert xrdfs("tail", "-c", "777", f"{area.path}/file").out == data[-777:]
    assert xrdfs("tail", f"{area.path}/file").out == data[-512:]


@pair("query config (each word it documents)")
def test_query_config(area, xrdfs):
    words = ["bind_max", "chksum", "pio_max", "readv_ior_max", "readv_iov_max", "tpc", "wan_port", "wan_window", "window",
             "cms", "role", "sitename", "version"]
    answers = {word: xrdfs("query", "config", word).text.strip() for word in words}
    assert answers["readv_ior_max"] == "2097136" and answers["readv_iov_max"] == "1024"
    assert "adler32" in answers["chksum"] and "crc32c" in answers["chksum"]
    assert answers["role"] == "server"
    assert int(answers["bind_max"]) >= 1 and int(answers["pio_max"]) >= 1
    assert re.search(r"\d+\.\d+", answers["version"])
    assert all(answers.values())


@pair("query config of an unknown word echoes it")
def test_query_config_unknown(xrdfs):
    assert xrdfs("query", "config", "no_such_word").text.strip() == "no_such_word"


@pair("query checksum (adler32, crc32c, default)")
def test_query_checksum(area, xrdfs):
    data = content(1_000_003)
    area.put("file", data)
    assert xrdfs("query", "checksum", f"{area.path}/file?cks.type=adler32").text.split() == ["adler32", adler32(data)]
    assert xrdfs("query", "checksum", f"{area.path}/file?cks.type=crc32c").text.split() == ["crc32c", crc32c(data)]
    assert xrdfs("query", "checksum", f"{area.path}/file").text.split() == ["adler32", adler32(data)]
    assert b"[3011]" in xrdfs("query", "checksum", f"{area.path}/absent", status=None).err


@pair("query checksum follows a change of the file")
def test_query_checksum_changed(area, xrdfs):
    area.put("file", content(1000, 1))
    first = xrdfs("query", "checksum", f"{area.path}/file").text.split()[1]
    file = area.put("file", content(1000, 2))
    os.utime(file, (1_600_000_000, 1_600_000_000))
    second = xrdfs("query", "checksum", f"{area.path}/file").text.split()[1]
    assert (first, second) == (adler32(content(1000, 1)), adler32(content(1000, 2)))


@pair("query checksumcancel")
def test_query_checksum_cancel(area, xrdfs):
    data = content(1000)
    area.put("file", data)
    assert xrdfs("query", "checksumcancel", f"{area.path}/file").text.strip("\0\n ") == ""
    assert xrdfs("query", "checksum", f"{area.path}/file").text.split() == ["adler32", adler32(data)]


@pair("query space")
def test_query_space(area, xrdfs):
    fields = dict(re.findall(r"(oss\.\w+)=([^&\s\0]*)", xrdfs("query", "space", area.path).text))
    disk = os.statvfs(area.local)
    assert abs(int(fields["oss.free"]) - disk.f_bavail * disk.f_frsize) < 0.1 * int(fields["oss.free"])
    assert int(fields["oss.space"]) >= int(fields["oss.free"])


@pair("query stats")
def test_query_stats(xrdfs):
    text = xrdfs("query", "stats", "a").text
    assert text.startswith("<statistics") and text.rstrip("\0\n ").endswith("</statistics>")


@pair("query xattr")
def test_query_xattr(area, xrdfs):
    area.put("file", content(1234))
    fields = dict(re.findall(r"(oss\.\w+)=([^&\s\0]*)", xrdfs("query", "xattr", f"{area.path}/file").text))
    assert fields["oss.type"] == "f"
    assert "oss.mt" in fields


@pair("query opaque, opaquefile are declined", note="the protocol's own error; the connection goes on")
def test_query_opaque(area, xrdfs):
    area.put("file", b"x")
    for words in (("opaque", "anything"), ("opaquefile", f"{area.path}/file")):
        error = xrdfs("query", *words, status=None).err.decode()
        assert re.search(r"\[30(13|06|00|05)\]", error)


@pair("spaceinfo")
def test_spaceinfo(area, xrdfs):
    text = xrdfs("spaceinfo", area.path).text
    free = int(re.search(r"^Free: +(\d+)$", text, re.M)[1])
    disk = os.statvfs(area.local)
    assert abs(free - disk.f_bavail * disk.f_frsize) < 0.1 * free


@pair("xattr set, get, list, del")
def test_xattr(area, xrdfs):
    area.put("file", b"x")
    path = f"{area.path}/file"
    xrdfs("xattr", path, "set", "colour=green")
    xrdfs("xattr", path, "set", "shape=round")
    assert "green" in xrdfs("xattr", path, "get", "colour").text
    listed = xrdfs("xattr", path, "list").text
    assert re.search(r'colour="?green', listed) and re.search(r'shape="?round', listed)
    xrdfs("xattr", path, "del", "colour")
    assert "colour" not in xrdfs("xattr", path, "list").text
    assert re.search(rb"\[3027\]|\[3011\]|not found|No data", xrdfs("xattr", path, "get", "colour", status=None).err)


@pair("xattr set is kept where XRootD keeps it")
def test_xattr_on_disk(area, xrdfs):
    file = area.put("file", b"x")
    xrdfs("xattr", f"{area.path}/file", "set", "colour=green")
    assert os.getxattr(file, "user.U.colour") == b"green"


@pair("prepare -s", note="answers with a request id; files are always on disk")
def test_prepare(area, xrdfs):
    area.put("file", b"x")
    request = xrdfs("prepare", "-s", f"{area.path}/file").text.strip()
    assert re.fullmatch(r"\S+", request)


@pair("cd, ls in interactive mode")
def test_interactive(area, clients):
    area.put("sub/file", b"x")
    script = f"cd {area.path}/sub\nls\nexit\n".encode()
    result = clients.run("xrdfs", area.server.address, stdin=script)
    assert f"{area.path}/sub/file" in result.text


@pair("paths may not leave the export")
def test_escape(area, xrdfs):
    error = xrdfs("cat", "/../../../etc/passwd", status=None)
    assert b"root:" not in error.out
    (area.local / "link").symlink_to("/etc/passwd")
    if area.server.name == "towpath":
        refused = xrdfs("cat", f"{area.path}/link", status=None)
        assert b"root:" not in refused.out and b"leads out of the store" in refused.err + refused.out


@pair("stat, ls, mkdir, rm with TLS (roots://)")
def test_tls(tls_area, clients):
    tls_area.put("file", content(99))
    def run(*words):
        return clients.run("xrdfs", tls_area.server.address, *words)
    assert re.search(r"^Size: +99$", run("stat", f"{tls_area.path}/file").text, re.M)
    run("mkdir", f"{tls_area.path}/dir")
    assert sorted(run("ls", tls_area.path).lines) == [f"{tls_area.path}/dir", f"{tls_area.path}/file"]
    run("rm", f"{tls_area.path}/file")
    assert not (tls_area.local / "file").exists()
