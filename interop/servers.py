"""Servers of the tests: towpath, XRootD, nginx, rclone, go-hep, SeaweedFS and gofakes3, each on a free port of
127.0.0.1 with its own directory.

The functions `start_…` start a `Server` and return when it accepts connections; `stop` ends it. Only processes started
here are ended. A server writes all its files, including its log, into its directory.
"""

import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

START_DEADLINE_S = 20
STOP_DEADLINE_S = 15
POLL_S = 0.02
HOST = "127.0.0.1"


crashing: list["Server"] = []
"""Running servers that may crash."""


@dataclass
class Server:
    """A running server that exports the directory `root`."""

    name: str
    root: Path
    port: int
    process: subprocess.Popen
    log: Path
    http_port: int | None = None
    tls: bool = False
    metrics: str = ""
    """URL of the metrics on a port for monitoring, if there is one."""
    restart: Callable[[], subprocess.Popen] | None = None
    """Starts the server again on the same ports; only for servers that may crash."""

    def url(self, path: str, scheme: str | None = None) -> str:
        """Returns the XRootD URL of an absolute path."""
        return f"{scheme or ('roots' if self.tls else 'root')}://{HOST}:{self.port}/{path}"

    def http(self, path: str, scheme: str | None = None) -> str:
        """Returns the HTTP URL of an absolute path."""
        return f"{scheme or ('https' if self.tls else 'http')}://{HOST}:{self.http_port or self.port}{path}"

    @property
    def address(self) -> str:
        """The argument of xrdfs: `root://host:port`."""
        return f"{'roots' if self.tls else 'root'}://{HOST}:{self.port}"

    def requests(self, face: str, *verbs: str) -> int:
        """Returns the number of requests of these verbs (default: all) that the server has processed, according to its
        metrics."""
        total = 0
        for labels, value in re.findall(r"^towpath_requests_total\{([^}]*)\} (\d+)", self._metrics(), re.MULTILINE):
            found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            if found["face"] == face and (not verbs or found["verb"] in verbs):
                total += int(value)
        return total

    def sent_bytes(self, face: str) -> int:
        """Returns the number of bytes of file contents that the server has sent, according to its metrics."""
        found = re.findall(rf'^towpath_sent_bytes_total\{{face="{face}"[^}}]*\}} (\d+)', self._metrics(), re.MULTILINE)
        return sum(map(int, found))

    def connections(self) -> int:
        """Returns the number of accepted connections, including the one of this query."""
        return int(re.search(r"^towpath_connections_accepted_total (\d+)", self._metrics(), re.MULTILINE)[1])

    def _metrics(self) -> str:
        with urllib.request.urlopen(self.http("/metrics"), timeout=10) as response:
            return response.read().decode()

    @property
    def counts_requests(self) -> bool:
        """Whether `requests` is available."""
        return self.name == "towpath"

    def revive(self) -> bool:
        """Restarts the server if it has ended by itself; returns whether it had."""
        if self.restart is None or self.process.poll() is None:
            return False
        self.process = self.restart()
        for port in filter(None, (self.port, self.http_port)):
            wait_for_port(self, port)
        return True

    def stop(self) -> None:
        """Terminates the server; kills it after `STOP_DEADLINE_S`."""
        self.restart = None
        self.process.terminate()
        try:
            self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    """Returns a currently unused port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def start_towpath(binary: Path, directory: Path, *, config: str = "", writable: bool = True, tls: bool = False) -> Server:
    """Starts `towpath serve` on `directory/export`, or the exports in `config`, a settings file if it is not empty."""
    export = directory / "export"
    export.mkdir(parents=True, exist_ok=True)
    words = ["serve", *([] if "[[export]]" in config else [export]), *(["--writable"] if writable else [])]
    process, port = _launch([binary, *words, *_settings(directory / "serve.toml", config)], directory / "log")
    return Server("towpath", export, port, process, directory / "log", tls=tls)


def start_cache(binary: Path, origin: str | list[str], directory: Path, *, config: str = "", port: int = 0,
                prefix: tuple[str, ...] = ()) -> Server:
    """Starts `towpath cache` of an origin, or with a list of arguments, with its data in `directory/cache`
    (`Server.root`). `prefix` is a command line that starts it, such as `prlimit`. The log is `directory/log`; a later
    start on the directory continues it."""
    directory.mkdir(parents=True, exist_ok=True)
    arguments = [origin] if isinstance(origin, str) else origin
    # Whatever else is on this disk: the tests that evict set a limit of their own.
    config += "" if "[space]" in config else "\n[space]\nhigh = 1.0\n"
    words = ["cache", *arguments, "--dir", directory / "cache", *_settings(directory / "cache.toml", config)]
    process, port = _launch([*prefix, binary, *words], directory / "log", port)
    return Server("towpath", directory / "cache", port, process, directory / "log")


def _settings(file: Path, config: str) -> list:
    """Writes a settings file, and returns the option that names it; nothing without settings."""
    if not config:
        return []
    file.write_text(config)
    return ["--config", file]


def _launch(command: list, log: Path, port: int = 0) -> tuple[subprocess.Popen, int]:
    """Starts a server of towpath, and returns it with its port when it accepts connections."""
    with log.open("ab") as sink:
        command = [*command, "--listen", f"{HOST}:{port}"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=sink, stdin=subprocess.DEVNULL)
    ready, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
    line = process.stdout.readline().decode() if ready else ""
    match = re.fullmatch(rf"listening on {re.escape(HOST)}:(\d+)\n", line)
    if not match:
        process.kill()
        process.wait()
        raise RuntimeError(f"towpath {command[1]} did not start; its output: {line!r}\n{log.read_text()}")
    return process, int(match[1])


class Link:
    """A TCP connection to a server, which counts the bytes that the server sends, and can be cut."""

    def __init__(self, port: int):
        self.received = 0
        self._target = port
        self._listener = socket.create_server((HOST, 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Closes all connections. New ones are refused."""
        with contextlib.suppress(OSError):
            # A close alone does not wake the thread that accepts connections.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._target))
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    self._sockets |= {client, server}
                for arguments in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._relay, args=arguments, daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, is_counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                if is_counted:
                    with self._lock:
                        self.received += len(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        if is_counted:
            with self._lock:
                self._sockets -= {source, target}
            # The other direction ends with the client.
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)


def start_xrootd(directory: Path, *, config: str = "", http: bool = True, tls: bool = False, tpc: bool = True, prefix: Path | None = None) -> Server:
    """Starts a real xrootd on `directory/export`, as an unprivileged user (it refuses to run as root). `prefix` is where
    another than the installed one is installed; its files are copied, because that user may not read them."""
    program, environment = "xrootd", None
    if prefix:
        for part in ("bin", "lib"):
            shutil.copytree(prefix / part, directory / part, symlinks=True)
        program, environment = directory / "bin" / "xrootd", os.environ | {"LD_LIBRARY_PATH": str(directory / "lib")}
    for name in ("export", "run"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    hand_over(directory)
    port, http_port = free_port(), free_port()
    lines = [
        "all.role server",
        "all.export /",
        f"oss.localroot {directory}/export",
        f"all.adminpath {directory}/run",
        f"all.pidpath {directory}/run",
        "xrd.network nodnr norpipa",
        "xrootd.async off",
        "xrootd.chksum max 4 adler32 crc32c md5",
        "ofs.tpc ttl 30 60 autorm pgm /usr/bin/xrdcp --server" if tpc else "",
        config,
    ]
    if http:
        lines += [f"xrd.protocol http:{http_port} libXrdHttp.so", "http.listingdeny no", "http.selfhttps2http no"]
    (directory / "xrootd.cfg").write_text("\n".join(lines) + "\n")
    log = directory / "run" / "log"
    command = [program, "-I", "v4", "-p", str(port), "-c", directory / "xrootd.cfg", "-l", log]

    def launch() -> subprocess.Popen:
        return subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL, env=environment, **unprivileged())

    server = Server(directory.name if prefix else "xrootd", directory / "export", port, launch(), log, http_port if http else None, tls, launch)
    crashing.append(server)
    for wanted in (port, http_port) if http else (port,):
        wait_for_port(server, wanted)
    return server


NGINX = """
daemon off;
error_log {log};
pid {directory}/pid;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi;
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port}{ssl};
        {certificate}
        root {directory}/export;
        autoindex on;
        dav_methods PUT DELETE MKCOL COPY MOVE;
        create_full_put_path on;
        {locations}
    }}
}}
"""


def start_nginx(directory: Path, *, certificate: tuple[Path, Path] | None = None, locations: str = "") -> Server:
    """Starts nginx with its WebDAV module on `directory/export`. `locations` are further directives of the server."""
    (directory / "export").mkdir(parents=True, exist_ok=True)
    hand_over(directory)
    port, log = free_port(), directory / "log"
    lines = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};" if certificate else ""
    text = NGINX.format(directory=directory, port=port, log=log, ssl=" ssl http2" if certificate else "", certificate=lines,
                        locations=locations)
    (directory / "nginx.conf").write_text(text)
    command = ["/usr/sbin/nginx", "-p", directory, "-e", log, "-c", directory / "nginx.conf"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, **unprivileged())
    server = Server("nginx", directory / "export", port, process, log, port, tls=certificate is not None)
    wait_for_port(server, port)
    return server


def start_rclone(directory: Path) -> Server:
    """Starts rclone's WebDAV server on `directory/export`."""
    (directory / "export").mkdir(parents=True, exist_ok=True)
    hand_over(directory)
    port, log = free_port(), directory / "log"
    # Tests write files directly to the disk, so rclone must not cache listings.
    command = ["rclone", "serve", "webdav", directory / "export", "--addr", f"{HOST}:{port}", "--config", "", "--dir-cache-time", "0s"]
    with log.open("wb") as sink:
        environment = {**os.environ, "HOME": str(directory)}
        process = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                                   **unprivileged())
    server = Server("rclone", directory / "export", port, process, log)
    wait_for_port(server, port)
    return server


TINYPROXY = """\
Port {port}
Listen {host}
Timeout 60
MaxClients 100
LogFile "{log}"
LogLevel Connect
{login}
{ports}
"""


def start_tinyproxy(directory: Path, *, login: str = "", connect_ports: list[int]) -> Server:
    """Starts tinyproxy, which opens tunnels to `connect_ports` only; `login` is `USER PASSWORD`."""
    directory.mkdir(parents=True)
    port, log = free_port(), directory / "log"
    ports = "\n".join(f"ConnectPort {port}" for port in connect_ports)
    text = TINYPROXY.format(port=port, host=HOST, log=log, login=f"BasicAuth {login}" if login else "", ports=ports)
    (directory / "tinyproxy.conf").write_text(text)
    hand_over(directory)
    process = subprocess.Popen(["tinyproxy", "-d", "-c", directory / "tinyproxy.conf"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **unprivileged())
    server = Server("tinyproxy", directory, port, process, log)
    wait_for_port(server, port)
    return server


def start_gohep(program: Path, directory: Path) -> Server:
    """Starts go-hep's XRootD server `program` on `directory/export`. It supports neither queries nor vector reads."""
    (directory / "export").mkdir(parents=True, exist_ok=True)
    port, log = free_port(), directory / "log"
    with log.open("wb") as sink:
        process = subprocess.Popen([program, f"-addr={HOST}:{port}", directory / "export"], cwd=directory, stdin=subprocess.DEVNULL,
                                   stdout=sink, stderr=sink)
    server = Server("go-hep", directory / "export", port, process, log)
    wait_for_port(server, port)
    return server


SEAWEED_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
"""Credentials with all permissions on the server of `start_seaweed`."""


def start_seaweed(directory: Path) -> Server:
    """Starts SeaweedFS, an S3 object store (from PyPI), without a bucket."""
    directory.mkdir(parents=True)
    identity = {"name": "all", "actions": ["Admin"],
                "credentials": [{"accessKey": SEAWEED_KEYS["AWS_ACCESS_KEY_ID"], "secretKey": SEAWEED_KEYS["AWS_SECRET_ACCESS_KEY"]}]}
    (directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
    names = [f"{part}.port{kind}" for part in ("s3", "master", "volume", "filer") for kind in ("", ".grpc")]
    ports = {name: free_port() for name in names}
    log = directory / "log"
    command = [Path(sys.executable).parent / "weed", "server", f"-dir={directory}", f"-ip={HOST}", f"-ip.bind={HOST}", "-filer", "-s3",
               "-s3.iam=false", f"-s3.config={directory}/s3.json", "-master.telemetry=false", "-volume.max=100",
               "-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0", f"-s3.localSocket={directory}/s3.socket",
               f"-filer.localSocket={directory}/filer.socket", *(f"-{name}={port}" for name, port in ports.items())]
    with log.open("wb") as sink:
        environment = {**os.environ, "TMPDIR": str(directory)}
        process = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    server = Server("seaweedfs", directory, ports["s3.port"], process, log)
    wait_for_port(server, server.port)
    return server


def start_gofakes3(directory: Path) -> Server:
    """Starts gofakes3 (built by `interop/peers`) with the bucket `bucket`. It is an in-memory object store that lists
    directory markers among the objects."""
    directory.mkdir(parents=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    port, log = free_port(), directory / "log"
    command = [cache / "towpath/go/bin/gofakes3", "-backend", "memory", "-initialbucket", "bucket", "-host", f"{HOST}:{port}"]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    server = Server("gofakes3", directory, port, process, log)
    wait_for_port(server, port)
    return server


def unprivileged() -> dict:
    """Returns Popen arguments that run a child of root as nobody; empty for other users."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


def hand_over(directory: Path) -> None:
    """Changes the owner of a directory and its contents to the user of the servers."""
    if os.geteuid() == 0:
        for path in (directory, *directory.rglob("*")):
            shutil.chown(path, "nobody", "nogroup")


def wait_for_port(server: Server, port: int) -> None:
    """Waits until something accepts connections on `port`. Raises an error if the server ends or the deadline passes.
    """
    end = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < end:
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            pass
        try:
            server.process.wait(POLL_S)
            break
        except subprocess.TimeoutExpired:
            pass
    server.stop()
    text = server.log.read_text() if server.log.exists() else "(no log)"
    raise RuntimeError(f"{server.name} did not start on port {port}\n{text}")
