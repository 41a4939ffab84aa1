"""Circumstances of a measurement: date, machine, load, and the measured version."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import subprocess

from contenders import Machine

RESULTS = "bench/results"
"""Directory of the results, relative to the root of the checkout."""


def circumstances(machine: Machine) -> dict[str, object]:
    """Returns the current circumstances."""
    processors = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in processors if line.startswith("model name")), "unknown")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "kernel": platform.release(),
        "processor": model,
        "cores": os.cpu_count(),
        "towpath": version(machine),
        "load_before": os.getloadavg()[0],
    }


def version(machine: Machine) -> str:
    """Returns the output of `--version` and the commit of the checkout that contains the benchmark, if any. Changed
    results do not make it dirty."""
    version_text = subprocess.run([machine.towpath_binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    commit = git("rev-parse", "--short", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":(exclude,top){RESULTS}")
    return f"{version_text} ({commit}{'-dirty' if changed else ''})" if commit else version_text


def git(*words: str) -> str:
    """Returns the output of a git command in this checkout; empty outside of a checkout."""
    command = ["git", "-C", pathlib.Path(__file__).parent, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def summary(all_circumstances: list[dict]) -> str:
    """Formats circumstances as one line: common values once, differing values as a range."""
    dates, loads = (sorted({each[key] for each in all_circumstances}) for key in ("date", "load_before"))
    texts = (f"{each['towpath']}, {each['cores']} cores of {each['processor']}, kernel {each['kernel']}" for each in all_circumstances)
    return f"{'; '.join(dict.fromkeys(texts))}, {span(dates)}, load before {span([f'{load:.1f}' for load in loads])}."


def span(ordered: list[str]) -> str:
    """Returns the range from the first to the last value."""
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
