"""Predictions of copies, and the mover's memory of paths."""

import json
import math
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from towpath.lab import path_memory
from towpath.lab.measure.emulator import SERVER, emulated_path, permitted_transports
from towpath.lab.measure.plan import Cell, Emulator
from towpath.lab.predict import Calibration, emulated_copies, parts, predict, run_probe, total

DEADLINE_S = 60
PROGRAM = Path(sysconfig.get_path("scripts")) / "towpath"

PARTS = {"setup_s": 1.0, "network_s": 9.0, "storage_s": None, "files_s": 0.1}
PREDICTION = {"seconds": 10.0, "bound": "network", "files": 3, "bytes": 5_000, "assumptions": ["nothing changes"]} | PARTS
PROBE = {"predictions": [PREDICTION], "not_measured": []}


def test_the_interval_has_the_intended_share_of_equal_copies():
    random, covered = np.random.default_rng(3), []
    for _ in range(300):
        ratios = np.exp(0.1 + 0.2 * random.standard_normal(60))
        calibration = Calibration.of_copies(np.full(59, 10.0), 10 * ratios[:59])
        found = predict(PROBE, calibration)
        covered.append(found.earliest_s <= 10 * ratios[59] <= found.latest_s)
        assert found.earliest_s < found.seconds < found.latest_s
    assert 0.85 <= np.mean(covered) <= 0.95


@given(st.lists(st.floats(0.1, 10), min_size=19, max_size=60), st.floats(1e-3, 1e3))
def test_the_unit_does_not_count(ratios, factor):
    one = Calibration.of_copies(np.full(len(ratios), factor), factor * np.array(ratios)).factors(0.9)
    assert one == pytest.approx(Calibration.of_copies(np.ones(len(ratios)), ratios).factors(0.9))


def test_ranks_of_a_small_calibration():
    calibration = Calibration.of_copies(np.ones(19), range(1, 20))
    assert calibration.factors(0.9) == pytest.approx((1, 19))
    assert calibration.factors(0.5) == pytest.approx((5, 15))
    with pytest.raises(ValueError, match=r"19 own copies reach at most 0\.90, not 0\.95"):
        calibration.factors(0.95)


@pytest.mark.parametrize(
    ("predicted", "actual", "message"),
    [
        ([], [], "one at least"),
        ([1], [1, 2], "expected as many"),
        ([1, 0], [1, 1], r"predicted_s: expected more than 0 s, not 0\.0"),
        ([1, 1], [1, math.nan], "actual_s: expected more than 0 s, not nan"),
    ],
)
def test_invalid_calibrations(predicted, actual, message):
    with pytest.raises(ValueError, match=message):
        Calibration.of_copies(predicted, actual)


def test_a_calibration_from_a_file(tmp_path):
    file = tmp_path / "copies.jsonl"
    file.write_text('{"predicted_s": 2, "actual_s": 3}\n{"predicted_s": 2, "actual_s": 1, "rtt_ms": 5}\n')
    assert np.exp(Calibration.read(file).log_ratios) == pytest.approx([0.5, 1.5])
    file.write_text('{"predicted_s": 2, "actual_s": 3}\n{"predicted_s": 2}\n')
    with pytest.raises(ValueError, match=r"copies\.jsonl: line 2: expected a JSON object with predicted_s and actual_s"):
        Calibration.read(file)


def test_the_package_has_a_calibration():
    for with_profile in (False, True):
        ends = [emulated_copies(rtt_s, with_profile=with_profile).factors(0.9) for rtt_s in (0, 0.019, 0.02, 0.099, 0.1, 10)]
        assert ends[0::2] == ends[1::2]
        short, medium, long = (upper / lower for lower, upper in ends[0::2])
        assert 1 < short < min(medium, long) < max(medium, long) < 2.5


def test_the_default_calibration_is_that_of_the_round_trip():
    short, long, unknown = (predict(PROBE | {"min_rtt_s": rtt_s}) for rtt_s in (0.001, 0.1, None))
    assert short.calibration.endswith("short round trips") and long == unknown
    assert (short.earliest_s, short.latest_s) == pytest.approx([10 * factor for factor in emulated_copies(0.001).factors(0.9)])


def test_a_probe_without_a_prediction_says_why():
    probe = {"predictions": [], "not_measured": [{"leg": "network down", "reason": "the server is not towpath"}]}
    with pytest.raises(ValueError, match=r"expected one prediction \(network down: the server is not towpath\)"):
        predict(probe, Calibration.of_copies([1], [1]))


def test_a_probe_is_between_a_server_and_this_machine():
    for places in (("a", "b"), ("root://a//x", "root://b//x"), ("file:///a", "b")):
        with pytest.raises(ValueError, match="expected one URL and one local place"):
            run_probe([PROGRAM], *places, seconds=5, files=None, size=None)


@pytest.fixture
def server(tmp_path):
    """A real server with a file of 20 MB, to which clients may write."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_bytes(bytes(20_000_000))
    command = [PROGRAM, "serve", tmp_path / "far", "--listen", "127.0.0.1:0", "--writable"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        yield f"root://{process.stdout.readline().removeprefix('listening on ').strip()}"
        process.terminate()


def test_a_copy_is_predicted_from_a_real_probe(server, tmp_path):
    calibration = tmp_path / "copies.jsonl"
    calibration.write_text("".join(json.dumps({"predicted_s": 1, "actual_s": 0.9 + 0.01 * number}) + "\n" for number in range(21)))
    lab = [sys.executable, "-m", "towpath.lab", "predict", "--seconds", "1", "--calibration", calibration]
    done = subprocess.run([*lab, f"{server}//file", tmp_path, "--json"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["files"], found["bytes"], found["calibration"]) == (1, 20_000_000, f"21 copies of {calibration}")
    assert found["earliest_s"] / found["seconds"] == pytest.approx(0.9) and found["latest_s"] / found["seconds"] == pytest.approx(1.1)
    document = run_probe([PROGRAM], f"{server}//file", str(tmp_path), seconds=1, files=None, size=None)
    assert total(parts(document)) == pytest.approx(document["predictions"][0]["seconds"])
    (tmp_path / "near").mkdir()
    upload = [tmp_path / "near", f"{server}//near", "--files", "3", "--bytes", "5MB"]
    done = subprocess.run([*lab, *upload], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and done.stdout.startswith("3 files, 5 MB: about "), done.stderr
    done = subprocess.run([*lab, "root://127.0.0.1:1//x", tmp_path], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 1 and "cannot connect to 127.0.0.1:1" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="the emulator needs root")
def test_a_probe_of_a_long_path_takes_30_round_trips(tmp_path):
    with permitted_transports(), emulated_path(PROGRAM, Emulator("50Mbit"), Cell(0, 300, "cubic", None, "towpath-probe", None)) as hosts:
        serve = hosts.command(2, PROGRAM, "serve", tmp_path, "--listen", f"{SERVER}:1094")
        with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            process.stdout.readline()
            document = run_probe(hosts.command(1, PROGRAM), f"root://{SERVER}:1094//", str(tmp_path), seconds=None, files=1, size="1GB")
            process.terminate()
    assert document["network"][0]["seconds"] == pytest.approx(30 * document["min_rtt_s"], rel=0.02)
    # Slow start is over in the second half.
    assert 40e6 < 8 * document["network"][0]["settled_rate_bytes_per_s"] < 50e6


def test_the_program_uses_the_number_of_connections_that_was_taught(server, tmp_path):
    file = tmp_path / "towpath" / "paths"
    path_memory.teach(f"{server}//file", "-", connections=3, bytes_per_s=1e8, file=file)
    probe = [PROGRAM, "probe", f"{server}//file", "--direction", "down", "--seconds", "1", "--json"]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(probe, capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=True)
    assert json.loads(done.stdout)["network"][0]["connections"] == 3


def test_the_movers_memory_is_read_and_written(tmp_path):
    file = tmp_path / "towpath" / "paths"
    assert path_memory.learn(file).empty
    file.parent.mkdir()
    file.write_text("root://far/ - 4 117000000 1800000000\n- root://far/ 1 5 1800000001\n")
    assert path_memory.teach("xroot://Far:1094//data", "-", connections=16, bytes_per_s=2e8, file=file) == file
    entries = path_memory.learn(file)
    assert entries.set_index("from").connections.to_dict() == {"root://far/": 16, "-": 1}
    assert [path.name for path in file.parent.iterdir()] == ["paths"]
    path_memory.teach("-", "root://[2001:db8::1]:2094/x", connections=2, bytes_per_s=1, file=file)
    assert file.read_text().startswith("- root://[2001:db8::1]:2094/ 2 1 ")


@pytest.mark.parametrize(
    ("source", "destination", "connections", "message"),
    [
        ("http://far", "-", 1, "'http://far': expected a URL such as root://far.example.org"),
        ("far", "-", 1, "'far': expected a URL"),
        ("-", "-", 1, "both are -"),
        ("root://a", "root://a:1094//x", 1, "both are root://a/"),
        ("root://a", "-", 0, "expected 1 to 64"),
        ("root://a", "-", 65, "expected 1 to 64"),
    ],
)
def test_invalid_lessons(tmp_path, source, destination, connections, message):
    with pytest.raises(ValueError, match=message):
        path_memory.teach(source, destination, connections=connections, bytes_per_s=1, file=tmp_path / "paths")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_memory_is_an_error(tmp_path):
    (tmp_path / "paths").write_text("root://far/ - 4 117000000 1800000000\nroot://far/ - many\n")
    with pytest.raises(ValueError, match="paths: line 2: expected FROM TO CONNECTIONS RATE TIME"):
        path_memory.learn(tmp_path / "paths")
