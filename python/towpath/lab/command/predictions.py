"""`towpath lab predict`: the time of a copy."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from towpath.commands import program
from towpath.lab import predict
from towpath.lab.checks import number
from towpath.lab.command.shared import INCOMPLETE, add_filters, count, matching, read_runs
from towpath.lab.runs import Runs
from towpath.lab.transfer_times import TransferTimes

if TYPE_CHECKING:
    from towpath.lab.command import Commands

_OF_PROFILE = ("tool", "transport", "site", "streams", "buffer_mib", "with_limited")
"""Options that select runs of the profile."""


def add(commands: Commands) -> None:
    """Adds the command."""
    prediction = commands.add_parser("predict", help="predict the time of a copy from a probe of its path, as an interval")
    prediction.add_argument("source", metavar="SOURCE", help="a URL, or a local place for an upload")
    prediction.add_argument("destination", metavar="DESTINATION", help="a local place, or a URL for an upload")
    prediction.add_argument("--files", type=int, metavar="N", help="with --bytes: a number of files, instead of those of the source")
    prediction.add_argument("--bytes", metavar="SIZE", help="their total size, such as 100GB")
    prediction.add_argument("--seconds", type=int, metavar="S", help="duration of the probe, 1 to 60 [default: that of `towpath probe`]")
    prediction.add_argument(
        "--profile",
        type=Path,
        action="append",
        default=[],
        dest="tables",
        metavar="TABLE",
        help="earlier runs, for the time of the network: a Parquet file or the directory of a campaign; repeatable",
    )
    add_filters(prediction)
    prediction.add_argument("--site", metavar="NAME", help="only runs of the profile to this site")
    prediction.add_argument("--streams", type=int, metavar="N", help="only runs of the profile with N connections")
    prediction.add_argument("--buffer-mib", type=float, metavar="MIB", help="only runs of the profile with this maximum buffer")
    prediction.add_argument("--with-limited", action="store_true", help="include runs of the profile that the machine limited")
    prediction.add_argument("--coverage", type=float, default=0.9, metavar="PART", help="probability of the interval [default: 0.9]")
    prediction.add_argument(
        "--calibration", type=Path, metavar="FILE", help="lines of JSON with predicted_s and actual_s of earlier copies"
    )
    prediction.add_argument("--json", action="store_true", help="print one JSON document")
    prediction.set_defaults(run=_predict)


def _predict(options: argparse.Namespace) -> int:
    if (options.files is None) != (options.bytes is None):
        raise ValueError("--files and --bytes need each other")
    # What is wrong with the files is an error before the probe.
    profile, missing = _profile(options)
    calibration = predict.Calibration.read(options.calibration) if options.calibration else None
    by_default = [predict.emulated_copies(rtt_s, with_profile=profile is not None) for rtt_s in predict.CLASSES.values()]
    for used in [calibration] if calibration else by_default:
        used.factors(options.coverage)
    document = predict.run_probe(
        [program()], options.source, options.destination, seconds=options.seconds, files=options.files, size=options.bytes
    )
    found = predict.predict(document, calibration, profile=profile, coverage=options.coverage)
    code = INCOMPLETE if missing else 0
    if options.json:
        print(json.dumps(vars(found)))
        return code
    interval = f"{duration_text(found.earliest_s)} to {duration_text(found.latest_s)} with a probability of {100 * found.coverage:g} %"
    what = f"{count(found.files, 'file')}, {found.bytes / 1e6:,.0f} MB"
    print(f"{what}: about {duration_text(found.seconds)}, {interval}, most of it for {found.bound}")
    print(f"  if {'; '.join(found.assumptions)}; interval from {found.calibration}")
    for caution in found.cautions:
        print(f"caution: {caution}")
    return code


def _profile(options: argparse.Namespace) -> tuple[TransferTimes | None, int]:
    """Returns the profile, None without one, and the number of runs that its campaigns lack."""
    if not options.tables:
        if unused := [f"--{name.replace('_', '-')}" for name in _OF_PROFILE if getattr(options, name)]:
            raise ValueError(f"{' and '.join(unused)}: --profile is missing")
        return None, 0
    runs, missing = read_runs(options)
    if options.site is not None:
        runs = Runs(runs.table.filter(pc.field("site") == options.site))
    of_key = dict(runs.configurations())
    kept = matching(
        of_key,
        tool=options.tool,
        transport=options.transport,
        streams=options.streams,
        buffer_bytes=None if options.buffer_mib is None else round(number(options.buffer_mib, "--buffer-mib") * 2**20),
    )
    if len(kept) > 1:
        found = "".join(f"\n  {key}" for key in kept)
        how = "select one with --tool, --transport, --streams and --buffer-mib, or give tables of one plan"
        raise ValueError(f"--profile: {len(kept)} configurations, expected one: {how}:{found}")
    profile = TransferTimes.of_runs(of_key[kept[0]], with_limited=options.with_limited)
    if profile.excluded:
        print(f"towpath lab: {count(profile.excluded)} left out, which the machine limited", file=sys.stderr)
    if options.calibration is None and profile.count < (least := predict.least_count(options.coverage)):
        raise ValueError(f"--profile: {count(profile.count)}, expected {least} for a coverage of {options.coverage:g}")
    return profile, missing


def duration_text(seconds: float) -> str:
    """Returns a duration with three digits, such as `14 m 41 s`."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"
