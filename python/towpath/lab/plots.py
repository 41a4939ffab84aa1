"""Figures of results. They compute nothing: each value is that of a result.

    >>> from towpath.lab.plots import plot_profiles, svg
    >>> figure = plot_profiles(results)  # doctest: +SKIP

Functions return a `matplotlib.figure.Figure`, and draw without a display.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from towpath.lab.analysis import Analysis, Unavailable
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
    axes.set_ylim(bottom=0)
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
    if not isinstance(result.transition, Unavailable) and result.transition.shape == "dual":
        low_s, high_s = result.transition.bracket_s or (0.0, 0.0)
        axes.axvspan(low_s * 1e3, high_s * 1e3, color=colour, alpha=0.07, linewidth=0)


def plot_coefficients(results: Sequence[Analysis]) -> Figure:
    """Draws the utilization-concavity coefficients that have intervals, the best first."""
    bars = [
        (result.intervals["utilization_concavity"], str(result.configuration))
        for result in results
        if not isinstance(result.intervals, Unavailable)
    ]
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


def svg(figure: Figure) -> str:
    """Returns a figure as the element of an HTML page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def _figure(height: float = 4.5) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, height), layout="constrained")
    return figure, figure.add_subplot()
