"""The certificates of servers, as the towpath client verifies them."""

import pytest

# Empty variables count as unset: the authority of the tests is then unknown.
UNTRUSTED = {"TOWPATH_CA_FILE": "", "SSL_CERT_FILE": "", "X509_CERT_DIR": ""}


@pytest.fixture(params=[
    pytest.param((server, scheme), id=name.replace("://", "").replace(" ", "-"),
                 marks=pytest.mark.pair(f"towpath with {name}", "certificates: unknown authority, directories, --insecure"))
    for server, scheme, name in [
        ("tls_server", "roots", "towpath roots://"), ("tls_server", "https", "towpath https://"),
        ("nginx_tls_server", "https", "nginx https://"), ("xrootd_tls_server", "roots", "xrootd 5.5 roots://"),
    ]
])
def url(request) -> str:
    """The URL of a file on a server with TLS."""
    fixture, scheme = request.param
    server = request.getfixturevalue(fixture)
    (server.root / "certified").write_bytes(b"content")
    return server.url("/certified") if scheme == "roots" else server.http("/certified")


def test_trust(clients, binary, authority, url):
    def cat(*options, status: int = 0, **variables):
        return clients.run(binary, "cat", *options, url, status=status, **UNTRUSTED | variables)

    refused = cat(status=4).err.decode()
    assert "is signed by an unknown authority: name its CA with --ca-file, or try with --insecure" in refused
    trying = cat("--insecure")
    assert trying.out == b"content" and trying.err.decode().count("is not verified (--insecure)") == 1
    for trusting in [cat("--ca-file", authority.directory), cat("--ca-file", authority.file), cat(X509_CERT_DIR=str(authority.directory)),
                     cat(SSL_CERT_DIR=str(authority.directory)), cat(SSL_CERT_FILE=str(authority.file))]:
        assert (trusting.out, trusting.err) == (b"content", b"")
    named = cat(X509_CERT_DIR=str(clients.home), status=2).err.decode()
    assert f"X509_CERT_DIR: {clients.home}: no certificate (PEM) of an authority in it" in named
