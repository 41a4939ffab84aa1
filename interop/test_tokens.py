"""Bearer tokens on our server with real clients: WLCG tokens and SciTokens, over HTTP and over XRootD's `ztn`."""

import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from clients import content
from conftest import AUDIENCE
from credentials import Issuer
from servers import start_towpath


def pair(client: str, operation: str, **more):
    """Returns the mark of a test of this module."""
    return pytest.mark.pair(client, f"token: {operation}", **more)


@pytest.fixture
def http_status(clients, token_area):
    """Requests a file of the area with curl and a token. Returns status and body."""
    def ask(token: str | None, name: str, *options, stdin: bytes = b"") -> tuple[int, bytes]:
        bearer = ("-H", f"Authorization: Bearer {token}") if token else ()
        done = clients.run("curl", "-sS", "--max-time", "30", "-w", "\n%{http_code}", *bearer, *options, token_area.http(name), stdin=stdin)
        body, status = done.out.rsplit(b"\n", 1)
        return int(status), body

    return ask


@pair("curl", "storage.read reads; nothing else does")
def test_http_read(token_area, issuer, http_status):
    data = content(100_001)
    token_area.put("file", data)
    assert http_status(issuer.wlcg(f"storage.read:{token_area.path}", audience=AUDIENCE), "file") == (200, data)
    assert http_status(None, "file")[0] == 401
    assert http_status(issuer.wlcg("storage.read:/elsewhere", audience=AUDIENCE), "file")[0] == 403
    assert http_status(issuer.wlcg(f"storage.create:{token_area.path}", audience=AUDIENCE), "file")[0] == 403


@pair("curl", "scopes end at path components (/foo/bar is not /foo/bargain)")
def test_http_components(token_area, issuer, http_status):
    token_area.put("bar/file", b"in")
    token_area.put("bargain/file", b"out")
    token = issuer.wlcg(f"storage.read:{token_area.path}/bar", audience=AUDIENCE)
    assert http_status(token, "bar/file") == (200, b"in")
    assert http_status(token, "bargain/file")[0] == 403
    assert http_status(token, "bar/../bargain/file", "--path-as-is")[0] in (400, 403)


@pair("curl", "expired, forged and foreign ones are refused: 401")
def test_http_refused(token_area, issuer, http_status):
    token_area.put("file", b"x")
    scope = f"storage.read:{token_area.path}"
    good = issuer.wlcg(scope, audience=AUDIENCE)
    head, claims, signature = good.split(".")
    forged = ".".join([head, claims, signature[::-1]])
    for token in (forged, f"{head}.{claims}.", issuer.wlcg(scope, audience=AUDIENCE, lifetime_s=-600),
                  issuer.wlcg(scope, audience="https://elsewhere.test"), "nonsense"):
        assert http_status(token, "file")[0] == 401


@pair("curl", "errors of tokens are reported")
def test_http_says_why(token_area, issuer, base, http_status):
    token_area.put("file", b"x")
    scope = f"storage.read:{token_area.path}"
    for token, why in [
        (issuer.wlcg(scope, audience=AUDIENCE, lifetime_s=-60), b"expired"),
        (issuer.wlcg(scope, audience="https://elsewhere.test"), AUDIENCE.encode()),
        (issuer.wlcg("storage.read", audience=AUDIENCE), b"lacks a path"),
        (issuer.wlcg(f"{scope}/..", audience=AUDIENCE), b".."),
        (issuer.wlcg("openid", audience=AUDIENCE), b"groups are not supported"),
        (Issuer(base / "thief", url=issuer.url).wlcg(scope, audience=AUDIENCE), b"forged"),
        (Issuer(base / "stranger", url="https://stranger.test").wlcg(scope, audience=AUDIENCE), b"not trusted"),
        ("not.a.token", b"malformed"),
    ]:
        status, body = http_status(token, "file")
        assert status == 401 and why in body, (why, status, body)


@pair("curl", "storage.create makes, does not overwrite; storage.modify does both")
def test_http_write(token_area, issuer, http_status):
    create = issuer.wlcg(f"storage.create:{token_area.path}", audience=AUDIENCE)
    modify = issuer.wlcg(f"storage.modify:{token_area.path}", audience=AUDIENCE)
    assert http_status(create, "new", "-T", "-", stdin=b"one")[0] == 201
    assert http_status(create, "new", "-T", "-", stdin=b"two")[0] == 403
    assert http_status(create, "new", "-X", "DELETE")[0] == 403
    assert (token_area.local / "new").read_bytes() == b"one"
    assert http_status(modify, "new", "-T", "-", stdin=b"three")[0] in (200, 204)
    assert (token_area.local / "new").read_bytes() == b"three"
    assert http_status(modify, "new", "-X", "DELETE")[0] in (200, 204)
    assert not (token_area.local / "new").exists()


@pair("scitokens library", "read: and write: scopes, over HTTP")
def test_scitoken(token_area, issuer, http_status):
    token_area.put("file", b"x")
    assert http_status(issuer.scitoken(f"read:{token_area.path}", audience=AUDIENCE), "file") == (200, b"x")
    assert http_status(issuer.scitoken(f"read:{token_area.path}", audience=AUDIENCE), "new", "-T", "-", stdin=b"y")[0] == 403
    assert http_status(issuer.scitoken(f"write:{token_area.path}", audience=AUDIENCE), "new", "-T", "-", stdin=b"y")[0] == 201
    assert (token_area.local / "new").read_bytes() == b"y"


@pair("xrdcp", "down and up by ztn (BEARER_TOKEN), roots://")
def test_xrdcp(token_area, issuer, clients, here):
    data = content(1_000_003)
    token_area.put("file", data)
    read = issuer.wlcg(f"storage.read:{token_area.path}", audience=AUDIENCE)
    modify = issuer.wlcg(f"storage.modify:{token_area.path} storage.read:{token_area.path}", audience=AUDIENCE)
    clients.run("xrdcp", "-s", token_area.url("file"), here / "file", BEARER_TOKEN=read)
    assert (here / "file").read_bytes() == data
    clients.run("xrdcp", "-s", here / "file", token_area.url("up"), BEARER_TOKEN=modify)
    assert (token_area.local / "up").read_bytes() == data
    refused = clients.run("xrdcp", "-s", here / "file", token_area.url("more"), status=None, BEARER_TOKEN=read)
    assert b"[3010]" in refused.err or b"[3030]" in refused.err
    assert not (token_area.local / "more").exists()


@pair("xrdcp", "in the URL (?authz=Bearer%20...), roots://")
def test_xrdcp_authz(token_area, issuer, clients, here):
    data = content(1_000_003)
    token_area.put("file", data)
    good = issuer.wlcg(f"storage.read:{token_area.path}", audience=AUDIENCE)
    bad = issuer.wlcg("storage.read:/elsewhere", audience=AUDIENCE)
    url = token_area.url("file") + "?authz=Bearer%20"
    clients.run("xrdcp", "-s", url + good, here / "file", BEARER_TOKEN=bad)
    assert (here / "file").read_bytes() == data


@pair("xrdfs", "ls, stat by ztn, roots://")
def test_xrdfs(token_area, issuer, clients):
    token_area.put("file", content(99))
    token = issuer.wlcg(f"storage.read:{token_area.path}", audience=AUDIENCE)
    assert clients.run("xrdfs", token_area.server.address, "ls", token_area.path, BEARER_TOKEN=token).lines == [f"{token_area.path}/file"]
    text = clients.run("xrdfs", token_area.server.address, "stat", f"{token_area.path}/file", BEARER_TOKEN=token).text
    assert re.search(r"^Size: +99$", text, re.MULTILINE)


@pair("xrdcp", "without one is refused, roots://")
def test_xrdcp_without(token_area, clients, here):
    token_area.put("file", b"x")
    refused = clients.run("xrdcp", "-s", token_area.url("file"), here / "file", status=None)
    assert re.search(rb"\[30(10|30)\]|Auth", refused.err)
    assert not (here / "file").exists()


@pair("xrdcp", "a missing scope is named, roots://")
def test_xrdcp_says_why(token_area, issuer, clients, here):
    token_area.put("file", b"x")
    token = issuer.wlcg("storage.read:/elsewhere", audience=AUDIENCE)
    refused = clients.run("xrdcp", "-s", token_area.url("file"), here / "file", status=None, BEARER_TOKEN=token)
    assert b"it may read /elsewhere" in refused.err, refused.err


@pair("towpath", "the reason of a refused one is reported, roots:// and root://")
def test_towpath_says_why(token_area, issuer, binary, clients):
    token_area.put("file", b"x")
    scope = f"storage.read:{token_area.path}"
    plain = token_area.url("file").replace("roots://", "root://")
    for url, token, why in [
        (token_area.url("file"), issuer.wlcg(scope, audience=AUDIENCE, lifetime_s=-600), b"expired"),
        (token_area.url("file"), issuer.wlcg(scope, audience="https://elsewhere.test"), AUDIENCE.encode()),
        (token_area.url("file"), issuer.wlcg("storage.read:/elsewhere", audience=AUDIENCE), b"it may read /elsewhere"),
        (plain, "not.a.token", b"malformed"),
    ]:
        refused = clients.run(binary, "cat", url, status=None, BEARER_TOKEN=token)
        assert why in refused.err, (why, refused.err)


@pytest.mark.parametrize("scheme", [
    pytest.param("root", marks=pair("towpath", "cp down and up, roots://")),
    pytest.param("http", marks=pair("towpath", "cp down and up, https://")),
])
def test_towpath(token_area, issuer, clients, binary, here, scheme):
    data = content(9_000_123)
    token_area.put("file", data)
    place = token_area.url if scheme == "root" else token_area.http
    token = issuer.wlcg(f"storage.read:{token_area.path} storage.modify:{token_area.path}", audience=AUDIENCE)
    clients.run(binary, "cp", place("file"), here / "file", BEARER_TOKEN=token)
    assert (here / "file").read_bytes() == data
    (here / "token").write_text(token)
    clients.run(binary, "cp", here / "file", place("up"), BEARER_TOKEN_FILE=str(here / "token"))
    assert (token_area.local / "up").read_bytes() == data
    assert clients.run(binary, "cp", place("file"), here / "more", status=4).err
    assert not (here / "more").exists()


@contextmanager
def published(issuer_of, authority) -> Iterator[Issuer]:
    """Runs an issuer with discoverable keys: `issuer_of` creates it for a URL, which is served over HTTPS."""
    class Site(BaseHTTPRequestHandler):
        """Metadata and keys."""

        def do_GET(self):
            """Sends one of the two documents."""
            documents = {
                "/vo/.well-known/openid-configuration": json.dumps({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}),
                "/vo/jwks": issuer.keys.read_text(),
            }
            body = documents.get(self.path, "").encode()
            self.send_response(200 if body else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *words):
            """Suppresses the log."""

    site = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    site.socket = context.wrap_socket(site.socket, server_side=True)
    issuer = issuer_of(f"https://localhost:{site.server_port}/vo")
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    yield issuer
    site.shutdown()
    site.server_close()


@pair("curl", "the issuer's keys are found by OpenID discovery")
def test_discovery(base, authority, binary, clients):
    with published(lambda url: Issuer(base / "published", url=url), authority) as issuer:
        config = f"""
[access]
anonymous = []
audiences = ["{AUDIENCE}"]
[[access.issuers]]
issuer = "{issuer.url}"
base_path = "/vo"
ca = "{authority.file}"
"""
        server = start_towpath(binary, base / "discovery-server", config=config, writable=False)
        try:
            (server.root / "vo").mkdir()
            (server.root / "vo/file").write_bytes(b"found")
            token = issuer.wlcg("storage.read:/", audience=AUDIENCE)
            answer = clients.run("curl", "-sSf", "-H", f"Authorization: Bearer {token}", server.http("/vo/file"))
            assert answer.out == b"found"
        finally:
            server.stop()
