"""The table of runs, and importers."""

import copy
import gzip
import json

import pytest
from real_iperf3 import run_iperf3

from towpath.lab import importers
from towpath.lab import runs as runs_module
from towpath.lab.runs import Runs, rate_text

ROW = {"run_id": "a", "tool": "iperf3", "transport": "cubic", "streams": 4, "rtt_s": 0.1, "repetition": 0, "throughput_bits_per_s": 8e8}
INTERVAL = {"stream": 0, "start_s": 0.0, "end_s": 1.0, "bytes": 10}


def test_a_table_survives_its_file(tmp_path):
    runs = Runs.of_rows([ROW | {"intervals": [INTERVAL | {"start_s": 1.0, "end_s": 2.0}, INTERVAL]}, ROW | {"run_id": "b", "rtt_s": 0.2}])
    runs.write(tmp_path / "runs.parquet")
    again = Runs.read(tmp_path / "runs.parquet")
    assert again.table.equals(runs.table) and again.intervals("a").start_s.tolist() == [0.0, 1.0] and again.intervals("b").empty
    with pytest.raises(KeyError):
        again.intervals("c")
    again.write_csv(tmp_path / "runs.csv")
    from_csv = importers.read([tmp_path / "runs.csv"], "csv")
    assert from_csv.frame().equals(runs.frame())
    chosen = Runs.of_rows([ROW, ROW | {"run_id": "b", "streams": None}])
    chosen.write_csv(tmp_path / "null.csv")
    assert importers.read([tmp_path / "null.csv"], "csv").table.equals(chosen.table)
    array = again.to_xarray()
    assert array.dims == ("configuration", "rtt_s", "repetition") and array.values.tolist() == [[[8e8], [8e8]]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rtt_s": -1}, "runs: row 2, rtt_s: expected 0 to 5 seconds (milliseconds?), not -1.0"),
        ({"rtt_s": None}, "row 2, rtt_s: a value is required, not None"),
        ({"rtt_s": float("nan")}, "row 2, rtt_s: a value is required"),
        ({"streams": 0}, "row 2, streams: expected 1 to 10,000, not 0"),
        ({"throughput_bits_per_s": float("inf")}, "throughput_bits_per_s: expected 0 to 10^15 bit/s"),
        ({"bytes": 5, "duration_s": 1.0}, "expected 8 × bytes / duration_s, not 800000000.0"),
        ({"detail": "[]"}, "detail: expected a JSON object"),
        ({"run_id": "a"}, "run_id: expected a value that no other row has, not 'a'"),
        ({"rtt_ms": 3}, "row 2: there is no column 'rtt_ms'"),
        ({"streams": "many"}, "runs: Could not convert 'many'"),
        ({"intervals": [INTERVAL | {"end_s": 0.0}]}, "row 2, intervals: expected stream, 0 <= start_s < end_s"),
        ({"intervals": [INTERVAL | {"bytes": None}]}, "row 2, intervals: "),
    ],
)
def test_an_invalid_row_is_named(change, message):
    with pytest.raises(ValueError) as caught:
        Runs.of_rows([ROW, ROW | {"run_id": "b"} | change])
    assert message in str(caught.value)


def test_other_files_are_no_tables(tmp_path):
    (tmp_path / "x").write_text("no table")
    with pytest.raises(ValueError, match="x: no Parquet file"):
        Runs.read(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        Runs.read(tmp_path / "y")
    with pytest.raises(ValueError, match="expected a value that no other row has"):
        Runs.concat([Runs.of_rows([ROW]), Runs.of_rows([ROW])])


def test_the_size_of_a_table_is_known_before_it_is_read(tmp_path, monkeypatch):
    Runs.of_rows([ROW, ROW | {"run_id": "b"}]).write(tmp_path / "runs.parquet")
    for name in ("MAX_RUNS", "MAX_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(runs_module, name, 1)
            with pytest.raises(ValueError, match=r"runs\.parquet: 2 runs, [0-9]+ bytes: at most"):
                Runs.read(tmp_path / "runs.parquet")


def test_rates_have_units():
    assert [rate_text(rate) for rate in (941.482e6, 999.9e6, 40e9, 7)] == ["941.5 Mbit/s", "999.9 Mbit/s", "40 Gbit/s", "7 bit/s"]


@pytest.fixture(scope="module")
def iperf3_result(tmp_path_factory):
    """The file of a result of the real iperf3."""
    directory = tmp_path_factory.mktemp("iperf3")
    (directory / "result.json").write_text(run_iperf3(35201))
    return directory / "result.json"


def test_results_of_the_real_iperf3(iperf3_result, tmp_path):
    result = json.loads(iperf3_result.read_text())
    runs = importers.read([iperf3_result], "iperf3", importers.Known(capacity_bits_per_s=1e12))
    row, received = runs.frame().iloc[0], result["end"]["sum_received"]
    assert (row.tool, row.streams, row["bytes"]) == ("iperf3", 2, received["bytes"])
    assert row.throughput_bits_per_s == pytest.approx(received["bits_per_second"], rel=1e-6)
    assert 0 < row.rtt_s < 0.1 and row.capacity_bits_per_s == 1e12
    intervals = runs.intervals(row.run_id)
    kept = [interval for interval in result["intervals"] if not interval["sum"]["omitted"]]
    assert len(kept) < len(result["intervals"]), "the first intervals are omitted"
    assert intervals[intervals.stream == -1]["bytes"].tolist() == [interval["sum"]["bytes"] for interval in kept]
    # iperf3 may end with a very short interval, or one without a duration.
    for seconds, size in ((2e-5, 1448), (0, 0)):
        last = copy.deepcopy(result["intervals"][-1])
        for values in (*last["streams"], last["sum"]):
            values |= {"start": values["end"], "end": values["end"] + seconds, "seconds": seconds, "bytes": size}
        result["intervals"].append(last)
    (tmp_path / "short.json").write_text(json.dumps(result))
    short = importers.read([tmp_path / "short.json"], "iperf3", importers.Known(capacity_bits_per_s=1e12))
    assert len(short.intervals(short.frame().run_id[0])) == len(intervals) + 3
    result["intervals"] = result["intervals"][:-2]
    # The lines of --json-stream of newer versions have the same objects.
    events = [("start", result["start"]), *(("interval", interval) for interval in result["intervals"]), ("end", result["end"])]
    stream = tmp_path / iperf3_result.name
    stream.write_text("".join(json.dumps({"event": event, "data": data}) + "\n" for event, data in events))
    of_stream = importers.read([stream], "iperf3", importers.Known(capacity_bits_per_s=1e12))
    assert of_stream.table.drop_columns(["run_id"]).equals(runs.table.drop_columns(["run_id"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: result | {"error": "unable to connect"}, "iperf3 reports: unable to connect"),
        (lambda result: {key: result[key] for key in ("start", "intervals")}, "no complete result of iperf3: KeyError 'end'"),
        (lambda result: [result], "expected a JSON object"),
        (lambda result: with_test(result, bidir=1), "a test with --bidir or --bitrate"),
        (lambda result: with_test(result, target_bitrate=1_000), "a test with --bidir or --bitrate"),
        (lambda result: with_test(result, num_streams=10**30), "wrong.json: "),
        (lambda result: result | {"end": result["end"] | {"sum_received": {"seconds": 0, "bytes": 1}}}, "ZeroDivisionError"),
        (lambda result: result | {"start": result["start"] | {"test_start": {"protocol": "UDP"}}}, "a test of UDP, expected TCP"),
    ],
)
def test_incomplete_results_of_iperf3(iperf3_result, tmp_path, change, message):
    (tmp_path / "wrong.json").write_text(json.dumps(change(json.loads(iperf3_result.read_text()))))
    with pytest.raises(ValueError) as caught:
        importers.read([tmp_path / "wrong.json"], "iperf3")
    assert str(caught.value).startswith(str(tmp_path / "wrong.json")) and message in str(caught.value)


def with_test(result, **more):
    return result | {"start": result["start"] | {"test_start": result["start"]["test_start"] | more}}


def test_the_direction_and_the_size_of_iperf3_are_parts_of_the_configuration(iperf3_result, tmp_path):
    (tmp_path / "other.json").write_text(json.dumps(with_test(json.loads(iperf3_result.read_text()), reverse=1, bytes=5_000)))
    runs = importers.read([iperf3_result, tmp_path / "other.json"], "iperf3", importers.Known(rtt_s=0.1))
    assert runs.frame().tool.tolist() == ["iperf3", "iperf3-reverse"] and runs.frame().planned_bytes[1] == 5_000
    assert len(runs.configurations()) == 2


def test_loss_and_queue_are_parts_of_the_configuration():
    paths = ({}, {"loss": 1e-4}, {"loss": 1e-4, "queue": "1MiB"})
    runs = Runs.of_rows([ROW | {"run_id": str(number)} | path for number, path in enumerate(paths)])
    texts = [str(key) for key, _ in runs.configurations()]
    assert texts == ["iperf3 cubic × 4", "iperf3 cubic × 4, loss 0.0001", "iperf3 cubic × 4, loss 0.0001, queue 1MiB"]


@pytest.mark.parametrize("format", ["csv", "ndt7"])
def test_a_file_without_runs_is_an_error(tmp_path, format):
    (tmp_path / "empty").write_text("")
    with pytest.raises(ValueError, match="empty: it has no run"):
        importers.read([tmp_path / "empty"], format)


def test_the_error_of_a_row_names_its_file(tmp_path):
    for name, rtt_s in (("one.csv", 5), ("two.csv", 500)):
        (tmp_path / name).write_text(f"tool,rtt_s,throughput_bits_per_s\nx,{rtt_s},1\n")
    with pytest.raises(ValueError, match=r"two\.csv: row 1, rtt_s: expected 0 to 5 seconds \(milliseconds\?\), not 500"):
        importers.read([tmp_path / "one.csv", tmp_path / "two.csv"], "csv")


def test_one_round_trip_does_not_replace_several(tmp_path):
    table = tmp_path / "far.csv"
    table.write_text("tool,rtt_s,throughput_bits_per_s\nx,0.01,1\nx,0.09,1\n")
    with pytest.raises(
        ValueError, match=r"far\.csv: its runs have round trips from 10 to 90 ms; one for all \(rtt_s\) cannot replace them"
    ):
        importers.read([table], "csv", importers.Known(rtt_s=0.09))
    table.write_text("tool,rtt_s,throughput_bits_per_s\nx,,1\nx,0.0912,1\nx,0.0931,1\n")
    assert importers.read([table], "csv", importers.Known(rtt_s=0.09)).frame().rtt_s.tolist() == [0.09] * 3
    with pytest.raises(ValueError, match=r"far\.csv: 1 of 3 runs have no round trip; state it \(rtt_s\)"):
        importers.read([table], "csv")


def snapshot(elapsed_us, acknowledged, bandwidth, **more):
    info = {"ElapsedTime": elapsed_us, "BytesAcked": acknowledged, "BytesReceived": 100, "MinRTT": 20_000, "RTT": 25_000, "SndCwnd": 10}
    info |= {"SndMSS": 1_448, "TotalRetrans": 2, "BusyTime": elapsed_us, "RWndLimited": elapsed_us // 10, "SndBufLimited": 0}
    return {"TCPInfo": info | more, "BBRInfo": bandwidth}


def ndt7(*snapshots, test="Download"):
    return json.dumps({test: {"StartTime": "2026-01-31T12:00:00.123456789Z", "ServerMeasurements": list(snapshots)}})


@pytest.mark.parametrize("bandwidth", [{"MaxBandwidth": 125_000}, {"BW": 125_000, "PacingGain": 256}])
def test_results_of_ndt7(tmp_path, bandwidth):
    line = ndt7(snapshot(100_000, 5_000, bandwidth), snapshot(300_000, 30_000, bandwidth), snapshot(1_100_000, 130_000, bandwidth))
    with gzip.open(tmp_path / "results.gz", "wt") as file:
        file.write(line + "\n" + line + "\n")
    runs = importers.read([tmp_path / "results.gz"], "ndt7")
    row = runs.frame().iloc[1]
    assert (row.tool, row["bytes"], row.rtt_s, row.repetition) == ("ndt7-download", 125_000, 0.02, 1)
    assert (row.duration_s, row.throughput_bits_per_s) == pytest.approx((1.0, 1e6))
    assert json.loads(row.detail) == {"bbr_bandwidth_bytes_per_s": 125_000}
    intervals = runs.intervals(row.run_id)
    assert intervals["bytes"].tolist() == [25_000, 100_000] and intervals.cwnd_bytes.tolist() == [14_480] * 2
    assert intervals.end_s.tolist() == pytest.approx([0.2, 1.0]) and intervals.receive_window_limited_s.tolist() == pytest.approx(
        [0.02, 0.08]
    )


def test_uploads_of_ndt7_have_no_counters_of_their_sender(tmp_path):
    snapshots = (snapshot(100_000, 0, None), snapshot(1_100_000, 0, None, BytesReceived=125_100))
    (tmp_path / "results").write_text(ndt7(*snapshots, test="Upload"))
    runs = importers.read([tmp_path / "results"], "ndt7")
    interval = runs.intervals(runs.frame().run_id[0]).iloc[0]
    assert interval["bytes"] == 125_000 and interval.rtt_s == pytest.approx(0.025)
    assert interval[["cwnd_bytes", "retransmits", "busy_s", "receive_window_limited_s", "send_buffer_limited_s"]].isna().all()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{}", "line 2: neither Download nor Upload"),
        ("{", "line 2: Expecting"),
        (ndt7(snapshot(1, 1, None)), "line 2: 1 snapshots of TCP_INFO, expected two or more"),
        (ndt7(snapshot(2, 1, None), snapshot(1, 2, None)), "line 2: the snapshots are not in the order of time"),
        (ndt7(snapshot(1, 2, None), snapshot(2, 1, None)), "line 2: the snapshots are not in the order of time"),
        (ndt7({"TCPInfo": {"ElapsedTime": 1}}, {"TCPInfo": {"ElapsedTime": 2}}), "line 2: no complete result of NDT7: KeyError"),
    ],
)
def test_incomplete_results_of_ndt7(tmp_path, line, message):
    (tmp_path / "results").write_text(ndt7(snapshot(1, 1, None), snapshot(2, 2, None)) + "\n" + line)
    with pytest.raises(ValueError) as caught:
        importers.read([tmp_path / "results"], "ndt7")
    assert message in str(caught.value)


def test_damaged_archives(tmp_path):
    whole = gzip.compress(ndt7(snapshot(1, 1, None), snapshot(2, 2, None)).encode())
    for number, damaged in enumerate((whole[:-10], b"no gzip")):
        (tmp_path / f"{number}.gz").write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged gzip data"):
            importers.read([tmp_path / f"{number}.gz"], "ndt7")


def test_results_of_esnets_harness(tmp_path):
    lines = '["host1", "cubic", 1, "cubic", 8.5, 0.0001, 3, 50]\n["host1", "both", 16, "bbr2", 2.5, 0.0, 0, 50]\n'
    (tmp_path / "lines").write_text(lines)
    header = "site,test,streams,congestion_control,gbit_per_s,retransmit_rate,reordering,rtt_ms\n"
    (tmp_path / "csv").write_text(header + "host1,cubic,1,cubic,8.5,0.0001,3,50\nhost1,both,16,bbr2,2.5,0.0,0,50\n")
    of_lines, of_csv = (importers.read([tmp_path / name], "esnet-harness").frame() for name in ("lines", "csv"))
    assert of_lines.drop(columns="run_id").equals(of_csv.drop(columns="run_id"))
    assert of_csv.tool.tolist() == ["iperf3", "iperf3-beside"] and of_csv.throughput_bits_per_s.tolist() == [8.5e9, 2.5e9]
    assert of_csv.rtt_s.tolist() == [0.05, 0.05] and of_csv.site.tolist() == ["host1", "host1"]
    for name, text, message in [
        ("lines", lines + '["host1", "cubic", 1]\n', "line 3: expected a list of 8 values"),
        ("csv", header + "host1,cubic,many,cubic,8.5,0.0001,3,50\n", "line 2: invalid literal"),
        ("csv", header.replace("rtt_ms", "rtt_s") + "host1,cubic,1,cubic,8.5,0.0001,3,0.05\n", "line 1: column 'rtt_ms' is missing"),
        ("csv", header + "host1,cubic,1,cubic,8.5\n", "line 2: "),
        ("csv", header + "host1,cubic,1,cubic,8.5,0.0001,3,50,7\n", "line 2: more cells than columns"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError) as caught:
            importers.read([tmp_path / name], "esnet-harness")
        assert message in str(caught.value)


def test_an_output_directory_of_esnets_harness(tmp_path):
    """The names are those that job.py of the harness writes; the results are of the real iperf3."""
    job = tmp_path / "2026-01-31:12:00" / "iperf3_cubic"
    job.mkdir(parents=True)
    (job / "jobmeta.json").write_text('{"name": "iperf3_cubic"}')
    for alias, hostname, rtt in (("near", "2001:db8::1", 4), (None, "far.example.org", 0)):
        meta = {"hostname": hostname, "alias": alias, "rtt": rtt, "parent": "x"}
        (job / f"{alias or hostname}-meta.json").write_text(json.dumps(meta))
    text = run_iperf3(35202)
    names = ["src-cmd:2001:db8::1:1", "src-cmd:2001:db8::1:2", "src-cmd:far.example.org:1", "src-cmd:far.example.org:1:bbr:2:88.0ms"]
    for number, name in enumerate(names):
        (job / name).write_text(text.replace(json.loads(text)["start"]["cookie"], f"cookie{number}"))
    (job / "mpstat-sender:2001:db8::1:1.json").write_text("{}")
    frame = importers.read([tmp_path], "esnet-harness", importers.Known(capacity_bits_per_s=1e12)).frame()
    assert frame.site.tolist() == ["near", "near", "far.example.org", "far.example.org"]
    assert frame.rtt_s.tolist()[:2] == [0.004, 0.004] and 0 < frame.rtt_s[2] < 0.004 and frame.rtt_s[3] == 0.088
    assert frame.repetition.tolist() == [0, 1, 0, 0] and (frame.capacity_bits_per_s == 1e12).all()
    (job / "jobmeta.json").write_text('{"src_cmd": "./run.sh {dst}"}')
    assert len(importers.read([tmp_path], "esnet-harness").frame()) == 4
    (job / "src-cmd:far.example.org:2").write_text("Source: gsiftp://far.example.org/\n")
    with pytest.raises(ValueError, match="src-cmd:far.example.org:2"):
        importers.read([tmp_path], "esnet-harness")
    (job / "jobmeta.json").write_text('{"src_cmd": ["iperf3"]}')
    with pytest.raises(ValueError, match=r"jobmeta\.json: no description of a job"):
        importers.read([tmp_path], "esnet-harness")
    (job / "src-cmd:far.example.org:2").unlink()
    (job / "jobmeta.json").write_text('{"src_cmd": "pscheduler task --format json throughput --dest {dst}"}')
    with pytest.raises(ValueError, match="src-cmd:2001:db8::1:1: line 1: no complete throughput result of pScheduler"):
        importers.read([tmp_path], "esnet-harness")
    (job / "jobmeta.json").unlink()
    (job / "src-cmd:other.example.org:1").write_text(text)
    with pytest.raises(ValueError, match="src-cmd:other.example.org:1: no …-meta.json beside it describes its host"):
        importers.read([tmp_path], "esnet-harness")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no file src-cmd:… of the harness is in it"):
        importers.read([tmp_path / "empty"], "esnet-harness")


def test_tables_with_other_units_are_errors(tmp_path):
    table = tmp_path / "runs.csv"
    for text, message in [
        ("tool,rtt_ms,throughput_bits_per_s\nx,5,1\n", "line 1: there is no column 'rtt_ms'; the columns are run_id, tool"),
        ("tool,rtt_s,throughput_bits_per_s\nx,5ms,1\n", "line 2, rtt_s: could not convert string to float: '5ms'"),
        ("tool,rtt_s,throughput_bits_per_s\nx,5\n", "line 2: expected 3 cells"),
    ]:
        table.write_text(text)
        with pytest.raises(ValueError) as caught:
            importers.read([table], "csv")
        assert message in str(caught.value)
    table.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="no UTF-8 text"):
        importers.read([table], "csv")


TRACE = [
    {"type": "begin", "format": 1, "program": "towpath", "date": "2026-01-31T12:00:00Z"},
    {"type": "leg", "leg": 0, "direction": "down", "connections": 1, "duration_s": 2.0, "interval_s": 1.0, "connected_s": 0.1},
]


def sample(t_s, size, **more):
    values = {"type": "sample", "leg": 0, "connection": 0, "sender": True, "t_s": t_s, "bytes": size, "rtt_s": 0.1, "min_rtt_s": 0.09}
    values |= {"cwnd_bytes": 14_480, "busy_s": t_s, "peer_limited_s": 0.0, "buffer_limited_s": 0.0, "control": "bbr"}
    values |= {"peer_window_bytes": 65_536, "starved": False}
    return values | more


def test_traces_of_probes(tmp_path):
    trace = tmp_path / "trace"
    records = [*TRACE, sample(0.5, 1_000), sample(0.7, 5, sender=False), sample(2.0, 4_000)]
    trace.write_text("".join(json.dumps(record) + "\n" for record in records))
    runs = importers.read([trace], "towpath-trace")
    row = runs.frame().iloc[0]
    assert (row.tool, row.transport, row.streams, row["bytes"], row.duration_s) == ("towpath-probe-down", "bbr", 1, 4_000, 2.0)
    assert row.rtt_s == 0.09 and runs.intervals(row.run_id)["bytes"].tolist() == [3_000]
    assert runs.intervals(row.run_id)[["peer_window_bytes", "starved"]].to_numpy().tolist() == [[65_536, False]]
    for records, message in [
        (TRACE, "leg 0 has samples of 0 of 1 senders"),
        ([TRACE[0] | {"format": 2}, *TRACE[1:]], "expected a trace of format 1"),
        ([TRACE[0], TRACE[1] | {"connections": 4}, sample(0.5, 1), sample(2.0, 2)], "leg 0 has samples of 1 of 4 senders"),
        ([*TRACE, {"type": "sample", "t_s": 1.0}], "no complete result of towpath-trace: KeyError"),
        ([TRACE[0], sample(1.0, 1)], "line 2: a sample before the first leg"),
        ([{"kind": "begin"}], "line 1: no record of a trace"),
    ]:
        trace.write_text("".join(json.dumps(record) + "\n" for record in records))
        with pytest.raises(ValueError) as caught:
            importers.read([trace], "towpath-trace")
        assert message in str(caught.value)
