"""Tests of the ALTO server: the commands of docs/guides/alto/ and docs/guides/order.md as printed there, and its
responses read by other programs."""

import contextlib
import email.parser
import email.policy
import json
import re
import subprocess
import urllib.request

import json_merge_patch
import jsonpatch
import pytest
import requests
import sseclient
from servers import HOST
from test_docs import COMMAND_LIMIT_S, DOCS, commands

PAGES = ["guides/alto/README.md", "guides/alto/requests.md", "guides/alto/calendars.md", "guides/order.md"]
PORT = 8096


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A directory with the files shown on the pages; each starts with a comment with its name."""
    here = tmp_path_factory.mktemp("alto")
    for page in PAGES:
        for text in re.findall(r"```\w+\n(# (\S+\.\w+)\n.*?)```", (DOCS / page).read_text(), re.DOTALL):
            (here / text[1]).write_text(text[0])
    return here


@contextlib.contextmanager
def serving(binary, directory):
    """Runs a server with the settings in a directory, and yields its address."""
    process = subprocess.Popen([binary, "alto", "--config", "alto.toml", "--listen", f"{HOST}:0"], cwd=directory, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.terminate()
        status = process.wait(30)
    assert status == 0


@pytest.fixture(scope="module")
def alto(binary, settings):
    """The address of a server with these settings."""
    with serving(binary, settings) as address:
        yield address


@pytest.mark.parametrize("page", PAGES)
def test_commands(page, alto, binary, settings):
    """The commands of a page, in its order, print the output shown there."""
    shown = commands(page)
    assert shown
    for command, lines in shown:
        if command == "towpath alto --config alto.toml":
            continue  # run by the fixture
        real = command.replace(f"127.0.0.1:{PORT}", alto).replace("towpath ", f"{binary} ", 1)
        done = subprocess.run(real, shell=True, cwd=settings, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        # The explanation on standard error is shown before the list.
        printed = (done.stderr + done.stdout).splitlines()
        assert done.stdout and [line for line in printed if line in lines] == lines, f"{command} printed {printed}"


def test_path_vector(alto):
    """Python's mail parser splits a path vector into two parts. The second refers to the version of the first and
    describes its elements."""
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


def test_the_stream_of_the_page(binary, settings, tmp_path):
    """curl prints the stream of docs/guides/alto/updates.md up to the change described there."""
    block = re.search(r"```text\n\$ (curl -sN [^\n]+)\n(.*?)```", (DOCS / "guides/alto/updates.md").read_text(), re.DOTALL)
    facts = (settings / "facts.toml").read_text()
    (tmp_path / "facts.toml").write_text(facts)
    (tmp_path / "alto.toml").write_text('[agents.sites]\nkind = "static"\nfile = "facts.toml"\nrefresh = "100ms"\n')
    with serving(binary, tmp_path) as address:
        command = block[1].replace(f"127.0.0.1:{PORT}", address)
        with subprocess.Popen(["timeout", str(COMMAND_LIMIT_S), "sh", "-c", f"exec {command}"], stdout=subprocess.PIPE, text=True) as follower:
            for shown in block[2].splitlines():
                if shown.startswith("event: application/merge-patch+json"):
                    (tmp_path / "facts.new").write_text(facts.replace("IN2P3 = 2,", "IN2P3 = 3,", 1))
                    (tmp_path / "facts.new").rename(tmp_path / "facts.toml")
                printed = follower.stdout.readline().removesuffix("\n")
                assert re.fullmatch(re.escape(shown).replace("…", ".*"), printed), f"{printed!r} is not {shown!r}"
            follower.terminate()


CHANGE_KINDS = {
    "application/merge-patch+json": json_merge_patch.merge,
    "application/json-patch+json": jsonpatch.apply_patch,
}


def followed(events, documents):
    """Applies one event: a complete document, or a patch, which an independent library applies."""
    event = next(events)
    media_type, _, name = event.event.partition(",")
    if name:
        update = json.loads(event.data)
        change = CHANGE_KINDS.get(media_type)
        documents[name] = change(documents[name], update) if change else update


@pytest.mark.pair("Python sseclient, jsonpatch", "follows ALTO's maps; its copy equals a GET after each change")
def test_update_stream(binary, settings, tmp_path):
    facts = (settings / "facts.toml").read_text()
    (tmp_path / "facts.toml").write_text(facts)
    (tmp_path / "alto.toml").write_text('[agents.sites]\nkind = "static"\nfile = "facts.toml"\nrefresh = "100ms"\n')
    names = {"map": "default", "costs": "default-routingcost"}
    question = {"add": {name: {"resource-id": resource} for name, resource in names.items()}}
    with serving(binary, tmp_path) as address:
        headers = {"Content-Type": "application/alto-updatestreamparams+json"}
        answer = requests.post(f"http://{address}/updates", json=question, headers=headers, stream=True, timeout=COMMAND_LIMIT_S)
        assert answer.status_code == 200
        events, documents = sseclient.SSEClient(answer).events(), {}

        def present():
            return {name: requests.get(f"http://{address}/{resource}", timeout=COMMAND_LIMIT_S).json() for name, resource in names.items()}

        for number in range(5):
            changed = facts.replace("IN2P3 = 2, elsewhere = 9", f"IN2P3 = {number}, elsewhere = 9")
            changed = changed.replace('["134.158.84.0/24"]', json.dumps(["134.158.84.0/24"] + [f"10.{each}.0.0/16" for each in range(number)]))
            (tmp_path / "facts.new").write_text(changed)
            (tmp_path / "facts.new").rename(tmp_path / "facts.toml")
            while documents.get("costs", {}).get("cost-map", {}).get("CERN", {}).get("IN2P3") != number or documents != present():
                followed(events, documents)
            assert len(documents["map"]["network-map"]["IN2P3"]["ipv4"]) == 1 + number
        answer.close()
