"""Caches in front of an origin. Each starts with an empty directory, and is removed after its run."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import pathlib
import shutil
from collections.abc import Callable, Iterator, Mapping

from contenders import Machine
from harness import Program, Server, free_port, scratch

NUMBERS = itertools.count()

XCACHE = """
{exports}
all.adminpath {work}/admin
all.pidpath {work}/admin
xrd.port {port}
xrd.network nodnr norpipa
{http}
ofs.osslib libXrdPss.so
pss.origin {origin}
pss.cachelib libXrdPfc.so
oss.localroot {directory}
{settings}
"""

NGINX = """
user www-data;
worker_processes 2;
worker_rlimit_nofile 16384;
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
    proxy_cache_path {directory} levels=1:2 keys_zone=bench:64m max_size=64g inactive=1d use_temp_path=off;
    {upstreams}
    server {{
        listen {address} backlog=2048;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_cache bench;
        proxy_cache_valid 200 206 1h;
        proxy_cache_lock on;
        {settings}
        {locations}
    }}
}}
"""
NGINX_SLICE = "slice 1m; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;"
NGINX_WHOLE = "proxy_cache_key $uri; proxy_cache_lock_age 10m; proxy_cache_lock_timeout 10m;"

SQUID = """
http_port {address} accel defaultsite={host} no-vhost
cache_peer {host} parent {origin_port} 0 no-query no-digest no-netdb-exchange originserver name=origin
cache_peer_access origin allow all
http_access allow all
cache_dir aufs {directory} 65536 16 256
cache_mem 1024 MB
maximum_object_size_in_memory 1 MB
maximum_object_size 16 GB
max_filedescriptors 16384
cache_effective_user proxy
collapsed_forwarding on
access_log none
cache_store_log none
cache_log {work}/cache.log
netdb_filename none
pinger_enable off
pid_filename {work}/squid.pid
coredump_dir {work}
refresh_pattern . 60 100% 1440
shutdown_lifetime 0 seconds
"""

VARNISH = """vcl 4.1;
backend origin {{ .host = "{host}"; .port = "{origin_port}"; }}
sub vcl_backend_response {{ set beresp.ttl = 1h; }}
"""
VARNISH_MEMORY = "16g"
"""Upper limit. Varnish allocates as objects arrive."""


@dataclasses.dataclass(frozen=True)
class Location:
    """Where a cache runs, and its origin."""

    machine: Machine
    origin: Server
    port: int
    work: pathlib.Path
    """For configuration and logs."""
    directory: pathlib.Path
    """For cached data."""

    @property
    def address(self) -> str:
        return f"{self.machine.network.host}:{self.port}"

    @property
    def origin_host(self) -> str:
        return self.origin.address.rsplit(":", 1)[0]

    def owned_by(self, user: str) -> None:
        for path in (self.work, self.directory):
            shutil.chown(path, user)


@dataclasses.dataclass(frozen=True)
class CacheKind:
    """A cache with its settings. `origin` is the kind of its origin server."""

    name: str
    origin: str
    program: Callable[[Location], Program]

    @property
    def is_http(self) -> bool:
        """Returns whether the origin speaks HTTP."""
        return self.origin == "nginx"


def towpath(at: Location, scheme: str, recheck: str = "always") -> Program:
    """Returns the cache of towpath, with a rule of when files are compared with their origin."""
    url = at.origin.http() if scheme == "http" else at.origin.root("")
    config = at.work / "cache.toml"
    # A benchmark must not depend on what else is on the disk.
    config.write_text(f'[[rule]]\npath = "/"\nrecheck = "{recheck}"\n[space]\nhigh = 1.0\n')
    return at.machine.towpath("cache", url, "--dir", at.directory, "--listen", at.address, "--config", config)


def xcache(at: Location, xrootd: Program, settings: str, is_forwarding: bool = False) -> Program:
    """Returns XCache for the origin; if it is forwarding, for the origin in each path."""
    (at.work / "admin").mkdir()
    config = at.work / "xrootd.cfg"
    values = {"exports": "all.export /root:/", "origin": "="} if is_forwarding else {"exports": "all.export /", "origin": at.origin.address}
    values["http"] = f"xrd.protocol http:{at.port} libXrdHttp.so" if has_http(xrootd) else ""
    config.write_text(XCACHE.format(work=at.work, port=at.port, directory=at.directory, settings=settings, **values))
    at.owned_by("daemon")
    shutil.chown(at.work / "admin", "daemon")
    return xrootd("-c", config, "-l", at.work / "xrootd.log", "-R", "daemon")


def has_http(xrootd: Program) -> bool:
    """Returns whether XRootD has its plug-in for HTTP. That of XRootD 6.2 does not build with Debian 12's compiler."""
    return "LD_LIBRARY_PATH" not in xrootd.environment


def xrootd_of(machine: Machine, version: str) -> Program:
    """Returns XRootD 5.5 or 6.2. XRootD loads plug-ins as another user, who cannot read the directory of the peers;
    those of 6.2 are copied."""
    if version == "5.5":
        return machine.installed("xrootd")
    libraries = machine.work / "xrootd6-lib"
    if not libraries.exists():
        shutil.copytree(machine.peers / "xrootd6/lib", libraries, symlinks=True)
    return machine.xrootd6("xrootd").where(LD_LIBRARY_PATH=str(libraries))


def nginx(at: Location, settings: str, origins: Mapping[str, Server] | None = None) -> Program:
    """Returns nginx with an origin for each prefix of paths; by default one for all."""
    config = at.work / "nginx.conf"
    chosen = list((origins or {"/": at.origin}).items())
    values = {
        "upstreams": "\n".join(f"upstream origin{number} {{ server {origin.address}; keepalive 16; }}" for number, (_, origin) in enumerate(chosen)),
        "locations": "\n".join(f"location {prefix} {{ proxy_pass http://origin{number}/; }}" for number, (prefix, _) in enumerate(chosen)),
    }
    config.write_text(NGINX.format(work=at.work, address=at.address, directory=at.directory, settings=settings, **values))
    at.owned_by("www-data")
    return at.machine.installed("nginx")("-c", config, "-p", at.work)


def squid(at: Location) -> Program:
    config = at.work / "squid.conf"
    values = {"work": at.work, "address": at.address, "host": at.origin_host, "origin_port": at.origin.port, "directory": at.directory}
    config.write_text(SQUID.format(**values))
    at.owned_by("proxy")
    program = at.machine.installed("squid")
    # Squid first creates its directories.
    return Program(("sh", "-c", '"$0" --foreground -z -f "$1" && exec "$0" --foreground -N -f "$1"', *program.words, str(config)), program.environment)


def varnish(at: Location) -> Program:
    config = at.work / "default.vcl"
    config.write_text(VARNISH.format(host=at.origin_host, origin_port=at.origin.port))
    storage = f"malloc,{VARNISH_MEMORY}"
    return at.machine.installed("varnishd")("-F", "-j", "none", "-a", at.address, "-f", config, "-n", at.work / "varnish", "-s", storage)


def xcache_kind(version: str, title: str, settings: str = "") -> CacheKind:
    def program(at: Location) -> Program:
        return xcache(at, xrootd_of(at.machine, version), settings)

    return CacheKind(f"XCache {version}{title}", "xrootd5", program)


def blocks(size: str, prefetch: int) -> str:
    return f"pfc.ram 4g\npfc.blocksize {size}\npfc.prefetch {prefetch}"


TOWPATH = CacheKind("towpath cache", "xrootd5", lambda at: towpath(at, "root"))
TOWPATH_TOWPATH = CacheKind("towpath cache <- towpath", "towpath", lambda at: towpath(at, "root"))
TOWPATH_HTTP = CacheKind("towpath cache (HTTP)", "nginx", lambda at: towpath(at, "http"))
TOWPATH_HOUR = CacheKind("towpath cache (HTTP), rechecked after 1 h", "nginx", lambda at: towpath(at, "http", "1h"))
"""As fresh as the HTTP caches here, which do not contact their origin for an hour."""
XCACHE_DEFAULT = {version: xcache_kind(version, "") for version in ("5.5", "6.2")}
XCACHE_SMALL = {
    (version, size): xcache_kind(version, f", blocks of {size[:-1]} KiB, no prefetching", blocks(size, 0)) for version in ("5.5", "6.2") for size in ("4k", "64k")
}
XCACHE_LARGE = {version: xcache_kind(version, ", blocks of 1 MiB, prefetching 32", blocks("1m", 32)) for version in ("5.5", "6.2")}
NGINX_SLICES = CacheKind("nginx, slices of 1 MiB", "nginx", lambda at: nginx(at, NGINX_SLICE))
NGINX_FILES = CacheKind("nginx", "nginx", lambda at: nginx(at, NGINX_WHOLE))
SQUID_KIND = CacheKind("Squid", "nginx", squid)
VARNISH_KIND = CacheKind("Varnish", "nginx", varnish)
HTTP_PEERS = [NGINX_FILES, NGINX_SLICES, SQUID_KIND, VARNISH_KIND]


def lacks_xcache6(machine: Machine) -> str | None:
    """Returns why XCache 6.2 cannot run: its plug-in is missing; None if it can."""
    plugin = machine.peers / "xrootd6/lib/libXrdPfc-6.so"
    return None if plugin.exists() else f"{plugin.name} was not built: see bench/peers"


@contextlib.contextmanager
def running(kind: CacheKind, machine: Machine, origin: Server, parent: pathlib.Path) -> Iterator[Server]:
    """Runs a cache with an empty directory below `parent`, in the servers' place of the machine's network."""
    with scratch(str(parent), f"cache-{next(NUMBERS)}") as directory, running_in(kind, machine, origin, directory) as server:
        yield server


@contextlib.contextmanager
def running_in(kind: CacheKind, machine: Machine, origin: Server, directory: pathlib.Path) -> Iterator[Server]:
    """Runs a cache with this directory."""
    port = free_port()
    # A port can be free a second time.
    work = machine.work / f"cache-{next(NUMBERS)}"
    work.mkdir()
    program = kind.program(Location(machine, origin, port, work, directory)).after(machine.network.at_server)
    server = Server(program, port, work / "output.log", network=machine.network)
    try:
        yield server
    finally:
        server.stop()
