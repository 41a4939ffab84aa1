"""Copies, probes and plans by the program `towpath`, which the package carries.

    >>> import towpath
    >>> towpath.copy("root://far.example.org//store/run7", "/data")  # doctest: +SKIP
    Copied(files=420, bytes=93130000000, seconds=881.2, skipped=0, verified=420)

They are the commands `towpath cp`, `towpath probe` and `towpath plan`, with their settings, credentials, and memory of paths.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import towpath

_ERRORS = {error.exit_code: error for error in towpath.Error.__subclasses__()} | {2: towpath.Invalid}
"""By exit codes of the command (docs/reference/cli.md)."""

MAX_MESSAGE_BYTES = 64 << 10
"""Maximum length of the messages of a failed command that an error has: the last ones."""

SEEN_WAIT = "30s"
"""Maximum wait for a busy storage in notebooks and on terminals, as that of the command there."""

END_S = 8.0
"""Time for the program to clean up in seconds: more than it takes at most."""


@dataclass(frozen=True)
class Progress:
    """State of a copy. Bytes are those of contents."""

    files_ended: int
    """Files that arrived, failed, or were there already."""
    files_found: int
    """Files that were found so far."""
    all_found: bool
    """Whether those are all; otherwise the numbers still grow."""
    bytes_moved: int
    bytes_ahead: int
    """Bytes that are still to be moved, as far as is known."""
    bytes_per_s: float
    """Rate over the last seconds."""
    eta_s: float | None
    """Remaining time at that rate."""


@dataclass(frozen=True)
class Copied:
    """Outcome of a copy without failures."""

    files: int
    """Files that were copied."""
    bytes: int
    """Their sizes, added up."""
    seconds: float
    skipped: int
    """Files that were there already."""
    verified: int
    """Copied files of which both ends have the same digest."""


Show = Callable[[Progress], object]


def copy(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    destination: str | os.PathLike[str],
    *,
    recursive: bool = False,
    overwrite: bool = False,
    skip_existing: bool = False,
    progress: bool | Show | None = None,
    options: Sequence[str] = (),
) -> Copied:
    """Copies files, between storages and local disks; each is visible when it is complete.

    - `source`: a URL or a local path, or several.
    - `recursive`: copies directories with their contents.
    - `overwrite`: replaces existing files, which are errors otherwise; `skip_existing` leaves them.
    - `progress`: a bar by tqdm, by default in notebooks and on terminals if tqdm is installed; or a function that gets the state once a
      second and at the end, on the thread of the caller. An exception of it ends the copy.
    - `options`: further arguments of `towpath cp` (docs/reference/cli.md).

    Warns of what the command warns of, such as a source that was left out. Raises a subclass of `towpath.Error` if a file was not copied,
    with the messages of the command; the others are complete. An interrupt ends the copy, and a repetition continues where the storage
    permits it.
    """
    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    places = [os.fspath(place) for place in (*sources, destination)]
    if "-" in places:
        raise ValueError("a place is -: standard input and output cannot be copied from here; for a file of this name use ./-")
    flags = {"-r": recursive, "--force": overwrite, "--skip-existing": skip_existing}
    arguments = ["cp", "-q", "--events", "-", *(flag for flag, is_set in flags.items() if is_set), *_listed(options), "--", *places]
    end: dict[str, Any] = {}
    with _show(progress) as show, _running(arguments) as lines:
        for line in lines:
            event = _parsed(line)
            if event["event"] == "progress":
                show(Progress(**{field: event[field] for field in Progress.__dataclass_fields__}))
            elif event["event"] == "notice":
                warnings.warn(event["message"], stacklevel=2)
            elif event["event"] == "end":
                end = event
                show(_last(end))
    if not end or end.get("dry_run"):
        raise ValueError(f"nothing was copied: towpath cp reported no result, with the options {list(options)}")
    return Copied(end["files"], end["bytes"], end["seconds"], end.get("skipped", 0), end["files_verified"])


def _last(end: dict[str, Any]) -> Progress:
    """Returns the state after the last file."""
    files, moved = end["files"] + end["failed"] + end.get("skipped", 0), end["bytes"] - end["bytes_resumed"]
    return Progress(files, files, True, moved, 0, moved / max(end["seconds"], 1e-3), 0.0)


def probe(
    url: str,
    *,
    direction: str | None = None,
    connections: int | None = None,
    seconds: int | None = None,
    copy_of: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Measures the path to a server, and returns the document of `towpath probe --json` (docs/guides/probe.md).

    - `direction`: `down` or `up`; both by default.
    - `connections`: their number, 1 to 64; by default that of a copy.
    - `seconds`: duration of each leg.
    - `copy_of`: a place whose copy to here, or to the server, is predicted.
    - `options`: further arguments of `towpath probe`.

    Raises a subclass of `towpath.Error` if the server cannot be probed.
    """
    place = None if copy_of is None else os.fspath(copy_of)
    values = {"--direction": direction, "--connections": connections, "--seconds": seconds, "--for": place}
    return _document("probe", values, options, url)


def plan(
    url: str | os.PathLike[str],
    columns: str | Sequence[str] = (),
    *,
    entries: tuple[int, int | None] | None = None,
    tree: str | None = None,
    gap: int = 0,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns which bytes of a ROOT file columns and entries take: the document of `towpath plan --json` (docs/guides/plan.md).

    - `columns`: names or patterns, as in `Jet_*`, none with a comma; without them the trees are listed.
    - `entries`: the first one, and the one behind the last; `None` for the end of the tree.
    - `tree`: with its directories, if the file has several.
    - `gap`: ranges with a gap of at most this number of bytes are merged.
    - `options`: further arguments of `towpath plan`.

    Raises a subclass of `towpath.Error` if the file or a column is not found, or the file is not understood.
    """
    names = [columns] if isinstance(columns, str) else list(columns)
    if any("," in name for name in names):
        raise ValueError(f"columns {names}: a name has a comma")
    first, end = entries or (0, None)
    values = {
        "--columns": ",".join(names) or None,
        "--entries": f"{first}:{'' if end is None else end}",
        "--tree": tree,
        "--gap": gap,
    }
    return _document("plan", values, options, os.fspath(url))


def _document(command: str, values: dict[str, Any], options: Sequence[str], url: str) -> dict[str, Any]:
    """Returns the JSON document that a command prints. `None` for a flag leaves it out."""
    arguments = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    with _running([command, "--json", *arguments, *_listed(options), "--", url]) as lines:
        text = "".join(lines)
    return _parsed(text)


def _listed(options: Sequence[str]) -> list[str]:
    if isinstance(options, str):
        raise TypeError(f"options is the text {options!r}, expected a list of arguments")
    return list(options)


def _parsed(text: str) -> dict[str, Any]:
    """Returns what the program printed."""
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ValueError(f"the output of towpath is not JSON: {text[:200]!r}") from None
    return document


def program() -> Path:
    """Returns the program `towpath`: that of the variable TOWPATH_PROGRAM, the one beside the interpreter, or that of the search path.

    Raises `ValueError` if there is none.
    """
    beside = Path(sys.executable).with_name("towpath")
    found = os.environ.get("TOWPATH_PROGRAM") or (str(beside) if beside.exists() else shutil.which("towpath"))
    if found is None:
        raise ValueError("the program towpath was not found: add it to PATH, or name it in the variable TOWPATH_PROGRAM")
    return Path(found)


@contextlib.contextmanager
def _running(arguments: Sequence[str]) -> Iterator[Iterator[str]]:
    """Runs the program, and yields the complete lines of its output. Raises the error of its exit code. An exception of the block ends
    it."""
    command, null = [str(program()), *arguments], subprocess.DEVNULL
    if _is_seen() and "TOWPATH_WAIT" not in os.environ:
        command[2:2] = ["--wait", SEEN_WAIT]
    with tempfile.TemporaryFile() as messages:
        # An interrupt of the terminal gets to it from here only: a second one would end it at once.
        running = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=messages, encoding="utf-8", start_new_session=True)
        assert running.stdout is not None
        with running.stdout as output:
            try:
                yield (line for line in output if line.endswith("\n"))
                code = running.wait()
            except BaseException:
                output.close()
                _end(running)
                raise
        if code:
            error = _ERRORS.get(code, towpath.Error)(_last_messages(messages) or f"towpath {arguments[0]} ended with exit code {code}")
            error.exit_code = code
            raise error


def _end(running: subprocess.Popen[str]) -> None:
    """Ends the program, which removes what is incomplete, or keeps what can be continued."""
    running.terminate()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(END_S)
    finally:
        running.kill()
        running.wait()


def _last_messages(file: IO[bytes]) -> str:
    """Returns the last messages of the program."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MAX_MESSAGE_BYTES))
    text = file.read().decode(errors="replace").strip()
    return "\n".join(line.removeprefix("towpath: ") for line in text.splitlines())


def _is_seen() -> bool:
    """Returns whether a person reads the messages."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def _show(progress: bool | Show | None) -> Iterator[Show]:
    """Yields the function that shows the progress of a copy."""
    if callable(progress):
        yield progress
        return
    is_shown = _is_seen() and importlib.util.find_spec("tqdm") is not None if progress is None else progress
    if not is_shown:
        yield lambda _: None
        return
    from tqdm.auto import tqdm

    with tqdm(unit="B", unit_scale=True) as bar:

        def show(state: Progress) -> None:
            bar.total, bar.n = state.bytes_moved + state.bytes_ahead, state.bytes_moved
            bar.set_postfix_str(f"{state.files_ended}/{state.files_found}{'' if state.all_found else '+'} files")

        yield show
