"""Models of throughput against the round trip: slow start, loss, and windows.

    >>> from towpath.lab import models
    >>> profile = models.ramp([0.0118, 0.183], capacity_bits_per_s=10e9, duration_s=10, buffer_bytes=125e6)
    >>> [round(rate / 1e9, 1) for rate in profile.throughput_bits_per_s.tolist()], profile.transition_s
    ([9.9, 4.3], 0.1)

- `ramp`: slow start, then a constant rate. `slide_literal`: its form as printed in the talk (N. Rao, "Some Science Aspects of Wide-Area
  Data Transport", 2018), for comparison only.
- `mathis`, `padhye`, `cubic`: mean rate of one connection with losses.
- `window_limit`: a constant window (buffer, credits). `estimate_window` is its inverse.
- `fit_sigmoids`: a smooth curve for figures.

Each function takes one round trip or a sequence, and its arrays are in that order. Arguments are from 1e-18 to 1e18 in their units;
others, NaN and empty sequences raise `ValueError`. Noise is no part of the models.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares
from scipy.special import lambertw

from towpath.lab.checks import MAX_POINTS, FloatArray, matched, number, numbers, whole

__all__ = ["Cubic", "Ramp", "SigmoidPair", "SlideLiteral", "WindowEstimate"]
__all__ += ["cubic", "estimate_window", "fit_sigmoids", "mathis", "padhye", "ramp", "slide_literal", "window_limit"]

SEGMENT_BYTES = 1460
"""Payload of a TCP segment over Ethernet, in bytes: 1,500 less 20 for IP and 20 for TCP."""

INITIAL_WINDOW_BYTES = 10 * SEGMENT_BYTES
"""Initial window of a connection, in bytes (RFC 6928, section 2)."""

MAX_WINDOW_VARIATION = 0.10
"""Maximum coefficient of variation of throughput · round trip for which the product counts as constant."""

_MAX_FIT_POINTS, _STARTS = 20, 8
"""Maximum number of round trips of `fit_sigmoids`, and number of random starts of the search for each transition."""

_MIN_POINTS = 3
"""Minimum number of points of a branch and of an estimate. Two points fit a branch exactly, and always have little variation."""

_MAX_LOG = 8.0
"""Maximum magnitude of the logarithms in a fit, relative to the range of round trips: steeper branches are steps, flatter ones lines."""


@dataclass(frozen=True, eq=False)
class Ramp:
    """Slow start and the constant rate after it, for each round trip."""

    rtt_s: FloatArray
    """Round trips, in seconds."""
    rounds: FloatArray
    """Round trips from the initial to the full window: log2(full / initial). A fraction is the part of a round."""
    ramp_s: FloatArray
    """Time to the full window, in seconds: `rtt_s` · `rounds`. It may be longer than the run."""
    ramp_bytes: FloatArray
    """Bytes of the ramp that are sent within the run."""
    sustained_bits_per_s: FloatArray
    """Rate after the ramp: full window / round trip."""
    throughput_bits_per_s: FloatArray
    """Mean rate of the run."""
    is_buffer_limited: npt.NDArray[np.bool_]
    """True if the buffers hold less than capacity · round trip."""
    is_cut: npt.NDArray[np.bool_]
    """True if the run ends before the full window."""
    transition_s: float | None
    """Buffers / capacity, in seconds: the profile is concave below it (and below `cut_s`), convex beyond it. None without a limit."""
    cut_s: float
    """Round trip beyond which the run ends in the ramp, in seconds; the profile is convex beyond it. Infinite without a ramp."""


@dataclass(frozen=True, eq=False)
class SlideLiteral:
    """The ramp as printed in the talk, in the units of the arguments."""

    rounds: FloatArray
    """τ^ε · log2 C; the ramp takes τ times as long."""
    ramp_data: FloatArray
    """2^(1 + τ^ε) · C, as printed. This is not 2^(1 + `rounds`)."""
    corrected_ramp_data: FloatArray
    """2^(1 + `rounds`) = 2 · C^(τ^ε)."""
    throughput: FloatArray
    """(`ramp_data` + C · (T - τ · `rounds`)) / T; negative if the ramp is much longer than the run."""
    slope: FloatArray
    """-(1 + ε) · τ^ε · C · log2 C / T, as printed. It omits the derivative of `ramp_data`, which is zero only if ε = 0."""


@dataclass(frozen=True, eq=False)
class Cubic:
    """Mean window and rate of a CUBIC connection, for each round trip."""

    window_segments: FloatArray
    """Mean congestion window, in segments."""
    throughput_bits_per_s: FloatArray
    """Mean rate: window / round trip."""
    is_reno_friendly: npt.NDArray[np.bool_]
    """True if the window is that of Reno, as it is the larger one."""


@dataclass(frozen=True, eq=False)
class WindowEstimate:
    """The window that explains the convex region of a profile."""

    window_bytes: float
    """Median of throughput · round trip, in bytes."""
    variation: float
    """Coefficient of variation of these products: standard deviation (n - 1) / mean."""
    is_constant: bool
    """True if `variation` is less than `MAX_WINDOW_VARIATION`: the signature of a limit of buffers or credits."""
    rtt_s: FloatArray
    """The round trips of the convex region, in seconds."""


@dataclass(frozen=True)
class SigmoidPair:
    """A curve through a profile, for drawing only."""

    transition_s: float
    """Round trip at which the branches meet, in seconds: one of the given ones. It is not an estimate of the transition."""
    scale: float
    """Factor c of both branches, relative to the capacity."""
    left_rate_per_s: float
    """Steepness a₁ of the concave branch, per second. Without meaning if the branches meet at the first round trip."""
    left_center_s: float
    """Center t₁ of the concave branch, in seconds, at or beyond the transition."""
    right_rate_per_s: float
    """Steepness a₂ of the convex branch, per second. Without meaning if the branches meet at the last round trip."""
    right_center_s: float
    """Center t₂ of the convex branch, in seconds, at or before the transition; it may be negative."""
    parameters: int
    """Number of fitted parameters: 5, or 6 with the scale."""
    sum_of_squares: float
    """Sum of the squared differences, relative to the capacity."""
    capacity_bits_per_s: float
    """The capacity that normalised the profile."""
    range_s: tuple[float, float]
    """Shortest and longest fitted round trip, in seconds."""
    purpose: str = "for drawing only: neither the parameters nor the transition are identified"
    """Note for captions and reports."""

    def throughput_bits_per_s(self, rtt_s: npt.ArrayLike) -> FloatArray:
        """Returns the curve at these round trips. Raises `ValueError` outside of the fitted range, as it does not predict."""
        return self.capacity_bits_per_s * self._levels(numbers(rtt_s, "rtt_s", *self.range_s))

    def _levels(self, rtts: FloatArray) -> FloatArray:
        """Returns the curve relative to the capacity. Logarithms of g cannot overflow, as the exponents of g could."""
        left = np.logaddexp(0, self.left_rate_per_s * (np.minimum(rtts, self.transition_s) - self.left_center_s))
        ends = np.append(np.maximum(rtts, self.transition_s), self.transition_s)
        right = np.logaddexp(0, self.right_rate_per_s * (ends - self.right_center_s))
        return np.asarray(self.scale * np.exp(right[-1] - left - right[:-1]))


def ramp(
    rtt_s: npt.ArrayLike,
    *,
    capacity_bits_per_s: float,
    duration_s: float,
    buffer_bytes: float | None = None,
    initial_window_bytes: float = INITIAL_WINDOW_BYTES,
    streams: int = 1,
) -> Ramp:
    """Returns the exact model of slow start: the window doubles in each round trip, up to capacity · round trip or the buffers.

    - `duration_s`: length of the run, with the ramp.
    - `buffer_bytes`, `initial_window_bytes`: of each connection. Default: no limit of the buffers, and 10 segments.
    - `streams`: connections, with equal parts of the capacity. They start together with `streams` times the initial window.

    The bytes up to the time t of the ramp are W₀ · (2^(t/τ) - 1), also with fractions of rounds, and if the run ends in the ramp. Whole
    rounds with a constant rate in each differ by up to 0.0861 windows. Losses, and the queue that slow start fills, are left out.
    """
    rtts = numbers(rtt_s, "rtt_s")
    capacity, duration = number(capacity_bits_per_s, "capacity_bits_per_s"), number(duration_s, "duration_s")
    count = whole(streams, "streams", 1, MAX_POINTS)
    buffer = np.inf if buffer_bytes is None else 8 * count * number(buffer_bytes, "buffer_bytes")
    initial = 8 * count * number(initial_window_bytes, "initial_window_bytes")
    full = np.minimum(capacity * rtts, buffer)
    start = np.minimum(initial, full)
    rounds = np.log2(full / start)
    ramp_s = rtts * rounds
    # A run that ends in the ramp has fewer rounds, and no time after them.
    ramp_bits = start * (np.exp2(np.minimum(rounds, duration / rtts)) - 1)
    throughput = (ramp_bits + full / rtts * np.maximum(duration - ramp_s, 0.0)) / duration
    transition, cut = None if buffer_bytes is None else buffer / capacity, _cut_s(capacity, duration, buffer, initial)
    is_limited = buffer < capacity * rtts
    return Ramp(rtts, rounds, ramp_s, ramp_bits / 8, full / rtts, throughput, is_limited, ramp_s > duration, transition, cut)


def _cut_s(capacity: float, duration: float, buffer: float, initial: float) -> float:
    """Returns the round trip with a ramp as long as the run: the longer one of those with τ · log2(Cτ/W₀) = T and τ · log2(B/W₀) = T."""
    if buffer <= initial:
        return float("inf")
    natural = duration * np.log(2)
    of_capacity = natural / float(lambertw(natural * capacity / initial).real)
    return float(max(of_capacity, natural / np.log(buffer / initial)))


def slide_literal(rtt: npt.ArrayLike, *, capacity: float, duration: float, epsilon: float) -> SlideLiteral:
    """Returns the model of the ramp as printed in the talk. **It is wrong; `ramp` is the model to use.**

    The printed data of the ramp contradict the printed rounds, and the printed slope omits the derivative of these data.

    - `rtt`, `duration`, `capacity`: in any units, with a capacity of at least 1; τ^ε depends on the unit of time.
    - `epsilon`: exponent ε, from 0 to 10.
    """
    rtts, rate, time = numbers(rtt, "rtt"), number(capacity, "capacity", 1.0), number(duration, "duration")
    exponent, logarithm = number(epsilon, "epsilon", 0.0, 10.0), float(np.log2(rate))
    # With at most 60 · 15 rounds, their data are a finite number.
    power = numbers(rtts**exponent, "rtt ** epsilon", 0.0, 15.0)
    ramp_data = np.exp2(1 + power) * rate
    throughput = (ramp_data + rate * (time - rtts * power * logarithm)) / time
    slope = -(1 + exponent) * power * rate * logarithm / time
    return SlideLiteral(power * logarithm, ramp_data, np.exp2(1 + power * logarithm), throughput, slope)


def mathis(
    rtt_s: npt.ArrayLike, loss: npt.ArrayLike, *, acks: Literal["each", "delayed"] = "delayed", segment_bytes: float = SEGMENT_BYTES
) -> FloatArray:
    """Returns the rate of a Reno connection with few losses, in bits per second: k · segment / (τ · √p).

    Mathis, Semke, Mahdavi and Ott, "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997. k is √(3/2) if the
    receiver acknowledges each segment, and √(3/4) if every other one (`delayed`).

    - `loss`: p, up to 1; one number, or one for each round trip. Without timeouts, the model is too high for more than about 1 %.
    """
    if acks not in ("each", "delayed"):
        raise ValueError(f"acks: {acks!r}: expected 'each' or 'delayed'")
    rtts, segment = numbers(rtt_s, "rtt_s"), number(segment_bytes, "segment_bytes")
    factor = 1.5 if acks == "each" else 0.75
    return np.asarray(8 * segment / rtts * np.sqrt(factor / matched(loss, "loss", rtts.size, most=1.0)))


def padhye(
    rtt_s: npt.ArrayLike,
    loss: npt.ArrayLike,
    *,
    timeout_s: npt.ArrayLike,
    segments_per_ack: float = 2,
    buffer_bytes: float | None = None,
    segment_bytes: float = SEGMENT_BYTES,
) -> FloatArray:
    """Returns the rate of a Reno connection with losses and timeouts, in bits per second.

    Padhye, Firoiu, Towsley and Kurose, "Modeling TCP Throughput: A Simple Model and its Empirical Validation", 1998 (PFTK):
    segments per second are min(Wmax/τ, 1 / (τ·√(2bp/3) + T₀ · min(1, 3·√(3bp/8)) · p · (1 + 32p²))).

    - `loss`, `timeout_s`: p, up to 1, and the first retransmission timeout T₀; each one number, or one for each round trip.
    - `segments_per_ack`: b, 2 with delayed acknowledgements.
    - `buffer_bytes`: largest window, Wmax segments. Default: no limit.
    """
    rtts = numbers(rtt_s, "rtt_s")
    p, timeouts = matched(loss, "loss", rtts.size, most=1.0), matched(timeout_s, "timeout_s", rtts.size)
    b, segment = number(segments_per_ack, "segments_per_ack", 1, 1000), number(segment_bytes, "segment_bytes")
    timeout_term = timeouts * np.minimum(1.0, 3 * np.sqrt(3 * b * p / 8)) * p * (1 + 32 * p**2)
    rate = 8 * segment / (rtts * np.sqrt(2 * b * p / 3) + timeout_term)
    limit = np.inf if buffer_bytes is None else 8 * number(buffer_bytes, "buffer_bytes") / rtts
    return np.asarray(np.minimum(rate, limit))


def cubic(
    rtt_s: npt.ArrayLike, loss: npt.ArrayLike, *, scaling: float = 0.4, beta: float = 0.7, segment_bytes: float = SEGMENT_BYTES
) -> Cubic:
    """Returns the mean window and rate of a CUBIC connection with one loss in each 1/p segments.

    RFC 9438, section 5: the window is (C · (3 + β) / (4 · (1 - β)) · (τ/p)³)^(1/4) segments; section 4.3: at least that of Reno, √(3/(2p)).
    The tables of section 5.1 have the rounded factor 1.2 for √(3/2). Rate ~ τ^(-1/4) is convex; in Reno's region, rate ~ 1/τ.

    - `loss`: p, up to 1; one number, or one for each round trip.
    - `scaling`, `beta`: C, in segments per second³, and the factor of decrease β, below 1.
    """
    rtts = numbers(rtt_s, "rtt_s")
    p = matched(loss, "loss", rtts.size, most=1.0)
    growth, decrease = number(scaling, "scaling"), number(beta, "beta", 0.01, 0.99)
    window = (growth * (3 + decrease) / (4 * (1 - decrease))) ** 0.25 * (rtts / p) ** 0.75
    largest = np.maximum(window, np.sqrt(1.5 / p))
    return Cubic(largest, largest * 8 * number(segment_bytes, "segment_bytes") / rtts, largest > window)


def window_limit(rtt_s: npt.ArrayLike, *, capacity_bits_per_s: float, window_bytes: float) -> FloatArray:
    """Returns the rate with at most `window_bytes` in flight, in bits per second: min(capacity, window / round trip).

    `window_bytes` is the sum of all connections: buffers, credits, or blocks of files. The knee is at the round trip window / capacity;
    the convex region beyond it is the limited one, and the region before it is near the capacity.
    """
    rates = 8 * number(window_bytes, "window_bytes") / numbers(rtt_s, "rtt_s")
    return np.minimum(number(capacity_bits_per_s, "capacity_bits_per_s"), rates)


def estimate_window(rtt_s: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike, *, convex_from_s: float) -> WindowEstimate:
    """Estimates the window from the convex region of a profile: the median of throughput · round trip.

    - `throughput_bits_per_s`: mean of each round trip, in the order of `rtt_s`.
    - `convex_from_s`: start of the convex region, such as the upper end of the bracket of the transition; at least 3 points follow.

    A constant product is no proof of a buffer: credits and a constant rate of losses (`mathis`) have it too. The ramp of short runs lowers
    the product at long round trips.
    """
    rtts = numbers(rtt_s, "rtt_s")
    rates = matched(throughput_bits_per_s, "throughput_bits_per_s", rtts.size)
    region = rtts >= number(convex_from_s, "convex_from_s")
    if region.sum() < _MIN_POINTS:
        raise ValueError(f"convex_from_s: {convex_from_s:g} leaves {region.sum()} round trips: expected at least {_MIN_POINTS}")
    products = (rtts * rates / 8)[region]
    variation = float(products.std(ddof=1) / products.mean())
    return WindowEstimate(float(np.median(products)), variation, variation < MAX_WINDOW_VARIATION, rtts[region])


def fit_sigmoids(
    rtt_s: npt.ArrayLike, throughput_bits_per_s: npt.ArrayLike, *, capacity_bits_per_s: float, has_scale: bool = True, seed: int = 0
) -> SigmoidPair:
    """Fits a concave and a convex sigmoid branch to a profile, **for drawing only**.

    The curve is c · g₁(τ) up to τ_T, and c · g₁(τ_T) · g₂(τ) / g₂(τ_T) from there; g(τ) = 1 / (1 + exp(a · (τ - t))), t₂ ≤ τ_T ≤ t₁. Each
    branch has at least 3 points, τ_T included, or τ_T is the first or last round trip (convex or concave throughout). The pair of the
    talk has neither c nor the second scale; so it jumps, unless the transition is at half of the capacity.

    - `throughput_bits_per_s`: mean of each round trip, in the order of `rtt_s`, which increases. From 5 to 20 points.
    - `has_scale`: fits c, as sixth parameter; otherwise c = 1.
    - `seed`: of the starts of the search.
    """
    rtts, capacity = numbers(rtt_s, "rtt_s"), number(capacity_bits_per_s, "capacity_bits_per_s")
    if not 2 * _MIN_POINTS - 1 <= rtts.size <= _MAX_FIT_POINTS or not (np.diff(rtts) > 0).all():
        raise ValueError(f"rtt_s: {reprlib.repr(rtts.tolist())}: expected from 5 to {_MAX_FIT_POINTS} numbers that increase")
    levels = matched(throughput_bits_per_s, "throughput_bits_per_s", rtts.size, 0.0) / capacity
    random, last = np.random.default_rng(seed), rtts.size - 1
    curves = [
        _fit_from(start, rtts, levels, float(rtts[index]), capacity)
        for index in (0, *range(_MIN_POINTS - 1, last - _MIN_POINTS + 2), last)
        for start in random.uniform(-3, 3, (_STARTS, 5 if has_scale else 4))
    ]
    return min(curves, key=lambda curve: curve.sum_of_squares)


def _fit_from(start: FloatArray, rtts: FloatArray, levels: FloatArray, transition: float, capacity: float) -> SigmoidPair:
    """Returns the least squares from one start. The search has the logarithms of a₁, t₁ - τ_T, a₂, τ_T - t₂ and perhaps c, relative to the
    range of round trips, so that each point of it is a valid curve."""
    first, last = float(rtts[0]), float(rtts[-1])
    span = last - first

    def curve(logarithms: FloatArray, squares: float = 0.0) -> SigmoidPair:
        a1, above, a2, below, scale = [*np.exp(logarithms).tolist(), 1.0][:5]
        left, right = (a1 / span, transition + above * span), (a2 / span, transition - below * span)
        return SigmoidPair(transition, scale, *left, *right, start.size + 1, squares, capacity, (first, last))

    def differences(logarithms: FloatArray) -> FloatArray:
        return curve(logarithms)._levels(rtts) - levels

    found = least_squares(differences, start, bounds=(-_MAX_LOG, _MAX_LOG), max_nfev=200)
    return curve(found.x, 2 * float(found.cost))
