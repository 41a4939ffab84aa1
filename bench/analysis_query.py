"""Reads columns of files one after the other, in one process, and prints times and results as one JSON object.

    python analysis_query.py READER URL...

READER is `root` with ROOT's cache as it is, `root-64k` and `root-10m` with one of that size, `root-off` without it, `frame` for RDataFrame,
`uproot` with fsspec-xrootd, `towpath` for uproot with `towpath.fs`, or `dask` and `towpath-dask` for uproot with dask-awkward: two columns
of the tree `T`. `uproot-25` and `towpath-25` read 25 columns of the tree `Events` (`nanoaod.py`), `uproot-all` and `towpath-all` all of
`T`. The start of the interpreter, and the first use of the reader on a local file that WARM_UP_FILE names, are not timed.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable

import nanoaod

QUERY = 'long query(TTree* tree) { return tree->Draw("rawtr", "E33>5", "goff"); }'
FRAME = """
#include <ROOT/RDataFrame.hxx>
long query(const std::string& url) {
    ROOT::RDataFrame frame("T", url);
    auto chosen = frame.Filter([](double energy) { return energy > 5; }, {"E33"});
    return *chosen.Define("count", [](const ROOT::RVecD& samples) { return long(samples.size()); }, {"rawtr"}).Sum<long>("count");
}
"""


def root(declaration: str):
    """Returns ROOT with a function. All return the number of values of the second column where the first is above 5."""
    warnings.simplefilter("ignore")  # the wheel warns that it is an alpha release
    import ROOT

    ROOT.gROOT.SetBatch(True)
    ROOT.gSystem.Load("libNetxNG")
    ROOT.gInterpreter.Declare(declaration)
    return ROOT


def frame_reader():
    """Returns a function that reads a file with RDataFrame, which opens it with the first read."""
    ROOT = root(FRAME)
    return lambda url: (time.monotonic(), int(ROOT.query(url)))


def root_reader(cache_bytes: "int | None"):
    """Returns a function that reads a file with ROOT."""
    ROOT = root(QUERY)

    def read(url: str) -> "tuple[float, int]":
        file = ROOT.TFile.Open(url)
        if not file or file.IsZombie():
            sys.exit(f"ROOT could not open {url}")
        tree = file.Get("T")
        opened = time.monotonic()
        if cache_bytes is not None:
            tree.SetCacheSize(cache_bytes)
        found = int(ROOT.query(tree))
        file.Close()
        return opened, found

    return read


def use_file_system(is_towpath: bool) -> None:
    """Makes fsspec use `towpath.fs` or fsspec-xrootd."""
    import fsspec

    if is_towpath:
        import towpath.fs

        towpath.fs.register()
    else:
        import fsspec_xrootd  # noqa: F401 - not timed, as the import of towpath.fs is not

        fsspec.register_implementation("root", "fsspec_xrootd.XRootDFileSystem", clobber=True)


def uproot_reader(is_towpath: bool, name: str, columns: "list[str] | None", result: Callable[[dict], int]):
    """Returns a function that reads columns of the tree `name` of a file with uproot; `None` stands for all."""
    use_file_system(is_towpath)
    import uproot

    def read(url: str) -> "tuple[float, int]":
        with uproot.open({url: None}) as file:
            tree = file[name]
            opened = time.monotonic()
            arrays = tree.arrays(columns, library="np")
        return opened, result(arrays)

    return read


def dask_reader(is_towpath: bool):
    """Returns a function that reads both columns with dask-awkward, in one thread."""
    use_file_system(is_towpath)
    import awkward
    import uproot

    def read(url: str) -> "tuple[float, int]":
        events = uproot.dask({url: "T"})
        opened = time.monotonic()
        chosen = events["rawtr"][events["E33"] > 5].compute(scheduler="sync")
        return opened, int(awkward.count(chosen, axis=None))

    return read


TWO = ("T", ["E33", "rawtr"], lambda arrays: int(arrays["rawtr"][arrays["E33"] > 5].size))
ALL = ("T", None, lambda arrays: sum(int(values[::97].sum()) for values in arrays.values()))
NANOAOD = ("Events", nanoaod.COLUMNS, lambda arrays: sum(int(values[::97].sum()) for values in arrays.values()))

READERS = {
    "root": lambda: root_reader(None),
    "root-10m": lambda: root_reader(10_000_000),
    "root-64k": lambda: root_reader(64_000),
    "root-off": lambda: root_reader(0),
    "frame": frame_reader,
    "uproot": lambda: uproot_reader(False, *TWO),
    "towpath": lambda: uproot_reader(True, *TWO),
    "dask": lambda: dask_reader(False),
    "towpath-dask": lambda: dask_reader(True),
    "uproot-all": lambda: uproot_reader(False, *ALL),
    "towpath-all": lambda: uproot_reader(True, *ALL),
    "uproot-25": lambda: uproot_reader(False, *NANOAOD),
    "towpath-25": lambda: uproot_reader(True, *NANOAOD),
}


def main(reader: str, *urls: str) -> None:
    """Prints seconds to open, seconds in all, and the result of each file."""
    read = READERS[reader]()
    if local := os.environ.get("WARM_UP_FILE"):
        read(local)
    files = []
    for url in urls:
        start = time.monotonic()
        opened, found = read(url)
        end = time.monotonic()
        files.append({"open_s": opened - start, "seconds": end - start, "values": found})
    print(json.dumps({"files": files}))


if __name__ == "__main__":
    main(*sys.argv[1:])
