"""Copies and probes of the package, with the real program and a real server."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import uproot

import towpath


@pytest.fixture(autouse=True)
def _program(binary, monkeypatch, tmp_path):
    monkeypatch.setenv("TOWPATH_PROGRAM", str(binary))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def tree(tmp_path):
    directory = tmp_path / "tree"
    (directory / "inner").mkdir(parents=True)
    for name, size in (("a", 10), ("b", 100_000), ("inner/c", 0)):
        (directory / name).write_bytes(os.urandom(size))
    return directory


def test_a_tree_is_copied_and_a_second_copy_is_refused(server, tree):
    directory, address = server
    url = f"root://{address}//copied"
    copied = towpath.copy(tree, url, recursive=True, options=["--checksum", "adler32"])
    assert (copied.files, copied.bytes, copied.skipped, copied.verified) == (3, 100_010, 0, 3) and copied.seconds > 0
    assert (directory / "copied" / "b").read_bytes() == (tree / "b").read_bytes()
    with pytest.raises(towpath.Conflict) as caught:
        towpath.copy(tree / "a", f"{url}/a")
    assert "/copied/a" in str(caught.value)
    assert towpath.copy(tree / "a", f"{url}/a", skip_existing=True).skipped == 1
    assert towpath.copy([tree / "a", tree / "b"], url, overwrite=True).files == 2


def test_errors_are_those_of_the_program(server, tree, tmp_path):
    _, address = server
    with pytest.raises(towpath.NotFound) as caught:
        towpath.copy(f"root://{address}//none", tmp_path / "none")
    assert "none" in str(caught.value) and not (tmp_path / "none").exists()
    with pytest.raises(towpath.Error, match="is a directory"):
        towpath.copy(tree, f"root://{address}//refused")
    with pytest.raises(towpath.Unavailable):
        towpath.copy("root://127.0.0.1:1//f", tmp_path / "f", options=["--wait", "1s"])
    with pytest.raises(towpath.Invalid, match="--unknown") as caught:
        towpath.copy(tree / "a", tmp_path / "a", options=["--unknown"])
    assert caught.value.exit_code == 2
    # A name that begins with a dash is a name.
    with pytest.raises(towpath.NotFound):
        towpath.copy("-r", tmp_path / "a")
    for wrong in (lambda: towpath.copy("-", tmp_path / "a"), lambda: towpath.copy(tree / "a", tmp_path / "a", options=["--dry-run"])):
        with pytest.raises(ValueError, match="a place is -|nothing was copied"):
            wrong()
    with pytest.raises(TypeError, match="expected a list"):
        towpath.copy(tree / "a", tmp_path / "a", options="-f")
    assert not (tmp_path / "a").exists()


def test_what_the_program_warns_of_is_a_warning(tree, tmp_path):
    first, second = (tmp_path / name for name in ("first", "second"))
    for path, content in ((first, b"1"), (second, b"other")):
        path.write_bytes(content)
    with pytest.warns(UserWarning, match="second"):
        towpath.copy(first, tmp_path / "to", options=["--source", str(second)])
    assert (tmp_path / "to").read_bytes() == b"1"


def test_progress_is_reported_and_can_end_the_copy(server, tmp_path):
    directory, address = server
    (directory / "large").write_bytes(os.urandom(8_000_000))
    states, start = [], time.monotonic()

    def watch(state):
        states.append(state)
        if len(states) == 2:
            raise KeyError("enough")

    with pytest.raises(KeyError):
        towpath.copy(f"root://{address}//large", tmp_path / "large", progress=watch, options=["--limit", "1MB"])
    assert list(tmp_path.iterdir()) == [] and time.monotonic() - start < 10
    first, second = states
    assert first.files_found == 1 and first.all_found and first.files_ended == 0
    assert 0 <= first.bytes_moved <= second.bytes_moved < 8_000_000 and second.bytes_moved + second.bytes_ahead == 8_000_000
    assert second.bytes_per_s > 0


SHOWN = """
import sys, towpath
towpath.copy(sys.argv[1], sys.argv[2], progress=True, options=["--limit", "2MB"])
"""


def test_progress_is_a_bar(server, tmp_path):
    directory, address = server
    (directory / "shown").write_bytes(os.urandom(4_000_000))
    command = [sys.executable, "-c", SHOWN, f"root://{address}//shown", str(tmp_path / "shown")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "100%" in done.stderr and "1/1 files" in done.stderr, done.stderr
    assert done.stdout == "" and (tmp_path / "shown").stat().st_size == 4_000_000


def test_a_path_is_probed(server):
    directory, address = server
    (directory / "probed").write_bytes(os.urandom(1000))
    document = towpath.probe(f"root://{address}//probed", direction="down", connections=2, seconds=1)
    (leg,) = document["network"]
    assert (leg["direction"], leg["connections"]) == ("down", 2) and leg["rate_bytes_per_s"] > 1e6
    with pytest.raises(towpath.Error):
        towpath.probe("root://127.0.0.1:1//", seconds=1, options=["--wait", "1s"])


def test_columns_are_planned(server):
    directory, address = server
    with uproot.recreate(directory / "planned.root") as file:
        file.mktree("t", {"x": "f8", "y_1": "i4", "y_2": "i4"}).extend(dict.fromkeys(("x", "y_1", "y_2"), np.arange(1000)))
        file.mktree("u", {"x": "f8"}).extend({"x": np.arange(10.0)})
    url = f"root://{address}//planned.root"
    assert {tree["tree"]: tree["entries"] for tree in towpath.plan(url)["trees"]} == {"t": 1000, "u": 10}
    with pytest.raises(towpath.NotFound, match=r"none\.root"):
        towpath.plan(directory / "none.root", "x")
    planned = towpath.plan(url, ["x", "y_*"], entries=(10, 20), tree="t", gap=1_000_000)
    assert [column["name"] for column in planned["columns"]] == ["x", "y_1", "y_2"]
    assert planned["selected_entries"] == [10, 20] and len(planned["ranges"]) == 1
    assert towpath.plan(url, "x", entries=(5, None), tree="u")["selected_entries"] == [5, 10]
    with uproot.open(directory / "planned.root") as file:
        (basket,) = towpath.plan(directory / "planned.root", ["x"], tree="u")["ranges"]
        assert basket[0] == file["u"]["x"].basket_key(0).fSeekKey
    with pytest.raises(towpath.NotFound, match="none"):
        towpath.plan(url, ["none"], tree="t")


def test_without_the_program(monkeypatch, tmp_path):
    monkeypatch.delenv("TOWPATH_PROGRAM")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(ValueError, match="the program towpath was not found"):
        towpath.copy("a", "b")
