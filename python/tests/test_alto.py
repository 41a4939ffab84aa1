"""`towpath.alto` against a real `towpath alto`."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from conftest import HOST, serving

import towpath
from towpath import alto

LIMIT_S = 30
CLIENT = "137.138.0.101"
NEAR, FAR, FARTHEST = "134.158.84.23", "144.16.112.112", "140.115.32.101"
URLS = {address: f"root://{address}:1094//rucio/test/file1" for address in (FARTHEST, FAR, NEAR)}
GIVEN, WANTED = list(URLS.values()), [URLS[NEAR], URLS[FAR], URLS[FARTHEST]]

FACTS = """
[network-map.default]
CERN = ["137.138.0.0/16", "2001:db8::/32"]
IN2P3 = ["134.158.84.0/24"]
elsewhere = ["0.0.0.0/0", "::/0"]

[cost-map.default.routingcost]
CERN = { CERN = 0, IN2P3 = COST, elsewhere = 9 }

[properties."ipv4:134.158.84.0/24"]
"priv:continent" = "EU"
[properties."ipv4:140.115.32.0/24"]
"priv:continent" = "AS"

[[costs]]
src = "134.158.84.0/24"
dst = "137.138.0.0/16"
delay-ow = 5300
[[costs]]
src = "144.16.112.0/24"
dst = "137.138.0.0/16"
delay-ow = 71000
[[costs]]
src = "140.115.32.0/24"
dst = "137.138.0.0/16"
delay-ow = 132000

[routers."ex2j.cern.ch"]
serves = ["137.138.0.0/16"]
routes = [
    { prefix = "134.158.84.0/24", next-hop = "192.65.184.145", as-path = "20965 2091 789" },
    { prefix = "144.16.112.0/24", next-hop = "192.65.184.145", as-path = "20965 9885 55824" },
    { prefix = "140.115.32.0/24", next-hop = "192.65.184.145", as-path = "20965 24167 7539 1659" },
]
"""
METRICS = """
[metrics.as_hopcount]
resource-type = "path-vector"
prop-name = "priv:hop"
prop-transformer = "tolist | len"
aggr-transformer = "sum"
reverse = true
"""
METALINK = "".join(
    [
        '<?xml version="1.0" encoding="UTF-8"?>\n<metalink xmlns="urn:ietf:params:xml:ns:metalink">\n <file name="file1">\n',
        *(f'  <url location="SITE" priority="{place}">{url}</url>\n' for place, url in enumerate(GIVEN, 1)),
        " </file>\n</metalink>\n",
    ]
)


def facts(cost: int = 2) -> str:
    """The facts with that cost from CERN to IN2P3."""
    return FACTS.replace("COST", str(cost))


@pytest.fixture(scope="module")
def server(binary, tmp_path_factory):
    """A server that nobody changes."""
    with serving(binary, tmp_path_factory.mktemp("alto"), facts()) as running:
        yield running


@pytest.fixture
def changing(binary, tmp_path):
    """A server of one test, which may change it."""
    with serving(binary, tmp_path, facts()) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return alto.Client(server.ird)


def test_a_directory_lists_what_there_is(client):
    resources = {resource.id: resource for resource in client.resources}
    assert resources["default"].media_type == "application/alto-networkmap+json" and resources["default"].accepts == ""
    costs = resources["default-routingcost"]
    assert costs.uses == ("default",) and costs.cost_types == (alto.CostType("routingcost", "numerical"),)
    assert alto.CostType("delay-ow", "ordinal") in resources["endpoint-costs"].cost_types
    assert resources["endpoint-costs"].uri.startswith(f"http://{HOST}:")
    assert "cost-type-names" in resources["endpoint-costs"].capabilities


def test_maps_are_documents_with_their_versions(client):
    network_map, costs = client.network_map(), client.cost_map()
    assert network_map == client.get("default")
    assert network_map.content["network-map"]["IN2P3"] == {"ipv4": ["134.158.84.0/24"]}
    assert costs.resource == "default-routingcost" and costs.content["cost-map"]["CERN"]["IN2P3"] == 2
    assert costs.content["meta"]["dependent-vtags"] == [{"resource-id": "default", "tag": network_map.tag}]
    assert [part.content for part in costs.parts] == [costs.content]


def test_a_resource_that_takes_input_is_asked_by_post(client):
    question = {"pids": ["IN2P3"]}
    filtered = [resource.id for resource in client.resources if "networkmapfilter" in resource.accepts]
    assert list(client.get(filtered[0], question).content["network-map"]) == ["IN2P3"]


def test_costs_are_by_the_names_that_were_asked_for(client):
    named = [NEAR, f"ipv4:{FAR}", "192.0.2.1"]
    assert client.costs(named, [CLIENT], "delay-ow") == {NEAR: {CLIENT: 5300}, f"ipv4:{FAR}": {CLIENT: 71000}}
    ranks = client.costs([NEAR, FAR], [CLIENT], "delay-ow", "ordinal")
    assert ranks[NEAR][CLIENT] < ranks[FAR][CLIENT]
    assert client.costs(["2001:DB8:0::1"], [CLIENT]) == {"2001:DB8:0::1": {CLIENT: 0}}


def test_properties_are_those_of_the_longest_prefix(client):
    told = client.properties([NEAR, FARTHEST, "192.0.2.1"], ["priv:continent"])
    assert told[NEAR] == {"priv:continent": "EU"} and told[FARTHEST] == {"priv:continent": "AS"}
    assert not told.get("192.0.2.1")
    assert client.properties([NEAR], ["default.pid"]) == {NEAR: {"default.pid": "IN2P3"}}


def test_paths_come_with_the_properties_of_their_elements(client):
    paths, elements = client.paths([CLIENT], [NEAR, FARTHEST], ["priv:hop"])
    near, far = paths[CLIENT][NEAR], paths[CLIENT][FARTHEST]
    assert near != far and set(near) & set(far), "both begin with the same link"
    assert set(elements) == {*near, *far}
    assert any("priv:hop" in known for known in elements.values())


def test_paths_are_asked_as_rfc_9275_has_them_also_where_openalto_s_form_is_there(binary, tmp_path):
    with serving(binary, tmp_path, facts(), 'compatibility = "openalto"\n') as running:
        client = alto.Client(running.ird)
        assert {"cern-pv", "path-vector"} <= {resource.id for resource in client.resources}
        for properties in ([], ["priv:hop"]):
            paths, elements = client.paths([CLIENT], [NEAR], properties)
            assert any(element.startswith("link:") for element in paths[CLIENT][NEAR])
        paths, elements = client.paths([CLIENT], [NEAR], ["next_hop"])
        assert any("next_hop" in known for known in elements.values()), "only that form has it"


def test_what_there_is_not_is_not_found(client):
    with pytest.raises(towpath.NotFound, match="priv:nothing"):
        client.paths([CLIENT], [NEAR], ["priv:nothing"])
    with pytest.raises(towpath.NotFound, match="no cost map by jitter"):
        client.cost_map("jitter")
    with pytest.raises(towpath.NotFound, match="priv:nothing"):
        client.properties([NEAR], ["priv:nothing"])


@contextmanager
def answering(answers: dict):
    """The address of a server that is no good one, and the headers of what it is asked: it answers each path as `answers` says."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            media_type, document = answers[self.path]
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", f"application/{media_type}+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with HTTPServer((HOST, 0), Handler) as running:
        server = threading.Thread(target=running.serve_forever, daemon=True)
        server.start()
        try:
            yield f"http://{HOST}:{running.server_port}", seen
        finally:
            running.shutdown()
            server.join()


def test_a_token_is_shown_to_the_server_that_was_named():
    with answering({"/directory": ("alto-directory", {"meta": {}, "resources": {}})}) as (address, seen):
        client = alto.Client(f"{address}/directory", token="hush")
        assert [headers["Authorization"] for headers in seen] == ["Bearer hush"]
        assert client.resources == []
        with pytest.raises(towpath.NotFound, match="default network map"):
            client.network_map()


def test_answers_that_are_none_are_corrupt():
    costs = {"cost-mode": "numerical", "cost-metric": "routingcost"}
    entry = {
        "uri": "/costs",
        "media-type": "application/alto-endpointcost+json",
        "accepts": "application/alto-endpointcostparams+json",
        "capabilities": {"cost-type-names": ["c"], "mappings": 7, "prop-types": "x"},
    }
    directory = {"meta": {"cost-types": {"c": costs}}, "resources": {"costs": entry, "odd": 7}}
    answers = {"/directory": ("alto-directory", directory)}
    with answering(answers) as (address, _):
        client = alto.Client(f"{address}/directory")
        assert [resource.id for resource in client.resources] == ["costs"]
        for document in ([], {"endpoint-cost-map": 1}):
            answers["/costs"] = ("alto-endpointcost", document)
            with pytest.raises(towpath.Corrupt, match="endpoint-cost-map"):
                client.costs([NEAR], [CLIENT])
        answers["/costs"] = ("alto-endpointcost", {"endpoint-cost-map": {f"ipv4:{NEAR}": 1}})
        assert client.costs([NEAR], [CLIENT]) == {}
        with pytest.raises(towpath.NotFound):
            client.properties([NEAR], ["x"])


def test_refusals_name_the_field(client):
    with pytest.raises(towpath.Error, match="endpoints"):
        client.costs(["no address"], [CLIENT])
    with pytest.raises(towpath.Error, match="nothing"):
        client.get("nothing")


@pytest.mark.parametrize("means", ["stream", "views", "asking", None])
def test_changes_are_followed(changing, means):
    client = alto.Client(changing.ird)
    names = {"costs": "default-routingcost", "map": "default"}
    with client.follow(names, means=means, every=0.05) as changes:
        documents = {}
        while documents.keys() != names.keys():
            change = next(changes)
            documents[change.name] = change.document
        assert documents["map"] == client.network_map()
        for cost in (3, 4, 5):
            changing.tell(facts(cost))
            for change in changes:
                if change.name == "costs" and change.document.content["cost-map"]["CERN"]["IN2P3"] == cost:
                    break
            assert change.document.content == client.cost_map().content
    assert list(changes) == [], "it was closed"


def test_an_answer_to_a_question_is_followed(changing):
    question = {
        "cost-type": {"cost-mode": "numerical", "cost-metric": "delay-ow"},
        "endpoints": {"srcs": [f"ipv4:{NEAR}"], "dsts": [f"ipv4:{CLIENT}"]},
    }
    with alto.Client(changing.ird).follow({"delay": ("endpoint-costs", question)}) as changes:
        for cost in (5300, 5400):
            changing.tell(facts().replace("delay-ow = 5300", f"delay-ow = {cost}"))
            assert next(changes).document.content["endpoint-cost-map"] == {f"ipv4:{NEAR}": {f"ipv4:{CLIENT}": cost}}


def test_what_is_nowhere_has_a_place_and_no_values(client):
    [place] = client.rank(["root://nowhere.invalid//f"], "BY delay_ow", client=CLIENT)
    assert place.url == "root://nowhere.invalid//f" and set(place.values.values()) == {None}


def test_waiting_holds_up_no_other_thread(changing):
    changes, seen = alto.Client(changing.ird).follow({"costs": "default-routingcost"}), []
    next(changes)
    waiting = threading.Thread(target=lambda: seen.append(next(changes)), daemon=True)
    waiting.start()
    changing.tell(facts(7))
    waiting.join(LIMIT_S)
    assert [change.document.content["cost-map"]["CERN"]["IN2P3"] for change in seen] == [7]


@pytest.mark.parametrize("_", range(20))
def test_any_thread_ends_a_wait(server, _):
    """Whether it waits already, or is about to."""
    changes = alto.Client(server.ird).follow({"costs": "default-routingcost"})
    rest, is_first = [], threading.Event()

    def take():
        next(changes)
        is_first.set()
        rest.extend(changes)

    waiting = threading.Thread(target=take, daemon=True)
    waiting.start()
    assert is_first.wait(LIMIT_S)
    changes.close()
    waiting.join(LIMIT_S)
    assert not waiting.is_alive() and rest == []
    assert list(changes) == []


def test_answers_are_asked_for_as_often_as_that_is_wanted():
    entry = {"uri": "/map", "media-type": "application/alto-networkmap+json"}
    answers = {"/directory": ("alto-directory", {"meta": {}, "resources": {"map": entry}})}
    with answering(answers) as (address, _):
        client = alto.Client(f"{address}/directory")
        answers["/map"] = ("alto-networkmap", {"network-map": {}})
        seen, is_first = [], threading.Event()

        def take():
            for change in changes:
                seen.append(change.document.content["network-map"])
                is_first.set()
                if len(seen) == 2:
                    break

        with client.follow({"map": "map"}, every=0.1) as changes:
            waiting = threading.Thread(target=take, daemon=True)
            waiting.start()
            assert is_first.wait(LIMIT_S)
            answers["/map"] = ("alto-networkmap", {"network-map": {"PID1": {}}})
            waiting.join(LIMIT_S)
        assert seen == [{}, {"PID1": {}}]


INTERRUPTED = """
import sys
from towpath import alto
changes = alto.Client(sys.argv[1]).follow({"costs": "default-routingcost"})
try:
    print(next(changes).name, flush=True)
    next(changes)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_ends_a_wait(server):
    # Also where signals are ignored, as behind `nohup`.
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, server.ird],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert child.stdout.readline() == "costs\n"
    child.send_signal(signal.SIGINT)
    try:
        assert child.communicate(timeout=LIMIT_S)[0] == "interrupted\n"
    finally:
        child.kill()
    assert child.returncode == 0


def in_child(work) -> str:
    """What `work` gives, or raises, in a child of this process."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT_S)
        try:
            said = str(work())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(sink, said.encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as told:
        said = told.read()
    os.waitpid(child, 0)
    return said


def test_a_forked_process_has_to_make_a_client_of_its_own(server, client):
    assert in_child(lambda: client.network_map().tag).startswith("Invalid: it was created before this process was forked")
    assert in_child(lambda: alto.Client(server.ird).network_map().tag) == client.network_map().tag


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (METALINK.encode(), WANTED),
        ("\n".join(GIVEN) + "\n", WANTED),
        (json.dumps(GIVEN, indent=1), WANTED),
        (GIVEN, WANTED),
        ([{"name": "file1", "pfns": {url: {"rse": "SITE", "priority": 1} for url in GIVEN}}], WANTED),
    ],
    ids=["metalink", "lines", "json", "list", "rucio"],
)
def test_lists_of_replicas_come_back_in_order(server, given, wanted):
    ordered = alto.order(given, by="BY delay_ow", ird=server.ird, client=CLIENT)
    assert type(ordered) is type(given)
    text = ordered.decode() if isinstance(ordered, bytes) else ordered if isinstance(ordered, str) else json.dumps(ordered)
    assert sorted(wanted, key=text.index) == wanted
    assert alto.order(ordered, by=alto.Statement("BY delay_ow"), ird=server.ird, client=CLIENT) == ordered


def test_priorities_of_a_metalink_follow_its_order(server):
    ordered = alto.order(METALINK, by="BY delay_ow", ird=server.ird, client=CLIENT)
    lines = [f'  <url location="SITE" priority="{place}">{url}</url>' for place, url in enumerate(WANTED, 1)]
    assert [line for line in ordered.splitlines() if "<url" in line] == lines


def test_replicas_that_do_not_meet_the_condition_are_left_out_if_that_is_asked(server):
    by = "BY delay_ow WHERE continent = 'EU'"
    assert alto.order(GIVEN, by=by, ird=server.ird, client=CLIENT, strict=True) == [URLS[NEAR]]
    assert alto.order(GIVEN, by=by, ird=server.ird, client=CLIENT) == WANTED


def test_ranks_say_what_put_each_into_its_place(server, tmp_path):
    (tmp_path / "client.toml").write_text(f'default-ird = "{server.ird}"\n{METRICS}')
    by = "BY as_hopcount, delay_ow WHERE continent = 'EU'"
    unknown = "root://192.0.2.1//f"
    places = alto.rank([*GIVEN, unknown], by, client=CLIENT, config=tmp_path / "client.toml")
    assert places[0] == alto.Place(URLS[NEAR], {"as_hopcount": 3, "delay_ow": 5300, "continent": "EU"}, True)
    assert {place.url: place.holds for place in places} == {URLS[NEAR]: True, URLS[FARTHEST]: False, URLS[FAR]: None, unknown: None}
    assert places[-1] == alto.Place(unknown, {"as_hopcount": None, "delay_ow": None, "continent": None}, None)


def test_a_server_that_is_not_there_is_unavailable():
    with pytest.raises(towpath.Unavailable, match="; at fault: the network; a retry may succeed$"):
        alto.rank(GIVEN, "BY delay_ow", "http://127.0.0.1:1/directory", CLIENT, timeout=1)


def test_what_is_no_directory_is_told(server):
    with pytest.raises(towpath.Error, match=r"\(406\)"):
        alto.Client(server.ird.replace("/directory", "/default"))


def test_names_that_mean_nothing_are_told_with_those_that_would(server):
    with pytest.raises(towpath.Invalid, match="nonsense.*delay-ow"):
        alto.rank(GIVEN, "BY nonsense", server.ird, CLIENT)


def test_arguments_that_make_no_sense_are_value_and_type_errors(server, client, tmp_path):
    for by, column in [("BY", 3), ("BY a b", 6), ("BY a WHERE", 11)]:
        with pytest.raises(ValueError, match=f"^column {column}: "):
            alto.rank(GIVEN, by, server.ird)
    with pytest.raises(ValueError, match="ird"):
        alto.order(GIVEN, by="BY delay_ow")
    with pytest.raises(ValueError, match="above 0"):
        alto.Client(server.ird, timeout=-1)
    with pytest.raises(ValueError, match="means"):
        client.follow({"costs": "default-routingcost"}, means="smoke")
    with pytest.raises(ValueError):
        client.rank(GIVEN, client="no address")
    with pytest.raises(TypeError, match="urls"):
        client.rank(GIVEN[0])
    with pytest.raises(TypeError, match="replicas"):
        client.order({"url": GIVEN[0]})
    with pytest.raises(OSError):
        alto.Client(server.ird, config=tmp_path / "missing.toml")
    (tmp_path / "wrong.toml").write_text("default_ird = 1\nx = 2\n")
    with pytest.raises(towpath.Invalid):
        alto.Client(server.ird, config=tmp_path / "wrong.toml")


def test_the_example_of_the_readme_does_what_it_shows(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("client.toml").write_text(METRICS)
    example = re.search(r"```python\n(.*?)```", (Path(__file__).parents[2] / "README.md").read_text(), re.DOTALL)[1]
    found = {"replicas": GIVEN}
    exec(example.replace("http://127.0.0.1:8096/directory", server.ird), found)
    found["changes"].close()
    assert found["delays"] == {NEAR: {CLIENT: 5300}}
    assert found["costs"]["CERN"]["IN2P3"] == 2
    assert found["ordered"] == WANTED


def test_a_statement_orders_mappings():
    statement = alto.Statement("BY delay, load DESC WHERE continent = 'EU'")
    assert statement.names == ["delay", "load", "continent"]
    near, loaded, far = [{"delay": delay, "load": load, "continent": "EU"} for delay, load in [(5, 1), (5, 2), (7, 9)]]
    other, unknown = {"delay": 1, "continent": "AS"}, {"delay": math.nan, "load": None, "continent": "EU"}
    given = [unknown, other, far, near, loaded]
    assert statement.order(given) == [loaded, near, far, unknown, other]
    assert statement.order(given, strict=True) == [loaded, near, far, unknown]
    assert statement.order([]) == []


def test_more_throughput_is_better():
    slow, fast = {"tput": 1}, {"tput": 2}
    assert alto.Statement("BY tput").order([slow, fast]) == [fast, slow]


def test_values_are_those_that_statements_know():
    by = alto.Statement("BY a")
    text, truth, number, several = {"a": "x"}, {"a": True}, {"a": 2}, {"a": [1, "b"]}
    assert by.order([several, text, number, truth]) == [truth, number, text, several]
    endless = []
    endless.append(endless)
    for wrong, error in [({"a": {}}, TypeError), ({"a": b"x"}, TypeError), ({"a": endless}, ValueError)]:
        with pytest.raises(error, match="`a`"):
            by.order([wrong])


def test_malformed_statements_name_the_column():
    with pytest.raises(ValueError, match="^column 15: expected"):
        alto.Statement("BY a WHERE b >")
    assert repr(alto.Statement("BY a")) == "Statement('BY a')"
