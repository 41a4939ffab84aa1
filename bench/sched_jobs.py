"""The optimisers of the scheduler in its simulator. All figures are simulated; the machine has no influence on them, except
on `step`, the time of a decision."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping

import sched_controls
import sched_worlds
from harness import say
from sched_report import pooled
from sched_runs import Runs, middle, samples, to_bound
from sched_worlds import FEW_REGIMES, Regime, scenario
from settings import Job, Settings

BASELINES = ("fts", "fts-from2")
OPTIMISERS = ("knee", "knee-equal", *BASELINES)
VIEWS = {
    "full": "",
    "capacities 30 % too low": "[view]\ncapacity_factor = 0.7\n",
    "capacities 43 % too high": "[view]\ncapacity_factor = 1.43\n",
    "first and last link only": '[view]\npaths = "ends"\n',
    "none": '[view]\npaths = "none"\n',
}
CORRECT_VIEWS = {view: lines for view, lines in VIEWS.items() if not view.startswith("capacities")}
"""Views without wrong capacities."""
SETTLED_PERIODS = 20
"""Periods after which shares are measured."""
CONVERGENCE_PERIODS = 75


def completions(requests: str, limit: float) -> Callable[[Settings], dict]:
    """Returns a job: time of the last completion / bound, and mean time / that of a fair schedule."""

    def job(settings: Settings) -> dict:
        runs, cells = Runs(settings), []
        for regime in sched_worlds.all_regimes()[:: 6 if settings.quick else 1]:
            results: dict[str, list] = {name: [] for name in OPTIMISERS}
            for seed in runs.seeds:
                document = runs.run(scenario(regime, seed, requests, limit=limit), seed, OPTIMISERS)
                for result in document["results"]:
                    summary = result["summary"]
                    mean_s = summary["mean_completion_s"]
                    results[result["optimiser"]].append({
                        "seed": seed,
                        "to_bound": to_bound(summary),
                        "mean_to_fair": mean_s / document["fair_mean_completion_s"] if to_bound(summary) else None,
                        "bytes_per_s": summary["received_bytes_per_s"],
                    })  # fmt: skip
            cells.append({"regime": regime.text(), "results": results})
            say(f"   {regime.text()}: {middle(results, 'knee')} knee, {middle(results, 'fts')} fts")
        return {"shape": "completions", "simulated": True, "limit": limit, "cells": cells}

    return job


def views(settings: Settings) -> dict:
    """The workload of `makespan` with less or wrong knowledge of the network."""
    runs = Runs(settings)
    regimes = FEW_REGIMES[:: 3 if settings.quick else 1]
    return compare_views(runs, regimes, VIEWS, runs.seeds, sched_worlds.TOGETHER, network="network", limit=sched_worlds.LIMIT)


def lhcone(settings: Settings) -> dict:
    """300 requests together between the data centres of a network of the shape of LHCONE, with less knowledge of it."""
    runs = Runs(settings)
    # Half of the seeds, as there are three million files.
    return compare_views(runs, sched_worlds.LHCONE_REGIMES, CORRECT_VIEWS, runs.seeds[::2], sched_worlds.LHCONE_TOGETHER, network="lhcone", limit=sched_worlds.SHORT_LIMIT)


def compare_views(runs: Runs, regimes: Iterable[Regime], views: Mapping[str, str], seeds: Iterable[int], requests: str, *, network: str, limit: float) -> dict:
    """Measures the last completion / bound of `knee` with views of the network, and of the rules of FTS, which use none."""
    cells = []
    for regime in regimes:
        results: dict[str, list] = {}
        for view, lines in views.items():
            optimisers = ("knee", *BASELINES) if view == "full" else ("knee",)
            for seed in seeds:
                document = runs.run(scenario(regime, seed, lines + requests, network=network, limit=limit), seed, optimisers)
                for result in document["results"]:
                    name = view if result["optimiser"] == "knee" else result["optimiser"]
                    results.setdefault(name, []).append({"seed": seed, "to_bound": to_bound(result["summary"])})
        cells.append({"regime": regime.text(), "results": results})
        say(f"   {regime.text()}: {middle(results, 'none')} without a network")
    return {"shape": "views", "simulated": True, "limit": limit, "cells": cells}


def convergence(settings: Settings) -> dict:
    """Ten pipes with long queues: periods until the rates are close to the fair ones, and the error afterwards."""
    runs, cells = Runs(settings), []
    requests = f"[[requests]]\npipes = 10\nfiles = 60_000\nfile_bytes = {sched_worlds.FILE_BYTES}\n"
    for regime in FEW_REGIMES[:: 3 if settings.quick else 1]:

        def measure(seed: int, name: str, regime: Regime = regime) -> dict:
            records = runs.periods(scenario(regime, seed, requests), seed, name)[1 : CONVERGENCE_PERIODS + 1]
            errors = [sched_worlds.error_of(record, regime.period_s) for record in records]
            return {"periods": sched_worlds.periods_until_close(errors), "tail_error": statistics.mean(errors[-25:])}

        results = samples(runs, ("knee-equal", *BASELINES), measure)
        cells.append({"regime": regime.text(), "results": results})
        say(f"   {regime.text()}: {[sample['periods'] for sample in results['knee-equal']]}")
    return {"shape": "convergence", "simulated": True, "cells": cells}


def shares(settings: Settings) -> dict:
    """Classes of pipes with weights over one link; the connections of the heavier ones have a lower share each, as with
    longer round trips."""
    runs, cells = Runs(settings), []
    for weights in ((2, 1), (4, 2, 1)):
        for regime in (Regime(0, 150, 20e6), Regime(0.5, 150, 20e6), Regime(1, 150, 20e6), Regime(1, 150, 20e6, 10)):
            results = samples(runs, ("knee", *BASELINES), functools.partial(shares_of, runs, weights, regime))
            cells.append({"regime": regime.text(), "weights": weights, "results": results})
            say(f"   {weights} {regime.text()}: {[round(sample['worst_error'], 3) for sample in results['knee']]}")
    return {"shape": "shares", "simulated": True, "cells": cells}


def shares_of(runs: Runs, weights: tuple[int, ...], regime: Regime, seed: int, name: str) -> dict:
    """Measures the shares of the classes after the start and before the first request is complete."""
    per_class = 6 // len(weights)
    records = runs.periods(scenario(regime, seed, sched_worlds.weighted(weights), network=None), seed, name)
    busy = [record for record in records[SETTLED_PERIODS:] if all(pipe["queued_files"] for pipe in record["pipes"])]
    received = [sum(pipe["received_bytes"] for record in busy for pipe in record["pipes"][index * per_class : (index + 1) * per_class]) for index in range(len(weights))]
    total, capacity = sum(received), len(busy) * regime.period_s * sched_worlds.LINK_BITS_PER_S / 8
    errors = [part / total / (weight / sum(weights)) - 1 for part, weight in zip(received, weights, strict=True)]
    return {
        "worst_error": max(map(abs, errors)),
        "ratio": received[0] / received[-1],
        "used": total / capacity,
        "connections": statistics.mean(sum(pipe["connections"] for pipe in record["pipes"]) for record in busy),
    }


def changes(settings: Settings) -> dict:
    """Eight pipes over one link whose capacity changes: periods until 95 % of what is available is used again."""
    runs, cells = Runs(settings), []
    at_s, back_s = 3_000, 4_200
    events = {
        "halved": (f"[[changes]]\nat_s = {at_s}\nfactor = 0.5\n", at_s, 0.5),
        "back after half": (f"[[changes]]\nat_s = {at_s}\nfactor = 0.5\n[[changes]]\nat_s = {back_s}\nfactor = 1\n", back_s, 1),
        "back after a cut": (f"[[changes]]\nat_s = {at_s}\nfactor = 0\n[[changes]]\nat_s = {back_s}\nfactor = 1\n", back_s, 1),
    }
    requests = f"[[requests]]\npipes = 8\nfiles = 30_000\nfile_bytes = {sched_worlds.FILE_BYTES}\n"
    for regime in (Regime(0, 100, 20e6), Regime(0.5, 100, 20e6), Regime(1, 100, 20e6)):
        for event, (lines, since_s, factor) in events.items():
            available = factor * sched_worlds.LINK_BITS_PER_S / 8 * regime.period_s

            def measure(seed: int, name: str, regime: Regime = regime, text: str = requests + lines, since_s: float = since_s, available: float = available) -> dict:
                records = runs.periods(scenario(regime, seed, text, network=None), seed, name)
                used = [sum(pipe["received_bytes"] for pipe in record["pipes"]) / available for record in records if record["end_s"] > since_s][:60]
                steps = next((number for number, part in enumerate(used, 1) if part >= 0.95), None)
                return {"periods": steps, "used_after": statistics.mean(used[10:40])}

            results = samples(runs, ("knee", *BASELINES), measure)
            cells.append({"regime": f"{event}; {regime.text()}", "results": results})
            say(f"   {event}, {regime.text()}: {[sample['periods'] for sample in results['knee']]}")
    return {"shape": "changes", "simulated": True, "cells": cells}


def completion(settings: Settings) -> dict:
    """The first estimates of the time to complete: part of the requests within the interval of 90 %, part with an error
    below 10 %, and width of the interval."""
    runs, cells = Runs(settings), []
    workloads = {"50 arriving": sched_worlds.ARRIVING, "300 arriving": sched_worlds.MANY_ARRIVING, "30 together": sched_worlds.TOGETHER}
    cases = itertools.product(workloads, CORRECT_VIEWS, (Regime(0, 100, 20e6), Regime(1, 100, 20e6)))
    for workload, view, regime in [*cases][:: 5 if settings.quick else 1]:
        results: dict[str, list] = {}
        # Half of the seeds, as runs with hundreds of requests are long.
        for seed in runs.seeds[::2]:
            text = scenario(regime, seed, CORRECT_VIEWS[view] + workloads[workload], limit=sched_worlds.SHORT_LIMIT)
            # Hundreds of requests overload the rule of FTS, which then completes few of them.
            names = ("knee",) if workload == "300 arriving" else ("knee", "fts")
            for result in runs.run(text, seed, names)["results"]:
                results.setdefault(result["optimiser"], []).append({"seed": seed, **result["predictions"]})
        cells.append({"regime": f"{workload}, {view}; {regime.text()}", "results": results})
        say(f"   {cells[-1]['regime']}: {pooled(results['knee'], 'coverage')} covered")
    return {"shape": "predictions", "simulated": True, "cells": cells}


JOBS = {
    "makespan": Job(completions(sched_worlds.TOGETHER, sched_worlds.LIMIT), 6),
    "together": Job(completions(sched_worlds.MANY_TOGETHER, sched_worlds.SHORT_LIMIT), 8),
    "arriving": Job(completions(sched_worlds.ARRIVING, sched_worlds.SHORT_LIMIT), 10),
    "convergence": Job(convergence, 3),
    "shares": Job(shares, 3),
    "views": Job(views, 2),
    "lhcone": Job(lhcone, 4),
    "changes": Job(changes, 3),
    "completion": Job(completion, 15),
    "activities": Job(sched_controls.activities, 3),
    "faults": Job(sched_controls.faults, 4),
    "hidden": Job(sched_controls.hidden, 6),
    "talk": Job(sched_controls.talk, 15),
    "step": Job(sched_controls.step, 1),
}
