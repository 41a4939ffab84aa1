"""The importer of pScheduler's throughput results."""

import copy
import json

import pytest
from real_iperf3 import run_iperf3

from towpath.lab import importers

KEYS = {
    **{"socket": "stream-id", "start": "start", "end": "end", "omitted": "omitted", "retransmits": "retransmits"},
    **{"bytes": "throughput-bytes", "bits_per_second": "throughput-bits", "snd_cwnd": "tcp-window-size", "rtt": "rtt", "mean_rtt": "rtt"},
}
"""Fields of iperf3, and their names in a result of pScheduler (its tool iperf3, `rename_json`)."""


def renamed(values):
    return {KEYS[key]: value for key, value in values.items() if key in KEYS}


def result_of(output):
    """Returns the result that pScheduler makes of iperf3's."""
    intervals = [
        {"streams": [renamed(stream) for stream in interval["streams"]], "summary": renamed(interval["sum"])}
        for interval in output["intervals"]
    ]
    total = renamed(output["end"]["sum_sent"]) | {"receiver-throughput-bits": output["end"]["sum_received"]["bits_per_second"]}
    streams = [renamed(stream["sender"]) for stream in output["end"]["streams"]]
    return {"succeeded": True, "diags": "", "intervals": intervals, "summary": {"streams": streams, "summary": total}}


@pytest.fixture(scope="module")
def output():
    """The output of the real iperf3."""
    return json.loads(run_iperf3(35204))


@pytest.fixture
def result(output):
    return copy.deepcopy(result_of(output))


NOTHING = importers.Known()


def read(path, document, known=NOTHING):
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return importers.read([path], "pscheduler", known)


def test_a_result_has_the_values_of_iperf3(output, result, tmp_path):
    (tmp_path / "iperf3.json").write_text(json.dumps(output))
    direct = importers.read([tmp_path / "iperf3.json"], "iperf3")
    runs = read(tmp_path / "result.json", result)
    row, expected = runs.frame().iloc[0], direct.frame().iloc[0]
    for column in ("throughput_bits_per_s", "rtt_s", "streams"):
        assert row[column] == pytest.approx(expected[column], rel=1e-9)
    assert json.loads(row.detail) == {"side": "receiver", "sent_bytes": output["end"]["sum_sent"]["bytes"], "reverse": False}
    intervals, others = runs.intervals(row.run_id), direct.intervals(expected.run_id)
    for column in ("stream", "bytes", "rtt_s", "retransmits"):
        assert intervals[column].astype(float).tolist() == pytest.approx(others[column].astype(float).tolist(), nan_ok=True)
    assert intervals.start_s.tolist() == pytest.approx(others.start_s.tolist(), abs=1e-4)


def test_records_of_archivers_and_runs_have_the_conditions(result, tmp_path):
    spec = {"dest": "far.example.org", "duration": "PT1M30.5S", "parallel": 2, "congestion": "bbr", "window-size": 1 << 20}
    record = {
        **{"schedule": {"start": "2026-01-31T12:00:00-05:00", "duration": "PT99S"}, "tool": {"name": "iperf3", "version": "1.0"}},
        **{"test": {"type": "throughput", "spec": spec}, "participants": ["a", "b"], "result": result},
    }
    row = read(tmp_path / "record", record).frame().iloc[0]
    assert (row.tool, row.transport, row.streams, row.buffer_bytes) == ("pscheduler-iperf3", "bbr", 2, 1 << 20)
    assert (row.planned_s, row.site, str(row.started)) == (90.5, "far.example.org", "2026-01-31 17:00:00+00:00")
    lines = (
        json.dumps({"data": {}, "result": record}) + "\n\n" + json.dumps({"start-time": "2026-01-31T12:00:00Z", "result-merged": result})
    )
    frame = read(tmp_path / "lines", lines, importers.Known(transport="cubic")).frame()
    assert frame.run_id.str.rpartition("#")[2].tolist() == ["1", "3"] and frame.tool.tolist() == ["pscheduler-iperf3", "pscheduler"]
    assert frame.transport.tolist() == ["cubic", "cubic"] and frame.started.notna().all()


def test_lines_of_the_command_beside_a_result(result, tmp_path):
    """`pscheduler task --format json` prints them (pscheduler-core, `task` and `watch`)."""
    before = "Submitting task...\nTask URL:\nhttps://far.example.org/tasks/x\nRunning with tool 'iperf3'\nFetching first run...\n"
    text = before + json.dumps(result, indent=2) + "\n\nNo further runs scheduled.\n"
    runs = read(tmp_path / "output", text)
    alone = read(tmp_path / "result", result)
    assert runs.frame().run_id[0].endswith("#6")
    assert runs.frame().throughput_bits_per_s.tolist() == alone.frame().throughput_bits_per_s.tolist()
    # ESnet's harness keeps the output as it is.
    job = tmp_path / "2026-01-31:12:00" / "pscheduler"
    job.mkdir(parents=True)
    (job / "jobmeta.json").write_text('{"src_cmd": "pscheduler task --format json throughput --dest {dst}"}')
    (job / "far-meta.json").write_text('{"hostname": "far", "alias": null, "rtt": 88}')
    (job / "src-cmd:far:1").write_text(text)
    frame = importers.read([tmp_path / "2026-01-31:12:00"], "esnet-harness").frame()
    assert frame.tool.tolist() == alone.frame().tool.tolist() and frame.rtt_s.tolist() == [0.088]
    assert frame.throughput_bits_per_s.tolist() == alone.frame().throughput_bits_per_s.tolist()
    with pytest.raises(ValueError, match="line 6: Expecting value"):
        read(tmp_path / "other", before + "Unable to fetch runs: timeout\n")
    with pytest.raises(ValueError, match="it has no run"):
        read(tmp_path / "none", before)


def test_results_without_a_receiver(result, tmp_path):
    total = result["summary"]["summary"]
    total |= {"start": 0, "end": 4, "throughput-bits": 2 * total["throughput-bytes"]}
    del total["receiver-throughput-bits"]
    row = read(tmp_path / "sender", result).frame().iloc[0]
    assert row["bytes"] == total["throughput-bytes"] and '"side": "sender"' in row.detail
    # iperf2 and ethr fill in a rate. nuttcp has no bytes.
    for change in ({"throughput-bytes": int(total["throughput-bits"] / 8)}, {"throughput-bytes": None}):
        row = read(tmp_path / "rate", result | {"summary": {"streams": [], "summary": total | change}}).frame().iloc[0]
        assert row["bytes"] == pytest.approx(total["throughput-bytes"], rel=1e-3)


def test_a_rate_over_ten_seconds_is_no_byte_count(result, tmp_path):
    total = {"start": 0, "end": 10, "throughput-bits": 8e8, "throughput-bytes": 1e8}
    interval = {"streams": [total | {"stream-id": 1}], "summary": total}
    runs = read(
        tmp_path / "rate", result | {"intervals": [interval], "summary": {"streams": [], "summary": total}}, importers.Known(rtt_s=0.1)
    )
    assert runs.frame()["bytes"].tolist() == [1_000_000_000]
    assert runs.intervals(runs.frame().run_id[0])["bytes"].tolist() == [1_000_000_000] * 2


def without_rtt(result):
    for values in [stream for interval in result["intervals"] for stream in interval["streams"]] + result["summary"]["streams"]:
        values.pop("rtt")
    return result


def with_total(result, **change):
    result["summary"]["summary"] |= {key.replace("_", "-"): value for key, value in change.items()}
    return result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda result: {"succeeded": False, "error": "Connection refused", "diags": ""}, "the test failed: Connection refused"),
        (lambda result: {"state": "nonstart", "errors": "no slot", "result-merged": None}, "the test failed: no slot"),
        (lambda result: {"test": {"type": "latency", "spec": {}}, "result": result}, "a test of type latency, expected throughput"),
        (lambda result: {"test": {"type": "throughput", "spec": {"udp": True}}, "result": result}, "a test of UDP, expected TCP"),
        (lambda result: with_total(result, jitter=0.1), "a test of UDP, expected TCP"),
        (
            lambda result: {"test": {"type": "throughput", "spec": {"bandwidth": 10**8}}, "result": result},
            "a test with bandwidth, expected",
        ),
        (lambda result: with_total(result, throughput_bytes=7), "throughput-bytes 7 is neither the bytes"),
        (lambda result: with_total(result, end=0), "the summary begins at 0 s and ends at 0 s"),
        (without_rtt, "runs have no round trip; state it (rtt_s)"),
        (lambda result: {"succeeded": True}, "no complete throughput result of pScheduler: KeyError 'summary'"),
        (lambda result: [result], "no complete throughput result of pScheduler: "),
        (lambda result: {"start-time": "2026-01-31T12:00:00", "result-merged": result}, "has no time zone"),
        (lambda result: {"test": {"type": "throughput", "spec": {"duration": "P1Y"}}, "result": result}, "'P1Y' is no duration"),
        (lambda result: "{", "line 1: Expecting"),
    ],
)
def test_results_that_are_none(result, tmp_path, change, message):
    with pytest.raises(ValueError) as caught:
        read(tmp_path / "wrong", change(result))
    assert message in str(caught.value) and str(caught.value).startswith(str(tmp_path / "wrong"))
