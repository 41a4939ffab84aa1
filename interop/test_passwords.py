"""Passwords on our servers with real clients: Digest with SHA-256 and Basic, over TLS."""

import subprocess

import pytest
import requests
from requests.auth import HTTPBasicAuth, HTTPDigestAuth

from clients import content
from servers import HOST, start_towpath
from test_alto import serving
from test_docs import COMMAND_LIMIT_S, commands

USERS = {"alice": "Alice's", 'Jäsøn "D" Doe': "Secret, or not? ÄÖ:"}

ACCESS = """
[access]
passwords = "{file}"
anonymous = []
"""

RULES = """
[[access.users]]
path = "/"
allow = ["read"]

[[access.users]]
names = ["alice"]
path = "/alice"
allow = ["modify"]
"""

FACTS = """
[network-map.default]
A = ["192.0.2.0/24"]
elsewhere = ["0.0.0.0/0", "::/0"]
[cost-map.default.routingcost]
A = { A = 1, elsewhere = 5 }
"""


def pair(client: str, operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair(client, f"password: {operation}", **more)


@pytest.fixture(scope="module")
def passwords(tmp_path_factory):
    """A password file of `USERS`, created by the command of docs/guides/access.md."""
    here = tmp_path_factory.mktemp("passwords")
    [command] = [command for command, _ in commands("guides/access.md") if "sha256sum" in command]
    for name, password in USERS.items():
        subprocess.run(["bash", "-c", command], cwd=here, check=True, timeout=COMMAND_LIMIT_S, env={"PATH": "/usr/bin:/bin", "NAME": name, "PASSWORD": password})
    return here / "passwords"


@pytest.fixture(scope="module")
def tls(authority):
    """Settings that enable TLS."""
    return f'\n[tls]\ncertificate = "{authority.certificate}"\nkey = "{authority.key}"\n'


@pytest.fixture(scope="module")
def server(binary, tls, passwords, tmp_path_factory):
    """towpath that requires a password for every request."""
    config = ACCESS.format(file=passwords) + RULES + tls
    started = start_towpath(binary, tmp_path_factory.mktemp("server"), config=config, writable=False, tls=True)
    (started.root / "alice").mkdir()
    yield started
    started.stop()


@pytest.fixture
def status(clients, here):
    """Runs curl. Returns status, body, version of HTTP, and number of requests."""
    def ask(url: str, *options) -> tuple[int, bytes, str, int]:
        done = clients.run("curl", "-sS", "--max-time", "30", "-o", here / "body", "-D", here / "heads", "-w", "%{http_code} %{http_version}", *options, url)
        code, version = done.text.split()
        heads = [line for line in (here / "heads").read_text().splitlines() if line.startswith("HTTP/")]
        return int(code), (here / "body").read_bytes(), version, len(heads)

    return ask


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
@pytest.mark.parametrize(("scheme", "requests_made"), [
    pytest.param("--digest", 2, marks=pair("curl", "Digest (SHA-256)")),
    pytest.param("--basic", 1, marks=pair("curl", "Basic")),
    pytest.param("--anyauth", 2, marks=pair("curl", "whichever is offered that is best")),
])
def test_curl(server, status, version, scheme, requests_made):
    data = content(100_001)
    (server.root / "file").write_bytes(data)
    for name, password in USERS.items():
        answer = status(server.http("/file?x=1"), version, scheme, "-u", f"{name}:{password}")
        assert answer == (200, data, version.removeprefix("--http"), requests_made), name


@pair("curl", "wrong ones, and other users: 401")
@pytest.mark.parametrize("scheme", ["--digest", "--basic"])
def test_curl_wrong(server, status, scheme):
    (server.root / "file").write_bytes(b"x")
    for credentials in ("alice:alice's", "bob:Alice's"):
        assert status(server.http("/file"), scheme, "-u", credentials)[0] == 401


@pair("curl", "users have the rights of the rules that name them")
def test_curl_rights(server, status, here):
    (here / "file").write_bytes(content(50_000))
    # Over HTTP/2, curl 7.88 never ends the empty request for the challenge of an upload, and ignores its response.
    put = ("--http1.1", "--digest", "-T", here / "file")
    assert status(server.http("/alice/file"), *put, "-u", f"alice:{USERS['alice']}")[0] == 201
    assert (server.root / "alice/file").read_bytes() == content(50_000)
    assert status(server.http("/file"), *put, "-u", f"alice:{USERS['alice']}")[0] == 403
    other = next(name for name in USERS if name != "alice")
    assert status(server.http("/alice/more"), *put, "-u", f"{other}:{USERS[other]}")[0] == 403
    assert not (server.root / "alice/more").exists()


@pair("curl", "no challenge without TLS")
def test_curl_plain(server, status, here):
    (server.root / "file").write_bytes(b"x")
    plain = server.http("/file", "http")
    assert status(plain, "--anyauth", "-u", f"alice:{USERS['alice']}")[0] == 401
    assert "digest" not in (here / "heads").read_text().lower()
    code, body, *_ = status(plain, "--basic", "-u", "alice:of no use")
    assert code == 426 and b"over TLS only" in body


@pytest.mark.parametrize("scheme", [
    pytest.param(HTTPDigestAuth, marks=pair("requests", "Digest (SHA-256), one nonce for many requests")),
    pytest.param(HTTPBasicAuth, marks=pair("requests", "Basic")),
])
def test_requests(server, authority, scheme):
    (server.root / "file").write_bytes(b"x")
    with requests.Session() as session:
        session.auth = scheme("alice", USERS["alice"])
        answers = [session.get(server.http(f"/file?n={n}"), verify=str(authority.file)) for n in range(5)]
    assert [answer.content for answer in answers] == [b"x"] * 5
    assert sum(len(answer.history) for answer in answers) == (1 if scheme is HTTPDigestAuth else 0)


@pytest.mark.parametrize("source", [
    pytest.param("url", marks=pair("towpath", "in the URL: cat, cp up and down, with patterns")),
    pytest.param("netrc", marks=pair("towpath", "in ~/.netrc: cat, cp up and down, with patterns")),
])
def test_towpath(server, clients, binary, here, source):
    (server.root / "file").write_bytes(b"content")
    (here / "up").write_bytes(content(100_001))
    plain = server.http("/")
    url = plain.replace("://", "://alice:Alice's@") if source == "url" else plain
    (here / "netrc").write_text(f"machine {HOST} login alice password Alice's\n" if source == "netrc" else "")
    run = [binary, "-vvv"]
    (here / "many").mkdir()
    for command in (["cat", url + "file"], ["cat", url + "fil[e]"], ["cp", "--json", url + "*le", here / "many/"], ["cp", "--json", here / "up", url + "alice/up"], ["cp", "--json", url + "alice/up", here / "down"],
                    ["rm", url + "alice/up"]):
        done = clients.run(*run, *command, NETRC=str(here / "netrc"))
        assert "Alice's" not in done.text + done.err.decode(), command
    assert (here / "down").read_bytes() == content(100_001)
    assert (here / "many/file").read_bytes() == b"content"
    for other in (plain, plain.replace("://", "://alice:hush@")):
        refused = clients.run(binary, "cat", other + "file", status=4, NETRC=str(here / "none"))
        assert "401" in refused.err.decode() and "hush" not in refused.err.decode()


@pair("towpath", "a ~/.netrc that cannot be used is named")
def test_towpath_unusable_netrc(server, clients, binary, here):
    (here / "netrc").write_text("machine\n")
    refused = clients.run(binary, "cat", server.http("/file"), status=4, NETRC=str(here / "netrc"))
    assert f"the passwords in {here / 'netrc'} cannot be used: line 1" in refused.err.decode()


@pair("requests", "the ALTO server takes them too (RFC 7285 §8.3.5)")
def test_alto(binary, tls, passwords, authority, tmp_path):
    (tmp_path / "facts.toml").write_text(FACTS)
    agents = '[agents.facts]\nkind = "static"\nfile = "facts.toml"\n'
    (tmp_path / "alto.toml").write_text(ACCESS.format(file=passwords) + tls + agents)
    with serving(binary, tmp_path) as address:
        url = f"https://{address}/directory"
        login = HTTPDigestAuth("alice", USERS["alice"])
        assert requests.get(url, verify=str(authority.file)).status_code == 401
        assert requests.get(url, auth=login, verify=str(authority.file)).json()["meta"]["default-alto-network-map"] == "default"
