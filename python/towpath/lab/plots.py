"""Figures of results. They compute nothing: each value is that of a result.

    >>> from towpath.lab.plots import plot_profiles, svg
    >>> figure = plot_profiles(results)  # doctest: +SKIP

Functions return a `matplotlib.figure.Figure`, and draw without a display.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from towpath.lab.analysis import Analysis, Unavailable, is_comparable
from towpath.lab.dynamics import Phases, PoincareMap, SurrogateTest
from towpath.lab.profiles import Profile

MAX_PER_FIGURE = 9
"""Maximum number of profiles of a figure; more colours are not distinguished."""


def plot_profiles(results: Sequence[Analysis]) -> Figure:
    """Draws the profiles with their runs, bands, and the brackets of their transitions; at most nine in one figure."""
    drawn = [result for result in results if isinstance(result.profile, Profile)]
    if not 1 <= len(drawn) <= MAX_PER_FIGURE:
        raise ValueError(f"results: {len(drawn)} with a profile, expected 1 to {MAX_PER_FIGURE}")
    figure, axes = _figure()
    for number, result in enumerate(drawn):
        _draw_profile(axes, result, f"C{number}")
    axes.set_xlabel("round trip / ms")
    axes.set_ylabel("throughput / (Mbit/s)")
    # Bands of few runs exceed all of them.
    highest = max(float(sample.max()) for result in drawn for sample in result.profile.samples)  # type: ignore[union-attr]
    capacities = {result.configuration.capacity_bits_per_s for result in drawn} - {None}
    for capacity in capacities:
        axes.axhline((capacity or 0) / 1e6, color="0.6", linewidth=0.8, linestyle="--")
    axes.set_ylim(0, 1.1 * max(highest, *(capacity or 0 for capacity in capacities), 1) / 1e6)
    axes.legend(fontsize="small")
    return figure


def _draw_profile(axes: Axes, result: Analysis, colour: str) -> None:
    profile = result.profile
    assert isinstance(profile, Profile)
    rtts_ms = profile.rtt_s * 1e3
    axes.plot(rtts_ms, profile.means / 1e6, "-", color=colour, label=profile.label)
    for rtt_ms, sample in zip(rtts_ms, profile.samples, strict=True):
        axes.plot([rtt_ms] * len(sample), sample / 1e6, ".", color=colour, markersize=3)
    if not isinstance(result.band, Unavailable):
        axes.fill_between(rtts_ms, result.band.lower / 1e6, result.band.upper / 1e6, color=colour, alpha=0.15, linewidth=0)
    if not isinstance(result.transition, Unavailable) and result.transition.shape == "dual" and result.transition.bracket_s:
        low_s, high_s = result.transition.bracket_s
        axes.axvspan(low_s * 1e3, high_s * 1e3, color=colour, alpha=0.07, linewidth=0)


def plot_coefficients(results: Sequence[Analysis]) -> Figure:
    """Draws the utilization-concavity coefficients that have intervals, the best first. If they do not compare, since they are for other
    round trips or another normaliser, each name has the number of round trips."""
    drawn = [result for result in results if not isinstance(result.intervals, Unavailable)]
    has_count = not is_comparable(drawn)
    bars = [(result.intervals["utilization_concavity"], _bar_label(result, has_count)) for result in drawn]  # type: ignore[index]
    if not bars:
        raise ValueError("results: none has coefficients with intervals")
    bars.sort(key=lambda bar: bar[0].value)
    figure, axes = _figure(height=1.2 + 0.3 * len(bars))
    values = [bar.value for bar, _ in bars]
    errors = [[bar.value - bar.lower for bar, _ in bars], [bar.upper - bar.value for bar, _ in bars]]
    axes.barh([label for _, label in bars], values, xerr=errors, color="C0", height=0.6, capsize=3)
    axes.set_xlim(0, 1)
    axes.set_xlabel("utilization-concavity coefficient")
    return figure


def _bar_label(result: Analysis, has_count: bool) -> str:
    if has_count and isinstance(result.profile, Profile):
        return f"{result.configuration} ({len(result.profile.rtt_s)} round trips)"
    return str(result.configuration)


def plot_map(poincare: PoincareMap, test: SurrogateTest | None = None) -> Figure:
    """Draws a Poincaré map, and beside it the exponent among those of its surrogates."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes, beside = figure.subplots(1, 2) if test and test.series else (figure.add_subplot(), None)
    axes.plot(poincare.x, poincare.y, ".", markersize=3)
    low, high = float(min(poincare.x.min(), poincare.y.min())), float(max(poincare.x.max(), poincare.y.max()))
    axes.plot([low, high], [low, high], color="0.6", linewidth=0.8)
    quantity = "throughput" if poincare.capacity == 1 else "throughput / capacity"
    axes.set_xlabel(f"{quantity} of an interval ({poincare.kind}, {poincare.interval_s:g} s)")
    axes.set_ylabel("of the next one")
    axes.set_aspect("equal")
    if test and test.series and beside is not None:
        beside.hist(test.series.surrogates_per_step, bins=15, color="0.7", label="surrogates")
        beside.axvline(test.exponent.per_step, color="C1", label=test.verdict)
        beside.set_xlabel(f"exponent per step ({test.exponent.method})")
        beside.legend(fontsize="small")
    return figure


def plot_trace(rates_bits_per_s: npt.ArrayLike, phases: Phases) -> Figure:
    """Draws a trace, with the end of its ramp."""
    rates = np.asarray(rates_bits_per_s, dtype=np.float64)
    figure, axes = _figure(height=3)
    axes.step(np.arange(len(rates)) * phases.interval_s, rates / 1e6, where="post", linewidth=0.9)
    if phases.ramp_s is not None:
        axes.axvspan(0, phases.ramp_s, color="C1", alpha=0.12, linewidth=0)
    axes.axhline(phases.level / 1e6, color="0.6", linewidth=0.8, linestyle="--")
    axes.set_title(phases.outcome, fontsize="small")
    axes.set_xlabel("time / s")
    axes.set_ylabel("throughput / (Mbit/s)")
    axes.set_ylim(bottom=0)
    return figure


def plot_heat_map(profiles: dict[int, Profile]) -> Figure:
    """Draws the mean throughput by number of streams and round trip, for profiles with the same round trips."""
    streams = sorted(profiles)
    rtts_s = profiles[streams[0]].rtt_s if streams else np.array([])
    if not streams or any(not np.array_equal(profile.rtt_s, rtts_s) for profile in profiles.values()):
        raise ValueError("profiles: expected one or more, with the same round trips")
    means = [profiles[count].means for count in streams]
    return plot_grid(means, "streams", streams, "round trip / ms", [f"{rtt * 1e3:g}" for rtt in rtts_s])


def plot_grid(bits_per_s: npt.ArrayLike, row_label: str, rows: Sequence[object], column_label: str, columns: Sequence[object]) -> Figure:
    """Draws throughputs as colours, with their numbers. `bits_per_s` has a row for each of `rows`, the first one at the bottom."""
    values = np.asarray(bits_per_s, dtype=np.float64) / 1e6
    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"bits_per_s: shape {values.shape}, expected ({len(rows)}, {len(columns)})")
    figure, axes = _figure(height=1.5 + 0.4 * len(rows))
    image = axes.imshow(values, aspect="auto", origin="lower", cmap="viridis", vmin=0)
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.0f}", ha="center", va="center", color="w" if value < values.max() / 2 else "k", fontsize="small")
    axes.set_xticks(range(len(columns)), [str(column) for column in columns])
    axes.set_yticks(range(len(rows)), [str(row) for row in rows])
    axes.set_xlabel(column_label)
    axes.set_ylabel(row_label)
    figure.colorbar(image, label="throughput / (Mbit/s)")
    return figure


def plot_relation(
    points: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    x_label: str,
    y_label: str,
    *,
    curves: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]] | None = None,
) -> Figure:
    """Draws groups of points (x, y), with a name each, and curves such as those of models beside them."""
    if not points:
        raise ValueError("points: expected one group or more")
    figure, axes = _figure()
    for label, (x, y) in points.items():
        axes.plot(x, y, "o", markersize=3, alpha=0.7, label=label)
    for label, (x, y) in (curves or {}).items():
        axes.plot(x, y, "-", linewidth=1, label=label)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(fontsize="small")
    return figure


def svg(figure: Figure) -> str:
    """Returns a figure as the element of an HTML page, or of a file. The same figure gives the same text."""
    text = io.StringIO()
    # Identifiers are random without a salt; text as paths is many times larger.
    with matplotlib.rc_context({"svg.hashsalt": "towpath", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _figure(height: float = 4.5) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, height), layout="constrained")
    return figure, figure.add_subplot()
