"""`towpath lab measure`: campaigns."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from towpath.commands import program
from towpath.lab.command.shared import INCOMPLETE, count
from towpath.lab.measure.campaign import Campaign

if TYPE_CHECKING:
    from towpath.lab.command import Commands


def add(commands: Commands) -> None:
    """Adds the command."""
    measure = commands.add_parser(
        "measure", help="run a campaign over emulated paths, as root, or to real sites; an interrupted one continues"
    )
    measure.add_argument("plan", type=Path, metavar="PLAN", help="the plan, a TOML file (docs/lab/measure.md)")
    measure.add_argument("--output", type=Path, metavar="DIR", help="directory of the campaign [default: the plan without its suffix]")
    measure.set_defaults(run=_measure)


def _measure(options: argparse.Namespace) -> int:
    campaign = Campaign(options.output or options.plan.with_suffix(""), options.plan.read_text(), str(options.plan))
    failures: list[str] = []
    try:
        failures = campaign.measure(program(), lambda line: print(line, flush=True))
    finally:
        print(f"wrote {campaign.write_table()}: {len(campaign.rows)} of {len(campaign.cells())} runs")
    if failures:
        print(f"towpath lab: {count(len(failures))} failed; run the command again to repeat them", file=sys.stderr)
    return INCOMPLETE if failures else 0
