"""The importer of tasks of Globus."""

import csv
import json

import pytest

from towpath.lab import importers

KNOWN = importers.Known(rtt_s=0.05)

TASK = {
    "DATA_TYPE": "task",
    "task_id": "42277910-0c18-11ec-ba76-000000000000",
    "type": "TRANSFER",
    "status": "SUCCEEDED",
    "request_time": "2026-01-31T12:00:00+00:00",
    "completion_time": "2026-01-31T12:01:40+00:00",
    "bytes_transferred": 10_000_000_000,
    "effective_bytes_per_second": 100_500_000,
    "files": 12,
    "files_transferred": 10,
    "files_skipped": 2,
    "directories": 0,
    "faults": 3,
    "source_endpoint_id": "aa752cea-8222-5bc8-acd9-555b090c0ccb",
    "source_endpoint_display_name": "Near",
    "destination_endpoint_id": "313ce13e-b597-5858-ae13-29e46fea26e6",
    "destination_endpoint_display_name": "Far",
    "label": None,
    "owner_id": "5276fa05-eedf-46c5-919f-ad2d0160d1a9",
    "username": "someone",
}
"""A task document with some of the fields of the service (docs.globus.org/api/transfer/task), and other values."""

OTHER = TASK | {"task_id": "b", "request_time": "2026-01-31T07:00:00-05:00", "faults": 0}


def read(path, text, known=KNOWN):
    path.write_text(text)
    return importers.read([path], "globus", known)


def test_tasks_as_json_and_csv(tmp_path):
    shown = read(tmp_path / "show", json.dumps(TASK))
    row = shown.frame().iloc[0]
    assert (row.tool, row["bytes"], row.duration_s, row.throughput_bits_per_s, row.rtt_s) == ("globus", 10**10, 100.0, 8e8, 0.05)
    detail = json.loads(row.detail)
    assert (detail["faults"], detail["files"], detail["destination_endpoint_display_name"]) == (3, 12, "Far")
    assert "someone" not in row.detail and TASK["owner_id"] not in row.detail
    listed = read(tmp_path / "list", json.dumps({"DATA": [TASK, OTHER]}))
    assert listed.frame().repetition.tolist() == [0, 1] and listed.frame().started.nunique() == 1
    with (tmp_path / "table").open("w") as file:
        writer = csv.DictWriter(file, TASK)
        writer.writeheader()
        writer.writerows([TASK, OTHER])
    assert read(tmp_path / "csv", (tmp_path / "table").read_text()).table.equals(listed.table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "DELETE"}, "type DELETE, expected TRANSFER: list tasks with --filter-type TRANSFER"),
        ({"status": "ACTIVE", "completion_time": None}, "status ACTIVE, expected SUCCEEDED"),
        ({"completion_time": TASK["request_time"]}, "completed in the second of its request"),
        ({"completion_time": "2026-01-31"}, "completion_time: 2026-01-31 has no time zone"),
        ({"completion_time": "later"}, "completion_time: Invalid isoformat string"),
        ({"bytes_transferred": "10 GB"}, "bytes_transferred: invalid literal"),
        ({"bytes_transferred": None}, "no task of Globus: TypeError"),
    ],
)
def test_tasks_that_are_no_runs(tmp_path, change, message):
    with pytest.raises(ValueError) as caught:
        read(tmp_path / "tasks", json.dumps({"DATA": [TASK, OTHER | change]}))
    assert f"{tmp_path / 'tasks'}: task 2: {message}" in str(caught.value)


def test_other_files(tmp_path):
    for text, message in [
        ("{", "Expecting"),
        ("task_id,type\nx,TRANSFER\n", "line 2: no task of Globus: KeyError 'status'"),
        ("task_id,type\nx,TRANSFER,more\n", "line 2: expected 2 cells"),
        ("task_id,type\nx\n", "line 2: expected 2 cells"),
    ]:
        with pytest.raises(ValueError, match=message):
            read(tmp_path / "x", text)
    with pytest.raises(ValueError, match=r"1 of 1 runs have no round trip; state it \(rtt_s\)"):
        read(tmp_path / "x", json.dumps(TASK), importers.Known())
