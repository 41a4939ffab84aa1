"""Types of the native module. Private to the package: documents are passed as JSON text. Use `towpath.alto` and `towpath.sched` instead."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from os import PathLike
from typing import Any, TypedDict, final

_Part = tuple[str | None, str, str]
_Response = tuple[str, str, str | None, list[_Part]]
_Address = str | IPv4Address | IPv6Address

class _Resource(TypedDict):
    id: str
    uri: str
    media_type: str
    accepts: str
    capabilities: str
    uses: list[str]
    cost_types: list[tuple[str, str]]

@final
class Client:
    def __new__(
        cls, ird: str | None, token: str | None, ca_file: str | PathLike[str] | None, config: str | None, limit: float
    ) -> Client: ...
    @staticmethod
    def discover(
        domain: str | None,
        address: _Address | None,
        dns: str | None,
        ca_file: str | PathLike[str] | None,
        config: str | None,
        limit: float,
    ) -> Client: ...
    @property
    def ird(self) -> str: ...
    def resources(self) -> list[_Resource]: ...
    def default_map(self) -> str | None: ...
    def ask(self, resource: str, input: str | None) -> _Response: ...
    def order(self, list: bytes, by: str, client: _Address | None, strict: bool) -> bytes: ...
    def rank(self, urls: Sequence[str], by: str, client: _Address | None) -> list[tuple[str, dict[str, Any], bool | None]]: ...
    def follow(self, wanted: Sequence[tuple[str, str, str | None]], means: str | None, every: float) -> ChangeStream: ...

@final
class ChangeStream:
    def next(self) -> tuple[str, _Response] | None: ...
    def close(self) -> None: ...

@final
class Statement:
    def __new__(cls, text: str) -> Statement: ...
    @property
    def names(self) -> list[str]: ...
    def order(self, candidates: Sequence[Mapping[str, Any]], strict: bool) -> list[int]: ...

OPTIMISERS: tuple[str, ...]
MAX_FIXED_CONNECTIONS: int
MAX_TOPOLOGY_BYTES: int

@final
class Scenario:
    def __new__(cls, text: str) -> Scenario: ...
    @property
    def topology(self) -> str | None: ...
    def world(self, topology: str | None) -> World: ...

@final
class World:
    def simulate(self, optimiser: str, seed: int, connections: int, on_period: Callable[[str], object] | None) -> str: ...

def max_min(
    capacities: Iterable[float],
    paths: Iterable[Iterable[int]],
    weights: Iterable[float],
    limits: Iterable[float] | None,
) -> tuple[list[float], list[int | None]]: ...
