"""towpath.rucio without Rucio: ranks and distances, the sorter, what it is called with and what it remembers, the command line.

The ALTO server and Rucio are stood in for where the package itself takes them as arguments, or imports them late. The real ones
are met in interop/test_rucio.py.
"""

import io
import logging
import os
import signal
import subprocess
import sys
import types

import pytest

import towpath
from towpath import alto
from towpath.rucio import __main__ as command
from towpath.rucio import distances, judgement, metalink, official, rebinding, sorter

CLIENT = {"ip": "192.0.2.7", "fqdn": None, "site": None}


def place(url: str, values: dict, holds: bool | None = True) -> alto.Place:
    """What is known of one replica; by default it meets the condition."""
    return alto.Place(url, values, holds)


class Server:
    """An ALTO server that knows one number of each host, and remembers what it was asked."""

    def __init__(self, costs: dict[str, float], error: Exception | None = None) -> None:
        self.costs, self.error, self.asked, self.opened = costs, error, [], []

    def connect(self, ird, *, config=None, timeout=30.0):
        self.opened.append((ird, config, timeout))
        return self

    def rank(self, urls, by="BY routingcost", *, client=None):
        self.asked.append((sorted(map(judgement.host_of, urls)), client, by))
        if self.error:
            raise self.error
        key = judgement.keys_of(by)[0]
        places = [place(url, {key: self.costs.get(judgement.host_of(url))}) for url in urls]
        return sorted(places, key=lambda found: (found.values[key] is None, found.values[key] or 0))


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


# Pairs of better and worse replicas


def test_who_is_as_good_as_another_has_the_same_rank():
    places = [place("a", {"hops": 1, "kind": "x"}), place("b", {"hops": 1, "kind": "y"}), place("c", {"hops": 3, "kind": "x"})]
    assert {url: rank.number for url, rank in judgement.ranks(places, ["hops"]).items()} == {"a": 1, "b": 1, "c": 2}
    assert all(rank.is_known for rank in judgement.ranks(places, ["hops"]).values())


def test_who_meets_the_condition_is_better_than_who_does_not():
    places = [place("a", {"hops": 1}), place("b", {"hops": 1}, False), place("c", {"hops": 1}, None)]
    assert [rank.number for rank in judgement.ranks(places, ["hops"]).values()] == [1, 2, 2]


def test_the_backup_tells_those_apart_of_which_no_key_is_known():
    values = [
        {"hops": 1, judgement.BACKUP: 9},
        {"hops": 1, judgement.BACKUP: 8},
        {"hops": None, judgement.BACKUP: 7},
        {judgement.BACKUP: 8},
        {},
        {"hops": None},
    ]
    ranks = judgement.ranks([place(str(index), about) for index, about in enumerate(values)], ["hops"])
    assert list(ranks.values()) == [(1, True), (1, True), (2, False), (3, False), (4, False), (4, False)]


@pytest.mark.parametrize(
    ("statement", "keys"),
    [
        ("BY hops", ("hops",)),
        ("by hops, delay_ow DESC where continent='EU' OR city=\"where\"", ("hops", "delay_ow")),
        ("BY a.where,b-where WHERE c = 1", ("a.where", "b-where")),
        ("BY hops WHERE(continent='EU')", ("hops",)),
    ],
)
def test_keys_end_at_where(statement, keys):
    assert judgement.keys_of(statement) == keys


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("root://Host.example.org:1094//a/b", "host.example.org"),
        ("root://proxy:1094//root://origin.example.org//a", "origin.example.org"),
        ("root://a//xroot://b:2//root://c//d", "c"),
        ("davs://user@host:443/a?to=https://other/b", "host"),
        ("https://[2001:db8::1]:443/a", "2001:db8::1"),
        ("srm://se.example.org:8446/srm/managerv2?SFN=/a", "se.example.org"),
        ("file:///a/b", None),
        ("mailto:x", None),
        ("root://a b//c", None),
        ("https://" + "h" * 254 + "/", None),
        ("", None),
    ],
)
def test_behind_proxies_is_the_real_host(url, host):
    assert judgement.host_of(url) == host


def test_urls_of_addresses_have_brackets_where_they_need_them():
    for host in ("se.example.org", "192.0.2.1", "2001:db8::1"):
        assert judgement.host_of(judgement.url_of(host)) == host


# Distances


class AccessDenied(Exception):
    """Named as Rucio's own."""


class RucioException(Exception):
    """Named as Rucio's own."""


class RSEProtocolNotSupported(RucioException):
    """Named as Rucio's own."""


class Rucio:
    """What `distances` needs of Rucio's client."""

    def __init__(self, table=None, may_export=True, rses=None, failing=()):
        self.table = table or {}
        self.may_export, self.rses, self.failing = may_export, rses or {}, set(failing)
        self.written, self.read = [], []

    def list_rses(self, rse_expression=None):
        return ({"rse": name} for name in self.rses if rse_expression in (None, name))

    def get_protocols(self, rse):
        if not self.rses[rse]:
            raise RSEProtocolNotSupported("it has none")
        return self.rses[rse]

    def export_data(self, distance):
        assert distance
        if not self.may_export:
            raise AccessDenied("not you")
        told = {}
        for (source, destination), value in self.table.items():
            told.setdefault(source, {})[destination] = {"distance": value}
        return {"rses": {}, "distances": told}

    def get_distance(self, source, destination):
        self.read.append((source, destination))
        return [{"distance": self.table[source, destination]}] if (source, destination) in self.table else []

    def add_distance(self, source, destination, parameters):
        assert (source, destination) not in self.table
        self._write(source, destination, parameters)

    def update_distance(self, source, destination, parameters):
        assert (source, destination) in self.table
        self._write(source, destination, parameters)

    def _write(self, source, destination, parameters):
        if "denied" in self.failing:
            raise AccessDenied("not you")
        if source in self.failing:
            raise RucioException("not this one")
        self.table[source, destination] = parameters["distance"]
        self.written.append((source, destination, parameters["distance"]))


def storages(*names):
    return [distances.Storage(name, (f"192.0.2.{number}",)) for number, name in enumerate(names, 1)]


def run_of(rucio, server, adds=True, **options):
    return distances.Run(rucio, server.rank, ("routingcost",), distances.Table(rucio), adds=adds, **options)


COSTS = {"192.0.2.1": 5, "192.0.2.2": 7, "192.0.2.3": 7}


def test_ranks_become_distances_of_each_destination_and_nothing_is_written_twice():
    rucio, server = Rucio({("A", "B"): 9, ("C", "A"): 1001}), Server(COSTS)
    summary = (run := run_of(rucio, server)).summary
    run.of_all(storages("A", "B", "C"))
    expected = {("B", "A"): 1, ("C", "A"): 1, ("A", "B"): 1, ("C", "B"): 2, ("A", "C"): 1, ("B", "C"): 2}
    assert rucio.table == {pair: distances.BASE + rank for pair, rank in expected.items()}
    assert (summary.added, summary.updated, summary.unchanged, summary.is_whole) == (4, 1, 1, True)
    assert [(hosts, client) for hosts, client, _ in server.asked] == [
        (["192.0.2.2", "192.0.2.3"], "192.0.2.1"),
        (["192.0.2.1", "192.0.2.3"], "192.0.2.2"),
        (["192.0.2.1", "192.0.2.2"], "192.0.2.3"),
    ]
    rucio.written.clear()
    (again := run_of(rucio, server)).of_all(storages("A", "B", "C"))
    assert rucio.written == [] and again.summary.unchanged == 6


def test_what_nothing_is_known_of_and_what_somebody_closed_stay_as_they_are():
    rucio = Rucio({("A", "B"): 4, ("D", "C"): None})
    run = run_of(rucio, Server({"192.0.2.2": 1, "192.0.2.4": 1}))
    run.of_all(storages("A", "B", "C", "D"))
    assert rucio.table[("A", "B")] == 4 and rucio.table[("D", "C")] is None and ("A", "C") not in rucio.table
    assert (run.summary.unknown, run.summary.closed, run.summary.added) == (6, 1, 5)


def test_two_hops_are_always_farther_than_a_direct_way():
    best, worst = distances.BASE + 1, distances.BASE + distances.MAX_RSES - 1
    assert 2 * best > worst, "even if Rucio is told to take no penalty for a hop"


def test_where_somebody_is_on_the_globe_makes_no_distance():
    def rank(urls, client):
        return [place(url, {"routingcost": None, judgement.BACKUP: 7}) for url in urls]

    rucio = Rucio({("A", "B"): 4})
    run = distances.Run(rucio, rank, ("routingcost",), distances.Table(rucio), adds=True)
    run.of_all(storages("A", "B"))
    assert rucio.written == [] and run.summary.unknown == 2


def test_no_way_is_opened_unless_somebody_wants_that():
    rucio = Rucio({("A", "B"): 4})
    run = distances.Run(rucio, Server(COSTS).rank, ("routingcost",), distances.Table(rucio))
    run.of_all(storages("A", "B", "C"))
    assert rucio.written == [("A", "B", 1001)] and run.summary.closed == 5
    assert not command.parser().parse_args(["distances"]).add and command.parser().parse_args(["distances", "--add"]).add


def test_a_dry_run_tells_and_writes_nothing():
    rucio, told = Rucio({("A", "B"): 4}), []
    run_of(rucio, Server(COSTS), is_dry=True, tell=told.append).of_all(storages("A", "B"))
    assert sorted(told) == ["A B 4 1001", "B A - 1001"] and rucio.written == []


def test_who_may_not_export_reads_one_by_one_and_only_what_may_be_written():
    rucio = Rucio({("A", "B"): 1001, ("A", "C"): 4}, may_export=False)
    run = run_of(rucio, Server({"192.0.2.1": 1}))
    run.of_all(storages("A", "B", "C"))
    assert rucio.read == [("A", "B"), ("A", "C")] and rucio.written == [("A", "C", 1001)]


def test_a_pair_that_fails_does_not_end_the_run():
    rucio = Rucio(failing=["B"])
    run = run_of(rucio, Server(COSTS))
    run.of_all(storages("A", "B", "C"))
    assert run.summary.failed == 2 and run.summary.added == 4 and not run.summary.is_whole


def test_when_pair_after_pair_fails_the_rest_is_not_tried():
    names = [f"S{number}" for number in range(30)]
    rucio = Rucio(failing=names)
    run = run_of(rucio, Server({f"192.0.2.{number}": number for number in range(1, 31)}))
    with pytest.raises(distances.GivenUp, match="accepts no distances"):
        run.of_all(storages(*names))
    assert run.summary.failed == distances.MAX_PAIRS_FAILED


def test_who_may_not_write_does_not_try_again():
    rucio = Rucio(failing=["denied"])
    with pytest.raises(AccessDenied) as denied:
        run_of(rucio, Server(COSTS)).of_all(storages("A", "B", "C"))
    assert command.exit_code(denied.value) == 4


def test_a_destination_of_which_nothing_can_be_learnt_is_passed_over_and_five_are_enough():
    rucio, server = Rucio(), Server(COSTS, towpath.Unavailable("it does not answer"))
    run = run_of(rucio, server)
    with pytest.raises(distances.GivenUp, match="returned no costs"):
        run.of_all(storages(*"ABCDEFGH"))
    assert len(server.asked) == run.summary.surveys_failed == distances.MAX_SURVEYS_FAILED and rucio.written == []
    run = run_of(rucio, server)
    run.of_all(storages("A", "B"))
    assert run.summary.surveys_failed == 2 and not run.summary.is_whole


def test_what_will_be_refused_for_all_destinations_is_asked_for_once():
    server = Server(COSTS, towpath.Invalid("`delai` is nothing that it has"))
    with pytest.raises(towpath.Invalid):
        run_of(Rucio(), server).of_all(storages("A", "B", "C"))
    assert len(server.asked) == 1


def test_failures_with_successes_between_them_end_nothing():
    names = [f"S{number:02}" for number in range(1, 21)]
    rucio, server = Rucio(failing=names[::2]), Server({f"192.0.2.{number}": number for number in range(1, 21)})

    def rank(urls, client):
        server.error = towpath.Unavailable("now and then") if int(client.rpartition(".")[2]) % 2 else None
        return server.rank(urls, client=client)

    run = distances.Run(rucio, rank, ("routingcost",), distances.Table(rucio), adds=True)
    run.of_all(storages(*names))
    assert run.summary.failed > distances.MAX_PAIRS_FAILED and run.summary.surveys_failed > distances.MAX_SURVEYS_FAILED
    assert run.summary.added == 10 * 9


def test_two_storages_at_one_host_are_as_far_away_and_asked_for_once():
    two = [distances.Storage(name, ("192.0.2.1",)) for name in ("DISK", "TAPE")]
    rucio, server = Rucio(), Server(COSTS)
    run_of(rucio, server).of_all([*two, distances.Storage("B", ("192.0.2.2",))])
    assert rucio.table[("DISK", "B")] == rucio.table[("TAPE", "B")] == 1001
    assert server.asked[-1][0] == ["192.0.2.1"]


def test_sources_are_asked_for_by_the_destinations_family():
    source = distances.Storage("A", ("192.0.2.1", "2001:db8::1"))
    old = distances.Storage("C", ("192.0.2.3",))
    assert source.address_for("2001:db8::2") == "2001:db8::1"
    assert source.address_for("192.0.2.2") == "192.0.2.1"
    assert old.address_for("2001:db8::2") == "192.0.2.3"
    destination = distances.Storage("B", ("2001:db8::2", "192.0.2.2"))
    assert distances.client_for(destination, [source]) == "2001:db8::2"
    assert distances.client_for(destination, [source, old]) == "192.0.2.2"
    assert distances.client_for(destination, [old, distances.Storage("D", ("2001:db8::4",))]) == "2001:db8::2"


def protocol(host, **wan):
    return {"hostname": host, "domains": {"lan": {}, "wan": wan}}


def test_the_host_of_a_storage_is_the_first_that_has_an_address(monkeypatch):
    known = {"door.example.org": ["192.0.2.1", "2001:db8::1"], "old.example.org": ["192.0.2.9"]}
    monkeypatch.setattr(judgement, "addresses", lambda host: known.get(host, []))
    rucio = Rucio(
        rses={
            "B": [
                protocol("old.example.org", read=1, third_party_copy_read=0),
                protocol("gone.example.org", third_party_copy_read=1),
                protocol("door.example.org", third_party_copy_read=2),
            ],
            "A": [protocol("old.example.org")],
            "NOWHERE": [protocol("gone.example.org"), protocol("not a host"), {"hostname": None, "domains": None}],
            "EMPTY": [],
        }
    )
    assert distances.storages(rucio, None) == [distances.Storage("A", ("192.0.2.9",)), distances.Storage("B", ("192.0.2.1", "2001:db8::1"))]
    assert [storage.name for storage in distances.storages(rucio, "A")] == ["A"]


def test_too_many_storages_are_refused_before_anything_is_asked():
    rucio = Rucio(rses={str(number): [] for number in range(distances.MAX_RSES + 1)})
    with pytest.raises(ValueError, match="--rses"):
        distances.storages(rucio, None)


# What the sorter is called with


@pytest.mark.parametrize(
    ("selection", "statement"),
    [
        ("alto", "BY fallback"),
        ("alto;", "BY fallback"),
        ('alto;stmt="BY delay_ow"', "BY delay_ow"),
        (" alto ; STMT = 'BY delay_ow' ; ", "BY delay_ow"),
        ("alto;stmt=BY delay_ow", "BY delay_ow"),
        ('alto;stmt="BY hops WHERE continent="EU""', 'BY hops WHERE continent="EU"'),
        ('alto;stmt=BY hops WHERE continent="EU"', 'BY hops WHERE continent="EU"'),
        ("alto;stmt=\"BY hops WHERE site=';'\"", "BY hops WHERE site=';'"),
    ],
)
def test_the_statement_is_what_stands_behind_stmt(selection, statement):
    assert sorter.is_ours(selection) and sorter.statement_of(selection, "BY fallback") == statement


@pytest.mark.parametrize("selection", [None, "", "geoip", "altogether", "alto,stmt=BY x", "ALTO", 7, ["alto"]])
def test_other_sorters_are_rucios(selection):
    assert not sorter.is_ours(selection)


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        ("alto;by=x", "expected stmt"),
        ("alto;stmt", "expected stmt"),
        ('alto;stmt="BY hops', "closing"),
        ('alto;stmt="', "closing"),
        ("alto;stmt=" + "x" * sorter.MAX_SELECTION, "at most"),
    ],
)
def test_what_is_no_option_is_told(selection, told):
    with pytest.raises(sorter.StatementError, match=told):
        sorter.statement_of(selection, "BY fallback")


@pytest.mark.parametrize(
    ("ip", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1, 198.51.100.7", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("unknown", None),
        ("", None),
        (None, None),
    ],
)
def test_the_clients_address_is_what_rucio_was_told(ip, address):
    assert sorter.client_address({"ip": ip}) == address


# The sorter


class Refused(Exception):
    """What Rucio answers with status 400."""


def replicas(*urls):
    """As REST's views have them: domain, priority, RSE, client_extract."""
    return {url: ("wan", number, f"RSE{number}", False) for number, url in enumerate(urls)}


class Site:
    """A sorter with an ALTO server behind it, and Rucio's own function, which turns replicas around."""

    def __init__(self, costs=None, error=None, **settings):
        self.server, self.clock, self.calls = Server(costs or {}, error), Clock(), []
        settings = sorter.Settings(**{"ird": "http://alto/", "config": None, "statement": "BY routingcost", **settings})
        self.sort = sorter.Sorter(self.original, settings, self.server.connect, Refused, self.clock)

    def original(self, dictreplica, client_location, selection=None):
        self.calls.append(selection)
        return list(reversed(dictreplica))


A, B, C = "root://a//f", "davs://b:443/f", "https://c/f"
BY_HOPS = 'alto;stmt="BY hops"'


def test_replicas_come_by_what_the_server_knows():
    site = Site({"a": 3, "b": 2, "c": 1}, timeout_s=2.5)
    assert site.sort(replicas(A, B, C), CLIENT, selection=BY_HOPS) == [C, B, A]
    assert site.server.asked == [(["a", "b", "c"], "192.0.2.7", "BY hops")] and site.calls == []
    assert site.server.opened == [("http://alto/", None, 2.5)]
    assert site.sort(replicas(A, B, C), CLIENT, selection="alto") == [C, B, A]
    assert site.server.asked[-1][2] == "BY routingcost"


def test_settings_that_cannot_be_are_the_operators_matter(monkeypatch, caplog):
    """Who asks gets Rucio's order, and not what is wrong with a file of the server."""
    site = Site({"a": 1, "b": 2})

    def refuse(*_, **__):
        raise towpath.Invalid("the configuration: line 3: no such key")

    monkeypatch.setattr(site.sort, "_connect", refuse)
    with caplog.at_level(logging.WARNING):
        assert site.sort(replicas(A, B), CLIENT, BY_HOPS) == [B, A]
    assert "line 3" in caplog.text


def test_all_other_sorters_are_rucios_own():
    site = Site({"a": 1})
    for selection in (None, "geoip", "custom_table", "random", "no such"):
        assert site.sort(replicas(A, B), CLIENT, selection=selection) == [B, A]
    assert site.sort(replicas(A, B), CLIENT) == [B, A]
    assert site.calls == [None, "geoip", "custom_table", "random", "no such", None] and site.server.asked == []


def test_who_is_as_good_as_another_keeps_rucios_order():
    site = Site({"a": 2, "b": 2, "c": 1})
    assert site.sort(replicas(A, B, C), CLIENT, BY_HOPS) == [C, B, A], "Rucio turns a and b around"
    assert site.calls == [None]


def test_replicas_at_one_host_keep_their_priorities():
    site = Site({"a": 2, "b": 1})
    pfns = {"https://a/f": ("wan", 2, "A", False), "root://a//f": ("wan", 1, "A", False), "root://b//f": ("wan", 3, "B", False)}
    assert site.sort(pfns, CLIENT, BY_HOPS) == ["root://b//f", "root://a//f", "https://a/f"] and site.calls == []


def test_what_the_server_does_not_know_comes_last():
    site = Site({"b": 2, "c": 5})
    assert site.sort(replicas(A, "file:///f", B, C), CLIENT, BY_HOPS) == [B, C, A, "file:///f"]
    assert site.sort({A: "RSE", B: "RSE"}, CLIENT, BY_HOPS) == [B, A], "as the redirect has them"


def test_behind_a_proxy_the_real_host_counts():
    site = Site({"proxy": 1, "far": 9, "near": 2})
    far, near = "root://proxy:1094//root://far//f", "root://proxy:1094//root://near//f"
    assert site.sort(replicas(far, near), CLIENT, BY_HOPS) == [near, far]


def test_without_replicas_with_a_host_nobody_is_asked():
    site = Site()
    assert site.sort({}, CLIENT, BY_HOPS) == [] and site.sort(replicas("file:///f"), CLIENT, BY_HOPS) == ["file:///f"]
    assert site.server.asked == []


@pytest.mark.parametrize(
    ("selection", "told"),
    [
        ('alto;stmt="BY 7"', "column 4"),
        ('alto;stmt="BY hops WHERE"', "column 14"),
        ("alto;stmt=BY \u00fc", r"column 4: .*\\xfc"),
        ("alto;wrong", "expected stmt"),
    ],
)
def test_a_malformed_statement_is_refused_with_its_column_whatever_there_is_to_sort(selection, told):
    for pfns in (replicas(A, B), {}):
        with pytest.raises(Refused, match=told) as refused:
            Site().sort(pfns, CLIENT, selection)
        assert str(refused.value).isascii(), "it goes into a header"


def test_a_name_that_the_server_does_not_have_is_refused_unless_nobody_chose_it(caplog):
    site = Site(error=towpath.Invalid("`delai` is nothing that it has"))
    with pytest.raises(Refused, match="delai"):
        site.sort(replicas(A, B), CLIENT, 'alto;stmt="BY delai"')
    assert site.sort(replicas(A, B), CLIENT, "alto") == [B, A] and "delai" in caplog.text


def test_a_default_that_the_server_does_not_have_silences_no_other_statement():
    site = Site({"a": 1, "b": 2}, error=towpath.Invalid("`delai` is nothing that it has"))
    clients = [{"ip": f"192.0.2.{number}"} for number in range(10)]
    for client in clients:
        assert site.sort(replicas(A, B), client, "alto") == [B, A]
        with pytest.raises(Refused):
            site.sort(replicas(A, B), client, 'alto;stmt="BY delai"')
    assert [by for _, _, by in site.server.asked].count("BY routingcost") == 1, "for others it is no better"
    site.server.error = None
    assert site.sort(replicas(A, B), clients[0], BY_HOPS) == [A, B]


def test_hosts_that_nobody_can_look_up_are_an_answer_for_that_list():
    site = Site({"a": 1, "b": 2})
    for number in range(10):
        nowhere = replicas(*(f"root://{letter}{number}.invalid//f" for letter in "xy"))
        assert site.sort(nowhere, CLIENT, BY_HOPS) == list(reversed(nowhere)), "Rucio's order"
    assert site.sort(replicas(A, B), CLIENT, BY_HOPS) == [A, B]


def test_without_the_server_replicas_come_in_rucios_order_and_it_is_said_once_a_minute(caplog):
    site = Site(error=towpath.Unavailable("it does not answer"))
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            assert site.sort(replicas(A, B), CLIENT, BY_HOPS) == [B, A]
        assert len(site.server.asked) == 1 and caplog.text.count("it does not answer") == 1
        site.clock.now += sorter.SILENCES_HOLD_S
        site.sort(replicas(A, B), CLIENT, BY_HOPS)
        assert len(site.server.asked) == 2 and caplog.text.count("it does not answer") == 1
        site.clock.now += sorter.WARNINGS_APART_S
        site.sort(replicas(A, B), CLIENT, BY_HOPS)
        assert caplog.text.count("it does not answer") == 2
    site.server.error, site.server.costs = None, {"a": 1, "b": 2}
    site.clock.now += sorter.SILENCES_HOLD_S
    assert site.sort(replicas(A, B), CLIENT, BY_HOPS) == [A, B]


def test_what_fails_for_one_client_does_not_fail_for_others_unless_it_fails_for_all():
    site = Site({"a": 1, "b": 2}, towpath.Unavailable("it does not answer in time"))
    clients = [{"ip": f"192.0.2.{number}"} for number in range(10)]
    site.sort(replicas(A, B), clients[0], BY_HOPS)
    site.server.error = None
    assert site.sort(replicas(A, B), clients[1], BY_HOPS) == [A, B]
    assert site.sort(replicas(A, B), clients[0], BY_HOPS) == [B, A], "it is not asked again so soon"
    site.server.error = towpath.Unavailable("it does not answer")
    before = len(site.server.asked)
    for client in clients[2:]:
        assert site.sort(replicas(A, B), client, BY_HOPS) == [B, A]
    assert len(site.server.asked) - before == sorter.MAX_FAILED_IN_A_ROW
    site.clock.now += sorter.SILENCES_HOLD_S
    site.server.error = None
    assert site.sort(replicas(A, B), clients[9], BY_HOPS) == [A, B]


def test_a_client_whose_address_nobody_knows_gets_rucios_order():
    site = Site({"a": 1})
    assert site.sort(replicas(A, B), {"ip": "unknown"}, BY_HOPS) == [B, A] and site.server.asked == []


def test_an_answer_holds_a_minute_for_one_client_one_set_of_hosts_and_one_statement():
    site = Site({"a": 1, "b": 2})
    asked = lambda: len(site.server.asked)  # noqa: E731
    site.sort(replicas(A, B), CLIENT, BY_HOPS)
    site.sort(replicas("https://b/other", "https://a/other"), CLIENT, BY_HOPS)
    assert asked() == 1
    site.sort(replicas(A, B), {"ip": "192.0.2.8"}, BY_HOPS)
    site.sort(replicas(A), CLIENT, BY_HOPS)
    site.sort(replicas(A, B), CLIENT, 'alto;stmt="BY hops DESC"')
    assert asked() == 4
    site.clock.now += sorter.ANSWERS_HOLD_S - 1
    site.sort(replicas(A, B), CLIENT, BY_HOPS)
    assert asked() == 4
    site.clock.now += 1
    site.sort(replicas(A, B), CLIENT, BY_HOPS)
    assert asked() == 5


def test_the_directory_is_read_once_a_minute():
    site = Site({"a": 1, "b": 2})
    for number in range(10):
        site.sort(replicas(A, B), {"ip": f"192.0.2.{number}"}, BY_HOPS)
    assert len(site.server.opened) == 1
    site.clock.now += sorter.CLIENTS_HOLD_S
    site.sort(replicas(A, B), {"ip": "192.0.2.99"}, BY_HOPS)
    assert len(site.server.opened) == 2


def test_what_is_remembered_is_bounded_and_the_oldest_goes():
    recent = sorter.Recent(3, 60.0, Clock())
    for key in "abcad":
        recent.keep(key, key.upper())
    assert len(recent) == 3 and [recent.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    site = Site({"a": 1})
    for number in range(sorter.ANSWERS + 5):
        site.sort(replicas(A), {"ip": f"10.0.{number // 256}.{number % 256}"}, BY_HOPS)
    assert len(site.sort._responses) == sorter.ANSWERS


# Settings


def test_the_environment_goes_before_rucios_configuration(tmp_path):
    metrics = tmp_path / "client.toml"
    metrics.write_text("")
    options = {"ird": "http://from.cfg/", "statement": "BY hops", "timeout": "2", "config": str(metrics)}
    assert sorter.Settings.read({}, options.get) == sorter.Settings("http://from.cfg/", str(metrics), "BY hops", 2.0)
    environment = {"TOWPATH_ALTO_IRD": "http://from.env/", "TOWPATH_ALTO_TIMEOUT": "0.5"}
    assert sorter.Settings.read(environment, {}.get) == sorter.Settings("http://from.env/", None, "BY routingcost", 0.5)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "no ALTO server is named"),
        ({"ird": "http://a/", "statement": "BY"}, "column 3"),
        ({"ird": "http://a/", "timeout": "soon"}, "timeout"),
        ({"ird": "http://a/", "timeout": "0"}, "timeout"),
        ({"ird": "http://a/", "timeout": "nan"}, "timeout"),
        ({"ird": "http://a/", "timeout": "61"}, "timeout"),
        ({"config": "/no/such/file"}, "cannot be read"),
    ],
)
def test_settings_that_make_no_sense_do_not_start(options, told):
    with pytest.raises(ValueError, match=told):
        sorter.Settings.read({}, options.get)


# Rucio's server


def sort_replicas(dictreplica, client_location, selection=None):
    """In the form of Rucio's function."""


@pytest.mark.parametrize("version", ["38.0.0", "39.4.2", "40.4.2", "41.5.1", "41.6.0.post1"])
def test_versions_that_were_tried_start(version):
    rebinding.check(version, sort_replicas)


@pytest.mark.parametrize("version", ["37.7.0", "42.0.0", "4.1", "", "master"])
def test_other_versions_are_refused(version):
    with pytest.raises(rebinding.Unsupported, match="38 to 41"):
        rebinding.check(version, sort_replicas)


def test_another_function_is_refused():
    with pytest.raises(rebinding.Unsupported, match="takes replicas, selection"):
        rebinding.check("41.5.1", lambda replicas, selection: replicas)


def modules(monkeypatch, **views):
    core = types.ModuleType(rebinding.CORE)
    core.sort_replicas = sort_replicas
    monkeypatch.setitem(sys.modules, rebinding.CORE, core)
    for name in rebinding.VIEWS:
        monkeypatch.delitem(sys.modules, name, raising=False)
        if name.rpartition(".")[2] in views:
            module = types.ModuleType(name)
            module.sort_replicas = views[name.rpartition(".")[2]]
            monkeypatch.setitem(sys.modules, name, module)
    return [sys.modules[name] for name in (rebinding.CORE, *rebinding.VIEWS) if name in sys.modules]


def test_the_sorter_stands_wherever_rucios_function_stood(monkeypatch):
    for views in ({"replicas": sort_replicas, "redirect": sort_replicas}, {"replicas": sort_replicas}):
        loaded = modules(monkeypatch, **views)
        rebinding.rebind(site := Site().sort, sort_replicas)
        assert len(loaded) == 1 + len(views) and all(module.sort_replicas is site for module in loaded)


def test_a_server_that_has_another_function_is_refused_and_left_as_it_is(monkeypatch):
    loaded = modules(monkeypatch, replicas=sort_replicas, redirect=print)
    with pytest.raises(rebinding.Unsupported, match="redirect does not have"):
        rebinding.rebind(Site().sort, sort_replicas)
    assert loaded[0].sort_replicas is sort_replicas and loaded[1].sort_replicas is sort_replicas
    modules(monkeypatch)
    with pytest.raises(rebinding.Unsupported, match="endpoints"):
        rebinding.rebind(Site().sort, sort_replicas)


# Metalinks


class DataIdentifierNotFound(Exception):
    """Named as Rucio's own."""


@pytest.fixture
def catalogue(monkeypatch):
    """Rucio with one file, `s:f`; what it was asked is in `asked`."""
    asked = []

    class Catalogue:
        def get_did(self, scope, name):
            if (scope, name) != ("s", "f"):
                raise DataIdentifierNotFound(f"{scope}:{name}")

        def list_replicas(self, dids, **options):
            asked.append((dids, options))
            return "<metalink/>"

    monkeypatch.setattr(official, "client", Catalogue)
    monkeypatch.setattr(official, "location", lambda: {"site": "CERN"})
    monkeypatch.setattr(official, "scope_and_name", lambda did: tuple(did.split(":")))
    return asked


def test_replicas_are_asked_for_as_for_a_download_and_come_ordered(catalogue, monkeypatch):
    monkeypatch.setattr(alto, "order", lambda replicas, **options: (replicas, options))
    ordered, options = metalink.metalink(["s:f"], "BY hops", ird="http://a/", client="192.0.2.1", strict=True)
    assert ordered == b"<metalink/>"
    assert options == {"by": "BY hops", "ird": "http://a/", "client": "192.0.2.1", "config": None, "strict": True}
    assert catalogue == [
        (
            [{"scope": "s", "name": "f"}],
            {"metalink": True, "ignore_availability": False, "resolve_parents": True, "client_location": {"site": "CERN"}},
        )
    ]


def test_what_does_not_exist_is_told(catalogue):
    with pytest.raises(DataIdentifierNotFound) as unknown:
        metalink.metalink(["s:f", "s:g"], "BY hops")
    assert command.exit_code(unknown.value) == 3 and catalogue == []


def test_rucios_order_is_good_enough_only_if_the_server_is_to_blame(catalogue, monkeypatch, caplog):
    def order(replicas, **_options):
        raise error

    monkeypatch.setattr(alto, "order", order)
    for error, is_servers in [(towpath.Unavailable("away"), True), (towpath.Denied("no"), False), (towpath.Invalid("what"), False)]:
        with pytest.raises(type(error)):
            metalink.metalink(["s:f"], "BY hops")
        if is_servers:
            assert metalink.metalink(["s:f"], "BY hops", fallback=True) == b"<metalink/>" and "away" in caplog.text
        else:
            with pytest.raises(type(error)):
                metalink.metalink(["s:f"], "BY hops", fallback=True)


# The command line


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("10min", 600), ("5m", 300), ("1h", 3600), ("7d", 604800)])
def test_durations_have_a_unit(text, seconds):
    assert command.duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "h", "0s", "8d", "-1h", "1.5h", "9999999999s", "1h "])
def test_what_is_no_duration_is_told(text):
    with pytest.raises(command.argparse.ArgumentTypeError, match="duration"):
        command.duration(text)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["metalink", "s:f", "--by", "BY 7"], "column 4"),
        (["metalink", "s:f", "--client", "here"], "not an IP address"),
        (["metalink", "s:f", "--strict", "--fallback"], "not allowed with"),
        (["distances", "--once", "--every", "1h"], "not allowed with"),
        (["metalink"], "DID"),
        ([], "command"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_told(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2 and told in capsys.readouterr().err


def test_without_a_server_nothing_begins(monkeypatch, capsys):
    for name in ("TOWPATH_ALTO_IRD", "TOWPATH_ALTO_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert command.main(["distances", "--once"]) == 2 and "--ird" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (towpath.NotFound("x"), 3),
        (towpath.Denied("x"), 4),
        (towpath.Invalid("x"), 5),
        (towpath.Corrupt("x"), 7),
        (towpath.Unavailable("x"), 8),
        (distances.GivenUp("x"), 8),
        (official.Missing("x"), 2),
        (ValueError("x"), 2),
        (AccessDenied("x"), 4),
        (RSEProtocolNotSupported("x"), 3),
        (RucioException("x"), 5),
        (ConnectionError("x"), 8),
        (FileNotFoundError("x"), 3),
        (KeyError("x"), 1),
    ],
)
def test_exit_codes_say_whose_it_is(error, code):
    assert command.exit_code(error) == code


CLIENT_OF_RUCIO = """
import signal
class Client:
    def export_data(self, distance):
        print("working", flush=True)
        signal.pause()
"""


@pytest.mark.parametrize(
    ("words", "signum", "code"),
    [
        (["--every", "1h"], signal.SIGTERM, 0),
        (["--every", "1h"], signal.SIGINT, 0),
        (["--once"], signal.SIGTERM, 143),
        (["--once"], signal.SIGINT, 130),
    ],
)
def test_a_signal_ends_the_work_where_it_stands(tmp_path, words, signum, code):
    package = tmp_path / "rucio" / "client"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").write_text(CLIENT_OF_RUCIO)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        [sys.executable, "-m", "towpath.rucio", "distances", "--ird", "http://alto.invalid/", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout.readline() == "working\n", child.stderr.read()
        child.send_signal(signum)
        _, errors = child.communicate(timeout=20)
    finally:
        child.kill()
    assert child.returncode == code and "Traceback" not in errors


def test_a_run_that_fails_is_told_and_the_next_one_comes(monkeypatch, caplog):
    class Enough(BaseException):
        pass

    outcomes = iter([ConnectionError("Rucio is away"), None, Enough()])

    def once(_wish):
        if outcome := next(outcomes):
            raise outcome

    monkeypatch.setattr(distances, "once", once)
    with pytest.raises(Enough):
        distances.again_and_again(distances.Wish("BY hops"), 0.0)
    assert "Rucio is away" in caplog.text


def test_only_the_metalink_goes_to_the_standard_output(monkeypatch, capsys):
    output = types.SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr(command, "metalink", lambda dids, **options: b"<metalink/>")
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command.sys, "stdout", output)
    assert command.main(["metalink", "s:f", "--ird", "http://a/"]) == 0
    assert output.buffer.getvalue() == b"<metalink/>" and capsys.readouterr().err == ""
