"""Servers and clients of the comparison. Each has the settings that its documentation or earlier measurements
recommend."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping

from harness import HOST, LOOPBACK, Network, Program, Server, free_port

NGINX = """
user www-data;
worker_processes 2;
daemon off;
pid {work}/nginx.pid;
error_log {work}/nginx-error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    sendfile_max_chunk 2m;
    tcp_nopush on;
    keepalive_requests 1000000;
    client_body_temp_path {root}/.arriving;
    client_max_body_size 0;
    server {{
        listen {address} {tls};
        root {root};
        location / {{ autoindex on; dav_methods PUT DELETE MKCOL; create_full_put_path on; }}
    }}
}}
"""

XROOTD = """
all.export /
oss.localroot {root}
all.adminpath {work}/admin
all.pidpath {work}/admin
xrd.port {port}
xrd.network nodnr norpipa
xrootd.chksum max 2 adler32 crc32c
{tls}
"""

RCLONE_STREAMS = 16
"""Value of `--multi-thread-streams` at which rclone was fastest over loopback."""
RCLONE_TRANSFERS = 32
"""Value of `--transfers` and `--checkers` at which rclone was fastest for small files."""


@dataclasses.dataclass
class Authority:
    """A certificate authority for this run, with one server certificate for 127.0.0.1."""

    directory: pathlib.Path

    def __post_init__(self) -> None:
        self.file = self.directory / "ca.pem"
        self.certificate = self.directory / "server.pem"
        self.key = self.directory / "server.key"
        self.directory.mkdir(parents=True)
        request = self.directory / "server.csr"
        extensions = self.directory / "server.ext"
        extensions.write_text(f"subjectAltName = IP:{HOST}, DNS:localhost\nextendedKeyUsage = serverAuth\n")
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        self._openssl("req", "-x509", *curve, "-days", "2", "-subj", "/CN=towpath benchmark", "-keyout", "ca.key", "-out", self.file)
        self._openssl("req", *curve, "-subj", f"/CN={HOST}", "-keyout", self.key, "-out", request)
        signed = ["-CA", self.file, "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", extensions]
        self._openssl("x509", "-req", "-in", request, *signed, "-out", self.certificate)
        (self.directory / f"{self._openssl('x509', '-noout', '-subject_hash', '-in', self.file).strip()}.0").symlink_to(self.file)
        # xrootd rejects a key that other users can read, and drops root privileges before it reads the key.
        self.key.chmod(0o600)
        shutil.chown(self.key, "daemon")

    def _openssl(self, *words: object) -> str:
        return subprocess.run(["openssl", *map(str, words)], cwd=self.directory, check=True, capture_output=True, text=True).stdout

    def trust(self) -> dict[str, str]:
        """Returns the environment variables that make each client trust this authority."""
        names = ("TOWPATH_CA_FILE", "CURL_CA_BUNDLE", "RCLONE_CA_CERT", "X509_CERT_FILE")
        return {"X509_CERT_DIR": str(self.directory), **dict.fromkeys(names, str(self.file))}


@dataclasses.dataclass
class Machine:
    """Locations of the programs and of the scratch space."""

    towpath_binary: str
    peers: pathlib.Path
    work: pathlib.Path
    authority: Authority
    network: Network = LOOPBACK
    """The network in which its servers run."""

    def installed(self, name: str) -> Program:
        """Returns a program of the operating system."""
        found = shutil.which(name)
        if found is None:
            raise RuntimeError(f"{name} is not installed")
        return Program((found,), self.authority.trust())

    def xrootd6(self, name: str) -> Program:
        """Returns a program of the XRootD 6 that bench/peers built."""
        return Program((str(self.peers / "xrootd6/bin" / name),), {"LD_LIBRARY_PATH": str(self.peers / "xrootd6/lib"), **self.authority.trust()})

    def globus(self, name: str, host: str) -> Program:
        """Returns a GridFTP program for the host `client` or `server`. GridFTP resolves the name of every address, and
        an emulated network has no name server; therefore the program gets its own `/etc/hosts`."""
        hosts = self.work / "hosts"
        hosts.write_text("127.0.0.1 localhost\n198.18.0.1 client\n198.18.0.2 server\n")
        with_hosts = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts))
        return Program((*with_hosts, *self.installed(name).words), {"GLOBUS_HOSTNAME": host})

    def example(self, name: str) -> Program:
        """Returns a program of the test kit: the load generator or the bare loop."""
        return Program((str(pathlib.Path(self.towpath_binary).parent / "examples" / name),))

    @property
    def towpath(self) -> Program:
        """Returns towpath with a cache directory of this run, so that no path statistics survive it."""
        return Program((self.towpath_binary,), {**self.authority.trust(), "XDG_CACHE_HOME": str(self.work / "cache")})

    @property
    def rclone(self) -> Program:
        built = self.peers / "bin/rclone"
        program = Program((str(built),), self.authority.trust()) if built.exists() else self.installed("rclone")
        return program("--config", "/dev/null")

    @contextlib.contextmanager
    def serving(self, roots: Mapping[str, pathlib.Path], tls: bool = False) -> Iterator[dict[str, Server]]:
        """Runs a server of each given kind over its directory. The kind `bare` is the bare loop over a file."""
        with contextlib.ExitStack() as stack:
            servers = {}
            for kind, root in roots.items():
                servers[kind] = self.serve(kind, root, tls)
                stack.callback(servers[kind].stop)
            yield servers

    def serve(self, kind: str, root: pathlib.Path, tls: bool = False) -> Server:
        port = free_port()
        start = {
            "towpath": self._towpath,
            "xrootd5": self._xrootd,
            "xrootd6": self._xrootd,
            "nginx": self._nginx,
            "gridftp": self._gridftp,
            "bare": self._bare,
        }[kind]
        program = start(kind, root, port, tls).after(self.network.at_server)
        return Server(program, port, self.work / f"{kind}-{port}.log", tls, self.network)

    def _towpath(self, _kind: str, root: pathlib.Path, port: int, tls: bool) -> Program:
        certificate = ("--certificate", self.authority.certificate, "--key", self.authority.key) if tls else ()
        return self.towpath("serve", root, "--listen", f"{self.network.host}:{port}", "--writable", *certificate)

    def _xrootd(self, kind: str, root: pathlib.Path, port: int, tls: bool) -> Program:
        work = self.work / f"{kind}-{port}"
        (work / "admin").mkdir(parents=True)
        config = work / "xrootd.cfg"
        authority = self.authority
        lines = f"xrd.tls {authority.certificate} {authority.key}\nxrd.tlsca certdir {authority.directory}\nxrootd.tls capable all" if tls else ""
        config.write_text(XROOTD.format(root=root, work=work, port=port, tls=lines))
        for path in (work, work / "admin", root):
            shutil.chown(path, "daemon")
        program = self.xrootd6("xrootd") if kind == "xrootd6" else self.installed("xrootd")
        return program("-c", config, "-l", work / "xrootd.log", "-R", "daemon")

    def _nginx(self, kind: str, root: pathlib.Path, port: int, tls: bool) -> Program:
        work = self.work / f"{kind}-{port}"
        work.mkdir(parents=True)
        for path in (work, root):
            shutil.chown(path, "www-data")
        lines = f"ssl; ssl_certificate {self.authority.certificate}; ssl_certificate_key {self.authority.key}" if tls else ""
        config = work / "nginx.conf"
        config.write_text(NGINX.format(work=work, address=f"{self.network.host}:{port}", root=root, tls=lines))
        return self.installed("nginx")("-c", config, "-p", work)

    def _bare(self, _kind: str, file: pathlib.Path, port: int, _tls: bool) -> Program:
        return self.example("bare_loop")("serve", file, f"{self.network.host}:{port}")

    def _gridftp(self, _kind: str, _root: pathlib.Path, port: int, _tls: bool) -> Program:
        """Serves all files that `nobody` may read, by absolute path."""
        host = self.network.host
        server = self.globus("globus-gridftp-server", "server")("-aa", "-anonymous-user", "nobody", "-p", port)
        return server("-control-interface", host, "-data-interface", host)
