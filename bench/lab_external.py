"""Results of measurements of others: differences between sites in ESnet's 540 results, and the limits of 114 tests of NDT7.

    python bench/lab_external.py --esnet esnet.csv --ndt7 ndt7_traces.jsonl.gz

The files are not in the repository: the lists of ESnet's testing harness (https://github.com/esnet/testing-harness), and test data of
https://github.com/m-lab/etl with lines of JSON. The results are in bench/results/lab/external.json, which `make lab-claims` reads.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import statistics
import sys

from lab_evidence import Evidence, Finding, votes
from towpath.lab import importers
from towpath.lab.attribution import attribute_run
from towpath.lab.command.sites import compare_sites

RESULTS = pathlib.Path(__file__).parent / "results" / "lab"
FILE = "external.json"


def sites(path: pathlib.Path) -> dict[str, object]:
    """Returns the comparison of the sites of each configuration."""
    runs = importers.read([path], "esnet-harness")
    return {"runs": len(runs), "configurations": [result.document() for result in compare_sites(runs)]}


def limits(path: pathlib.Path) -> dict[str, object]:
    """Returns what limited each download, and how many tests are refused."""
    runs = importers.read([path], "ndt7")
    frame, found, refused = runs.frame(), [], collections.Counter()
    for run_id in frame.run_id:
        try:
            found.append(attribute_run(runs, run_id))
        except ValueError as error:
            refused[str(error).partition(": ")[2] or str(error)] += 1
    largest = [max(one.shares.items(), key=lambda item: item[1]) for one in found]
    return {
        "tests": len(frame),
        "limits": dict(collections.Counter(name for name, _ in largest)),
        "above_half": sum(share > 0.5 for _, share in largest),
        "median_application": statistics.median(one.shares["application"] for one in found),
        "refused": dict(refused),
    }


def sites_vary(evidence: Evidence) -> Finding:
    """Counts the configurations in which the site outweighs the round trip."""
    document = evidence.external.get("sites")
    if document is None:
        return Finding("not testable here", "needs several sites")
    verdicts = collections.Counter(one["verdict"] for one in document["configurations"] if "verdict" in one)
    found = votes({"site outweighs RTT": True, "RTT outweighs site": False}.get(verdict) for verdict in verdicts.elements())
    text = f"in {document['runs']} results of ESnet's harness (2021), the site outweighs the round trip in {found} configurations with three sites or more"
    return Finding(found.verdict, text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--esnet", type=pathlib.Path, required=True)
    parser.add_argument("--ndt7", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    options = parser.parse_args()
    document = {"sites": sites(options.esnet), "limits": limits(options.ndt7)}
    (options.results / FILE).write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document["limits"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
