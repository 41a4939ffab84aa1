"""Statistics of a trace of one flow: its variation, its autocorrelation, and the entropy of its order.

The functions return numbers without a unit. Traces have at least 10 samples.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from towpath.lab.dynamics.checks import Array, check_array, check_whole


def coefficient_of_variation(rates: npt.ArrayLike) -> float:
    """Returns the standard deviation of a trace of one flow, divided by its mean. The mean must be above 0."""
    trace = check_array(rates, "rates", (1,))
    if trace.mean() <= 0:
        raise ValueError(f"rates: the mean {trace.mean()} is not above 0: expected throughputs")
    return float(trace.std(ddof=1) / trace.mean())


def lag1_autocorrelation(rates: npt.ArrayLike) -> float:
    """Returns the correlation of a trace of one flow with itself, one sample later: from -1 to 1, near 0 for white noise."""
    trace = check_array(rates, "rates", (1,))
    if np.ptp(trace) == 0:
        raise ValueError(f"rates: all samples are {trace[0]}: expected different ones")
    return float(autoregression(trace[None])[0, 0])


def permutation_entropy(rates: npt.ArrayLike, *, order: int = 3) -> float:
    """Returns the entropy of the rank orders of consecutive samples of one flow (Bandt and Pompe, Physical Review Letters 88, 174102,
    2002), divided by its maximum: from 0 for a monotonic trace to 1 for noise. Equal samples count as rising.

    - `rates`: at least `order! + order - 1` samples, and at least 10.
    - `order`: number of consecutive samples, from 2 to 7.
    """
    trace, order = check_array(rates, "rates", (1,)), check_whole(order, "order", 2, 7)
    patterns = np.argsort(sliding_window_view(trace, order), axis=1, kind="stable") if len(trace) >= order else np.empty((0, order))
    if len(patterns) < math.factorial(order):
        raise ValueError(f"rates: {len(trace)} samples are too few: expected at least {math.factorial(order) + order - 1}")
    shares = np.unique(patterns, axis=0, return_counts=True)[1] / len(patterns)
    return max(0.0, float(-(shares * np.log(shares)).sum() / math.log(math.factorial(order))))


def autoregression(series: Array) -> Array:
    """Returns the lag-1 autocorrelation of each row, as a column; 0 for constant rows."""
    deviations: Array = series - series.mean(axis=1, keepdims=True)
    products = (deviations[:, 1:] * deviations[:, :-1]).sum(axis=1, keepdims=True)
    squares = (deviations**2).sum(axis=1, keepdims=True)
    correlations: Array = products / np.maximum(squares, np.finfo(np.float64).tiny)
    return correlations
