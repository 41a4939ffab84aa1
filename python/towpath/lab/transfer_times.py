"""The times that earlier runs took for a number of bytes: the profile of a path, for predictions of copies.

    >>> from towpath.lab.transfer_times import TransferTimes
    >>> times = TransferTimes.of_runs(Runs.read("far.parquet"))  # doctest: +SKIP
    >>> times.seconds(0.1, 10_000_000_000)  # doctest: +SKIP
    87.3

A mean throughput is that of one volume, as slow start counts less the longer a run is. A run with intervals has the time of each volume: up
to its own bytes as they arrived, beyond them at the rate of its second half, at most the capacity. Other runs have one rate.

Between two measured round trips the time is a straight line. That is exact where the rate is constant and where windows limit it, as the
time of a volume is then proportional to the round trip.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from towpath.lab.checks import FloatArray, number
from towpath.lab.runs import MAX_RTT_S, Configuration, Runs

SAME_RTT = 0.05
"""Relative difference up to which two round trips are those of one path, as a minimum of some seconds varies."""

SAME_RTT_S = 0.0005
"""The same in seconds, for short paths."""

MAX_MISSING = 0.1
"""Part of a run by which its intervals may begin late, and part of its bytes by which they may exceed those that arrived."""

_LEAST_BYTES_PER_S = 1.0
"""Rate of a run that stood still: its time is long, but finite."""


@dataclass(frozen=True)
class ByteCurve:
    """The bytes of a run over time."""

    times_s: FloatArray
    """Times in seconds, increasing from 0."""
    received: FloatArray
    """Bytes that had arrived at each time, from 0."""
    settled_bytes_per_s: float
    """Rate of the second half."""

    @classmethod
    def of_points(cls, times_s: FloatArray, received: FloatArray, capacity_bits_per_s: float | None = None) -> ByteCurve:
        """Creates a curve. Its settled rate is at most the capacity: what waits for a lost packet is delivered at once, later."""
        half_s = times_s[-1] / 2
        settled = float((received[-1] - np.interp(half_s, times_s, received)) / half_s)
        return cls(times_s, received, settled if capacity_bits_per_s is None else min(settled, capacity_bits_per_s / 8))

    @classmethod
    def of_rate(cls, bits_per_s: float) -> ByteCurve:
        """Creates the curve of a constant rate."""
        return cls.of_points(np.array([0.0, 1.0]), np.array([0.0, bits_per_s / 8]))

    @classmethod
    def of_intervals(cls, intervals: pd.DataFrame, bits_per_s: float, capacity_bits_per_s: float | None = None) -> ByteCurve:
        """Creates the curve of a run with a mean throughput and intervals (`Runs.intervals`).

        It is that of the constant rate if there are none, if the beginning is missing, as with `iperf3 --omit`, and if the intervals
        have more bytes than arrived: those of a sender count what it has written to its buffer.
        """
        of_streams = intervals[intervals.stream >= 0] if (intervals.stream >= 0).any() else intervals
        end_s = float(of_streams.end_s.max()) if len(of_streams) else 0.0
        is_whole = end_s > 0 and of_streams.start_s.min() <= MAX_MISSING * end_s
        if not is_whole or of_streams["bytes"].sum() > (1 + MAX_MISSING) * bits_per_s / 8 * end_s:
            return cls.of_rate(bits_per_s)
        times_s = np.unique(np.concatenate([np.zeros(1), of_streams.start_s, of_streams.end_s]))
        received = np.zeros(len(times_s))
        for _, of_stream in of_streams.groupby("stream"):
            ends_s = np.concatenate([of_stream.start_s.iloc[:1], of_stream.end_s])
            received += np.interp(times_s, ends_s, np.concatenate([[0], of_stream["bytes"].cumsum()]))
        return cls.of_points(times_s, received, capacity_bits_per_s)

    def seconds(self, size: float) -> float:
        """Returns the time of `size` bytes."""
        if size > self.received[-1]:
            return float(self.times_s[-1] + (size - self.received[-1]) / max(self.settled_bytes_per_s, _LEAST_BYTES_PER_S))
        # The earliest time at which these bytes had arrived.
        after = max(int(np.searchsorted(self.received, size)), 1)
        step = self.received[after] - self.received[after - 1]
        share = (size - self.received[after - 1]) / step if step > 0 else 0.0
        return float(self.times_s[after - 1] + share * (self.times_s[after] - self.times_s[after - 1]))


@dataclass(frozen=True)
class TransferTimes:
    """The runs of one configuration, by round trip."""

    configuration: Configuration
    rtt_s: FloatArray
    """Round trips in seconds, increasing. Those of one path (`SAME_RTT`) are one, their median."""
    curves: tuple[tuple[ByteCurve, ...], ...]
    """The runs at each round trip."""
    excluded: int
    """Runs that are left out because the machine limited them, not the path."""
    run_bytes: float | None
    """Median of the bytes of the runs; None if unknown."""

    @classmethod
    def of_runs(cls, runs: Runs, *, with_limited: bool = False) -> TransferTimes:
        """Creates the times of runs of one configuration. Runs with `limited_by` are left out and counted, unless `with_limited`.

        Raises `ValueError` for runs of several configurations or sites, and if none is left.
        """
        keys, frame = [key for key, _ in runs.configurations()], runs.frame()
        if len(keys) != 1:
            raise ValueError(f"profile: {len(keys)} configurations, expected one: {', '.join(map(str, keys[:2]))}")
        if len(sites := sorted(frame.site.dropna().unique())) > 1:
            raise ValueError(f"profile: runs of {len(sites)} sites, expected one: {', '.join(sites)}")
        used = frame[frame.limited_by.isna() | with_limited].sort_values("rtt_s")
        if used.empty:
            raise ValueError(f"profile: none of {len(frame)} runs is left; all were limited by the machine")
        groups: list[tuple[list[float], list[ByteCurve]]] = []
        for run_id, rtt_s, rate in zip(used.run_id, used.rtt_s, used.throughput_bits_per_s, strict=True):
            if not groups or not _is_same(groups[-1][0][0], rtt_s):
                groups.append(([], []))
            groups[-1][0].append(rtt_s)
            groups[-1][1].append(ByteCurve.of_intervals(runs.intervals(run_id), rate, keys[0].capacity_bits_per_s))
        medians, run_bytes = np.array([np.median(rtts_s) for rtts_s, _ in groups]), used["bytes"].median()
        curves = tuple(tuple(of_rtt) for _, of_rtt in groups)
        return cls(keys[0], medians, curves, len(frame) - len(used), None if np.isnan(run_bytes) else float(run_bytes))

    @property
    def count(self) -> int:
        """Number of runs."""
        return sum(len(of_rtt) for of_rtt in self.curves)

    def seconds(self, rtt_s: float, size: float) -> float:
        """Returns the time of `size` bytes at a round trip in seconds: the median of its runs, or a straight line between the two
        nearest. Raises `ValueError` beyond the measured round trips."""
        rtt_s = number(rtt_s, "rtt_s", 0, MAX_RTT_S)
        medians = [float(np.median(times_s)) for times_s in self._times(size)]
        if (at := self._measured(rtt_s)) is not None:
            return medians[at]
        if not self.rtt_s[0] <= rtt_s <= self.rtt_s[-1]:
            low_ms, high_ms = 1e3 * self.rtt_s[0], 1e3 * self.rtt_s[-1]
            raise ValueError(f"profile: the path has {1e3 * rtt_s:.4g} ms, the runs are from {low_ms:.4g} to {high_ms:.4g} ms")
        return float(np.interp(rtt_s, self.rtt_s, medians))

    def ratios(self, rtt_s: float, size: float, least: int) -> FloatArray:
        """Returns the ratios of the times of runs to their predictions by others, increasing.

        At a measured round trip, a run is predicted by the median of the others at its own round trip. Between two of them it is
        predicted by the straight line between its neighbours, which needs three round trips: so the error of the line is in the ratio,
        for steps twice as long. The runs are those of the nearest round trips, of as many as have `least` ratios, or of all.
        """
        times, found = self._times(size), np.zeros(0)
        of_rtt = self._to_others if self._measured(rtt_s) is not None else self._to_the_line
        distances = np.abs(np.log((self.rtt_s + SAME_RTT_S) / (rtt_s + SAME_RTT_S)))
        for at in np.argsort(distances):
            if len(found) >= least:
                break
            found = np.concatenate([found, of_rtt(times, int(at))])
        return np.sort(found)

    @staticmethod
    def _to_others(times: list[FloatArray], at: int) -> FloatArray:
        if len(times[at]) < 2:
            return np.zeros(0)
        others = [np.median(np.delete(times[at], run)) for run in range(len(times[at]))]
        return np.asarray(times[at] / others, dtype=np.float64)

    def _to_the_line(self, times: list[FloatArray], at: int) -> FloatArray:
        if not 0 < at < len(times) - 1:
            return np.zeros(0)
        neighbours = [at - 1, at + 1]
        line_s = np.interp(self.rtt_s[at], self.rtt_s[neighbours], [np.median(times[neighbour]) for neighbour in neighbours])
        return np.asarray(times[at] / line_s, dtype=np.float64)

    def _times(self, size: float) -> list[FloatArray]:
        size = max(size, 1.0)  # a copy of no bytes has no ratios
        return [np.array([curve.seconds(size) for curve in of_rtt]) for of_rtt in self.curves]

    def _measured(self, rtt_s: float) -> int | None:
        """Returns the place of the measured round trip that is the same as `rtt_s`; None if there is none."""
        at = int(np.argmin(np.abs(self.rtt_s - rtt_s)))
        return at if _is_same(float(self.rtt_s[at]), rtt_s) else None


def _is_same(rtt_s: float, other_s: float) -> bool:
    """Returns whether two round trips are those of one path."""
    return abs(rtt_s - other_s) <= max(SAME_RTT * rtt_s, SAME_RTT_S)
