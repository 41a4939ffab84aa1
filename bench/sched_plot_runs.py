"""Simulates three scenarios of the scheduler with four optimisers, draws them into results/sched/plots, and adds the figures
to the page of the results."""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import tempfile

import sched_plots
import sched_report
import sched_worlds
from sched_worlds import HELD_OUT, SHORT_LIMIT, Regime

RESULTS = pathlib.Path(__file__).parent / "results" / "sched"
OPTIMISERS = ("knee", "fts", "fts-from2", "tcn-zero")
REGIME = Regime(1, 100, 20e6)
SEED = HELD_OUT[0]
SCENARIOS = {
    "together": ("30 requests together", sched_worlds.TOGETHER, "network"),
    "two-to-one": ("weights 2 : 1 over one link", sched_worlds.weighted((2, 1)), None),
    "arriving": ("50 arriving requests", sched_worlds.ARRIVING, "network"),
}
"""Title, requests, and their network; None for one link."""


def simulate(binary: pathlib.Path, directory: pathlib.Path, name: str) -> sched_plots.Run:
    """Runs a scenario in a directory with the network."""
    title, requests, network = SCENARIOS[name]
    scenario, periods = directory / f"{name}.toml", directory / name
    scenario.write_text(sched_worlds.scenario(REGIME, SEED, requests, network=network, limit=SHORT_LIMIT))
    words = [binary, "sched", "simulate", scenario, "--seed", str(SEED), "--optimiser", ",".join(OPTIMISERS), "--periods", periods]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    return sched_plots.read(periods, title=f"{title}, d = {REGIME.exponent:g}, N0 = {REGIME.lossless}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--towpath", type=pathlib.Path, required=True, help="the towpath binary")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS, help="directory of the results; the figures are in `plots` below it [bench/results/sched]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        sched_worlds.write_networks(pathlib.Path(work))
        for name in SCENARIOS:
            run = simulate(options.towpath, pathlib.Path(work), name)
            for path in sched_plots.write_figures(run, options.results / "plots", name):
                print(path)
    if list(options.results.glob("*.json")):
        (options.results / "README.md").write_text(sched_report.document(options.results))


if __name__ == "__main__":
    main()
