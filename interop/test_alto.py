"""The ALTO server: the commands of docs/alto.md as they stand there, and its answers read by programs that are not ours."""

import email.parser
import email.policy
import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from servers import HOST
from test_docs import COMMAND_LIMIT_S, DOCS, commands

PAGE = "alto.md"
PORT = 8096


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A directory with the files that the page shows, each of which begins with its name, and a list of replicas."""
    here = tmp_path_factory.mktemp("alto")
    for text in re.findall(r"```toml\n(# (\S+)\n.*?)```", (DOCS / PAGE).read_text(), re.DOTALL):
        (here / text[1]).write_text(text[0])
    shutil.copy(Path(__file__).parent / "replicas/replicas.meta4", here)
    return here


@pytest.fixture(scope="module")
def alto(binary, settings):
    """The address of a server with these settings."""
    process = subprocess.Popen([binary, "alto", "--config", "alto.toml", "--listen", f"{HOST}:0"], cwd=settings, stdout=subprocess.PIPE, text=True)
    yield process.stdout.readline().removeprefix("listening on ").strip()
    process.terminate()
    assert process.wait(30) == 0


def test_commands(alto, binary, settings):
    """Each command of the page prints what the page shows."""
    shown = commands(PAGE)
    assert len(shown) > 5
    for command, lines in shown:
        if command == "towpath alto --config alto.toml":
            continue  # the fixture did that
        real = command.replace(f"127.0.0.1:{PORT}", alto).replace("towpath ", f"{binary} ", 1)
        done = subprocess.run(real, shell=True, cwd=settings, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout and set(lines) <= set(done.stdout.splitlines()), f"{command} printed {done.stdout}"


def test_path_vector(alto):
    """A path vector is two parts to Python's parser of mail, the second of which names the first's version and describes its elements."""
    question = {
        "cost-type": {"cost-mode": "array", "cost-metric": "ane-path"},
        "endpoints": {"srcs": ["ipv4:137.138.0.101"], "dsts": ["ipv4:134.158.84.23", "ipv4:140.115.32.101"]},
    }
    headers = {"Content-Type": "application/alto-endpointcostparams+json", "Accept": "multipart/related"}
    request = urllib.request.Request(f"http://{alto}/path-vector", json.dumps(question).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        text = b"Content-Type: " + answer.headers["Content-Type"].encode() + b"\r\n\r\n" + answer.read()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(text)
    assert message.defects == [] and message.get_content_type() == "multipart/related"
    costs, properties = [json.loads(part.get_content()) for part in message.iter_parts()]
    assert [part.get_content_type() for part in message.iter_parts()] == [
        message.get_param("type"), "application/alto-propmap+json"]
    assert properties["meta"]["dependent-vtags"] == [costs["meta"]["vtag"]]
    paths = costs["endpoint-cost-map"]["ipv4:137.138.0.101"]
    shared = set.intersection(*(set(path) for path in paths.values()))
    assert shared == {"link:ex2j_cern_ch-192_65_184_145"}
    named = {f".ane:{element}" for path in paths.values() for element in path}
    assert set(properties["property-map"]) == named
