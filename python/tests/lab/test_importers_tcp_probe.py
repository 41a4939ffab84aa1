"""The importer of the tracepoint tcp:tcp_probe."""

import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from towpath.lab import importers

SENT_BYTES = 3_000_000
PORT = 35203

TRACE = """\
# tracer: nop
#
# entries-in-buffer/entries-written: 85/85   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
         python3-3456    [000] ..s2. 66387.237334: tcp_probe: family=AF_INET src=127.0.0.1:46267 dest=127.0.0.1:56388 mark=0x0 \
data_len=32741 snd_nxt=0x9ebac828 snd_una=0x9ebac828 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=17 rcv_wnd=65483 sock_cookie=22 \
skbaddr=00000000641d36b9 skaddr=00000000cd397ddc
         python3-3456    [000] ..... 66387.238751: tcp_probe: family=AF_INET src=127.0.0.1:56388 dest=127.0.0.1:46267 mark=0x0 data_len=0 \
snd_nxt=0xf67418af snd_una=0xf67318e5 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65483 srtt=33 rcv_wnd=65536 sock_cookie=23 \
skbaddr=00000000d59f8bc5 skaddr=000000000f85387e
         python3-3456    [000] ..... 66387.238778: tcp_probe: family=AF_INET src=127.0.0.1:56388 dest=127.0.0.1:46267 mark=0x0 data_len=0 \
snd_nxt=0xf6750cca snd_una=0xf67398ca snd_cwnd=11 ssthresh=2147483647 snd_wnd=95232 srtt=211 rcv_wnd=65536 sock_cookie=23 \
skbaddr=000000006db32e7b skaddr=000000000f85387e
         python3-3500    [001] ..s2. 66387.242937: tcp_probe: family=AF_INET src=127.0.0.1:56388 dest=127.0.0.1:46267 mark=0x0 data_len=0 \
snd_nxt=0xf6a0dfa5 snd_una=0xf6a08e6a snd_cwnd=24 ssthresh=18 snd_wnd=1546240 srtt=113 rcv_wnd=65536 sock_cookie=23 \
skbaddr=00000000fe223107 skaddr=000000000f85387e
         python3-3456    [000] ..s2. 66387.243029: tcp_probe: family=AF_INET src=127.0.0.1:46267 dest=127.0.0.1:56388 mark=0x0 data_len=0 \
snd_nxt=0x9ebac828 snd_una=0x9ebac828 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=17 rcv_wnd=1568768 sock_cookie=22 \
skbaddr=00000000d1207fd6 skaddr=00000000cd397ddc
"""
"""Lines of the file `trace` of tracefs, Linux 6.18, while a program sent 3 MB to itself over loopback. Events in between are left out."""

PERF = """\
         python3  8177 [000] 67160.871360: tcp:tcp_probe: family=AF_INET6 src=[::1]:36503 dest=[::1]:60626 mark=0 data_len=32732 \
snd_nxt=0xfac2cf2 snd_una=0xfac2cf2 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65536 srtt=18 rcv_wnd=65464 sock_cookie=2e \
skbaddr=0xffff88810534c0e0 skaddr=0xffff88860459f500
         python3  8177 [000] 67160.871539: tcp:tcp_probe: family=AF_INET6 src=[::1]:60626 dest=[::1]:36503 mark=0 data_len=0 \
snd_nxt=0x1c6594be snd_una=0x1c649506 snd_cwnd=10 ssthresh=2147483647 snd_wnd=65464 srtt=56 rcv_wnd=65536 sock_cookie=2f \
skbaddr=0xffff888104c05400 skaddr=0xffff88860459c440
"""
"""The first and third event that `perf record -e tcp:tcp_probe` and `perf script` printed of such a program over IPv6, on that kernel."""


NOTHING = importers.Known()

pytestmark = pytest.mark.filterwarnings("ignore::towpath.lab.importers.Idle")


def read(path, text, known=NOTHING):
    path.write_text(text)
    return importers.read([path], "tcp-probe", known)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "probe"


def test_events_of_the_kernel(file):
    runs = read(file, TRACE, importers.Known(transport="cubic"))
    row = runs.frame().iloc[0]
    assert len(runs) == 1, "the other socket sent nothing"
    assert (row.tool, row.transport, row.streams, row.rtt_s) == ("tcp-probe", "cubic", 1, pytest.approx(33e-6))
    assert (row["bytes"], row.duration_s) == (0xF6A08E6A - 0xF67318E5, pytest.approx(0.004186))
    assert '"source": "127.0.0.1:56388"' in row.detail and '"max_cwnd_segments": 24' in row.detail
    # All events are within 10 ms.
    assert runs.intervals(row.run_id)["bytes"].tolist() == [row["bytes"]]
    assert runs.intervals(row.run_id).rtt_s.tolist() == pytest.approx([113e-6])


def test_intervals_of_events_that_are_far_apart(file):
    runs = read(file, TRACE.replace("66387.242937", "66387.262937"))
    intervals = runs.intervals(runs.frame().run_id[0])
    assert intervals["bytes"].tolist() == [0xF67398CA - 0xF67318E5, 0xF6A08E6A - 0xF67398CA]
    assert intervals.end_s.tolist() == pytest.approx([0.000027, 0.024186])


def test_events_of_perf(file):
    later = PERF.replace("67160.871539", "67160.971539").replace("snd_una=0x1c649506", "snd_una=0x1c6594be")
    row = read(file, PERF + later.splitlines()[1]).frame().iloc[0]
    assert (row["bytes"], row.duration_s) == (0x1C6594BE - 0x1C649506, pytest.approx(0.1))
    assert '"destination": "[::1]:36503"' in row.detail


@settings(max_examples=25)
@given(offset=st.integers(0, 2**32 - 1))
def test_sequence_numbers_wrap_around(tmp_path_factory, offset):
    shifted = re.sub(r"(?<=snd_una=)0x[0-9a-f]+", lambda match: hex((int(match[0], 16) + offset) % 2**32), TRACE)
    file = tmp_path_factory.mktemp("wrap") / "probe"
    assert read(file, shifted).table.equals(read(file, TRACE).table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TRACE.splitlines()[6], "no socket had data acknowledged between two events"),
        ("", "no socket had data acknowledged"),
        (TRACE + "x-1 [000] ..... 1.5: tcp_retransmit_skb: skbaddr=1", "line 12: no event tcp_probe; record no other"),
        (TRACE.replace(" snd_una=0xf67418af", "").replace("srtt=113 ", ""), "line 10: the event has no 'srtt'"),
        (TRACE.replace("srtt=113 ", "srtt=many "), "line 10: invalid literal"),
        (TRACE.replace("snd_una=0xf6a08e6a", "snd_una=0x76a08e6a"), "snd_una goes from 0xf67398ca to 0x76a08e6a: two connections"),
        (TRACE.replace("66387.242937", "66386.242937"), "line 10: 127.0.0.1:56388: the time 66386.242937 is before 66387.238778"),
        (re.sub(r"srtt=\d+", "srtt=0", TRACE), "runs have no round trip; state it (rtt_s)"),
    ],
)
def test_texts_that_are_not_understood(file, text, message):
    with pytest.raises(ValueError) as caught:
        read(file, text)
    assert message in str(caught.value) and str(caught.value).startswith(str(file))


def test_a_socket_with_the_addresses_of_an_earlier_one(file):
    other = "\n".join(line.replace("sock_cookie=23", "sock_cookie=25").replace("66387.", "66389.") for line in TRACE.splitlines()[7:10])
    runs = read(file, TRACE + other)
    assert len(runs) == 2 and runs.frame()["bytes"].nunique() == 1
    old_kernel = re.sub(r" sock_cookie=\w+", "", TRACE + other.replace("snd_una=0xf", "snd_una=0x7"))
    with pytest.raises(ValueError, match="two connections, or lost events"):
        read(file, old_kernel)


def test_lost_events_are_counted(file):
    # The form of `trace_pipe` on Linux 6.18 with a buffer of 7 kB.
    lines = TRACE.splitlines()
    with pytest.warns(importers.Lost, match="probe: the kernel lost 952 events"), pytest.warns(importers.Idle, match="sockets had no data"):
        row = read(file, "\n".join([*lines[:8], "CPU:0 [LOST 952 EVENTS]", *lines[8:]])).frame().iloc[0]
    assert '"lost_events": 952' in row.detail and row["bytes"] == 0xF6A08E6A - 0xF67318E5


SENDER = f"""
import socket, threading
server = socket.create_server(("127.0.0.1", {PORT}))
def receive():
    connection, _ = server.accept()
    received = 0
    while received < {SENT_BYTES}:
        received += len(connection.recv(65536))
    connection.sendall(b"done")
receiver = threading.Thread(target=receive)
receiver.start()
client = socket.create_connection(("127.0.0.1", {PORT}))
client.sendall(bytes({SENT_BYTES}))
# There are no events after the end of a connection.
client.recv(4)
receiver.join()
"""

RECORD = f"""
set -e
mount -t tracefs none /sys/kernel/tracing
instance=/sys/kernel/tracing/instances/towpath-test-$$
mkdir $instance
trap 'echo 0 > $instance/events/tcp/tcp_probe/enable; rmdir $instance' EXIT
echo 4096 > $instance/buffer_size_kb
echo 'sport == {PORT} || dport == {PORT}' > $instance/events/tcp/tcp_probe/filter
echo 1 > $instance/events/tcp/tcp_probe/enable
"$0" -c "$1"
echo 0 > $instance/events/tcp/tcp_probe/enable
cat $instance/trace
"""
"""Records the events of a program, in a mount namespace of its own."""


@pytest.mark.skipif(os.geteuid() != 0, reason="tracefs needs root")
def test_events_of_this_kernel(file):
    done = subprocess.run(["unshare", "--mount", "sh", "-c", RECORD, sys.executable, SENDER], capture_output=True, text=True, timeout=30)
    if done.returncode and "tracefs" in done.stderr:
        pytest.skip(f"no tracefs: {done.stderr.strip()}")
    assert not done.returncode, done.stderr
    row = read(file, done.stdout).frame().sort_values("bytes").iloc[-1]
    # An event has the state before its segment, so the last acknowledgement is missing.
    assert 0.9 * SENT_BYTES < row["bytes"] <= SENT_BYTES
    assert 0 < row.rtt_s < 0.1
