"""Runs of the scheduler's simulator."""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
from collections.abc import Callable, Sequence

import sched_worlds
from sched_worlds import DEVELOPMENT, HELD_OUT
from settings import Settings


class Runs:
    """Runs scenarios in a directory with the network."""

    def __init__(self, settings: Settings) -> None:
        self.binary = settings.machine.towpath_binary
        self.directory = settings.machine.work / "sched"
        self.directory.mkdir(exist_ok=True)
        self.seeds = [*DEVELOPMENT[:2], *HELD_OUT[:1]] if settings.quick else [*DEVELOPMENT, *HELD_OUT]
        sched_worlds.write_networks(self.directory)

    def run(self, text: str, seed: int, optimisers: tuple[str, ...], periods: pathlib.Path | None = None) -> dict:
        path = self.directory / "scenario.toml"
        path.write_text(text)
        words = [self.binary, "sched", "simulate", path, "--json", "--seed", str(seed), "--optimiser", ",".join(optimisers)]
        done = subprocess.run([*words, *(["--periods", periods] if periods else [])], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"towpath sched simulate: {done.stderr}")
        return json.loads(done.stdout)

    def periods(self, text: str, seed: int, optimiser: str) -> list[dict]:
        """Returns the periods of a run."""
        path = self.directory / "periods"
        self.run(text, seed, (optimiser,), path)
        records = map(json.loads, path.read_text().splitlines())
        return [record for record in records if "end_s" in record]


def to_bound(summary: dict) -> float | None:
    """Returns the time of the last completion / bound; None if a request is not complete."""
    return summary["makespan_to_bound"] if summary["completed"] == summary["requests"] else None


def samples(runs: Runs, names: Sequence[str], measure: Callable[[int, str], dict]) -> dict[str, list]:
    """Returns the samples of all seeds for each optimiser."""
    return {name: [{"seed": seed, **measure(seed, name)} for seed in runs.seeds] for name in names}


def middle(results: dict[str, list], name: str) -> str:
    return f"{statistics.median(sample['to_bound'] or float('inf') for sample in results[name]):.3f}"
