"""Runs client programs for the tests, and generates the content that they transfer.

`run` gives every program the same small environment (no proxies, no tokens, an empty home, the tests' certificate
authority) and a deadline. If the exit status is unexpected, it shows the complete output.
"""

import os
import subprocess
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import pytest

DEADLINE_S = 60
# The exit status of a Rust program that panicked.
PANIC = 101


@dataclass
class Result:
    """Exit status and output of a program."""

    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """The standard output as text."""
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        """The standard output's lines, without blank ones."""
        return [line for line in self.text.splitlines() if line.strip()]

    def __str__(self) -> str:
        return f"status {self.status}\n{self.out[-4000:].decode(errors='replace')}\n{self.err[-4000:].decode(errors='replace')}"


class Clients:
    """Runs client programs in `home`, trusting the authority in `ca_file` and `ca_directory`."""

    def __init__(self, home: Path, ca_file: Path, ca_directory: Path):
        self.environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "HOME": str(home),
            "TMPDIR": str(home),
            "X509_CERT_DIR": str(ca_directory),
            "SSL_CERT_FILE": str(ca_file),
            "TOWPATH_CA_FILE": str(ca_file),
            "REQUESTS_CA_BUNDLE": str(ca_file),
            "XRD_CONNECTIONRETRY": "1",
            "XRD_REQUESTTIMEOUT": "30",
            "XRD_STREAMTIMEOUT": "30",
            "XRD_STREAMERRORWINDOW": "1",
        }
        self.home = home

    def run(self, *command, stdin: bytes = b"", status: int | None = 0, deadline_s: float = DEADLINE_S,
            cwd: Path | None = None, **environment: str) -> Result:
        """Runs a command. `status` is the expected exit status; None accepts any regular error status: not 0, no
        signal, and not that of a panic."""
        done = subprocess.run([str(word) for word in command], input=stdin, capture_output=True, timeout=deadline_s,
                              cwd=cwd or self.home, env=self.environment | environment, check=False)
        result = Result(done.returncode, done.stdout, done.stderr)
        wanted = result.status > 0 and result.status != PANIC if status is None else result.status == status
        assert wanted, f"{' '.join(str(word) for word in command)}\n{result}"
        return result

    def xrootd6(self, program: str) -> tuple[Path, dict[str, str]]:
        """Returns a program of XRootD 6 and its environment. bench/peers builds it; without it the test is skipped."""
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        prefix = cache / "towpath/bench/xrootd6"
        if not (prefix / "bin" / program).exists():
            pytest.skip("no XRootD 6 here: bench/peers builds it")
        return prefix / "bin" / program, {"LD_LIBRARY_PATH": str(prefix / "lib")}


def content(length: int, salt: int = 0) -> bytes:
    """Returns bytes that are a function of their offset, so that a misplaced byte is detected; `salt` selects different
    bytes."""
    words = numpy.arange(length // 8 + 1, dtype="<u8") + numpy.uint64(salt << 40)
    words = (words ^ (words >> numpy.uint64(7))) * numpy.uint64(0x9E3779B97F4A7C15)
    return words.tobytes()[:length]


def eventually(condition: Callable[[], bool], deadline_s: float = 10) -> bool:
    """Returns whether `condition` becomes true before the deadline. Polls every 20 ms."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def tree(directory: Path) -> dict[str, bytes]:
    """Returns all files below `directory`: contents by relative path."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def adler32(data: bytes) -> str:
    """Returns the Adler-32 of `data` as 8 lower-case hex digits."""
    return f"{zlib.adler32(data):08x}"


def crc32c(data: bytes) -> str:
    """Returns the CRC-32C of `data` as 8 lower-case hex digits."""
    table = _crc32c_table()
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return f"{crc ^ 0xFFFFFFFF:08x}"


def _crc32c_table() -> list[int]:
    table = []
    for index in range(256):
        for _ in range(8):
            index = (index >> 1) ^ (0x82F63B78 if index & 1 else 0)
        table.append(index)
    return table
