"""Makes ROOT files for the suite `analysis`.

    python analysis_trees.py ttree|rntuple SOURCE TARGET    the tree `T` of SOURCE as ROOT writes it by default
    python analysis_trees.py small TARGET                   a tree `T` with 2,000 columns of 2,000 random numbers each
"""

from __future__ import annotations

import sys
import warnings

SMALL_COLUMNS = 2000
SMALL_ENTRIES = 2000


def modern(layout: str, source: str, target: str) -> None:
    warnings.simplefilter("ignore")  # the wheel warns that it is an alpha release
    import ROOT

    formats = ROOT.RDF.ESnapshotOutputFormat
    options = ROOT.RDF.RSnapshotOptions()
    options.fOutputFormat = {"ttree": formats.kTTree, "rntuple": formats.kRNTuple}[layout]
    ROOT.RDataFrame("T", source).Snapshot("T", target, "", options)


def small(target: str) -> None:
    import numpy
    import uproot

    numbers = numpy.random.default_rng(1)
    columns = {f"c{index:04}": numbers.integers(0, 1 << 30, SMALL_ENTRIES, numpy.int32) for index in range(SMALL_COLUMNS)}
    with uproot.recreate(target) as file:
        file.mktree("T", {name: values.dtype for name, values in columns.items()}).extend(columns)


def main(kind: str, *paths: str) -> None:
    if kind == "small":
        small(*paths)
    else:
        modern(kind, *paths)


if __name__ == "__main__":
    main(*sys.argv[1:])
