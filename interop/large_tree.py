"""Writes the large file of the demo and the tests: one tree of 152 branches in 8 KB baskets, about 280 MB.

    python large_tree.py DESTINATION        (needs the `root` wheel; takes half a minute)

The layout is that of the first measurements of remote reading: many narrow branches that are flushed together, and one
wide branch, `rawtr`, that is split into sixteen times as many small baskets. Every value is a function of entry and
branch, so each run writes the same values. The files are not byte-identical, because ROOT writes a date and an
identifier.

Branches: `E33` (energy; above 5 in one third of the entries), `rawtr[16]` (samples around a pulse), `v000` to `v149`
(filling).
"""

import sys
import warnings

warnings.simplefilter("ignore")  # the wheel warns that it is an alpha release
import ROOT  # noqa: E402

ENTRIES = 283_000

MACRO = r"""
#include <cstdint>
#include <cmath>
#include <cstdio>
#include <TFile.h>
#include <TTree.h>

static std::uint64_t mix(std::uint64_t x) {  // splitmix64's finalizer: well spread bits from a counter
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

void write_large_tree(const char* path, Long64_t entries) {
    constexpr int fillers = 150, samples = 16, basket_bytes = 8000;
    TFile file(path, "RECREATE", "towpath test data", 101);
    TTree tree("T", "events");
    tree.SetAutoFlush(0);
    tree.SetAutoSave(0);
    double energy = 0, rawtr[samples] = {}, filler[fillers] = {};
    tree.Branch("E33", &energy, "E33/D", basket_bytes);
    tree.Branch("rawtr", rawtr, "rawtr[16]/D", basket_bytes);
    for (int i = 0; i < fillers; i++) {
        char name[8];
        std::snprintf(name, sizeof name, "v%03d", i);
        tree.Branch(name, &filler[i], (std::string(name) + "/D").c_str(), basket_bytes);
    }
    for (Long64_t entry = 0; entry < entries; entry++) {
        const std::uint64_t event = mix(entry);
        energy = std::floor(-4.9 * std::log((event % 65521 + 1) / 65522.0) * 256) / 256;
        for (int s = 0; s < samples; s++)
            rawtr[s] = std::floor(energy * 12 * std::exp(-0.1 * (s - 7) * (s - 7))) + mix(event + s) % 8;
        for (int i = 0; i < fillers; i++)
            filler[i] = 1 + (mix(event ^ (std::uint64_t(i + 1) << 40)) >> 24) * 0x1p-40;
        tree.Fill();
    }
    tree.Write();
}
"""


def main() -> None:
    """Writes the file named on the command line."""
    ROOT.gInterpreter.ProcessLine(".O3")
    if not ROOT.gInterpreter.Declare(MACRO):
        sys.exit("large_tree.py: ROOT did not compile the generator")
    ROOT.write_large_tree(sys.argv[1], ENTRIES)


if __name__ == "__main__":
    main()
