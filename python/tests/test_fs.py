"""`towpath.fs` over real servers, with fsspec's own suite."""

import asyncio
import contextlib
import gzip
import itertools
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.tests import abstract

import towpath
from towpath import fs as towpath_fs


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, base):
        return fsspec.core.url_to_fs(f"{base}/")[0]

    @pytest.fixture
    def fs_path(self, area):
        return "/" + area[1].name

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


def test_ranges(area):
    url, local = area
    content = os.urandom(100_000)
    (local / "one").write_bytes(content)
    (local / "two").write_bytes(b"0123456789")
    fs, path = fsspec.core.url_to_fs(url)
    one, two = f"{path}/one", f"{path}/two"
    assert fs.cat_file(one) == content and fs.cat_file(one, 10, 20) == content[10:20] and fs.cat_file(two, -3) == b"789"
    assert fs.cat_file(two, 8, 50) == b"89" and fs.cat_file(two, 3, -3) == b"3456" and fs.cat_file(two, 20, 30) == b""
    starts, ends = [0, 5, 99_990, 4, 100], [10, 5, 200_000, 8, 200]
    got = fs.cat_ranges([one, one, one, two, two], starts, ends)
    assert got == [content[:10], b"", content[99_990:], b"4567", b""]
    assert fs.cat_ranges([two, two], -4, [None, -1]) == [b"6789", b"678"]
    missing, found = fs.cat_ranges([f"{path}/three", two], 0, 2)
    assert isinstance(missing, FileNotFoundError) and found == b"01"
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([f"{path}/three", two], 0, 2, on_error="raise")
    assert fs.cat([one, two]) == {one: content, two: b"0123456789"}


def test_the_ends_of_a_root_file_are_read_when_it_is_opened(area, monkeypatch):
    url, local = area
    content = os.urandom(1_000_000)
    for name in ("f.root", "small.root", "f.bin"):
        (local / name).write_bytes(content[:10_000] if name == "small.root" else content)
    fs, path = fsspec.core.url_to_fs(url)
    requests = []
    original = towpath_fs.calls.result_of

    async def counted(submit, *arguments):
        requests.append((submit.__name__, arguments))
        return await original(submit, *arguments)

    monkeypatch.setattr(towpath_fs.calls, "result_of", counted)
    assert fs.cat_file(f"{path}/f.root", 0, 300) == content[:300]
    ends = [("open", (fs._read_url(f"{path}/f.root"),)), ("stat", ()), ("read_ranges", ([(0, 4096), (934_464, 65_536)],))]
    assert requests == ends
    inner = [(990_000, 1_000_000), (500_000, 500_100), (999_900, 1_000_500), (4_000, 5_000)]
    starts, stops = zip(*inner, strict=True)
    got = fs.cat_ranges([f"{path}/f.root"] * 4, list(starts), list(stops))
    assert got == [content[start:stop] for start, stop in inner]
    assert requests[3:] == [("read_ranges", ([(500_000, 100), (4_000, 1_000)],))]
    assert fs.cat_file(f"{path}/small.root", -5) == content[9_995:10_000] and fs.cat_file(f"{path}/f.bin", 0, 5) == content[:5]
    assert [name for name, _ in requests[4:]] == ["open", "stat", "read_ranges", "open", "stat", "read"]


def test_listings(area):
    url, local = area
    (local / "a").mkdir()
    (local / "a" / "x y.txt").write_bytes(b"abc")
    (local / "b").write_bytes(b"")
    fs, path = fsspec.core.url_to_fs(url)
    name = "x%20y.txt" if url.startswith("dav") else "x y.txt"
    assert sorted(fs.ls(path, detail=False)) == [f"{path}/a", f"{path}/b"]
    (entry,) = fs.ls(f"{path}/a")
    assert (entry["name"], entry["size"], entry["type"]) == (f"{path}/a/{name}", 3, "file")
    assert entry["mtime"] == pytest.approx((local / "a" / "x y.txt").stat().st_mtime, abs=1)
    assert fs.ls(f"{path}/b") == [fs.info(f"{path}/b")]
    assert fs.find(path) == [f"{path}/a/{name}", f"{path}/b"] and fs.glob(f"{path}/*/*.txt") == [f"{path}/a/{name}"]
    assert fs.isdir(f"{path}/a") and fs.isfile(f"{path}/b") and not fs.exists(f"{path}/c") and fs.du(path) == 3
    assert fs.cat_file(f"{path}/a/{name}") == b"abc"
    assert fs.modified(f"{path}/b").timestamp() == pytest.approx((local / "b").stat().st_mtime, abs=1)
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{path}/c")


def test_changes(area, served):
    url, local = area
    fs, path = fsspec.core.url_to_fs(url)
    fs.makedirs(f"{path}/a/b")
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{path}/a/b")
    fs.makedirs(f"{path}/a/b", exist_ok=True)
    if not (served.is_xrootd and url.startswith("dav")):
        with pytest.raises(FileExistsError):
            fs.mkdir(f"{path}/a")
    fs.pipe_file(f"{path}/a/f", b"content")
    assert fs.checksum(f"{path}/a/f", "adler32") == ("adler32", f"{zlib.adler32(b'content'):08x}")
    fs.mv(f"{path}/a/f", f"{path}/a/b")
    assert (local / "a/b/f").read_bytes() == b"content" and not fs.exists(f"{path}/a/f")
    fs.mv(f"{path}/a/b/f", f"{path}/g")
    if url.startswith("root"):
        fs.chmod(f"{path}/g", 0o600)
        assert (local / "g").stat().st_mode & 0o777 == 0o600
    with pytest.raises(IsADirectoryError):
        fs.rm(f"{path}/a")
    fs.rm(path + "/a", recursive=True)
    assert os.listdir(local) == ["g"]
    fs.rm(f"{path}/g")
    with pytest.raises(FileNotFoundError):
        fs.rm_file(f"{path}/g")


def test_directories_are_removed_when_they_are_empty(area, served):
    url, local = area
    fs, path = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{path}/d/f", b"x")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir(f"{path}/d")
    fs.rm_file(f"{path}/d/f")
    fs.rmdir(f"{path}/d")
    assert list(local.iterdir()) == []
    if not served.is_xrootd:
        with pytest.raises(FileNotFoundError):
            fs.rmdir(f"{path}/d")


def test_no_method_is_one_of_fsspec_that_does_nothing():
    fs = towpath_fs.RootFileSystem("host", skip_instance_cache=True)
    for name in ("mkdir", "makedirs", "rmdir"):
        assert getattr(getattr(fs, name), "__func__", None) is not getattr(fsspec.AbstractFileSystem, name)


def test_writing(area, served):
    url, local = area
    if served.is_xrootd and url.startswith("dav"):
        pytest.skip("5.5 refuses some uploads of unknown length")
    (local / "f").write_bytes(b"old")
    with fsspec.open(f"{url}/f", "wb") as file:
        for part in range(40):
            file.write(bytes([part]) * 1_000_000)
        assert served.is_xrootd or (local / "f").read_bytes() == b"old", "visible when it is closed"
    assert (local / "f").read_bytes() == b"".join(bytes([part]) * 1_000_000 for part in range(40))

    if served.is_xrootd:
        return  # Such a server shows what is written, and removes an older file at once.
    fs, path = fsspec.core.url_to_fs(f"{url}/f")

    def write_half():
        with fs.open(path, "wb") as file:
            file.write(bytes(20_000_000))
            raise KeyError("x")

    with pytest.raises(KeyError):
        write_half()
    fs, path = fsspec.core.url_to_fs(f"{url}/new")
    file = fs.open(path, "wb")
    file.write(b"x")
    del file
    assert sorted(os.listdir(local)) == ["f"] and (local / "f").stat().st_size == 40_000_000
    with fs.transaction, fs.open(path, "wb") as file:
        file.write(b"y")
    assert (local / "new").read_bytes() == b"y"
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with pytest.raises(NotImplementedError, match="replace files as a whole"):
        fs.open(path, "ab")


def test_layers_end_like_their_file(area, served):
    url, local = area
    fs, path = fsspec.core.url_to_fs(f"{url}/f.txt.gz")
    text = "line\n" * 100_000
    with fs.open(path, "wt", compression="infer") as file:
        file.write(text)
    with fs.open(path, "rt", compression="infer") as file:
        assert file.read() == text
    with fs.open(f"{path}.bin", "wb", compression="gzip") as file:
        file.write(b"bytes")
    assert gzip.decompress((local / "f.txt.gz.bin").read_bytes()) == b"bytes"
    if served.is_xrootd:
        return
    before = {name: (local / name).read_bytes() for name in os.listdir(local)}

    def fail(mode, compression):
        with fs.open(path, mode, compression=compression) as file:
            file.write("x" if mode == "wt" else b"x")
            raise KeyError("x")

    for mode, compression in itertools.product(("wt", "wb"), (None, "gzip")):
        with pytest.raises(KeyError):
            fail(mode, compression)
        abandoned = fs.open(path, mode, compression=compression)
        abandoned.write("x" if mode == "wt" else b"x")
        del abandoned
    assert {name: (local / name).read_bytes() for name in os.listdir(local)} == before


def test_links_are_removed_and_not_followed(area, served):
    url, local = area
    if served.is_xrootd and url.startswith("dav"):
        pytest.skip("5.5 removes no link to a directory")
    for name in ("kept/file", "tree/a/b", "tree/c"):
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        (local / name).write_bytes(b"x")
    # XRootD takes absolute links for its own.
    (local / "tree/a/link").symlink_to("../../kept")
    (local / "root_link").symlink_to("kept")
    fs, path = fsspec.core.url_to_fs(url)
    with pytest.raises(NotImplementedError):
        fs.rm(f"{path}/tree", recursive=True, maxdepth=1)
    fs.rm(f"{path}/tree", recursive=True)
    with contextlib.suppress(OSError):
        # Not each protocol removes a link to a directory by its name.
        fs.rm(f"{path}/root_link", recursive=True)
    assert not (local / "tree").exists() and (local / "kept/file").read_bytes() == b"x"


def test_a_link_to_a_directory_is_a_file_for_rm(area):
    url, local = area
    (local / "kept").mkdir()
    (local / "link").symlink_to("kept")
    fs, path = fsspec.core.url_to_fs(url)
    listed = {entry["name"]: entry["islink"] for entry in fs.ls(path)}
    if not listed[f"{path}/link"]:
        pytest.skip("this storage does not report links")
    fs.rm(f"{path}/link")
    assert os.listdir(local) == ["kept"]


def test_open_files_are_closed_when_they_are_written(area):
    url, local = area
    (local / "f").write_bytes(b"0123456789")
    (local / "sibling").write_bytes(b"old")
    fs, path = fsspec.core.url_to_fs(url)
    assert fs.cat_file(f"{path}/sibling", 0, 1) == b"o"
    for number in range(20):
        with fs.open(f"{path}/f") as file:
            file.read(3)
        assert len(fs.cat_file(f"{path}/f", 1, 4)) == 3 and fs.cat_file(f"{path}/f")
        with fs.open(f"{path}/f", "wb") as file:
            file.write(b"%06d" % number)
        assert fs.cat_file(f"{path}/f", 0, 10) == b"%06d" % number
    assert fs._read_url(f"{path}/sibling") in fs._open_files._files, "other files of the directory stay open"


def test_a_process_ends_with_files_that_are_open(area):
    url, local = area
    (local / "f").write_text("one\ntwo\n")
    program = f"""
import fsspec, io, towpath.fs
towpath.fs.register()
text = fsspec.open({url + "/f"!r}, "rt").open()
buffered = io.BufferedReader(fsspec.open({url + "/f"!r}).open())
print(text.readline(), buffered.readline())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done


def test_open_files_are_pickled(area):
    url, local = area
    (local / "f").write_bytes(b"0123456789")
    fs, path = fsspec.core.url_to_fs(f"{url}/f")
    file = fs.open(path)
    file.seek(3)
    with pickle.loads(pickle.dumps(file)) as copy:
        assert copy.read(2) == b"34"
    with fs.open(path) as other:
        assert other.info()["name"] == path and fs.info(path)["size"] == file.size == 10
    file.close()
    fs.pipe_file(path, memoryview(np.arange(3.0)))
    assert (local / "f").stat().st_size == 24


def test_versions_have_numbers(area):
    url, local = area
    fs, path = fsspec.core.url_to_fs(f"{url}/f")
    tokens = []
    for content in (b"a", b"bc"):
        (local / "f").write_bytes(content)
        tokens.append((fs.checksum(path), fs.ukey(path)))
        assert tokens[-1] == (fs.checksum(path), fs.ukey(path))
    assert tokens[0] != tokens[1]


def test_another_version_is_said_once(area, monkeypatch):
    url, local = area
    (local / "f").write_bytes(b"a" * 1_000)
    fs, path = fsspec.core.url_to_fs(f"{url}/f")
    assert fs.cat_file(path, 0, 2) == b"aa"
    monkeypatch.setattr(towpath_fs.calls, "IDLE_S", 0.0)
    (local / "f").write_bytes(b"b" * 2_000)
    assert fs.cat_file(path) == b"b" * 2_000, "as a whole it is as it is now"
    with pytest.raises(OSError, match="has changed since it was read before"):
        fs.cat_file(path, 0, 2)
    assert fs.cat_file(path, 0, 2) == b"bb"
    fs.pipe_file(path, b"c" * 3_000)
    assert fs.cat_file(path, 0, 2) == b"cc", "its own changes are no surprise"
    fs.mv(path, f"{path}.moved")
    (local / "f").write_bytes(b"d")
    assert fs.cat_file(path, 0, 2) == b"d"


def test_file_objects(area):
    url, local = area
    content = os.urandom(3_000_000)
    (local / "f").write_bytes(content)
    with fsspec.open(f"{url}/f") as file:
        assert file.read(10) == content[:10] and file.seek(-5, 2) == len(content) - 5 and file.read() == content[-5:]
        file.seek(1_000)
        assert b"".join(iter(lambda: file.read(70_000), b"")) == content[1_000:]
    (local / "t").write_text("one\ntwo\nthree")
    with fsspec.open(f"{url}/t", "rt") as file:
        assert list(file) == ["one\n", "two\n", "three"]


def test_exact_reads_fetch_nothing_else():
    fetched = []
    content = bytes(range(256)) * 400

    def fetch(start, end):
        fetched.append((start, end))
        return content[start:end]

    cache = towpath_fs.files.ExactCache(10_000, fetch, len(content))
    assert cache._fetch(500, 520) == content[500:520] and fetched == [(500, 520)]
    assert cache._fetch(505, 515) == content[505:515] and len(fetched) == 1
    for start in range(20_000, 60_000, 1_000):
        assert cache._fetch(start, start + 1_000) == content[start : start + 1_000]
    lengths = [end - start for start, end in fetched[1:]]
    assert lengths[0] == 1_000 and max(lengths) == 10_000 and len(lengths) < 12, lengths
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(fetched[1:])), "nothing twice"


def test_a_file_that_changes_is_never_mixed(area, served):
    url, local = area
    (local / "f").write_bytes(b"a" * 100_000)
    fs, path = fsspec.core.url_to_fs(f"{url}/f")
    with fs.open(path) as file:
        assert file.read(10) == b"a" * 10 and fs.cat_file(path, 0, 5) == b"aaaaa"
        (local / "g").write_bytes(b"b" * 100_000)
        if served.is_xrootd:
            # It reports modification times in seconds.
            os.utime(local / "g", (1_700_000_000, 1_700_000_000))
        os.replace(local / "g", local / "f")
        for read in (lambda: fs.cat_file(path, 50_000, 50_005), lambda: (file.seek(90_000), file.read(5))):
            with contextlib.suppress(OSError):
                assert read() in (b"aaaaa", (90_000, b"aaaaa")), "the opened version"
    fs.invalidate_cache()
    assert fs.cat_file(path, 0, 5) == b"bbbbb"


def test_http_and_https_are_registered_on_demand(server):
    (server[0] / "plain").write_bytes(b"content")
    with fsspec.open(f"http://{server[1]}/plain") as file:
        assert isinstance(file, towpath_fs.files.ReadableFile) and file.read() == b"content"


def test_threads_and_event_loops(area):
    url, local = area
    content = os.urandom(1_000_000)
    (local / "f").write_bytes(content)
    fs, path = fsspec.core.url_to_fs(f"{url}/f")
    with ThreadPoolExecutor(16) as pool:
        starts = range(0, 1_000_000, 5_000)
        assert b"".join(pool.map(lambda start: fs.cat_file(path, start, start + 5_000), starts)) == content

    async def read():
        return await asyncio.gather(*(fs._cat_file(path, start, start + 10) for start in range(50)))

    results = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(read()))) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert results == [[content[start : start + 10] for start in range(50)]] * 4


def test_a_cancelled_read_ends(area):
    url, local = area
    (local / "f").write_bytes(bytes(1_000))
    fs, path = fsspec.core.url_to_fs(f"{url}/f")

    async def cancelled():
        task = asyncio.ensure_future(fs._cat_file(path, 0, 1_000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await fs._cat_file(path, 0, 3)

    assert asyncio.run(cancelled()) == bytes(3)


def read_in_child(url, queue):
    towpath_fs.register()
    queue.put(fsspec.open(url).open().read())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(area, method):
    url, local = area
    (local / "f").write_bytes(b"content")
    assert fsspec.open(f"{url}/f").open().read() == b"content"
    fsspec.asyn.reset_lock()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=read_in_child, args=(f"{url}/f", queue))
    child.start()
    assert queue.get(timeout=60) == b"content"
    child.join(30)
    assert child.exitcode == 0


def test_errors_name_their_cause(area, server):
    url, _ = area
    fs, path = fsspec.core.url_to_fs(url)
    with pytest.raises(FileNotFoundError, match=f"{path}/none"):
        fs.cat_file(f"{path}/none")
    with pytest.raises((IsADirectoryError, FileNotFoundError)):
        fs.open(path)
    scheme = url.partition(":")[0]
    nobody, _ = fsspec.core.url_to_fs(f"{scheme}://127.0.0.1:1//f", wait=1)
    with pytest.raises(OSError, match="127.0.0.1:1"):
        nobody.exists("/f")
    with pytest.raises(ValueError, match="wait: -1"):
        fsspec.filesystem(scheme, hostid="127.0.0.1", wait=-1)


def test_reads_go_through_the_agent(binary, server, monkeypatch, tmp_path):
    directory, address = server
    (directory / "agent.txt").write_bytes(b"content")
    monkeypatch.setenv("TOWPATH_AGENT_DIRECTORY", str(tmp_path / "agent"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (directory / "with space.txt").write_bytes(b"content")
    urls = [f"root://{address}//agent.txt", f"dav://{address}/with%20space.txt"]

    def agent(*arguments: str) -> str:
        return subprocess.run([binary, "agent", *arguments], check=True, capture_output=True, text=True).stdout

    setting = agent("env", *urls).strip().removeprefix("export TOWPATH_AGENT=")
    try:
        monkeypatch.setenv("TOWPATH_AGENT", setting)
        for url in urls:
            fs, path = fsspec.core.url_to_fs(url)
            assert fs._read_url(path) != url
            assert fs.cat_file(path, 0, 4) == b"cont" and fs.open(path).read() == b"content"
        own, _ = fsspec.core.url_to_fs(urls[0], token="x")
        assert own._read_url("/agent.txt") == urls[0], "the agent does not have this token"
        assert address in agent("status")
    finally:
        agent("stop")


def test_files_in_coroutines(area):
    url, local = area
    content = os.urandom(300_000)
    (local / "old").write_bytes(content)

    async def use():
        fs, path = fsspec.core.url_to_fs(url, asynchronous=True, skip_instance_cache=True)
        async with await fs.open_async(f"{path}/old") as file:
            parts = [await file.read(10), await file.read(0), await file.read()]
            assert b"".join(parts) == content and await file.read(5) == b""
        async with await fs.open_async(f"{path}/new", "wb", block_size=100_000) as file:
            for start in range(0, len(content), 70_000):
                await file.write(content[start : start + 70_000])
        with contextlib.suppress(KeyError):
            async with await fs.open_async(f"{path}/discarded", "wb") as file:
                await file.write(b"x")
                raise KeyError
        async with await fs.open_async(f"{path}/empty", "wb"):
            pass
        with pytest.raises(FileNotFoundError):
            await fs.open_async(f"{path}/none")
        with pytest.raises(NotImplementedError):
            await fs.open_async(f"{path}/old", "ab")

    asyncio.run(use())
    assert {path.name for path in local.iterdir()} == {"old", "new", "empty"}
    assert (local / "new").read_bytes() == content and (local / "empty").read_bytes() == b""


def test_files_without_a_registration(area):
    url, local = area
    with towpath.open(f"{url}/f.txt", "wt", encoding="utf-8") as file:
        file.write("é\n")
    assert (local / "f.txt").read_text(encoding="utf-8") == "é\n" and towpath.open(f"{url}/f.txt").read() == "é\n".encode()
    found = towpath.stat(f"{url}/f.txt")
    assert (found["size"], found["type"]) == (3, "file")
    assert found["mtime"] == pytest.approx((local / "f.txt").stat().st_mtime, abs=1)
    assert towpath.stat(url)["type"] == "directory"
    with pytest.raises(FileNotFoundError):
        towpath.stat(f"{url}/none")
    for wrong in ("/etc/passwd", "gsiftp://host/a", "root"):
        with pytest.raises(ValueError, match="expected a URL that begins with one of root, roots"):
            towpath.open(wrong)


def test_urls():
    for url, kind, path, back in [
        ("root://user@host:1095//a/b", towpath_fs.RootFileSystem, "/a/b", None),
        ("root://host/a", towpath_fs.RootFileSystem, "/a", "root://host//a"),
        ("roots://host//", towpath_fs.RootFileSystem, "/", None),
        ("towpath://host//a", towpath_fs.RootFileSystem, "/a", None),
        ("davs://host/a%20b/", towpath_fs.HttpFileSystem, "/a%20b", "davs://host/a%20b"),
        ("https://host/a?x=y", towpath_fs.HttpFileSystem, "/a?x=y", None),
        ("s3://bucket/a/b", towpath_fs.S3FileSystem, "/a/b", None),
    ]:
        fs, found = fsspec.core.url_to_fs(url)
        assert (type(fs), found, fs.unstrip_protocol(found)) == (kind, path, back or url)
    bucket = towpath_fs.S3FileSystem("data")
    assert bucket._url(bucket._strip_protocol("set/x")) == "s3://data/set/x"
    with pytest.raises(TypeError, match="unknown options: tokne"):
        fsspec.core.url_to_fs("davs://host/a", tokne="x")
    pickled = fsspec.AbstractFileSystem.from_json(fsspec.core.url_to_fs("davs://host/a")[0].to_json())
    assert (pickled.hostid, pickled.scheme) == ("host", "davs")
    assert Path(towpath_fs.__file__).name == "__init__.py"
