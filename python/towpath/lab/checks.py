"""Checks of arguments, and the type of arrays.

A check returns the argument in one type, or raises `ValueError` with the name of the argument, the wrong value, and the expectation.
"""

from __future__ import annotations

import reprlib

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

_LEAST, _MOST = 1e-18, 1e18
"""Range of the arguments. No formula of the models overflows or divides by zero within it."""

MAX_POINTS = 1_000_000
"""Maximum number of round trips: each needs about 100 bytes."""


def numbers(values: npt.ArrayLike, name: str, least: float = _LEAST, most: float = _MOST) -> FloatArray:
    """Returns a number or a sequence as a new array. Raises `ValueError` with name, place and value of a number out of range."""
    expected = f"expected numbers from {least:g} to {most:g}"
    try:
        array = np.asarray(values)
        converted = np.array(array, np.float64, ndmin=1)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: {reprlib.repr(values)}: {expected}") from None
    if array.dtype.kind not in "iufO" or array.ndim > 1 or not 0 < array.size <= MAX_POINTS:
        raise ValueError(f"{name}: {reprlib.repr(values)}: {expected}, at least 1 and at most {MAX_POINTS}, in one dimension")
    wrong = ~((converted >= least) & (converted <= most))
    if wrong.any():
        place = f"{name}[{np.argmax(wrong)}]" if array.ndim else name
        raise ValueError(f"{place}: {converted[np.argmax(wrong)]:g} is out of range: {expected}")
    return converted


def number(value: float, name: str, least: float = _LEAST, most: float = _MOST) -> float:
    """Returns a number from `least` to `most`. Raises `ValueError` with the name and the value otherwise."""
    if np.ndim(value):
        raise ValueError(f"{name}: {reprlib.repr(value)}: expected one number")
    return float(numbers(value, name, least, most)[0])


def whole(value: int, name: str, least: int, most: int) -> int:
    """Returns a whole number from `least` to `most`. Raises `ValueError` with the name and the value otherwise."""
    if not number(value, name, least, most).is_integer():
        raise ValueError(f"{name}: {value!r}: expected a whole number from {least} to {most}")
    return int(value)


def matched(values: npt.ArrayLike, name: str, count: int, least: float = _LEAST, most: float = _MOST) -> FloatArray:
    """Returns a number for each of `count` round trips, from one number or as many. Raises `ValueError` otherwise."""
    array = numbers(values, name, least, most)
    if array.size not in (1, count):
        raise ValueError(f"{name}: {array.size} numbers: expected one number, or one for each of the {count} round trips")
    return np.broadcast_to(array, count)
