"""The times of runs for any number of bytes, and predictions of copies from them."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_predict import DEADLINE_S, PREDICTION, PROBE, server

from towpath.lab.predict import Calibration, emulated_copies, predict, spread, widest
from towpath.lab.runs import Runs
from towpath.lab.transfer_times import ByteCurve, TransferTimes

__all__ = ["server"]


def row(rtt_s, repetition, bits_per_s, **more):
    what = {"run_id": f"{rtt_s} {repetition}", "tool": "iperf3", "transport": "cubic", "streams": 4, "planned_s": 10}
    return what | {"rtt_s": rtt_s, "repetition": repetition, "throughput_bits_per_s": bits_per_s} | more


def of_rates(rates, **more):
    """Returns runs without intervals, from their rates in bits per second by round trip."""
    return Runs.of_rows(row(rtt_s, number, rate, **more) for rtt_s, of_rtt in rates.items() for number, rate in enumerate(of_rtt))


def trace(*megabits_per_s):
    """Returns intervals of a second of two connections with equal rates."""
    return [
        {"stream": stream, "start_s": second, "end_s": second + 1, "bytes": int(rate * 1e6 / 16)}
        for stream in (0, 1)
        for second, rate in enumerate(megabits_per_s)
    ]


def test_a_volume_takes_the_time_that_it_took():
    runs = Runs.of_rows([row(0.1, 0, 6e6, duration_s=4, bytes=3_000_000, intervals=trace(0, 8, 8, 8))])
    times = TransferTimes.of_runs(runs)
    assert [times.seconds(0.1, size) for size in (1_000_000, 1_500_000, 3_000_000)] == pytest.approx([2, 2.5, 4])
    # Beyond its bytes the run goes on with the rate of its second half.
    assert times.seconds(0.1, 5_000_000) == pytest.approx(6)


def test_the_mean_rate_of_a_run_without_intervals_counts():
    assert TransferTimes.of_runs(of_rates({0.1: [8e6]})).seconds(0.1, 5_000_000) == pytest.approx(5)


def test_a_run_that_stood_still_has_a_finite_time():
    curve = ByteCurve.of_points(np.arange(5.0), np.array([0, 1e6, 1e6, 1e6, 1e6]))
    assert curve.seconds(1_000_000) == pytest.approx(1) and 1e5 < curve.seconds(1_100_000) < 1e6


def test_the_settled_rate_is_at_most_the_capacity():
    # The last interval has the bytes that waited for a lost packet.
    runs = [row(0.1, 0, 8e6, duration_s=2, bytes=2_000_000, intervals=trace(0, 16), capacity_bits_per_s=10e6)]
    assert TransferTimes.of_runs(Runs.of_rows(runs)).seconds(0.1, 3_250_000) == pytest.approx(3)


@pytest.mark.parametrize(
    "intervals",
    [
        # The first three seconds are missing, as with `iperf3 --omit 3`.
        [{"stream": 0, "start_s": second, "end_s": second + 1, "bytes": 1_000_000} for second in (3, 4, 5)],
        # Twice the bytes that arrived: the sender's buffer took them.
        trace(16, 16),
        [],
    ],
)
def test_intervals_that_are_not_of_all_bytes_that_arrived_do_not_count(intervals):
    times = TransferTimes.of_runs(Runs.of_rows([row(0.1, 0, 8e6, intervals=intervals)]))
    assert times.seconds(0.1, 5_000_000) == pytest.approx(5)


def test_a_run_may_begin_a_little_late_and_its_connections_at_other_times():
    intervals = [
        {"stream": 0, "start_s": 0.5, "end_s": 10.5, "bytes": 10_000_000},
        {"stream": 1, "start_s": 5.5, "end_s": 10.5, "bytes": 5_000_000},
    ]
    times = TransferTimes.of_runs(Runs.of_rows([row(0.1, 0, 8 * 15e6 / 10.5, intervals=intervals)]))
    assert [times.seconds(0.1, size) for size in (5_000_000, 7_000_000, 15_000_000)] == pytest.approx([5.5, 6.5, 10.5])


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.floats(0, 1e9), st.floats(0, 1e9))
def test_more_bytes_take_longer(rates, one, other):
    curve = ByteCurve.of_points(np.arange(len(rates) + 1.0), np.concatenate([[0], np.cumsum(rates)]))
    assert curve.seconds(min(one, other)) <= curve.seconds(max(one, other))


def test_the_median_of_the_runs_counts_and_a_straight_line_between_them():
    times = TransferTimes.of_runs(of_rates({0.1: [8e6, 8e6, 1e6], 0.101: [8e6], 0.2: [4e6], 0.4: [2e6]}))
    assert times.rtt_s.tolist() == pytest.approx([0.1, 0.2, 0.4]) and times.count == 6
    assert [times.seconds(rtt_s, 1_000_000) for rtt_s in (0.097, 0.1, 0.15, 0.2, 0.3)] == pytest.approx([1, 1, 1.5, 2, 3])
    for rtt_s in (0.05, 0.5):
        with pytest.raises(ValueError, match=rf"profile: the path has {1e3 * rtt_s:g} ms, the runs are from 100 to 400 ms"):
            times.seconds(rtt_s, 1_000_000)


def test_each_run_is_compared_with_others():
    times = TransferTimes.of_runs(of_rates({0.1: [8e6, 4e6, 4e6], 0.2: [4e6, 4e6], 0.4: [1e6]}))
    # At 100 ms: 1 s beside 2 and 2, twice 2 s beside 1 and 2.
    at_100_ms = [1 / 2, 4 / 3, 4 / 3]
    assert times.ratios(0.1, 1_000_000, 3) == pytest.approx(at_100_ms)
    # Then those of the nearest round trip. At 400 ms there is none to compare with.
    for least in (4, 9):
        assert times.ratios(0.1, 1_000_000, least) == pytest.approx(sorted([*at_100_ms, 1, 1]))
    # Between round trips: those of 200 ms beside the line from 2 to 8 s, which has 4 s there.
    assert times.ratios(0.15, 1_000_000, 9) == pytest.approx([1 / 2, 1 / 2])
    alone = TransferTimes.of_runs(of_rates({0.1: [8e6], 0.2: [8e6]}))
    assert len(alone.ratios(0.1, 1_000_000, 9)) == len(alone.ratios(0.15, 1_000_000, 9)) == 0
    assert times.ratios(0.1, 0, 3) == pytest.approx(at_100_ms)


def test_runs_that_the_machine_limited_are_left_out():
    rows = [row(0.1, 0, 8e6), row(0.1, 1, 1e6, limited_by="cpu")]
    used, all_runs = (TransferTimes.of_runs(Runs.of_rows(rows), with_limited=with_limited) for with_limited in (False, True))
    assert (used.count, used.excluded, all_runs.count, all_runs.excluded) == (1, 1, 2, 0)
    with pytest.raises(ValueError, match="none of 1 runs is left"):
        TransferTimes.of_runs(Runs.of_rows(rows[1:]))
    with pytest.raises(ValueError, match="2 configurations, expected one: iperf3 cubic × 4, 10 s, iperf3 bbr"):
        TransferTimes.of_runs(Runs.of_rows([rows[0], row(0.1, 1, 8e6, transport="bbr")]))
    with pytest.raises(ValueError, match="runs of 2 sites, expected one: far, near"):
        TransferTimes.of_runs(Runs.of_rows([row(0.1, number, 8e6, site=site) for number, site in enumerate(["near", "far"])]))


def probe_of(**parts):
    found = PREDICTION | {"network_s": 4.0, "bytes": 1_000_000, "files": 1} | parts
    return PROBE | {"min_rtt_s": 0.1, "predictions": [found]}


def times_of(seconds, **more):
    """Returns the profile of 30 runs in which a copy of `probe_of` takes that long on the network, give or take 1 %."""
    return TransferTimes.of_runs(of_rates({0.1: 8 * 1_000_512 / seconds / np.linspace(0.99, 1.01, 30)}, **more))


def test_the_profile_takes_the_place_of_the_measured_network():
    equal = Calibration.of_copies([1] * 19, [1] * 19)
    assert predict(probe_of(), equal).seconds == pytest.approx(5)
    found = predict(probe_of(), equal, profile=times_of(5))
    assert (found.predicted_s, found.seconds) == pytest.approx((6, 6)) and (found.bound, found.cautions) == ("network", ())
    slow = predict(probe_of(storage_s=20.0), equal, profile=times_of(5))
    assert (slow.seconds, slow.bound) == (pytest.approx(21), "storage")
    with pytest.raises(ValueError, match="it has no round trip, which a profile needs"):
        predict(probe_of() | {"min_rtt_s": None}, equal, profile=times_of(5))


def test_the_cautions_say_how_the_copy_differs_from_the_profile():
    for seconds in (2, 7):
        (caution,) = predict(probe_of(), profile=times_of(seconds)).cautions
        assert caution == f"the path is not as in the profile: the network takes {seconds} s by the profile, 4 s by the probe"
    probe = probe_of() | {"network": [{"connections": 2, "congestion_control": "bbr"}]}
    assert predict(probe, profile=times_of(4, bytes=100_000)).cautions == (
        "the copy has 10 times the bytes of the runs: the rate of their second half counts",
        "the runs had cubic, the sender of the copy has bbr",
        "the runs had 4 connections, a copy begins with 2",
    )
    empty = probe_of(bytes=0, network_s=0.0)
    assert predict(empty).cautions == predict(empty, profile=times_of(4)).cautions == ()


def test_the_interval_is_at_least_that_of_copies_and_that_of_the_runs():
    copies = emulated_copies(0.1, with_profile=True)
    quiet = predict(probe_of(), profile=times_of(4))
    ends = quiet.earliest_s / quiet.predicted_s, quiet.latest_s / quiet.predicted_s
    of_runs = spread(probe_of(), times_of(4), 0.9)
    assert ends == pytest.approx(widest([copies, of_runs], 0.9))
    varying = TransferTimes.of_runs(of_rates({0.1: 2e6 * np.geomspace(1 / 8, 8, 30)}))
    wide = predict(probe_of(), profile=varying)
    assert wide.latest_s / wide.predicted_s > 3 > ends[1]
    assert wide.calibration == f"{len(copies.log_ratios)} {copies.source}, and 30 runs of iperf3 cubic × 4, 10 s"
    # What the network takes does not matter to a copy that waits for a storage.
    assert spread(probe_of(storage_s=100.0), varying, 0.9).log_ratios == pytest.approx(np.zeros(30))
    own = Calibration.of_copies([1] * 19, [1] * 19)
    assert predict(probe_of(), own, profile=varying).calibration == "19 own copies"
    few = TransferTimes.of_runs(of_rates({0.1: [2e6, 2.1e6]}))
    with pytest.raises(ValueError, match=r"coverage: 2 runs of iperf3 cubic × 4, 10 s reach at most 0\.33, not 0\.9"):
        predict(probe_of(), profile=few)


def test_the_command_predicts_with_a_profile(server, tmp_path):
    table = tmp_path / "runs.parquet"
    rows = [row(0.0002, number, 1e9 + 1e6 * number) for number in range(25)] + [row(0.0002, 30, 2e9, limited_by="cpu")]
    Runs.of_rows(rows).write(table)
    lab = [sys.executable, "-m", "towpath.lab", "predict", f"{server}//file", str(tmp_path), "--seconds", "1"]

    def run(*options):
        return subprocess.run([*lab, *options], capture_output=True, text=True, timeout=DEADLINE_S)

    done = run("--profile", str(table), "--json")
    assert done.returncode == 0 and "1 run left out, which the machine limited" in done.stderr, done.stderr
    found = json.loads(done.stdout)
    assert 0.15 < found["seconds"] < 0.3 and "25 runs of iperf3 cubic × 4, 10 s" in found["calibration"]
    # Memory is faster than the profile.
    assert found["cautions"][-1].startswith("the path is not as in the profile")
    Runs.of_rows([*rows, row(0.0002, 31, 1e9, streams=1)]).write(table)
    done = run("--profile", str(table))
    assert done.returncode == 5 and "2 configurations, expected one: select one with --tool" in done.stderr
    done = run("--profile", str(table), "--streams", "8")
    assert done.returncode == 5 and "the tables have no run with streams 8" in done.stderr
    done = run("--profile", str(table), "--streams", "1")
    assert done.returncode == 5 and "--profile: 1 run, expected 19 for a coverage of 0.9" in done.stderr
    done = run("--profile", str(table), "--buffer-mib", "inf")
    assert done.returncode == 5 and "--buffer-mib: inf is out of range" in done.stderr
    done = run("--streams", "8")
    assert done.returncode == 5 and "--streams: --profile is missing" in done.stderr
