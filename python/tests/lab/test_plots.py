"""Figures: their data are those of the results."""

import numpy as np
import pytest

from towpath.lab.analysis import analyse
from towpath.lab.dynamics import aggregate_map, split_phases, surrogate_test
from towpath.lab.plots import plot_coefficients, plot_grid, plot_heat_map, plot_map, plot_profiles, plot_relation, plot_trace, svg
from towpath.lab.profiles import Profile
from towpath.lab.runs import Runs

RATES = {0.01: 9.5e9, 0.05: 9e9, 0.1: 7e9, 0.15: 2e9, 0.2: 1e9}


@pytest.fixture(scope="module")
def results():
    rows = [
        {
            "run_id": f"{streams} {rtt} {repetition}",
            "tool": "x",
            "streams": streams,
            "rtt_s": rtt,
            "repetition": repetition,
            "throughput_bits_per_s": rate * (0.9 + streams / 20) + repetition * 1e8,
            "capacity_bits_per_s": 10e9,
        }
        for streams in (1, 2)
        for rtt, rate in RATES.items()
        for repetition in range(3)
    ]
    return analyse(Runs.of_rows(rows))


def test_profiles(results):
    axes = plot_profiles(results).axes[0]
    lines = [line for line in axes.lines if line.get_label().startswith("x")]
    assert len(lines) == 2 and np.allclose(lines[0].get_xdata(), [10, 50, 100, 150, 200])
    assert np.allclose(lines[1].get_ydata(), results[1].profile.means / 1e6)
    points = [line for line in axes.lines if line.get_marker() == "."]
    assert len(points) == 10 and np.allclose(points[0].get_ydata(), results[0].profile.samples[0] / 1e6)
    capacity = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in capacity] == [10_000] and axes.get_ylim() == pytest.approx((0, 11_000))
    assert svg(plot_profiles(results)).startswith("<svg")
    with pytest.raises(ValueError, match="0 with a profile, expected 1 to 9"):
        plot_profiles([])


def test_coefficients(results):
    axes = plot_coefficients(results).axes[0]
    widths = [bar.get_width() for bar in axes.patches]
    expected = sorted(result.intervals["utilization_concavity"].value for result in results)
    assert widths == pytest.approx(expected)


def test_maps():
    random = np.random.default_rng(1)
    series = [0.3]
    for _ in range(99):
        series.append(3.9 * series[-1] * (1 - series[-1]))
    poincare = aggregate_map(series, 0.1)
    test = surrogate_test(poincare)
    axes, beside = plot_map(poincare, test).axes
    assert np.array_equal(axes.lines[0].get_xdata(), poincare.x) and np.array_equal(axes.lines[0].get_ydata(), poincare.y)
    assert sum(bar.get_height() for bar in beside.patches) == 39 and beside.lines[0].get_xdata()[0] == test.exponent.per_step
    assert len(plot_map(aggregate_map(random.random(50), 0.1)).axes) == 1


def test_traces():
    rates = np.concatenate([np.linspace(0, 1e9, 10), np.full(40, 1e9)])
    phases = split_phases(rates, 0.1)
    axes = plot_trace(rates, phases).axes[0]
    assert np.allclose(axes.lines[0].get_ydata(), rates / 1e6) and axes.get_title() == "ramp"
    assert axes.patches[0].get_width() == pytest.approx(phases.ramp_s)


def test_heat_maps():
    profiles = {streams: Profile.of_samples([0.1, 0.2], [[streams * 1e9], [streams * 5e8]]) for streams in (4, 1)}
    image = plot_heat_map(profiles).axes[0].images[0].get_array()
    assert image.tolist() == [[1_000, 500], [4_000, 2_000]]
    with pytest.raises(ValueError, match="with the same round trips"):
        plot_heat_map(profiles | {2: Profile.of_samples([0.1, 0.3], [[1], [1]])})


def test_the_trace_of_a_run_keeps_its_bytes():
    intervals = [
        {"stream": stream, "start_s": start_s, "end_s": start_s + 0.25, "bytes": 1_000 * (1 + stream)}
        for stream in (0, 1)
        for start_s in np.arange(0.0, 2.0, 0.25)
    ]
    row = {"run_id": "a", "tool": "x", "rtt_s": 0.1, "repetition": 0, "throughput_bits_per_s": 96_000}
    runs = Runs.of_rows([row | {"intervals": [*intervals, {"stream": -1, "start_s": 0.0, "end_s": 2.0, "bytes": 24_000}]}])
    assert runs.trace("a", 0.5).tolist() == [96_000] * 4 and runs.trace("a", 0.5, stream=1).tolist() == [64_000] * 4
    assert runs.trace("a", 0.9, stream=-1) == pytest.approx([96_000] * 2)
    with pytest.raises(ValueError, match=r"a: no interval of 3 s: its intervals are from 0 to 2 s"):
        runs.trace("a", 3)
    with pytest.raises(KeyError):
        runs.trace("b", 1)


def test_relations():
    axes = plot_relation({"bbr": ([1, 2], [3, 4])}, "x", "y", curves={"model": ([0, 5], [1, 1])}).axes[0]
    assert [(line.get_label(), list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines] == [
        ("bbr", [1, 2], [3, 4]),
        ("model", [0, 5], [1, 1]),
    ]
    assert axes.get_xlabel() == "x" and axes.get_ylabel() == "y"
    with pytest.raises(ValueError, match="points"):
        plot_relation({}, "x", "y")


def test_equal_figures_have_equal_texts(results):
    assert svg(plot_profiles(results)) == svg(plot_profiles(results))


def test_grids():
    axes = plot_grid([[1e6, 2e6], [3e6, 4e6], [5e6, 6e6]], "flows", [1, 2, 4], "block", ["8 KiB", "64 KiB"]).axes[0]
    assert axes.images[0].get_array().tolist() == [[1, 2], [3, 4], [5, 6]]
    assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4", "5", "6"]
    with pytest.raises(ValueError, match=r"shape \(1, 2\), expected \(2, 2\)"):
        plot_grid([[1, 2]], "x", [1, 2], "y", [1, 2])
