"""The servers and clients that are compared, each with the settings that its own documentation or experience recommends."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil

from harness import Server, free_port

NGINX = """
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
    client_body_temp_path {work}/body;
    client_max_body_size 0;
    server {{
        listen 127.0.0.1:{port} {tls};
        {certificate}
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


@dataclasses.dataclass
class Machine:
    """Where the programs and the scratch space are."""

    towpath: str
    peers: pathlib.Path
    work: pathlib.Path

    @property
    def xrootd6(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.peers / "xrootd6/lib")}

    def program(self, name: str, version6: bool = False) -> str:
        if version6:
            return str(self.peers / "xrootd6/bin" / name)
        found = shutil.which(name)
        if found is None:
            raise RuntimeError(f"{name} is not installed")
        return found

    @property
    def rclone(self) -> str:
        built = self.peers / "bin/rclone"
        return str(built) if built.exists() else self.program("rclone")

    def log(self, name: str) -> pathlib.Path:
        return self.work / f"{name}.log"

    def serve_towpath(self, root: pathlib.Path, extra: list[str] | None = None) -> Server:
        port = free_port()
        command = [self.towpath, "serve", str(root), "--listen", f"127.0.0.1:{port}", "--writable", *(extra or [])]
        return Server(command, port, self.log(f"towpath-{port}"))

    def serve_xrootd(self, root: pathlib.Path, version6: bool, tls: str = "") -> Server:
        port = free_port()
        work = self.work / f"xrootd-{port}"
        (work / "admin").mkdir(parents=True)
        config = work / "xrootd.cfg"
        config.write_text(XROOTD.format(root=root, work=work, port=port, tls=tls))
        for path in (work, work / "admin", root):
            shutil.chown(path, "daemon")
        command = [self.program("xrootd", version6), "-c", str(config), "-l", str(work / "xrootd.log"), "-R", "daemon"]
        return Server(command, port, self.log(f"xrootd-{port}"), self.xrootd6 if version6 else None)

    def serve_nginx(self, root: pathlib.Path, certificate: tuple[pathlib.Path, pathlib.Path] | None = None) -> Server:
        port = free_port()
        work = self.work / f"nginx-{port}"
        work.mkdir(parents=True)
        for path in (work, root):
            shutil.chown(path, "www-data")
        lines = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};" if certificate else ""
        config = work / "nginx.conf"
        config.write_text(NGINX.format(work=work, port=port, root=root, tls="ssl" if certificate else "", certificate=lines))
        return Server([self.program("nginx"), "-c", str(config), "-p", str(work)], port, self.log(f"nginx-{port}"))
