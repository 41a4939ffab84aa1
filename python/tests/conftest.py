"""Real servers for the tests of the package. TOWPATH_BINARY names the program (`make python` sets it)."""

import os
import select
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

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


@pytest.fixture(scope="session", params=["root", "dav"])
def base(request, server):
    """URL of the root of the server, with the file systems of towpath, also where another package has registered one for `root`."""
    # Not for tests that need no module in Rust.
    from towpath import fs

    fs.register()
    _, address = server
    return {"root": f"root://{address}/", "dav": f"dav://{address}"}[request.param]


@pytest.fixture
def area(base, server, tmp_path):
    """URL and local path of a directory of this test."""
    name = tmp_path.name
    (server[0] / name).mkdir(exist_ok=True)
    return f"{base}/{name}", server[0] / name
