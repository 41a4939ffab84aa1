"""The jobs over emulated paths. Each stands twice in `JOBS`: with CUBIC and with BBR as the hosts' default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import wan_resume
import wan_validation
from settings import Job, Settings
from wan_files import Tree, equal, log_uniform, mixed, talk_sizes
from wan_lab import NetworkPath
from wan_transfers import GIB, MIB, Scale, checksum_rows, large, tree_down, tree_up

CONGESTION = ("cubic", "bbr")
"""The kernel's own default, and the other one that long paths are driven with."""
SMALL_FILE_BYTES = 10_000
CLASSES = {"small": (0, 4_000_000), "medium": (4_000_000, 1_000_000_000), "large": (1_000_000_000, 1 << 62)}
"""The classes of the 100GE data set, by size."""
QUICK_SHRINK = 16
"""By how much smaller its files are in a quick run."""


def rtts(rtts_ms: Sequence[float], congestion: str, rate: str = "1Gbit", loss: float = 0.0) -> list[NetworkPath]:
    return [NetworkPath(rtt_ms, rate, loss, congestion) for rtt_ms in rtts_ms]


def scale(settings: Settings, quick: Scale, full: Scale) -> Scale:
    chosen = quick if settings.quick else full
    return dataclasses.replace(chosen, repetitions=settings.repetitions or chosen.repetitions)


def leaf(settings: Settings, congestion: str) -> dict:
    """LEAF's curve: from disk to disk."""
    size = settings.large_bytes or (256 * MIB if settings.quick else 2 * GIB)
    how = scale(settings, Scale(1, 20), Scale(3, 60))
    return large(settings, rtts((0, 10, 50, 100, 200, 350), congestion), settings.disk, size, how)


def leaf_minute(settings: Settings, congestion: str) -> dict:
    """The same with a file that takes more than a minute."""
    size = settings.large_bytes or (512 * MIB if settings.quick else 8 * GIB)
    how = scale(settings, Scale(1, 20), Scale(2, 120))
    return large(settings, rtts((100, 350), congestion), settings.disk, size, how)


def loss(settings: Settings, congestion: str) -> dict:
    """A slow path that loses much."""
    size = settings.large_bytes or (48 * MIB if settings.quick else 256 * MIB)
    how = scale(settings, Scale(1, 6), Scale(3, 40))
    return large(settings, rtts((0, 30, 60, 90), congestion, "100Mbit", 0.02), settings.memory, size, how)


def light(settings: Settings, congestion: str) -> dict:
    """A fast path that loses little: chance decides, so it is repeated."""
    size = settings.large_bytes or (256 * MIB if settings.quick else GIB)
    paths = [NetworkPath(100, "1Gbit", share, congestion) for share in (1e-5, 1e-4, 1e-3)]
    return large(settings, paths, settings.memory, size, scale(settings, Scale(2, 5), Scale(10, 25)))


def fast(settings: Settings, congestion: str) -> dict:
    size = settings.large_bytes or (GIB if settings.quick else 8 * GIB)
    how = scale(settings, Scale(1, 15), Scale(3, 80))
    return large(settings, rtts((0, 10, 50, 100, 200), congestion, "5Gbit"), settings.memory, size, how)


def tree_paths(settings: Settings, congestion: str) -> list[NetworkPath]:
    return rtts((1, 100) if settings.quick else (1, 50, 100), congestion)


def small_tree(settings: Settings) -> Tree:
    """The full number also in a quick run: it is what the job is about."""
    return equal(settings.files or 10_000, SMALL_FILE_BYTES)


def small_down(settings: Settings, congestion: str) -> dict:
    return tree_down(settings, tree_paths(settings, congestion), small_tree(settings), scale(settings, Scale(1, 15), Scale(3, 60)))


def small_up(settings: Settings, congestion: str) -> dict:
    return tree_up(settings, tree_paths(settings, congestion), small_tree(settings), scale(settings, Scale(1, 15), Scale(3, 60)))


def log_uniform_tree(settings: Settings) -> Tree:
    return log_uniform(settings.files or (500 if settings.quick else 2_000), 8_000, 4_000_000)


def mixed_down(settings: Settings, congestion: str) -> dict:
    return tree_down(settings, tree_paths(settings, congestion), log_uniform_tree(settings), scale(settings, Scale(1, 15), Scale(3, 60)))


def data_set(settings: Settings, congestion: str, of: str | None) -> dict:
    """A hundredth of the 100GE talk's files, or one class of them."""
    least, most = CLASSES[of] if of else (0, 1 << 62)
    sizes = [size for size in talk_sizes(424) if least <= size < most]
    tree = Tree(mixed([size // QUICK_SHRINK for size in sizes] if settings.quick else sizes))
    return tree_down(settings, rtts((50,), congestion), tree, scale(settings, Scale(1, 20), Scale(3, 300)))


def resume(settings: Settings, congestion: str) -> dict:
    """Killed on its way."""
    size = settings.large_bytes or (256 * MIB if settings.quick else 4 * GIB)
    how = scale(settings, Scale(1, 20), Scale(3, 150))
    return wan_resume.resume(settings, rtts((10, 100), congestion), size, how)


def checksum(settings: Settings, congestion: str) -> dict:
    """What it costs to compare digests of the whole file, from disk to disk."""
    size = settings.large_bytes or (256 * MIB if settings.quick else 4 * GIB)
    how = scale(settings, Scale(2, 20), Scale(5, 150))
    return large(settings, rtts((10,), congestion), settings.disk, size, how, checksum_rows)


TRANSFERS: dict[str, tuple[Callable[[Settings, str], dict], float]] = {
    "leaf": (leaf, 65),
    "leaf-minute": (leaf_minute, 50),
    "loss": (loss, 55),
    "light": (light, 75),
    "small-down": (small_down, 45),
    "small-up": (small_up, 20),
    "mixed-down": (mixed_down, 30),
    "100ge": (lambda settings, congestion: data_set(settings, congestion, None), 15),
    **{
        f"100ge-{of}": (lambda settings, congestion, of=of: data_set(settings, congestion, of), minutes)
        for of, minutes in {"large": 6, "medium": 5, "small": 3}.items()
    },
    "fast": (fast, 55),
    "resume": (resume, 60),
    "checksum": (checksum, 20),
}
"""With the minutes that each takes at full size."""


def bound(run: Callable[[Settings, str], dict], congestion: str) -> Callable[[Settings], dict]:
    return lambda settings: run(settings, congestion)


JOBS = wan_validation.JOBS | {
    f"{name}-{congestion}": Job(bound(run, congestion), minutes) for name, (run, minutes) in TRANSFERS.items() for congestion in CONGESTION
}
