"""Reads files with uproot, and prints the results as one JSON object; run by test_uproot.py and the demo.

    python uproot_reader.py SOURCE query URL            two branches of the large tree: physics numbers and checksums
    python uproot_reader.py SOURCE survey URL...        names, classes and a checksum of all arrays of many files

SOURCE is one of `SOURCES` below. The results contain sums of the values and the SHA-256 of the arrays' bytes, so a
comparison of two runs covers all values. Parts that uproot cannot read are represented by the name of the error.
"""

import hashlib
import json
import sys

import awkward
import numpy
import uproot
from fsspec import register_implementation
from uproot.source import file, fsspec, http, xrootd

# Another package may have registered file systems of its own for this protocol.
register_implementation("root", "fsspec_xrootd.XRootDFileSystem", clobber=True)

SOURCES = {
    "default": None,
    "towpath": None,
    "fsspec": fsspec.FSSpecSource,
    "XRootDSource": xrootd.XRootDSource,
    "MultithreadedXRootDSource": xrootd.MultithreadedXRootDSource,
    "HTTPSource": http.HTTPSource,
    "MultithreadedHTTPSource": http.MultithreadedHTTPSource,
    "MultithreadedFileSource": file.MultithreadedFileSource,
}

# Trees that uproot 5.7 misreads, also from a local disk: in the first it interprets text as a length and allocates 2^30 objects,
# from the second it returns uninitialized memory.
MISREAD = ("std-containers-split00.root", "ndim-slice.root")


def opened(source: str, url: str):
    """Opens a ROOT file."""
    if source == "towpath":
        import towpath.fs

        towpath.fs.register()
    handler = SOURCES[source]
    return uproot.open({url: None}, **({"handler": handler} if handler else {}))


def sha(array: numpy.ndarray) -> str:
    """Returns the SHA-256 of an array's bytes, in hex."""
    return hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()


def query(source: str, url: str) -> dict:
    """Returns figures of `rawtr` where `E33 > 5`, over all entries."""
    with opened(source, url) as root:
        arrays = root["T"].arrays(["E33", "rawtr"], library="np")
    energy, samples = arrays["E33"], arrays["rawtr"]
    chosen = samples[energy > 5]
    return {
        "entries": len(energy),
        "mean E33": float(energy.mean()),
        "entries with E33 > 5": len(chosen),
        "sum of rawtr there": float(chosen.sum()),
        "mean pulse there": [round(float(value), 6) for value in chosen.mean(axis=0)],
        "sha256": [sha(energy), sha(samples)],
    }


def arrays_digest(tree) -> str:
    """Returns one SHA-256 over all branches of a tree, or the name of uproot's error."""
    digest = hashlib.sha256()
    for name in sorted(tree.keys()):
        try:
            form, length, buffers = awkward.to_buffers(awkward.to_packed(tree[name].array()))
        except Exception as error:  # noqa: BLE001 - uproot does not support every class; it must fail in the same way everywhere
            digest.update(f"{name}: {type(error).__name__}".encode())
            continue
        digest.update(f"{name}: {form.type} {length}".encode())
        for key in sorted(buffers):
            digest.update(numpy.ascontiguousarray(buffers[key]).tobytes())
    return digest.hexdigest()


def survey_one(source: str, url: str) -> dict | str:
    """Returns keys, classes and tree contents of one file."""
    try:
        with opened(source, url) as root:
            classes = root.classnames()
            trees = [name for name, kind in classes.items() if kind in ("TTree", "TNtuple", "TNtupleD") and not url.endswith(MISREAD)]
            return {"classes": classes, "trees": {name: arrays_digest(root[name]) for name in trees}}
    except Exception as error:  # noqa: BLE001 - see above
        return type(error).__name__


def survey(source: str, *urls: str) -> list:
    """Returns keys, classes and tree contents of many files, in their order."""
    return [survey_one(source, url) for url in urls]


if __name__ == "__main__":
    source, operation, *urls = sys.argv[1:]
    print(json.dumps({"query": query, "survey": survey}[operation](source, *urls)))
