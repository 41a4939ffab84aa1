"""The programs that use file systems of fsspec, over `towpath.fs` and real servers."""

import subprocess
import sys
import zlib

import awkward
import dask
import dask.dataframe
import fsspec
import numpy as np
import pandas as pd
import uproot
import xarray
import zarr


def root_file(path, values):
    with uproot.recreate(path) as file:
        file["t"] = {"x": values, "y": -values}


def kind_of(fs):
    return type(fs).__module__


def test_uproot(area):
    url, local = area
    values = np.arange(100_000, dtype=np.float64)
    root_file(local / "f.root", values)
    with uproot.open(f"{url}/f.root") as file:
        assert np.array_equal(file["t"]["y"].array(library="np"), -values)
    (part,) = uproot.iterate(f"{url}/*.root:t", ["x"], step_size="1 GB", library="np")
    assert np.array_equal(part["x"], values)


def test_pandas_and_pyarrow(area):
    url, _ = area
    frame = pd.DataFrame({"x": np.arange(50_000), "name": [f"n{number}" for number in range(50_000)]})
    frame.to_parquet(f"{url}/f.parquet")
    frame.to_csv(f"{url}/f.csv", index=False)
    assert pd.read_parquet(f"{url}/f.parquet", columns=["x"]).x.equals(frame.x)
    assert pd.read_csv(f"{url}/f.csv").equals(frame)


def test_dask(area):
    """Its workers are other processes, which get pickled file systems."""
    url, _ = area
    frame = pd.DataFrame({"part": np.arange(30_000) // 10_000, "x": np.arange(30_000)})
    with dask.config.set(scheduler="processes", num_workers=2):
        assert dask.delayed(kind_of)(fsspec.core.url_to_fs(url)[0]).compute().startswith("towpath.fs")
        dask.dataframe.from_pandas(frame, npartitions=3).to_parquet(f"{url}/parts")
        parts = dask.dataframe.read_parquet(f"{url}/parts")
        assert parts.npartitions == 3
        assert parts.groupby("part").x.sum().compute().to_dict() == frame.groupby("part").x.sum().to_dict()


def test_dask_awkward(area):
    url, local = area
    values = np.arange(1000, dtype=np.float64)
    for number in range(3):
        # Not an RNTuple: those of uproot cannot be sent to other processes.
        with uproot.recreate(local / f"f{number}.root") as file:
            file.mktree("t", {"x": "f8", "y": "f8"}).extend({"x": values + number, "y": -values - number})
    columns = uproot.dask(f"{url}/*.root:t")
    assert columns.npartitions == 3
    with dask.config.set(scheduler="processes", num_workers=2):
        for column, sign in (("x", 1), ("y", -1)):
            assert awkward.to_numpy(columns[column].compute()).sum() == sign * 3 * (values.sum() + 1000)


def test_zarr_and_xarray(area):
    url, local = area
    values = np.random.default_rng(1).normal(size=(300, 200))
    array = zarr.create_array(f"{url}/a.zarr", shape=values.shape, chunks=(100, 100), dtype="f8")
    array[:] = values
    assert np.array_equal(zarr.open_array(f"{url}/a.zarr", mode="r")[50:150, 10], values[50:150, 10])
    data = xarray.Dataset({"t": (("time", "place"), values)}, {"time": np.arange(300)})
    data.to_zarr(f"{url}/d.zarr", consolidated=False)
    with xarray.open_zarr(f"{url}/d.zarr", consolidated=False) as back:
        assert back.identical(data)
    assert (local / "d.zarr" / "zarr.json").is_file()


GFAL = """
import sys
import towpath.fs
from gfal.cli.shell import main

towpath.fs.register()
sys.modules["fsspec_xrootd"] = None  # its file system cannot be used instead
sys.argv[0] = "gfal"
sys.exit(main())
"""


def test_gfal(server, tmp_path):
    """gfal of PyPI, which is made for the file system of fsspec-xrootd."""
    directory, address = server
    url, content = f"root://{address}//gfal", b"0123456789abcdef" * 640

    def gfal(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-c", GFAL, *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    (tmp_path / "f").write_bytes(content)
    gfal("mkdir", url)
    gfal("cp", "--checksum", "ADLER32", f"file://{tmp_path}/f", f"{url}/f")
    assert (directory / "gfal" / "f").read_bytes() == content
    assert "10240" in gfal("stat", f"{url}/f")
    assert gfal("ls", url).split() == ["f"] and "10240" in gfal("ls", "-l", url)
    assert f"{zlib.adler32(content):08x}" in gfal("sum", f"{url}/f", "ADLER32")
    gfal("rename", f"{url}/f", f"{url}/g")
    gfal("chmod", "640", f"{url}/g")
    assert (directory / "gfal" / "g").stat().st_mode & 0o777 == 0o640
    assert gfal("cat", f"{url}/g").encode() == content
    gfal("cp", f"{url}/g", f"file://{tmp_path}/back")
    assert (tmp_path / "back").read_bytes() == content
    gfal("rm", "-r", url)
    assert not (directory / "gfal").exists()
