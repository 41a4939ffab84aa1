"""Arguments and output of the command `towpath lab`.

Exit codes are those of `towpath` (docs/reference/cli.md): 2 for wrong usage, 3 if a file does not exist, 4 without permission (such as
root), 5 for an input that is not valid, 141 for a closed pipe; and 1 if runs failed or are missing, and for other errors of the system.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from towpath import Denied, Invalid, NotFound
from towpath.lab.command import campaigns, choices, predictions, sites, tables

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit code."""
    options = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
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
        return 128 + signal.SIGPIPE
    except PermissionError as error:
        return _fail(str(error), Denied.exit_code)
    except OSError as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return 130


def _interrupt(number: int, _: object) -> NoReturn:
    """Ends the command as an exception, so that emulators end and settings are restored."""
    raise SystemExit(128 + number)


def _fail(message: str, code: int) -> int:
    print(f"towpath lab: {message}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="towpath lab", description="Measure, model and predict the throughput of long paths.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for module in (campaigns, tables, sites, choices, predictions):
        module.add(commands)
    return parser
