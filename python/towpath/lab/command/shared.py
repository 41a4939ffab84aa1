"""Parts of several commands of `towpath lab`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from towpath.lab.analysis import Analysis, analyse
from towpath.lab.measure.campaign import TABLE
from towpath.lab.runs import Runs


def add_table(command: argparse.ArgumentParser) -> None:
    """Adds the arguments that `read_table` reads."""
    command.add_argument("table", type=Path, metavar="TABLE", help="Parquet file of `measure` or `import`, or directory of a campaign")
    command.add_argument("--with-limited", action="store_true", help="include runs that the machine limited, not the path")


def read_table(options: argparse.Namespace) -> tuple[Runs, list[Analysis]]:
    """Reads the table of the arguments, and returns it with its analysis."""
    path: Path = options.table / TABLE if options.table.is_dir() else options.table
    runs = Runs.read(path)
    return runs, analyse(runs, with_limited=options.with_limited)


def count(number: int, noun: str = "run") -> str:
    """Returns a number with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def program() -> Path:
    """Returns the program `towpath`: that of the variable TOWPATH_PROGRAM, the one beside the interpreter, or that of the search path."""
    beside = Path(sys.executable).with_name("towpath")
    found = os.environ.get("TOWPATH_PROGRAM") or (str(beside) if beside.exists() else shutil.which("towpath"))
    if found is None:
        raise ValueError("the program towpath was not found: add it to PATH, or name it in the variable TOWPATH_PROGRAM")
    return Path(found)
