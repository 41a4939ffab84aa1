"""Arguments and output of the command `towpath lab`.

Exit codes are those of `towpath` (docs/reference/cli.md): 2 for wrong usage, 3 if a file does not exist, 5 for an input that is not
valid, and 1 if some runs failed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from towpath import Invalid, NotFound
from towpath.lab import importers
from towpath.lab.analysis import COEFFICIENTS, Analysis, Unavailable, analyse, coefficient_text
from towpath.lab.report import page
from towpath.lab.runs import Runs

INCOMPLETE = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except ValueError as error:
        return _fail(str(error), Invalid.exit_code)
    except FileNotFoundError as error:
        return _fail(f"{error.filename}: no such file", NotFound.exit_code)
    except BrokenPipeError:
        # The reader of the output has ended.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return 130


def _fail(message: str, code: int) -> int:
    print(f"towpath lab: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="towpath lab", description="Measure, model and predict the throughput of long paths.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    measure = commands.add_parser("measure", help="run a campaign over emulated paths, as root; an interrupted one continues")
    measure.add_argument("plan", type=Path, metavar="PLAN", help="the plan, a TOML file (docs/lab/measure.md)")
    measure.add_argument("--output", type=Path, metavar="DIR", help="directory of the campaign [default: the plan without its suffix]")
    measure.set_defaults(run=_measure)

    convert = commands.add_parser("import", help="convert results of other tools to a table of runs")
    convert.add_argument("files", type=Path, nargs="+", metavar="FILE")
    convert.add_argument("--format", required=True, choices=importers.FORMATS)
    convert.add_argument("--output", type=Path, required=True, metavar="TABLE", help="the table, a Parquet file")
    convert.add_argument("--rtt-ms", type=float, metavar="MS", help="round trip, if the files do not have it, or another one")
    convert.add_argument("--capacity", type=float, metavar="BITS_PER_S", help="capacity of the path")
    convert.add_argument("--site", metavar="NAME", help="name of the far end")
    convert.set_defaults(run=_import)

    profile = commands.add_parser("profile", help="print profiles, transitions and coefficients of a table of runs")
    _add_table(profile)
    profile.add_argument("--json", action="store_true", help="print one JSON document")
    profile.set_defaults(run=_profile)

    report = commands.add_parser("report", help="write an HTML page of a table of runs")
    _add_table(report)
    report.add_argument("--output", type=Path, metavar="FILE", help="the page [default: beside the table]")
    report.add_argument("--title", metavar="TEXT", help="[default: the name of the table]")
    report.set_defaults(run=_report)
    return parser


def _add_table(command: argparse.ArgumentParser) -> None:
    command.add_argument("table", type=Path, metavar="TABLE", help="Parquet file of `measure` or `import`, or directory of a campaign")
    command.add_argument("--with-limited", action="store_true", help="include runs that the machine limited, not the path")


def _measure(options: argparse.Namespace) -> int:
    from towpath.lab.measure.campaign import Campaign

    campaign = Campaign(options.output or options.plan.with_suffix(""), options.plan.read_text(), str(options.plan))
    failures = campaign.measure(_program(), lambda line: print(line, flush=True))
    print(f"wrote {campaign.write_table()}: {len(campaign.rows)} of {campaign.plan.size} runs")
    if failures:
        print(f"towpath lab: {_count(len(failures))} failed; run the command again to repeat them", file=sys.stderr)
    return INCOMPLETE if failures else 0


def _program() -> Path:
    """Returns the program `towpath`: that of the variable TOWPATH_PROGRAM, the one beside the interpreter, or that of the search path."""
    beside = Path(sys.executable).with_name("towpath")
    found = os.environ.get("TOWPATH_PROGRAM") or (str(beside) if beside.exists() else shutil.which("towpath"))
    if found is None:
        raise ValueError("the program towpath was not found: add it to PATH, or name it in the variable TOWPATH_PROGRAM")
    return Path(found)


def _import(options: argparse.Namespace) -> int:
    rtt_s = None if options.rtt_ms is None else options.rtt_ms / 1e3
    known = importers.Known(rtt_s=rtt_s, capacity_bits_per_s=options.capacity, site=options.site)
    runs = importers.read(options.files, options.format, known)
    runs.write(options.output)
    print(f"wrote {options.output}: {_count(len(runs))} of {_count(len(runs.configurations()), 'configuration')}")
    return 0


def _read(options: argparse.Namespace) -> tuple[Runs, list[Analysis]]:
    from towpath.lab.measure.campaign import TABLE

    path: Path = options.table / TABLE if options.table.is_dir() else options.table
    runs = Runs.read(path)
    return runs, analyse(runs, with_limited=options.with_limited)


def _profile(options: argparse.Namespace) -> int:
    _, results = _read(options)
    if options.json:
        print(json.dumps([result.document() for result in results], indent=2))
    else:
        print("\n\n".join(_text(result) for result in results))
    return 0


def _text(result: Analysis) -> str:
    """Returns the results of a configuration as lines."""
    title, profile, band, transition = str(result.configuration), result.profile, result.band, result.transition
    if isinstance(profile, Unavailable):
        return f"{title}\n  no profile: {profile.reason}"
    lines = []
    for at, rtt in enumerate(profile.rtt_s):
        interval = "" if isinstance(band, Unavailable) else f"  ({band.lower[at] / 1e6:.1f} to {band.upper[at] / 1e6:.1f})"
        lines.append(f"{rtt * 1e3:8.4g} ms  {profile.means[at] / 1e6:10.1f} Mbit/s{interval}  {_count(profile.counts[at])}")
    if profile.excluded:
        lines.append(f"left out: {_count(profile.excluded)} that the machine limited")
    if isinstance(band, Unavailable):
        lines.append(f"no band: {band.reason}")
    if isinstance(transition, Unavailable):
        lines.append(f"shape not determined: {transition.reason}")
    else:
        low_s, high_s = transition.bracket_s or (0.0, 0.0)
        bracket = f", transition between {low_s * 1e3:g} and {high_s * 1e3:g} ms" if transition.shape == "dual" else ""
        lines.append(f"shape: {transition.shape}{bracket}")
    lines.append(", ".join(f"{symbol} {coefficient_text(result, name)}" for symbol, name in COEFFICIENTS.items()))
    return "\n  ".join([title, *lines])


def _count(number: int, noun: str = "run") -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _report(options: argparse.Namespace) -> int:
    runs, results = _read(options)
    output = options.output or (options.table / "report.html" if options.table.is_dir() else options.table.with_suffix(".html"))
    output.write_text(page(runs, results, options.title or f"Runs of {options.table.name}"), encoding="utf-8")
    print(f"wrote {output}")
    return 0
