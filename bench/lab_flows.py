"""File transfers by flows, as those of XDD: each flow has a thread that reads blocks, a connection, and a thread that writes them.

    lab_flows.py send FILE --listen 198.18.0.2:1094 --flows 8 --block 65536 --bytes 250000000
    lab_flows.py receive FILE --from 198.18.0.2:1094 --flows 8 --block 65536 --bytes 250000000
    lab_flows.py read FILE --flows 8 --block 65536 --bytes 250000000
    lab_flows.py write FILE --flows 8 --block 65536 --bytes 250000000

The flows share the blocks of a file in turn, and each has one buffer of a block. A file `-` is none: its blocks come from memory, or are
dropped. Files are read and written without the page cache, so blocks and bytes are multiples of 4096. Prints {"seconds": …}, without the
time to connect.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

ALIGNMENT = 4096
Step = Callable[[memoryview, int], None]
"""Fills or takes the bytes of a block at an offset of the file."""


def offsets(flow: int, options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Yields offset and length of the blocks of a flow."""
    for offset in range(flow * options.block, options.bytes, options.flows * options.block):
        yield offset, min(options.block, options.bytes - offset)


def nothing(_block: memoryview, _offset: int) -> None:
    """The step of a file that is none."""


def file_step(path: str, is_written: bool) -> Step:
    if path == "-":
        return nothing
    descriptor = os.open(path, os.O_DIRECT | (os.O_WRONLY | os.O_CREAT if is_written else os.O_RDONLY), 0o600)
    call = os.pwritev if is_written else os.preadv

    def step(block: memoryview, offset: int) -> None:
        if call(descriptor, [block], offset) != len(block):
            raise OSError(f"{path}: {len(block)} bytes at {offset} are not there")

    return step


def receive_step(connection: socket.socket) -> Step:
    def step(block: memoryview, _offset: int) -> None:
        while block:
            count = connection.recv_into(block)
            if count == 0:
                raise OSError("the sender closed a connection")
            block = block[count:]

    return step


def send_step(connection: socket.socket) -> Step:
    return lambda block, _offset: connection.sendall(block)


def transfer(options: argparse.Namespace, steps: list[tuple[Step, Step]]) -> None:
    """Moves all blocks, with a thread for each flow. Raises the error of a flow."""
    errors: list[BaseException] = []

    def run(flow: int, source: Step, sink: Step) -> None:
        # Pages of a mapping are aligned, as direct reads and writes need it.
        buffer = memoryview(mmap.mmap(-1, options.block))
        try:
            for offset, length in offsets(flow, options):
                source(buffer[:length], offset)
                sink(buffer[:length], offset)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(flow, *pair)) for flow, pair in enumerate(steps)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def accepted(options: argparse.Namespace) -> list[socket.socket]:
    """Returns the connections of all flows, in the order of their numbers."""
    host, port = options.listen.rsplit(":", 1)
    with socket.create_server((host, int(port)), backlog=options.flows) as server:
        print("listening", flush=True)
        found = {}
        while len(found) < options.flows:
            connection = server.accept()[0]
            found[connection.recv(1)[0]] = connection
    return [found[flow] for flow in range(options.flows)]


def connected(options: argparse.Namespace) -> list[socket.socket]:
    host, port = getattr(options, "from").rsplit(":", 1)
    connections = []
    for flow in range(options.flows):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(bytes([flow]))
        connections.append(connection)
    return connections


def steps_of(options: argparse.Namespace) -> list[tuple[Step, Step]]:
    """Returns source and sink of each flow, connected."""
    if options.command == "send":
        return [(file_step(options.file, False), send_step(connection)) for connection in accepted(options)]
    if options.command == "receive":
        return [(receive_step(connection), file_step(options.file, True)) for connection in connected(options)]
    step = file_step(options.file, options.command == "write")
    return [(nothing, step) if options.command == "write" else (step, nothing)] * options.flows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("send", "receive", "read", "write"))
    parser.add_argument("file")
    parser.add_argument("--listen")
    parser.add_argument("--from")
    parser.add_argument("--flows", type=int, required=True)
    parser.add_argument("--block", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    options = parser.parse_args()
    if options.block % ALIGNMENT or options.bytes % ALIGNMENT or not 1 <= options.flows <= 255:
        parser.error(f"expected blocks and bytes of multiples of {ALIGNMENT}, and 1 to 255 flows")
    steps = steps_of(options)
    start = time.monotonic()
    transfer(options, steps)
    print(json.dumps({"seconds": time.monotonic() - start}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
