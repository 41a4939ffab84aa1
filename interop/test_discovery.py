"""Discovery of an ALTO server through a real DNS: dnsmasq has records for a domain (RFC 7286) and for the addresses of
a network (RFC 8686)."""

import subprocess

import pytest
from rucio_site import PYTHON
from servers import HOST, Server, free_port, unprivileged, wait_for_port
from test_alto import serving
from test_docs import COMMAND_LIMIT_S

FACTS = """
[network-map.default]
here = ["127.0.0.0/8", "192.0.2.0/24"]
near = ["198.51.100.0/24"]
far = ["203.0.113.0/24"]
elsewhere = ["0.0.0.0/0", "::/0"]
[cost-map.default.routingcost]
near = { here = 1 }
far = { here = 5 }
"""
SETTINGS = """
[tls]
certificate = "{authority.certificate}"
key = "{authority.key}"
required = true
[agents.sites]
kind = "static"
file = "facts.toml"
"""
NEAR = "root://198.51.100.1:1094//f\n"
FAR = "root://203.0.113.1:1094//f\n"
CLIENT = "192.0.2.7"


def records(directory: str) -> list[str]:
    """Returns the DNS records: a domain, a domain whose first server does not respond, one that refers to the first
    domain, the network of `CLIENT`, and a domain whose server has no TLS.

    Fields: name, order, preference, flags, service, regular expression, replacement.
    """
    return [
        f"grid.test,100,10,u,ALTO:https,!.*!{directory}!",
        "grid.test,100,20,u,ALTO:https,!.*!https://second.test/!",
        "grid.test,50,10,s,SIP+D2U,,_sip._udp.grid.test",
        "busy.test,100,10,u,ALTO:https,!.*!https://127.0.0.1:1/directory!",
        f"busy.test,100,20,u,ALTO:https,!.*!{directory}!",
        "dead.test,100,10,u,ALTO:https,!.*!https://127.0.0.1:1/directory!",
        "moved.test,100,10,,ALTO:https,,grid.test",
        f"0.192.in-addr.arpa,100,10,u,ALTO:https,!.*!{directory}!",
        "plain.test,100,10,u,ALTO:http,!.*!http://alto.plain.test/directory!",
        "circle.test,100,10,,ALTO:https,,circle.test",
    ]


@pytest.fixture(scope="module")
def alto(binary, authority, tmp_path_factory):
    """The address of a directory that is served over TLS."""
    here = tmp_path_factory.mktemp("discovery")
    (here / "facts.toml").write_text(FACTS)
    (here / "alto.toml").write_text(SETTINGS.format(authority=authority))
    with serving(binary, here) as address:
        yield f"https://{address}/directory"


@pytest.fixture(scope="module")
def dns(alto, base):
    """The address of a name server with only these records."""
    port, log = free_port(), base / "dnsmasq.log"
    command = ["/usr/sbin/dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--log-facility=-", "--no-resolv", "--no-hosts",
               "--local=/#/", f"--port={port}", f"--listen-address={HOST}", "--bind-interfaces", *(f"--naptr-record={record}" for record in records(alto))]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, **unprivileged())
    server = Server("dnsmasq", base, port, process, log)
    wait_for_port(server, port)
    yield f"{HOST}:{port}"
    server.stop()


def order(binary, authority, dns, *arguments):
    """Runs `towpath order` with two replicas, the more distant one first."""
    command = [binary, "order", "--ca-file", authority.file, "--dns", dns, *arguments]
    return subprocess.run(command, input=FAR + NEAR, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)


@pytest.mark.pair("dnsmasq", "has the NAPTR record of an ALTO server for `towpath order`: of a domain, and of an address")
@pytest.mark.parametrize(("arguments", "name"), [
    (["--domain", "grid.test"], "grid.test"),
    (["--domain", "moved.test"], "grid.test"),
    (["--domain", "busy.test"], "busy.test"),
    (["--client", CLIENT], "0.192.in-addr.arpa"),
])
def test_found(binary, authority, alto, dns, arguments, name):
    done = order(binary, authority, dns, *arguments)
    assert (done.returncode, done.stdout) == (0, NEAR + FAR), done.stderr
    assert alto in done.stderr and name in done.stderr


PROGRAM = """
import sys
from towpath import NotFound, alto

dns, ca_file, near, far = sys.argv[1:]
for found in (alto.Client.discover("busy.test", dns=dns, ca_file=ca_file), alto.Client.discover(address="CLIENT", dns=dns, ca_file=ca_file)):
    assert found.order([far, near]) == [near, far]
    print(found.ird)
try:
    alto.Client.discover("missing.test", dns=dns)
except NotFound as error:
    print(error)
""".replace("CLIENT", CLIENT)


def test_found_from_python(package, authority, alto, dns):
    done = subprocess.run([PYTHON, "-P", "-c", PROGRAM, dns, authority.file, NEAR.strip(), FAR.strip()], capture_output=True, text=True,
                          timeout=COMMAND_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [alto, alto, "the DNS names no ALTO server at missing.test"]


def test_a_server_that_is_found_and_silent(binary, authority, dns):
    """The error names the server that does not respond. With `--fallback` the list is printed unchanged."""
    done = order(binary, authority, dns, "--domain", "dead.test")
    assert (done.returncode, done.stdout) == (8, ""), done.stderr
    assert "127.0.0.1:1" in done.stderr
    done = order(binary, authority, dns, "--domain", "dead.test", "--fallback")
    assert (done.returncode, done.stdout) == (0, FAR + NEAR), done.stderr


def test_the_domain_goes_before_other_servers(binary, authority, dns):
    """`--domain` takes precedence over the configured server."""
    done = order(binary, authority, dns, "--ird", f"https://{HOST}:1/directory", "--domain", "grid.test")
    assert (done.returncode, done.stdout) == (0, NEAR + FAR), done.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["--domain", "missing.test"], "missing.test"),
    (["--domain", "plain.test"], "plain.test names http://alto.plain.test/directory, which is ignored"),
    (["--domain", "circle.test"], "was already queried"),
    (["--client", "198.51.100.7"], "198.in-addr.arpa"),
    (["--client", "2001:db8::7"], "8.b.d.0.1.0.0.2.ip6.arpa"),
])
def test_not_found(binary, authority, dns, arguments, message):
    done = order(binary, authority, dns, *arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert message in done.stderr and "--ird URL" in done.stderr


def test_silent_dns(binary, authority):
    """The name server does not respond. With `--fallback` the list is printed unchanged."""
    nobody = f"{HOST}:{free_port()}"
    done = order(binary, authority, nobody, "--domain", "grid.test")
    assert (done.returncode, done.stdout) == (8, ""), done.stderr
    done = order(binary, authority, nobody, "--domain", "grid.test", "--fallback")
    assert (done.returncode, done.stdout) == (0, FAR + NEAR), done.stderr
