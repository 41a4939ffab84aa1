"""Parts of several commands of `towpath lab`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from towpath.lab.analysis import Analysis, analyse
from towpath.lab.measure.campaign import PLAN, TABLE, Campaign
from towpath.lab.runs import Configuration, Runs

INCOMPLETE = 1
"""Exit code if runs failed or are missing."""


def add_tables(command: argparse.ArgumentParser) -> None:
    """Adds the arguments that `read_runs` and `read_tables` read."""
    text = "Parquet file of `measure` or `import`, or directory of a campaign; several are read as one table"
    command.add_argument("tables", type=Path, nargs="+", metavar="TABLE", help=text)
    command.add_argument("--with-limited", action="store_true", help="include runs that the machine limited, not the path")


def read_tables(options: argparse.Namespace) -> tuple[Runs, list[Analysis], int]:
    """Returns what `read_runs` does, and the analysis of the runs."""
    runs, missing = read_runs(options)
    return runs, analyse(runs, with_limited=options.with_limited), missing


def read_runs(options: argparse.Namespace) -> tuple[Runs, int]:
    """Reads the tables of the arguments. Returns them as one, and the number of runs that campaigns lack, which is also printed."""
    tables, all_missing = [], 0
    for path in options.tables:
        directory = path if path.is_dir() else path.parent
        if not path.is_dir() and not (path.name == TABLE and (directory / PLAN).exists()):
            tables.append(Runs.read(path))
            continue
        campaign = Campaign.of_directory(directory)
        tables.append(campaign.runs())
        if missing := len(campaign.missing()):
            print(f"towpath lab: {path}: {missing} of {len(campaign.cells())} runs are missing; they may be slow ones", file=sys.stderr)
            all_missing += missing
    return Runs.concat(tables), all_missing


def add_filters(command: argparse.ArgumentParser) -> None:
    """Adds options that select runs of the tables."""
    command.add_argument("--tool", metavar="NAME", help="only runs of this tool [default: all, which need the same plan]")
    command.add_argument("--transport", metavar="NAME", help="only runs with this congestion control")


def matching(configurations: Iterable[Configuration], **wanted: str | int | None) -> list[Configuration]:
    """Returns the configurations with the wanted values, of which None is any. Raises `ValueError` if there is none."""
    kept = [key for key in configurations if all(value in (None, getattr(key, name)) for name, value in wanted.items())]
    if not kept:
        values = [f"{name} {value}" for name, value in wanted.items() if value is not None]
        raise ValueError(f"the tables have no run with {', '.join(values)}" if values else "the tables have no runs")
    return kept


def count(number: int, noun: str = "run") -> str:
    """Returns a number with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
