"""Composition of the stages of a file transfer, and limits by credits.

    >>> from towpath.lab import composition
    >>> stages = composition.compose({"source": 32e9, "network": 9e9, "destination": 32e9})
    >>> stages.minimum_bits_per_s.tolist(), stages.harmonic_bits_per_s.tolist(), stages.slowest
    ([9000000000.0], [5760000000.0], ('network',))
    >>> composition.judge(stages, 2e9, tolerance=0.05).verdicts
    ('impedance mismatch',)

- `compose` bounds the rate of a transfer by the rates of its stages: all at once (the minimum), or one after the other (harmonic).
- `judge` compares a measured rate with both.
- `flow_window_limit` and `credit_limit` are the rates of file transfers and of LNet with a limited number of blocks in flight.
- `ramp_crossings` finds the round trips at which such a limit takes over from slow start.

Stages are measured alone, at the same round trips, streams and block size as the transfer. Rates are in bits per second. The bounds
hold for mean rates of long transfers: start, end and metadata of files are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq, minimize_scalar

from towpath.lab.checks import FloatArray, matched, number, numbers, whole
from towpath.lab.models import INITIAL_WINDOW_BYTES, ramp, window_limit

__all__ = ["Composition", "CreditLimit", "Judgement", "Verdict"]
__all__ += ["compose", "credit_limit", "flow_window_limit", "judge", "ramp_crossings", "reach_s"]

Verdict: TypeAlias = Literal["overlapped", "partly overlapped", "serial", "impedance mismatch"]

LNET_BLOCK_BYTES = 1 << 20
"""Size of the largest LNet message, in bytes: one credit is one message."""

_MAX_STAGES = 10
"""Maximum number of stages: the rates of all are in memory, 80 MB for 1,000,000 round trips."""

_LEAST_RATE, _MOST_RATE = 1.0, 1e14
"""Range of the rates of stages, in bits per second: the harmonic bound of wider ones is the minimum, within the precision of numbers."""

_MAX_COUNT = 1_000_000_000
"""Maximum number of credits and flows."""


@dataclass(frozen=True, eq=False)
class Composition:
    """Bounds of the rate of a transfer, for each round trip."""

    stages: tuple[str, ...]
    """Names of the stages, in the given order."""
    minimum_bits_per_s: FloatArray
    """Upper bound: rate of the slowest stage, reached if all stages work at once."""
    harmonic_bits_per_s: FloatArray
    """Rate if each byte passes one stage after the other, with one buffer: 1 / Σ (1 / rate)."""
    slowest: tuple[str, ...]
    """Name of the slowest stage; the first one of equals."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """A measured rate relative to the bounds, for each round trip."""

    efficiency: FloatArray
    """Measured rate / minimum."""
    place: FloatArray
    """(measured - harmonic) / (minimum - harmonic): 1 if all stages overlap, 0 if none do, negative below the harmonic bound."""
    verdicts: tuple[Verdict, ...]
    """`overlapped`: the minimum, within the tolerance. `serial`: the harmonic bound. `partly overlapped`: between them. `impedance
    mismatch`: less than the harmonic bound, so that the stages disturb each other (threads, buffers, page cache, processors)."""
    is_distinct: npt.NDArray[np.bool_]
    """False if the tolerance covers the difference of the bounds, so that `overlapped` and `serial` mean the same."""
    is_contradiction: npt.NDArray[np.bool_]
    """True if the measured rate exceeds the minimum by more than the tolerance, so that the rate of a stage is too low."""


@dataclass(frozen=True, eq=False)
class CreditLimit:
    """Rate with a limited number of messages in flight, for each round trip."""

    throughput_bits_per_s: FloatArray
    """min(capacity, bytes in flight / round trip)."""
    in_flight_bytes: int
    """Largest number of bytes in flight: effective credits · block."""
    effective_credits: int
    """Smallest number of credits of all sides."""
    limiting_side: str
    """Name of the side with the fewest credits; the first one of equals."""
    knee_s: float
    """Longest round trip with the full capacity, in seconds."""


def compose(stages: Mapping[str, npt.ArrayLike]) -> Composition:
    """Returns the bounds of a transfer through several stages.

    - `stages`: rates by name, such as `source`, `network` and `destination`: one number, or one for each round trip. From 2 to 10 stages.
    """
    if not 2 <= len(stages) <= _MAX_STAGES:
        raise ValueError(f"stages: {len(stages)} of them: expected from 2 to {_MAX_STAGES}")
    given = {name: numbers(rates, f"stages[{name!r}]", _LEAST_RATE, _MOST_RATE) for name, rates in stages.items()}
    count = max(rates.size for rates in given.values())
    rates = np.array([matched(rates, f"stages[{name!r}]", count) for name, rates in given.items()])
    names = tuple(given)
    slowest = tuple(names[index] for index in rates.argmin(axis=0))
    return Composition(names, rates.min(axis=0), 1 / (1 / rates).sum(axis=0), slowest)


def judge(composition: Composition, measured_bits_per_s: npt.ArrayLike, *, tolerance: float) -> Judgement:
    """Compares the measured rate of a transfer with the bounds of its stages.

    - `measured_bits_per_s`: one number, or one for each round trip.
    - `tolerance`: relative error of the measured rate and of the bounds together, from 0 to 0.5, such as the half width of a confidence
      interval.
    """
    minimum, harmonic = composition.minimum_bits_per_s, composition.harmonic_bits_per_s
    measured = matched(measured_bits_per_s, "measured_bits_per_s", minimum.size)
    error = number(tolerance, "tolerance", 0.0, 0.5)
    # The first true condition counts: where the tolerances meet, more overlap would not help.
    conditions = [measured >= minimum * (1 - error), measured > harmonic * (1 + error), measured >= harmonic * (1 - error)]
    names: tuple[Verdict, ...] = ("overlapped", "partly overlapped", "serial", "impedance mismatch")
    chosen = np.select(conditions, [0, 1, 2], 3)
    return Judgement(
        efficiency=measured / minimum,
        place=(measured - harmonic) / (minimum - harmonic),
        verdicts=tuple(names[index] for index in chosen),
        is_distinct=harmonic * (1 + error) < minimum * (1 - error),
        is_contradiction=measured > minimum * (1 + error),
    )


def flow_window_limit(rtt_s: npt.ArrayLike, *, flows: int, block_bytes: float) -> FloatArray:
    """Returns the rate of flows with one block in flight each, in bits per second: flows · block / round trip. A stage for `compose`."""
    blocks = whole(flows, "flows", 1, _MAX_COUNT)
    return 8 * blocks * number(block_bytes, "block_bytes") / numbers(rtt_s, "rtt_s")


def credit_limit(
    rtt_s: npt.ArrayLike, *, credits: int | Mapping[str, int], capacity_bits_per_s: float, block_bytes: int = LNET_BLOCK_BYTES
) -> CreditLimit:
    """Returns the rate of LNet, or of another protocol with credits: min(capacity, credits · block / round trip).

    - `credits`: messages in flight to one peer (`peer_credits`; 8 by default in LNet), or those of each side of a router by name, such as
      `{"InfiniBand": 8, "router": 256, "Ethernet": 128}`. The smallest number counts.
    - `block_bytes`: bytes of one message, up to 1e12. Default: 1 MiB.
    """
    sides = credits if isinstance(credits, Mapping) else {"peer": credits}
    if not sides:
        raise ValueError("credits: no side: expected at least one")
    counts = {name: whole(count, f"credits[{name!r}]", 1, _MAX_COUNT) for name, count in sides.items()}
    side = min(counts, key=lambda name: counts[name])
    in_flight = counts[side] * whole(block_bytes, "block_bytes", 1, 10**12)
    capacity = number(capacity_bits_per_s, "capacity_bits_per_s")
    rates = window_limit(rtt_s, capacity_bits_per_s=capacity, window_bytes=in_flight)
    return CreditLimit(rates, in_flight, counts[side], side, 8 * in_flight / capacity)


def reach_s(limit: CreditLimit, timeout_s: float) -> float | None:
    """Returns the longest round trip at which all messages are acknowledged before a timeout, in seconds; None if there is none.

    By Little's law a message takes max(round trip, bytes in flight / capacity). So the reach is the timeout, unless the queue of the
    messages takes longer. In fibre, 1 ms of round trip is about 100 km of distance.
    """
    timeout = number(timeout_s, "timeout_s")
    return timeout if limit.knee_s <= timeout else None


def ramp_crossings(
    *,
    capacity_bits_per_s: float,
    duration_s: float,
    window_bytes: float,
    initial_window_bytes: float = INITIAL_WINDOW_BYTES,
    streams: int = 1,
) -> tuple[float, ...]:
    """Returns the round trips at which the profile of the ramp, without buffers, crosses window / round trip, in seconds: 0, 1 or 2.

    The composed profile is the minimum of both. At the first crossing it changes from concave to convex. That is later than the knee,
    window / capacity, as the ramp is below the capacity. At the second crossing the ramp, by then most of the run, is the lower one again.
    Without crossings it always is. Round trips longer than the run are left out.

    A window that also ends the ramp is another model: `models.ramp` with `buffer_bytes` has its transition at the knee.
    """
    window, duration = 8 * number(window_bytes, "window_bytes"), number(duration_s, "duration_s")
    arguments = {"capacity_bits_per_s": capacity_bits_per_s, "duration_s": duration, "initial_window_bytes": initial_window_bytes}

    def excess(logarithm: float) -> float:
        """Returns the mean window of the ramp, relative to the limit, less 1."""
        rtt = np.exp(logarithm)
        return float(ramp(rtt, streams=streams, **arguments).throughput_bits_per_s[0] * rtt / window) - 1

    shortest, longest = np.log(window / number(capacity_bits_per_s, "capacity_bits_per_s")), np.log(duration)
    if shortest >= longest:
        return ()
    # The mean window rises up to one maximum, and then falls. It is not above the limit at the knee.
    peak = float(minimize_scalar(lambda logarithm: -excess(logarithm), bounds=(shortest, longest), method="bounded").x)
    if excess(peak) <= 0:
        return ()
    # The initial window may be the larger one: then the first crossing is the knee.
    crossings = [brentq(excess, shortest, peak) if excess(shortest) < 0 else shortest]
    if excess(longest) < 0:
        crossings.append(brentq(excess, peak, longest))
    return tuple(np.exp(crossings).tolist())
