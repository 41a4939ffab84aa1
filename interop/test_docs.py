"""The commands of docs/ are run as they stand there, against a server started as docs/guides/serve.md starts it, and two that stand for those far away.

Only what a reader would replace is replaced: hosts and ports, the exported directory, and where files are on this machine.
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
"""Of every file that the pages name; docs/guides/moving-data.md has its size and digest."""

PAGES = ["get-started/first-steps.md", "guides/serve.md", "reference/cli.md", "guides/moving-data.md", "guides/sync.md", "concepts/verdict.md", "guides/probe.md"]
MEASURED = ["concepts/verdict.md", "guides/probe.md"]
"""What these show was measured over a long path: other causes hold a short one up."""

QUIET = re.compile(r"towpath (cp|sync) ")
"""Commands that may say on the standard error stream alone what they did."""


def commands(page: str) -> list[tuple[str, list[str]]]:
    """Every line after `$ ` of the page's console blocks, each with the lines below it: what it prints."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", (DOCS / page).read_text(), re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif found:
                found[-1][1].append(line)
    return found


def example(page: str, language: str) -> str:
    """The page's first example in that language: a settings file, a Metalink."""
    return re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)[1]


def shape(line: str) -> str:
    """The line without its numbers, sizes and rates, which differ each time; `…` stands for one."""
    return re.sub(r"(…|[\d.]+)( ([KMGTP]i)?B\b)?", "N", line)


def at(text: str, servers: dict[str, Server]) -> str:
    """The text with the hosts of `servers`, by the names that the pages give them."""
    names = "|".join(re.escape(name) for name in servers)
    return re.sub(rf"({names})(:{SERVED_PORT})?", lambda found: f"{HOST}:{servers[found[1]].port}", text)


def as_run(command: str, servers: dict[str, Server], here: Path) -> str:
    """The command as it is run: paths of this machine are below `here`, and a probe takes seconds."""
    command = at(command, servers).replace("towpath probe ", "towpath probe --seconds 1 ")
    return re.sub(r"(?<!\S)/(tmp/)?(?=\w)", f"{here}/", command)


def put(path: Path) -> None:
    """Makes one of the files that the pages name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT)


@pytest.fixture(scope="module")
def documented(binary, tmp_path_factory):
    """The server of docs/guides/serve.md: defaults, read-only; with the file that docs/reference/cli.md speaks of."""
    server = start_towpath(binary, tmp_path_factory.mktemp("documented"), writable=False)
    put(server.root / "run7/f.root")
    yield server
    server.stop()


@pytest.fixture
def servers(documented, binary, tmp_path_factory):
    """The servers by the names that the pages give them. Those far away have the same file, may be written to, and copy between themselves."""
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
    """A machine with the files that the pages copy from it."""
    put(tmp_path / "data/run7/f.root")
    put(tmp_path / "data/run7.root")
    (tmp_path / "f.root.meta4").write_text(at(example("guides/moving-data.md", "xml"), servers))
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_commands(page, servers, binary, here):
    """Each command succeeds and prints what the page shows, but for the numbers, in the order of the page."""
    assert commands(page)
    environment = {**os.environ, "PATH": f"{binary.parent}:{os.environ['PATH']}"}
    for command, shown in commands(page):
        if command.startswith("towpath serve"):
            continue  # the fixture did that
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


def test_settings(binary, tmp_path):
    """The settings file that docs/guides/serve.md shows is understood to its last key."""
    file = tmp_path / "serve.toml"
    file.write_text(example("guides/serve.md", "toml"))
    done = subprocess.run([binary, "config", "show", "serve", "--config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f'site = "EXAMPLE-SITE"  # {file}' in done.stdout


def test_faults():
    """Every test that docs/reference/faults.md names exists, in some crate."""
    sources = "\n".join(file.read_text() for file in (ROOT / "crates").rglob("*.rs"))
    rows = [line for line in (DOCS / "reference/faults.md").read_text().splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(named) > 30
    assert [name for name in named if not re.search(rf"fn {name}\(", sources)] == []


def test_links():
    """Every link from a page to another one, or to a part of one, leads somewhere."""
    pages = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages += [page for directory in ("docs", "bench") for page in (ROOT / directory).rglob("*.md")]
    links = [(page, link) for page in pages for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in link]
    assert len(links) > 100
    assert [f"{page.relative_to(ROOT)}: {link}" for page, link in links if not leads_somewhere(page, link)] == []


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether there is such a file, and in it a heading by that name, spelled as in the addresses of pages."""
    path, _, part = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists() or not part:
        return target.exists()
    titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
    return part in [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
