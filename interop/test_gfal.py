"""gfal2 against our server, with its XRootD and its HTTP plug-in: the code path of FTS and Rucio."""

import pytest

from clients import adler32, content

SIZE = 9_000_123


def both(operation: str, **more):
    """Runs a test over both protocols."""
    return pytest.mark.parametrize("scheme", [
        pytest.param("root", marks=pytest.mark.pair("gfal2 root://", operation, **more)),
        pytest.param("http", marks=pytest.mark.pair("gfal2 http://", operation, **more)),
    ])


@pytest.fixture
def place(area, scheme):
    """Returns URLs in the area."""
    return area.url if scheme == "root" else area.http


@both("gfal-copy up and down")
def test_copy(area, clients, here, place):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    clients.run("gfal-copy", f"file://{here}/file", place("file"))
    assert (area.local / "file").read_bytes() == data
    clients.run("gfal-copy", place("file"), f"file://{here}/back")
    assert (here / "back").read_bytes() == data


@both("gfal-copy -K ADLER32 (compares both ends)")
def test_copy_checksum(area, clients, here, place):
    data = content(SIZE)
    (here / "file").write_bytes(data)
    clients.run("gfal-copy", "-K", "ADLER32", f"file://{here}/file", place("file"))
    assert (area.local / "file").read_bytes() == data
    wrong = clients.run("gfal-copy", "-f", "-K", "ADLER32:00000001", f"file://{here}/file", place("file"), status=None)
    assert b"checksum" in wrong.err.lower()


@both("gfal-copy over a file needs -f")
def test_copy_existing(area, clients, here, place):
    old, new = content(1000, 1), content(1000, 2)
    area.put("file", old)
    (here / "file").write_bytes(new)
    assert b"exists" in clients.run("gfal-copy", f"file://{here}/file", place("file"), status=17).err
    assert (area.local / "file").read_bytes() == old
    clients.run("gfal-copy", "-f", f"file://{here}/file", place("file"))
    assert (area.local / "file").read_bytes() == new


@both("gfal-ls, gfal-ls -l")
def test_ls(area, clients, place):
    area.put("file", content(1234))
    area.put("dir/inner", b"x")
    assert sorted(clients.run("gfal-ls", place()).lines) == ["dir", "file"]
    (line,) = [line for line in clients.run("gfal-ls", "-l", place()).lines if "file" in line]
    assert line.startswith("-") and " 1234 " in line


@both("gfal-stat")
def test_stat(area, clients, place):
    area.put("file", content(1234))
    text = clients.run("gfal-stat", place("file")).text
    assert "Size: 1234" in text and "regular file" in text
    assert b"such file" in clients.run("gfal-stat", place("absent"), status=2).err


@both("gfal-sum ADLER32")
def test_sum(area, clients, place):
    data = content(SIZE)
    area.put("file", data)
    assert clients.run("gfal-sum", place("file"), "ADLER32").text.split()[-1] == adler32(data)


@both("gfal-mkdir -p, gfal-rename, gfal-rm -r")
def test_names(area, clients, place):
    data = content(1000)
    clients.run("gfal-mkdir", "-p", place("a/b/c"))
    assert (area.local / "a/b/c").is_dir()
    area.put("a/b/c/file", data)
    clients.run("gfal-rename", place("a/b/c/file"), place("a/moved"))
    assert (area.local / "a/moved").read_bytes() == data
    clients.run("gfal-rm", "-r", place("a"))
    assert not (area.local / "a").exists()


@both("gfal-cat, gfal-save", note="gfal-save takes text only")
def test_streams(area, clients, place):
    data = b"one line of text\n" * 10_000
    clients.run("gfal-save", place("file"), stdin=data)
    assert (area.local / "file").read_bytes() == data
    assert clients.run("gfal-cat", place("file")).out == data
