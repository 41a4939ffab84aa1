"""Four major releases of unmodified Rucio, and the four ways to use an ALTO server in them (docs/guides/rucio.md)."""

import re
import subprocess

import pytest
from clients import eventually
from rucio_site import ADDRESSES, DID, DISTANCES, FILE, PYTHON, RELEASES, SCOPE, rses, site, storages
from servers import HOST, free_port
from test_alto import serving
from test_docs import COMMAND_LIMIT_S, DOCS, commands

PAGE, EXAMPLE = "guides/rucio.md", "https://alto.example.org"
DELAYS_US = {"NEAR": 1_000, "MIDDLE": 9_000, "FAR": 30_000, "MOON": 1_280_000}
BEST_FIRST = list(DELAYS_US)
HOPS = {"MOON": 1, "MIDDLE": 2, "FAR": 3, "NEAR": 4}
"""Number of AS hops from the client."""
FEWEST_HOPS_FIRST = list(HOPS)
FROM_FAR = ["FAR", "MIDDLE", "NEAR", "MOON"]
"""The order for a client at the address of FAR. The delay from MOON to there is unknown."""
BY = "BY delay_ow"
SETTINGS = f"""
[agents.ways]
kind = "static"
file = "facts.toml"
[rucio]
statement = "{BY}"
rses = {{ {", ".join(f'{rse} = "{address}"' for rse, address in ADDRESSES.items())} }}
sites = {{ CERN = "{HOST}", CERN-PROD = "{HOST}", LUNA = "{ADDRESSES["FAR"]}" }}
"""


def facts() -> str:
    """Returns delays from each storage to the client, and from each except MOON to each storage; two storages are in
    Europe."""
    lines = ['[network-map.default]\nall = ["0.0.0.0/0", "::/0"]\n']
    lines += [f'[properties."ipv4:{ADDRESSES[rse]}/32"]\n"priv:continent" = "EU"\n' for rse in ("FAR", "MIDDLE")]
    ways = [(rse, HOST, delay) for rse, delay in DELAYS_US.items()]
    ways += [(source, ADDRESSES[destination], abs(DELAYS_US[source] - DELAYS_US[destination]))
             for source in DELAYS_US if source != "MOON" for destination in DELAYS_US]
    lines += [f'[[costs]]\nsrc = "{ADDRESSES[rse]}"\ndst = "{address}"\ndelay-ow = {delay}\n' for rse, address, delay in ways]
    routes = [f'{{ prefix = "{ADDRESSES[rse]}/32", next-hop = "192.0.2.1", as-path = "{" ".join(map(str, range(64500, 64500 + hops)))}" }}'
              for rse, hops in HOPS.items()]
    lines.append(f'[routers.edge]\nserves = ["{HOST}/32"]\nroutes = [{", ".join(routes)}]\n')
    return "".join(lines)


def way(operation):
    """Runs a test with each release, as a row of the table."""
    releases = [pytest.param(release, marks=pytest.mark.pair(f"Rucio {release}", operation)) for release in RELEASES]
    return pytest.mark.parametrize("rucio", releases, indirect=True)


@pytest.fixture(scope="module")
def alto(binary, tmp_path_factory):
    """The address of the ALTO server."""
    directory = tmp_path_factory.mktemp("alto-of-rucio")
    (directory / "facts.toml").write_text(facts())
    (directory / "alto.toml").write_text(SETTINGS)
    with serving(binary, directory) as address:
        yield address


@pytest.fixture(scope="module")
def ird(alto):
    """The URL of the ALTO server's directory."""
    return f"http://{alto}/directory"


@pytest.fixture(scope="module")
def rse_servers(binary, authority, tmp_path_factory):
    """The storages."""
    with storages(binary, tmp_path_factory.mktemp("rses"), authority) as running:
        yield running


@pytest.fixture(scope="module")
def rucio(request, clients, rse_servers, tmp_path_factory):
    """The server of one Rucio release."""
    with site(request.param, tmp_path_factory.mktemp("rucio") / request.param, clients, rse_servers) as face:
        yield face


@pytest.fixture(scope="module")
def wrapped(package, rucio, ird):
    """The same with the sorter `alto`."""
    return rucio.site.serve("towpath.rucio.wsgi:application", TOWPATH_ALTO_IRD=ird)


def locations(metalink: bytes) -> list[str]:
    """Returns the storages in the order of a Metalink."""
    found = re.findall(rb'<url location="(\w+)"[^>]* priority="(\d+)"', metalink)
    assert [int(priority) for _, priority in found] == list(range(1, len(found) + 1))
    return [rse.decode() for rse, _ in found]


def downloaded(rucio, here, *words) -> list[str]:
    """Downloads the file with Rucio's command. Returns the storages that it tried, in order."""
    done = rucio.rucio("download", *words, "--dir", here)
    assert (here / SCOPE / FILE).read_bytes() == rucio.site.storages.data, done
    return re.findall(rf"Trying to download with https .* from (\w+): {re.escape(DID)}", done.text + done.err.decode())


def blocks(page: str, language: str) -> list[str]:
    """Returns the examples of a page in that language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_settings_of_the_page(binary, tmp_path):
    """The page's settings of `towpath alto` produce a table with a line for each site and RSE; the page's command
    downloads it."""
    agents, facts = next(text for text in blocks("guides/alto/README.md", "toml") if text.startswith("# alto.toml")), example_facts()
    (tmp_path / "facts.toml").write_text(facts)
    # The host of the page does not resolve here.
    (tmp_path / "alto.toml").write_text(blocks(PAGE, "toml")[0].replace("eospublic.cern.ch", "137.138.0.1") + agents)
    fetch = next(command for command, _ in commands(PAGE) if command.startswith("curl") and " -o " not in command)
    with serving(binary, tmp_path) as address:
        done = subprocess.run(fetch.replace(EXAMPLE, f"http://{address}"), shell=True, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=True)
    lines = done.stdout.splitlines()
    sites = ["CERN-PROD", "IN2P3-CC", "ROAMING"]
    assert len(lines) == 2 * len(sites) and all(f"{site},IN2P3-DATADISK,0.000000" in lines for site in sites), lines


def example_facts() -> str:
    """Returns the file of facts of docs/guides/alto/README.md."""
    return next(text for text in blocks("guides/alto/README.md", "toml") if text.startswith("# facts.toml"))


@pytest.fixture
def documented(package, rucio, alto, binary, here):
    """Runs a command of the page in `here`, which has the files that the page requires; Rucio's server has the page's
    settings."""
    client = next(text for text in blocks("guides/order.md", "toml") if text.startswith("# client.toml"))
    (here / "client.toml").write_text(client)
    settings = "\n".join(text for text in blocks(PAGE, "ini") if "[Service]" not in text)
    settings = settings.replace(EXAMPLE, f"http://{alto}").replace("/etc/rucio/client.toml", str(here / "client.toml"))
    face = rucio.site.serve("towpath.rucio.wsgi:application", re.sub(r"(?m)^url = .*$", "", settings))
    programs = here / "bin"
    programs.mkdir()
    for name, words in [("rucio", [PYTHON, "-P", face.site.installed / "bin/rucio"]), ("python", [PYTHON, "-P"]), ("towpath", [binary])]:
        (programs / name).write_text(f'#!/bin/sh\nexec {" ".join(map(str, words))} "$@"\n')
        (programs / name).chmod(0o755)
    environment = face.environment | {"PATH": f"{programs}:/usr/bin:/bin", "TOWPATH_ALTO_IRD": f"http://{alto}/directory"}

    def run(command):
        command = command.replace(EXAMPLE, f"http://{alto}").replace("scope:name", DID)
        return face.site.clients.run("sh", "-c", command, cwd=here, **environment)

    yield face, run


@way("1 to 4: the commands and settings of docs/guides/rucio.md as they stand there")
def test_the_page(documented, here):
    """The commands succeed, and a downloaded file comes from the first replica of the statement's order."""
    face, run = documented
    face.site.forget_distances()
    assert rses(face.replicas("custom_table")) == BEST_FIRST, "fetched by the address in [core]"
    first_tried = {"custom_table": "NEAR", "--metalink": "MOON", "stmt=": "MIDDLE", "alto": "NEAR"}
    shown = [command for command, _ in commands(PAGE) if "--every" not in command]
    assert len(shown) > 8
    for command in shown:
        done = run(command)
        if command.startswith("rucio download") or " rucio download" in command:
            arrived = here / SCOPE / FILE
            assert arrived.read_bytes() == face.site.storages.data, done
            arrived.unlink()
            expected = next(first for word, first in first_tried.items() if word in command)
            assert re.findall(r"Trying to download with https .* from (\w+):", done.text + done.err.decode())[:1] == [expected], command
        elif command.endswith(">replicas.meta4"):
            assert locations((here / "replicas.meta4").read_bytes()) == FEWEST_HOPS_FIRST
        elif command.startswith("curl -fsS -o"):
            assert "CERN-PROD,NEAR,0.000000" in DISTANCES.read_text()
    assert rses(face.replicas("alto")) == BEST_FIRST, "by the statement in [alto]"
    assert rses(face.replicas('alto;stmt="BY as_hopcount"')) == FEWEST_HOPS_FIRST, "by the metric in the file that [alto] names"


@way("1: the sorter `custom_table`, with the table of the ALTO server")
def test_table_of_distances(rucio, alto):
    """The order is that of the statement for the client's site, and changes with the site."""
    for statement, expected in [("BY delay_ow", BEST_FIRST), ("BY delay_ow DESC", BEST_FIRST[::-1])]:
        url = f"http://{alto}/rucio/custom_table.csv?stmt={statement.replace(' ', '%20')}"
        response = rucio.request("POST", "/config", json={"core": {"custom_distance_download_url": url}})
        assert response.status_code == 201, response.text
        rucio.site.forget_distances()
        listed = rucio.rucio("replica", "list", "file", DID, "--metalink", "--sort", "custom_table")
        assert locations(listed.out) == expected
        assert rses(rucio.replicas("custom_table")) == expected
        if statement == BY:
            assert rses(rucio.replicas("custom_table", site="LUNA")) == FROM_FAR


@way("2: its Metalink through `towpath order`, and a download by that")
def test_metalink_through_towpath_order(rucio, clients, binary, ird, here):
    listed = rucio.rucio("replica", "list", "file", DID, "--metalink").out
    for statement, expected in [
        (BY, BEST_FIRST),
        (f"{BY} DESC", BEST_FIRST[::-1]),
        (f'{BY} WHERE continent="EU"', ["MIDDLE", "FAR", "NEAR", "MOON"]),
    ]:
        ordered = clients.run(binary, "order", "--ird", ird, "--by", statement, stdin=listed).out
        assert locations(ordered) == expected
        (here / "ordered.meta4").write_bytes(ordered)
        directory = here / expected[0]
        assert downloaded(rucio, directory, "--metalink", here / "ordered.meta4") == expected[:1]


@way("2: `python -m towpath.rucio metalink`, and a download by that")
def test_metalink_of_the_package(package, rucio, ird, here):
    ordered = rucio.python("-m", "towpath.rucio", "metalink", DID, "--by", BY, "--ird", ird).out
    assert locations(ordered) == BEST_FIRST
    (here / "ordered.meta4").write_bytes(ordered)
    assert downloaded(rucio, here, "--metalink", here / "ordered.meta4") == BEST_FIRST[:1]
    rucio.python("-m", "towpath.rucio", "metalink", DID, "--by", "BY", "--ird", ird, status=2)
    rucio.python("-m", "towpath.rucio", "metalink", f"{SCOPE}:nothing", "--by", BY, "--ird", ird, status=3)


def distances(rucio) -> dict[tuple[str, str], dict]:
    """Returns Rucio's record of each pair of storages, without the time of the query."""
    pairs = [(source, destination) for source in ADDRESSES for destination in ADDRESSES if source != destination]
    found = {}
    for source, destination in pairs:
        answer = rucio.request("GET", f"/rses/{source}/distances/{destination}")
        assert answer.status_code in (200, 404), answer.text
        for entry in answer.json() if answer.status_code == 200 else []:
            found[source, destination] = entry
    return found


def numbers(rucio) -> dict[tuple[str, str], int]:
    """Returns only the distances."""
    return {pair: entry["distance"] for pair, entry in distances(rucio).items()}


@way("3: distances between RSEs, kept up to date by `python -m towpath.rucio distances`")
def test_distances(package, rucio, ird):
    """The best source of each destination has distance 1001. Only differences are written. Unknown pairs are left out.
    Pairs are added only with `--add`."""
    command = ["-m", "towpath.rucio", "distances", "--ird", ird, "--add"]
    expected = {}
    for destination in ADDRESSES:
        sources = [rse for rse in DELAYS_US if rse not in ("MOON", destination)]
        sources.sort(key=lambda rse: abs(DELAYS_US[rse] - DELAYS_US[destination]))
        expected |= {(source, destination): place for place, source in enumerate(sources, 1001)}
    careful = rucio.python("-m", "towpath.rucio", "distances", "--ird", ird, "--by", BY, "--once")
    assert b"0 added" in careful.err and numbers(rucio) == {}
    dry = rucio.python(*command, "--by", BY, "--once", "--dry-run")
    assert len(dry.lines) == len(expected) and numbers(rucio) == {}
    first = rucio.python(*command, "--by", BY, "--once")
    assert numbers(rucio) == expected
    assert b"9 added, 0 updated" in first.err
    written = distances(rucio)
    second = rucio.python(*command, "--by", BY, "--once")
    assert b"0 added, 0 updated, 9 unchanged" in second.err
    assert distances(rucio) == written
    third = rucio.python(*command, "--by", f"{BY} DESC", "--once")
    assert b"0 added" in third.err
    most = {destination: max(place for (_, to), place in expected.items() if to == destination) for destination in ADDRESSES}
    assert numbers(rucio) == {pair: most[pair[1]] + 1001 - place for pair, place in expected.items()}


@way("3: distances between RSEs, kept up to date by `python -m towpath.rucio distances`")
def test_the_daemon_ends_when_it_is_told_to(package, rucio, ird, tmp_path):
    log = tmp_path / "log"
    command = [PYTHON, "-P", "-m", "towpath.rucio", "distances", "--ird", ird, "--by", BY, "--every", "1h"]
    with log.open("wb") as sink:
        daemon = subprocess.Popen(command, env=rucio.site.clients.environment | rucio.environment, stderr=sink, stdin=subprocess.DEVNULL)
    try:
        assert eventually(lambda: b"unchanged" in log.read_bytes(), COMMAND_LIMIT_S), log.read_text()
    finally:
        daemon.terminate()
    assert daemon.wait(COMMAND_LIMIT_S) == 0


@way("4: the sorter `alto` of `towpath.rucio.wsgi`: `--sort 'alto;stmt=\"BY delay_ow\"'`")
def test_sorter(wrapped, here):
    sort = f'alto;stmt="{BY}"'
    assert locations(wrapped.rucio("replica", "list", "file", DID, "--metalink", "--sort", sort).out) == BEST_FIRST
    assert downloaded(wrapped, here, DID, "--replica-selection", sort) == BEST_FIRST[:1]
    assert rses(wrapped.replicas(sort)) == BEST_FIRST
    assert rses(wrapped.replicas(f'alto;stmt="{BY} DESC"')) == BEST_FIRST[::-1]
    assert rses(wrapped.replicas(sort, seen_at=ADDRESSES["FAR"])) == FROM_FAR
    redirected = wrapped.request("GET", f"/redirect/{SCOPE}/{FILE}", params={"sort": sort})
    assert redirected.status_code == 303 and ADDRESSES["NEAR"] in redirected.headers["Location"], redirected.text


@way("4: beside the sorter `alto`, Rucio's own")
def test_other_sorters(wrapped):
    for sort in (None, "geoip", "random"):
        assert sorted(rses(wrapped.replicas(sort))) == sorted(ADDRESSES)
    assert wrapped.replicas("altogether").status_code == 400


@way("4: an ALTO server that does not answer: the order that Rucio has by default")
def test_nobody_answers(package, rucio):
    silent = rucio.site.serve("towpath.rucio.wsgi:application", TOWPATH_ALTO_IRD=f"http://{HOST}:{free_port()}/directory")
    assert rses(silent.replicas(f'alto;stmt="{BY}"')) == rses(silent.replicas(None)) == list(ADDRESSES)
    assert "using Rucio's default order" in silent.log.read_text()


@way("4: what cannot be a statement: 400, and the column")
def test_statements_that_cannot_be(wrapped):
    for statement, message in [("BY delay_ow WHERE", "column"), ("BY", "column"), ("BY nothing_such", "nothing_such")]:
        answer = wrapped.replicas(f'alto;stmt="{statement}"')
        assert answer.status_code == 400 and message in answer.text, answer.text
