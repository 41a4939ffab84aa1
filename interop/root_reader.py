"""Reads a remote tree with ROOT, and prints the results as one JSON object; run by test_root.py.

    python root_reader.py OPENER CACHE URL

OPENER is `TFile` (local, root://) or `TWebFile` (http://). CACHE is the size of the TTreeCache in bytes, 0 for none, or
`default` for ROOT's default. Both branches of the query are read for every entry, through ROOT's own event loop.
"""

import json
import sys
import warnings

warnings.simplefilter("ignore")  # the wheel warns that it is an alpha release
import ROOT  # noqa: E402

MACRO = r"""
#include <TTree.h>
#include <map>
#include <string>

std::map<std::string, double> read_query(TTree* tree) {
    double energy = 0, rawtr[16] = {};
    tree->SetBranchStatus("*", false);
    tree->SetBranchStatus("E33", true);
    tree->SetBranchStatus("rawtr", true);
    tree->SetBranchAddress("E33", &energy);
    tree->SetBranchAddress("rawtr", rawtr);
    double energies = 0, chosen = 0, samples = 0, weighted = 0, bytes = 0;
    for (Long64_t entry = 0; entry < tree->GetEntries(); entry++) {
        const int got = tree->GetEntry(entry);
        if (got <= 0) return {{"error", double(got)}};
        bytes += got;
        energies += energy;
        for (double sample : rawtr) weighted += sample * (entry % 1021);
        if (energy <= 5) continue;
        chosen++;
        for (double sample : rawtr) samples += sample;
    }
    tree->ResetBranchAddresses();
    return {{"energies", energies}, {"chosen", chosen}, {"samples", samples}, {"weighted", weighted}, {"bytes", bytes}};
}
"""


def main(opener: str, cache: str, url: str) -> None:
    """Prints the results."""
    ROOT.gInterpreter.Declare(MACRO)
    file = ROOT.TFile.Open(url) if opener == "TFile" else ROOT.TWebFile(url)
    if not file or file.IsZombie():
        sys.exit(f"ROOT could not open {url}")
    tree = file.Get("T")
    if cache != "default":
        tree.SetCacheSize(int(cache))
    found = {str(name): value for name, value in ROOT.read_query(tree)}
    file.Close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
