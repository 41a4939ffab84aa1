"""`towpath lab predict`: the time of a copy."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from towpath.commands import program
from towpath.lab import predict
from towpath.lab.command.shared import count

if TYPE_CHECKING:
    from towpath.lab.command import Commands


def add(commands: Commands) -> None:
    """Adds the command."""
    prediction = commands.add_parser("predict", help="predict the time of a copy from a probe of its path, as an interval")
    prediction.add_argument("source", metavar="SOURCE", help="a URL, or a local place for an upload")
    prediction.add_argument("destination", metavar="DESTINATION", help="a local place, or a URL for an upload")
    prediction.add_argument("--files", type=int, metavar="N", help="with --bytes: a number of files, instead of those of the source")
    prediction.add_argument("--bytes", metavar="SIZE", help="their total size, such as 100GB")
    prediction.add_argument(
        "--seconds", type=int, default=3, metavar="S", help="duration of the probe, 1 to 60 [default: 3, as for the calibration]"
    )
    prediction.add_argument("--coverage", type=float, default=0.9, metavar="PART", help="probability of the interval [default: 0.9]")
    prediction.add_argument(
        "--calibration", type=Path, metavar="FILE", help="lines of JSON with predicted_s and actual_s of earlier copies"
    )
    prediction.add_argument("--json", action="store_true", help="print one JSON document")
    prediction.set_defaults(run=_predict)


def _predict(options: argparse.Namespace) -> int:
    if (options.files is None) != (options.bytes is None):
        raise ValueError("--files and --bytes need each other")
    calibration = predict.Calibration.read(options.calibration) if options.calibration else None
    for used in [calibration] if calibration else [predict.emulated_copies(rtt_s) for rtt_s in predict.CLASSES.values()]:
        used.factors(options.coverage)  # raises an error before the probe
    command = [program()]
    document = predict.run_probe(
        command, options.source, options.destination, seconds=options.seconds, files=options.files, size=options.bytes
    )
    found = predict.predict(document, calibration, coverage=options.coverage)
    if options.json:
        print(json.dumps(vars(found)))
        return 0
    interval = f"{duration_text(found.earliest_s)} to {duration_text(found.latest_s)} with a probability of {100 * found.coverage:g} %"
    what = f"{count(found.files, 'file')}, {found.bytes / 1e6:,.0f} MB"
    print(f"{what}: about {duration_text(found.seconds)}, {interval}, most of it for {found.bound}")
    print(f"  if {'; '.join(found.assumptions)}; interval from {found.calibration}")
    return 0


def duration_text(seconds: float) -> str:
    """Returns a duration with three digits, such as `14 m 41 s`."""
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"
