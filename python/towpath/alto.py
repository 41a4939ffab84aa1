"""What paths cost, as ALTO servers tell it (RFC 7285 and its extensions), and the order of replicas that follows from it.

    >>> from towpath import alto
    >>> client = alto.Client("https://alto.example.org/directory")
    >>> client.costs(["137.138.0.101"], ["134.158.84.23"], metric="delay-ow")
    {'137.138.0.101': {'134.158.84.23': 5300}}
    >>> for change in client.follow({"costs": "default-routingcost"}):
    ...     print(change.name, change.document.tag)
    >>> alto.order(urls, by="BY delay_ow WHERE continent='EU'", ird="https://alto.example.org/directory")

Calls wait without holding up other threads, and end at Ctrl-C. A `Client` may be used by several threads; a process that forks makes its
own. What a server does not know is left out of what it is asked for.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from towpath import Corrupt, Error, NotFound, _towpath

__all__ = [
    "Change", "Changes", "Client", "CostType", "Document", "Error", "Part", "Place", "Resource", "Statement", "order", "rank",
]

Address = str | ipaddress.IPv4Address | ipaddress.IPv6Address
"""An address. That of an endpoint may be a text with its type before it (`ipv4:192.0.2.1`)."""

Value = float | str | bool | list[Any] | None
"""What is known of a replica; None: nothing."""

Replicas = TypeVar("Replicas", bytes, str, list[Any])
"""A list of replicas: a URL in each line, Rucio's JSON or a Metalink; or the list itself that such JSON is."""

_COSTS = "application/alto-costmap+json"
_ENDPOINT_COSTS = "application/alto-endpointcost+json"
_ENDPOINT_COST_PARAMS = "application/alto-endpointcostparams+json"
_ENDPOINT_PROPERTIES = "application/alto-endpointprop+json"
_ENDPOINT_PROPERTIES_PARAMS = "application/alto-endpointpropparams+json"
_PROPERTIES = "application/alto-propmap+json"
_PROPERTIES_PARAMS = "application/alto-propmapparams+json"
_PATHS = "multipart/related;type=" + _ENDPOINT_COSTS

_OPENALTO = {"next_hop", "as_path"}
"""The properties of elements where paths come in the form of OpenALTO, which is another one than that of RFC 9275."""

_MAX_CONFIG_CHARACTERS = 1 << 20
"""The longest configuration that is read."""


@dataclass(frozen=True)
class CostType:
    """A metric, and how its values are to be read: `numerical`, `ordinal` or `array`."""

    metric: str
    mode: str


@dataclass(frozen=True)
class Resource:
    """A resource of a server, as its directory tells of it."""

    id: str
    uri: str
    media_type: str
    accepts: str
    """The media types of what can be posted to it; empty if it is asked for by GET."""
    capabilities: dict[str, Any]
    uses: tuple[str, ...]
    """The resources that it depends on."""
    cost_types: tuple[CostType, ...]


@dataclass(frozen=True)
class Part:
    """A part of an answer."""

    id: str | None
    """Its `Content-ID`, without brackets."""
    media_type: str
    content: Any


@dataclass(frozen=True)
class Document:
    """What a resource answered."""

    resource: str
    media_type: str
    tag: str | None
    """The version that it is, if that is known."""
    parts: tuple[Part, ...]
    """One, but for path vectors: these have paths, and properties of what is on them."""

    @property
    def content(self) -> Any:
        """The document, or that of the first part."""
        return self.parts[0].content


@dataclass(frozen=True)
class Change:
    """An answer that is followed, as it is now."""

    name: str
    document: Document


@dataclass(frozen=True)
class Place:
    """A replica in its place."""

    url: str
    values: dict[str, Value]
    """For each name in the statement."""
    holds: bool | None
    """Whether the condition is true of it; None: that is not known. Without a condition it is True."""


class Changes:
    """The changes of answers that are followed: first each as it is, then each time that one is something else.

    The iterator goes on until it is closed. When a connection is lost another one is made, and no change is missed by that, though several may come
    as one. Where another thread waits for the next change, `close` ends that wait too. Costs, and the map whose PIDs they are between, are changes of their own:
    `dependent-vtags` in the `meta` of the costs tells of which version of the map they are.
    """

    def __init__(self, followed: _towpath.Followed) -> None:
        self._followed = followed

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        change = self._followed.next()
        if change is None:
            raise StopIteration
        name, answer = change
        return Change(name, _document(answer))

    def close(self) -> None:
        """Follows no longer. Any thread may call it: one that waits for the next change gets none, and its iteration ends."""
        self._followed.close()

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """An ALTO server. Its directory, and those linked from it, are read when it is made.

    - `ird`: the address of the directory; left out, `default-ird` in the file `config`.
    - `token`: a bearer token in place of the one that is found as WLCG has it (`BEARER_TOKEN`, `BEARER_TOKEN_FILE`, `bt_u<uid>`). It is shown to
      that server alone, over TLS or within this machine.
    - `ca_file`: PEM certificates to trust beside the system's; left out, what `TOWPATH_CA_FILE` names.
    - `config`: a file that defines metrics, as that of `towpath order --config`.
    - `timeout`: how many seconds a call may take. Changes are waited for without end.
    """

    def __init__(
        self,
        ird: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        self._begin(_towpath.Client(ird, token, _trusted(ca_file), _text(config), timeout))

    @classmethod
    def discover(
        cls,
        domain: str | None = None,
        *,
        address: Address | None = None,
        dns: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
    ) -> Client:
        """The server that the DNS has: for `domain` (RFC 7286), else for the network around `address` (RFC 8686), else for a domain of this machine.

        It is asked by https, and sees no token, because the DNS proves nothing; `ird` says which one it is. `dns` is the name server that is asked
        (`ADDRESS:PORT`), in place of those of `/etc/resolv.conf`. Raises `NotFound` if the DNS has none.
        """
        client = cls.__new__(cls)
        client._begin(_towpath.Client.discover(domain, address, dns, _trusted(ca_file), _text(config), timeout))
        return client

    def _begin(self, server: _towpath.Client) -> None:
        self._server = server
        self._resources = [_resource(told) for told in server.resources()]

    @property
    def ird(self) -> str:
        """The address of the directory."""
        return self._server.ird

    @property
    def resources(self) -> list[Resource]:
        """What the server has, in the order of the names."""
        return list(self._resources)

    def get(self, resource: str, input: Mapping[str, Any] | None = None) -> Document:
        """What a resource answers: by GET, or by POST of `input`. An answer that did not change since is not sent again."""
        return _document(self._server.ask(resource, None if input is None else _json(input)))

    def network_map(self, resource: str | None = None) -> Document:
        """A network map: which addresses are in which PID. The default one, if none is named."""
        default = resource or self._server.default_map()
        if default is None:
            raise NotFound("the server has no default network map: name one of its resources")
        return self.get(default)

    def cost_map(self, metric: str = "routingcost", mode: str = "numerical", *, resource: str | None = None) -> Document:
        """The costs between all PIDs of a network map: of the default one, if no resource is named."""
        wanted = CostType(metric, mode)
        maps = self._of(_COSTS, "", lambda found: wanted in found.cost_types)
        of_default = [found for found in maps if self._server.default_map() in found.uses]
        return self.get(resource or _first(of_default or maps, f"cost map by {metric} ({mode})"))

    def costs(
        self,
        srcs: Iterable[Address],
        dsts: Iterable[Address],
        metric: str = "routingcost",
        mode: str = "numerical",
        *,
        resource: str | None = None,
    ) -> dict[Address, dict[Address, Any]]:
        """The costs of the ways from each source to each destination, by both as they were named."""
        wanted = CostType(metric, mode)
        services = self._of(_ENDPOINT_COSTS, _ENDPOINT_COST_PARAMS, lambda found: wanted in found.cost_types)
        service = resource or _first(services, f"endpoint cost service by {metric} ({mode})")
        ends = _Ends(srcs, dsts)
        document = self.get(service, {"cost-type": {"cost-mode": mode, "cost-metric": metric}, "endpoints": ends.asked})
        return ends.matrix(_member(document, "endpoint-cost-map"))

    def properties(
        self, endpoints: Iterable[Address], names: Iterable[str], *, resource: str | None = None
    ) -> dict[Address, dict[str, Any]]:
        """Properties of endpoints (`priv:continent`, `default.pid`), by endpoints as they were named."""
        asked, names = _Endpoints(endpoints), list(names)
        of_endpoints = self._of(_ENDPOINT_PROPERTIES, _ENDPOINT_PROPERTIES_PARAMS, lambda found: _has(found, names))
        of_entities = self._of(_PROPERTIES, _PROPERTIES_PARAMS, lambda found: _has(found, names))
        service = resource or _first(of_endpoints + of_entities, f"properties {', '.join(names)}")
        is_map = any(found.id == service and _is(found.media_type, _PROPERTIES) for found in self._resources)
        field, told = ("entities", "property-map") if is_map else ("endpoints", "endpoint-properties")
        document = self.get(service, {"properties": names, field: asked.texts})
        return asked.named(_member(document, told), dict)

    def paths(
        self, srcs: Iterable[Address], dsts: Iterable[Address], properties: Iterable[str] = (), *, resource: str | None = None
    ) -> tuple[dict[Address, dict[Address, list[str]]], dict[str, dict[str, Any]]]:
        """The elements on the way from each source to each destination, and of each element those of the `properties` that are known (RFC 9275)."""
        names = list(properties)
        services = self._of(_PATHS, _ENDPOINT_COST_PARAMS, lambda found: set(names) <= _of_elements(found))
        as_rfc_9275 = [found for found in services if not _OPENALTO <= _of_elements(found)]
        wanted = f"path vector between endpoints with {', '.join(names)}" if names else "path vector between endpoints"
        service = resource or _first(as_rfc_9275 or services, wanted)
        ends = _Ends(srcs, dsts)
        question = {"cost-type": {"cost-mode": "array", "cost-metric": "ane-path"}, "endpoints": ends.asked}
        document = self.get(service, {**question, "ane-property-names": names})
        elements = {entity.partition(".ane:")[2] or entity: known for entity, known in _member(document, "property-map").items()}
        return ends.matrix(_member(document, "endpoint-cost-map")), elements

    def follow(
        self, wanted: Mapping[str, str | tuple[str, Mapping[str, Any]]], *, means: str | None = None, every: float = 60.0
    ) -> Changes:
        """Follows answers under names of your choice: each a resource, or a resource with the input that is posted to it.

        `means`: `stream` (one connection for all, RFC 8895), `views` (TIPS, RFC 9569) or `asking` again `every` so many seconds; left out, the first
        of these that the server has.
        """
        asked = []
        for name, answer in wanted.items():
            resource, question = (answer, None) if isinstance(answer, str) else answer
            asked.append((name, resource, None if question is None else _json(question)))
        return Changes(self._server.follow(asked, means, every))

    def order(
        self, replicas: Replicas, by: str | Statement = "BY routingcost", *, client: Address | None = None, strict: bool = False
    ) -> Replicas:
        """The same list with the replicas of each file in the order in which they are to be tried; see `order`."""
        if isinstance(replicas, bytes):
            return self._server.order(replicas, str(by), client, strict)
        if isinstance(replicas, str):
            return self._server.order(replicas.encode(), str(by), client, strict).decode()
        if isinstance(replicas, list):
            ordered: list[Any] = json.loads(self._server.order(_json(replicas).encode(), str(by), client, strict))
            return ordered
        raise TypeError(f"replicas: bytes, str or a list, not {type(replicas).__name__}")

    def rank(self, urls: Iterable[str], by: str | Statement = "BY routingcost", *, client: Address | None = None) -> list[Place]:
        """Replicas in the order in which they are to be tried, with what put each there; see `rank`."""
        return [Place(*placed) for placed in self._server.rank(_list(urls, "urls"), str(by), client)]

    def _of(self, media_type: str, accepted: str, fits: Callable[[Resource], bool]) -> list[Resource]:
        """The resources of that media type that take such input, and fit."""
        of_type = (found for found in self._resources if _is(found.media_type, media_type))
        return [found for found in of_type if _takes(found, accepted) and fits(found)]


class Statement:
    """The ordering expression by itself: `BY delay_ow, load DESC WHERE continent = 'EU'`.

    One that is malformed raises `ValueError`, with the column.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._read = _towpath.Statement(text)

    @property
    def names(self) -> list[str]:
        """What it looks at, once each."""
        return self._read.names

    def order(self, candidates: Iterable[Mapping[str, Any]], *, strict: bool = False) -> list[Mapping[str, Any]]:
        """The candidates, which are mappings of names to values, in their order, the best first.

        Values are numbers, texts, truths and lists of these; None, NaN and what is not there are not known, and come last. Candidates of which the
        condition is not true come behind all others, or are left out if this is `strict`. Equal ones stay as they were.
        """
        candidates = list(candidates)
        return [candidates[place] for place in self._read.order(candidates, strict)]

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Statement({self._text!r})"


def order(
    replicas: Replicas,
    *,
    by: str | Statement = "BY routingcost",
    ird: str | None = None,
    client: Address | None = None,
    config: str | os.PathLike[str] | None = None,
    strict: bool = False,
    timeout: float = 30.0,
) -> Replicas:
    """The same list with the replicas of each file in the order in which they are to be tried, as `towpath order` has it.

    - `replicas`: lines, Rucio's JSON or a Metalink, as bytes or str; or a list, of URLs or of what `ReplicaClient.list_replicas` gives. The same type
      comes back; of a text every byte stays but for the order.
    - `by`: the statement. A name is a metric of `config`, a cost metric of the server, or a property of the replica's address.
    - `ird`: the directory of the ALTO server; left out, `default-ird` in the file `config`.
    - `client`: from where replicas are read; left out, from where the server is asked.
    - `strict`: leaves out replicas of which the condition is not true. Otherwise they come last.
    """
    return Client(ird, config=config, timeout=timeout).order(replicas, by, client=client, strict=strict)


def rank(
    urls: Iterable[str],
    by: str | Statement = "BY routingcost",
    ird: str | None = None,
    client: Address | None = None,
    config: str | os.PathLike[str] | None = None,
    timeout: float = 30.0,
) -> list[Place]:
    """Replicas in the order in which they are to be tried, with what put each there. None is left out; arguments are those of `order`."""
    return Client(ird, config=config, timeout=timeout).rank(urls, by, client=client)


class _Endpoints:
    """Endpoints as they were named, and as servers name them."""

    def __init__(self, endpoints: Iterable[Address]) -> None:
        self._texts = {named: _endpoint(named) for named in _list(endpoints, "endpoints")}
        self.texts = list(dict.fromkeys(self._texts.values()))

    def named(self, told: Mapping[str, Any], kind: type = object) -> dict[Address, Any]:
        """What is told of them and is of that kind, by what they were called. Servers may write addresses otherwise."""
        known = {_endpoint(endpoint): value for endpoint, value in told.items() if isinstance(value, kind)}
        return {named: known[text] for named, text in self._texts.items() if text in known}


class _Ends:
    """Sources and destinations of ways."""

    def __init__(self, srcs: Iterable[Address], dsts: Iterable[Address]) -> None:
        self._srcs, self._dsts = _Endpoints(srcs), _Endpoints(dsts)
        self.asked = {"srcs": self._srcs.texts, "dsts": self._dsts.texts}

    def matrix(self, told: Mapping[str, Mapping[str, Any]]) -> dict[Address, dict[Address, Any]]:
        """What is told of the ways, by what their ends were called."""
        return {src: self._dsts.named(row) for src, row in self._srcs.named(told, dict).items()}


def _endpoint(named: Address) -> str:
    """An address with its type before it, in its canonical form; other texts as they are, so that the server says what is wrong with them."""
    text = str(named)
    bare = text.removeprefix("ipv4:").removeprefix("ipv6:")
    try:
        address = ipaddress.ip_interface(bare)
    except ValueError:
        return text
    return f"ipv{address.version}:{address.ip}" if address.network.prefixlen == address.max_prefixlen else text


def _first(found: Sequence[Resource], wanted: str) -> str:
    if not found:
        raise NotFound(f"the server has no {wanted}: `resources` lists what it has")
    return found[0].id


def _has(resource: Resource, names: Sequence[str]) -> bool:
    """Whether a resource knows all these properties of addresses."""
    mappings = resource.capabilities.get("mappings")
    of_domains = [mappings.get(domain) for domain in ("ipv4", "ipv6")] if isinstance(mappings, dict) else []
    lists = [told for told in (resource.capabilities.get("prop-types"), *of_domains) if isinstance(told, list)]
    return all(any(name in told for told in lists) for name in names)


def _of_elements(resource: Resource) -> set[str]:
    """The properties of elements on paths that a resource tells."""
    names = resource.capabilities.get("ane-property-names")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _is(media_type: str, wanted: str) -> bool:
    """Whether a media type is that one, with the parameters that are wanted at least."""
    told, asked = ([part.strip().replace('"', "").lower() for part in text.split(";")] for text in (media_type, wanted))
    return told[0] == asked[0] and set(asked[1:]) <= set(told[1:])


def _member(document: Document, name: str) -> Mapping[str, Any]:
    """The object of that name in one of the parts of an answer."""
    members = (part.content.get(name) for part in document.parts if isinstance(part.content, dict))
    found = next((member for member in members if isinstance(member, dict)), None)
    if found is None:
        raise Corrupt(f"the server answered for {document.resource} without `{name}`")
    return found


def _takes(resource: Resource, wanted: str) -> bool:
    if not wanted:
        return not resource.accepts
    return any(_is(accepted, wanted) for accepted in resource.accepts.split(","))


def _list(given: Iterable[Any], name: str) -> list[Any]:
    """A list of what was given. Of one text it would be one of characters."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{name}: a list, not one text")
    return list(given)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _trusted(ca_file: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """The certificates to trust beside the system's."""
    return ca_file or os.environ.get("TOWPATH_CA_FILE") or None


def _text(path: str | os.PathLike[str] | None) -> str | None:
    """The text of a configuration, if there is one."""
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        text = file.read(_MAX_CONFIG_CHARACTERS + 1)
    if len(text) > _MAX_CONFIG_CHARACTERS:
        raise ValueError(f"{os.fspath(path)}: a configuration has at most {_MAX_CONFIG_CHARACTERS} characters")
    return text


def _resource(told: Mapping[str, Any]) -> Resource:
    capabilities = json.loads(told["capabilities"])
    return Resource(
        id=told["id"],
        uri=told["uri"],
        media_type=told["media_type"],
        accepts=told["accepts"],
        capabilities=capabilities if isinstance(capabilities, dict) else {},
        uses=tuple(told["uses"]),
        cost_types=tuple(CostType(metric, mode) for metric, mode in told["cost_types"]),
    )


def _document(answer: tuple[str, str, str | None, list[tuple[str | None, str, str]]]) -> Document:
    resource, media_type, tag, parts = answer
    return Document(resource, media_type, tag, tuple(Part(id, part_type, json.loads(text)) for id, part_type, text in parts))
