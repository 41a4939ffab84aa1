"""The limits of runs by the counters of the kernel."""

import doctest
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towpath.lab import attribution, importers
from towpath.lab.attribution import CAUSES, COUNTERS, attribute, attribute_run, shares_of_spent
from towpath.lab.runs import ALL_STREAMS, Runs


def frame(*rows, stream=0):
    """Returns consecutive intervals of a connection: seconds, busy, receive window, send buffer, bytes."""
    ends = np.cumsum([row[0] for row in rows])
    columns = {"stream": stream, "start_s": ends - [row[0] for row in rows], "end_s": ends, "bytes": [row[4] for row in rows]}
    return pd.DataFrame(columns | {name: [row[number] for row in rows] for number, name in enumerate(COUNTERS, 1)})


def shares(found):
    return tuple(found.shares.values())


@pytest.mark.parametrize(
    ("row", "expected", "limit", "disagreement"),
    [
        ((10, 10, 0, 0, 1), (0, 0, 0, 1), "network", (0, 0, 0)),
        ((10, 0, 0, 0, 1), (0, 0, 1, 0), "application", (0, 0, 0)),
        ((10, 9, 6, 1, 1), (0.6, 0.1, 0.1, 0.2), "receiver's window", (0, 0, 0)),
        ((10, 9, 1, 7, 1), (0.1, 0.7, 0.1, 0.1), "sender's window", (0, 0, 0)),
        # The counters began before the clock.
        ((10, 12, 4, 0, 1), (0.4, 0, 0, 0.6), "network", (0, 2, 0)),
        ((10, 12, 11, 3, 1), (1, 0, 0, 0), "receiver's window", (0, 2, 2)),
        # The limits exceed the busy time.
        ((10, 8, 6, 5, 1), (0.6, 0.2, 0.2, 0), "receiver's window", (0, 0, 3)),
        ((10, 8, 9, 0, 1), (0.8, 0, 0.2, 0), "receiver's window", (0, 0, 1)),
        # A counter restarted.
        ((10, 8, -1, 3, 1), (0, 0.3, 0.2, 0.5), "network", (1, 0, 0)),
        ((10, -3, -2, -1, 1), (0, 0, 1, 0), "application", (6, 0, 0)),
    ],
)
def test_one_interval(row, expected, limit, disagreement):
    found = attribute(frame(row))
    assert shares(found) == pytest.approx(expected, abs=1e-12) and found.limit == limit
    assert (found.decrease_s, found.excess_s, found.overlap_s) == pytest.approx(disagreement, abs=1e-12)
    assert (found.connections, found.elapsed_s) == (1, 10)


def test_ticks_of_a_counter_cancel():
    found = attribute(frame((1, 1.01, 1.01, 0, 5), (1, 0.99, 0.98, 0, 5)))
    assert shares(found) == pytest.approx((0.995, 0, 0, 0.005)) and found.excess_s == pytest.approx(0, abs=1e-12)


def test_connections_are_weighted_by_their_bytes():
    windows, buffers = frame((2, 2, 2, 0, 300)), frame((2, 2, 0, 2, 100), stream=1)
    found = attribute(pd.concat([windows, buffers]))
    assert shares(found) == pytest.approx((0.75, 0.25, 0, 0)) and (found.connections, found.elapsed_s) == (2, 4)
    idle = frame((2, 0, 0, 0, 0), stream=2)
    assert shares(attribute(pd.concat([windows, idle]))) == pytest.approx((1, 0, 0, 0))
    nothing = pd.concat([frame((2, 2, 0, 0, 0)), idle])
    assert shares(attribute(nothing)) == pytest.approx((0, 0, 0.5, 0.5))


def test_intervals_of_all_streams_are_a_sum():
    both = pd.concat([frame((2, 2, 2, 0, 1)), frame((2, 0, 0, 0, 1), stream=ALL_STREAMS)])
    assert attribute(both).limit == "receiver's window" and attribute(both).connections == 1
    assert attribute(frame((2, 0, 0, 0, 1), stream=ALL_STREAMS)).limit == "application"


def test_marked_intervals_are_of_the_application():
    intervals = frame((1, 1, 0.25, 0, 1), (1, 1, 0.25, 0, 1))
    assert shares(attribute(intervals.assign(starved=[True, False]))) == pytest.approx((0.25, 0, 0.375, 0.375))
    assert shares(attribute(intervals.assign(starved=[True, None]))) == pytest.approx((0.25, 0, 0.375, 0.375))
    unread = intervals.assign(rtt_s=0.5, peer_window_bytes=[10, 1])
    assert shares(attribute(unread)) == pytest.approx((0.125, 0, 0.125, 0.75))
    assert shares(attribute(unread.assign(rtt_s=None))) == shares(attribute(intervals))


seconds = st.floats(0.01, 10)
parts = st.tuples(seconds, *[st.floats(-0.1, 1.2)] * 3, st.integers(0, 10**9))
tables = st.lists(parts, min_size=1, max_size=8).map(
    lambda rows: frame(*[(s, s * b, s * b * w, s * b * u, size) for s, b, w, u, size in rows])
)


@settings(max_examples=60, deadline=None)
@given(table=tables, scale=st.floats(0.01, 100), seed=st.integers(0, 100))
def test_properties_of_shares(table, scale, seed):
    found = attribute(table)
    assert sum(shares(found)) == pytest.approx(1, abs=1e-12) and all(-1e-12 <= share <= 1 + 1e-12 for share in shares(found))
    assert min(found.decrease_s, found.excess_s, found.overlap_s) >= 0
    shuffled = table.sample(frac=1, random_state=seed)
    assert shares(attribute(shuffled)) == pytest.approx(shares(found))
    scaled = table.assign(bytes=table.bytes * 2, **{name: table[name] * scale for name in ("start_s", "end_s", *COUNTERS)})
    assert shares(attribute(scaled)) == pytest.approx(shares(found), abs=1e-6)
    more = table.assign(receive_window_limited_s=table.receive_window_limited_s + 0.1)
    assert attribute(more).receive_window >= found.receive_window - 1e-9


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (frame((1, 1, 0, 0, 1)).iloc[:0], "intervals: there are none"),
        (frame((1, 1, 0, 0, 1)).drop(columns="busy_s"), "intervals: column 'busy_s' is missing"),
        (frame((1, np.nan, 0, 0, 1), (1, 1, 0, 0, 1)), "intervals: busy_s is unknown in 1 of 2"),
        (frame((1, 1, np.inf, 0, 1)), "intervals: receive_window_limited_s is unknown in 1 of 1"),
        (frame((1, 1, 0, None, 1)), "intervals: send_buffer_limited_s is unknown in 1 of 1"),
        (frame((1, 1, 0, 0, 1)).assign(end_s=0.0), "intervals: two of a connection overlap"),
        (pd.concat([frame((1, 1, 0, 0, 1))] * 2), "intervals: two of a connection overlap"),
    ],
)
def test_intervals_without_an_answer(table, message):
    with pytest.raises(ValueError, match=message):
        attribute(table)


def ndt7(kind, *counters):
    """Returns a result of NDT7 whose connection began 0.3 s before its test: elapsed, busy, receive window and send buffer in seconds."""
    more = {"MinRTT": 20_000, "RTT": 25_000, "SndCwnd": 10, "SndMSS": 1_448, "TotalRetrans": 0}
    snapshots = []
    for elapsed, busy, window, buffer in counters:
        times = {"ElapsedTime": elapsed, "BusyTime": busy, "RWndLimited": window, "SndBufLimited": buffer}
        data = {name: int(elapsed * 1e6) for name in ("BytesAcked", "BytesReceived")}
        snapshots.append({"TCPInfo": data | more | {name: int(value * 1e6) for name, value in times.items()}})
    return json.dumps({kind: {"StartTime": "2026-01-31T12:00:00.123456789Z", "ServerMeasurements": snapshots}})


def test_counters_of_ndt7_begin_with_the_connection(tmp_path):
    counters = [(0.1, 0.4, 0.2, 0.0), (5.1, 5.4, 3.2, 0.5), (10.1, 10.4, 6.2, 1.0)]
    (tmp_path / "results").write_text(ndt7("Download", *counters) + "\n" + ndt7("Upload", *counters))
    runs = importers.read([tmp_path / "results"], "ndt7")
    download, upload = runs.frame().run_id
    found = attribute_run(runs, download)
    assert shares(found) == pytest.approx((0.6, 0.1, 0, 0.3)) and found.excess_s == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="upload of NDT7 are those of the server, which received"):
        attribute_run(runs, upload)


def test_runs_without_counters():
    row = {"run_id": "a", "tool": "iperf3", "rtt_s": 0.1, "repetition": 0, "throughput_bits_per_s": 8e8}
    runs = Runs.of_rows([row | {"intervals": [{"stream": 0, "start_s": 0.0, "end_s": 1.0, "bytes": 1}]}, row | {"run_id": "b"}])
    for run_id, message in (("a", "a: intervals: busy_s is unknown in 1 of 1"), ("b", "b: intervals: there are none")):
        with pytest.raises(ValueError, match=message):
            attribute_run(runs, run_id)
    with pytest.raises(KeyError):
        attribute_run(runs, "c")


BEGIN = {"type": "begin", "format": 1, "program": "towpath/0.1.0", "date": "2026-01-31T12:00:00Z"}


def sample(t_s, connection=0, size=0, busy=0.0, peer=0.0, buffer=0.0, starved=False, window=1_000_000, leg=0):
    """A sample of a sender, in the form of docs/guides/probe.md, with a round trip of 0.1 s."""
    values = {"type": "sample", "leg": leg, "connection": connection, "end": "server", "sender": True, "t_s": t_s, "bytes": size}
    values |= {"rtt_s": 0.1, "min_rtt_s": 0.1, "cwnd_bytes": 14_480, "peer_window_bytes": window, "busy_s": busy}
    return values | {"peer_limited_s": peer, "buffer_limited_s": buffer, "slow_start": False, "starved": starved, "control": "cubic"}


def trace(*samples, legs=1):
    header = [{"type": "leg", "leg": leg, "direction": "down", "connections": 1, "duration_s": 2.0} for leg in range(legs)]
    records = [BEGIN, *(record for leg in header for record in [leg, *(value for value in samples if value["leg"] == leg["leg"])])]
    return "".join(json.dumps(record) + "\n" for record in records)


def test_traces_of_probes(tmp_path):
    text = trace(
        *(
            sample(1.0, busy=1.0),
            sample(2.0, size=8_000_000, busy=2.0, peer=0.8),
            sample(3.0, size=16_000_000, busy=3.0, peer=0.8, starved=True),
        ),
        # Little of the window is sent in each round trip.
        *(sample(1.0, leg=1, busy=1.0), sample(3.0, leg=1, size=2_000_000, busy=3.0, peer=1.8)),
        legs=2,
    )
    (tmp_path / "trace").write_text(text)
    runs = importers.read([tmp_path / "trace"], "towpath-trace")
    found = [shares(attribute_run(runs, run_id)) for run_id in runs.frame().run_id]
    assert found[0] == pytest.approx((0.4, 0, 0.5, 0.1)) and found[1] == pytest.approx((0, 0, 0.9, 0.1))
    (tmp_path / "trace").write_text(trace(sample(1.0, size=1)))
    runs = importers.read([tmp_path / "trace"], "towpath-trace")
    with pytest.raises(ValueError, match="trace#0: intervals: "):
        attribute_run(runs, runs.frame().run_id[0])


def test_the_causes_are_those_of_the_verdict():
    page = (Path(__file__).parents[3] / "docs/concepts/verdict.md").read_text()
    table = page[page.index("| cause |") :].partition("\n\n")[0]
    words = re.findall(r"(?m)^\| ([a-z' ]+) \|", table)[1:]
    assert sorted(words) == sorted([cause for causes in CAUSES.values() for cause in causes] + ["far end"])


def test_shares_of_a_verdict():
    spent = [
        {"cause": cause, "leg": "in", "seconds": value}
        for cause, value in (("loss", 2), ("bandwidth", 4), ("processor", 2), ("far end", 9))
    ]
    assert shares_of_spent(spent) == pytest.approx({"receiver's window": 0, "sender's window": 0, "application": 0.25, "network": 0.75})
    for wrong, message in [([], "no cause but the far end"), ([{"cause": "bad luck", "seconds": 1}], "'bad luck' is no cause")]:
        with pytest.raises(ValueError, match=message):
            shares_of_spent(wrong)


def test_the_example():
    assert doctest.testmod(attribution).failed == 0
