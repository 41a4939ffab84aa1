"""What a reader needs to judge figures: when, on which machine, what else it did, and what was measured."""

from __future__ import annotations

import datetime
import os
import pathlib
import platform
import subprocess

from contenders import Machine

RESULTS = "bench/results"
"""Below the top of the checkout."""


def circumstances(machine: Machine) -> dict[str, object]:
    """Those of now."""
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
    """What the program says of itself, and the commit that is checked out where the benchmark lies, if any. Results that changed do not count."""
    said = subprocess.run([machine.towpath_binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    commit = git("rev-parse", "--short", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", f":(exclude,top){RESULTS}")
    return f"{said} ({commit}{'-dirty' if changed else ''})" if commit else said


def git(*words: str) -> str:
    """What git says of the checkout that the benchmark lies in; nothing if there is none."""
    command = ["git", "-C", pathlib.Path(__file__).parent, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def told(all_of_them: list[dict]) -> str:
    """As one line: what they have in common once, the rest from first to last."""
    dates, loads = (sorted({each[key] for each in all_of_them}) for key in ("date", "load_before"))
    texts = (f"{each['towpath']}, {each['cores']} cores of {each['processor']}, kernel {each['kernel']}" for each in all_of_them)
    return f"{'; '.join(dict.fromkeys(texts))}, {span(dates)}, load before {span([f'{load:.1f}' for load in loads])}."


def span(ordered: list[str]) -> str:
    """From the first to the last."""
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
