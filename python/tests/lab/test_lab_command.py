"""Plans, campaigns over the real emulator, and the command."""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from towpath.lab.measure.campaign import Campaign, size_of
from towpath.lab.measure.emulator import permitted_transports
from towpath.lab.measure.machine import ProcessorTimes, ProcessorUse
from towpath.lab.measure.plan import Plan
from towpath.lab.models import ramp
from towpath.lab.profiles import profile_of
from towpath.lab.profiles.transition import find_transition
from towpath.lab.runs import Runs

STARTED = datetime(2026, 1, 2, tzinfo=timezone.utc)
DEADLINE_S = 120
PLAN = """
tools = ["iperf3", "towpath-probe", "towpath-cp", "xrdcp", "gridftp"]
rtt_ms = [10]
streams = [2]
transports = ["cubic"]
buffers = ["8MiB"]
repetitions = 1
seconds = 1
megabytes = 5
[emulator]
rate = "100Mbit"
queue = "256KiB"
"""


def lab(*arguments, **options):
    command = [sys.executable, "-m", "towpath.lab", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, **options)


def test_a_plan_has_all_combinations_in_random_order():
    text = PLAN.replace("[10]", "[10, 100]").replace("[2]", "[1, 4]").replace("repetitions = 1", "repetitions = 3")
    plan = Plan.parse(text)
    cells = plan.cells()
    # towpath cp chooses the number of connections.
    assert len(cells) == plan.size == 3 * 2 * 9 and len({cell.run_id for cell in cells}) == len(cells)
    assert [cell.repetition for cell in cells] == sorted(cell.repetition for cell in cells)
    orders = [[(cell.rtt_ms, cell.tool, cell.streams) for cell in cells if cell.repetition == repetition] for repetition in range(3)]
    assert orders[0] != orders[1] and sorted(map(str, orders[0])) == sorted(map(str, orders[1]))
    assert plan.cells() == cells and Plan.parse("seed = 1\n" + text).cells() != cells
    assert plan.emulator.capacity_bits_per_s == pytest.approx(100e6 * 1448 / 1538)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("rtt_ms = [10]", "rtt_ms = [10, 0.01]", "plan: rtt_ms = (10, 0.01): expected different numbers from 0.1 to 2000"),
        ("rtt_ms = [10]", "rtt_ms = 10", "rtt_ms = 10: expected different numbers"),
        ("rtt_ms = [10]", "rtt_ms = []", "rtt_ms = (): expected"),
        ("rtt_ms = [10]", "rtt_ms = [nan]", "rtt_ms = (nan,): expected"),
        (
            '"iperf3", ',
            '"iperf", ',
            "tools = ('iperf', 'towpath-probe', 'towpath-cp', 'xrdcp', 'gridftp'): expected different ones of iperf3",
        ),
        ("streams = [2]", "streams = []", "streams = (): expected different numbers from 1 to 64"),
        ("streams = [2]", "streams = [2, 16]", "streams = [2, 16]: xrdcp has at most 15"),
        ("streams = [2]", "streams = [2, 2]", "streams = (2, 2): expected different numbers"),
        ("streams = [2]", "streams = [true]", "streams = (True,): expected different numbers"),
        ("seconds = 1", "second = 1", "there is no key 'second'; the keys are"),
        ('rate = "100Mbit"', 'rate = "100Mb"', "rate = '100Mb': expected a rate such as 1Gbit"),
        ('rate = "100Mbit"', "", "the key 'rate' is missing"),
        ("[emulator]", "[emulators]", "expected the table [emulator]"),
        ("repetitions = 1", "repetitions = 1000\nrepetitions = 2", "plan: "),
    ],
)
def test_invalid_plans(before, after, message):
    with pytest.raises(ValueError) as caught:
        Plan.parse(PLAN.replace(before, after))
    assert message in str(caught.value)


def test_the_processors_are_the_limit_if_they_are_busy():
    before, after = (
        ProcessorTimes(f"cpu {2 * busy} 0 0 {idle} 0 0 0 0\ncpu0 {busy} 0 0 0 0 0 0 0\ncpu1 {busy} 0 0 {idle} 0 0 0 0\nintr 5\n")
        for busy, idle in ((100, 1_000), (200, 1_020))
    )
    use = after.use_since(before)
    assert (use.busy, use.busiest, use.stolen) == pytest.approx((200 / 220, 1.0, 0.0))
    limits = [
        use.limit(0),
        ProcessorUse(0.1, 0.2, 0.0).limit(1),
        ProcessorUse(0.5, 1.0, 0.0).limit(0),
        ProcessorUse(0.5, 0.9, 0.0).limit(0),
    ]
    assert limits == ["cpu", "cpu", "cpu", None]


def test_runs_of_the_table_that_the_lines_lack_are_kept(tmp_path):
    cells = Campaign(tmp_path, PLAN, "plan").missing()
    rows = [
        {"run_id": cell.run_id, "tool": cell.tool, "rtt_s": 0.01, "repetition": 0, "throughput_bits_per_s": 1e9, "started": STARTED}
        for cell in cells[:2]
    ]
    Runs.of_rows(rows).write(tmp_path / "runs.parquet")
    assert len(Campaign(tmp_path, PLAN, "plan").missing()) == len(cells) - 2
    lines = tmp_path / "runs.jsonl"
    lines.write_text(lines.read_text().splitlines(keepends=True)[1])
    campaign = Campaign(tmp_path, PLAN, "plan")
    assert [row["run_id"] for row in campaign.rows] == [cells[1].run_id, cells[0].run_id]


def test_sizes():
    assert [size_of(text) for text in ("5", "5B", "3kB", "64MiB", "2GB")] == [5, 5, 3_000, 64 << 20, 2 * 10**9]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """A campaign with each tool over the emulator, which was interrupted while a run was written."""
    if os.geteuid() != 0:
        pytest.skip("the emulator needs root")
    directory = tmp_path_factory.mktemp("campaign")
    plan = directory / "plan.toml"
    plan.write_text(PLAN)
    command = [Path(sysconfig.get_path("scripts")) / "towpath", "lab", "measure", plan]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    lines = directory / "plan" / "runs.jsonl"
    content = lines.read_text().splitlines(keepends=True)
    assert len(content) == 5
    lines.write_text("".join(content[:4]) + content[4][:50])
    (directory / "plan" / "runs.parquet").unlink()
    again = lab("measure", plan)
    assert again.returncode == 0 and again.stdout.startswith("1/1 "), again.stdout + again.stderr
    return directory / "plan"


def test_a_campaign_measures_with_each_tool(campaign):
    runs = Runs.read(campaign / "runs.parquet")
    frame = runs.frame().set_index("tool")
    assert sorted(frame.index) == ["gridftp", "iperf3", "towpath-cp", "towpath-probe", "xrdcp"]
    assert frame.rtt_s.tolist() == [0.01] * 5 and frame.transport.tolist() == ["cubic"] * 5
    assert frame.buffer_bytes.tolist() == [8 << 20] * 5 and frame.queue.tolist() == ["256KiB"] * 5 and frame.loss.isna().all()
    # Below the payload that the link can carry, and far above that of a wrong unit.
    assert frame.throughput_bits_per_s.between(10e6, 100e6 * 1448 / 1538 * 1.01).all()
    copies = frame.loc[["xrdcp", "towpath-cp", "gridftp"]]
    assert copies["bytes"].tolist() == copies.planned_bytes.tolist() == [5_000_000] * 3
    machine = json.loads(frame.machine.iloc[0])
    assert machine["processors"] == os.cpu_count() and 0 < machine["busy"] <= 1
    for tool in ("iperf3", "towpath-probe"):
        intervals = runs.intervals(frame.loc[tool].run_id)
        received = intervals[intervals.stream >= 0].groupby("stream")["bytes"].sum()
        assert len(received) == 2 and received.sum() == pytest.approx(frame.loc[tool]["bytes"], rel=0.25)


def test_a_campaign_keeps_its_plan(campaign):
    with pytest.raises(ValueError, match="continue with the same plan"):
        Campaign(campaign, PLAN + "loss = 0.1", "plan.toml")
    assert Campaign(campaign, PLAN, "plan.toml").missing() == []
    again = lab("measure", campaign.parent / "plan.toml")
    assert again.returncode == 0 and again.stdout == f"wrote {campaign / 'runs.parquet'}: 5 of 5 runs\n"


REFINED = """tools = ["iperf3"]
rtt_ms = [1, 20, 50, 100, 200]
repetitions = 4
refinements = 3
[emulator]
rate = "1Gbit"
"""


def write_runs(directory, random, limit=lambda rtt_ms: None):
    """Writes the missing runs of a path whose buffers suffice up to 70 ms, and returns their cells."""
    cells = Campaign(directory, REFINED, "plan.toml").missing()
    path = {"capacity_bits_per_s": 9.4e8, "duration_s": 10, "buffer_bytes": 9.4e8 * 0.07 / 8}
    with (directory / "runs.jsonl").open("a") as lines:
        for cell in cells:
            rate = ramp(cell.rtt_ms / 1e3, **path).throughput_bits_per_s[0] * (1 + 0.01 * random.standard_normal())
            row = {"run_id": cell.run_id, "tool": cell.tool, "rtt_s": cell.rtt_ms / 1e3, "repetition": cell.repetition}
            row |= {"throughput_bits_per_s": rate, "limited_by": limit(cell.rtt_ms), "started": "2026-01-01T00:00:00+00:00"}
            lines.write(json.dumps(row) + "\n")
    return cells


def test_refinements_close_in_on_the_transition(tmp_path):
    random, rounds = np.random.default_rng(4), []
    while cells := write_runs(tmp_path, random):
        rounds.append(sorted({cell.rtt_ms for cell in cells}))
        assert len(cells) == 4 * len(rounds[-1])
    assert rounds[:2] == [[1, 20, 50, 100, 200], [35, 75]] and len(rounds) == 4
    campaign = Campaign(tmp_path, REFINED, "plan.toml")
    assert len(campaign.cells()) == 4 * (5 + 3 * 2)
    profile = profile_of(campaign.runs())
    low_s, high_s = find_transition(profile).bracket_s
    before_s = max(rtt for rtt in profile.rtt_s if rtt < low_s)
    assert before_s <= 0.07 <= high_s and high_s - before_s < 0.02
    # The table alone is enough to continue.
    campaign.write_table()
    (tmp_path / "runs.jsonl").unlink()
    assert len(Campaign.of_directory(tmp_path).rows) == len(campaign.rows)
    assert Campaign(tmp_path, REFINED, "plan.toml").missing() == []
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == len(campaign.rows)


def test_round_trips_whose_runs_were_limited_are_not_measured_again(tmp_path):
    for _ in range(2):
        write_runs(tmp_path, np.random.default_rng(4), lambda rtt_ms: "cpu" if rtt_ms not in (1, 20, 50, 100, 200) else None)
    cells = Campaign(tmp_path, REFINED, "plan.toml").cells()
    assert len(cells) == len(set(cells)) == 4 * 7


SITES = """tools = ["iperf3", "towpath-probe", "towpath-cp", "xrdcp"]
repetitions = 1
seconds = 1
[[sites]]
name = "near"
iperf3 = "127.0.0.1:{iperf3}"
url = "root://127.0.0.1:{port}//file"
rate = "100Gbit"
[[sites]]
name = "gone"
iperf3 = "127.0.0.1:1"
url = "root://127.0.0.1:1//file"
"""


def test_a_campaign_between_real_hosts(tmp_path):
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file").write_bytes(bytes(30_000_000))
    iperf3, port = free_port(), free_port()
    plan = tmp_path / "plan.toml"
    plan.write_text(SITES.format(iperf3=iperf3, port=port))
    towpath = Path(sysconfig.get_path("scripts")) / "towpath"
    servers = [["iperf3", "--server", "--port", str(iperf3)], [towpath, "serve", tmp_path / "served", "--listen", f"127.0.0.1:{port}"]]
    running = [subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for server in servers]
    try:
        for listening in (iperf3, port):
            wait_for(listening)
        done = lab("measure", plan)
    finally:
        for server in running:
            server.terminate()
            server.wait()
    # The site that is gone costs no run of the other one.
    assert done.returncode == 1 and done.stdout.endswith("plan/runs.parquet: 4 of 8 runs\n") and "4 runs failed" in done.stderr
    assert done.stdout.count("site gone: [Errno 111] Connection refused") == 4
    frame = Runs.read(tmp_path / "plan" / "runs.parquet").frame()
    assert sorted(frame.tool) == ["iperf3", "towpath-cp", "towpath-probe", "xrdcp"] and set(frame.site) == {"near"}
    assert frame.transport.isna().all() and frame.rtt_s.nunique() == 1 and frame.rtt_s.iloc[0] < 0.01
    assert frame.planned_bytes.dropna().tolist() == [30_000_000] * 2 and (frame.throughput_bits_per_s > 1e7).all()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def wait_for(port):
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens at port {port}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"iperf3 =": "iperf ="}, "site 1: there is no key 'iperf'"),
        ({"repetitions": "rtt_ms = [1]\nrepetitions"}, "rtt_ms belongs to plans with an [emulator]"),
        ({'["iperf3",': '["gridftp",'}, "gridftp is for the emulator only"),
        ({'name = "gone"': 'name = "near"'}, "two sites have one name"),
        ({'iperf3 = "127.0.0.1:1"\n': ""}, "site 2: iperf3 needs the key iperf3"),
        ({"[[sites]]": "[sites]", 'name = "gone"': "", 'iperf3 = "127.0.0.1:1"': "", 'url = "root://127.0.0.1:1//file"': ""}, "sites = "),
        ({"root://": "root:/"}, "expected a URL such as"),
    ],
)
def test_invalid_sites(change, message):
    text = SITES.format(iperf3=5201, port=1094)
    for before, after in change.items():
        assert before in text
        text = text.replace(before, after) if before != "[[sites]]" else text.replace(before, after, 1).replace(before, "")
    with pytest.raises(ValueError, match=re.escape(message)):
        Plan.parse(text)


def test_a_campaign_that_lacks_runs_is_reported(campaign, tmp_path):
    copy = tmp_path / "campaign"
    shutil.copytree(campaign, copy)
    lines = (copy / "runs.jsonl").read_text().splitlines(keepends=True)
    (copy / "runs.jsonl").write_text("".join(lines[:3]))
    done = lab("profile", copy, "--with-limited")
    assert done.returncode == 1 and done.stderr == f"towpath lab: {copy}: 2 of 5 runs are missing; they may be slow ones\n"
    assert lab("profile", campaign, "--with-limited").returncode == 0
    # The table of a campaign does not say what is missing, but its plan does.
    assert lab("profile", copy / "runs.parquet", "--with-limited").returncode == 1
    assert lab("report", copy).returncode == 1 and "2 runs of the plan are missing" in (copy / "report.html").read_text()


def test_only_one_campaign_measures(campaign, tmp_path):
    (tmp_path / "plan.toml").write_text(PLAN)
    before = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text()
    with permitted_transports():
        done = lab("measure", tmp_path / "plan.toml")
    assert done.returncode == 1 and "another campaign runs on this machine" in done.stderr and "0 of 5 runs" in done.stdout
    assert Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text() == before


HARNESS = "site,test,streams,congestion_control,gbit_per_s,retransmit_rate,reordering,rtt_ms\n" + "".join(
    f"host,cubic,1,cubic,{rate + change},0,0,{rtt}\n"
    for rtt, rate in ((10, 9.5), (50, 9), (100, 7), (150, 2), (200, 1))
    for change in (0, 0.1, 0.2)
)


@pytest.fixture
def table(tmp_path):
    (tmp_path / "harness.csv").write_text(HARNESS)
    source, target = tmp_path / "harness.csv", tmp_path / "runs.parquet"
    done = lab("import", source, "--format", "esnet-harness", "--capacity", "1e10", "--output", target)
    assert (done.returncode, done.stdout) == (0, f"wrote {target}: 15 runs of 1 configuration\n"), done.stderr
    return target


def test_an_import_counts_lost_records(tmp_path):
    source, target = tmp_path / "probe.txt", tmp_path / "runs.parquet"
    event = "ab-1 [0] ..... {t_s:.6f}: tcp_probe: src=10.0.0.1:1 dest=10.0.0.2:2 snd_una={number:#x} snd_cwnd=10 srtt=9\n"
    source.write_text(event.format(t_s=1, number=0) + "CPU:1 [LOST 7 EVENTS]\n" + event.format(t_s=2, number=9_000))
    done = lab("import", source, "--format", "tcp-probe", "--output", target)
    lost = f"towpath lab: {source}: the kernel lost 7 events; record to a file, or enlarge buffer_size_kb\n"
    assert (done.returncode, done.stderr, done.stdout) == (1, lost, f"wrote {target}: 1 run of 1 configuration\n")


def test_settings_are_imported_and_exported(tmp_path):
    (tmp_path / "runs.csv").write_text("tool,rtt_s,throughput_bits_per_s\nx,0.1,1e8\n")
    known = ["--transport", "bbr", "--buffer", "64MiB"]
    lab("import", tmp_path / "runs.csv", "--format", "csv", *known, "--output", tmp_path / "runs.parquet")
    done = lab("export", tmp_path / "runs.parquet", "--output", tmp_path / "again.csv")
    assert (done.returncode, done.stdout) == (0, f"wrote {tmp_path / 'again.csv'}: 1 run\n"), done.stderr
    header, row = (line.split(",") for line in (tmp_path / "again.csv").read_text().splitlines())
    assert {"transport": "bbr", "buffer_bytes": "67108864", "rtt_s": "0.1"}.items() <= dict(zip(header, row, strict=True)).items()


def test_the_command_compares_sites(tmp_path):
    header = "tool,site,rtt_s,throughput_bits_per_s\n"
    sites = [("near", 0.01, 9e8), ("middle", 0.05, 1e8), ("far", 0.2, 8e8), ("farther", 0.3, 2e8)]
    runs = "".join(f"x,{site},{rtt_s},{rate * factor}\n" for site, rtt_s, rate in sites for factor in (0.99, 1.01))
    (tmp_path / "sites.csv").write_text(header + runs)
    lab("import", tmp_path / "sites.csv", "--format", "csv", "--output", tmp_path / "sites.parquet")
    lines = lab("sites", tmp_path / "sites.parquet").stdout.splitlines()
    assert lines[:2] == ["x", "  undecided: round trips explain 0% of the variance between 4 sites, at most 51%"]
    assert [line.split()[2] for line in lines[2:]] == ["near", "middle", "far", "farther"]
    (document,) = json.loads(lab("sites", tmp_path / "sites.parquet", "--json").stdout)
    assert document["means_bits_per_s"] == pytest.approx([rate for _, _, rate in sites]) and document["verdict"] == "undecided"
    assert document["excluded"] == 0
    limited = Runs.read(tmp_path / "sites.parquet").table.to_pylist()
    Runs.of_rows([limited[0] | {"limited_by": "cpu"}, *limited[1:]]).write(tmp_path / "limited.parquet")
    assert "  left out: 1 run that the machine limited\n" in lab("sites", tmp_path / "limited.parquet").stdout
    (tmp_path / "sites.csv").write_text(header + runs + "x,,0.1,1e8\n")
    lab("import", tmp_path / "sites.csv", "--format", "csv", "--output", tmp_path / "sites.parquet")
    done = lab("sites", tmp_path / "sites.parquet")
    assert (done.returncode, done.stdout) == (1, "x\n  no verdict: 1 of 9 runs without a site\n")


def test_the_command_prints_a_profile(table):
    assert lab("profile", table).stdout == (
        "iperf3 cubic × 1, path of 10 Gbit/s\n"
        "        10 ms      9600.0 Mbit/s  (9027.0 to 10173.0)  3 runs\n"
        "        50 ms      9100.0 Mbit/s  (8527.0 to 9673.0)  3 runs\n"
        "       100 ms      7100.0 Mbit/s  (6527.0 to 7673.0)  3 runs\n"
        "       150 ms      2100.0 Mbit/s  (1527.0 to 2673.0)  3 runs\n"
        "       200 ms      1100.0 Mbit/s  (527.0 to 1673.0)  3 runs\n"
        "  less than 10 runs at a round trip: the intervals may be too narrow\n"
        "  shape: dual, transition between 100 and 150 ms\n"
        "  C_UU 0.427 (0.420 to 0.433), C_CC 0.038 (0.029 to 0.047), C_UC 0.556 (0.549 to 0.562), "
        "C_V 1.000 (1.000 to 1.000), C_UCV 0.704 (0.699 to 0.708)\n"
    )
    [result] = json.loads(lab("profile", table, "--json").stdout)
    assert result["transition"] == {"shape": "dual", "shapes": ["dual"], "bracket_s": [0.1, 0.15], "set_s": [[0.1, 0.15]]}
    assert result["coefficients"]["normaliser"] == "capacity" and result["profile"]["runs"] == [3] * 5


def test_the_choice_can_be_taught(tmp_path):
    rows = [
        {
            "run_id": f"{streams} {rtt} {repetition}",
            "tool": "iperf3",
            "streams": streams,
            "rtt_s": rtt,
            "repetition": repetition,
            "throughput_bits_per_s": rate + repetition * 1e6,
        }
        for streams, rates in ((1, (9e8, 2e8)), (4, (9e8, 8e8)), (10, (9e8, 8.01e8)))
        for rtt, rate in zip((0.01, 0.1), rates, strict=True)
        for repetition in range(10)
    ]
    Runs.of_rows(rows).write(tmp_path / "runs.parquet")
    assert lab("choose", tmp_path / "runs.parquet", "--rtt-ms", "100").stdout == (
        "chosen: iperf3 × 4: 804.5 Mbit/s (801.9 Mbit/s to 807.1 Mbit/s)\n"
        "as good: iperf3 × 10: 805.5 Mbit/s (802.9 Mbit/s to 808.1 Mbit/s)\n"
        "worse: iperf3 × 1: 204.5 Mbit/s (201.9 Mbit/s to 207.1 Mbit/s)\n"
        "all 3 intervals are right with a probability of at least 85 %\n"
        "caution: the best of 3 noisy means is too high on average: measure the chosen configuration again\n"
        "caution: neither duration nor volume of the runs was planned, so that unequal ones may be compared\n"
    )
    memory = tmp_path / "memory"
    done = lab("teach", "root://far.example.org//data", "-", tmp_path / "runs.parquet", "--rtt-ms", "100", "--file", memory)
    assert done.returncode == 0 and "4 connections" in done.stdout and "caution: the best of 3" in done.stdout, done.stderr
    assert memory.read_text().startswith("root://far.example.org/ - 4 100562500 ") and "congestion control" not in done.stdout
    of_bbr = Runs.of_rows([row | {"transport": "bbr", "buffer_bytes": 1 << 26} for row in rows])
    of_bbr.write(tmp_path / "bbr.parquet")
    done = lab("teach", "root://far.example.org//data", "-", tmp_path / "bbr.parquet", "--rtt-ms", "100", "--file", tmp_path / "other")
    assert "caution: these runs had bbr; a copy has the congestion control of the sending host" in done.stdout
    assert "caution: these runs had buffers of 64 MiB" in done.stdout
    done = lab("choose", tmp_path / "bbr.parquet", "--rtt-ms", "100", "--transport", "cubic")
    assert done.returncode == 5 and "the tables have no run with transport cubic" in done.stderr
    memory.write_text(memory.read_text() + "root://old.example.org/ - 2 1000 1700000000\n")
    listed = lab("learn", "--file", memory).stdout.splitlines()
    assert "root://far.example.org/" in listed[1] and "expired" not in listed[1] and listed[2].endswith("expired")
    rows[0]["limited_by"] = "cpu"
    Runs.of_rows(rows).write(tmp_path / "limited.parquet")
    assert (
        lab("choose", tmp_path / "limited.parquet", "--rtt-ms", "100").stderr == "towpath lab: 1 run left out, which the machine limited\n"
    )
    done = lab("choose", tmp_path / "runs.parquet", "--rtt-ms", "200")
    assert done.returncode == 5 and "expected one with an interval at 0.2 s" in done.stderr


def test_a_report_is_one_page(table):
    done = lab("report", table, "--title", "Far <hosts>")
    page = table.with_suffix(".html").read_text()
    assert done.returncode == 0 and "<h1>Far &lt;hosts&gt;</h1>" in page and page.count("<svg") == 2
    assert "transition between 100 and 150 ms" in page and "less than 10 runs at a round trip" in page
    assert "<script" not in page and 'href="http' not in page.replace('xlink:href="#', "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["profile", "missing.parquet"], 3, "towpath lab: missing.parquet: no such file\n"),
        (["profile", "wrong.parquet"], 5, "towpath lab: wrong.parquet: no Parquet file"),
        (["measure", "wrong.parquet"], 5, "towpath lab: wrong.parquet: Expected"),
        (["import", "wrong.parquet", "--format", "iperf3", "--output", "x"], 5, "towpath lab: wrong.parquet: line 1: no JSON of iperf3"),
        (["learn", "--file", "missing"], 3, "towpath lab: missing: no such file\n"),
        (["profile"], 2, "usage: towpath lab profile"),
        (["unknown"], 2, "usage: towpath lab"),
    ],
)
def test_errors_have_their_exit_codes(tmp_path, arguments, code, message):
    (tmp_path / "wrong.parquet").write_text("wrong")
    done = lab(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "") and done.stderr.startswith(message), done.stderr
    assert "Traceback" not in done.stderr


def test_the_program_runs_the_lab_of_its_environment(tmp_path):
    program = Path(sysconfig.get_path("scripts")) / "towpath"
    # Modules of the current directory, which another user may have written, are not imported.
    (tmp_path / "towpath").mkdir()
    (tmp_path / "towpath" / "__init__.py").write_text("raise SystemExit(99)")
    (tmp_path / "json.py").write_text("raise SystemExit(99)")
    done = subprocess.run([program, "lab", "--help"], capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("usage: towpath lab"), done.stderr


def test_without_the_package_the_error_names_it(tmp_path):
    program = tmp_path / "towpath"
    program.write_bytes((Path(sysconfig.get_path("scripts")) / "towpath").read_bytes())
    program.chmod(0o755)
    done = subprocess.run([program, "lab", "--help"], capture_output=True, text=True, timeout=DEADLINE_S, env={"PATH": "/usr/bin"})
    assert done.returncode == 2 and "pip install 'towpath[lab]'" in done.stderr
