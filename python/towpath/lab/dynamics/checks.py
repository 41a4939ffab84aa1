"""Checks of the arguments of the package, and the types of its arrays.

A check returns the argument in one type, or raises `ValueError` with the name of the argument and the expected values.
"""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

MIN_SAMPLES = 10
"""Minimum number of samples of a trace: a run of 10 s in intervals of 1 s. Quarters of fewer samples say little."""

_MAX_VALUE = 1e50
"""Maximum magnitude of throughputs and capacities: squares of throughput / capacity remain finite."""


def check_array(values: npt.ArrayLike, name: str, dimensions: tuple[int, ...]) -> Array:
    """Returns an array of numbers; raises `ValueError` for other dimensions, too few numbers, and numbers out of range."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name}: {error}: expected sequences of equal length") from None
    if array.dtype.kind not in "biuf" or array.ndim not in dimensions:
        raise ValueError(f"{name}: {array.ndim} dimensions of {array.dtype}: expected numbers in {' or '.join(map(str, dimensions))}")
    if array.size == 0 or array.shape[-1] < MIN_SAMPLES:
        raise ValueError(f"{name}: {array.shape[-1] if array.size else 0} samples are too few: expected at least {MIN_SAMPLES}")
    numbers: Array = array.astype(np.float64)
    is_valid = np.abs(numbers) <= _MAX_VALUE
    if not is_valid.all():
        raise ValueError(f"{name}: {numbers[~is_valid][0]} is out of range: expected finite numbers within {_MAX_VALUE:g}")
    return numbers


def check_positive(number: float, name: str) -> float:
    """Returns a number above 0; raises `ValueError` if it is out of range."""
    value = float(number)
    if not 1 / _MAX_VALUE <= value <= _MAX_VALUE:
        raise ValueError(f"{name}: {value} is out of range: expected a number from {1 / _MAX_VALUE:g} to {_MAX_VALUE:g}")
    return value


def check_whole(number: int, name: str, least: int, most: int) -> int:
    """Returns a whole number; raises `ValueError` if it is out of range."""
    value = operator.index(number)
    if not least <= value <= most:
        raise ValueError(f"{name}: {value} is out of range: expected a whole number from {least} to {most}")
    return value
