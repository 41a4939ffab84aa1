"""Formats the samples of a cell as a figure with marks."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from harness import median_and_spread


def mbit(sample: dict) -> float:
    return sample["bytes"] * 8 / sample["seconds"] / 1e6


def seconds(sample: dict) -> float:
    return sample["seconds"]


def middle(samples: list[dict], value: Callable[[dict], float]) -> float:
    return statistics.median(map(value, samples))


def digits(value: float) -> str:
    """Formats with three digits, or all digits before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def is_cut(samples: list[dict]) -> bool:
    return any(sample["cut"] for sample in samples)


def is_disturbed(sample: dict, path: dict) -> bool:
    """Returns whether the machine, not only the link, affected the sample."""
    emulation = sample["emulation"]
    return emulation["machine_lost"] > 0 or emulation["late_us"] > max(100, 20 * path["rtt_ms"])


def marks(cell: dict, name: str) -> str:
    """Returns `*` if cut off, `!` if disturbed by the machine, `†` if it failed later."""
    samples = cell["runs"][name]
    disturbed = any(is_disturbed(sample, cell["path"]) for sample in samples)
    return ("*" if is_cut(samples) else "") + ("!" if disturbed else "") + ("†" if name in cell["left_out"] else "")


def figure(cell: dict, name: str, value: Callable[[dict], float]) -> str:
    """Formats the median with its marks and its range; – without samples."""
    if name not in cell["runs"]:
        return "–"
    median, least, most = median_and_spread([value(sample) for sample in cell["runs"][name]])
    spread = f" ({digits(least)}–{digits(most)})" if len(cell["runs"][name]) > 1 else ""
    return f"{digits(median)}{marks(cell, name)}{spread}"


def heading(path: dict, cells: Sequence[dict]) -> str:
    """Returns the properties that distinguish a path from the others of its table."""
    parts = {"rtt_ms": f"{path['rtt_ms']:g} ms", "loss": f"loss {path['loss']:g}"}
    distinct = [text for key, text in parts.items() if len({cell["path"][key] for cell in cells}) > 1]
    return ", ".join(distinct) or parts["rtt_ms"]


def failures(cells: Sequence[dict]) -> str:
    """Formats contenders that failed, with path and reason, as a list; empty without failures."""
    found = [(heading(cell["path"], cells), name, why) for cell in cells for name, why in cell["left_out"].items()]
    return "\n".join(f"- † {path}, {name}: {(why.splitlines() or [''])[0][:200]}" for path, name, why in found)
