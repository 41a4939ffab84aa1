"""Job (f): time to first byte over a path of 100 ms, in round trips: for a first file (cold), and for a second file
over the established session (warm).

A proxy delays all data by half of the round trip in each direction. It also delays the connection by one round trip, as
SYN and SYN-ACK would. It neither limits the rate nor loses data. The delay is simulated on loopback, so TCP slow start
is not included.

Cold is measured from the start of the command to the first byte on its standard output, and includes the start of the
process; the same command through a proxy without delay measures that share. Warm is measured from the last byte of the
first file to the first byte of the second: of a command with both files as arguments (towpath, curl), or from the
second command to a running shell (xrdfs).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import subprocess
import threading
import time
from collections.abc import Iterator

from harness import HOST, Contender, Program, Sample, Server, interleave, scratch
from settings import Settings

ROUND_TRIP_S = 0.1
FILE_BYTES = 4096
"""Larger than a line buffer."""
FIRST, SECOND = b"\1", b"\2"
"""Byte that fills each of the two files."""
NO_DELAY = ", no delay"
"""Suffix of the names of contenders whose proxy adds no delay."""


class DelayingProxy:
    """Listens on `port` and forwards data to `target`, delayed by half of the round trip."""

    def __init__(self, target: int, round_trip_s: float) -> None:
        self.target = target
        self.round_trip_s = round_trip_s
        self.port = 0
        self.loop = asyncio.new_event_loop()
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        server = self.loop.run_until_complete(asyncio.start_server(self._serve, HOST, 0))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self.loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # connect() to the proxy returns immediately; over a real path it takes one round trip. Delay the first bytes by it.
        await asyncio.sleep(self.round_trip_s)
        upstream_reader, upstream_writer = await asyncio.open_connection(HOST, self.target)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(self._pipe(reader, upstream_writer), self._pipe(upstream_reader, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - self.loop.time()))
                if not data:
                    with contextlib.suppress(OSError, RuntimeError):
                        writer.write_eof()
                    return
                writer.write(data)
                await writer.drain()

        delivery = asyncio.create_task(deliver())
        while data := await reader.read(1 << 18):
            queue.put_nowait((self.loop.time() + self.round_trip_s / 2, data))
        queue.put_nowait((self.loop.time() + self.round_trip_s / 2, b""))
        await delivery

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclasses.dataclass
class FirstBytes(Sample):
    """`seconds` is the time of the first file, `warm_s` that of the second."""

    warm_s: float | None


@dataclasses.dataclass(frozen=True)
class Probe:
    """A command that writes both files, or only the first, to its standard output. `commands` are written to its
    standard input, one per file."""

    name: str
    program: Program
    commands: tuple[bytes, bytes] | None = None

    def run(self) -> Sample:
        start = time.monotonic()
        process = subprocess.Popen(
            self.program.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, env=self.program.surroundings()
        )
        assert process.stdin and process.stdout
        with process:
            commands = iter(self.commands or ())
            process.stdin.write(next(commands, b""))
            first = first_done = second = None
            received = b""
            while data := os.read(process.stdout.fileno(), 1 << 16):
                now = time.monotonic()
                received += data
                if first is None and FIRST in received:
                    first = now
                if first_done is None and received.count(FIRST) == FILE_BYTES:
                    first_done = now
                    process.stdin.write(next(commands, b""))
                    process.stdin.close()
                if second is None and SECOND in received:
                    second = now
        if process.returncode != 0 or first is None or first_done is None:
            raise RuntimeError(f"{' '.join(self.program.words)} failed with {process.returncode} after {len(received)} bytes")
        return FirstBytes(first - start, 0.0, 0.0, None if second is None else second - first_done)


def probes(settings: Settings, servers: dict[str, int]) -> list[Probe]:
    """Returns the commands for servers behind these ports."""
    machine = settings.machine

    def urls(scheme: str, kind: str) -> list[str]:
        return [f"{scheme}://{HOST}:{servers[kind]}/{'/' if scheme == 'root' else ''}{name}" for name in ("first", "second")]

    cat, curl, xrdcp, xrdfs = machine.towpath("cat"), machine.installed("curl")("-s", "-f"), machine.xrootd6("xrdcp"), machine.xrootd6("xrdfs")
    shell = (b"cat /first\n", b"cat /second\n")
    return [
        Probe("towpath cat <- towpath", cat(*urls("root", "towpath"))),
        Probe("towpath cat (HTTP) <- towpath", cat(*urls("http", "towpath"))),
        Probe("towpath cat <- xrootd6", cat(*urls("root", "xrootd6"))),
        Probe("xrdcp 6.2 <- xrootd6", xrdcp("-s", urls("root", "xrootd6")[0], "-")),
        Probe("xrdcp 6.2 <- towpath", xrdcp("-s", urls("root", "towpath")[0], "-")),
        Probe("xrdfs 6.2 cat <- xrootd6", xrdfs("--no-cwd", f"{HOST}:{servers['xrootd6']}"), shell),
        Probe("xrdfs 6.2 cat <- towpath", xrdfs("--no-cwd", f"{HOST}:{servers['towpath']}"), shell),
        Probe("curl <- nginx", curl(*urls("http", "nginx"))),
        Probe("curl <- towpath", curl(*urls("http", "towpath"))),
    ]


@contextlib.contextmanager
def behind(servers: dict[str, Server], round_trip_s: float) -> Iterator[dict[str, int]]:
    """Runs a proxy in front of each server, and yields the ports of the proxies."""
    proxies = {kind: DelayingProxy(server.port, round_trip_s) for kind, server in servers.items()}
    try:
        yield {kind: proxy.port for kind, proxy in proxies.items()}
    finally:
        for proxy in proxies.values():
            proxy.stop()


def first_byte(settings: Settings) -> dict:
    with scratch(str(settings.memory), "latency") as directory:
        for name, content in (("first", FIRST), ("second", SECOND)):
            (directory / name).write_bytes(content * FILE_BYTES)
        roots = dict.fromkeys(("towpath", "xrootd6", "nginx"), directory)
        with settings.machine.serving(roots) as servers, behind(servers, ROUND_TRIP_S) as far, behind(servers, 0.0) as near:
            contenders = [Contender(probe.name, probe.run) for probe in probes(settings, far)]
            contenders += [Contender(probe.name + NO_DELAY, probe.run) for probe in probes(settings, near)]
            return {"shape": "first-byte", "round_trip_s": ROUND_TRIP_S, **interleave(contenders, settings.repetitions)}
