"""Runs the commands of docs/ as printed, against a server started as in docs/guides/serve.md, and two that represent
remote servers.

Only values that a reader would adapt are replaced: hosts and ports, the exported directory, and the paths of local
files.
"""

import os
import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from servers import HOST, Server, start_towpath

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SERVED_PORT = 1094
COMMAND_LIMIT_S = 60
CONTENT = b"root" + bytes(1000)
"""Content of every file named on the pages; docs/guides/moving-data.md shows its size and digest."""

PAGES = ["get-started/first-steps.md", "guides/serve.md", "reference/cli.md", "reference/coming-from.md", "guides/moving-data.md", "guides/sync.md", "concepts/verdict.md", "guides/probe.md"]
MEASURED = ["concepts/verdict.md", "guides/probe.md"]
"""Pages whose output was measured over a long path; a short one is limited by other causes."""

COMMANDS = ["cp", "sync", "ls", "find", "du", "stat", "rm", "mkdir", "rmdir", "mv", "cat", "sum", "df"]
"""Commands in the tables of docs/reference/coming-from.md."""

QUIET = re.compile(r"towpath (cp|sync) ")
"""Commands that may report their actions on standard error only."""


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Returns every line after `$ ` in the page's console blocks, each with the lines below it, its output."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
    return found


def example(page: str, language: str) -> str:
    """Returns the page's first example in that language: a settings file, a Metalink."""
    return re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[1]


def shape(line: str) -> str:
    """Returns the line with numbers, sizes and rates replaced by `…`, because they differ in each run."""
    return re.sub(r"(…|[\d.]+)( ([KMGTP]i)?B\b)?", "N", line)


def at(text: str, servers: dict[str, Server]) -> str:
    """Replaces the host names of the pages by the addresses of `servers`."""
    names = "|".join(re.escape(name) for name in servers)
    return re.sub(rf"({names})(:{SERVED_PORT})?", lambda found: f"{HOST}:{servers[found[1]].port}", text)


def as_run(command: str, servers: dict[str, Server], here: Path) -> str:
    """Returns the command to run: paths of the machine are below `here`, and a probe takes seconds."""
    command = at(command, servers).replace("towpath probe ", "towpath probe --seconds 1 ")
    return re.sub(r"(?<!\S)/(tmp/)?(?=\w)", f"{here}/", command)


def put(path: Path) -> None:
    """Creates one of the files named on the pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT)


@pytest.fixture(scope="module")
def documented(binary, tmp_path_factory):
    """The server of docs/guides/serve.md, read-only and with default settings, with the file of docs/reference/cli.md.
    """
    server = start_towpath(binary, tmp_path_factory.mktemp("documented"), writable=False)
    put(server.root / "run7/f.root")
    yield server
    server.stop()


@pytest.fixture
def servers(documented, binary, tmp_path_factory):
    """The servers by their names on the pages. Remote ones have the same file, are writable, and support third-party
    copies."""
    config = f'[third_party]\nanonymous = true\nallow = ["{HOST}"]\n'
    with ExitStack() as started:
        found = {HOST: documented}
        for name in ("far", "second"):
            server = start_towpath(binary, tmp_path_factory.mktemp(name), config=config)
            started.callback(server.stop)
            put(server.root / "run7/f.root")
            (server.root / "archive").mkdir()
            found[f"{name}.example.org"] = server
        yield found


@pytest.fixture
def here(servers, tmp_path):
    """A directory with the local files that the pages copy."""
    put(tmp_path / "data/run7/f.root")
    put(tmp_path / "data/run7/g.root")
    put(tmp_path / "data/run7.root")
    (tmp_path / "f.root.meta4").write_text(at(example("guides/moving-data.md", "xml"), servers))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_commands(page, servers, binary, here):
    """Each command, in the order of the page, succeeds and prints the output shown there, except for numbers."""
    assert commands(page)
    environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    for command, shown in commands(page):
        if command.startswith("towpath serve"):
            continue  # run by the fixture
        real = as_run(command, servers, here)
        done = subprocess.run(real, shell=True, cwd=here, env=environment, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        printed = done.stdout if not QUIET.search(command) else done.stdout + done.stderr
        assert printed, f"{command} printed nothing"
        missing = {shape(line) for line in shown} - {shape(line) for line in printed.splitlines()}
        assert page in MEASURED or not missing, f"{command} printed {printed}"
    if page == "reference/cli.md":
        assert (here / "run7/f.root").read_bytes() == CONTENT
    if page == "guides/moving-data.md":
        arrived = ["both.root", "described/f.root", "slowly.root", "explained.root"]
        assert [(here / "data" / name).read_bytes() for name in arrived] == [CONTENT] * len(arrived)
        assert (servers["second.example.org"].root / "archive/f.root").read_bytes() == CONTENT


@pytest.mark.parametrize(("role", "page"), [("serve", "guides/serve.md"), ("cache", "guides/site-cache.md")])
def test_settings(role, page, binary, tmp_path):
    """towpath accepts all keys of the settings file of a guide."""
    file = tmp_path / "settings.toml"
    file.write_text(example(page, "toml"))
    done = subprocess.run([binary, "config", "show", role, "--config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f'site = "EXAMPLE-SITE"  # {file}' in done.stdout


def options(binary: Path, command: str) -> set[str]:
    """Returns the options in the help of a command."""
    done = subprocess.run([binary, command, "--help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", done.stdout))


def is_option(flag: str, known: set[str]) -> bool:
    """Returns whether a flag is a known option, a predicate of `find` with one dash, or several short options."""
    return flag in known or f"-{flag}" in known or all(f"-{letter}" in known for letter in flag[1:])


def test_coming_from(binary):
    """Every command and option of towpath in the tables of docs/reference/coming-from.md exists."""
    lines = (DOCS / "reference/coming-from.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    known = {name: options(binary, name) for name in COMMANDS}
    missing = []
    for foreign, ours in rows:
        commands = ["cp", "sync"]
        for span in re.findall(r"`([^`]*)`", foreign if ours.startswith("the same; ") or ours == "the same" else ours):
            named = re.match(rf"(?:xargs -0 )?(?:towpath )?({'|'.join(COMMANDS)})\b", span)
            assert named or not span.startswith("towpath "), span
            commands = [named[1]] if named else commands
            flags = re.findall(r"(?<!\S)--?[A-Za-z][\w-]*", span)
            missing += [f"{span}: {flag}" for flag in flags if not any(is_option(flag, known[name]) for name in commands)]
    assert len(rows) > 60
    assert missing == []


def test_faults():
    """Every test named in docs/reference/faults.md exists."""
    sources = "\n".join(file.read_text() for file in (ROOT / "crates").rglob("*.rs"))
    rows = [line for line in (DOCS / "reference/faults.md").read_text().splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) > 30
    assert [name for name in named if not re.search(rf"fn {name}\(", sources)] == []


def test_promises():
    """Every test named in docs/concepts/cache-semantics.md exists, in the file that the page names."""
    cache = ROOT / "crates/towpath-cache"
    text = (DOCS / "concepts/cache-semantics.md").read_text()
    named = re.findall(r"`(\w+)::(tests::)?(\w+)`", text.replace("`file::test`", "").replace("`file::tests::test`", ""))
    assert len(named) > 40
    files = [(cache / ("src" if inline else "tests/it") / f"{file}.rs", name) for file, inline, name in named]
    assert [name for file, name in files if f"fn {name}(" not in file.read_text()] == []


def test_links():
    """Every link between pages, or to a heading of a page, has a target."""
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages += [page for directory in ("docs", "bench") for page in (ROOT / directory).rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]
    assert len(links) > 100
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    """Returns whether the file of the link exists, and has a heading with the link's fragment."""
    path, _, part = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists() or not part:
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
    return part in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
