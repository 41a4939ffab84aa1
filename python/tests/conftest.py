"""Real servers for the tests of the package. TOWPATH_BINARY names the program (`make python` sets it)."""

import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

INTEROP = Path(__file__).parents[2] / "interop"
START_DEADLINE_S = 20
STOP_DEADLINE_S = 15
HOST = "127.0.0.1"


def pytest_configure():
    """Restores the handler of SIGINT, so that programs can be interrupted also where signals are ignored, such as in
    a shell's background jobs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class AltoServer:
    """A running `towpath alto` with one file of facts."""

    ird: str
    facts: Path

    def tell(self, facts: str) -> None:
        """Puts other facts into the place of those that were there, as a whole."""
        fresh = self.facts.with_suffix(".new")
        fresh.write_text(facts)
        fresh.replace(self.facts)


@contextmanager
def serving(binary: Path, directory: Path, facts: str, settings: str = ""):
    """A server of these facts, which notices others at once, with settings beside them."""
    (directory / "alto.toml").write_text(settings + '[agents.facts]\nkind = "static"\nfile = "facts.toml"\nrefresh = "50ms"\n')
    server = AltoServer("", directory / "facts.toml")
    server.tell(facts)
    command = [binary, "alto", "--config", "alto.toml", "--listen", f"{HOST}:0"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
        line = process.stdout.readline() if ready else ""
        address = line.removeprefix("listening on ").strip()
        assert address.startswith(HOST), f"towpath alto did not come up; it said {line!r}\n{(directory / 'log').read_text()}"
        server.ird = f"http://{address}/directory"
        yield server
    finally:
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def binary() -> Path:
    """The towpath program."""
    name = os.environ.get("TOWPATH_BINARY")
    if not name:
        pytest.fail("TOWPATH_BINARY is not set")
    return Path(name).resolve()


@pytest.fixture(scope="session")
def server(binary, tmp_path_factory):
    """Directory and address of a server that everybody may write to."""
    directory = tmp_path_factory.mktemp("served")
    command = [binary, "serve", "--writable", "--listen", "127.0.0.1:0", directory]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        ready, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
        line = process.stdout.readline() if ready else ""
        assert line.startswith("listening on "), line
        yield directory, line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="session")
def xrootd_server():
    """A real xrootd, which another user runs; so everybody may write the files of the tests."""
    sys.path.append(str(INTEROP))
    from servers import start_xrootd

    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        server = start_xrootd(Path(directory) / "xrootd")
        try:
            yield server
        finally:
            server.stop()


@dataclass(frozen=True)
class Served:
    """A directory at a server."""

    directory: Path
    base: str
    """URL of the directory."""
    is_xrootd: bool


@pytest.fixture(scope="session", params=["towpath-root", "towpath-dav", "xrootd-root", "xrootd-dav"])
def served(request):
    """A server, with the file systems of towpath, also where another package has registered one for `root`."""
    # Not for tests that need no module in Rust.
    from towpath import fs

    fs.register()
    program, scheme = request.param.split("-")
    if program == "xrootd":
        xrootd = request.getfixturevalue("xrootd_server")
        directory, address = xrootd.root, f"{HOST}:{xrootd.port if scheme == 'root' else xrootd.http_port}"
    else:
        directory, address = request.getfixturevalue("server")
    return Served(directory, f"{scheme}://{address}" + ("/" if scheme == "root" else ""), program == "xrootd")


@pytest.fixture(scope="session")
def base(served):
    """URL of the root of a server."""
    return served.base


@pytest.fixture
def area(served, tmp_path):
    """URL and local path of a directory of this test."""
    name = tmp_path.name
    # Files that the test writes itself are of another user than the server's.
    before = os.umask(0 if served.is_xrootd else 0o022)
    (served.directory / name).mkdir(exist_ok=True)
    yield f"{served.base}/{name}", served.directory / name
    os.umask(before)
