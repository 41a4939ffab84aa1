"""Writes ROOT files of different layouts, with ROOT and with uproot.

    python root_layouts.py DIRECTORY
"""

import sys
from pathlib import Path

import awkward
import numpy
import ROOT
import uproot

ENTRIES = 3_000
COMPRESSIONS = {"zlib": 101, "lzma": 207, "lz4": 404, "zstd": 505, "none": 0}


def declare() -> None:
    """Declares the classes of the events."""
    ROOT.gInterpreter.Declare("""
        #include <TClonesArray.h>
        #include <TLorentzVector.h>
        struct Hit { float energy; int cell; };
        struct Track { double pt; std::vector<Hit> hits; };
        struct Event { long number; Track best; std::vector<Track> tracks; std::vector<float> weights; };
        void fill(Event &event, int entry) {
            event.number = entry;
            event.best = Track{1.5 * entry, std::vector<Hit>(entry % 5, Hit{float(entry), entry})};
            event.tracks.assign(entry % 4, event.best);
            event.weights.assign(entry % 7, float(entry));
        }
        void fill_tree(TTree &tree, int entries, int split) {
            Event event;
            float x[3];
            int n;
            double values[100];
            TClonesArray vectors("TLorentzVector");
            auto *pointer = &vectors;
            tree.Branch("event", &event, 4000, split);
            tree.Branch("event2.", &event, 4000, split);
            tree.Branch("x", x, "x[3]/F", 1000);
            tree.Branch("n", &n, "n/I", 1000);
            tree.Branch("values", values, "values[n]/D", 2000);
            tree.Branch("vectors", &pointer, 4000, split);
            for (int entry = 0; entry < entries; ++entry) {
                fill(event, entry);
                n = entry % 90;
                for (int i = 0; i < n; ++i) values[i] = entry * i;
                for (int i = 0; i < 3; ++i) x[i] = entry + i;
                vectors.Clear("C");
                for (int i = 0; i < entry % 3; ++i) new (vectors[i]) TLorentzVector(entry, i, 0, 1);
                tree.Fill();
            }
        }
    """)


def write_trees(directory: Path) -> None:
    """Writes a file for each compression, with trees of several split levels, in directories, and of several cycles."""
    for name, setting in COMPRESSIONS.items():
        file = ROOT.TFile(str(directory / f"{name}.root"), "RECREATE", "", setting)
        for split in (0, 1, 99):
            file.cd()
            tree = ROOT.TTree(f"split{split}", "", split)
            tree.SetAutoFlush(700)
            ROOT.fill_tree(tree, ENTRIES, split)
            tree.Write()
        place = file.mkdir("outer").mkdir("inner")
        place.cd()
        ntuple = ROOT.TNtuple("ntuple", "", "a:b:c", 2000)
        for entry in range(ENTRIES):
            ntuple.Fill(entry, 2 * entry, 3 * entry)
        # Another cycle, with more entries.
        ntuple.Write()
        for entry in range(ENTRIES):
            ntuple.Fill(entry, 2 * entry, 3 * entry)
        ntuple.Write()
        empty = ROOT.TTree("empty", "")
        empty.Write()
        file.Close()


def write_outside(directory: Path) -> None:
    """Writes a tree with a branch in another file, and with baskets in the record of the tree itself."""
    ROOT.gInterpreter.Declare("""
        void write_outside(const char *path, const char *outside, int entries) {
            TFile file(path, "RECREATE");
            TTree tree("tree", "");
            tree.SetAutoFlush(0);
            float inside, elsewhere;
            tree.Branch("inside", &inside, "inside/F", 4000);
            tree.Branch("elsewhere", &elsewhere, "elsewhere/F", 4000)->SetFile(outside);
            for (int entry = 0; entry < entries; ++entry) {
                inside = elsewhere = entry;
                tree.Fill();
            }
            tree.AutoSave();
        }
    """)
    ROOT.write_outside(str(directory / "inside.root"), "elsewhere.root", ENTRIES)


def write_ntuples(directory: Path) -> None:
    """Writes RNTuples with ROOT: several clusters and cluster groups, nested collections, and a field that was added later."""
    ROOT.gInterpreter.Declare("""
        #include <ROOT/RNTupleModel.hxx>
        #include <ROOT/RNTupleWriter.hxx>
        #include <ROOT/RNTupleWriteOptions.hxx>
        void write_ntuple(const char *path, int entries, int compression) {
            auto model = ROOT::RNTupleModel::Create();
            auto number = model->MakeField<long>("number");
            auto nested = model->MakeField<std::vector<std::vector<float>>>("nested");
            auto pair = model->MakeField<std::pair<int, std::string>>("pair");
            auto array = model->MakeField<std::array<double, 4>>("array");
            ROOT::RNTupleWriteOptions options;
            options.SetCompression(compression);
            options.SetMaxUnzippedPageSize(4096);
            options.SetInitialUnzippedPageSize(256);
            options.SetApproxZippedClusterSize(30000);
            options.SetMaxUnzippedClusterSize(100000);
            auto writer = ROOT::RNTupleWriter::Recreate(std::move(model), "events", path, options);
            std::shared_ptr<float> later;
            for (int entry = 0; entry < entries; ++entry) {
                if (entry == entries / 2) {
                    auto updater = writer->CreateModelUpdater();
                    updater->BeginUpdate();
                    later = updater->MakeField<float>("later");
                    updater->CommitUpdate();
                }
                *number = entry;
                nested->assign(entry % 4, std::vector<float>(entry % 3, float(entry)));
                *pair = {entry, std::to_string(entry)};
                array->fill(entry);
                writer->Fill();
                if (entry % 1000 == 999) writer->CommitCluster(true);
            }
        }
    """)
    for name, setting in COMPRESSIONS.items():
        ROOT.write_ntuple(str(directory / f"ntuple-{name}.root"), ENTRIES, setting)


def write_with_uproot(directory: Path) -> None:
    """Writes a tree and an RNTuple with uproot."""
    arrays = {"number": numpy.arange(ENTRIES), "jagged": awkward.Array([[float(entry)] * (entry % 5) for entry in range(ENTRIES)])}
    with uproot.recreate(directory / "uproot.root") as file:
        tree = file.mktree("tree", {name: array.type.content if name == "jagged" else array.dtype for name, array in arrays.items()})
        ntuple = None
        for start in range(0, ENTRIES, 1000):
            part = {name: array[start : start + 1000] for name, array in arrays.items()}
            tree.extend(part)
            if ntuple is None:
                ntuple = file.mkrntuple("ntuple", part)
            else:
                ntuple.extend(part)


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    declare()
    write_trees(directory)
    write_outside(directory)
    write_ntuples(directory)
    write_with_uproot(directory)


if __name__ == "__main__":
    main()
