"""The dynamics of tables of runs."""

import json

import numpy as np
import pytest

from towpath.lab.analysis import analyse
from towpath.lab.report import page
from towpath.lab.runs import Runs
from towpath.lab.traces import SAMPLES, run_map, trace_results


def run(name, rates, interval_s=0.1, rtt_s=0.05):
    sizes = (np.asarray(rates) * interval_s / 8).astype(int)
    intervals = [
        {"stream": 0, "start_s": at * interval_s, "end_s": (at + 1) * interval_s, "bytes": int(size)} for at, size in enumerate(sizes)
    ]
    duration_s = len(sizes) * interval_s
    row = {"run_id": name, "tool": "x", "rtt_s": rtt_s, "repetition": 0, "duration_s": duration_s, "bytes": int(sizes.sum())}
    return row | {"throughput_bits_per_s": 8 * int(sizes.sum()) / duration_s, "intervals": intervals}


RANDOM = np.random.default_rng(1)
RAMP = 1e9 * 2 ** np.arange(-10, 0.0)
STEADY = 1e9 * (1 + 0.05 * RANDOM.standard_normal(90))


def orbit(samples):
    values = [0.3]
    for _ in range(samples - 1):
        values.append(3.99 * values[-1] * (1 - values[-1]))
    return np.array(values)


RUNS = Runs.of_rows(
    [
        run("noise", [*RAMP, *STEADY]),
        run("map", [*RAMP, *(1e9 * (1 + 0.05 * orbit(90)))]),
        run("far", [*RAMP, *(1e9 * (1 + 0.05 * orbit(90)))], rtt_s=0.3),
        run("rising", np.linspace(1e6, 1e9, 100)),
        run("short", [1e9] * 5),
        {"run_id": "none", "tool": "x", "rtt_s": 0.1, "repetition": 0, "throughput_bits_per_s": 1e9},
    ]
)


def test_traces():
    noise, chaotic, far, rising, short, none = trace_results(RUNS)
    assert noise.interval_s == 0.1 and noise.outcome == "ramp" and noise.ramp_s == pytest.approx(1, abs=0.21)
    # Intervals of 0.3 s, the longest round trip, average three samples.
    assert noise.variation == pytest.approx(0.05 / np.sqrt(3), rel=0.35)
    assert (noise.verdict, chaotic.verdict) == ("no structure found", "deterministic structure")
    assert noise.exponent > chaotic.exponent and chaotic.exponent == pytest.approx(np.log(2), abs=0.1)
    assert noise.surrogate_mean == pytest.approx(noise.exponent, abs=0.4) and chaotic.surrogate_mean > chaotic.exponent + 0.4
    assert noise.entropy > 0.95 > chaotic.entropy and abs(noise.autocorrelation) < 0.3 and far.entropy is None
    assert far.exponent is None and far.variation == chaotic.variation, "its interval is shorter than its round trip"
    assert (rising.outcome, rising.ramp_s, rising.exponent) == ("never sustained", None, None)
    assert short.outcome == none.outcome == "no trace" and SAMPLES == 60


def test_the_interval_is_that_of_the_run_with_the_longest():
    runs = Runs.of_rows([run("short", STEADY), run("long", STEADY, interval_s=0.5)])
    assert [result.interval_s for result in trace_results(runs)] == [0.5, 0.5]
    assert trace_results(runs)[0].exponent is None, "90 samples of 0.1 s are 18 of 0.5 s"


def test_a_report_has_the_dynamics():
    text = page(RUNS, analyse(RUNS), "x")
    section = text[text.index("<h2>Dynamics</h2>") : text.index("<h2>Method</h2>")]
    assert "1 deterministic structure" in section and "1 no structure found" in section and "1 never sustained" in section
    # The run with the median exponent: the second of the two that have one.
    assert section.count("<figure>") == 1 and "x, 50 ms: the run with the median exponent of 2" in section
    assert "permutation entropy" in section and "Rosenstein" in section
    without = Runs.of_rows([RUNS.table.to_pylist()[-1]])
    assert "Dynamics" not in page(without, analyse(without), "x")


def test_the_map_of_a_run_has_its_last_samples():
    poincare = run_map(RUNS, "map", 0.1, capacity_bits_per_s=1e9)
    assert poincare.series.shape == (1, SAMPLES) and poincare.series[0] == pytest.approx(1 + 0.05 * orbit(90)[-SAMPLES:])
    for name, reason in (("rising", "never sustained"), ("short", "5 samples")):
        with pytest.raises(ValueError, match=reason):
            run_map(RUNS, name, 0.1)


def test_a_report_has_a_heat_map_of_streams():
    rows = [run(f"{streams} {rtt_s}", STEADY * streams, rtt_s=rtt_s) | {"streams": streams} for streams in (1, 2) for rtt_s in (0.01, 0.05)]
    both, one = (Runs.of_rows(rows[:count]) for count in (4, 2))
    assert "<figcaption>x</figcaption>" in page(both, analyse(both), "x")
    assert "<figcaption>x</figcaption>" not in page(one, analyse(one), "x"), "one number of streams"


def test_a_report_has_each_state_of_the_machine_once():
    states = [{"kernel": "6", "processors": 2, "late_mean_s": number * 1e-6, "busy": 0.1 * number} for number in (1, 2, 4)]
    runs = Runs.of_rows(run(f"{number}", STEADY) | {"machine": json.dumps(state)} for number, state in enumerate(states))
    text = page(runs, analyse(runs), "x")
    assert text.count("<pre>") == 1 and "<p>3 runs:</p>" in text
    assert "<td>late_mean_s</td><td>1e-06</td><td>2e-06</td><td>4e-06</td>" in text
