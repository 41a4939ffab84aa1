"""Client of ALTO servers (RFC 7285 and its extensions): requests network costs, and orders replicas by them.

    >>> from towpath import alto
    >>> client = alto.Client("https://alto.example.org/directory")
    >>> client.costs(["137.138.0.101"], ["134.158.84.23"], metric="delay-ow")
    {'137.138.0.101': {'134.158.84.23': 5300}}
    >>> for change in client.follow({"costs": "default-routingcost"}):
    ...     print(change.name, change.document.tag)
    >>> alto.order(urls, by="BY delay_ow WHERE continent='EU'", ird="https://alto.example.org/directory")

Calls block until the response arrives, without blocking other threads; Ctrl-C interrupts them. A `Client` may be shared by threads,
but not used after a fork: create a new one in the child process. Results omit the values that the server does not know.

A failed request raises a subclass of `towpath.Error`, an invalid argument `ValueError` or `TypeError`.
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
    "Change",
    "Changes",
    "Client",
    "CostType",
    "Document",
    "Error",
    "Part",
    "Place",
    "Resource",
    "Statement",
    "order",
    "rank",
]

Address = str | ipaddress.IPv4Address | ipaddress.IPv6Address
"""An IP address. The address of an endpoint may be a string with its type as a prefix (`ipv4:192.0.2.1`)."""

Value = float | str | bool | list[Any] | None
"""The value of a name in a statement for one replica; None if it is not known."""

Replicas = TypeVar("Replicas", bytes, str, list[Any])
"""A list of replicas: text with one URL per line, Rucio's JSON or a Metalink; or the list that such JSON contains."""

_COSTS = "application/alto-costmap+json"
_ENDPOINT_COSTS = "application/alto-endpointcost+json"
_ENDPOINT_COST_PARAMS = "application/alto-endpointcostparams+json"
_ENDPOINT_PROPERTIES = "application/alto-endpointprop+json"
_ENDPOINT_PROPERTIES_PARAMS = "application/alto-endpointpropparams+json"
_PROPERTIES = "application/alto-propmap+json"
_PROPERTIES_PARAMS = "application/alto-propmapparams+json"
_PATHS = "multipart/related;type=" + _ENDPOINT_COSTS

_OPENALTO = {"next_hop", "as_path"}
"""Element properties that identify path vectors in the format of OpenALTO, which differs from RFC 9275."""

_MAX_CONFIG_CHARACTERS = 1 << 20
"""Maximum size of a configuration file in characters."""


@dataclass(frozen=True)
class CostType:
    """A cost metric and the mode of its values: `numerical`, `ordinal` or `array`."""

    metric: str
    mode: str


@dataclass(frozen=True)
class Resource:
    """An entry of the directory of a server."""

    id: str
    uri: str
    media_type: str
    accepts: str
    """The media types that it accepts by POST, separated by commas; empty if it is requested by GET."""
    capabilities: dict[str, Any]
    uses: tuple[str, ...]
    """The ids of the resources that it depends on."""
    cost_types: tuple[CostType, ...]


@dataclass(frozen=True)
class Part:
    """One part of a response."""

    id: str | None
    """The `Content-ID` without angle brackets; None if there is none."""
    media_type: str
    content: Any
    """The decoded JSON."""


@dataclass(frozen=True)
class Document:
    """The response of a resource."""

    resource: str
    """The id of the resource."""
    media_type: str
    tag: str | None
    """The version tag; None if the response has none."""
    parts: tuple[Part, ...]
    """One part; path vectors have two, the paths and the properties of their elements."""

    @property
    def content(self) -> Any:
        """The decoded JSON of the first part."""
        return self.parts[0].content


@dataclass(frozen=True)
class Change:
    """A new version of a document to which `Client.follow` subscribes."""

    name: str
    """The name of the subscription, chosen by the caller of `Client.follow`."""
    document: Document


@dataclass(frozen=True)
class Place:
    """One replica in an ordered list."""

    url: str
    values: dict[str, Value]
    """The value of each name in the statement."""
    holds: bool | None
    """Whether the replica meets the condition of the statement; None if that is not known, True if there is no condition."""


class Changes:
    """Iterator over the changes of subscribed documents, as returned by `Client.follow`. Also a context manager that closes it.

    It first yields the current version of each document, then each new version, and blocks while there is none. It ends only when it
    is closed. A lost connection is reestablished without losing changes, although several may be merged into one.

    A cost map and its network map change separately: `dependent-vtags` in the `meta` of the costs names the version of the network map
    that they refer to.
    """

    def __init__(self, followed: _towpath.ChangeStream) -> None:
        self._followed = followed

    def __iter__(self) -> Changes:
        return self

    def __next__(self) -> Change:
        change = self._followed.next()
        if change is None:
            raise StopIteration
        name, response = change
        return Change(name, _document(response))

    def close(self) -> None:
        """Ends the subscription. Any thread may call it; the iteration of a thread that waits for the next change ends, too."""
        self._followed.close()

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """Client of one ALTO server. The constructor reads its directory and the directories linked from it.

    - `ird`: URL of the directory. Default: `default-ird` in the file `config`.
    - `token`: bearer token. Default: the token found by WLCG token discovery (`BEARER_TOKEN`, `BEARER_TOKEN_FILE`, `bt_u<uid>`). It is
      sent only to this server, and only over TLS or within this machine.
    - `ca_file`: file or directory of PEM certificates to trust in addition to those of the system and the grid. Default: the value
      of `TOWPATH_CA_FILE`.
    - `config`: path of a TOML file that defines metrics, as for `towpath order --config`.
    - `timeout`: timeout of each call in seconds, above 0. Waiting for the next change has no timeout.

    Raises `ValueError` if neither `ird` nor `config` names a directory, `towpath.Invalid` if the configuration is invalid, `OSError` if
    it cannot be read, and other subclasses of `towpath.Error` if the directory cannot be read.
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
        self._open(_towpath.Client(ird, token, _trusted(ca_file), _text(config), timeout))

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
        """Returns a client of a server discovered through DNS.

        - `domain`: look up the server of this domain (RFC 7286).
        - `address`: without `domain`, look up the server of the network of this IP address (RFC 8686). Without both, look up the server
          of a domain of this machine.
        - `dns`: name server to query (`ADDRESS:PORT`). Default: those of `/etc/resolv.conf`.
        - `ca_file`, `config`, `timeout`: as for the constructor.

        The server is contacted over HTTPS and receives no token, because DNS does not authenticate it; `ird` is its directory. Raises
        `towpath.NotFound` if DNS has no record of a server.
        """
        client = cls.__new__(cls)
        client._open(_towpath.Client.discover(domain, address, dns, _trusted(ca_file), _text(config), timeout))
        return client

    def _open(self, server: _towpath.Client) -> None:
        self._server = server
        self._resources = [_resource(entry) for entry in server.resources()]

    @property
    def ird(self) -> str:
        """The URL of the directory."""
        return self._server.ird

    @property
    def resources(self) -> list[Resource]:
        """The resources of the server, sorted by id."""
        return list(self._resources)

    def get(self, resource: str, input: Mapping[str, Any] | None = None) -> Document:
        """Requests a resource and returns its response.

        - `resource`: id of the resource.
        - `input`: JSON object to send by POST. Default: request by GET.

        Responses are cached and revalidated: the server does not send an unchanged response again.
        """
        return _document(self._server.ask(resource, None if input is None else _json(input)))

    def network_map(self, resource: str | None = None) -> Document:
        """Returns a network map, which maps PIDs to address prefixes. Default: the default network map of the server.

        Raises `towpath.NotFound` if `resource` is omitted and the server has no default network map.
        """
        default = resource or self._server.default_map()
        if default is None:
            raise NotFound("the server has no default network map: name one of its resources")
        return self.get(default)

    def cost_map(self, metric: str = "routingcost", mode: str = "numerical", *, resource: str | None = None) -> Document:
        """Returns the costs between all PIDs of a network map.

        - `metric`, `mode`: the cost type; not used if `resource` is given.
        - `resource`: id of the cost map. Default: a map with this cost type, preferably of the default network map.

        Raises `towpath.NotFound` if the server has no such map.
        """
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
        """Returns the costs from each source to each destination as `{src: {dst: cost}}`.

        The keys are the given addresses. Pairs without a known cost are omitted. `resource` is the id of the endpoint cost service;
        default: the first with this cost type. Raises `towpath.NotFound` if the server has none.
        """
        wanted = CostType(metric, mode)
        services = self._of(_ENDPOINT_COSTS, _ENDPOINT_COST_PARAMS, lambda found: wanted in found.cost_types)
        service = resource or _first(services, f"endpoint cost service by {metric} ({mode})")
        pairs = _EndpointPairs(srcs, dsts)
        document = self.get(service, {"cost-type": {"cost-mode": mode, "cost-metric": metric}, "endpoints": pairs.input})
        return pairs.by_given(_member(document, "endpoint-cost-map"))

    def properties(
        self, endpoints: Iterable[Address], names: Iterable[str], *, resource: str | None = None
    ) -> dict[Address, dict[str, Any]]:
        """Returns properties of endpoints as `{endpoint: {name: value}}`. The keys are the given addresses.

        - `names`: names of the properties, such as `priv:continent` or `default.pid`.
        - `resource`: id of an endpoint property service or a filtered property map. Default: the first with all these properties.

        Raises `towpath.NotFound` if the server has no such resource.
        """
        queried, names = _Endpoints(endpoints), list(names)
        of_endpoints = self._of(_ENDPOINT_PROPERTIES, _ENDPOINT_PROPERTIES_PARAMS, lambda found: _has(found, names))
        of_entities = self._of(_PROPERTIES, _PROPERTIES_PARAMS, lambda found: _has(found, names))
        service = resource or _first(of_endpoints + of_entities, f"properties {', '.join(names)}")
        is_map = any(found.id == service and _is(found.media_type, _PROPERTIES) for found in self._resources)
        field, member = ("entities", "property-map") if is_map else ("endpoints", "endpoint-properties")
        document = self.get(service, {"properties": names, field: queried.texts})
        return queried.by_given(_member(document, member), dict)

    def paths(
        self, srcs: Iterable[Address], dsts: Iterable[Address], properties: Iterable[str] = (), *, resource: str | None = None
    ) -> tuple[dict[Address, dict[Address, list[str]]], dict[str, dict[str, Any]]]:
        """Returns the path vectors from each source to each destination (RFC 9275), and the properties of their elements.

        The first result is `{src: {dst: [element, ...]}}` with the given addresses as keys, the second `{element: {name: value}}` with
        those of `properties` that are known. `resource` is the id of the path vector service; default: the first that has all
        `properties`. Raises `towpath.NotFound` if the server has none.
        """
        names = list(properties)
        services = self._of(_PATHS, _ENDPOINT_COST_PARAMS, lambda found: set(names) <= _of_elements(found))
        as_rfc_9275 = [found for found in services if not _OPENALTO <= _of_elements(found)]
        wanted = f"path vector between endpoints with {', '.join(names)}" if names else "path vector between endpoints"
        service = resource or _first(as_rfc_9275 or services, wanted)
        pairs = _EndpointPairs(srcs, dsts)
        query = {"cost-type": {"cost-mode": "array", "cost-metric": "ane-path"}, "endpoints": pairs.input}
        document = self.get(service, {**query, "ane-property-names": names})
        elements = {entity.partition(".ane:")[2] or entity: values for entity, values in _member(document, "property-map").items()}
        return pairs.by_given(_member(document, "endpoint-cost-map")), elements

    def follow(
        self, wanted: Mapping[str, str | tuple[str, Mapping[str, Any]]], *, means: str | None = None, every: float = 60.0
    ) -> Changes:
        """Subscribes to documents and returns an iterator over their changes.

        - `wanted`: maps names chosen by the caller to a resource id, or to a pair of a resource id and the input to send by POST.
        - `means`: `stream` (one connection for all, RFC 8895), `views` (TIPS, RFC 9569) or `asking` (polling). Default: the first of these
          that the server supports.
        - `every`: polling interval in seconds, above 0.
        """
        targets = []
        for name, target in wanted.items():
            resource, input = (target, None) if isinstance(target, str) else target
            targets.append((name, resource, None if input is None else _json(input)))
        return Changes(self._server.follow(targets, means, every))

    def order(
        self, replicas: Replicas, by: str | Statement = "BY routingcost", *, client: Address | None = None, strict: bool = False
    ) -> Replicas:
        """Returns the list with the replicas of each file ordered, best first; see the function `order` for the arguments."""
        if isinstance(replicas, bytes):
            return self._server.order(replicas, str(by), client, strict)
        if isinstance(replicas, str):
            return self._server.order(replicas.encode(), str(by), client, strict).decode()
        if isinstance(replicas, list):
            ordered: list[Any] = json.loads(self._server.order(_json(replicas).encode(), str(by), client, strict))
            return ordered
        raise TypeError(f"replicas: expected bytes, str or a list, not {type(replicas).__name__}")

    def rank(self, urls: Iterable[str], by: str | Statement = "BY routingcost", *, client: Address | None = None) -> list[Place]:
        """Returns the replicas, best first, with the values that determine their order; see the function `rank` for the arguments."""
        return [Place(*place) for place in self._server.rank(_list(urls, "urls"), str(by), client)]

    def _of(self, media_type: str, accepted: str, fits: Callable[[Resource], bool]) -> list[Resource]:
        """Returns the resources of that media type that accept the input type `accepted` (empty: GET) and satisfy `fits`."""
        of_type = (found for found in self._resources if _is(found.media_type, media_type))
        return [found for found in of_type if _takes(found, accepted) and fits(found)]


class Statement:
    """A parsed ordering expression, such as `BY delay_ow, load DESC WHERE continent = 'EU'`. Needs no server.

    Raises `ValueError` with the column if it is malformed.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._parsed = _towpath.Statement(text)

    @property
    def names(self) -> list[str]:
        """The names that the statement uses, in its condition too, without duplicates."""
        return self._parsed.names

    def order(self, candidates: Iterable[Mapping[str, Any]], *, strict: bool = False) -> list[Mapping[str, Any]]:
        """Returns the candidates, best first. Each is a mapping of names to values. The sort is stable.

        Values are numbers, strings, booleans and lists of these. Candidates without a value (missing, None or NaN) come after those with
        one. Candidates that do not meet the condition come last, or are omitted if `strict` is set.

        Raises `TypeError` for a value of another type, and `ValueError` for lists nested too deeply.
        """
        candidates = list(candidates)
        return [candidates[index] for index in self._parsed.order(candidates, strict)]

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
    """Returns a list of replicas with the replicas of each file ordered, best first, as `towpath order` does.

    - `replicas`: one URL per line, Rucio's JSON or a Metalink, as bytes or str; or a list of URLs or of the elements that
      `ReplicaClient.list_replicas` returns. The result has the same type; in text only the order changes.
    - `by`: the statement. A name is a metric of `config`, a cost metric of the server, or a property of the address of the replica.
    - `ird`: URL of the directory of the ALTO server. Default: `default-ird` in the file `config`.
    - `client`: IP address of the host that reads the replicas. Default: the source address of the request to the ALTO server.
    - `config`: path of a TOML file that defines metrics.
    - `strict`: omit replicas that do not meet the condition of the statement. Otherwise they come last.
    - `timeout`: timeout in seconds of each of the two steps: opening the client, and ordering.

    Raises `ValueError` if the statement is malformed, `towpath.Invalid` if it uses unknown names, and other subclasses of
    `towpath.Error` if the request fails.
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
    """Returns all replicas, best first, with the values that determine their order. The arguments are those of `order`."""
    return Client(ird, config=config, timeout=timeout).rank(urls, by, client=client)


class _Endpoints:
    """Addresses as given by the caller, and in the notation of ALTO (`texts`)."""

    def __init__(self, endpoints: Iterable[Address]) -> None:
        self._texts = {given: _endpoint(given) for given in _list(endpoints, "endpoints")}
        self.texts = list(dict.fromkeys(self._texts.values()))

    def by_given(self, values: Mapping[str, Any], kind: type = object) -> dict[Address, Any]:
        """Returns the values of a response that are instances of `kind`, by address as given by the caller.

        The server may write addresses in another notation than the request.
        """
        by_text = {_endpoint(endpoint): value for endpoint, value in values.items() if isinstance(value, kind)}
        return {given: by_text[text] for given, text in self._texts.items() if text in by_text}


class _EndpointPairs:
    """Sources and destinations of a request; `input` is their JSON form."""

    def __init__(self, srcs: Iterable[Address], dsts: Iterable[Address]) -> None:
        self._srcs, self._dsts = _Endpoints(srcs), _Endpoints(dsts)
        self.input = {"srcs": self._srcs.texts, "dsts": self._dsts.texts}

    def by_given(self, matrix: Mapping[str, Mapping[str, Any]]) -> dict[Address, dict[Address, Any]]:
        """Returns the values of a response by source and destination as given by the caller."""
        return {src: self._dsts.by_given(row) for src, row in self._srcs.by_given(matrix, dict).items()}


def _endpoint(given: Address) -> str:
    """Returns an address in canonical form with its type as a prefix.

    A string that is no address is returned unchanged, so that the server reports the error.
    """
    text = str(given)
    bare = text.removeprefix("ipv4:").removeprefix("ipv6:")
    try:
        address = ipaddress.ip_interface(bare)
    except ValueError:
        return text
    return f"ipv{address.version}:{address.ip}" if address.network.prefixlen == address.max_prefixlen else text


def _first(found: Sequence[Resource], wanted: str) -> str:
    """Returns the id of the first resource; raises `NotFound` with the description `wanted` if there is none."""
    if not found:
        raise NotFound(f"the server has no {wanted}: `resources` lists what it has")
    return found[0].id


def _has(resource: Resource, names: Sequence[str]) -> bool:
    """Returns whether a resource offers all these properties for addresses."""
    mappings = resource.capabilities.get("mappings")
    of_domains = [mappings.get(domain) for domain in ("ipv4", "ipv6")] if isinstance(mappings, dict) else []
    lists = [offered for offered in (resource.capabilities.get("prop-types"), *of_domains) if isinstance(offered, list)]
    return all(any(name in offered for offered in lists) for name in names)


def _of_elements(resource: Resource) -> set[str]:
    """Returns the properties of path elements that a resource offers."""
    names = resource.capabilities.get("ane-property-names")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _is(media_type: str, wanted: str) -> bool:
    """Returns whether `media_type` equals `wanted` and has at least its parameters. Case and quotes are ignored."""
    actual, expected = ([part.strip().replace('"', "").lower() for part in text.split(";")] for text in (media_type, wanted))
    return actual[0] == expected[0] and set(expected[1:]) <= set(actual[1:])


def _member(document: Document, name: str) -> Mapping[str, Any]:
    """Returns the first JSON object called `name` in the parts of a response; raises `Corrupt` if there is none."""
    members = (part.content.get(name) for part in document.parts if isinstance(part.content, dict))
    found = next((member for member in members if isinstance(member, dict)), None)
    if found is None:
        raise Corrupt(f"the response of the server for {document.resource} has no object `{name}`")
    return found


def _takes(resource: Resource, wanted: str) -> bool:
    """Returns whether a resource accepts input of the media type `wanted`; for an empty one, whether it is requested by GET."""
    if not wanted:
        return not resource.accepts
    return any(_is(accepted, wanted) for accepted in resource.accepts.split(","))


def _list(given: Iterable[Any], name: str) -> list[Any]:
    """Returns the elements as a list. Raises `TypeError` for a string, whose elements would be characters."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{name}: expected a list, not a single string")
    return list(given)


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _trusted(ca_file: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Returns the path of the additional trusted certificates: the argument, or the value of `TOWPATH_CA_FILE`."""
    return ca_file or os.environ.get("TOWPATH_CA_FILE") or None


def _text(path: str | os.PathLike[str] | None) -> str | None:
    """Returns the content of a configuration file, or None without a path.

    Raises `ValueError` if it exceeds `_MAX_CONFIG_CHARACTERS`, and `OSError` if it cannot be read.
    """
    if path is None:
        return None
    with open(path, encoding="utf-8") as file:
        text = file.read(_MAX_CONFIG_CHARACTERS + 1)
    if len(text) > _MAX_CONFIG_CHARACTERS:
        raise ValueError(f"{os.fspath(path)}: the configuration exceeds {_MAX_CONFIG_CHARACTERS} characters")
    return text


def _resource(entry: Mapping[str, Any]) -> Resource:
    """Converts a resource of the native module."""
    capabilities = json.loads(entry["capabilities"])
    return Resource(
        id=entry["id"],
        uri=entry["uri"],
        media_type=entry["media_type"],
        accepts=entry["accepts"],
        capabilities=capabilities if isinstance(capabilities, dict) else {},
        uses=tuple(entry["uses"]),
        cost_types=tuple(CostType(metric, mode) for metric, mode in entry["cost_types"]),
    )


def _document(response: tuple[str, str, str | None, list[tuple[str | None, str, str]]]) -> Document:
    """Converts a response of the native module."""
    resource, media_type, tag, parts = response
    return Document(resource, media_type, tag, tuple(Part(id, part_type, json.loads(text)) for id, part_type, text in parts))
