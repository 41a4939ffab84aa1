"""The commands of docs/ are run as they stand there, against a server started as docs/serve.md starts it.

Only what a reader would replace is replaced: the port, the exported directory, and where files are put.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from servers import HOST, start_towpath

DOCS = Path(__file__).parent.parent / "docs"
SERVED_PORT = 1094
COMMAND_LIMIT_S = 60


def commands(page: str) -> list[str]:
    """Every line after `$ ` of the page's console blocks."""
    blocks = re.findall(r"```console\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def settings(page: str) -> str:
    """The page's example of a settings file."""
    return re.search(r"```toml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[1]


@pytest.fixture(scope="module")
def documented(binary, tmp_path_factory):
    """The server of docs/serve.md: defaults, read-only; with the file that docs/cli.md speaks of."""
    server = start_towpath(binary, tmp_path_factory.mktemp("documented"), writable=False)
    run = server.root / "run7"
    run.mkdir()
    (run / "f.root").write_bytes(b"root" + bytes(1000))
    yield server
    server.stop()


@pytest.mark.parametrize("page", ["serve.md", "cli.md"])
def test_commands(page, documented, binary, tmp_path):
    """Each command succeeds and says something, in the order of the page."""
    assert commands(page)
    environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    for command in commands(page):
        if command.startswith("towpath serve"):
            continue  # the fixture did that
        real = command.replace(f"{HOST}:{SERVED_PORT}", f"{HOST}:{documented.port}").replace("/tmp/", f"{tmp_path}/")
        done = subprocess.run(real, shell=True, env=environment, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout or " cp " in command, f"{command} printed nothing"
    if page == "cli.md":
        assert (tmp_path / "run7/f.root").read_bytes() == (documented.root / "run7/f.root").read_bytes()


def test_settings(binary, tmp_path):
    """The settings file that docs/serve.md shows is understood to its last key."""
    file = tmp_path / "serve.toml"
    file.write_text(settings("serve.md"))
    done = subprocess.run([binary, "config", "show", "serve", "--config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f'site = "EXAMPLE-SITE"  # {file}' in done.stdout


def test_faults():
    """Every test that docs/faults.md names exists, in some crate."""
    sources = "\n".join(file.read_text() for file in (DOCS.parent / "crates").rglob("*.rs"))
    rows = [line for line in (DOCS / "faults.md").read_text().splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) > 30
    assert [name for name in named if not re.search(rf"fn {name}\(", sources)] == []
