"""`towpath lab sites`: whether the site or the round trip decides the throughput."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

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
    results = [(key, _effects(of_key, options.with_limited)) for key, of_key in runs.configurations()]
    if options.json:
        print(json.dumps([_document(key, result) for key, result in results], indent=2))
    else:
        print("\n\n".join(_text(key, result) for key, result in results))
    return INCOMPLETE if missing or all(isinstance(result, Unavailable) for _, result in results) else 0


def _effects(runs: Runs, with_limited: bool) -> SiteEffects | Unavailable:
    frame = runs.frame()
    if not with_limited:
        frame = frame[frame.limited_by.isna()]
    if nameless := int(frame.site.isna().sum()):
        return Unavailable(f"{nameless} of {count(len(frame))} without a site")
    try:
        return site_effects(frame.site, frame.rtt_s, frame.throughput_bits_per_s)
    except ValueError as error:
        return Unavailable(str(error))


def _document(key: Configuration, result: SiteEffects | Unavailable) -> dict[str, Any]:
    if isinstance(result, Unavailable):
        return {"configuration": asdict(key), "unavailable": result.reason}
    values = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(result).items()}
    return {"configuration": asdict(key)} | values


def _text(key: Configuration, result: SiteEffects | Unavailable) -> str:
    """Returns the verdict and the sites, by round trip, as lines."""
    if isinstance(result, Unavailable):
        return f"{key}\n  no verdict: {result.reason}"
    explained = f"round trips explain {max(result.rtt_part, 0):.0%} of the variance between {len(result.sites)} sites"
    lines = [str(key), f"{result.verdict}: {explained}, at most {result.monotone_part:.0%}"]
    for at in np.argsort(result.rtt_s, kind="stable"):
        difference = f"{result.residuals_bits_per_s[at] / 1e6:+10.1f} to the other sites"
        lines.append(
            f"{result.rtt_s[at] * 1e3:8.4g} ms  {result.sites[at]}  {result.means_bits_per_s[at] / 1e6:10.1f} Mbit/s  {difference}"
        )
    return "\n  ".join(lines)
