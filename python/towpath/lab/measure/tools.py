"""The tools of campaigns: each transfers from host 2 to host 1 of the emulator, or from a site to this machine, and returns the columns of
its run.

A tool that fails raises `ToolError`, with its own message.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towpath.lab.importers.iperf3 import read_iperf3
from towpath.lab.importers.trace import intervals_of_trace
from towpath.lab.measure.emulator import CLIENT, SERVER, Hosts
from towpath.lab.measure.machine import memory_directory
from towpath.lab.measure.plan import Cell, Plan
from towpath.lab.measure.sites import Here

PORT = 1094
START_DEADLINE_S = 10
"""Time for a server to listen."""
MIN_RATE_BITS_PER_S = 1e6
"""A copy that is slower than this fails."""
MAX_SITE_BYTES = 10**9
"""Size of a site's file that has to be copied in time at the least rate: its size is not known before."""
SAMPLES_PER_RUN = 100

_LISTENING = re.compile(rf":{PORT:04X} \S+ 0A ")
"""A socket that listens at the port, in /proc/net/tcp."""


class ToolError(Exception):
    """A tool failed."""


@dataclass(frozen=True)
class Task:
    """A run of a tool."""

    plan: Plan
    cell: Cell
    hosts: Hosts | Here
    directory: Path
    """Directory for files of this run, in memory."""
    rtt_s: float
    """Round trip of the path."""

    @property
    def iperf3(self) -> tuple[str, str]:
        """Host and port of the server of iperf3."""
        if self.cell.site is None:
            return SERVER, str(PORT)
        host, _, port = (self.cell.site.iperf3 or "").rpartition(":")
        return host.strip("[]"), port

    @property
    def url(self) -> str:
        """The file to copy."""
        return f"root://{SERVER}:{PORT}//file" if self.cell.site is None else str(self.cell.site.url)

    @property
    def interval_s(self) -> float:
        """Interval of the samples in seconds."""
        return min(max(self.plan.seconds / SAMPLES_PER_RUN, 0.1), 1.0)

    @property
    def copy(self) -> Path:
        """Target of a copy."""
        return self.directory / "copy"

    @property
    def size(self) -> int:
        """Bytes of the copied file."""
        return int(self.plan.megabytes * 1e6)

    def run(self, host: int, *command: str | Path, deadline_s: float) -> str:
        """Runs a command in a host, and returns its output."""
        command_line = self.hosts.command(host, *command)
        try:
            done = subprocess.run(command_line, capture_output=True, text=True, timeout=deadline_s, cwd=self.directory)
        except subprocess.TimeoutExpired as error:
            raise ToolError(f"{command[0]} did not end within {deadline_s:.0f} s") from error
        if done.returncode:
            raise ToolError(f"{Path(command[0]).name}: {(done.stderr or done.stdout).strip()[-500:]}")
        return done.stdout

    @contextlib.contextmanager
    def server(self, *command: str | Path) -> Iterator[None]:
        """Runs a server in host 2, until it listens. A site has its own."""
        if self.cell.site is not None:
            yield
            return
        with (self.directory / "server.log").open("wb") as log:
            process = subprocess.Popen(self.hosts.command(2, *command), stdout=log, stderr=log, cwd=self.directory)
            try:
                self._wait_until_listening(process)
                yield
            finally:
                process.terminate()
                process.wait()

    def _wait_until_listening(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not _LISTENING.search(self.run(2, "cat", "/proc/self/net/tcp", "/proc/self/net/tcp6", deadline_s=START_DEADLINE_S)):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ToolError(f"the server does not listen: {(self.directory / 'server.log').read_text()[-500:].strip()}")
            time.sleep(0.02)


@contextlib.contextmanager
def prepared_task(plan: Plan, cell: Cell, hosts: Hosts | Here, rtt_s: float) -> Iterator[Task]:
    """Yields a task whose directory exists meanwhile."""
    with tempfile.TemporaryDirectory(prefix="towpath-lab-", dir=memory_directory()) as directory:
        yield Task(plan, cell, hosts, Path(directory), rtt_s)


def iperf3(task: Task) -> dict[str, Any]:
    """Measures with iperf3, from memory to memory."""
    cell, seconds = task.cell, task.plan.seconds
    host, port = task.iperf3
    with task.server("iperf3", "--server", "--port", port, "--one-off"):
        options = ["--reverse", "--json", "--parallel", str(cell.streams), "--time", f"{seconds:g}", "--interval", f"{task.interval_s:g}"]
        client = ("iperf3", "--client", host, "--port", port, *options)
        # The server ends the test after its time even if windows are full.
        output = task.run(1, *client, deadline_s=seconds + 60)
    row = read_iperf3(output, "iperf3")[0]
    for what, planned in (("transport", cell.transport), ("streams", cell.streams)):
        if planned is not None and row[what] not in (None, planned):
            raise ToolError(f"iperf3 used another {what} than planned: {row[what]}, not {planned}")
    return {key: row[key] for key in ("duration_s", "bytes", "throughput_bits_per_s", "detail", "intervals")} | {"planned_s": seconds}


def towpath_probe(task: Task) -> dict[str, Any]:
    """Measures with `towpath probe`, from memory to memory."""
    cell, seconds, trace = task.cell, task.plan.seconds, task.directory / "trace"
    with task.server(*_towpath_server(task)):
        sampling = ["--interval", f"{task.interval_s * 1e3:.0f}ms", "--trace", str(trace)]
        options = ["--connections", str(cell.streams), "--direction", "down", "--seconds", f"{seconds:g}", "--json", *sampling]
        url = f"http://{SERVER}:{PORT}/" if cell.site is None else task.url
        output = task.run(1, task.hosts.towpath, "probe", url, *options, deadline_s=seconds + 60)
    leg = json.loads(output)["network"][0]
    return {
        "planned_s": seconds,
        "duration_s": leg["seconds"],
        "bytes": leg["bytes"],
        "throughput_bits_per_s": 8 * leg["bytes"] / leg["seconds"],
        "detail": json.dumps({"explained": leg["explained"], "settled_bits_per_s": 8 * leg["settled_rate_bytes_per_s"]}),
        "intervals": intervals_of_trace(trace.read_text(), "trace"),
    }


def towpath_cp(task: Task) -> dict[str, Any]:
    """Copies a file with `towpath cp`, which verifies it. It knows nothing from earlier copies."""
    client = ("env", f"XDG_CACHE_HOME={task.directory}", task.hosts.towpath, "cp", "--quiet")
    return _copy(task, _towpath_server(task), [*client, task.url, task.copy])


def xrdcp(task: Task) -> dict[str, Any]:
    """Copies a file with xrdcp, from `towpath serve` or a site."""
    client = ("xrdcp", "--silent", "--streams", str(task.cell.streams))
    return _copy(task, _towpath_server(task), [*client, task.url, task.copy])


def gridftp(task: Task) -> dict[str, Any]:
    """Copies a file with globus-url-copy, from globus-gridftp-server without encryption. Its user is `nobody`."""
    task.directory.chmod(0o755)
    address = ("-p", str(PORT), "-control-interface", SERVER, "-data-interface", SERVER)
    server = _with_names(task, "server", "globus-gridftp-server", "-aa", "-anonymous-user", "nobody", *address)
    client = _with_names(task, "client", "globus-url-copy", "-fast", "-p", str(task.cell.streams))
    return _copy(task, server, [*client, f"ftp://{SERVER}:{PORT}{task.directory}/file", f"file://{task.copy}"])


def _with_names(task: Task, host: str, *command: str) -> list[str | Path]:
    """Returns the command with an `/etc/hosts` of its own: GridFTP resolves the name of each address, and the hosts have no DNS."""
    names = task.directory / "hosts"
    names.write_text(f"127.0.0.1 localhost\n{CLIENT} client\n{SERVER} server\n")
    mount = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, names, "env", f"GLOBUS_HOSTNAME={host}", *command]


def _towpath_server(task: Task) -> tuple[str | Path, ...]:
    return (task.hosts.towpath, "serve", task.directory, "--listen", f"{SERVER}:{PORT}")


def _copy(task: Task, server: Sequence[str | Path], client: Sequence[str | Path]) -> dict[str, Any]:
    """Copies a file, with the time of the whole command. That of the emulator has the size of the plan, and is in memory at both ends."""
    size = task.size if task.cell.site is None else None
    if size is not None:
        with (task.directory / "file").open("wb") as file:
            file.truncate(size)
    with task.server(*server):
        start = time.monotonic()
        task.run(1, *client, deadline_s=60 + 8 * (size or MAX_SITE_BYTES) / MIN_RATE_BITS_PER_S)
        duration_s = time.monotonic() - start
    copied = task.copy.stat().st_size
    if size is not None and copied != size:
        raise ToolError(f"the copy has {copied} bytes, expected {size}")
    return {"planned_bytes": copied, "duration_s": duration_s, "bytes": copied, "throughput_bits_per_s": 8 * copied / duration_s}


TOOLS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "iperf3": iperf3,
    "towpath-probe": towpath_probe,
    "towpath-cp": towpath_cp,
    "xrdcp": xrdcp,
    "gridftp": gridftp,
}
