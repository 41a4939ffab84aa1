"""`towpath lab choose`, `teach` and `learn`: the number of connections for a path."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from towpath.lab import path_memory
from towpath.lab.analysis import Unavailable
from towpath.lab.command.shared import INCOMPLETE, add_filters, add_tables, count, matching, read_tables
from towpath.lab.runs import rate_text
from towpath.lab.tuning import Candidate, Selection, select

if TYPE_CHECKING:
    from towpath.lab.command import Commands


def add(commands: Commands) -> None:
    """Adds the commands."""
    choose = commands.add_parser("choose", help="choose transport, streams and buffer for a round trip from measured profiles")
    _add_choice(choose)
    choose.add_argument("--json", action="store_true", help="print one JSON document")
    choose.set_defaults(run=_choose)

    teach = commands.add_parser("teach", help="choose, and write the number of connections into the memory of `towpath cp`")
    teach.add_argument("source", metavar="SOURCE", help="root:// URL of the server, or - for this machine")
    teach.add_argument("destination", metavar="DESTINATION", help="the same")
    _add_choice(teach)
    _add_file(teach)
    teach.set_defaults(run=_teach)

    learn = commands.add_parser("learn", help="print what `towpath cp` found about paths")
    _add_file(learn)
    learn.set_defaults(run=_learn)


def _add_choice(command: argparse.ArgumentParser) -> None:
    add_tables(command)
    command.add_argument("--rtt-ms", type=float, required=True, metavar="MS", help="round trip of the path")
    add_filters(command)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("--file", type=Path, metavar="FILE", help=f"the memory [default: {path_memory.default_file()}]")


def _select(options: argparse.Namespace) -> tuple[Selection, int]:
    """Returns the choice, and the exit code. Prints how many runs are left out of the profiles."""
    _, results, missing = read_tables(options)
    wanted = matching([result.configuration for result in results], tool=options.tool, transport=options.transport)
    kept = [result for result in results if result.configuration in wanted]
    excluded = sum(result.profile.excluded for result in kept if not isinstance(result.profile, Unavailable))
    if excluded:
        print(f"towpath lab: {count(excluded)} left out, which the machine limited", file=sys.stderr)
    return select(kept, options.rtt_ms / 1e3), INCOMPLETE if missing else 0


def _choose(options: argparse.Namespace) -> int:
    found, code = _select(options)
    if options.json:
        print(json.dumps(asdict(found)))
        return code
    groups: tuple[tuple[str, Sequence[Candidate]], ...] = (
        ("chosen", [found.chosen]),
        ("as good", found.alternatives),
        ("perhaps as good", found.undecided),
        ("worse", found.worse),
    )
    for name, candidates in groups:
        for candidate in candidates:
            print(f"{name}: {candidate.configuration}: {_interval(candidate)}")
    if len(candidates := [found.chosen, *found.alternatives, *found.undecided, *found.worse]) > 1:
        print(f"all {len(candidates)} intervals are right with a probability of at least {100 * found.joint_coverage:.0f} %")
    _print_reservations(found)
    return code


def _print_reservations(found: Selection) -> None:
    for excluded in found.excluded:
        print(f"left out: {excluded.configuration}: {excluded.reason}")
    for caution in found.cautions:
        print(f"caution: {caution}")


def _interval(candidate: Candidate) -> str:
    lower, upper = rate_text(candidate.lower_bits_per_s), rate_text(candidate.upper_bits_per_s)
    return f"{rate_text(candidate.mean_bits_per_s)} ({lower} to {upper})"


def _teach(options: argparse.Namespace) -> int:
    selection, code = _select(options)
    chosen = selection.chosen
    streams = chosen.configuration.streams
    if streams is None:
        raise ValueError(f"{chosen.configuration}: this tool chooses the number of connections; select another one with --tool")
    file = path_memory.teach(
        options.source, options.destination, connections=streams, bytes_per_s=chosen.mean_bits_per_s / 8, file=options.file
    )
    print(f"wrote {file}: {options.source} to {options.destination}: {streams} connections, {_interval(chosen)}")
    _print_reservations(selection)
    transport, buffer = chosen.configuration.transport, chosen.configuration.buffer_bytes
    if transport is not None:
        print(f"caution: these runs had {transport}; a copy has the congestion control of the sending host (select runs with --transport)")
    if buffer is not None:
        print(f"caution: these runs had buffers of {buffer / 2**20:g} MiB; a copy has those that both hosts permit")
    return code


def _learn(options: argparse.Namespace) -> int:
    if options.file is not None and not options.file.exists():
        raise FileNotFoundError(errno.ENOENT, "no such file", str(options.file))
    entries = path_memory.learn(options.file)
    entries["state"] = ["expired" if is_expired else "" for is_expired in path_memory.is_expired(entries)]
    print("no entries" if entries.empty else entries.to_string(index=False))
    return 0
