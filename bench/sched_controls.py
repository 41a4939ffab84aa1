"""Controls of the scheduler: activities, faults of the network and of the knowledge about it, the claims of the talk about the
ALTO/TCN controllers, and the time of a decision."""

from __future__ import annotations

import itertools
import json
import pathlib
import statistics
import subprocess

import sched_worlds
from harness import say
from sched_runs import Runs, middle, samples, to_bound
from sched_worlds import FILE_BYTES, LIMIT, SETTLED_S, SHORT_LIMIT, TOGETHER, Regime, scenario
from settings import Settings

LARGE_FILE_BYTES = 100 * FILE_BYTES
LOSSES = (Regime(0, 100, 20e6), Regime(0.5, 100, 20e6), Regime(1, 100, 20e6))
CUT = "[[changes]]\nat_s = 3_000\nfactor = 0\nreroute = true\n[[changes]]\nat_s = 6_600\nfactor = 1\n"
FAULTS = {
    "none": "",
    "5 % of the attempts fail": "",
    "others use 20 % of each link, changing every 5 minutes": "[background]\npart = 0.2\nevery_s = 300\n",
    "storages of 20 Gbit/s": "[[storages]]\ncapacity_bits_per_s = 20e9\n",
    "storages with 40 connections": "[[storages]]\nmax_connections = 40\n",
    "ALTO server gone after an hour": "[view]\nuntil_s = 3_600\n",
    "busiest link cut for an hour, new paths known at once": "[view]\ndelay_s = 0\n" + CUT,
    "the same, known after 10 minutes": "[view]\ndelay_s = 600\n" + CUT,
    "the same, never known": CUT,
}
"""The lines of a scenario by the name of the fault."""
CLAIMS = {
    "30 together": (TOGETHER, LIMIT),
    "100 together": (sched_worlds.MANY_TOGETHER, SHORT_LIMIT),
    "50 arriving": (sched_worlds.ARRIVING, SHORT_LIMIT),
}
CONTROLLERS = ("fts", "fts-from2", "tcn-zero", "tcn-first", "knee")
LONG_PERIODS = 400
UNKNOWN = {
    "one link": (None, 3, "none"),
    "network, first and last link known": ("network", 15, "ends"),
    "network, no link known": ("network", 15, "none"),
}
"""The network (None for one link), the pipes of each class, and the known paths."""
HIDDEN_S = (12_000, 18_000)
"""Time in which the shares of hidden links are measured."""


def activities(settings: Settings) -> dict:
    """Three links with two activities each over one resource; the files of one have a hundred times the size."""
    runs, cells = Runs(settings), []
    for startup_s in (0, 10):
        for regime in (Regime(0, 150, 20e6), Regime(1, 150, 20e6)):
            for weight in (2, 0.5):

                def measure(seed: int, name: str, regime: Regime = regime, startup_s: int = startup_s, weight: float = weight) -> dict:
                    text = (
                        f"[[requests]]\npipes = 3\nfiles = 300\nfile_bytes = {LARGE_FILE_BYTES}\n"
                        f"[[requests]]\npipes = 3\nbeside = true\nfiles = 30_000\nfile_bytes = {FILE_BYTES}\nweight = {weight}\n"
                    )
                    text = scenario(regime, seed, text, network=None, limit=SHORT_LIMIT).replace("[connections]", f"[connections]\nstartup_s = {startup_s}")
                    records = [record for record in runs.periods(text, seed, name) if record["end_s"] > SETTLED_S]
                    busy = [record for record in records if all(pipe["queued_files"] for pipe in record["pipes"])]
                    large, small = (sum(pipe["received_bytes"] for record in busy for pipe in record["pipes"][first : first + 3]) for first in (0, 3))
                    ratio = small / large / weight
                    return {"ratio": ratio, "miss": max(ratio, 1 / ratio), "used": (large + small) / (len(busy) * regime.period_s * sched_worlds.LINK_BITS_PER_S / 8)}

                results = samples(runs, ("knee", "fts", "fts4-wrr"), measure)
                rule = "2 : 1" if weight == 2 else "1 : 2"
                cells.append({"regime": f"small : large {rule}, {startup_s} s per file; {regime.text()}", "results": results})
                say(f"   {cells[-1]['regime']}: {[round(sample['ratio'], 3) for sample in results['knee']]}")
    return {"shape": "activities", "simulated": True, "cells": cells}


def faults(settings: Settings) -> dict:
    """The workload of `makespan` with faults; the bound is that without the fault, except for the storages."""
    runs, cells = Runs(settings), []
    for regime in (LOSSES[0], LOSSES[2]):
        for fault, lines in FAULTS.items():
            results: dict[str, list] = {}
            for seed in runs.seeds:
                text = scenario(regime, seed, lines + TOGETHER)
                if "fail" in fault:
                    text = text.replace("[connections]", "[connections]\nfailures = 0.05")
                for result in runs.run(text, seed, ("knee", "fts", "fts-from2"))["results"]:
                    results.setdefault(result["optimiser"], []).append({"seed": seed, "to_bound": to_bound(result["summary"])})
            cells.append({"regime": f"{fault}; {regime.text()}", "results": results})
            say(f"   {cells[-1]['regime']}: {middle(results, 'knee')} knee, {middle(results, 'fts')} fts")
    return {"shape": "faults", "simulated": True, "limit": LIMIT, "cells": cells}


def hidden(settings: Settings) -> dict:
    """Two classes of pipes with weights 2 : 1 over links that are not known; the connections of the heavier class get smaller
    shares where they compete."""
    runs, cells = Runs(settings), []
    regimes = [*LOSSES, Regime(1, 100, 20e6, 10)][:: 3 if settings.quick else 1]
    for (layout, (network, pipes, view)), regime in itertools.product(UNKNOWN.items(), regimes):
        requests = f"[[requests]]\npipes = {pipes}\nfiles = 60_000\nfile_bytes = {FILE_BYTES}\n"
        text = f'[view]\npaths = "{view}"\n{requests}weight = 2\n{requests}rtt_weight = 3\n'

        def measure(seed: int, name: str, regime: Regime = regime, network: str | None = network, text: str = text) -> dict:
            records = runs.periods(scenario(regime, seed, text, network=network, limit=1), seed, name)
            return fair_parts([record["pipes"] for record in records if HIDDEN_S[0] < record["end_s"] <= HIDDEN_S[1]], regime.period_s)

        results = samples(runs, ("knee-equal", "fts", "fts-from2"), measure)
        cells.append({"regime": f"{layout}; {regime.text()}", "results": results})
        say(f"   {cells[-1]['regime']}: {[round(sample['error'], 2) for sample in results['knee-equal']]}")
    return {"shape": "hidden", "simulated": True, "cells": cells}


def fair_parts(periods: list[list[dict]], period_s: float) -> dict:
    """Returns the sum of the errors of the pipes' mean rates, and the sum of these rates, both / the sum of the fair rates."""
    received, fair = (
        [sum(factor * pipe[key] for pipe in pipes) for pipes in zip(*periods, strict=True)]
        for key, factor in (("received_bytes", 1), ("fair_bytes_per_s", period_s))
    )
    return {"error": sum(abs(got - due) for got, due in zip(received, fair, strict=True)) / sum(fair), "rate": sum(received) / sum(fair)}


def talk(settings: Settings) -> dict:
    """The workloads of the talk about ALTO/TCN, with its controllers; and the periods until they converge."""
    runs, cells = Runs(settings), []
    for workload, (requests, limit) in CLAIMS.items():
        for regime in LOSSES:
            results: dict[str, list] = {}
            for seed in runs.seeds:
                for result in runs.run(scenario(regime, seed, requests, limit=limit), seed, CONTROLLERS)["results"]:
                    figures = result["summary"]
                    results.setdefault(result["optimiser"], []).append({
                        "seed": seed,
                        "is_complete": figures["completed"] == figures["requests"],
                        **{key: figures[key] for key in ("received_bytes_per_s", "makespan_s", "mean_elapsed_s")},
                    })  # fmt: skip
            cells.append({"workload": workload, "regime": regime.text(), "results": results})
            say(f"   {workload}, {regime.text()}")
    convergence = {name: [periods_until_fair(runs, seed, name) for seed in runs.seeds] for name in ("tcn-zero", "tcn-first", "knee-equal")}
    return {"shape": "talk", "simulated": True, "cells": cells, "convergence": convergence, "periods": LONG_PERIODS}


def periods_until_fair(runs: Runs, seed: int, name: str) -> int | None:
    """Returns the periods until ten pipes have rates with an error of 15 % in total, without loss by many connections."""
    text = f"[[requests]]\npipes = 10\nfiles = 150_000\nfile_bytes = {FILE_BYTES}\n"
    records = runs.periods(scenario(LOSSES[0], seed, text), seed, name)[1 : LONG_PERIODS + 1]
    return sched_worlds.periods_until_close(sched_worlds.error_of(record, LOSSES[0].period_s) for record in records)


def step(settings: Settings) -> dict:
    """The time of a decision for all pipes between 90 and 600 storages. Not simulated: measured."""
    program = pathlib.Path(settings.machine.towpath_binary).parent / "examples" / "sched_step"
    cells = []
    for storages, periods, view in ((90, 10, "full"), (600, 10, "full"), (600, 60, "storages")):
        for _ in range(1 if settings.quick else 3):
            done = subprocess.run([program, str(storages), str(periods), view], capture_output=True, text=True, check=True)
            cells.append(json.loads(done.stdout))
            say(f"   {cells[-1]['pipes']:,} pipes, {view}: {statistics.median(cells[-1]['steps_s']):.3f} s, {cells[-1]['peak_rss_bytes'] / 1e6:.0f} MB")
    return {"shape": "step", "cells": cells}
