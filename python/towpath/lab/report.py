"""One HTML page of a table of runs: figures, tables, method and caveats, without other files or scripts."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from towpath.lab.analysis import COEFFICIENTS, Analysis, Unavailable, coefficient_text, is_comparable, shape_text
from towpath.lab.dynamics import PoincareMap, rosenstein_exponent, surrogate_test
from towpath.lab.plots import MAX_PER_FIGURE, plot_coefficients, plot_heat_map, plot_map, plot_profiles, svg
from towpath.lab.profiles import Profile
from towpath.lab.runs import Configuration, Runs
from towpath.lab.traces import SAMPLES, run_map, trace_frame

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums } svg { max-width: 100%; height: auto }
figure { margin: 1rem 0 } figcaption { color: #555; font-size: .9rem }
.caveat { border-left: 4px solid #c60; padding-left: .8rem }
"""

_METHOD = """
<p>The throughput of a run is 8 × bytes / duration. A profile is the mean of the runs of one configuration at each round trip. Bands are
simultaneous t intervals of these means, with a coverage of 95 %, narrowed because profiles decrease. The shape is that of the least-squares
fit whose slopes decrease up to one segment and increase after it: <em>dual</em> profiles are concave at short and convex at long round
trips, and the transition is within the bracket, or in the segment before it if the profile has a kink there. A profile is
<em>indeterminate</em> if a straight line fits as well.</p>
<p>Coefficients: under-utilization C<sub>UU</sub> = 1 − mean of throughput / capacity over the round trips, concavity
C<sub>CC</sub> = that mean − the middle of the chord, and C<sub>UC</sub> = ((1 − C<sub>UU</sub>) + (1/2 + C<sub>CC</sub>)) / 2; their
intervals are from resampled runs. They only compare for the same round trips and normaliser. (N. Rao, "Some Science Aspects of
Wide-Area Data Transport", 2018.)</p>
<p>The ramp of a run ends where its rate reaches 90 % of the median of its last half. The variation is standard deviation / mean of the rate
after the ramp, in intervals at least as long as all round trips. The exponent is the mean of ln |dY / dX| over the map of consecutive
rates; noise has a large one too, so a run has structure only if its exponent is below those of 39 surrogates with the same values and
spectrum. A Poincaré map has a point for each two consecutive intervals.</p>
"""


def page(runs: Runs, results: Sequence[Analysis], title: str, *, missing: int = 0) -> str:
    """Returns the page of a table of runs and its analysis. `missing` is the number of runs that a campaign lacks."""
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{len(runs):,} runs of {len(results):,} configurations.</p>",
        *_caveats(runs, results, missing),
        "<h2>Profiles</h2>",
        *_profile_figures(results),
        *_heat_maps(results),
        _profile_table(results),
        "<h2>Coefficients</h2>",
        *_coefficient_figure(results),
        _coefficient_table(results),
        *_dynamics(runs),
        f"<h2>Method</h2>{_METHOD}",
        "<h2>Machine</h2>",
        _machine(runs),
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(sections)}</body></html>\n'


def _reasons(result: Analysis) -> Iterable[tuple[str, str]]:
    """Yields the missing results with their reasons. Those of a profile are all that follow from it."""
    if isinstance(result.profile, Unavailable):
        yield "profile", result.profile.reason
    elif isinstance(result.band, Unavailable):
        yield "band", result.band.reason


def _caveats(runs: Runs, results: Sequence[Analysis], missing: int) -> list[str]:
    limited = runs.frame().limited_by.dropna().value_counts()
    caveats = [f"{missing} runs of the plan are missing; they may be slow ones"] if missing else []
    caveats += [f"{count} runs were limited by {html.escape(str(limit))}, not by the path" for limit, count in limited.items()]
    excluded = sum(result.profile.excluded for result in results if not isinstance(result.profile, Unavailable))
    if len(limited):
        caveats.append(f"{excluded} of them are left out of the profiles")
    unreliable = [result for result in results if not isinstance(result.band, Unavailable) and not result.band.is_reliable]
    if unreliable:
        caveats.append(f"the bands of {len(unreliable)} configurations have less than 10 runs at a round trip, and may cover less")
    if not is_comparable(results):
        caveats.append("the coefficients of configurations with other round trips or another normaliser do not compare")
    for result in results:
        caveats += [f"{html.escape(str(result.configuration))}: no {part}: {html.escape(reason)}" for part, reason in _reasons(result)]
    return [f'<ul class="caveat">{"".join(f"<li>{caveat}</li>" for caveat in caveats)}</ul>'] if caveats else []


def _profile_figures(results: Sequence[Analysis]) -> Iterable[str]:
    drawn = [result for result in results if not isinstance(result.profile, Unavailable)]
    for first in range(0, len(drawn), MAX_PER_FIGURE):
        yield svg(plot_profiles(drawn[first : first + MAX_PER_FIGURE]))


def _heat_maps(results: Sequence[Analysis]) -> Iterable[str]:
    """Draws the means by streams and round trip, for configurations that differ in their number of streams and nothing else."""
    groups: dict[tuple[Configuration, tuple[float, ...]], dict[int, Profile]] = {}
    for result in results:
        key, profile = result.configuration, result.profile
        if key.streams is not None and isinstance(profile, Profile):
            groups.setdefault((replace(key, streams=None), tuple(profile.rtt_s)), {})[key.streams] = profile
    for (shared, _), profiles in groups.items():
        if len(profiles) > 1:
            yield _figure(svg(plot_heat_map(profiles)), str(shared))


def _figure(drawing: str, caption: str) -> str:
    return f"<figure>{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>"


def _coefficient_figure(results: Sequence[Analysis]) -> Iterable[str]:
    if any(not isinstance(result.intervals, Unavailable) for result in results):
        yield svg(plot_coefficients(results))


def _profile_table(results: Sequence[Analysis]) -> str:
    rows = []
    for result in results:
        transition, profile = result.transition, result.profile
        if isinstance(profile, Unavailable):
            continue
        shape = transition.reason if isinstance(transition, Unavailable) else shape_text(transition)
        means = " ".join(f"{mean / 1e6:.0f}" for mean in profile.means)
        rtts = " ".join(f"{rtt * 1e3:g}" for rtt in profile.rtt_s)
        rows.append([str(result.configuration), profile.counts.sum(), profile.excluded, rtts, means, shape])
    return _table(["configuration", "runs", "left out", "round trips / ms", "means / (Mbit/s)", "shape"], rows)


def _coefficient_table(results: Sequence[Analysis]) -> str:
    rows = [
        [str(result.configuration), *(coefficient_text(result, name) for name in COEFFICIENTS.values())]
        for result in results
        if not isinstance(result.profile, Unavailable)
    ]
    return _table(["configuration", *COEFFICIENTS], rows)


def _dynamics(runs: Runs) -> list[str]:
    """Returns the section on traces, limited runs included; nothing if no run has one."""
    traces = trace_frame(runs)
    if (traces.outcome == "no trace").all():
        return []
    rows, figures = [], []
    for key, of_key in runs.configurations():
        joined = of_key.frame().set_index("run_id").join(traces)
        figures += _map_figure(key, of_key, joined)
        for rtt_s, group in joined.groupby("rtt_s"):
            medians = [_median(group[column], factor) for column, factor in _MEASURES.values()]
            counts = [_counts(group[column]) for column in ("outcome", "verdict")]
            rows.append([str(key), f"{rtt_s * 1e3:g}", counts[0], *medians, counts[1]])  # type: ignore[operator]
    header = ["configuration", "round trip / ms", "runs", *_MEASURES, "verdicts"]
    text = (
        "<p>Medians of the runs whose ramp ended, those that the machine limited included. A variation needs 5 intervals after the ramp, "
        f"an exponent and its verdict {SAMPLES} samples.</p>"
    )
    return ["<h2>Dynamics</h2>", text, _table(header, rows), *figures]


_MEASURES = {
    "ramp / s": ("ramp_s", 1.0),
    "variation / %": ("variation", 100.0),
    "exponent": ("exponent", 1.0),
    "exponent of surrogates": ("surrogate_mean", 1.0),
    "lag-1 autocorrelation": ("autocorrelation", 1.0),
    "permutation entropy": ("entropy", 1.0),
}
"""Columns of `trace_frame` in the table of traces, and their factors."""


def _map_figure(key: Configuration, runs: Runs, traces: pd.DataFrame) -> list[str]:
    """Draws the map of the run with the median exponent of a configuration, and its exponent among those of surrogates."""
    known = traces.dropna(subset=["exponent"]).sort_values("exponent", kind="stable")
    if known.empty:
        return []
    run = known.iloc[len(known) // 2]
    poincare = run_map(runs, str(run.name), run.interval_s, capacity_bits_per_s=key.capacity_bits_per_s or 1.0)
    caption = f"{key}, {run.rtt_s * 1e3:g} ms: the run with the median exponent of {len(known)}; {_rosenstein(poincare)}"
    return [_figure(svg(plot_map(poincare, surrogate_test(poincare))), caption)]


def _rosenstein(poincare: PoincareMap) -> str:
    try:
        return f"by the estimator of Rosenstein et al. {rosenstein_exponent(poincare).per_step:.2f} per step (noise: about 0)"
    except ValueError as error:
        return f"no exponent by the estimator of Rosenstein et al.: {error}"


def _counts(values: pd.Series[Any]) -> str:
    return ", ".join(f"{count} {value}" for value, count in values.dropna().value_counts().items())


def _median(values: pd.Series[Any], factor: float) -> str:
    known = values.dropna()
    return "" if known.empty else f"{factor * known.median():.3g}"


def _machine(runs: Runs) -> str:
    """Returns each state of the machine with its number of runs, and the range of what changed from run to run."""
    texts = [text for text in runs.table.column("machine").to_pylist() if text]
    if not texts:
        return "<p>The table does not have the state of the machine.</p>"
    states = [json.loads(text) for text in texts]
    fixed = Counter(json.dumps({key: state[key] for key in _FIXED if key in state}, indent=2) for state in states)
    changing = pd.DataFrame([{key: value for key, value in state.items() if key not in _FIXED} for state in states])
    numbers = changing.apply(pd.to_numeric, errors="coerce").dropna(axis=1, how="all")
    rows = [[name, *(f"{value:.4g}" for value in (column.min(), column.median(), column.max()))] for name, column in numbers.items()]
    blocks = "".join(f"<p>{number} runs:</p><pre>{html.escape(state)}</pre>" for state, number in fixed.most_common())
    return _table(["of each run", "minimum", "median", "maximum"], rows) + blocks


_FIXED = ("kernel", "processor", "processors", "sysctls")
"""What the state of the machine has for all runs alike."""


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    return f"<td>{html.escape(value)}</td>" if isinstance(value, str) else f'<td class="number">{value}</td>'
