"""Draws simulated runs of the scheduler as SVG, one figure for each measure, to compare optimisers.

    towpath sched simulate SCENARIO --optimiser knee,fts --periods FILE
    python bench/sched_plots.py FILE... [--output DIRECTORY]

The figures of a file are named after it: FILE-utilisation.svg and so on. The same file gives the same figures. Requires
matplotlib: `bench/peers --plots` prints the directory of an environment with it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

COLOURS = ("#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#000000", "#999999")
"""Colours of optimisers in the order of the file: those of Okabe and Ito, which colour-blind people can distinguish."""
DASHES = ("-", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
"""Line styles of optimisers, for prints without colour."""
BUSIEST_LINKS = 4
MAX_POINTS = 200
"""Maximum number of points of a line, so that a figure has less than 200 kB. Each point is the mean of as many periods as
are needed."""
DEFAULT_END = 2.0
"""Multiple of the bound at which the axis of time ends, because the slowest optimiser can take 15 times the bound."""
HOUR_S = 3600
SETTINGS = {
    "svg.hashsalt": "towpath",  # the identifiers in the file are random without it
    "font.size": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.labelsize": "medium",
    "grid.color": "#e0e0e0",
    "lines.linewidth": 1.4,
    "legend.frameon": False,
}


@dataclasses.dataclass(frozen=True)
class Series:
    """The run of an optimiser: arrays with a row for each point, and a column for each pipe."""

    ends_h: numpy.ndarray
    received: numpy.ndarray
    """Bytes per second."""
    fair: numpy.ndarray
    """Weighted max-min share in bytes per second."""
    connections: numpy.ndarray
    completions_h: list[float | None]
    """For each request the time from its arrival to its completion."""

    def completed_h(self) -> list[float]:
        """Returns the times of the complete requests, in order."""
        return sorted(time_h for time_h in self.completions_h if time_h is not None)


@dataclasses.dataclass(frozen=True)
class Resource:
    """A link, or a rule with a limit, and its pipes."""

    name: str
    bytes_per_s: float
    pipes: list[int]


@dataclasses.dataclass(frozen=True)
class Run:
    """A file: the same scenario with several optimisers."""

    title: str
    description: dict
    """The object `run` in the first line."""
    series: dict[str, Series]

    def links(self) -> list[Resource]:
        """Returns the links with pipes."""
        pipes: dict[int, list[int]] = {}
        for index, pipe in enumerate(self.description["pipes"]):
            for link in pipe["links"]:
                pipes.setdefault(link, []).append(index)
        links = self.description["links"]
        return [Resource(links[link]["name"], links[link]["capacity_bytes_per_s"], pipes[link]) for link in sorted(pipes)]

    def busiest_links(self) -> list[Resource]:
        """Returns the links with the most bytes / capacity, at most one for each set of pipes."""
        received = sum(series.received.sum(axis=0) for series in self.series.values())
        ordered = sorted(self.links(), key=lambda link: -received[link.pipes].sum() / link.bytes_per_s)
        distinct: dict[tuple[int, ...], Resource] = {}
        for link in ordered:
            distinct.setdefault(tuple(link.pipes), link)
        return list(distinct.values())[:BUSIEST_LINKS]

    def rules(self) -> list[Resource]:
        """Returns the limits of projects."""
        pipes = self.description["pipes"]
        rules = [rule for rule in self.description["rules"] if rule["pipes"]]
        return [Resource(str(pipes[rule["pipes"][0]]["project"]), rule["limit_bytes_per_s"], rule["pipes"]) for rule in rules]

    def classes(self) -> dict[str, list[int]]:
        """Returns the pipes of each project and weight."""
        classes: dict[str, list[int]] = {}
        for index, pipe in enumerate(self.description["pipes"]):
            project = f"{pipe['project']}, " if pipe["project"] else ""
            activity = f", activity {pipe['activity_weight']:g}" if pipe["activity_weight"] != 1 else ""
            classes.setdefault(f"{project}weight {pipe['weight']:g}{activity}", []).append(index)
        return classes


def read(path: pathlib.Path, end: float = DEFAULT_END, title: str | None = None) -> Run:
    """Reads a file of `towpath sched simulate --periods`. Periods after `end`, a multiple of the bound, are left out."""
    with path.open() as lines:
        records = map(json.loads, lines)
        description = next(records, {}).get("run")
        if description is None:
            raise ValueError("the first line does not describe a run: write the file again with this version of `towpath sched simulate`")
        series = dict(read_series(records, description["period_s"], end * description["bound_s"]))
    if not series:
        raise ValueError("no optimiser has a record of its requests: the simulation was interrupted")
    return Run(title or path.stem, description, series)


def read_series(records: Iterator[dict], period_s: float, end_s: float) -> Iterator[tuple[str, Series]]:
    """Yields the series of each optimiser. Its periods end with a record of its requests."""
    ends_s, periods = [], []
    for record in records:
        if "end_s" in record:
            if not 0 < record["end_s"] <= end_s:
                continue
            ends_s.append(record["end_s"])
            periods.append(numpy.array([(pipe["received_bytes"], pipe["fair_bytes_per_s"], pipe["connections"]) for pipe in record["pipes"]]))
            continue
        if not ends_s:
            raise ValueError(f"{record['optimiser']} has no period until the end of the axis of time")
        ends, means = downsampled(numpy.array(ends_s)), downsampled(numpy.array(periods))
        times_s = [request["completion_s"] for request in record["requests"]]
        completions_h = [None if time_s is None else time_s / HOUR_S for time_s in times_s]
        yield record["optimiser"], Series(ends / HOUR_S, means[..., 0] / period_s, means[..., 1], means[..., 2], completions_h)
        ends_s, periods = [], []


def downsampled(values: numpy.ndarray) -> numpy.ndarray:
    """Returns the means of equally many successive rows, at most `MAX_POINTS`."""
    starts = numpy.arange(0, len(values), -(-len(values) // MAX_POINTS) or 1)
    counts = numpy.diff(starts, append=len(values)).reshape(-1, *[1] * (values.ndim - 1))
    return numpy.add.reduceat(values, starts) / counts


def panels(run: Run, titles: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Returns a figure with one panel above the other, which share the axis of time."""
    figure = Figure(figsize=(8, max(3.5, 1 + 1.5 * len(titles))), layout="constrained")
    axes = list(figure.subplots(len(titles), sharex=True, squeeze=False)[:, 0])
    for panel, title in zip(axes, titles, strict=True):
        panel.set_title(title)
    axes[-1].set_xlabel("time since the start (hours)")
    axes[-1].set_xlim(0, max(series.ends_h[-1] for series in run.series.values()))
    return figure, axes


def lines(run: Run, axes: Axes, values: Callable[[Series], numpy.ndarray]) -> None:
    """Draws a line for each optimiser. The first one is on top."""
    for index, (name, series) in enumerate(run.series.items()):
        axes.plot(series.ends_h, values(series), label=name, zorder=3 - index / 100, **style(index))


def style(index: int) -> dict:
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)]}


def add_legend(figure: Figure, axes: Axes, columns: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def utilisation(run: Run) -> Figure:
    links = run.busiest_links()
    figure, axes = panels(run, [f"{link.name} ({gigabits(link.bytes_per_s):g} Gbit/s)" for link in links])
    for panel, link in zip(axes, links, strict=True):
        lines(run, panel, lambda series, link=link: series.received[:, link.pipes].sum(axis=1) / link.bytes_per_s)
        show_percent(panel)
    figure.supylabel("received bytes / capacity of the link (%)")
    add_legend(figure, axes[0], columns=6)
    return figure


def connections(run: Run) -> Figure:
    links = run.busiest_links()
    figure, axes = panels(run, [link.name for link in links])
    for panel, link in zip(axes, links, strict=True):
        lines(run, panel, lambda series, link=link: positive(series.connections[:, link.pipes].sum(axis=1)))
        if lossless := run.description["lossless_connections"]:
            panel.axhline(lossless, color="black", linewidth=0.8, linestyle=":", label="most without loss (N0)")
        panel.set_yscale("log")
        show_numbers(panel.yaxis, subdivisions=(1,))
    figure.supylabel("connections on the link (logarithmic)")
    add_legend(figure, axes[0], columns=6)
    return figure


def show_percent(axes: Axes) -> None:
    """Labels the vertical axis from 0 to 100."""
    axes.set_ylim(-0.02, 1.05)
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=""))


def show_numbers(axis: Axis, subdivisions: Sequence[int] = (1, 2, 5)) -> None:
    """Labels a logarithmic axis with numbers in place of powers of ten."""
    axis.set_major_locator(LogLocator(subs=subdivisions))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def positive(values: numpy.ndarray) -> numpy.ndarray:
    """Returns the values without zeros, which a logarithmic axis cannot show."""
    return numpy.where(values > 0, values, numpy.nan)


def shares(run: Run) -> Figure | None:
    """Draws the part of each class in all received bytes, beside that by weighted max-min; None for a run with one class."""
    classes = run.classes()
    if len(classes) < 2:
        return None
    figure, axes = panels(run, list(run.series))
    for panel, series in zip(axes, run.series.values(), strict=True):
        for index, (name, pipes) in enumerate(classes.items()):
            colour = COLOURS[index % len(COLOURS)]
            panel.plot(series.ends_h, part(series.received, pipes), color=colour, label=name)
            panel.plot(series.ends_h, part(series.fair, pipes), color=colour, linestyle=":", label=f"{name} (fair share)")
        show_percent(panel)
    figure.supylabel("share of the received bytes (%)")
    add_legend(figure, axes[0], columns=4)
    return figure


def part(rates: numpy.ndarray, pipes: list[int]) -> numpy.ndarray:
    """Returns the part of these pipes in the sum of all rates; not a number where the sum is 0."""
    return rates[:, pipes].sum(axis=1) / positive(rates.sum(axis=1))


def limits(run: Run) -> Figure | None:
    """Draws the rate of each project with a limit; None for a run without one."""
    rules = run.rules()
    if not rules:
        return None
    figure, axes = panels(run, [f"project {rule.name}" for rule in rules])
    for panel, rule in zip(axes, rules, strict=True):
        lines(run, panel, lambda series, rule=rule: gigabits(series.received[:, rule.pipes].sum(axis=1)))
        panel.axhline(gigabits(rule.bytes_per_s), color="black", linewidth=0.8, linestyle=":", label="limit")
        panel.set_ylim(bottom=0)
    figure.supylabel("rate on the link of the rule (Gbit/s)")
    add_legend(figure, axes[0], columns=6)
    return figure


def gigabits(bytes_per_s: float | numpy.ndarray) -> float | numpy.ndarray:
    return bytes_per_s * 8 / 1e9


def completions(run: Run) -> Figure:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    end_h = run.description["limit_s"] / HOUR_S
    start_h = min((time_h for series in run.series.values() for time_h in series.completed_h()), default=end_h / 10)
    for index, (name, series) in enumerate(run.series.items()):
        times_h, total = series.completed_h(), len(series.completions_h)
        parts = [number / total for number in range(len(times_h) + 1)]
        label = f"{name} ({len(times_h)} of {total})"
        if len(times_h) < total:
            # The others were not complete at the end of the simulation.
            times_h, parts = [*times_h, end_h], [*parts, parts[-1]]
        axes.step([start_h, *times_h], parts, where="post", label=label, zorder=3 - index / 100, **style(index))
    axes.set_xscale("log")
    show_numbers(axes.xaxis)
    axes.set_xlabel("time from arrival to completion (hours, logarithmic)")
    axes.set_ylabel("complete requests (%)")
    show_percent(axes)
    add_legend(figure, axes, columns=4)
    return figure


FIGURES: dict[str, tuple[str, Callable[[Run], Figure | None]]] = {
    "utilisation": ("utilisation of the busiest links", utilisation),
    "shares": ("shares by project and weight", shares),
    "limits": ("rates of projects with a limit", limits),
    "completions": ("completion times of requests", completions),
    "connections": ("connections on the busiest links", connections),
}
"""Title and function of each figure."""


def write_figures(run: Run, directory: pathlib.Path, stem: str) -> Iterator[pathlib.Path]:
    """Writes the figures of a run. Yields their paths, whose names start with `stem`."""
    directory.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(SETTINGS):
        for name, (title, draw) in FIGURES.items():
            if (figure := draw(run)) is None:
                continue
            figure.suptitle(f"{run.title}: {title} (simulated)")
            path = directory / f"{stem}-{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            yield path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("periods", nargs="+", type=pathlib.Path, metavar="FILE", help="file of `towpath sched simulate --periods`")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."), metavar="DIRECTORY", help="directory of the figures [.]")
    parser.add_argument("--end", type=float, default=DEFAULT_END, metavar="MULTIPLE", help=f"end of the axis of time as a multiple of the bound [{DEFAULT_END:g}]")
    options = parser.parse_args()
    if len({path.stem for path in options.periods}) < len(options.periods):
        parser.error("the figures are named after the files: two files have the same name")
    for path in options.periods:
        try:
            run = read(path, options.end)
        except (OSError, ValueError) as error:
            parser.exit(1, f"{path}: cannot be drawn: {error}\n")
        for figure in write_figures(run, options.output, path.stem):
            print(figure)


if __name__ == "__main__":
    main()
