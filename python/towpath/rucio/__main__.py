"""The command line: `python -m towpath.rucio metalink` and `python -m towpath.rucio distances`.

Results are written to standard output, messages to standard error. Exit codes are those of `towpath` (docs/reference/cli.md).
"""

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import towpath
from towpath.rucio import distances, judgement, official
from towpath.rucio.metalink import metalink

# Not `__name__`, which is `__main__` if run as a program.
LOG = logging.getLogger("towpath.rucio")

USAGE, DEFECT = 2, towpath.Internal.exit_code
# Exit codes of exceptions that are not a `towpath.Error` (docs/reference/cli.md).
EXIT_CODES: dict[type[Exception], int] = {
    distances.GivenUp: towpath.Unavailable.exit_code,
    official.Missing: USAGE,
    ValueError: USAGE,
    FileNotFoundError: towpath.NotFound.exit_code,
    PermissionError: towpath.Denied.exit_code,
}

SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}
MAX_EVERY_S = 7 * 86400


class Ended(BaseException):
    """Raised by the signal handler. It is a `BaseException` so that no `except Exception` catches it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def duration(text: str) -> float:
    """Parses a duration such as `30s`, `10min`, `1h` or `1d` and returns it in seconds.

    Raises `argparse.ArgumentTypeError` unless it is from 1 s to 7 days.
    """
    found = re.fullmatch(r"(\d{1,7})(s|min|m|h|d)", text)
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not 1 <= seconds <= MAX_EVERY_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration from 1s to 7d, such as 10min or 1h")
    return float(seconds)


def statement(text: str) -> str:
    """Returns `text`; raises `argparse.ArgumentTypeError` if it is no valid statement."""
    try:
        judgement.keys_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def address(text: str) -> str:
    """Returns `text`; raises `argparse.ArgumentTypeError` if it is no IP address."""
    if not judgement.is_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address")
    return text


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--by",
        type=statement,
        default=judgement.DEFAULT_STATEMENT,
        metavar="STATEMENT",
        help="statement for the order, such as 'BY as_hopcount,delay_ow WHERE continent=\"EU\"' [default: %(default)s]",
    )
    common.add_argument(
        "--ird",
        default=os.environ.get("TOWPATH_ALTO_IRD") or None,
        metavar="URL",
        help="URL of the directory of the ALTO server [default: TOWPATH_ALTO_IRD, or default-ird in the file of --config]",
    )
    common.add_argument(
        "--config",
        default=os.environ.get("TOWPATH_ALTO_CONFIG") or None,
        metavar="FILE",
        help="TOML file that defines metrics and the default server [default: TOWPATH_ALTO_CONFIG]",
    )
    top = argparse.ArgumentParser(prog="python -m towpath.rucio", description="Order replicas and set distances in Rucio by ALTO costs.")
    commands = top.add_subparsers(dest="command", required=True)

    ordered = commands.add_parser("metalink", parents=[common], help="write ordered replicas as a Metalink for `rucio download --metalink`")
    ordered.add_argument("dids", nargs="+", metavar="DID", help="file, dataset or container: scope:name")
    ordered.add_argument(
        "--client",
        type=address,
        metavar="ADDRESS",
        help="address of the reader of the replicas [default: the address that the ALTO server sees]",
    )
    exclusive = ordered.add_mutually_exclusive_group()
    exclusive.add_argument("--strict", action="store_true", help="omit replicas that do not meet the condition")
    exclusive.add_argument("--fallback", action="store_true", help="keep Rucio's order if the ALTO server does not respond")

    daemon = commands.add_parser("distances", parents=[common], help="keep the distances between RSEs up to date")
    daemon.add_argument("--rses", metavar="EXPRESSION", help="RSE expression that selects the RSEs [default: all]")
    when = daemon.add_mutually_exclusive_group()
    when.add_argument(
        "--every", type=duration, default=duration("1h"), metavar="DURATION", help="interval between the starts of runs [default: 1h]"
    )
    when.add_argument("--once", action="store_true", help="perform one run and exit with its result")
    daemon.add_argument("--dry-run", action="store_true", help="print the changes without writing them: SOURCE DESTINATION BEFORE AFTER")
    daemon.add_argument("--add", action="store_true", help="also add missing distances; a distance permits transfers between two RSEs")
    return top


def run(arguments: argparse.Namespace) -> int:
    """Runs the selected command and returns the exit code."""
    common = {"by": arguments.by, "ird": arguments.ird, "config": arguments.config}
    if arguments.command == "metalink":
        sys.stdout.buffer.write(
            metalink(arguments.dids, client=arguments.client, strict=arguments.strict, fallback=arguments.fallback, **common)
        )
        sys.stdout.buffer.flush()
        return 0
    wish = distances.Wish(rses=arguments.rses, is_dry=arguments.dry_run, adds=arguments.add, **common)
    if not arguments.once:
        distances.again_and_again(wish, arguments.every)
    return 0 if distances.once(wish).is_whole else EXIT_CODES[distances.GivenUp]


def exit_code(error: Exception) -> int:
    """Returns the exit code for `error`."""
    if isinstance(error, towpath.Error):
        return error.exit_code
    for kind, code in EXIT_CODES.items():
        if isinstance(error, kind):
            return code
    return official.exit_code(error)


def log_to_stderr() -> None:
    """Writes the log of this package to standard error. Rucio's client configures its own logging."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger("towpath")
    log.addHandler(handler)
    log.setLevel(logging.INFO)


def end(signum: int, _frame: FrameType | None) -> None:
    """Signal handler: raises `Ended` in the main thread."""
    raise Ended(signum)


def main(words: Sequence[str] | None = None) -> int:
    """Runs the program with the arguments `words` (None: `sys.argv[1:]`) and returns the exit code."""
    arguments = parser().parse_args(words)
    if not arguments.ird and not arguments.config:
        print("error: name the directory of an ALTO server: --ird URL, or default-ird in the file of --config", file=sys.stderr)
        return USAGE
    log_to_stderr()
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, end)
    try:
        return run(arguments)
    except Ended as ended:
        # A signal is the normal end of a daemon, but interrupts a single run.
        is_daemon = arguments.command == "distances" and not arguments.once
        return 0 if is_daemon else 128 + ended.signum
    except Exception as error:  # any failure is reported in one line, with an exit code
        # Messages of Rucio have several lines.
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        code = exit_code(error)
        if code == DEFECT:
            LOG.exception("internal error; please report it")
        return code


if __name__ == "__main__":
    sys.exit(main())
