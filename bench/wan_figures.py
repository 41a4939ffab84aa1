"""How the samples of a cell become a figure with its marks."""

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
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def is_cut(samples: list[dict]) -> bool:
    return any(sample["cut"] for sample in samples)


def is_disturbed(sample: dict, path: dict) -> bool:
    """Whether the machine had a part in the sample."""
    emulation = sample["emulation"]
    return emulation["machine_lost"] > 0 or emulation["late_us"] > max(100, 20 * path["rtt_ms"])


def marks(cell: dict, name: str) -> str:
    """`*` cut off, `!` disturbed by the machine, `†` failed later."""
    samples = cell["runs"][name]
    disturbed = any(is_disturbed(sample, cell["path"]) for sample in samples)
    return ("*" if is_cut(samples) else "") + ("!" if disturbed else "") + ("†" if name in cell["left_out"] else "")


def figure(cell: dict, name: str, value: Callable[[dict], float]) -> str:
    """The median with its marks, and from where to where it goes; – if there is no sample."""
    if name not in cell["runs"]:
        return "–"
    median, least, most = median_and_spread([value(sample) for sample in cell["runs"][name]])
    spread = f" ({digits(least)}–{digits(most)})" if len(cell["runs"][name]) > 1 else ""
    return f"{digits(median)}{marks(cell, name)}{spread}"


def heading(path: dict, cells: Sequence[dict]) -> str:
    """What tells a path from the others of its table."""
    parts = {"rtt_ms": f"{path['rtt_ms']:g} ms", "loss": f"loss {path['loss']:g}"}
    telling = [text for key, text in parts.items() if len({cell["path"][key] for cell in cells}) > 1]
    return ", ".join(telling) or parts["rtt_ms"]


def failures(cells: Sequence[dict]) -> str:
    """Who failed where, and why, as a list; empty if nobody did."""
    found = [(heading(cell["path"], cells), name, why) for cell in cells for name, why in cell["left_out"].items()]
    return "\n".join(f"- † {path}, {name}: {(why.splitlines() or [''])[0][:200]}" for path, name, why in found)
