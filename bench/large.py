"""Jobs (a) and (b): one large file down and up, over loopback, each client with its own server and across.

What is compared is not quite alike: over XRootD towpath and xrdcp check a CRC32C for each page, and towpath keeps digests of what it writes; curl and rclone check nothing.
"""

from __future__ import annotations

import pathlib

from contenders import Machine
from harness import Contender, Server, run_client

RCLONE_STREAMS = 4


def write_pattern(path: pathlib.Path, size: int) -> None:
    """A file in which every page of 4 KiB starts with its own offset, so that no misplaced page goes unseen."""
    rest = bytes(range(256))[8:] + bytes(range(256)) * 15
    with path.open("wb") as file:
        for block in range(0, size, 1 << 20):
            file.write(b"".join(offset.to_bytes(8, "little") + rest for offset in range(block, min(block + (1 << 20), size), 4096)))


def same_file(a: pathlib.Path, b: pathlib.Path) -> None:
    """Compares two files to the last byte."""
    run_client(["cmp", str(a), str(b)], None)


def downloads(machine: Machine, servers: dict[str, Server], source: pathlib.Path, target: pathlib.Path) -> list[Contender]:
    """Every pair of server and client that moves `source` into `target`."""
    name = source.name
    port = {key: server.port for key, server in servers.items()}
    commands: list[tuple[str, str, list[str], dict[str, str] | None]] = []
    for server in ("towpath", "xrootd5", "xrootd6"):
        url = f"root://127.0.0.1:{port[server]}//{name}"
        commands.append((f"towpath cp <- {server}", server, [machine.towpath, "cp", "-q", url, str(target)], None))
        commands.append((f"xrdcp 6.2 <- {server}", server, [machine.program("xrdcp", True), "-f", "-s", url, str(target)], machine.xrootd6))
        if server != "xrootd6":
            commands.append((f"xrdcp 5.5 <- {server}", server, [machine.program("xrdcp"), "-f", "-s", url, str(target)], None))
    for server in ("towpath", "nginx"):
        url = f"http://127.0.0.1:{port[server]}"
        commands.append((f"curl <- {server}", server, [machine.program("curl"), "-s", "-S", "-f", "-o", str(target), f"{url}/{name}"], None))
        rclone = [machine.rclone, "copyto", "--multi-thread-streams", str(RCLONE_STREAMS), "--multi-thread-cutoff", "1M", "--config", "/dev/null"]
        commands.append((f"rclone <- {server}", server, [*rclone, f":http,url='{url}':{name}", str(target)], None))
    return [
        Contender(
            title,
            run=lambda command=command, server=servers[server], environment=environment: run_client(command, server, environment),
            before=lambda: target.unlink(missing_ok=True),
            check=lambda: same_file(source, target),
        )
        for title, server, command, environment in commands
    ]


def uploads(machine: Machine, servers: dict[str, Server], source: pathlib.Path, roots: dict[str, pathlib.Path]) -> list[Contender]:
    """Every pair that moves `source` to a server, as `up`."""
    contenders = []
    for server, client, version6 in (
        ("towpath", "towpath", False),
        ("towpath", "xrdcp 6.2", True),
        ("xrootd6", "xrdcp 6.2", True),
        ("xrootd6", "towpath", False),
        ("xrootd5", "xrdcp 5.5", False),
        ("nginx", "curl", False),
        ("towpath", "curl", False),
    ):
        landed = roots[server] / "up"
        port = servers[server].port
        if client == "towpath":
            command = [machine.towpath, "cp", "-q", "-f", str(source), f"root://127.0.0.1:{port}//up"]
        elif client == "curl":
            command = [machine.program("curl"), "-s", "-S", "-f", "-T", str(source), f"http://127.0.0.1:{port}/up"]
        else:
            command = [machine.program("xrdcp", version6), "-f", "-s", str(source), f"root://127.0.0.1:{port}//up"]
        environment = machine.xrootd6 if version6 else None
        contenders.append(
            Contender(
                f"{client} -> {server}",
                run=lambda command=command, server=servers[server], environment=environment: run_client(command, server, environment),
                before=lambda landed=landed: landed.unlink(missing_ok=True),
                check=lambda landed=landed: same_file(source, landed),
            )
        )
    return contenders
