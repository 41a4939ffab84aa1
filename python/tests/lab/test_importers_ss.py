"""The importer of `ss -tin`."""

import re
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from towpath.lab import importers
from towpath.lab.attribution import attribute_run

SENT_BYTES = 8_000_000

LOOP = 'while date +%s.%N; do ss -tin "sport = :$0 or dport = :$0"; sleep 0.05; done'
"""The loop of the docstring of the importer."""


def snapshots(send, receive):
    """Returns snapshots of a connection over loopback. `send(socket)` ends when all data are sent; `receive(socket)` when all are read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        # A small window, whose size the kernel does not change.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client = socket.create_connection(server.getsockname())
        # Otherwise this buffer takes all data at once on some machines.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
        accepted, _ = server.accept()
        receiver = threading.Thread(target=receive, args=(accepted,))
        receiver.start()
        with subprocess.Popen(["sh", "-c", LOOP, str(client.getsockname()[1])], stdout=subprocess.PIPE, text=True) as loop:
            try:
                # The first snapshot.
                text = loop.stdout.readline()
                send(client)
                time.sleep(0.1)
            finally:
                loop.terminate()
            text += loop.stdout.read()
        client.close()
        receiver.join()
        accepted.close()
        return text


def read_slowly(connection):
    while connection.recv(40_000):
        time.sleep(0.002)


def read_all(connection):
    while connection.recv(1_000_000):
        pass


def send_now_and_then(connection):
    for _ in range(10):
        connection.sendall(bytes(10_000))
        time.sleep(0.05)


@pytest.fixture(scope="module")
def slow_receiver():
    return snapshots(lambda connection: connection.sendall(bytes(SENT_BYTES)), read_slowly)


NOTHING = importers.Known()

pytestmark = pytest.mark.filterwarnings("ignore::towpath.lab.importers.Idle")


def read(path, text, known=NOTHING):
    path.write_text(text)
    return importers.read([path], "ss", known)


def test_a_slow_receiver(slow_receiver, tmp_path):
    runs = read(tmp_path / "ss.txt", slow_receiver)
    row = runs.frame().iloc[0]
    assert len(runs) == 1, "the other end acknowledges nothing"
    assert row.transport == Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    # The send buffer has the rest.
    assert 0.8 * SENT_BYTES < row["bytes"] <= SENT_BYTES + 1 and 0 < row.rtt_s < 0.1
    assert abs(row.started.timestamp() - time.time()) < 60
    intervals = runs.intervals(row.run_id)
    assert intervals["bytes"].sum() == row["bytes"] and (intervals.cwnd_bytes > 0).all() and (intervals.retransmits >= 0).all()
    found = attribute_run(runs, row.run_id)
    assert found.limit == "receiver's window" and sum(found.shares.values()) == pytest.approx(1)


def test_an_application_with_little_to_send(tmp_path):
    runs = read(tmp_path / "ss.txt", snapshots(send_now_and_then, read_all))
    found = attribute_run(runs, runs.frame().run_id[0])
    assert found.limit == "application" and found.application > 0.5


def test_the_header_and_the_columns_of_options_are_no_data(slow_receiver, tmp_path):
    expected = read(tmp_path / "ss.txt", slow_receiver).table
    bare = "\n".join(line for line in slow_receiver.splitlines() if "Address:Port" not in line)
    assert read(tmp_path / "ss.txt", bare).table.equals(expected)
    # As `ss -tino state established` prints it.
    without_state = re.sub(r"(?m)^ESTAB *(.*\S) *$", r"\1 timer:(persist,204ms,0)", slow_receiver)
    assert without_state != slow_receiver and read(tmp_path / "ss.txt", without_state).table.equals(expected)


def test_kernels_without_counters_of_limits(slow_receiver, tmp_path):
    runs = read(tmp_path / "ss.txt", re.sub(r" (busy|rwnd_limited|sndbuf_limited|delivered):\S+", "", slow_receiver))
    run_id = runs.frame().run_id[0]
    assert runs.intervals(run_id).busy_s.isna().all()
    with pytest.raises(ValueError, match="busy_s is unknown in"):
        attribute_run(runs, run_id)


CONNECTION = "ESTAB 0 0 10.0.0.1:50000 10.0.0.2:5001\n\t cubic wscale:7,7 rto:204 rtt:{rtt} mss:1448 cwnd:10 bytes_acked:{acked}{more}\n"


def connection(t_s, acked, rtt="20.5/1", more=""):
    """Two lines in the form of the real output, with chosen values."""
    return f"{t_s}\n" + CONNECTION.format(rtt=rtt, acked=acked, more=more)


def test_units(tmp_path):
    later = connection(1700000002.5, 2_500_001, "25/2", " busy:1990ms rwnd_limited:500ms(25.1%) retrans:1/7 minrtt:20.25")
    runs = read(tmp_path / "ss.txt", connection(1700000000.5, 1, more=" busy:100ms") + later)
    row, interval = runs.frame().iloc[0], runs.intervals(runs.frame().run_id[0]).iloc[0]
    assert (row["bytes"], row.duration_s, row.throughput_bits_per_s, row.rtt_s) == (2_500_000, 2.0, 1e7, pytest.approx(0.02025))
    assert (interval.rtt_s, interval.cwnd_bytes, interval.retransmits) == (0.025, 14_480, 7)
    limits = (interval.busy_s, interval.receive_window_limited_s, interval.send_buffer_limited_s)
    assert limits == pytest.approx((1.89, 0.5, 0.0))


def test_connections_without_data_are_counted(tmp_path):
    times = (1700000000, 1700000001)
    text = "".join(connection(t_s, 5 + t_s % 2) + CONNECTION.replace("50000", "50001").format(rtt=20, acked=9, more="") for t_s in times)
    with pytest.warns(importers.Idle, match=r"ss\.txt: 1 of 2 connections had no data acknowledged"):
        assert len(read(tmp_path / "ss.txt", text)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no connection had data acknowledged between two snapshots"),
        (connection(1700000000, 5), "no connection had data acknowledged"),
        (connection(1700000000, 5).partition("\n")[2], "line 1: expected a time in seconds, as of `date +%s.%N`"),
        (connection(1700000002, 5) + connection(1700000001, 9), "line 4: the time 1700000001 is not after 1700000002.0"),
        (connection(1700000000, 5) + connection(1700000001, 4), "decreases: two connections with the same addresses"),
        ("1700000000\nNetid some other output\n", "line 2: no connection of `ss -tin`: Netid some"),
        ((connection(1700000000, 5) + connection(1700000001, 9)).replace("rtt:20.5/1", ""), "runs have no round trip; state it (rtt_s)"),
    ],
)
def test_texts_that_are_not_understood(tmp_path, text, message):
    with pytest.raises(ValueError) as caught:
        read(tmp_path / "ss.txt", text)
    assert message in str(caught.value) and str(caught.value).startswith(str(tmp_path / "ss.txt"))
