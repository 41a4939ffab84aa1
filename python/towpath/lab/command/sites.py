"""`towpath lab sites`: whether the site or the round trip decides the throughput."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from towpath.lab.analysis import Unavailable
from towpath.lab.command.shared import INCOMPLETE, add_tables, count, read_runs
from towpath.lab.runs import Configuration, Runs
from towpath.lab.utilization import SiteEffects, site_effects

if TYPE_CHECKING:
    from towpath.lab.command import Commands


def add(commands: Commands) -> None:
    """Adds the command."""
    sites = commands.add_parser("sites", help="compare the differences between sites with those that round trips explain")
    add_tables(sites)
    sites.add_argument("--json", action="store_true", help="print one JSON document")
    sites.set_defaults(run=_sites)


def _sites(options: argparse.Namespace) -> int:
    runs, missing = read_runs(options)
    results = compare_sites(runs, with_limited=options.with_limited)
    if options.json:
        print(json.dumps([result.document() for result in results], indent=2))
    else:
        print("\n\n".join(result.text() for result in results))
    return INCOMPLETE if missing or all(isinstance(result.effects, Unavailable) for result in results) else 0


@dataclass(frozen=True)
class SiteComparison:
    """The sites of a configuration."""

    configuration: Configuration
    effects: SiteEffects | Unavailable
    excluded: int
    """Runs that are left out because the machine limited them."""

    def document(self) -> dict[str, Any]:
        """Returns the comparison as values of JSON."""
        known = {"configuration": asdict(self.configuration), "excluded": self.excluded}
        if isinstance(self.effects, Unavailable):
            return known | {"unavailable": self.effects.reason}
        return known | {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self.effects).items()}

    def text(self) -> str:
        """Returns the verdict and the sites, by round trip, as lines."""
        lines = [str(self.configuration)]
        if self.excluded:
            lines.append(f"left out: {count(self.excluded)} that the machine limited")
        effects = self.effects
        if isinstance(effects, Unavailable):
            return "\n  ".join([*lines, f"no verdict: {effects.reason}"])
        explained = f"round trips explain {max(effects.rtt_part, 0):.0%} of the variance between {len(effects.sites)} sites"
        lines.append(f"{effects.verdict}: {explained}, at most {effects.monotone_part:.0%}")
        for at in np.argsort(effects.rtt_s, kind="stable"):
            mean = f"{effects.sites[at]}  {effects.means_bits_per_s[at] / 1e6:10.1f} Mbit/s"
            difference = f"{effects.residuals_bits_per_s[at] / 1e6:+10.1f} to the other sites"
            lines.append(f"{effects.rtt_s[at] * 1e3:8.4g} ms  {mean}  {difference}")
        return "\n  ".join(lines)


def compare_sites(runs: Runs, *, with_limited: bool = False) -> list[SiteComparison]:
    """Compares the sites of each configuration, without the runs that the machine limited unless `with_limited`."""
    return [_compare(key, of_key, with_limited) for key, of_key in runs.configurations()]


def _compare(key: Configuration, runs: Runs, with_limited: bool) -> SiteComparison:
    frame = runs.frame()
    used = frame if with_limited else frame[frame.limited_by.isna()]
    return SiteComparison(key, _effects(used), len(frame) - len(used))


def _effects(frame: pd.DataFrame) -> SiteEffects | Unavailable:
    if nameless := int(frame.site.isna().sum()):
        return Unavailable(f"{nameless} of {count(len(frame))} without a site")
    try:
        return site_effects(frame.site, frame.rtt_s, frame.throughput_bits_per_s)
    except ValueError as error:
        return Unavailable(str(error))
