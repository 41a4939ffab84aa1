"""The towpath client through a real HTTP proxy, tinyproxy."""

import pytest

from clients import content, eventually
from servers import HOST, free_port, start_tinyproxy, start_towpath

LOGIN = ("alice", "s3cret")


def pair(operation: str):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair("towpath with tinyproxy", operation)


@pytest.fixture(scope="module")
def servers(binary, authority, tmp_path_factory):
    """Our server without and with TLS, by scheme."""
    tls = f'[tls]\ncertificate = "{authority.certificate}"\nkey = "{authority.key}"\n'
    started = {
        "http": start_towpath(binary, tmp_path_factory.mktemp("plain")),
        "https": start_towpath(binary, tmp_path_factory.mktemp("tls"), config=tls, tls=True),
    }
    yield started
    for server in started.values():
        server.stop()


@pytest.fixture(scope="module")
def proxy(servers, base):
    """A proxy that requires a password."""
    ports = [server.port for server in servers.values()]
    started = start_tinyproxy(base / "tinyproxy", login=" ".join(LOGIN), connect_ports=ports)
    yield started
    started.stop()


@pytest.fixture
def towpath(clients, binary, proxy):
    """Runs towpath with a proxy for all servers."""
    def run(*words, login: str = ":".join(LOGIN) + "@", **more):
        url = f"http://{login}{HOST}:{proxy.port}"
        return clients.run(binary, *words, **{"http_proxy": url, "https_proxy": url} | more)

    return run


@pytest.mark.parametrize("scheme", [
    pytest.param("http", marks=pair("up, down, listing, removal: http://")),
    pytest.param("https", marks=pair("up, down, listing, removal: https://")),
])
def test_proxied(servers, proxy, towpath, here, scheme):
    server, data = servers[scheme], content(30_000_001)
    before = proxy.log.read_text().count(f"{HOST}:{server.port}")
    (here / "tree").mkdir()
    (here / "tree/file").write_bytes(data)
    towpath("cp", "-r", "-T", here / "tree", server.http("/tree"))
    assert (server.root / "tree/file").read_bytes() == data
    assert "file" in towpath("ls", "-l", server.http("/tree")).text
    towpath("cp", server.http("/tree/file"), here / "back")
    assert (here / "back").read_bytes() == data
    towpath("rm", "-r", server.http("/tree"))
    assert not (server.root / "tree").exists()
    assert eventually(lambda: proxy.log.read_text().count(f"{HOST}:{server.port}") > before)


@pytest.mark.parametrize(("scheme", "wrong"), [
    # tinyproxy responds 401 to a wrong password, as the server might.
    pytest.param("http", "(from the server, or from {proxy})", marks=pair("a wrong password, none: http://")),
    pytest.param("https", "{proxy} rejects the user name or password in https_proxy", marks=pair("a wrong password, none: https://")),
])
def test_password(servers, proxy, towpath, scheme, wrong):
    url, name = servers[scheme].http("/"), f"the proxy http://{HOST}:{proxy.port} ({scheme}_proxy)"
    assert wrong.format(proxy=name) in towpath("ls", url, login="alice:wrong@", status=None).err.decode()
    assert f"{name} requires a password: set {scheme}_proxy=" in towpath("ls", url, login="", status=None).err.decode()


@pair("a tunnel that it refuses")
def test_refused(proxy, towpath):
    done = towpath("ls", f"https://{HOST}:{free_port()}/", status=None)
    assert f"the proxy http://{HOST}:{proxy.port} (https_proxy) refuses connections to {HOST}" in done.err.decode()
    assert LOGIN[1] not in done.err.decode()


@pair("no_proxy, empty variables, root://")
def test_direct(servers, proxy, towpath, here):
    plain = servers["http"]
    (plain.root / "direct").write_bytes(b"direct")
    before = proxy.log.read_text()
    for url, variables in [
        (plain.http("/direct"), {"no_proxy": f"{HOST}/8"}),
        (plain.http("/direct"), {"no_proxy": f"example.org,{HOST}:{plain.port}"}),
        (plain.http("/direct"), {"http_proxy": "", "HTTP_PROXY": "", "all_proxy": ""}),
        (plain.url("/direct"), {"all_proxy": f"http://{HOST}:1"}),
    ]:
        assert towpath("cat", url, **variables).out == b"direct"
    assert proxy.log.read_text() == before
