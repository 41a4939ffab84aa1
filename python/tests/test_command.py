"""The command `towpath` of the wheel, as pip installed it in the environment of these tests."""

import signal
import socket
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

DEADLINE_S = 20
INTERRUPTED = 128 + signal.SIGINT


@pytest.fixture
def command() -> Path:
    """The installed program."""
    return Path(sysconfig.get_path("scripts")) / "towpath"


def test_the_command_has_the_version_of_the_package(command):
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout.split() == ["towpath", metadata.version("towpath")]


def test_the_command_copies_a_file(command, tmp_path):
    content = bytes(range(256)) * 1000
    (tmp_path / "source").write_bytes(content)
    subprocess.run([command, "cp", "source", "copy"], cwd=tmp_path, timeout=DEADLINE_S, check=True)
    assert (tmp_path / "copy").read_bytes() == content


def test_the_command_ends_at_an_interrupt_with_its_exit_code(command, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/file"
        process = subprocess.Popen([command, "cp", url, "copy"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        # The server accepts the connection and does not respond.
        connection, _ = server.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, messages = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == INTERRUPTED, messages
    assert not (tmp_path / "copy").exists()
