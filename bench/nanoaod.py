"""Writes a file with the 1,814 branches of the NanoAOD file of the 200 Gbps challenge, of an eighth of its size.

    python nanoaod.py SIZES ttree|rntuple FILE

SIZES is `nanoaod_branch_sizes.json` of https://github.com/iris-hep/idap-200gbps: megabytes of each branch. The first half of the values of a cluster is
random, the other is zero, so that zlib has some work, and the baskets the sizes of the list.
"""

from __future__ import annotations

import json
import sys

SCALE = 8
CLUSTERS = 10
CLUSTER_ENTRIES = 12_500
COLUMNS = [
    f"{kind}_{name}"
    for kind, names in {
        "GenPart": "pt eta phi mass pdgId",
        "CorrT1METJet": "phi eta rawPt muonSubtrFactor",
        "GenJet": "pt eta phi",
        "SoftActivityJet": "pt eta phi",
        "Jet": "eta phi mass pt btagDeepFlavB btagDeepFlavCvL btagDeepFlavCvB btagDeepFlavQG puIdDisc cRegCorr",
    }.items()
    for name in names.split()
]
"""The columns that the challenge read."""


def write(sizes_path: str, layout: str, path: str) -> None:
    """Writes the file, cluster by cluster."""
    import numpy as np
    import uproot

    with open(sizes_path, encoding="utf-8") as file:
        megabytes = {name: size for name, size in json.load(file).items() if name != "_file_size"}
    # Random bytes of a cluster.
    random_bytes = {name: round(size * 1e6 / SCALE / CLUSTERS) for name, size in megabytes.items()}
    widths = {name: -(-size // CLUSTER_ENTRIES) for name, size in random_bytes.items()}
    types = {name: np.dtype(("u1", (2 * width,))) for name, width in widths.items()}
    random = np.random.default_rng(1)
    with uproot.recreate(path, compression=uproot.ZLIB(1)) as file:
        make = {"ttree": file.mktree, "rntuple": file.mkrntuple}[layout]
        events = make("Events", types)
        for _ in range(CLUSTERS):
            cluster = {}
            for name, width in widths.items():
                values = np.zeros((CLUSTER_ENTRIES, 2 * width), "u1")
                values.reshape(-1)[: random_bytes[name]] = random.integers(0, 256, random_bytes[name], "u1")
                cluster[name] = values
            events.extend(cluster)


if __name__ == "__main__":
    write(*sys.argv[1:])
