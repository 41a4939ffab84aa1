"""Reads two columns of files with ROOT's RDataFrame, and prints seconds and result as one JSON object.

    python analysis_threads.py threads|processes URL...

Either one process reads all files with as many threads, or as many processes read one file each. They begin at the same time; starts, and the
first use of RDataFrame on the local file WARM_UP_FILE, are not timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")  # the wheel warns that it is an alpha release
import ROOT  # noqa: E402

MACRO = """
#include <ROOT/RDataFrame.hxx>
double selected(const std::vector<std::string>& files) {
    ROOT::RDataFrame frame("T", files);
    auto chosen = frame.Filter([](double energy) { return energy > 5; }, {"E33"});
    auto sums = chosen.Define("sum", [](const ROOT::RVecD& samples) { return ROOT::VecOps::Sum(samples); }, {"rawtr"});
    return *sums.Sum<double>("sum");
}
"""


def child(url: str, begin: int) -> int:
    """Starts a process that reads one file when `begin` has a byte for it. Returns where it writes its result."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        return reading
    os.read(begin, 1)
    os.write(writing, repr(ROOT.selected([url])).encode())
    os._exit(0)


def by_processes(urls: list[str]) -> tuple[float, float]:
    begin, held = os.pipe()
    ends = [child(url, begin) for url in urls]
    start = time.monotonic()
    os.write(held, b"b" * len(urls))
    total = sum(float(os.read(end, 100) or "nan") for end in ends)
    return time.monotonic() - start, total


def by_threads(urls: list[str]) -> tuple[float, float]:
    start = time.monotonic()
    found = ROOT.selected(urls)
    return time.monotonic() - start, found


def main(kind: str, *urls: str) -> None:
    ROOT.gInterpreter.Declare(MACRO)
    ROOT.gSystem.Load("libNetxNG")
    if kind == "threads":
        ROOT.EnableImplicitMT(len(urls))
        if ROOT.GetThreadPoolSize() != len(urls):
            sys.exit(f"ROOT started {ROOT.GetThreadPoolSize()} threads for {len(urls)} files")
    ROOT.selected([os.environ["WARM_UP_FILE"]])
    seconds, found = {"threads": by_threads, "processes": by_processes}[kind](list(urls))
    print(json.dumps({"seconds": seconds, "sum": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
