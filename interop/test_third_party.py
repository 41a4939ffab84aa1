"""Third-party copies, requested by a client that transfers no data itself: HTTP-TPC and xrdcp --tpc, between two
towpath servers and with XRootD 5.5 at either end. The clients run in modes that permit no other kind of copy."""

import http.client
import re
import socket
from dataclasses import dataclass

import pytest

from clients import adler32, content, eventually
from conftest import AUDIENCE, PEER_AUDIENCE
from servers import HOST, start_xrootd

SIZE = 20_000_123

# Fixtures of the areas (source, destination), and their names in the table.
OURS = ("area", "peer_area", "towpath to towpath")
TO_XROOTD = ("area", "xrootd_area", "towpath to xrootd 5.5")
FROM_XROOTD = ("xrootd_area", "peer_area", "xrootd 5.5 to towpath")
TLS = ("tls_area", "tls_peer_area", "towpath to towpath, https://")
TO_XROOTD_HTTP = ("area", "xrootd_tpc_area", "towpath to xrootd 5.5, https://")
FROM_XROOTD_HTTP = ("xrootd_tpc_area", "area", "xrootd 5.5 to towpath, https://")


@dataclass
class Ends:
    """Source and destination of a file, with its content."""

    source: object
    destination: object
    data: bytes

    def arrived(self, name: str = "copy") -> bool:
        """Returns whether the destination has the file with the right content."""
        return (self.destination.local / name).read_bytes() == self.data


@pytest.fixture
def ends(request) -> Ends:
    """The two areas of a parameter, the first with a file."""
    source, destination = (request.getfixturevalue(name) for name in request.param)
    data = content(SIZE)
    source.put("file", data)
    return Ends(source, destination, data)


def between(client: str, operation: str, *pairs: tuple, **more):
    """Runs a test for several pairs of ends; each is a row of the table."""
    return pytest.mark.parametrize("ends", [
        pytest.param((source, destination), id=re.sub(r"\W+", "-", name),
                     marks=pytest.mark.pair(client, f"{operation}: {name}", **more))
        for source, destination, name in pairs
    ], indirect=True)


def gfal(clients, mode: str, ends: Ends) -> None:
    """Copies like FTS. A token is set only for TLS: gfal tries to delegate a certificate for TLS without a token, and
    for a token without TLS."""
    source, destination = ends.source.http("file"), ends.destination.http("copy")
    token = {"BEARER_TOKEN": "of.nobody.here"} if "https:" in source + destination else {}
    clients.run("gfal-copy", "--copy-mode", mode, "-K", "ADLER32", source, destination, **token)
    assert ends.arrived()


@between("gfal2 http://", "gfal-copy --copy-mode pull -K ADLER32 (HTTP-TPC)", OURS, TLS, TO_XROOTD_HTTP, FROM_XROOTD_HTTP)
def test_gfal_pull(ends, clients):
    gfal(clients, "pull", ends)


@between("gfal2 http://", "gfal-copy --copy-mode push -K ADLER32 (HTTP-TPC)", OURS, TLS, TO_XROOTD_HTTP, FROM_XROOTD_HTTP)
def test_gfal_push(ends, clients):
    gfal(clients, "push", ends)


@between("gfal2 root://", "gfal-copy -K ADLER32 (xroot TPC)", OURS, TO_XROOTD, FROM_XROOTD)
def test_gfal_xroot(ends, clients):
    clients.run("gfal-copy", "-K", "ADLER32", ends.source.url("file"), ends.destination.url("copy"))
    assert ends.arrived()


@between("davix", "davix-cp (HTTP-TPC)", OURS)
def test_davix(ends, clients):
    clients.run("davix-cp", ends.source.http("file"), ends.destination.http("copy"))
    assert ends.arrived()


@between("xrdcp", "--tpc only", OURS, TO_XROOTD, FROM_XROOTD)
def test_xrdcp(ends, clients):
    clients.run("xrdcp", "-s", "--tpc", "only", ends.source.url("file"), ends.destination.url("copy"))
    assert ends.arrived()
    clients.run("xrdcp", "-s", "--tpc", "only", ends.source.url("file"), ends.destination.url("copy"), status=None)
    clients.run("xrdcp", "-s", "-f", "--tpc", "only", ends.source.url("file"), ends.destination.url("copy"))
    assert ends.arrived()


@between("xrdcp", "--tpc only --cksum adler32, -S 4", OURS, TO_XROOTD, FROM_XROOTD)
def test_xrdcp_checksum(ends, clients):
    clients.run("xrdcp", "-s", "--tpc", "only", "--cksum", "adler32", ends.source.url("file"), ends.destination.url("copy"))
    clients.run("xrdcp", "-s", "-S", "4", "--tpc", "only", ends.source.url("file"), ends.destination.url("more"))
    assert ends.arrived() and ends.arrived("more")


@between("xrdcp", "--tpc only of a missing file is refused", OURS)
def test_xrdcp_missing(ends, clients):
    clients.run("xrdcp", "-s", "--tpc", "only", ends.source.url("absent"), ends.destination.url("copy"), status=None)
    assert not (ends.destination.local / "copy").exists() and not ends.destination.left_over()


@between("towpath cp --third-party only", "root://, --checksum adler32", OURS, TO_XROOTD, FROM_XROOTD)
def test_cp_xroot(ends, clients, binary):
    done = clients.run(binary, "cp", "--third-party", "only", "--checksum", "adler32", "--json",
                       ends.source.url("file"), ends.destination.url("copy"))
    assert '"route":"pull"' in done.text and ends.arrived()
    clients.run(binary, "cp", "--third-party", "only", ends.source.url("file"), ends.destination.url("copy"), status=6)


@between("towpath cp --third-party only", "http(s)://, --checksum adler32", OURS, TLS, TO_XROOTD_HTTP, FROM_XROOTD_HTTP)
def test_cp_http(ends, clients, binary):
    done = clients.run(binary, "cp", "--third-party", "only", "--checksum", "adler32", "--json",
                       ends.source.http("file"), ends.destination.http("copy"))
    assert '"route":"pull"' in done.text and ends.arrived()


@pytest.mark.pair("towpath cp --third-party auto", "the source sends, or the bytes come through, where the destination may not fetch")
def test_cp_auto(area, guarded_server, clients, binary):
    data = content(SIZE)
    area.put("file", data)
    for scheme, route in ((area.http, "push"), (area.url, "streamed")):
        to = guarded_server.http("/copy") if route == "push" else guarded_server.url("/copy")
        done = clients.run(binary, "cp", "-f", "--third-party", "auto", "--json", scheme("file"), to)
        assert f'"route":"{route}"' in done.text
        assert (guarded_server.root / "copy").read_bytes() == data


def copy(area, name: str, clients, **fields: str):
    """Sends a COPY request with curl. Returns status and body of the response."""
    headers = [word for key, value in fields.items() for word in ("-H", f"{key.replace('_', '-')}: {value}")]
    done = clients.run("curl", "-sS", "-X", "COPY", *headers, "-w", "\n%{http_code}", area.http(name))
    body, status = done.text.rsplit("\n", 1)
    return int(status), body


@between("curl", "COPY with Source (pull), performance markers", OURS, FROM_XROOTD_HTTP)
def test_pull(ends, clients):
    status, body = copy(ends.destination, "copy", clients, Source=ends.source.http("file"), Overwrite="F",
                        X_Number_Of_Streams="4", ClientInfo="job-id=1;file-id=2;retry=0", SciTag="65",
                        RequireChecksumVerification="true", Credential="none")
    assert status == 202 and ends.arrived()
    assert body.startswith("Perf Marker\nTimestamp: ") and body.rstrip().endswith("success: Created")
    assert re.findall(r"Stripe Bytes Transferred: (\d+)\n", body)[-1] == str(SIZE)
    again, _ = copy(ends.destination, "copy", clients, Source=ends.source.http("file"), Overwrite="F")
    assert again == 412


@between("curl", "COPY with Destination (push), performance markers", OURS, TO_XROOTD_HTTP)
def test_push(ends, clients):
    status, body = copy(ends.source, "file", clients, Destination=ends.destination.http("copy"))
    assert (status, body.rstrip().split("\n")[-1]) == (202, "success: Created")
    assert ends.arrived()


@between("xrootd 5.5 HTTP-TPC", "pulls, with 1 and 4 streams", TO_XROOTD_HTTP)
def test_active_pull(ends, clients):
    for name, streams in (("copy", "1"), ("more", "4")):
        _, body = copy(ends.destination, name, clients, Source=ends.source.http("file"), X_Number_Of_Streams=streams)
        assert body.rstrip().endswith("success: Created") and ends.arrived(name)


@between("xrootd 5.5 HTTP-TPC", "pushes", FROM_XROOTD_HTTP)
def test_active_push(ends, clients):
    _, body = copy(ends.source, "file", clients, Destination=ends.destination.http("copy"))
    assert body.rstrip().endswith("success: Created") and ends.arrived()


@pytest.mark.parametrize("mode", [
    pytest.param(mode, marks=pytest.mark.pair("curl", f"COPY ({mode}) with a token for each server: a wrong one for the other is refused by it"))
    for mode in ("pull", "push")
])
def test_tokens(token_area, token_peer_area, issuer, clients, mode):
    data = content(SIZE)
    token_area.put("file", data)
    reads = {"scope": f"storage.read:{token_area.path}", "audience": AUDIENCE}
    writes = {"scope": f"storage.modify:{token_peer_area.path}", "audience": PEER_AUDIENCE}
    if mode == "pull":
        area, name, own, other, where = token_peer_area, "copy", writes, reads, {"Source": token_area.http("file")}
    else:
        area, name, own, other, where = token_area, "file", reads, writes, {"Destination": token_peer_area.http("copy")}

    def verdict(forwarded: dict | None) -> str:
        tokens = {"Authorization": own} | ({"TransferHeaderAuthorization": forwarded} if forwarded else {})
        fields = {field: f"Bearer {issuer.wlcg(**token)}" for field, token in tokens.items()}
        status, body = copy(area, name, clients, **where, **fields)
        assert status == 202, body
        return body.rstrip().split("\n")[-1]

    right = other["scope"].split(":")[0]
    for wrong, status in ((None, 401), (other | {"audience": own["audience"]}, 401), (other | {"scope": f"{right}:/elsewhere"}, 403)):
        refused = verdict(wrong)
        assert refused.startswith("failure: ") and f"({status})" in refused, refused
        assert eventually(lambda: not token_peer_area.left_over()) and not (token_peer_area.local / "copy").exists()
    assert verdict(other) == "success: Created"
    assert (token_peer_area.local / "copy").read_bytes() == data


@pytest.mark.pair("curl", "COPY from a private address is refused (403), unless it is allowed")
def test_guard(guarded_server, clients):
    for host in (HOST, "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f.1", "169.254.169.254"):
        done = clients.run("curl", "-sS", "-X", "COPY", "-H", f"Source: http://{host}:{guarded_server.port}/file",
                           "-w", "\n%{http_code}", guarded_server.http("/copy"))
        assert done.text.endswith("\n403"), done.text


@pytest.mark.pair("curl", "COPY: a client that leaves ends the copy, and nothing is left")
def test_disconnect(area):
    with socket.create_server((HOST, 0)) as silent:
        connection = http.client.HTTPConnection(HOST, area.server.port, timeout=30)
        source = f"http://{HOST}:{silent.getsockname()[1]}/file"
        connection.request("COPY", f"{area.path}/copy", headers={"Source": source})
        assert connection.getresponse().read1(11) == b"Perf Marker"
        upstream, _ = silent.accept()
        with upstream:
            connection.close()
            upstream.settimeout(30)
            while upstream.recv(4096):
                pass
    assert eventually(lambda: not area.left_over()) and not (area.local / "copy").exists()


@pytest.mark.pair("curl", "COPY: the digest of the copy is that of the source")
def test_digest(area, peer_area, clients):
    data = content(SIZE)
    area.put("file", data)
    copy(peer_area, "copy", clients, Source=area.http("file"))
    head = clients.run("curl", "-sSI", "-H", "Want-Digest: adler32", peer_area.http("copy")).text
    assert f"adler32={adler32(data)}" in head


@pytest.mark.pair("towpath cp", "--third-party to an xrootd 5.5 without third-party copies")
def test_no_third_party_copies(area, base, binary, clients):
    data = content(SIZE)
    area.put("file", data)
    server = start_xrootd(base / "xrootd-without-tpc", http=False, tpc=False)
    try:
        refused = clients.run(binary, "cp", "--third-party", "only", area.url("file"), server.url("/copy"), status=None)
        assert b"does not support third-party copies" in refused.err
        assert not (server.root / "copy").exists()
        clients.run(binary, "cp", "--third-party", "auto", area.url("file"), server.url("/copy"))
        assert (server.root / "copy").read_bytes() == data
    finally:
        server.stop()
