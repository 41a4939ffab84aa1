"""Source data for transfers over emulated paths: one file, or a tree of files of given sizes. Also counts the bytes
that have arrived when a client is cut off."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib

from settings import write_pattern

FILES_PER_DIRECTORY = 500
TALK_FILES, TALK_LEAST, TALK_MOST, TALK_MEAN = 42_432, 8_000, 8_000_000_000, 300e9 / 42_432
"""The data set of the 100GE talk: 300 GB in 42,432 files of 8 kB to 8 GB. Sizes in bytes."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """A tree of files of these sizes in bytes."""

    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return sum(self.sizes)

    def names(self) -> list[str]:
        return [f"d{number // FILES_PER_DIRECTORY:03}/f{number:05}" for number in range(len(self.sizes))]

    def make(self, root: pathlib.Path) -> None:
        """Creates the files, each with different content."""
        for number, (name, size) in enumerate(zip(self.names(), self.sizes, strict=True)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            write_pattern(root / name, size, number << 40)

    def arrived(self, root: pathlib.Path) -> int:
        """Returns the total size of those files below `root` that are complete."""
        total = 0
        for name, size in zip(self.names(), self.sizes, strict=True):
            path = root / name
            if path.exists() and path.stat().st_size == size:
                total += size
        return total


def equal(files: int, size: int) -> Tree:
    return Tree((size,) * files)


def log_uniform(files: int, least: int, most: int) -> Tree:
    """Returns sizes at equal steps of their logarithm, in a mixed order."""
    sizes = [round(least * (most / least) ** ((number + 0.5) / files)) for number in range(files)]
    return Tree(mixed(sizes))


def mixed(sizes: list[int]) -> tuple[int, ...]:
    """Returns a fixed permutation: steps of the golden ratio, increased until coprime to the length."""
    step = round(len(sizes) * 0.618)
    while math.gcd(step, len(sizes)) != 1:
        step += 1
    return tuple(sizes[number * step % len(sizes)] for number in range(len(sizes)))


def talk_sizes(files: int) -> list[int]:
    """Returns sizes with the range and mean of the talk, which gives no more detail.

    They follow a Pareto distribution between the bounds. Each file represents an equal part of the distribution and has
    the mean size of that part, so the mean of the files equals that of the talk for any number of files.
    """
    low, high = 0.05, 0.95
    while high - low > 1e-6:
        exponent = (low + high) / 2
        if truncated_mean(exponent) > TALK_MEAN:
            low = exponent
        else:
            high = exponent
    share = 1 - (TALK_LEAST / TALK_MOST) ** low
    edges = [(1 - share * number / files) ** (1 - 1 / low) for number in range(files + 1)]
    scale = TALK_LEAST * files / share / (1 / low - 1)
    return [round(scale * (above - below)) for below, above in itertools.pairwise(edges)]


def truncated_mean(exponent: float) -> float:
    """Returns the mean of a Pareto distribution between the talk's bounds."""
    ratio = (TALK_LEAST / TALK_MOST) ** exponent
    return exponent / (1 - exponent) * TALK_LEAST**exponent * (TALK_MOST ** (1 - exponent) - TALK_LEAST ** (1 - exponent)) / (1 - ratio)
