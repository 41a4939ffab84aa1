#!/usr/bin/env python3
"""Records a TCP conversation between two programs.

    record.py --to HOST:PORT --out FILE --title TEXT -- COMMAND...

Listens on a free loopback port, runs COMMAND with {port} replaced by that port, forwards every connection to HOST:PORT,
and writes the forwarded data to FILE:

    # TEXT
    connection 1
    > hex of bytes from client to server
    < hex of bytes from server to client

Consecutive bytes in one direction are one line; the lines are in the order in which the proxy received the bytes.
Connections are listed in the order in which they were opened. The exit code is that of COMMAND.

Uses only the standard library. For tests only: it neither encrypts nor limits anything.
"""

import argparse
import selectors
import socket
import subprocess
import sys
import threading

CHUNK_BYTES = 1 << 20


class Connection:
    """One client connection, its counterpart to the server, and the forwarded data."""

    def __init__(self, client: socket.socket, upstream: tuple[str, int]):
        self.client = client
        self.server = socket.create_connection(upstream)
        self.runs: list[tuple[str, bytearray]] = []

    def note(self, direction: str, data: bytes) -> None:
        if not self.runs or self.runs[-1][0] != direction:
            self.runs.append((direction, bytearray()))
        self.runs[-1][1].extend(data)

    def pump(self) -> None:
        """Forwards data in both directions until both sides have closed."""
        routes = {self.client: (">", self.server), self.server: ("<", self.client)}
        with selectors.DefaultSelector() as selector:
            for source in routes:
                selector.register(source, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    direction, destination = routes[key.fileobj]
                    try:
                        data = key.fileobj.recv(CHUNK_BYTES)
                        if data:
                            self.note(direction, data)
                            destination.sendall(data)
                            continue
                        destination.shutdown(socket.SHUT_WR)
                    except OSError:
                        pass
                    selector.unregister(key.fileobj)
        self.client.close()
        self.server.close()


class Recorder:
    """Accepts connections until `stop`."""

    def __init__(self, upstream: tuple[str, int]):
        self.upstream = upstream
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[Connection] = []
        self.threads: list[threading.Thread] = []

    @property
    def port(self) -> int:
        return self.listener.getsockname()[1]

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            connection = Connection(client, self.upstream)
            thread = threading.Thread(target=connection.pump, daemon=True)
            self.connections.append(connection)
            self.threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(timeout=10)

    def write(self, path: str, title: str) -> None:
        with open(path, "w", encoding="ascii") as out:
            print(f"# {title}", file=out)
            for number, connection in enumerate(self.connections, 1):
                print(f"connection {number}", file=out)
                for direction, data in connection.runs:
                    print(direction, data.hex(), file=out)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Record a TCP conversation between two programs.")
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--out", required=True, metavar="FILE")
    parser.add_argument("--title", required=True)
    parser.add_argument("command", nargs="+", metavar="COMMAND")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    host, port = arguments.to.rsplit(":", 1)
    recorder = Recorder((host, int(port)))
    threading.Thread(target=recorder.accept, daemon=True).start()
    command = [word.replace("{port}", str(recorder.port)) for word in arguments.command]
    try:
        return subprocess.run(command, timeout=60, check=False).returncode
    finally:
        recorder.stop()
        recorder.write(arguments.out, arguments.title)


if __name__ == "__main__":
    sys.exit(main())
