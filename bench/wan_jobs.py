"""The jobs over emulated paths. `JOBS` has each of them twice: with CUBIC and with BBR as the hosts' default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import wan_resume
import wan_validation
from settings import GIB, MIB, Job, Settings
from wan_cells import Scale
from wan_files import Tree, equal, log_uniform, mixed, talk_sizes
from wan_lab import NetworkPath
from wan_transfers import CHECKSUM_PAIRS, checksum_rows, fast_rows, few_rows, large, mixed_rows, tree_down, tree_up

CONGESTION = ("cubic", "bbr")
"""The kernel's default, and the common alternative for long paths."""
SMALL_FILE_BYTES = 10_000


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the 100GE data set, represented by `files` files: those of `least` (inclusive) to `most` (exclusive)
    bytes, each reduced by the factor `shrink`."""

    files: int = 424
    least: int = 0
    most: int = 1 << 62
    shrink: int = 1


PARTS = {
    "100ge": Part(),
    "100ge-small": Part(most=4_000_000),
    "100ge-medium": Part(least=4_000_000, most=1_000_000_000),
    # A hundredth of the data set has one such file. The seven of a tenth have 19 GB, twice the available memory.
    "100ge-large": Part(files=4_243, least=1_000_000_000, shrink=5),
}
QUICK_SHRINK = 16
"""Factor by which a quick run reduces the files."""


def rtts(rtts_ms: Sequence[float], congestion: str, rate: str = "1Gbit", loss: float = 0.0) -> list[NetworkPath]:
    return [NetworkPath(rtt_ms, rate, loss, congestion) for rtt_ms in rtts_ms]


def scale(settings: Settings, quick: Scale, full: Scale) -> Scale:
    chosen = quick if settings.quick else full
    return dataclasses.replace(chosen, repetitions=settings.repetitions or chosen.repetitions)


def leaf(settings: Settings, congestion: str) -> dict:
    """LEAF's curve, from disk to disk."""
    size = settings.large_bytes or (256 * MIB if settings.quick else 2 * GIB)
    how = scale(settings, Scale(1, 20), Scale(3, 60))
    return large(settings, rtts((0, 10, 50, 100, 200, 350), congestion), settings.disk, size, how)


def leaf_minute(settings: Settings, congestion: str) -> dict:
    """The same with a file that takes a minute, and fewer contenders."""
    size = settings.large_bytes or (512 * MIB if settings.quick else 7 * GIB)
    how = scale(settings, Scale(1, 20), Scale(2, 100))
    return large(settings, rtts((0, 10, 50, 100, 350), congestion), settings.disk, size, how, few_rows)


def loss(settings: Settings, congestion: str) -> dict:
    """A slow path with high loss."""
    size = settings.large_bytes or (48 * MIB if settings.quick else 256 * MIB)
    how = scale(settings, Scale(1, 6), Scale(3, 40))
    return large(settings, rtts((0, 30, 60, 90), congestion, "100Mbit", 0.02), settings.memory, size, how)


def light(settings: Settings, congestion: str) -> dict:
    """A fast path with low loss. Results vary with chance, so it has more repetitions."""
    size = settings.large_bytes or (256 * MIB if settings.quick else GIB)
    paths = [NetworkPath(100, "1Gbit", share, congestion) for share in (1e-5, 1e-4, 1e-3)]
    return large(settings, paths, settings.memory, size, scale(settings, Scale(2, 5), Scale(10, 25)))


def fast(settings: Settings, congestion: str) -> dict:
    size = settings.large_bytes or (GIB if settings.quick else 8 * GIB)
    how = scale(settings, Scale(1, 15), Scale(3, 80))
    return large(settings, rtts((0, 10, 50, 100, 200), congestion, "5Gbit"), settings.memory, size, how, fast_rows)


def tree_paths(settings: Settings, congestion: str) -> list[NetworkPath]:
    return rtts((1, 100) if settings.quick else (1, 50, 100), congestion)


def small_tree(settings: Settings) -> Tree:
    """Returns the full number of files also in a quick run, because the job measures the cost per file."""
    return equal(settings.files or 10_000, SMALL_FILE_BYTES)


def small_down(settings: Settings, congestion: str) -> dict:
    return tree_down(settings, tree_paths(settings, congestion), small_tree(settings), scale(settings, Scale(1, 15), Scale(3, 60)))


def small_up(settings: Settings, congestion: str) -> dict:
    return tree_up(settings, tree_paths(settings, congestion), small_tree(settings), scale(settings, Scale(1, 15), Scale(3, 60)))


def log_uniform_tree(settings: Settings) -> Tree:
    return log_uniform(settings.files or (500 if settings.quick else 2_000), 8_000, 4_000_000)


def mixed_down(settings: Settings, congestion: str) -> dict:
    how = scale(settings, Scale(1, 15), Scale(3, 60))
    return tree_down(settings, tree_paths(settings, congestion), log_uniform_tree(settings), how, mixed_rows)


def data_set(settings: Settings, congestion: str, part: Part) -> dict:
    """Transfers a part of the 100GE talk's files."""
    shrink = part.shrink * (QUICK_SHRINK if settings.quick else 1)
    tree = Tree(mixed([size // shrink for size in talk_sizes(part.files) if part.least <= size < part.most]))
    return tree_down(settings, rtts((50,), congestion), tree, scale(settings, Scale(1, 20), Scale(3, 300)))


def resume(settings: Settings, congestion: str) -> dict:
    """Kills and resumes a copy."""
    size = settings.large_bytes or (256 * MIB if settings.quick else 4 * GIB)
    how = scale(settings, Scale(1, 20), Scale(3, 150))
    return wan_resume.resume(settings, rtts((10, 100), congestion), size, how)


def checksum(settings: Settings, congestion: str) -> dict:
    """Measures the cost of comparing digests of the whole file, from disk to disk."""
    size = settings.large_bytes or (256 * MIB if settings.quick else 4 * GIB)
    how = scale(settings, Scale(2, 20), Scale(5, 150))
    return {"checksum_pairs": CHECKSUM_PAIRS, **large(settings, rtts((10,), congestion), settings.disk, size, how, checksum_rows)}


TRANSFERS: dict[str, tuple[Callable[[Settings, str], dict], float]] = {
    "leaf": (leaf, 75),
    "leaf-minute": (leaf_minute, 65),
    "loss": (loss, 60),
    "light": (light, 85),
    "small-down": (small_down, 45),
    "small-up": (small_up, 20),
    "mixed-down": (mixed_down, 35),
    **{
        name: (lambda settings, congestion, name=name: data_set(settings, congestion, PARTS[name]), minutes)
        for name, minutes in {"100ge": 20, "100ge-large": 25, "100ge-medium": 5, "100ge-small": 3}.items()
    },
    "fast": (fast, 65),
    "resume": (resume, 60),
    "checksum": (checksum, 25),
}
"""Function and duration in minutes at full size."""


def bound(run: Callable[[Settings, str], dict], congestion: str) -> Callable[[Settings], dict]:
    return lambda settings: run(settings, congestion)


JOBS = wan_validation.JOBS | {
    f"{name}-{congestion}": Job(bound(run, congestion), minutes) for name, (run, minutes) in TRANSFERS.items() for congestion in CONGESTION
}
